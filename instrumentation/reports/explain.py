"""Writes an explanation of a call down: in words and columns for people, as plain values for programs."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from instrumentation.accounting.explain import Explanation
from instrumentation.accounting.page_verdicts import PageVerdict
from instrumentation.accounting.story import MissStory
from instrumentation.accounting.tool_use import Tooling
from instrumentation.reports.labels import FORMS, MISSES
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


def as_text(call: Explanation, *, width: int = 0, color: bool = False, tools: bool = False) -> str:
    """The call, what was logged of it, what was weighed, and a line for each page; for each tool, too, if asked."""
    weighed = any(row.worth is not None for row in call.rows)
    unit = "*" if call.dollars is None else " $"
    costs = [f"{name}{unit}" for name in WEIGHED[2:]]
    head = [*HEAD, *((*WEIGHED[:2], *costs) if weighed else ()), "verdict"]
    cells = [_cells(row, call.dollars, weighed=weighed) for row in call.rows]
    legend = LEGEND if weighed else (LEGEND[0], *LEGEND[3:])
    lines = [*columns(list(_facts(call)), left={0, 1}, width=width), ""]
    lines += [
        *table(head, cells, {*LEFT, len(head) - 1}, width, color=color),
        "",
        *folded([_sum(call), *legend], width or 160),
    ]
    if call.tools is not None and (tools or _is_listed(call.tools)):
        each = [(one.name, FORMS[one.form], f"{one.offered:,}", f"{one.sent:,}", one.reason) for one in call.tools.each]
        lines += ["", *table(TOOLS, each, {0, 1, 4}, width, color=color)]
    return "\n".join(lines) + "\n"


def _is_listed(tools: Tooling) -> bool:
    """Whether each tool has its line, asked for or not: there are few, and some are short."""
    return len(tools.each) <= FEW and tools.tools.whole < tools.tools.total


def _facts(call: Explanation) -> Iterator[tuple[str, str]]:
    at = datetime.fromtimestamp(call.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    by = f", agent {call.harness}" if call.harness else ""
    arm = f", arm {call.arm}" if call.arm else ""
    yield "session", f"{call.session}{by}{arm}"
    yield "call", f"{call.branch}:{call.call}, attempt {call.attempt} of {call.attempts}, {at}"
    yield "model", f"{call.model}: a window of {call.window:,} tokens, {call.reserve:,} of them for the answer"
    yield "policy", f"{call.weighing.policy} ({call.weighing.chosen_by})"
    tool = f"; {call.tool} is among the tools" if call.tool else ""
    yield "prompt", f"{call.tokens:,} tokens, {counted(len(call.rows), 'page')}{tool}"
    yield "cache", f"{'warm' if call.warm else 'cold'}: {call.warmth}"
    prices = call.prices
    ratios = f"read {prices.read:g}, write {prices.write:g}, output {prices.output:g}"
    token = "" if call.dollars is None else f", ${1e6 * call.dollars:g} a million tokens"
    yield "prices", f"{ratios} of uncached input{token} (those in force now)"
    yield "expected", f"{call.guess}" if call.to_go is None else f"{call.to_go:,.0f} more calls: {call.guess}"
    balance = f"saved {_amount(call.saved, call)}, spent {_amount(call.spent, call)}"
    yield "so far", f"paging {balance}; {counted(call.colds, 'call')} found the cache cold"
    if call.lent is not None:
        limit = f"of which {_amount(call.credit, call)} could be spent by this call"
        yield "credit", f"the user's account lends the session {_amount(call.lent, call)}, {limit}"
    yield "learned", call.learned
    yield from _tools(call)
    yield from _logged(call)
    yield from _weighing(call)


def _tools(call: Explanation) -> Iterator[tuple[str, str]]:
    tools = call.tools
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
    yield "tools", f"{', '.join(forms) or 'none'}, cost {_amount(tools.price, call)}{added}{each}"
    if tools.unused:
        yield "tools", f"not so in this call: {tools.unused}"


def _logged(call: Explanation) -> Iterator[tuple[str, str]]:
    logged = call.logged
    for event in logged.repacks:
        yield "logged", _repack(event, call)
    for bypass in logged.bypasses:
        yield "logged", f"bypassed, {bypass.reason}: {bypass.detail}"
    if not logged.repacks and not logged.bypasses:
        yield "logged", "no repack"
    if logged.usage is not None:
        cached = f"{logged.usage.cached:,} of them cached"
        yield "answered", f"{logged.usage.input:,} tokens of prompt, {cached}; page-ins before: {logged.page_ins}"
    if call.miss is not None:
        yield "missed", f"{why_missed(call.miss)}; {call.miss.tokens:,} tokens, {_amount(call.miss.cost, call)} more"


def why_missed(miss: MissStory) -> str:
    """Why a call missed the provider's cache."""
    words = {
        "pause": f"{miss.pause:,.0f} s since the prompt was last sent, and it was kept for {miss.lifetime:,.0f} s",
        "dropped": f"{miss.pause:,.0f} s since the prompt was last sent, of {miss.lifetime:,.0f} s that it is kept",
        "settings": ", ".join(miss.changed),
        "repack": "ctxpager changed the prompt before its end",
        "history": "the client changed messages that it had sent before",
        "short": "the prompt before was smaller than the least that is cached",
    }
    detail = f"the provider says {miss.word}" if miss.word else words.get(miss.reason, "")
    return f"the cache, {MISSES[miss.reason]}{f': {detail}' if detail else ''}"


def _repack(event: Repacked, call: Explanation) -> str:
    tool = f"; {event.tool} was added to the tools" if event.tool else ""
    what = f"{counted(len(event.pages), 'page')} removed, {event.saved:,} tokens less on each call"
    cost = f"cache rewritten for {_amount(event.price, call)}"
    if event.price:
        own = f"{_amount(event.price - event.lent, call)} from what the session had saved"
        cost += f" (paid {own}, {_amount(event.lent, call)} from its credit)" if event.lent else f" (paid {own})"
    return f"repack by {event.cause}: {event.reason}; {what}, {cost}{tool}"


def _amount(units: float, call: Explanation) -> str:
    """An amount of money; of token-equivalents where the price is not known."""
    return f"{units:,.0f}*" if call.dollars is None else f"${dollars(units * call.dollars)}"


def _weighing(call: Explanation) -> Iterator[tuple[str, str]]:
    weighing = call.weighing
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


def _sum(call: Explanation) -> str:
    """What happened to the pages, in one sentence."""
    gone, there = ([row for row in call.rows if row.went], [row for row in call.rows if row.page.resident])
    before = len(call.rows) - len(there)
    parts = [f"removed {len(gone)} of {counted(len(there), 'page')} ({_tokens(gone):,} of {_tokens(there):,} tokens)"]
    worth = [row.worth for row in gone if row.worth is not None]
    if worth:
        price = sum(event.price for event in call.logged.repacks)
        parts.append(f"expected gain {_amount(sum(worth), call)}, cost now {_amount(price, call)}")
    return ", ".join([*parts, *([f"{before:,} removed before"] if before else [])])


def _tokens(pages: Sequence[PageVerdict]) -> int:
    return sum(row.page.tokens for row in pages)


def as_json(call: Explanation) -> dict[str, Any]:
    """The explanation as plain values."""
    plain: dict[str, Any] = msgspec.to_builtins(call)
    return plain
