"""Makes one Responses answer for the client out of the legs of a call.

All events pass through a queue, in their order; an event leaves it as soon as it is known whether the client sees the
item that it belongs to, so that the result does not depend on how the bytes were cut. The end of a leg that hides a
call stays in the queue: another leg may follow.

Events keep their bytes. Where a number, the output or the echo of the tools must change, only its bytes are replaced.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import orjson

from pager.errors import NotUnderstood
from pager.request_values import Answer, Span
from pager.tools.decide_forms import Toolset
from pager.tools.definitions import Edit
from pager.wire.byte_edits import apply_edits
from pager.wire.common import loads, number, openai_error, record, string, whole_answer
from pager.wire.json_spans import elements, members
from pager.wire.responses.answer import (
    ENDINGS,
    EVENTS,
    RESPONSES,
    Output,
    Response,
    ResponseEvent,
    ResponsesAnswer,
    read,
)
from pager.wire.sse import Decoder, ServerSentEvent
from pager.wire.stitching import CallFilter, HiddenCalls, Leg, LegEnd
from pager.wire.tool_lists import entries

_OPENINGS = frozenset({"response.created", "response.in_progress", "response.queued"})
_NUMBERS = re.compile(rb'"(sequence_number|output_index)"[ \t\n\r]*:[ \t\n\r]*(\d+)')


class ResponsesStitcher:
    """One call as the client sees it, made of its legs."""

    def __init__(self, tool: str, guard: CallFilter, tools: Toolset | None = None) -> None:
        self._tools = tools
        self._hidden = HiddenCalls(tool, guard)
        self._leg = ResponsesAnswer(self._hidden)
        self._is_first = True
        self._identity: dict[str, bytes] = {}
        self._decoder = Decoder()
        self._queue: deque[tuple[ServerSentEvent, ResponseEvent]] = deque()
        self._late = b""
        self._body: bytes | None = None
        self._past: list[bytes] = []
        self._past_tokens = 0
        self._next_number = self._next_index = 0
        self._is_altered = self._shows = False
        self._opening = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes of a streamed leg, split anywhere; the bytes for the client."""
        out = [self._receive(cut) for cut in self._decoder.feed(chunk)]
        return b"".join(out)

    def take(self, body: bytes) -> None:
        """Take a leg that came in one piece; raises NotUnderstood."""
        whole_answer(body, "output", "response")
        self._body = body
        self._leg.whole(read(RESPONSES, body) or Response())
        self._remember()

    def held(self) -> LegEnd:
        """What the finished leg holds back."""
        self._close()
        calls = tuple(output.call for output in self._leg.hidden)
        shown = [output for output in self._leg.outputs if output.shown]
        end = self._leg.end
        return LegEnd(
            calls,
            mixed=any(output.awaits_client for output in shown),
            whole=end == "completed" or (end == "incomplete" and not calls),
            shown=bool(shown or self._past),
        )

    def answer(self) -> Answer:
        """All of the current leg so far."""
        return self._leg.answer()

    def leg(self, answers: Sequence[str]) -> Leg:
        """The leg in the form in which later requests repeat it, with the answers to its held calls, in their order."""
        mixed = self.held().mixed
        results = [call.answered(answer) for call, answer in zip(self._leg.hidden, answers, strict=True)]
        return Leg(list(self._leg.parts()), results, mixed)

    @property
    def silent(self) -> bool:
        """Whether the client has seen nothing yet of the current leg."""
        return not self._shows

    def retract(self) -> None:
        """Forget the current leg, of which the client has seen nothing."""
        self._late = b""
        self._is_first = self._is_first and not self._opening
        self._begin()

    def go_on(self) -> None:
        """Begin another leg: forget the end of the current leg."""
        self._close()
        self._past += self._leg.shown
        self._past_tokens += self._leg.visible_tokens()
        self._is_first = False
        self._begin()

    def _begin(self) -> None:
        self._leg, self._decoder, self._body = ResponsesAnswer(self._hidden), Decoder(), None
        self._queue.clear()
        self._is_altered, self._shows = True, False

    def finish(self) -> bytes:
        """The end of the client's stream, or the whole body where legs came in one piece."""
        if self._body is not None:
            return self._response(self._body, is_last=True)
        self._close()
        out = [self._late, *(self._passed(*queued) for queued in self._queue)]
        self._late = b""
        self._queue.clear()
        return b"".join(out)

    def fail(self, status: int, message: str) -> bytes:
        """An error inside a stream that has begun, and the response that failed by it, as OpenAI writes them."""
        error = loads(openai_error(status, message))["error"]
        failure = {"code": error["code"] or error["type"], "message": error["message"]}
        response = {**record(loads(self._opening)), "status": "failed", "error": failure}
        response["output"] = [orjson.Fragment(item) for item in [*self._past, *self._leg.shown]]
        events = ({"type": "error", **failure, "param": None}, {"type": "response.failed", "response": response})
        out = b""
        for at, event in enumerate(events, self._next_number):
            data = orjson.dumps({**event, "sequence_number": at})
            out += b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), data)
        return out

    def _close(self) -> None:
        """End the leg's stream: an event without the empty line after it still counts, half an event does not."""
        rest = self._decoder.feed(b"\n\n") if self._decoder.rest() else []
        self._decoder = Decoder()
        for cut in rest:
            if read(EVENTS, cut.data) is not None:
                self._late += self._receive(cut)

    def _receive(self, cut: ServerSentEvent) -> bytes:
        """Take one event; the bytes for the client."""
        if not cut.data:
            return cut.raw
        event = read(EVENTS, cut.data) or ResponseEvent()
        event.type = event.type or cut.name
        self._leg.note(event.type, event)
        if event.response:
            self._remember()
        self._queue.append((cut, event))
        out = []
        while self._queue and self._may_leave(self._queue[0][1]):
            out.append(self._passed(*self._queue.popleft()))
        return b"".join(out)

    def _remember(self) -> None:
        """Keep the id and time of the first leg's response: a streaming client knows the whole call by them."""
        response = self._leg.response
        if not self._identity and response.id:
            known = {"id": bytes(response.id), "created_at": bytes(response.created_at)}
            self._identity = {key: value for key, value in known.items() if value}

    def _may_leave(self, event: ResponseEvent) -> bool:
        output = self._leg.of(event)
        if output is not None:
            return output.shown is not None
        return not (self._leg.end and self._leg.withholds)

    def _passed(self, cut: ServerSentEvent, event: ResponseEvent) -> bytes:
        """The bytes for the client of an event that leaves the queue."""
        output = self._leg.of(event)
        if (output is not None and not output.shown) or (event.type in _OPENINGS and not self._is_first):
            self._is_altered = True
            return b""
        self._shows = self._shows or event.type not in _OPENINGS
        changes = self._numbers(event, output)
        if event.response:
            received = bytes(event.response)
            response = self._response(received, is_last=event.type in ENDINGS)
            self._opening = self._opening or response
            changes |= {"response": response} if response != received else {}
        return _rewritten_event(cut, changes) if changes else cut.raw

    def _numbers(self, event: ResponseEvent, output: Output | None) -> dict[str, bytes]:
        """The numbers of an event that differ for the client."""
        changes = {}
        if event.sequence_number is not None:
            if not self._is_altered:
                self._next_number = event.sequence_number
            if event.sequence_number != self._next_number:
                changes["sequence_number"] = b"%d" % self._next_number
            self._next_number += 1
        if output is not None:
            if output.place is None:
                output.place, self._next_index = self._next_index, self._next_index + 1
            if event.output_index not in (None, output.place):
                changes["output_index"] = b"%d" % output.place
        return changes

    def _response(self, raw: bytes, *, is_last: bool) -> bytes:
        """A response object in the form for the client; the last has the output of all legs."""
        response = read(RESPONSES, raw) or Response()
        changes = {}
        if b'"%s"' % self._hidden.tool.encode() in bytes(response.tools):
            changes["tools"] = _as_offered(bytes(response.tools), self._hidden.tool, self._tools)
        if is_last and (not self._is_first or self._leg.withholds):
            output = b"[" + b",".join([*self._past, *self._leg.shown]) + b"]"
            known = self._identity if self._body is None else {}  # a whole answer is the one that the provider stores
            changes |= {**known, "output": output, "usage": self._usage(bytes(response.usage))}
        return _rewritten(raw, changes) if changes else raw

    def _usage(self, raw: bytes) -> bytes:
        """The last leg's usage, with the output of earlier legs that the client saw."""
        usage = record(loads(raw))
        if not usage or not self._past_tokens:
            return raw
        output = number(usage.get("output_tokens")) + self._past_tokens
        total = number(usage.get("input_tokens")) + output
        return _rewritten(raw, {"output_tokens": b"%d" % output, "total_tokens": b"%d" % total})


def _rewritten_event(cut: ServerSentEvent, changes: Mapping[str, bytes]) -> bytes:
    """The event with other values for some members of its data."""
    data = _rewritten(cut.data, changes)
    if cut.data in cut.raw:
        return cut.raw.replace(cut.data, data, 1)
    name = f"event: {cut.name}\n".encode() if cut.name else b""
    return name + b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"


def _rewritten(raw: bytes, changes: Mapping[str, bytes]) -> bytes:
    """The object with other values for some of the members it has; all other bytes are the same."""
    quick = _renumbered(raw, changes)
    if quick is not None:
        return quick
    try:
        spans = members(raw)
    except NotUnderstood:  # a key twice: no place is the right one
        value = record(loads(raw))
        return orjson.dumps({**value, **{key: orjson.Fragment(changes[key]) for key in changes if key in value}})
    return apply_edits(raw, [(spans[key], new) for key, new in changes.items() if key in spans])


def _renumbered(raw: bytes, changes: Mapping[str, bytes]) -> bytes | None:
    """The same for the numbers of an event, the most frequent change; None if it is not as simple as that."""
    if not changes.keys() <= {"sequence_number", "output_index"}:
        return None
    found = [(match[1].decode(), Span(*match.span(2))) for match in _NUMBERS.finditer(raw)]
    places = dict(found)
    if len(found) != len(places) or not changes.keys() <= places.keys():
        return None
    return apply_edits(raw, [(places[key], new) for key, new in changes.items()])


# Every event with a response repeats the list.
@lru_cache(8)
def _as_offered(tools: bytes, name: str, decided: Toolset | None) -> bytes:
    """The list of tools as the client knows it: without the one of this name, and with none in a short form."""
    left = _without(tools, name)
    if decided is None or not left.startswith(b"["):
        return left
    return apply_edits(left, [edit for start, entry in entries(left) for edit in _restoring(entry, start, decided)])


def _restoring(entry: bytes, start: int, decided: Toolset) -> Iterator[Edit]:
    """The edits that give a shortened tool the description and parameters that the client offered."""
    tool = record(loads(entry))
    short = decided.shortened.get(string(tool.get("name")))
    if short is None or tool.get("description") != short.description:
        return
    own, whole = members(entry), bytes(short.whole)
    offered = members(whole)
    for key in ("description", "parameters"):
        value = whole[offered[key].start : offered[key].end] if key in offered else b"null"
        if key in own:
            yield Span(start + own[key].start, start + own[key].end), value


def _without(tools: bytes, name: str) -> bytes:
    """The list of tools without the one of this name, and without the comma that it needed."""
    if not tools.startswith(b"["):
        return tools
    found = elements(tools, Span(0, len(tools)))
    index = next((at for at, entry in enumerate(found.items) if record(loads(entry)).get("name") == name), None)
    if index is None:
        return tools
    starts, ends = found.starts, [start + len(item) for start, item in zip(found.starts, found.items, strict=True)]
    if index + 1 < len(starts):
        return apply_edits(tools, [(Span(starts[index], starts[index + 1]), b"")])
    return apply_edits(tools, [(Span(ends[index - 1] if index else starts[0], ends[index]), b"")])
