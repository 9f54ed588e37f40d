"""Puts the hidden legs of a call back into a Chat Completions conversation.

The client was shown one answer: the texts of all legs joined, and the calls of the last leg. Its copy therefore begins
with a leg's text; that is cut off, and the message that the model really wrote is put before it, followed by our
answers. The rest of the client's message keeps its bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import orjson

from pager.errors import NotUnderstood
from pager.request_values import Span
from pager.wire.byte_edits import Path, apply_edits, find
from pager.wire.chat.answer import REASONING
from pager.wire.common import Json, array, exactly, record, records, string
from pager.wire.json_spans import elements
from pager.wire.stitching import Expansion, Leg, LegPart

_CONTENT = ("content", "tool_calls", "refusal", "function_call", "audio")


def appended(leg: Leg) -> list[bytes]:
    """The messages that a leg which is not mixed adds to the prompt: its own, and a result for each of its calls."""
    calls = b",".join(bytes(part.raw) for part in leg.parts if part.kind == "call")
    message = {"role": b'"assistant"', "content": _first(leg, "text") or b"null", **dict(_reasoning(leg))}
    members = [b"%b:%b" % (orjson.dumps(key), value) for key, value in message.items()]
    return [b'{%b,"tool_calls":[%b]}' % (b",".join(members), calls), *map(bytes, leg.results)]


def expand(items: Sequence[bytes], legs: Sequence[Leg], *, sure: bool = False) -> Expansion | None:
    """The client's copy of an answer, its first item, with the hidden legs put back; None if it does not hold them."""
    if not items or exactly(bytes(items[0])).get("role") != "assistant":
        return None
    try:
        found = _expanded(bytes(items[0]), legs, sure=sure)
    except NotUnderstood:  # a key that comes twice
        return None
    return None if found is None else Expansion(1, tuple(found))


def _expanded(raw: bytes, legs: Sequence[Leg], *, sure: bool) -> list[bytes] | None:
    out: list[bytes] = []
    for leg in legs:
        rest = _completed(raw, leg, sure=sure) if leg.mixed else _shortened(raw, leg, sure=sure)
        if rest is None:
            return None
        raw = rest
        if leg.mixed:
            return [*out, raw, *map(bytes, leg.results)]
        out += appended(leg)
    return [*out, raw] if _is_content_left(raw) else out


def _first(leg: Leg, kind: str) -> bytes:
    return next((bytes(part.raw) for part in leg.parts if part.kind == kind), b"")


def _reasoning(leg: Leg) -> Iterator[tuple[str, bytes]]:
    """The members of a message that hold its reasoning, by the names that the provider gave them."""
    for part in leg.parts:
        raw = bytes(part.raw)
        if part.kind == "reasoning":
            yield REASONING[0], raw
        elif part.kind == "other" and raw.startswith(b"["):
            yield "reasoning_details", raw
        elif part.kind == "other":
            yield from ((key, orjson.dumps(value)) for key, value in orjson.loads(raw).items())


def _is_content_left(raw: bytes) -> bool:
    message = exactly(raw)
    content = message.get("content")
    has_text = bool(content.strip() if isinstance(content, str) else content)
    return has_text or any(message.get(key) for key in _CONTENT[1:])


def _shortened(raw: bytes, leg: Leg, *, sure: bool) -> bytes | None:
    """The message without the leg's text at its beginning; None if it begins otherwise and is not ``sure``."""
    text = orjson.loads(_first(leg, "text") or b'""')
    shorter = _without_text(raw, text)
    if shorter is None and sure:  # some clients drop the text beside calls
        shorter = raw
    return None if shorter is None else _without_reasoning(shorter, leg)


def _without_text(raw: bytes, text: str) -> bytes | None:
    content = exactly(raw).get("content")
    if isinstance(content, str):
        rest = _after(content, text)
        return None if rest is None else _changed(raw, ("content",), content, rest)
    parts = array(content)
    at = next((at for at, part in enumerate(parts) if string(record(part).get("text"))), None)
    if at is None:
        return None if text.strip() else raw
    whole = string(record(parts[at])["text"])
    rest = _after(whole, text)
    if rest == "":
        return _rewritten(raw, ("content",), lambda listed: listed[:at] + listed[at + 1 :])
    return None if rest is None else _changed(raw, ("content", at, "text"), whole, rest)


def _after(whole: str, text: str) -> str | None:
    """The rest of a text that begins with another, from which clients may have stripped blanks; None if it does not."""
    core = text.strip()
    if whole.startswith(text) or not core:
        return whole.removeprefix(text)
    bare = whole.lstrip()
    if not bare.startswith(core):
        return None
    rest = bare[len(core) :]
    return rest.removeprefix(text[len(text.rstrip()) :]) if rest.strip() else ""


def _without_reasoning(raw: bytes, leg: Leg) -> bytes:
    """The message without the leg's reasoning, where the client has kept it."""
    for name, value in _reasoning(leg):
        reasoning, message = orjson.loads(value), exactly(raw)
        if name == "reasoning_details":
            kept = records(message.get(name))
            raw = _changed(raw, (name,), kept, _details_after(kept, reasoning))
            continue
        for key in REASONING:
            thought = string(message.get(key))
            rest = _after(thought, reasoning)
            raw = raw if rest is None else _changed(raw, (key,), thought, rest)
    return raw


def _details_after(kept: list[Json], details: list[Json]) -> list[Json]:
    """The structured reasoning after that of a leg, whose last piece the client may have joined with the next."""
    before = len(details) - 1
    if kept[:before] != details[:before] or len(kept) <= before:
        return kept
    last, joined = details[before], kept[before]
    rest = _after(string(joined.get("text")), string(last.get("text"))) if last.get("text") else None
    if joined == last or rest == "":
        return kept[len(details) :]
    return kept if rest is None else [{**joined, "text": rest}, *kept[len(details) :]]


def _completed(raw: bytes, leg: Leg, *, sure: bool) -> bytes | None:
    """The message with the hidden calls where the model made them; None if the calls beside them are not all there.

    Some clients send each call in a message of its own: then the hidden ones are in that of the first.
    """
    ids = [string(record(call).get("id")) for call in array(exactly(raw).get("tool_calls"))]
    calls = [part for part in leg.parts if part.kind == "call"]
    seen = [_id(part) for part in calls if not part.hidden]
    there = [bool(call_id) and call_id in ids for call_id in seen]
    if not (there[:1] == [True] if sure else there and all(there)):
        return None
    return _rewritten(raw, ("tool_calls",), lambda shown: _merged(shown, ids, calls))


def _merged(shown: list[bytes], ids: Sequence[object], calls: Sequence[LegPart]) -> list[bytes]:
    """The client's calls with each hidden one behind the call that it followed."""
    behind: dict[object, list[bytes]] = {}
    last: object = None
    for part in calls:
        if part.hidden:
            behind.setdefault(last, []).append(bytes(part.raw))
        else:
            last = _id(part)
    merged = behind.pop(None, [])
    for raw, call_id in zip(shown, ids, strict=True):
        merged += [raw, *behind.pop(call_id, [])]
    return [*merged, *chain.from_iterable(behind.values())]


def _id(part: LegPart) -> str:
    return string(record(orjson.loads(bytes(part.raw))).get("id"))


def _changed(raw: bytes, path: Path, old: object, new: object) -> bytes:
    """The message with another value at this path, null for an empty value; an equal value keeps its bytes."""
    return raw if new == old else apply_edits(raw, [(find(raw, path), orjson.dumps(new or None))])


def _rewritten(raw: bytes, path: Path, change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    """The message with the elements of a list changed, which keep their bytes; an empty list becomes null."""
    span = find(raw, path)
    inner = raw[span.start : span.end]
    new = change([bytes(item) for item in elements(inner, Span(0, len(inner))).items])
    return apply_edits(raw, [(span, b"[%b]" % b",".join(new) if new else b"null")])
