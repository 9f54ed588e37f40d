"""Decides what leaves a prompt: asks the policy, enforces the rules, prices the outcome.

A policy sees numbers and proposes; what it proposes is carried out whole or, if it breaks a rule, not at all. Where a
prompt does not fit the model's window, nobody is asked: pages go until it fits, the least useful first, at the last
even those that the rules protect.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pager.columns import Columns, Pages, columns
from pager.experience import SHIPPED, Experience
from pager.page import BYTES_A_TOKEN, ERROR_CALLS, GRACE, HELD, Page, left_of
from pager.policy import Decision, Policy, Prices, View
from pager.table import Table

if TYPE_CHECKING:
    from pager.columns import Flags, Numbers

ROOM = 0.7
"""The share of the window that a rescue leaves filled, so that not every later call needs another one."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a call is planned under.

    ``bound`` if thinking in the prompt holds only while nothing before it changes; a prompt of fewer than ``cacheable``
    tokens is never cached. ``experience`` is what other sessions, also of this ``harness``, have taught. A new page
    stays for ``grace`` calls.
    """

    prices: Prices
    window: int
    reserve: int
    bound: bool = False
    cacheable: int = 0
    experience: Experience = SHIPPED
    harness: str = ""
    grace: int = GRACE


class Plan(NamedTuple):
    """What becomes of a prompt at one call.

    ``pages`` go; ``rejected`` says which rule a policy's proposal broke. ``saved`` are the tokens that each call from
    now on is shorter by, ``rewritten`` those that the provider reads again, ``price`` what that costs.
    """

    cause: str = ""
    reason: str = ""
    pages: tuple[Page, ...] = ()
    rejected: str = ""
    warm: bool = False
    saved: int = 0
    rewritten: int = 0
    price: float = 0.0


def view(table: Table, outside: int, terms: Terms) -> View:
    """What a policy sees of the branch at its latest call; so many bytes of the prompt stand outside of its items."""
    warm = is_warm(table, terms)
    shown, total = _columns(table, outside, terms, warm=warm)
    return View(
        table.call,
        terms.prices,
        warm,
        terms.window,
        terms.reserve,
        total,
        Pages(table.pages, shown),
        table.facts,
        colds=sum(gap > terms.prices.ttl_seconds for gap in table.gaps),
        saved=table.account.saved(terms.prices),
        spent=table.account.spent(terms.prices),
        tool_added=bool(table.tool),
        to_go=terms.experience.to_go(terms.harness, table.call),
    )


def _columns(table: Table, outside: int, terms: Terms, *, warm: bool) -> tuple[Columns, int]:
    """The pages in numbers, and the tokens of the prompt as it would go out now, stubs in place."""
    it, call = table.numbers, table.call
    it.sync(table.pages, table.slots)
    tokens, evicted, born, used = it["tokens"], it["evicted"] > 0, it["born"], it["used"]
    stands = np.where(evicted, it["stub_tokens"], tokens)
    gained = np.cumsum(tokens - stands)
    starts = (outside + it.starts) / BYTES_A_TOKEN
    total = max(0, round(starts[-1] - (gained[-1] if len(gained) else 0)))
    before = np.maximum(0, np.rint(starts[it["slot"].astype(np.intp)] - gained + tokens - stands))
    made = np.bincount(it.tools)
    again = (it["faults"] > 0) | (used - born >= GRACE)
    reused = np.bincount(it.tools, weights=again)
    shown = Columns(
        tokens,
        it["stub_tokens"],
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
    )
    return shown, total


def _usual(table: Table, terms: Terms) -> "Numbers":
    """How often pages of each one's tool and kind are needed again, as other sessions have taught."""
    it, known, harness = table.numbers, terms.experience, terms.harness
    results = np.array([known.usual(harness, tool, argument=False) for tool in it.tool_names])
    arguments = np.array([known.usual(harness, tool, argument=True) for tool in it.tool_names])
    usual: Numbers = np.where(it["is_argument"] > 0, arguments[it.tools], results[it.tools])
    return usual


def _pinned(table: Table, terms: Terms) -> "Flags":
    """Which pages must stay: the newest, those bound by thinking behind them, and those held by a fault or an error."""
    it, call = table.numbers, table.call
    age = call - it["born"]
    pinned: Flags = (age < terms.grace) | ((it["is_error"] > 0) & (age < ERROR_CALLS))
    pinned |= (it["pin"] > 0) & (left_of(it["pin"], call - it["pinned_at"]) >= HELD)
    return pinned | (it["slot"] <= _bound_to(table)) if terms.bound else pinned


def propose(policy: Policy, table: Table, outside: int, terms: Terms) -> Plan:
    """What the policy wants to go, if the rules allow it."""
    seen = view(table, outside, terms)
    if not columns(seen.pages).evictable.any():
        return Plan(reason="no page may go")
    decision = policy.choose(seen)
    if not decision.evict:
        return Plan(reason=decision.reason)
    broken = _broken_rule(decision, table, seen)
    if broken:
        return Plan(reason=decision.reason, rejected=broken)
    chosen = sorted((table.known[name] for name in decision.evict), key=lambda page: page.row)
    return _priced("policy", decision.reason, chosen, table, seen)


def unasked(table: Table, names: Collection[str]) -> Plan:
    """What must change though no policy wants it, in a request whose client has tools of these names."""
    if table.tool and table.tool in names:
        return Plan("client", "the client now has a tool of the added tool's name")
    if table.changed and not table.tool:
        return Plan("rescue", "a call that could not carry the tool was evicted before")
    return Plan()


def rescue(table: Table, outside: int, terms: Terms, excess: int) -> Plan:
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
    return _priced("rescue", reason, gone, table, seen) if gone else Plan("rescue", reason)


def _priced(cause: str, reason: str, gone: list[Page], table: Table, seen: View) -> Plan:
    """A plan with what it costs: all that is left from the first page on is read again; all, where no tool is there."""
    it, first = columns(seen.pages), gone[0].row
    saved = sum([page.tokens - page.stub_tokens for page in gone])
    left = max(0, (int(it.tokens[first] + it.after[first]) if table.tool else seen.tokens) - saved)
    price = left * (seen.prices.write - seen.prices.read) if seen.warm else 0.0
    return Plan(cause, reason, tuple(gone), "", seen.warm, saved, left, round(price, 1))


def is_warm(table: Table, terms: Terms) -> bool:
    """Whether the provider still holds the prefix: it was long enough, and is not older than the provider keeps it."""
    return table.call > 1 and table.idle <= terms.prices.ttl_seconds > 0 and table.before >= terms.cacheable


def _bound_to(table: Table) -> int:
    """The last slot before which nothing may change; any, as long as the tool would have to be added as well."""
    last = next((at for at in range(len(table.slots) - 1, -1, -1) if table.slots[at].reasoning), -1)
    return last if last < 0 or table.tool else len(table.slots)


def _broken_rule(decision: Decision, table: Table, seen: View) -> str:
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
