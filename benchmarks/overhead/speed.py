"""Measures what a call through each server costs: CPU, latency, calls a second, lag of a chunk."""

import statistics
from dataclasses import dataclass
from functools import partial

import uvloop

from benchmarks.shared.agent_session import AgentSession
from benchmarks.shared.load_client import play, rate
from benchmarks.shared.processes import Target
from benchmarks.shared.rounds import Bench, Measurement, ratio, settle

_CALLS = 20
_CPU_LIMITS = {"json": 3.0, "sse": 2.5}


@dataclass(frozen=True, slots=True)
class SpeedSample:
    """One round on one server: CPU a call and the latencies of its calls, in milliseconds."""

    cpu: float
    latencies: list[float]


def calls(bench: Bench) -> list[Measurement]:
    """CPU and latency of a call whose history is known, as JSON and as a stream."""
    rows: list[Measurement] = []
    for mode in ("json", "sse"):
        found = bench.interleaved(bench.rounds(9), partial(_known, mode=mode))
        rows += [_cpu_row(mode, found), *_latency_rows(mode, found)]
    return sorted(rows, key=lambda row: row.what.split()[0])


def _known(target: Target, number: int, mode: str) -> SpeedSample:
    session = AgentSession(f"{mode}-{number}", mode=mode)
    uvloop.run(play(target.port, session, 2))
    settle(target)
    before = target.cpu()
    replies = uvloop.run(play(target.port, session, _CALLS))
    settle(target)
    return SpeedSample((target.cpu() - before) / _CALLS * 1e3, [reply.total * 1e3 for reply in replies])


def _cpu_row(mode: str, found: dict[str, list[SpeedSample]]) -> Measurement:
    cpu = {name: statistics.median(sample.cpu for sample in samples) for name, samples in found.items()}
    cpu.pop("direct")
    times = ratio(cpu["ctxpager"], cpu["bare"])
    return Measurement(f"CPU a call, {mode.upper()}", "ms", cpu, ratio=times, against="bare", at_most=_CPU_LIMITS[mode])


def _latency_rows(mode: str, found: dict[str, list[SpeedSample]]) -> list[Measurement]:
    total = {
        name: statistics.median(value for sample in samples for value in sample.latencies)
        for name, samples in found.items()
    }
    added = {name: value - total["direct"] for name, value in total.items() if name != "direct"}
    return [
        Measurement(
            f"latency{what}, {mode.upper()}",
            "ms",
            values,
            ratio=ratio(values["ctxpager"], values.get("litellm")),
            against="LiteLLM",
            at_most=1 / 8,
        )
        for what, values in (("", total), (" added to direct", added))
    ]


def throughput(bench: Bench) -> list[Measurement]:
    """Streamed calls a second with 16 agents at once."""

    def measure(target: Target, number: int) -> float:
        sessions = [AgentSession(f"rate-{number}-{agent}", mode="sse") for agent in range(16)]
        # LiteLLM answers a few calls a second: it gets longer, so that each agent has several answers.
        slow, fast = (8.0, 2.0) if bench.quick else (12.0, 3.0)
        found = uvloop.run(rate(target.port, sessions, slow if target.name == "litellm" else fast))
        settle(target)
        return found

    found = bench.interleaved(1 if bench.quick else 3, measure)
    rates = {name: statistics.median(values) for name, values in found.items()}
    times = ratio(rates["ctxpager"], rates.get("litellm"))
    return [Measurement("SSE calls a second, 16 at once", "/s", rates, ratio=times, against="LiteLLM", at_least=30)]


def lag(bench: Bench) -> list[Measurement]:
    """How much later than direct each chunk of a paced stream arrives, and what the stream costs."""

    def measure(target: Target, number: int) -> tuple[float, list[float]]:
        session = AgentSession(f"paced-{number}", mode="paced")
        uvloop.run(play(target.port, session, 1))
        settle(target)
        before = target.cpu()
        replies = uvloop.run(play(target.port, session, 2))
        settle(target)
        return (target.cpu() - before) / 2 * 1e3, [value / 1e6 for reply in replies for value in reply.lags]

    found = bench.interleaved(bench.rounds(7), measure)
    lags = {name: statistics.median(lag for _, lags in rounds for lag in lags) for name, rounds in found.items()}
    cpu = {name: statistics.median(cost for cost, _ in rounds) for name, rounds in found.items() if name != "direct"}
    added = {name: value - lags["direct"] for name, value in lags.items() if name != "direct"}
    return [
        Measurement("lag a chunk, 60 chunks 5 ms apart", "ms", lags),
        Measurement("lag a chunk added to direct", "ms", added, ratio=added["ctxpager"], against="ms", at_most=0.3),
        Measurement("CPU of that stream", "ms", cpu, ratio=ratio(cpu["ctxpager"], cpu["bare"]), against="bare"),
    ]
