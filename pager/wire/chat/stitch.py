"""One Chat Completions call as the client sees it, made of its legs.

The bytes of the first leg are passed on unchanged. Only chunks with a piece of a call wait, until it is known whether
the client may see that call; chunks are changed only where a hidden call is cut out, or leaves a gap in the numbers of
the calls after it. Once a leg hides a call, its end waits, too: another leg may follow, whose chunks then continue the
stream under the id of the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from pager.request_values import Answer
from pager.wire.chat.answer import REASONING, ChatAnswer, DraftCall, choice_of
from pager.wire.common import Json, loads, number, openai_error, record, records, tidy, whole_answer
from pager.wire.sse import Decoder
from pager.wire.stitching import CallFilter, HiddenCalls, Leg, LegEnd

_ROLE = frozenset({"role"})
_END = b"\n\n"


class _ChunkEvent:
    """A chunk: its bytes, whether it differs from them by now, and the calls that its pieces of calls belong to."""

    __slots__ = ("changed", "choice", "chunk", "delta", "owners", "raw")

    def __init__(self, raw: bytes, chunk: Json, owners: Sequence[DraftCall] = (), *, changed: bool = False) -> None:
        self.raw, self.chunk, self.owners, self.changed = raw, chunk, owners, changed
        self.choice = choice_of(chunk)
        self.delta = record(self.choice.get("delta"))

    def waits(self) -> bool:
        """Whether it brings a piece of a call that is neither hidden nor shown yet."""
        return any(call.hidden is None for call in self.owners)

    def says_nothing(self) -> bool:
        """Whether it has a choice whose delta holds no more than a role, and no finish reason."""
        return bool(self.choice) and not tidy(self.delta, _ROLE) and not self.choice.get("finish_reason")


@dataclass(slots=True)
class _Shown:
    """What the client has seen of earlier legs: texts, calls, and the tokens of both."""

    frame: Json
    text: str = ""
    reasoning: str = ""
    details: list[Json] = field(default_factory=list)
    calls: int = 0
    tokens: int = 0

    def add(self, draft: ChatAnswer) -> None:
        """Add a leg that is over."""
        self.text += draft.text
        self.reasoning += draft.reasoning
        self.details += draft.details
        self.calls += len(draft.shown)
        self.tokens += draft.visible_tokens()

    def usage(self, usage: Json) -> Json:
        """A leg's usage, with the tokens of the answer that the client saw before."""
        output = number(usage.get("completion_tokens")) + self.tokens
        return {**usage, "completion_tokens": output, "total_tokens": number(usage.get("prompt_tokens")) + output}

    @property
    def anything(self) -> bool:
        """Whether the client has seen any text, reasoning or call."""
        return bool(self.text or self.reasoning or self.calls)


class ChatStitcher:
    """The state machine for one call."""

    def __init__(self, tool: str, guard: CallFilter) -> None:
        self._hidden = HiddenCalls(tool, guard)
        self._earlier: _Shown | None = None
        self._role_shown = False
        self._late = b""
        self._begin(0)

    def _begin(self, shown_before: int) -> None:
        self._draft = ChatAnswer(self._hidden, shown_before)
        self._decoder = Decoder()
        self._unread: list[bytes] = []
        self._waiting: list[_ChunkEvent] = []
        self._kept: list[_ChunkEvent] = []
        self._closed = False
        self._body: bytes | None = None
        self._shows = False

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes of a streamed leg, split anywhere; the bytes for the client."""
        out, self._late = [self._late], b""
        out += [self._next(event.data, event.raw) for event in self._decoder.feed(chunk)]
        return b"".join(out)

    def take(self, body: bytes) -> None:
        """Take a leg that came in one piece; raises NotUnderstood."""
        self._draft.add(whole_answer(body, "choices", "chat completion"))
        self._body = body
        self._draft.end()

    def held(self) -> LegEnd:
        """What the finished leg holds back."""
        self._close()
        return self._draft.held(shown_before=self._earlier is not None and self._earlier.anything)

    def answer(self) -> Answer:
        """All of the current leg so far."""
        self._catch_up()
        return self._draft.answer()

    def leg(self, answers: Sequence[str]) -> Leg:
        """The leg in the form in which later requests repeat it."""
        self._close()
        return self._draft.leg(answers)

    @property
    def silent(self) -> bool:
        """Whether the client has seen nothing yet of the current leg."""
        return not (self._shows or self._unread)

    def retract(self) -> None:
        """Forget the current leg, of which the client has seen nothing."""
        self._late = b""
        self._begin(self._earlier.calls if self._earlier is not None else 0)

    def go_on(self) -> None:
        """Begin another leg: forget the end of the current leg."""
        self._close()
        if self._earlier is None:
            self._earlier = _Shown(self._draft.frame)
        self._earlier.add(self._draft)
        self._begin(self._earlier.calls)

    def finish(self) -> bytes:
        """The end of the client's stream, or the whole body where legs came in one piece."""
        if self._body is not None:
            return self._whole(self._body)
        self._close()
        out, self._late = [self._late, *map(self._end, self._kept)], b""
        self._kept = []
        return b"".join(out)

    def fail(self, status: int, message: str) -> bytes:
        """An error in place of a chunk."""
        late, self._late = self._late, b""
        return late + b"data: %b%b" % (openai_error(status, message), _END)

    def _next(self, data: bytes, raw: bytes) -> bytes:
        """The bytes for the client after this event."""
        if not data:
            return raw
        if self._earlier is None and not self._draft.calls and b"tool_calls" not in data:
            # Nearly all chunks are such: they are passed on unread, and read only if a call is hidden after them.
            self._unread.append(data)
            return raw
        self._catch_up()
        if data.strip() == b"[DONE]":
            self._draft.end()
            return self._released() + self._passed(_ChunkEvent(raw, {}))
        chunk = loads(data)
        if isinstance(chunk, dict):
            return self._taken(raw, chunk)
        return b"" if self._draft.withholds or self._hidden.tool.encode() in data else raw

    def _catch_up(self) -> None:
        """Read what was passed on unread."""
        if self._unread:
            self._draft.take_all(self._unread)
            self._role_shown = bool(self._draft.role)
            self._unread = []

    def _taken(self, raw: bytes, chunk: Json) -> bytes:
        event = _ChunkEvent(raw, chunk, self._draft.add(chunk))
        if not event.owners:
            return self._released() + self._passed(event)
        out = b""
        if len(event.delta) > 1 and event.waits() and tidy(event.delta, {"role", "tool_calls"}):
            rest, event = _parted(event)  # text beside a call does not wait for it
            out = self._passed(rest)
        self._waiting.append(event)
        return out + self._released()

    def _released(self) -> bytes:
        """What has waited, up to the first chunk with a piece of a call that is still undecided."""
        ready = next((at for at, event in enumerate(self._waiting) if event.waits()), len(self._waiting))
        if not ready:
            return b""
        events, self._waiting = self._waiting[:ready], self._waiting[ready:]
        return b"".join(map(self._passed, map(_shorn, events)))

    def _passed(self, event: _ChunkEvent) -> bytes:
        """The bytes of an event all of whose calls are decided; an end waits where a call is hidden."""
        if not self._draft.hidden or not self._is_end(event):
            return self._sent(event)
        if not tidy(event.delta, _ROLE):
            self._kept.append(event)
            return b""
        content, end = _without_end(event)
        self._kept.append(end)
        return self._sent(content)

    def _is_end(self, event: _ChunkEvent) -> bool:
        """Whether it brings the finish reason, or what comes after the choices: usage and [DONE]."""
        choice, over = event.choice, bool(self._draft.finish)
        return bool(choice.get("finish_reason")) or (
            not event.owners and not event.chunk.get("error") and (over or not choice)
        )

    def _sent(self, event: _ChunkEvent) -> bytes:
        """The bytes for the client: the provider's own, or the changed chunk."""
        self._shows = self._shows or bool(tidy(event.delta, _ROLE))
        rewritten = event.changed or self._earlier is not None
        if not event.chunk or not rewritten:
            self._role_shown = self._role_shown or bool(event.delta.get("role"))
            return event.raw
        lessened = bool(event.changed)
        if self._role_shown:
            lessened = bool(event.delta.pop("role", None)) or lessened
        if lessened and not event.delta.get("role") and event.says_nothing():
            return b""
        self._role_shown = self._role_shown or bool(event.delta.get("role"))
        return b"data: %b%b" % (orjson.dumps(self._framed(event.chunk)), _END)

    def _framed(self, chunk: Json) -> Json:
        """The chunk as one of the first leg's stream."""
        if self._earlier is None:
            return chunk
        same = {key: value for key, value in self._earlier.frame.items() if key in chunk}
        usage = record(chunk.get("usage"))
        return {**chunk, **same, **({"usage": self._earlier.usage(usage)} if usage else {})}

    def _close(self) -> None:
        """Take the end of the leg's stream, with the bytes after its last event."""
        if self._closed or self._body is not None:
            return
        self._closed = True
        rest = self._decoder.rest()
        data = b"".join(event.data for event in self._decoder.feed(_END)[:1])
        is_whole = data.strip() == b"[DONE]" or isinstance(loads(data), dict)
        out = self._next(data, rest) if is_whole else b""
        self._catch_up()
        self._draft.settle(over=True)
        waited = self._released()
        self._late = (_ended(out) if waited else out) + waited
        if self._draft.hidden:
            self._late = _ended(self._late)  # something may follow
        # Half an event means nothing to a client, but it may show the beginning of a hidden call.
        if not (is_whole or self._draft.withholds or b"tool_calls" in rest):
            self._late += rest

    def _end(self, event: _ChunkEvent) -> bytes:
        """A kept end: a leg that shows no call does not end because of one."""
        finish = _finish(event.choice.get("finish_reason"), self._draft)
        if finish != event.choice.get("finish_reason"):
            event.choice["finish_reason"], event.changed = finish, True
        return self._sent(event)

    def _whole(self, body: bytes) -> bytes:
        """The answer in one piece: the last leg's, with all that the client is shown."""
        draft, answer = self._draft, record(loads(body))
        choice = choice_of(answer)
        if not choice or (self._earlier is None and not draft.hidden):
            return body
        choice["message"] = _message(record(choice.get("message")), draft, self._earlier or _Shown({}))
        choice["finish_reason"] = _finish(choice.get("finish_reason"), draft)
        return orjson.dumps(self._framed(answer))


def _finish(reason: Any, draft: ChatAnswer) -> Any:  # noqa: ANN401 - any value of the provider
    """The finish reason for the client, which sees no end by calls where all of them are hidden."""
    return "stop" if reason == "tool_calls" and draft.hidden and not draft.shown else reason


def _shorn(event: _ChunkEvent) -> _ChunkEvent:
    """The event without the pieces of hidden calls, the others numbered as the client sees them."""
    kept = []
    for piece, call in zip(records(event.delta.get("tool_calls")), event.owners, strict=True):
        if call.hidden:
            continue
        if call.number != call.place:
            piece["index"], event.changed = call.number, True
        kept.append(piece)
    if len(kept) < len(event.owners):
        event.changed = True
    if event.changed:
        event.delta["tool_calls"] = kept
        if not kept:
            del event.delta["tool_calls"]
    return event


def _parted(event: _ChunkEvent) -> tuple[_ChunkEvent, _ChunkEvent]:
    """The event in two: text and reasoning beside the calls, and the calls."""
    rest = {key: value for key, value in event.delta.items() if key != "tool_calls"}
    calls = {"tool_calls": event.delta["tool_calls"]}
    return (
        _ChunkEvent(event.raw, _with(event.chunk, delta=rest), changed=True),
        _ChunkEvent(event.raw, _unmetered(_with(event.chunk, delta=calls)), event.owners, changed=True),
    )


def _without_end(event: _ChunkEvent) -> tuple[_ChunkEvent, _ChunkEvent]:
    """The event in two: its delta, and the end."""
    content = _unmetered(_with(event.chunk, finish_reason=None))
    end = _with(event.chunk, delta={})
    return _ChunkEvent(event.raw, content, event.owners, changed=True), _ChunkEvent(event.raw, end, changed=True)


def _with(chunk: Json, **fields: object) -> Json:
    return {**chunk, "choices": [{**choice_of(chunk), **fields}]}


def _unmetered(chunk: Json) -> Json:
    return {**chunk, "usage": None} if chunk.get("usage") else chunk


def _message(message: Json, draft: ChatAnswer, earlier: _Shown) -> Json:
    """The last leg's message with the texts of all legs, and without the hidden calls."""
    merged = {**message, "content": earlier.text + draft.text or None}
    if earlier.reasoning:
        key = next((key for key in REASONING if key in message), draft.reasoning_key)
        merged[key] = earlier.reasoning + draft.reasoning
    if earlier.details:
        merged["reasoning_details"] = earlier.details + draft.details
    calls = zip(records(message.get("tool_calls")), draft.calls, strict=False)  # those of other choices come after
    shown = [call for call, owner in calls if not owner.hidden]
    if shown:
        merged["tool_calls"] = shown
    elif draft.hidden:
        del merged["tool_calls"]
    return merged


def _ended(events: bytes) -> bytes:
    """The events with an end to the last of them."""
    return events.removesuffix(_END) + _END if events else b""
