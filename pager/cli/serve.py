"""``ctxpager serve``: runs the proxy."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pager.cli import options as shared
from pager.errors import PagerError
from pager.terminal import say

if TYPE_CHECKING:
    from instrumentation.dashboard.server import Dashboard
    from pager.config.settings import Settings
    from pager.log.store import Store
    from pager.pricing.rates import Models
    from pager.proxy.serving.warm_advice import Estimating

HELP = "run the proxy"
EXAMPLE = """ctxpager serve
ctxpager serve --port 9000 --policy keep_all"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All settings."""
    shared.add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until stopped; the exit status."""
    from instrumentation.accounting.billing import cost  # the server's imports are not needed by the other commands
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
        lambda model, usage: cost(usage, models, model).dollars,
        lambda began: _summary(settings, models, began),
        _estimating(settings),
    )
    return server.run(settings, os.environ, shown, words)


def _summary(settings: "Settings", models: "Models", since: float) -> str:
    """What calls since a time cost, as the log has them, or why that is not known."""
    from instrumentation.reports import gather, report  # needed once, when the proxy ends
    from pager.wire.dialects import load as load_dialect

    try:
        with shared.opened_log(settings) as store:
            return report.summary(gather.gather(store, gather.Wanted(since=since), models, load_dialect))
    except PagerError as error:
        return f"ctxpager: {error}"


def _estimating(settings: "Settings") -> "Estimating":
    """The command that works out what keeping warm would have saved."""
    from pager.proxy.serving.warm_advice import Estimating  # the server has loaded it

    command = [sys.executable, "-P", "-m", "instrumentation.replay.warm_estimate"]  # -P: never what the folder calls so
    return Estimating(command, settings.model_dump_json().encode())


def _dashboard(settings: "Settings") -> "Callable[[Store], Dashboard]":
    """Makes the dashboard of a log."""
    from instrumentation.dashboard.server import Dashboard  # only the proxy shows it

    return lambda store: Dashboard(store, settings)
