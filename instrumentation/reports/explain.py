"""Writes an explanation of a call down: in words and columns for people, as plain values for programs."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from instrumentation.accounting.explain import Explanation
from instrumentation.accounting.page_verdicts import PageVerdict
from instrumentation.accounting.tool_use import Tooling
from instrumentation.reports.table import clipped, columns, table
from pager.log.events import Repacked

HEAD = ("page", "of", "tokens", "age", "idle", "uses", "faults", "state")
WEIGHED = ("usual", "chance", "saving", "fault", "worth")
LEGEND = (
    "age, idle: calls since it came, and since it was last used; faults: times that it was fetched back",
    "usual: how often such pages are needed again, 1 on average; chance: that it is needed while the decision holds",
    "saving, fault, worth: what removing it saves, what fetching it back costs, and what is left, in token-equivalents",
)
"""What the columns say, for who reads them for the first time."""

TOOLS = ("tool", "form", "whole", "sent", "why")
ABOUT = 32
LEFT = (0, 1, 7)
FEW = 12
"""Tools up to which each has its line though nobody asked for it, where some are short."""


def as_text(told: Explanation, *, width: int = 0, color: bool = False, tools: bool = False) -> str:
    """The call, what was logged of it, what was weighed, and a line for each page; for each tool, too, if asked."""
    weighed = any(row.worth is not None for row in told.rows)
    head = [*HEAD, *(WEIGHED if weighed else ()), "verdict"]
    cells = [_cells(row, weighed=weighed) for row in told.rows]
    legend = LEGEND if weighed else LEGEND[:1]
    lines = [*columns(list(_facts(told)), left={0, 1}, width=width), ""]
    lines += [*table(head, cells, {*LEFT, len(head) - 1}, width, color=color), "", _sum(told), *legend]
    if told.tools is not None and (tools or _is_listed(told.tools)):
        each = [(one.name, one.form, f"{one.offered:,}", f"{one.sent:,}", one.reason) for one in told.tools.each]
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
    yield "prompt", f"{told.tokens:,} tokens, {len(told.rows)} pages{tool}"
    yield "cache", f"{'warm' if told.warm else 'cold'}: {told.warmth}"
    prices = told.prices
    ratios = f"read {prices.read:g}, write {prices.write:g}, output {prices.output:g}"
    yield (
        "prices",
        f"{ratios} (those in force now); costs here are in token-equivalents, units of one uncached input token",
    )
    yield "to go", f"{told.guess}" if told.to_go is None else f"{told.to_go:,.0f} calls: {told.guess}"
    yield "so far", f"saved {told.saved:,.0f}, spent {told.spent:,.0f}; calls that found the cache cold: {told.colds}"
    yield "learned", told.learned
    yield from _tools(told)
    yield from _logged(told)
    yield from _weighing(told)


def _tools(told: Explanation) -> Iterator[tuple[str, str]]:
    tools = told.tools
    if tools is None:
        yield "tools", "nothing was decided of them by then"
        return
    before = f"; {tools.before}" if tools.before else ""
    yield "tools", f"decided at call {tools.branch}:{tools.call}: {tools.reason}{before}"
    forms = [
        f"{count} {form} ({sent:,} tokens{'' if form == 'whole' else f' instead of {offered:,}'})"
        for form, count, offered, sent in zip(tools.tools._fields, tools.tools, tools.offered, tools.sent, strict=True)
        if count
    ]
    added = f"; {tools.tool} was added to them" if tools.tool else ""
    each = "" if _is_listed(tools) else "; --tools lists them"
    yield "tools", f"{', '.join(forms) or 'none'}, price {tools.price:,.1f}{added}{each}"
    if tools.unused:
        yield "tools", f"not so in this call: {tools.unused}"


def _logged(told: Explanation) -> Iterator[tuple[str, str]]:
    logged = told.logged
    for event in logged.repacks:
        yield "logged", _repack(event)
    for bypass in logged.bypasses:
        yield "logged", f"bypassed, {bypass.reason}: {bypass.detail}"
    if not logged.repacks and not logged.bypasses:
        yield "logged", "no repack"
    if logged.usage is not None:
        cached = f"{logged.usage.cached:,} of them cached"
        yield "answered", f"{logged.usage.input:,} tokens of prompt, {cached}; page-ins before: {logged.page_ins}"


def _repack(event: Repacked) -> str:
    tool = f"; {event.tool} was added to the tools" if event.tool else ""
    what = f"{len(event.pages)} pages went, {event.saved:,} tokens less on each call"
    return f"repack by {event.cause}: {event.reason}; {what}, cache rewritten for {event.price:,.0f}{tool}"


def _weighing(told: Explanation) -> Iterator[tuple[str, str]]:
    weighing = told.weighing
    if weighing.unplanned:
        yield "weighed", f"not then: {weighing.unplanned}"
        return
    yield "weighed", f"{weighing.reason}{f'; rejected: {weighing.rejected}' if weighing.rejected else ''}"
    if weighing.differs:
        yield "differs", f"{weighing.differs}; the settings, prices or the policy's options are others now"


def _cells(row: PageVerdict, *, weighed: bool) -> list[str]:
    page = row.page
    counts = (page.tokens, page.age, page.idle, page.uses, page.faults)
    state = f"{row.state} {row.why}" if row.state == "evicted" and row.why else row.state
    state += ", superseded" if page.superseded else ""
    about = clipped(" ".join(filter(None, (page.tool, row.about))), ABOUT)
    cells = [page.handle, about, *(f"{count:,}" for count in counts), state]
    if weighed:
        cells += _numbers(row)
    return [*cells, row.verdict]


def _numbers(row: PageVerdict) -> list[str]:
    if row.chance is None:
        return [""] * len(WEIGHED)
    costs = (row.saving or 0.0, row.fault or 0.0, row.worth or 0.0)
    return [f"{row.page.usual:.2f}", f"{row.chance:.3f}", *(f"{one:,.0f}" for one in costs)]


def _sum(told: Explanation) -> str:
    gone = [row for row in told.rows if row.went]
    parts = [
        f"{len(told.rows)} pages: {_counted([row for row in told.rows if row.page.resident])} were in the prompt",
        f"{_counted([row for row in told.rows if not row.page.resident])} had gone before",
        f"{_counted(gone)} went now",
    ]
    worth = [row.worth for row in gone if row.worth is not None]
    if worth:
        price = sum(event.price for event in told.logged.repacks)
        parts.append(f"worth {sum(worth):,.0f}, cache rewritten for {price:,.0f}")
    return ", ".join(parts)


def _counted(some: Sequence[PageVerdict]) -> str:
    return f"{len(some)} ({sum(row.page.tokens for row in some):,} tokens)"


def as_json(told: Explanation) -> dict[str, Any]:
    """The explanation as plain values."""
    plain: dict[str, Any] = msgspec.to_builtins(told)
    return plain
