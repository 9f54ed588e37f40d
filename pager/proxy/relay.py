"""Carries one call over the network: sends the requests of a flow, and streams one reply to the client while it stays.

A flow is a generator of commands (``page_in_loop``). A client whose reply has begun gets heartbeats while it pauses.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self, TypeVar

import aiohttp
from yarl import URL

from pager.errors import BodyTooSlow, NotUnderstood
from pager.log.events import FailurePhase
from pager.proxy.attempt import Attempt, Failure
from pager.proxy.page_in_loop import (
    Append,
    Claimed,
    Command,
    Flow,
    InThread,
    LegBroke,
    PassOn,
    ReadBody,
    ReadChunk,
    ResponseHead,
    SendLeg,
    Show,
    StartReply,
    Wait,
)
from pager.proxy.request_body import BodyPace, ContentDecoder, Receive
from pager.proxy.upstream import STATUSES, Upstream, error_text, headers_for_client, passed_on, read_up_to
from pager.wire.dialect import Dialect

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
OnLog = Callable[[Append | Claimed], Awaitable[object]]
"""Carries out the commands that concern the log and the session."""

BEAT = 10.0  # seconds without a byte after which a stream gets a heartbeat
NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)
_T = TypeVar("_T")
log = logging.getLogger("ctxpager")


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request as it went upstream; ``at`` is when, in seconds since 1970."""

    url: URL
    headers: list[tuple[bytes, bytes]]
    body: bytes
    at: float


class Watch:
    """Cancels the work inside it when the client leaves, once its request has ``arrived``; ``left`` if it did leave."""

    __slots__ = ("_arrived", "_receive", "_task", "_watcher", "left")

    def __init__(self, receive: Receive, arrived: asyncio.Event | None = None) -> None:
        self._receive = receive
        self._arrived = arrived
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
        if self._arrived is not None:
            await self._arrived.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True
        if self._task is not None:
            self._task.cancel()


class Relay:
    """The network side of one call: its client, the provider, and the attempt that notes what passes."""

    def __init__(
        self,
        upstream: Upstream,
        dialect: Dialect,
        scope: Scope,
        receive: Receive,
        send: Send,
        attempt: Attempt,
        beat: float = BEAT,
    ) -> None:
        self.attempt = attempt
        self._upstream = upstream
        self._dialect = dialect
        self._scope = scope
        self._receive = receive
        self._send = send
        self._beat = beat
        self._last_sent = 0.0
        self._responses = AsyncExitStack()
        self._response: aiohttp.ClientResponse | None = None
        self._decoder: ContentDecoder | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._silent = False

    async def run(self, flow: Flow[bool], on_log: OnLog | None = None, arrived: asyncio.Event | None = None) -> None:
        """Carry out the commands of a flow while the client stays; ``attempt.failure`` is what went wrong, if anything.

        ``arrived`` is set at the end of a request's body that is sent on while it comes in.
        """
        attempt, watch = self.attempt, Watch(self._receive, arrived)
        try:
            async with watch:
                await self._reply(flow, on_log)
            attempt.failure = None
        except asyncio.CancelledError:
            if not watch.left:
                raise
            attempt.failure = Failure(FailurePhase.CLIENT, "the client closed the connection")
        except NETWORK_ERRORS as error:
            await self._break_off(error)
            attempt.failure = Failure(FailurePhase.STREAM if attempt.begun else FailurePhase.CONNECT, error_text(error))

    async def _reply(self, flow: Flow[bool], on_log: OnLog | None) -> None:
        """Carry out commands until the client has its reply; a request that breaks is the flow's to deal with.

        Raises the network error that broke a request where the flow does not go on after it.
        """
        result: object = None
        broke: Exception | None = None
        try:
            while True:
                command = flow.send(result) if broke is None else flow.throw(LegBroke(error_text(broke)))
                result, broke = None, None
                if isinstance(command, Append | Claimed):
                    result = await on_log(command) if on_log is not None else None
                    continue
                try:
                    result = await self._carry_out(command)
                except NETWORK_ERRORS as error:
                    broke = error
        except StopIteration as end:
            whole: bool = end.value
        except LegBroke:
            if broke is None:
                raise
            raise broke from broke.__cause__
        finally:
            await self._responses.aclose()
        if whole:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _carry_out(self, command: Command) -> object:
        match command:
            case Show():
                await self._show(command.data)
            case ReadChunk():
                return await self._chunk()
            case SendLeg():
                return await self._leg(command)
            case PassOn():
                async for chunk in self._open.content.iter_any():
                    self.attempt.take(chunk)
                    await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
            case ReadBody():
                response = self._open
                return await (response.read() if command.limit is None else read_up_to(response, command.limit))
            case StartReply():
                await self._start(command)
            case Wait():
                await self._during(asyncio.sleep(command.seconds))
            case InThread():
                return await asyncio.to_thread(command.work)
            case _:
                raise TypeError(f"{command} is not for the network")
        return None

    @property
    def _open(self) -> aiohttp.ClientResponse:
        if self._response is None:
            raise RuntimeError("no request has gone out")
        return self._response

    async def _leg(self, leg: SendLeg) -> ResponseHead:
        """Send a request; the head of its response. The response before it is closed."""
        await self._responses.aclose()
        scope, attempt, body = self._scope, self.attempt, leg.body
        attempt.begin_leg()
        headers = passed_on(
            scope["headers"], also=[b"accept-encoding"] * leg.readable + [b"content-encoding"] * (not leg.own_bytes)
        )
        if leg.readable:
            headers.append((b"accept-encoding", b"identity"))
        if body is not None and not isinstance(body, bytes):  # aiohttp sets the length of bytes by itself
            headers += [(name, value) for name, value in scope["headers"] if name == b"content-length"]
        attempt.going_out(body if isinstance(body, bytes) else b"")
        url = self._upstream.address(self._dialect, scope)
        sending = self._upstream.send(scope["method"], url, headers, body, self._dialect.name)
        response = self._response = await self._during(self._responses.enter_async_context(sending))
        if response.status not in STATUSES:
            raise aiohttp.ClientPayloadError(f"it answered with the status {response.status}")
        attempt.status, attempt.headers = response.status, list(response.raw_headers)
        self._decoder, self._pieces, self._silent = None, iter(()), attempt.begun
        return ResponseHead(response.status, {name.lower(): value for name, value in response.headers.items()})

    def latest(self, at: float) -> SentRequest:
        """The request that went upstream last, as a plain one whose answer we read; ``at`` is when it did."""
        headers = passed_on(self._scope["headers"], also=[b"accept-encoding", b"content-encoding"])
        url, plain = self._upstream.address(self._dialect, self._scope), (b"accept-encoding", b"identity")
        return SentRequest(url, [*headers, plain], self.attempt.latest, at)

    async def _chunk(self) -> bytes:
        """The next bytes of the response without its content encoding, empty at its end."""
        response = self._open
        try:
            decoder = self._decoder = self._decoder or ContentDecoder(response.headers.get("content-encoding", ""))
            while (piece := next(self._pieces, None)) is None:
                reading = response.content.readany()
                # A client that has waited for a leg before is kept alive until this one begins.
                data = await (self._during(reading) if self._silent else reading)
                self._silent = False
                if not data:
                    decoder.end()
                    return b""
                self._pieces = decoder.feed(data)
        except NotUnderstood as error:
            raise aiohttp.ClientPayloadError(str(error)) from error
        return piece

    async def _start(self, reply: StartReply) -> None:
        """Send the status and the headers of the response, without those that do not fit what follows."""
        headers = headers_for_client(self._open)
        if reply.rewritten:
            headers = [(name, value) for name, value in headers if name not in (b"content-length", b"content-encoding")]
        if reply.length is not None:
            headers.append((b"content-length", str(reply.length).encode()))
        self.attempt.begun = True
        self._last_sent = perf_counter()
        await self._send({"type": "http.response.start", "status": self._open.status, "headers": headers})

    async def _show(self, data: bytes) -> None:
        """Send the client a piece of the reply; a heartbeat if it is empty and nothing was sent for long."""
        if not data and perf_counter() - self._last_sent > self._beat:
            data = self._dialect.heartbeat
        if data:
            self._last_sent = perf_counter()
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _during(self, work: Awaitable[_T]) -> _T:
        """Wait for something, with heartbeats for a client whose reply has begun."""
        if not self.attempt.begun:
            return await work
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=self._beat))[0]:
                await self._show(self._dialect.heartbeat)
            return task.result()
        finally:
            task.cancel()

    async def _break_off(self, error: Exception) -> None:
        """Answer that the provider did not; a reply that has begun breaks off as the provider's did."""
        if self.attempt.begun:
            log.warning("the provider's answer broke off: %s", error_text(error))
        elif isinstance(error.__cause__, BodyTooSlow):  # met while the body was sent on
            await refuse(self._send, self._dialect, error.__cause__.status, str(error.__cause__), close=True)
        else:
            status = 504 if isinstance(error, TimeoutError) else 502
            await refuse(self._send, self._dialect, status, f"no answer from the provider: {error_text(error)}")


async def streamed(receive: Receive, arrived: asyncio.Event, seconds: float) -> AsyncIterator[bytes]:
    """The request's body as it comes; sets ``arrived`` at its end. Raises ClientLeft, or BodyTooSlow."""
    more, pace = True, BodyPace(seconds)
    while more:
        message = await pace.next(receive)
        more = message.get("more_body", False)
        if message.get("body"):
            yield message["body"]
    arrived.set()


async def refuse(send: Send, dialect: Dialect, status: int, message: str, *, close: bool = False) -> None:
    """Answer with an error of ours in the client's own dialect; ``close`` the connection where its rest is no use."""
    body = dialect.error(status, f"ctxpager: {message}")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close")] if close else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
