"""Drives one call from the client to the provider and back.

Whatever goes wrong on our side, the client's own request goes out: steps of ours (reading, placing, counting, logging)
are guarded by ``fail_open``; the client's and the provider's bytes pass as they came (``relay``).
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from random import SystemRandom
from time import perf_counter, time
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from pager.config.settings import Settings
from pager.errors import BadRequest, BodyTooLarge, BodyTooSlow, NotAllowed, NotUnderstood, StoreConflict, StoreReplaced
from pager.host_names import is_loopback
from pager.log.body_delta import around_items
from pager.log.bypass import BypassReason
from pager.log.events import Event, FailurePhase
from pager.log.store import Batch, Store
from pager.log.stores import Location
from pager.paging.conditions import Caller
from pager.paging.page_table import Items
from pager.paging.pager import CallToPlan, Paged, Pager, bypassed
from pager.paging.stub import HANDLE
from pager.proxy import log_records, request_body
from pager.proxy.attempt import STOPPED, Attempt, Failure, read_answer
from pager.proxy.drive_legs import LegDriver
from pager.proxy.fail_open import FailOpen
from pager.proxy.fault_loop import Append, Claimed, FaultLoop, Flow, LoopSettings
from pager.proxy.hot_sessions import HEAVY_BYTES, HotSessions, is_heavy, stop_paging
from pager.proxy.log_records import CallHistory, Incoming, Outcome, PlacedCall, received
from pager.proxy.log_writer import LogWriter
from pager.proxy.redaction import secrets_of
from pager.proxy.relay import Relay, Scope, Send, Watch, refuse, streamed
from pager.proxy.request_body import ClientLeft, Receive
from pager.proxy.retries import RetryLimits
from pager.proxy.serving.memory_trim import Memory
from pager.proxy.serving.metrics import Meter
from pager.proxy.token_counting import Estimates
from pager.proxy.upstream import Upstream, said
from pager.sessions import identity
from pager.sessions.lineage import Placement, Session
from pager.tools import check_arguments
from pager.tools.decide import ToolAsSent
from pager.values import Answer, CallAddress, Request
from pager.wire.dialect import Dialect
from pager.wire.parse_cache import ParseCache

TRIES = 30  # how often a call is placed again when its session went on without us: many may race for one session
Watcher = Callable[[PlacedCall, Sequence[Event]], None]
"""Is shown what happens in calls, without credentials; it may not fail."""

UNPACKED_AT_ONCE = 16_384  # bytes of a compressed body; a thread costs more than so little, 16 MB of zeros at most
READ_AT_ONCE = 1 << 20  # bytes of an answer that are read without leaving the event loop
WORTH_COUNTING = 0.5  # the share of the window from which on a prompt is counted before it goes out
TOOLS_READIED = 200  # short tools whose checks are known to be prepared
_T = TypeVar("_T")
log = logging.getLogger("ctxpager")


class Asked(NamedTuple):
    """A request as it was read: its bytes as they came and decoded; ``unread`` says why they could not be decoded.

    ``secrets`` are its credentials.
    """

    tenant: str
    headers: Mapping[str, str]
    body: bytes
    plain: bytes
    unread: str
    secrets: tuple[bytes, ...]


async def _off_the_loop(request: Request, work: Callable[[], _T]) -> _T:
    """The result of work on a request; in a thread if the request is heavy."""
    return await asyncio.to_thread(work) if is_heavy(request) else work()


class CallLog:
    """Calls as the log knows them: each has its place in a session, a plan, and a record before anything acts on it."""

    def __init__(
        self,
        store: Store,
        load_dialect: Callable[[str], Dialect],
        hot_sessions: int,
        pager: Pager | None = None,
        fail_open: FailOpen | None = None,
        meter: Meter | None = None,
        watch: Watcher = lambda _, __: None,
    ) -> None:
        self._pager = pager
        self._fail_open = fail_open or FailOpen()
        self._meter = meter or Meter()
        self._watch = watch
        self.sessions = HotSessions(store, load_dialect, hot_sessions, pager, self._fail_open)
        self.writer = LogWriter(store, self.sessions.registry)

    async def receive(self, incoming: Incoming) -> PlacedCall:
        """Place a call, plan it and append both to the log; when this returns, they are durable."""
        history = await self.sessions.history(incoming)
        for tries_left in range(TRIES, -1, -1):
            async with self.sessions.placed(incoming, history) as arrival:
                call = await _off_the_loop(incoming.request, partial(self._plan, arrival.call))
                missed = self.writer.take_missed()
                record = received(arrival._replace(call=call), paging=self._pager is not None, missed=missed)
                written = self.writer.append(record)
            try:
                await written
            except StoreConflict:  # the session went on without us: place the call on what the log has now
                self.sessions.registry.drop(call.session.id)
                if not tries_left:
                    raise
            else:
                break
        self._publish(call, record.events)
        self.writer.write_backlog()
        return call

    async def preview(self, incoming: Incoming) -> Paged | None:
        """The plan for a request as if it were a call now; nothing is logged, and nothing changes."""
        history = await self.sessions.history(incoming)
        spot = await self.sessions.preview(incoming, history)
        if spot is None:
            return None
        return await _off_the_loop(incoming.request, partial(self._planned, *spot, incoming, history))

    def _plan(self, call: PlacedCall) -> PlacedCall:
        around = around_items(call.recipe.cuts)
        return replace(call, paged=self._planned(call.session, call.placement, call.incoming, call.history, around))

    def _planned(
        self, session: Session, placement: Placement, incoming: Incoming, history: CallHistory, around: str = ""
    ) -> Paged | None:
        """The plan for a call; None where it is not paged. Where planning fails, its session is not paged any more."""
        if self._pager is None or session.unpaged or incoming.unread:
            return None
        request, norms = incoming.request, history.past.norms
        paged: Paged | None = None
        with self._fail_open(partial(stop_paging, session)):
            items = Items.of(request, norms)
            call = CallToPlan(
                incoming.dialect,
                request,
                items,
                incoming.at,
                where=CallAddress(placement.branch.number, placement.call, placement.attempt),
                opened=placement.opened,
                caller=Caller(session.tenant, session.harness),
                arm=session.arm,
                learned=session.learned,
                bypass=bypassed(incoming.headers),
                around=around,
            )
            paged = self._pager.plan(session.pages, call)
        return paged  # noqa: RET504 - planning may have failed

    async def decide(
        self, call: PlacedCall, at: float, events: Sequence[Event], blobs: Mapping[bytes, bytes] = MappingProxyType({})
    ) -> None:
        """Append what was decided of a call after it was received; when this returns, it is durable."""
        if self.sessions.registry.replaced(call.session):  # read again from the log while this call was under way
            self.sessions.registry.drop(call.session.id)
        record = log_records.decided(call, at, events, blobs)
        self._publish(call, record.events)
        if not call.session.gone:
            with suppress(StoreReplaced):  # nobody can read it again: the call goes on
                await self.writer.append(record)

    async def aside(self, call: PlacedCall, work: Callable[[], _T]) -> _T:
        """The result of work on a session that no other call of it may see half done."""
        async with self.sessions.claimed(call.session):
            return await _off_the_loop(call.incoming.request, work)

    def record(self, call: PlacedCall, record: Batch) -> None:
        """Append what became of a call; nobody waits for it."""
        self._publish(call, record.events)
        if not call.session.gone:
            self.writer.append_later(record)

    def answered(self, call: PlacedCall, answer: Answer, outcome: Outcome, estimate: int) -> None:
        """Know the whole answer of a call from now on, and append it; ``estimate`` is our own count of its prompt."""
        self.sessions.answered(call, answer)
        self.record(call, log_records.answered(call, answer, outcome, estimate))

    def failed(self, call: PlacedCall, phase: FailurePhase, error: str, outcome: Outcome) -> None:
        """Append that an attempt brought no whole answer."""
        self.record(call, log_records.failed(call, phase, error, outcome))

    async def drain(self) -> None:
        """Wait until everything is written, or has failed."""
        await self.writer.drain()

    def _publish(self, call: PlacedCall, events: Sequence[Event]) -> None:
        self._meter.happened(call.incoming.request.model, events)
        self._watch(call, events)


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
    ) -> None:
        self._meter = meter or Meter()
        self._settings = settings
        self._relay = Relay(upstream)
        self._upstream = upstream
        self._calls = calls
        self._pager = pager
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

    def without_paths(self, text: str) -> str:
        """A text for whoever may not know where on the disk the log is."""
        where = Location(self._settings.store_url).folder or self._settings.data_dir
        for folder in (where.resolve(), where.absolute()):
            text = text.replace(f"{folder}/", "").replace(str(folder), "the data folder")
        return text

    @property
    def failed_steps(self) -> int:
        """How many steps of ours failed."""
        return self._fail_open.failed_steps

    async def call(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        """One call on an LLM route: read, parse, place, plan, append, fault loop, append."""
        attempt = Attempt(keep=self._kept if self._calls is not None else 0)
        asked = await self._read(dialect, scope, receive, send)
        if asked is None:
            return
        self.calls += 1
        with self._memory as memory, self._meter.call(dialect.name, len(asked.body), attempt):
            memory.passed(len(asked.body))
            call = await self._or_none(self._receive(dialect, asked, scope["path"]), self._missed)
            if call is None:
                self._meter.bypassed(BypassReason.NOT_LOGGED)
                attempt.judge(await self._relay.attempt(dialect, scope, Watch(receive), send, asked.body, attempt))
            else:
                await self._exchange(call, scope, receive, send, asked.body, attempt)
            memory.passed(attempt.size)

    async def count(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        """A question for the tokens of a prompt, passed on as if it were a call: it counts what would be sent."""
        asked = await self._read(dialect, scope, receive, send)
        if asked is None:
            return
        body = await self._or_none(self._as_sent(dialect, asked, scope["path"])) or asked.body
        if body is not asked.body:
            headers = [(name, value) for name, value in scope["headers"] if name != b"content-encoding"]
            scope = {**scope, "headers": headers}
        await self._relay.attempt(dialect, scope, Watch(receive), send, body, Attempt(keep=0))

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

    async def _as_sent(self, dialect: Dialect, asked: Asked, path: str) -> bytes | None:
        """The prompt of a request as it would go out if it were a call; None where that is as it came."""
        if self._calls is None or self._pager is None or asked.unread:
            return None
        request, now = await self._parsed(dialect, asked.plain, path), self._now(asked.headers)
        paged = await self._calls.preview(Incoming(dialect, request, asked.tenant, asked.headers, path, "", now))
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
        sent = asyncio.Event()
        body = streamed(receive, sent, self._settings.limits.body_seconds) if has_body else None
        if not has_body:
            sent.set()
        with suppress(ClientLeft):
            await self._relay.attempt(dialect, scope, Watch(receive, sent), send, body, Attempt(keep=0))

    async def _exchange(
        self, call: PlacedCall, scope: Scope, receive: Receive, send: Send, body: bytes, attempt: Attempt
    ) -> None:
        """Send the call on and relay the answer; append what becomes of it."""
        dialect, calls = call.incoming.dialect, self._calls
        counting = self._task(self.estimates.count(call))
        preparing, in_full = self._fault_loop(call, body, attempt, counting), partial(self._open, call)
        loop = await self._or_none(preparing, in_full)
        failure: Failure | None = STOPPED
        worked = False
        try:
            if loop is not None and calls is not None:
                legs = LegDriver(self._upstream, dialect, scope, send, attempt)
                driven = self.drive(calls, call, legs, loop.flow())
                relayed = self._relay.watched(dialect, Watch(receive), send, attempt, driven)
                ended = await self._or_none(_wrapped(relayed), in_full)
                worked = ended is not None
                failure = ended[0] if ended is not None else Failure(FailurePhase.PROXY, "splicing the answer failed")
            if loop is None or (not worked and not attempt.begun):
                failure = await self._relay.attempt(dialect, scope, Watch(receive), send, body, attempt)
        finally:
            finishing = self._finish(call, attempt, counting, failure, loop, worked=worked)
            if attempt.size <= READ_AT_ONCE:
                await self._or_none(finishing)
            else:  # a task of its own: it takes a while, and is waited for when the proxy is stopped
                await asyncio.shield(self._task(finishing))

    async def _fault_loop(
        self, call: PlacedCall, body: bytes, attempt: Attempt, counting: "asyncio.Task[int | None]"
    ) -> FaultLoop | None:
        """The fault loop of a call; None for one that is not paged. A prompt near the window is counted first."""
        paged, pager, upstream = call.paged, self._pager, self._settings.upstream
        if paged is None or paged.untouched or pager is None:
            return None
        limits = RetryLimits(upstream.leg_retries, upstream.leg_retry_seconds)
        now = partial(self._now, call.incoming.headers)
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

    async def drive(self, calls: CallLog, call: PlacedCall, legs: LegDriver, flow: Flow[bool]) -> None:
        """Carry out the commands of a fault loop until the client has its whole reply."""
        async with legs:
            result: object = None
            while (command := legs.next_command(flow, result)) is not None:
                result = None
                match command:
                    case Append():
                        now = self._now(call.incoming.headers)
                        await calls.decide(call, now, command.events, command.blobs)
                    case Claimed():
                        result = await calls.aside(call, command.work)
                    case _:
                        result = await legs.carry_out(command)

    def _open(self, call: PlacedCall, error: Exception) -> None:
        """Log that a call goes out as the client sent it, by a fault of ours."""
        if self._calls is not None:
            if call.paged is not None:
                call.paged.table.sent_in_full()
            now = self._now(call.incoming.headers)
            self._calls.record(call, log_records.bypassed(call, BypassReason.FAILED, said(error), now))

    async def _receive(self, dialect: Dialect, asked: Asked, path: str) -> PlacedCall | None:
        """Parse, place, plan and append a call before it goes out; a body that can't be read is one opaque piece."""
        if self._calls is None:
            return None
        unread = asked.unread
        try:
            request = unread_request(dialect, asked.plain) if unread else await self._parsed(dialect, asked.plain, path)
        except NotUnderstood as error:
            request, unread = unread_request(dialect, asked.plain), str(error)
        if unread:
            log.warning("passed on unread: %s: %s", path, unread)
        headers = asked.headers
        facts = (headers, path, headers.get("content-encoding", ""), self._now(headers), unread, asked.secrets)
        return await self._calls.receive(Incoming(dialect, request, asked.tenant, *facts))

    async def _parsed(self, dialect: Dialect, body: bytes, path: str) -> Request:
        """A request; one that is large is parsed in a thread, without what is known of earlier ones."""
        if len(body) > HEAVY_BYTES:
            return await asyncio.to_thread(dialect.parse, body, path=path)
        return dialect.parse(body, self._bodies, path=path)

    async def _finish(
        self,
        call: PlacedCall,
        attempt: Attempt,
        counting: "asyncio.Task[int | None]",
        failure: Failure | None,
        loop: FaultLoop | None,
        *,
        worked: bool,
    ) -> None:
        """Log what became of the attempt.

        Waits for nothing but the reading of a large answer, so that it is done even while the proxy is stopped.
        """
        if self._calls is None:
            return
        read = partial(read_answer, call.incoming.dialect, attempt, failure)
        body, answer, failure = read() if attempt.size <= READ_AT_ONCE else await asyncio.to_thread(read)
        outcome = self._outcome(call, attempt, body)
        if loop is not None and worked:
            outcome = replace(outcome, sent=loop.sent, sent_size=loop.sent_size, legs=loop.rounds)
        attempt.judge(failure)
        if failure is not None:
            self._calls.failed(call, failure.phase, failure.error, outcome)
            return
        if loop is not None and loop.hidden:
            answer = replace(answer, calls=tuple(use for use in answer.calls if use.call_id not in loop.hidden))
        if call.paged is not None:
            outcome = replace(
                outcome, named=sum(handle in call.paged.table.shown for handle in HANDLE.findall(answer.text))
            )
        usage = answer.usage
        if call.paged is not None and usage is not None:
            size = 0 if outcome.legs else outcome.sent_size or len(call.incoming.request.body)
            call.paged.table.learn_usage(usage, size, call.placement.call)
        counted = counting.done() and not counting.cancelled()
        estimate = (counting.result() or 0) if counted else 0
        self._calls.answered(call, answer, outcome, estimate)
        if call.paged is not None:
            if is_heavy(call.incoming.request):
                self._task(self._calls.aside(call, call.paged.table.catch_up))
            else:
                call.paged.table.catch_up()
        if not counted:
            self._task(self._append_count(self._calls, call, outcome.at, counting))

    async def _append_count(
        self, calls: CallLog, call: PlacedCall, at: float, counting: "asyncio.Task[int | None]"
    ) -> None:
        record = log_records.counted(call, await counting or 0, at)
        if not call.session.gone:
            calls.writer.append_later(record)

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

    def warm_up(self) -> None:
        """Load the tokenizer, and what checks calls, while nobody waits for it."""
        self._task(self.estimates.warm_up())
        if self._pager is not None:
            self._task(asyncio.to_thread(check_arguments.warm_up))

    async def drain(self) -> None:
        """Wait for the work that was put off."""
        while self._tasks:
            await asyncio.gather(*self._tasks)
        if self._calls is not None:
            await self._calls.drain()

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
        stated = headers.get("x-pager-now") if self._settings.trust_clock_header else None
        try:
            moment = float(stated) if stated else math.nan
        except ValueError:
            moment = math.nan
        return moment if math.isfinite(moment) else time()

    async def _or_none(self, step: Awaitable[_T], and_then: Callable[[Exception], None] = lambda _: None) -> _T | None:
        """The result of a step of ours, None if it failed."""
        result: _T | None = None
        with self._fail_open(and_then):
            result = await step
        return result  # noqa: RET504 - the step may have failed

    def _missed(self, error: Exception) -> None:
        if self._calls is not None:
            self._calls.writer.missed(said(error))


async def _wrapped(work: Awaitable[Failure | None]) -> tuple[Failure | None]:
    return (await work,)


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
