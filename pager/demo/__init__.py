"""Plays a sample session through the proxy and prints what was logged, with a report on it."""

import argparse
import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_dir
from rich.console import Console

from pager.errors import ConfigError, PagerError
from pager.scripted import ScriptedModel
from pager.store import Store

_PATIENCE = 20.0  # seconds in which the proxy must have started, and stopped


Report = Callable[[Store], str]
"""Tells in words what a log holds."""


def main(argv: Sequence[str] = (), report: Report | None = None) -> int:
    """Run the demo from the command line, ending with a report on its log; the exit status."""
    parser = argparse.ArgumentParser(prog="ctxpager demo", description=__doc__)
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="the folder for the log")
    options = parser.parse_args(argv)
    if find_spec("openai") is None:
        raise ConfigError("the demo talks to the proxy with the openai client: pip install 'ctxpager[demo]'")
    folder = _own_folder() if options.data_dir is None else options.data_dir.absolute()
    run(folder, Console(), report)
    return 0


def _own_folder() -> Path:
    """A folder of the demo's own, without the log of a demo before."""
    folder = Path(user_cache_dir("ctxpager")) / "demo"
    for left in folder.glob("ctxpager.sqlite3*"):
        left.unlink()
    return folder


def run(folder: Path, console: Console, report: Report | None = None) -> None:
    """Play the session with its log in this folder, then print the log, and the report on it."""
    from pager.demo.report import show  # not needed to play
    from pager.stores import open_store

    last_words = asyncio.run(_session(folder, console))
    console.print(f"agent: {last_words}\n", highlight=False)
    on_disk = sum(file.stat().st_size for file in folder.iterdir())
    store = open_store("sqlite", folder)
    try:
        show(store, folder, on_disk, console)
        if report is not None:
            console.out(f"\n{report(store)}", highlight=False, end="")
    finally:
        store.close()
    console.print(f"dashboard            ctxpager serve --data-dir {folder}", soft_wrap=True, highlight=False)
    console.print("                     then open http://127.0.0.1:8787/", highlight=False)


async def _session(folder: Path, console: Console) -> str:
    from openai import AsyncOpenAI  # a client of the user's choosing: only the demo needs it

    from pager.demo.project import Project
    from pager.demo.session import SCRIPT, TASK, play

    async with ScriptedModel(SCRIPT) as model, _proxy(model.url, folder) as root:
        console.print(f"scripted model at {model.root}, proxy at {root}", highlight=False)
        console.print(f"\nuser:  {TASK}", highlight=False)
        named = {"x-session-id": "demo"}
        async with AsyncOpenAI(base_url=f"{root}/v1", api_key="demo", default_headers=named) as client:
            return await play(client, Project())


@asynccontextmanager
async def _proxy(upstream: str, folder: Path) -> AsyncIterator[str]:
    """The real proxy on a free port, as a process of its own that no setting of the user's changes; its address."""
    command = [sys.executable, "-m", "pager.cli", "serve", "--port", "0", "--upstream", upstream]
    with tempfile.NamedTemporaryFile(suffix=".toml") as no_settings:
        process = await asyncio.create_subprocess_exec(
            *[*command, "--data-dir", str(folder), "--policy", "keep_all", "--config", no_settings.name],
            stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("CTXPAGER_")},
        )
        try:
            yield await asyncio.wait_for(_address(process), _PATIENCE)
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.communicate(), _PATIENCE)


async def _address(process: asyncio.subprocess.Process) -> str:
    """The address that the proxy says it listens on."""
    if process.stdout is not None:
        async for line in process.stdout:
            if found := re.search(r"http://\S+", line.decode()):
                return found[0]
    raise PagerError("the proxy ended before it listened; its own message stands above")
