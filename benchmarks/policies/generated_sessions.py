"""Coding sessions of our own making, written as recordings: for those who have none of real agents.

An agent works on a project of generated files: it reads and searches them, edits what it has read, runs commands, and
answers a user who at times is away for longer than a provider's cache lives. Its edits quote what was read before,
mostly of late and now and then long ago, as real ones do. The same seed gives the same bytes.
"""

import gzip
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

Json = dict[str, Any]

SESSIONS = 24
MODEL = "claude-opus-4-5"
_BEGAN = 1_760_000_000.0
_FILES = 40
_NOUNS = (
    "order",
    "invoice",
    "stream",
    "buffer",
    "token",
    "session",
    "ledger",
    "parcel",
    "worker",
    "cursor",
    "filter",
    "batch",
    "lease",
    "shard",
    "digest",
)
_VERBS = (
    "load",
    "parse",
    "merge",
    "check",
    "count",
    "split",
    "flush",
    "close",
    "reserve",
    "cancel",
    "render",
    "encode",
    "notify",
    "expire",
    "rotate",
)
_KINDS = {"read": 28, "edit": 26, "run": 24, "search": 17, "write": 5}
_TOOLS = {
    "read": ("path", "offset"),
    "edit": ("path", "old", "new"),
    "run": ("command",),
    "search": ("pattern",),
    "write": ("path", "content"),
}


def write_sessions(folder: Path, sessions: int = SESSIONS, seed: int = 1) -> list[Path]:
    """Write so many recordings into a folder; their files."""
    found = []
    for number in range(sessions):
        lines = b"\n".join(map(orjson.dumps, session(f"generated-{number:02}", seed * 1_000 + number)))
        path = folder / f"generated-{number:02}.jsonl.gz"
        path.write_bytes(gzip.compress(lines, mtime=0))
        found.append(path)
    return found


def session(name: str, seed: int) -> list[Json]:
    """A recording: its header, then its messages; most are short, some of more than a hundred calls."""
    chance = random.Random(seed)
    calls = round(8 * 22 ** chance.random())
    tools = [_tool(tool, names) for tool, names in _TOOLS.items()]
    header = {"session": name, "model": MODEL, "harness": "generated", "tools": tools}
    return [header, *_GeneratedAgent(chance).messages(calls)]


def _tool(name: str, names: Sequence[str]) -> Json:
    schema = {"type": "object", "properties": {one: {"type": "string"} for one in names}}
    return {"type": "function", "function": {"name": name, "description": f"{name} it.", "parameters": schema}}


class _GeneratedAgent:
    """An agent at work on a project."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._at = _BEGAN
        self._files = {self._path(): self._code(round(30 * 12 ** chance.random())) for _ in range(_FILES)}
        self._seen: list[str] = []

    def messages(self, calls: int) -> Iterator[Json]:
        """What is said until so many calls are made: turns of some steps, each ended by an answer in words."""
        left = calls
        while left > 0:
            yield {"role": "user", "content": f"{self._name()} fails when {self._name()} is empty. Find out why."}
            steps = min(left - 1, self._chance.randint(3, 25))
            for number in range(steps):
                yield from self._step(f"call_{left - number}")
            yield self._says(f"Done: {self._name()} now handles it, and the tests pass.")
            left -= steps + 1
            self._at += self._chance.choice([self._chance.uniform(20, 240), self._chance.uniform(400, 4_000)])

    def _step(self, call_id: str) -> Iterator[Json]:
        """One tool call and its result."""
        kinds = list(_KINDS) if self._seen else ["read"]
        kind = self._chance.choices(kinds, [_KINDS[one] for one in kinds])[0]
        arguments, result = getattr(self, f"_{kind}")()
        function = {"name": kind, "arguments": orjson.dumps(arguments).decode()}
        calls = [{"id": call_id, "type": "function", "function": function}]
        yield {**self._says(None), "tool_calls": calls}
        yield {"role": "tool", "tool_call_id": call_id, "content": result}

    def _says(self, words: str | None) -> Json:
        self._at += 4 * 10 ** self._chance.random()
        return {"role": "assistant", "content": words, "_meta": {"ts": self._at}}

    # ---- what the tools do

    def _read(self) -> tuple[Json, str]:
        path = self._chance.choice(list(self._files))
        self._seen.append(path)
        lines = self._files[path]
        offset = self._chance.randrange(len(lines) // 2)
        shown = enumerate(lines[offset : offset + 250], offset + 1)
        return {"path": path, "offset": str(offset)}, "\n".join(f"{at:>6}→{line}" for at, line in shown)

    def _edit(self) -> tuple[Json, str]:
        """Two lines of a file that was seen before, mostly of the last ones, are replaced by three."""
        late = self._seen[-3:] if self._chance.random() < 0.85 else self._seen
        path = self._chance.choice(late)
        lines = self._files[path]
        at = self._chance.randrange(len(lines) // 2, len(lines) - 1)
        old, new = lines[at : at + 2], self._code(3)
        lines[at : at + 2] = new
        around = "\n".join(lines[max(0, at - 3) : at + 6])
        arguments = {"path": path, "old": "\n".join(old), "new": "\n".join(new)}
        return arguments, f"{path} was changed; it now has:\n{around}"

    def _search(self) -> tuple[Json, str]:
        pattern = self._chance.choice(_NOUNS)
        places = self._chance.sample(list(self._files), 12)
        found = [
            f"{path}:{at}:{line}"
            for path in places
            for at, line in enumerate(self._files[path], 1)
            if pattern in line and self._chance.random() < 0.3
        ]
        return {"pattern": pattern}, "\n".join(found[:60]) or "nothing found"

    def _run(self) -> tuple[Json, str]:
        """Output of tests; some of it long, some with a failure at its end."""
        target = self._chance.choice(self._seen)
        count = round(3 * 60 ** self._chance.random())
        lines = [f"tests/{self._name()}.py::test_{self._name()} PASSED [{at}]" for at in range(count)]
        if self._chance.random() < 0.3:
            lines += [f"{target}: AssertionError: {self._name()} == {self._chance.randrange(99)}", "1 failed"]
        return {"command": f"pytest -q {target}"}, "\n".join(lines)

    def _write(self) -> tuple[Json, str]:
        path, lines = self._path(), self._code(self._chance.randint(20, 120))
        self._files[path] = lines
        self._seen.append(path)
        return {"path": path, "content": "\n".join(lines)}, f"{path} was written, {len(lines)} lines"

    # ---- what stands in the files

    def _path(self) -> str:
        return f"src/{self._chance.choice(_NOUNS)}/{self._name()}.py"

    def _name(self) -> str:
        chance = self._chance
        return f"{chance.choice(_VERBS)}_{chance.choice(_NOUNS)}_{chance.randrange(1_000)}"

    def _code(self, lines: int) -> list[str]:
        return [self._line() for _ in range(max(lines, 4))]

    def _line(self) -> str:
        chance, depth = self._chance, "    " * self._chance.randint(1, 3)
        noun = chance.choice(_NOUNS)
        return f"{depth}{noun} = {self._name()}({chance.choice(_NOUNS)}, limit={chance.randrange(10_000)})"
