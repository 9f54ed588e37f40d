"""``ctxpager trust``: whose settings files may do more than harmless things."""

import argparse
from pathlib import Path

from pager.terminal import say

HELP = "let the settings file of a folder name code, upstreams, keys and data folders, as long as it does not change"
EXAMPLE = """ctxpager trust
ctxpager trust --list"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, and what to do instead of trusting it."""
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="the folder (default: the working folder)"
    )
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--remove", action="store_true", help="end the trust")
    other.add_argument("--list", action="store_true", help="list the trusted folders")


def run(options: argparse.Namespace) -> int:
    """Trust a folder, end the trust, or list the trusted folders; the exit status."""
    from pager.config.loading import FILE_NAME, Folder, trusted  # takes a while to import

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
