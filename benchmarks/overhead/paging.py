"""Measures what paging adds to a call: a history of 1 MB under a policy that has evicted most of it, and under none.

One session a round, the same for all servers: a history of results of about 4 KB, of which ``fifo_age`` has evicted all
by the seventh call. From then on it is settled while calls add results too small to be pages, and repacks at every call
while they add pages. The calls go to the servers in turns, one by one.
"""

import asyncio
import contextlib
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import uvloop

from benchmarks.shared import processes
from benchmarks.shared.agent_session import WIRES, AgentSession
from benchmarks.shared.load_client import CallFailed, LoadConnection, TimedReply
from benchmarks.shared.processes import Target, free_port, running
from benchmarks.shared.rounds import Bench, Measurement, ratio, settle

POLICY = "fifo_age"
SERVERS = ("direct", "keep_all", POLICY)
_MESSAGES = 490
_SIZE = 1_000_000
_UNTIL_EVICTED = 7  # calls: a page goes when it is more than four calls old
_PAUSE = 0.005  # seconds after each call: what one server puts off until then must not slow down the next one
_LIMIT = 1.5
_LAG_LIMIT = 0.3


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a session: some calls that count, each with so many bytes of results, after some that do not."""

    name: str
    mode: str = "json"
    calls: int = 20
    before: int = 0
    added: int = 300


_PHASES = (
    Phase("settled", before=_UNTIL_EVICTED),
    Phase("SSE", mode="sse", before=1),
    Phase("1,000 chunks", mode="long", calls=1),
    Phase("repacking", before=_UNTIL_EVICTED, added=4_000),
)


@dataclass(frozen=True, slots=True)
class PhaseRound:
    """What one server did in one phase of one round: its replies, and its CPU for each, in milliseconds."""

    replies: list[TimedReply]
    cpu: float


Rounds = Mapping[tuple[str, str], list[PhaseRound]]
"""What was found in all rounds, by the names of the phase and the server."""


def paging(bench: Bench) -> list[Measurement]:
    """What a call costs with paging, against the same without."""
    with _standing(bench) as targets:
        found = {wire: _rounds(targets, wire, bench.rounds(4)) for wire in WIRES}
    for rounds in found.values():
        _expect_evicted(rounds)
    return list(chain.from_iterable(_rows(wire, rounds) for wire, rounds in found.items()))


@contextlib.contextmanager
def _standing(bench: Bench) -> Iterator[list[Target]]:
    """No proxy, one that changes nothing and one that pages, both new."""
    log = bench.folder / "paging.log"
    with contextlib.ExitStack() as stack:
        targets = [Target("direct", bench.upstream_port)]
        for policy in SERVERS[1:]:
            port = free_port()
            command = processes.ctxpager(port, bench.upstream_port, bench.folder / policy, policy)
            server = stack.enter_context(running(command, port, ready="/healthz", log=log))
            targets.append(Target(policy, port, server))
        yield targets


def _rounds(targets: list[Target], wire: str, rounds: int) -> Rounds:
    found: dict[tuple[str, str], list[PhaseRound]] = defaultdict(list)
    for number in range(rounds):
        nonce = f"paging-{wire}-{number}"
        sessions = [AgentSession(nonce, wire=wire, messages=_MESSAGES, size=_SIZE) for _ in targets]
        for phase in _PHASES:
            for target, one in zip(targets, _phase(phase, targets, sessions), strict=True):
                found[phase.name, target.name].append(one)
    return found


def _phase(phase: Phase, targets: list[Target], sessions: list[AgentSession]) -> list[PhaseRound]:
    """Play one phase on each server."""
    uvloop.run(_in_turns(phase, targets, sessions, phase.before))
    before = [_settled_cpu(target) for target in targets]
    replies = uvloop.run(_in_turns(phase, targets, sessions, phase.calls))
    spent = [_settled_cpu(target) - cpu for target, cpu in zip(targets, before, strict=True)]
    return [PhaseRound(said, cpu / phase.calls * 1e3) for said, cpu in zip(replies, spent, strict=True)]


def _settled_cpu(target: Target) -> float:
    settle(target)
    return target.cpu()


async def _in_turns(
    phase: Phase, targets: list[Target], sessions: list[AgentSession], calls: int
) -> list[list[TimedReply]]:
    """The replies of each server to so many calls, one server after the other, there and back again."""
    connections = [await LoadConnection.open(target.port, sessions[0].path) for target in targets]
    replies: list[list[TimedReply]] = [[] for _ in targets]
    for turn in range(calls):
        for at in range(len(targets)) if turn % 2 else reversed(range(len(targets))):
            sessions[at].mode = phase.mode
            replies[at].append(await connections[at].call(sessions[at].grow(phase.added)))
            await asyncio.sleep(_PAUSE)
    for connection in connections:
        connection.close()
    return replies


def _expect_evicted(rounds: Rounds) -> None:
    """Make sure that paging was measured: a proxy that pages nothing is fast, too."""
    sent, whole = (_upstream("settled", name, rounds) for name in (POLICY, "direct"))
    if sent > whole / 2:
        raise CallFailed(f"{POLICY} sent {sent} bytes on of a history of {whole}: it has not evicted most of it")


def _upstream(phase: str, server: str, rounds: Rounds) -> float:
    return statistics.median(reply.upstream for one in rounds[phase, server] for reply in one.replies)


def _rows(wire: str, rounds: Rounds) -> list[Measurement]:
    sent = {name: _upstream("settled", name, rounds) / 1e3 for name in SERVERS}
    return [
        Measurement(f"{wire}: prompt as it goes upstream", "KB", sent),
        *(_added(f"{wire}: latency added, {name}", name, rounds) for name in ("settled", "repacking", "SSE")),
        _added(f"{wire}: first event added, SSE", "SSE", rounds, first=True),
        _lag(f"{wire}: lag a chunk added, 1,000 chunks 1 ms apart", rounds),
        *(_cpu(f"{wire}: CPU a call, {name}", name, rounds) for name in ("settled", "repacking", "SSE")),
        _cpu(f"{wire}: CPU of those 1,000 chunks", "1,000 chunks", rounds),
    ]


def _added(what: str, phase: str, rounds: Rounds, *, first: bool = False) -> Measurement:
    times = {
        name: [(reply.first if first else reply.total) * 1e3 for one in rounds[phase, name] for reply in one.replies]
        for name in SERVERS
    }
    # What disturbs a call only ever makes it longer: the lower quartile moves less from run to run than the median.
    values = _less_direct({name: statistics.quantiles(values, n=4)[0] for name, values in times.items()})
    # The demand is on a known history; a call that repacks has something new to decide and to write.
    limit = None if phase == "repacking" else _LIMIT
    return Measurement(what, "ms", values, ratio(values[POLICY], values["keep_all"]), "keep_all", at_most=limit)


def _lag(what: str, rounds: Rounds) -> Measurement:
    found = {name: [reply for one in rounds["1,000 chunks", name] for reply in one.replies] for name in SERVERS}
    lags = {name: [lag / 1e6 for reply in replies for lag in reply.lags] for name, replies in found.items()}
    values = _less_direct({name: statistics.median(values) for name, values in lags.items()})
    return Measurement(what, "ms", values, values[POLICY], "ms", at_most=_LAG_LIMIT)


def _less_direct(times: Mapping[str, float]) -> dict[str, float]:
    """The direct time as it is, and what each server adds to it."""
    return {name: value - (0 if name == "direct" else times["direct"]) for name, value in times.items()}


def _cpu(what: str, phase: str, rounds: Rounds) -> Measurement:
    values = {name: statistics.median(one.cpu for one in rounds[phase, name]) for name in SERVERS[1:]}
    return Measurement(what, "ms", values, ratio(values[POLICY], values["keep_all"]), "keep_all")
