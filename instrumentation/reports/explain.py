"""Writes an explanation of a call down: in words and columns for people, as plain values for programs."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from instrumentation.accounting.explain import Explanation
from instrumentation.accounting.page_verdicts import PageVerdict
from instrumentation.accounting.tool_use import Tooling
from instrumentation.reports.labels import FORMS
from instrumentation.reports.table import clipped, columns, counted, dollars, folded, table
from pager.log.events import Repacked

HEAD = ("page", "of", "tokens", "age", "idle", "uses", "faults", "state")
WEIGHED = ("usual", "chance", "saving", "fault", "worth")
LEGEND = (
    "age, idle: calls since it came, and since it was last used; faults: times that it was fetched back",
    "usual: how often such pages are needed again, 1 on average; chance: that it is needed while the decision holds",
    "saving, fault, worth: what removing it saves, what fetching it back costs, and the expected gain",
    "warm: the provider still has the prompt in its cache; repack: a change of the prompt before its end",
    "* token-equivalents: units of one uncached input token; the policy's own reasons are in them, too",
)
"""What the columns and words mean."""

TOOLS = ("tool", "form", "full", "sent", "why")
ABOUT = 32
LEFT = (0, 1, 7)
FEW = 12
"""Tools up to which each has its line though nobody asked for it, where some are short."""


def as_text(told: Explanation, *, width: int = 0, color: bool = False, tools: bool = False) -> str:
    """The call, what was logged of it, what was weighed, and a line for each page; for each tool, too, if asked."""
    weighed = any(row.worth is not None for row in told.rows)
    unit = "*" if told.dollars is None else " $"
    costs = [f"{name}{unit}" for name in WEIGHED[2:]]
    head = [*HEAD, *((*WEIGHED[:2], *costs) if weighed else ()), "verdict"]
    cells = [_cells(row, told.dollars, weighed=weighed) for row in told.rows]
    legend = LEGEND if weighed else (LEGEND[0], *LEGEND[3:])
    lines = [*columns(list(_facts(told)), left={0, 1}, width=width), ""]
    lines += [
        *table(head, cells, {*LEFT, len(head) - 1}, width, color=color),
        "",
        *folded([_sum(told), *legend], width or 160),
    ]
    if told.tools is not None and (tools or _is_listed(told.tools)):
        each = [(one.name, FORMS[one.form], f"{one.offered:,}", f"{one.sent:,}", one.reason) for one in told.tools.each]
        lines += ["", *table(TOOLS, each, {0, 1, 4}, width, color=color)]
    return "\n".join(lines) + "\n"


def _is_listed(tools: Tooling) -> bool:
    """Whether each tool has its line, asked for or not: there are few, and some are short."""
    return len(tools.each) <= FEW and tools.tools.whole < tools.tools.total


def _facts(told: Explanation) -> Iterator[tuple[str, str]]:
    at = datetime.fromtimestamp(told.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    by = f", agent {told.harness}" if told.harness else ""
    arm = f", arm {told.arm}" if told.arm else ""
    yield "session", f"{told.session}{by}{arm}"
    yield "call", f"{told.branch}:{told.call}, attempt {told.attempt} of {told.attempts}, {at}"
    yield "model", f"{told.model}: a window of {told.window:,} tokens, {told.reserve:,} of them for the answer"
    yield "policy", f"{told.weighing.policy} ({told.weighing.chosen_by})"
    tool = f"; {told.tool} is among the tools" if told.tool else ""
    yield "prompt", f"{told.tokens:,} tokens, {counted(len(told.rows), 'page')}{tool}"
    yield "cache", f"{'warm' if told.warm else 'cold'}: {told.warmth}"
    prices = told.prices
    ratios = f"read {prices.read:g}, write {prices.write:g}, output {prices.output:g}"
    token = "" if told.dollars is None else f", ${1e6 * told.dollars:g} a million tokens"
    yield "prices", f"{ratios} of uncached input{token} (those in force now)"
    yield "expected", f"{told.guess}" if told.to_go is None else f"{told.to_go:,.0f} more calls: {told.guess}"
    balance = f"saved {_amount(told.saved, told)}, spent {_amount(told.spent, told)}"
    yield "so far", f"paging {balance}; {counted(told.colds, 'call')} found the cache cold"
    if told.lent is not None:
        limit = f"of which {_amount(told.credit, told)} could be spent by this call"
        yield "credit", f"the user's account lends the session {_amount(told.lent, told)}, {limit}"
    yield "learned", told.learned
    yield from _tools(told)
    yield from _logged(told)
    yield from _weighing(told)


def _tools(told: Explanation) -> Iterator[tuple[str, str]]:
    tools = told.tools
    if tools is None:
        yield "tools", "no decision on them by then"
        return
    before = f"; {tools.before}" if tools.before else ""
    yield "tools", f"decided at call {tools.branch}:{tools.call}: {tools.reason}{before}"
    forms = [
        f"{count} {FORMS[form]} ({sent:,} tokens{'' if form == 'whole' else f' instead of {offered:,}'})"
        for form, count, offered, sent in zip(tools.tools._fields, tools.tools, tools.offered, tools.sent, strict=True)
        if count
    ]
    added = f"; {tools.tool} was added to them" if tools.tool else ""
    each = "" if _is_listed(tools) else "; --tools lists them"
    yield "tools", f"{', '.join(forms) or 'none'}, cost {_amount(tools.price, told)}{added}{each}"
    if tools.unused:
        yield "tools", f"not so in this call: {tools.unused}"


def _logged(told: Explanation) -> Iterator[tuple[str, str]]:
    logged = told.logged
    for event in logged.repacks:
        yield "logged", _repack(event, told)
    for bypass in logged.bypasses:
        yield "logged", f"bypassed, {bypass.reason}: {bypass.detail}"
    if not logged.repacks and not logged.bypasses:
        yield "logged", "no repack"
    if logged.usage is not None:
        cached = f"{logged.usage.cached:,} of them cached"
        yield "answered", f"{logged.usage.input:,} tokens of prompt, {cached}; page-ins before: {logged.page_ins}"


def _repack(event: Repacked, told: Explanation) -> str:
    tool = f"; {event.tool} was added to the tools" if event.tool else ""
    what = f"{counted(len(event.pages), 'page')} removed, {event.saved:,} tokens less on each call"
    cost = f"cache rewritten for {_amount(event.price, told)}"
    if event.price:
        own = f"{_amount(event.price - event.lent, told)} from what the session had saved"
        cost += f" (paid {own}, {_amount(event.lent, told)} from its credit)" if event.lent else f" (paid {own})"
    return f"repack by {event.cause}: {event.reason}; {what}, {cost}{tool}"


def _amount(units: float, told: Explanation) -> str:
    """An amount of money; of token-equivalents where the price is not known."""
    return f"{units:,.0f}*" if told.dollars is None else f"${dollars(units * told.dollars)}"


def _weighing(told: Explanation) -> Iterator[tuple[str, str]]:
    weighing = told.weighing
    if weighing.unplanned:
        yield "weighed", f"not at this call: {weighing.unplanned}"
        return
    yield "weighed", f"{weighing.reason}{f'; rejected: {weighing.rejected}' if weighing.rejected else ''}"
    if weighing.differs:
        yield "differs", f"{weighing.differs}; the settings, prices or the policy's options are others now"


def _cells(row: PageVerdict, price: float | None, *, weighed: bool) -> list[str]:
    page = row.page
    counts = (page.tokens, page.age, page.idle, page.uses, page.faults)
    state = f"{row.state} {row.why}" if row.state == "evicted" and row.why else row.state
    state += ", superseded" if page.superseded else ""
    about = clipped(" ".join(filter(None, (page.tool, row.about))), ABOUT)
    cells = [page.handle, about, *(f"{count:,}" for count in counts), state]
    if weighed:
        cells += _numbers(row, price)
    return [*cells, row.verdict]


def _numbers(row: PageVerdict, price: float | None) -> list[str]:
    if row.chance is None:
        return [""] * len(WEIGHED)
    costs = (row.saving or 0.0, row.fault or 0.0, row.worth or 0.0)
    shown = (f"{cost:,.0f}" if price is None else dollars(cost * price) for cost in costs)
    return [f"{row.page.usual:.2f}", f"{row.chance:.3f}", *shown]


def _sum(told: Explanation) -> str:
    """What happened to the pages, in one sentence."""
    gone, there = ([row for row in told.rows if row.went], [row for row in told.rows if row.page.resident])
    before = len(told.rows) - len(there)
    parts = [f"removed {len(gone)} of {counted(len(there), 'page')} ({_tokens(gone):,} of {_tokens(there):,} tokens)"]
    worth = [row.worth for row in gone if row.worth is not None]
    if worth:
        price = sum(event.price for event in told.logged.repacks)
        parts.append(f"expected gain {_amount(sum(worth), told)}, cost now {_amount(price, told)}")
    return ", ".join([*parts, *([f"{before:,} removed before"] if before else [])])


def _tokens(pages: Sequence[PageVerdict]) -> int:
    return sum(row.page.tokens for row in pages)


def as_json(told: Explanation) -> dict[str, Any]:
    """The explanation as plain values."""
    plain: dict[str, Any] = msgspec.to_builtins(told)
    return plain
