"""The scripted model in the words of OpenAI's Responses."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from pager.request_values import Usage
from pager.wire.scripted import (
    Json,
    Piece,
    Request,
    ScriptedOpenAI,
    Turn,
    bits,
    decoded,
    event,
    is_json,
    listed,
    piece,
    repeated,
    words,
)

# What a response repeats of its request, with OpenAI's value where the client gave none.
_ECHOED: Json = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}

Emit = Callable[..., bytes]


class Scripted(ScriptedOpenAI):
    """Responses, from the provider's side."""

    name = "responses"

    def prompt(self, request: Request) -> list[Piece]:
        """Tools, then instructions, then items."""
        given = request.get("input") or []
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        return [piece(part) for part in [*(request.get("tools") or []), request.get("instructions"), *items]]

    def tools(self, request: Request) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The tools of the request, and those that items bring."""
        entries = listed(request, "tools")
        for item in listed(request, "input"):
            if item.get("type") == "additional_tools":
                entries += listed(item, "tools")
        for entry in entries:
            if entry.get("name"):
                yield str(entry["name"]), entry.get("parameters") or {}

    def used(self, request: Request) -> Iterator[tuple[str, object]]:
        """The items of calls and their outputs."""
        for item in listed(request, "input"):
            match item:
                case {"type": "function_call", "name": str(name), "arguments": arguments}:
                    yield name, decoded(arguments)
                case {"type": "custom_tool_call", "name": str(name), "input": text}:
                    yield name, text
                case {"type": "function_call_output" | "custom_tool_call_output", "output": result}:
                    yield "", result

    def problems(self, request: Request) -> Iterator[str]:
        """Calls must be answered anywhere after them; reasoning must be followed by what it led to."""
        items = listed(request, "input")
        elsewhere = bool(request.get("previous_response_id") or request.get("conversation"))
        yield from _kinds(items)
        yield from _paired(items, elsewhere=elsewhere)
        yield from _lonely_thoughts(items)
        if twice := repeated(str(item["id"]) for item in items if item.get("id")):
            yield f"Duplicate item found with id {twice[0]}. Remove duplicate items from your input and try again."

    def counted(self, tokens: int) -> Json:
        """The answer of input_tokens."""
        return {"object": "response.input_tokens", "input_tokens": tokens}

    def whole(self, turn: Turn) -> Json:
        """One response object."""
        return _response(turn, list(_items(turn)), done=True)

    def stream(self, turn: Turn) -> Iterator[bytes]:
        """Numbered events, from response.created to response.completed."""
        emit, items = _numbered(), list(_items(turn))
        opening = _response(turn, [], done=False)
        yield emit("response.created", response=opening)
        yield emit("response.in_progress", response=opening)
        for index, item in enumerate(items):
            yield emit("response.output_item.added", output_index=index, item=_hollow(item))
            yield from _inside(emit, item, {"item_id": item["id"], "output_index": index})
            yield emit("response.output_item.done", output_index=index, item=item)
        closing = _response(turn, items, done=True)
        yield emit(f"response.{closing['status']}", response=closing)

    def too_long(self, count: int, limit: int) -> Json:
        """OpenAI's words for a prompt that does not fit."""
        return self.overflow(f"your input resulted in {count} tokens", limit, "input")

    def stumble(self, message: str, sequence: int) -> bytes:
        """An error event."""
        return _emit(sequence, "error", code="server_error", message=message, param=None)


def _numbered() -> Emit:
    numbers = count()
    return lambda kind, **data: _emit(next(numbers), kind, **data)


def _emit(sequence: int, kind: str, **data: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return event({"type": kind, "sequence_number": sequence, **data}, kind)


def _response(turn: Turn, output: list[Json], *, done: bool) -> Json:
    echoed = {key: turn.request.get(key, default) for key, default in _ECHOED.items()}
    cut_short = {"length": "max_output_tokens", "refusal": "content_filter"}.get(turn.say.ending) if done else None
    return {
        "id": turn.id("resp_"),
        "object": "response",
        "created_at": turn.created,
        "completed_at": turn.created + 1 if done and not cut_short else None,
        "status": ("incomplete" if cut_short else "completed") if done else "in_progress",
        "error": None,
        "incomplete_details": {"reason": cut_short} if cut_short else None,
        "model": turn.model,
        "output": output,
        **echoed,
        "usage": _usage(turn.usage) if done else None,
    }


def _items(turn: Turn) -> Iterator[Json]:
    if turn.say.reasoning:
        yield _thought(turn)
    if turn.say.text or not turn.say.calls:
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": turn.say.text}
        status = "incomplete" if turn.say.ending == "length" else "completed"
        yield {"id": turn.id("msg_"), "type": "message", "status": status, "role": "assistant", "content": [part]}
    for at, call in enumerate(turn.say.calls):
        yield {
            "id": turn.id("fc_", at),
            "type": "function_call",
            "status": "completed",
            "arguments": call.text,
            "call_id": turn.id("call_", at),
            "name": call.name,
        }


def _thought(turn: Turn) -> Json:
    summary = [{"type": "summary_text", "text": turn.say.reasoning}]
    item: Json = {"id": turn.id("rs_"), "type": "reasoning", "summary": summary}
    if "reasoning.encrypted_content" in (turn.request.get("include") or []):
        item["encrypted_content"] = turn.id("gAAAA") * 8
    return item


def _hollow(item: Json) -> Json:
    """An item as it starts, its content yet to come."""
    empty = {"summary": [], "content": [], "arguments": ""}
    started = {"status": "in_progress"} if "status" in item else {}
    return {key: empty.get(key, value) for key, value in item.items()} | started


def _inside(emit: Emit, item: Json, place: Json) -> Iterator[bytes]:
    """The events between an item's start and its end."""
    if item["type"] == "reasoning":
        yield from _summary(emit, item["summary"][0], {**place, "summary_index": 0})
    elif item["type"] == "message":
        yield from _text(emit, item["content"][0], {**place, "content_index": 0})
    else:
        for bit in bits(item["arguments"]):
            yield emit("response.function_call_arguments.delta", **place, delta=bit)
        yield emit("response.function_call_arguments.done", **place, arguments=item["arguments"], name=item["name"])


def _summary(emit: Emit, part: Json, place: Json) -> Iterator[bytes]:
    yield emit("response.reasoning_summary_part.added", **place, part={**part, "text": ""})
    for word in words(part["text"]):
        yield emit("response.reasoning_summary_text.delta", **place, delta=word)
    yield emit("response.reasoning_summary_text.done", **place, text=part["text"])
    yield emit("response.reasoning_summary_part.done", **place, part=part)


def _text(emit: Emit, part: Json, place: Json) -> Iterator[bytes]:
    yield emit("response.content_part.added", **place, part={**part, "text": ""})
    for word in words(part["text"]):
        yield emit("response.output_text.delta", **place, delta=word, logprobs=[])
    yield emit("response.output_text.done", **place, text=part["text"], logprobs=[])
    yield emit("response.content_part.done", **place, part=part)


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.written},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


# What OpenAI refuses


_OUTPUTS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
_KINDS = {"message", "reasoning", "item_reference", "compaction", "compaction_trigger", "configuration_update"} | {
    *("additional_tools", "tool_search_call", "tool_search_output", "computer_call_output", "local_shell_call_output"),
    *("shell_call_output", "apply_patch_call_output", "mcp_list_tools", "mcp_approval_request"),
    *("mcp_approval_response", *_OUTPUTS.values()),
}


def _kinds(items: Sequence[Request]) -> Iterator[str]:
    for at, item in enumerate(items):
        kind = _kind(item)
        if kind not in _KINDS and not kind.endswith("_call"):
            yield f"Invalid value: '{kind}'. (input[{at}].type)"
        if kind == "function_call" and not is_json(item.get("arguments")):
            yield f"input[{at}].arguments is not valid JSON."


def _kind(item: Request) -> str:
    return str(item.get("type") or ("message" if "role" in item else ""))


def _paired(items: Sequence[Request], *, elsewhere: bool) -> Iterator[str]:
    """Every output after its call, every call with its output; ``elsewhere`` the provider may know calls of its own."""
    made: dict[str, str] = {}
    waiting: set[str] = set()
    for kind, call in ((_kind(item), str(item.get("call_id"))) for item in items):
        if kind in _OUTPUTS:
            if call in made:
                yield f"Duplicate function call found with call_id {call}."
            made[call] = _OUTPUTS[kind]
            waiting.add(call)
        elif kind in _OUTPUTS.values():
            known = made.get(call) == kind and call in waiting
            if not known and not (elsewhere and call not in made):
                yield f"No tool call found for {kind.replace('_', ' ')} with call_id {call}."
            waiting.discard(call)
    yield from (f"No tool output found for function call {call}." for call in made if call in waiting)


def _lonely_thoughts(items: Sequence[Request]) -> Iterator[str]:
    for item, following in zip(items, [*items[1:], {}], strict=False):
        if _kind(item) != "reasoning":
            continue
        said = _kind(following) == "message" and following.get("role") == "assistant"
        if not said and not _kind(following).endswith("_call") and _kind(following) != "reasoning":
            yield f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
