"""Puts the hidden legs of an Anthropic Messages call back into their places.

The client has one assistant message for all legs of a call. It begins with what an earlier leg showed: that is cut off,
and the leg's own message, with its signatures, is put before, followed by our answers. A mixed leg is the last: its
hidden calls are put between the blocks that the client has, and our answers before its results.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson

from pager.errors import NotUnderstood
from pager.request_values import Span
from pager.wire.byte_edits import apply_edits, find
from pager.wire.common import Json, loads, record, string
from pager.wire.json_spans import elements, members
from pager.wire.stitching import Expansion, Leg, LegPart

_Edit = tuple[Span, bytes]
# The members by which blocks of a type differ.
_MARKS = ("id", "tool_use_id", "data")


class _ClientBlock(NamedTuple):
    """One block of a message that the client sent, and its place."""

    span: Span
    fields: Json


def appended(leg: Leg) -> list[bytes]:
    """The leg's own message, and the message with our answers."""
    return [_message("assistant", [part.raw for part in leg.parts]), _message("user", leg.results)]


def expand(items: Sequence[bytes], legs: Sequence[Leg], *, sure: bool = False) -> Expansion | None:
    """What the client sent after a call, with the call's hidden legs put back; None if their place is gone."""
    try:
        return _expanded(items, legs, sure=sure) if items else None
    except NotUnderstood:
        return None


def _expanded(items: Sequence[bytes], legs: Sequence[Leg], *, sure: bool) -> Expansion | None:
    rest = _MessageRest(items[0], sure=sure)
    if rest.role != "assistant":
        return None
    whole = [leg for leg in legs if not leg.mixed]
    if not all(rest.cut_off(leg) for leg in whole):
        return None
    before = [item for leg in whole for item in appended(leg)]
    if len(whole) == len(legs):
        return Expansion(1, (*before, *rest.message()))
    results = _with_results(items[1], legs[-1]) if len(items) > 1 else None
    inserts = rest.inserts(legs[-1])
    if results is None or inserts is None:
        return None
    return Expansion(2, (*before, *rest.message(inserts), results))


class _MessageRest:
    """The rest of the client's message, from whose beginning legs are cut off."""

    def __init__(self, raw: bytes, *, sure: bool) -> None:
        self.role, self._content, self._blocks = _read(raw)
        self._raw, self._sure = raw, sure
        self._at = 0
        # The end of the text at ``_at`` where its beginning was an earlier leg's: some clients join texts.
        self._left: str | None = None

    def cut_off(self, leg: Leg) -> bool:
        """Cut off what the leg showed; False if the message begins with something else."""
        taken = all(self._take_part(record(loads(bytes(part.raw))), part) for part in leg.parts if not part.hidden)
        self._skip_blanks()
        return taken

    def message(self, inserts: Sequence[_Edit] = ()) -> list[bytes]:
        """The rest of the message with these insertions; no message if nothing is left."""
        if self._at == len(self._blocks):
            return []
        return [apply_edits(self._raw, [*self._edits(), *inserts])]

    def inserts(self, leg: Leg) -> list[_Edit] | None:
        """The edits that put a mixed leg's hidden calls into their places; None if one of its other calls is gone."""
        if not any(part.kind == "call" and not part.hidden for part in leg.parts):
            return None
        at, places = self._at, dict[int, list[bytes]]()
        for part in leg.parts:
            if part.hidden:
                places.setdefault(at, []).append(bytes(part.raw))
                continue
            found = self._find(record(loads(bytes(part.raw))), at)
            if found is None and part.kind == "call":
                return None
            at = at if found is None else found + 1
        return [self._insert(place, raws) for place, raws in places.items()]

    def _take_part(self, block: Json, part: LegPart) -> bool:
        self._skip_blanks()
        if part.kind == "text":
            text = _text_of(block).rstrip()
            return not text or self._take_text(text) or self._sure  # some clients drop the text beside calls
        if _is_same(block, self._rest_of(self._at)):
            self._at, self._left = self._at + 1, None
            return True
        return part.kind == "reasoning"  # many clients send no thinking back

    def _take_text(self, text: str) -> bool:
        """Cut off a text, or the beginning of the text that it became part of."""
        given = _text_of(self._rest_of(self._at))
        if not given.startswith(text):
            return False
        left = given[len(text) :].lstrip()
        self._at, self._left = (self._at, left) if left else (self._at + 1, None)
        return True

    def _skip_blanks(self) -> None:
        """Pass over blank texts: a leg is recorded without them."""
        while self._rest_of(self._at).get("type") == "text" and not _text_of(self._rest_of(self._at)):
            self._at += 1

    def _find(self, block: Json, at: int) -> int | None:
        """The place of this block, from ``at`` on; None if it is gone."""
        places = range(at, len(self._blocks))
        return next((place for place in places if _is_same(block, self._rest_of(place))), None)

    def _rest_of(self, place: int) -> Json:
        """The rest of the block at this place; empty past the end."""
        if place == len(self._blocks):
            return {}
        fields = self._blocks[place].fields
        return fields if self._left is None or place != self._at else {**fields, "text": self._left}

    def _insert(self, place: int, raws: Sequence[bytes]) -> _Edit:
        joined = b",".join(raws)
        if place < len(self._blocks):
            at = self._blocks[place].span.start
            return Span(at, at), joined + b","
        at = self._blocks[-1].span.end
        return Span(at, at), b"," + joined

    def _edits(self) -> Iterator[_Edit]:
        first, kept = self._blocks[0].span, self._blocks[self._at].span
        if self._at:
            yield Span(first.start, kept.start), b""
        if self._left is not None:
            is_string = kept == self._content
            place = kept if is_string else find(self._raw, ("content", self._at, "text"))
            yield place, orjson.dumps(self._left)


def _message(role: str, blocks: Sequence[bytes]) -> bytes:
    return b'{"role":"%b","content":[%b]}' % (role.encode(), b",".join(bytes(block) for block in blocks))


def _read(raw: bytes) -> tuple[str, Span, list[_ClientBlock]]:
    """A message's role, the span of its content, and its blocks; raises NotUnderstood."""
    spans = members(raw)
    if "role" not in spans or "content" not in spans:
        raise NotUnderstood("the item is no message")
    role, content = spans["role"], spans["content"]
    who = string(loads(raw[role.start : role.end]))
    if raw[content.start : content.start + 1] == b'"':
        text = string(loads(raw[content.start : content.end]))
        return who, content, [_ClientBlock(content, {"type": "text", "text": text})]
    found = elements(raw, content)
    starts = zip(found.starts, found.items, strict=True)
    return who, content, [_ClientBlock(Span(start, start + len(item)), record(loads(item))) for start, item in starts]


def _with_results(raw: bytes, leg: Leg) -> bytes | None:
    """The client's message of results with our results before them; None if it has none."""
    role, _, blocks = _read(raw)
    if role != "user" or not any(block.fields.get("type") == "tool_result" for block in blocks):
        return None
    at = blocks[0].span.start  # results come first
    return apply_edits(raw, [(Span(at, at), b"".join(bytes(result) + b"," for result in leg.results))])


def _is_same(block: Json, given: Json) -> bool:
    """Whether the client's block is this block of a leg."""
    if block.get("type") != given.get("type"):
        return False
    match block.get("type"):
        case "text":
            return _text_of(given).startswith(_text_of(block).rstrip())
        case "thinking":
            by = "signature" if block.get("signature") else "thinking"
            return bool(block.get(by) == given.get(by))
    return all(block.get(key) == given.get(key) for key in _MARKS)


def _text_of(block: Json) -> str:
    """The text of a block, without the blanks before it; empty if it has none."""
    return string(block.get("text")).lstrip() if block.get("type") == "text" else ""
