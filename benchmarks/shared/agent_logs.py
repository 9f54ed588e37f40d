"""Logs of agents, of our own making, in the formats that are read: as long as wanted, and always the same."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

Json = dict[str, Any]

CALLS = 300
"""Calls of one session."""

_WORDS = ("def", "return", "import", "value", "self", "path", "index", "result", "error", "name", "for", "in", "if")
_BEGIN = 1_790_000_000.0


class Text:
    """Text like that of files: lines of words with paths and numbers in them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def lines(self, size: int) -> str:
        """About so many characters."""
        found: list[str] = []
        left = size
        while left > 0:
            words = " ".join(self._random.choices(_WORDS, k=8))
            found.append(f"    {words} src/{self._random.randrange(400)}/module_{self._random.randrange(9999)}.py")
            left -= len(found[-1]) + 1
        return "\n".join(found)

    def size(self) -> int:
        """How long a tool's result is: mostly short, sometimes long."""
        return min(60_000, int(self._random.paretovariate(1.1) * 900))


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def claude_code(seed: int, calls: int = CALLS) -> Iterator[bytes]:
    """A session of Claude Code: an answer in two lines, and the tool's result twice in its line, as it is logged."""
    text, session, parent = Text(seed), f"session-{seed:08}", None
    about = {"isSidechain": False, "userType": "external", "cwd": "/project", "sessionId": session, "version": "2.1.37"}

    def line(kind: str, number: int, message: Json, **more: object) -> bytes:
        nonlocal parent
        own = f"{session}-{number}"
        row = {"parentUuid": parent, **about, "type": kind, "message": message, "uuid": own, **more}
        parent = own
        return orjson.dumps({**row, "timestamp": _when(_BEGIN + seed * 10_000 + number)}) + b"\n"

    yield orjson.dumps({"type": "file-history-snapshot", "messageId": session, "snapshot": {}}) + b"\n"
    yield line("user", 0, {"role": "user", "content": text.lines(2000)})
    for call in range(calls):
        cached = 16_000 + 900 * call
        usage: Json = {"input_tokens": 4, "cache_creation_input_tokens": 900, "cache_read_input_tokens": cached}
        answer: Json = {"model": "claude-opus-4-5", "id": f"msg_{seed}_{call}", "type": "message", "role": "assistant"}
        use: Json = {
            "type": "tool_use",
            "id": f"toolu_{seed}_{call}",
            "name": "Read",
            "input": {"file_path": text.lines(60)},
        }
        said = {
            **answer,
            "content": [{"type": "text", "text": text.lines(150)}],
            "usage": {**usage, "output_tokens": 1},
        }
        yield line("assistant", 3 * call + 1, said, requestId=f"req_{seed}_{call}")
        called = {**answer, "content": [use], "usage": {**usage, "output_tokens": 90}}
        yield line("assistant", 3 * call + 2, called, requestId=f"req_{seed}_{call}")
        content = text.lines(text.size())
        result = {"tool_use_id": use["id"], "type": "tool_result", "content": content}
        told = {"type": "text", "file": {"filePath": "a.py", "content": content, "numLines": content.count("\n")}}
        yield line("user", 3 * call + 3, {"role": "user", "content": [result]}, toolUseResult=told)


def codex(seed: int, calls: int = CALLS) -> Iterator[bytes]:
    """A session of Codex: thought, call, counts, result."""
    text, at = Text(seed), _BEGIN + seed * 10_000

    def line(kind: str, payload: Json) -> bytes:
        nonlocal at
        at += 1
        return orjson.dumps({"timestamp": _when(at), "type": kind, "payload": payload}) + b"\n"

    about = {"cwd": "/project", "originator": "codex_exec", "cli_version": "0.166.0", "instructions": None}
    yield line("session_meta", {"id": f"thread-{seed:08}", "timestamp": _when(at), **about})
    content = [{"type": "input_text", "text": text.lines(2000)}]
    yield line("response_item", {"type": "message", "role": "user", "content": content})
    yield line("turn_context", {"cwd": "/project", "model": "gpt-5-codex", "summary": "auto"})
    for call in range(calls):
        yield line("response_item", {"type": "reasoning", "summary": [], "encrypted_content": text.lines(500)})
        arguments, call_id = orjson.dumps({"cmd": text.lines(60)}).decode(), f"call_{seed}_{call}"
        use = {"type": "function_call", "name": "exec_command", "arguments": arguments, "call_id": call_id}
        yield line("response_item", use)
        last = {"input_tokens": 9000 + 900 * call, "cached_input_tokens": 8000 + 900 * call, "output_tokens": 80}
        total = {"input_tokens": 9000 * call, "output_tokens": 80 * call}
        yield line("event_msg", {"type": "token_count", "info": {"total_token_usage": total, "last_token_usage": last}})
        output = text.lines(text.size())
        yield line("event_msg", {"type": "exec_command_end", "call_id": call_id, "aggregated_output": output})
        yield line("response_item", {"type": "function_call_output", "call_id": call_id, "output": output})


def opencode(seed: int, calls: int = CALLS) -> Iterator[bytes]:
    """An export of OpenCode, indented as OpenCode does it."""
    text, session, now = Text(seed), f"ses_{seed:08}", int(_BEGIN * 1000)
    asked = {"id": "msg_0", "sessionID": session, "role": "user", "time": {"created": now}, "agent": "build"}
    messages = [{"info": asked, "parts": [{"type": "text", "text": text.lines(2000)}]}]
    for call in range(calls):
        tokens = {"input": 10, "output": 80, "reasoning": 0, "cache": {"read": 9000 + 900 * call, "write": 900}}
        began = now + call * 1000
        info = {"id": f"msg_{call + 1}", "sessionID": session, "role": "assistant", "time": {"created": began}}
        info |= {"parentID": "msg_0", "modelID": "claude-opus-4-5", "providerID": "anthropic", "tokens": tokens}
        given, output = {"filePath": text.lines(60)}, text.lines(text.size())
        state = {"status": "completed", "input": given, "output": output, "time": {"start": began, "end": began + 9}}
        part = {"type": "tool", "callID": f"call_{seed}_{call}", "tool": "read", "state": state}
        ended = {"type": "step-finish", "reason": "tool-calls", "cost": 0, "tokens": tokens}
        messages.append({"info": info, "parts": [{"type": "step-start"}, part, ended]})
    info = {"id": session, "version": "1.18.0", "projectID": "p", "directory": "/project", "title": "t"}
    yield orjson.dumps({"info": info, "messages": messages}, option=orjson.OPT_INDENT_2) + b"\n"


def _chat(seed: int, calls: int) -> Iterator[Json]:
    text = Text(seed)
    yield {"role": "user", "content": text.lines(2000)}
    for call in range(calls):
        function = {"name": "read", "arguments": orjson.dumps({"path": text.lines(60)}).decode()}
        use = {"id": f"call_{seed}_{call}", "type": "function", "function": function}
        yield {"role": "assistant", "content": None, "tool_calls": [use]}
        yield {"role": "tool", "tool_call_id": use["id"], "content": text.lines(text.size())}


def openai_jsonl(seed: int, calls: int = CALLS) -> Iterator[bytes]:
    """Conversations, one in a line."""
    for number in range(4 * seed, 4 * seed + 4):
        yield orjson.dumps({"messages": list(_chat(number, calls)), "model": "gpt-5"}) + b"\n"


def recording(seed: int, calls: int = CALLS) -> Iterator[bytes]:
    """A recording."""
    yield orjson.dumps({"session": f"recorded-{seed}", "model": "gpt-5"}) + b"\n"
    yield from (orjson.dumps(message) + b"\n" for message in _chat(seed, calls))


FORMATS: dict[str, Callable[..., Iterator[bytes]]] = {
    "claude_code": claude_code,
    "codex": codex,
    "opencode": opencode,
    "openai_jsonl": openai_jsonl,
    "recording": recording,
}


def write(folder: Path, name: str, size: int) -> list[Path]:
    """Files of a format, one for each session, of so many bytes together or a little more."""
    paths: list[Path] = []
    left = size
    while left > 0:
        path = folder / f"{name}-{len(paths)}.{'json' if name == 'opencode' else 'jsonl'}"
        path.write_bytes(b"".join(FORMATS[name](len(paths))))
        paths.append(path)
        left -= path.stat().st_size
    return paths
