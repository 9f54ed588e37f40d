"""OpenAI Responses: a list of typed items in, a list of typed items out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

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
)
from pager.wire import dialect
from pager.wire.common import (
    Envelope,
    Json,
    Reader,
    arguments,
    content_blocks,
    dumps,
    exactly,
    is_empty,
    loads,
    member_edit,
    message,
    openai_error,
    parts,
    record,
    result_blocks,
    string,
    text_of,
    tidy,
    written,
)
from pager.wire.dialect import AnswerReader
from pager.wire.json_spans import Elements
from pager.wire.page_spans import PageSpan, argument_spans, reachable, result_span
from pager.wire.parse_cache import ParseCache
from pager.wire.responses.answer import RESPONSES, Response, ResponsesAnswer, read
from pager.wire.responses.restore import (
    appended,
    expand,
    of_type,
    tool_slot,
)
from pager.wire.responses.stitch import ResponsesStitcher
from pager.wire.stitching import (
    CallFilter,
    Expansion,
    Leg,
    ToolSlot,
)
from pager.wire.tool_lists import Layout, not_a_function, offers

# Where a client does not say, schemas are enforced if they can be.
LAYOUT = Layout("", "parameters", not_a_function, lambda tool: tool.get("strict") is not False)
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
_NO_ELEMENTS: Final = Elements((), (), None, ())


class Dialect(dialect.Dialect):
    """The Responses wire format."""

    name = "responses"
    path = "/responses"
    count_path = "/responses/input_tokens"
    resources = ("/responses", "/conversations")
    base_url = "https://api.openai.com/v1"
    items_key = "input"
    prompt_members = ("tools", "instructions")
    chains = True

    def parse(self, body: bytes, cache: ParseCache | None = None, *, path: str = "") -> Request:  # noqa: ARG002 - the body has it all
        """Find the parts of a request body; raises NotUnderstood."""
        envelope = Envelope.of(body, self.items_key, cache)
        at = envelope.members["input"].start
        found = _NO_ELEMENTS if body[at : at + 1] == b'"' else envelope.elements()
        return envelope.request(
            self.name,
            found,
            has_tools=envelope.holds("tools") or _carries_tools(body, found),
            system=envelope.system("instructions"),
            hints=envelope.hints("metadata.session_id", "conversation", "conversation.id", "prompt_cache_key"),
            server_state=_server_state(envelope, found),
            follows=string(envelope.get("previous_response_id")),
        )

    def decode(self, raw: bytes | memoryview) -> Message:
        """Read one item."""
        return message(raw, _read)

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

    def tool_slot(self, request: Request) -> ToolSlot | str:
        """Where a tool of ours can be added to this request, or why it can't be."""
        return tool_slot(request)

    def forbid_calls(self, request: Request) -> tuple[Span, bytes]:
        """The edit of the body by which the model may call no tool."""
        return member_edit(request, "tool_choice", b'"none"')

    def offers(self, request: Request) -> Listed | None:
        """The tools that the request offers; None where there are none that could be sent shorter."""
        return offers(request, LAYOUT)

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

    def appended(self, leg: Leg) -> list[bytes]:
        """The items that a leg which is not mixed adds to the end of the prompt."""
        return appended(leg)

    def expand(self, items: Sequence[bytes], legs: Sequence[Leg], *, sure: bool = False) -> Expansion | None:
        """What the client sent after a call, with the call's hidden legs put back; None if their place is gone."""
        return expand(items, legs, sure=sure)

    def read(self, body: bytes) -> Answer:
        """Read a whole, unstreamed answer; raises NotUnderstood."""
        answer = record(loads(body))
        if "output" not in answer and "error" not in answer:
            raise NotUnderstood("the answer is no response: it has no 'output'")
        draft = ResponsesAnswer()
        draft.whole(read(RESPONSES, body) or Response())
        return draft.answer()

    def reader(self) -> AnswerReader:
        """A reader for one streamed answer."""
        return Reader(ResponsesAnswer())

    def error(self, status: int, message: str) -> bytes:
        """An error body as OpenAI would send it."""
        return openai_error(status, message)


def _carries_tools(body: bytes, found: Elements) -> bool:
    """Whether an item brings tools: Codex puts them there for newer models."""
    carried = (memoryview(item.tools) for _, item in of_type(body, found.items, found.starts, "additional_tools"))
    return any(not is_empty(raw, Span(0, len(raw))) for raw in carried)


def _server_state(envelope: Envelope, found: Elements) -> str:
    """The field that makes the provider hold a part; what is not stored can't be referred to either."""
    named = next((name for name in _STATE if envelope.holds(name)), "")
    if named or envelope.get("store") is False:
        return named
    references = of_type(envelope.body, found.items, found.starts, "item_reference")
    return next((item.type for _, item in references), "")


def _kind(item: Json) -> str:
    """The item's type; a message may leave it out, and so may a reference, which is an id alone."""
    return string(item.get("type")) or ("item_reference" if "role" not in item and "id" in item else "message")


def _read(item: Json) -> tuple[str, Json, tuple[Block, ...]]:
    kind = _kind(item)
    role = string(item.get("role")) or _SPEAKERS.get(kind, kind)
    return role, _normal(kind, item), tuple(_blocks(kind, item))


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
        yield Block(Kind.CALL, _said(kind, item), call_id, name)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield from result_blocks(item.get("output"), lambda text: Block(Kind.RESULT, text, call_id, name))
    elif kind == "reasoning":
        thoughts = (text_of(item.get("summary")), text_of(item.get("content")))
        yield Block(Kind.REASONING, "\n".join(text for text in thoughts if text))
    else:
        yield Block(Kind.OTHER, dumps(item), call_id, name)


def _said(kind: str, item: Json) -> str:
    """The arguments of a call, or the free text of a custom tool's."""
    return written(item.get("arguments" if kind == "function_call" else "input"))
