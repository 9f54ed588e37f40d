"""``ctxpager config``: prints the settings in force."""

import argparse

from pager.cli import options as shared
from pager.terminal import say

HELP = "print the settings in force and where each came from"
EXAMPLE = "ctxpager config --policy lru"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All settings."""
    shared.add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Print them; the exit status."""
    from pager.config.loading import render  # takes a while to import

    say(render(shared.load(options)), end="")
    return 0
