"""What the client of a call with legs is sent: one response, with heartbeats while its stream stands still."""

import asyncio
from collections.abc import Awaitable
from time import perf_counter
from typing import TypeVar

import aiohttp

from pager.proxy.relay import Exchange, Send

Headers = list[tuple[bytes, bytes]]
_T = TypeVar("_T")


class Delivery:
    """The response to one call; ``started`` once its status is sent, ``torn`` where it must end as a broken one."""

    def __init__(self, send: Send, heartbeat: bytes, beat: float) -> None:
        self._send = send
        self._heartbeat = heartbeat
        self._beat = beat
        self._last_sent = 0.0
        self.started = False
        self.torn = False

    async def start(self, exchange: Exchange, response: aiohttp.ClientResponse, headers: Headers) -> None:
        """Send the status of this response, with these headers."""
        self.started = exchange.begun = True
        self._last_sent = perf_counter()
        await self._send({"type": "http.response.start", "status": response.status, "headers": headers})

    async def send(self, data: bytes) -> None:
        """Send a piece of the body, if there is any."""
        if data:
            self._last_sent = perf_counter()
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def stay_alive(self) -> None:
        """Send a heartbeat if nothing was sent for long."""
        if perf_counter() - self._last_sent > self._beat:
            await self.send(self._heartbeat)

    async def finish(self) -> None:
        """End the body; a torn one ends with the connection."""
        if not self.torn:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def during(self, work: Awaitable[_T]) -> _T:
        """Wait for something; heartbeats tell a client whose response has started that we live."""
        if not self.started:
            return await work
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=self._beat))[0]:
                await self.send(self._heartbeat)
            return task.result()
        finally:
            task.cancel()


def without_length(headers: Headers) -> Headers:
    """The headers for an answer that has another length than the one that came, and is not compressed."""
    return [(name, value) for name, value in headers if name not in (b"content-length", b"content-encoding")]


def with_length(headers: Headers, length: int) -> Headers:
    """The headers for an answer of this length that is not compressed."""
    return [*without_length(headers), (b"content-length", str(length).encode())]
