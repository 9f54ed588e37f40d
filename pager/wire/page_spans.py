"""Finds the values in a message that can be pages, and replaces them by stubs without touching any other byte.

A page span is a value inside a message's JSON: the content of a tool's result, or one argument of a tool call. Dialects
find them; how a stub is written depends on the form of the value. All around it (ids, order, ``is_error``,
``cache_control``, unknown keys, white space) keeps its bytes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

import orjson

from pager.errors import NotUnderstood
from pager.request_values import Kind, Span
from pager.wire.byte_edits import Path, apply_edits, find
from pager.wire.common import dumps
from pager.wire.json_spans import members, spans


class Form(StrEnum):
    """How a value is written: as a string, as a list of text parts, or inside the text of encoded arguments."""

    STRING = "string"
    PARTS = "parts"
    ENCODED = "encoded"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class PageSpan:
    """A value that can be a page.

    ``key`` names it within its message. ``path`` leads to the value in the message's JSON; for an encoded argument it
    leads to the encoded text, and ``argument`` is the argument's name. ``text`` is the value as the model reads it.
    """

    key: str
    kind: Kind
    form: Form
    path: Path
    text: str
    call_id: str
    tool: str = ""
    argument: str = ""
    is_error: bool = False


def argument_spans(text: str, call_id: str, tool: str, path: Path) -> list[PageSpan]:
    """The page spans in the encoded arguments of a call: each value, unless the arguments are no plain object."""
    raw = text.encode("utf-8", "surrogatepass")
    try:
        spans = members(raw)
    except NotUnderstood:
        return []
    return [
        PageSpan(
            f"{call_id}.{name}", Kind.CALL, Form.ENCODED, path, _read(raw[span.start : span.end]), call_id, tool, name
        )
        for name, span in spans.items()
    ]


def value_spans(values: Mapping[str, object], call_id: str, tool: str, path: Path) -> list[PageSpan]:
    """The page spans in the arguments of a call that are an object of their own."""
    return [
        PageSpan(f"{call_id}.{name}", Kind.CALL, Form.VALUE, (*path, name), _text(value), call_id, tool, name)
        for name, value in values.items()
    ]


def result_span(content: object, path: Path, call_id: str, *, tool: str = "", is_error: bool = False) -> list[PageSpan]:
    """The page span of a tool's result, if it is nothing but text."""
    if isinstance(content, str):
        return [PageSpan(call_id, Kind.RESULT, Form.STRING, path, content, call_id, tool, is_error=is_error)]
    if not isinstance(content, list) or not content or not all(map(_is_text, content)):
        return []
    text = "\n".join(part["text"] for part in content)
    return [PageSpan(call_id, Kind.RESULT, Form.PARTS, path, text, call_id, tool, is_error=is_error)]


def reachable(raw: bytes, page_spans: Sequence[PageSpan]) -> list[PageSpan]:
    """The page spans that can be written to: none below an object in which a key comes twice."""
    there = _reached(raw, {page_span.path for page_span in page_spans})
    return [page_span for page_span in page_spans if page_span.path in there]


def _reached(raw: bytes, paths: Collection[Path]) -> set[Path]:
    """The paths that lead to a value; every value on the way is looked at once."""
    below: dict[str | int, list[Path]] = {}
    for path in filter(None, paths):
        below.setdefault(path[0], []).append(path[1:])
    reached = {path for path in paths if not path}
    if not below:
        return reached
    values: dict[str | int, Span] = {}
    with suppress(NotUnderstood):  # a key comes twice
        values.update(members(raw) if isinstance(next(iter(below)), str) else enumerate(spans(raw)))
    for step, rests in below.items():
        span = values.get(step)
        if span is not None:
            reached |= {(step, *rest) for rest in _reached(raw[span.start : span.end], rests)}
    return reached


def stubbed(raw: bytes, page_spans: Iterable[PageSpan], stubs: Mapping[str, str]) -> bytes:
    """The message with these stubs, by the key of the page span that each replaces; all other bytes are the same."""
    chosen = [page_span for page_span in page_spans if page_span.key in stubs]
    by_path: dict[Path, list[PageSpan]] = {}
    for page_span in chosen:
        by_path.setdefault(page_span.path, []).append(page_span)
    edits = []
    for path, group in by_path.items():
        span = find(raw, path)
        edits.append((span, _written(raw[span.start : span.end], group, stubs)))
    return apply_edits(raw, edits)


def _written(old: bytes, group: Sequence[PageSpan], stubs: Mapping[str, str]) -> bytes:
    page_span = group[0]
    if page_span.form is Form.ENCODED:
        return _encoded(old, group, stubs)
    if page_span.form is Form.PARTS:
        return _parts(old, stubs[page_span.key])
    return orjson.dumps(stubs[page_span.key])


def _encoded(old: bytes, group: Sequence[PageSpan], stubs: Mapping[str, str]) -> bytes:
    """Encoded arguments with some values replaced; the other arguments keep their own text."""
    inner: bytes = orjson.loads(old).encode()
    spans = members(inner)
    return orjson.dumps(
        apply_edits(
            inner, [(spans[page_span.argument], orjson.dumps(stubs[page_span.key])) for page_span in group]
        ).decode()
    )


def _parts(old: bytes, stub: str) -> bytes:
    """One text part of the same type; a cache mark on any of the old parts stays."""
    parts = orjson.loads(old)
    mark = next((part["cache_control"] for part in reversed(parts) if part.get("cache_control")), None)
    new = {"type": parts[0].get("type", "text"), "text": stub}
    return orjson.dumps([new if mark is None else {**new, "cache_control": mark}])


def _is_text(part: object) -> bool:
    return (
        isinstance(part, dict)
        and part.get("type") in ("text", "input_text", "output_text")
        and isinstance(part.get("text"), str)
    )


def _read(raw: bytes) -> str:
    try:
        return _text(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return raw.decode("utf-8", "replace")


def _text(value: object) -> str:
    return value if isinstance(value, str) else dumps(value)
