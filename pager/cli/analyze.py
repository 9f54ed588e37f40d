"""``ctxpager analyze``: what existing logs of agents wasted."""

import argparse
import os
import sys
from pathlib import Path

from pager.cli import options as shared
from pager.terminal import say

HELP = "show what existing logs of agents wasted, and what paging would have saved; needs no proxy"
EXAMPLE = """ctxpager analyze
ctxpager analyze ~/.claude/projects --since 30d --policy cost_aware,lru"""
SETTINGS = (*shared.LOG, *shared.PRICES, "paging.grace", "paging.policy_options", "tools.shorten", "tools.defer_above")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own, and what sessions are played under."""
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="files or folders of logs (default: the usual places)"
    )
    shared.add_since(parser, "sessions with a call")
    shared.add_policies(parser, "cost_aware")
    parser.add_argument(
        "--jobs", type=shared.at_least(1), metavar="N", help="processes that work at a time (default: one a core)"
    )
    parser.add_argument(
        "--min-calls", type=shared.at_least(0), default=2, metavar="N", help="leave shorter sessions out (default: 2)"
    )
    parser.add_argument("--no-cache", action="store_true", help="read every file anew, and keep nothing of it")
    shared.add_format(parser, "text", "json")
    shared.add_settings(parser, SETTINGS)


def run(options: argparse.Namespace) -> int:
    """Analyse the logs; the exit status, 1 where there is no session."""
    from instrumentation.analyze import command  # not needed by the server
    from instrumentation.replay import warm_estimate
    from instrumentation.reports import analyze as report

    wanted = command.AnalyzeOptions(
        paths=options.paths,
        policies=shared.policies(options, "cost_aware"),
        jobs=options.jobs or os.cpu_count() or 1,
        since=options.since,
        shortest=options.min_calls,
        caches=not options.no_cache,
    )
    settings, warm = shared.load_settings(options), ""
    try:
        found, start = command.run(wanted, settings, os.environ, sys.stderr)
        if options.format == "text" and warm_estimate.is_wanted(settings):
            warm = warm_estimate.line(command.kept_warm(found, settings), shared.KEEP_WARM)
    except KeyboardInterrupt:
        say("ctxpager: interrupted; files that are done are not read again", error=True)
        return 130
    shared.write(options, report, found, start=start, warm=warm)
    return 0 if found.sessions else 1
