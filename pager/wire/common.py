"""What the dialects share: reading JSON without trust in its shape, and the normal form that messages are compared in.

Clients write the same message differently from call to call. The normal form is without decoration and has one
spelling for equal values: a string is a text part, an empty value an absent key, ``1.0`` is ``1``. It is hashed as JSON
with sorted keys.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeAlias

import orjson

from pager.errors import NotUnderstood
from pager.request_values import Block, Kind, Request, Span
from pager.wire.byte_edits import apply_edits
from pager.wire.json_spans import members, without_surrogates
from pager.wire.parse_cache import ParseCache, split

Json: TypeAlias = dict[str, Any]

NO_SYSTEM = sha256(b"").digest()
_EMPTY_VALUE = re.compile(rb'null|""|\[[ \t\n\r]*\]|\{[ \t\n\r]*\}')
_EMPTY: tuple[object, ...] = (None, "", [], {})
_DECORATION = frozenset({"cache_control", "annotations", "logprobs"})
_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_MEDIA_TYPES = frozenset(
    {"audio", "document", "file", "image", "image_url", "input_audio", "input_file", "input_image", "video_url"}
)
_EXACT = 2**53  # from here on JavaScript rounds integers


def loads(raw: bytes | memoryview) -> Any:  # noqa: ANN401
    """The JSON value, or None if it can't be read; half an emoji is read as U+FFFD."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return orjson.loads(without_surrogates(bytes(raw)))
    except orjson.JSONDecodeError:
        return None


def exactly(raw: bytes) -> Json:
    """The object in these bytes; empty if they can't be read without a change, or hold no object."""
    try:
        return record(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return {}


def record(value: object) -> Json:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def array(value: object) -> list[Any]:
    """The value if it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def records(value: object) -> list[Json]:
    """The objects in the value if it is an array, else none."""
    return [element for element in value if isinstance(element, dict)] if isinstance(value, list) else []


def string(value: object) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int:
    """The value if it is an integer, else 0."""
    return value if type(value) is int else 0


def dumps(value: object) -> str:
    """The value as JSON text; empty if it is nested deeper than can be written."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return ""


def written(value: object) -> str:
    """A tool call's arguments as text: most providers send text, some an object."""
    return value if isinstance(value, str) else "" if value is None else dumps(value)


def error_text(value: object) -> str:
    """An error object as text: its type or code, and its message; empty for no error."""
    if not isinstance(value, dict):
        return string(value)
    kind = string(value.get("type")) or string(value.get("code"))
    return ": ".join(part for part in (kind, string(value.get("message"))) if part) or dumps(value)


def whole_answer(body: bytes, key: str, noun: str) -> Json:
    """An unstreamed answer, or an error in place of one; raises NotUnderstood if it has no member ``key``."""
    answer = record(loads(body))
    if key not in answer and "error" not in answer:
        raise NotUnderstood(f"the answer is no {noun}: it has no {key!r}")
    return answer


def request_in(body: bytes, dialect: str, key: str, cache: ParseCache | None, *, may_be_text: bool = False) -> Request:
    """The request in a body, with what means the same in every dialect; raises NotUnderstood.

    Its messages are the array in the member ``key``; there are none where that is a string and ``may_be_text``.
    """
    found = split(body, key) if cache is None else cache.split(body, key)
    if body[found.members[key].start] not in (b'["' if may_be_text else b"["):
        raise NotUnderstood(f"expected an array in {key!r}")
    return Request(
        dialect=dialect,
        body=body,
        members=found.members,
        items_key=key,
        items=found.elements.items,
        starts=found.starts,
        separator=found.separator,
        digests=found.digests,
        model=string(_value(body, found.members.get("model"))),
        stream=_value(body, found.members.get("stream")) is True,
        system=NO_SYSTEM,
        has_tools=False,
    )


def member(request: Request, name: str) -> Any:  # noqa: ANN401 - any JSON value
    """The value of a top-level member; None where there is none."""
    return _value(request.body, request.members.get(name))


def _value(body: bytes, span: Span | None) -> Any:  # noqa: ANN401
    return None if span is None else loads(body[span.start : span.end])


def holds(request: Request, name: str) -> bool:
    """Whether a top-level member is there and neither null nor empty."""
    span = request.members.get(name)
    return span is not None and not is_empty(request.body, span)


def hints(request: Request, *names: str) -> tuple[tuple[str, str], ...]:
    """Members that may name the session, as (source, value); ``metadata.x`` is the key x of ``metadata``."""
    found = []
    for name in names:
        outer, _, inner = name.partition(".")
        value = member(request, outer)
        text = string(record(value).get(inner) if inner else value)
        if text:
            found.append((name, text))
    return tuple(found)


def system_digest(request: Request, name: str) -> bytes:
    """The normalised hash of the system prompt in this member."""
    span = request.members.get(name)
    return NO_SYSTEM if span is None else _system_digest(request.body[span.start : span.end])


def is_empty(body: bytes | memoryview, span: Span) -> bool:
    """Whether the value at this span is null, or an empty string, array or object."""
    return _EMPTY_VALUE.fullmatch(body, span.start, span.end) is not None


@lru_cache(256)
def _system_digest(raw: bytes) -> bytes:
    """The hash of a system prompt's normal form; of its bytes if it can't be read."""
    try:
        normal = parts(loads(raw))
        return digest(normal) if normal else NO_SYSTEM
    except (RecursionError, orjson.JSONEncodeError):
        return sha256(raw).digest()


def digest(normal: object) -> bytes:
    """The hash of a normal form."""
    return sha256(orjson.dumps(_numbers(normal), option=orjson.OPT_SORT_KEYS)).digest()


def _numbers(value: object) -> object:
    """The value with every number in one form: JavaScript writes 1.0 as 1 and rounds large integers."""
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    if type(value) is float and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if type(value) is int and abs(value) >= _EXACT:
        return float(value)
    return value


def tidy(item: Json, drop: Collection[str] = _DECORATION) -> Json:
    """The object without these keys, and without those that hold nothing."""
    return {key: value for key, value in item.items() if key not in drop and value not in _EMPTY}


def arguments(value: object) -> object:
    """A tool call's arguments in normal form: the value that they are the JSON of, else the text itself."""
    if not isinstance(value, str):
        return value
    parsed = loads(value.encode())
    return value if parsed is None else parsed


def parts(content: object) -> list[Any]:
    """Content in normal form: a list of parts, in which a string is a text part; empty parts are left out."""
    listed = content if isinstance(content, list) else [content]
    return [part for part in map(_part, listed) if part not in _EMPTY]


def _part(part: object) -> object:
    if isinstance(part, str):
        return {"type": "text", "text": part} if part else None
    if not isinstance(part, dict):
        return part
    kept = tidy(part)
    if string(kept.get("type")) not in _TEXT_TYPES:
        return kept
    return {**kept, "type": "text"} if "text" in kept else None


def text_of(content: object) -> str:
    """The text in some content: a string, or the texts of its parts, one below the other."""
    if isinstance(content, str):
        return content
    return "\n".join(text for part in records(content) if (text := string(part.get("text"))))


def content_blocks(content: object) -> Iterator[Block]:
    """The blocks of a string or a list of parts."""
    if isinstance(content, str) and content:
        yield Block(Kind.TEXT, content)
    if isinstance(content, list):
        yield from (part_block(part) for part in content)


def part_block(part: object) -> Block:
    """The block of one part that is neither a call nor a result."""
    if isinstance(part, str):
        return Block(Kind.TEXT, part)
    fields = record(part)
    kind = string(fields.get("type"))
    if kind in _TEXT_TYPES:
        return Block(Kind.TEXT, string(fields.get("text")))
    if kind == "refusal":
        return Block(Kind.TEXT, string(fields.get("refusal")))
    return Block(Kind.MEDIA) if kind in _MEDIA_TYPES else Block(Kind.OTHER, dumps(part))


def result_blocks(content: object, call_id: str, name: str = "", *, is_error: bool = False) -> Iterator[Block]:
    """A tool result's text as one block, and a block for each picture or file in it."""
    yield Block(Kind.RESULT, text_of(content), call_id, name, is_error)
    yield from (Block(Kind.MEDIA) for part in records(content) if string(part.get("type")) in _MEDIA_TYPES)


def error_body(message: str, **fields: str | None) -> Json:
    """An error object; a message with bytes that are no text is made sendable."""
    return {"message": message.encode(errors="replace").decode(), **fields}


_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_OPENAI_CODES = {401: "invalid_api_key", 413: "request_too_large", 429: "rate_limit_exceeded"}


def openai_error(status: int, message: str) -> bytes:
    """An error body in OpenAI's form."""
    kind = _OPENAI_TYPES.get(status) or ("invalid_request_error" if status < 500 else "server_error")
    return orjson.dumps({"error": error_body(message, type=kind, param=None, code=_OPENAI_CODES.get(status))})


_PASSING = frozenset({408, 409, 429})


def is_passing(status: int) -> bool:
    """Whether the same request may get another answer than this status."""
    return status in _PASSING or status >= 500


def set_members(body: bytes, values: Mapping[str, bytes]) -> bytes:
    """A body with these values of its members, whether it has them or not; raises NotUnderstood if it is no object."""
    spans = members(body)
    there = [(spans[name], value) for name, value in values.items() if name in spans]
    end = body.rindex(b"}")
    added = b"".join(b',"%b":%b' % (name.encode(), value) for name, value in values.items() if name not in spans)
    return apply_edits(body, [*there, (Span(end, end), added if spans else added[1:])])


def member_edit(request: Request, name: str, value: bytes) -> tuple[Span, bytes]:
    """The edit that gives a member of the body this value, whether the body has the member or not."""
    if name in request.members:
        return request.members[name], value
    end = request.members[request.items_key].end
    return Span(end, end), b',"%b":%b' % (name.encode(), value)
