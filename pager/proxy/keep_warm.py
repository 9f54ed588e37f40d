"""Keeps prompts of resting sessions in the provider's cache, by sending the latest request once more in time.

What pays is decided in ``pager.paging.keep_warm``; this module has the clock and the network. A refresh is the branch's
latest outgoing request in the form that the provider has for it. The client's credential is kept in memory with it,
only while a refresh may follow. Any trouble ends it for that pause; refreshes never delay a call.
"""

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter, time

from pager.config.settings import KeepWarmSettings
from pager.errors import NotUnderstood
from pager.log.events import Warmed, WarmingEnd, WarmingStopped
from pager.paging import planner
from pager.paging.keep_warm import FixedRefreshes, KeepWarm, PricedRefreshes
from pager.paging.pager import Paged
from pager.paging.returns import WaitsFor
from pager.pricing.rates import Models
from pager.proxy import log_records
from pager.proxy.call_log import CallLog
from pager.proxy.fail_open import FailOpen
from pager.proxy.log_records import PlacedCall
from pager.proxy.relay import NETWORK_ERRORS, SentRequest
from pager.proxy.upstream import Upstream, error_text, read_up_to
from pager.request_values import Answer, Usage
from pager.sessions.identity import is_subscription

LATEST = 10.0  # seconds before the end of a lifetime after which no refresh is sent any more
LARGEST_ANSWER = 1 << 20  # bytes
DAY = 86_400.0
Lane = tuple[str, str]
"""A session, and the sub-agent in it where the client names them: only one of its branches is the latest."""

log = logging.getLogger("ctxpager")


@dataclass(slots=True)
class Rest:
    """A branch that rests and is to be kept warm; ``due`` are the moments of its refreshes."""

    call: PlacedCall
    paged: Paged
    stake: float  # what a call to the warm prompt saves, in units of one uncached input token
    request: SentRequest
    due: deque[float]
    read_at: float  # when its prompt was last written or read, from which on its lifetime counts
    sent: int = 0
    sending: "asyncio.Task[None] | None" = None


@dataclass(slots=True)
class SpentMoney:
    """The dollars that refreshes have cost, by the time at which they were spent."""

    spent: deque[tuple[float, float]] = field(default_factory=deque)

    def in_a_day(self, now: float) -> float:
        """Those of the last 24 hours."""
        while self.spent and self.spent[0][0] <= now - DAY:
            self.spent.popleft()
        return sum(dollars for _, dollars in self.spent)


def rule_of(settings: KeepWarmSettings) -> KeepWarm | None:
    """The rule that these settings name; None where nothing is kept warm."""
    if settings.mode == "fixed":
        return FixedRefreshes(min(settings.refreshes, settings.most), settings.every, settings.smallest)
    return PricedRefreshes(settings.most) if settings.mode == "auto" else None


class Keeper:
    """Keeps the prompts of resting branches warm while it is ``on``."""

    def __init__(
        self,
        settings: KeepWarmSettings,
        rule: KeepWarm,
        upstream: Upstream,
        calls: CallLog,
        models: Models,
        fail_open: FailOpen,
        *,
        told_time: bool = False,
        on: bool = True,
    ) -> None:
        self._settings = settings
        self._rule = rule
        self._upstream = upstream
        self._calls = calls
        self._models = models
        self._fail_open = fail_open
        self._told_time = told_time  # whether the clock is that of the clients' headers
        self._resting: dict[Lane, Rest] = {}
        self._money = SpentMoney()
        self._changed = asyncio.Event()
        self._clock: asyncio.Task[None] | None = None
        self.on = on

    def __len__(self) -> int:
        """The branches that are kept warm now."""
        return len(self._resting)

    def start(self) -> None:
        """Send refreshes when they are due, by the clock; not where clients tell the time."""
        if not self._told_time:
            self._clock = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Send no more, and forget every request and credential."""
        self.switch(on=False)
        if self._clock is not None:
            self._clock.cancel()

    def switch(self, *, on: bool) -> None:
        """Begin or end keeping warm; at the end every kept request is forgotten, with its credential."""
        self.on = on
        if not on:
            for where in list(self._resting):
                self._forget(where)

    def spent(self, now: float) -> float:
        """The dollars that refreshes have cost in the last 24 hours."""
        return self._money.in_a_day(now)

    def warm_until(self, session: str, lane: str) -> float | None:
        """Until when a branch is kept warm if no call comes and no refresh fails; None where it is not."""
        rest = self._resting.get((session, lane))
        if rest is None:
            return None
        return (rest.due[-1] if rest.due else rest.read_at) + rest.paged.terms.prices.ttl_seconds

    # ---------------------------------------------------------------- what calls tell

    def called(self, call: PlacedCall) -> None:
        """A real call has come: what its agent did before it rests no longer."""
        self._forget(_lane(call))

    def answered(self, call: PlacedCall, paged: Paged, answer: Answer, request: SentRequest) -> None:
        """A call is answered, so that its branch may rest now: plan the refreshes that keep its prompt warm."""
        settings, dialect = self._settings, paged.dialect
        waits_for = WaitsFor.TOOL if answer.calls else WaitsFor.USER
        a_subagent_is_done = bool(call.placement.branch.lane) and waits_for is WaitsFor.USER
        subscribed = is_subscription(call.incoming.headers) and not settings.subscriptions
        if not self.on or paged.moved_on or a_subagent_is_done or subscribed:
            return
        if answer.usage is None or not answer.usage.cached + answer.usage.written:  # nothing is known to be cached
            return
        resting = planner.resting(paged.rule.policy, paged.table, paged.outside, paged.terms, waits_for)
        if dialect.refresh_costs_output and resting.prices.write <= 1.0:
            return
        times = [after for after in self._rule.refreshes(resting) if after <= settings.longest]
        if times:
            due = deque(request.at + after for after in times)
            self._resting[_lane(call)] = Rest(call, paged, resting.stake, request, due, request.at)
            self._changed.set()

    # ---------------------------------------------------------------- the clock

    async def tell(self, now: float, session: str) -> None:
        """Do what is due by this time in the session that its client calls so; for a clock that is told by headers."""
        for where, rest in list(self._resting.items()):
            key = rest.call.history.key
            while key is not None and key.value == session and where in self._resting and rest.due[0] <= now:
                await self._refresh(where, rest, rest.due[0])

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            now = time()
            for where, rest in list(self._resting.items()):
                if rest.sending is None and rest.due[0] <= now:
                    rest.sending = asyncio.create_task(self._refresh(where, rest, now))
            waiting = [rest.due[0] for rest in self._resting.values() if rest.sending is None]
            wait = max(0.0, min(waiting) - time()) if waiting else None
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait)

    def _forget(self, where: Lane) -> None:
        rest = self._resting.pop(where, None)
        if rest is not None and rest.sending is not None:
            rest.sending.cancel()

    # ---------------------------------------------------------------- one refresh

    async def _refresh(self, where: Lane, rest: Rest, at: float) -> None:
        """Send one refresh; whatever goes wrong, the branch is kept warm no longer."""
        whole = False
        with self._fail_open():
            whole = await self._sent(rest, at)
        rest.sending = None
        if self._resting.get(where) is rest and (not whole or not rest.due):
            del self._resting[where]
        self._changed.set()

    async def _sent(self, rest: Rest, at: float) -> bool:
        """Send one refresh and log it; whether the prompt was still cached, and another may follow."""
        paged, call, begun = rest.paged, rest.call, perf_counter()
        dollar = self._models.dollars(call.incoming.request.model)
        body = paged.dialect.refresh(rest.request.body)
        if body is None or not self._may_send(rest, at, dollar):
            return False
        rest.due.popleft()
        try:
            status, answer = await self._exchange(rest, body, at)
        except NETWORK_ERRORS as error:
            return self._stop(rest, at, WarmingEnd.UNREACHABLE, error_text(error))
        try:
            usage = paged.dialect.read(answer).usage if status == 200 else None
        except NotUnderstood:
            usage = None
        if usage is None:
            return self._stop(rest, at, WarmingEnd.REFUSED, answer[:500].decode("utf-8", "replace"), status)
        cost = _cost(usage, paged)
        rest.sent, rest.read_at = rest.sent + 1, at
        self._money.spent.append((at, dollar * cost))
        event = Warmed(
            *paged.where,
            at=at,
            refresh=rest.sent,
            usage=usage,
            cost=round(cost, 1),
            stake=round(rest.stake, 1),
            lifetime=paged.terms.prices.ttl_seconds,
            total_ms=round((perf_counter() - begun) * 1000, 3),
            dollars=round(dollar * cost, 6),
        )
        async with self._calls.sessions.claimed(call.session):
            paged.table.apply(event)
            await self._calls.decide(call, at, [event])
        if usage.written > usage.cached or not usage.cached:
            return self._stop(rest, at, WarmingEnd.WROTE, f"it read {usage.cached} tokens and wrote {usage.written}")
        return True

    def _may_send(self, rest: Rest, at: float, dollar: float) -> bool:
        """Whether a refresh is in time, and within the limits on money; a ``dollar`` figure is that of one token."""
        settings, prices = self._settings, rest.paged.terms.prices
        if at > rest.read_at + prices.ttl_seconds - LATEST:
            return self._stop(rest, at, WarmingEnd.LATE, f"{at - rest.read_at:.0f} s after the latest request")
        expected = dollar * prices.read * rest.paged.table.yardstick.tokens(len(rest.request.body))
        if expected > settings.refresh_dollars or expected + self._money.in_a_day(at) > settings.day_dollars:
            return self._stop(rest, at, WarmingEnd.LIMIT, f"it would cost ${expected:.2f}")
        return True

    async def _exchange(self, rest: Rest, body: bytes, at: float) -> tuple[int, bytes]:
        """The provider's answer to a refresh: its status and its body."""
        request = rest.request
        headers = request.headers + ([(b"x-pager-now", str(at).encode())] if self._told_time else [])
        async with self._upstream.send("POST", request.url, headers, body, rest.paged.dialect.name) as response:
            return response.status, await read_up_to(response, LARGEST_ANSWER)

    def _stop(self, rest: Rest, at: float, end: WarmingEnd, detail: str, status: int = 0) -> bool:
        """Say, and log, that a branch is kept warm no longer. Always False."""
        call = rest.call
        words = log.info if end in (WarmingEnd.LATE, WarmingEnd.LIMIT) else log.warning
        words("session %s is kept warm no longer: %s: %s", call.session.id, end, detail)
        event = WarmingStopped(*rest.paged.where, end, detail, status)
        self._calls.record(call, log_records.warming_stopped(call, event, at))
        return False


def _lane(call: PlacedCall) -> Lane:
    return call.session.id, call.placement.branch.lane


def _cost(usage: Usage, paged: Paged) -> float:
    """What a refresh cost, in units of one uncached input token."""
    prices = paged.terms.prices
    factor, output = prices.factors(usage.input)
    plain = usage.input - usage.cached - usage.written
    prompt = plain + prices.read * usage.cached + prices.write * usage.written
    return factor * prompt + output * prices.output * usage.output
