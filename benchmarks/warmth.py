"""Measures what keeping prompts warm brings, by rule, by the client's cache lifetime and by the generation of prices.

``python -m benchmarks.warmth`` plays one set of recorded sessions, a folder below ``traces`` in ``--recordings`` or
CTXPAGER_RECORDINGS, as a Messages client would be billed that marks its system prompt and its last message. The chances
that ``auto`` goes by were counted on every second session, so figures are given for those and for the others apart.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.lifetimes import FIVE, HOUR, READS, options_of
from benchmarks.policies.play import OURS, spread
from benchmarks.policies.publish import ROOT, replaced
from instrumentation.replay import recording_files
from instrumentation.replay.compare import SHORTEST, Comparison, Contender, PolicyRow, ReplayConditions, compare
from instrumentation.replay.knowing_policy import KNOWING
from instrumentation.replay.policy_options import RULES, kept_warm
from instrumentation.replay.prepared_recording import Caching
from instrumentation.reports.table import markdown, percent, signed
from pager.paging.credit import CreditLimits

MARK = "warmth"
COMMAND = "CTXPAGER_RECORDINGS=DIR python -m benchmarks.warmth --write"
CLIENTS = {"5 minutes": FIVE, "1 hour": HOUR}
CONTENDERS = kept_warm([Contender(OURS), Contender(KNOWING)], [",".join(RULES)])


class Halves(NamedTuple):
    """The sessions that the shipped chances were counted on, and the others."""

    fitted: Comparison
    others: Comparison

    @property
    def all(self) -> Comparison:
        """Both together."""
        left_out = self.fitted.left_out + self.others.left_out
        return Comparison([*self.fitted.played, *self.others.played], left_out)


class WarmthCase(NamedTuple):
    """A client whose cache marks ask for this lifetime, under a price list."""

    client: str
    prices: str


Figures = dict[WarmthCase, Halves]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Play every case, print the tables, and write them into the docs if that was asked for."""
    options = options_of(arguments, __doc__, "the docs")
    halves = halved(recording_files.files(options.recordings / "traces" / options.set), options.sessions)
    figures = {
        WarmthCase(client, prices): _played(client, prices, cache, halves, options.jobs)
        for client, cache in CLIENTS.items()
        for prices in READS
    }
    about = made(figures, options.set, options.sessions)
    blocks = {
        "docs/benchmarks.md": f"{bills(figures)}\n{refreshes(figures)}\n{about}",
        "docs/keep_warm.md": f"{bills(figures)}\n{about}",
    }
    print(blocks["docs/benchmarks.md"])
    for name, block in blocks.items() if options.write else ():
        (root / name).write_text(replaced((root / name).read_text(), block, MARK))
    return 0


def halved(files: Sequence[Path], most: int) -> tuple[list[Path], list[Path]]:
    """The sessions that the chances were counted on, and the others; of both together at most so many, all for 0.

    Counted on is every second of all sessions. They are told apart before any are left out, be it because they are too
    short to be played: in a thinned list every second one would be of either half.
    """
    fitted, others = (
        [path for path in half if len(recording_files.load(path).steps) >= SHORTEST]
        for half in (files[::2], files[1::2])
    )
    return spread(fitted, most - most // 2), spread(others, most // 2)


def _played(client: str, prices: str, cache: Caching, halves: tuple[list[Path], list[Path]], jobs: int) -> Halves:
    print(f"playing {client}, {prices}", file=sys.stderr, flush=True)
    conditions = ReplayConditions(prices, cache=cache, credit=CreditLimits())
    return Halves(*(compare(files, CONTENDERS, conditions, jobs) for files in halves))


def bills(figures: Figures) -> str:
    """The change of the bill under every rule: of the sessions that chances were counted on, of the others, of all."""
    head = ["client's cache", "rule", *(f"{words}: fitted on, others, all" for words in READS.values())]
    lines = []
    for client in CLIENTS:
        halves = [figures[WarmthCase(client, prices)] for prices in READS]
        for at, contender in enumerate(CONTENDERS):
            cells = [" / ".join(signed(part.rows()[at].cost_change) for part in (*one, one.all)) for one in halves]
            lines.append((client, contender.label, *cells))
    return _table(head, lines)


def refreshes(figures: Figures) -> str:
    """What the refreshes of all sessions were and cost, and which sessions cost more with them."""
    head = [
        "client's cache",
        "prices",
        "rule",
        "refreshes",
        "their cost",
        "wrote",
        "cost over 1 % more",
        "worst session",
    ]
    lines = []
    for case, halves in figures.items():
        rows = halves.all.rows()
        lines += [(case.client, READS[case.prices], *_kept(row)) for row in rows if row.refreshes]
    return _table(head, lines)


def _kept(row: PolicyRow) -> tuple[str, ...]:
    counts = (f"{row.refreshes:,}", percent(row.refreshing), f"{row.wrote:,}", f"{row.worse:,}")
    return (row.policy, *counts, signed(row.worst))


def _table(head: Sequence[str], lines: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(markdown(head, lines)) + "\n"


def made(figures: Figures, name: str, most: int) -> str:
    """What was played, at most so many sessions if it is not 0, and how the tables are made."""
    some = f" --sessions {most}" if most else ""
    halves = next(iter(figures.values()))
    return f"""\
{len(halves.all.played)} recorded sessions of the set `{name}`, {halves.all.calls:,} calls ({len(halves.fitted.played)}
that the chances of `auto` were counted on, {len(halves.others.played)} others), played again with every page-in and
every refresh charged, by
`{COMMAND}{some}`.
`{OURS}` alone is eviction without keeping warm, `+ {KNOWING}` knows how long each pause will be and
`{KNOWING} + {KNOWING}`
the whole future. One case alone: `ctxpager replay DIR/traces/{name} --policy
{OURS},{KNOWING} --keep-warm --caching marks --lifetime 5m --prices anthropic`.
"""


if __name__ == "__main__":
    sys.exit(main())
