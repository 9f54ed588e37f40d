"""Proves ctxpager's speed: ratios against no proxy, a bare proxy and LiteLLM, from one interleaved run.

``python -m benchmarks.overhead`` prints one table and fails if a demand is not met. ``docs/benchmarks.md`` says how
each number is measured. ``--quick`` looks only shortly, and its verdicts are not fatal.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple, TypeVar

import orjson
from rich.console import Console

from benchmarks.overhead.edges import durable, memory, startup
from benchmarks.overhead.growth import Growth, growth, verdict
from benchmarks.overhead.growth import table as growth_table
from benchmarks.overhead.paging import SERVERS as PAGING_SERVERS
from benchmarks.overhead.paging import paging
from benchmarks.overhead.speed import calls, lag, throughput
from benchmarks.shared import litellm_proxy, tables
from benchmarks.shared.rounds import Bench, Measurement, standing

_T = TypeVar("_T")
_MEASURES: dict[str, Callable[[Bench], list[Measurement]]] = {
    "calls": calls,
    "rate": throughput,
    "lag": lag,
    "startup": startup,
    "memory": memory,
}
_NAMES = ["append", *_MEASURES, "paging", "growth"]


class OverheadFigures(NamedTuple):
    """What was measured: on all servers, under two policies, and at several lengths of the history."""

    rows: list[Measurement]
    paged: list[Measurement]
    grown: list[Growth]


def main() -> int:
    """Measure, print, and say whether every demand is met."""
    options = _options()
    if options.litellm:
        litellm_proxy.install()
    with tempfile.TemporaryDirectory(prefix="ctxpager-bench-", dir=options.folder) as folder:
        # Before the servers stand: idle ones wake now and then, and two threads that wake each other would wait for it.
        alone = durable(Path(folder), quick=options.quick) if "append" in options.only else []
        with standing(Path(folder), litellm=options.litellm, quick=options.quick) as bench:
            found = _measure(bench, options.only)
    found = found._replace(rows=alone + found.rows)
    _print(found, options)
    missed = [row.what for row in found.rows + found.paged if row.ok is False]
    if missed:
        print(f"not met: {'; '.join(missed)}")
    return 1 if missed and not options.quick else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a look of about a minute; nothing is fatal")
    parser.add_argument("--only", type=_names, default=_NAMES, help=f"some of {','.join(_NAMES)}")
    parser.add_argument("--no-litellm", dest="litellm", action="store_false", help="leave LiteLLM out")
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure (default: a temporary one)")
    parser.add_argument("--markdown", action="store_true", help="print the tables as the docs have them")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := set(chosen) - set(_NAMES):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: expected some of {', '.join(_NAMES)}")
    return chosen


def _measure(bench: Bench, chosen: list[str]) -> OverheadFigures:
    rows: list[Measurement] = []
    for name, measure in _MEASURES.items():
        rows += _measured(name, measure, bench, chosen)
    paged = _measured("paging", paging, bench, chosen)
    grown = _measured("growth", growth, bench, chosen)
    return OverheadFigures(rows + (verdict(grown) if grown else []), paged, grown)


def _measured(name: str, measure: Callable[[Bench], list[_T]], bench: Bench, chosen: list[str]) -> list[_T]:
    if name not in chosen:
        return []
    print(f"measuring {name}", file=sys.stderr)
    return measure(bench)


def _print(found: OverheadFigures, options: argparse.Namespace) -> None:
    # Where the output is no terminal nothing may be cut off to fit one.
    console = Console(width=None if sys.stdout.isatty() else 160)
    grids = (
        tables.verdicts(found.rows, tables.SERVERS),
        tables.verdicts(found.paged, {name: name for name in PAGING_SERVERS}),
        growth_table(found.grown),
    )
    for grid in grids:
        if grid.lines and options.markdown:
            print(grid.markdown())
        elif grid.lines:
            console.print(grid.drawn())
    print(tables.machine(litellm_proxy.version() if options.litellm else ""))
    if options.json:
        options.json.write_bytes(_as_json(found))


def _as_json(found: OverheadFigures) -> bytes:
    """All figures, unrounded."""
    rows = {"rows": found.rows, "paging": found.paged}
    figures = {key: [{**asdict(row), "ok": row.ok} for row in value] for key, value in rows.items()}
    return orjson.dumps({**figures, "growth": [asdict(at) for at in found.grown]}, option=orjson.OPT_INDENT_2)


if __name__ == "__main__":
    sys.exit(main())
