"""What one leg of a Chat Completions call has said so far, and which of its calls the client must not see.

A leg is read chunk by chunk, or in one piece: then its choice holds a message instead of a delta. A call of our own
tool is hidden as soon as its name is known. A call that is watched is undecided until it is complete, because only its
whole arguments tell whether it is held back; any other is shown as it comes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec
import orjson

from pager.wire.common import (
    Json,
    error_text,
    loads,
    number,
    record,
    records,
    string,
    text_of,
    written,
)
from pager.wire.stitching import (
    Guard,
    Held,
    HeldCall,
    Leg,
    Part,
)

# What all chunks of one stream have in common.
FRAME = ("id", "created", "model", "system_fingerprint", "service_tier")
# The names that providers give to the text of a model's reasoning.
REASONING = ("reasoning_content", "reasoning")
_THOUGHT = frozenset({*REASONING, "reasoning_details"})
_CUT = frozenset({"length", "content_filter", "error"})
_OWN = frozenset({"index", "id", "type", "function", "custom", "name", "arguments", "input"})


def called(call: Json) -> tuple[str, str]:
    """The name and the arguments, or the free text of a custom tool."""
    custom = record(call.get("custom"))
    if custom:
        return string(custom.get("name")), written(custom.get("input"))
    function = record(call.get("function"))
    return string(function.get("name")), written(function.get("arguments"))


def choice_of(chunk: Json) -> Json:
    """The first choice: there is only one in a request that can carry our tool."""
    choices = records(chunk.get("choices"))
    return choices[0] if choices else {}


class _PlainDelta(msgspec.Struct, forbid_unknown_fields=True):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: None = None
    refusal: None = None
    function_call: None = None
    tool_calls: None = None


class _PlainChoice(msgspec.Struct):
    delta: _PlainDelta
    finish_reason: None = None


class _PlainChunk(msgspec.Struct):
    """A chunk that brings a piece of text and nothing else, as nearly all do; any other one can't be read as such."""

    choices: tuple[_PlainChoice]
    usage: None = None
    error: None = None


_plain = msgspec.json.Decoder(_PlainChunk)


@dataclass(slots=True)
class SaidCall:
    """One call; ``hidden`` is None until it is known, ``number`` its place among the calls that the client sees."""

    place: int
    call_id: str = ""
    name: str = ""
    said: list[str] = field(default_factory=list)
    custom: bool = False
    more: Json = field(default_factory=dict)
    hidden: bool | None = None
    number: int = 0

    @property
    def arguments(self) -> str:
        """The arguments as far as they have come."""
        return "".join(self.said)

    def add(self, part: Json) -> None:
        """Add a piece of the call; what we don't know of it, such as a signature, goes back with the call."""
        name, said = called(part)
        self.call_id = self.call_id or string(part.get("id"))
        self.name = self.name or name
        self.said.append(said)
        self.custom = self.custom or bool(record(part.get("custom")))
        self.more |= {key: value for key, value in part.items() if key not in _OWN and value is not None}

    def raw(self, call_id: str) -> msgspec.Raw:
        """The call as a request repeats it."""
        said = {"input" if self.custom else "arguments": self.arguments}
        kind = "custom" if self.custom else "function"
        return _raw({"id": call_id, "type": kind, kind: {"name": self.name, **said}, **self.more})


class Said:
    """What a leg has said; ``shown_before`` are the calls of earlier legs that the client has seen."""

    def __init__(self, tool: str, guard: Guard, shown_before: int = 0) -> None:
        self._tool, self._guard, self._shown_before = tool, guard, shown_before
        self._open: dict[int | None, SaidCall] = {}
        self._texts: list[str] = []
        self._reasonings: list[str] = []
        self._done = False
        self._settled = 0
        self.role = ""
        self.error = self.finish = ""
        self.frame: Json = {}
        self.usage: Json = {}
        self.reasoning_key = REASONING[0]
        self.details: list[Json] = []
        self.calls: list[SaidCall] = []

    @property
    def text(self) -> str:
        """The text, all of which the client sees."""
        return "".join(self._texts)

    @property
    def reasoning(self) -> str:
        """The text of the reasoning, all of which the client sees."""
        return "".join(self._reasonings)

    @property
    def shown(self) -> list[SaidCall]:
        """The calls that the client sees."""
        return [call for call in self.calls if call.hidden is False]

    @property
    def hidden(self) -> list[SaidCall]:
        """The calls that are held back for good."""
        return [call for call in self.calls if call.hidden]

    @property
    def withholds(self) -> bool:
        """Whether there is a call that the client does not see, or not yet."""
        return any(call.hidden is not False for call in self.calls)

    def take(self, data: bytes) -> None:
        """Take the data of one event of a stream."""
        if data.strip() == b"[DONE]":
            self.end()
            return
        try:
            delta = _plain.decode(data).choices[0].delta if self.frame else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            delta = None
        if delta is None:
            self.add(record(loads(data)))
        else:
            self.role = self.role or delta.role or ""
            self._texts.append(delta.content or "")
            self._reasonings.append(delta.reasoning_content or "")

    def end(self) -> None:
        """Take the end of the answer."""
        self._done = True
        self.settle(over=True)

    def add(self, chunk: Json, *, whole: bool = False) -> list[SaidCall]:
        """Add what one chunk, or a whole answer, says; the call to which each of its pieces of calls belongs."""
        self.frame = self.frame or {key: chunk[key] for key in FRAME if chunk.get("id") and key in chunk}
        self.error = self.error or error_text(chunk.get("error"))
        self.usage = record(chunk.get("usage")) or self.usage
        choice = choice_of(chunk)
        delta = record(choice.get("message" if whole else "delta"))
        self.role = self.role or string(delta.get("role"))
        self._texts.append(text_of(delta.get("content")))
        if not delta.keys().isdisjoint(_THOUGHT):
            self._reason(delta, whole=whole)
        pieces = enumerate(records(delta.get("tool_calls")))
        owners = [self._call(piece, position if whole else None) for position, piece in pieces]
        self.finish = string(choice.get("finish_reason")) or self.finish
        if self.finish:
            self.settle(over=True)
        return owners

    def _reason(self, delta: Json, *, whole: bool) -> None:
        key = next((key for key in REASONING if string(delta.get(key))), "")
        if key:
            self.reasoning_key = key
            self._reasonings.append(delta[key])
        details = records(delta.get("reasoning_details"))
        if whole:
            self.details += details
        else:
            for detail in details:
                _add_detail(self.details, detail)

    def _call(self, part: Json, position: int | None) -> SaidCall:
        index = part.get("index")
        key = index if position is None and type(index) is int else position
        call_id, (name, _) = string(part.get("id")), called(part)
        call = self._open.get(key)
        # Some providers number every call 0, or not at all: a name under another id is another call.
        if call is None or (name and call_id != call.call_id and (call_id or key is None)):
            call = self._open[key] = SaidCall(len(self.calls))
            self.calls.append(call)
        call.add(part)
        self.settle()
        return call

    def settle(self, *, over: bool = False) -> None:
        """Decide on the calls of which enough is known, in their order, which gives them their numbers."""
        while self._settled < len(self.calls) and (over or self._is_known(self.calls[self._settled])):
            call = self.calls[self._settled]
            call.number = self._shown_before + len(self.shown)
            call.hidden = call.name == self._tool or (
                self._guard.watches(call.name) and self._guard.holds(call.name, call.arguments)
            )
            self._settled += 1

    def _is_known(self, call: SaidCall) -> bool:
        """Whether it can be said of a call, before the end of the answer, if the client may see it."""
        if call.name and (call.name == self._tool or not self._guard.watches(call.name)):
            return True
        # Where a call begins, those before it are complete; but some providers name all calls before any arguments.
        return call is not self.calls[-1] and bool(call.arguments.strip())

    def visible_tokens(self) -> int:
        """The tokens of this leg that the client saw, if it is not the last: the provider's count without the calls."""
        if not (self.text or self.reasoning):
            return 0
        calls = sum(len(call.name + call.arguments) // 4 + 8 for call in self.hidden)
        return max(number(self.usage.get("completion_tokens")) - calls, 0)

    def held(self, *, shown_before: bool) -> Held:
        """What the leg, now at its end, keeps from the client."""
        ids = self._ids()
        calls = tuple(HeldCall(ids[call.place], call.name, call.arguments) for call in self.hidden)
        ended = not self.error and (self._done or bool(self.finish))
        return Held(
            calls=calls,
            mixed=bool(calls and self.shown),
            whole=ended and not (calls and self.finish in _CUT),
            shown=bool(shown_before or self.text or self.reasoning or self.shown),
        )

    def leg(self, answers: Sequence[str]) -> Leg:
        """The leg as it stands in the prompt from now on."""
        results = [
            _raw({"role": "tool", "tool_call_id": call.call_id, "content": answer.encode(errors="replace").decode()})
            for call, answer in zip(self.held(shown_before=False).calls, answers, strict=True)
        ]
        return Leg(list(self._parts()), results, mixed=bool(self.hidden and self.shown))

    def _parts(self) -> Iterator[Part]:
        if self.reasoning and self.reasoning_key == REASONING[0]:
            yield Part("reasoning", _raw(self.reasoning))
        elif self.reasoning:
            yield Part("other", _raw({self.reasoning_key: self.reasoning}))
        if self.details:
            yield Part("other", _raw(self.details))
        if self.text:
            yield Part("text", _raw(self.text))
        ids = self._ids()
        yield from (Part("call", call.raw(ids[call.place]), hidden=bool(call.hidden)) for call in self.calls)

    def _ids(self) -> list[str]:
        """The calls' ids; a hidden call that has none, or one that is taken, gets one made of what it says."""
        taken = {call.call_id for call in self.shown}
        ids = []
        for call in self.calls:
            call_id, attempt = call.call_id, 0
            while call.hidden and (not call_id or call_id in taken):
                call_id, attempt = _made_up(call, attempt), attempt + 1
            taken.add(call_id)
            ids.append(call_id)
        return ids


def _add_detail(details: list[Json], new: Json) -> None:
    """Add a piece of structured reasoning: the texts of pieces with one index and type belong together."""
    last = details[-1] if details else None
    if last is None or (last.get("index"), last.get("type")) != (new.get("index"), new.get("type")):
        details.append(dict(new))
        return
    for key, value in new.items():
        if key in {"text", "summary", "data"} and isinstance(value, str):
            last[key] = string(last.get(key)) + value
        elif value is not None:
            last[key] = value


def _made_up(call: SaidCall, attempt: int) -> str:
    said = call.name + call.arguments + "#" * attempt
    return "call_" + sha256(said.encode()).hexdigest()[:16]


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(orjson.dumps(value))
