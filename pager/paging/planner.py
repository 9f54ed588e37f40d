"""Decides what leaves a prompt: asks the policy, enforces the rules, prices the outcome.

A policy sees numbers and proposes; what it proposes is carried out whole or, if it breaks a rule, not at all. Where a
prompt does not fit the model's window, nobody is asked: pages go until it fits, the least useful first, at the last
even those that the rules protect.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from pager.log.events import RepackCause
from pager.paging.credit import SESSION_SHARE
from pager.paging.pages.page import GRACE, Page, is_failing, is_reused, pin_holds
from pager.paging.pages.page_arrays import Columns, LazyPages, columns
from pager.paging.pages.page_table import PageTable
from pager.paging.policy import Decision, Policy, View
from pager.paging.priors import SHIPPED, Experience
from pager.paging.warmth.keep_warm import Resting
from pager.paging.warmth.returns import WaitsFor, counted_alive, usual_multiple
from pager.pricing.prices import TOOL, Prices
from pager.pricing.token_scale import Yardstick
from pager.pricing.tokens import BYTES_A_TOKEN

if TYPE_CHECKING:
    from pager.paging.pages.page_arrays import Flags, Numbers

FILLED_AFTER_RESCUE = 0.7
"""The share of the window that a rescue leaves filled, so that not every later call needs another one."""

READY_SHARE = 0.015
"""The share of a branch's first prompt that our tool may have to be in it from the beginning."""

LONG_READY_SHARE = 0.05
"""The same for client programs whose branches have ``LONG`` calls and more: their prompts grow."""

LONG = 60
USUAL = 30
"""Calls that a branch is taken to have where nothing is known of its client program."""

COMPACTED_AT = 0.8
"""The share of the window at which clients write a summary and begin anew: no repack counts for longer."""

REFRESH_PART = 0.8
"""The part of a session's credit that refreshes may spend: pages may still be asked for when it is spent."""

CLIENTS_WINDOW = 200_000
"""Tokens that clients let a prompt have at most, unless they are told otherwise, whatever the model would take."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a call is planned under.

    ``bound`` if thinking in the prompt holds only while nothing before it changes; a prompt of fewer than ``cacheable``
    tokens is never cached. ``experience`` is what other sessions have taught, also of this ``tenant`` and ``harness``.
    A new page stays for ``grace`` calls. ``by_marks``: the provider finds only what ends at a cache mark.
    """

    prices: Prices
    window: int
    reserve: int
    bound: bool = False
    cacheable: int = 0
    experience: Experience = SHIPPED
    tenant: str = ""
    harness: str = ""
    grace: int = GRACE
    by_marks: bool = False
    credit: float | None = None  # what the user's account lends the session; None where it must pay for itself
    session_share: float = SESSION_SHARE  # of what it has cost so far may be spent of that


class Plan(NamedTuple):
    """What becomes of a prompt at one call.

    ``pages`` go; ``rejected`` says which rule a policy's proposal broke. ``saved`` are the tokens that each call from
    now on is shorter by, ``rewritten`` those that the provider reads again, ``price`` what that costs. ``anchors`` are
    the prefixes, by their number of slots, that cache marks of ours should end, the most useful first.
    """

    cause: RepackCause | Literal[""] = ""  # empty where nothing changes
    reason: str = ""
    pages: tuple[Page, ...] = ()
    rejected: str = ""
    warm: bool = False
    saved: int = 0
    rewritten: int = 0
    price: float = 0.0
    anchors: tuple[int, ...] = ()
    lent: float = 0.0  # the part of the price that is beyond what the session has saved


def view(table: PageTable, outside: int, terms: Terms) -> View:
    """What a policy sees of the branch at its latest call; ``outside`` bytes of the prompt are outside of its items."""
    warm, account = is_warm(table, terms), table.account
    shown, total = _columns(table, outside, terms, warm=warm)
    own, before = account.unsettled, account.settled
    lost = min(0.0, before.account.net(terms.prices)) if before is not None else 0.0
    usable = max(0.0, terms.session_share * account.cost(terms.prices) + lost)
    return View(
        table.call,
        terms.prices,
        warm,
        terms.window,
        terms.reserve,
        total,
        LazyPages(table.pages, shown),
        table.facts,
        colds=sum(gap > terms.prices.ttl_seconds for gap in table.gaps),
        saved=own.saved(terms.prices) + own.rescued,
        spent=own.spent(terms.prices) + own.refreshes,
        credit=0.0 if terms.credit is None else min(terms.credit, usable),
        tool_added=bool(table.tool),
        to_go=terms.experience.to_go(terms.harness, table.call),
    )


def _columns(table: PageTable, outside: int, terms: Terms, *, warm: bool) -> tuple[Columns, int]:
    """The pages in numbers, and the tokens of the prompt as it would go out now, stubs in place."""
    it, call = table.numbers, table.call
    it.sync(table.pages, table.slots)
    measure, evicted, born, used = table.yardstick, it["evicted"] > 0, it["born"], it["used"]
    tokens, stub_tokens = _measured(it["tokens"], measure), _measured(it["stub_tokens"], measure)
    stands = np.where(evicted, stub_tokens, tokens)
    gained = np.cumsum(tokens - stands)
    starts = measure.scale * (outside + it.starts) / BYTES_A_TOKEN
    total = max(0, round(starts[-1] - (gained[-1] if len(gained) else 0)))
    before = np.maximum(0, np.rint(starts[it["slot"].astype(np.intp)] - gained + tokens - stands))
    made = np.bincount(it.tools)
    reused = np.bincount(it.tools, weights=is_reused(it["faults"], used - born))
    shown = Columns(
        tokens,
        stub_tokens,
        it["size"],
        before,
        np.maximum(0, total - before - stands),
        call - born,
        call - used,
        it["uses"],
        it["faults"],
        it["superseded"] > 0,
        _pinned(table, terms),
        (born < call) & warm,
        ~evicted,
        it["is_argument"] > 0,
        it.tools,
        made[it.tools].astype(float),
        reused[it.tools].astype(float),
        _usual(table, terms),
        _found(table, starts, gained, before) if terms.by_marks and warm else before,
    )
    return shown, total


def _found(table: PageTable, starts: "Numbers", gained: "Numbers", before: "Numbers") -> "Numbers":
    """The tokens that a provider which caches at marks would still find, if each page were the first to go.

    ``starts`` are the tokens before each slot, ``gained`` those that stubs spare up to the end of each page.
    """
    marks = table.sent_marks()
    held = table.held.alive(table.at) if table.free_marks else table.held.findable(table.at, marks, table.positions)
    if not held:
        return np.zeros_like(before)
    slots, prefixes = table.numbers["slot"], np.array(held)
    spared = np.concatenate([[0.0], gained])[np.searchsorted(slots, prefixes)]
    tokens = np.concatenate([[0.0], np.maximum(0.0, starts[np.minimum(prefixes, len(starts) - 1)] - spared)])
    found: Numbers = np.rint(np.minimum(before, tokens[np.searchsorted(prefixes, slots, side="right")]))
    return found


def _measured(tokens: "Numbers", measure: Yardstick) -> "Numbers":
    """Our own tokens as the provider counts them."""
    if measure.scale == 1.0:
        return tokens
    found: Numbers = np.rint(measure.scale * tokens)
    found.flags.writeable = False
    return found


def _usual(table: PageTable, terms: Terms) -> "Numbers":
    """How often pages of each one's tool and kind are needed again, as other sessions have taught."""
    it, known, harness = table.numbers, terms.experience, terms.harness
    results = np.array([known.usual(harness, tool, argument=False) for tool in it.tool_names])
    arguments = np.array([known.usual(harness, tool, argument=True) for tool in it.tool_names])
    usual: Numbers = np.where(it["is_argument"] > 0, arguments[it.tools], results[it.tools])
    return usual


def _pinned(table: PageTable, terms: Terms) -> "Flags":
    """Which pages must stay: the newest, those bound by thinking behind them, and those held by a fault or an error."""
    it, call = table.numbers, table.call
    age = call - it["born"]
    pinned: Flags = (age < terms.grace) | is_failing(it["is_error"] > 0, age)
    pinned |= pin_holds(it["pin"], call - it["pinned_at"])
    return pinned | (it["slot"] <= _bound_to(table)) if terms.bound else pinned


def propose(policy: Policy, table: PageTable, outside: int, terms: Terms) -> Plan:
    """What the policy wants to go, if the rules allow it."""
    seen = view(table, outside, terms)
    if not columns(seen.pages).evictable.any():
        return Plan(reason="no page may go", anchors=_anchors(table, terms))
    decision = policy.choose(seen)
    plan = _allowed(decision, table, seen)
    if not (terms.by_marks and seen.warm and table.free_marks and table.tool):
        return plan._replace(anchors=_anchors(table, terms, plan))
    # As if a mark stood before every page: where the policy would cut then, a mark of ours is set.
    it = columns(seen.pages)
    wished = policy.choose(replace(seen, pages=LazyPages(table.pages, replace(it, found=it.before))))
    wish, cut = _allowed(wished, table, seen), _slot_of(wished.cut, table)
    waiting = seen.prices.read * (_dearer(seen) * seen.tokens - _dearer(seen, wish.saved) * (seen.tokens - wish.saved))
    if plan.pages and wish.pages and not decision.urgent and plan.price - _ideal(wish, seen) > waiting:
        reason = f"{plan.reason}; waits a call for a mark before the first page"
        return Plan(reason=reason, anchors=_anchors(table, terms, cut=wish.pages[0].slot))
    return plan._replace(anchors=_anchors(table, terms, plan, wish.pages[0].slot if wish.pages else cut))


def resting(policy: Policy, table: PageTable, outside: int, terms: Terms, waits_for: WaitsFor) -> Resting:
    """The branch after the answer to its latest call: what it has cached, and what the policy would evict when cold."""
    seen = replace(view(table, outside, terms), warm=False)
    freed = _allowed(policy.choose(seen), table, seen).saved if columns(seen.pages).evictable.any() else 0
    between = (seen.call + 8) / (seen.colds + 0.5)
    left = float(seen.call) if seen.to_go is None else seen.to_go
    room = COMPACTED_AT * min(terms.window, CLIENTS_WINDOW) - seen.tokens
    left = min(left, max(0.0, room) / max(1.0, seen.tokens / max(1, seen.call)))
    lent = terms.session_share * table.account.cost(terms.prices) if terms.credit is None else seen.credit
    budget = max(0.0, seen.saved - seen.spent + REFRESH_PART * lent)
    returns = usual_multiple(waits_for, seen.tokens, seen.call) * counted_alive(table.pauses).multiple
    returns *= terms.experience.returns(terms.tenant, terms.harness, waits_for)
    return Resting(seen.tokens, seen.tokens - freed, waits_for, min(left, between), terms.prices, budget, returns)


def _allowed(decision: Decision, table: PageTable, seen: View) -> Plan:
    """A policy's decision as a plan with its price; without pages if there are none, or they break a rule."""
    if not decision.evict:
        return Plan(reason=decision.reason)
    broken = _broken_rule(decision, table, seen)
    if broken:
        return Plan(reason=decision.reason, rejected=broken)
    chosen = sorted((table.known[name] for name in decision.evict), key=lambda page: page.row)
    return _priced(RepackCause.POLICY, decision.reason, chosen, table, seen)


def _slot_of(position: int | None, table: PageTable) -> int | None:
    """The slot of the page at this position; None where there is no such page."""
    return table.pages[position].slot if position is not None and 0 <= position < len(table.pages) else None


def _ideal(wish: Plan, seen: View) -> float:
    """What a plan would cost if a mark stood right before its first page."""
    it, first = columns(seen.pages), wish.pages[0].row
    behind = float(it.tokens[first] + it.after[first]) - wish.saved
    return _dearer(seen, wish.saved) * max(0.0, behind) * (seen.prices.write - seen.prices.read)


def _dearer(seen: View, saved: int = 0) -> float:
    """How many times as much the prompt's tokens cost for its length, once this many are gone."""
    return seen.prices.factors(seen.tokens - saved)[0]


NO_PLAN = Plan()


def _anchors(table: PageTable, terms: Terms, plan: Plan = NO_PLAN, cut: int | None = None) -> tuple[int, ...]:
    """The prefixes that marks of ours should end, as many as the client leaves free, less one for hidden legs.

    First what this request needs to find: the longest prefix before a repack, or what the client's own marks do not
    reach any more. Then the slots before ``cut``, where a later repack would begin. Then those kept alive so far.
    """
    if not terms.by_marks or not table.free_marks:
        return ()
    held, end = table.held.alive(table.at), len(table.slots)
    wanted: list[int] = []
    if plan.pages:
        wanted += [count for count in held if count <= plan.pages[0].slot][-1:]
    elif held and held[-1] not in table.held.findable(table.at, table.client_prefixes, table.positions):
        wanted.append(held[-1])
    if cut is not None:
        wanted.append(cut)
    wanted += table.anchors
    usable = (_markable(table, count) for count in wanted if count <= end)
    own = set(table.client_prefixes)
    distinct = [count for count in dict.fromkeys(usable) if count > 0 and count not in own]
    return tuple(distinct[: max(1, table.free_marks - 1)])


def _markable(table: PageTable, prefix: int) -> int:
    """The longest prefix, of at most this one, whose last item can carry a mark."""
    while prefix > 0 and not table.slots[prefix - 1].markable:
        prefix -= 1
    return prefix


def unasked(table: PageTable, names: Collection[str], terms: Terms) -> Plan:
    """What must change though no policy wants it, in a request whose client has tools of these names."""
    if table.tool and table.tool in names:
        return Plan(RepackCause.CLIENT, "the client now has a tool of the added tool's name")
    if table.changed and not table.tool:
        return Plan(RepackCause.RESCUE, "a call that could not carry the tool was evicted before")
    return _made_ready(table, terms)


def _made_ready(table: PageTable, terms: Terms) -> Plan:
    """Our tool in the first prompt of a branch, where the user's account can pay for it; else nothing.

    Later it could only be added by writing the whole prompt again, for which a session that never pauses has no money.
    """
    prices, calls = terms.prices, terms.experience.calls(terms.harness)
    if terms.credit is None or table.call > 1 or table.tool or prices.read >= prices.write:
        return NO_PLAN
    share = LONG_READY_SHARE if calls is not None and calls >= LONG else READY_SHARE
    price = TOOL * (prices.write + prices.read * (USUAL if calls is None else calls))
    left = terms.credit + table.account.unsettled.net(prices)
    if share * table.prompt < TOOL or price > left:
        return NO_PLAN
    reason = f"{TOOL} tokens in a first prompt of {table.prompt}, {price:.0f} of a credit of {left:.0f}"
    return Plan(RepackCause.READY, reason, price=TOOL * prices.write)


def rescue(table: PageTable, outside: int, terms: Terms, excess: int) -> Plan:
    """Pages that free ``excess`` tokens, or all there are: dead ones first, then the oldest, protected ones last."""
    seen = view(table, outside, terms)
    resident = [(page, one) for page, one in zip(table.pages, seen.pages, strict=True) if one.resident]
    resident.sort(key=lambda pair: (pair[1].pinned, not pair[0].superseded, pair[0].slot))
    gone, freed = [], 0
    for page, one in resident:
        if freed >= excess:
            break
        if one.tokens > one.stub_tokens:
            gone.append(page)
            freed += one.tokens - one.stub_tokens
    gone.sort(key=lambda page: page.row)
    reason = f"{excess} tokens too many for a window of {terms.window}; {len(gone)} pages go and free {freed}"
    return _priced(RepackCause.RESCUE, reason, gone, table, seen) if gone else Plan(RepackCause.RESCUE, reason)


def _priced(cause: RepackCause, reason: str, gone: list[Page], table: PageTable, seen: View) -> Plan:
    """A plan with its price: tokens behind what the provider still finds are written again; all, without the tool."""
    it, first = columns(seen.pages), gone[0].row
    saved = sum([int(it.tokens[page.row] - it.stub_tokens[page.row]) for page in gone])
    behind = it.tokens[first] + it.after[first] + it.before[first] - it.found[first]
    left = max(0, (int(behind) if table.tool else seen.tokens) - saved)
    price = _dearer(seen, saved) * left * (seen.prices.write - seen.prices.read) if seen.warm else 0.0
    lent = min(seen.credit, max(0.0, price - max(0.0, seen.saved - seen.spent)))
    return Plan(cause, reason, tuple(gone), "", seen.warm, saved, left, round(price, 1), lent=round(lent, 1))


def is_warm(table: PageTable, terms: Terms) -> bool:
    """Whether the provider still holds the prefix: it was long enough, and is not older than the provider keeps it."""
    return table.call > 1 and table.idle <= terms.prices.ttl_seconds > 0 and table.before >= terms.cacheable


def _bound_to(table: PageTable) -> int:
    """The last slot before which nothing may change; any, as long as the tool would have to be added as well."""
    last = next((at for at in range(len(table.slots) - 1, -1, -1) if table.slots[at].reasoning), -1)
    return last if last < 0 or table.tool else len(table.slots)


def _broken_rule(decision: Decision, table: PageTable, seen: View) -> str:
    """Which rule the decision breaks; empty if none."""
    unknown = [name for name in decision.evict if name not in table.known]
    if unknown:
        return f"{unknown[0]} is not in the prompt"
    rows, it = np.array([table.known[name].row for name in decision.evict]), columns(seen.pages)
    wrong = {
        "is evicted already": ~it.resident,
        "is pinned": it.pinned,
        "is no larger than its stub": it.tokens <= it.stub_tokens,
    }
    for words, where in wrong.items():
        broken = np.flatnonzero(where[rows])
        if broken.size:
            return f"{decision.evict[broken[0]]} {words}"
    return "" if len(set(decision.evict)) == len(decision.evict) else "a page is named twice"
