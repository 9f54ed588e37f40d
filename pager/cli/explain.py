"""``ctxpager explain``: why each page stayed or went at a call."""

import argparse

from pager.cli import options as shared

HELP = "show why each page stayed or went at a call, in numbers"
EXAMPLE = """ctxpager explain 3f2a 0:31
ctxpager explain 3f2a 0:31 --policy lru"""
SETTINGS = (*shared.LOG, *shared.PRICES, "paging.cache_marks", "paging.grace", "paging.policy_options")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own, and what the call is weighed under."""
    parser.add_argument("session", metavar="SESSION", help="a session's id, or its beginning")
    parser.add_argument(
        "call",
        metavar="[BRANCH:]CALL[#ATTEMPT]",
        help="the call, such as 0:31, or 0:31#2 for its second attempt (default: branch 0, first attempt)",
    )
    parser.add_argument(
        "--policy", dest="instead", default="", metavar="NAME", help="the policy to weigh under (default: the call's)"
    )
    parser.add_argument("--tools", action="store_true", help="list every tool, and why it is sent as it is")
    shared.add_format(parser, "text", "json")
    shared.add_settings(parser, SETTINGS)


def run(options: argparse.Namespace) -> int:
    """Explain the call; the exit status."""
    from instrumentation.accounting.explain import explain  # not needed by the server
    from instrumentation.accounting.ledger.session_story import story
    from instrumentation.reports import explain as report
    from pager.paging.planning_rules import PlanningRules
    from pager.wire.dialects import load as load_dialect

    settings = shared.load_settings(options)
    with shared.opened_log(settings) as store:
        rules = PlanningRules.of(settings)
        told = story(store, options.session, rules.rates(), load_dialect)
        found = explain(store, options.session, options.call, rules, load_dialect, options.instead, told)
    shared.write(options, report, found, tools=options.tools)
    return 0
