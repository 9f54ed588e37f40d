"""Finds where an Anthropic Messages request can take one more tool, or a mark that ends what the provider caches.

Nothing is written anew: a tool or a mark goes between the client's own bytes.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from pager.errors import NotUnderstood
from pager.pricing.mark_cache import FIVE_MINUTES, HOUR, marks_in
from pager.request_values import Request, Span
from pager.wire.byte_edits import apply_edits
from pager.wire.common import Json, holds, is_empty, loads, member, record, string
from pager.wire.json_spans import elements, members
from pager.wire.stitching import ToolSlot
from pager.wire.tool_lists import tool_room

_MARK, _LONG_MARK = b'{"type":"ephemeral"}', b'{"type":"ephemeral","ttl":"1h"}'
# The provider refuses a mark on thinking, and one on a type that is not known is not ours to set.
_MARKABLE = frozenset(
    {
        "text", "image", "document", "search_result", "tool_use", "tool_result", "server_tool_use", "mcp_tool_use",
        "mcp_tool_result", "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result",
        "bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result",
        "container_upload",
    }
)  # fmt: skip


def tool_slot(request: Request) -> ToolSlot | str:
    """Where a tool of ours can be added to the request's tools, or why it can't be."""
    if request.server_state:
        return f"the provider holds part of the prompt ({request.server_state})"
    if not holds(request, "tools"):
        return "the request offers no tools"
    choice = string(record(member(request, "tool_choice")).get("type"))
    if holds(request, "tool_choice") and choice != "auto":
        return f"tool_choice is {choice or 'not understood'}"
    span = request.members["tools"]
    place = _place(request.body[span.start : span.end])
    return place if isinstance(place, str) else replace(place, at=span.start + place.at)


def mark(raw: bytes, lifetime: float = FIVE_MINUTES) -> bytes | None:
    """The message with a mark on its last block that may carry one; None if there is none."""
    written = _LONG_MARK if lifetime >= HOUR else _MARK
    try:
        span = members(raw).get("content")
        edit = None if span is None else _content_edit(raw, span, written)
    except NotUnderstood:
        return None
    return None if edit is None else apply_edits(raw, [edit])


def mark_head(request: Request, lifetime: float = FIVE_MINUTES) -> tuple[Span, bytes] | None:
    """The edit of the body that marks the end of the system prompt, or of the tools where there is none."""
    system, tools = request.members.get("system"), request.members.get("tools")
    written = _LONG_MARK if lifetime >= HOUR else _MARK
    try:
        edit = None if system is None else _content_edit(request.body, system, written)
        return edit or (None if tools is None else _tools_edit(request.body, tools, written))
    except NotUnderstood:
        return None


def lengthen(raw: bytes) -> bytes | None:
    """The message with all its marks asking for an hour; None where one names a lifetime or is not on a block of it."""
    count = len(marks_in(raw))
    if not count:
        return raw
    try:
        edits = _longer(raw, members(raw).get("content"))
    except NotUnderstood:
        return None
    return apply_edits(raw, edits) if len(edits) == count else None


def lengthen_head(request: Request) -> tuple[tuple[Span, bytes], ...] | None:
    """The edits by which all marks outside of the messages ask for an hour; None as for a message."""
    body, found = request.body, request.members
    try:
        edits = [edit for name in ("tools", "system") if request.head_marks for edit in _longer(body, found.get(name))]
        edits += [_longer_mark(body, found["cache_control"])] if request.auto_mark else []
    except NotUnderstood:
        return None
    return tuple(edits) if len(edits) == len(request.head_marks) + bool(request.auto_mark) else None


def _longer(body: bytes, span: Span | None) -> list[tuple[Span, bytes]]:
    """The edits that make the marks on the objects of a list ask for an hour; raises NotUnderstood."""
    if span is None or body[span.start : span.start + 1] != b"[":
        return []
    marked = [place for place, entry in _listed(body, span) if entry.get("cache_control")]
    places = [(place, members(body[place.start : place.end])["cache_control"]) for place in marked]
    return [_longer_mark(body, Span(place.start + at.start, place.start + at.end)) for place, at in places]


def _longer_mark(body: bytes, at: Span) -> tuple[Span, bytes]:
    """The edit that makes one mark ask for an hour; raises NotUnderstood where it says more than that it is one."""
    given = body[at.start : at.end]
    if record(loads(given)) != {"type": "ephemeral"}:
        raise NotUnderstood("the mark names more than its type")
    end = at.start + members(given)["type"].end
    return Span(end, end), b',"ttl":"1h"'


@lru_cache(32)
def _place(tools: bytes) -> ToolSlot | str:
    """The place in the tools' own bytes; kept, as a session sends them with every call and they can be large."""
    try:
        slot, entries = tool_room(tools, lambda tool: [tool], _stays_last)
    except NotUnderstood:
        return "the tools can't be read"
    return slot if any(map(_is_custom, entries)) else "no tool is of the client's own making"


def _stays_last(entry: Json) -> bool:
    return bool(entry.get("cache_control") or entry.get("defer_loading"))


def _is_custom(entry: Json) -> bool:
    """Whether it is a tool that the client defines itself."""
    return bool(entry) and entry.get("type") in (None, "custom")


def _listed(body: bytes, span: Span) -> Iterator[tuple[Span, Json]]:
    """The elements of an array as objects, with their places; raises NotUnderstood."""
    found = elements(body, span)
    for start, item in zip(found.starts, found.items, strict=True):
        yield Span(start, start + len(item)), record(loads(item))


def _content_edit(body: bytes, span: Span, mark: bytes) -> tuple[Span, bytes] | None:
    """The edit that marks a string or a list of blocks."""
    if body[span.start : span.start + 1] == b'"':
        written = body[span.start : span.end]
        is_blank = not string(loads(written)).strip()
        return None if is_blank else (span, b'[{"type":"text","text":%b,"cache_control":%b}]' % (written, mark))
    if is_empty(body, span):
        return None
    markable = [place for place, block in _listed(body, span) if _may_carry(block)]
    return _edit(body, markable[-1], mark) if markable else None


def _tools_edit(body: bytes, span: Span, mark: bytes) -> tuple[Span, bytes] | None:
    """The edit that marks the last tool which is part of the prompt from its beginning."""
    if is_empty(body, span):
        return None
    markable = [place for place, entry in _listed(body, span) if entry and not entry.get("defer_loading")]
    return _edit(body, markable[-1], mark) if markable else None


def _may_carry(block: Json) -> bool:
    kind = string(block.get("type"))
    return kind in _MARKABLE and (kind != "text" or bool(string(block.get("text")).strip()))


def _edit(body: bytes, place: Span, mark: bytes) -> tuple[Span, bytes]:
    """The edit that marks the object at this place; one that is marked stays as it is."""
    spans = members(body[place.start : place.end])
    old = spans.get("cache_control")
    if old is None:
        end = place.start + list(spans.values())[-1].end
        return Span(end, end), b',"cache_control":' + mark
    at = Span(place.start + old.start, place.start + old.end)
    given = body[at.start : at.end]
    return at, mark if given == b"null" else given
