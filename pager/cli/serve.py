"""``ctxpager serve``: runs the proxy."""

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from pager.cli import options as shared
from pager.terminal import say

if TYPE_CHECKING:
    from instrumentation.dashboard.server import Dashboard
    from pager.config.settings import Settings
    from pager.log.store import Store

HELP = "run the proxy"
EXAMPLE = """ctxpager serve
ctxpager serve --port 9000 --policy keep_all"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All settings."""
    shared.add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until stopped; the exit status."""
    from instrumentation.accounting import live_cost  # the server's imports are not needed by the other commands
    from pager.config.loading import sources
    from pager.pricing.rates import in_force
    from pager.proxy.serving import main as server

    loaded = shared.load(options)
    settings = loaded.settings
    for line in sources(loaded):
        say(f"ctxpager: {line}", flush=True)
    shown = _dashboard(settings) if settings.dashboard.is_shown(settings.host) else None
    models = in_force(settings.prices, settings.models)
    words = server.CostWords(
        live_cost.price(models),
        lambda began: live_cost.summary(lambda: shared.open_log(settings), models, began),
    )
    return server.run(settings, os.environ, shown, words)


def _dashboard(settings: "Settings") -> "Callable[[Store], Dashboard]":
    """Makes the dashboard of a log."""
    from instrumentation.dashboard.server import Dashboard  # only the proxy shows it

    return lambda store: Dashboard(store, settings)
