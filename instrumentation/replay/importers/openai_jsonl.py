"""Reads JSON lines of Chat Completions: a conversation a line, as ``{"messages": [...]}``, or a message a line."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeGuard

from instrumentation.replay import recording_files
from instrumentation.replay.importers import LogFormat
from instrumentation.replay.log_lines import (
    Json,
    Problems,
    lines,
    rows,
)
from instrumentation.replay.recording import Recording

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_NAMES = ("session", "id", "conversation_id", "session_id")


class Importer(LogFormat):
    """Messages as OpenAI's interface takes them; the tools too, where they are recorded."""

    def detect(self, head: Sequence[bytes]) -> bool:
        """The first line is a message, or a list of messages."""
        first = next(rows(head), None)
        return _is_message(first) or _is_conversation(first)

    def read(self, path: Path, problems: Problems) -> Iterator[Recording]:
        """A session for each conversation; all lines that are single messages are one more."""
        single: list[Json] = []
        name = path.name.split(".")[0]
        for number, line in lines(path, problems):
            row = recording_files.decoded(line)
            if _is_conversation(row):
                yield from _sessions(_header(row, f"{name}:{number}"), row["messages"])
            elif _is_message(row):
                single.append(row)
            else:
                problems.line(path, number, "is neither a message nor a conversation")
        yield from _sessions({"session": name}, single)


def _sessions(header: Json, messages: list[Json]) -> Iterator[Recording]:
    """The session, if it has a call."""
    found = recording_files.recording(header, messages)
    if found.steps:
        yield found


def _header(row: Json, name: str) -> Json:
    named = next((row[key] for key in _NAMES if isinstance(row.get(key), str) and row[key]), name)
    return {**row, "session": named}


def _is_message(row: object) -> TypeGuard[Json]:
    return isinstance(row, dict) and isinstance(row.get("role"), str) and row["role"] in _ROLES


def _is_conversation(row: object) -> TypeGuard[Json]:
    messages = row.get("messages") if isinstance(row, dict) else None
    return isinstance(messages, list) and bool(messages) and all(_is_message(one) for one in messages)
