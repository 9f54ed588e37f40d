"""The formats of logs that can be read, one file each with a class named Importer, found by their file name."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from instrumentation.replay.log_lines import Problems
from instrumentation.replay.recording import Recording


class LogFormat(ABC):
    """One format of logs, and what is known of the agent that writes it."""

    agent = ""
    """The beginning of the names by which the agent calls itself; empty for a format of no agent."""

    setup = ""
    """How the agent is pointed at the proxy, whose address is ``{base}``."""

    def places(self, env: Mapping[str, str], home: Path) -> Sequence[Path]:  # noqa: ARG002
        """The folders in which the agent keeps its logs; none where they are anywhere."""
        return ()

    @abstractmethod
    def detect(self, head: Sequence[bytes]) -> bool:
        """Whether a file that begins with these lines is of this format; the last of them may be cut."""

    @abstractmethod
    def read(self, path: Path, problems: Problems) -> Iterator[Recording]:
        """The sessions in a file; what can't be read is added to the problems, and is never fatal."""


@cache
def found() -> dict[str, LogFormat]:
    """One importer for each format, by its name; they hold no state, so everyone may share it."""
    return {entry.name: import_module(f"{__name__}.{entry.name}").Importer() for entry in iter_modules(__path__)}


def detect(head: Sequence[bytes]) -> str:
    """The name of the format of a file that begins with these lines; empty if it is of none."""
    return next((name for name, importer in found().items() if importer.detect(head)), "")
