"""Harnesses from npm: installed once into the user's cache folder, and kept there from run to run."""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import platformdirs
import pytest

CACHE = Path(platformdirs.user_cache_dir("ctxpager-tests"))
QUIET = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")


@pytest.fixture(scope="session")
def from_npm():
    """Gives the path of a program in a package of an exact version; skips where it can't be had."""
    for needed in ("node", "npm"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    return _installed


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
