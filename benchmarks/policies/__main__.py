"""Measures what every policy saves, beside what could be saved by knowing the future.

``python -m benchmarks.policies`` plays sets of recorded sessions, the folders below ``traces`` in ``--recordings`` or
CTXPAGER_RECORDINGS, or, where there are none, sessions of its own making. ``docs/benchmarks.md`` says what is measured.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.policies import publish
from benchmarks.policies.generated_sessions import write_sessions
from benchmarks.policies.play import GRACE_SESSIONS, RECORDINGS, PlaySettings, PolicyFigures, at_graces, played, spread
from benchmarks.policies.publish import ROOT
from instrumentation.replay import recording_files

GENERATED = "generated"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Play, print, and write what was asked for."""
    options = _options(arguments)
    settings = PlaySettings(options.prices, options.jobs)
    with _sets(options.recordings) as sets:
        chosen = {name: spread(files, options.sessions) for name, files in sets.items()}
        every = list(_played(chosen, settings))
        print(_told(every, options.recordings))
        if options.json or options.write:
            _keep(every, chosen, options, root)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.policies", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    given = os.environ.get(RECORDINGS)
    parser.add_argument("--recordings", type=Path, metavar="DIR", default=Path(given) if given else None)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes that play")
    parser.add_argument("--sessions", type=int, default=0, metavar="N", help="at most so many of a set, evenly spread")
    parser.add_argument("--prices", default="anthropic", help="as for ctxpager replay (default: anthropic)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")
    parser.add_argument("--write", action="store_true", help="bring the docs and their pictures up to date")
    options = parser.parse_args(arguments)
    if options.write and not options.recordings:
        parser.error(f"--write needs --recordings or {RECORDINGS}: the docs quote no sessions of our own making")
    return options


@contextmanager
def _sets(place: Path | None) -> Iterator[Mapping[str, list[Path]]]:
    """The files of each set, by its name."""
    if place is None:
        with tempfile.TemporaryDirectory(prefix="ctxpager-bench-") as folder:
            yield {GENERATED: write_sessions(Path(folder))}
        return
    folders = sorted(one for one in (place / "traces").glob("*") if one.is_dir())
    found = {folder.name: files for folder in folders if (files := recording_files.files(folder))}
    if not found:
        sys.exit(f"{place}: there are no recordings below its folder traces, in a folder for each set")
    yield found


def _played(sets: Mapping[str, Sequence[Path]], settings: PlaySettings) -> Iterator[PolicyFigures]:
    for name, files in sets.items():
        began = time.monotonic()
        print(f"playing {name}, {len(files)} files", file=sys.stderr, flush=True)
        yield played(name, files, settings)
        print(f"took {time.monotonic() - began:,.0f} s", file=sys.stderr, flush=True)


def _told(every: Sequence[PolicyFigures], place: Path | None) -> str:
    told = [] if place else [f"There is no {RECORDINGS}: these are sessions of our own making.\n"]
    return "\n".join([*told, *(f"{one.name}: {publish.section(one)}" for one in every)])


def _keep(
    every: Sequence[PolicyFigures], sets: Mapping[str, Sequence[Path]], options: argparse.Namespace, root: Path
) -> None:
    """Write the figures to the files that were asked for, with what the largest set saves at other graces."""
    largest = max(every, key=lambda one: one.comparison.calls)
    print(f"playing {largest.name} at several lengths of the grace", file=sys.stderr, flush=True)
    graces = at_graces(spread(sets[largest.name], GRACE_SESSIONS), PlaySettings(options.prices, options.jobs))
    if options.json:
        publish.write_json(options.json, publish.as_values(every, graces))
    if options.write:
        docs = publish.for_docs(every, options.prices, options.sessions)
        pictures = {"cost.svg": publish.cost_picture(largest), "grace.svg": publish.grace_picture(largest.name, graces)}
        publish.write(root, {"docs/benchmarks.md": docs}, pictures)


if __name__ == "__main__":
    sys.exit(main())
