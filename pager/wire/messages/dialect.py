"""Anthropic Messages: content blocks in both directions, the system prompt apart."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import Any

import orjson

from pager.pricing.mark_cache import FIVE_MINUTES, HOUR, marks_in
from pager.request_values import Answer, Block, Kind, Request
from pager.tools.decide_forms import Toolset
from pager.wire import dialect
from pager.wire.common import (
    Json,
    dumps,
    error_body,
    exactly,
    hints,
    holds,
    loads,
    member,
    part_block,
    parts,
    record,
    request_in,
    result_blocks,
    set_members,
    string,
    system_digest,
    tidy,
    whole_answer,
)
from pager.wire.messages import marks, restore
from pager.wire.messages.answer import MessagesAnswer
from pager.wire.messages.stitch import MessagesStitcher
from pager.wire.page_spans import PageSpan, reachable, result_span, value_spans
from pager.wire.parse_cache import ParseCache
from pager.wire.stitching import CallFilter, Stitcher
from pager.wire.tool_lists import Layout


def _not_custom(entry: Json) -> str:
    kind = entry.get("type") or "custom"
    return "" if kind == "custom" else f"it is of the type {kind}"


_USER_SESSION = re.compile(r"_session_([0-9A-Za-z-]+)$")
_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Dialect(dialect.Dialect):
    """The Messages wire format."""

    name = "messages"
    path = "/messages"
    count_path = "/messages/count_tokens"
    resources = ("/messages",)
    client_headers = frozenset({b"anthropic-version", b"x-api-key"})
    base_url = "https://api.anthropic.com/v1"
    items_key = "messages"
    prompt_members = ("tools", "system")
    layout = Layout("", "input_schema", _not_custom, lambda tool: tool.get("strict") is True)
    no_calls = b'{"type":"none"}'
    draft = MessagesAnswer
    marks_cache = True
    chains = True
    low_detail_tokens = 0
    heartbeat = b'event: ping\ndata: {"type": "ping"}\n\n'
    tool_slot = staticmethod(marks.tool_slot)
    mark = staticmethod(marks.mark)
    mark_head = staticmethod(marks.mark_head)
    lengthen = staticmethod(marks.lengthen)
    lengthen_head = staticmethod(marks.lengthen_head)
    appended = staticmethod(restore.appended)
    expand = staticmethod(restore.expand)

    def credential(self, key: str) -> tuple[str, str]:
        """Anthropic takes keys in a header of its own."""
        return "x-api-key", key

    refresh_costs_output = False

    def refresh(self, body: bytes) -> bytes | None:
        """The request for no output at all; None where the provider refuses that."""
        asked = record(loads(body))
        output, choice = record(asked.get("output_config")), string(record(asked.get("tool_choice")).get("type"))
        thinks = string(record(asked.get("thinking")).get("type")) == "enabled"
        if thinks or choice in ("any", "tool") or asked.get("output_format") or output.get("format"):
            return None
        return set_members(body, {"max_tokens": b"0", "stream": b"false"})

    def parse(self, body: bytes, cache: ParseCache | None = None, *, path: str = "") -> Request:  # noqa: ARG002 - the body has it all
        """Find the parts of a request body; raises NotUnderstood."""
        request = request_in(body, self.name, self.items_key, cache)
        return replace(
            request,
            has_tools=holds(request, "tools"),
            system=system_digest(request, "system"),
            session_hints=_session_hints(request),
            server_state="thread" if holds(request, "thread") else "",
            follows=string(record(member(request, "thread")).get("previous_message_id")),
            head_marks=_marks_in(request, "tools") + _marks_in(request, "system"),
            auto_mark=_auto_mark(request),
        )

    def _read(self, item: Json) -> tuple[str, Json, Iterator[Block]]:
        content = item.get("content")
        normal = tidy({**tidy(item), "content": [_normal(part) for part in parts(content)]})
        listed = content if isinstance(content, list) else parts(content)
        return string(item.get("role")), normal, (block for part in listed for block in _blocks(part))

    def page_spans(self, raw: bytes) -> list[PageSpan]:
        """The places of tool results and of calls' arguments."""
        content = exactly(raw).get("content")
        found: list[PageSpan] = []
        for index, part in enumerate(content if isinstance(content, list) else ()):
            fields, path = record(part), ("content", index)
            if fields.get("type") == "tool_result":
                call_id, failed = string(fields.get("tool_use_id")), fields.get("is_error") is True
                found += result_span(fields.get("content"), (*path, "content"), call_id, is_error=failed)
            elif fields.get("type") == "tool_use":
                values, call_id = record(fields.get("input")), string(fields.get("id"))
                found += value_spans(values, call_id, string(fields.get("name")), (*path, "input"))
        return reachable(raw, found)

    def tool(self, name: str, description: str, parameters: Mapping[str, Any]) -> Json:
        """A tool of the client's own, which needs no type."""
        return {"name": name, "description": description, "input_schema": parameters}

    def tool_call(self, number: str, tool: str, arguments: Mapping[str, Any]) -> bytes:
        """A message with one tool_use block."""
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": arguments}
        fields = {"id": number, "type": "message", "role": "assistant", "content": [block], "stop_reason": "tool_use"}
        return orjson.dumps(fields)

    def stitcher(self, tool: str, guard: CallFilter, tools: Toolset | None = None) -> Stitcher:  # noqa: ARG002 - none is repeated
        """The state machine for one call to which the tool with this name was added."""
        return MessagesStitcher(tool, guard, self.error)

    def picture_tokens(self, width: int, height: int) -> int:
        """The tokens of a picture by Anthropic's rule."""
        shrunk = min(1.0, 1_568 / max(width, height))
        return min(1_600, ceil(width * shrunk * height * shrunk / 750))

    def read(self, body: bytes) -> Answer:
        """Read a whole, unstreamed answer; raises NotUnderstood."""
        draft = MessagesAnswer()
        draft.whole(whole_answer(body, "content", "message"))
        return replace(draft.answer(), complete=not draft.error)

    def error(self, status: int, message: str) -> bytes:
        """An error body as Anthropic would send it."""
        kind = _ERROR_TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")
        return orjson.dumps({"type": "error", "error": error_body(message, type=kind)})


def _marks_in(request: Request, name: str) -> tuple[float, ...]:
    """The lifetimes that the cache marks in a member ask for; none where it is not there."""
    span = request.members.get(name)
    return () if span is None else marks_in(request.body, span.start, span.end)


def _auto_mark(request: Request) -> float:
    """The lifetime that the client asks for with a mark of the whole request, which ends at its last block; else 0."""
    mark = record(member(request, "cache_control"))
    return 0.0 if not mark else HOUR if mark.get("ttl") == "1h" else FIVE_MINUTES


def _session_hints(request: Request) -> tuple[tuple[str, str], ...]:
    """Claude Code writes its session into the user's id: at its end, or the whole id is an object."""
    found = []
    for source, value in hints(request, "metadata.user_id", "metadata.session_id"):
        session = _session_of(value) if source == "metadata.user_id" else value
        if session:
            found.append((source, session))
    return tuple(found)


def _session_of(user: str) -> str:
    tail = _USER_SESSION.search(user)
    return tail[1] if tail else string(record(loads(user.encode())).get("session_id"))


def _normal(part: Any) -> Any:  # noqa: ANN401
    if not isinstance(part, dict) or part.get("type") != "tool_result":
        return part
    kept = {key: value for key, value in part.items() if key != "is_error" or value}
    return tidy({**kept, "content": parts(part.get("content"))})


def _blocks(part: object) -> Iterator[Block]:
    fields = record(part)
    kind = fields.get("type")
    if kind == "tool_use":
        yield Block(Kind.CALL, dumps(fields.get("input")), string(fields.get("id")), string(fields.get("name")))
    elif kind == "tool_result":
        call_id, failed = string(fields.get("tool_use_id")), fields.get("is_error") is True
        yield from result_blocks(fields.get("content"), call_id, is_error=failed)
    elif kind in ("thinking", "redacted_thinking"):
        yield Block(Kind.REASONING, string(fields.get("thinking")))
    else:
        yield part_block(part)
