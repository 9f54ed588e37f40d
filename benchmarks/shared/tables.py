"""Prints what was measured: as tables for a terminal, or in Markdown for the docs."""

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks.shared.rounds import Measurement

SERVERS = {"direct": "direct", "bare": "bare", "litellm": "LiteLLM", "ctxpager": "ctxpager"}
"""The columns of what all servers are measured by: their names as targets, and in the table."""

_MARKS = {True: "yes", False: "NO", None: ""}


@dataclass(frozen=True, slots=True)
class Grid:
    """A table before it is drawn."""

    columns: Sequence[str]
    lines: Sequence[Sequence[str]]

    def drawn(self) -> Table:
        """The table for a terminal."""
        table = Table()
        for at, column in enumerate(self.columns):
            table.add_column(column, justify="right" if at else "left")
        for line in self.lines:
            table.add_row(*line, style="bold red" if line[-1] == "NO" else None)
        return table

    def markdown(self) -> str:
        """The table for the docs."""
        rule = ["---", *("---:" for _ in self.columns[1:])]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (self.columns, rule, *self.lines)) + "\n"


def verdicts(rows: Sequence[Measurement], servers: Mapping[str, str]) -> Grid:
    """One line a measurement, with the demand and whether it is met."""
    columns = ("what", "unit", *servers.values(), "ratio", "demand", "met")
    return Grid(columns, [_line(row, servers) for row in rows])


def _line(row: Measurement, servers: Iterable[str]) -> list[str]:
    values = [figure(row.values.get(name)) for name in servers]
    return [row.what, row.unit, *values, _ratio(row), _demand(row), _MARKS[row.ok]]


def _ratio(row: Measurement) -> str:
    if row.ratio is None:
        return ""
    return figure(row.ratio) + (f" {row.against}" if row.against == row.unit else f" x {row.against}")


def _demand(row: Measurement) -> str:
    if row.at_most is not None:
        return f"<= {figure(row.at_most)}"
    return f">= {figure(row.at_least)}" if row.at_least is not None else ""


def figure(value: float | None) -> str:
    """Three digits that count, more only above 1,000."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def machine(litellm: str) -> str:
    """What it was measured on; ``litellm`` is its version, or empty."""
    theirs = f", LiteLLM {litellm}" if litellm else ""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}{theirs}"
    )
