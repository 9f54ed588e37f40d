"""Decides what leaves a prompt: asks the policy, enforces the rules, prices the outcome.

A policy sees numbers and proposes; what it proposes is carried out whole or, if it breaks a rule, not at all. Where a
prompt does not fit the model's window, nobody is asked: pages go until it fits, the least useful first, at the last
even those that the rules protect.
"""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from pager.page import BYTES_A_TOKEN, GRACE, Page, tokens_of
from pager.policy import Decision, PageView, Policy, Prices, View
from pager.table import Table

ROOM = 0.7
"""The share of the window that a rescue leaves filled, so that not every later call needs another one."""

BETWEEN = 1
"""Bytes between two items of a prompt."""

# Models whose thinking is valid only behind the prompt it was thought behind; documented as "preserved thinking".
_BINDS_THINKING = re.compile(r"claude-[a-z]+-(?:5[-.][1-9]|[6-9]|\d\d)")


@dataclass(frozen=True, slots=True)
class Terms:
    """What a call is planned under; ``bound`` if thinking in the prompt holds only while nothing before it changes."""

    prices: Prices
    window: int
    reserve: int
    bound: bool = False


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


def binds_thinking(model: str) -> bool:
    """Whether this model rejects thinking blocks when something before them has changed."""
    return _BINDS_THINKING.search(model.lower()) is not None


class Outlook(NamedTuple):
    """The prompt in numbers: the tokens that stand before each page, and in all, stubs in place."""

    before: list[int]
    total: int


def outlook(table: Table, outside: int) -> Outlook:
    """The prompt of a branch's latest call as it would go out now: so many bytes outside of its items, and those."""
    places = list(accumulate((slot.size + BETWEEN for slot in table.slots), initial=outside))
    before, gained = [], 0
    for page in table.pages:
        before.append(max(0, round(places[page.slot] / BYTES_A_TOKEN) - gained))
        if page.stub:
            gained += page.tokens - page.stub_tokens
    return Outlook(before, max(0, tokens_of(places[-1]) - gained))


def view(table: Table, outside: int, terms: Terms) -> View:
    """What a policy sees of the branch at its latest call."""
    prospect = outlook(table, outside)
    call, warm = table.call, _is_warm(table, terms)
    protected_to = _bound_to(table) if terms.bound else -1
    made = Counter([page.tool for page in table.pages])
    reused = Counter([page.tool for page in table.pages if page.reused])
    total = prospect.total
    pages = [
        PageView(  # by position, as there may be thousands
            page.name,
            page.kind,
            page.size,
            page.tokens,
            page.stub_tokens,
            position,
            before,
            max(0, total - before - (page.stub_tokens if page.stub else page.tokens)),
            call - page.born,
            call - page.used,
            page.uses,
            page.faults,
            page.superseded,
            call - page.born < GRACE or page.slot <= protected_to or page.pinned(call),
            warm and page.born < call,
            not page.stub,
            page.tool,
            made[page.tool],
            reused[page.tool],
        )
        for position, (page, before) in enumerate(zip(table.pages, prospect.before, strict=True))
    ]
    return View(
        call,
        terms.prices,
        warm,
        terms.window,
        terms.reserve,
        prospect.total,
        pages,
        table.facts,
        **_account(table, terms),
    )


def _account(table: Table, terms: Terms) -> dict[str, Any]:
    """What a policy is told of the branch so far."""
    return {
        "colds": sum(gap > terms.prices.ttl_seconds for gap in table.gaps),
        "saved": table.account.saved(terms.prices),
        "spent": table.account.spent(terms.prices),
        "tool_added": bool(table.tool),
    }


def propose(policy: Policy, table: Table, outside: int, terms: Terms) -> Plan:
    """What the policy wants to go, if the rules allow it."""
    seen = view(table, outside, terms)
    decision = policy.choose(seen)
    if not decision.evict:
        return Plan(reason=decision.reason)
    broken = _broken_rule(decision, seen)
    if broken:
        return Plan(reason=decision.reason, rejected=broken)
    wanted = set(decision.evict)
    chosen = [(page, one) for page, one in zip(table.pages, seen.pages, strict=True) if one.handle in wanted]
    return _priced("policy", decision.reason, chosen, table, seen)


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
            gone.append((page, one))
            freed += one.tokens - one.stub_tokens
    gone.sort(key=lambda pair: pair[1].position)
    reason = f"{excess} tokens too many for a window of {terms.window}; {len(gone)} pages go and free {freed}"
    return _priced("rescue", reason, gone, table, seen) if gone else Plan("rescue", reason)


def _priced(cause: str, reason: str, gone: list[tuple[Page, PageView]], table: Table, seen: View) -> Plan:
    """A plan with what it costs: all that is left from the first page on is read again; all, where no tool is there."""
    first = gone[0][1]
    saved = sum(one.tokens - one.stub_tokens for _, one in gone)
    left = max(0, (first.tokens + first.after if table.tool else seen.tokens) - saved)
    price = left * (seen.prices.write - seen.prices.read) if seen.warm else 0.0
    return Plan(cause, reason, tuple(page for page, _ in gone), "", seen.warm, saved, left, round(price, 1))


def _is_warm(table: Table, terms: Terms) -> bool:
    """Whether the provider still holds the prefix: the call before this one is not longer ago than it keeps it."""
    return table.call > 1 and table.idle <= terms.prices.ttl_seconds


def _bound_to(table: Table) -> int:
    """The last slot before which nothing may change; any, as long as the tool would have to be added as well."""
    last = next((at for at in range(len(table.slots) - 1, -1, -1) if table.slots[at].reasoning), -1)
    return last if last < 0 or table.tool else len(table.slots)


def _broken_rule(decision: Decision, seen: View) -> str:
    """Which rule the decision breaks; empty if none."""
    pages = {page.handle: page for page in seen.pages}
    for name in decision.evict:
        page = pages.get(name)
        if page is None:
            return f"{name} is not in the prompt"
        if not page.resident:
            return f"{name} is evicted already"
        if page.pinned:
            return f"{name} is pinned"
        if page.tokens <= page.stub_tokens:
            return f"{name} is no larger than its stub"
    return "" if len(set(decision.evict)) == len(decision.evict) else "a page is named twice"
