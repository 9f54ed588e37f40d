"""Proves that calls do not wait for each other: small calls beside many streams and one call of 20 MB.

``python -m benchmarks.load`` starts the fixed upstream and ``ctxpager serve``, keeps 300 streams open, each begun at a
moment of its own, sends a call of 20 MB again and again, and times small calls beside them: on a connection that is
kept, and on a new one for each. It fails if the 99th percentile of the small calls is above 2 s, or a call on a new
connection takes more than twice as long as one on a kept connection.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks.shared.agent_session import AgentSession
from benchmarks.shared.fixed_upstream import PACES
from benchmarks.shared.load_client import LoadConnection
from benchmarks.shared.processes import ctxpager, free_port, running, upstream

SLOWEST = 2.0  # seconds that the 99th percentile of small calls may take
DEARER = 2.0  # how many times as long as on a kept connection a call may take on a new one
TALK = PACES[b"talk"][0] * PACES[b"talk"][1]  # seconds that a stream takes
PAUSE = 0.02  # seconds between two small calls


class CallTimes(NamedTuple):
    """How long calls took, in seconds, by what they were."""

    kept: list[float]
    new: list[float]
    middle: list[float]
    large: list[float]
    streams: list[float]


def main() -> int:
    """Measure, print, and say whether what is demanded is met."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="ctxpager-load-") as folder, contextlib.ExitStack() as stack:
        log, far, port = Path(folder) / "log", free_port(), free_port()
        stack.enter_context(running(upstream(far), far, log=log))
        command = ctxpager(port, far, Path(folder) / "data", options.policy)
        stack.enter_context(running(command, port, ready="/healthz", log=log))
        times = uvloop.run(_measured(port, options))
    return _told(times, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=300, help="streams open at once")
    parser.add_argument("--size", type=int, default=20_000_000, help="bytes of the large call; 0 leaves it out")
    parser.add_argument("--messages", type=int, default=2_000, help="messages of the large call")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to measure")
    parser.add_argument("--policy", default="cost_aware", help="the proxy's policy")
    return parser.parse_args()


async def _measured(port: int, options: argparse.Namespace) -> CallTimes:
    """Play everything at once; the small calls begin when all streams are open."""
    times, over = CallTimes([], [], [], [], []), asyncio.Event()
    streams = [AgentSession(f"stream{at}", mode="talk", messages=10, size=25_000) for at in range(options.streams)]
    tasks = []
    for session in streams:  # if all began at once, they would also end, and begin again, at once
        tasks.append(asyncio.create_task(_kept(port, session, times.streams, over)))
        await asyncio.sleep(TALK / len(streams))
    if options.size:
        large = AgentSession("large", messages=options.messages, size=options.size)
        tasks.append(asyncio.create_task(_kept(port, large, times.large, over)))
    tasks += [
        asyncio.create_task(_kept(port, AgentSession("kept", messages=10, size=25_000), times.kept, over)),
        asyncio.create_task(_kept(port, AgentSession("middle", messages=100, size=300_000), times.middle, over)),
        asyncio.create_task(_new(port, AgentSession("new", messages=10, size=25_000), times.new, over)),
    ]
    await asyncio.sleep(options.seconds)
    over.set()
    await asyncio.gather(*tasks)
    return times


async def _kept(port: int, session: AgentSession, times: list[float], over: asyncio.Event) -> None:
    """Calls of one session, one after the other, on one connection."""
    connection = await LoadConnection.open(port, session.path)
    await _until(over, times, lambda: connection.call(session.grow()))
    connection.close()


async def _new(port: int, session: AgentSession, times: list[float], over: asyncio.Event) -> None:
    """Calls of one session, each on a connection of its own."""

    async def call() -> None:
        connection = await LoadConnection.open(port, session.path)
        await connection.call(session.grow())
        connection.close()

    await _until(over, times, call)


async def _until(over: asyncio.Event, times: list[float], call: Callable[[], Awaitable[object]]) -> None:
    while not over.is_set():
        began = time.perf_counter()
        await call()
        times.append(time.perf_counter() - began)
        await asyncio.sleep(PAUSE)


def _told(times: CallTimes, options: argparse.Namespace) -> int:
    print(f"{options.streams} streams, {options.policy}, {options.seconds:g} s; seconds a call:")
    for name, taken in times._asdict().items():
        if taken:
            print(f"  {name:8} {len(taken):5} calls  median {statistics.median(taken):7.3f}  99 % {_most(taken):7.3f}")
    small = _most(times.kept + times.new)
    ratio = statistics.median(times.new) / statistics.median(times.kept)
    met = small <= SLOWEST and ratio <= DEARER
    print(f"99 % of small calls within {small:.3f} s (at most {SLOWEST:g})")
    print(f"a call on a new connection takes {ratio:.2f} times that on a kept one (at most {DEARER:g})")
    print("met" if met else "NOT MET")
    return 0 if met else 1


def _most(taken: list[float]) -> float:
    """What 99 % of the calls stay below."""
    return sorted(taken)[max(0, int(len(taken) * 0.99) - 1)]


if __name__ == "__main__":
    sys.exit(main())
