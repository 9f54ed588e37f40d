"""Carries out what the fault loop asks for: sends its requests, reads responses, and sends the client one reply.

A client whose reply has begun gets heartbeats while it stands still.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Self, TypeVar

import aiohttp

from pager.errors import NotUnderstood
from pager.proxy.attempt import Attempt
from pager.proxy.fault_loop import (
    Command,
    Flow,
    InThread,
    LegBroke,
    ReadBody,
    ReadChunk,
    ResponseHead,
    SendLeg,
    Show,
    StartReply,
    Wait,
)
from pager.proxy.relay import Scope, Send
from pager.proxy.request_body import ContentDecoder
from pager.proxy.upstream import STATUSES, Upstream, back, passed_on, said, up_to
from pager.wire.dialect import Dialect

BEAT = 10.0  # seconds without a byte after which a stream gets a heartbeat
_T = TypeVar("_T")


class LegDriver:
    """The network side of one call with legs."""

    def __init__(
        self,
        upstream: Upstream,
        dialect: Dialect,
        scope: Scope,
        send: Send,
        attempt: Attempt,
        beat: float = BEAT,
    ) -> None:
        self._upstream = upstream
        self._dialect = dialect
        self._scope = scope
        self._send = send
        self._attempt = attempt
        self._beat = beat
        self._last_sent = 0.0
        self._responses = AsyncExitStack()
        self._response: aiohttp.ClientResponse | None = None
        self._decoder: ContentDecoder | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._silent = False
        self._broke: Exception | None = None
        self._whole = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        await self._responses.aclose()
        if kind is None and self._whole:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def next_command(self, flow: Flow[bool], result: object) -> Command | None:
        """Give a fault loop the result of its last command, or what broke; None once it has ended.

        Raises the error that made the last leg break where the loop does not go on after it.
        """
        broke, self._broke = self._broke, None
        try:
            return flow.send(result) if broke is None else flow.throw(LegBroke(said(broke)))
        except StopIteration as end:
            self._whole = end.value
            return None
        except LegBroke:
            if broke is None:
                raise
            raise broke from None

    async def carry_out(self, command: Command) -> object:
        """The result of a command; where the network fails, the loop is told with its next command."""
        try:
            return await self._carry_out(command)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._broke = error
            return None

    async def _carry_out(self, command: Command) -> object:
        match command:
            case Show():
                await self._show(command.data)
            case ReadChunk():
                return await self._chunk(decoded=command.decoded)
            case SendLeg():
                return await self._leg(command)
            case ReadBody():
                response = self._open
                return await (response.read() if command.limit is None else up_to(response, command.limit))
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
        scope, attempt = self._scope, self._attempt
        attempt.begin_leg()
        own = [b"accept-encoding"] if leg.readable else []
        headers = passed_on(scope["headers"], also=[*own, *([] if leg.own_bytes else [b"content-encoding"])])
        headers += [(b"accept-encoding", b"identity")] if leg.readable else []
        attempt.going_out(len(leg.body))
        url = self._upstream.address(self._dialect, scope)
        sending = self._upstream.send(scope["method"], url, headers, leg.body, self._dialect.name)
        response = self._response = await self._during(self._responses.enter_async_context(sending))
        if response.status not in STATUSES:
            raise aiohttp.ClientPayloadError(f"it answered with the status {response.status}")
        attempt.status, attempt.headers = response.status, list(response.raw_headers)
        self._decoder, self._pieces, self._silent = None, iter(()), attempt.begun
        return ResponseHead(response.status, {name.lower(): value for name, value in response.headers.items()})

    async def _chunk(self, *, decoded: bool) -> bytes:
        """The next bytes of the response, empty at its end."""
        response = self._open
        if not decoded:
            return await response.content.readany()
        try:
            decoder = self._decoder = self._decoder or ContentDecoder(response.headers.get("content-encoding", ""))
            while (piece := next(self._pieces, None)) is None:
                data = await self._next(response)
                if not data:
                    decoder.end()
                    return b""
                self._pieces = decoder.feed(data)
        except NotUnderstood as error:
            raise aiohttp.ClientPayloadError(str(error)) from error
        return piece

    async def _next(self, response: aiohttp.ClientResponse) -> bytes:
        if not self._silent:
            return await response.content.readany()
        self._silent = False  # the client has waited for a leg before: keep its connection alive until this one speaks
        return await self._during(response.content.readany())

    async def _start(self, reply: StartReply) -> None:
        """Send the status and the headers of the response, without those that do not fit what follows."""
        headers = back(self._open)
        if reply.rewritten:
            headers = [one for one in headers if one[0] not in (b"content-length", b"content-encoding")]
        if reply.length is not None:
            headers.append((b"content-length", str(reply.length).encode()))
        self._attempt.begun = True
        self._last_sent = perf_counter()
        await self._send({"type": "http.response.start", "status": self._open.status, "headers": headers})

    async def _show(self, data: bytes) -> None:
        """Send the client a piece of the reply; a heartbeat if there is none and nothing was sent for long."""
        if not data and perf_counter() - self._last_sent > self._beat:
            data = self._dialect.heartbeat
        if data:
            self._last_sent = perf_counter()
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _during(self, work: Awaitable[_T]) -> _T:
        """Wait for something, with heartbeats for a client whose reply has begun."""
        if not self._attempt.begun:
            return await work
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=self._beat))[0]:
                await self._show(self._dialect.heartbeat)
            return task.result()
        finally:
            task.cancel()
