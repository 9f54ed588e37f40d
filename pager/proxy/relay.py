"""Relays one request to the provider and its answer back, chunk by chunk, for as long as the client stays."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple, Self

import aiohttp
from yarl import URL

from pager.errors import BodyTooSlow
from pager.proxy.request_body import Pace, Receive
from pager.proxy.upstream import Body, Upstream, passed_on
from pager.wire.dialect import Dialect

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
STATUSES = range(200, 600)  # of answers; what is below comes before one, or switches protocols, which we never ask for
BODILESS = frozenset({204, 304})
log = logging.getLogger("ctxpager")


@dataclass(slots=True)
class Exchange:
    """One attempt as it goes: what came back so far, and when; the bytes only as far as they are kept for the log.

    ``keep`` is how many bytes of an answer are kept at most, ``size`` how many it has so far. ``begun`` once the client
    has been sent anything. ``read`` is when the request was here in full, ``went_out`` when it went on; ``sent`` are
    the bytes of all that went out for it. ``phase`` is how far it came if it failed, else empty.
    """

    keep: int
    started: float = field(default_factory=perf_counter)
    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0
    first_byte: float = 0.0
    begun: bool = False
    read: float = 0.0
    went_out: float = 0.0
    sent: int = 0
    phase: str = "proxy"

    def going_out(self, size: int) -> None:
        """A request of so many bytes goes upstream now."""
        self.went_out = self.went_out or perf_counter()
        self.sent += size

    def judge(self, failure: "Failure | None") -> None:
        """Note what became of it."""
        self.phase = failure.phase if failure is not None else "status" if self.status >= 400 else ""

    def begin_leg(self) -> None:
        """A request goes out; what is kept is of the last one for an answer."""
        self.status = self.size = 0
        self.chunks.clear()

    def take(self, chunk: bytes) -> None:
        """Note a piece of the answer."""
        self.first_byte = self.first_byte or perf_counter()
        if self.size < self.keep:
            self.chunks.append(chunk[: self.keep - self.size])
        self.size += len(chunk)

    @property
    def cut(self) -> bool:
        """Whether the answer has more bytes than are kept."""
        return self.size > self.keep > 0

    def header(self, name: bytes) -> str:
        """A header of the response, or empty."""
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == name), "")


class Failure(NamedTuple):
    """Why an attempt brought no whole answer: how far it came, and what was said."""

    phase: str
    error: str


STOPPED = Failure("proxy", "the proxy was stopped, or failed, before the answer was whole")


class Watch:
    """Cancels the work inside it when the client leaves, once its request is ``sent``; ``left`` tells if it did."""

    __slots__ = ("_receive", "_sent", "_task", "_watcher", "left")

    def __init__(self, receive: Receive, sent: asyncio.Event | None = None) -> None:
        self._receive = receive
        self._sent = sent
        self._task: asyncio.Task[Any] | None = None
        self.left = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watcher.cancel()
        if self.left and self._task is not None:
            self._task.uncancel()

    async def _watch(self) -> None:
        if self._sent is not None:
            await self._sent.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True
        if self._task is not None:
            self._task.cancel()


class Relay:
    """Carries requests to the provider and answers back."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def attempt(
        self, dialect: Dialect, scope: Scope, watch: Watch, send: Send, body: Body, exchange: Exchange
    ) -> Failure | None:
        """Relay one request and its answer as they come; what went wrong, if anything."""
        return await self.watched(dialect, watch, send, exchange, self._relay(dialect, scope, send, body, exchange))

    async def watched(
        self, dialect: Dialect, watch: Watch, send: Send, exchange: Exchange, work: Awaitable[None]
    ) -> Failure | None:
        """Do what brings the answer, as long as the client stays; what went wrong, if anything."""
        try:
            async with watch:
                try:
                    await work
                except asyncio.CancelledError:
                    if not watch.left:
                        raise
                    return Failure("client", "the client closed the connection")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            await _unreachable(send, dialect, exchange, error)
            return Failure("stream" if exchange.begun else "connect", said(error))
        return None

    async def _relay(self, dialect: Dialect, scope: Scope, send: Send, body: Body, exchange: Exchange) -> None:
        url = address(self._upstream, dialect, scope)
        headers = passed_on(scope["headers"])
        if body is not None and not isinstance(body, bytes):  # aiohttp sets the length of bytes by itself
            headers += [(name, value) for name, value in scope["headers"] if name == b"content-length"]
        exchange.going_out(len(body) if isinstance(body, bytes) else 0)
        async with self._upstream.send(scope["method"], url, headers, body, dialect.name) as response:
            if response.status not in STATUSES:
                raise aiohttp.ClientPayloadError(f"it answered with the status {response.status}")
            exchange.status = response.status
            exchange.headers = list(response.raw_headers)
            exchange.begun = True
            await send({"type": "http.response.start", "status": response.status, "headers": back(response)})
            async for chunk in response.content.iter_any():
                exchange.take(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def address(upstream: Upstream, dialect: Dialect, scope: Scope) -> URL:
    """Where the client's request goes at the provider."""
    path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    return upstream.url(dialect.name, path, query)


async def streamed(receive: Receive, sent: asyncio.Event, seconds: float) -> AsyncIterator[bytes]:
    """The request's body as it comes; sets ``sent`` at its end. Raises ClientLeft, or BodyTooSlow."""
    more, pace = True, Pace(seconds)
    while more:
        message = await pace.next(receive)
        more = message.get("more_body", False)
        if message.get("body"):
            yield message["body"]
    sent.set()


async def refuse(send: Send, dialect: Dialect, status: int, message: str, *, close: bool = False) -> None:
    """Answer with an error of ours in the client's own dialect; ``close`` the connection where its rest is no use."""
    body = dialect.error(status, f"ctxpager: {message}")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close")] if close else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def said(error: BaseException) -> str:
    """An error in words, without the address: a query may hold a key."""
    words = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    return f"{type(error).__name__}: {words}".rstrip(": ")


async def _unreachable(send: Send, dialect: Dialect, exchange: Exchange, error: Exception) -> None:
    """Tell the client that there is no answer; one that has begun breaks off as the provider's did."""
    if isinstance(error.__cause__, BodyTooSlow) and not exchange.begun:  # met while the body was sent on
        await refuse(send, dialect, error.__cause__.status, str(error.__cause__), close=True)
        return
    if exchange.begun:
        log.warning("the provider's answer broke off: %s", said(error))
        return
    status = 504 if isinstance(error, TimeoutError) else 502
    await refuse(send, dialect, status, f"no answer from the provider: {said(error)}")


def back(response: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    """The response's headers for the client; its length stays, as the bytes do, unless it is of a body not sent."""
    kept = passed_on(response.raw_headers)
    length = [(name, value) for name, value in response.raw_headers if name.lower() == b"content-length"]
    if response.status in BODILESS:
        length = []
    return [(name.lower(), value) for name, value in kept + length]
