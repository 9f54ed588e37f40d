"""The scripted model in the words of OpenAI's Chat Completions."""

from collections.abc import Iterator, Mapping, Sequence
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

_FINISH = {"stop": "stop", "length": "length", "tools": "tool_calls", "refusal": "content_filter"}
DONE = b"data: [DONE]\n\n"


class Scripted(ScriptedOpenAI):
    """Chat Completions, from the provider's side."""

    name = "chat"

    def prompt(self, request: Request) -> list[Piece]:
        """Tools, then messages."""
        return [piece(part) for part in [*(request.get("tools") or []), *(request.get("messages") or [])]]

    def tools(self, request: Request) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Functions, and custom tools without parameters."""
        for entry in listed(request, "tools"):
            tool = entry.get("function") or entry.get("custom") or {}
            if tool.get("name"):
                yield str(tool["name"]), tool.get("parameters") or {}

    def used(self, request: Request) -> Iterator[tuple[str, object]]:
        """The assistant's tool_calls, and tool messages."""
        for message in listed(request, "messages"):
            for call in listed(message, "tool_calls"):
                function = call.get("function") or {}
                yield str(function.get("name")), decoded(function.get("arguments"))
            if message.get("role") == "tool":
                yield "", message.get("content")

    def problems(self, request: Request) -> Iterator[str]:
        """Calls must be answered by the tool messages right after them; a role can't say everything."""
        waiting: list[str] = []
        for at, message in enumerate(listed(request, "messages")):
            yield from _form(at, message)
            if message.get("role") == "tool":
                answered = message.get("tool_call_id")
                if answered not in waiting:
                    yield (
                        f"Invalid parameter: messages with role 'tool' must be a response to a preceding message with "
                        f"'tool_calls': messages[{at}] answers {answered}"
                    )
                waiting = [call for call in waiting if call != answered]
            else:
                yield from _unanswered(waiting)
                waiting = [str(call.get("id")) for call in listed(message, "tool_calls")]
                yield from (f"messages[{at}]: Duplicate value for 'tool_call_id': {call}" for call in repeated(waiting))
        yield from _unanswered(waiting)

    def counted(self, tokens: int) -> Json:  # noqa: ARG002
        """OpenAI has no endpoint that counts chats."""
        return {}

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

    def too_long(self, count: int, limit: int) -> Json:
        """OpenAI's words for a prompt that does not fit."""
        return self.overflow(f"your messages resulted in {count} tokens", limit, "messages")

    def stumble(self, message: str, sequence: int) -> bytes:  # noqa: ARG002 - chunks are not numbered
        """An error in place of a chunk."""
        return event(self.error(500, message))


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


# What OpenAI refuses


_PARTS: Mapping[str, frozenset[str]] = {
    "system": frozenset({"text"}),
    "developer": frozenset({"text"}),
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
    "tool": frozenset({"text", "image_url"}),
    "function": frozenset(),
}


def _unanswered(calls: Sequence[str]) -> Iterator[str]:
    if calls:
        yield (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(calls)}"
        )


def _form(at: int, message: Request) -> Iterator[str]:
    """What is wrong with the message by itself."""
    role, content = str(message.get("role")), message.get("content")
    if role not in _PARTS:
        yield f"Invalid value: '{role}'. Supported values are: {', '.join(_PARTS)}. (messages[{at}].role)"
        return
    calls = listed(message, "tool_calls")
    if not _is_content(content, _PARTS[role]) and not (role == "assistant" and content is None and _says(message)):
        yield f"Invalid type for 'messages[{at}].content': expected a string or an array of parts for role '{role}'."
    for index, call in enumerate(calls):
        if not is_json((call.get("function") or {}).get("arguments", "{}")):
            yield f"messages[{at}].tool_calls[{index}].function.arguments is not valid JSON."


def _says(message: Request) -> bool:
    """Whether an assistant's message needs no content."""
    return any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio", "reasoning_content"))


def _is_content(content: object, kinds: frozenset[str]) -> bool:
    if isinstance(content, list):
        return bool(content) and all(isinstance(part, Mapping) and part.get("type") in kinds for part in content)
    return isinstance(content, str)
