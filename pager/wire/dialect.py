"""What every wire format must do: read requests and answers, and say errors in its own words.

A dialect is one folder in ``pager/wire`` whose module ``dialect`` has a class named ``Dialect``; the server and the
contract tests find it by its file name. Dialects are pure and hold no state: bytes in, values out.
"""

from collections.abc import Sequence
from typing import Protocol

from pager.tools.decide import Toolset
from pager.tools.definitions import Listed
from pager.values import (
    Answer,
    Message,
    Request,
    Span,
)
from pager.wire.page_spans import Site
from pager.wire.parse_cache import ParseCache
from pager.wire.stitching import (
    Carrier,
    Expansion,
    Guard,
    Leg,
    Splice,
)


class AnswerReader(Protocol):
    """Reads one streamed answer as its bytes come in, split anywhere."""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""

    def answer(self) -> Answer:
        """The answer as far as it has come; ``complete`` says whether the stream reached its end."""


class Dialect(Protocol):
    """One wire format; ``path`` is its endpoint below the base URL.

    ``chains`` says whether a request may name the answer that it follows, instead of sending the history again.
    ``heartbeat`` may be sent between any two events of a stream, and means nothing. ``ends_on_error`` says whether its
    clients take an error event for the end of a stream; where they do not, only a broken connection tells them.
    """

    name: str
    path: str
    chains: bool
    heartbeat: bytes
    ends_on_error: bool

    def parse(self, body: bytes, cache: ParseCache | None = None) -> Request:
        """Find the parts of a request body; raises NotUnderstood.

        A ``cache`` of earlier bodies saves time and changes nothing else.
        """

    def decode(self, raw: bytes | memoryview) -> Message:
        """Read one message; what can't be read becomes an opaque message, never an error."""

    def sites(self, raw: bytes) -> list[Site]:
        """The places in a message where a page may stand; none in a message that can't be read exactly."""

    def carrier(self, request: Request) -> Carrier | str:
        """Where a tool of ours can be added to this request, or why it can't be."""

    def mark(self, raw: bytes, lifetime: float = ...) -> bytes | None:
        """The item with a mark that tells the provider to cache the prompt up to here; None where it can carry none.

        ``lifetime`` are the seconds that it asks for, by default as few as the provider offers.
        """

    def mark_head(self, request: Request) -> tuple[Span, bytes] | None:
        """The edit of the body that marks what stands before the messages to be cached; None where there is none.

        Wire formats whose providers cache by themselves have no marks.
        """

    def forbid_calls(self, request: Request) -> tuple[Span, bytes]:
        """The edit of the body by which the model may call no tool; for a request that can carry one of ours."""

    def offers(self, request: Request) -> Listed | None:
        """The tools that the request offers; None where there are none that could be sent shorter."""

    def splice(self, tool: str, guard: Guard, tools: Toolset | None = None) -> Splice:
        """The state machine for one call to which the tool with this name was added.

        What the ``guard`` holds is held back, too; it waits for calls that the guard watches, and for no others.
        ``tools`` are those that were sent short, which the client must not see where an answer repeats them.
        """

    def appended(self, leg: Leg) -> list[bytes]:
        """The items that a leg which is not mixed adds to the end of the prompt: what it said, and our answers."""

    def expand(self, items: Sequence[bytes], legs: Sequence[Leg], *, sure: bool = False) -> Expansion | None:
        """What the client sent after a call, with the call's hidden legs put back; None if their place is gone.

        ``items`` are all items that the client has sent after those of that call. Only the last leg may be mixed.
        ``sure`` if ids prove that this is the place: texts may be missing, and calls may be in other items.
        """

    def read(self, body: bytes) -> Answer:
        """Read a whole, unstreamed answer; raises NotUnderstood."""

    def reader(self) -> AnswerReader:
        """A reader for one streamed answer."""

    def error(self, status: int, message: str) -> bytes:
        """An error body as this wire format's provider would send it."""
