"""The scripted model in the words of OpenAI's Chat Completions."""

from collections.abc import Iterator, Mapping
from typing import Any

from pager.testing.scripted.common import (
    Json,
    Turn,
    bits,
    event,
    words,
)
from pager.testing.scripted.prompt_cache import Piece, PromptCache, piece
from pager.values import Usage

_FINISH = {"stop": "stop", "length": "length", "tools": "tool_calls", "refusal": "content_filter"}
_TYPES = {429: "rate_limit_error", 401: "authentication_error"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
DONE = b"data: [DONE]\n\n"


class Chat:
    """Chat Completions, from the provider's side."""

    name = "chat"

    def prompt(self, request: Mapping[str, Any]) -> list[Piece]:
        """Tools, then messages."""
        return [piece(part) for part in [*(request.get("tools") or []), *(request.get("messages") or [])]]

    def cost(self, cache: PromptCache, request: Mapping[str, Any]) -> Usage:
        """OpenAI caches without being asked."""
        return cache.read(str(request.get("model")), self.prompt(request))

    def whole(self, turn: Turn) -> Json:
        """One chat.completion object."""
        choice = {"index": 0, "message": _message(turn), "logprobs": None, "finish_reason": _FINISH[turn.say.ending]}
        return {**_frame(turn, "chat.completion"), "choices": [choice], "usage": _usage(turn.usage)}

    def stream(self, turn: Turn) -> Iterator[bytes]:
        """Chunks, a usage chunk if the client asked for it, and [DONE]."""
        options = turn.request.get("stream_options") or {}
        frame = _frame(turn, "chat.completion.chunk")
        usage: Json = {"usage": None} if options.get("include_usage") else {}
        padded = options.get("include_obfuscation", True)
        for at, delta in enumerate(_deltas(turn)):
            pad = {"obfuscation": turn.id("", at)[: 4 + at % 8]} if padded else {}
            yield event({**frame, "choices": [_choice(delta, None)], **usage, **pad})
        yield event({**frame, "choices": [_choice({}, _FINISH[turn.say.ending])], **usage})
        if usage:
            yield event({**frame, "choices": [], "usage": _usage(turn.usage)})
        yield DONE

    def error(self, status: int, message: str, request_id: str) -> Json:  # noqa: ARG002 - OpenAI has it in a header
        """OpenAI's error object."""
        return {"error": _error(status, message)}

    def too_long(self, count: int, limit: int) -> Json:
        """OpenAI's words for a prompt that does not fit."""
        return overflow(f"your messages resulted in {count} tokens", limit, "messages")

    def stumble(self, message: str, sequence: int) -> bytes:  # noqa: ARG002 - chunks are not numbered
        """An error in place of a chunk."""
        return event({"error": _error(500, message)})

    def headers(self, request_id: str) -> dict[str, str]:
        """OpenAI's own headers."""
        return openai_headers(request_id)


def openai_headers(request_id: str) -> dict[str, str]:
    """What OpenAI sends with every answer."""
    return {
        "x-request-id": request_id,
        "openai-organization": "scripted",
        "openai-processing-ms": "7",
        "openai-version": "2020-10-01",
        "x-ratelimit-limit-requests": "10000",
        "x-ratelimit-remaining-requests": "9999",
    }


def openai_error(status: int, message: str) -> Json:
    """What OpenAI says when something is wrong."""
    return {"error": _error(status, message)}


def overflow(found: str, limit: int, param: str) -> Json:
    """What OpenAI says of a prompt that does not fit."""
    window = f"This model's maximum context length is {limit} tokens."
    message = f"{window} However, {found}. Please reduce the length of the {param}."
    return {"error": {**_error(400, message), "param": param, "code": "context_length_exceeded"}}


def _error(status: int, message: str) -> Json:
    kind = "server_error" if status >= 500 else _TYPES.get(status, "invalid_request_error")
    return {"message": message, "type": kind, "param": None, "code": _CODES.get(status)}


def _frame(turn: Turn, kind: str) -> Json:
    return {
        "id": turn.id("chatcmpl-"),
        "object": kind,
        "created": turn.created,
        "model": turn.model,
        "service_tier": "default",
        "system_fingerprint": "fp_scripted01",
    }


def _message(turn: Turn) -> Json:
    message: Json = {"role": "assistant", "content": turn.say.text or None, "refusal": None, "annotations": []}
    if turn.say.reasoning:
        # Not OpenAI's own, but what most servers that speak this format send.
        message["reasoning_content"] = turn.say.reasoning
    if turn.say.calls:
        message["tool_calls"] = [
            {"id": turn.id("call_", at), "type": "function", "function": {"name": call.name, "arguments": call.text}}
            for at, call in enumerate(turn.say.calls)
        ]
    return message


def _deltas(turn: Turn) -> Iterator[Json]:
    say = turn.say
    only_calls = bool(say.calls) and not say.text and not say.reasoning
    yield {"role": "assistant", "content": None if only_calls else "", "refusal": None}
    for word in words(say.reasoning):
        yield {"reasoning_content": word}
    for word in words(say.text):
        yield {"content": word}
    for at, call in enumerate(say.calls):
        function = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": at, "id": turn.id("call_", at), "type": "function", "function": function}]}
        for bit in bits(call.text):
            yield {"tool_calls": [{"index": at, "function": {"arguments": bit}}]}


def _choice(delta: Json, finish: str | None) -> Json:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _usage(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached,
            "cache_write_tokens": usage.written,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
