"""Says why each page stayed or went at one call: weighs them again, on the page table as it was before the decision.

The log has the decision, not the numbers behind it. But it has all that the decision came from, so the table is rebuilt
up to the call, the policy is asked once more, and its answer is compared with the logged decision. Prices, windows and
the policy's options are those in force now, as the log does not have them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from instrumentation.accounting.call_addresses import find_call, meant
from instrumentation.accounting.logged_prompts import client_calls
from instrumentation.accounting.page_verdicts import PageJudge, PageVerdict
from instrumentation.accounting.story import MissStory, Story
from instrumentation.accounting.tool_log import LogContents
from instrumentation.accounting.tool_use import Tooling, tooling
from pager.errors import ConfigError, NotUnderstood, StoreCorrupt
from pager.log.bypass_reasons import NOT_PLANNED
from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    Bypassed,
    CallReceived,
    LegFinished,
    RepackCause,
    Repacked,
    ToolsDecided,
)
from pager.log.store import Store, Stored
from pager.paging import planner
from pager.paging.conditions import Caller, lent, terms_of, tool_slot_of
from pager.paging.pages.page_table import PageTable
from pager.paging.planner import Plan, Terms
from pager.paging.planning_rules import PlanningRules
from pager.paging.policy import Policy, View, Weighed
from pager.paging.policy_choice import UNCHANGED, policy_of_arm
from pager.paging.policy_loader import load_policy
from pager.paging.priors import SHIPPED, Experience, recalled
from pager.pricing.prices import Prices
from pager.request_values import CallAddress, Request, Usage
from pager.sessions.lineage import Session
from pager.sessions.rebuild import Rebuilder
from pager.wire.dialect import Dialect

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class Logged:
    """The logged decisions on the call, and why it went out in full; ``usage`` is None where it has no answer."""

    repacks: Sequence[Repacked]
    bypasses: Sequence[Bypassed]
    page_ins: int
    usage: Usage | None

    @property
    def gone(self) -> dict[str, str]:
        """The pages that went at this call, with the cause."""
        return {one.page: event.cause for event in self.repacks for one in event.pages}


@dataclass(frozen=True, slots=True)
class Weighing:
    """The policy's decision on the call as of now.

    ``unplanned`` says why it was not asked then, ``differs`` how the logged decision was another; both may be empty.
    """

    policy: str
    chosen_by: str
    reason: str
    rejected: str
    pages: Sequence[str]
    saved: int
    rewritten: int
    price: float
    unplanned: str
    differs: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """One attempt at a call, as it was before the decision on its pages.

    ``warmth`` says why the cache was taken to be warm or cold, ``to_go`` the calls that were expected to follow, with
    ``guess`` for where that is from. ``tools`` is what held for the client's tools, if anything was decided of them.
    ``miss`` is what the provider's cache did not hold; None where it missed nothing, or the story is not known.
    """

    session: str
    harness: str
    arm: str
    branch: int
    call: int
    attempt: int
    attempts: int
    at: float
    model: str
    tokens: int
    window: int
    reserve: int
    warm: bool
    warmth: str
    idle: float
    prices: Prices
    dollars: float | None  # the price of an uncached input token in US dollars, None where it is not known
    to_go: float | None
    guess: str
    learned: str
    colds: int
    saved: float
    spent: float
    credit: float  # what the user's account let it spend beyond that by then
    lent: float | None  # what the account lends the session in all; None where it pays for itself
    tool: str
    tools: Tooling | None
    logged: Logged
    weighing: Weighing
    rows: Sequence[PageVerdict]
    miss: MissStory | None = None


@dataclass(frozen=True, slots=True)
class _ExplainedCall:
    """A call with all that it was decided from."""

    name: str
    log: Sequence[Stored]
    end: int
    where: CallAddress
    session: Session
    table: PageTable
    request: Request
    dialect: Dialect
    logged: Logged


def explain(
    store: Store,
    session: str,
    call: str,
    rules: PlanningRules,
    load_dialect: Callable[[str], Dialect],
    instead: str = "",
    told: Story | None = None,
) -> Explanation:
    """Why each page stayed or went at a call of a session, both as a user names them; raises ConfigError.

    ``instead`` is a policy to weigh under, whatever was in force then; empty for the one that was. ``told`` is the
    session's story, which says whether the call missed the cache.
    """
    case, source = _case(store, meant(store, session), call, load_dialect), LogContents(store.blob, load_dialect)
    known, learned = _experience(store, case.session.learned)
    caller, models = Caller(case.session.tenant, case.session.harness), rules.rates()
    terms = terms_of(case.request, case.table, models, known, caller=caller, marks=rules.cache_marks, grace=rules.grace)
    terms = lent(terms, case.session.pages.credit, rules.credit, models.dollars(case.request.model))
    named, chosen_by = (instead, "as asked for now") if instead else _policy_name(case, rules.policy)
    policy = load_policy(named, rules.options_of(named))
    _decide_tools(case, source)
    outside = case.request.outside - case.table.freed
    seen = planner.view(case.table, outside, terms)
    unplanned = _unplanned(case, named)
    plan = planner.propose(policy, case.table, outside, terms)
    differs = "" if unplanned or instead else _difference(case.logged, plan)
    to_go, guess = _to_go(policy, seen)
    table, where, price = case.table, case.where, models.find(case.request.model).input
    judge = PageJudge(table, plan, case.logged.gone, _evicted_at(case), unplanned, terms.grace)
    return Explanation(
        session=case.name,
        harness=case.session.harness,
        arm=case.session.arm,
        **where._asdict(),
        attempts=sum(CallAddress.of(call)[:2] == where[:2] for call in _events(case.log, CallReceived)),
        at=case.log[case.end].at,
        model=case.request.model,
        tokens=seen.tokens,
        window=terms.window,
        reserve=terms.reserve,
        warm=seen.warm,
        warmth=_warmth(table, terms),
        idle=table.idle,
        prices=terms.prices,
        dollars=price / 1e6 if price else None,
        to_go=to_go,
        guess=guess,
        learned=learned,
        colds=seen.colds,
        saved=seen.saved,
        spent=seen.spent,
        credit=seen.credit,
        lent=terms.credit,
        tool=table.tool,
        tools=tooling(case.log, where, source),
        logged=case.logged,
        weighing=Weighing(
            policy=named,
            chosen_by=chosen_by,
            reason=plan.reason,
            rejected=plan.rejected,
            pages=[page.name for page in plan.pages],
            saved=plan.saved,
            rewritten=plan.rewritten,
            price=plan.price,
            unplanned=unplanned,
            differs=differs,
        ),
        rows=judge.verdicts(seen, _weighed(policy, seen)),
        miss=next((one.miss for one in told.calls if CallAddress.of(one) == where), None) if told else None,
    )


# ---------------------------------------------------------------- the call as it was


def _case(store: Store, name: str, call: str, load_dialect: Callable[[str], Dialect]) -> _ExplainedCall:
    log = list(store.events(name))
    where = find_call(log, call)
    spot = next(one for one in client_calls(log) if CallAddress.of(one.call) == where)
    end = next(at for at, row in enumerate(log) if row.seq == spot.seq)
    dialect = load_dialect(spot.call.dialect)
    try:
        request = dialect.parse(spot.body(store.blob))
    except NotUnderstood as error:
        raise ConfigError(f"call {call}: its request could not be read, and went out as it came: {error}") from error
    session = Rebuilder(load_dialect, store.blob).session(name, log[: end + 1])
    table = session.pages.tables.get(where.branch)
    if table is None or (table.call, table.attempt) != where[1:]:
        raise ConfigError(f"call {call}: its messages can't be told apart, so that nothing of it can be paged")
    return _ExplainedCall(name, log, end, where, session, table, request, dialect, _logged(log, where))


def _logged(log: Sequence[Stored], where: CallAddress) -> Logged:
    """What was logged of one attempt; a bypass is logged with its call alone."""
    answers = [event for event in _events(log, AnswerFinished) if CallAddress.of(event) == where]
    return Logged(
        [event for event in _events(log, Repacked) if CallAddress.of(event) == where],
        [event for event in _events(log, Bypassed) if (event.branch, event.call) == where[:2]],
        sum(bool(event.pages) for event in _events(log, LegFinished) if CallAddress.of(event) == where),
        answers[0].usage if answers else None,
    )


def _events(log: Iterable[Stored], kind: type[_Kind]) -> Iterator[_Kind]:
    """The events of one kind."""
    return (row.event for row in log if isinstance(row.event, kind))


def _decide_tools(case: _ExplainedCall, source: LogContents) -> None:
    """Apply the decision on tools at this call: it comes before anything is weighed."""
    for event in _events(case.log, ToolsDecided):
        if CallAddress.of(event) == case.where:
            case.table.apply(event, source.decision(event).decided)


def _evicted_at(case: _ExplainedCall) -> dict[str, int]:
    """The call at which each page went that had gone before, by the page's name; a fork begins with what had gone."""
    at: dict[int, dict[str, int]] = {}
    for row in case.log[: case.end]:
        match row.event:
            case BranchOpened(branch=number, parent=parent):
                at[number] = dict(at.get(parent, {})) if parent is not None else {}
            case Repacked(branch=number) as event:
                at.setdefault(number, {}).update({one.page: event.call for one in event.pages})
            case _:
                pass
    return at.get(case.where.branch, {})


# ---------------------------------------------------------------- what it was decided under


def _experience(store: Store, version: str) -> tuple[Experience, str]:
    """What the session went by of what was learned, and what that was in words."""
    if not version:
        return SHIPPED, "what is shipped"
    try:
        return recalled(version, store.blob), f"version {version[:12]}"
    except StoreCorrupt as error:
        return SHIPPED, f"what is shipped: {error}"


def _policy_name(case: _ExplainedCall, configured: str) -> tuple[str, str]:
    """The policy that was in force, or the one that is now; and how it is known."""
    here = next((event.policy for event in case.logged.repacks if event.policy), "")
    if here:
        return here, "logged with this call"
    if case.session.arm:
        return policy_of_arm(case.session.arm), "the session's arm"
    other = next((event for event in _events(case.log, Repacked) if event.policy), None)
    if other is not None:
        return other.policy, f"logged with call {other.branch}:{other.call} of the session"
    return configured, "configured now; the log does not say which one was then"


def _unplanned(case: _ExplainedCall, policy: str) -> str:
    """Why nobody was asked what to evict at this call; empty if somebody was."""
    if policy == UNCHANGED:
        return f"{UNCHANGED} changes nothing"
    for event in case.logged.bypasses:
        if event.reason in NOT_PLANNED:
            return f"{event.reason}: {event.detail}"
    if case.table.stopped:
        return f"paging has stopped in this branch: {case.table.stopped}"
    tool_slot = tool_slot_of(case.dialect, case.request)
    return f"it went out in full: {tool_slot}" if isinstance(tool_slot, str) else ""


def _warmth(table: PageTable, terms: Terms) -> str:
    """Why the provider is taken to hold the prefix, or not: the planner's rule, in words."""
    kept = terms.prices.ttl_seconds
    if table.call <= 1:
        return "it is the first call"
    if kept <= 0:
        return "nothing is cached under these prices"
    if table.idle > kept:
        return f"{table.idle:,.0f} s since the call before, and a prompt is kept for {kept:,.0f} s"
    if table.before < terms.cacheable:
        return f"the prompt before had {table.before:,} tokens, and fewer than {terms.cacheable:,} are not cached"
    return f"{table.idle:,.0f} s since the call before, and a prompt is kept for {kept:,.0f} s"


def _to_go(policy: Policy, seen: View) -> tuple[float | None, str]:
    """The calls that are expected to follow, and where that is from."""
    if seen.to_go is not None:
        return seen.to_go, "as sessions of this harness had"
    horizon = getattr(policy, "horizon", None)
    if isinstance(horizon, int | float):
        return max(1.0, horizon * seen.call), f"{horizon:g} times those so far, as nothing is known of such sessions"
    return None, "nothing is known of such sessions"


# ---------------------------------------------------------------- what the policy says of it


def _weighed(policy: Policy, seen: View) -> Sequence[Weighed] | None:
    """What the policy makes of each page; None if it does not say."""
    explains = getattr(policy, "explain", None)
    if not callable(explains):
        return None
    weighed: Sequence[Weighed] = explains(seen)
    return weighed


def _difference(logged: Logged, plan: Plan) -> str:
    """How the decision is another one now; empty if it is the same."""
    then = next((event for event in logged.repacks if event.cause == RepackCause.POLICY), None)
    before, now = {one.page for one in then.pages} if then else set(), {page.name for page in plan.pages}
    if before != now:
        return f"{len(before)} pages went then, {len(now)} would go now, {len(before & now)} of them the same"
    if then is not None and (then.price, then.saved, then.warm) != (plan.price, plan.saved, plan.warm):
        return f"the same pages at another price: {then.price:,.1f} then, {plan.price:,.1f} now"
    return ""
