"""Reads recordings: a header line, then one chat message a line."""

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

_OTHERS = frozenset({"role", "type", "messages"})


class Importer(LogFormat):
    """The recordings' own format; unlike ``recording_files.load`` it skips what it can't read."""

    def detect(self, head: Sequence[bytes]) -> bool:
        """The first line has the session's name, and is no message."""
        first = next(rows(head), {})
        return isinstance(first.get("session"), str) and not _OTHERS & first.keys()

    def read(self, path: Path, problems: Problems) -> Iterator[Recording]:
        """The one session in a file."""
        header: Json | None = None
        messages: list[Json] = []
        for number, line in lines(path, problems):
            row = recording_files.decoded(line)
            if header is None and _has(row, "session"):
                header = row
            elif header is not None and _has(row, "role"):
                messages.append(row)
            else:
                problems.line(path, number, "is no message" if header else "is no header of a recording")
        if header is not None and messages:
            yield recording_files.recording(header, messages)


def _has(row: object, name: str) -> TypeGuard[Json]:
    return isinstance(row, dict) and isinstance(row.get(name), str)
