"""The answer of one leg of an Anthropic Messages call, as far as it has come.

It is read event by event, or in one piece. Each of its blocks also knows whether the client has been shown it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import orjson

from pager.request_values import Answer, ToolUse, Usage
from pager.wire.answer_reader import AnswerDraft
from pager.wire.common import Json, error_text, loads, number, record, records, string, written
from pager.wire.json_spans import members
from pager.wire.sse import ServerSentEvent
from pager.wire.stitching import LegPart, shown_tokens

_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
_DETAILS = {
    "output_tokens_details": ("thinking_tokens",),
    "cache_creation": ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"),
}
_KINDS: dict[str, Literal["text", "reasoning", "call"]] = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "call",
}
# The members of a block that a request repeats; all of them for other types.
_REPEATED = {
    "text": ("type", "text", "citations"),
    "thinking": ("type", "thinking", "signature"),
    "tool_use": ("type", "id", "name", "input", "caller", "toolset_name"),
}


@dataclass(slots=True)
class DraftBlock:
    """One content block in the making.

    ``fields`` is the block as it began, ``said`` what its deltas added to each of its texts. ``waiting`` are the events
    of a call whose arguments are not known yet. ``raw`` is a block that came in one piece, with its arguments in
    ``given``.
    """

    fields: Json
    given: str = ""
    raw: bytes = b""
    hidden: bool = False
    waiting: list[ServerSentEvent] | None = None
    shift: int = 0
    said: dict[str, list[str]] = field(default_factory=dict)
    citations: list[Any] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The block's type."""
        return string(self.fields.get("type"))

    @property
    def name(self) -> str:
        """The name of the tool that is called."""
        return string(self.fields.get("name"))

    @property
    def call_id(self) -> str:
        """The id of the call."""
        return string(self.fields.get("id"))

    @property
    def text(self) -> str:
        """The text of a text block."""
        return self._text("text")

    @property
    def arguments(self) -> str:
        """The arguments of the call as JSON text: those that were streamed, else those that the block began with."""
        return "".join(self.said.get("partial_json", ())) or self.given

    @property
    def is_shown(self) -> bool:
        """Whether the client has it."""
        return not self.hidden and self.waiting is None

    @property
    def is_blank(self) -> bool:
        """Whether it is a text that says nothing; the provider accepts none in a request."""
        return self.kind == "text" and not self.text.strip()

    def add(self, delta: Json) -> None:
        """Add a delta: each of its texts continues a text of the block."""
        for key, value in delta.items():
            if key == "citation":
                self.citations.append(value)
            elif key != "type" and isinstance(value, str):
                self.said.setdefault(key, []).append(value)

    def part(self) -> LegPart:
        """The block as a request repeats it."""
        return LegPart(_KINDS.get(self.kind, "other"), msgspec.Raw(self._repeated()), self.hidden)

    def _repeated(self) -> bytes:
        if self.raw and self.kind not in ("text", "tool_use"):
            return self.raw
        value = {**self.fields, **{key: self._text(key) for key in self.said}}
        value.pop("partial_json", None)
        if self.citations:
            value["citations"] = self.citations
        if self.kind == "tool_use" or "partial_json" in self.said:
            value["input"] = orjson.Fragment(_input(self.arguments))
        keys = _REPEATED.get(self.kind)
        if keys is not None:
            value = {key: value[key] for key in keys if value.get(key) not in (None, [])}
        return orjson.dumps(value)

    def _text(self, key: str) -> str:
        return string(self.fields.get(key)) + "".join(self.said.get(key, ()))


def _input(arguments: str) -> bytes:
    """A call's input as a request takes it: an object, also where the model wrote something else."""
    raw = arguments.encode()
    return raw if isinstance(loads(raw), dict) else orjson.dumps({"INVALID_JSON": arguments})


class MessagesAnswer(AnswerDraft):
    """An answer in the making."""

    def __init__(self) -> None:
        self.id = self.model = self.stop = self.error = self.cache_miss = ""
        self.done = False
        self.blocks: list[DraftBlock] = []
        self.open: dict[int, DraftBlock] = {}
        """The streamed blocks by their index."""
        self.counts: dict[str, int] = {}

    @property
    def hidden(self) -> list[DraftBlock]:
        """The calls that are kept from the client."""
        return [block for block in self.blocks if block.hidden]

    @property
    def is_mixed(self) -> bool:
        """Whether the client has calls to answer."""
        return any(block.is_shown and block.kind == "tool_use" for block in self.blocks)

    @property
    def shows(self) -> bool:
        """Whether the client has seen any of it."""
        return any(block.is_shown and not block.is_blank for block in self.blocks)

    @property
    def is_left_alone(self) -> bool:
        """Whether it ends with calls of which the client knows none."""
        return self.stop == "tool_use" and bool(self.hidden) and not self.is_mixed

    @property
    def visible_tokens(self) -> int:
        """The output tokens that the client saw, as far as can be known: hidden calls are estimated."""
        if not self.shows:
            return 0
        return shown_tokens(self.counts.get("output_tokens", 0), (call.name + call.arguments for call in self.hidden))

    def take(self, name: str, data: bytes) -> None:
        """Take one event of a stream."""
        if name != "ping":
            event = record(loads(data))
            self.note(string(event.get("type")) or name, event)

    def note(self, kind: str, event: Json) -> None:
        """Add what one event says."""
        if kind == "content_block_delta":
            block = self.open.get(number(event.get("index")))
            if block is not None:
                block.add(record(event.get("delta")))
        elif kind == "content_block_start":
            self._start(number(event.get("index")), record(event.get("content_block")))
        elif kind == "message_start":
            self.whole(record(event.get("message")))
        elif kind == "message_delta":
            self.stop = string(record(event.get("delta")).get("stop_reason")) or self.stop
            self._count(record(event.get("usage")))
        elif kind == "message_stop":
            self.done = True
        elif kind == "error":
            self.error = error_text(event.get("error")) or "error"

    def whole(self, message: Json, raws: Sequence[bytes] | None = None) -> None:
        """Add a message, whole or just begun; ``raws`` are the bytes of its blocks."""
        self.id, self.model = string(message.get("id")), string(message.get("model"))
        self.stop = string(message.get("stop_reason"))
        self.error = error_text(message.get("error"))
        self._count(record(message.get("usage")))
        told = record(record(message.get("diagnostics")).get("cache_miss_reason"))  # a beta that clients may ask for
        self.cache_miss = string(told.get("type"))
        if raws is not None:
            self.blocks = [_whole(raw) for raw in raws]
            return
        for index, block in enumerate(records(message.get("content"))):
            self._start(index, block)

    def _start(self, index: int, fields: Json) -> None:
        block = self.open[index] = DraftBlock(fields, written(fields.get("input") or {}))
        self.blocks.append(block)

    def _count(self, usage: Json) -> None:
        """Later counts correct earlier ones, field by field."""
        self.counts.update((name, usage[name]) for name in _COUNTS if type(usage.get(name)) is int)
        for details, names in _DETAILS.items():
            counts = record(usage.get(details))
            self.counts.update((name, counts[name]) for name in names if type(counts.get(name)) is int)

    def answer(self) -> Answer:
        """All of the answer, hidden calls too, as far as it has come."""
        calls = [block for block in self.blocks if block.kind == "tool_use"]
        return Answer(
            id=self.id,
            model=self.model,
            finish=self.stop,
            text="".join(block.text for block in self.blocks if block.kind == "text"),
            calls=tuple(ToolUse(at, call.call_id, call.name, call.arguments) for at, call in enumerate(calls)),
            usage=self._usage(),
            complete=self.done,
            error=self.error,
            cache_miss=self.cache_miss,
        )

    def _usage(self) -> Usage | None:
        """Anthropic counts the cached and the written part of the prompt apart from the rest."""
        if not self.counts:
            return None
        fresh, cached, written, output = (self.counts.get(name, 0) for name in _COUNTS)
        thought, short, long = (self.counts.get(name, 0) for names in _DETAILS.values() for name in names)
        has_cached = "cache_read_input_tokens" in self.counts
        return Usage(fresh + cached + written, cached, written, output, thought, has_cached, short, long)


def _whole(raw: bytes) -> DraftBlock:
    """A block that came in one piece."""
    fields = record(loads(raw))
    span = members(raw).get("input") if fields.get("type") == "tool_use" else None
    given = "{}" if span is None else raw[span.start : span.end].decode(errors="replace")
    return DraftBlock(fields, given, raw)
