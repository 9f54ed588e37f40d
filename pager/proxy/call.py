"""Takes one call from the client to the provider and back: read, parse, place, plan, append, fault loop, append.

Whatever goes wrong on our side, the client's own request goes out: steps of ours (reading, placing, counting, logging)
are guarded by ``fail_open``; the client's and the provider's bytes pass as they came (``relay``).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from random import SystemRandom
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from pager.config.settings import Settings
from pager.errors import BadRequest, BodyTooLarge, BodyTooSlow, NotAllowed, NotUnderstood
from pager.host_names import is_loopback
from pager.log.bypass_reasons import BypassReason
from pager.log.events import FailurePhase
from pager.paging.pager import Pager
from pager.paging.pages.stub import HANDLE
from pager.proxy import log_records, request_body
from pager.proxy.attempt import Attempt, Failure, read_answer
from pager.proxy.call_log import CallLog
from pager.proxy.fail_open import FailOpen
from pager.proxy.hidden_leg_retries import RetryLimits
from pager.proxy.hot_sessions import HEAVY_BYTES, is_heavy
from pager.proxy.keep_warm import Keeper
from pager.proxy.log_records import Incoming, Outcome, PlacedCall, time_of
from pager.proxy.page_in_loop import FaultLoop, LoopSettings, as_it_came
from pager.proxy.redaction import secrets_of
from pager.proxy.relay import Relay, Scope, Send, refuse, streamed
from pager.proxy.request_body import ClientLeft, Receive
from pager.proxy.serving.memory_trim import Memory
from pager.proxy.serving.metrics import Meter
from pager.proxy.token_counting import Estimates
from pager.proxy.upstream import Upstream, error_text
from pager.request_values import Request
from pager.sessions import identity
from pager.tools import check_arguments
from pager.tools.decide_forms import ToolAsSent
from pager.wire.dialect import Dialect
from pager.wire.parse_cache import ParseCache

UNPACKED_AT_ONCE = 16_384  # bytes of a compressed body that take less than a thread would; 16 MB of zeros at most
READ_AT_ONCE = 1 << 20  # bytes of an answer that are read without leaving the event loop
WORTH_COUNTING = 0.5  # the share of the window from which on a prompt is counted before it goes out
TOOLS_READIED = 200  # short tools whose checks are known to be prepared
Counting = asyncio.Task[int | None]
"""Our own count of a prompt, made beside the call; None where it failed."""

_T = TypeVar("_T")
log = logging.getLogger("ctxpager")


class Asked(NamedTuple):
    """A request as it was read: its bytes as they came, and decoded; ``unread`` says why they could not be decoded.

    ``secrets`` are its credentials.
    """

    tenant: str
    headers: Mapping[str, str]
    body: bytes
    plain: bytes
    unread: str
    secrets: tuple[bytes, ...]


class Pipeline:
    """Takes calls from the socket to the last byte: the LLM routes, and everything else, which is passed on unread."""

    def __init__(
        self,
        settings: Settings,
        upstream: Upstream,
        calls: CallLog | None,
        tenants: Mapping[str, str],
        pager: Pager | None = None,
        fail_open: FailOpen | None = None,
        meter: Meter | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self._meter = meter or Meter()
        self._settings = settings
        self._upstream = upstream
        self._calls = calls
        self._pager = pager
        self.keeper = keeper
        self._fail_open = fail_open or FailOpen()
        self._tenants = tenants
        self._memory = Memory()
        self._chance = SystemRandom()
        self._bodies = ParseCache()  # of the event loop alone
        self._limit = settings.max_body_mib * 2**20
        self._kept = settings.limits.answer_mib * 2**20
        self._loopback = is_loopback(settings.host)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.estimates = Estimates()
        self._readied: set[str] = set()  # handles of short tools
        self.calls = 0

    @property
    def failed_steps(self) -> int:
        """How many steps of ours failed."""
        return self._fail_open.failed_steps

    # ---------------------------------------------------------------- the pipeline

    async def call(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        """One call on an LLM route: read, parse, place, plan, append, fault loop, append."""
        attempt = Attempt(keep=self._kept if self._calls is not None else 0)
        relay = Relay(self._upstream, dialect, scope, receive, send, attempt)
        asked = await self._read(dialect, scope, receive, send)
        if asked is None:
            return
        self.calls += 1
        with self._memory as memory, self._meter.call(dialect.name, len(asked.body), attempt):
            memory.passed(len(asked.body))
            call = await self._or_none(self._receive(dialect, asked, scope["path"]), self._missed)
            if call is None or self._calls is None:
                self._meter.bypassed(BypassReason.NOT_LOGGED)
                await relay.run(as_it_came(asked.body))
            else:
                await self._exchange(self._calls, call, asked.body, relay)
            memory.passed(attempt.size)

    async def _receive(self, dialect: Dialect, asked: Asked, path: str) -> PlacedCall | None:
        """Parse a call, then place, plan and append it; None where there is no log."""
        if self._calls is None:
            return None
        incoming = await self._parsed(dialect, asked, path)
        if incoming.unread:
            log.warning("passed on unread: %s: %s", path, incoming.unread)
        return await self._calls.receive(incoming)

    async def _exchange(self, calls: CallLog, call: PlacedCall, body: bytes, relay: Relay) -> None:
        """Bring back the answer of a logged call: by its fault loop, else as it came. Append what became of it."""
        attempt, in_full = relay.attempt, partial(self._unpaged, calls, call, relay.attempt)
        if self.keeper is not None:
            with self._fail_open():
                self.keeper.called(call)
        counting = self._task(self.estimates.count(call))
        loop = await self._or_none(self._page_in_loop(call, body, attempt, counting), in_full)
        driven: FaultLoop | None = None
        try:
            if loop is not None:
                with self._fail_open(in_full):
                    await relay.run(loop.flow(), partial(calls.carry_out, call))
                    driven = loop
            if driven is None and not attempt.begun:
                await relay.run(as_it_came(body))
        finally:
            finishing = self._finish(calls, call, relay, counting, driven)
            if attempt.size <= READ_AT_ONCE:
                await self._or_none(finishing)
            else:  # a task of its own: it takes a while, and is waited for when the proxy is stopped
                await asyncio.shield(self._task(finishing))

    async def _finish(
        self, calls: CallLog, call: PlacedCall, relay: Relay, counting: Counting, loop: FaultLoop | None
    ) -> None:
        """Append the answer, or what failed; ``loop`` is None where the client's own request brought it.

        Waits for nothing but the reading of a large answer, so that it is done even while the proxy is stopped.
        """
        attempt = relay.attempt
        read = partial(read_answer, call.incoming.dialect, attempt)
        body, answer, attempt.failure = read() if attempt.size <= READ_AT_ONCE else await asyncio.to_thread(read)
        outcome = self._outcome(call, attempt, body)
        if loop is not None:
            outcome = replace(outcome, sent=loop.sent, sent_size=loop.sent_size, legs=loop.rounds)
            answer = replace(answer, calls=tuple(use for use in answer.calls if use.call_id not in loop.hidden))
        if attempt.failure is not None:
            calls.failed(call, *attempt.failure, outcome)
            return
        if call.paged is not None:
            table = call.paged.table
            outcome = replace(outcome, named=sum(handle in table.shown for handle in HANDLE.findall(answer.text)))
            if answer.usage is not None:
                size = 0 if outcome.legs else outcome.sent_size or len(call.incoming.request.body)
                table.learn_usage(answer.usage, size, call.placement.call)
        counted = counting.done() and not counting.cancelled()
        calls.answered(call, answer, outcome, (counting.result() or 0) if counted else 0)
        if self.keeper is not None and self.keeper.on and call.paged is not None and attempt.latest:
            with self._fail_open():
                self.keeper.answered(call, call.paged, answer, relay.latest(self._started_at(call, attempt)))
        self._after_answer(calls, call, outcome.at, None if counted else counting)

    def _after_answer(self, calls: CallLog, call: PlacedCall, at: float, counting: Counting | None) -> None:
        """What follows once an answer is on its way to the log, and no client waits for: the work until the next call.

        ``counting`` is None where the prompt was counted by then.
        """
        if call.paged is not None:
            if is_heavy(call.incoming.request):
                self._task(calls.aside(call, call.paged.table.catch_up))
            else:
                call.paged.table.catch_up()
        if counting is not None:
            self._task(self._append_count(calls, call, at, counting))

    async def _append_count(self, calls: CallLog, call: PlacedCall, at: float, counting: Counting) -> None:
        record = log_records.counted(call, await counting or 0, at)
        if not call.session.gone:
            calls.writer.append_later(record)

    # ---------------------------------------------------------------- its steps

    async def _read(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> Asked | None:
        """The request, read whole; None if it was refused, or the client left."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            tenant = self._tenant(headers)
            body = await request_body.read(receive, self._limit, self._settings.limits.body_seconds)
            plain, unread = await self._decoded(body, headers.get("content-encoding", ""))
        except BadRequest as error:
            await refuse(send, dialect, error.status, str(error), close=isinstance(error, BodyTooSlow))
        except ClientLeft:
            pass
        else:
            secrets = secrets_of(headers, scope["query_string"], self._upstream.key)
            return Asked(tenant, headers, body, plain, unread, secrets)
        return None

    async def _decoded(self, body: bytes, encoding: str) -> tuple[bytes, str]:
        """The body to read, and why it can't be read where it can't; what is sent on are the client's own bytes.

        Raises BodyTooLarge. Whatever else goes wrong, the call goes on.
        """
        if not encoding:
            return body, ""
        plain = await self._or_none(self._unpacked(body, encoding))
        if isinstance(plain, BodyTooLarge):
            raise plain
        return (plain, "") if isinstance(plain, bytes) else (body, str(plain or "the body could not be decompressed"))

    async def _unpacked(self, body: bytes, encoding: str) -> bytes | BodyTooLarge | NotUnderstood:
        """The body without its encoding, or why not; in a thread where that may take long."""
        if len(body) <= UNPACKED_AT_ONCE:
            return request_body.unpacked(body, encoding, self._limit)
        return await asyncio.to_thread(request_body.unpacked, body, encoding, self._limit)

    async def _parsed(self, dialect: Dialect, asked: Asked, path: str) -> Incoming:
        """A request as its dialect reads it; a body that can't be read is one opaque piece.

        A large body is parsed in a thread, without what is known of earlier bodies.
        """
        headers, body, unread = asked.headers, asked.plain, asked.unread
        request: Request | None = None
        if not unread:
            try:
                if len(body) > HEAVY_BYTES:
                    request = await asyncio.to_thread(dialect.parse, body, path=path)
                else:
                    request = dialect.parse(body, self._bodies, path=path)
            except NotUnderstood as error:
                unread = str(error)
        request = request or unread_request(dialect, body)
        encoding, now = headers.get("content-encoding", ""), self._now(headers)
        return Incoming(dialect, request, asked.tenant, headers, path, encoding, now, unread, asked.secrets)

    async def _page_in_loop(
        self, call: PlacedCall, body: bytes, attempt: Attempt, counting: Counting
    ) -> FaultLoop | None:
        """The fault loop of a call; None for a call that is not paged. A prompt near the window is counted first."""
        paged, pager, upstream = call.paged, self._pager, self._settings.upstream
        if paged is None or paged.untouched or pager is None:
            return None
        limits = RetryLimits(upstream.leg_retries, upstream.leg_retry_seconds)
        now = partial(time_of, call.incoming.headers, trusted=self._settings.trust_clock_header)
        settings = LoopSettings(limits, self._kept, now, perf_counter, self._chance.random, self._ready_check)
        room = (paged.terms.window - paged.terms.reserve) * WORTH_COUNTING
        near = paged.outgoing is not None and paged.table.yardstick.tokens(paged.outgoing.size) > room
        return FaultLoop(call, paged, body, pager, attempt, settings, (await counting or 0) if near else None)

    def _ready_check(self, tool: ToolAsSent) -> None:
        """Prepare the check of a short tool's calls in a thread, while the model still writes the first of them."""
        if tool.handle in self._readied:
            return
        if len(self._readied) >= TOOLS_READIED:
            self._readied.clear()
        self._readied.add(tool.handle)
        self._task(asyncio.to_thread(check_arguments.prepare, tool.schema))

    def _unpaged(self, calls: CallLog, call: PlacedCall, attempt: Attempt, error: Exception) -> None:
        """Log that a call goes out as the client sent it, by a fault of ours."""
        attempt.failure = Failure(FailurePhase.PROXY, "splicing the answer failed")
        if call.paged is not None:
            call.paged.table.sent_in_full()
        now = self._now(call.incoming.headers)
        calls.record(call, log_records.bypassed(call, BypassReason.FAILED, error_text(error), now))

    def _missed(self, error: Exception) -> None:
        if self._calls is not None:
            self._calls.writer.missed(error_text(error))

    def _started_at(self, call: PlacedCall, attempt: Attempt) -> float:
        """When the latest request of a call went upstream, in seconds since 1970."""
        if self._settings.trust_clock_header:
            return call.incoming.at
        return self._now(call.incoming.headers) - (perf_counter() - attempt.latest_out)

    def _outcome(self, call: PlacedCall, attempt: Attempt, body: bytes) -> Outcome:
        first = attempt.first_byte or perf_counter()
        return Outcome(
            status=attempt.status,
            body=body,
            first_byte_ms=(first - attempt.started) * 1000,
            total_ms=(perf_counter() - attempt.started) * 1000,
            at=self._now(call.incoming.headers),
            encoding=attempt.header(b"content-encoding"),
            retry_after=attempt.header(b"retry-after") or attempt.header(b"retry-after-ms"),
        )

    def _tenant(self, headers: Mapping[str, str]) -> str:
        settings = self._settings.identity
        tenant = identity.tenant_of(
            headers, keys=self._tenants, account_headers=settings.account_headers, loopback=self._loopback
        )
        if tenant is None:
            raise NotAllowed("this proxy asks for one of its own keys; send it as a bearer token or as x-api-key")
        return tenant

    def _now(self, headers: Mapping[str, str]) -> float:
        return time_of(headers, trusted=self._settings.trust_clock_header)

    # ---------------------------------------------------------------- requests that are no calls

    async def count(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        """A question for the tokens of a prompt, passed on as if it were a call: it counts what would be sent."""
        asked = await self._read(dialect, scope, receive, send)
        if asked is None:
            return
        body = await self._or_none(self._as_sent(dialect, asked, scope["path"])) or asked.body
        if body is not asked.body:
            headers = [(name, value) for name, value in scope["headers"] if name != b"content-encoding"]
            scope = {**scope, "headers": headers}
        await Relay(self._upstream, dialect, scope, receive, send, Attempt(keep=0)).run(as_it_came(body))

    async def _as_sent(self, dialect: Dialect, asked: Asked, path: str) -> bytes | None:
        """The prompt of a request as it would go out if it were a call; None where that is as it came."""
        if self._calls is None or self._pager is None:
            return None
        incoming = await self._parsed(dialect, asked, path)
        paged = await self._calls.preview(incoming) if not incoming.unread else None
        outgoing = paged.outgoing if paged is not None else None
        return outgoing.body() if outgoing is not None and outgoing.changed else None

    async def forward(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        """Any other request: passed on as it comes, without a limit, unread and unlogged."""
        if self._settings.identity.keys:
            try:
                self._tenant({name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]})
            except BadRequest as error:
                await refuse(send, dialect, error.status, str(error))
                return
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
        arrived = asyncio.Event()
        if not has_body:
            arrived.set()
        body = streamed(receive, arrived, self._settings.limits.body_seconds) if has_body else None
        with suppress(ClientLeft):
            relay = Relay(self._upstream, dialect, scope, receive, send, Attempt(keep=0))
            await relay.run(as_it_came(body), arrived=arrived)

    async def tell_time(self, scope: Scope) -> None:
        """Do what is due in a session by the time that a header states, if its clock is trusted."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if self.keeper is not None and self._settings.trust_clock_header and "x-pager-now" in headers:
            key = identity.session_key(headers, ())
            if key is not None:
                await self.keeper.tell(self._now(headers), key.value)

    # ---------------------------------------------------------------- work beside calls

    def warm_up(self) -> None:
        """Load the tokenizer, and what checks calls, before the first call needs it."""
        self._task(self.estimates.warm_up())
        if self._pager is not None:
            self._task(asyncio.to_thread(check_arguments.warm_up))

    async def drain(self) -> None:
        """Wait for the work that was put off."""
        while self._tasks:
            await asyncio.gather(*self._tasks)
        if self._calls is not None:
            await self._calls.drain()

    def _task(self, step: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T | None]":
        """Do beside the call what no answer waits for."""
        task = asyncio.create_task(self._or_none(self._held(step)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _held(self, step: Coroutine[Any, Any, _T]) -> _T:
        """Do a step that holds on to a call's bodies."""
        with self._memory:
            return await step

    async def _or_none(self, step: Awaitable[_T], and_then: Callable[[Exception], None] = lambda _: None) -> _T | None:
        """The result of a step of ours, None if it failed."""
        result: _T | None = None
        with self._fail_open(and_then):
            result = await step
        return result  # noqa: RET504 - the step may have failed


def unread_request(dialect: Dialect, body: bytes) -> Request:
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
