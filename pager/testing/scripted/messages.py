"""The scripted model in the words of Anthropic's Messages."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pager.testing.scripted.common import (
    Json,
    Turn,
    bits,
    event,
    words,
)
from pager.testing.scripted.prompt_cache import (
    Piece,
    PromptCache,
    lifetime,
    piece,
)
from pager.testing.scripted.request_rules import signature
from pager.testing.scripted.script import Call
from pager.values import Usage

_STOP = {"stop": "end_turn", "length": "max_tokens", "tools": "tool_use", "refusal": "refusal"}
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class Messages:
    """Messages, from the provider's side."""

    name = "messages"

    def prompt(self, request: Mapping[str, Any]) -> list[Piece]:
        """Tools, then the system prompt, then messages, block by block, since any block may carry the mark."""
        system = request.get("system") or []
        blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
        said = [block for message in request.get("messages") or [] for block in _blocks(message)]
        parts = [piece(part) for part in [*(request.get("tools") or []), *blocks, *said]]
        if parts and (asked := lifetime({"cache_control": request.get("cache_control")})):
            parts[-1] = parts[-1]._replace(lifetime=asked)  # the request's own mark is for its last block
        return parts

    def cost(self, cache: PromptCache, request: Mapping[str, Any]) -> Usage:
        """Anthropic caches what the client marks."""
        return cache.read_marked(str(request.get("model")), self.prompt(request))

    def whole(self, turn: Turn) -> Json:
        """One message object."""
        return {**_frame(turn), "content": list(_content(turn)), **_ending(turn), "usage": _usage(turn.usage)}

    def stream(self, turn: Turn) -> Iterator[bytes]:
        """message_start, the blocks, message_delta, message_stop."""
        started = {**_usage(turn.usage), "output_tokens": 1}
        opening = {**_frame(turn), "content": [], "stop_reason": None, "stop_sequence": None, "usage": started}
        yield _event("message_start", message=opening)
        for index, block in enumerate(_content(turn)):
            yield _event("content_block_start", index=index, content_block=_hollow(block))
            if index == 0:
                yield _event("ping")
            for delta in _deltas(block):
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        yield _event("message_delta", delta=_ending(turn), usage=_tally(turn.usage))
        yield _event("message_stop")

    def error(self, status: int, message: str, request_id: str) -> Json:
        """Anthropic's error object."""
        return anthropic_error(status, message, request_id)

    def too_long(self, count: int, limit: int) -> Json:
        """Anthropic's words for a prompt that does not fit."""
        return anthropic_error(400, f"prompt is too long: {count} tokens > {limit} maximum", "req_scripted")

    def stumble(self, message: str, sequence: int) -> bytes:  # noqa: ARG002 - events are not numbered
        """An error event, as sent when the provider is overloaded."""
        return _event("error", error={"type": "overloaded_error", "message": message})

    def headers(self, request_id: str) -> dict[str, str]:
        """Anthropic's own headers."""
        return {
            "request-id": request_id,
            "anthropic-organization-id": "00000000-0000-4000-8000-000000000000",
            "anthropic-ratelimit-requests-limit": "4000",
            "anthropic-ratelimit-requests-remaining": "3999",
        }


def anthropic_error(status: int, message: str, request_id: str) -> Json:
    """What Anthropic says when something is wrong."""
    kind = _TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def _blocks(message: Mapping[str, Any]) -> list[Json]:
    content = message.get("content") or []
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [{"role": message.get("role"), **block} for block in blocks]


def _frame(turn: Turn) -> Json:
    return {"id": turn.id("msg_"), "type": "message", "role": "assistant", "model": turn.model}


def _ending(turn: Turn) -> Json:
    return {"stop_reason": _STOP[turn.say.ending], "stop_sequence": None}


def _content(turn: Turn) -> Iterator[Json]:
    if turn.say.reasoning:
        yield {"type": "thinking", "thinking": turn.say.reasoning, "signature": signature(turn.say.reasoning)}
    if turn.say.text:
        yield {"type": "text", "text": turn.say.text}
    for at, call in enumerate(turn.say.calls):
        yield {"type": "tool_use", "id": turn.id("toolu_", at), "name": call.name, "input": _input(call)}


def _input(call: Call) -> Json:
    if isinstance(call.arguments, str):
        raise TypeError("Messages carries arguments as an object: a script for it can't give them as a string")
    return dict(call.arguments)


def _hollow(block: Json) -> Json:
    """A block as it starts, its content yet to come."""
    empty = {"thinking": "", "signature": "", "text": "", "input": {}}
    return {key: empty.get(key, value) for key, value in block.items()}


def _deltas(block: Json) -> Iterator[Json]:
    if block["type"] == "thinking":
        yield from ({"type": "thinking_delta", "thinking": word} for word in words(block["thinking"]))
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif block["type"] == "text":
        yield from ({"type": "text_delta", "text": word} for word in words(block["text"]))
    else:
        pieces = ["", *bits(json.dumps(block["input"]))]
        yield from ({"type": "input_json_delta", "partial_json": bit} for bit in pieces)


def _event(kind: str, **data: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return event({"type": kind, **data}, kind)


def _usage(usage: Usage) -> Json:
    return {
        **_tally(usage),
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.written_5m,
            "ephemeral_1h_input_tokens": usage.written_1h,
        },
        "service_tier": "standard",
    }


def _tally(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input - usage.cached - usage.written,
        "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }
