"""What passes between the wire formats and a call with hidden legs.

A leg is one upstream request inside a call. The model may call the tool that we added; that call is held back, answered
here, and a further leg follows. A stitcher is the state machine for one call: it takes the bytes of every leg and gives
out one coherent answer for the client, without a trace of what was held back. It does no I/O: whoever drives it sends.

What a hidden leg said, and what it was answered, stands in the prompt from then on. The client knows nothing of it and
sends only what it was shown, so the leg is put back on every later call (``Dialect.expand``).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import msgspec

from pager.values import Answer


class LegPart(msgspec.Struct, frozen=True, array_like=True):
    """One piece of what a leg said, in the form in which a request repeats it; ``hidden`` if the client never saw it.

    ``raw`` is JSON: a string for text and reasoning of Chat Completions, a call there; a content block of Messages; an
    output item of Responses.
    """

    kind: Literal["text", "reasoning", "call", "other"]
    raw: msgspec.Raw
    hidden: bool = False


class Leg(msgspec.Struct, frozen=True, array_like=True):
    """What a leg said, and our answers to the calls that were held back, each in the form of its wire format.

    ``mixed``: the client was shown other calls beside, so that no further leg followed: its results come first.
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
    """What a leg that came to its end keeps from the client.

    ``mixed`` if calls of the client's own tools were shown beside. ``whole`` is False where the leg broke off, or was
    cut by its limit of tokens in the middle of a call: then there is nothing to be answered. ``shown`` says whether the
    client has seen any text, reasoning or call of this leg or an earlier one.
    """

    calls: tuple[HeldCall, ...] = ()
    mixed: bool = False
    whole: bool = True
    shown: bool = False


@dataclass(frozen=True, slots=True)
class ToolSlot:
    """Where one more tool can be written into a request, and the names that are taken.

    ``at`` is a place in the body, or in the raw item number ``item`` where tools stand in one. ``before`` and ``after``
    are what the entry needs around it to be one more element of the list.
    """

    at: int
    before: bytes
    after: bytes
    names: frozenset[str]
    item: int | None = None


@dataclass(frozen=True, slots=True)
class Expansion:
    """What stands in the prompt for the first ``taken`` items that the client sent after a call with hidden legs."""

    taken: int
    items: tuple[bytes, ...]


class Expander(Protocol):
    """Puts hidden legs back into what the client sent after a call (``Dialect.expand``)."""

    def __call__(self, items: Sequence[bytes], legs: Sequence[Leg], *, sure: bool = False) -> Expansion | None:
        """The expansion of the first of these items; None if the legs' place is elsewhere."""


class CallFilter(Protocol):
    """Knows which calls of the client's own tools must not reach it."""

    def watches(self, name: str) -> bool:
        """Whether a call of this tool must be complete before it is known if the client may see it."""

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
        """Take the next bytes of a streamed leg, split anywhere; what may go to the client now."""

    def take(self, body: bytes) -> None:
        """Take a leg that came in one piece; raises NotUnderstood."""

    def held(self) -> LegEnd:
        """What the leg that has come to its end holds back."""

    def answer(self) -> Answer:
        """All that the leg under way has brought so far, what is held back included."""

    def leg(self, answers: Sequence[str]) -> Leg:
        """The leg as it stands in the prompt from now on, with these answers to its held calls, in their order."""

    @property
    def silent(self) -> bool:
        """Whether the client has been shown nothing yet of the leg that is under way."""

    def retract(self) -> None:
        """Forget the leg that is under way, which was silent: it failed, and another one takes its place."""

    def go_on(self) -> None:
        """Another leg follows: forget how this one ended."""

    def finish(self) -> bytes:
        """The end of the client's stream, or the whole body where legs came in one piece."""

    def fail(self, status: int, message: str) -> bytes:
        """An error inside a stream that has begun, in the form that makes clients of this wire format try again."""
