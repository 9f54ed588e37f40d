"""``ctxpager keep-warm``: turns keeping prompts warm on and off in a running proxy."""

import argparse
from typing import Any

from pager.cli import options as shared
from pager.errors import NotRunning
from pager.terminal import say

HELP = "turn keeping prompts warm on or off in the running proxy, or show its state, limits and spending"
EXAMPLE = """ctxpager keep-warm on
ctxpager keep-warm off
ctxpager keep-warm status"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to do, and where the proxy is."""
    parser.add_argument("action", choices=("on", "off", "status"), help="what to do; a restart goes by the settings")
    shared.add_settings(parser, shared.PROXY)


def run(options: argparse.Namespace) -> int:
    """Switch it, and print its state; the exit status, 1 where no proxy answers."""
    from pager.proxy.serving.ask_proxy import ask  # not needed by the other commands

    settings = shared.load_settings(options)
    body = {"on": options.action == "on"} if options.action != "status" else None
    try:
        state = ask(settings, "/ctxpager/keep-warm", body)
    except NotRunning as error:
        say(f"ctxpager: {error}", error=True)
        return 1
    say(described(state))
    return 0


def described(state: dict[str, Any]) -> str:
    """The state of keeping warm in a few lines."""
    limits = state["limits"]
    now = f"on ({state['mode']})" if state["on"] else "off"
    if state["on"] != (state["setting"] != "off"):
        now += f" until the proxy is started again: the settings say {state['setting']}"
    if state["impossible"]:
        now += f": {state['impossible']}"
    kept = "1 session is" if state["kept"] == 1 else f"{state['kept']:,} sessions are"
    limited = (
        f"${limits['refresh_dollars']:,.2f} a refresh",
        f"{limits['most']:,} refreshes a pause",
        f"{limits['longest'] / 3_600:,.1f} hours after the latest call",
        f"{'with' if limits['subscriptions'] else 'without'} subscriptions",
    )
    spent = f"${state['spent']:,.4f} in the last 24 hours, at most ${limits['day_dollars']:,.2f}"
    lines = [f"keeping warm is {now}", f"  spent   {spent}", f"  kept    {kept} kept warm now"]
    return "\n".join([*lines, f"  limits  {', '.join(limited)}"])
