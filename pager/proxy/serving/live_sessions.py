"""What the sessions of a running proxy are about to cost: when each one's prompt leaves the provider's cache.

It watches what happens in calls. What takes a moment, such as what the policy would evict from a cold prompt, is worked
out when somebody asks, once for each answer; the money is added up from the log.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, NamedTuple

from pager.errors import StoreError
from pager.log.events import AnswerFinished, AttemptFailed, CallReceived, Event, LegFinished, Warmed
from pager.log.store import Store
from pager.paging.planner import Terms
from pager.paging.policy import Policy
from pager.paging.warmth.going_cold import CachedPrompt, Warmth, cached_prompt, freed_when_cold, warmth
from pager.pricing.mark_cache import HOUR
from pager.pricing.rates import Models
from pager.proxy.fail_open import FailOpen
from pager.proxy.hot_sessions import HotSessions
from pager.proxy.keep_warm import Keeper
from pager.proxy.log_records import PlacedCall, time_of
from pager.proxy.serving.console import Price
from pager.request_values import CallAddress, Usage

MOST = 200  # sessions that are remembered
RECENT = 43_200.0  # seconds since its latest call after which a session is not shown any more
SETTLED = 5.0  # seconds after which what has happened in a session is in the log


class PlannedWith(NamedTuple):
    """What a branch's latest call was planned with."""

    policy: Policy
    outside: int  # bytes of the prompt outside of its items
    terms: Terms


@dataclass(slots=True)
class LiveBranch:
    """A branch after the answer to its latest call."""

    where: CallAddress
    lane: str
    model: str
    usage: Usage
    before: int  # tokens of the prompt as the client sent it, estimated by bytes where it went out shorter
    prompt: CachedPrompt
    planned: PlannedWith | None  # None where its calls are not planned, or what it would free is worked out already


@dataclass(slots=True)
class SessionBill:
    """The dollars that a session has cost, up to an event of the log; None once a price was not known."""

    seq: int = 0
    dollars: float | None = 0.0
    models: dict[int, str] = field(default_factory=dict)  # of each branch's latest call

    def read(self, store: Store, session: str, price: Price) -> None:
        """Add what is new in the log."""
        for row in store.events(session, self.seq):
            self.seq, event = row.seq, row.event
            if isinstance(event, CallReceived):
                self.models[event.branch] = event.model
            elif isinstance(event, LegFinished | AnswerFinished | Warmed) and event.usage is not None:
                cost = price(self.models.get(event.branch, ""), event.usage)
                self.dollars = None if cost is None or self.dollars is None else self.dollars + cost


@dataclass(slots=True)
class LiveSession:
    """A session with calls since the proxy was started."""

    id: str
    key: str
    agent: str
    seen: float
    under_way: dict[CallAddress, float] = field(default_factory=dict)  # the start of each call's latest request
    branches: dict[tuple[str, str], LiveBranch] = field(default_factory=dict)  # the latest of a lane and a model
    bill: SessionBill = field(default_factory=SessionBill)
    changed: float = 0.0  # by a clock that only goes forward: when something last happened, and
    read: float = 0.0  # when its bill was last read

    @property
    def main(self) -> LiveBranch | None:
        """The branch in use with the longest prompt, one of the agent itself rather than of its sub-agents."""
        latest = max((one.prompt.read_at for one in self.branches.values()), default=0.0)
        used = [one for one in self.branches.values() if latest - one.prompt.read_at <= HOUR]
        return max(used, key=lambda one: (not one.lane, one.usage.input), default=None)


class LiveSessions:
    """The sessions with calls since the proxy was started, the most recent last."""

    def __init__(
        self,
        models: Models,
        fail_open: FailOpen,
        price: Price | None = None,
        *,
        trusts_clock: bool = False,
    ) -> None:
        self._models = models
        self._fail_open = fail_open
        self._price = price
        self._trusts_clock = trusts_clock
        self._sessions: OrderedDict[str, LiveSession] = OrderedDict()

    # ---------------------------------------------------------------- what happens

    def happened(self, placed: PlacedCall, events: Sequence[Event]) -> None:
        """Take in what happened in a call."""
        session = self._session(placed)
        session.changed = monotonic()
        for event in events:
            match event:
                case CallReceived():
                    session.seen = max(session.seen, placed.incoming.at)
                    session.under_way[placed.address] = placed.incoming.at
                case LegFinished() if placed.address in session.under_way:
                    session.under_way[placed.address] = time_of(placed.incoming.headers, trusted=self._trusts_clock)
                case AnswerFinished():
                    self._answered(session, placed, event)
                case AttemptFailed():
                    session.under_way.pop(placed.address, None)
                case Warmed():
                    for branch in session.branches.values():
                        if branch.where == CallAddress.of(event):
                            branch.prompt = replace(branch.prompt, read_at=event.at)

    def _session(self, placed: PlacedCall) -> LiveSession:
        found = placed.session
        session = self._sessions.get(found.id)
        if session is None:
            key = placed.history.key
            made = LiveSession(found.id, key.value if key else "", found.harness, placed.incoming.at)
            session = self._sessions[found.id] = made
        self._sessions.move_to_end(found.id)
        while len(self._sessions) > MOST:
            self._sessions.popitem(last=False)
        return session

    def _answered(self, session: LiveSession, placed: PlacedCall, answer: AnswerFinished) -> None:
        began, usage = session.under_way.pop(placed.address, placed.incoming.at), answer.usage
        if usage is None:
            return
        incoming, paged = placed.incoming, placed.paged
        model, size = incoming.request.model, len(incoming.request.body)
        if paged is not None:
            terms, held = paged.terms, paged.table.evidence.held
            least, by_marks = terms.cacheable, terms.by_marks
            prompt = cached_prompt(usage, terms.prices, began, by_marks=by_marks, least=least, held=held)
            planned = PlannedWith(paged.rule.policy, paged.outside, terms)
        else:
            least, by_marks = self._models.cache(model).minimum, incoming.dialect.marks_cache
            prompt = cached_prompt(usage, self._models.prices(model), began, by_marks=by_marks, least=least)
            planned = None
        before = round(usage.input * size / answer.sent_size) if answer.sent_size else usage.input
        lane = placed.placement.branch.lane
        branch = LiveBranch(placed.address, lane, model, usage, before, prompt, planned)
        session.branches[lane, model] = branch

    # ---------------------------------------------------------------- what is asked

    def recent(self, now: float) -> list[LiveSession]:
        """The sessions with a call not long ago, the most recent first."""
        return [one for one in reversed(self._sessions.values()) if one.under_way or now - one.seen <= RECENT]

    def read_bills(self, store: Store, sessions: Sequence[LiveSession]) -> None:
        """Add up what these sessions have cost, by the log; takes a while, and touches nothing else of them."""
        for session in sessions:
            if self._price is None or session.read > session.changed + SETTLED:
                continue
            session.read = monotonic()
            try:
                session.bill.read(store, session.id, self._price)
            except StoreError:  # other commands say what is wrong with the log
                session.bill.dollars = None

    def described(
        self, sessions: Sequence[LiveSession], hot: HotSessions, keeper: Keeper | None
    ) -> Iterator[dict[str, Any]]:
        """Each session in plain values; one may take some milliseconds."""
        for session in sessions:
            branch = session.main
            if branch is None:
                continue
            state = self._warmth(session, branch, hot)
            price = self._models.find(branch.model).input
            more = state.costs_more * price / 1e6 if price else None
            yield {
                "session": session.id,
                "key": session.key,
                "agent": session.agent,
                "model": branch.model,
                "seen": session.seen,
                "under_way": len(session.under_way),
                "before": branch.before,
                "after": branch.usage.input,
                "cached": branch.usage.cached,
                "dollars": session.bill.dollars if self._price is not None else None,
                "cold_at": state.cold_at,
                "costs_more": round(state.costs_more, 1),
                "dollars_more": more,
                "kept_until": keeper.warm_until(session.id, branch.lane, branch.model) if keeper else None,
            }

    def _warmth(self, session: LiveSession, branch: LiveBranch, hot: HotSessions) -> Warmth:
        """The state of a branch's prompt; what it would free is asked of the policy once, while no call changes it."""
        planned = branch.planned
        if planned is not None and not hot.is_claimed(session.id):
            branch.planned = None
            known = hot.registry.get(session.id)
            table = known.pages.tables.get(branch.where.branch) if known is not None else None
            if table is not None and (table.call, table.attempt) == branch.where[1:]:
                with self._fail_open():
                    freed = freed_when_cold(planned.policy, table, planned.outside, planned.terms)
                    branch.prompt = replace(branch.prompt, freed=freed)
        return warmth(branch.prompt)
