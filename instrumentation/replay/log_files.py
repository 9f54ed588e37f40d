"""Finds logs below paths, detects the format of each by its content, and reads their sessions one by one."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import orjson

from instrumentation.replay.importers import detect, found
from instrumentation.replay.log_lines import Problems, head
from instrumentation.replay.recording import Recording

__all__ = ["SUFFIXES", "Imported", "Problems", "files", "format_of", "read", "read_all"]

SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".sqlite3")
"""What the names of files end in that are looked at below a folder; a file that is named itself is always looked at."""


class Imported(NamedTuple):
    """A session, and where it was found."""

    path: Path
    format: str
    recording: Recording


def files(paths: Iterable[Path]) -> list[Path]:
    """All files that may hold logs, each once: those named, and those below folders, in order."""
    every = (one for path in paths for one in (_below(path) if path.is_dir() else [path]))
    return list(dict.fromkeys(every))


def _below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())


def format_of(path: Path) -> str:
    """The name of a file's format; empty if it is of none."""
    return detect(head(path))


def read(path: Path, problems: Problems) -> Iterator[Imported]:
    """The sessions of one file; one whose format is not known is a problem, unless it is empty."""
    lines = head(path)
    name = detect(lines)
    if name:
        try:
            for recording in found()[name].read(path, problems):
                yield Imported(path, name, recording)
        except (RecursionError, orjson.JSONEncodeError) as error:
            problems.file(path, f"has a value that can't be written again: {error}")
    elif lines or not path.is_file():
        problems.unknown.append(path)


def read_all(paths: Iterable[Path], problems: Problems) -> Iterator[Imported]:
    """The sessions of all files, and of all below folders; never more than one file's in memory."""
    for path in files(paths):
        yield from read(path, problems)
