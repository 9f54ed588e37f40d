"""Measures ctxpager at the edges: how fast it starts, what memory it takes, how durable writes compare."""

import statistics
import subprocess
import time
from pathlib import Path

import uvloop

from benchmarks import append
from benchmarks.shared import litellm_proxy, processes
from benchmarks.shared.agent_session import AgentSession
from benchmarks.shared.load_client import burst, play
from benchmarks.shared.processes import Target, await_answer, free_port
from benchmarks.shared.rounds import Bench, Measurement, ratio, settle

_MB = 1e6
_BURST = 200
_PEAK_LIMIT = 1500.0


def startup(bench: Bench) -> list[Measurement]:
    """From starting the program to its first answer, against the time that ``import litellm`` takes."""
    log = bench.folder / "start.log"
    found: dict[str, list[float]] = {"ctxpager": [], "bare": [], "litellm": []}
    for number in range(bench.rounds(5)):
        port = free_port()
        ours = processes.ctxpager(port, bench.upstream_port, bench.folder / f"start{number}")
        found["ctxpager"].append(_seconds_to_answer(ours, port, "/healthz", log))
        port = free_port()
        found["bare"].append(_seconds_to_answer(processes.bare(port, bench.upstream_port), port, "", log))
        if any(target.name == "litellm" for target in bench.targets):
            found["litellm"].append(litellm_proxy.import_seconds())
    seconds = {name: statistics.median(values) for name, values in found.items() if values}
    times = ratio(seconds["ctxpager"], seconds.get("litellm"))
    return [
        Measurement("start-up (LiteLLM: import alone)", "s", seconds, ratio=times, against="LiteLLM", at_most=1 / 3)
    ]


def _seconds_to_answer(command: list[str], port: int, ready: str, log: Path) -> float:
    with log.open("ab") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        await_answer(process, port, ready, log)
        return time.perf_counter() - began
    finally:
        process.terminate()
        process.wait(10)


def durable(where: Path, *, quick: bool) -> list[Measurement]:
    """A batch made durable in the log against the same bytes written to a file and fdatasync."""
    folder = where / "append"
    folder.mkdir()
    found = append.measure(folder, rounds=8 if quick else 120)
    values = {"bare": found.plain * 1e3, "ctxpager": found.durable * 1e3}
    return [
        Measurement("durable append (bare: write, fdatasync)", "ms", values, found.ratio, "bare", at_most=1.5),
        Measurement("durable appends, 16 producers", "/s", {"ctxpager": found.throughput}),
    ]


def memory(bench: Bench) -> list[Measurement]:
    """Memory before, during and after 200 calls of 1 MB at once, none of it seen before."""
    found = {target.name: _burst(target) for target in bench.only("bare", "ctxpager").targets}
    before, peak, after = ({name: values[at] for name, values in found.items()} for at in range(3))
    # What stays is the tables and caches that a running proxy has; 50 MB and a third are their room.
    room = before["ctxpager"] * 1.3 + 50
    return [
        Measurement("memory before the burst", "MB", before),
        Measurement(
            "peak, 200 calls of 1 MB at once", "MB", peak, ratio=peak["ctxpager"], against="MB", at_most=_PEAK_LIMIT
        ),
        Measurement("memory after the burst", "MB", after, ratio=after["ctxpager"], against="MB", at_most=room),
    ]


def _burst(target: Target) -> tuple[float, float, float]:
    """Megabytes before, at the most and after."""
    uvloop.run(play(target.port, AgentSession("warm", size=1_000_000), 5))
    settle(target)
    before = target.rss()
    target.forget_peak()
    uvloop.run(burst(target.port, [AgentSession(f"burst{at}", mode="slow", size=1_000_000) for at in range(_BURST)]))
    settle(target)
    time.sleep(1)
    return before / _MB, target.peak() / _MB, target.rss() / _MB
