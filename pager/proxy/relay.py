"""Relays one request to the provider and its answer back, chunk by chunk, for as long as the client stays."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Self

import aiohttp

from pager.errors import BodyTooSlow
from pager.log.events import FailurePhase
from pager.proxy.attempt import Attempt, Failure
from pager.proxy.request_body import BodyPace, Receive
from pager.proxy.upstream import STATUSES, Body, Upstream, back, passed_on, said
from pager.wire.dialect import Dialect

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
log = logging.getLogger("ctxpager")


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
        self, dialect: Dialect, scope: Scope, watch: Watch, send: Send, body: Body, attempt: Attempt
    ) -> Failure | None:
        """Relay one request and its answer as they come; what went wrong, if anything."""
        return await self.watched(dialect, watch, send, attempt, self._relay(dialect, scope, send, body, attempt))

    async def watched(
        self, dialect: Dialect, watch: Watch, send: Send, attempt: Attempt, work: Awaitable[None]
    ) -> Failure | None:
        """Do what brings the answer, as long as the client stays; what went wrong, if anything."""
        try:
            async with watch:
                try:
                    await work
                except asyncio.CancelledError:
                    if not watch.left:
                        raise
                    return Failure(FailurePhase.CLIENT, "the client closed the connection")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            await _unreachable(send, dialect, attempt, error)
            return Failure(FailurePhase.STREAM if attempt.begun else FailurePhase.CONNECT, said(error))
        return None

    async def _relay(self, dialect: Dialect, scope: Scope, send: Send, body: Body, attempt: Attempt) -> None:
        url = self._upstream.address(dialect, scope)
        headers = passed_on(scope["headers"])
        if body is not None and not isinstance(body, bytes):  # aiohttp sets the length of bytes by itself
            headers += [(name, value) for name, value in scope["headers"] if name == b"content-length"]
        attempt.going_out(len(body) if isinstance(body, bytes) else 0)
        async with self._upstream.send(scope["method"], url, headers, body, dialect.name) as response:
            if response.status not in STATUSES:
                raise aiohttp.ClientPayloadError(f"it answered with the status {response.status}")
            attempt.status = response.status
            attempt.headers = list(response.raw_headers)
            attempt.begun = True
            await send({"type": "http.response.start", "status": response.status, "headers": back(response)})
            async for chunk in response.content.iter_any():
                attempt.take(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def streamed(receive: Receive, sent: asyncio.Event, seconds: float) -> AsyncIterator[bytes]:
    """The request's body as it comes; sets ``sent`` at its end. Raises ClientLeft, or BodyTooSlow."""
    more, pace = True, BodyPace(seconds)
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


async def _unreachable(send: Send, dialect: Dialect, attempt: Attempt, error: Exception) -> None:
    """Tell the client that there is no answer; one that has begun breaks off as the provider's did."""
    if isinstance(error.__cause__, BodyTooSlow) and not attempt.begun:  # met while the body was sent on
        await refuse(send, dialect, error.__cause__.status, str(error.__cause__), close=True)
        return
    if attempt.begun:
        log.warning("the provider's answer broke off: %s", said(error))
        return
    status = 504 if isinstance(error, TimeoutError) else 502
    await refuse(send, dialect, status, f"no answer from the provider: {said(error)}")
