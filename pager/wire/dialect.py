"""What every wire format must do: read requests and answers, and write errors and tools in its own form.

A dialect is one folder in ``pager/wire``. Its module ``dialect`` has a class ``Dialect``; its module ``scripted`` has a
class ``Scripted``, the provider's side, which the scripted model and the contract tests play. The rest of the program
asks a dialect by what it says here, and never by its name. Dialects are pure and hold no state: bytes in, values out.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from math import ceil
from typing import Any

import orjson

from pager.request_values import Answer, Block, Message, Request, Span
from pager.tools.decide_forms import Toolset
from pager.tools.definitions import Listed
from pager.wire import tool_lists
from pager.wire.answer_reader import AnswerDraft, AnswerReader
from pager.wire.common import Json, digest, loads, member_edit
from pager.wire.page_spans import PageSpan
from pager.wire.parse_cache import ParseCache
from pager.wire.stitching import CallFilter, Expansion, Leg, Stitcher, ToolSlot


class Dialect(ABC):
    """One wire format."""

    name: str

    path: str
    """The endpoint below the base URL; where it has variable parts, an example of it."""

    count_path = ""
    """The endpoint that counts the tokens of a prompt; empty where the provider has none."""

    resources: tuple[str, ...] = ()
    """The beginnings of other paths that belong to its provider; the longest of all dialects' decides."""

    client_headers: frozenset[bytes] = frozenset()
    """Headers that only its clients send; they decide before any path."""

    base_url: str
    """The address of the provider that defined the format, where the settings name none."""

    items_key: str
    """The member of a request that holds its messages."""

    prompt_members: tuple[str, ...]
    """The members of a request that are part of the prompt, beside the messages."""

    layout: tool_lists.Layout
    """How a request lists its tools."""

    no_calls = b'"none"'
    """The value of ``tool_choice`` by which the model may call no tool."""

    draft: type[AnswerDraft]
    """What collects an answer."""

    marks_cache = False
    """Whether the provider caches what the client marks, so that we mark what shall be cached where it does not."""

    cache_members = False
    """Whether a request may choose its cache by the members ``prompt_cache_key`` and ``prompt_cache_retention``."""

    chains = False
    """Whether a request may name the answer that it follows, instead of sending the history again."""

    heartbeat = b": keep-alive\n\n"
    """What may be sent between any two events of a stream, and means nothing."""

    ends_on_error = True
    """Whether clients take an error event for the end of a stream; others notice only a broken connection."""

    low_detail_tokens = 85
    """The tokens of a picture that the client sends in low detail; 0 where a client can't ask for that."""

    def accepts(self, path: str) -> bool:
        """Whether a POST to this path, below the base URL, is a call."""
        return path == self.path

    def credential(self, key: str) -> tuple[str, str]:
        """The header in which the provider takes a key, and its value."""
        return "authorization", f"Bearer {key}"

    @abstractmethod
    def parse(self, body: bytes, cache: ParseCache | None = None, *, path: str = "") -> Request:
        """Find the parts of a request body; raises NotUnderstood.

        A ``cache`` of earlier bodies saves time and changes nothing else. ``path`` is the one that the request was sent
        to, for wire formats that name the model there.
        """

    def decode(self, raw: bytes | memoryview) -> Message:
        """Read one message; what can't be read becomes an opaque message, never an error."""
        item = loads(raw)
        if isinstance(item, dict):
            try:
                role, normal, blocks = self._read(item)
                return Message(role, digest(normal), tuple(blocks))
            except (orjson.JSONEncodeError, RecursionError):  # nested deeper than can be written
                pass
        return Message(role="", norm=sha256(raw).digest())

    @abstractmethod
    def _read(self, item: Json) -> tuple[str, Json, Iterable[Block]]:
        """A message's role, its normal form, and its blocks."""

    @abstractmethod
    def page_spans(self, raw: bytes) -> list[PageSpan]:
        """The values in a message that can be pages; none in a message that can't be read exactly."""

    @abstractmethod
    def tool_slot(self, request: Request) -> ToolSlot | str:
        """Where a tool of ours can be added to this request, or why it can't be."""

    def mark(self, raw: bytes, lifetime: float = 0.0) -> bytes | None:  # noqa: ARG002 - for those that have marks
        """The item with a mark that tells the provider to cache the prompt up to here; None where it can carry none.

        ``lifetime`` are the seconds that it asks for, by default as few as the provider offers.
        """
        return None

    def mark_head(self, request: Request, lifetime: float = 0.0) -> tuple[Span, bytes] | None:  # noqa: ARG002 - as above
        """The edit of the body that marks what comes before the messages to be cached; None where there is none."""
        return None

    def lengthen(self, raw: bytes) -> bytes | None:  # noqa: ARG002 - as above
        """The item with all its marks asking for an hour; None where one names a lifetime, or can't be changed."""
        return None

    def lengthen_head(self, request: Request) -> tuple[tuple[Span, bytes], ...] | None:  # noqa: ARG002 - as above
        """The edits by which all marks outside of the messages ask for an hour; None as above."""
        return None

    refresh_costs_output = True
    """Whether a refresh is billed some output, so that it is worth it only where writing costs extra."""

    def refresh(self, body: bytes) -> bytes | None:  # noqa: ARG002 - for those that have a form for it
        """The request in the form that keeps its prompt cached and brings as little as can be; None if there is none.

        Raises NotUnderstood.
        """
        return None

    def forbid_calls(self, request: Request) -> tuple[Span, bytes]:
        """The edit of the body by which the model may call no tool; for a request that can carry one of ours."""
        return member_edit(request, "tool_choice", self.no_calls)

    @abstractmethod
    def tool(self, name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The definition of a tool, as a request lists it."""

    @abstractmethod
    def tool_call(self, number: str, tool: str, arguments: Mapping[str, Any]) -> bytes:
        """A whole answer that is one call of a tool; ids are made of ``number``."""

    def offers(self, request: Request) -> Listed | None:
        """The tools that the request offers; None where there are none that could be sent shorter."""
        return tool_lists.offers(request, self.layout)

    @abstractmethod
    def stitcher(self, tool: str, guard: CallFilter, tools: Toolset | None = None) -> Stitcher:
        """The state machine for one call to which the tool with this name was added.

        What the ``guard`` holds is held back, too; it waits for calls that the guard watches, and for no others.
        ``tools`` are those that were sent short, which the client must not see where an answer repeats them.
        """

    @abstractmethod
    def appended(self, leg: Leg) -> list[bytes]:
        """The items that a leg which is not mixed adds to the end of the prompt: its own, and our answers."""

    @abstractmethod
    def expand(self, items: Sequence[bytes], legs: Sequence[Leg], *, sure: bool = False) -> Expansion | None:
        """What the client sent after a call, with the call's hidden legs put back; None if their place is gone.

        ``items`` are all items that the client has sent after those of that call. Only the last leg may be mixed.
        ``sure`` if ids prove that this is the place: texts may be missing, and calls may be in other items.
        """

    def picture_tokens(self, width: int, height: int) -> int:
        """The tokens of a picture by its edges: by OpenAI's rule, which others who speak its formats follow."""
        fitted = min(1.0, 2_048 / max(width, height))
        fitted *= min(1.0, 768 / (min(width, height) * fitted))
        return 85 + 170 * ceil(width * fitted / 512) * ceil(height * fitted / 512)

    @abstractmethod
    def read(self, body: bytes) -> Answer:
        """Read a whole, unstreamed answer; raises NotUnderstood."""

    def reader(self) -> AnswerReader:
        """A reader for one streamed answer."""
        return AnswerReader(self.draft())

    @abstractmethod
    def error(self, status: int, message: str) -> bytes:
        """An error body as this wire format's provider would send it."""
