"""``ctxpager report``: what sessions cost, and what they would have cost."""

import argparse

from pager.cli import options as shared

HELP = "show what sessions cost, what they would have cost without ctxpager, and what was wasted"
EXAMPLE = """ctxpager report --since 7d --by day
ctxpager report 3f2a --format html -o report.html"""
BY = ("session", "day", "model", "harness", "branch", "call")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own, where the log is, and what calls cost."""
    parser.add_argument(
        "session", nargs="?", default="", metavar="SESSION", help="a session's id or its beginning (default: all)"
    )
    shared.add_since(parser, "calls")
    parser.add_argument(
        "--by", choices=BY, default="", help="what to sum calls up by (default: session; call, for one session)"
    )
    parser.add_argument("--with-content", action="store_true", help="with the text of pages, in json and html")
    shared.add_format(parser, "text", "json", "csv", "html")
    shared.add_settings(parser, (*shared.LOG, *shared.PRICES))


def run(options: argparse.Namespace) -> int:
    """Write the report; the exit status."""
    from instrumentation.replay import warm_estimate  # not needed by the server
    from instrumentation.reports import gather, report
    from pager.pricing.rates import in_force
    from pager.wire.dialects import load as load_dialect

    settings = shared.load_settings(options)
    wanted = gather.Wanted(options.session, options.since, options.by, options.with_content)
    with shared.opened_log(settings) as store:
        found = gather.gather(store, wanted, in_force(settings.prices, settings.models), load_dialect)
        warm = ""
        if options.format == "text" and not options.session and warm_estimate.is_wanted(settings):
            last = warm_estimate.of_settings(warm_estimate.of_log(store), settings, warm_estimate.IN_PASSING)
            warm = warm_estimate.line(last, shared.KEEP_WARM)
    shared.write(options, report, found, warm=warm)
    return 0
