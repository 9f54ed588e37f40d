"""What every measurement shares: the servers under test, interleaved rounds, and the rows that come out."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.shared import litellm_proxy, processes
from benchmarks.shared.processes import Target, free_port, running

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One line of the report: what was measured on each server, and what was demanded of ctxpager's ratio."""

    what: str
    unit: str
    values: Mapping[str, float]
    ratio: float | None = None
    against: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def ok(self) -> bool | None:
        """Whether the demand is met; None where there is none, or nothing to hold it against."""
        if self.ratio is None or (self.at_most is None and self.at_least is None):
            return None
        return self.ratio <= self.at_most if self.at_most is not None else self.ratio >= (self.at_least or 0)


@dataclass(frozen=True, slots=True)
class Bench:
    """The servers under test and how long to look at them."""

    targets: Sequence[Target]
    upstream_port: int
    folder: Path
    quick: bool

    def rounds(self, full: int) -> int:
        """How many rounds to play."""
        return 2 if self.quick else full

    def only(self, *names: str) -> "Bench":
        """The same bench with fewer servers."""
        kept = [target for target in self.targets if target.name in names]
        return Bench(kept, self.upstream_port, self.folder, self.quick)

    def interleaved(self, rounds: int, measure: Callable[[Target, int], _T]) -> dict[str, list[_T]]:
        """Each server once a round, so that a slow minute of the machine is everybody's."""
        found: dict[str, list[_T]] = {target.name: [] for target in self.targets}
        for number in range(rounds):
            for target in self.targets:
                found[target.name].append(measure(target, number))
        return found


@contextlib.contextmanager
def standing(folder: Path, *, litellm: bool, quick: bool) -> Iterator[Bench]:
    """All servers, started; stopped at the end."""
    behind, bare, ours, theirs = (free_port() for _ in range(4))
    log = folder / "servers.log"
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(processes.upstream(behind), behind, log=log))
        targets = [Target("direct", behind)]
        targets.append(Target("bare", bare, stack.enter_context(running(processes.bare(bare, behind), bare, log=log))))
        if litellm:
            command = litellm_proxy.command(theirs, behind, folder)
            server = running(command, theirs, ready=litellm_proxy.READY, log=log, env=litellm_proxy.ENVIRONMENT)
            targets.append(Target("litellm", theirs, stack.enter_context(server)))
        command = processes.ctxpager(ours, behind, folder / "data")
        server = running(command, ours, ready="/healthz", log=log)
        targets.append(Target("ctxpager", ours, stack.enter_context(server)))
        yield Bench(targets, behind, folder, quick)


def settle(target: Target, limit: float = 120.0) -> None:
    """Wait until the server does nothing more: work put off until after the answer is part of a call's cost."""
    deadline = time.monotonic() + limit
    quiet = 0
    while target.pid and quiet < 3 and time.monotonic() < deadline:
        before = target.cpu()
        time.sleep(0.02)
        quiet = quiet + 1 if target.cpu() - before < 0.0005 else 0


def ratio(value: float | None, base: float | None) -> float | None:
    """How many times the base; None where one is missing."""
    return value / base if value is not None and base else None
