"""What the scripted model answers, call by call, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pager.wire.scripted import Call, Say

UNFINISHED = Say("This sentence never reaches its end.")


@dataclass(frozen=True, slots=True)
class Fail:
    """An error status; without a body it is the provider's own for that status."""

    status: int
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "the script says so"


@dataclass(frozen=True, slots=True)
class Reply:
    """A status, headers and bytes, word for word."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageIn:
    """Asks for pages that the prompt holds only stubs of, with the tool that the prompt offers for it; then ``then``.

    As many pages as ``pages`` says are asked for in one call, the ``oldest`` or ``newest`` stubs first, ``times`` over,
    each in a request of its own. ``ahead`` and ``beside`` are calls of the client's own tools before and after that
    call; with them the client's results come next, and ``then`` is not sent. Where there is no stub or no such tool, as
    without a proxy, or no tool may be called, ``then`` is sent at once; where it is None, the answer without the call
    for pages. One that is ``stubborn`` calls also what it may not.
    """

    then: "Answer | None" = None
    pages: int = 1
    lines: str = ""
    search: str = ""
    ahead: Sequence[Call] = ()
    beside: Sequence[Call] = ()
    text: str = ""
    reasoning: str = ""
    times: int = 1
    which: Literal["oldest", "newest"] = "oldest"
    stubborn: bool = False

    @property
    def mixed(self) -> bool:
        """Whether the client's own tools are called, too."""
        return bool(self.ahead or self.beside)

    @property
    def bare(self) -> Say:
        """The answer without the call for pages."""
        return Say(self.text, [*self.ahead, *self.beside], self.reasoning)


@dataclass(frozen=True, slots=True)
class Overflowing:
    """Refuses a prompt of more than ``limit`` tokens, by the scripted model's count, as too long; else ``then``."""

    limit: int
    then: "Answer"


@dataclass(frozen=True, slots=True)
class Picky:
    """Refuses a prompt that offers a tool to ask for pages with; else ``then``."""

    then: "Answer"
    message: str = "Invalid schema for function: this model does not take it."


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection breaks after this number of events (unstreamed: in mid-body); after 0, before any answer."""

    after_events: int
    then: Say | PageIn = UNFINISHED


@dataclass(frozen=True, slots=True)
class Stumble:
    """A stream of status 200 that ends in an error event after this number of events."""

    after_events: int
    then: Say | PageIn = UNFINISHED
    message: str = "the script says so"


@dataclass(frozen=True, slots=True)
class Gated:
    """Every event but the first waits for the test to release it (unstreamed: the answer does)."""

    then: Say | PageIn


@dataclass(frozen=True, slots=True)
class Slow:
    """Nothing is sent for some seconds, then the answer."""

    seconds: float
    then: "Answer"


Answer = Say | Fail | Reply | Drop | Stumble | Gated | Slow | PageIn | Overflowing | Picky


@dataclass(frozen=True, slots=True)
class Script:
    """The answers in the order of the calls; ``repeat`` begins anew at the end.

    ``others`` are replies to any other request, by "METHOD /path". A ``strict`` model refuses prompts that a real
    provider would refuse.
    """

    answers: Sequence[Answer] = ()
    repeat: bool = False
    others: Mapping[str, Reply] = field(default_factory=dict)
    strict: bool = True

    def answer(self, number: int) -> Answer:
        """The answer to call ``number``, counted from 0; the further legs of a call are not counted."""
        if self.answers and (self.repeat or number < len(self.answers)):
            return self.answers[number % len(self.answers)]
        return Fail(400, message=f"the script has {len(self.answers)} answers and this is call {number + 1}")
