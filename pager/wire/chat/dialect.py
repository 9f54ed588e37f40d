"""OpenAI Chat Completions: what many clients and nearly all other providers speak."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from pager.request_values import Answer, Block, Kind, Request
from pager.tools.decide_forms import Toolset
from pager.wire import dialect
from pager.wire.chat import restore, tool_slot
from pager.wire.chat.answer import ChatAnswer, called
from pager.wire.chat.stitch import ChatStitcher
from pager.wire.common import (
    Json,
    arguments,
    content_blocks,
    dumps,
    exactly,
    hints,
    holds,
    loads,
    openai_error,
    parts,
    record,
    records,
    request_in,
    result_blocks,
    set_members,
    string,
    tidy,
    whole_answer,
    written,
)
from pager.wire.page_spans import PageSpan, argument_spans, reachable, result_span
from pager.wire.parse_cache import ParseCache
from pager.wire.stitching import CallFilter
from pager.wire.tool_lists import Layout, not_a_function

# Keys that SDKs add to an answer when they send it back; the model never sees them.
_DECORATION = frozenset({"annotations", "cache_control", "id", "parsed", "provider_specific_fields"})
_CALL_DECORATION = frozenset({"cache_control", "index", "parsed_arguments", "provider_specific_fields"})


class Dialect(dialect.Dialect):
    """The Chat Completions wire format."""

    name = "chat"
    path = "/chat/completions"
    cache_members = True
    resources = ("",)  # what no other dialect claims
    base_url = "https://api.openai.com/v1"
    items_key = "messages"
    prompt_members = ("tools", "functions")
    layout = Layout("function", "parameters", not_a_function, lambda tool: tool.get("strict") is True)
    draft = ChatAnswer
    ends_on_error = False
    tool_slot = staticmethod(tool_slot.tool_slot)
    appended = staticmethod(restore.appended)
    expand = staticmethod(restore.expand)
    error = staticmethod(openai_error)

    def refresh(self, body: bytes) -> bytes | None:
        """The request for one token of output."""
        asked = record(loads(body))
        limit = "max_tokens" if asked.get("max_tokens") is not None else "max_completion_tokens"
        values = {limit: b"1", "stream": b"false"}
        if "stream_options" in asked:
            values["stream_options"] = b"null"
        return set_members(body, values | ({"n": b"1"} if "n" in asked else {}))

    def parse(self, body: bytes, cache: ParseCache | None = None, *, path: str = "") -> Request:  # noqa: ARG002 - the body has it all
        """Find the parts of a request body; raises NotUnderstood."""
        request = request_in(body, self.name, self.items_key, cache)
        return replace(
            request,
            has_tools=holds(request, "tools") or holds(request, "functions"),
            session_hints=hints(request, "metadata.session_id", "prompt_cache_key"),
        )

    def _read(self, item: Json) -> tuple[str, Json, Iterator[Block]]:
        return string(item.get("role")), _normal(item), _blocks(item)

    def page_spans(self, raw: bytes) -> list[PageSpan]:
        """The places of a tool's result or of a call's arguments."""
        item = exactly(raw)
        if item.get("role") == "tool":
            return reachable(raw, result_span(item.get("content"), ("content",), string(item.get("tool_call_id"))))
        found: list[PageSpan] = []
        calls = item.get("tool_calls")
        for index, call in enumerate(calls if isinstance(calls, list) else ()):
            function, path = record(record(call).get("function")), ("tool_calls", index, "function", "arguments")
            call_id, text = string(record(call).get("id")), string(function.get("arguments"))
            found += argument_spans(text, call_id, string(function.get("name")), path)
        return reachable(raw, found)

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

    def stitcher(self, tool: str, guard: CallFilter, tools: Toolset | None = None) -> ChatStitcher:  # noqa: ARG002 - none is repeated
        """The state machine for one call to which the tool with this name was added."""
        return ChatStitcher(tool, guard)

    def read(self, body: bytes) -> Answer:
        """Read a whole, unstreamed answer; raises NotUnderstood."""
        draft = ChatAnswer()
        draft.add(whole_answer(body, "choices", "chat completion"))
        return replace(draft.answer(), complete=not draft.error)


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
        yield from result_blocks(content, call_id, name)
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
