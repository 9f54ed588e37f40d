"""The size of an item of a prompt for its model: its bytes, except those that no provider counts as text.

A picture is charged by its width and height, whatever its bytes; the signatures of thinking, encrypted content and the
base64 of documents and sounds are no text that a model reads. So these bytes are left out, and a picture weighs as much
as text of as many tokens would. ``docs/analyze.md`` has the sources of the figures.
"""

import base64
import binascii
import struct
from collections.abc import Iterator
from typing import NamedTuple

import orjson

from instrumentation.accounting.billing import tokens_in
from pager.pricing.tokens import BYTES_A_TOKEN
from pager.wire.dialects import load as load_dialect

PICTURE = 1_500
"""Tokens of a picture whose width and height are not known: about those of a screenshot."""

_HEAD = 65_536
"""Characters of base64 in which a picture says how large it is."""

_MARKS = (b"base64", b"signature", b"Signature", b"encrypted", b"redacted_thinking", b"image", b"_data", b"input_audio")
_PICTURES = frozenset({"image", "image_url", "input_image", "computer_screenshot"})
_FILES = frozenset({"document", "file", "input_file", "input_audio", "audio"})
_OPAQUE = frozenset({"signature", "thought_signature", "thoughtSignature", "encrypted_content", "encrypted_index"})
_REDACTED = frozenset({"redacted_thinking", "reasoning.encrypted"})
_TEXTS = frozenset({"input", "arguments", "text", "thinking"})


class _Uncounted(NamedTuple):
    """A string that is no text for the model; ``picture`` is whether it shows one."""

    data: str
    picture: bool = False
    cheap: bool = False


def counted_size(raw: bytes, dialect: str) -> int:
    """The bytes of an item as far as they count, with every picture as text of as many tokens."""
    if not any(mark in raw for mark in _MARKS):
        return len(raw)
    try:
        found = list(_uncounted(orjson.loads(raw)))
    except (orjson.JSONDecodeError, RecursionError):
        return len(raw)
    hidden = sum(len(one.data) for one in found)
    shown = sum(_picture(one, dialect) for one in found if one.picture)
    return max(1, len(raw) - hidden) + round(shown * BYTES_A_TOKEN)


def item_tokens(raw: bytes, dialect: str) -> int:
    """The tokens of an item, before they are scaled to what the provider reports."""
    return tokens_in(counted_size(raw, dialect))


def _uncounted(value: object) -> Iterator[_Uncounted]:
    """The strings in an item that are no text; the arguments of calls are text, whatever their names."""
    if isinstance(value, list):
        for one in value:
            yield from _uncounted(one)
    elif isinstance(value, dict):
        kind = value.get("type")
        if kind in _PICTURES:
            yield _Uncounted(_source(value), picture=True, cheap=_detail(value) == "low")
        elif kind in _FILES:
            yield _Uncounted(_source(value))
        else:
            for key, inner in value.items():
                if isinstance(inner, str):
                    if key in _OPAQUE or (key == "data" and kind in _REDACTED):
                        yield _Uncounted(inner)
                elif key not in _TEXTS:
                    yield from _uncounted(inner)


def _source(part: dict[str, object]) -> str:
    """The base64 of a picture or a file, in the words of any provider; empty for one that is only named."""
    for name in ("source", "image_url", "file", "input_audio"):
        inner = part.get(name)
        if isinstance(inner, dict):
            return _encoded(inner)
    return _encoded(part)


def _encoded(part: dict[str, object]) -> str:
    if part.get("type") == "text":  # a document that is written out
        return ""
    for name in ("data", "file_data", "image_url", "url"):
        value = part.get(name)
        if isinstance(value, str) and (name in ("data", "file_data") or value.startswith("data:")):
            return value
    return ""


def _detail(part: dict[str, object]) -> object:
    inner = part.get("image_url")
    return inner.get("detail") if isinstance(inner, dict) else part.get("detail")


# ---------------------------------------------------------------- pictures


def _picture(picture: _Uncounted, dialect: str) -> int:
    """The tokens of a picture, by the rule of the provider that the wire format is of."""
    spoken = load_dialect(dialect)
    if picture.cheap and spoken.low_detail_tokens:
        return spoken.low_detail_tokens
    edges = _edges(picture.data)
    return PICTURE if edges is None else spoken.picture_tokens(*edges)


def _edges(data: str) -> tuple[int, int] | None:
    """Width and height of a picture in base64, alone or as a data URL; None where they can't be read."""
    encoded = (data.partition(",")[2] if data.startswith("data:") else data)[:_HEAD]
    try:
        head = base64.b64decode(encoded[: len(encoded) // 4 * 4])
        width, height = _png(head) or _gif(head) or _webp(head) or _jpeg(head) or (0, 0)
    except (binascii.Error, struct.error):
        return None
    return (width, height) if width > 0 and height > 0 else None


def _png(head: bytes) -> tuple[int, int] | None:
    return struct.unpack(">II", head[16:24]) if head.startswith(b"\x89PNG\r\n\x1a\n") else None


def _gif(head: bytes) -> tuple[int, int] | None:
    return struct.unpack("<HH", head[6:10]) if head.startswith((b"GIF87a", b"GIF89a")) else None


def _webp(head: bytes) -> tuple[int, int] | None:
    if not head.startswith(b"RIFF") or head[8:12] != b"WEBP":
        return None
    if head[12:16] == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if head[12:16] == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack("<HH", head[26:30])
    return width & 0x3FFF, height & 0x3FFF


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """The size in a JPEG's frame header, which follows its other segments."""
    at = 2
    while head.startswith(b"\xff\xd8") and at + 9 <= len(head) and head[at] == 0xFF:
        kind = head[at + 1]
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        at += 2 + struct.unpack(">H", head[at + 2 : at + 4])[0]
    return None
