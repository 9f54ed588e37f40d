"""Finds the byte spans of a JSON body's parts without decoding them.

A request is mostly history that was seen before. msgspec skips over a value at memory speed and hands out its raw
bytes, so a known message costs a scan and a hash, never a decode. Spans, not re-serialised values, are what the
outgoing prompt is built from: untouched parts keep their bytes.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple, TypeVar

import msgspec

from pager.errors import NotUnderstood
from pager.request_values import Span

_T = TypeVar("_T")
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_key = msgspec.json.Decoder(str)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_BLANK = b" \t\n\r"
_OPEN = re.compile(rb"[ \t\n\r]*\{[ \t\n\r]*")
_MEMBER = re.compile(rb'("(?:[^"\\]|\\.)*")[ \t\n\r]*:[ \t\n\r]*')
_NEXT = re.compile(rb"[ \t\n\r]*,?[ \t\n\r]*")
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)


class Elements(NamedTuple):
    """The elements of a JSON array in a body: their bytes, offsets and hashes, and what separates them."""

    items: Sequence[memoryview]
    starts: Sequence[int]
    separator: bytes | None
    digests: Sequence[bytes]


def without_surrogates(body: bytes) -> bytes:
    """The body with every escaped lone surrogate replaced by U+FFFD, byte for byte as long as before.

    JavaScript clients cut strings in the middle of an emoji and send half of it; strict readers reject that. Spans
    found in the replaced body are those of the original.
    """
    return _ESCAPE.sub(lambda found: b"\\ufffd" if found[1] else found[0], body)


def members(body: bytes) -> dict[str, Span]:
    """The span of each top-level member's value, in order; raises NotUnderstood unless the body is one plain object."""
    values = _decoded(_members, body, "an object")
    spans: dict[str, Span] = {}
    at = _end(_OPEN, body, 0)
    for name, value in values.items():
        member = _MEMBER.match(body, at)
        if member is None or _decoded(_key, member[1], "a key") != name:
            raise NotUnderstood(f"the body has the key {name!r} twice")
        spans[name] = Span(member.end(), member.end() + len(memoryview(value)))
        at = _end(_NEXT, body, spans[name].end)
    if body[at : at + 1] != b"}":
        raise NotUnderstood("the body has a key twice")
    return spans


def elements(body: bytes, span: Span) -> Elements:
    """The elements of the array at this span; raises NotUnderstood if it is no array."""
    lengths = [len(memoryview(raw)) for raw in _decoded(_elements, body[span.start : span.end], "an array")]
    if not lengths:
        return Elements((), (), None, ())
    starts, separator = _starts(body, span, lengths)
    whole = memoryview(body)
    items = [whole[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    return Elements(items, starts, separator, [sha256(item).digest() for item in items])


def spans(raw: bytes) -> list[Span]:
    """The span of each element of an array; raises NotUnderstood if it is none."""
    opening = len(raw) - len(raw.lstrip(_BLANK))
    lengths = [len(memoryview(element)) for element in _decoded(_elements, raw, "an array")]
    starts = _starts(raw, Span(opening, len(raw)), lengths)[0] if lengths else []
    return [Span(start, start + length) for start, length in zip(starts, lengths, strict=True)]


def _decoded(decoder: msgspec.json.Decoder[_T], body: bytes, what: str) -> _T:
    try:
        return decoder.decode(body)
    except _UNREADABLE:
        pass
    try:
        return decoder.decode(without_surrogates(body))
    except _UNREADABLE as error:
        raise NotUnderstood(f"expected {what} in JSON: {error}") from error


def _starts(body: bytes, span: Span, lengths: Sequence[int]) -> tuple[list[int], bytes | None]:
    """The offset of each element, and the separator; None if it is not the same between all of them."""
    at = _end(_NEXT, body, span.start + 1)
    starts = [at]
    first_end = at + lengths[0]
    separator: bytes | None = body[first_end : _end(_NEXT, body, first_end)] if len(lengths) > 1 else b""
    for length in lengths[:-1]:
        at += length
        if separator is not None and body.startswith(separator, at) and body[at + len(separator)] not in _BLANK:
            at += len(separator)
        else:
            separator, at = None, _end(_NEXT, body, at)
        starts.append(at)
    return starts, separator


def _end(pattern: re.Pattern[bytes], body: bytes, at: int) -> int:
    found = pattern.match(body, at)
    return found.end() if found else at
