"""A model that calls tools as it knows them: one whose parameters it was not shown it asks for first.

It reads the prompt as a model does. A tool without parameters whose description ends in a handle is looked up with the
tool that takes pages; what else it was shown it calls at once. Some of its calls are careless; it makes each such
mistake once, for a tool that it was not shown whole, and then does as it is told.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pager.testing.scripted import (
    Call,
    Say,
    Script,
    ScriptedModel,
)
from pager.testing.scripted.answer import ScriptRun
from pager.testing.scripted.cursor import ScriptCursor, ScriptStep
from pager.testing.scripted.page_requests import PARAMETER, getter
from pager.wire.scripted import Scripted as Wire

Json = Mapping[str, Any]

DONE = Say("All is done.")
_HANDLE = re.compile(r"\[(pg_[0-9a-f]{8,32})\]\Z")


@dataclass(frozen=True, slots=True)
class ModelStep:
    """One call that the model wants to make; ``careless`` are the arguments that it tries first, if any."""

    tool: str
    arguments: Json
    careless: Json | None = None


@dataclass(slots=True)
class Thought(ScriptCursor):
    """The steps of a session being gone through; ``looked_up`` are the handles that it knows."""

    steps: Sequence[ModelStep] = ()
    looked_up: set[str] = field(default_factory=set)
    erred: bool = False
    faults: int = 0
    mistakes: int = 0

    def next(self, wire: Wire, prompt: Json | None) -> ScriptStep:
        """What the model says to this prompt."""
        refused = self._refusal(wire, prompt)
        if refused is not None or prompt is None or self.number >= len(self.steps):
            return refused or ScriptStep(DONE, self.number)
        step = self.steps[self.number]
        call = self._lookup(step, prompt) or self._mistake(step, prompt)
        if call is not None:
            self.legs += 1
            return ScriptStep(Say(calls=[call]), self.number, self.legs, stays=True)
        answer = ScriptStep(Say(calls=[Call(step.tool, step.arguments)]), self.number)
        self.number, self.legs, self.erred = self.number + 1, 0, False
        return answer

    def _lookup(self, step: ModelStep, prompt: Json) -> Call | None:
        """The question for a tool's parameters, where they are not known."""
        handle, name = handle_of(step.tool, prompt, deferred=True), getter(prompt)
        if not handle or name is None or handle in self.looked_up:
            return None
        self.looked_up.add(handle)
        self.faults += 1
        return Call(name, {PARAMETER: [handle]})

    def _mistake(self, step: ModelStep, prompt: Json) -> Call | None:
        """A careless call, where there is to be one and the tool was not shown whole."""
        if step.careless is None or self.erred or not handle_of(step.tool, prompt):
            return None
        self.erred = True
        self.mistakes += 1
        return Call(step.tool, step.careless)


def handle_of(tool: str, prompt: Json, *, deferred: bool = False) -> str:
    """The handle behind a tool's description; of one that is ``deferred`` only, where that is asked for."""
    for entry in prompt.get("tools") or []:
        function = entry.get("function") or entry
        if function.get("name") == tool:
            found = _HANDLE.search(function.get("description") or "")
            schema = function.get("parameters") or function.get("input_schema")
            return found[1] if found and (not deferred or schema == {"type": "object"}) else ""
    return ""


class CallingModel(ScriptedModel):
    """A model server that thinks."""

    def __init__(self) -> None:
        super().__init__(Script())
        self.thought = Thought(Script())

    def think(self, steps: Sequence[ModelStep]) -> None:
        """Begin a session of these steps, with nothing received."""
        self.thought = Thought(Script(), steps=steps)
        self._run = ScriptRun(self.thought)


def told(prompt: Json) -> list[str]:
    """The texts in a prompt that tell of tools in full: answers to who asked for them, or erred."""
    results = (
        text for item in [*(prompt.get("messages") or []), *(prompt.get("input") or [])] for text in _results(item)
    )
    return [text for text in results if text.startswith("=== pg_") or "\nThe tool in full:\n" in text]


def _results(item: Json) -> list[str]:
    """The results of tools in an item of a prompt."""
    parts = item.get("content") if isinstance(item.get("content"), list) else []
    found = [part.get("content") for part in parts or [] if part.get("type") == "tool_result"]
    if item.get("role") == "tool":
        found.append(item.get("content"))
    if item.get("type") == "function_call_output":
        found.append(item.get("output"))
    return [one if isinstance(one, str) else json.dumps(one) for one in found]
