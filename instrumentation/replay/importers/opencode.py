"""Reads exports of OpenCode: one JSON document with a session, its messages and their parts.

An answer is one step of the model: what is between the marks of its beginning and its end, or, where there are no
such marks, the whole message. A tool's call and its result are one part; sent, they are two messages. A result that
was cleared later was sent in full up to then. A summary ends the conversation so far, and it goes on from the message
that had asked for the summary, or from that which this one names as the first to stay.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from re import compile as pattern
from typing import NamedTuple

import orjson

from instrumentation.replay.importers import LogFormat
from instrumentation.replay.log_lines import Json, Problems, opened
from instrumentation.replay.recording import Recording
from instrumentation.replay.recording_draft import CallLine, OpenCall, RecordingDraft
from pager.request_values import Usage
from pager.text.references import strings
from pager.wire.common import array, record

CLEARED = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
_IN_TEXTS = ("text/plain", "application/x-directory")  # files that are in parts of text already
_SAID = {"compaction": "What did we do so far?", "subtask": "The following tool was executed by the user"}
_BEGIN = pattern(rb'^\s*\{\s*"info"\s*:\s*\{')


class Importer(LogFormat):
    """One session for each file."""

    agent = "opencode"
    setup = """in opencode.json, for a provider with "npm": "@ai-sdk/openai-compatible":
"options": {{"baseURL": "{base}/v1"}}"""

    def detect(self, head: Sequence[bytes]) -> bool:
        """The document begins with what is known of the session."""
        return _BEGIN.match(b"".join(head)) is not None

    def read(self, path: Path, problems: Problems) -> Iterator[Recording]:
        """The session in a file."""
        document = _document(path, problems)
        info = record(document.get("info"))
        export = _Export()
        for message in array(document.get("messages")):
            if not export.take(record(record(message).get("info")), array(record(message).get("parts"))):
                problems.line(path, 1, "is a message of neither the user nor the model")
        name = str(info.get("id") or path.name.split(".")[0])
        found = export.draft.recording(name, f"opencode {info.get('version') or ''}".strip())
        if found is not None:
            yield found


def _document(path: Path, problems: Problems) -> Json:
    try:
        with opened(path) as file:
            content = file.read()
        problems.size, problems.lines = problems.size + len(content), problems.lines + content.count(b"\n")
        return record(orjson.loads(content))
    except (OSError, EOFError) as error:
        problems.file(path, f"can't be read: {error}")
    except orjson.JSONDecodeError as error:
        problems.line(path, error.lineno, error.msg)
    return {}


class _Cleared(NamedTuple):
    """What is sent in the place of a result from a time on, in milliseconds."""

    since: float
    place: int
    raw: bytes


@dataclass(slots=True)
class _Export:
    """All that an export holds.

    ``sent`` is every message as it was sent at first, ``begins`` are the places at which those of the log begin, by
    their ids, and ``tails`` are the first messages that stay, by the ids of those that ask for a summary.
    """

    draft: RecordingDraft = field(default_factory=lambda: RecordingDraft("chat"))
    line: CallLine = field(default_factory=CallLine)
    sent: list[bytes] = field(default_factory=list)
    cleared: list[_Cleared] = field(default_factory=list)
    begins: dict[str, int] = field(default_factory=dict)
    tails: dict[str, str] = field(default_factory=dict)
    start: int = 0
    asked: bool = False

    def take(self, info: Json, parts: list[object]) -> bool:
        """Take the next message; whether it is one."""
        role, own = info.get("role"), str(info.get("id"))
        self.begins[own] = len(self.sent)
        known = [part for part in parts if isinstance(part, dict)]
        if role == "user":
            self._user(own, known)
        elif role == "assistant" and _counts(info, known):
            self._assistant(info, known)
        return role in ("user", "assistant")

    def _user(self, own: str, parts: list[Json]) -> None:
        content = [one for part in parts for one in _content(part)]
        self.tails[own] = next((str(part.get("tail_start_id") or "") for part in parts if _is(part, "compaction")), "")
        if content:
            plain = content[0]["text"] if len(content) == 1 and "text" in content[0] else content
            self._send({"role": "user", "content": plain})
            self.asked = True

    def _assistant(self, info: Json, parts: list[Json]) -> None:
        for step in _steps(parts):
            if self.asked:
                self._call(info, step)
            self._answer(step)
        if info.get("summary") is True and info.get("finish"):
            asked = str(info.get("parentID"))
            self.start = self.begins.get(self.tails.get(asked, ""), self.begins.get(asked, self.start))

    def _call(self, info: Json, step: list[Json]) -> None:
        created = record(info.get("time")).get("created")
        begun = next((time for part in step if (time := record(part.get("time")).get("start"))), created)
        now = float(begun) if isinstance(begun, int | float) else None
        prompt = self._prompt(now or 0.0)
        call = self.draft.begin(self.line, prompt, now / 1000 if now else None, str(info.get("modelID") or ""))
        ended = next((part for part in step if _is(part, "step-finish")), info)
        call.usage = _usage(record(ended.get("tokens")))
        for part in step:
            self._say(call, part)

    def _prompt(self, now: float) -> list[bytes]:
        """What is sent at a time."""
        prompt = self.sent[self.start :]
        for one in self.cleared:
            if one.since <= now and one.place >= self.start:
                prompt[one.place - self.start] = one.raw
        return prompt

    def _say(self, call: OpenCall, part: Json) -> None:
        if _is(part, "text"):
            call.words.append(str(part.get("text") or ""))
        elif _is(part, "tool"):
            given, name = record(part.get("state")).get("input"), str(part.get("tool"))
            call.words.append("\n".join(strings(given)))
            call.called.append(name)
            self.draft.tools.take(name, given)

    def _answer(self, step: list[Json]) -> None:
        """Send the model's answer, then the results of its tools."""
        text = "".join(str(part.get("text") or "") for part in step if _is(part, "text"))
        tools = [part for part in step if _is(part, "tool")]
        if not text and not tools:
            return
        calls = [_tool_call(part) for part in tools]
        self._send({"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})})
        for part in tools:
            self._result(part)

    def _result(self, part: Json) -> None:
        state = record(part.get("state"))
        result: Json = {"role": "tool", "tool_call_id": str(part.get("callID")), "content": _output(state)}
        cleared = record(state.get("time")).get("compacted")
        if isinstance(cleared, int | float):
            raw = orjson.dumps({**result, "content": CLEARED})
            self.cleared.append(_Cleared(float(cleared), len(self.sent), raw))
        self._send(result)
        media = [one for file in array(state.get("attachments")) for one in _content(record(file))]
        if media and not cleared:
            self._send({"role": "user", "content": media})

    def _send(self, message: Json) -> None:
        self.sent.append(orjson.dumps(message))


def _counts(info: Json, parts: list[Json]) -> bool:
    """Whether an answer stays in the conversation: one that failed does not, unless it was only broken off."""
    error = record(info.get("error"))
    said = any(not _is(part, "step-start") and not _is(part, "reasoning") for part in parts)
    return not error or (error.get("name") == "MessageAbortedError" and said)


def _steps(parts: list[Json]) -> list[list[Json]]:
    """The parts of each answer in a message."""
    found: list[list[Json]] = [[]]
    for part in parts:
        if _is(part, "step-start") and found[-1]:
            found.append([])
        found[-1].append(part)
    return [step for step in found if any(_is(part, "text") or _is(part, "tool") for part in step)]


def _content(part: Json) -> Iterator[Json]:
    """What is sent of a part of the user's."""
    kind = str(part.get("type"))
    if kind == "text" and not part.get("ignored"):
        yield {"type": "text", "text": str(part.get("text") or "")}
    elif kind == "file" and part.get("mime") not in _IN_TEXTS:
        yield {"type": "image_url", "image_url": {"url": str(part.get("url") or "")}}
    elif kind in _SAID:
        yield {"type": "text", "text": _SAID[kind]}


def _tool_call(part: Json) -> Json:
    arguments = orjson.dumps(record(part.get("state")).get("input")).decode()
    return {
        "id": str(part.get("callID")),
        "type": "function",
        "function": {"name": str(part.get("tool")), "arguments": arguments},
    }


def _output(state: Json) -> str:
    """The result of a tool, as the model sees it."""
    if state.get("status") == "completed":
        return str(state.get("output") or "")
    if state.get("status") == "error":
        kept = record(state.get("metadata")).get("output")
        return kept if isinstance(kept, str) else str(state.get("error") or "")
    return INTERRUPTED


def _usage(tokens: Json) -> Usage | None:
    """The tokens of one answer; OpenCode counts the cached and the written ones apart from the rest."""
    cache = record(tokens.get("cache"))
    fresh, output, thought = (_number(tokens.get(name)) for name in ("input", "output", "reasoning"))
    cached, put = _number(cache.get("read")), _number(cache.get("write"))
    total = fresh + cached + put
    return Usage(total, cached, put, output + thought, thought, "read" in cache) if total else None


def _is(part: Json, kind: str) -> bool:
    return bool(part.get("type") == kind)


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
