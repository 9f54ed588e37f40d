"""``ctxpager status``: the live sessions of a running proxy, and what their next calls cost."""

import argparse

from pager.cli import options as shared
from pager.errors import NotRunning
from pager.terminal import say

HELP = "show the live sessions of the running proxy: when each prompt goes cold, and what that costs"
EXAMPLE = """ctxpager status
ctxpager status --format json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own, and where the proxy is."""
    shared.add_format(parser, "text", "json")
    shared.add_settings(parser, shared.PROXY)


def run(options: argparse.Namespace) -> int:
    """Print them; the exit status, 1 where no proxy answers."""
    from instrumentation.reports import status  # not needed by the server
    from pager.proxy.serving.ask_proxy import ask

    settings = shared.load_settings(options)
    try:
        found = ask(settings, "/ctxpager/status")
    except NotRunning as error:
        say(f"ctxpager: {error}", error=True)
        return 1
    shared.write(options, status, found)
    return 0
