"""Measures what tool schemas on demand save, in sessions that are offered far more tools than they use.

``CTXPAGER_RECORDINGS=DIR python -m benchmarks.schemas`` offers all tools of the MCP servers in ``DIR/schemas`` at once,
in sessions that use 1, 5 and 20 of them, and fails if a demand is not met. ``docs/benchmarks.md`` says how it is
measured.
"""

import argparse
import asyncio
import contextlib
import os
import random
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import orjson
from rich.console import Console

from benchmarks.schemas.client import WIRES, play
from benchmarks.schemas.figures import SchemaFigures, look_at
from benchmarks.schemas.model import CallingModel, ModelStep
from benchmarks.schemas.tools import OfferedTool, careless, fitting, read_tools
from benchmarks.shared import processes
from benchmarks.shared.tables import Grid

RECORDINGS = "CTXPAGER_RECORDINGS"
USED = (1, 5, 20)
CALLS = 32
"""Calls of tools in a session."""

_MISTAKES = {1: 1, 5: 2, 20: 4}
_SEED = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print, and say whether every demand is met."""
    options = _options(arguments)
    tools = read_tools(options.recordings / "schemas")
    dialects = list(WIRES) if options.dialect == "all" else [options.dialect]
    with tempfile.TemporaryDirectory(prefix="ctxpager-bench-") as folder, standing(Path(folder)) as (model, root):
        found = [measured(model, root, dialect, tools, used) for dialect in dialects for used in USED]
    tell(found, len(tools), as_json=options.json)
    missed = [what for one in found for what in one.missed]
    for what in missed:
        print(f"not met: {what}", file=sys.stderr)
    return 1 if missed else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.schemas", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    given = os.environ.get(RECORDINGS)
    parser.add_argument("--recordings", type=Path, metavar="DIR", default=Path(given) if given else None)
    parser.add_argument("--dialect", choices=[*WIRES, "all"], default="all")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    if options.recordings is None or not any((options.recordings / "schemas").glob("tools_*.json")):
        parser.error(f"{RECORDINGS} or --recordings must name a folder that holds schemas/tools_*.json")
    return options


@contextlib.contextmanager
def standing(folder: Path) -> Iterator[tuple[CallingModel, str]]:
    """The model in a thread of its own, and the address of a new proxy before it."""
    with _model() as model:
        port = processes.free_port()
        upstream = int(model.root.rpartition(":")[2])
        command = processes.ctxpager(port, upstream, folder / "data", "cost_aware")
        with processes.running(command, port, ready="/healthz", log=folder / "proxy.log"):
            yield model, f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def _model() -> Iterator[CallingModel]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    model = CallingModel()
    asyncio.run_coroutine_threadsafe(model.__aenter__(), loop).result(10)
    try:
        yield model
    finally:
        asyncio.run_coroutine_threadsafe(model.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


def plan(tools: Sequence[OfferedTool], used: int) -> list[ModelStep]:
    """The calls of a session: each tool is met at its time, the first uses evenly spread, and comes back by chance."""
    rng = random.Random(f"{_SEED} {used}")
    chosen = rng.sample(list(tools), used)
    firsts = {round(at * CALLS / used): tool for at, tool in enumerate(chosen)}
    met: list[OfferedTool] = []
    steps = []
    for number in range(CALLS):
        met += [firsts[number]] if number in firsts else []
        tool = firsts.get(number) or rng.choice(met)
        steps.append(ModelStep(tool.name, fitting(tool, rng)))
    return _with_mistakes(steps, {tool.name: tool for tool in chosen}, _MISTAKES.get(used, 1), rng)


def _with_mistakes(
    steps: list[ModelStep], tools: Mapping[str, OfferedTool], count: int, rng: random.Random
) -> list[ModelStep]:
    """The same steps, some of which go wrong at first."""
    wrong = {at: careless(tools[step.tool], step.arguments) for at, step in enumerate(steps)}
    chosen = set(rng.sample([at for at, one in wrong.items() if one is not None], count))
    return [ModelStep(step.tool, step.arguments, wrong[at] if at in chosen else None) for at, step in enumerate(steps)]


def measured(model: CallingModel, root: str, dialect: str, tools: Sequence[OfferedTool], used: int) -> SchemaFigures:
    """Play a session without the proxy and with it, and look at what the model and the client got."""
    steps, wire, name = plan(tools, used), WIRES[dialect], f"schemas-{dialect}-{used}"
    model.think(steps)
    play(model.root, wire, name, tools)
    direct = list(model.received)
    model.think(steps)
    made = play(root, wire, name, tools)
    known = {tool.name: tool for tool in tools}
    wrong = [call.name for call in made if call.name not in known or known[call.name].errors(call.arguments)]
    return replace(
        look_at(dialect, direct, list(model.received)),
        used=used,
        faults=model.thought.faults,
        corrections=model.thought.mistakes,
        valid=len({call.name for call in made}.difference(wrong)),
        invalid=len(wrong),
    )


def tell(found: Sequence[SchemaFigures], offered: int, *, as_json: bool) -> None:
    """Print the figures."""
    if as_json:
        told = [{**asdict(one), **one.changes, "met": not one.missed} for one in found]
        print(orjson.dumps({"tools": offered, "sessions": told}, option=orjson.OPT_INDENT_2).decode())
        return
    lines = [_line(one) for one in found]
    grid = Grid([*lines[0]], [[*line.values()] for line in lines])
    Console(width=None if sys.stdout.isatty() else 200).print(grid.drawn())
    print(f"{offered} tools are offered.")


def _line(one: SchemaFigures) -> Mapping[str, str]:
    """A line of the table: tokens are those of schemas, on average in one prompt."""
    return {
        "dialect": one.dialect,
        "used": str(one.used),
        "calls": str(one.calls),
        "requests": str(one.requests),
        "whole": f"{one.whole / one.calls:,.0f}",
        "in the tools": f"{one.offered / one.requests:,.0f}",
        "in messages": f"{one.told / one.requests:,.0f}",
        **{f"change {name}": f"{change:+.1%}" for name, change in one.changes.items()},
        "prefix": "unchanged" if one.same_tools and one.one_prefix else "CHANGED",
        "called validly": f"{one.valid} of {one.used}",
        "faults": str(one.faults),
        "corrected": str(one.corrections),
        "met": "NO" if one.missed else "yes",
    }


if __name__ == "__main__":
    sys.exit(main())
