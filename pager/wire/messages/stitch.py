"""Makes one Anthropic Messages answer of the legs of a call, and keeps back the calls that are not for the client.

A call of our tool is known by the block's start and hidden from there on. A call that is watched waits for its end,
because only its whole arguments tell whether it is held back; then it is hidden, too, or let go as it came. All else
passes at once, as the bytes that came, unless its index must change: the client counts only the blocks that it sees,
through all legs. How a leg with hidden calls ends is kept until it is known whether another one follows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import orjson

from pager.errors import NotUnderstood
from pager.proxy.retries import is_passing
from pager.values import Span
from pager.wire.common import (
    Json,
    dumps,
    loads,
    number,
    record,
    string,
    written,
)
from pager.wire.json_spans import elements, members
from pager.wire.page_spans import find, spliced
from pager.wire.sse import Decoder, ServerSentEvent
from pager.wire.stitching import (
    Guard,
    Held,
    HeldCall,
    Leg,
    Part,
)

OVERLOADED = 529
_INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# An answer that ends so was cut, or goes on elsewhere: its calls are not to be answered.
_CUT = frozenset({"max_tokens", "refusal", "model_context_window_exceeded", "pause_turn"})
_KINDS: dict[str, Literal["text", "reasoning", "call"]] = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "call",
}
# What a request repeats of a block; all of it where nothing is said here.
_REPEATED = {
    "text": ("type", "text", "citations"),
    "thinking": ("type", "thinking", "signature"),
    "tool_use": ("type", "id", "name", "input", "caller", "toolset_name"),
}


@dataclass(slots=True)
class _Block:
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
        return self.kind == "text" and not self._text("text").strip()

    def add(self, delta: Json) -> None:
        """Take a delta: each of its texts goes on one of the block's own."""
        for key, value in delta.items():
            if key == "citation":
                self.citations.append(value)
            elif key != "type" and isinstance(value, str):
                self.said.setdefault(key, []).append(value)

    def part(self) -> Part:
        """The block as a request repeats it."""
        return Part(_KINDS.get(self.kind, "other"), msgspec.Raw(self._repeated()), self.hidden)

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


@dataclass(slots=True)
class _Draft:
    """What one leg has said so far; ``kept`` are the events of its end, ``body`` is set where it came in one piece."""

    blocks: list[_Block] = field(default_factory=list)
    open: dict[int, _Block] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    stop: str = ""
    done: bool = False
    kept: list[ServerSentEvent] = field(default_factory=list)
    body: bytes = b""

    @property
    def hidden(self) -> list[_Block]:
        """The calls that are kept from the client."""
        return [block for block in self.blocks if block.hidden]

    @property
    def is_mixed(self) -> bool:
        """Whether the client has calls to answer."""
        return any(block.is_shown and block.kind == "tool_use" for block in self.blocks)

    @property
    def shows(self) -> bool:
        """Whether the client has seen anything of it."""
        return any(block.is_shown and not block.is_blank for block in self.blocks)

    @property
    def is_left_alone(self) -> bool:
        """Whether it ends with calls of which the client knows none."""
        return self.stop == "tool_use" and bool(self.hidden) and not self.is_mixed

    @property
    def spoken(self) -> int:
        """The output tokens that the client saw, as far as can be told: hidden calls are estimated."""
        if not self.shows:
            return 0
        kept = sum(len(block.name + block.arguments) // 4 + 8 for block in self.hidden)
        return max(0, self.counts.get("output_tokens", 0) - kept)

    def count(self, usage: Json) -> None:
        """Later counts correct earlier ones, field by field."""
        known = (*_INPUTS, "output_tokens")
        self.counts.update((name, usage[name]) for name in known if type(usage.get(name)) is int)


class MessagesSplice:
    """One call as the client sees it, made of its legs."""

    __slots__ = (
        "_base", "_begun", "_content", "_decoder", "_error", "_guard", "_id", "_late", "_leg", "_legs", "_next",
        "_shown", "_spoken", "_tool",
    )  # fmt: skip

    def __init__(self, tool: str, guard: Guard, error: Callable[[int, str], bytes]) -> None:
        self._tool, self._guard, self._error = tool, guard, error
        self._decoder, self._leg = Decoder(), _Draft()
        self._legs, self._late, self._begun = 1, b"", False
        # The client's index of this leg's first block, and of the next block to come.
        self._base = self._next = 0
        # What earlier legs showed: whether anything, its tokens, and of unstreamed ones the id and the blocks.
        self._shown, self._spoken = False, 0
        self._id, self._content = b"", list[bytes]()

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes of a streamed leg, split anywhere; what may go to the client now."""
        return b"".join([self._take(event) for event in self._decoder.feed(chunk)])

    def take(self, body: bytes) -> None:
        """Take a leg that came in one piece; raises NotUnderstood."""
        spans = members(body)
        if "content" not in spans:
            raise NotUnderstood("the answer is no message: it has no 'content'")
        blocks = [_whole(bytes(raw)) for raw in elements(body, spans["content"]).items]
        for block in blocks:
            block.hidden = block.kind == "tool_use" and self._hides(block)
        leg = self._leg
        leg.body, leg.blocks, leg.done = body, blocks, True
        leg.stop = string(_member(body, spans, "stop_reason"))
        leg.count(record(_member(body, spans, "usage")))

    def held(self) -> Held:
        """What the leg that has come to its end holds back."""
        if self._decoder.rest().rstrip().endswith(b"}"):  # an end without its empty line
            self._late += b"".join([self._take(event) for event in self._decoder.feed(b"\n\n")])
        leg = self._leg
        calls = tuple(HeldCall(string(block.fields.get("id")), block.name, block.arguments) for block in leg.hidden)
        whole = leg.done and not (calls and leg.stop in _CUT)
        return Held(calls, leg.is_mixed, whole, self._shown or leg.shows)

    def leg(self, answers: Sequence[str]) -> Leg:
        """The leg as it stands in the prompt from now on, with these answers to its held calls, in their order."""
        parts = [block.part() for block in self._leg.blocks if not block.is_blank]
        pairs = zip(self._leg.hidden, answers, strict=True)
        results = [_result(string(block.fields.get("id")), answer) for block, answer in pairs]
        return Leg(parts, results, self._leg.is_mixed)

    @property
    def silent(self) -> bool:
        """Whether the client has been shown nothing yet of the leg that is under way."""
        return not any(block.is_shown for block in self._leg.blocks)

    def retract(self) -> None:
        """Forget the leg that is under way, of which the client was shown nothing."""
        self._decoder, self._leg, self._late = Decoder(), _Draft(), b""

    def go_on(self) -> None:
        """Another leg follows: forget how this one ended."""
        leg = self._leg
        self._shown |= leg.shows
        self._spoken += leg.spoken
        if leg.body:
            self._content += _shown(leg)
            self._id = self._id or _raw_id(leg.body)
        self._base = self._next
        self._legs += 1
        self._decoder, self._leg = Decoder(), _Draft()

    def finish(self) -> bytes:
        """The end of the client's stream, or the whole body where legs came in one piece."""
        if self._leg.body:
            return self._body()
        kept, self._leg.kept, late, self._late = self._leg.kept, [], self._late, b""
        return late + b"".join(self._told(event) for event in kept)

    def fail(self, status: int, message: str) -> bytes:
        """An error inside a stream that has begun: an overload, which clients retry, where it may pass."""
        return b"event: error\ndata: " + self._error(OVERLOADED if is_passing(status) else status, message) + b"\n\n"

    def _take(self, event: ServerSentEvent) -> bytes:
        """Take one event; pings, errors, comments and what is not known pass."""
        value = record(loads(event.data)) if event.data else {}
        match _kind(event, value):
            case "content_block_start":
                return self._begin(event, value)
            case "content_block_delta":
                return self._continue(event, value)
            case "content_block_stop":
                return self._close(event, value)
            case "message_start":
                self._leg.count(record(record(value.get("message")).get("usage")))
                begun, self._begun = self._begun, True
                return event.raw if not begun else b""
            case "message_delta" | "message_stop" as kind:
                return self._end(kind, event, value)
        return event.raw

    def _begin(self, event: ServerSentEvent, value: Json) -> bytes:
        fields = record(value.get("content_block"))
        block = _Block(fields, written(fields.get("input") or {}))
        self._leg.blocks.append(block)
        self._leg.open[number(value.get("index"))] = block
        if block.kind == "tool_use":
            block.hidden = block.name == self._tool
            block.waiting = [] if not block.hidden and self._guard.watches(block.name) else None
        if block.is_shown:
            self._show(block, number(value.get("index")))
        return self._passed(block, event)

    def _continue(self, event: ServerSentEvent, value: Json) -> bytes:
        block = self._leg.open.get(number(value.get("index")))
        if block is None:
            return event.raw
        block.add(record(value.get("delta")))
        return self._passed(block, event)

    def _close(self, event: ServerSentEvent, value: Json) -> bytes:
        index = number(value.get("index"))
        block = self._leg.open.get(index)
        if block is None:
            return event.raw
        return self._passed(block, event) + self._settled(block, index)

    def _end(self, kind: str, event: ServerSentEvent, value: Json) -> bytes:
        """Take a part of the leg's end: how it ended, or that it did."""
        leg = self._leg
        out = b"".join([self._settled(block, index) for index, block in leg.open.items()])
        leg.stop = string(record(value.get("delta")).get("stop_reason")) or leg.stop
        leg.count(record(value.get("usage")))
        leg.done = leg.done or kind == "message_stop"
        if leg.hidden:
            leg.kept.append(event)
            return out
        return out + self._told(event)

    def _passed(self, block: _Block, event: ServerSentEvent) -> bytes:
        """An event of a block, as far as the client may have it now."""
        if block.waiting is not None:
            block.waiting.append(event)
        return _renumbered(event, block.shift) if block.is_shown else b""

    def _settled(self, block: _Block, index: int) -> bytes:
        """The events of a call that waited for its arguments, unless it is hidden."""
        waiting, block.waiting = block.waiting, None
        if waiting is None:
            return b""
        block.hidden = self._hides(block)
        if block.hidden:
            return b""
        self._show(block, index)
        return b"".join([_renumbered(event, block.shift) for event in waiting])

    def _show(self, block: _Block, index: int) -> None:
        block.shift = self._base - len(self._leg.hidden)
        self._next = max(self._next, index + block.shift + 1)

    def _hides(self, block: _Block) -> bool:
        guard, name = self._guard, block.name
        return name == self._tool or (guard.watches(name) and guard.holds(name, block.arguments))

    def _told(self, event: ServerSentEvent) -> bytes:
        """An event of the leg's end as the client must see it."""
        value = record(loads(event.data))
        if _kind(event, value) != "message_delta":
            return event.raw
        changes: Json = {}
        if self._leg.is_left_alone:
            changes["delta"] = {**record(value.get("delta")), "stop_reason": "end_turn"}
        counts = self._leg.counts
        if self._legs > 1 and counts:
            inputs = {name: counts.get(name, 0) for name in _INPUTS}
            changes["usage"] = {**record(value.get("usage")), **inputs, "output_tokens": self._output()}
        return _encoded(event, {**value, **changes}) if changes else event.raw

    def _output(self) -> int:
        return self._leg.counts.get("output_tokens", 0) + self._spoken

    def _body(self) -> bytes:
        """The last leg's body, with what all of them showed."""
        leg = self._leg
        if self._legs == 1 and not leg.hidden:
            return leg.body
        return spliced(leg.body, list(self._edits(leg)))

    def _edits(self, leg: _Draft) -> Iterator[tuple[Span, bytes]]:
        spans = members(leg.body)
        yield spans["content"], b"[" + b",".join([*self._content, *_shown(leg)]) + b"]"
        if self._id and "id" in spans:
            yield spans["id"], self._id
        if leg.is_left_alone:
            yield spans["stop_reason"], b'"end_turn"'
        if self._legs > 1 and "output_tokens" in leg.counts:
            yield find(leg.body, ("usage", "output_tokens")), b"%d" % self._output()


def _whole(raw: bytes) -> _Block:
    """A block that came in one piece."""
    fields = record(loads(raw))
    span = members(raw).get("input") if fields.get("type") == "tool_use" else None
    given = "{}" if span is None else raw[span.start : span.end].decode(errors="replace")
    return _Block(fields, given, raw)


def _shown(leg: _Draft) -> list[bytes]:
    return [block.raw for block in leg.blocks if not block.hidden]


def _member(body: bytes, spans: dict[str, Span], name: str) -> object:
    span = spans.get(name)
    value: object = None if span is None else loads(body[span.start : span.end])
    return value


def _raw_id(body: bytes) -> bytes:
    span = members(body).get("id")
    return b"" if span is None else body[span.start : span.end]


def _result(call_id: str, answer: str) -> msgspec.Raw:
    """Our answer to a held call; half an emoji in it is made sendable."""
    text = answer.encode(errors="replace").decode()
    return msgspec.Raw(orjson.dumps({"type": "tool_result", "tool_use_id": call_id, "content": text}))


def _kind(event: ServerSentEvent, value: Json) -> str:
    return string(value.get("type")) or event.name


def _renumbered(event: ServerSentEvent, shift: int) -> bytes:
    """An event of a block with the index that the client counts; as it came if that is the provider's."""
    if not shift:
        return event.raw
    value = record(loads(event.data))
    return _encoded(event, {**value, "index": number(value.get("index")) + shift})


def _encoded(event: ServerSentEvent, value: Json) -> bytes:
    name = f"event: {event.name}\n" if event.name else ""
    return f"{name}data: {dumps(value)}\n\n".encode()
