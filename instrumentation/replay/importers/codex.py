"""Reads the rollouts of Codex: JSON lines, each with a time, a kind and a payload.

Items of the conversation are logged as they were sent and received (``response_item``). What the model gave in one go
is an answer, whose prompt is all that came before. The provider's count is logged once for each answer
(``token_count``), after its items or, by some versions, before them; it comes again whenever limits change, with the
same totals. A compaction (``compacted``) puts other items in the place of all so far, and a rollback
(``thread_rolled_back``) takes the last turns of the user away. The log of a session that was forked off another begins
with a copy of it, written in one go.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import orjson
from msgspec import Raw

from instrumentation.replay.importers import LogFormat
from instrumentation.replay.log_lines import (
    BAD,
    Json,
    Problems,
    lines,
    rows,
    stamp,
)
from instrumentation.replay.recording import Recording
from instrumentation.replay.recording_draft import CallLine, OpenCall, RecordingDraft
from instrumentation.replay.recording_files import decoded
from pager.request_values import Usage
from pager.text.references import said, strings

COPYING = 1.0
"""Seconds within which a session that was forked has copied what was before it; no model answers that soon."""

_KINDS = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_UNSENT = frozenset({"ghost_snapshot", "other"})
_OF_THE_MODEL = frozenset(
    {
        "reasoning",
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "web_search_call",
        "tool_search_call",
        "image_generation_call",
    }
)
# What Codex itself says in the user's name, which begins no turn.
_CONTEXT = (b"<environment_context>", b"<user_instructions>", b"# AGENTS.md instructions")

_COUNTS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)


class _RolloutLine(msgspec.Struct):
    type: str
    timestamp: str | None = None
    payload: Raw = Raw(b"null")


class _RolloutItem(msgspec.Struct):
    """What an item is."""

    type: str
    role: str | None = None


class _RolloutCompaction(msgspec.Struct):
    message: str = ""
    replacement_history: list[Raw] | None = None


_row = msgspec.json.Decoder(_RolloutLine)
_item = msgspec.json.Decoder(_RolloutItem)
_compacted = msgspec.json.Decoder(_RolloutCompaction)
_object = msgspec.json.Decoder(dict[str, object])


class Importer(LogFormat):
    """One session for each file."""

    agent = "codex"
    setup = """in ~/.codex/config.toml:
model_provider = "ctxpager"
[model_providers.ctxpager]
name = "ctxpager"
base_url = "{base}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses\""""

    def places(self, env: Mapping[str, str], home: Path) -> Sequence[Path]:
        """The folder of all sessions."""
        return [Path(env.get("CODEX_HOME") or home / ".codex") / "sessions"]

    def detect(self, head: Sequence[bytes]) -> bool:
        """One of the first lines is of a rollout."""
        kinds = (row.get("type") for row in rows(head) if isinstance(row.get("payload"), dict))
        return any(isinstance(kind, str) and kind in _KINDS for kind in kinds)

    def read(self, path: Path, problems: Problems) -> Iterator[Recording]:
        """The session in a file."""
        rollout = _Rollout()
        for number, line in lines(path, problems):
            try:
                rollout.take(_row.decode(line))
            except BAD as error:
                problems.line(path, number, str(error))
        name = rollout.session or path.name.split(".")[0]
        found = rollout.draft.recording(name, f"codex {rollout.version}".strip(), rollout.instructions)
        if found is not None:
            yield found


class _Rollout:
    """All that one file holds; ``turns`` are the positions at which the user's turns begin."""

    def __init__(self) -> None:
        self.draft = RecordingDraft("responses")
        self.session = self.version = ""
        self.instructions = 0
        self._line = CallLine()
        self._items: list[bytes] = []
        self._turns: list[int] = []
        self._answering = False
        self._call: OpenCall | None = None
        self._usage: Usage | None = None
        self._total: object = None
        self._model = ""
        self._copied_until: float | None = None

    def take(self, row: _RolloutLine) -> None:
        """Take the next line; raises one of BAD for one that is not as it should be."""
        if self._copied_until is not None and (stamp(row.timestamp) or 0.0) > self._copied_until:
            self._copied_until = None
        if row.type == "response_item":
            self._item(row)
        elif row.type == "event_msg":
            self._event(_object.decode(row.payload))
        elif row.type == "turn_context":
            self._model = str(_object.decode(row.payload).get("model") or self._model)
        elif row.type == "compacted":
            self._compact(_compacted.decode(row.payload))
        elif row.type == "session_meta":
            self._meta(_object.decode(row.payload), stamp(row.timestamp))

    def _meta(self, meta: Json, at: float | None) -> None:
        """The first is the session's own; others were copied with the session that it was forked off."""
        if self.session:
            return
        self.session, self.version = str(meta.get("id") or ""), str(meta.get("cli_version") or "")
        base = meta.get("base_instructions")
        text = base.get("text") if isinstance(base, dict) else meta.get("instructions")
        self.instructions = len(orjson.dumps(text)) if isinstance(text, str) else 0
        if meta.get("forked_from_id") and at is not None:
            self._copied_until = at + COPYING

    def _item(self, row: _RolloutLine) -> None:
        item = _item.decode(row.payload)
        if item.type in _UNSENT:
            return
        raw = bytes(row.payload)
        if item.type in _OF_THE_MODEL or (item.type == "message" and item.role == "assistant"):
            self._answer(raw, stamp(row.timestamp))
        else:
            self._answering = False
        self._append(raw, item)

    def _append(self, raw: bytes, item: _RolloutItem) -> None:
        if item.role == "user" and not any(begin in raw[:160] for begin in _CONTEXT):
            self._turns.append(len(self._items))
        self._items.append(raw)

    def _answer(self, raw: bytes, at: float | None) -> None:
        """Add an item to the answer, which it may begin."""
        if not self._answering:
            self._answering = True
            self._call = None
            if self._turns and self._copied_until is None:
                self._call = self.draft.begin(self._line, self._items, at, self._model)
                self._call.usage, self._usage = self._usage, None
        if self._call is not None:
            self._say(self._call, decoded(raw))

    def _say(self, call: OpenCall, item: object) -> None:
        block = item if isinstance(item, dict) else {}
        name, kind = str(block.get("name") or block.get("type")), block.get("type")
        if kind == "message":
            call.words.append("\n".join(_texts(block.get("content"))))
        elif kind == "function_call":
            arguments = block.get("arguments")
            call.words.append(said(arguments) if isinstance(arguments, str) else "")
            self.draft.tools.take(name, decoded(arguments))
        elif kind == "custom_tool_call":
            call.words.append(str(block.get("input") or ""))
            self.draft.tools.take_free(name)
        elif kind != "reasoning":  # tools of the provider's or of the client's own, which are in no list of functions
            call.words.append("\n".join(strings(block.get("action"))))
            return
        if kind in ("function_call", "custom_tool_call"):
            call.called.append(name)

    def _event(self, event: Json) -> None:
        if event.get("type") == "token_count":
            self._count(event.get("info"))
        elif event.get("type") == "thread_rolled_back":
            count = event.get("num_turns")
            self._roll_back(count if isinstance(count, int) else 0)

    def _count(self, info: object) -> None:
        """Take what the provider counted, unless it was logged before, or is an estimate after a compaction."""
        last = info.get("last_token_usage") if isinstance(info, dict) else None
        total = info.get("total_token_usage") if isinstance(info, dict) else None
        usage = _usage(last)
        if usage is None or (total is not None and total == self._total):
            return
        self._total = total
        if self._call is not None and self._call.usage is None:
            self._call.usage = usage
        elif self._copied_until is None:
            self._usage = usage

    def _compact(self, compaction: _RolloutCompaction) -> None:
        """Go on with other items: those that are logged, else the user's messages, and the summary."""
        items = [bytes(raw) for raw in compaction.replacement_history or ()]
        if compaction.replacement_history is None:
            text = {"type": "input_text", "text": compaction.message}
            summary = orjson.dumps({"type": "message", "role": "user", "content": [text]})
            items = [*(self._items[at] for at in self._turns), summary]
        self._items, self._turns = [], []
        self._answering, self._call, self._usage = False, None, None
        for raw in items:
            self._append(raw, _item.decode(raw))

    def _roll_back(self, count: int) -> None:
        if count > 0 and self._turns:
            cut = self._turns[max(0, len(self._turns) - count)]
            self._items = self._items[:cut]
            self._turns = [at for at in self._turns if at < cut]
            self._answering, self._call = False, None


def _texts(content: object) -> list[str]:
    parts = content if isinstance(content, list) else []
    return [str(part.get("text") or "") for part in parts if isinstance(part, dict)]


def _usage(last: object) -> Usage | None:
    """The tokens of one answer; cached ones, and those of thoughts, are among the others."""
    counts = last if isinstance(last, dict) else {}
    given, cached, put, output, thought = (
        value if isinstance(value := counts.get(name), int) else 0 for name in _COUNTS
    )
    return Usage(given, cached, put, output, thought, "cached_input_tokens" in counts) if given else None
