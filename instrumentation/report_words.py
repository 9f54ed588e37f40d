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

from instrumentation.layout import harmless
from instrumentation.ledger import Row, Sums, peaks
from instrumentation.report import Report
from instrumentation.story import WASTE, CallStory, Parts, Story
from pager.errors import ConfigError

WIDTH = 140
"""The columns of text that goes to no terminal."""

SPARKS = "▁▂▃▄▅▆▇█"
SPARK = 72
EVENTS = 20
"""Calls that an overview lists: the latest in which something happened."""

NAMES = {
    "system": "system prompt, first time",
    "resent": "system prompt, again",
    "schemas": "tools that are called",
    "unused_schemas": "tools that are never called",
    "user": "user",
    "assistant": "assistant",
    "results": "results in use",
    "stale": "results past their use",
    "duplicates": "results that stand there again",
    "superseded": "results with a newer state",
    "stubs": "put in by paging",
    "other": "other",
}


def written(report: Report, form: str, *, with_content: bool = False, width: int = WIDTH, color: bool = False) -> str:
    """The report as ``text``, ``json``, ``csv`` or ``html``."""
    if form == "text":
        return as_text(report, width, color=color)
    if form == "html":
        return _as_html(report, with_content=with_content)
    forms: Mapping[str, Callable[[Report], str]] = {"json": as_json, "csv": as_csv}
    return forms[form](report)


# ---------------------------------------------------------------- for programs


def values(row: Row) -> dict[str, Any]:
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
        **{f"client_{name}": getattr(sums.client, name) for name in Parts.__struct_fields__},
        **{f"sent_{name}": getattr(sums.sent, name) for name in Parts.__struct_fields__},
        "page_in_tokens": sums.inflicted.page_in_tokens,
        "correction_tokens": sums.inflicted.correction_tokens,
        **{name: round(getattr(sums, name), 6) for name in _COSTS},
        **{f"cost_{name}": round(getattr(sums.inflicted, name), 6) for name in _INFLICTED},
        **{name: round(getattr(sums, name), 6) for name in _RATIOS},
    }


_COUNTS = (
    *("calls", "requests", "estimated", "unpriced", "input", "cached", "written", "output", "cached_before", "new"),
    *("pages_in", "schemas_in", "corrected", "repacks", "rewritten", "working"),
)
_COSTS = (
    *("cost", "cost_before", "saved", "avoided_cost", "dollars", "dollars_before", "dollars_saved"),
    *("dollars_avoided", "dollars_inflicted"),
)
_INFLICTED = ("stubs", "page_ins", "corrections", "rewritten")
_RATIOS = ("hit_rate", "hit_rate_before", "amplification")


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
    from instrumentation.html import page  # not needed by the others

    if len(report.stories) > 1:
        names = ", ".join(one.session for one in report.stories[-3:])
        raise ConfigError(f"--format html shows one session; name one of {len(report.stories)}, such as {names}")
    return page(report.stories[0], with_content=with_content)


# ---------------------------------------------------------------- for people


def as_text(report: Report, width: int = WIDTH, *, color: bool = False) -> str:
    """The report as tables."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=color, highlight=False, markup=False, emoji=False, soft_wrap=False
    )
    for one in _told(report):
        console.print(harmless(one) if isinstance(one, str) else one)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _told(report: Report) -> Iterator[RenderableType]:
    found, total = report.ledger, report.ledger.total
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
    for line in report.unread:
        yield f"can't be read: {line}"


def _facts(told: Story) -> Iterator[RenderableType]:
    calls = told.calls
    models = ", ".join(dict.fromkeys(call.model for call in calls))
    key = f" ({told.key})" if told.key else ""
    branches = len({call.branch for call in calls})
    yield f"session  {told.session}{key}, {told.harness or 'unknown harness'}, {models}"
    yield f"calls    {len(calls):,} answered, in {_counted(branches, 'branch', 'branches')}"
    largest = max(call.client.total for call in calls)
    for words, series in (
        ("client", [call.client.total for call in calls]),
        ("sent", [call.sent.total for call in calls]),
    ):
        yield f"{words:8} {spark(series, top=largest)}  up to {max(series):,} tokens"
    yield f"{'cost':8} {spark([round(call.cost) for call in calls])}  up to {max(call.cost for call in calls):,.0f}"
    yield ""


def spark(series: Sequence[int], width: int = SPARK, top: int = 0) -> str:
    """A series as one line of bars; ``top`` is what the highest bar stands for, by default the largest of them."""
    shown = peaks(series, width)
    highest = max([top, *shown, 1])
    return "".join(SPARKS[min(len(SPARKS) - 1, len(SPARKS) * max(0, value) // highest)] for value in shown)


def _groups(by: str, rows: Sequence[Row]) -> Table:
    priced = any(row.sums.unpriced < row.sums.calls for row in rows)
    money = ("cost", "saved", *(("$", "$ saved") if priced else ()))
    table = _table(by, "calls", "client", "upstream", "avoided", "inflicted", "waste", "cached", "unpaged", *money)
    table.add_column("prompts", no_wrap=True)
    for row in rows:
        sums = row.sums
        tokens = (sums.client.total, sums.upstream, sums.avoided_tokens, sums.inflicted_tokens)
        waste = _share(sum(sums.remaining.values()), sums.sent.total)
        hits = (_percent(sums.hit_rate), _percent(sums.hit_rate_before))
        cells = [f"{sums.calls:,}", *map(_short, tokens), waste, *hits]
        cells += [_short(round(sums.cost)), _share(sums.saved, sums.cost_before)]
        if priced:
            cells += [_dollars(sums, sums.dollars), _dollars(sums, sums.dollars_saved)]
        table.add_row(harmless(row.name), *cells, spark(row.trend))
    return table


def _parts(sums: Sums) -> Table:
    """Where the tokens of all prompts went."""
    table = _table("tokens of prompts", "client", "share", "avoided", "sent", "of the client's")
    whole, avoided = sums.client.total, sums.avoided
    for name in Parts.__struct_fields__:
        theirs, ours = getattr(sums.client, name), getattr(sums.sent, name)
        if theirs or ours:
            spared = f"{avoided[name]:,}" if name in avoided else ""
            label = f"{NAMES[name]} *" if name in WASTE else NAMES[name]
            table.add_row(label, f"{theirs:,}", _share(theirs, whole), spared, f"{ours:,}", _share(ours, whole))
    again = sums.inflicted.again
    if again:
        table.add_row("sent once more, for page-ins and corrections", "", "", "", f"{again:,}", _share(again, whole))
    up = sums.upstream
    table.add_section()
    table.add_row("all", f"{whole:,}", _share(whole, whole), f"{sums.avoided_tokens:,}", f"{up:,}", _share(up, whole))
    waste, left = sum(sums.client.waste.values()), sum(sums.remaining.values())
    table.add_row("* waste", f"{waste:,}", _share(waste, whole), f"{waste - left:,}", f"{left:,}", _share(left, whole))
    return table


def _money(sums: Sums) -> Table:
    table = _table("money", "units", "share", "$")
    inflicted = list(_inflicted(sums))
    lines: list[tuple[str, float, float | None]] = [
        ("without paging", sums.cost_before, sums.dollars_before),
        ("avoided", -sums.avoided_cost, -sums.dollars_avoided),
        *((f"inflicted: {name.replace('_', '-')}", cost, None) for name, cost in inflicted),
        *([("inflicted in all", sum(cost for _, cost in inflicted), sums.dollars_inflicted)] if inflicted else []),
        ("paid", sums.cost, sums.dollars),
    ]
    for name, units, dollars in lines:
        if name == "paid":
            table.add_section()
        money = "" if dollars is None else _dollars(sums, dollars)
        table.add_row(name, f"{units + 0.0:,.0f}", _share(units, sums.cost_before), money)
    return table


def _inflicted(sums: Sums) -> Iterator[tuple[str, float]]:
    for name in _INFLICTED:
        cost = getattr(sums.inflicted, name)
        if cost:
            yield name, cost


def _rates(sums: Sums, failed: int) -> Iterator[str]:
    hits = f"{_percent(sums.hit_rate)} of prompts cached, {_percent(sums.hit_rate_before)} if nothing had been paged"
    yield f"{hits}; each token was sent {sums.amplification:,.1f} times; working set up to {sums.working:,} tokens"
    asked = f"{sums.pages_in:,} pages and {sums.schemas_in:,} tools asked for, {sums.corrected:,} calls corrected"
    happened = (_counted(sums.repacks, "repack", "repacks"), _counted(failed, "failed attempt", "failed attempts"))
    yield ", ".join([asked, *happened])
    if sums.estimated:
        yield f"of {sums.estimated:,} calls the provider reported no tokens: theirs are estimated"
    if 0 < sums.unpriced < sums.calls:
        yield f"of {sums.unpriced:,} calls the model's price is not known: they are in no sum of dollars"
    yield "costs are in units of one uncached input token of the call's model"


def _events(told: Story) -> list[CallStory]:
    """The latest calls in which something happened."""
    return [call for call in told.calls if call.repack or call.pages_in or call.schemas_in or call.corrected][-EVENTS:]


def _happened(calls: Sequence[CallStory]) -> Table:
    table = _table("call", "client", "sent", "cost", "unpaged", "asked for", "corrected")
    table.add_column("repack")
    for call in calls:
        asked = call.pages_in + call.schemas_in
        counts = (call.client.total, call.sent.total, round(call.cost), round(call.cost_before), asked, call.corrected)
        one = call.repack
        went = f"{one.cause}: {one.pages} pages, price {one.price:,.0f}; {harmless(one.reason)}" if one else ""
        table.add_row(f"{call.branch}:{call.call}", *(f"{count:,}" for count in counts), went)
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(first, no_wrap=True)
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


def _dollars(sums: Sums, dollars: float) -> str:
    """An amount, if the price of any call is known."""
    if sums.unpriced == sums.calls:
        return ""
    return f"{dollars + 0.0:,.2f}" if abs(dollars) >= 1 else f"{dollars + 0.0:,.4f}"
