"""``ctxpager experiment``: compares the arms of an experiment."""

import argparse

from pager.cli import options as shared
from pager.errors import ConfigError

HELP = "compare the policies of an experiment by what their sessions cost"
EXAMPLE = "ctxpager experiment --since 30d"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own, where the log is, and what calls cost."""
    shared.add_since(parser, "sessions that began")
    shared.add_format(parser, "text", "json", "csv")
    shared.add_settings(parser, (*shared.LOG, *shared.PRICES, "experiment.arms"))


def run(options: argparse.Namespace) -> int:
    """Print the comparison; the exit status."""
    from instrumentation.accounting.experiment import report  # not needed by the server
    from instrumentation.reports import experiment
    from pager.pricing.rates import in_force

    settings = shared.load_settings(options)
    with shared.opened_log(settings) as store:
        found = report(store, in_force(settings.prices, settings.models), settings.experiment.arms, options.since)
    if not found.arms:
        raise ConfigError("no session of the log was given to an arm; [experiment] arms = { ... } begins an experiment")
    shared.write(options, experiment, found)
    return 0
