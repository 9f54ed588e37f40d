"""OpenAI Chat Completions: what many clients and nearly all other providers speak."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import orjson

from pager.errors import NotUnderstood
from pager.tools.decide import Toolset
from pager.tools.definitions import Listed
from pager.values import (
    Answer,
    Block,
    Kind,
    Message,
    Request,
    Span,
    ToolUse,
    Usage,
)
from pager.wire import dialect
from pager.wire.chat import restore, tool_carrier
from pager.wire.chat.answer import called
from pager.wire.chat.stitch import Splice
from pager.wire.common import (
    Envelope,
    Json,
    Reader,
    arguments,
    content_blocks,
    dumps,
    error_text,
    exactly,
    loads,
    member_edit,
    message,
    number,
    openai_error,
    parts,
    record,
    records,
    result_blocks,
    string,
    text_of,
    tidy,
    written,
)
from pager.wire.dialect import AnswerReader
from pager.wire.page_spans import (
    Site,
    argument_sites,
    reachable,
    result_site,
)
from pager.wire.parse_cache import ParseCache
from pager.wire.stitching import (
    Carrier,
    Expansion,
    Guard,
    Leg,
)
from pager.wire.tool_lists import Layout, not_a_function, offers

LAYOUT = Layout("function", "parameters", not_a_function, lambda tool: tool.get("strict") is True)
# Keys that SDKs add to an answer when they send it back; the model never sees them.
_DECORATION = frozenset({"annotations", "cache_control", "id", "parsed", "provider_specific_fields"})
_CALL_DECORATION = frozenset({"cache_control", "index", "parsed_arguments", "provider_specific_fields"})


class Dialect(dialect.Dialect):
    """The Chat Completions wire format."""

    name = "chat"
    path = "/chat/completions"
    resources = ("",)  # what no other dialect claims
    base_url = "https://api.openai.com/v1"
    items_key = "messages"
    prompt_members = ("tools", "functions")
    ends_on_error = False

    def parse(self, body: bytes, cache: ParseCache | None = None, *, path: str = "") -> Request:  # noqa: ARG002 - the body has it all
        """Find the parts of a request body; raises NotUnderstood."""
        envelope = Envelope.of(body, self.items_key, cache)
        return envelope.request(
            self.name,
            envelope.elements(),
            has_tools=envelope.holds("tools") or envelope.holds("functions"),
            hints=envelope.hints("metadata.session_id", "prompt_cache_key"),
        )

    def decode(self, raw: bytes | memoryview) -> Message:
        """Read one message."""
        return message(raw, _read)

    def sites(self, raw: bytes) -> list[Site]:
        """The places of a tool's result or of a call's arguments."""
        item = exactly(raw)
        if item.get("role") == "tool":
            return reachable(raw, result_site(item.get("content"), ("content",), string(item.get("tool_call_id"))))
        found: list[Site] = []
        calls = item.get("tool_calls")
        for index, call in enumerate(calls if isinstance(calls, list) else ()):
            function, path = record(record(call).get("function")), ("tool_calls", index, "function", "arguments")
            call_id, text = string(record(call).get("id")), string(function.get("arguments"))
            found += argument_sites(text, call_id, string(function.get("name")), path)
        return reachable(raw, found)

    def carrier(self, request: Request) -> Carrier | str:
        """Where a tool of ours can be added to this request, or why it can't be."""
        return tool_carrier.carrier(request)

    def forbid_calls(self, request: Request) -> tuple[Span, bytes]:
        """The edit of the body by which the model may call no tool."""
        return member_edit(request, "tool_choice", b'"none"')

    def offers(self, request: Request) -> Listed | None:
        """The tools that the request offers; None where there are none that could be sent shorter."""
        return offers(request, LAYOUT)

    def tool(self, name: str, description: str, parameters: Mapping[str, Any]) -> Json:
        """A function inside of an entry that names its type."""
        function = {"name": name, "description": description, "parameters": parameters}
        return {"type": "function", "function": function}

    def tool_call(self, number: str, tool: str, arguments: Mapping[str, Any]) -> bytes:
        """A completion with one tool call."""
        function = {"name": tool, "arguments": dumps(arguments)}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return orjson.dumps({"id": number, "choices": [choice]})

    def splice(self, tool: str, guard: Guard, tools: Toolset | None = None) -> Splice:  # noqa: ARG002 - none is repeated
        """The state machine for one call to which the tool with this name was added."""
        return Splice(tool, guard)

    def appended(self, leg: Leg) -> list[bytes]:
        """The items that a leg which is not mixed adds to the end of the prompt."""
        return restore.appended(leg)

    def expand(self, items: Sequence[bytes], legs: Sequence[Leg], *, sure: bool = False) -> Expansion | None:
        """What the client sent after a call, with the call's hidden legs put back; None if their place is gone."""
        return restore.expand(items, legs, sure=sure)

    def read(self, body: bytes) -> Answer:
        """Read a whole, unstreamed answer; raises NotUnderstood."""
        answer = record(loads(body))
        if "choices" not in answer and "error" not in answer:
            raise NotUnderstood("the answer is no chat completion: it has no 'choices'")
        draft = _Draft()
        draft.add(answer)
        return replace(draft.answer(), complete=not draft.error)

    def reader(self) -> AnswerReader:
        """A reader for one streamed answer."""
        return Reader(_Draft())

    def error(self, status: int, message: str) -> bytes:
        """An error body as OpenAI would send it."""
        return openai_error(status, message)


def _read(item: Json) -> tuple[str, Json, tuple[Block, ...]]:
    return string(item.get("role")), _normal(item), tuple(_blocks(item))


def _normal(item: Json) -> Json:
    calls = item.get("tool_calls")
    return tidy(
        {
            **tidy(item, _DECORATION),
            "content": parts(item.get("content")),
            "tool_calls": [_normal_call(call) for call in calls] if isinstance(calls, list) else calls,
            "function_call": _normal_function(item.get("function_call")),
        }
    )


def _normal_call(call: object) -> object:
    if not isinstance(call, dict):
        return call
    kept = {"type": "function", **tidy(call, _CALL_DECORATION)}
    return tidy({**kept, "function": _normal_function(call.get("function"))})


def _normal_function(function: object) -> object:
    if not isinstance(function, dict):
        return function
    return tidy({**tidy(function, _CALL_DECORATION), "arguments": arguments(function.get("arguments"))})


def _blocks(item: Json) -> Iterator[Block]:
    content = item.get("content")
    if item.get("role") in ("tool", "function"):
        call_id, name = string(item.get("tool_call_id")), string(item.get("name"))
        yield from result_blocks(content, lambda text: Block(Kind.RESULT, text, call_id, name))
        return
    reasoning = string(item.get("reasoning_content")) or string(item.get("reasoning"))
    if reasoning:
        yield Block(Kind.REASONING, reasoning)
    yield from content_blocks(content)
    if string(item.get("refusal")):
        yield Block(Kind.TEXT, string(item.get("refusal")))
    yield from _call_blocks(item)


def _call_blocks(item: Json) -> Iterator[Block]:
    for call in records(item.get("tool_calls")):
        name, said = called(call)
        yield Block(Kind.CALL, said, string(call.get("id")), name)
    legacy = record(item.get("function_call"))
    if legacy:
        yield Block(Kind.CALL, written(legacy.get("arguments")), name=string(legacy.get("name")))


@dataclass(slots=True)
class _Call:
    call_id: str = ""
    name: str = ""
    said: list[str] = field(default_factory=list)


class _TextDelta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _TextChoice(msgspec.Struct):
    index: int = 0
    delta: _TextDelta | None = None
    finish_reason: str | None = None
    message: Json | None = None

    def brings_more(self) -> bool:
        """Whether there is more to this choice than text."""
        delta = self.delta
        return delta is None or bool(self.index or self.finish_reason or self.message or delta.tool_calls)


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


class _Draft:
    """An answer in the making; an unstreamed answer is one chunk whose choices hold a message instead of a delta."""

    __slots__ = ("_calls", "_done", "_finish", "_id", "_model", "_open", "_text", "_usage", "error")

    def __init__(self) -> None:
        self.error = ""
        self._id = self._model = self._finish = ""
        self._done = False
        self._text: list[str] = []
        self._calls: list[_Call] = []
        self._open: dict[tuple[int, int | None], _Call] = {}
        self._usage: Usage | None = None

    def take(self, name: str, data: bytes) -> None:
        """Take one event of the stream."""
        del name  # chat streams have no event names
        if data.strip() == b"[DONE]":
            self._done = True
        else:
            self.add(record(loads(data)))

    def take_all(self, lines: Sequence[bytes]) -> None:
        """Take many events at once."""
        first, *most, last = lines if len(lines) > 1 else (b"{}", *lines)
        self.take("", first)  # it has the id and the model, else all are read whole
        deltas = _text_deltas(most) if self._id and self._model else [None] * len(most)
        for line, delta in zip(most, deltas, strict=True):
            if delta is None:
                self.take("", line)
            else:
                self._text.append(delta.content or delta.refusal or "")
        self.take("", last)

    def add(self, chunk: Json) -> None:
        """Add what one chunk says."""
        self._id = self._id or string(chunk.get("id"))
        self._model = self._model or string(chunk.get("model"))
        self.error = self.error or error_text(chunk.get("error"))
        if record(chunk.get("usage")):
            self._usage = _usage(chunk["usage"])
        for choice in records(chunk.get("choices")):
            self._choose(choice)

    def _choose(self, choice: Json) -> None:
        at = number(choice.get("index"))
        whole = record(choice.get("message"))
        delta = whole or record(choice.get("delta"))
        if at == 0:
            self._finish = string(choice.get("finish_reason")) or self._finish
            self._text.append(text_of(delta.get("content")) or string(delta.get("refusal")))
        for position, part in enumerate(records(delta.get("tool_calls"))):
            self._call(at, part, position if whole else None)

    def _call(self, choice: int, part: Json, position: int | None) -> None:
        index = part.get("index")
        key = (choice, index if type(index) is int else position)
        call_id, (name, said) = string(part.get("id")), called(part)
        call = self._open.get(key)
        # Some providers number every call 0, or not at all: a name under another id is another call.
        if call is None or (name and call_id != call.call_id and (call_id or key[1] is None)):
            call = self._open[key] = _Call()
            self._calls.append(call)
        call.call_id = call.call_id or call_id
        call.name = call.name or name
        call.said.append(said)

    def answer(self) -> Answer:
        """The answer as far as it has come."""
        return Answer(
            id=self._id,
            model=self._model,
            finish=self._finish,
            text="".join(self._text),
            calls=tuple(
                ToolUse(index, call.call_id, call.name, "".join(call.said)) for index, call in enumerate(self._calls)
            ),
            usage=self._usage,
            complete=self._done or bool(self._finish),
            error=self.error,
        )


def _usage(usage: Json) -> Usage:
    """Tokens as reported; where details are missing, the names that other providers use are looked for."""
    asked, said = record(usage.get("prompt_tokens_details")), record(usage.get("completion_tokens_details"))
    cached = [told for told in (asked.get("cached_tokens"), usage.get("prompt_cache_hit_tokens")) if type(told) is int]
    return Usage(
        input=number(usage.get("prompt_tokens")),
        cached=max(cached, default=0),
        written=number(asked.get("cache_write_tokens")) or number(asked.get("cache_creation_tokens")),
        output=number(usage.get("completion_tokens")),
        reasoning=number(said.get("reasoning_tokens")),
        tells_cached=bool(cached),
    )
