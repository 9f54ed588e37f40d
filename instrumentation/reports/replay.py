"""Writes a comparison down: as a table for people, as plain values for programs."""

from collections.abc import Mapping, Sequence
from typing import Any

from instrumentation.replay.compare import Comparison, PlayedSession, PolicyRow
from instrumentation.replay.knowing_policy import KNOWING
from instrumentation.reports.table import counted, markdown, percent, signed

YARDSTICKS = {KNOWING: "of knowing"}
"""Oracles by whose saving, where they are in a comparison, that of every row is measured, and the column's name."""

HEAD = ("policy", "cost", "tokens", "cached", "page-ins", "faults", "repacks", "cost more", "worst session")
LEGEND = (
    "page-ins: requests for removed results and tools; faults: the answers that needed them",
    "repacks: changes of a prompt before its end; cost more: sessions that cost over 1 % more",
)
"""What the columns say."""

WARM_HEAD = ("refreshes", "their cost", "wrote")
WARM_LEGEND = (
    "refreshes: requests that only kept a prompt cached in a pause, and their cost as a share of doing nothing; "
    "wrote: those that found it expired"
)
"""What the columns say that a table has where prompts are kept warm."""


def as_text(comparison: Comparison, *, width: int = 0, color: bool = False) -> str:  # noqa: ARG001 - Markdown has neither
    """The comparison as one Markdown table, below a line that says what was played."""
    lines = [played(comparison)]
    if comparison.left_out:
        too_short = (
            "1 session is left out, as it is"
            if comparison.left_out == 1
            else f"{comparison.left_out:,} sessions are left out, as they are"
        )
        lines.append(f"{too_short} too short.")
    rows = comparison.rows()
    legend = [*LEGEND, WARM_LEGEND] if _keeps_warm(rows) else LEGEND
    return "\n".join([*lines, "", comparison_table(rows), *legend, ""])


def comparison_table(rows: Sequence[PolicyRow], yardsticks: Mapping[str, str] = YARDSTICKS) -> str:
    """The rows as one Markdown table, with what share of each oracle's saving they reach."""
    cells: list[tuple[str, ...]] = [HEAD, *(_cells(row) for row in rows)]
    if _keeps_warm(rows):
        warm = [WARM_HEAD, *((f"{row.refreshes:,}", percent(row.refreshing), f"{row.wrote:,}") for row in rows)]
        cells = [(*row, *more) for row, more in zip(cells, warm, strict=True)]
    changes = {row.policy: row.cost_change for row in rows}
    for name, words in yardsticks.items():
        best = changes.get(f"{name} + {name}", changes.get(name))  # one that knows the pauses, where there is one
        if best is not None:
            shares = [words, *(_reached(row.cost_change, best) for row in rows)]
            cells = [(*row, share) for row, share in zip(cells, shares, strict=True)]
    return "\n".join(markdown(cells[0], cells[1:])) + "\n"


def _keeps_warm(rows: Sequence[PolicyRow]) -> bool:
    return any(row.refreshes for row in rows)


def played(comparison: Comparison) -> str:
    """What was played, and what it costs if nothing is done."""
    before = comparison.paid
    what = f"{counted(len(comparison.played), 'session')}, {counted(comparison.calls, 'call')}"
    cached = percent(before.cached / max(1, before.input))
    cost = f"cost {before.cost:,.0f} token-equivalents (units of one uncached input token)"
    return f"{what}. If nothing is done, they {cost} for {before.input:,} tokens of prompts, {cached} of them cached."


def _cells(row: PolicyRow) -> tuple[str, ...]:
    counts = (f"{count:,}" for count in (row.page_ins, row.faults, row.repacks))
    played = (signed(row.token_change), percent(row.hit_rate), *counts)
    known = played if row.is_played else [""] * len(played)
    return (row.policy, signed(row.cost_change), *known, f"{row.worse:,}", signed(row.worst))


def _reached(change: float, best: float) -> str:
    """How much of the best saving a change is; empty where there is none to reach."""
    if change > 0:
        return "none"
    return percent(change / best) if best < 0 else ""


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain values, with every session."""
    return {
        "sessions": len(comparison.played),
        "calls": comparison.calls,
        "left_out": comparison.left_out,
        "before": comparison.paid._asdict(),
        "played": comparison.before._asdict(),
        "policies": as_rows(comparison),
        "each": [_session(one) for one in comparison.played],
    }


def as_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """One row for each policy."""
    return [_values(row) for row in comparison.rows()]


def _values(row: PolicyRow) -> dict[str, Any]:
    unknown = {} if row.is_played else {"token_change": None, "hit_rate": None}
    return {**row._asdict(), **unknown, "charged": row.charged._asdict()}


def _session(one: PlayedSession) -> dict[str, Any]:
    changes = {outcome.policy: round(one.change(outcome), 6) for outcome in one.outcomes}
    return {"session": one.session, "calls": one.calls, "cost": (one.paid or one.before).cost, "changes": changes}
