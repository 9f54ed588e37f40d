"""A client that offers tools and runs those that the model calls, in each wire format."""

import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import orjson

from benchmarks.schemas.tools import OfferedTool

Json = dict[str, Any]

_SYSTEM = "You are a careful assistant. Use the tools that you are offered."
_TASK = "Look after my projects today."
_LONGEST = 200  # calls: more than any session has
_SECONDS = 60.0


class ToolCallMade(NamedTuple):
    """A call as the client got it."""

    id: str
    name: str
    arguments: str


class ClientWire(Protocol):
    """How a wire format writes a session."""

    path: str
    items: str

    def head(self, tools: Sequence[OfferedTool]) -> Json:
        """All of a request but its history."""

    def calls(self, answer: Json) -> list[ToolCallMade]:
        """The calls of an answer."""

    def said(self, answer: Json) -> list[Json]:
        """An answer as the history repeats it."""

    def results(self, texts: Mapping[str, str]) -> list[Json]:
        """What the tools gave, by the ids of their calls."""


class ChatClient:
    """Chat Completions."""

    path, items = "/v1/chat/completions", "messages"

    def head(self, tools: Sequence[OfferedTool]) -> Json:
        functions = [{"name": one.name, "description": one.description, "parameters": one.schema} for one in tools]
        return {"model": "gpt-4.1", "tools": [{"type": "function", "function": one} for one in functions]}

    def calls(self, answer: Json) -> list[ToolCallMade]:
        made = answer["choices"][0]["message"].get("tool_calls") or []
        return [ToolCallMade(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in made]

    def said(self, answer: Json) -> list[Json]:
        return [answer["choices"][0]["message"]]

    def results(self, texts: Mapping[str, str]) -> list[Json]:
        return [{"role": "tool", "tool_call_id": call, "content": text} for call, text in texts.items()]


class MessagesClient:
    """Anthropic Messages."""

    path, items = "/v1/messages", "messages"

    def head(self, tools: Sequence[OfferedTool]) -> Json:
        listed = [{"name": one.name, "description": one.description, "input_schema": one.schema} for one in tools]
        return {"model": "claude-sonnet-4-5", "max_tokens": 4_000, "system": _SYSTEM, "tools": listed}

    def calls(self, answer: Json) -> list[ToolCallMade]:
        made = [block for block in answer["content"] if block["type"] == "tool_use"]
        return [ToolCallMade(one["id"], one["name"], orjson.dumps(one["input"]).decode()) for one in made]

    def said(self, answer: Json) -> list[Json]:
        return [{"role": "assistant", "content": answer["content"]}]

    def results(self, texts: Mapping[str, str]) -> list[Json]:
        blocks = [{"type": "tool_result", "tool_use_id": call, "content": text} for call, text in texts.items()]
        return [{"role": "user", "content": blocks}]


class ResponsesClient:
    """OpenAI's Responses."""

    path, items = "/v1/responses", "input"

    def head(self, tools: Sequence[OfferedTool]) -> Json:
        functions = [{"name": one.name, "description": one.description, "parameters": one.schema} for one in tools]
        listed = [{"type": "function", **one, "strict": False} for one in functions]
        return {"model": "gpt-4.1", "store": False, "instructions": _SYSTEM, "tools": listed}

    def calls(self, answer: Json) -> list[ToolCallMade]:
        made = [item for item in answer["output"] if item["type"] == "function_call"]
        return [ToolCallMade(one["call_id"], one["name"], one["arguments"]) for one in made]

    def said(self, answer: Json) -> list[Json]:
        return list(answer["output"])

    def results(self, texts: Mapping[str, str]) -> list[Json]:
        return [{"type": "function_call_output", "call_id": call, "output": text} for call, text in texts.items()]


WIRES: Mapping[str, ClientWire] = {"chat": ChatClient(), "messages": MessagesClient(), "responses": ResponsesClient()}


def play(root: str, wire: ClientWire, session: str, tools: Sequence[OfferedTool]) -> list[ToolCallMade]:
    """Go on until an answer calls no tool; all calls in their order."""
    history: list[Json] = [{"role": "user", "content": _TASK}]
    head = wire.head(tools)
    made: list[ToolCallMade] = []
    for _ in range(_LONGEST):
        answer = _asked(f"{root}{wire.path}", session, {**head, wire.items: history})
        calls = wire.calls(answer)
        made += calls
        history += wire.said(answer)
        if not calls:
            return made
        history += wire.results({call.id: f"{call.name} was done, number {len(made)}." for call in calls})
    raise RuntimeError(f"{session} does not end")


def _asked(url: str, session: str, body: Json) -> Json:
    headers = {"content-type": "application/json", "authorization": "Bearer sk-bench", "x-session-id": session}
    request = urllib.request.Request(url, orjson.dumps(body), headers)
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        found: Json = orjson.loads(answer.read())
    return found
