"""Measures what the default policy saves by the client's cache lifetime and the generation of prices.

``python -m benchmarks.lifetimes`` plays one set of recorded sessions, a folder below ``traces`` in ``--recordings`` or
CTXPAGER_RECORDINGS, as a Messages client would be billed that marks its system prompt and its last message.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.policies.play import OURS, RECORDINGS, spread
from benchmarks.policies.publish import ROOT, replaced
from instrumentation.replay import recording_files
from instrumentation.replay.compare import (
    Comparison,
    Contender,
    ReplayConditions,
    compare,
)
from instrumentation.replay.prepared_recording import Caching
from pager.paging.credit import CreditLimits

MARK = "lifetimes"
COMMAND = "CTXPAGER_RECORDINGS=DIR python -m benchmarks.lifetimes --write"


class LifetimeCase(NamedTuple):
    """A client and its provider: ``lifetime`` in words, the price list, and how the provider caches."""

    client: str
    prices: str
    generation: str
    cache: Caching
    options: str


FIVE, HOUR = Caching(marks=True, lifetime=300.0), Caching(marks=True, lifetime=3_600.0)
ANY = Caching(marks=False)
READS = {
    "anthropic": "read 0.1 (Claude up to 5)",
    "claude-5.5": "read 0.05 (Claude 5.5)",
    "claude-fable-5.1": "read 0.025 (Fable 5.1)",
}
CASES = (
    *(
        LifetimeCase("5 minutes, by marks", name, words, FIVE, "--caching marks --lifetime 5m")
        for name, words in READS.items()
    ),
    *(
        LifetimeCase("1 hour, by marks", name, words, HOUR, "--caching marks --lifetime 1h")
        for name, words in READS.items()
    ),
    LifetimeCase("30 minutes, any prefix", "gpt-5.6", "read 0.1 (GPT-5.6)", ANY, "--caching prefix"),
)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Play every case, print the table, and write it into the README if that was asked for."""
    options = options_of(arguments, __doc__, "the README")
    files = spread(recording_files.files(options.recordings / "traces" / options.set), options.sessions)
    played = {case: _played(case, files, options.jobs) for case in CASES}
    block = table(played, options.set)
    print(block)
    if options.write:
        readme = root / "README.md"
        readme.write_text(replaced(readme.read_text(), block, MARK))
    return 0


def options_of(arguments: Sequence[str] | None, doc: str | None, written: str) -> argparse.Namespace:
    """The options of a benchmark that plays one set of recordings, with this text, and writes its table there."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = os.environ.get(RECORDINGS)
    parser.add_argument("--recordings", type=Path, metavar="DIR", default=Path(given) if given else None)
    parser.add_argument(
        "--set", default="entire-cli", metavar="NAME", help="the folder of sessions (default: entire-cli)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes that play")
    parser.add_argument("--sessions", type=int, default=0, metavar="N", help="at most so many, evenly spread")
    parser.add_argument("--write", action="store_true", help=f"bring {written} up to date")
    options = parser.parse_args(arguments)
    if options.recordings is None:
        parser.error(f"there are no sessions to play: give --recordings or {RECORDINGS}")
    return options


def _played(case: LifetimeCase, files: Sequence[Path], jobs: int) -> Comparison:
    print(f"playing {case.client}, {case.prices}", file=sys.stderr, flush=True)
    return compare(
        files, [Contender(OURS)], ReplayConditions(case.prices, cache=case.cache, credit=CreditLimits()), jobs
    )


def table(played: Mapping[LifetimeCase, Comparison], name: str) -> str:
    """A row for each case, and how they were made."""
    columns = ("client's cache", "prices", "bill", "page-ins at triple cost", "cost over 1 % more", "worst session")
    head = [f"| {' | '.join(columns)} | options of `ctxpager replay` |", "|---|---|--:|--:|--:|--:|---|"]
    any_of = next(iter(played.values()))
    made = f"""
{len(any_of.played)} recorded sessions of the set `{name}`, {any_of.calls:,} calls, played again under `{OURS}` with
every page-in charged, by `{COMMAND}`. One row alone:
`ctxpager replay DIR/traces/{name} --policy {OURS}` with the options in its last column.
"""
    return "\n".join([*head, *(_line(case, comparison) for case, comparison in played.items()), made])


def _line(case: LifetimeCase, played: Comparison) -> str:
    (row,) = played.rows()
    changes = [f"{100 * change:+.1f} %" for change in (row.cost_change, row.triple, row.worst)]
    cells = [case.client, case.generation, *changes[:2], f"{row.worse} of {len(played.played)}", changes[2]]
    return f"| {' | '.join(cells)} | `--prices {case.prices} {case.options}` |"


if __name__ == "__main__":
    sys.exit(main())
