"""``ctxpager check``: verifies the session log."""

import argparse

from pager.cli import options as shared
from pager.errors import StoreCorrupt
from pager.terminal import say

HELP = "verify the session log; --repair mends what can be mended"
EXAMPLE = "ctxpager check --repair"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own, and where the log is."""
    parser.add_argument("--repair", action="store_true", help="mend what can be mended")
    shared.add_settings(parser, shared.LOG)


def run(options: argparse.Namespace) -> int:
    """Say what is damaged, and what was repaired; the exit status, 1 for damage that is left."""
    from instrumentation.accounting.log_check import check  # not needed by the server
    from pager.log.stores import Location

    settings = shared.load_settings(options)
    location = Location(settings.store_url)
    rebuilt: list[str] = []
    try:
        store = shared.open_log(settings, read_only=not options.repair)
    except StoreCorrupt:
        if not options.repair:
            raise
        rebuilt = location.salvage()
        store = shared.open_log(settings, read_only=not options.repair)
    try:
        found = check(store, repair=options.repair)
    finally:
        store.close()
    repaired = [line if line.startswith("lost: ") else f"repaired: {line}" for line in (*rebuilt, *found.repaired)]
    for line in [*repaired, *(f"problem: {line}" for line in found.problems)]:
        say(line)
    count = len(found.problems)
    state = f"{count} problem{'' if count == 1 else 's'}" if count else "clean"
    say(f"{location.folder or settings.store_url}: {found.events} events, {found.blobs} blobs, {state}")
    return 1 if found.problems else 0
