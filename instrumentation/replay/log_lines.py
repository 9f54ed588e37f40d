"""Reads logs line by line, and keeps count of what could not be read."""

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import orjson

Json = dict[str, Any]

EXAMPLES = 20
"""Problems that are described; all are counted."""

HEAD_LINES = 20
HEAD_BYTES = 1 << 18
FIRST_LINE = 64 << 20
"""Bytes of a first line that are read at the most to recognise a format."""

BAD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a line that it can't read."""

_BUFFER = 1 << 20
_GZIP = b"\x1f\x8b"


@dataclass(slots=True)
class Problems:
    """What could not be read, of one file or of many.

    ``bad`` are lines that make no sense, ``broken`` files that could not be read to their end, ``unknown`` those of no
    known format. ``lines`` and ``size`` are what was read, bad lines included. ``answers`` are the ids of the answers
    read so far: a log that begins with a copy of another, as that of a resumed session may, does not count them again.
    ``left_out`` counts lines that were understood and are in no prompt, by the reason in words.
    """

    bad: int = 0
    lines: int = 0
    size: int = 0
    broken: list[Path] = field(default_factory=list)
    unknown: list[Path] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    answers: set[str] = field(default_factory=set)
    left_out: Counter[str] = field(default_factory=Counter)

    def line(self, path: Path, number: int, why: str) -> None:
        """Count a bad line."""
        self.bad += 1
        self._tell(f"{path}: line {number}: {why}")

    def file(self, path: Path, why: str) -> None:
        """Note a file that can't be read, or not to its end."""
        self.broken.append(path)
        self._tell(f"{path}: {why}")

    def _tell(self, what: str) -> None:
        if len(self.examples) < EXAMPLES:
            self.examples.append(what)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The content of a file, which may be compressed with gzip."""
    with path.open("rb", buffering=_BUFFER) as file:
        packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        if packed:
            with gzip.open(file) as content:
                yield cast("BinaryIO", content)
        else:
            yield file


def lines(path: Path, problems: Problems) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not empty, with their numbers; a file that breaks off ends there."""
    try:
        with opened(path) as file:
            for number, line in enumerate(file, 1):
                problems.size += len(line)
                if not line.isspace():
                    problems.lines += 1
                    yield number, line
    except OSError as error:
        problems.file(path, f"can't be read: {error.strerror or error}")
    except (EOFError, zlib.error) as error:
        problems.file(path, f"is no whole gzip file: {error}")


def head(path: Path) -> list[bytes]:
    """The first lines of a file, of which the last may be cut; none if it can't be read."""
    try:
        with opened(path) as file:
            found = [file.readline(FIRST_LINE)]
            while found[-1] and len(found) < HEAD_LINES and sum(map(len, found)) < HEAD_BYTES:
                found.append(file.readline(HEAD_BYTES))
    except (OSError, EOFError, zlib.error):
        return []
    return [line for line in found if line.strip()]


def rows(lines: Iterable[bytes]) -> Iterator[Json]:
    """Those of some lines that are JSON objects."""
    for line in lines:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(row, dict):
            yield row


def stamp(text: object) -> float | None:
    """A time in ISO 8601 as Unix seconds; None for what is none."""
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except ValueError:
        return None
