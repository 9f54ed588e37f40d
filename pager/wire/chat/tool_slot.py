"""Where one more tool can be written into a Chat Completions request."""

from dataclasses import dataclass
from functools import lru_cache

from pager.errors import NotUnderstood
from pager.values import Request, Span
from pager.wire.common import (
    Json,
    holds,
    loads,
    member,
    record,
    string,
)
from pager.wire.json_spans import elements
from pager.wire.stitching import ToolSlot

_CALLED_BY_THE_CLIENT = frozenset({"function", "custom"})


@dataclass(frozen=True, slots=True)
class _ToolPlace:
    """The client's tools: their names, and where one more goes, counted from the beginning of the list."""

    names: frozenset[str]
    at: int
    is_first: bool


def tool_slot(request: Request) -> ToolSlot | str:
    """The place for one more tool, or why the request must not get one."""
    if not holds(request, "tools"):
        return "no tools"
    reason = _refusal(request)
    if reason:
        return reason
    span = request.members["tools"]
    tools = _read(request.body[span.start : span.end])
    if isinstance(tools, str):
        return tools
    before, after = (b"", b",") if tools.is_first else (b",", b"")
    return ToolSlot(span.start + tools.at, before, after, tools.names)


def _refusal(request: Request) -> str:
    """What in the request, its tools aside, forbids one more tool."""
    if holds(request, "functions") or holds(request, "function_call"):
        return "legacy functions"
    if member(request, "tool_choice") not in (None, "auto"):
        return "a tool_choice other than auto"
    if member(request, "n") not in (None, 1):
        return "more than one choice"
    if member(request, "logprobs") or member(request, "top_logprobs"):
        return "logprobs"
    return ""


# A client sends the same list with every call.
@lru_cache(32)
def _read(raw: bytes) -> _ToolPlace | str:
    try:
        found = elements(raw, Span(0, len(raw)))
    except NotUnderstood:
        return "tools that are no list"
    tools = [record(loads(item)) for item in found.items]
    if not any(map(_is_called_by_the_client, tools)):
        return "only tools of the provider"
    # What stands before a cache mark is cached: ours belongs there, too.
    marked = next((start for start, tool in zip(found.starts, tools, strict=True) if _is_marked(tool)), None)
    end = found.starts[-1] + len(found.items[-1])
    names = frozenset(name for tool in tools for name in _names(tool))
    return _ToolPlace(names, end if marked is None else marked, is_first=marked is not None)


def _is_called_by_the_client(tool: Json) -> bool:
    return bool(_CALLED_BY_THE_CLIENT & tool.keys()) or tool.get("type") in _CALLED_BY_THE_CLIENT


def _is_marked(tool: Json) -> bool:
    return bool(tool.get("cache_control") or record(tool.get("function")).get("cache_control"))


def _names(tool: Json) -> list[str]:
    holders = [tool, *(record(tool.get(kind)) for kind in sorted(_CALLED_BY_THE_CLIENT))]
    return [name for holder in holders if (name := string(holder.get("name")))]
