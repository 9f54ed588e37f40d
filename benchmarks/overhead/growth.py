"""Measures what a call costs as its known history grows: beyond a scan and a hash, only what is new should count."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import uvloop

from benchmarks.shared.agent_session import AgentSession
from benchmarks.shared.load_client import play
from benchmarks.shared.processes import Target
from benchmarks.shared.rounds import Bench, Measurement, settle
from benchmarks.shared.tables import Grid, figure
from pager.wire import json_spans

_HISTORIES = (10, 100, 1_000, 10_000)
_BYTES_A_MESSAGE = 1_000


@dataclass(frozen=True, slots=True)
class Growth:
    """One history: what a call with it costs, in milliseconds; ``scan`` is to split and hash its body, once."""

    messages: int
    size: int
    cpu: dict[str, float]
    latency: dict[str, float]
    scan: float

    @property
    def rest(self) -> float:
        """CPU of ctxpager beyond the bare proxy and the scan."""
        return self.cpu["ctxpager"] - self.cpu["bare"] - self.scan


def growth(bench: Bench) -> list[Growth]:
    """The cost at each history."""
    return [_at(bench.only("direct", "bare", "ctxpager"), messages) for messages in _HISTORIES]


def _at(bench: Bench, messages: int) -> Growth:
    size = 25_000 + messages * _BYTES_A_MESSAGE
    calls = 4 if messages > 5_000 else 16
    found = bench.interleaved(bench.rounds(5), lambda target, number: _known(target, number, messages, calls))
    return Growth(
        messages,
        size,
        {name: statistics.median(cpu for cpu, _ in rounds) for name, rounds in found.items() if name != "direct"},
        {name: statistics.median(value for _, values in rounds for value in values) for name, rounds in found.items()},
        statistics.median(_scan(AgentSession("scan", messages=messages, size=size).body()) for _ in range(7)),
    )


def _known(target: Target, number: int, messages: int, calls: int) -> tuple[float, list[float]]:
    session = AgentSession(f"growth-{messages}-{number}", messages=messages, size=25_000 + messages * _BYTES_A_MESSAGE)
    uvloop.run(play(target.port, session, 2))
    settle(target)
    before = target.cpu()
    replies = uvloop.run(play(target.port, session, calls))
    settle(target)
    return (target.cpu() - before) / calls * 1e3, [reply.total * 1e3 for reply in replies]


def _scan(body: bytes) -> float:
    """What it takes to find and hash every message of a body, in this process."""
    before = time.process_time()
    json_spans.elements(body, json_spans.members(body)["messages"])
    return (time.process_time() - before) * 1e3


def verdict(found: list[Growth]) -> list[Measurement]:
    """What a call costs beyond the bare proxy and the scan must not grow with what is known."""
    short, long = found[0], found[-1]
    # The scan is measured alone and warm; in a server that does other work between two calls it costs up to twice that.
    room = short.rest + long.scan
    what = f"CPU beyond bare and scan, {long.messages:,} known"
    return [Measurement(what, "ms", {"ctxpager": long.rest}, long.rest, "ms", at_most=room)]


def table(found: Sequence[Growth]) -> Grid:
    """One line a history; times are milliseconds."""
    columns = (
        "messages known",
        "body KB",
        "latency bare",
        "latency ctxpager",
        "CPU bare",
        "CPU ctxpager",
        "scan+hash",
        "rest",
        "rest µs/message",
    )
    return Grid(columns, [_line(at) for at in found])


def _line(at: Growth) -> list[str]:
    times = (at.latency["bare"], at.latency["ctxpager"], at.cpu["bare"], at.cpu["ctxpager"], at.scan, at.rest)
    return [f"{at.messages:,}", f"{at.size / 1e3:,.0f}", *map(figure, times), figure(at.rest / at.messages * 1e3)]
