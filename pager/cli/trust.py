"""The command ``ctxpager trust``: whose settings files may do more than harmless things."""

import argparse
from pathlib import Path

from pager.config.loading import FILE_NAME, Folder, trusted
from pager.terminal import say

WORDS = "let the settings file of a folder name code, upstreams, keys and data folders, as long as it does not change"


def add(command: argparse.ArgumentParser) -> None:
    """Describe its arguments."""
    command.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="else the working folder")
    other = command.add_mutually_exclusive_group()
    other.add_argument("--remove", action="store_true", help="trust it no more")
    other.add_argument("--list", action="store_true", help="list the folders that are trusted")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Trust a folder, or no more, or list those that are trusted; the exit status."""
    known, folder = trusted(), options.folder
    if options.list:
        lines = [f"{path}: {standing}" for path, standing in known.listed(FILE_NAME)] or ["no folder is trusted"]
    elif options.remove:
        lines = [f"{folder.resolve()} is {'no longer' if known.remove(folder) else 'not'} trusted"]
    else:
        allowed = Folder(folder).trust()
        lines = [f"{folder.resolve() / FILE_NAME} is trusted as it is now; what that allows:"]
        lines += [f"  {line}" for line in allowed or ["nothing that is not allowed anyway"]]
    say("\n".join(lines))
    return 0
