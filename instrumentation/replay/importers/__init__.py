"""The formats of logs that can be read, one file each, found by their file name."""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Protocol

from instrumentation.replay.log_lines import Problems
from instrumentation.replay.recording import Recording


class Importer(Protocol):
    """One format of logs."""

    def detect(self, head: Sequence[bytes]) -> bool:
        """Whether a file that begins with these lines is of this format; the last of them may be cut."""

    def read(self, path: Path, problems: Problems) -> Iterator[Recording]:
        """The sessions in a file; what can't be read is added to the problems, and is never fatal."""


@cache
def found() -> dict[str, Importer]:
    """One importer for each format, by its name; they hold no state, so everyone may share it."""
    importers: dict[str, Importer] = {}
    for entry in iter_modules(__path__):
        if not entry.name.startswith("_"):
            importers[entry.name] = import_module(f"{__name__}.{entry.name}").Importer()
    return importers


def detect(head: Sequence[bytes]) -> str:
    """The name of the format of a file that begins with these lines; empty if it is of none."""
    return next((name for name, importer in found().items() if importer.detect(head)), "")
