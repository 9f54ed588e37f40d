"""The ASGI application: which route a request takes."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import orjson

from pager.proxy.call import Pipeline
from pager.proxy.call_log import CallLog
from pager.proxy.relay import Scope, Send
from pager.proxy.request_body import Receive
from pager.proxy.serving.control import ROUTES, Control
from pager.proxy.serving.metrics import Metrics, ProxyState
from pager.wire.dialect import Dialect

NO_WEBSOCKET = "this endpoint speaks HTTP only: send a POST; an answer can be streamed as server-sent events"
READING = frozenset({"GET", "HEAD"})
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


class DashboardRoutes(Protocol):
    """What shows sessions to a browser, until it is closed."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send, /) -> None:
        """Answer one request."""

    async def close(self) -> None:
        """Answer no more."""


class OwnRoutes(NamedTuple):
    """What answers below ``/ui/`` and at ``/``, and what below ``/ctxpager/``; None where it is passed on."""

    dashboard: DashboardRoutes | None = None
    control: Control | None = None


NO_ROUTES = OwnRoutes()


class App:
    """Routes: one POST path per dialect is driven and logged, some are ours, everything else is passed on.

    Ours are ``/healthz``, ``/metrics``, and those of ``OwnRoutes``. A prompt that is only to be counted is passed on
    as it would be sent.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        dialects: list[Dialect],
        calls: CallLog | None,
        on_start: Callable[[], Awaitable[None]],
        on_stop: Callable[[], Awaitable[None]],
        folder: Path,
        counted: Metrics | None = None,
        own: OwnRoutes = NO_ROUTES,
    ) -> None:
        self._folder = folder  # that the log is in
        self._counted = counted or Metrics()
        self._dashboard, self._control = own
        self._pipeline = pipeline
        self._dialects = dialects
        self._log = calls.writer if calls is not None else None
        self._sessions = calls.sessions if calls is not None else ()
        self._on_start = on_start
        self._on_stop = on_stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            return await self._lifespan(receive, send)
        path: str = scope["path"]
        for dialect in self._dialects if scope["method"] == "POST" else ():
            if dialect.accepts(path.removeprefix("/v1")):
                return await self._pipeline.call(dialect, scope, receive, send)
            if dialect.count_path and dialect.count_path == path.removeprefix("/v1"):
                return await self._pipeline.count(dialect, scope, receive, send)
        if (own := self._own(path, scope["method"])) is not None:
            return await own(scope, receive, send)
        if _wants_websocket(scope):
            headers = [(b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade")]
            return await _json(send, 426, {"error": {"message": NO_WEBSOCKET, "type": "upgrade_required"}}, headers)
        return await self._pipeline.forward(self.owner(scope), scope, receive, send)

    def _own(self, path: str, method: str) -> Asgi | None:
        """What of ours answers this path, if anything."""
        if path == "/healthz":
            return self._health
        if path.startswith(ROUTES):
            return self._control
        if method not in READING:
            return None
        if path == "/metrics":
            return self._metrics
        return self._dashboard if method == "GET" and (path == "/" or path.startswith("/ui/")) else None

    def owner(self, scope: Scope) -> Dialect:
        """The dialect of the provider that a path which is no call belongs to: by its headers, else by its path."""
        path: str = scope["path"].removeprefix("/v1")
        names = {name for name, _ in scope["headers"]}
        for dialect in self._dialects:
            if not dialect.client_headers.isdisjoint(names):
                return dialect
        resources = ((at, beginning) for at, dialect in enumerate(self._dialects) for beginning in dialect.resources)
        claims = [(len(beginning), at) for at, beginning in resources if path.startswith(beginning)]
        return self._dialects[max(claims)[1]]

    async def _health(self, scope: Scope, __: Receive, send: Send) -> None:
        log, pipeline = self._log, self._pipeline
        await pipeline.tell_time(scope)
        facts = {
            "status": "ok" if log and log.healthy and log.present else "degraded",
            "calls": pipeline.calls,
            "bypassed": self._counted.bypasses,
            "hot_sessions": len(self._sessions),
            "log": {
                "open": log is not None and log.present,
                "begun_anew": log.begun_anew if log else 0,
                "failed_writes": log.failures if log else 0,
                "last_failure": self._without_paths(log.last_failure) if log else "the log could not be opened",
            },
        }
        await _json(send, 200, facts)

    def _without_paths(self, text: str) -> str:
        """A text that does not show where on the disk the log is."""
        for folder in (self._folder.resolve(), self._folder.absolute()):
            text = text.replace(f"{folder}/", "").replace(str(folder), "the data folder")
        return text

    async def _metrics(self, scope: Scope, _: Receive, send: Send) -> None:
        """What was counted, for Prometheus."""
        log, failed = self._log, self._pipeline.failed_steps
        standing = ProxyState(failed)
        if log is not None:
            standing = ProxyState(failed, log.failures, log.healthy, log.queue, len(self._sessions))
        accept = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"), "")
        await _answer(send, 200, *self._counted.text(standing, accept))

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._on_start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self._on_stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _wants_websocket(scope: Scope) -> bool:
    """Whether it is a WebSocket's handshake (RFC 6455, section 4.1), and not just a request that would upgrade."""
    headers = dict(scope["headers"])
    protocol, connection = headers.get(b"upgrade", b"").strip().lower(), headers.get(b"connection", b"").lower()
    named = protocol == b"websocket" and b"upgrade" in connection
    return named and scope["method"] == "GET" and b"sec-websocket-key" in headers


async def _json(send: Send, status: int, value: object, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    await _answer(send, status, "application/json", orjson.dumps(value), headers)


async def _answer(
    send: Send, status: int, content_type: str, body: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    facts = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": facts + (headers or [])})
    await send({"type": "http.response.body", "body": body, "more_body": False})
