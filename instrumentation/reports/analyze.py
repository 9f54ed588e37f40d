"""Writes an analysis down: as tables for people, as plain values for programs."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any

from instrumentation.accounting.story import WASTE, StoryParts
from instrumentation.analyze.analysis import Analysis, FoundSession, wasted
from instrumentation.analyze.session_summary import PaidCalls, Spending
from instrumentation.replay.compare import PolicyRow
from instrumentation.reports.columns import clipped, columns, harmless

WIDTH = 140
"""The columns of text that goes to no terminal."""

MOST = 10
"""Sessions and tools that are told of."""

NAME, SHORTEST = 56, 16
"""The longest name that is told in full, and how short it may be cut so that a line fits."""

CAUSES = {
    "unused_schemas": "tools that are never called",
    "stale": "stale results",
    "duplicates": "duplicate results",
    "superseded": "outdated file versions",
    "resent": "system prompt (resent every call)",
}

OWN = "own_log"
"""The format that tells all tools that were offered."""

UNIT = "* token-equivalents: units of one uncached input token of the call's model"


# ---------------------------------------------------------------- for people


def as_text(analysis: Analysis, start: Sequence[str], width: int = WIDTH) -> str:
    """The analysis as tables, and how to start."""
    parts: list[Iterator[str]] = [_folded(_facts(analysis), width, indent=9)]
    if analysis.sessions:
        parts += [_waste(analysis, width), _sessions(analysis, width), _tools(analysis, width)]
        parts += [_policies(analysis, width)]
    parts += [_start(start)]
    return "\n".join("\n".join([*part, ""]) for part in map(list, parts) if part)


def _facts(analysis: Analysis) -> Iterator[str]:
    read, totals = analysis.read, analysis.totals
    yield f"read     {_counted(read.files, 'file')}, {_bytes(read.size)}, {_counted(read.lines, 'line')}"
    for one in analysis.formats:
        yield f"         {one.name}: {_counted(one.sessions, 'session')}, {_counted(one.calls, 'call')}"
    yield from (f"         {line}" for line in _left(analysis))
    if not analysis.sessions:
        yield "         no session of an agent was found there"
        return
    yield f"         {_counted(len(analysis.sessions), 'session')}, {_counted(totals.calls, 'call')}{_span(analysis)}"
    new = round(totals.client.total / totals.amplification) if totals.amplification else 0
    yield f"sent     {_short(totals.client.total)} tokens of prompts, of which {_short(new)} were new"
    yield f"         each byte was sent {totals.amplification:,.1f} times on average"
    yield from _cost(analysis.paid)


def _left(analysis: Analysis) -> Iterator[str]:
    """What was not read, or does not count."""
    read = analysis.read
    told = (
        (read.bad, "bad line", "skipped"),
        (read.broken, "file", "not read to the end"),
        (read.unknown, "file", "of no known format"),
        (read.copies, "file", "with the content of another left out"),
        (read.older, "file", "not written since then left out"),
        (read.left_out, "session", "too short or too old left out"),
    )
    yield from (f"{_counted(count, what)} {then}" for count, what, then in told if count)
    yield from (f"  {_clean(example, 120)}" for example in read.examples)
    lines = read.lines_left_out
    if lines:
        yield f"{_counted(sum(lines.values()), 'line')} not sent to a model left out:"
        yield from (f"  {count:,} of {_clean(reason, 100)}" for reason, count in lines.items())


def _span(analysis: Analysis) -> str:
    first, last = analysis.span
    return f", {_day(first)} to {_day(last)}" if last else ""


def _cost(paid: PaidCalls) -> Iterator[str]:
    if paid.reported:
        counts = f"{_short(paid.input)} tokens in, {_short(paid.output)} out"
        yield f"paid     {_money(paid.told, paid)} for {_counted(paid.reported, 'call')} as reported: {counts}"
    if paid.partly:
        yield f"         the output of {paid.partly:,} of them is estimated: its count in the log is incomplete"
    if paid.reported < paid.calls:
        rest = f"{_money(paid.guessed, paid)}, estimated, for {paid.calls - paid.reported:,} calls without counts"
        yield f"{'' if paid.reported else 'paid':9}{rest}"
    if 0 < paid.unpriced < paid.calls:
        yield f"         the price of {paid.unpriced:,} calls is not known: they are in no sum of dollars"
    yield f"         ({UNIT})"
    if paid.hit_rate is not None:
        yield f"cached   {_percent(paid.hit_rate)} of the prompts' tokens, as reported"


def _waste(analysis: Analysis, width: int) -> Iterator[str]:
    client, waste = analysis.totals.client, analysis.waste
    ordered = sorted(WASTE, key=lambda cause: -getattr(client, cause))
    rows = [(CAUSES[cause], *_cost_of(getattr(client, cause), waste[cause], analysis)) for cause in ordered]
    whole = ("all of it", *_cost_of(wasted(analysis.totals), all_waste(analysis), analysis))
    head = ("what need not have been sent", "tokens", "of all", "$", "of cost", "units*")
    yield from _table(head, [*rows, whole], width)
    yield from _folded(_notes_on_waste(analysis), width)


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
    yield _share(tokens, analysis.totals.client.total)
    yield _dollars(spent.dollars, analysis.paid)
    yield _share(spent.units, analysis.paid.cost.units)
    yield _short(round(spent.units))


def all_waste(analysis: Analysis) -> Spending:
    """What all waste cost, at the least."""
    found = Spending()
    for one in analysis.waste.values():
        found = found.plus(one)
    return found


def _sessions(analysis: Analysis, width: int) -> Iterator[str]:
    policies = [_clean(row.policy, SHORTEST) for row in analysis.comparison.rows()][-1:]
    head = ("worst sessions", "calls", "wasted", "share", "sent", "$", "units*", *policies)
    yield from _table(head, [(one.session.name, *_session(one)) for one in analysis.worst[:MOST]], width)
    changes = "".join(f"; {name}: by how much it would have changed the cost" for name in policies)
    yield from _folded([f"(sent: how often each byte was{changes})"], width)


def _session(one: FoundSession) -> Iterator[str]:
    session, totals = one.session, one.session.totals
    waste = wasted(totals)
    yield from (f"{totals.calls:,}", _short(waste), _share(waste, totals.client.total), f"{totals.amplification:,.1f}x")
    yield _dollars(session.paid.cost.dollars, session.paid)
    yield _short(round(session.paid.cost.units))
    for last in session.replayed[-1:]:
        cost, before = last.outcome.charged.cost, session.before.cost
        yield _signed(cost / before - 1) if before else ""


def _tools(analysis: Analysis, width: int) -> Iterator[str]:
    waste = wasted(analysis.totals)
    rows = [
        (tool.name or "(unknown)", f"{tool.pages:,}", f"{tool.schema:,}", _share(tool.total, waste))
        for tool in analysis.tools[:MOST]
    ]
    if rows:
        yield from _table(("worst tools", "results, arguments", "unused schema", "of all waste"), rows, width)


def _policies(analysis: Analysis, width: int) -> Iterator[str]:
    found = list(zip(analysis.comparison.rows(), analysis.dollars_saved, strict=True))
    if not found:
        return
    told = [_dollars(dollars, analysis.paid) for _, dollars in found]
    rows = [(row.policy, *_policy(row, dollars)) for (row, _), dollars in zip(found, told, strict=True)]
    head = ("policy", "cost", "$ saved", "tokens", "cached", "page-ins", "cost more", "most")
    yield from _table(head, rows, width)
    notes = (
        "(estimated by replay of these sessions, net of cache writes, page-ins, extra calls and stubs",
        "$ saved: each session's change as a share of what was really paid for it",
        "cost more: sessions that would cost over 1 % more; most: by how much one of them would at most)",
    )
    yield from _folded(["; ".join(notes)], width)


def _policy(row: PolicyRow, dollars: str) -> tuple[str, ...]:
    shares = (_signed(row.token_change), _percent(row.hit_rate), f"{row.page_ins:,}")
    return (_signed(row.cost_change), dollars, *shares, f"{row.worse:,}", _signed(row.worst))


def _start(start: Sequence[str]) -> Iterator[str]:
    yield "try it:"
    yield ""
    yield "    ctxpager serve"
    for one in start:
        yield ""
        yield from (f"    {line}" for line in one.splitlines())


# ---------------------------------------------------------------- for programs


def as_json(analysis: Analysis) -> str:
    """The analysis as plain values; costs are in units of one uncached input token, and in dollars as far as known."""
    totals, first_last = analysis.totals, analysis.span
    plain: dict[str, Any] = {
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
        "tools": [{"name": one.name, "pages": one.pages, "schema": one.schema} for one in analysis.tools],
        "policies": list(_rows(analysis)),
        "each": [_each(one) for one in analysis.sessions],
    }
    return json.dumps(plain) + "\n"


def _paid(paid: PaidCalls) -> dict[str, Any]:
    counts = {name: getattr(paid, name) for name in paid.__struct_fields__[:-2]}
    rate = None if paid.hit_rate is None else round(paid.hit_rate, 6)
    return {**counts, "hit_rate": rate, "told": _spent(paid.told), "guessed": _spent(paid.guessed)}


def _spent(spent: Spending) -> dict[str, float]:
    return {"units": round(spent.units, 6), "dollars": round(spent.dollars, 6)}


def _cause(analysis: Analysis, cause: str) -> dict[str, Any]:
    tokens = getattr(analysis.totals.client, cause)
    return {"tokens": tokens, "share": round(analysis.totals.share(cause), 6), **_spent(analysis.waste[cause])}


def _rows(analysis: Analysis) -> Iterator[dict[str, Any]]:
    for row, dollars in zip(analysis.comparison.rows(), analysis.dollars_saved, strict=True):
        yield {**row._asdict(), "charged": row.charged._asdict(), "dollars_saved": round(dollars, 6)}


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
        "unpaged": round(session.paid.cost.units, 6),
        "policies": {row.outcome.policy: round(row.outcome.charged.cost, 6) for row in session.replayed},
    }


# ---------------------------------------------------------------- small things


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Rows below a head; the names in the first column are cut so that lines fit, if that is possible."""
    others = sum(2 + max(map(len, column)) for column in list(zip(head, *rows, strict=True))[1:])
    room = max(SHORTEST, min(NAME, width - others))
    first, *rest = columns([(_clean(row[0], room), *row[1:]) for row in (head, *rows)])
    yield first
    yield "─" * max(map(len, (first, *rest)))
    yield from rest


def _folded(lines: Iterable[str], width: int, indent: int = 1) -> Iterator[str]:
    """Lines of words, each as many lines as it takes to fit; those after its first are indented."""
    for line in lines:
        yield from wrap(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def _clean(text: str, width: int) -> str:
    """A text of somebody else's on one line, without anything that a terminal would obey."""
    return clipped(harmless(text), width)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _bytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e3:,.1f} kB"


def _short(count: int) -> str:
    """A count in a few characters."""
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(count) >= least:
            return f"{count / size:,.1f}{unit}"
    return f"{count:,}"


def _money(spent: Spending, paid: PaidCalls) -> str:
    dollars = _dollars(spent.dollars, paid)
    units = f"{_short(round(spent.units))} units*"
    return f"$ {dollars} ({units})" if dollars else units


def _dollars(dollars: float, paid: PaidCalls) -> str:
    """An amount, if the price of any call is known."""
    if paid.unpriced == paid.calls:
        return ""
    return f"{dollars + 0.0:,.2f}" if abs(dollars) >= 1 else f"{dollars + 0.0:,.4f}"


def _share(part: float, whole: float) -> str:
    return _percent(part / whole) if whole else ""


def _percent(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f} %"  # never -0.0


def _signed(change: float) -> str:
    return f"{round(100 * change, 1) + 0.0:+.1f} %"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
