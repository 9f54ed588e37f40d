"""Anthropic Messages: content blocks in both directions, the system prompt apart."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from pager.errors import NotUnderstood
from pager.pricing.mark_cache import FIVE_MINUTES, HOUR, marks_in
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
    dumps,
    error_body,
    exactly,
    loads,
    member_edit,
    message,
    part_block,
    parts,
    record,
    result_blocks,
    string,
    tidy,
)
from pager.wire.dialect import AnswerReader
from pager.wire.messages.answer import MessagesAnswer
from pager.wire.messages.marks import mark, mark_head, tool_slot
from pager.wire.messages.restore import appended, expand
from pager.wire.messages.stitch import MessagesStitcher
from pager.wire.page_spans import PageSpan, reachable, result_span, value_spans
from pager.wire.parse_cache import ParseCache
from pager.wire.stitching import (
    CallFilter,
    Expansion,
    Leg,
    Stitcher,
    ToolSlot,
)
from pager.wire.tool_lists import Layout, offers


def _not_custom(entry: Json) -> str:
    kind = entry.get("type") or "custom"
    return "" if kind == "custom" else f"it is of the type {kind}"


LAYOUT = Layout("", "input_schema", _not_custom, lambda tool: tool.get("strict") is True)
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
    marks_cache = True
    chains = True
    heartbeat = b'event: ping\ndata: {"type": "ping"}\n\n'

    def credential(self, key: str) -> tuple[str, str]:
        """Anthropic takes keys in a header of its own."""
        return "x-api-key", key

    def parse(self, body: bytes, cache: ParseCache | None = None, *, path: str = "") -> Request:  # noqa: ARG002 - the body has it all
        """Find the parts of a request body; raises NotUnderstood."""
        envelope = Envelope.of(body, self.items_key, cache)
        return envelope.request(
            self.name,
            envelope.elements(),
            has_tools=envelope.holds("tools"),
            system=envelope.system("system"),
            hints=_session_hints(envelope),
            server_state="thread" if envelope.holds("thread") else "",
            follows=string(record(envelope.get("thread")).get("previous_message_id")),
            head_marks=_marks_in(envelope, "tools") + _marks_in(envelope, "system"),
            auto_mark=_auto_mark(envelope),
        )

    def decode(self, raw: bytes | memoryview) -> Message:
        """Read one message."""
        return message(raw, _read)

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

    def tool_slot(self, request: Request) -> ToolSlot | str:
        """Where a tool of ours can be added to this request, or why it can't be."""
        return tool_slot(request)

    def mark(self, raw: bytes, lifetime: float = FIVE_MINUTES) -> bytes | None:
        """The message with a mark that tells the provider to cache the prompt up to here."""
        return mark(raw, lifetime)

    def mark_head(self, request: Request) -> tuple[Span, bytes] | None:
        """The edit of the body that marks the end of the system prompt or the tools."""
        return mark_head(request)

    def forbid_calls(self, request: Request) -> tuple[Span, bytes]:
        """The edit of the body by which the model may call no tool."""
        return member_edit(request, "tool_choice", b'{"type":"none"}')

    def offers(self, request: Request) -> Listed | None:
        """The tools that the request offers; None where there are none that could be sent shorter."""
        return offers(request, LAYOUT)

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

    def appended(self, leg: Leg) -> list[bytes]:
        """What the leg said, and our answers, as two messages."""
        return appended(leg)

    def expand(self, items: Sequence[bytes], legs: Sequence[Leg], *, sure: bool = False) -> Expansion | None:
        """What the client sent after a call, with the call's hidden legs put back."""
        return expand(items, legs, sure=sure)

    def read(self, body: bytes) -> Answer:
        """Read a whole, unstreamed answer; raises NotUnderstood."""
        answer = record(loads(body))
        if "content" not in answer and "error" not in answer:
            raise NotUnderstood("the answer is no message: it has no 'content'")
        draft = MessagesAnswer()
        draft.whole(answer)
        return replace(draft.answer(), complete=not draft.error)

    def reader(self) -> AnswerReader:
        """A reader for one streamed answer."""
        return Reader(MessagesAnswer())

    def error(self, status: int, message: str) -> bytes:
        """An error body as Anthropic would send it."""
        kind = _ERROR_TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")
        return orjson.dumps({"type": "error", "error": error_body(message, type=kind)})


def _marks_in(envelope: Envelope, name: str) -> tuple[float, ...]:
    """The lifetimes that the cache marks in a member ask for; none where it is not there."""
    span = envelope.members.get(name)
    return () if span is None else marks_in(envelope.body, span.start, span.end)


def _auto_mark(envelope: Envelope) -> float:
    """The lifetime that the client asks for with a mark of the whole request, which ends at its last block; else 0."""
    mark = record(envelope.get("cache_control"))
    return 0.0 if not mark else HOUR if mark.get("ttl") == "1h" else FIVE_MINUTES


def _session_hints(envelope: Envelope) -> tuple[tuple[str, str], ...]:
    """Claude Code writes its session into the user's id: at its end, or the whole id is an object."""
    found = []
    for source, value in envelope.hints("metadata.user_id", "metadata.session_id"):
        session = _session_of(value) if source == "metadata.user_id" else value
        if session:
            found.append((source, session))
    return tuple(found)


def _session_of(user: str) -> str:
    tail = _USER_SESSION.search(user)
    return tail[1] if tail else string(record(loads(user.encode())).get("session_id"))


def _read(item: Json) -> tuple[str, Json, tuple[Block, ...]]:
    role, content = string(item.get("role")), item.get("content")
    normal = tidy({**tidy(item), "content": [_normal(part) for part in parts(content)]})
    listed = content if isinstance(content, list) else parts(content)
    return role, normal, tuple(block for part in listed for block in _blocks(part))


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
        yield from result_blocks(fields.get("content"), lambda text: Block(Kind.RESULT, text, call_id, is_error=failed))
    elif kind in ("thinking", "redacted_thinking"):
        yield Block(Kind.REASONING, string(fields.get("thinking")))
    else:
        yield part_block(part)
