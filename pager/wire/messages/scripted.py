"""The scripted model in the words of Anthropic's Messages."""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from pager.request_values import Usage
from pager.wire.scripted import Call, Json, Piece, Request, Turn, bits, event, lifetime, listed, piece, repeated, words

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


class Scripted:
    """Messages, from the provider's side."""

    name = "messages"

    def prompt(self, request: Request) -> list[Piece]:
        """Tools, then the system prompt, then messages, block by block, since any block may carry the mark."""
        system = request.get("system") or []
        blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
        said = [block for message in request.get("messages") or [] for block in _blocks(message)]
        parts = [piece(part) for part in [*(request.get("tools") or []), *blocks, *said]]
        if parts and (asked := lifetime({"cache_control": request.get("cache_control")})):
            parts[-1] = parts[-1]._replace(lifetime=asked)  # the request's own mark is for its last block
        return parts

    def tools(self, request: Request) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The client's own tools, and the provider's without parameters."""
        for entry in listed(request, "tools"):
            if entry.get("name"):
                yield str(entry["name"]), entry.get("input_schema") or {}

    def used(self, request: Request) -> Iterator[tuple[str, object]]:
        """The blocks tool_use and tool_result."""
        for block in (block for message in listed(request, "messages") for block in listed(message, "content")):
            if block.get("type") == "tool_use":
                yield str(block.get("name")), block.get("input")
            elif block.get("type") == "tool_result":
                yield "", block.get("content")

    def problems(self, request: Request) -> Iterator[str]:
        """Calls must be answered at the beginning of the next turn; thinking must come back unchanged."""
        turns = _turns(request)
        continues = (request.get("thread") or {}).get("type") == "continue"
        for before, turn, after in zip([None, *turns], turns, [*turns[1:], None], strict=False):
            if before or not continues:  # else the provider itself has the calls
                yield from _answers(before, turn)
            yield from _open(turn, after)
            yield from _turn_blocks(turn)
        if twice := repeated(call for turn in turns for call in _ids(turn, "tool_use", "id")):
            yield f"messages: `tool_use` ids must be unique: {', '.join(twice)}"
        if turns and turns[-1].role == "assistant" and _is_blank_at_the_end(turns[-1].blocks):
            yield "messages: final assistant content cannot end with trailing whitespace"
        marks = _marks(request)
        if marks > _MARKS:
            yield f"A maximum of {_MARKS} blocks with cache_control may be provided. Found {marks}."

    def counted(self, tokens: int) -> Json:
        """The answer of count_tokens."""
        return {"input_tokens": tokens}

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
        kind = _TYPES.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}

    def too_long(self, count: int, limit: int) -> Json:
        """Anthropic's words for a prompt that does not fit."""
        return self.error(400, f"prompt is too long: {count} tokens > {limit} maximum", "req_scripted")

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


def _blocks(message: Request) -> list[Json]:
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


# What Anthropic refuses


_SIGNED = "scripted"


def signature(thinking: str) -> str:
    """What the scripted model signs its thinking with, so that it knows when it comes back changed."""
    return f"{_SIGNED}{sha256(thinking.encode('utf-8', 'replace')).hexdigest()}=="


_MARKS = 4
_THINKING = ("thinking", "redacted_thinking")


class _MergedTurn(NamedTuple):
    """Consecutive messages of a role, which the provider takes as one; ``at`` is the number of the first."""

    at: int
    role: object
    blocks: list[Request]


def _turns(request: Request) -> list[_MergedTurn]:
    turns: list[_MergedTurn] = []
    for at, message in enumerate(listed(request, "messages")):
        role, content = message.get("role"), message.get("content")
        if not turns or turns[-1].role != role:
            turns.append(_MergedTurn(at, role, []))
        is_text = isinstance(content, str)
        turns[-1].blocks.extend([{"type": "text", "text": content}] if is_text else listed(message, "content"))
    return turns


def _ids(turn: _MergedTurn | None, kind: str, key: str) -> list[str]:
    blocks = turn.blocks if turn else []
    return [str(block.get(key)) for block in blocks if block.get("type") == kind]


def _answers(before: _MergedTurn | None, turn: _MergedTurn) -> Iterator[str]:
    results, calls = _ids(turn, "tool_result", "tool_use_id"), _ids(before, "tool_use", "id")
    for result in results:
        if result not in calls:
            yield (
                f"messages.{turn.at}: unexpected `tool_use_id` found in `tool_result` blocks: {result}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
    yield from (f"messages.{turn.at}: more than one `tool_result` for {result}" for result in repeated(results))


def _open(turn: _MergedTurn, after: _MergedTurn | None) -> Iterator[str]:
    results = _ids(after, "tool_result", "tool_use_id") if after is None or after.role == "user" else []
    if missing := [call for call in _ids(turn, "tool_use", "id") if call not in results]:
        yield (
            f"messages.{turn.at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message."
        )


def _turn_blocks(turn: _MergedTurn) -> Iterator[str]:
    """What is wrong with the blocks of a turn by themselves."""
    kinds = [block.get("type") for block in turn.blocks]
    if turn.role not in ("user", "assistant", "system"):
        yield f"messages.{turn.at}: unexpected role {turn.role!r}"
    results = [kind == "tool_result" for kind in kinds]
    if results != sorted(results, reverse=True):
        yield f"messages.{turn.at}: `tool_result` blocks must come first in the content"
    if any(kind in _THINKING for kind in kinds) and kinds[0] not in _THINKING:
        yield f"messages.{turn.at}: a message with thinking must start with a thinking block, found `{kinds[0]}`"
    for index, block in enumerate(turn.blocks):
        yield from (f"messages.{turn.at}.content.{index}: {wrong}" for wrong in _block(block))


def _block(block: Request) -> Iterator[str]:
    kind = block.get("type")
    if kind == "text" and not block.get("text"):
        yield "text content blocks must be non-empty"
    if kind in _THINKING and "cache_control" in block:
        yield f"`cache_control` can't be set on `{kind}` blocks"
    if kind == "thinking" and not block.get("signature"):
        yield "thinking.signature: Field required"
    elif kind == "thinking" and _is_changed(block):
        yield "Invalid `signature` in `thinking` block"
    if kind == "tool_use" and not isinstance(block.get("input"), Mapping):
        yield "tool_use.input: Input should be a valid dictionary"


def _is_blank_at_the_end(blocks: Sequence[Request]) -> bool:
    last = str(blocks[-1].get("text", "")) if blocks else ""
    return last != last.rstrip()


def _is_changed(block: Request) -> bool:
    """Whether thinking that the scripted model signed was changed; other signatures can't be checked."""
    signed = str(block["signature"])
    return signed.startswith(_SIGNED) and signed != signature(str(block.get("thinking")))


def _marks(value: object) -> int:
    """How many cache marks there are in a JSON value; what a tool is called with, or takes, holds none."""
    if isinstance(value, Mapping):
        inside = (inner for key, inner in value.items() if key not in ("input", "input_schema", "cache_control"))
        return bool(value.get("cache_control")) + sum(map(_marks, inside))
    return sum(map(_marks, value)) if isinstance(value, list) else 0
