"""What passes between the wire formats and a call with hidden legs.

A leg is one upstream request inside a call. The model may call the tool that we added; that call is held back and
answered here, and a further leg follows. A stitcher is the state machine for one call: it takes the bytes of every leg
and makes one answer of them, without a trace of the held calls. It does no I/O.

A hidden leg and our answers are part of the prompt from then on. The client does not know them and resends only what it
was shown, so they are put back into every later request (``Dialect.expand``).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import msgspec

from pager.request_values import Answer


class LegPart(msgspec.Struct, frozen=True, array_like=True):
    """One piece of a leg, in the form in which a request repeats it; ``hidden`` if the client never saw it.

    ``raw`` is JSON: a string for text and reasoning of Chat Completions, a call there; a content block of Messages; an
    output item of Responses.
    """

    kind: Literal["text", "reasoning", "call", "other"]
    raw: msgspec.Raw
    hidden: bool = False


class Leg(msgspec.Struct, frozen=True, array_like=True):
    """The pieces of a leg, and our answers to its held calls, each in the form of the wire format.

    ``mixed`` if the client was shown other calls of the leg: then its results come next, and no further leg.
    """

    parts: list[LegPart]
    results: list[msgspec.Raw]
    mixed: bool = False


class HeldCall(msgspec.Struct, frozen=True):
    """A tool call that the client has not been shown."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class LegEnd:
    """What a finished leg keeps from the client.

    ``mixed`` if the client was shown calls of its own tools. ``whole`` is False where the leg broke off, or its token
    limit cut a call: then no call is answered. ``shown`` if the client has seen any text, reasoning or call of this
    leg or of an earlier leg.
    """

    calls: tuple[HeldCall, ...] = ()
    mixed: bool = False
    whole: bool = True
    shown: bool = False


@dataclass(frozen=True, slots=True)
class ToolSlot:
    """The place for one more tool in a request, and the names of the tools that it has.

    ``at`` is an offset in the body, or in the item number ``item`` where an item holds the tools. ``before`` and
    ``after`` are the bytes that make the entry an element of the list.
    """

    at: int
    before: bytes
    after: bytes
    names: frozenset[str]
    item: int | None = None


@dataclass(frozen=True, slots=True)
class Expansion:
    """The items of the prompt for the first ``taken`` items that the client sent after a call with hidden legs."""

    taken: int
    items: tuple[bytes, ...]


class Expander(Protocol):
    """Puts hidden legs back into what the client sent after a call (``Dialect.expand``)."""

    def __call__(self, items: Sequence[bytes], legs: Sequence[Leg], *, sure: bool = False) -> Expansion | None:
        """The expansion of the first of these items; None if the legs do not belong there."""


class CallFilter(Protocol):
    """The rule for calls of the client's own tools that must not reach it."""

    def watches(self, name: str) -> bool:
        """Whether it depends on the arguments of this tool's calls if the client may see them."""

    def holds(self, name: str, arguments: str) -> bool:
        """Whether a call with these arguments is held back."""


class _Passing:
    """A guard that lets every call pass."""

    def watches(self, name: str) -> bool:  # noqa: ARG002
        return False

    def holds(self, name: str, arguments: str) -> bool:  # noqa: ARG002
        return False


PASSING: Final = _Passing()


@dataclass(frozen=True, slots=True)
class HiddenCalls:
    """Which calls the client must not see: those of our ``tool``, and those that the ``guard`` holds."""

    tool: str = ""
    guard: CallFilter = PASSING

    def hides(self, name: str, arguments: str | None = None) -> bool | None:
        """Whether a call is hidden; None where that depends on its arguments, and they are not complete yet."""
        if name == self.tool or not self.guard.watches(name):
            return name == self.tool
        return None if arguments is None else self.guard.holds(name, arguments)


def shown_tokens(output: int, hidden: Iterable[str]) -> int:
    """The output tokens of a leg without its hidden calls, estimated by their names and arguments."""
    return max(0, output - sum(len(call) // 4 + 8 for call in hidden))


class Stitcher(Protocol):
    """One call as the client sees it, made of its legs; begun with the first leg."""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes of a streamed leg, split anywhere; the bytes for the client, empty while they wait."""

    def take(self, body: bytes) -> None:
        """Take a leg that came in one piece; raises NotUnderstood."""

    def held(self) -> LegEnd:
        """What the finished leg holds back."""

    def answer(self) -> Answer:
        """All of the current leg so far, its held calls included."""

    def leg(self, answers: Sequence[str]) -> Leg:
        """The leg in the form in which later requests repeat it, with the answers to its held calls, in their order."""

    @property
    def silent(self) -> bool:
        """Whether the client has seen nothing yet of the current leg."""

    def retract(self) -> None:
        """Forget the current leg, which was silent: it failed, and another takes its place."""

    def go_on(self) -> None:
        """Begin another leg: forget the end of the current leg."""

    def finish(self) -> bytes:
        """The end of the client's stream, or the whole body where legs came in one piece."""

    def fail(self, status: int, message: str) -> bytes:
        """An error inside a stream that has begun, in the form that makes clients of this wire format try again."""
