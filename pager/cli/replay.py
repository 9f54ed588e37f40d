"""``ctxpager replay``: plays recorded sessions under policies."""

import argparse

from pager.cli import options as shared
from pager.errors import ConfigError

HELP = "play recorded sessions under policies, and show what each would have cost"
EXAMPLE = """ctxpager replay all --policy cost_aware,lru
ctxpager replay recordings/ --policy lru --set capacity=50000 --prices anthropic
ctxpager replay all --keep-warm"""
LIFETIMES = {"5m": 300.0, "1h": 3_600.0}
SETTINGS = (
    *shared.LOG,
    *shared.PRICES,
    *("paging.grace", "paging.policy_options", "paging.thrift", "tools.shorten", "tools.defer_above"),
    *("credit.total_share", "credit.session_share", "credit.allowance", "credit.most"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own, and what sessions are played under."""
    parser.add_argument(
        "places",
        nargs="+",
        metavar="SESSION|FILE|FOLDER",
        help="what to play: a session's id or its beginning, recordings, or all for the whole log",
    )
    shared.add_policies(parser, "the one in the settings")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="[POLICY.]KEY=VALUE",
        help="an option of a policy; can be given several times",
    )
    parser.add_argument(
        "--jobs", type=shared.at_least(1), default=1, metavar="N", help="processes that play at a time (default: 1)"
    )
    parser.add_argument(
        "--min-calls", type=shared.at_least(0), default=5, metavar="N", help="leave shorter sessions out (default: 5)"
    )
    parser.add_argument(
        "--caching",
        choices=("marks", "prefix"),
        help="what the provider finds in its cache again (default: by model and API)",
    )
    parser.add_argument(
        "--lifetime",
        choices=(*LIFETIMES, "auto"),
        help="what the client's cache marks ask for; auto: they name nothing, and it is chosen by price (default: as "
        "recorded)",
    )
    parser.add_argument(
        "--keep-warm",
        action="append",
        nargs="?",
        const="",
        default=[],
        metavar="RULE[,RULE ...]",
        help="show what each policy would cost with prompts kept cached in pauses, by these rules: auto, a number and "
        "seconds with the smallest prompt (2x280@20000), or knowing; without a rule: auto, two simple ones, knowing",
    )
    shared.add_format(parser, "text", "json", "csv")
    shared.add_settings(parser, SETTINGS)


def run(options: argparse.Namespace) -> int:
    """Play them and print the comparison; the exit status."""
    from instrumentation.replay import policy_options as chosen  # not needed by the server
    from instrumentation.replay import sources
    from instrumentation.replay.compare import ReplayConditions, compare
    from instrumentation.replay.prepared_recording import Caching
    from instrumentation.reports import replay

    settings = shared.load_settings(options)
    configured = (settings.policy, settings.paging.policy_options)
    named = shared.policies(options, settings.policy)
    contenders = chosen.kept_warm(chosen.contenders(named, options.set, configured), options.keep_warm)
    marks = None if options.caching is None else options.caching == "marks"
    by_price = options.lifetime == "auto"
    cache = Caching(marks, LIFETIMES.get("5m" if by_price else options.lifetime, 0.0), "auto" if by_price else "5m")
    conditions = ReplayConditions.of(settings, shortest=options.min_calls, cache=cache)
    found = sources.find(options.places, lambda: shared.open_log(settings), conditions.rates())
    comparison = compare(found, contenders, conditions, options.jobs)
    if not comparison.played:
        few = "1 session has" if comparison.left_out == 1 else f"{comparison.left_out:,} sessions have"
        raise ConfigError(f"there is nothing to play: {few} too few calls (--min-calls)")
    shared.write(options, replay, comparison)
    return 0
