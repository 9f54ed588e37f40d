"""How fast logs of agents are read, and in how much memory: ``python -m benchmarks.importing``."""

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.shared import agent_logs
from instrumentation.replay import log_files
from instrumentation.replay.log_files import Problems

WANTED_SPEED = 50
WANTED_MEMORY = 500
MB = 1_000_000


class Figure(NamedTuple):
    """What reading logs of one format took; ``speed`` is by processor time, which other programs do not change."""

    format: str
    size_mb: float
    sessions: int
    calls: int
    bad: int
    seconds: float
    speed: float
    memory_mb: float

    @property
    def told(self) -> str:
        """It in words."""
        return (
            f"{self.format:13} {self.size_mb:5.0f} MB, {self.sessions} sessions, {self.calls} calls, {self.bad} bad:"
            f" {self.seconds:.2f} s, {self.speed:.0f} MB a second of processor time, {self.memory_mb:.0f} MB of memory"
        )


def main(arguments: list[str] | None = None) -> int:
    """Write logs of every format, read them, and print what it took; 1 if a demand is not met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.importing", description=__doc__)
    parser.add_argument("--size", type=float, default=200, metavar="MB", help="megabytes of each format")
    parser.add_argument("--format", default=",".join(agent_logs.FORMATS), help="formats, with commas between them")
    parser.add_argument("--json", action="store_true", help="print plain values")
    options = parser.parse_args(arguments)
    figures = [_figure(name, round(options.size * MB)) for name in options.format.split(",")]
    print(json.dumps([one._asdict() for one in figures]) if options.json else "\n".join(one.told for one in figures))
    return int(any(one.speed < WANTED_SPEED or one.memory_mb > WANTED_MEMORY for one in figures))


def _figure(name: str, size: int) -> Figure:
    """What reading a format takes, in a process of its own, so that its memory is its own."""
    with tempfile.TemporaryDirectory() as folder:
        agent_logs.write(Path(folder), name, size)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(measured, (name, Path(folder)))


def measured(name: str, folder: Path) -> Figure:
    """Read all logs in a folder."""
    for path in log_files.files([folder])[:1]:  # so that nothing is loaded while the clock runs
        list(log_files.read(path, Problems()))
    problems, calls, sessions = Problems(), 0, 0
    began, worked = time.perf_counter(), time.process_time()
    for imported in log_files.read_all([folder], problems):
        calls, sessions = calls + len(imported.recording.steps), sessions + 1
    took, worked = time.perf_counter() - began, time.process_time() - worked
    size = problems.size / MB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / MB
    return Figure(name, size, sessions, calls, problems.bad, took, size / worked, peak)


if __name__ == "__main__":
    sys.exit(main())
