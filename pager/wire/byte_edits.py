"""Replaces spans of a JSON text, and finds them by a path; all other bytes stay the same."""

from collections.abc import Sequence

from pager.errors import NotUnderstood
from pager.values import Span
from pager.wire.json_spans import elements, members

Path = tuple[str | int, ...]


def apply_edits(raw: bytes, edits: Sequence[tuple[Span, bytes]]) -> bytes:
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
