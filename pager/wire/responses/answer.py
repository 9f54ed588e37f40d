"""The answer of one leg of a Responses call, as far as it has come, and which of it the client is shown.

An output item is named before its content comes. A call of the tool that was added is hidden from its first event on; a
call that is watched has to wait until it is finished, because only its whole arguments show whether it is held back;
all else is shown.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

import msgspec
import orjson

from pager.request_values import Answer, ToolUse, Usage
from pager.wire.answer_reader import AnswerDraft
from pager.wire.common import Json, error_text, loads, number, record, records, string, written
from pager.wire.json_spans import without_surrogates
from pager.wire.stitching import HeldCall, HiddenCalls, LegPart, shown_tokens

_T = TypeVar("_T")
_PartKind = Literal["text", "reasoning", "call", "other"]

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NOTHING: Final = msgspec.Raw(b"")
ENDINGS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"})
_ITEM_EVENTS = frozenset({"response.output_item.added", "response.output_item.done"})
_DELTAS = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
    }
)
_FINAL = frozenset({"completed", "incomplete", "failed", "cancelled"})
_CALL_EVENTS = ("response.function_call_arguments.", "response.custom_tool_call_input.")
_MEANINGFUL = ENDINGS | _ITEM_EVENTS | _DELTAS | {"response.created"}
_ARGUMENTS = {"function_call": "arguments", "custom_tool_call": "input"}
_PART_KINDS: dict[str, _PartKind] = {
    "message": "text",
    "reasoning": "reasoning",
    "function_call": "call",
    "custom_tool_call": "call",
}
# What the client has to answer before the model can go on.
_FOR_CLIENT = frozenset(
    {*_ARGUMENTS, "apply_patch_call", "computer_call", "local_shell_call", "mcp_approval_request", "shell_call"}
)


class ResponseEvent(msgspec.Struct):
    """The little of an event that is read of each one."""

    type: str = ""
    sequence_number: int | None = None
    output_index: int | None = None
    item_id: str | None = None
    delta: msgspec.Raw = _NOTHING
    item: msgspec.Raw = _NOTHING
    response: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING
    code: msgspec.Raw = _NOTHING
    message: msgspec.Raw = _NOTHING


class Response(msgspec.Struct):
    """The parts of a response object that are looked at, or exchanged."""

    id: msgspec.Raw = _NOTHING
    model: msgspec.Raw = _NOTHING
    status: msgspec.Raw = _NOTHING
    incomplete_details: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING
    created_at: msgspec.Raw = _NOTHING
    output: msgspec.Raw = _NOTHING
    usage: msgspec.Raw = _NOTHING
    tools: msgspec.Raw = _NOTHING
    store: msgspec.Raw = _NOTHING
    prompt_cache_diagnostics: msgspec.Raw = _NOTHING

    @property
    def items(self) -> list[msgspec.Raw]:
        """The output items."""
        return read(_ITEMS, self.output) or []


EVENTS = msgspec.json.Decoder(ResponseEvent)
RESPONSES = msgspec.json.Decoder(Response)
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(slots=True)
class Output:
    """One output item of a leg; ``shown`` is None until its fate is known, ``raw`` is empty until it is finished.

    ``place`` is its index for the client. ``pieces`` are those of its text or arguments that have come so far.
    """

    item: Json = field(default_factory=dict)
    shown: bool | None = None
    raw: bytes = b""
    place: int | None = None
    pieces: list[bytes] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The item's type."""
        return string(self.item.get("type"))

    @property
    def call(self) -> HeldCall:
        """The item as a call."""
        arguments = written(self.item.get(_ARGUMENTS.get(self.kind, "arguments")))
        return HeldCall(string(self.item.get("call_id")), string(self.item.get("name")), arguments)

    @property
    def text(self) -> str:
        """The text of a message, or the arguments of a call, as far as it has come."""
        if self.is_message:
            content = records(self.item.get("content"))
            text = "".join(string(part.get("text")) or string(part.get("refusal")) for part in content)
        else:
            text = self.call.arguments
        return text if text and self.raw else text + "".join(string(loads(piece)) for piece in self.pieces)

    @property
    def is_message(self) -> bool:
        """Whether it is a message, whose type may be left out."""
        return self.kind in ("", "message")

    @property
    def is_call(self) -> bool:
        """Whether it calls a tool of the client's or ours."""
        return self.kind in _ARGUMENTS

    @property
    def awaits_client(self) -> bool:
        """Whether the client has to answer it: a call of its tools, or a search that it is to run."""
        if self.kind == "tool_search_call":
            return self.item.get("execution") == "client"
        return self.kind in _FOR_CLIENT

    def answered(self, answer: str) -> msgspec.Raw:
        """The item that answers this call."""
        kind = f"{self.kind}_output"
        return msgspec.Raw(orjson.dumps({"type": kind, "call_id": self.call.call_id, "output": answer}))


class ResponsesAnswer(AnswerDraft):
    """An answer in the making; ``end`` is how it ended, or empty."""

    def __init__(self, hidden: HiddenCalls | None = None) -> None:
        self._hidden = hidden or HiddenCalls()
        self._outputs: dict[int, Output] = {}
        self._indices: dict[str, int] = {}
        self._id = self._model = self._status = self._error = ""
        self._usage: Json = {}
        self.end = ""
        self.response = Response()

    def take(self, name: str, data: bytes) -> None:
        """Take one event of a stream; those that mean nothing for the answer are not even decoded."""
        if not name or name in _MEANINGFUL:
            event = read(EVENTS, data) or ResponseEvent()
            self.note(event.type or name, event)

    def note(self, kind: str, event: ResponseEvent) -> None:
        """Learn from one event of the stream."""
        if event.response:
            self._respond(read(RESPONSES, event.response) or self.response)
        if event.output_index is not None:
            self._note_output(event.output_index, kind, event)
        if kind in ENDINGS:
            if kind == "error":
                described = {"code": loads(bytes(event.code)), "message": loads(bytes(event.message))}
                self._error = error_text(loads(bytes(event.error))) or error_text(described)
            else:
                self._status = self._status if self.response.status else kind.removeprefix("response.")
            self._close(kind.removeprefix("response."))

    def _respond(self, response: Response) -> None:
        self.response = response
        self._id = string(loads(bytes(response.id))) or self._id
        self._model = string(loads(bytes(response.model))) or self._model
        self._status = string(loads(bytes(response.status)))
        self._error = error_text(loads(bytes(response.error))) or self._error
        self._usage = record(loads(bytes(response.usage))) or self._usage

    def _note_output(self, index: int, kind: str, event: ResponseEvent) -> None:
        output = self._outputs.get(index)
        if output is None:
            # A call that was not named yet can't be shown.
            output = Output(shown=None if kind in _ITEM_EVENTS or kind.startswith(_CALL_EVENTS) else True)
            self._outputs[index] = output
        if kind in _ITEM_EVENTS:
            self._meet(index, bytes(event.item), done=kind.endswith("done"))
        elif kind in _DELTAS:
            output.pieces.append(bytes(event.delta))

    def _meet(self, index: int, raw: bytes, *, done: bool) -> None:
        """Take an item as it begins, or as it is finished."""
        output = self._outputs.setdefault(index, Output())
        output.item = record(loads(raw))
        self._indices[string(output.item.get("id"))] = index
        if done:
            output.raw = raw
        if output.shown is None:
            output.shown = self._fate(output, done=done)

    def _fate(self, output: Output, *, done: bool) -> bool | None:
        if output.kind not in _ARGUMENTS:
            return True
        hides = self._hidden.hides(output.call.name, output.call.arguments if done else None)
        return None if hides is None else not hides

    def whole(self, response: Response) -> None:
        """Take an answer that came in one piece."""
        self._respond(response)
        self.end = self._status
        for index, raw in enumerate(response.items):
            self._meet(index, bytes(raw), done=True)

    def _close(self, end: str) -> None:
        """The leg is over: settle the fate of what it left unfinished, unless it failed, by what came of it."""
        self.end = end
        if end not in ("completed", "incomplete"):
            return
        for index, raw in enumerate(self.response.items):
            if index not in self._outputs or not self._outputs[index].raw:
                self._meet(index, bytes(raw), done=True)
        for output in self._outputs.values():
            if not output.raw and not output.shown:
                self._break_off(output)

    def _break_off(self, output: Output) -> None:
        said = "".join(string(loads(piece)) for piece in output.pieces)
        if output.kind in _ARGUMENTS:
            output.item = {**output.item, _ARGUMENTS[output.kind]: said}
            output.raw = orjson.dumps(output.item)
        output.shown = self._fate(output, done=True) and not self._hidden.guard.holds("", said)

    def of(self, event: ResponseEvent) -> Output | None:
        """The output item that an event belongs to."""
        index = event.output_index
        if index is None and event.item_id:
            index = self._indices.get(event.item_id)
        return None if index is None else self._outputs.get(index)

    @property
    def outputs(self) -> list[Output]:
        """The items in the model's order."""
        return [output for _, output in sorted(self._outputs.items())]

    @property
    def hidden(self) -> list[Output]:
        """The calls that the client is not shown."""
        return [output for output in self.outputs if output.shown is False]

    @property
    def withholds(self) -> bool:
        """Whether there is anything that the client has not been shown."""
        return not all(output.shown for output in self._outputs.values())

    @property
    def shown(self) -> list[bytes]:
        """The finished items that the client is shown."""
        return [output.raw for output in self.outputs if output.shown and output.raw]

    def visible_tokens(self) -> int:
        """About how many of the output tokens the client has seen something of."""
        if not self.shown:
            return 0
        output = number(record(loads(bytes(self.response.usage))).get("output_tokens"))
        return shown_tokens(output, (hidden.call.name + hidden.call.arguments for hidden in self.hidden))

    def answer(self) -> Answer:
        """All of the answer, hidden calls too, as far as it has come."""
        items = {index: output for index, output in self._outputs.items() if output.raw or output.item or output.pieces}
        for index, raw in enumerate(self.response.items):
            if index not in items or not items[index].raw:
                pieces = items[index].pieces if index in items else []
                items[index] = Output(record(loads(bytes(raw))), raw=bytes(raw), pieces=pieces)
        outputs = [output for _, output in sorted(items.items())]
        calls = [output for output in outputs if output.is_call]
        cut = string(record(loads(bytes(self.response.incomplete_details))).get("reason"))
        is_over = self._status in _FINAL
        return Answer(
            id=self._id,
            model=self._model,
            finish=(cut or self._status) if is_over else "",
            text="".join(output.text for output in outputs if output.is_message),
            calls=tuple(ToolUse(at, it.call.call_id, it.call.name, it.text) for at, it in enumerate(calls)),
            usage=_usage(self._usage) if self._usage else None,
            complete=is_over,
            error=self._error,
            cache_miss=string(record(loads(bytes(self.response.prompt_cache_diagnostics))).get("reason")),
        )

    def parts(self) -> Iterator[LegPart]:
        """The parts of the leg, except thoughts that neither the provider has stored nor the item holds."""
        stored = self.response.store == msgspec.Raw(b"true")
        for output in self.outputs:
            lost = output.kind == "reasoning" and not output.item.get("encrypted_content") and not stored
            if output.raw and not lost:
                kind: _PartKind = _PART_KINDS.get(output.kind, "other")
                yield LegPart(kind, msgspec.Raw(output.raw), hidden=not output.shown)


def read(decoder: msgspec.json.Decoder[_T], raw: bytes | msgspec.Raw) -> _T | None:
    """The value, or None if it can't be read; half an emoji is read as U+FFFD."""
    try:
        return decoder.decode(raw)
    except _UNREADABLE:
        pass
    try:
        return decoder.decode(without_surrogates(bytes(raw)))
    except _UNREADABLE:
        return None


def _usage(usage: Json) -> Usage:
    asked, said = record(usage.get("input_tokens_details")), record(usage.get("output_tokens_details"))
    return Usage(
        input=number(usage.get("input_tokens")),
        cached=number(asked.get("cached_tokens")),
        written=number(asked.get("cache_write_tokens")),
        output=number(usage.get("output_tokens")),
        reasoning=number(said.get("reasoning_tokens")),
        tells_cached=type(asked.get("cached_tokens")) is int,
    )
