"""Writes a comparison down: as a table for people, as plain values for programs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from instrumentation.replay.compare import Comparison, PlayedSession, PolicyRow
from instrumentation.replay.knowing import KNOWING

YARDSTICKS = {KNOWING: "of knowing"}
"""Oracles by whose saving, where they are in a comparison, that of every row is measured, and the column's name."""

HEAD = ("policy", "cost", "tokens", "cached", "page-ins", "faults", "repacks", "made worse", "worst session")


def as_table(comparison: Comparison) -> str:
    """The comparison as one Markdown table, with a line above it that says what was played."""
    lines = [told(comparison)]
    if comparison.left_out:
        lines.append(f"{comparison.left_out} sessions are left out, as they are too short.")
    return "\n".join([*lines, "", table(comparison.rows())])


def table(rows: Sequence[PolicyRow], yardsticks: Mapping[str, str] = YARDSTICKS) -> str:
    """The rows as one Markdown table, with what share of each oracle's saving they reach."""
    cells = [HEAD, *(_cells(row) for row in rows)]
    changes = {row.policy: row.cost_change for row in rows}
    for name, words in yardsticks.items():
        if name in changes:
            shares = [words, *(_reached(row.cost_change, changes[name]) for row in rows)]
            cells = [(*row, share) for row, share in zip(cells, shares, strict=True)]
    return "\n".join(_aligned(cells)) + "\n"


def told(comparison: Comparison) -> str:
    """What was played, and what it costs if nothing is done."""
    before, played = comparison.paid, f"{len(comparison.played)} sessions, {comparison.calls:,} calls"
    cached = _share(before.cached / max(1, before.input))
    cost = f"cost {before.cost:,.0f} (in units of one uncached input token)"
    return f"{played}. If nothing is done, they {cost} for {before.input:,} tokens of prompts, {cached} of them cached."


def _cells(row: PolicyRow) -> tuple[str, ...]:
    counts = (f"{count:,}" for count in (row.page_ins, row.faults, row.repacks))
    played = (_signed(row.token_change), _share(row.hit_rate), *counts)
    known = played if row.is_played else [""] * len(played)
    return (row.policy, _signed(row.cost_change), *known, f"{row.worse:,}", _signed(row.worst))


def _reached(change: float, best: float) -> str:
    """How much of the best saving a change is; nothing is told where there is none to reach."""
    if change > 0:
        return "none"
    return _share(change / best) if best < 0 else ""


def _aligned(cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of a Markdown table, columns under each other: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for at, row in enumerate(cells):
        first, *others = zip(row, widths, strict=True)
        yield "| " + " | ".join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]) + " |"
        if at == 0:
            yield "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"


def _signed(change: float) -> str:
    return f"{100 * change:+.1f} %"


def _share(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f} %"  # never -0.0


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain values, with every session."""
    return {
        "sessions": len(comparison.played),
        "calls": comparison.calls,
        "left_out": comparison.left_out,
        "before": comparison.paid._asdict(),
        "played": comparison.before._asdict(),
        "policies": [_values(row) for row in comparison.rows()],
        "each": [_session(one) for one in comparison.played],
    }


def _values(row: PolicyRow) -> dict[str, Any]:
    unknown = {} if row.is_played else {"token_change": None, "hit_rate": None}
    return {**row._asdict(), **unknown, "charged": row.charged._asdict()}


def _session(one: PlayedSession) -> dict[str, Any]:
    changes = {outcome.policy: round(one.change(outcome), 6) for outcome in one.outcomes}
    return {"session": one.session, "calls": one.calls, "cost": (one.paid or one.before).cost, "changes": changes}
