"""Writes a report down: as tables for people, as plain values for programs, as one page for browsers."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table

from instrumentation.accounting.ledger.sums import LedgerRow, LedgerSums, peaks
from instrumentation.accounting.story import (
    WASTE,
    CallStory,
    Story,
    StoryParts,
)
from instrumentation.reports.columns import harmless
from instrumentation.reports.gather import Report
from pager.errors import ConfigError

WIDTH = 80
"""The columns of text that goes to no terminal, and the fewest that tables are made for: no number is ever cut."""

SPARKS = "▁▂▃▄▅▆▇█"
SPARK = 46
EVENTS = 20
"""Calls that an overview lists: the latest in which something happened."""

NAMES = {
    "system": "system prompt (first call)",
    "resent": "system prompt (resent every call)",
    "schemas": "tools that are called",
    "unused_schemas": "tools that are never called",
    "user": "user messages",
    "assistant": "assistant messages",
    "results": "results in use",
    "stale": "stale results",
    "duplicates": "duplicate results",
    "superseded": "outdated file versions",
    "stubs": "put in by paging",
    "other": "other",
}

COSTS = {
    "stubs": "stubs",
    "page_ins": "results fetched back",
    "corrections": "corrected calls",
    "rewritten": "cache rewrites",
}
"""What paging itself costs, in words."""

CAUSES = {
    "policy": "",
    "rescue": ", to fit the model's window",
    "client": ", as the client rewrote its history",
}
"""Why a prompt changed before its end, where that is not because it pays."""


def written(report: Report, form: str, *, with_content: bool = False, width: int = WIDTH, color: bool = False) -> str:
    """The report as ``text``, ``json``, ``csv`` or ``html``."""
    if form == "text":
        return as_text(report, width, color=color)
    if form == "html":
        return _as_html(report, with_content=with_content)
    forms: Mapping[str, Callable[[Report], str]] = {"json": as_json, "csv": as_csv}
    return forms[form](report)


# ---------------------------------------------------------------- for programs


def values(row: LedgerRow) -> dict[str, Any]:
    """A group as plain values, all of them numbers but its name; costs are in units of one uncached input token."""
    sums = row.sums
    return {
        "name": row.name,
        "sessions": row.sessions,
        **{name: getattr(sums, name) for name in _COUNTS},
        "client": sums.client.total,
        "upstream": sums.upstream,
        "avoided": sums.avoided_tokens,
        "inflicted": sums.inflicted_tokens,
        "waste": sum(sums.remaining.values()),
        **{f"client_{name}": getattr(sums.client, name) for name in StoryParts.__struct_fields__},
        **{f"sent_{name}": getattr(sums.sent, name) for name in StoryParts.__struct_fields__},
        "page_in_tokens": sums.inflicted.page_in_tokens,
        "correction_tokens": sums.inflicted.correction_tokens,
        **{name: round(getattr(sums, name), 6) for name in _COSTS},
        **{f"cost_{name}": round(getattr(sums.inflicted, name), 6) for name in _INFLICTED},
        **{name: round(getattr(sums, name), 6) for name in _RATIOS},
    }


_COUNTS = (
    *("calls", "requests", "estimated", "unpriced", "input", "cached", "written", "output", "cached_before", "new"),
    *("evicted", "missed", "pages_in", "schemas_in", "corrected", "repacks", "rewritten", "working"),
)
_COSTS = (
    *("cost", "cost_before", "saved", "avoided_cost", "dollars", "dollars_before", "dollars_saved"),
    *("dollars_avoided", "dollars_inflicted"),
)
_INFLICTED = ("stubs", "page_ins", "corrections", "rewritten")
_RATIOS = ("hit_rate", "hit_rate_before", "amplification", "faults_per_page", "faults_per_call")


def as_json(report: Report) -> str:
    """The ledger, and the story of the session where one was asked for."""
    found = report.ledger
    plain: dict[str, Any] = {
        "by": found.by,
        "rows": [values(row) for row in found.rows],
        "total": values(found.total),
        "failed": found.failed,
        "unread": list(report.unread),
    }
    if report.overview:
        plain["story"] = msgspec.to_builtins(report.stories[0])
    return json.dumps(plain) + "\n"


def as_csv(report: Report) -> str:
    """One line for each group."""
    rows = [values(row) for row in report.ledger.rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _as_html(report: Report, *, with_content: bool) -> str:
    from instrumentation.reports.page import page  # not needed by the others

    if len(report.stories) > 1:
        names = ", ".join(one.session for one in report.stories[-3:])
        raise ConfigError(f"--format html shows one session; name one of {len(report.stories)}, such as {names}")
    return page(report.stories[0], with_content=with_content)


# ---------------------------------------------------------------- for people


def as_text(report: Report, width: int = WIDTH, *, color: bool = False) -> str:
    """The report as a sentence and tables."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(WIDTH, width),
        force_terminal=color,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )
    for one in _told(report):
        console.print(harmless(one) if isinstance(one, str) else one)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _told(report: Report) -> Iterator[RenderableType]:
    found, total = report.ledger, report.ledger.total
    yield _headline(total)
    yield ""
    if report.overview:
        yield from _facts(report.stories[0])
    else:
        yield _groups(found.by, [*found.rows, total] if len(found.rows) > 1 else found.rows)
        yield ""
    yield _parts(total.sums)
    yield ""
    yield _money(total.sums)
    yield ""
    yield from _rates(total.sums, found.failed)
    if report.overview and (events := _events(report.stories[0])):
        yield ""
        yield _happened(events)
    yield ""
    yield from _notes(total.sums)
    for line in report.unread:
        yield f"can't be read: {line}"


def summary(report: Report) -> str:
    """What calls came to, in two lines."""
    sums, failed = report.ledger.total.sums, report.ledger.failed
    tokens = f"{_short(sums.client.total)} tokens of prompts, of which {_short(sums.upstream)} went out"
    return f"{_headline(report.ledger.total)}\n{tokens}; {_counted(failed, 'failed attempt', 'failed attempts')}."


def _headline(total: LedgerRow) -> str:
    """What was saved, in one sentence."""
    sums = total.sums
    of = f"{_counted(sums.calls, 'call', 'calls')} of {_counted(total.sessions, 'session', 'sessions')}"
    before = _amount(sums, sums.dollars_before, sums.cost_before)
    unit = "" if _is_priced(sums) else " token-equivalents*"
    if not sums.inflicted.cost and not sums.saved:
        return f"Nothing was paged: {of} cost {before}{unit}."
    share, difference = _change(sums), _amount(sums, abs(sums.dollars_saved), abs(sums.saved))
    if _saved(sums) < 0:
        return f"ctxpager cost {difference} more than {before}{unit} without it ({share}), in {of}."
    return f"ctxpager saved {difference} of {before}{unit} ({share}), in {of}."


def _is_priced(sums: LedgerSums) -> bool:
    """Whether the price of any call is known."""
    return sums.unpriced < sums.calls


def _saved(sums: LedgerSums) -> float:
    """What was saved, in dollars if prices are known."""
    return sums.dollars_saved if _is_priced(sums) else sums.saved


def _change(sums: LedgerSums) -> str:
    """The share of the cost without ctxpager that was saved; of the calls whose price is known, if there are such."""
    before = sums.dollars_before if _is_priced(sums) else sums.cost_before
    return _share(abs(_saved(sums)), before)


def _amount(sums: LedgerSums, dollars: float, units: float) -> str:
    """An amount of money, or of token-equivalents where no price is known."""
    return f"${_dollars(sums, dollars)}" if _is_priced(sums) else f"{round(units):,}"


def _facts(told: Story) -> Iterator[RenderableType]:
    calls = told.calls
    models = ", ".join(dict.fromkeys(call.model for call in calls))
    key = f" ({told.key})" if told.key else ""
    branches = len({call.branch for call in calls})
    yield f"session  {told.session}{key}, {told.harness or 'unknown agent'}, {models}"
    yield f"calls    {len(calls):,} answered, in {_counted(branches, 'branch', 'branches')}"
    largest = max(call.client.total for call in calls)
    for words, series in (
        ("before", [call.client.total for call in calls]),
        ("after", [call.sent.total for call in calls]),
    ):
        yield f"{words:8} {spark(series, top=largest)}  up to {max(series):,} tokens"
    prices = [call.dollars for call in calls if call.dollars is not None]
    most = f"${max(prices):,.4f}" if prices else f"{max(call.cost for call in calls):,.0f}*"
    yield f"{'cost':8} {spark([round(call.cost) for call in calls])}  up to {most}"
    yield ""


def spark(series: Sequence[int], width: int = SPARK, top: int = 0) -> str:
    """A series as one line of bars; ``top`` is what the highest bar stands for, by default the largest of them."""
    shown = peaks(series, width)
    highest = max([top, *shown, 1])
    return "".join(SPARKS[min(len(SPARKS) - 1, len(SPARKS) * max(0, value) // highest)] for value in shown)


def _groups(by: str, rows: Sequence[LedgerRow]) -> Table:
    priced = any(_is_priced(row.sums) for row in rows)
    unit = "$" if priced else "*"
    table = _table(by, "calls", "before", "after", f"without\nctxpager {unit}", f"with\nit {unit}", "saved")
    for row in rows:
        sums = row.sums
        tokens = (_short(sums.client.total), _short(sums.upstream))
        costs = (_short(round(sums.cost_before)), _short(round(sums.cost)))
        dollars = (_dollars(sums, sums.dollars_before), _dollars(sums, sums.dollars))
        share = _share(_saved(sums), sums.dollars_before if _is_priced(sums) else sums.cost_before)
        table.add_row(harmless(row.name), f"{sums.calls:,}", *tokens, *(dollars if priced else costs), share)
    return table


def _parts(sums: LedgerSums) -> Table:
    """Where the tokens of all prompts went."""
    table = _table("tokens of prompts", "before", "share", "removed", "after", "share")
    whole, avoided = sums.client.total, sums.avoided
    for name in StoryParts.__struct_fields__:
        theirs, ours = getattr(sums.client, name), getattr(sums.sent, name)
        if theirs or ours:
            gone = _short(avoided[name]) if name in avoided else ""
            label = f"{NAMES[name]} ~" if name in WASTE else NAMES[name]
            table.add_row(label, _short(theirs), _share(theirs, whole), gone, _short(ours), _share(ours, whole))
    again = sums.inflicted.again
    if again:
        table.add_row("sent once more, for fetches", "", "", "", _short(again), _share(again, whole))
    table.add_section()
    waste, left = sum(sums.client.waste.values()), sum(sums.remaining.values())
    for label, before, removed, after in (
        ("all", whole, sums.avoided_tokens, sums.upstream),
        ("~ waste", waste, waste - left, left),
    ):
        shares = (_share(before, whole), _short(removed), _short(after), _share(after, whole))
        table.add_row(label, _short(before), *shares)
    return table


def _money(sums: LedgerSums) -> Table:
    priced = _is_priced(sums)
    table = _table("money", *(("$",) if priced else ()), "share", "token-equivalents*")
    rate = sums.dollars / sums.cost if sums.cost else 0.0
    lines: list[tuple[str, float, float]] = [
        ("without ctxpager", sums.cost_before, sums.dollars_before),
        ("removed", -sums.avoided_cost, -sums.dollars_avoided),
        *((f"cost of paging: {words}", cost, cost * rate) for words, cost in _inflicted(sums)),
        ("with ctxpager", sums.cost, sums.dollars),
    ]
    for name, units, dollars in lines:
        if name == "with ctxpager":
            table.add_section()
        money = (_dollars(sums, dollars),) if priced else ()
        table.add_row(name, *money, _share(units, sums.cost_before), f"{units + 0.0:,.0f}")
    return table


def _inflicted(sums: LedgerSums) -> Iterator[tuple[str, float]]:
    for name, words in COSTS.items():
        cost = getattr(sums.inflicted, name)
        if cost:
            yield words, cost


def _rates(sums: LedgerSums, failed: int) -> Iterator[str]:
    yield f"{_percent(sums.hit_rate)} of prompts were cached, {_percent(sums.hit_rate_before)} without ctxpager."
    yield f"A token was sent {sums.amplification:,.1f} times on average; at most {sums.working:,} were in use at once."
    asked = f"{_counted(sums.pages_in, 'result', 'results')}, {_counted(sums.schemas_in, 'tool', 'tools')} fetched back"
    happened = (
        f"{_counted(sums.corrected, 'call', 'calls')} corrected",
        _counted(sums.repacks, "repack", "repacks"),
        _counted(failed, "failed attempt", "failed attempts"),
    )
    yield f"{', '.join([asked, *happened])}."
    if sums.evicted or sums.pages_in:
        gone = _counted(sums.evicted, "removed result", "removed results")
        rates = f"{sums.faults_per_page:.1f} times each, {sums.faults_per_call:.2f} fetches a call"
        yield f"Fault rate: of {gone} {sums.missed:,} missed, {rates}."


def _notes(sums: LedgerSums) -> Iterator[str]:
    """What must be known to read the figures."""
    yield "~ need not have been sent.  repack: a change of the prompt before its end."
    yield "* token-equivalents: units of one uncached input token of the call's model"
    if sums.estimated:
        yield f"of {sums.estimated:,} calls the provider reported no tokens: theirs are estimated"
    if 0 < sums.unpriced < sums.calls:
        yield f"of {sums.unpriced:,} calls the model's price is not known: they are in no sum of dollars"


def _events(told: Story) -> list[CallStory]:
    """The latest calls in which something happened."""
    return [call for call in told.calls if call.repack or call.pages_in or call.schemas_in or call.corrected][-EVENTS:]


def _happened(calls: Sequence[CallStory]) -> Table:
    priced = any(call.dollars is not None for call in calls)
    unit = "$" if priced else "*"
    table = _table("call", "before", "after", f"cost {unit}", f"without {unit}")
    table.add_column("what happened")
    for call in calls:
        dollars = (call.dollars, call.dollars_before)
        units = (_short(round(call.cost)), _short(round(call.cost_before)))
        money = ["" if amount is None else _cents(amount) for amount in dollars] if priced else units
        counts = (_short(call.client.total), _short(call.sent.total))
        table.add_row(f"{call.branch}:{call.call}", *counts, *money, _event(call))
    return table


def _event(call: CallStory) -> str:
    """What happened to the prompt of a call, and to calls of tools in its answer."""
    repack, found = call.repack, []
    if repack is not None:
        words = f"{_counted(repack.pages, 'result', 'results')} removed, {_short(repack.saved)} tokens"
        found.append(f"{words}{CAUSES.get(repack.cause, f', {harmless(repack.cause)}')}")
    if fetched := call.pages_in + call.schemas_in:
        found.append(f"{fetched:,} fetched back")
    if call.corrected:
        found.append(f"{_counted(call.corrected, 'call', 'calls')} corrected")
    return "; ".join(found)


def _table(first: str, *others: str) -> Table:
    """An empty table; names may go on in the next line, numbers never do."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _short(count: int) -> str:
    """A count in a few characters."""
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(count) >= least:
            return f"{count / size:,.1f}{unit}"
    return f"{count:,}"


def _share(part: float, whole: float) -> str:
    return _percent(part / whole) if whole else ""


def _percent(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f} %"  # never -0.0


def _dollars(sums: LedgerSums, dollars: float) -> str:
    """An amount, if the price of any call is known."""
    return _cents(dollars) if _is_priced(sums) else ""


def _cents(dollars: float) -> str:
    """An amount to the cent, a small one more exactly."""
    return f"{dollars + 0.0:,.2f}" if abs(dollars) >= 1 else f"{dollars + 0.0:,.4f}"
