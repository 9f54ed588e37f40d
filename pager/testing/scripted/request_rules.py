"""Says why a real provider would refuse a prompt, in the words that it has for it.

Only what providers are known to refuse counts: calls and results that are not paired as each format wants it, what a
role can't say, thinking that was changed, too many cache marks. What is merely unusual passes, as do types of blocks
that are not known here, since providers add new ones all the time.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from typing import Any

from pager.testing.scripted.page_requests import offered

Json = Mapping[str, Any]


def problems(dialect_name: str, request: Json) -> list[str]:
    """Why the provider would answer this request with a 400, in the order of the prompt; nothing if it would not."""
    check = {"chat": _chat, "messages": _messages, "responses": _responses}[dialect_name]
    return [*check(request), *_names(request)]


def signature(thinking: str) -> str:
    """What the scripted model signs its thinking with, so that it knows when it comes back changed."""
    return f"{_SIGNED}{sha256(thinking.encode('utf-8', 'replace')).hexdigest()}=="


_SIGNED = "scripted"


def _names(request: Json) -> Iterator[str]:
    named = (tool.get("name") or (tool.get("function") or {}).get("name") for tool in offered(request))
    if twice := _repeated(name for name in named if name):
        yield f"tools: Tool names must be unique. Found more than once: {', '.join(twice)}."


def _repeated(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


def _listed(request: Json, key: str) -> list[Json]:
    found = request.get(key)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


# Chat Completions


_PARTS: Mapping[str, frozenset[str]] = {
    "system": frozenset({"text"}),
    "developer": frozenset({"text"}),
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
    "tool": frozenset({"text", "image_url"}),
    "function": frozenset(),
}


def _chat(request: Json) -> Iterator[str]:
    """A call is answered by the tool messages right after the assistant's."""
    waiting: list[str] = []
    for at, message in enumerate(_listed(request, "messages")):
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
            waiting = [str(call.get("id")) for call in _listed(message, "tool_calls")]
            yield from (f"messages[{at}]: Duplicate value for 'tool_call_id': {call}" for call in _repeated(waiting))
    yield from _unanswered(waiting)


def _unanswered(calls: Sequence[str]) -> Iterator[str]:
    if calls:
        yield (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(calls)}"
        )


def _form(at: int, message: Json) -> Iterator[str]:
    """What is wrong with the message by itself."""
    role, content = str(message.get("role")), message.get("content")
    if role not in _PARTS:
        yield f"Invalid value: '{role}'. Supported values are: {', '.join(_PARTS)}. (messages[{at}].role)"
        return
    calls = _listed(message, "tool_calls")
    if not _is_content(content, _PARTS[role]) and not (role == "assistant" and content is None and _says(message)):
        yield f"Invalid type for 'messages[{at}].content': expected a string or an array of parts for role '{role}'."
    for index, call in enumerate(calls):
        if not _is_json((call.get("function") or {}).get("arguments", "{}")):
            yield f"messages[{at}].tool_calls[{index}].function.arguments is not valid JSON."


def _says(message: Json) -> bool:
    """Whether an assistant's message needs no content."""
    return any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio", "reasoning_content"))


def _is_content(content: object, kinds: frozenset[str]) -> bool:
    if isinstance(content, list):
        return bool(content) and all(isinstance(part, Mapping) and part.get("type") in kinds for part in content)
    return isinstance(content, str)


def _is_json(text: object) -> bool:
    try:
        json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return False
    return isinstance(text, str)


# Messages


_MARKS = 4
_THINKING = ("thinking", "redacted_thinking")


def _messages(request: Json) -> Iterator[str]:
    """A call is answered by the blocks at the beginning of the next turn."""
    turns = _turns(request)
    continues = (request.get("thread") or {}).get("type") == "continue"
    for before, turn, after in zip([None, *turns], turns, [*turns[1:], None], strict=False):
        if before or not continues:  # else the provider itself has the calls
            yield from _answers(before, turn)
        yield from _open(turn, after)
        yield from _blocks(turn)
    if twice := _repeated(call for turn in turns for call in _ids(turn, "tool_use", "id")):
        yield f"messages: `tool_use` ids must be unique: {', '.join(twice)}"
    if turns and turns[-1].role == "assistant" and _is_blank_at_the_end(turns[-1].blocks):
        yield "messages: final assistant content cannot end with trailing whitespace"
    marks = _marks(request)
    if marks > _MARKS:
        yield f"A maximum of {_MARKS} blocks with cache_control may be provided. Found {marks}."


class _Turn:
    """Messages of one role that follow each other, which the provider takes as one."""

    def __init__(self, at: int, role: object, messages: Iterable[Json]) -> None:
        self.at, self.role = at, role
        self.blocks = [block for message in messages for block in _content(message)]


def _turns(request: Json) -> list[_Turn]:
    groups = groupby(enumerate(_listed(request, "messages")), key=lambda pair: pair[1].get("role"))
    grouped = [(role, list(pairs)) for role, pairs in groups]
    return [_Turn(pairs[0][0], role, [message for _, message in pairs]) for role, pairs in grouped]


def _content(message: Json) -> list[Json]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else _listed(message, "content")


def _ids(turn: _Turn | None, kind: str, key: str) -> list[str]:
    blocks = turn.blocks if turn else []
    return [str(block.get(key)) for block in blocks if block.get("type") == kind]


def _answers(before: _Turn | None, turn: _Turn) -> Iterator[str]:
    results, calls = _ids(turn, "tool_result", "tool_use_id"), _ids(before, "tool_use", "id")
    for result in results:
        if result not in calls:
            yield (
                f"messages.{turn.at}: unexpected `tool_use_id` found in `tool_result` blocks: {result}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
    yield from (f"messages.{turn.at}: more than one `tool_result` for {result}" for result in _repeated(results))


def _open(turn: _Turn, after: _Turn | None) -> Iterator[str]:
    results = _ids(after, "tool_result", "tool_use_id") if after is None or after.role == "user" else []
    if missing := [call for call in _ids(turn, "tool_use", "id") if call not in results]:
        yield (
            f"messages.{turn.at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message."
        )


def _blocks(turn: _Turn) -> Iterator[str]:
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


def _block(block: Json) -> Iterator[str]:
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


def _is_blank_at_the_end(blocks: Sequence[Json]) -> bool:
    last = str(blocks[-1].get("text", "")) if blocks else ""
    return last != last.rstrip()


def _is_changed(block: Json) -> bool:
    """Whether thinking that the scripted model signed is not what it was; other signatures can't be told."""
    signed = str(block["signature"])
    return signed.startswith(_SIGNED) and signed != signature(str(block.get("thinking")))


def _marks(value: object) -> int:
    """How many cache marks there are in a JSON value; what a tool is called with, or takes, holds none."""
    if isinstance(value, Mapping):
        inside = (inner for key, inner in value.items() if key not in ("input", "input_schema", "cache_control"))
        return bool(value.get("cache_control")) + sum(map(_marks, inside))
    return sum(map(_marks, value)) if isinstance(value, list) else 0


# Responses


_OUTPUTS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
_KINDS = {"message", "reasoning", "item_reference", "compaction", "compaction_trigger", "configuration_update"} | {
    *("additional_tools", "tool_search_call", "tool_search_output", "computer_call_output", "local_shell_call_output"),
    *("shell_call_output", "apply_patch_call_output", "mcp_list_tools", "mcp_approval_request"),
    *("mcp_approval_response", *_OUTPUTS.values()),
}


def _responses(request: Json) -> Iterator[str]:
    """A call is answered anywhere after it."""
    items = _listed(request, "input")
    elsewhere = bool(request.get("previous_response_id") or request.get("conversation"))
    yield from _kinds(items)
    yield from _paired(items, elsewhere=elsewhere)
    yield from _thoughts(items)
    if twice := _repeated(str(item["id"]) for item in items if item.get("id")):
        yield f"Duplicate item found with id {twice[0]}. Remove duplicate items from your input and try again."


def _kinds(items: Sequence[Json]) -> Iterator[str]:
    for at, item in enumerate(items):
        kind = _kind(item)
        if kind not in _KINDS and not kind.endswith("_call"):
            yield f"Invalid value: '{kind}'. (input[{at}].type)"
        if kind == "function_call" and not _is_json(item.get("arguments")):
            yield f"input[{at}].arguments is not valid JSON."


def _kind(item: Json) -> str:
    return str(item.get("type") or ("message" if "role" in item else ""))


def _paired(items: Sequence[Json], *, elsewhere: bool) -> Iterator[str]:
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


def _thoughts(items: Sequence[Json]) -> Iterator[str]:
    for item, following in zip(items, [*items[1:], {}], strict=False):
        if _kind(item) != "reasoning":
            continue
        said = _kind(following) == "message" and following.get("role") == "assistant"
        if not said and not _kind(following).endswith("_call") and _kind(following) != "reasoning":
            yield f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
