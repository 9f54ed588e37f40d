"""Proves ctxpager's speed: ratios against no proxy, a bare proxy and LiteLLM, from one interleaved run.

``python -m benchmarks.overhead`` prints one table and fails if a demand is not met. ``docs/benchmarks.md`` says how
each number is measured. ``--quick`` looks only shortly, and its verdicts are not fatal.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks import _litellm, _report
from benchmarks._bench import Bench, Row, standing
from benchmarks._growth import Growth, growth, verdict
from benchmarks._shape import durable, memory, startup
from benchmarks._speed import calls, lag, throughput

_MEASURES: dict[str, Callable[[Bench], list[Row]]] = {
    "calls": calls,
    "rate": throughput,
    "lag": lag,
    "startup": startup,
    "memory": memory,
}
_NAMES = ["append", *_MEASURES, "growth"]


def main() -> int:
    """Measure, print, and say whether every demand is met."""
    options = _options()
    if options.litellm:
        _litellm.install()
    with tempfile.TemporaryDirectory(prefix="ctxpager-bench-", dir=options.folder) as folder:
        # Before the servers stand: idle ones wake now and then, and two threads that wake each other would wait for it.
        alone = durable(Path(folder), quick=options.quick) if "append" in options.only else []
        with standing(Path(folder), litellm=options.litellm, quick=options.quick) as bench:
            rows, grown = _measure(bench, options.only)
    rows = [*alone, *rows]
    _print(rows, grown, options)
    missed = [row.what for row in rows if row.ok is False]
    if missed:
        print(f"not met: {'; '.join(missed)}")
    return 1 if missed and not options.quick else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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


def _measure(bench: Bench, chosen: list[str]) -> tuple[list[Row], list[Growth]]:
    rows: list[Row] = []
    for name, measure in _MEASURES.items():
        if name in chosen:
            print(f"measuring {name}", file=sys.stderr)
            rows += measure(bench)
    if "growth" not in chosen:
        return rows, []
    print("measuring growth", file=sys.stderr)
    grown = growth(bench)
    return [*rows, *verdict(grown)], grown


def _print(rows: list[Row], grown: list[Growth], options: argparse.Namespace) -> None:
    # Where the output is no terminal nothing may be cut off to fit one.
    console = Console(width=None if sys.stdout.isatty() else 160)
    for grid in (_report.verdicts(rows), _report.growths(grown)):
        if grid.lines and options.markdown:
            print(grid.markdown())
        elif grid.lines:
            console.print(grid.drawn())
    print(_report.machine(_litellm.version() if options.litellm else ""))
    if options.json:
        options.json.write_bytes(_report.as_json(rows, grown))


if __name__ == "__main__":
    sys.exit(main())
