"""Harnesses from npm: installed once into the user's cache folder, and watched while they run."""

import os
import shutil
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import platformdirs
import pytest
from aiohttp import web

CACHE = Path(platformdirs.user_cache_dir("ctxpager-tests"))
OF_THE_HOP = {"host", "connection", "keep-alive", "transfer-encoding", "content-length"}
QUIET = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")


@pytest.fixture(scope="session")
def from_npm():
    """Gives the path of a program in a package of an exact version; skips where it can't be had."""
    for needed in ("node", "npm"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    return _installed


@pytest.fixture
def tapped(backstage):
    """Stands between a harness and what it talks to, and keeps what the harness sends."""

    @contextmanager
    def tap(root):
        sent, client = [], None

        async def forward(request):
            sent.append(await request.read())
            headers = [pair for pair in request.headers.items() if pair[0].lower() not in OF_THE_HOP]
            async with client.request(request.method, root + request.path_qs, data=sent[-1], headers=headers) as answer:
                kept = {key: value for key, value in answer.headers.items() if key.lower() not in OF_THE_HOP}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response

        async def start():
            nonlocal client
            client = aiohttp.ClientSession(auto_decompress=False)
            app = web.Application(client_max_size=1 << 30)
            app.router.add_route("*", "/{path:.*}", forward)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            return runner

        runner = backstage.run(start())
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}", sent
        finally:
            backstage.run(client.close())
            backstage.run(runner.cleanup())

    return tap


@pytest.fixture(scope="session")
def environment():
    """The variables of a program that has a home of its own: ``environment(home)``."""
    return _environment


def _installed(package: str, version: str, program: str) -> Path:
    home = CACHE / f"{package.replace('/', '-').lstrip('@')}-{version}"
    if not home.exists():
        _install(f"{package}@{version}", program, home)
    return _program(home, program)


def _program(folder: Path, program: str) -> Path:
    return folder / "node_modules" / ".bin" / program


def _install(what: str, program: str, home: Path) -> None:
    """Install beside and move in the end, so that a run that was cut short leaves nothing half done."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=CACHE) as beside:
        made = Path(beside, "made")
        _try(f"npm can't install {what}", ["npm", "install", *QUIET, "--prefix", str(made), what])
        _try(f"{what} does not run", [str(_program(made, program)), "--version"], HOME=beside)
        with suppress(OSError):  # another run was faster
            made.rename(home)


def _try(failure: str, command: list[str], **variables: str) -> None:
    """Run a command; a failure is a reason to skip, as it tells nothing about us."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")} | variables
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=env)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{failure}: {error}")
    if done.returncode:
        pytest.skip(f"{failure}: {(done.stderr or done.stdout).strip()[-300:]}")


def _environment(home):
    folders = {
        "XDG_CONFIG_HOME": home / ".config",
        "XDG_DATA_HOME": home / ".local" / "share",
        "XDG_STATE_HOME": home / ".local" / "state",
        "XDG_CACHE_HOME": home / ".cache",
    }
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TERM": "dumb",
        "OPENAI_API_KEY": "sk-test",
        # No other host is asked for anything: new versions, lists of models.
        "HTTPS_PROXY": "http://127.0.0.1:9",
        **{name: str(path) for name, path in folders.items()},
    }
