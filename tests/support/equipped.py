"""Recorded sessions with tools of which much is said."""

import json
from dataclasses import replace

from pager.wire.dialects import load


def equipped(recording, count=40):
    """The session with tools of which much is said, none of which is ever called."""
    prose = "Does what its name says. " + "There is much more to be said of it, which hardly anybody needs. " * 8
    listed = [{"function": {"name": f"tool_{at}", "description": prose, "parameters": {}}} for at in range(count)]
    tools, chat = json.dumps(listed).encode(), load("chat")
    offers = chat.offers(chat.parse(b'{"messages": [], "tools": %b}' % tools)).offers
    more = {"offers": offers, "outside": 3_000 + len(tools)}
    return replace(recording, steps=[step._replace(**more) for step in recording.steps])
