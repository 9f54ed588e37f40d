"""Keeps the place in a script and decides what a request is answered: further legs of a call do not move it on."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pager.testing.scripted.page_requests import asking, getter
from pager.testing.scripted.prompt_cache import size
from pager.testing.scripted.request_rules import problems
from pager.testing.scripted.script import (
    Answer,
    Drop,
    Fail,
    Gated,
    Overflowing,
    PageIn,
    Picky,
    Reply,
    Script,
    Slow,
    Stumble,
)
from pager.wire.scripted import Say, Scripted

Prompt = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cue:
    """What to say, how (after how many seconds, breaking off or not), and where in the script.

    ``number`` is that of the call, ``leg`` counts from 1 those of it that ask for pages. ``stays``: the next request
    belongs to the same call. ``refused`` says what is wrong with the prompt.
    """

    said: Say | Fail | Reply
    number: int
    leg: int = 0
    seconds: float = 0
    manner: Drop | Stumble | Gated | None = None
    stays: bool = False
    refused: str = ""


@dataclass(slots=True)
class Direction:
    """A script being played; a request that is refused, or asks for pages, is followed by another of the same call."""

    script: Script
    number: int = 0
    legs: int = 0
    # How often each answer of the call has asked for pages, by how deep it is nested in others.
    asked: Counter[int] = field(default_factory=Counter)

    def next(self, wire: Scripted, prompt: Prompt | None) -> Cue:
        """The answer to a request with this prompt; None is one that can't be read."""
        cue = self._checked(wire, prompt) or self._cue(self.script.answer(self.number), wire, prompt or {})
        if not cue.stays:
            self.number, self.legs, self.asked = self.number + 1, 0, Counter()
        return cue

    def _checked(self, wire: Scripted, prompt: Prompt | None) -> Cue | None:
        """The refusal of a prompt that a provider would not take."""
        found = problems(wire.name, prompt) if self.script.strict and prompt is not None else []
        return self._refuse(Fail(400, message=found[0]), "; ".join(found)) if found else None

    def _refuse(self, fail: Fail, why: str) -> Cue:
        return Cue(fail, self.number, stays=True, refused=why)

    def _cue(self, answer: Answer, wire: Scripted, prompt: Prompt, depth: int = 0) -> Cue:
        match answer:
            case PageIn():
                return self._page_in(answer, wire, prompt, depth)
            case Overflowing() | Picky():
                return self._choosy(answer, wire, prompt, depth)
            case Slow() | Gated() | Drop() | Stumble():
                return _given(answer, self._cue(answer.then, wire, prompt, depth + 1))
            case _:
                return Cue(answer, self.number)

    def _page_in(self, answer: PageIn, wire: Scripted, prompt: Prompt, depth: int) -> Cue:
        said = asking(answer, prompt) if self.asked[depth] < answer.times else None
        if said is None:
            return self._cue(answer.then or answer.bare, wire, prompt, depth + 1)
        self.asked[depth] += 1
        self.legs += 1
        return Cue(said, self.number, self.legs, stays=not answer.mixed)

    def _choosy(self, answer: Overflowing | Picky, wire: Scripted, prompt: Prompt, depth: int) -> Cue:
        if isinstance(answer, Picky) and getter(prompt):
            return self._refuse(Fail(400, message=answer.message), answer.message)
        if isinstance(answer, Overflowing) and (count := size(wire.prompt(prompt))) > answer.limit:
            body = json.dumps(wire.too_long(count, answer.limit)).encode()
            return self._refuse(Fail(400, body=body), f"the prompt has {count} tokens and {answer.limit} fit")
        return self._cue(answer.then, wire, prompt, depth + 1)


def _given(answer: Slow | Gated | Drop | Stumble, cue: Cue) -> Cue:
    """The cue, given in this manner; an answer that breaks off is followed by no further leg."""
    if isinstance(answer, Slow):
        return replace(cue, seconds=cue.seconds + answer.seconds)
    return replace(cue, manner=answer, stays=cue.stays and isinstance(answer, Gated))
