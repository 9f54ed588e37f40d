"""Writes every call to the log: what came in before anything acts on it, what became of it afterwards.

It knows the store, the hot sessions and the messages seen; it raises what goes wrong and leaves it to the driver to
carry on without a log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import TypeVar

from pager.errors import StoreConflict, StoreCorrupt, StoreReplaced
from pager.log.body_delta import Recipe, take_apart
from pager.log.bypass import BypassReason
from pager.log.events import (
    Bypassed,
    Event,
    PromptCounted,
    encode,
)
from pager.log.store import Batch, Store, moved_head
from pager.paging.page_table import Items
from pager.paging.plan_call import (
    Call,
    Paged,
    Pager,
    bypassed,
)
from pager.proxy import redaction
from pager.proxy.fail_open import FailOpen
from pager.proxy.log_records import (
    Draft,
    Entry,
    Incoming,
    Outcome,
    answer_finished,
    attempt_failed,
    call_events,
    harness_of,
    marks_of_answer,
    moved_on,
    tool_called,
)
from pager.proxy.serving.metrics import Meter
from pager.sessions import registry
from pager.sessions.identity import Key, session_key
from pager.sessions.lineage import (
    History,
    Placement,
    Session,
    continued,
    grows,
    history,
    place,
    shared_messages,
    shares,
)
from pager.sessions.message_cache import MessageCache
from pager.sessions.rebuild import Rebuilder
from pager.values import Answer, Message, Request
from pager.wire.dialect import Dialect

BLOBS_REMEMBERED = 200_000
HEAVY_MESSAGES = 1_000  # from here on a request is read and planned in a thread
HEAVY_BYTES = 2 << 20
TRIES = 30  # how often a call is placed again when its session went on without us: many may race for one session
BACKLOG = 1_000  # outcomes of calls kept while the log can't be written
LOOKED_INTO = 2  # sessions read from the store because a history names ids of theirs, which prove nothing
Watch = Callable[[Entry, Sequence[Event]], None]
"""Is told what happened in a call, without credentials; it may not fail."""

_T = TypeVar("_T")
log = logging.getLogger("ctxpager.log")


def _is_heavy(request: Request) -> bool:
    """Whether a request may take so long to read and to plan that others would notice."""
    return len(request.digests) > HEAVY_MESSAGES or len(request.body) > HEAVY_BYTES


async def _off_the_loop(request: Request, work: Callable[[], _T]) -> _T:
    """Do what is to be done of a request, in a thread where it is heavy."""
    return await asyncio.to_thread(work) if _is_heavy(request) else work()


class Journal:
    """The log as the server uses it."""

    def __init__(
        self,
        store: Store,
        load_dialect: Callable[[str], Dialect],
        hot_sessions: int,
        pager: Pager | None = None,
        fail_open: FailOpen | None = None,
        meter: Meter | None = None,
        watch: Watch = lambda _, __: None,
    ) -> None:
        self._store = store
        self._watch = watch
        self._meter = meter or Meter()
        self._pager = pager
        self._fail_open = fail_open or FailOpen()
        self._registry = registry.Registry(hot_sessions)
        self._messages = MessageCache()
        self._rebuilder = Rebuilder(load_dialect, store.blob, self._messages)
        if pager is not None:
            pager.tables = self._rebuilder.tables
        self._stored: set[bytes] = set()
        self._aside: dict[str, asyncio.Event] = {}
        self._pending: set[Future[int]] = set()
        self._folds: dict[str, asyncio.Future[Session]] = {}
        self._backlog: deque[Batch] = deque(maxlen=BACKLOG)
        self._missed = 0
        self._missed_why = ""
        self.healthy = True
        self.failures = 0
        self.last_failure = ""
        self.begun_anew = 0
        self._replacement: BaseException | None = None

    @property
    def present(self) -> bool:
        """Whether the log is still where it was; the next call begins another where it is not."""
        return self._store.present()

    @property
    def hot_sessions(self) -> int:
        """How many sessions are in memory."""
        return len(self._registry)

    @property
    def queue(self) -> int:
        """How many writes are waiting."""
        return len(self._pending) + len(self._backlog)

    async def receive(self, incoming: Incoming) -> Entry:
        """Place a call and log it; when this returns, the call is durable."""
        messages, fresh = await _off_the_loop(
            incoming.request, partial(self._messages.read, incoming.dialect, incoming.request)
        )
        key = session_key(incoming.headers, incoming.request.session_hints)
        past = history(incoming.request, messages, key)
        for tries_left in range(TRIES, -1, -1):
            session = await self._found(incoming.tenant, key, past)
            draft = self._place(incoming, key, past, session, fresh)
            paged = await self.aside(draft.entry, partial(self._plan, *draft.planned))
            entry, batch = self._written(draft, paged)
            try:
                await self._append(batch)
            except StoreConflict:  # the session went on without us: place the call on what the log has now
                self._registry.drop(entry.session.id)
                if not tries_left:
                    raise
            else:
                break
        self._happened(entry, batch.events)
        self._write_backlog()
        return entry

    def answered(self, entry: Entry, answer: Answer) -> None:
        """Know the answer from now on, before it is logged: the next call may come at once."""
        placement = entry.placement
        ids = [use.call_id for use in answer.calls if use.call_id]
        entry.session.answered(placement.branch.number, placement.call, answer.id, ids)
        self._registry.claim(entry.session, marks_of_answer(entry, answer))

    def counted(self, entry: Entry, estimate: int, at: float) -> None:
        """Log our own count of a prompt that was still being counted when its answer was logged."""
        spot, attempt = entry.spot, entry.placement.attempt
        event = PromptCounted(branch=spot.branch, call=spot.call, attempt=attempt, estimate=estimate)
        self._add(entry, Batch(spot.session, at, [event], urgent=False))

    def answer(self, entry: Entry, answer: Answer, outcome: Outcome, estimate: int) -> None:
        """Log a whole answer and the tool calls in it; ``estimate`` is our own count of the prompt, 0 if unknown."""
        blobs = {sha256(outcome.body).digest(): outcome.body}
        events: list[Event] = [answer_finished(entry, answer, outcome, estimate)]
        events += [tool_called(entry, use, blobs) for use in answer.calls]
        marks = marks_of_answer(entry, answer)
        session = entry.session
        written = redaction.safe(events, blobs, entry.incoming.secrets)
        self._happened(entry, written[0])
        self._add(entry, Batch(session.id, outcome.at, *written, session.tenant, marks, urgent=False))

    def failure(self, entry: Entry, phase: str, error: str, outcome: Outcome) -> None:
        """Log an attempt that brought no whole answer."""
        event = attempt_failed(entry, phase, error, outcome)
        blobs = {sha256(outcome.body).digest(): outcome.body} if outcome.body else {}
        written = redaction.safe([event], blobs, entry.incoming.secrets)
        self._happened(entry, written[0])
        self._add(entry, Batch(entry.session.id, outcome.at, *written, entry.session.tenant, urgent=False))

    async def note(self, entry: Entry, at: float, events: Sequence[Event], blobs: Mapping[bytes, bytes]) -> None:
        """Log what was decided of a call after it was received; when this returns, it is durable."""
        if self._registry.replaced(entry.session):  # read again from the log while this call was under way
            self._registry.drop(entry.session.id)
        events, blobs = redaction.safe(events, blobs, entry.incoming.secrets)
        self._happened(entry, events)
        moves = b"".join(encode(event) for event in events)
        session = entry.session
        session.head = moved_head(session.head, moves)
        if not session.gone:
            with suppress(StoreReplaced):  # nobody can read it again: the call goes on
                await self._append(Batch(session.id, at, events, blobs, session.tenant, moves=moves))

    def later(self, entry: Entry, at: float, events: Sequence[Event]) -> None:
        """Log what nobody waits for."""
        events, _ = redaction.safe(events, {}, entry.incoming.secrets)
        self._happened(entry, events)
        self._add(entry, Batch(entry.session.id, at, events, tenant=entry.session.tenant, urgent=False))

    def _happened(self, entry: Entry, events: Sequence[Event]) -> None:
        self._meter.happened(entry.incoming.request.model, events)
        self._watch(entry, events)

    async def peek(self, incoming: Incoming) -> Paged | None:
        """How a request would be paged if it were a call now; nothing is logged, and nothing changes."""
        request = incoming.request
        messages, _ = await _off_the_loop(request, partial(self._messages.read, incoming.dialect, request))
        key = session_key(incoming.headers, request.session_hints)
        past = history(request, messages, key)
        session = await self._found(incoming.tenant, key, past)
        if session is None and self._pager is not None:  # as the first call of a session would be
            session = registry.open_session(incoming.tenant, key, past, None)
            session.harness = harness_of(incoming)
            self._pager.settle(session)
            return await _off_the_loop(request, partial(self._plan, session, place(session, past), incoming, past))
        branch = continued(session, past) if session else None
        if session is None or branch is None or branch.number not in session.tables:
            return None
        tables = {branch.number: session.tables[branch.number].copy()}
        copied = replace(session, tables=tables, toolsets=dict(session.toolsets))
        spot = Placement(branch, branch.call + 1, 1)
        return await _off_the_loop(request, partial(self._plan, copied, spot, incoming, past))

    async def _found(self, tenant: str, key: Key | None, past: History) -> Session | None:
        """The session of a call, once nobody is planning a call of it aside; None where it begins one."""
        session = self._registry.find(tenant, key, past)
        if session is None:
            await self._load(tenant, key, past)
            session = self._registry.find(tenant, key, past)
        while session is not None and session.id in self._aside:
            await self._aside[session.id].wait()
            session = self._registry.find(tenant, key, past)
        return session

    def _place(
        self, incoming: Incoming, key: Key | None, past: History, found: Session | None, fresh: Mapping[bytes, Message]
    ) -> Draft:
        """Decide where the call stands.

        From here until it is on its way to the log there is no await, so that calls are numbered one by one; but where
        it is planned aside, the session's other calls wait for it.
        """
        if len(self._stored) > BLOBS_REMEMBERED:
            self._stored.clear()
        session = found or registry.open_session(incoming.tenant, key, past, None)
        placement = place(session, past)
        recipe, blobs = self._take_apart(incoming.request, placement)
        if registry.begins_again(placement, key, past, recipe.body):
            session = registry.open_session(incoming.tenant, key, past, session)
            found, placement = None, place(session, past)
            recipe, blobs = self._take_apart(incoming.request, placement)
        listed = incoming.request.digests if incoming.request.separator is not None else ()
        if found is None:
            session.harness = harness_of(incoming)
            if self._pager is not None:
                self._pager.settle(session)
        registry.received(session, placement, past, listed, recipe.body)
        entry = Entry(session, key, placement, incoming, recipe, fresh)
        marks = registry.marks_of_call(key, past, entry.spot)
        self._registry.adopt(session, marks)
        self._registry.note(session, past)
        return Draft(entry, past, blobs, marks, opened=found is None)

    async def aside(self, entry: Entry, work: Callable[[], _T]) -> _T:
        """Do what is heavy in a thread, while all sessions but this go on; what is half done is not kept.

        What else is to be done in this session waits until that is over.
        """
        session = entry.session.id
        while session in self._aside:
            await self._aside[session].wait()
        if not _is_heavy(entry.incoming.request):
            return work()
        done = self._aside[session] = asyncio.Event()
        try:
            return await asyncio.to_thread(work)
        except asyncio.CancelledError:
            self._registry.drop(session)
            raise
        finally:
            del self._aside[session]
            done.set()

    def _written(self, draft: Draft, paged: Paged | None) -> tuple[Entry, Batch]:
        """The call as it is logged, with what was decided of it."""
        entry, blobs = replace(draft.entry, paged=paged), draft.blobs
        session = entry.session
        events = call_events(entry, draft.past, opened=draft.opened)
        if session.unpaged and self._pager is not None:
            events.append(Bypassed(BypassReason.PAGE_TABLE, session.unpaged, *entry.spot[1:]))
        elif paged is not None:
            events += paged.events
            blobs |= paged.blobs
        if self._missed:
            detail = f"{self._missed} calls or answers before this went unlogged, last for: {self._missed_why}"
            events.append(Bypassed(BypassReason.NOT_LOGGED, detail))
            self._missed = 0
        after, session.head = session.head, moved_on(session.head, entry)
        at, marks = entry.incoming.at, draft.marks
        return entry, Batch(session.id, at, events, blobs, session.tenant, marks, after=after, head=session.head)

    def _plan(
        self, session: Session, placement: Placement, incoming: Incoming, past: History, around: str = ""
    ) -> Paged | None:
        """Decide what is paged; where that fails, the session goes on without paging until it is read again."""
        if self._pager is None or session.unpaged or incoming.unread:
            return None
        request = incoming.request

        def failed(error: Exception) -> None:
            session.unpaged = f"{type(error).__name__}: {error}"

        paged: Paged | None = None
        with self._fail_open(failed):
            items = Items(
                request.digests,
                past.norms,
                lambda at: bytes(request.items[at]),
                request.head_marks,
                request.auto_mark,
            )
            call = Call(incoming.dialect, request, items, incoming.at, bypassed(incoming.headers), around)
            paged = self._pager.plan(session, placement, call)
        return paged  # noqa: RET504 - what is done inside may have failed

    def _take_apart(self, request: Request, placement: Placement) -> tuple[Recipe, dict[bytes, bytes]]:
        keep = shared_messages(placement.parent, request.digests) if placement.parent else 0
        return take_apart(request, keep)

    def _write_backlog(self) -> None:
        """Write what could not be written before, now that the log can be written again."""
        while self._backlog:
            self._append_later(self._backlog.popleft())

    def missed(self, why: str) -> None:
        """A call or its outcome went unlogged: say so in the log as soon as it can be written again."""
        self._missed += 1
        self._missed_why = why

    async def drain(self) -> None:
        """Wait until everything is written, or has failed."""
        while pending := tuple(self._pending):  # the store's thread takes from it
            await asyncio.wait([asyncio.wrap_future(future) for future in pending])
            await asyncio.sleep(0)

    def _append(self, batch: Batch) -> Awaitable[int]:
        """Append a batch that somebody waits for."""
        return asyncio.wrap_future(self._append_later(batch))

    def _add(self, entry: Entry, batch: Batch) -> None:
        """Append more of a call that nobody waits for, unless its log is gone."""
        if not entry.session.gone:
            self._append_later(batch)

    def _append_later(self, batch: Batch) -> Future[int]:
        """Append what the store does not have yet."""
        new = {digest: blob for digest, blob in batch.blobs.items() if digest not in self._stored}
        future = self._store.append(batch if len(new) == len(batch.blobs) else replace(batch, blobs=new))
        self._pending.add(future)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda done: self._appended(done, batch, new.keys(), loop))
        return future

    def _appended(
        self, done: Future[int], batch: Batch, blobs: Collection[bytes], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Note what is stored now; called by the store's thread, so that a success wakes nobody who does not wait."""
        self._pending.discard(done)
        error = done.exception()
        if error is None:
            self._stored.update(blobs)
            self.healthy = True
        elif isinstance(error, StoreReplaced):
            loop.call_soon_threadsafe(self._replaced, error)
        elif not isinstance(error, StoreConflict):
            loop.call_soon_threadsafe(self._failed, error, batch)

    def _replaced(self, error: BaseException) -> None:
        """Forget all that was known to be in a log that is gone; calls under way are not logged any further."""
        if error is self._replacement:  # one error for all that was waiting
            return
        self._replacement = error
        self._stored.clear()
        self._backlog.clear()
        self._registry.clear()
        self.begun_anew += 1
        self.failures += 1
        self.last_failure = str(error)
        log.error("THE LOG IS GONE: %s; what was in it is lost", error)

    def _failed(self, error: BaseException, batch: Batch) -> None:
        """Drop what memory knew of a session whose log has a gap now: it is read again from what the log has.

        What became of a call is kept and written later. A call itself, or what was decided of it, is not: the calls
        after it build on it, and whoever waits for it goes on without.
        """
        session = batch.session
        self._stored.clear()
        self.healthy = False
        if batch.after is not None or batch.moves:
            self._registry.drop(session)
        elif len(self._backlog) < BACKLOG:
            self._backlog.append(batch)
        else:
            self.missed(f"the outcome of a call: {error}")
        self.failures += 1
        self.last_failure = str(error)
        log.error("NOT LOGGED: %s (session %s; %d writes failed so far)", error, session, self.failures)

    async def _load(self, tenant: str, key: Key | None, past: History) -> None:
        """Make the session hot if the store has it: the one that the key names, or whose messages are repeated."""
        if key is None:
            for owner, mark in islice(await self._owners(tenant, registry.marks_of_ids(past)), LOOKED_INTO):
                with suppress(StoreCorrupt):  # it may be anybody's
                    session = await self._folded(owner)
                    if grows(session, past) or shares(session, past):
                        self._registry.adopt(session, [mark])
                        if grows(session, past):
                            return
        marks = list(past.marks()) if key is None else registry.marks_of_key(key)
        for owner, mark in islice(await self._owners(tenant, marks), 1):
            self._registry.adopt(await self._folded(owner), [mark])

    async def _owners(self, tenant: str, marks: Sequence[bytes]) -> list[tuple[str, bytes]]:
        """The sessions that own these marks, each with the first mark that leads to it."""
        places = await asyncio.to_thread(self._store.find, tenant, marks) if marks else {}
        owners = {places[mark].session: mark for mark in reversed(marks) if mark in places}
        return list(reversed(owners.items()))

    async def _folded(self, session: str) -> Session:
        """A session from its log, read in a thread; calls that wait for the same session share what is read."""
        reading = self._folds.get(session)
        if reading is None:
            reading = self._folds[session] = asyncio.ensure_future(asyncio.to_thread(self._fold, session))
            reading.add_done_callback(lambda _: self._folds.pop(session, None))
        return await asyncio.shield(reading)  # one that leaves must not end it for the others

    def _fold(self, session: str) -> Session:
        head = self._store.head(session)  # first: what comes in while we read makes the next append a conflict
        log = list(self._store.events(session))
        rebuilt = self._rebuilder.branches(session, log)
        rebuilt.head = head
        if self._pager is not None:

            def failed(error: Exception) -> None:
                rebuilt.unpaged = f"{type(error).__name__}: {error}"

            with self._fail_open(failed):
                self._pager.experience(rebuilt.learned)  # read here, where no call waits for it
                self._rebuilder.add_tables(rebuilt, log)
        return rebuilt
