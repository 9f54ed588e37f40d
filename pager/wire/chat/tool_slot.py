"""Where one more tool can be written into a Chat Completions request."""

from dataclasses import replace
from functools import lru_cache

from pager.errors import NotUnderstood
from pager.request_values import Request
from pager.wire.common import Json, holds, member, record
from pager.wire.stitching import ToolSlot
from pager.wire.tool_lists import tool_room

_CALLED_BY_THE_CLIENT = frozenset({"function", "custom"})


def tool_slot(request: Request) -> ToolSlot | str:
    """The place for one more tool, or why the request must not get one."""
    if not holds(request, "tools"):
        return "no tools"
    if holds(request, "functions") or holds(request, "function_call"):
        return "legacy functions"
    if member(request, "tool_choice") not in (None, "auto"):
        return "a tool_choice other than auto"
    if member(request, "n") not in (None, 1):
        return "more than one choice"
    if member(request, "logprobs") or member(request, "top_logprobs"):
        return "logprobs"
    span = request.members["tools"]
    slot = _slot(request.body[span.start : span.end])
    return slot if isinstance(slot, str) else replace(slot, at=span.start + slot.at)


# A client sends the same list with every call.
@lru_cache(32)
def _slot(tools: bytes) -> ToolSlot | str:
    try:
        slot, entries = tool_room(tools, _holders, _is_marked)
    except NotUnderstood:
        return "tools that are no list"
    return slot if any(map(_is_called_by_the_client, entries)) else "only tools of the provider"


def _is_called_by_the_client(tool: Json) -> bool:
    return bool(_CALLED_BY_THE_CLIENT & tool.keys()) or tool.get("type") in _CALLED_BY_THE_CLIENT


def _holders(tool: Json) -> list[Json]:
    return [tool, *(record(tool.get(kind)) for kind in _CALLED_BY_THE_CLIENT)]


def _is_marked(tool: Json) -> bool:
    """Whether the client marks the end of what is cached here."""
    return bool(tool.get("cache_control") or record(tool.get("function")).get("cache_control"))
