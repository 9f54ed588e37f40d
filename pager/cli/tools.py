"""``ctxpager tools``: what tools take in prompts."""

import argparse

from pager.cli import options as shared
from pager.errors import ConfigError

HELP = "show what tools took in prompts, as offered and as sent, and how calls of them went"
EXAMPLE = """ctxpager tools --since 7d
ctxpager tools 3f2a"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own, and where the log is."""
    parser.add_argument("sessions", nargs="*", metavar="SESSION", help="a session's id or its beginning (default: all)")
    shared.add_since(parser, "sessions that began")
    shared.add_format(parser, "text", "json", "csv")
    shared.add_settings(parser, shared.LOG)


def run(options: argparse.Namespace) -> int:
    """Print the account; the exit status."""
    from instrumentation.accounting.tool_use import account, chosen  # not needed by the server
    from instrumentation.reports import tools as report
    from pager.wire.dialects import load as load_dialect

    with shared.opened_log(shared.load_settings(options)) as store:
        found = account(store, chosen(store, options.sessions, options.since), load_dialect)
    if not found.sessions and not found.without:
        raise ConfigError("the log holds no session" + (" that began since then" if options.since else ""))
    if not found.sessions:
        raise ConfigError(
            f"no decision on tools in {found.without:,} {'session' if found.without == 1 else 'sessions'}: "
            "none was offered that can be read, nothing was paged, the log is older than such decisions, or "
            '[tools] shorten = "off" was set'
        )
    shared.write(options, report, found)
    return 0
