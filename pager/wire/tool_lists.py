"""Reads the tools that a request offers: what the wire formats have in common."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

import orjson

from pager.errors import NotUnderstood
from pager.request_values import Request, Span
from pager.tools.decide_forms import LISTS
from pager.tools.definitions import Listed, Offer, Offers
from pager.tools.shorten import Tool
from pager.wire.common import Json, digest, exactly, loads, record, string
from pager.wire.json_spans import Elements, elements, members
from pager.wire.stitching import ToolSlot

_MARKS = frozenset({"cache_control"})  # which clients move about
# What harnesses call the tool by which a model finds others: Claude Code, Qwen Code, Codex.
_SEARCHES = frozenset({"toolsearch", "searchtools"})


class Layout(NamedTuple):
    """How a wire format writes a tool.

    ``holder`` is the member with its name and description, empty where that is the entry itself; ``schema`` the member
    of that with its parameters. ``fixed`` says of an entry why it must stay as it is, ``is_strict`` whether its schema
    is enforced.
    """

    holder: str
    schema: str
    fixed: Callable[[Json], str]
    is_strict: Callable[[Json], bool]


def not_a_function(entry: Json) -> str:
    """Why an entry is no plain function of OpenAI's formats; empty if it is one."""
    kind = entry.get("type", "function")
    return "" if kind == "function" else f"it is of the type {kind}"


def offers(request: Request, layout: Layout) -> Listed | None:
    """The tools in the member ``tools``; None if there are none, or if they can't be read."""
    span = request.members.get("tools")
    found = None if span is None else _read(request.body[span.start : span.end], layout)
    return None if span is None or found is None else Listed(span.start, found)


@lru_cache(LISTS)
def _read(raw: bytes, layout: Layout) -> Offers | None:
    """The tools of a list; kept, as it comes with every call of a session."""
    try:
        listed = list(entries(raw))
    except NotUnderstood:
        return None
    found = [offer for at, item in listed if (offer := _offer(item, at, layout)) is not None]
    if not found:
        return None
    values = [record(loads(item)) for _, item in listed]
    names = Counter(string(_holder(value, layout).get("name")) for value in values)
    found = [replace(it, fixed="its name comes twice") if names[it.tool.name] > 1 else it for it in found]
    deferring = next((why for value in values if (why := _defers(value, layout))), "")
    return Offers(_digest(raw, values, layout), tuple(found), deferring)


def _digest(raw: bytes, values: Sequence[Json], layout: Layout) -> str:
    """A hash that is equal for lists that offer the same; that of the bytes if they are nested too deep."""
    try:
        return digest([_unmarked(value, layout) for value in values]).hex()
    except (orjson.JSONEncodeError, RecursionError):
        return sha256(raw).hexdigest()


def _unmarked(entry: Json, layout: Layout) -> Json:
    kept = {key: value for key, value in entry.items() if key not in _MARKS}
    holder = kept.get(layout.holder)
    return kept if not isinstance(holder, dict) else {**kept, layout.holder: _unmarked(holder, layout)}


def entries(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """The offset and the bytes of each tool of a list, also of those in a namespace; raises NotUnderstood."""
    found = elements(raw, Span(0, len(raw)))
    for at, item in zip(found.starts, map(bytes, found.items), strict=True):
        grouped = _grouped(item) if record(loads(item)).get("type") == "namespace" else None
        if grouped is None:
            yield at, item
        else:
            yield from ((at + start, bytes(tool)) for start, tool in zip(grouped.starts, grouped.items, strict=True))


def _grouped(namespace: bytes) -> Elements | None:
    """The tools in a namespace; None if they can't be read."""
    try:
        return elements(namespace, members(namespace)["tools"])
    except (NotUnderstood, KeyError):
        return None


def tool_room(
    tools: bytes,
    holders: Callable[[Json], Iterable[Json]],
    stays_last: Callable[[Json], bool],
    *,
    keeps_separator: bool = False,
) -> tuple[ToolSlot, list[Json]]:
    """The place for one more tool in a list of them, counted from its beginning, and the tools of the list.

    ``holders`` are the objects of a tool that may have its name. Nothing is put behind a tool that ``stays_last``: one
    that ends what is cached, or that is not in the prompt yet. Raises NotUnderstood if it is no list.
    """
    found = elements(tools, Span(0, len(tools)))
    entries = [record(loads(item)) for item in found.items]
    comma = (found.separator if keeps_separator else b"") or b","
    names = frozenset(name for entry in entries for holder in holders(entry) if (name := string(holder.get("name"))))
    last = next((start for start, entry in zip(found.starts, entries, strict=True) if stays_last(entry)), None)
    if last is not None:
        return ToolSlot(last, b"", comma, names), entries
    if not entries:
        return ToolSlot(1, b"", b"", names), entries
    return ToolSlot(found.starts[-1] + len(found.items[-1]), comma, b"", names), entries


def _holder(entry: Json, layout: Layout) -> Json:
    """The object with a tool's name and description."""
    return record(entry.get(layout.holder)) if layout.holder else entry


def _offer(raw: bytes, at: int, layout: Layout) -> Offer | None:
    """The offer of an entry; None for a tool of the provider, which has no name, and for a key that comes twice."""
    entry = exactly(raw)
    holder = _holder(entry, layout)
    if not string(holder.get("name")):
        return None
    try:
        holding = members(raw)[layout.holder] if layout.holder else Span(0, len(raw))
        inner = raw[holding.start : holding.end]
        spans = members(inner)
    except NotUnderstood:  # a key twice: no place is the right one
        return None
    tool = Tool(
        string(holder["name"]),
        string(holder.get("description")),
        holder.get(layout.schema, {}),
        layout.is_strict(holder),
        _in_full(inner, spans, layout.schema),
    )
    behind = Span(spans["name"].end, spans["name"].end)
    shift = at + holding.start
    places = [spans.get(name, behind) for name in ("description", layout.schema)]
    description, parameters = (Span(span.start + shift, span.end + shift) for span in places)
    return Offer(tool, description, parameters, layout.fixed(entry) or _fixed(holder), len(raw))


def _fixed(holder: Json) -> str:
    """Why a tool must stay as it is, in any wire format; empty if it need not."""
    if not isinstance(holder.get("description", ""), str):
        return "its description is no text"
    # The answer to such a call is read by a program, which can't make anything of a correction.
    if holder.get("allowed_callers") not in (None, [], ["direct"]):
        return "programs call it, too"
    return ""


def _in_full(raw: bytes, spans: Mapping[str, Span], schema: str) -> bytes:
    """A tool in full, in the same form for all wire formats; its values keep their bytes."""
    keys = {"name": "name", "description": "description", "parameters": schema}
    values = {key: raw[spans[name].start : spans[name].end] for key, name in keys.items() if name in spans}
    return b"{%b}" % b",".join(b'"%b":%b' % (key.encode(), value) for key, value in values.items())


def _defers(entry: Json, layout: Layout) -> str:
    """Why this entry shows that the client loads tools when it needs them; empty if it does not."""
    holder = _holder(entry, layout)
    if entry.get("defer_loading") or holder.get("defer_loading"):
        return "it marks tools to be loaded late"
    if string(entry.get("type")).startswith("tool_search"):
        return "it has the provider's search for tools"
    name = string(holder.get("name"))
    return f"it has {name}" if name.lower().replace("_", "").replace("-", "") in _SEARCHES else ""
