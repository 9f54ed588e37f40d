"""OpenAI Responses: a list of typed items in, a list of typed items out."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from pager.request_values import Answer, Block, Kind, Request, Span
from pager.tools.decide_forms import Toolset
from pager.wire import dialect
from pager.wire.common import (
    Json,
    arguments,
    content_blocks,
    dumps,
    exactly,
    hints,
    holds,
    is_empty,
    loads,
    member,
    openai_error,
    parts,
    record,
    request_in,
    result_blocks,
    set_members,
    string,
    system_digest,
    text_of,
    tidy,
    whole_answer,
    written,
)
from pager.wire.page_spans import PageSpan, argument_spans, reachable, result_span
from pager.wire.parse_cache import ParseCache
from pager.wire.responses import restore
from pager.wire.responses.answer import RESPONSES, Response, ResponsesAnswer, read
from pager.wire.responses.stitch import ResponsesStitcher
from pager.wire.stitching import CallFilter
from pager.wire.tool_lists import Layout, not_a_function

# Item ids and states are the provider's, and some clients drop them; the passthrough is Codex talking to its backend.
_DECORATION = frozenset({"cache_control", "id", "internal_chat_message_metadata_passthrough", "status"})
_STATE = ("previous_response_id", "conversation")
_SPEAKERS = {
    "function_call": "assistant",
    "custom_tool_call": "assistant",
    "reasoning": "assistant",
    "function_call_output": "tool",
    "custom_tool_call_output": "tool",
}


class Dialect(dialect.Dialect):
    """The Responses wire format."""

    name = "responses"
    path = "/responses"
    cache_members = True
    count_path = "/responses/input_tokens"
    resources = ("/responses", "/conversations")
    base_url = "https://api.openai.com/v1"
    items_key = "input"
    prompt_members = ("tools", "instructions")
    # Where a client does not say, schemas are enforced if they can be.
    layout = Layout("", "parameters", not_a_function, lambda tool: tool.get("strict") is not False)
    draft = ResponsesAnswer
    chains = True
    tool_slot = staticmethod(restore.tool_slot)
    appended = staticmethod(restore.appended)
    expand = staticmethod(restore.expand)
    error = staticmethod(openai_error)

    def refresh(self, body: bytes) -> bytes | None:
        """The request for as little output as is allowed, not stored; None where the provider holds a conversation."""
        asked = record(loads(body))
        if asked.get("previous_response_id") or asked.get("conversation") or asked.get("background"):
            return None
        return set_members(body, {"max_output_tokens": b"16", "stream": b"false", "store": b"false"})

    def parse(self, body: bytes, cache: ParseCache | None = None, *, path: str = "") -> Request:  # noqa: ARG002 - the body has it all
        """Find the parts of a request body; raises NotUnderstood."""
        request = request_in(body, self.name, self.items_key, cache, may_be_text=True)
        return replace(
            request,
            has_tools=holds(request, "tools") or _carries_tools(request),
            system=system_digest(request, "instructions"),
            session_hints=hints(request, "metadata.session_id", "conversation", "conversation.id", "prompt_cache_key"),
            server_state=_server_state(request),
            follows=string(member(request, "previous_response_id")),
        )

    def _read(self, item: Json) -> tuple[str, Json, Iterator[Block]]:
        kind = _kind(item)
        role = string(item.get("role")) or _SPEAKERS.get(kind, kind)
        return role, _normal(kind, item), _blocks(kind, item)

    def page_spans(self, raw: bytes) -> list[PageSpan]:
        """The place of a tool's result, or those of a call's arguments."""
        item = exactly(raw)
        kind, call_id = _kind(item), string(item.get("call_id"))
        if kind in ("function_call_output", "custom_tool_call_output"):
            return reachable(raw, result_span(item.get("output"), ("output",), call_id))
        if kind != "function_call":
            return []
        text, name = string(item.get("arguments")), string(item.get("name"))
        return reachable(raw, argument_spans(text, call_id, name, ("arguments",)))

    def tool(self, name: str, description: str, parameters: Mapping[str, Any]) -> Json:
        """A function that is not strict: OpenAI would otherwise make every parameter a required one."""
        function = {"name": name, "description": description, "parameters": parameters}
        return {"type": "function", **function, "strict": False}

    def tool_call(self, number: str, tool: str, arguments: Mapping[str, Any]) -> bytes:
        """A response with one function_call item."""
        call = {"name": tool, "arguments": dumps(arguments), "status": "completed"}
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", **call}
        return orjson.dumps({"id": number, "object": "response", "status": "completed", "output": [item]})

    def stitcher(self, tool: str, guard: CallFilter, tools: Toolset | None = None) -> ResponsesStitcher:
        """The state machine for one call to which the tool with this name was added."""
        return ResponsesStitcher(tool, guard, tools)

    def read(self, body: bytes) -> Answer:
        """Read a whole, unstreamed answer; raises NotUnderstood."""
        whole_answer(body, "output", "response")
        draft = ResponsesAnswer()
        draft.whole(read(RESPONSES, body) or Response())
        return draft.answer()


def _carries_tools(request: Request) -> bool:
    """Whether an item brings tools: Codex puts them there for newer models."""
    carried = (memoryview(item.tools) for _, item in restore.of_type(request, "additional_tools"))
    return any(not is_empty(raw, Span(0, len(raw))) for raw in carried)


def _server_state(request: Request) -> str:
    """The field that makes the provider hold a part; what is not stored can't be referred to either."""
    named = next((name for name in _STATE if holds(request, name)), "")
    if named or member(request, "store") is False:
        return named
    return next((item.type for _, item in restore.of_type(request, "item_reference")), "")


def _kind(item: Json) -> str:
    """The item's type; a message may leave it out, and so may a reference, which is an id alone."""
    return string(item.get("type")) or ("item_reference" if "role" not in item and "id" in item else "message")


def _normal(kind: str, item: Json) -> Json:
    kept = {**(item if kind == "item_reference" else tidy(item, _DECORATION)), "type": kind}
    if kind == "message":
        kept["content"] = parts(item.get("content"))
    if "output" in item:
        kept["output"] = parts(item["output"])
    if "arguments" in item:
        kept["arguments"] = arguments(item["arguments"])
    return tidy(kept)


def _blocks(kind: str, item: Json) -> Iterator[Block]:
    call_id, name = string(item.get("call_id")), string(item.get("name"))
    if kind == "message":
        yield from content_blocks(item.get("content"))
    elif kind in ("function_call", "custom_tool_call"):
        yield Block(Kind.CALL, written(item.get("arguments" if kind == "function_call" else "input")), call_id, name)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield from result_blocks(item.get("output"), call_id, name)
    elif kind == "reasoning":
        thoughts = (text_of(item.get("summary")), text_of(item.get("content")))
        yield Block(Kind.REASONING, "\n".join(text for text in thoughts if text))
    else:
        yield Block(Kind.OTHER, dumps(item), call_id, name)
