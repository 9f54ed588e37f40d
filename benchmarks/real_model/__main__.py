"""Shows what paging spares a real model: SmolLM2-135M, served on this machine, under three policies.

``make bench-real`` sets up what it needs and runs it; it fails if a demand is not met. ``docs/benchmarks.md`` says how
each number is measured. ``--quick`` plays a part of the sessions, and its verdicts are not fatal.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import orjson
from rich.console import Console

from benchmarks.real_model.play import ModelServer, PlayedScript, model_servers, play, size_of
from benchmarks.real_model.script import AgentScript, Sizes, script
from benchmarks.real_model.server import WINDOW
from benchmarks.shared import tables
from benchmarks.shared.rounds import Measurement, ratio

POLICIES = ("keep_all", "fifo_age", "cost_aware")
WITHOUT, RIVAL, OURS = POLICIES
SWITCH = 10
"""After so many calls, at the end of a task, another agent has the model for one request."""

_Figures = dict[str, dict[str, PlayedScript]]


def agent(calls: int) -> AgentScript:
    """A session that just fits the window. Its needs are as rare and as old as in recorded coding sessions."""
    needs = {14: 2, 27: 22, 38: 14, 56: 34}
    return script("agent", calls, Sizes(file=900, failure=800, small=60), needs)


def windows(calls: int) -> AgentScript:
    """A session whose results fill three windows."""
    return script("windows", calls, Sizes(file=6_000, failure=3_500, small=700), {12: 4, 25: 12})


def main() -> int:
    """Measure, print, and say whether every demand is met."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the servers are stopped as well
    with (
        tempfile.TemporaryDirectory(prefix="ctxpager-real-", dir=options.folder) as folder,
        model_servers(Path(folder), POLICIES) as servers,
    ):
        rows, figures = _measure(servers, Path(folder), options)
    _print(rows, figures, options)
    missed = [row.what for row in rows if row.ok is False]
    if missed:
        print(f"not met: {'; '.join(missed)}")
    return 1 if missed and not options.quick else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.real_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a part of the sessions; nothing is fatal")
    parser.add_argument("--only", choices=("agent", "windows"), help="one of the two sessions")
    parser.add_argument(
        "--switch",
        type=int,
        default=SWITCH,
        help="calls after which another agent has the model (default: %(default)s)",
    )
    parser.add_argument("--folder", type=Path, help="where logs are kept while it runs (default: a temporary folder)")
    parser.add_argument("--markdown", action="store_true", help="print the table as the docs have it")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    return parser.parse_args()


def _measure(
    servers: Mapping[str, ModelServer], folder: Path, options: argparse.Namespace
) -> tuple[list[Measurement], _Figures]:
    rows: list[Measurement] = []
    figures: _Figures = {}
    if options.only != "windows":
        session = agent(20 if options.quick else 60)
        switches = range(1 + options.switch, session.calls + 1, options.switch)
        figures[session.name] = play(session, servers, folder / session.name, switches)
        rows += agent_rows(session, figures[session.name])
    if options.only != "agent":
        session = windows(14 if options.quick else 36)
        pair = {policy: servers[policy] for policy in (WITHOUT, OURS)}
        figures[session.name] = play(session, pair, folder / session.name)
        size = size_of(session, servers[WITHOUT])
        rows += windows_rows(session, figures[session.name], size)
    return rows, figures


def agent_rows(session: AgentScript, found: Mapping[str, PlayedScript]) -> list[Measurement]:
    """What the session cost the model under each policy, and whether paging by price cost least."""
    calls = session.calls

    def row(what: str, unit: str, value: Callable[[PlayedScript], float], against: str = "") -> Measurement:
        values = {policy: value(played) for policy, played in found.items()}
        part = ratio(values[OURS], values[against]) if against else None
        return Measurement(f"{calls} calls: {what}", unit, values, part, against, at_most=1.0 if against else None)

    answered = {policy: float(played.calls) for policy, played in found.items()}
    least = min(answered.values()) / calls
    return [
        Measurement(f"{calls} calls: answered", "calls", answered, least, f"{calls} calls", at_least=1.0),
        row("prompt processing", "s", lambda played: played.own.prompt_seconds, WITHOUT),
        row("prompt processing", "s", lambda played: played.own.prompt_seconds, RIVAL),
        row("prompt tokens processed", "", lambda played: played.own.prompt_tokens),
        row("answers", "s", lambda played: played.own.answer_seconds),
        row("CPU of the model", "s", lambda played: played.cpu),
        row("wall time", "s", lambda played: played.seconds),
        row("longest prompt", "tokens", lambda played: played.longest),
        row("repacks", "", lambda played: played.repacks),
        row("repacks of a remembered prompt", "", lambda played: played.warm_repacks),
        row("pages evicted", "", lambda played: played.evicted),
        row("page-ins", "", lambda played: played.page_ins),
    ]


def windows_rows(session: AgentScript, found: Mapping[str, PlayedScript], size: int) -> list[Measurement]:
    """Whether the session that outgrows its window went on with paging, and failed without."""
    paged, plain = found[OURS], found[WITHOUT]
    told = "session of three windows"
    answered = {policy: float(played.calls) for policy, played in found.items()}
    seconds = {policy: played.own.prompt_seconds for policy, played in found.items()}
    longest = {policy: float(played.longest) for policy, played in found.items()}
    whole = f"{session.calls} calls"
    return [
        Measurement(f"{told}: its history", "tokens", {WITHOUT: size}, size / WINDOW, "windows", at_least=3.0),
        Measurement(
            f"{told}: answered with paging", "calls", answered, paged.calls / session.calls, whole, at_least=1.0
        ),
        Measurement(f"{told}: answered without", "calls", answered, plain.calls / session.calls, whole, at_most=0.99),
        Measurement(f"{told}: longest prompt", "tokens", longest),
        Measurement(f"{told}: prompt processing", "s", seconds),
        Measurement(f"{told}: page-ins", "", {policy: float(played.page_ins) for policy, played in found.items()}),
    ]


def _print(rows: Sequence[Measurement], figures: _Figures, options: argparse.Namespace) -> None:
    grid = tables.verdicts(rows, {policy: policy for policy in POLICIES})
    if options.markdown:
        print(grid.markdown())
    else:
        # Where the output is no terminal nothing may be cut off to fit one.
        Console(width=None if sys.stdout.isatty() else 160).print(grid.drawn())
    for name, found in figures.items():
        for policy, played in found.items():
            if played.refusal:
                print(f"{name} under {policy} ended after {played.calls} calls: {played.refusal}")
    print(f"{tables.machine('')}, llama-cpp-python {version('llama-cpp-python')}")
    if options.json:
        options.json.write_bytes(as_json(rows, figures))


def as_json(rows: Sequence[Measurement], figures: _Figures) -> bytes:
    """All figures, unrounded."""
    told = [{**asdict(row), "ok": row.ok} for row in rows]
    played = {
        name: {policy: {**asdict(one), "page_ins": one.page_ins} for policy, one in found.items()}
        for name, found in figures.items()
    }
    return orjson.dumps({"rows": told, "sessions": played}, option=orjson.OPT_INDENT_2)


if __name__ == "__main__":
    sys.exit(main())
