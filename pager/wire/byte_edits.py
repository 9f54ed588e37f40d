"""Replaces spans of a JSON text, and finds them by a path; all other bytes stay the same."""

from collections.abc import Sequence

from pager.errors import NotUnderstood
from pager.request_values import Span
from pager.wire.json_spans import members, spans

Path = tuple[str | int, ...]


def apply_edits(raw: bytes, edits: Sequence[tuple[Span, bytes]]) -> bytes:
    """The bytes with each span replaced; spans must not overlap."""
    pieces, at = [], 0
    for span, new in sorted(edits):
        pieces += [raw[at : span.start], new]
        at = span.end
    return b"".join([*pieces, raw[at:]])


def find(raw: bytes, path: Sequence[str | int]) -> Span:
    """The span of the value at this path of a JSON text; raises NotUnderstood if there is none."""
    span = Span(0, len(raw))
    for step in path:
        inner = _step(raw[span.start : span.end], step)
        span = Span(span.start + inner.start, span.start + inner.end)
    return span


def _step(raw: bytes, step: str | int) -> Span:
    if isinstance(step, str):
        values = members(raw)
        if step not in values:
            raise NotUnderstood(f"no {step!r} in the message")
        return values[step]
    found = spans(raw)
    if step >= len(found):
        raise NotUnderstood(f"no element {step} in the message")
    return found[step]
