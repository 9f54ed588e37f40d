"""What the dialects share: reading JSON without trust in its shape, and the normal form that messages are compared in.

Clients say the same message differently from call to call. The normal form drops what is decoration and says equal
things in one way: a string is one text part, nothing is an absent key, ``1.0`` is ``1``. It is hashed as JSON with
sorted keys.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Protocol, TypeAlias

import orjson

from pager.errors import NotUnderstood
from pager.values import (
    Answer,
    Block,
    Kind,
    Message,
    Request,
    Span,
)
from pager.wire.json_spans import Elements, without_surrogates
from pager.wire.parse_cache import ParseCache, Parts, split
from pager.wire.sse import Decoder

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
    """The object that is written here, to the last character; an empty one if it can't be read so."""
    try:
        return record(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return {}


def record(value: object) -> Json:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


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
    """What an error object says: its type or code, and its message."""
    if not isinstance(value, dict):
        return string(value)
    kind = string(value.get("type")) or string(value.get("code"))
    return ": ".join(part for part in (kind, string(value.get("message"))) if part) or dumps(value)


@dataclass(frozen=True, slots=True)
class Envelope:
    """A request body's top-level members, each decoded only when it is asked for."""

    parts: Parts
    key: str

    @classmethod
    def of(cls, body: bytes, key: str, cache: ParseCache | None) -> "Envelope":
        """The envelope of a body whose messages are in the member ``key``; raises NotUnderstood."""
        return cls(split(body, key) if cache is None else cache.split(body, key), key)

    @property
    def body(self) -> bytes:
        """The body as it came."""
        return self.parts.body

    @property
    def members(self) -> dict[str, Span]:
        """Where the value of each top-level member stands."""
        return self.parts.members

    def get(self, name: str) -> Any:  # noqa: ANN401
        """The member's value, or None."""
        span = self.members.get(name)
        return None if span is None else loads(self.body[span.start : span.end])

    def holds(self, name: str) -> bool:
        """Whether the member is there and neither null nor empty."""
        span = self.members.get(name)
        return span is not None and not is_empty(self.body, span)

    def system(self, name: str) -> bytes:
        """The normalised hash of the system prompt in this member."""
        span = self.members.get(name)
        return NO_SYSTEM if span is None else system_digest(self.body[span.start : span.end])

    def elements(self) -> Elements:
        """The messages; raises NotUnderstood if they are no array."""
        start = self.members[self.key].start
        if self.body[start : start + 1] != b"[":
            raise NotUnderstood(f"expected an array in {self.key!r}")
        return self.parts.elements

    def hints(self, *names: str) -> tuple[tuple[str, str], ...]:
        """Members that may name the session, as (source, value); ``metadata.x`` is the key x of ``metadata``."""
        found = []
        for name in names:
            outer, _, inner = name.partition(".")
            value = self.get(outer) if outer in self.members else None
            text = string(record(value).get(inner) if inner else value)
            if text:
                found.append((name, text))
        return tuple(found)

    def request(  # noqa: PLR0913 - what a dialect says of a request
        self,
        dialect: str,
        found: Elements,
        *,
        has_tools: bool,
        system: bytes = NO_SYSTEM,
        hints: tuple[tuple[str, str], ...] = (),
        server_state: str = "",
        follows: str = "",
        head_marks: tuple[float, ...] = (),
        auto_mark: float = 0.0,
    ) -> Request:
        """The request, with the members that mean the same in every dialect."""
        return Request(
            dialect=dialect,
            body=self.body,
            members=self.members,
            items_key=self.key,
            items=found.items,
            starts=found.starts,
            separator=found.separator,
            digests=found.digests,
            model=string(self.get("model")),
            stream=self.get("stream") is True,
            system=system,
            has_tools=has_tools,
            session_hints=hints,
            server_state=server_state,
            follows=follows,
            head_marks=head_marks,
            auto_mark=auto_mark,
        )


def is_empty(body: bytes | memoryview, span: Span) -> bool:
    """Whether the value at this span is null, or an empty string, array or object."""
    return _EMPTY_VALUE.fullmatch(body, span.start, span.end) is not None


@lru_cache(256)
def system_digest(raw: bytes) -> bytes:
    """The normalised hash of a system prompt that stands outside the messages; of its bytes if it can't be read."""
    try:
        said = parts(loads(raw))
        return digest(said) if said else NO_SYSTEM
    except (RecursionError, orjson.JSONEncodeError):
        return sha256(raw).digest()


def message(raw: bytes | memoryview, read: Callable[[Json], tuple[str, Json, tuple[Block, ...]]]) -> Message:
    """The message that ``read`` makes of an item (role, normal form, blocks); opaque if it can't be read."""
    item = loads(raw)
    if isinstance(item, dict):
        try:
            role, normal, blocks = read(item)
            return Message(role, digest(normal), blocks)
        except (orjson.JSONEncodeError, RecursionError):  # nested deeper than can be written
            pass
    return Message(role="", norm=sha256(raw).digest())


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
    """Content in normal form: a list of parts, where a string is one text part and nothing is no part."""
    listed = content if isinstance(content, list) else [content]
    return [said for said in map(_part, listed) if said not in _EMPTY]


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


def result_blocks(content: object, result: Callable[[str], Block]) -> Iterator[Block]:
    """A tool result's text as one block, made by ``result``, and the media in it."""
    yield result(text_of(content))
    yield from (Block(Kind.MEDIA) for part in records(content) if string(part.get("type")) in _MEDIA_TYPES)


def error_body(message: str, **fields: str | None) -> Json:
    """An error object; a message with bytes that are no text is made sendable."""
    return {"message": message.encode(errors="replace").decode(), **fields}


_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_OPENAI_CODES = {401: "invalid_api_key", 413: "request_too_large", 429: "rate_limit_exceeded"}


def openai_error(status: int, message: str) -> bytes:
    """An error as the OpenAI endpoints say it."""
    kind = _OPENAI_TYPES.get(status) or ("invalid_request_error" if status < 500 else "server_error")
    return orjson.dumps({"error": error_body(message, type=kind, param=None, code=_OPENAI_CODES.get(status))})


_PASSING = frozenset({408, 409, 429})


def is_passing(status: int) -> bool:
    """Whether the same request may get another answer than this status."""
    return status in _PASSING or status >= 500


def member_edit(request: Request, name: str, value: bytes) -> tuple[Span, bytes]:
    """The edit that gives a member of the body this value, whether the body has the member or not."""
    if name in request.members:
        return request.members[name], value
    end = request.members[request.items_key].end
    return Span(end, end), b',"%b":%b' % (name.encode(), value)


class Draft(Protocol):
    """An answer in the making."""

    def take(self, name: str, data: bytes) -> None:
        """Take one event of the stream; what can't be read is passed over."""

    def take_all(self, lines: Sequence[bytes]) -> None:
        """Take the data of several events without names, one line each."""

    def answer(self) -> Answer:
        """The answer as far as it has come."""


class Reader:
    """Reads a streamed answer: cuts the bytes into events and hands each to the dialect's draft."""

    __slots__ = ("_begun", "_decoder", "_draft")

    def __init__(self, draft: Draft) -> None:
        self._begun = False
        self._decoder = Decoder()
        self._draft = draft

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream; whole events in them, as in a stream that is read in one go, at once."""
        if self._decoder.idle and b"\r" not in chunk:
            if chunk.startswith(b"data: ") and chunk.endswith(b"\n\n"):
                lines = chunk[6:-2].split(b"\n\ndata: ")
                if chunk.count(b"\n") == 2 * len(lines) and all(lines):  # a stream without names, one line an event
                    self._begun = True
                    self._draft.take_all(lines)
                    return
            *blocks, rest = chunk.split(b"\n\n")
            self._take_blocks(blocks)
            chunk = rest
        if chunk:
            self._hand_over(chunk)

    def _take_blocks(self, blocks: list[bytes]) -> None:
        """Take whole events; the first one by the decoder, as it may begin with a byte order mark."""
        if blocks and not self._begun:
            self._hand_over(blocks.pop(0) + b"\n\n")
        for block in blocks:
            self._take(block)

    def _take(self, block: bytes) -> None:
        """Take one event without the empty line at its end: of the usual form as it stands, else by the decoder."""
        name, line = b"", block
        if block.startswith(b"event: "):
            name, _, line = block.partition(b"\n")
        if line.startswith(b"data: ") and len(line) > 6 and b"\n" not in line:
            self._draft.take(name[7:].decode(errors="replace"), line[6:])
        else:
            self._hand_over(block + b"\n\n")

    def _hand_over(self, chunk: bytes) -> None:
        self._begun = True
        for event in self._decoder.feed(chunk):
            if event.data:
                self._draft.take(event.name, event.data)

    def answer(self) -> Answer:
        """The answer as far as it has come."""
        return self._draft.answer()
