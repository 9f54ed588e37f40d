"""``ctxpager experiment``: compares the arms of an experiment."""

import argparse
import math

from pager.cli import options as shared
from pager.errors import ConfigError

HELP = "compare the policies of an experiment by what their sessions cost, and by signs of harm"
EXAMPLE = "ctxpager experiment --since 30d"
MARGIN = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own, where the log is, and what calls cost."""
    shared.add_since(parser, "sessions that began")
    parser.add_argument(
        "--margin",
        type=_margin,
        default=MARGIN,
        metavar="SHARE",
        help="the share by which an arm may have more of a sign of harm than the control and still be not worse "
        f"(default: {MARGIN})",
    )
    shared.add_format(parser, "text", "json", "csv")
    shared.add_settings(parser, (*shared.LOG, *shared.PRICES, "experiment.arms"))


def _margin(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a share such as 0.1, 0 or more")
    return share


def run(options: argparse.Namespace) -> int:
    """Print the comparison; the exit status."""
    from instrumentation.accounting.experiment import report  # not needed by the server
    from instrumentation.reports import experiment
    from pager.pricing.rates import in_force
    from pager.wire.dialects import load as load_dialect

    settings = shared.load_settings(options)
    with shared.opened_log(settings) as store:
        models, shares = in_force(settings.prices, settings.models), settings.experiment.arms
        found = report(store, models, shares, load_dialect, since=options.since, margin=options.margin)
    if not found.arms:
        raise ConfigError("no session of the log was given to an arm; [experiment] arms = { ... } begins an experiment")
    shared.write(options, experiment, found)
    return 0
