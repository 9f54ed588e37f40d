"""Writes into a Responses request what the client knows nothing of: one more tool, and the legs it was not shown."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import TypeAlias

import msgspec

from pager.errors import NotUnderstood
from pager.request_values import Request
from pager.wire.byte_edits import Path, find
from pager.wire.common import Json, loads, member, record, records, string
from pager.wire.stitching import Expansion, Leg, LegPart, ToolSlot
from pager.wire.tool_lists import tool_room

_CALLABLE = frozenset({"function", "custom"})
_CALLS = frozenset({"function_call", "custom_tool_call"})
_BY_MODEL = _CALLS | {"reasoning"}
_LOGPROBS = "message.output_text.logprobs"
_LAST_ITEMS = 3  # a trigger is at the end of the history


class Glance(msgspec.Struct):
    """The members of an item that are read at every call."""

    type: str = ""
    tools: msgspec.Raw = msgspec.Raw(b"[]")


class _Author(msgspec.Struct):
    """The members that show whether the model wrote an item."""

    type: str | None = None
    role: str | None = None


_glance = msgspec.json.Decoder(Glance)
_author = msgspec.json.Decoder(_Author)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def of_type(request: Request, kind: str) -> Iterator[tuple[int, Glance]]:
    """The items of this type with their numbers; only those that hold its name as a string of their own are read."""
    body, items, starts = request.body, request.items, request.starts
    if not items:
        return
    marker, end = f'"{kind}"'.encode(), starts[-1] + len(items[-1])
    at = body.find(marker, starts[0], end)
    while at >= 0:
        index = bisect_right(starts, at) - 1
        glance = _look(items[index])
        if glance.type == kind:
            yield index, glance
        at = body.find(marker, starts[index] + len(items[index]), end)


def _look(item: bytes | memoryview) -> Glance:
    try:
        return _glance.decode(item)
    except _UNREADABLE:
        return Glance()


def tool_slot(request: Request) -> ToolSlot | str:
    """Where one more tool can be written, or why it can't be."""
    for reason in _refusals(request):
        return reason
    try:
        rooms = [room for room in _rooms(request) if room is not None]
    except NotUnderstood as error:
        return f"the tools can't be read: {error}"
    usable = next((slot for slot, can_call in rooms if can_call), None)
    if usable is None:
        return "there is no tool that the client runs" if rooms else "there are no tools"
    return replace(usable, names=frozenset[str]().union(*(slot.names for slot, _ in rooms)))


def _refusals(request: Request) -> Iterator[str]:
    """Why the request must not get a further tool, the cheapest checks first."""
    if request.server_state:
        yield f"the provider holds a part of the prompt ({request.server_state})"
    if member(request, "tool_choice") not in (None, "auto"):
        yield "tool_choice leaves the model no choice"
    if member(request, "background") is True:
        yield "the answer is fetched later (background)"
    included = member(request, "include")
    if member(request, "top_logprobs") or (isinstance(included, list) and _LOGPROBS in included):
        yield "the client asks for log probabilities"
    if any(_look(item).type == "compaction_trigger" for item in islice(reversed(request.items), _LAST_ITEMS)):
        yield "the history is to be compacted"
    if member(request, "store") is not False and (request.stream or not any(map(_is_answer, reversed(request.items)))):
        # A stream begins with its id, before it is known whether a hidden leg, with another id, follows.
        yield "the client may continue from the stored answer (store is not false)"


def _is_answer(item: bytes | memoryview) -> bool:
    """Whether the client sends an answer of the model back in this item."""
    try:
        author = _author.decode(item)
    except _UNREADABLE:
        return False
    return author.type in _BY_MODEL or (author.type in (None, "message") and author.role == "assistant")


_Room: TypeAlias = tuple[ToolSlot, bool] | None
"""The place for one more tool in a list, and whether the client runs a tool of that list; None if it is empty."""


def _rooms(request: Request) -> Iterator[_Room]:
    """The room in the request's own list of tools, and in those that items bring; raises NotUnderstood."""
    span = request.members.get("tools")
    if span is not None and request.body[span.start : span.start + 1] == b"[":
        room = _room(request.body[span.start : span.end])
        yield room and (replace(room[0], at=span.start + room[0].at), room[1])
    for index, _ in of_type(request, "additional_tools"):
        room = _room(bytes(request.items[index]), ("tools",))
        yield room and (replace(room[0], item=index), room[1])


# The same lists come with every call of a session.
@lru_cache(64)
def _room(raw: bytes, path: Path = ()) -> _Room:
    span = find(raw, path)
    slot, entries = tool_room(raw[span.start : span.end], _holders, _stays_last, keeps_separator=True)
    return (replace(slot, at=span.start + slot.at), any(map(_can_call, entries))) if entries else None


def _stays_last(entry: Json) -> bool:
    return bool(entry.get("cache_control")) or entry.get("defer_loading") is True


def _holders(entry: Json) -> list[Json]:
    return [entry, *records(entry.get("tools"))]


def _can_call(entry: Json) -> bool:
    """Whether it is a tool that the client runs, or a namespace with one."""
    inner = records(entry.get("tools")) if entry.get("type") == "namespace" else []
    return any(string(tool.get("type")) in _CALLABLE for tool in (entry, *inner))


def appended(leg: Leg) -> list[bytes]:
    """The items that a leg which is not mixed adds to the end of the prompt."""
    return [bytes(raw) for raw in (*(part.raw for part in leg.parts), *leg.results)]


def expand(items: Sequence[bytes], legs: Sequence[Leg], *, sure: bool = False) -> Expansion | None:
    """What the client sent after a call, with the call's hidden legs put back; None if their place is gone."""
    sent = _ClientItems(items, sure=sure)
    if not _is_by_model(sent.front):
        return None
    placed: list[bytes] = []
    for leg in legs:
        found = _mixed(leg, sent) if leg.mixed else _replaced(leg, sent)
        if found is None:
            return None
        placed += found
    return Expansion(sent.at, tuple(placed))


class _ClientItems:
    """The items that the client sent, taken from the front."""

    def __init__(self, items: Sequence[bytes], *, sure: bool) -> None:
        self._items = items
        self.sure = sure
        self.at = 0

    def peek(self, ahead: int = 0) -> Json:
        """An item that is not taken yet; an empty one past the end."""
        at = self.at + ahead
        return record(loads(self._items[at])) if at < len(self._items) else {}

    @property
    def front(self) -> Json:
        """The first item that is not taken yet."""
        return self.peek()

    def take(self) -> bytes:
        """Take the first item that is not taken yet."""
        self.at += 1
        return self._items[self.at - 1]


def _replaced(leg: Leg, sent: _ClientItems) -> list[bytes] | None:
    """The leg in full, in place of what the client sent of it; None if that is not there."""
    for part in leg.parts:
        if not part.hidden and _found(part, sent) is None:
            return None
    # Of several lost thoughts in a row all but the last are those of hidden legs; the last leads to what comes next.
    while not _keeps_thoughts(leg) and _is_lost(sent.front) and _is_lost(sent.peek(1)):
        sent.take()
    return appended(leg)


def _mixed(leg: Leg, sent: _ClientItems) -> list[bytes] | None:
    """The client's items with the hidden calls in their places, then our results; None if an item is missing.

    No leg followed, so that the provider has not read this leg yet: the client's own bytes stay. Some clients send
    each call with its result.
    """
    placed: list[bytes] = []
    for part in leg.parts:
        if part.hidden:
            placed.append(bytes(part.raw))
            continue
        while part.kind == "call" and _kind(sent.front).endswith("_output"):
            placed.append(sent.take())
        found = _found(part, sent)
        if found is None:
            return None
        placed += found
    return [*placed, *(bytes(result) for result in leg.results)]


def _found(part: LegPart, sent: _ClientItems) -> list[bytes] | None:
    """The client's items for a part that it was shown; empty if the client may have dropped it, else None.

    Thoughts that are not part of the leg come along. Clients keep calls and text; not all of them keep the rest.
    """
    item = _read(part)
    ahead = 0
    while not _same(item, sent.peek(ahead)) and _is_lost(sent.peek(ahead)):
        ahead += 1
    if _same(item, sent.peek(ahead)):
        return [sent.take() for _ in range(ahead + 1)]
    is_dropped = part.kind in ("reasoning", "other") or (part.kind == "text" and (sent.sure or not _text(item)))
    return [] if is_dropped else None


def _keeps_thoughts(leg: Leg) -> bool:
    """Whether the provider stores the leg's thoughts, so that none was left out."""
    return any(part.kind == "reasoning" and _is_lost(_read(part)) for part in leg.parts)


def _read(part: LegPart) -> Json:
    return record(loads(bytes(part.raw)))


def _same(item: Json, sent: Json) -> bool:
    kind = _kind(item)
    if kind != _kind(sent):
        return False
    if kind == "message":
        return sent.get("role") == "assistant" and _text(item) == _text(sent)
    if kind in _CALLS:
        return item.get("call_id") == sent.get("call_id")
    if item.get("encrypted_content") or sent.get("encrypted_content"):
        return item.get("encrypted_content") == sent.get("encrypted_content")
    return "id" not in item or "id" not in sent or item["id"] == sent["id"]


def _is_lost(item: Json) -> bool:
    """Whether it is a thought that the provider can't read again."""
    return _kind(item) == "reasoning" and not item.get("encrypted_content")


def _is_by_model(item: Json) -> bool:
    """Whether the model wrote it."""
    kind = _kind(item)
    return kind in _BY_MODEL or kind.endswith("_call") or (kind == "message" and item.get("role") == "assistant")


def _kind(item: Json) -> str:
    return string(item.get("type")) or "message"


def _text(item: Json) -> str:
    """The text of a message, without the white space around it."""
    content = item.get("content")
    if isinstance(content, str):
        return content.strip()
    return "".join(string(part.get("text")) or string(part.get("refusal")) for part in records(content)).strip()
