"""Reads recorded sessions from files: a header line, then one chat message a line, mostly compressed with gzip.

The header has the session's name, its model, and the tools that it was offered. A message may have a ``_meta`` that was
never sent: ``ts``, when it was recorded; ``usage``, what the provider counted; and ``compact_boundary``, where the
harness dropped all that came before. Each assistant message with a user message before it is the answer of a call whose
prompt is all that stands before it, from the last boundary on.

What was sent but not recorded, such as a system prompt, is told from the tokens that the provider counted for the first
call. Where no tools were recorded, those that were called are taken to have been offered.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from instrumentation.bill import BYTES_A_TOKEN, tokens_in
from instrumentation.steps import Recording, Step
from pager.errors import NotUnderstood
from pager.quotes import said
from pager.table import common_length

Json = dict[str, Any]

SUFFIXES = (".jsonl.gz", ".jsonl")
UNSENT = frozenset({"_meta", "reasoning_content"})
UNRECORDED = 60_000
"""Tokens that a prompt may have at the most beside what was recorded; more tell of something else."""

BEGINNING = 1_700_000_000.0
"""The time of a first call that was recorded without one; the next comes a second later."""

_COUNTED = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "prompt_tokens",
    "input",
    "cacheRead",
    "cacheWrite",
)
_KINDS = ((str, "string"), (bool, "boolean"), (int, "integer"), (float, "number"), (list, "array"), (dict, "object"))


def files(place: Path) -> list[Path]:
    """The file itself, or all files of recordings below a folder, in order."""
    if not place.is_dir():
        return [place]
    return sorted(path for path in place.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())


def load(path: Path) -> Recording:
    """The session in a file; raises NotUnderstood, which names the file and the line."""
    header, messages = _parsed(path)
    tools = header.get("tools") or offered(messages)
    names = frozenset(str(_dict(_dict(tool).get("function")).get("name", "")) for tool in tools)
    reader = _Reader(
        str(header.get("model") or "model"),
        json.dumps(tools, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        names if tools else None,
    )
    steps = [step for message in messages for step in reader.take(message)]
    return Recording(str(header["session"]), "chat", steps, str(header.get("harness") or ""))


def offered(messages: Sequence[Json]) -> list[Json]:
    """The tools that were called, with the parameters they were given."""
    found: dict[str, dict[str, str]] = {}
    for message in messages:
        for call in _calls(message):
            function = _dict(call.get("function"))
            parameters = found.setdefault(str(function.get("name")), {})
            for name, value in _dict(_decoded(function.get("arguments"))).items():
                parameters.setdefault(name, next((kind for of, kind in _KINDS if isinstance(value, of)), "string"))
    return [_tool(name, parameters) for name, parameters in sorted(found.items())]


def _tool(name: str, parameters: dict[str, str]) -> Json:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": f"The tool {name}.", "parameters": schema}}


@dataclass(slots=True)
class _Reader:
    """Turns messages into steps, one by one; ``prompt`` are those since the last boundary, ``sizes`` its calls'."""

    model: str
    tools: bytes
    names: frozenset[str] | None
    prompt: list[bytes] = field(default_factory=list)
    shown: int = 0
    asked: bool = False
    outside: int | None = None
    unrecorded: bool = False
    at: float = BEGINNING - 1
    latest: list[bytes] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    branch: int = -1

    def take(self, message: Json) -> Iterator[Step]:
        """Take the next message; the call that it answers, if it does."""
        if _meta(message).get("compact_boundary"):
            self.prompt, self.shown, self.asked = [], 0, False
        if message["role"] == "assistant" and self.asked:
            yield self._step(message)
        self.asked = self.asked or message["role"] == "user"
        self.prompt.append(_sent(message))
        self.shown += tokens_in(len(spoken(message).encode("utf-8", "surrogatepass")))

    def _step(self, answer: Json) -> Step:
        if self.outside is None:
            self.outside = self._outside(answer)
        stamp = _stamp(answer)
        self.at = self.at + 1 if stamp is None else stamp
        words = spoken(answer)
        keep, parent, fork_call = self._placed()
        self.latest = list(self.prompt)
        self.lengths.append(len(self.prompt))
        return Step(
            at=self.at,
            keep=keep,
            new=tuple(self.prompt[keep:]),
            outside=self.outside,
            said=words,
            output=tokens_in(len(words.encode("utf-8", "surrogatepass"))),
            branch=self.branch,
            parent=parent,
            fork_call=fork_call,
            model=self.model,
            tools=self.names,
        )

    def _outside(self, answer: Json) -> int:
        """The bytes of the tools, and of what the provider counted beyond them and what was recorded."""
        usage = _dict(_meta(answer).get("usage"))
        counted = sum(int(usage.get(name) or 0) for name in _COUNTED)
        beyond = counted - self.shown - tokens_in(len(self.tools))
        self.unrecorded = beyond > 0
        return len(self.tools) + round(max(0, min(UNRECORDED, beyond)) * BYTES_A_TOKEN)

    def _placed(self) -> tuple[int, int | None, int]:
        """What is kept of the call before, and the branch and call from which a new branch forks.

        A prompt that does not go on where the last one ended is a branch of its own; it forks from the last one where
        they have a beginning in common, be it only what was not recorded.
        """
        keep = common_length(self.latest, self.prompt)
        if self.branch >= 0 and keep == len(self.latest):
            return keep, None, 0
        shared = keep > 0 or (self.unrecorded and self.branch >= 0)
        parent = self.branch if shared else None
        fork_call = sum(length <= keep for length in self.lengths) if shared else 0
        self.branch += 1
        del self.lengths[fork_call:]
        return keep, parent, fork_call


def spoken(message: Json) -> str:
    """Everything that a message says: its text, and what stands in the arguments of its calls."""
    content = message.get("content")
    parts = [content] if isinstance(content, str) else [_text(part) for part in content or ()]
    arguments = [_dict(call.get("function")).get("arguments") for call in _calls(message)]
    return "\n".join([*parts, *(said(one) for one in arguments if isinstance(one, str))])


def _text(part: object) -> str:
    return str(part.get("text", "")) if isinstance(part, dict) else str(part)


def _sent(message: Json) -> bytes:
    """The message as a client would send it."""
    kept = {key: value for key, value in message.items() if key not in UNSENT}
    try:
        return json.dumps(kept, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a character, which can be written only as an escape
        return json.dumps(kept).encode()


def _stamp(message: Json) -> float | None:
    given = _meta(message).get("ts")
    if isinstance(given, int | float):
        return float(given)
    try:
        return datetime.fromisoformat(given).timestamp() if isinstance(given, str) else None
    except ValueError:
        return None


def _parsed(path: Path) -> tuple[Json, list[Json]]:
    """The header and the messages of a file."""
    rows: list[Json] = []
    for number, line in enumerate(_lines(path), 1):
        where = f"{path}: line {number}"
        row = _decoded(line)
        if not isinstance(row, dict):
            raise NotUnderstood(f"{where} is no JSON object; a recording has one on each line")
        wanted = "role" if rows else "session"
        if not isinstance(row.get(wanted), str):
            what = "a message" if rows else "the header of a recording"
            raise NotUnderstood(f"{where} is not {what}: it has no {wanted!r}")
        rows.append(row)
    if not rows:
        raise NotUnderstood(f"{path}: is empty; a recording begins with a header line")
    return rows[0], rows[1:]


def _lines(path: Path) -> list[bytes]:
    try:
        raw = path.read_bytes()
        content = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    except OSError as error:
        raise NotUnderstood(f"{path}: can't be read: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise NotUnderstood(f"{path}: is no whole gzip file: {error}") from error
    return [line for line in content.split(b"\n") if line.strip()]


def _decoded(text: object) -> object:
    """A JSON value; None for what is none. What orjson is too strict for is read by the standard library."""
    if not isinstance(text, str | bytes):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _meta(message: Json) -> Json:
    return _dict(message.get("_meta"))


def _calls(message: Json) -> list[Json]:
    found = message.get("tool_calls")
    return [call for call in found if isinstance(call, dict)] if isinstance(found, list) else []


def _dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}
