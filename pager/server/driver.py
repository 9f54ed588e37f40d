"""Drives one call from the client to the provider and back: the one place with I/O, and the one broad except.

Whatever goes wrong on our side, the client's own request goes out. What is ours to do (reading, placing, logging) is
wrapped in ``_or_none``; what is the client's and the provider's (bytes, status, headers, errors, a broken stream)
passes as it came.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from time import perf_counter, time
from typing import Any, NamedTuple, TypeVar

import aiohttp

from pager import identity
from pager.config import Settings
from pager.dialect import Dialect
from pager.errors import BadRequest, NotAllowed, NotUnderstood
from pager.model import Answer, Request
from pager.server import bodies
from pager.server.bodies import ClientLeft, Receive
from pager.server.estimates import Estimates
from pager.server.journal import Entry, Incoming, Journal, Outcome
from pager.server.memory import Memory
from pager.server.upstream import Body, Upstream, passed_on

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_T = TypeVar("_T")
log = logging.getLogger("ctxpager")


@dataclass(slots=True)
class Exchange:
    """One attempt as it goes: what came back so far, and when."""

    started: float
    status: int = 0
    headers: list[tuple[bytes, bytes]] | None = None
    chunks: list[bytes] | None = None
    first_byte: float = 0.0

    def take(self, chunk: bytes) -> None:
        """Note a piece of the answer; its bytes only where they are kept for the log."""
        self.first_byte = self.first_byte or perf_counter()
        if self.chunks is not None:
            self.chunks.append(chunk)

    def header(self, name: bytes) -> str:
        """A header of the response, or empty."""
        return next((value.decode("latin-1") for key, value in self.headers or () if key.lower() == name), "")


class Failure(NamedTuple):
    """Why an attempt brought no whole answer: how far it came, and what was said."""

    phase: str
    error: str


class Driver:
    """Handles calls: the LLM routes, and everything else that is passed on unread."""

    def __init__(
        self, settings: Settings, upstream: Upstream, journal: Journal | None, tenants: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._upstream = upstream
        self._journal = journal
        self._tenants = tenants
        self.estimates = Estimates()
        self._memory = Memory()
        self._limit = settings.max_body_mib * 2**20
        self._loopback = settings.host in {"127.0.0.1", "::1", "localhost"}
        self._tasks: set[asyncio.Task[None]] = set()
        self.calls = 0
        self.bypassed = 0

    async def call(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        """One call on an LLM route."""
        started = perf_counter()
        headers = _plain(scope["headers"])
        try:
            tenant = self._tenant(headers)
            body = await bodies.read(receive, self._limit)
            plain = self._decoded(body, headers.get("content-encoding", ""))
        except BadRequest as error:
            await _refuse(send, dialect, error.status, str(error))
            return
        except ClientLeft:
            return
        self.calls += 1
        with self._memory as memory:
            memory.passed(len(body))
            entry = await self._or_none(self._receive(dialect, plain, tenant, headers, scope), self._missed)
            await self._exchange(dialect, scope, receive, send, body, entry, Exchange(started))

    async def forward(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        """Any other request: passed on as it comes, without a limit, unread and unlogged."""
        if self._settings.identity.keys:
            try:
                self._tenant(_plain(scope["headers"]))
            except BadRequest as error:
                await _refuse(send, dialect, error.status, str(error))
                return
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
        sent = asyncio.Event()
        body = _stream(receive, sent) if has_body else None
        if not has_body:
            sent.set()
        with suppress(ClientLeft):
            await self._attempt(dialect, scope, _watching(receive, sent), send, body, Exchange(perf_counter()))

    async def _exchange(
        self,
        dialect: Dialect,
        scope: Scope,
        receive: Receive,
        send: Send,
        body: bytes,
        entry: Entry | None,
        exchange: Exchange,
    ) -> None:
        """Send the call on and relay the answer; when the client leaves, let go of the provider at once."""
        exchange.chunks = [] if entry else None
        estimate = self.estimates.start(entry) if entry else None
        failure = await self._attempt(dialect, scope, _watching(receive), send, body, exchange)
        if entry is not None and estimate is not None:
            await self._or_none(self._finish(entry, exchange, estimate, failure))

    async def _attempt(
        self,
        dialect: Dialect,
        scope: Scope,
        watching: AbstractAsyncContextManager[Callable[[], bool]],
        send: Send,
        body: Body,
        exchange: Exchange,
    ) -> Failure | None:
        """Relay one request and its answer as long as the client stays; what went wrong, if anything."""
        try:
            async with watching as left:
                try:
                    await self._relay(dialect, scope, send, body, exchange)
                except asyncio.CancelledError:
                    if not left():
                        raise
                    return Failure("client", "the client closed the connection")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            await _unreachable(send, dialect, exchange, error)
            return Failure("stream" if exchange.status else "connect", _said(error))
        return None

    async def _relay(
        self,
        dialect: Dialect,
        scope: Scope,
        send: Send,
        body: Body,
        exchange: Exchange,
    ) -> None:
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        url = self._upstream.url(dialect.name, path, query)
        headers = passed_on(scope["headers"])
        if body is not None and not isinstance(body, bytes):  # aiohttp sets the length of bytes by itself
            headers += [(name, value) for name, value in scope["headers"] if name == b"content-length"]
        async with self._upstream.send(scope["method"], url, headers, body, dialect.name) as response:
            exchange.status = response.status
            exchange.headers = list(response.raw_headers)
            await send({"type": "http.response.start", "status": response.status, "headers": _back(response)})
            async for chunk in response.content.iter_any():
                exchange.take(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _receive(
        self, dialect: Dialect, body: bytes | None, tenant: str, headers: Mapping[str, str], scope: Scope
    ) -> Entry | None:
        """Read and log the call before it goes out."""
        if self._journal is None or body is None:
            return None
        unread = ""
        try:
            request = dialect.parse(body)
        except NotUnderstood as error:
            unread = str(error)
            log.warning("passed on unread: %s %s: %s", scope["method"], scope["path"], unread)
            self.bypassed += 1
            request = _unread(dialect, body)
        now = self._now(headers)
        encoding = headers.get("content-encoding", "")
        return await self._journal.receive(
            Incoming(dialect, request, tenant, headers, scope["path"], encoding, now, unread)
        )

    async def _finish(
        self, entry: Entry, exchange: Exchange, estimate: int | Awaitable[int], failure: Failure | None
    ) -> None:
        """Log what became of the attempt."""
        if self._journal is None:
            return
        outcome = self._outcome(entry, exchange)
        if failure is None and exchange.status >= 400:
            failure = Failure("status", _excerpt(outcome.body))
        answer = Answer() if failure else _read(entry.incoming.dialect, exchange, outcome.body)
        if not answer.complete:
            failure = Failure("stream", answer.error or "the stream ended before the answer did")
        if failure is not None:
            self._journal.failure(entry, failure.phase, failure.error, outcome)
            return
        self._journal.answered(entry, answer)
        if isinstance(estimate, int):
            self._log_answer(self._journal, entry, answer, outcome, estimate)
        else:
            self._later(self._log_when_counted(self._journal, entry, answer, outcome, estimate))

    async def _log_when_counted(
        self, journal: Journal, entry: Entry, answer: Answer, outcome: Outcome, estimate: Awaitable[int]
    ) -> None:
        self._log_answer(journal, entry, answer, outcome, await estimate)

    def _log_answer(self, journal: Journal, entry: Entry, answer: Answer, outcome: Outcome, estimate: int) -> None:
        if answer.usage is not None:
            self.estimates.observe(entry.incoming.request.model, estimate, answer.usage.input)
        journal.answer(entry, answer, outcome, estimate)

    def _later(self, step: Coroutine[Any, Any, None]) -> None:
        """Do what no answer depends on, after the client has its answer."""
        task = asyncio.create_task(self._or_none(self._held(step)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _held(self, step: Coroutine[Any, Any, None]) -> None:
        """Do a step that holds on to a call's bodies."""
        with self._memory:
            await step

    def warm_up(self) -> None:
        """Load the tokenizer while nobody waits for it."""
        self._later(self.estimates.warm_up())

    async def drain(self) -> None:
        """Wait for the work that was put off."""
        while self._tasks:
            await asyncio.gather(*self._tasks)
        if self._journal is not None:
            await self._journal.drain()

    def _outcome(self, entry: Entry, exchange: Exchange) -> Outcome:
        encoding = exchange.header(b"content-encoding")
        raw = b"".join(exchange.chunks or ())
        body = _or_raw(raw, encoding, self._limit) if encoding else raw
        first = exchange.first_byte or perf_counter()
        return Outcome(
            status=exchange.status,
            body=body,
            first_byte_ms=(first - exchange.started) * 1000,
            total_ms=(perf_counter() - exchange.started) * 1000,
            at=self._now(entry.incoming.headers),
            encoding=encoding,
            retry_after=exchange.header(b"retry-after") or exchange.header(b"retry-after-ms"),
        )

    def _decoded(self, body: bytes, encoding: str) -> bytes | None:
        """The body to read, or None where its encoding is beyond us; what is sent on are the client's own bytes."""
        if not encoding:
            return body
        try:
            return bodies.decoded(body, encoding, self._limit)
        except NotUnderstood as error:
            log.warning("passed on unread and unlogged: %s", error)
            self.bypassed += 1
            return None

    def _tenant(self, headers: Mapping[str, str]) -> str:
        settings = self._settings.identity
        tenant = identity.tenant_of(
            headers, keys=self._tenants, account_headers=settings.account_headers, loopback=self._loopback
        )
        if tenant is None:
            raise NotAllowed("this proxy asks for one of its own keys; send it as a bearer token or as x-api-key")
        return tenant

    def _now(self, headers: Mapping[str, str]) -> float:
        stated = headers.get("x-pager-now") if self._settings.trust_clock_header else None
        try:
            return float(stated) if stated else time()
        except ValueError:
            return time()

    def _missed(self, error: Exception) -> None:
        if self._journal is not None:
            self._journal.missed(_said(error))

    async def _or_none(self, step: Awaitable[_T], and_then: Callable[[Exception], None] = lambda _: None) -> _T | None:
        """The one broad except: whatever fails on our side, the call goes on without it, and loudly so."""
        try:
            return await step
        except Exception as error:
            self.bypassed += 1
            log.exception("BYPASSED: a step of ours failed; the call goes on without it")
            and_then(error)
            return None


@asynccontextmanager
async def _watching(receive: Receive, sent: asyncio.Event | None = None) -> AsyncIterator[Callable[[], bool]]:
    """Cancel the work inside when the client leaves, once its request is ``sent``; what is given tells if it did."""
    task = asyncio.current_task()
    left = False

    async def watch() -> None:
        nonlocal left
        if sent is not None:
            await sent.wait()
        while (await receive())["type"] != "http.disconnect":
            pass
        left = True
        if task is not None:
            task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield lambda: left
    finally:
        watcher.cancel()
        if left and task is not None:
            task.uncancel()


async def _stream(receive: Receive, sent: asyncio.Event) -> AsyncIterator[bytes]:
    """The request's body as it comes; sets ``sent`` at its end."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        more = message.get("more_body", False)
        if message.get("body"):
            yield message["body"]
    sent.set()


def _plain(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}


def _back(response: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    """The response's headers for the client; its length stays, as the bytes do."""
    kept = passed_on(response.raw_headers)
    length = [(name, value) for name, value in response.raw_headers if name.lower() == b"content-length"]
    return [(name.lower(), value) for name, value in kept + length]


async def _refuse(send: Send, dialect: Dialect, status: int, message: str) -> None:
    body = dialect.error(status, f"ctxpager: {message}")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _unreachable(send: Send, dialect: Dialect, exchange: Exchange, error: Exception) -> None:
    """Tell the client that the provider can't be reached; a stream that has begun breaks off as the provider's did."""
    if exchange.status:
        log.warning("the provider's answer broke off: %s", _said(error))
        return
    status = 504 if isinstance(error, TimeoutError) else 502
    await _refuse(send, dialect, status, f"the provider can't be reached: {_said(error)}")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _unread(dialect: Dialect, body: bytes) -> Request:
    """A body that the dialect can't read, as one opaque piece."""
    return Request(
        dialect=dialect.name,
        body=body,
        members={},
        items_key="",
        items=(),
        starts=(),
        separator=None,
        digests=(),
        model="",
        stream=False,
        system=sha256(b"").digest(),
        has_tools=False,
    )


def _read(dialect: Dialect, exchange: Exchange, body: bytes) -> Answer:
    """What the model said; an answer that can't be read is logged without its facts."""
    if "text/event-stream" in exchange.header(b"content-type"):
        reader = dialect.reader()
        reader.feed(body)
        return reader.answer()
    try:
        return dialect.read(body)
    except NotUnderstood as error:
        return Answer(error=str(error))


def _or_raw(body: bytes, encoding: str, limit: int) -> bytes:
    try:
        return bodies.decoded(body, encoding, limit)
    except (NotUnderstood, BadRequest):
        return body


def _excerpt(body: bytes) -> str:
    return body[:500].decode("utf-8", "replace")
