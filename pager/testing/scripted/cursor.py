"""The place in a script, and the answer to the next request; further legs of a call do not move it on."""

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
class ScriptStep:
    """The answer to one request, how it is delivered, and its place in the script."""

    answer: Say | Fail | Reply
    number: int
    """The number of the call, from 0."""
    leg: int = 0
    """The number of a leg that asks for pages, from 1; 0 for the last leg of a call."""
    seconds: float = 0
    """The delay before the answer."""
    delivery: Drop | Stumble | Gated | None = None
    """What interrupts the answer, if anything does."""
    stays: bool = False
    """Whether the next request belongs to the same call."""
    refused: str = ""
    """What is wrong with the prompt; empty if it is accepted."""


@dataclass(slots=True)
class ScriptCursor:
    """The place in a script; after a refused request, or an answer that asks for pages, it stays at the same call."""

    script: Script
    number: int = 0
    legs: int = 0
    asked: Counter[int] = field(default_factory=Counter)
    """How often each answer of the call has asked for pages, by its depth in other answers."""

    def next(self, wire: Scripted, prompt: Prompt | None) -> ScriptStep:
        """The answer to a request with this prompt; None is one that can't be read."""
        step = self._refusal(wire, prompt) or self._step(self.script.answer(self.number), wire, prompt or {})
        if not step.stays:
            self.number, self.legs, self.asked = self.number + 1, 0, Counter()
        return step

    def _refusal(self, wire: Scripted, prompt: Prompt | None) -> ScriptStep | None:
        """The refusal of a prompt that a provider would not accept; None for any other."""
        found = problems(wire.name, prompt) if self.script.strict and prompt is not None else []
        return self._refuse(Fail(400, message=found[0]), "; ".join(found)) if found else None

    def _refuse(self, fail: Fail, why: str) -> ScriptStep:
        return ScriptStep(fail, self.number, stays=True, refused=why)

    def _step(self, answer: Answer, wire: Scripted, prompt: Prompt, depth: int = 0) -> ScriptStep:
        match answer:
            case PageIn():
                return self._page_in(answer, wire, prompt, depth)
            case Overflowing() | Picky():
                return self._refusing(answer, wire, prompt, depth)
            case Slow() | Gated() | Drop() | Stumble():
                return _delivered(answer, self._step(answer.then, wire, prompt, depth + 1))
            case _:
                return ScriptStep(answer, self.number)

    def _page_in(self, answer: PageIn, wire: Scripted, prompt: Prompt, depth: int) -> ScriptStep:
        question = asking(answer, prompt) if self.asked[depth] < answer.times else None
        if question is None:
            return self._step(answer.then or answer.bare, wire, prompt, depth + 1)
        self.asked[depth] += 1
        self.legs += 1
        return ScriptStep(question, self.number, self.legs, stays=not answer.mixed)

    def _refusing(self, answer: Overflowing | Picky, wire: Scripted, prompt: Prompt, depth: int) -> ScriptStep:
        if isinstance(answer, Picky) and getter(prompt):
            return self._refuse(Fail(400, message=answer.message), answer.message)
        if isinstance(answer, Overflowing) and (count := size(wire.prompt(prompt))) > answer.limit:
            body = json.dumps(wire.too_long(count, answer.limit)).encode()
            return self._refuse(Fail(400, body=body), f"the prompt has {count} tokens and {answer.limit} fit")
        return self._step(answer.then, wire, prompt, depth + 1)


def _delivered(answer: Slow | Gated | Drop | Stumble, step: ScriptStep) -> ScriptStep:
    """The step with a delay or an interruption; no further leg follows an answer that breaks off."""
    if isinstance(answer, Slow):
        return replace(step, seconds=step.seconds + answer.seconds)
    return replace(step, delivery=answer, stays=step.stays and isinstance(answer, Gated))
