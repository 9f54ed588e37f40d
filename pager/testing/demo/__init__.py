"""The demo: plays an agent's session through the proxy against the built-in model, and shows what it saved."""

import asyncio
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from platformdirs import user_cache_dir
from rich.console import Console

from pager.errors import PagerError
from pager.log.store import Store
from pager.log.stores import open_store
from pager.testing.demo.narrator import Narrator
from pager.testing.demo.session import MODEL, SCRIPT, TURNS, Clock, DemoAgent
from pager.testing.scripted import ScriptedModel
from pager.testing.scripted.prompt_cache import HALF_AN_HOUR

_PATIENCE = 20.0  # seconds in which the proxy must have started, and stopped
_BEGIN = 1_790_000_000.0  # when the session begins by its own clock; any time would do


WITHOUT, WITH = "demo-without", "demo"
"""The names of the two sessions: the same calls sent as they are, and paged."""


class Cost(NamedTuple):
    """What a session cost in US dollars, as its log says, and the tokens of its last prompt."""

    dollars: float
    last_prompt: int


class DemoOutcome(NamedTuple):
    """Both sessions, and in words the prices that they were charged at."""

    without: Cost
    paged: Cost
    prices: str


Weigh = Callable[[Store, str], DemoOutcome]
"""Works out what the sessions of a log cost, whose calls asked for this model."""


def play(data_dir: Path | None, weigh: Weigh) -> int:
    """Run the demo with its log in this folder, by default one of its own; the exit status."""
    folder = own_folder() if data_dir is None else data_dir.absolute()
    try:
        asyncio.run(run(folder, Console(), weigh, stay=sys.stdout.isatty()))
    except KeyboardInterrupt:
        return 0
    return 0


def own_folder() -> Path:
    """A folder of the demo's own, without the log of a demo before."""
    folder = Path(user_cache_dir("ctxpager")) / "demo"
    for left in folder.glob("ctxpager.sqlite3*"):
        left.unlink()
    return folder


async def run(folder: Path, console: Console, weigh: Weigh, *, stay: bool = False) -> None:
    """Play the session with its log in this folder, say what it saved, then show it; until interrupted if ``stay``."""
    clock = Clock(_BEGIN)
    calls = len(SCRIPT.answers)
    console.print(f"An agent works on a code base: {calls} calls, two coffee breaks. The agent, the", highlight=False)
    console.print("proxy and a scripted model with a provider's prompt cache run on this machine.\n")
    async with ScriptedModel(SCRIPT, clock=clock, lifetime=HALF_AN_HOUR) as model, _proxy(model.url, folder) as root:
        store = open_store(f"sqlite:{folder}")
        try:
            console.print("First every call as it is, to see what that costs ...")
            await _play(root, clock, {"x-session-id": WITHOUT, "x-pager-bypass": "1"})
            console.print("Now the same with paging.\n")
            model.play(SCRIPT)
            await _play(root, clock, {"x-session-id": WITH}, Narrator(store, console))
            outcome = await asyncio.to_thread(weigh, store, MODEL)
        finally:
            store.close()
        _sum_up(outcome, console)
        _show(f"{root}/" if stay else _command("serve", "--data-dir", str(folder)), folder, console)
        if stay:
            console.print("\nThe dashboard stays until Ctrl-C.", style="dim")
            await asyncio.Event().wait()


async def _play(root: str, clock: Clock, headers: Mapping[str, str], narrator: Narrator | None = None) -> None:
    """Let an agent do all that the user asks for."""
    from aiohttp import ClientSession  # slow to import

    async def look() -> None:
        if narrator is not None:
            await asyncio.to_thread(narrator.catch_up)

    async with ClientSession() as http:
        agent = DemoAgent(http, root, clock, headers)
        for turn in TURNS:
            clock.now += 60 * turn.pause
            if narrator is not None:
                narrator.asked(turn)
            done = await agent.work(turn.text, look)
            if narrator is not None:
                narrator.answered(done)


def _sum_up(outcome: DemoOutcome, console: Console) -> None:
    """The three lines that count."""
    without, paged = outcome.without, outcome.paged
    saved = round(without.dollars, 2) - round(paged.dollars, 2)  # of the amounts as they are shown
    share = 1 - paged.dollars / without.dollars if without.dollars else 0.0
    console.print()
    for name, cost, words in (
        ("without ctxpager", without, ""),
        ("with ctxpager", paged, ", all costs of paging included"),
    ):
        last = f"last prompt {cost.last_prompt:,} tokens"
        console.print(f"{name:<18}${cost.dollars:.2f}{words}; {last}", highlight=False, soft_wrap=True)
    console.print(f"{'saved':<18}${saved:.2f}, {share:.0%}", style="bold green", highlight=False)
    console.print(f"\n{outcome.prices}\n", style="dim", highlight=False)


def _show(dashboard: str, folder: Path, console: Console) -> None:
    """Where to look, and what to do next; ``dashboard`` is its address, or the command that shows it."""
    for name, words in (
        ("dashboard", dashboard),
        ("in detail", _command("report", "demo", "--data-dir", str(folder))),
        ("your own logs", _command("analyze")),
        ("your own calls", _command("serve")),
    ):
        console.print(f"{name:<16}  {words}", soft_wrap=True, highlight=False)


def _command(*arguments: str) -> str:
    """How the user can call this program from a shell: by its name where that is on the path, else by its file."""
    program = Path(sys.argv[0]).absolute()
    found = shutil.which("ctxpager")
    by_name = program.name != "ctxpager" or (found and Path(found).samefile(program))
    return shlex.join(["ctxpager" if by_name else os.path.relpath(program), *arguments])


@asynccontextmanager
async def _proxy(upstream: str, folder: Path) -> AsyncIterator[str]:
    """The real proxy on a free port, as a process of its own that no setting of the user's changes; its address."""
    # -P: never what the working folder calls pager
    command = [sys.executable, "-P", "-m", "pager.cli", "serve", "--port", "0", "--upstream", upstream]
    with tempfile.NamedTemporaryFile(suffix=".toml") as no_settings, tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            *[*command, "--data-dir", str(folder), "--trust-clock-header", "--config", no_settings.name],
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={name: value for name, value in os.environ.items() if not name.startswith("CTXPAGER_")},
        )
        try:
            yield await asyncio.wait_for(_address(process, errors), _PATIENCE)
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.communicate(), _PATIENCE)


async def _address(process: asyncio.subprocess.Process, errors: BinaryIO) -> str:
    """The address that the proxy says it listens on."""
    if process.stdout is not None:
        async for line in process.stdout:
            if found := re.search(r"listens on (http://\S+)", line.decode()):
                return found[1]
    errors.seek(0)
    raise PagerError(f"the proxy ended before it listened: {errors.read().decode('utf-8', 'replace').strip()}")
