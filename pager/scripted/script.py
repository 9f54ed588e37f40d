"""What the scripted model answers, call by call, as plain values."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; the arguments are an object, or a string where a script wants them broken."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The arguments as the model writes them."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True, slots=True)
class Say:
    """A whole answer: reasoning, then text, then calls; ``finish`` is stop, length, tools or refusal, or follows."""

    text: str = ""
    calls: Sequence[Call] = ()
    reasoning: str = ""
    finish: str = ""

    @property
    def ending(self) -> str:
        """Why the answer ends."""
        return self.finish or ("tools" if self.calls else "stop")


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
class Drop:
    """The connection breaks after so many events (unstreamed: in mid-body); after none, before any answer at all."""

    after_events: int
    then: Say = Say("This sentence never reaches its end.")


@dataclass(frozen=True, slots=True)
class Stumble:
    """A stream of status 200 that ends in an error event after so many events."""

    after_events: int
    then: Say = Say("This sentence never reaches its end.")
    message: str = "the script says so"


@dataclass(frozen=True, slots=True)
class Gated:
    """Every event but the first waits for the test to release it (unstreamed: the answer does)."""

    then: Say


@dataclass(frozen=True, slots=True)
class Slow:
    """Nothing is sent for some seconds, then the answer."""

    seconds: float
    then: "Answer"


Answer = Say | Fail | Reply | Drop | Stumble | Gated | Slow


@dataclass(frozen=True, slots=True)
class Script:
    """The answers in the order of the calls; ``repeat`` begins anew at the end.

    ``others`` are replies to any other request, by "METHOD /path".
    """

    answers: Sequence[Answer] = ()
    repeat: bool = False
    others: Mapping[str, Reply] = field(default_factory=dict)

    def answer(self, number: int) -> Answer:
        """The answer to call ``number``, counted from 0."""
        if self.answers and (self.repeat or number < len(self.answers)):
            return self.answers[number % len(self.answers)]
        return Fail(400, message=f"the script has {len(self.answers)} answers and this is call {number + 1}")
