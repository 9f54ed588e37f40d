"""Writes an analysis down: as tables for people, as plain values for programs."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from instrumentation.accounting.story import WASTE, Missed, StoryParts
from instrumentation.analyze.analysis import Analysis, FoundSession, wasted
from instrumentation.analyze.session_summary import PaidCalls, Spending
from instrumentation.replay.compare import PolicyRow
from instrumentation.reports.labels import MISSES, PARTS
from instrumentation.reports.table import (
    clipped,
    counted,
    dollars,
    folded,
    percent,
    share_of,
    short,
    signed,
    size,
    table,
)

WIDTH = 140
"""The columns of text that goes to no terminal."""

MOST = 10
"""Sessions and tools that are listed."""

NAME = 56
"""The longest name of a session or tool that is shown in full."""

OWN = "own_log"
"""The format that lists all tools that were offered."""

UNIT = "* token-equivalents: units of one uncached input token of the call's model"


# ---------------------------------------------------------------- for people


class _Sheet(NamedTuple):
    """What the text is written on."""

    width: int
    color: bool

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
        return table(head, rows, width=self.width, color=self.color)

    def notes(self, lines: Iterable[str]) -> Iterator[str]:
        return folded(lines, self.width, indent=1)


def as_text(
    analysis: Analysis, *, width: int = 0, color: bool = False, start: Sequence[str] = (), warm: str = ""
) -> str:
    """The analysis as tables, and how to start; ``warm`` is what keeping warm would have saved, in words, or empty."""
    width = width or WIDTH
    sheet = _Sheet(width, color)
    parts: list[Iterator[str]] = [folded(_facts(analysis), width, indent=9)]
    if analysis.sessions:
        parts += [_waste(analysis, sheet), _sessions(analysis, sheet), _tools(analysis, sheet)]
        parts += [_policies(analysis, sheet), folded([warm] if warm else [], width)]
    parts += [_start(start)]
    return "\n".join("\n".join([*part, ""]) for part in map(list, parts) if part)


def _facts(analysis: Analysis) -> Iterator[str]:
    read, totals = analysis.read, analysis.totals
    yield f"read     {counted(read.files, 'file')}, {size(read.size)}, {counted(read.lines, 'line')}"
    for one in analysis.formats:
        yield f"         {one.name}: {counted(one.sessions, 'session')}, {counted(one.calls, 'call')}"
    yield from (f"         {line}" for line in _left(analysis))
    if not analysis.sessions:
        yield "         no session of an agent was found there"
        return
    yield f"         {counted(len(analysis.sessions), 'session')}, {counted(totals.calls, 'call')}{_span(analysis)}"
    new = round(totals.client.total / totals.amplification) if totals.amplification else 0
    yield f"sent     {short(totals.client.total)} tokens of prompts, of which {short(new)} were new"
    yield f"         each byte was sent {totals.amplification:,.1f} times on average"
    yield from _cost(analysis.paid)
    yield from _missed(analysis)


def _left(analysis: Analysis) -> Iterator[str]:
    """What was not read, or does not count."""
    read = analysis.read
    notes = (
        (read.bad, "bad line", "skipped"),
        (read.broken, "file", "not read to the end"),
        (read.unknown, "file", "of no known format"),
        (read.copies, "file", "with the content of another left out"),
        (read.older, "file", "not written since then left out"),
        (read.left_out, "session", "too short or too old left out"),
    )
    yield from (f"{counted(count, what)} {then}" for count, what, then in notes if count)
    yield from (f"  {clipped(example, 120)}" for example in read.examples)
    lines = read.lines_left_out
    if lines:
        yield f"{counted(sum(lines.values()), 'line')} not sent to a model left out:"
        yield from (f"  {count:,} of {clipped(reason, 100)}" for reason, count in lines.items())


def _span(analysis: Analysis) -> str:
    first, last = analysis.span
    return f", {_day(first)} to {_day(last)}" if last else ""


def _cost(paid: PaidCalls) -> Iterator[str]:
    if paid.reported:
        counts = f"{short(paid.input)} tokens in, {short(paid.output)} out"
        yield f"paid     {_money(paid.told, paid)} for {counted(paid.reported, 'call')} as reported: {counts}"
    if paid.partly:
        yield f"         the output of {paid.partly:,} of them is estimated: its count in the log is incomplete"
    if paid.reported < paid.calls:
        rest = f"{_money(paid.guessed, paid)}, estimated, for {paid.calls - paid.reported:,} calls without counts"
        yield f"{'' if paid.reported else 'paid':9}{rest}"
    if 0 < paid.unpriced < paid.calls:
        yield f"         the price of {paid.unpriced:,} calls is not known: they are in no sum of dollars"
    yield f"         ({UNIT})"
    if paid.hit_rate is not None:
        yield f"cached   {percent(paid.hit_rate)} of the prompts' tokens, as reported"


def _missed(analysis: Analysis) -> Iterator[str]:
    """What was written again after pauses, and why else calls missed the cache."""
    paid, cold, missed = analysis.paid, analysis.misses.pause, analysis.misses.each
    if cold.calls:
        share = share_of(cold.cost, paid.cost.units)
        words = f"{short(cold.tokens)} tokens written again after {counted(cold.calls, 'pause')}"
        yield f"cold     {_money(Spending(cold.cost, cold.dollars), paid)}, {share} of the cost: {words}"
    others = {name: one for name, one in missed.items() if name != "pause"}
    if others:
        rest = Missed.sum(others.values())
        each = ", ".join(f"{one.calls:,} {MISSES[name]}" for name, one in others.items())
        amount, share = _money(Spending(rest.cost, rest.dollars), paid), share_of(rest.cost, paid.cost.units)
        yield f"missed   {amount}, {share} of the cost: other cache misses ({each})"


def _waste(analysis: Analysis, sheet: _Sheet) -> Iterator[str]:
    client, waste = analysis.totals.client, analysis.waste
    ordered = sorted(WASTE, key=lambda cause: -getattr(client, cause))
    rows = [(PARTS[cause], *_cost_of(getattr(client, cause), waste[cause], analysis)) for cause in ordered]
    whole = ("all of it", *_cost_of(wasted(analysis.totals), Spending.sum(analysis.waste.values()), analysis))
    head = ("what need not have been sent", "tokens", "of all", "$", "of cost", "units*")
    yield from sheet.table(head, [*rows, whole])
    yield from sheet.notes(_notes_on_waste(analysis))


def _notes_on_waste(analysis: Analysis) -> Iterator[str]:
    client = analysis.totals.client
    if not client.unused_schemas and any(one.name != OWN for one in analysis.formats):
        yield "(these logs don't say which tools were offered: those that are never called are in the system prompt)"
    if analysis.paid.telling < analysis.paid.input:
        yield "(calls that don't say what was cached count as if nothing was: theirs is the most that it can have been)"
    if analysis.paid.telling or not analysis.paid.input:
        yield "(the cost is a lower bound: waste counts as cached wherever it can have been)"


def _cost_of(tokens: int, spent: Spending, analysis: Analysis) -> Iterator[str]:
    yield f"{tokens:,}"
    yield share_of(tokens, analysis.totals.client.total)
    yield _dollars(spent.dollars, analysis.paid)
    yield share_of(spent.units, analysis.paid.cost.units)
    yield short(spent.units)


def _sessions(analysis: Analysis, sheet: _Sheet) -> Iterator[str]:
    policies = [clipped(row.policy, 16) for row in analysis.comparison.rows()][-1:]
    head = ("worst sessions", "calls", "wasted", "share", "sent", "$", "units*", *policies)
    yield from sheet.table(head, [(clipped(one.session.name, NAME), *_session(one)) for one in analysis.worst[:MOST]])
    changes = "".join(f"; {name}: by how much it would have changed the cost" for name in policies)
    yield from sheet.notes([f"(sent: how often each byte was{changes})"])


def _session(one: FoundSession) -> Iterator[str]:
    session, totals = one.session, one.session.totals
    waste = wasted(totals)
    yield from (
        f"{totals.calls:,}",
        short(waste),
        share_of(waste, totals.client.total),
        f"{totals.amplification:,.1f}x",
    )
    yield _dollars(session.paid.cost.dollars, session.paid)
    yield short(session.paid.cost.units)
    for last in session.replayed[-1:]:
        cost, before = last.outcome.charged.cost, session.before.cost
        yield signed(cost / before - 1) if before else ""


def _tools(analysis: Analysis, sheet: _Sheet) -> Iterator[str]:
    waste = wasted(analysis.totals)
    rows = [
        (clipped(tool.name or "(unknown)", NAME), f"{tool.pages:,}", f"{tool.schema:,}", share_of(tool.total, waste))
        for tool in analysis.tools[:MOST]
    ]
    if rows:
        yield from sheet.table(("worst tools", "results, arguments", "unused schema", "of all waste"), rows)


def _policies(analysis: Analysis, sheet: _Sheet) -> Iterator[str]:
    found = list(zip(analysis.comparison.rows(), analysis.dollars_saved, strict=True))
    if not found:
        return
    amounts = [_dollars(saved, analysis.paid) for _, saved in found]
    rows = [(clipped(row.policy, NAME), *_policy(row, saved)) for (row, _), saved in zip(found, amounts, strict=True)]
    head = ("policy", "cost", "$ saved", "tokens", "cached", "page-ins", "cost more", "most")
    yield from sheet.table(head, rows)
    notes = (
        "(estimated by replay of these sessions, net of cache writes, page-ins, extra calls and stubs",
        "$ saved: each session's change as a share of what was really paid for it",
        "cost more: sessions that would cost over 1 % more; most: by how much one of them would at most)",
    )
    yield from sheet.notes(["; ".join(notes)])


def _policy(row: PolicyRow, saved: str) -> tuple[str, ...]:
    shares = (signed(row.token_change), percent(row.hit_rate), f"{row.page_ins:,}")
    return (signed(row.cost_change), saved, *shares, f"{row.worse:,}", signed(row.worst))


def _start(start: Sequence[str]) -> Iterator[str]:
    yield "try it:"
    yield ""
    yield "    ctxpager serve"
    for one in start:
        yield ""
        yield from (f"    {line}" for line in one.splitlines())


# ---------------------------------------------------------------- for programs


def as_json(analysis: Analysis) -> dict[str, Any]:
    """The analysis as plain values; costs are in units of one uncached input token, and in dollars as far as known."""
    totals, first_last = analysis.totals, analysis.span
    return {
        "read": analysis.read._asdict(),
        "formats": [one._asdict() for one in analysis.formats],
        "sessions": len(analysis.sessions),
        "calls": totals.calls,
        "first": first_last[0],
        "last": first_last[1],
        "tokens": {name: getattr(totals.client, name) for name in StoryParts.__struct_fields__},
        "bytes": {"sent": totals.sent, "new": totals.fresh},
        "amplification": round(totals.amplification, 6),
        "paid": _paid(analysis.paid),
        "waste": {cause: _cause(analysis, cause) for cause in analysis.waste},
        "cache_misses": {name: _miss(one) for name, one in analysis.misses.each.items()},
        "tools": [{"name": one.name, "pages": one.pages, "schema": one.schema} for one in analysis.tools],
        "policies": list(_rows(analysis)),
        "each": [_each(one) for one in analysis.sessions],
    }


def _paid(paid: PaidCalls) -> dict[str, Any]:
    counts = {name: getattr(paid, name) for name in paid.__struct_fields__[:-2]}
    rate = None if paid.hit_rate is None else round(paid.hit_rate, 6)
    return {**counts, "hit_rate": rate, "told": _spent(paid.told), "guessed": _spent(paid.guessed)}


def _spent(spent: Spending) -> dict[str, float]:
    return {"units": round(spent.units, 6), "dollars": round(spent.dollars, 6)}


def _cause(analysis: Analysis, cause: str) -> dict[str, Any]:
    tokens = getattr(analysis.totals.client, cause)
    return {"tokens": tokens, "share": round(analysis.totals.share(cause), 6), **_spent(analysis.waste[cause])}


def _miss(one: Missed) -> dict[str, Any]:
    return {"calls": one.calls, "tokens": one.tokens, **_spent(Spending(one.cost, one.dollars))}


def _rows(analysis: Analysis) -> Iterator[dict[str, Any]]:
    for row, amount in zip(analysis.comparison.rows(), analysis.dollars_saved, strict=True):
        yield {**row._asdict(), "charged": row.charged._asdict(), "dollars_saved": round(amount, 6)}


def _each(one: FoundSession) -> dict[str, Any]:
    session, totals = one.session, one.session.totals
    return {
        "session": session.name,
        "file": str(one.path),
        "format": one.format,
        "harness": session.harness,
        "models": list(session.models),
        "first": session.first,
        "last": session.last,
        "calls": totals.calls,
        "tokens": totals.client.total,
        "wasted": wasted(totals),
        "amplification": round(totals.amplification, 6),
        "cost": _spent(session.paid.cost),
        "cache_misses": {name: _miss(missed) for name, missed in session.misses.each.items()},
        "unpaged": round(session.paid.cost.units, 6),
        "policies": {row.outcome.policy: round(row.outcome.charged.cost, 6) for row in session.replayed},
    }


def _money(spent: Spending, paid: PaidCalls) -> str:
    amount = _dollars(spent.dollars, paid)
    units = f"{short(spent.units)} units*"
    return f"$ {amount} ({units})" if amount else units


def _dollars(amount: float, paid: PaidCalls) -> str:
    """An amount, if the price of any call is known."""
    return "" if paid.unpriced == paid.calls else dollars(amount)


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
