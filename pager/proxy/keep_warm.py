"""Keeps prompts of resting sessions in the provider's cache, by sending the latest request once more in time.

What pays is decided in ``pager.paging.warmth.keep_warm``; this module has the clock and the network. A refresh is the
branch's latest outgoing request in the form that the provider has for it. The client's credential is kept in memory
with it, only while a refresh may follow. Any trouble ends it for that pause; a refresh that reads nothing, or is
refused, ends it for the branch. Refreshes never delay a call.
"""

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter, time
from typing import NamedTuple

from pager.config.settings import KeepWarmSettings
from pager.errors import NotUnderstood
from pager.log.events import BranchReason, Warmed, WarmingEnd, WarmingStopped
from pager.paging import planner
from pager.paging.conditions import summary_asked
from pager.paging.pager import Paged
from pager.paging.warmth.keep_warm import FixedRefreshes, KeepWarm, PricedRefreshes
from pager.paging.warmth.returns import WaitsFor
from pager.pricing.rates import Models
from pager.proxy import log_records, redaction
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
SESSIONS = 1_000  # of which it is known at most that sub-agents work
RUNNING = 900.0  # seconds after its latest call for which a sub-agent that has not ended its turn is taken to work

log = logging.getLogger("ctxpager")


@dataclass(slots=True)
class RestingBranch:
    """A branch that rests and is to be kept warm; ``due`` are the moments of its refreshes."""

    call: PlacedCall  # its latest
    paged: Paged
    waits_for: WaitsFor
    stake: float  # what a call to the warm prompt saves, in units of one uncached input token
    request: SentRequest
    due: deque[float]
    read_at: float  # when its prompt was last written or read, from which on its lifetime counts
    cost: float  # of one refresh, in the same units
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

    def correct(self, at: float, expected: float, dollars: float) -> None:
        """Have what was spent at this time by what it was in the end, in place of what was expected."""
        with suppress(ValueError):  # it is no longer of the last 24 hours
            self.spent[self.spent.index((at, expected))] = (at, dollars)


class Agent(NamedTuple):
    """Who makes calls: an agent of a session, by how its histories begin, with a model, whose cache is its own.

    Of all branches that begin alike only the latest goes on: a compaction, or a rewind, begins a new one.
    """

    session: str
    family: bytes
    model: str

    @classmethod
    def of(cls, call: PlacedCall) -> "Agent":
        """Who makes a call."""
        return cls(call.session.id, call.placement.branch.family, call.incoming.request.model)


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
        self._resting: dict[Agent, RestingBranch] = {}
        self._subagents: dict[str, dict[str, float]] = {}  # that work: by session and lane, when they called last
        self._money = SpentMoney()
        self._changed = asyncio.Event()
        self._clock: asyncio.Task[None] | None = None
        self.on = on
        self._by_default = settings.mode != "off"  # whether sessions are kept warm whose arm does not say

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
        self.on, self._by_default = on, self._by_default or on
        if not on:
            self._subagents.clear()
            for agent in list(self._resting):
                self._forget(agent)

    def spent(self, now: float) -> float:
        """The dollars that refreshes have cost in the last 24 hours."""
        return self._money.in_a_day(now)

    def warm_until(self, session: str, lane: str, model: str) -> float | None:
        """Until when an agent's prompt is kept warm if no call comes and no refresh fails; None where it is not."""
        for agent, rest in self._resting.items():
            if (agent.session, agent.model) == (session, model) and rest.call.placement.branch.lane == lane:
                return (rest.due[-1] if rest.due else rest.read_at) + rest.paged.terms.prices.ttl_seconds
        return None

    # ---------------------------------------------------------------- what calls tell

    def called(self, call: PlacedCall) -> None:
        """A real call has come: its branch, and any that it goes on in the place of, rests no longer."""
        lane, here = call.placement.branch.lane, Agent.of(call)
        if lane and self.on:
            if len(self._subagents) >= SESSIONS:
                self._subagents.clear()
            self._subagents.setdefault(here.session, {})[lane] = call.incoming.at
        before = {branch.number for branch in (call.placement.branch, call.placement.parent) if branch is not None}
        for agent, rest in list(self._resting.items()):
            if agent == here or (agent.session == here.session and rest.call.placement.branch.number in before):
                self._forget(agent)

    def answered(self, call: PlacedCall, paged: Paged, answer: Answer, request: SentRequest) -> None:
        """A call is answered, so that its branch may rest now: plan the refreshes that keep its prompt warm."""
        settings, dialect = self._settings, paged.dialect
        waits_for = self._waits_for(call, answer)
        if not self.on or waits_for is None or not self._goes_on_from(call, paged):
            return
        if is_subscription(call.incoming.headers) and not settings.subscriptions:
            return
        kept = paged.rule.keep_warm  # by the session's arm in an experiment, which may differ in it
        if not (self._by_default if kept is None else kept):
            return
        if answer.usage is None or not answer.usage.cached + answer.usage.written:  # nothing is known to be cached
            return
        resting = planner.resting(paged.rule.policy, paged.table, paged.outside, paged.terms, waits_for)
        if dialect.refresh_costs_output and resting.prices.write <= 1.0:
            return
        agent = Agent.of(call)
        others = [rest for other, rest in self._resting.items() if other.session == agent.session and other != agent]
        planned = sum(len(rest.due) * rest.cost for rest in others)
        resting = replace(resting, budget=max(0.0, resting.budget - planned))  # it is that of the whole session
        times = [after for after in self._rule.refreshes(resting) if after <= settings.longest]
        if times:
            due = deque(request.at + after for after in times)
            self._forget(agent)
            self._resting[agent] = RestingBranch(
                call, paged, waits_for, resting.stake, request, due, request.at, resting.refresh_cost
            )
            self._changed.set()

    def _waits_for(self, call: PlacedCall, answer: Answer) -> WaitsFor | None:
        """What a branch waits for after this answer; None for a sub-agent that is done, which waits for nothing.

        Clients name their sub-agents, or else another agent of the session waits for them meanwhile.
        """
        session, lane = call.session.id, call.placement.branch.lane
        if answer.calls:
            return WaitsFor.TOOL
        working = self._subagents.get(session, {})
        if lane:
            working.pop(lane, None)
            return None
        if any(call.incoming.at - at < RUNNING for at in working.values()):
            return WaitsFor.TOOL
        others = (rest for agent, rest in self._resting.items() if agent.session == session)
        return None if any(rest.waits_for is WaitsFor.TOOL for rest in others) else WaitsFor.USER

    @staticmethod
    def _goes_on_from(call: PlacedCall, paged: Paged) -> bool:
        """Whether the branch's next request is expected to begin with what has gone out for this call.

        Not if it went on meanwhile, if another prompt than the paged one went out, for a summary, after which the
        client begins anew, or for a side request; and not once a refresh of the branch has failed.
        """
        opened = call.placement.opened
        aside = opened is not None and opened.reason == BranchReason.SIDE
        apart = paged.moved_on or paged.table.evidence.apart
        return not (apart or aside or paged.table.warming_ended or summary_asked(paged.request))

    # ---------------------------------------------------------------- the clock

    async def tell(self, now: float, session: str) -> None:
        """Do what is due by this time in the session that its client calls so; for a clock that is told by headers."""
        for agent, rest in list(self._resting.items()):
            key = rest.call.history.key
            while key is not None and key.value == session and self._is_due(agent, rest, now):
                await asyncio.wait({self._begin(agent, rest, rest.due[0])})

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            now = time()
            for agent, rest in list(self._resting.items()):
                if self._is_due(agent, rest, now):
                    self._begin(agent, rest, now)
            waiting = [rest.due[0] for rest in self._resting.values() if rest.sending is None]
            wait = max(0.0, min(waiting) - time()) if waiting else None
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait)

    def _is_due(self, agent: Agent, rest: RestingBranch, now: float) -> bool:
        """Whether a refresh is to be sent now; never two of a branch at a time."""
        return self._resting.get(agent) is rest and rest.sending is None and rest.due[0] <= now

    def _begin(self, agent: Agent, rest: RestingBranch, at: float) -> "asyncio.Task[None]":
        rest.sending = asyncio.create_task(self._refresh(agent, rest, at))
        return rest.sending

    def _forget(self, agent: Agent) -> None:
        rest = self._resting.pop(agent, None)
        if rest is not None and rest.sending is not None:
            rest.sending.cancel()

    # ---------------------------------------------------------------- one refresh

    async def _refresh(self, agent: Agent, rest: RestingBranch, at: float) -> None:
        """Send one refresh; whatever goes wrong, the branch is kept warm no longer."""
        whole = False
        with self._fail_open():
            whole = await self._sent(rest, at)
        rest.sending = None
        if self._resting.get(agent) is rest and (not whole or not rest.due):
            del self._resting[agent]
        self._changed.set()

    async def _sent(self, rest: RestingBranch, at: float) -> bool:
        """Send one refresh and log it; whether the prompt was still cached, and another may follow."""
        paged, call, begun = rest.paged, rest.call, perf_counter()
        dollar = self._models.dollars(call.incoming.request.model)
        body = paged.dialect.refresh(rest.request.body)
        if body is None or not self._may_send(rest, at, dollar):
            return False
        rest.due.popleft()
        self._money.spent.append((at, self._expected(rest, dollar)))  # even if nobody waits for the answer
        try:
            status, answer = await self._exchange(rest, body, at)
        except asyncio.CancelledError:  # the provider may charge for it all the same
            self._stop(rest, at, WarmingEnd.CANCELLED, "a call came, or it was switched off, while it was on its way")
            raise
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
        self._money.correct(at, self._expected(rest, dollar), dollar * cost)
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
        await asyncio.shield(self._log(call, paged, event))
        if usage.written > usage.cached or not usage.cached:
            return self._stop(rest, at, WarmingEnd.WROTE, f"it read {usage.cached} tokens and wrote {usage.written}")
        return True

    async def _log(self, call: PlacedCall, paged: Paged, event: Warmed) -> None:
        """Append a refresh to the log of its session; done to its end even if a call comes meanwhile."""
        async with self._calls.sessions.claimed(call.session):
            paged.table.apply(event)
            await self._calls.decide(call, event.at, [event])

    def _may_send(self, rest: RestingBranch, at: float, dollar: float) -> bool:
        """Whether a refresh is in time, and within the limits on money; a ``dollar`` figure is that of one token."""
        settings, prices = self._settings, rest.paged.terms.prices
        if at > rest.read_at + prices.ttl_seconds - LATEST:
            return self._stop(rest, at, WarmingEnd.LATE, f"{at - rest.read_at:.0f} s after the latest request")
        expected = self._expected(rest, dollar)
        if expected > settings.refresh_dollars or expected + self._money.in_a_day(at) > settings.day_dollars:
            return self._stop(rest, at, WarmingEnd.LIMIT, f"it would cost ${expected:.2f}")
        return True

    @staticmethod
    def _expected(rest: RestingBranch, dollar: float) -> float:
        """The dollars that a refresh is expected to cost."""
        return dollar * rest.paged.terms.prices.read * rest.paged.table.yardstick.tokens(len(rest.request.body))

    async def _exchange(self, rest: RestingBranch, body: bytes, at: float) -> tuple[int, bytes]:
        """The provider's answer to a refresh: its status and its body."""
        request = rest.request
        headers = request.headers + ([(b"x-pager-now", str(at).encode())] if self._told_time else [])
        async with self._upstream.send("POST", request.url, headers, body, rest.paged.dialect.name) as response:
            return response.status, await read_up_to(response, LARGEST_ANSWER)

    def _stop(self, rest: RestingBranch, at: float, end: WarmingEnd, detail: str, status: int = 0) -> bool:
        """Say, and log, that a branch is kept warm no longer. Always False."""
        call, detail = rest.call, redaction.words(detail, rest.call.incoming.secrets)
        quiet = (WarmingEnd.LATE, WarmingEnd.LIMIT, WarmingEnd.CANCELLED)
        words = log.info if end in quiet else log.warning
        words("session %s is kept warm no longer: %s: %s", call.session.id, end, detail)
        event = WarmingStopped(*rest.paged.where, end, detail, status)
        rest.paged.table.apply(event)
        self._calls.record(call, log_records.warming_stopped(call, event, at))
        return False


def _cost(usage: Usage, paged: Paged) -> float:
    """What a refresh cost, in units of one uncached input token."""
    prices = paged.terms.prices
    factor, output = prices.factors(usage.input)
    plain = usage.input - usage.cached - usage.written
    prompt = plain + prices.read * usage.cached + prices.write * usage.written
    return factor * prompt + output * prices.output * usage.output
