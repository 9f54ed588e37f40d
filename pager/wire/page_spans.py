"""Finds the places in a message where a page stands, and puts stubs there without touching any other byte.

A site is a value inside a message's JSON: the content of a tool's result, or one argument of a tool call. Dialects say
where sites are; this page knows how to write a stub in each form a value may have. What stands around it (ids, order,
``is_error``, ``cache_control``, unknown keys, white space) keeps its bytes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

import orjson

from pager.errors import NotUnderstood
from pager.values import Kind, Span
from pager.wire.json_spans import elements, members, spans

Path = tuple[str | int, ...]


class Form(StrEnum):
    """How a value is written: as a string, as a list of text parts, or inside the text of encoded arguments."""

    STRING = "string"
    PARTS = "parts"
    ENCODED = "encoded"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Site:
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


def argument_sites(text: str, call_id: str, tool: str, path: Path) -> list[Site]:
    """The sites in the encoded arguments of a call: each value, unless the arguments are no plain object."""
    raw = text.encode("utf-8", "surrogatepass")
    try:
        spans = members(raw)
    except NotUnderstood:
        return []
    return [
        Site(f"{call_id}.{name}", Kind.CALL, Form.ENCODED, path, _read(raw[span.start : span.end]), call_id, tool, name)
        for name, span in spans.items()
    ]


def value_sites(values: Mapping[str, object], call_id: str, tool: str, path: Path) -> list[Site]:
    """The sites in the arguments of a call that are an object of their own."""
    return [
        Site(f"{call_id}.{name}", Kind.CALL, Form.VALUE, (*path, name), _text(value), call_id, tool, name)
        for name, value in values.items()
    ]


def result_site(content: object, path: Path, call_id: str, *, tool: str = "", is_error: bool = False) -> list[Site]:
    """The site of a tool's result, if it is nothing but text."""
    if isinstance(content, str):
        return [Site(call_id, Kind.RESULT, Form.STRING, path, content, call_id, tool, is_error=is_error)]
    if not isinstance(content, list) or not content or not all(map(_is_text, content)):
        return []
    text = "\n".join(part["text"] for part in content)
    return [Site(call_id, Kind.RESULT, Form.PARTS, path, text, call_id, tool, is_error=is_error)]


def reachable(raw: bytes, sites: Sequence[Site]) -> list[Site]:
    """The sites that can be written to: none below an object in which a key comes twice."""
    there = _reached(raw, {site.path for site in sites})
    return [site for site in sites if site.path in there]


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


def stubbed(raw: bytes, sites: Iterable[Site], stubs: Mapping[str, str]) -> bytes:
    """The message with these stubs, by the key of the site that each replaces; all other bytes are the same."""
    chosen = [site for site in sites if site.key in stubs]
    by_path: dict[Path, list[Site]] = {}
    for site in chosen:
        by_path.setdefault(site.path, []).append(site)
    edits = []
    for path, group in by_path.items():
        span = find(raw, path)
        edits.append((span, _written(raw[span.start : span.end], group, stubs)))
    return spliced(raw, edits)


def spliced(raw: bytes, edits: Sequence[tuple[Span, bytes]]) -> bytes:
    """The bytes with each span replaced; spans must not overlap."""
    pieces, at = [], 0
    for span, new in sorted(edits):
        pieces += [raw[at : span.start], new]
        at = span.end
    return b"".join([*pieces, raw[at:]])


def find(raw: bytes, path: Sequence[str | int]) -> Span:
    """Where in the JSON text the value at this path stands; raises NotUnderstood if there is none."""
    span = Span(0, len(raw))
    for step in path:
        inner = raw[span.start : span.end]
        span = _moved(_step(inner, step), span.start)
    return span


def _step(raw: bytes, step: str | int) -> Span:
    if isinstance(step, str):
        spans = members(raw)
        if step not in spans:
            raise NotUnderstood(f"no {step!r} in the message")
        return spans[step]
    opening = len(raw) - len(raw.lstrip())
    found = elements(raw, Span(opening, len(raw.rstrip())))
    if step >= len(found.starts):
        raise NotUnderstood(f"no element {step} in the message")
    return Span(found.starts[step], found.starts[step] + len(found.items[step]))


def _moved(span: Span, by: int) -> Span:
    return Span(span.start + by, span.end + by)


def _written(old: bytes, group: Sequence[Site], stubs: Mapping[str, str]) -> bytes:
    site = group[0]
    if site.form is Form.ENCODED:
        return _encoded(old, group, stubs)
    if site.form is Form.PARTS:
        return _parts(old, stubs[site.key])
    return orjson.dumps(stubs[site.key])


def _encoded(old: bytes, group: Sequence[Site], stubs: Mapping[str, str]) -> bytes:
    """Encoded arguments with some values replaced; the other arguments keep their own text."""
    inner: bytes = orjson.loads(old).encode()
    spans = members(inner)
    return orjson.dumps(
        spliced(inner, [(spans[site.argument], orjson.dumps(stubs[site.key])) for site in group]).decode()
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
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return ""
