"""The agent sessions that the real model is put through: generated, the same in every run, written by no model.

A script is what a harness sends: a task, then pairs of a tool call and its result. What the model said stands before
each tool call, but decides nothing. A step may *need* an older result: the answer that follows it quotes that, so that
a model to which only its stub is shown has to ask for the page first. Which step needs which stands in the id of its
tool call, so that whoever sees the prompt alone can tell.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.real_model import texts

NEEDS = "-needs-"
"""Stands in the id of a tool call between the step's own name and the number of the step that it needs."""

TOOLS = {
    "search": ("Find a text in all files.", ("pattern",)),
    "read": ("Read a file.", ("path",)),
    "edit": ("Replace a line of a file.", ("path", "line", "text")),
    "run": ("Run a command in a shell.", ("command",)),
}
"""What the harness offers: each tool's description and parameters."""

_SYSTEM = (
    "You are a careful engineer who mends a small web shop written in Python. Look before you change anything, "
    "run the tests after each change, and say in one sentence what you do next."
)
_SIDE = "You write commit messages: one line in the imperative, at most sixty characters, nothing else."

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """A tool call with its result; ``needs`` is the number of the older step that the next answer quotes, or 0."""

    tool: str
    arguments: Mapping[str, str]
    result: str
    needs: int = 0


@dataclass(frozen=True, slots=True)
class AgentScript:
    """A session: its first call sends the task, each later one has a step more."""

    name: str
    steps: Sequence[ScriptStep]

    @property
    def calls(self) -> int:
        """How many calls it has."""
        return len(self.steps) + 1

    def messages(self, said: Sequence[str]) -> list[Message]:
        """The history that the next call sends, after answers that said this."""
        task = "The totals of some orders are wrong by a cent. Find out why, and mend it."
        opening = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": task}]
        return [*opening, *(message for number, text in enumerate(said, 1) for message in self._pair(number, text))]

    def _pair(self, number: int, said: str) -> Iterator[Message]:
        step = self.steps[number - 1]
        name = f"{self.name}-{number}" + (f"{NEEDS}{step.needs}" if step.needs else "")
        function = {"name": step.tool, "arguments": json.dumps(step.arguments)}
        calls = [{"id": name, "type": "function", "function": function}]
        yield {"role": "assistant", "content": said, "tool_calls": calls}
        yield {"role": "tool", "tool_call_id": name, "content": step.result}


@dataclass(frozen=True, slots=True)
class Sizes:
    """About how many bytes a file, a failing test's output and a small result have."""

    file: int
    failure: int
    small: int


def script(name: str, calls: int, sizes: Sizes, needs: Mapping[int, int]) -> AgentScript:
    """A session of so many calls: tasks of ten steps, in which files are read, changed and tested.

    ``needs`` tells by its number which step needs which.
    """
    chance = random.Random(name)
    steps: list[ScriptStep] = []
    while len(steps) < calls - 1:
        steps += _task(chance, sizes)
    numbered = enumerate(steps[: calls - 1], 1)
    return AgentScript(name, tuple(replace(step, needs=needs.get(number, 0)) for number, step in numbered))


def _task(chance: random.Random, sizes: Sizes) -> list[ScriptStep]:
    one, other, tested = chance.sample(texts.NOUNS, 3)
    path, word, test = f"shop/{one}.py", chance.choice(texts.VERBS), f"tests/test_{tested}.py"
    return [
        _search(chance, one, sizes.small),
        ScriptStep("read", {"path": path}, texts.source(chance, sizes.file)),
        _run(f"git log --oneline {path}", texts.commits(chance, sizes.small)),
        ScriptStep("read", {"path": f"shop/{other}.py"}, texts.source(chance, sizes.file)),
        _run(f"pytest -q {test}", texts.failure(chance, test, sizes.failure)),
        ScriptStep(
            "edit", {"path": path, "line": str(chance.randint(3, 40)), "text": texts.line(chance)}, "1 line changed"
        ),
        _run(f"pytest -q {test}", f"{chance.randint(8, 40)} passed in 0.{chance.randint(10, 99)}s"),
        _search(chance, word, sizes.small),
        _run("git diff --stat", f" {path} | 2 +-\n 1 file changed"),
        _run(f"git commit -qam '{word} right'", "exit 0"),
    ]


def _search(chance: random.Random, word: str, size: int) -> ScriptStep:
    return ScriptStep("search", {"pattern": word}, texts.hits(chance, word, size))


def _run(command: str, result: str) -> ScriptStep:
    return ScriptStep("run", {"command": command}, result)


def side_messages(number: int) -> list[Message]:
    """What another agent on the same model asks for now and then: a commit message for a small change."""
    chance = random.Random(f"side {number}")
    change = "\n".join(f"{sign}    {texts.line(chance)}" for sign in "-+-+")
    return [{"role": "system", "content": _SIDE}, {"role": "user", "content": f"Change {number}:\n{change}"}]


def offered() -> list[dict[str, Any]]:
    """The tools as a request has them."""
    return [{"type": "function", "function": _function(name, *told)} for name, told in TOOLS.items()]


def _function(name: str, words: str, keys: Sequence[str]) -> dict[str, Any]:
    properties = {key: {"type": "string"} for key in keys}
    parameters = {"type": "object", "properties": properties, "required": list(keys)}
    return {"name": name, "description": words, "parameters": parameters}
