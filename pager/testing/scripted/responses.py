"""The scripted model in the words of OpenAI's Responses."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

from pager.testing.scripted.chat import openai_error, openai_headers, overflow
from pager.testing.scripted.common import (
    Json,
    Turn,
    bits,
    event,
    words,
)
from pager.testing.scripted.prompt_cache import Piece, PromptCache, piece
from pager.values import Usage

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


class Responses:
    """Responses, from the provider's side."""

    name = "responses"

    def prompt(self, request: Mapping[str, Any]) -> list[Piece]:
        """Tools, then instructions, then items."""
        given = request.get("input") or []
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        return [piece(part) for part in [*(request.get("tools") or []), request.get("instructions"), *items]]

    def cost(self, cache: PromptCache, request: Mapping[str, Any]) -> Usage:
        """OpenAI caches without being asked."""
        return cache.read(str(request.get("model")), self.prompt(request))

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

    def error(self, status: int, message: str, request_id: str) -> Json:  # noqa: ARG002 - OpenAI has it in a header
        """OpenAI's error object."""
        return openai_error(status, message)

    def too_long(self, count: int, limit: int) -> Json:
        """OpenAI's words for a prompt that does not fit."""
        return overflow(f"your input resulted in {count} tokens", limit, "input")

    def stumble(self, message: str, sequence: int) -> bytes:
        """An error event."""
        return _emit(sequence, "error", code="server_error", message=message, param=None)

    def headers(self, request_id: str) -> dict[str, str]:
        """OpenAI's own headers."""
        return openai_headers(request_id)


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
