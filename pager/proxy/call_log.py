"""Calls as the log knows them: placed, planned and recorded in one critical section, before anything acts on them.

What a session learns from a call later (decisions, hidden legs, the answer) passes here too, on its way to the log.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from pager.errors import StoreConflict, StoreReplaced
from pager.log.body_delta import around_items
from pager.log.events import CreditLent, Event, FailurePhase
from pager.log.store import Batch, Store
from pager.paging.conditions import Caller
from pager.paging.credit import REST
from pager.paging.pager import CallToPlan, Paged, Pager, bypassed
from pager.paging.pages.page import Items
from pager.proxy import log_records
from pager.proxy.fail_open import FailOpen
from pager.proxy.hot_sessions import HotSessions, is_heavy, stop_paging
from pager.proxy.log_records import CallHistory, Incoming, Outcome, PlacedCall
from pager.proxy.log_writer import LogWriter
from pager.proxy.page_in_loop import Append, Claimed
from pager.proxy.serving.metrics import Meter
from pager.proxy.user_accounts import UserAccounts
from pager.request_values import Answer, CallAddress, Request
from pager.sessions.lineage import Placement, Session
from pager.wire.dialect import Dialect

TRIES = 30  # how often a call is placed again when its session went on without us: many may race for one session
Watcher = Callable[[PlacedCall, Sequence[Event]], None]
"""Is shown what happens in calls, without credentials; it may not fail."""

_T = TypeVar("_T")


async def _off_the_loop(request: Request, work: Callable[[], _T]) -> _T:
    """The result of work on a request; in a thread if the request is heavy."""
    return await asyncio.to_thread(work) if is_heavy(request) else work()


class CallLog:
    """Places, plans and records calls."""

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
        limits = pager.credit if pager is not None else None
        self._accounts = UserAccounts(store, limits) if limits is not None else None

    async def receive(self, incoming: Incoming) -> PlacedCall:
        """Place a call, plan it and append both to the log; when this returns, they are durable."""
        history = await self.sessions.history(incoming)
        for tries_left in range(TRIES, -1, -1):
            async with self.sessions.placed(incoming, history) as arrival:
                lent = await self._lent(arrival.call)
                call = await _off_the_loop(incoming.request, partial(self._planned, arrival.call))
                planned, missed = arrival._replace(call=call), self.writer.take_missed()
                record = log_records.received(planned, paging=self._pager is not None, missed=missed, lent=lent)
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

    async def _lent(self, call: PlacedCall) -> CreditLent | None:
        """The credit of a session that begins, or goes on after a rest; None for any other call, and where it fails."""
        pages, at = call.session.pages, call.incoming.at
        latest, pages.called_at = max(pages.latest, pages.called_at), at
        if self._accounts is None or (pages.credit is not None and at - latest <= REST) or not self._spends(call):
            return None
        pages.credit, lent = 0.0, None
        with self._fail_open():
            await self.writer.settled()  # what other sessions have saved counts from when it is in the log
            lent = await asyncio.to_thread(self._accounts.lend, call.session.tenant, call.session.id, at)
            pages.lend(lent)
        return lent

    def _spends(self, call: PlacedCall) -> bool:
        """Whether a call can make use of a credit: it is planned, and not by a policy that changes nothing."""
        incoming, session = call.incoming, call.session
        planned = self._pager is not None and self._pager.changes(session.arm) and not session.unpaged
        return planned and not incoming.unread and not bypassed(incoming.headers)

    async def preview(self, incoming: Incoming) -> Paged | None:
        """The plan for a request as if it were a call now; nothing is logged, and nothing changes."""
        history = await self.sessions.history(incoming)
        spot = await self.sessions.preview(incoming, history)
        if spot is None:
            return None
        return await _off_the_loop(incoming.request, partial(self._plan, *spot, incoming, history))

    def _planned(self, call: PlacedCall) -> PlacedCall:
        around = around_items(call.recipe.cuts)
        return replace(call, paged=self._plan(call.session, call.placement, call.incoming, call.history, around))

    def _plan(
        self, session: Session, placement: Placement, incoming: Incoming, history: CallHistory, around: str = ""
    ) -> Paged | None:
        """The plan for a call; None where it is not paged. Where planning fails, its session is not paged any more."""
        if self._pager is None or session.unpaged or incoming.unread:
            return None
        paged: Paged | None = None
        with self._fail_open(partial(stop_paging, session)):
            call = CallToPlan(
                incoming.dialect,
                incoming.request,
                Items.of(incoming.request, history.past.norms),
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

    async def carry_out(self, call: PlacedCall, command: Append | Claimed) -> object:
        """The result of a fault loop's command: durable events, or work on the session of its call."""
        if isinstance(command, Claimed):
            return await self.aside(call, command.work)
        await self.decide(call, command.at, command.events, command.blobs)
        return None

    async def decide(
        self, call: PlacedCall, at: float, events: Sequence[Event], blobs: Mapping[bytes, bytes] = MappingProxyType({})
    ) -> None:
        """Append what was decided of a call after it was received; when this returns, it is durable."""
        if self.sessions.registry.replaced(call.session):  # read again from the log while this call was under way
            self.sessions.registry.drop(call.session.id)
        record = log_records.decided(call, at, events, blobs)
        self._publish(call, record.events)
        if not call.session.gone:
            with suppress(StoreReplaced):  # the session begins again in the new log: the call goes on
                await self.writer.append(record)

    async def aside(self, call: PlacedCall, work: Callable[[], _T]) -> _T:
        """The result of work on a session that no other call of it may see half done."""
        async with self.sessions.claimed(call.session):
            return await _off_the_loop(call.incoming.request, work)

    def record(self, call: PlacedCall, record: Batch) -> None:
        """Append what became of a call, without waiting for it."""
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
