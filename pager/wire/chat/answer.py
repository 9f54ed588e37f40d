"""The answer of one leg of a Chat Completions call, as far as it has come, and the calls that the client must not see.

It is read chunk by chunk, or in one piece: then its choices hold a message instead of a delta. A call of our own
tool is hidden as soon as its name is known. A call that is watched is undecided until it is complete, because only its
whole arguments show whether it is held back; any other is shown as it comes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec
import orjson

from pager.request_values import Answer, ToolUse, Usage
from pager.wire.answer_reader import AnswerDraft
from pager.wire.common import Json, error_text, loads, number, record, records, string, text_of, written
from pager.wire.stitching import HeldCall, HiddenCalls, Leg, LegEnd, LegPart, shown_tokens

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


class _TextDelta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[msgspec.Raw] | None = None
    tool_calls: list[msgspec.Raw] | None = None

    def brings_more(self) -> bool:
        """Whether there is more to it than text and reasoning under its usual name."""
        return bool(self.tool_calls or self.reasoning or self.reasoning_details)


class _TextChoice(msgspec.Struct):
    index: int = 0
    delta: _TextDelta | None = None
    finish_reason: str | None = None
    message: Json | None = None

    def brings_more(self) -> bool:
        """Whether there is more to this choice than a delta of text."""
        delta = self.delta
        return delta is None or bool(self.index or self.finish_reason or self.message) or delta.brings_more()


class _TextChunk(msgspec.Struct):
    """What is looked at in a chunk to see whether it only brings more text."""

    choices: list[_TextChoice] = []
    usage: Json | None = None
    error: Json | None = None


_text_chunks = msgspec.json.Decoder(list[_TextChunk])


def _text_deltas(lines: Sequence[bytes]) -> list[_TextDelta | None]:
    """The text that each of these chunks brings, if it brings nothing else, as nearly all do; all read in one go."""
    try:
        chunks = _text_chunks.decode(b"[%b]" % b",".join(lines))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        chunks = []
    if len(chunks) != len(lines):
        return [None] * len(lines)
    return [
        choices[0].delta
        if len(choices := chunk.choices) == 1 and not (chunk.usage or chunk.error or choices[0].brings_more())
        else None
        for chunk in chunks
    ]


@dataclass(slots=True)
class DraftCall:
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
        """Add a piece of the call; unknown members, such as a signature, are repeated with the call."""
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


class ChatAnswer(AnswerDraft):
    """An answer in the making.

    ``shown_before`` is the number of calls of earlier legs that the client has seen.
    """

    def __init__(self, hidden: HiddenCalls | None = None, shown_before: int = 0) -> None:
        self._hidden, self._shown_before = hidden or HiddenCalls(), shown_before
        self._open: dict[tuple[int, int | None], DraftCall] = {}
        self._id = self._model = ""
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._reasonings: list[str] = []
        self._done = False
        self._settled = 0
        self.role = ""
        self.error = self.finish = ""
        self.frame: Json = {}
        self.usage: Json = {}
        self.reasoning_key = REASONING[0]
        self.details: list[Json] = []
        self.calls: list[DraftCall] = []

    @property
    def text(self) -> str:
        """The text, all of which the client sees."""
        return "".join(self._texts)

    @property
    def reasoning(self) -> str:
        """The text of the reasoning, all of which the client sees."""
        return "".join(self._reasonings)

    @property
    def shown(self) -> list[DraftCall]:
        """The calls that the client sees."""
        return [call for call in self.calls if call.hidden is False]

    @property
    def hidden(self) -> list[DraftCall]:
        """The calls that are held back for good."""
        return [call for call in self.calls if call.hidden]

    @property
    def withholds(self) -> bool:
        """Whether there is a call that the client does not see, or not yet."""
        return any(call.hidden is not False for call in self.calls)

    def take(self, name: str, data: bytes) -> None:
        """Take one event of a stream; names mean nothing here."""
        del name
        if data.strip() == b"[DONE]":
            self.end()
        else:
            self.add(record(loads(data)))

    def take_all(self, lines: Sequence[bytes]) -> None:
        """Take the data of several events."""
        first, *most, last = lines if len(lines) > 1 else (b"{}", *lines)
        self.take("", first)  # it has the id and the model, else all are read whole
        deltas = _text_deltas(most) if self._id and self._model else [None] * len(most)
        for line, delta in zip(most, deltas, strict=True):
            if delta is None:
                self.take("", line)
            else:
                self.role = self.role or delta.role or ""
                self._texts.append(delta.content or "")
                self._refusals.append(delta.refusal or "")
                self._reasonings.append(delta.reasoning_content or "")
        self.take("", last)

    def end(self) -> None:
        """Take the end of the answer."""
        self._done = True
        self.settle(over=True)

    def add(self, chunk: Json) -> list[DraftCall]:
        """Add what one chunk, or a whole answer, says; the call of each piece of a call in its first choice's delta."""
        self._id = self._id or string(chunk.get("id"))
        self._model = self._model or string(chunk.get("model"))
        self.frame = self.frame or {key: chunk[key] for key in FRAME if chunk.get("id") and key in chunk}
        self.error = self.error or error_text(chunk.get("error"))
        self.usage = record(chunk.get("usage")) or self.usage
        choices = records(chunk.get("choices"))
        owners = [self._choose(choice) for choice in choices]
        if self.finish:
            self.settle(over=True)
        return owners[0] if choices and record(choices[0].get("delta")) else []

    def _choose(self, choice: Json) -> list[DraftCall]:
        at, piece = number(choice.get("index")), record(choice.get("delta"))
        whole = {} if piece else record(choice.get("message"))
        delta = piece or whole
        if at == 0:  # a request for more than one choice gets no tool of ours
            self.role = self.role or string(delta.get("role"))
            self._texts.append(text_of(delta.get("content")))
            self._refusals.append(string(delta.get("refusal")))
            self.finish = string(choice.get("finish_reason")) or self.finish
            if not delta.keys().isdisjoint(_THOUGHT):
                self._reason(delta, whole=bool(whole))
        pieces = enumerate(records(delta.get("tool_calls")))
        return [self._call(at, piece, position if whole else None) for position, piece in pieces]

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

    def _call(self, choice: int, part: Json, position: int | None) -> DraftCall:
        index = part.get("index")
        key = choice, index if position is None and type(index) is int else position
        call_id, (name, _) = string(part.get("id")), called(part)
        call = self._open.get(key)
        # Some providers number every call 0, or not at all: a name under another id is another call.
        if call is None or (name and call_id != call.call_id and (call_id or key[1] is None)):
            call = self._open[key] = DraftCall(len(self.calls))
            self.calls.append(call)
        call.add(part)
        self.settle()
        return call

    def settle(self, *, over: bool = False) -> None:
        """Decide on the calls of which enough is known, in their order, which gives them their numbers."""
        while self._settled < len(self.calls) and (over or self._is_known(self.calls[self._settled])):
            call = self.calls[self._settled]
            call.number = self._shown_before + len(self.shown)
            call.hidden = self._hidden.hides(call.name, call.arguments)
            self._settled += 1

    def _is_known(self, call: DraftCall) -> bool:
        """Whether it is known before the end of the answer if the client may see a call."""
        if call.name and self._hidden.hides(call.name) is not None:
            return True
        # Where a call begins, those before it are complete; but some providers name all calls before any arguments.
        return call is not self.calls[-1] and bool(call.arguments.strip())

    def visible_tokens(self) -> int:
        """The tokens of this leg that the client saw, if it is not the last: the provider's count without the calls."""
        if not (self.text or self.reasoning):
            return 0
        output = number(self.usage.get("completion_tokens"))
        return shown_tokens(output, (call.name + call.arguments for call in self.hidden))

    def answer(self) -> Answer:
        """All of the answer, hidden calls too, as far as it has come."""
        calls = (ToolUse(call.place, call.call_id, call.name, call.arguments) for call in self.calls)
        return Answer(
            id=self._id,
            model=self._model,
            finish=self.finish,
            text="".join([*self._texts, *self._refusals]),
            calls=tuple(calls),
            usage=_usage(self.usage) if self.usage else None,
            complete=self._done or bool(self.finish),
            error=self.error,
        )

    def held(self, *, shown_before: bool) -> LegEnd:
        """What the leg, now at its end, keeps from the client."""
        ids = self._ids()
        calls = tuple(HeldCall(ids[call.place], call.name, call.arguments) for call in self.hidden)
        ended = not self.error and (self._done or bool(self.finish))
        return LegEnd(
            calls=calls,
            mixed=bool(calls and self.shown),
            whole=ended and not (calls and self.finish in _CUT),
            shown=bool(shown_before or self.text or self.reasoning or self.shown),
        )

    def leg(self, answers: Sequence[str]) -> Leg:
        """The leg in the form in which later requests repeat it."""
        results = [
            _raw({"role": "tool", "tool_call_id": call.call_id, "content": answer.encode(errors="replace").decode()})
            for call, answer in zip(self.held(shown_before=False).calls, answers, strict=True)
        ]
        return Leg(list(self._parts()), results, mixed=bool(self.hidden and self.shown))

    def _parts(self) -> Iterator[LegPart]:
        if self.reasoning and self.reasoning_key == REASONING[0]:
            yield LegPart("reasoning", _raw(self.reasoning))
        elif self.reasoning:
            yield LegPart("other", _raw({self.reasoning_key: self.reasoning}))
        if self.details:
            yield LegPart("other", _raw(self.details))
        if self.text:
            yield LegPart("text", _raw(self.text))
        ids = self._ids()
        yield from (LegPart("call", call.raw(ids[call.place]), hidden=bool(call.hidden)) for call in self.calls)

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


def _made_up(call: DraftCall, attempt: int) -> str:
    said = call.name + call.arguments + "#" * attempt
    return "call_" + sha256(said.encode()).hexdigest()[:16]


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(orjson.dumps(value))


def _usage(usage: Json) -> Usage:
    """Tokens as reported; where details are missing, the names that other providers use are looked for."""
    asked, said = record(usage.get("prompt_tokens_details")), record(usage.get("completion_tokens_details"))
    cached = [it for it in (asked.get("cached_tokens"), usage.get("prompt_cache_hit_tokens")) if type(it) is int]
    return Usage(
        input=number(usage.get("prompt_tokens")),
        cached=max(cached, default=0),
        written=number(asked.get("cache_write_tokens")) or number(asked.get("cache_creation_tokens")),
        output=number(usage.get("completion_tokens")),
        reasoning=number(said.get("reasoning_tokens")),
        tells_cached=bool(cached),
    )
