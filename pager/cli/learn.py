"""``ctxpager learn``: learns from the log's sessions."""

import argparse

from pager.cli import options as shared
from pager.terminal import say

HELP = "work out from the log how tools and sessions are used; new sessions use the result"
EXAMPLE = "ctxpager learn --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own, and where the log is."""
    parser.add_argument("--dry-run", action="store_true", help="only print the result, and log nothing")
    shared.add_settings(parser, shared.LOG)


def run(options: argparse.Namespace) -> int:
    """Print the result, and log it if it is new; the exit status."""
    from time import time

    from instrumentation.learning.describe import told  # not needed by the server
    from instrumentation.learning.learn import keep, learn
    from pager.wire.dialects import load as load_dialect

    with shared.opened_log(shared.load_settings(options), read_only=options.dry_run) as store:
        lesson = learn(store, load_dialect, time())
        is_new = not options.dry_run and keep(store, lesson, time())
    say(told(lesson), end="")
    if is_new:
        say("logged: sessions that begin from now on use it")
    return 0
