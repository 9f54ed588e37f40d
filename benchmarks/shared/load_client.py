"""A load client: plain HTTP/1.1 over kept-alive connections, as little work a call as Python can do.

It is no general client: it trusts the servers here to send either a content-length or chunks that end in an empty one.
"""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from benchmarks.shared.agent_session import KEY, AgentSession

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_REQUEST = re.compile(rb"\r\nx-request-id: *req_(\d+)", re.IGNORECASE)
_STAMP = re.compile(rb"t=(\d+); ")
_END = b"\r\n0\r\n\r\n"
_EVENT = b"\ndata: "


class CallFailed(Exception):
    """A server did not answer with 200, or closed the connection."""


@dataclass(slots=True)
class TimedReply:
    """One answer: when its parts came, in seconds from the call; ``lags`` are nanoseconds from writing to reading.

    ``first`` is when the first event of a stream came; a body in one piece has none. ``upstream`` are the bytes of the
    request as the upstream got it, where it tells.
    """

    first: float = 0.0
    total: float = 0.0
    size: int = 0
    upstream: int = 0
    lags: list[int] = field(default_factory=list)


class LoadConnection(asyncio.Protocol):
    """One kept-alive connection with at most one call on it."""

    transport: asyncio.Transport

    def __init__(self, port: int, path: str) -> None:
        """A connection that is yet to be made."""
        self._head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
            f"accept: */*\r\nauthorization: Bearer {KEY}\r\nuser-agent: OpenAI/Python 3.0\r\ncontent-length: "
        ).encode()
        self._reply = TimedReply()
        self._waiting: asyncio.Future[TimedReply] | None = None
        self._buffer = b""
        self._missing: int | None = None

    @classmethod
    async def open(cls, port: int, path: str) -> "LoadConnection":
        """A connection to the server on this port, for calls to this path."""
        _, made = await asyncio.get_running_loop().create_connection(lambda: cls(port, path), "127.0.0.1", port)
        return made

    async def call(self, body: bytes) -> TimedReply:
        """Send one request and wait for the whole answer."""
        self._reply, self._buffer, self._missing = TimedReply(), b"", None
        self._waiting = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        self.transport.write(self._head + b"%d\r\n\r\n" % len(body))
        self.transport.write(body)
        reply = await self._waiting
        reply.first, reply.total = reply.first - began, reply.total - began
        return reply

    def close(self) -> None:
        """Hang up."""
        self._waiting = None
        self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server is there."""
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The server hung up."""
        self._fail(f"the connection was closed: {exc}")

    def data_received(self, data: bytes) -> None:
        """More of the answer."""
        reply = self._reply
        if not reply.first and _EVENT in data:
            reply.first = time.perf_counter()
        reply.size += len(data)
        if b"t=" in data:
            now = time.monotonic_ns()
            reply.lags += [now - int(stamp) for stamp in _STAMP.findall(data)]
        if self._ended(data):
            reply.total = time.perf_counter()
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(reply)

    def _ended(self, data: bytes) -> bool:
        """Whether the answer is complete; only its head and its last bytes are ever looked at."""
        if self._missing is None:
            self._buffer += data
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return False
            self._open(self._buffer[:end])
            data = self._buffer[end + 2 :]
            self._missing = -1 if self._missing is None else self._missing - len(data) + 2
        elif self._missing > 0:
            self._missing -= len(data)
        # A terminator may come in pieces, so the last bytes are kept.
        self._buffer = (self._buffer + data)[-len(_END) :]
        return self._missing == 0 or (self._missing < 0 and self._buffer == _END)

    def _open(self, head: bytes) -> None:
        if not head.startswith(b"HTTP/1.1 200"):
            self._fail(head.decode("latin-1"))
        request = _REQUEST.search(head)
        self._reply.upstream = int(request[1]) if request else 0
        length = _LENGTH.search(head)
        self._missing = int(length[1]) if length else None

    def _fail(self, why: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(CallFailed(why))


async def play(port: int, session: AgentSession, calls: int, added: int = 300) -> list[TimedReply]:
    """Play an agent: one call after the other, each the one before plus two messages, ``added`` bytes of results."""
    connection = await LoadConnection.open(port, session.path)
    try:
        return [await connection.call(session.grow(added)) for _ in range(calls)]
    finally:
        connection.close()


async def rate(port: int, sessions: Sequence[AgentSession], seconds: float) -> float:
    """Calls a second with all sessions played at once, counted after each has had an answer."""
    ends: list[float] = []
    deadline = time.perf_counter() + seconds

    async def agent(session: AgentSession) -> None:
        connection = await LoadConnection.open(port, session.path)
        while time.perf_counter() < deadline:
            await connection.call(session.grow())
            ends.append(time.perf_counter())
        connection.close()

    await asyncio.gather(*(agent(session) for session in sessions))
    warm = len(sessions)
    inside = [end for end in sorted(ends)[warm - 1 :] if end <= deadline]
    if len(inside) < 2:
        raise CallFailed(f"only {len(ends)} answers in {seconds} s at concurrency {warm}")
    return (len(inside) - 1) / (inside[-1] - inside[0])


async def burst(port: int, sessions: Sequence[AgentSession]) -> list[TimedReply]:
    """One call of each session, all at once, each on its own connection."""
    bodies = [session.body() for session in sessions]
    connections = [await LoadConnection.open(port, session.path) for session in sessions]
    try:
        pairs = zip(connections, bodies, strict=True)
        return await asyncio.gather(*(connection.call(body) for connection, body in pairs))
    finally:
        for connection in connections:
            connection.close()
