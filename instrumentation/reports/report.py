"""Writes a report down: as tables for people, as plain values for programs, as one page for browsers."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from instrumentation.accounting.ledger.sums import LedgerRow, LedgerSums, peaks
from instrumentation.accounting.story import (
    WASTE,
    CallStory,
    MissSums,
    Story,
    StoryParts,
)
from instrumentation.reports.gather import Report
from instrumentation.reports.labels import COUNTABLE, MISSES, PARTS
from instrumentation.reports.table import counted, dollars, folded, one_line, percent, share_of, short, table
from pager.errors import ConfigError

WIDTH = 80
"""The columns of text that goes to no terminal, and the fewest that tables are made for: no number is ever cut."""

Draw = Callable[..., Iterator[str]]
"""Draws a table of the width that is wanted."""

SPARKS = "▁▂▃▄▅▆▇█"
SPARK = 46
EVENTS = 20
"""Calls that an overview lists: the latest in which something happened."""

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
        **_cache_values(sums),
        **{name: round(getattr(sums, name), 6) for name in _RATIOS},
    }


def _cache_values(sums: LedgerSums) -> dict[str, Any]:
    """Calls that missed the cache, by the reason, what would have been cold without ctxpager, and keeping warm."""
    missed, cold, warm, found = sums.misses.all, sums.cold_before, sums.kept_warm, {}
    for name in MissSums.__struct_fields__:
        one = getattr(sums.misses, name)
        found[f"cache_misses_{name}"] = one.calls
        found[f"cache_miss_tokens_{name}"] = one.tokens
        found[f"cost_misses_{name}"] = round(one.cost, 6)
    return {
        "cache_misses": missed.calls,
        "cache_miss_tokens": missed.tokens,
        "cost_misses": round(missed.cost, 6),
        "dollars_misses": round(missed.dollars, 6),
        **found,
        "cold_calls_before": cold.calls,
        "cold_tokens_before": cold.tokens,
        "cost_cold_before": round(cold.cost, 6),
        "dollars_cold": round(sums.misses.pause.dollars, 6),
        "dollars_cold_before": round(cold.dollars, 6),
        "refreshes": warm.refreshes,
        "rescues": warm.rescues,
        "cost_refreshes": round(warm.cost, 6),
        "cost_rescued": round(warm.rescued, 6),
        "dollars_refreshes": round(warm.dollars, 6),
        "dollars_rescued": round(warm.dollars_rescued, 6),
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


def as_json(report: Report) -> dict[str, Any]:
    """The ledger, and the story of the session where one was asked for."""
    found = report.ledger
    plain: dict[str, Any] = {
        "by": found.by,
        "rows": as_rows(report),
        "total": values(found.total),
        "failed": found.failed,
        "unread": list(report.unread),
    }
    if report.overview:
        plain["story"] = msgspec.to_builtins(report.stories[0])
    return plain


def as_rows(report: Report) -> list[dict[str, Any]]:
    """One row for each group."""
    return [values(row) for row in report.ledger.rows]


def as_html(report: Report) -> str:
    """The page of the one session."""
    from instrumentation.reports.html_page import page  # not needed by the others

    if len(report.stories) > 1:
        names = ", ".join(one.session for one in report.stories[-3:])
        raise ConfigError(f"--format html shows one session; name one of {len(report.stories)}, such as {names}")
    return page(report.stories[0], with_content=report.with_content)


# ---------------------------------------------------------------- for people


def as_text(report: Report, *, width: int = 0, color: bool = False, warm: str = "") -> str:
    """The report as a sentence and tables; ``warm`` is what keeping warm would have saved, in words, or empty."""
    width, found, total = max(WIDTH, width), report.ledger, report.ledger.total
    draw = partial(table, width=width, color=color)
    lines = [*folded([_headline(total)], width), ""]
    if report.overview:
        lines += [*map(one_line, _facts(report.stories[0])), ""]
    else:
        lines += [*_groups(draw, found.by, [*found.rows, total] if len(found.rows) > 1 else found.rows), ""]
    lines += [*_parts(draw, total.sums), "", *_money(draw, total.sums), ""]
    lines += [*folded(_rates(total.sums, found.failed), width), ""]
    if cache := [*_cache(total.sums)]:
        lines += [*folded(cache, width), ""]
    if report.overview and (events := _events(report.stories[0])):
        lines += [*_happened(draw, events), ""]
    lines += folded([*_notes(total.sums), *(f"can't be read: {line}" for line in report.unread)], width)
    lines += ["", *folded([warm], width)] if warm else []
    return "\n".join(lines) + "\n"


def summary(report: Report) -> str:
    """What calls came to, in two lines."""
    sums, failed = report.ledger.total.sums, report.ledger.failed
    tokens = f"{short(sums.client.total)} tokens of prompts, of which {short(sums.upstream)} went out"
    return f"{_headline(report.ledger.total)}\n{tokens}; {counted(failed, 'failed attempt')}."


def _headline(total: LedgerRow) -> str:
    """What was saved, in one sentence."""
    sums = total.sums
    of = f"{counted(sums.calls, 'call')} of {counted(total.sessions, 'session')}"
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
    return share_of(abs(_saved(sums)), before)


def _amount(sums: LedgerSums, dollars: float, units: float) -> str:
    """An amount of money, or of token-equivalents where no price is known."""
    return f"${_dollars(sums, dollars)}" if _is_priced(sums) else f"{round(units):,}"


def _facts(story: Story) -> Iterator[str]:
    calls = story.calls
    models = ", ".join(dict.fromkeys(call.model for call in calls))
    key = f" ({story.key})" if story.key else ""
    branches = len({call.branch for call in calls})
    yield f"session  {story.session}{key}, {story.harness or 'unknown agent'}, {models}"
    yield f"calls    {len(calls):,} answered, in {counted(branches, 'branch')}"
    largest = max(call.client.total for call in calls)
    for words, series in (
        ("before", [call.client.total for call in calls]),
        ("after", [call.sent.total for call in calls]),
    ):
        yield f"{words:8} {spark(series, top=largest)}  up to {max(series):,} tokens"
    prices = [call.dollars for call in calls if call.dollars is not None]
    most = f"${max(prices):,.4f}" if prices else f"{max(call.cost for call in calls):,.0f}*"
    yield f"{'cost':8} {spark([round(call.cost) for call in calls])}  up to {most}"


def spark(series: Sequence[int], width: int = SPARK, top: int = 0) -> str:
    """A series as one line of bars; ``top`` is what the highest bar means, by default the largest of them."""
    shown = peaks(series, width)
    highest = max([top, *shown, 1])
    return "".join(SPARKS[min(len(SPARKS) - 1, len(SPARKS) * max(0, value) // highest)] for value in shown)


def _groups(draw: Draw, by: str, rows: Sequence[LedgerRow]) -> Iterator[str]:
    priced = any(_is_priced(row.sums) for row in rows)
    unit = "$" if priced else "*"
    head = (by, "calls", "before", "after", f"without\nctxpager {unit}", f"with\nit {unit}", "saved")
    lines = []
    for row in rows:
        sums = row.sums
        tokens = (short(sums.client.total), short(sums.upstream))
        costs = (short(sums.cost_before), short(sums.cost))
        amounts = (_dollars(sums, sums.dollars_before), _dollars(sums, sums.dollars))
        share = share_of(_saved(sums), sums.dollars_before if _is_priced(sums) else sums.cost_before)
        lines.append((row.name, f"{sums.calls:,}", *tokens, *(amounts if priced else costs), share))
    return draw(head, lines)


def _parts(draw: Draw, sums: LedgerSums) -> Iterator[str]:
    """Where the tokens of all prompts went."""
    rows: list[Sequence[str]] = []
    whole, avoided = sums.client.total, sums.avoided
    for name in StoryParts.__struct_fields__:
        theirs, ours = getattr(sums.client, name), getattr(sums.sent, name)
        if theirs or ours:
            gone = short(avoided[name]) if name in avoided else ""
            label = f"{PARTS[name]} ~" if name in WASTE else PARTS[name]
            rows.append((label, short(theirs), share_of(theirs, whole), gone, short(ours), share_of(ours, whole)))
    again = sums.inflicted.again
    if again:
        rows.append(("sent once more, for fetches", "", "", "", short(again), share_of(again, whole)))
    rows.append(())
    waste, left = sum(sums.client.waste.values()), sum(sums.remaining.values())
    for label, before, removed, after in (
        ("all", whole, sums.avoided_tokens, sums.upstream),
        ("~ waste", waste, waste - left, left),
    ):
        shares = (share_of(before, whole), short(removed), short(after), share_of(after, whole))
        rows.append((label, short(before), *shares))
    return draw(("tokens of prompts", "before", "share", "removed", "after", "share"), rows)


def _money(draw: Draw, sums: LedgerSums) -> Iterator[str]:
    priced = _is_priced(sums)
    rows: list[Sequence[str]] = []
    rate = sums.dollars / sums.cost if sums.cost else 0.0
    lines: list[tuple[str, float, float]] = [
        ("without ctxpager", sums.cost_before, sums.dollars_before),
        ("removed", -sums.avoided_cost, -sums.dollars_avoided),
        *((f"cost of paging: {words}", cost, cost * rate) for words, cost in _inflicted(sums)),
        *_kept_warm(sums),
        ("with ctxpager", sums.cost, sums.dollars),
    ]
    for name, units, amount in lines:
        if name == "with ctxpager":
            rows.append(())
        money = (dollars(amount),) if priced else ()
        rows.append((name, *money, share_of(units, sums.cost_before), f"{units + 0.0:,.0f}"))
    return draw(("money", *(("$",) if priced else ()), "share", "token-equivalents*"), rows)


def _kept_warm(sums: LedgerSums) -> Iterator[tuple[str, float, float]]:
    """What keeping warm rescued and cost, apart from paging."""
    warm = sums.kept_warm
    if warm.rescues:
        yield "keeping warm: rescued", -warm.rescued, -warm.dollars_rescued
    if warm.refreshes:
        yield "keeping warm: refreshes", warm.cost, warm.dollars


def _inflicted(sums: LedgerSums) -> Iterator[tuple[str, float]]:
    for name, words in COSTS.items():
        cost = getattr(sums.inflicted, name)
        if cost:
            yield words, cost


def _rates(sums: LedgerSums, failed: int) -> Iterator[str]:
    yield f"{percent(sums.hit_rate)} of prompts were cached, {percent(sums.hit_rate_before)} without ctxpager."
    yield f"A token was sent {sums.amplification:,.1f} times on average; at most {sums.working:,} were in use at once."
    asked = f"{counted(sums.pages_in, 'result')}, {counted(sums.schemas_in, 'tool')} fetched back"
    happened = (
        f"{counted(sums.corrected, 'call')} corrected",
        counted(sums.repacks, "repack"),
        counted(failed, "failed attempt"),
    )
    yield f"{', '.join([asked, *happened])}."
    if sums.evicted or sums.pages_in:
        gone = counted(sums.evicted, "removed result")
        rates = f"{sums.faults_per_page:.1f} times each, {sums.faults_per_call:.2f} fetches a call"
        yield f"Fault rate: of {gone} {sums.missed:,} missed, {rates}."


def _cache(sums: LedgerSums) -> Iterator[str]:
    """Why calls missed the cache, what pauses cost, and what keeping warm brought; nothing where there is none."""
    missed, cold, before, warm = sums.misses.all, sums.misses.pause, sums.cold_before, sums.kept_warm
    unit = "" if _is_priced(sums) else " token-equivalents*"
    if missed.calls:
        each = ", ".join(_reason(name, one.calls) for name, one in sums.misses.each.items())
        amount = f"{_amount(sums, missed.dollars, missed.cost)}{unit} more than reading them"
        tokens = f"{short(missed.tokens)} tokens, {amount} ({share_of(missed.cost, sums.cost)} of the cost)"
        yield f"Cache misses: {missed.calls:,} ({each}); {tokens}."
    if cold.calls or before.calls:
        ours = f"{short(cold.tokens)} tokens, {_amount(sums, cold.dollars, cold.cost)}{unit}"
        theirs = f"{short(before.tokens)}, {_amount(sums, before.dollars, before.cost)} without ctxpager"
        yield f"Written again after pauses: {ours}; {theirs}."
    if warm.refreshes or warm.rescues:
        spent = f"{counted(warm.refreshes, 'refresh')} for {_amount(sums, warm.dollars, warm.cost)}{unit}"
        saved = f"{counted(warm.rescues, 'call')} rescued, {_amount(sums, warm.dollars_rescued, warm.rescued)}"
        net = _amount(sums, abs(warm.dollars_net), abs(warm.net))
        yield f"Keeping warm: {spent}, {saved}: {net} {'saved' if warm.net >= 0 else 'lost'}."


def _reason(name: str, calls: int) -> str:
    return counted(calls, MISSES[name]) if name in COUNTABLE else f"{calls:,} {MISSES[name]}"


def _notes(sums: LedgerSums) -> Iterator[str]:
    """What must be known to read the figures."""
    yield "~ need not have been sent.  repack: a change of the prompt before its end."
    yield "* token-equivalents: units of one uncached input token of the call's model"
    if sums.estimated:
        yield f"of {sums.estimated:,} calls the provider reported no tokens: theirs are estimated"
    if 0 < sums.unpriced < sums.calls:
        yield f"of {sums.unpriced:,} calls the model's price is not known: they are in no sum of dollars"


def _events(story: Story) -> list[CallStory]:
    """The latest calls in which something happened."""
    return [call for call in story.calls if _event(call)][-EVENTS:]


def _happened(draw: Draw, calls: Sequence[CallStory]) -> Iterator[str]:
    priced = any(call.dollars is not None for call in calls)
    unit = "$" if priced else "*"
    rows = []
    for call in calls:
        amounts = (call.dollars, call.dollars_before)
        units = (short(call.cost), short(call.cost_before))
        money = ["" if amount is None else dollars(amount) for amount in amounts] if priced else units
        counts = (short(call.client.total), short(call.sent.total))
        rows.append((f"{call.branch}:{call.call}", *counts, *money, _event(call)))
    return draw(("call", "before", "after", f"cost {unit}", f"without {unit}", "what happened"), rows, (0, 5))


def _event(call: CallStory) -> str:
    """What happened to the prompt of a call, and to calls of tools in its answer."""
    repack, found = call.repack, []
    if repack is not None:
        words = f"{counted(repack.pages, 'result')} removed, {short(repack.saved)} tokens"
        found.append(f"{words}{CAUSES.get(repack.cause, f', {one_line(repack.cause)}')}")
    if fetched := call.pages_in + call.schemas_in:
        found.append(f"{fetched:,} fetched back")
    if call.corrected:
        found.append(f"{counted(call.corrected, 'call')} corrected")
    if call.miss is not None and not (repack and call.miss.reason == "repack"):
        found.append(f"cache missed: {MISSES[call.miss.reason]}, {short(call.miss.tokens)} tokens")
    return "; ".join(found)


def _dollars(sums: LedgerSums, amount: float) -> str:
    """An amount, if the price of any call is known."""
    return dollars(amount) if _is_priced(sums) else ""
