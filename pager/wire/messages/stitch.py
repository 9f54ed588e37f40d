"""Makes one Anthropic Messages answer of the legs of a call, and keeps back the calls that are not for the client.

A call of our tool is hidden from its block's start on. A watched call waits for its end, because its whole arguments
decide whether it is held back; then it is hidden, too, or passed on. Everything else passes at once and unchanged,
unless its index must change: the client counts only the blocks that it sees, through all legs. The end of a leg with
hidden calls waits until it is known whether another leg follows.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec
import orjson

from pager.errors import NotUnderstood
from pager.request_values import Answer, Span
from pager.wire.byte_edits import apply_edits, find
from pager.wire.common import Json, dumps, is_passing, loads, number, record, string
from pager.wire.json_spans import elements, members
from pager.wire.messages.answer import DraftBlock, MessagesAnswer
from pager.wire.sse import Decoder, ServerSentEvent
from pager.wire.stitching import CallFilter, HeldCall, HiddenCalls, Leg, LegEnd

OVERLOADED = 529
_INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# An answer that ends so was cut, or is continued elsewhere: its calls are not to be answered.
_CUT = frozenset({"max_tokens", "refusal", "model_context_window_exceeded", "pause_turn"})


class MessagesStitcher:
    """One call as the client sees it, made of its legs."""

    __slots__ = (
        "_base", "_begun", "_body", "_content", "_decoder", "_error", "_hidden", "_id", "_kept", "_late", "_leg",
        "_legs", "_next", "_shown", "_spoken",
    )  # fmt: skip

    def __init__(self, tool: str, guard: CallFilter, error: Callable[[int, str], bytes]) -> None:
        self._hidden, self._error = HiddenCalls(tool, guard), error
        self._begin_leg()
        self._legs, self._late, self._begun = 1, b"", False
        # The client's index of this leg's first block, and of the next block to come.
        self._base = self._next = 0
        # What earlier legs showed: whether anything, its tokens, and of unstreamed ones the id and the blocks.
        self._shown, self._spoken = False, 0
        self._id, self._content = b"", list[bytes]()

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes of a streamed leg, split anywhere; the bytes for the client."""
        return b"".join([self._take(event) for event in self._decoder.feed(chunk)])

    def take(self, body: bytes) -> None:
        """Take a leg that came in one piece; raises NotUnderstood."""
        spans = members(body)
        if "content" not in spans:
            raise NotUnderstood("the answer is no message: it has no 'content'")
        self._leg.whole(record(loads(body)), [bytes(raw) for raw in elements(body, spans["content"]).items])
        for block in self._leg.blocks:
            block.hidden = block.kind == "tool_use" and self._hides(block)
        self._body, self._leg.done = body, True

    def held(self) -> LegEnd:
        """What the finished leg holds back."""
        if self._decoder.rest().rstrip().endswith(b"}"):  # an end without its empty line
            self._late += b"".join([self._take(event) for event in self._decoder.feed(b"\n\n")])
        leg = self._leg
        calls = tuple(HeldCall(block.call_id, block.name, block.arguments) for block in leg.hidden)
        whole = leg.done and not (calls and leg.stop in _CUT)
        return LegEnd(calls, leg.is_mixed, whole, self._shown or leg.shows)

    def leg(self, answers: Sequence[str]) -> Leg:
        """The leg in the form in which later requests repeat it, with the answers to its held calls, in their order."""
        parts = [block.part() for block in self._leg.blocks if not block.is_blank]
        pairs = zip(self._leg.hidden, answers, strict=True)
        results = [_result(block.call_id, answer) for block, answer in pairs]
        return Leg(parts, results, self._leg.is_mixed)

    def answer(self) -> Answer:
        """All of the current leg so far."""
        return self._leg.answer()

    @property
    def silent(self) -> bool:
        """Whether the client has seen nothing yet of the current leg."""
        return not any(block.is_shown for block in self._leg.blocks)

    def retract(self) -> None:
        """Forget the current leg, of which the client has seen nothing."""
        self._begin_leg()
        self._late = b""

    def go_on(self) -> None:
        """Begin another leg: forget the end of the current leg."""
        leg = self._leg
        self._shown |= leg.shows
        self._spoken += leg.visible_tokens
        if self._body:
            self._content += _shown(leg)
            span = members(self._body).get("id", Span(0, 0))
            self._id = self._id or self._body[span.start : span.end]
        self._base = self._next
        self._legs += 1
        self._begin_leg()

    def _begin_leg(self) -> None:
        self._decoder, self._leg, self._body = Decoder(), MessagesAnswer(), b""
        self._kept: list[ServerSentEvent] = []

    def finish(self) -> bytes:
        """The end of the client's stream, or the whole body where legs came in one piece."""
        if self._body:
            alone = self._legs == 1 and not self._leg.hidden
            return self._body if alone else apply_edits(self._body, list(self._edits(self._leg)))
        kept, self._kept, late, self._late = self._kept, [], self._late, b""
        return late + b"".join(self._ending(event) for event in kept)

    def fail(self, status: int, message: str) -> bytes:
        """An error inside a stream that has begun: an overload, which clients retry, where it may pass."""
        return b"event: error\ndata: " + self._error(OVERLOADED if is_passing(status) else status, message) + b"\n\n"

    def _take(self, event: ServerSentEvent) -> bytes:
        """Take one event; pings, errors, comments and what is not known pass."""
        value = record(loads(event.data)) if event.data else {}
        kind = _kind(event, value)
        if event.data:
            self._leg.note(kind, value)
        match kind:
            case "content_block_start":
                return self._begin(event, value)
            case "content_block_delta" | "content_block_stop":
                return self._continue(event, value, is_stop=kind == "content_block_stop")
            case "message_start":
                begun, self._begun = self._begun, True
                return event.raw if not begun else b""
            case "message_delta" | "message_stop":
                return self._end(event)
        return event.raw

    def _begin(self, event: ServerSentEvent, value: Json) -> bytes:
        block = self._leg.blocks[-1]
        if block.kind == "tool_use":
            hides = self._hidden.hides(block.name)
            block.hidden, block.waiting = bool(hides), [] if hides is None else None
        if block.is_shown:
            self._show(block, number(value.get("index")))
        return self._passed(block, event)

    def _continue(self, event: ServerSentEvent, value: Json, *, is_stop: bool) -> bytes:
        index = number(value.get("index"))
        block = self._leg.open.get(index)
        if block is None:
            return event.raw
        return self._passed(block, event) + (self._settled(block, index) if is_stop else b"")

    def _end(self, event: ServerSentEvent) -> bytes:
        """Take an event of the leg's end: its stop reason and usage, or message_stop."""
        out = b"".join([self._settled(block, index) for index, block in self._leg.open.items()])
        if self._leg.hidden:
            self._kept.append(event)
            return out
        return out + self._ending(event)

    def _passed(self, block: DraftBlock, event: ServerSentEvent) -> bytes:
        """An event of a block, as far as the client may have it now."""
        if block.waiting is not None:
            block.waiting.append(event)
        return _renumbered(event, block.shift) if block.is_shown else b""

    def _settled(self, block: DraftBlock, index: int) -> bytes:
        """The events of a call that waited for its arguments, unless it is hidden."""
        waiting, block.waiting = block.waiting, None
        if waiting is None:
            return b""
        block.hidden = self._hides(block)
        if block.hidden:
            return b""
        self._show(block, index)
        return b"".join([_renumbered(event, block.shift) for event in waiting])

    def _show(self, block: DraftBlock, index: int) -> None:
        block.shift = self._base - len(self._leg.hidden)
        self._next = max(self._next, index + block.shift + 1)

    def _hides(self, block: DraftBlock) -> bool:
        return bool(self._hidden.hides(block.name, block.arguments))

    def _ending(self, event: ServerSentEvent) -> bytes:
        """An event of the leg's end in the form for the client."""
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

    def _edits(self, leg: MessagesAnswer) -> Iterator[tuple[Span, bytes]]:
        """What makes the last leg's body one with what all of them showed."""
        spans = members(self._body)
        yield spans["content"], b"[" + b",".join([*self._content, *_shown(leg)]) + b"]"
        if self._id and "id" in spans:
            yield spans["id"], self._id
        if leg.is_left_alone:
            yield spans["stop_reason"], b'"end_turn"'
        if self._legs > 1 and "output_tokens" in leg.counts:
            yield find(self._body, ("usage", "output_tokens")), b"%d" % self._output()


def _shown(leg: MessagesAnswer) -> list[bytes]:
    return [block.raw for block in leg.blocks if not block.hidden]


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
