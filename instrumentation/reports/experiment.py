"""Writes the report of an experiment down: in words for people, as plain values for programs."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from instrumentation.accounting.confidence import CONFIDENCE, FEWEST
from instrumentation.accounting.experiment import (
    DOLLARS,
    SHORTEST,
    Arm,
    ArmComparison,
    ExperimentReport,
    HarmComparison,
)
from instrumentation.accounting.harm import SIGNS
from instrumentation.reports.table import table

HEAD = ("arm", "sessions", "calls", "cost", "dollars", "a call", "a session", "page-ins a call", "failures a call")
HARM_HEAD = ("arm", "sign of harm", "sessions", "arm's", "control's", "ratio", "from", "to", "verdict")


def as_text(report: ExperimentReport, *, width: int = 0, color: bool = False) -> str:
    """The arms in a table, then what is known of how they differ, in cost and in signs of harm."""
    lines = list(table(HEAD, [_cells(arm) for arm in report.arms], width=width, color=color))
    lines += ["", *map(compared, report.comparisons)]
    if report.harm:
        rows = [_harm_cells(one) for one in report.harm]
        lines += ["", *table(HARM_HEAD, rows, (0, 1, 8), width, color=color)]
    lines += _notes(report)
    return "\n".join(lines) + "\n"


def _cells(arm: Arm) -> tuple[str, ...]:
    calls, sessions = max(1, arm.calls), max(1, arm.sessions)
    dollars = "unknown" if arm.dollars is None else f"{arm.dollars:,.2f}"
    costs = (f"{arm.units:,.0f}", dollars, f"{arm.units / calls:,.0f}", f"{arm.units / sessions:,.0f}")
    often = (f"{arm.page_ins / calls:.3f}", f"{arm.failures / calls:.3f}")
    return (arm.arm, f"{arm.sessions:,}", f"{arm.calls:,}", *costs, *often)


def _harm_cells(one: HarmComparison) -> tuple[str, ...]:
    rates = ("none" if rate is None else f"{rate:.3f}" for rate in one.rates)
    ends = ("" if end is None else "∞" if math.isinf(end) else f"{end:.2f}" for end in one.ratio or (None,) * 3)
    return (one.arm, one.sign.words, " + ".join(f"{count:,}" for count in one.sessions), *rates, *ends, one.verdict)


def compared(one: ArmComparison) -> str:
    """What is known of the difference between an arm and the control, in one sentence."""
    found, (own, others) = one.ratio, one.sessions
    if found is None:
        return (
            f"too few sessions to tell {one.arm} from {one.control}: "
            f"there are {own} and {others}, and {FEWEST} of each are the least"
        )
    costs = f"{one.arm} costs {found.ratio:.2f} of {one.control} per call ({found.low:.2f} to {found.high:.2f})"
    if found.is_significant:
        change = abs(1 - found.ratio)
        return f"{costs}: {100 * change:.0f} % {'less' if found.ratio < 1 else 'more'}"
    return f"{costs}: not told apart by {own + others:,} sessions; {_enough(one)}"


def _enough(one: ArmComparison) -> str:
    if one.needed is None:
        return "they may well cost the same"
    return f"if that is the true difference, about {one.needed:,} would tell"


def _notes(report: ExperimentReport) -> Iterator[str]:
    yield ""
    by = {one.by for one in report.comparisons if one.ratio is not None}
    if by:
        unit = "dollars" if by == {DOLLARS} else "units"
        yield f"Compared in {unit}; of such intervals, {100 * CONFIDENCE:.0f} % hold the truth."
    yield "Costs are in units of one uncached input token, by the tokens that providers reported."
    if report.harm:
        allowed = f"{100 * report.margin:g} % more than {report.harm[0].control}"
        yield f'"Not worse": at most {allowed}, by the upper end of the interval.'
    for count, words in (
        (sum(arm.too_short for arm in report.arms), f"sessions have fewer than {SHORTEST} answered calls"),
        (sum(arm.unpriced for arm in report.arms), "sessions have no reported tokens"),
        (sum(arm.untold for arm in report.arms), "answered calls have no reported tokens"),
        (report.outside, "sessions were given to no arm"),
    ):
        if count:
            yield f"Left out: {count:,} {words}."


def as_rows(report: ExperimentReport) -> list[dict[str, Any]]:
    """One row for each arm, with its verdict on each sign of harm; empty for the control."""
    verdicts = {(one.arm, one.sign.name): one.verdict for one in report.harm}
    return [
        {**msgspec.to_builtins(arm), "verdicts": {sign.name: verdicts.get((arm.arm, sign.name), "") for sign in SIGNS}}
        for arm in report.arms
    ]


def as_json(report: ExperimentReport) -> dict[str, Any]:
    """The report as plain values."""
    comparisons = [
        {
            "arm": one.arm,
            "control": one.control,
            "sessions": list(one.sessions),
            "by": one.by,
            **({} if one.ratio is None else one.ratio._asdict()),
            "told": one.ratio is not None and one.ratio.is_significant,
            "needed": one.needed,
            "words": compared(one),
        }
        for one in report.comparisons
    ]
    harm = [
        {
            "arm": one.arm,
            "control": one.control,
            "sign": one.sign.name,
            "sessions": list(one.sessions),
            "rates": list(one.rates),
            **{
                name: end if math.isfinite(end) else None
                for name, end in (one.ratio._asdict() if one.ratio else {}).items()
            },
            "verdict": one.verdict,
        }
        for one in report.harm
    ]
    return {
        "arms": as_rows(report),
        "comparisons": comparisons,
        "outside": report.outside,
        "margin": report.margin,
        "harm": harm,
    }
