"""``ctxpager demo``: plays a sample session through the proxy."""

import argparse
from pathlib import Path

HELP = "play a sample session through the proxy, without and with paging, and show what paging saved"
EXAMPLE = "ctxpager demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where its log is."""
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="the folder for its log (default: one of the demo's own)"
    )


def run(options: argparse.Namespace) -> int:
    """Play it; the exit status."""
    from instrumentation.accounting.demo_cost import weigh  # not needed by the other commands
    from pager.testing.demo import play

    return play(options.data_dir, weigh)
