"""Logs, once each, what a user could set better, where a client's requests show it."""

import logging
import re
from collections.abc import Mapping, Sequence

from pager.log.events import CallReceived, Event
from pager.proxy.log_records import PlacedCall
from pager.values import Request

MANY = 10
"""MCP tools from which on a prompt is better off without them."""

_MCP = re.compile(rb'"name"\s*:\s*"mcp__')
_DEFERRED = re.compile(rb'"defer_loading"\s*:\s*true')
log = logging.getLogger("ctxpager")


class Advice:
    """Warns once that Claude Code loads all MCP tools into its prompts, as it does behind any base URL."""

    def __init__(self) -> None:
        self._given = False

    def happened(self, placed: PlacedCall, events: Sequence[Event]) -> None:
        """Look at the first call of a branch; those after it bring the same tools."""
        if self._given or not any(isinstance(event, CallReceived) and event.call == 1 for event in events):
            return
        loaded = mcp_tools(placed.incoming.request) if is_claude_code(placed.incoming.headers) else 0
        if loaded >= MANY:
            self._given = True
            log.warning(
                "Claude Code sends %d MCP tools in every prompt, as it does behind any base URL: start it with "
                "ENABLE_TOOL_SEARCH=true, and it loads them only when they are needed",
                loaded,
            )


def is_claude_code(headers: Mapping[str, str]) -> bool:
    """Whether a request is of Claude Code, by what it calls itself or its session."""
    return headers.get("user-agent", "").startswith("claude-cli/") or "x-claude-code-session-id" in headers


def mcp_tools(request: Request) -> int:
    """How many tools of MCP servers a request loads into the prompt; deferred ones are not."""
    span = request.members.get("tools")
    if span is None:
        return 0
    tools = request.body[span.start : span.end]
    return max(0, len(_MCP.findall(tools)) - len(_DEFERRED.findall(tools)))
