"""Reads the session logs of Claude Code: JSON lines in which every message names the one before it.

An answer is logged in several lines, one for each block of its content, all with the id of the answer and with what
the provider counted; of those counts the last is the right one. When several tools are called at once, the result of
each names the line of its own call as the one before it, so that the lines of one answer and its results form a bush,
not a chain. As all of them are sent, in the order of the log, the next line goes on where the log is, as long as the
one before it is in that bush, and only a line that names an older one goes back to there: the user has rewound.

A compaction begins anew: its mark names no line before it, and the summary comes after the mark. Messages that it
preserves are named in the mark and follow the summary. Lines of sub-agents are in the same file (``isSidechain``, or
inside of lines of ``progress``), or in a file of their own; they are lines of calls of their own in any case. An
``attachment`` is content of the user's message beside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import orjson
from msgspec import Raw

from instrumentation.replay.importers import LogFormat
from instrumentation.replay.log_lines import (
    BAD,
    Problems,
    lines,
    rows,
    stamp,
)
from instrumentation.replay.recording import Recording
from instrumentation.replay.recording_draft import (
    CallLine,
    OpenCall,
    RecordingDraft,
    counted,
)
from pager.text.references import strings
from pager.wire.common import record, string

SYNTHETIC = "<synthetic>"
"""The model of messages that Claude Code makes up itself, such as those on errors; they are never sent."""

_ATTACHED = frozenset(
    [
        "agent_listing_delta",
        "agent_mention",
        "async_hook_response",
        "auto_mode",
        "auto_mode_exit",
        "budget_usd",
        "compact_file_reference",
        "compaction_reminder",
        "critical_system_reminder",
        "current_session_memory",
        "date_change",
        "deferred_tools_delta",
        "diagnostics",
        "directory",
        "edited_text_file",
        "file",
        "hook_additional_context",
        "hook_blocking_error",
        "hook_success",
        "invoked_skills",
        "mcp_instructions_delta",
        "mcp_resource",
        "nested_memory",
        "opened_file_in_ide",
        "output_style",
        "output_token_usage",
        "pdf_reference",
        "plan_file_reference",
        "plan_mode",
        "plan_mode_exit",
        "plan_mode_reentry",
        "queued_command",
        "relevant_memories",
        "selected_lines_in_ide",
        "skill_discovery",
        "skill_listing",
        "task_reminder",
        "task_status",
        "team_context",
        "teammate_mailbox",
        "todo_reminder",
        "token_usage",
        "total_tokens_reminder",
        "ultrathink_effort",
        "verify_plan_reminder",
    ]
)
"""Kinds of attachments that Claude Code sends to the model."""

_NOT_SPOKEN = frozenset({"type", "uuid", "toolUseID", "hookEvent", "hookName", "addedNames"})
_SPOKEN_HOOKS = frozenset({"SessionStart", "UserPromptSubmit"})

_KINDS = frozenset({"user", "assistant", "system"})
_OTHERS = frozenset({"summary", "file-history-snapshot"})


class _LogLine(msgspec.Struct, rename="camel"):
    """What is read of a line."""

    type: str
    uuid: str | None = None
    parent_uuid: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    version: str | None = None
    timestamp: str | None = None
    is_sidechain: bool | None = None
    is_api_error_message: bool | None = None
    is_compact_summary: bool | None = None
    is_visible_in_transcript_only: bool | None = None
    parent_tool_use_id: str | None = msgspec.field(default=None, name="parentToolUseID")
    message: Raw = Raw(b"null")
    data: Raw = Raw(b"null")
    attachment: Raw = Raw(b"null")
    compact_metadata: Raw = Raw(b"null")


class _LoggedMessage(msgspec.Struct):
    content: Raw
    id: str | None = None
    model: str | None = None
    usage: dict[str, object] | None = None
    diagnostics: object = None


class _ContentBlock(msgspec.Struct):
    type: str = ""
    id: str | None = None
    text: str | None = None
    name: str | None = None
    input: object = None


class _Progress(msgspec.Struct, rename="camel"):
    """What a line of progress holds; ``message`` is a line of the sub-agent's own log."""

    type: str = ""
    agent_id: str | None = None
    prompt: str | None = None
    message: Raw = Raw(b"null")


class _Segment(msgspec.Struct, rename="camel"):
    head_uuid: str
    anchor_uuid: str
    tail_uuid: str


class _CompactMetadata(msgspec.Struct, rename="camel"):
    preserved_segment: _Segment | None = None


_row = msgspec.json.Decoder(_LogLine)
_message = msgspec.json.Decoder(_LoggedMessage)
_blocks = msgspec.json.Decoder(list[Raw])
_block = msgspec.json.Decoder(_ContentBlock)
_progress = msgspec.json.Decoder(_Progress | None)
_attachment = msgspec.json.Decoder(dict[str, object] | None)
_inner = msgspec.json.Decoder(_LogLine | None)
_compacted = msgspec.json.Decoder(_CompactMetadata | None)


class Importer(LogFormat):
    """One session for each file."""

    agent = "claude"
    setup = "ANTHROPIC_BASE_URL={base} ENABLE_TOOL_SEARCH=true claude"

    def places(self, env: Mapping[str, str], home: Path) -> Sequence[Path]:
        """The folder of all projects."""
        return [Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"]

    def detect(self, head: Sequence[bytes]) -> bool:
        """One of the first lines has the ids that only Claude Code writes."""
        return any(_is_ours(row) for row in rows(head))

    def read(self, path: Path, problems: Problems) -> Iterator[Recording]:
        """The session in a file, with the sub-agents that are in it."""
        session = _LogSession(path.name.split(".")[0], problems, _own_files(path))
        for number, line in lines(path, problems):
            try:
                session.take(_row.decode(line))
            except BAD as error:
                problems.line(path, number, str(error))
        problems.answers |= session.answers
        found = session.draft.recording(session.name, f"claude-code {session.version}".strip())
        if found is not None:
            yield found


def _own_files(path: Path) -> frozenset[str]:
    """The ids of the sub-agents of a session that have a log of their own, which has all that they did."""
    beside = path.parent / path.name.split(".")[0] / "subagents"
    return frozenset(one.name.split(".")[0].removeprefix("agent-") for one in beside.glob("agent-*.jsonl*"))


def _is_ours(row: dict[str, object]) -> bool:
    kind = row.get("type")
    if not isinstance(kind, str):
        return False
    if kind in _OTHERS:
        return "leafUuid" in row or "messageId" in row
    if kind in _KINDS:
        return "uuid" in row and "sessionId" in row
    return isinstance(row.get("sessionId"), str)


@dataclass(slots=True, eq=False)
class _Node:
    """A message that is sent: the raw contents that were logged for it, or the raw blocks if it is an answer."""

    before: "_Node | None"
    contents: list[bytes] = field(default_factory=list)
    answer: str = ""
    called: set[str] = field(default_factory=set)
    logged: list[tuple[str, int]] = field(default_factory=list)

    def sent(self) -> bytes:
        """The message as Claude Code sends it."""
        if self.answer:
            return b'{"role":"assistant","content":[%b]}' % b",".join(self.contents)
        return b'{"role":"user","content":%b}' % _joined(self.contents)


def _joined(contents: list[bytes]) -> bytes:
    """The contents of messages of the user that follow each other, as those of one."""
    if len(contents) == 1:
        return contents[0]
    blocks = [one[1:-1] if one.startswith(b"[") else b'{"type":"text","text":%b}' % one for one in contents]
    return b"[%b]" % b",".join(block for block in blocks if block.strip())


@dataclass(slots=True, eq=False)
class _Talk:
    """A conversation: of the user, or of a sub-agent.

    ``path`` are the messages up to the newest, of which the first ``done`` are in ``items`` as they are sent; those
    from ``open`` on are the last answer and what followed it.
    """

    line: CallLine = field(default_factory=CallLine)
    path: list[_Node] = field(default_factory=list)
    items: list[bytes] = field(default_factory=list)
    open: int = 0
    call: OpenCall | None = None
    preserved: _Segment | None = None

    def back_to(self, node: _Node | None, count: int) -> None:
        """Go back to a message, or to a part of one, if it is not one of the last."""
        if node is None:
            self._cut([])
        elif not any(node is one for one in self.path[self.open :]):
            path = _path(node)
            if not node.answer or count < len(node.contents):  # what is added to it now was not sent with it then
                path[-1] = _Node(node.before, node.contents[:count], node.answer)
            self._cut(path)

    def _cut(self, path: list[_Node]) -> None:
        same = 0
        for left, right in zip(self.path, path, strict=False):
            if left is not right:
                break
            same += 1
        self.path, self.open = path, len(path) if path else 0
        del self.items[same:]

    def add(self, content: bytes) -> _Node:
        """Add a message of the user; what follows another one goes out with it."""
        if not self.path or self.path[-1].answer:
            self.path.append(_Node(self.path[-1] if self.path else None))
        self.path[-1].contents.append(content)
        return self.path[-1]

    def begin(self, answer: str) -> _Node:
        """Begin an answer to all that came before."""
        self.items += [node.sent() for node in self.path[len(self.items) :]]
        self.open = len(self.path)
        self.path.append(_Node(self.path[-1] if self.path else None, answer=answer))
        return self.path[-1]

    @property
    def asked(self) -> bool:
        """Whether there is a message of the user's."""
        return any(not node.answer for node in self.path)


def _path(node: _Node | None) -> list[_Node]:
    found = []
    while node is not None:
        found.append(node)
        node = node.before
    return found[::-1]


class _LinePlace(NamedTuple):
    """What a logged line belongs to: its conversation, its message, and how many contents that had up to it."""

    talk: _Talk
    node: _Node | None
    size: int


class _LogSession:
    """All that one file holds."""

    def __init__(self, file: str, problems: Problems, own_files: frozenset[str]) -> None:
        self.draft = RecordingDraft("messages")
        self.answers: set[str] = set()
        self.name = self.version = ""
        self._file = file
        self._answered, self._left_out = problems.answers, problems.left_out
        self._own_files = own_files
        self._main = _Talk()
        self._aside = _Talk()
        self._agents: dict[str, _Talk] = {}
        self._known: dict[str, _LinePlace] = {}
        self._in_progress: set[str] = set()

    def take(self, row: _LogLine) -> None:
        """Take the next line; raises one of BAD for one that is not as it should be."""
        if row.uuid is None:  # titles, snapshots of files and the like, which are no part of the conversation
            return
        if row.uuid in self._in_progress:  # a line of a sub-agent, logged before in one of progress
            return
        self._name(row)
        before = self._known.get(row.parent_uuid or "")
        talk = self._talk(row, before)
        message = self._attached(row) if row.type == "attachment" else _said(row)
        place = _place(talk, row, before)
        if message is not None:
            node = self._message(talk, place, row, message)
            place = _LinePlace(talk, node, len(node.contents))
            node.logged.append((row.uuid, place.size))
        self._known[row.uuid] = place
        if row.type == "progress":
            self._take_progress(row)
        if row.type == "system" or talk.preserved is not None:
            self._compaction(talk, row)

    def _name(self, row: _LogLine) -> None:
        """The session's name; a file that begins with a copy of another session is named after its own."""
        if row.session_id and (not self.name or row.session_id == self._file):
            self.name = f"{row.session_id}/agent-{row.agent_id}" if row.agent_id else row.session_id
        self.version = self.version or row.version or ""

    def _talk(self, row: _LogLine, before: _LinePlace | None) -> _Talk:
        """The conversation that a line belongs to; that of a sub-agent begins with a line that follows none of its."""
        if not row.is_sidechain:
            return self._main
        if row.agent_id:
            return self._agents.setdefault(row.agent_id, _Talk())
        if before is not None and before.talk is not self._main:
            self._aside = before.talk
        elif before is not None or row.parent_uuid is None:
            self._aside = _Talk()
        return self._aside

    def _attached(self, row: _LogLine) -> _LoggedMessage | None:
        """What an attachment adds to the user's message; None, and counted, for one that is not sent."""
        attachment = _attachment.decode(row.attachment) or {}
        content = _content_of(attachment)
        if content is None:
            self._left_out[f"attachment that is not sent ({attachment.get('type') or 'of no kind'})"] += 1
            return None
        return _LoggedMessage(Raw(content))

    def _take_progress(self, row: _LogLine) -> None:
        """Take the line of a sub-agent that a line of progress holds, unless the sub-agent has a log of its own."""
        progress = _progress.decode(row.data)
        line = _inner.decode(progress.message) if progress is not None and progress.type == "agent_progress" else None
        if progress is None or line is None:
            self._left_out[f"progress that is not sent ({progress.type if progress else 'of no kind'})"] += 1
            return
        agent = progress.agent_id or row.parent_tool_use_id or ""
        if agent in self._own_files:
            self._left_out["progress of a sub-agent that has a log of its own"] += 1
            return
        if line.uuid in self._known:
            return
        message, talk = _said(line), self._agents.setdefault(agent, _Talk())
        if message is None:
            return
        if progress.prompt and not talk.path and line.type == "assistant":
            talk.add(msgspec.json.encode(progress.prompt))
        line = msgspec.structs.replace(line, uuid=line.uuid or row.uuid, timestamp=line.timestamp or row.timestamp)
        newest = (
            _LinePlace(talk, talk.path[-1], len(talk.path[-1].contents)) if talk.path else _LinePlace(talk, None, 0)
        )
        self._message(talk, newest, line, message)
        self._in_progress.add(line.uuid or "")

    def _message(self, talk: _Talk, place: _LinePlace, row: _LogLine, message: _LoggedMessage) -> _Node:
        """Add a message to its conversation."""
        if row.type in ("user", "attachment"):
            talk.back_to(place.node, place.size)
            return talk.add(bytes(message.content))
        answer = message.id or row.uuid or ""
        blocks = _listed(message.content)
        node = talk.path[talk.open] if talk.open < len(talk.path) else None
        if node is None or node.answer != answer:
            talk.back_to(place.node, place.size)
            node = talk.begin(answer)
            talk.call = self._begun(talk, answer, row, message.model or "")
        self._answer(talk, node, message, blocks)
        return node

    def _begun(self, talk: _Talk, answer: str, row: _LogLine, model: str) -> OpenCall | None:
        """The call that an answer belongs to; None if it was read in another file, or nobody had asked."""
        if answer in self._answered or not talk.asked:
            return None
        self.answers.add(answer)
        return self.draft.begin(talk.line, talk.items, stamp(row.timestamp), model)

    def _answer(
        self, talk: _Talk, node: _Node, message: _LoggedMessage, blocks: list[tuple[bytes, _ContentBlock]]
    ) -> None:
        """Add what one line says of an answer; a block that was logged before is not added again."""
        usage, call = counted(message.usage), talk.call
        if call is not None and usage and (call.usage is None or usage.output >= call.usage.output):
            call.usage = usage
        if call is not None:
            told = record(record(message.diagnostics).get("cache_miss_reason"))
            call.cache_miss = string(told.get("type")) or call.cache_miss
        for raw, block in blocks:
            key = block.id or ""
            if (key in node.called) if key else (raw in node.contents):
                continue
            node.contents.append(raw)
            node.called.add(key)
            if call is not None:
                self._say(call, block)

    def _say(self, call: OpenCall, block: _ContentBlock) -> None:
        if block.type == "text":
            call.words.append(block.text or "")
        elif block.type == "tool_use":
            call.words.append("\n".join(strings(block.input)))
            call.called.append(block.name or "")
            self.draft.tools.take(block.name or "", block.input)

    def _compaction(self, talk: _Talk, row: _LogLine) -> None:
        """Remember what a compaction preserves, and put it behind the line that it follows."""
        compaction = _compacted.decode(row.compact_metadata)
        if compaction is not None and compaction.preserved_segment is not None:
            talk.preserved = compaction.preserved_segment
        kept = talk.preserved
        if kept is None or kept.anchor_uuid != row.uuid:
            return
        talk.preserved = None
        first, last = self._known.get(kept.head_uuid), self._known.get(kept.tail_uuid)
        path = _path(last.node) if last is not None else []
        at = next((at for at, node in enumerate(path) if first is not None and node is first.node), len(path))
        talk.back_to(self._known[row.uuid].node, self._known[row.uuid].size)
        for node in path[at:]:
            copy = _Node(talk.path[-1] if talk.path else None, list(node.contents), node.answer, set(node.called))
            talk.path.append(copy)
            self._known.update((uuid, _LinePlace(talk, copy, count)) for uuid, count in node.logged)
        if talk.path:
            self._known[row.uuid] = _LinePlace(talk, talk.path[-1], len(talk.path[-1].contents))


def _place(talk: _Talk, row: _LogLine, before: _LinePlace | None) -> _LinePlace:
    """What a line goes on from: the one that it names, nothing, or the newest if that which it names is missing."""
    if before is not None and before.talk is talk:
        return before
    if row.parent_uuid is None or before is not None or not talk.path:
        return _LinePlace(talk, None, 0)
    return _LinePlace(talk, talk.path[-1], len(talk.path[-1].contents))


def _said(row: _LogLine) -> _LoggedMessage | None:
    """The message of a line; None if it has none, or one that is not sent."""
    if row.type not in ("user", "assistant") or row.is_api_error_message:
        return None
    if row.is_visible_in_transcript_only and not row.is_compact_summary:
        return None
    message = _message.decode(row.message)
    if bytes(memoryview(message.content)[:1]) not in (b'"', b"["):
        raise msgspec.ValidationError("its content is neither a text nor a list of blocks")
    return None if message.model == SYNTHETIC else message


def _listed(content: Raw) -> list[tuple[bytes, _ContentBlock]]:
    """The blocks of an answer, raw and read."""
    raw = bytes(content)
    if raw.startswith(b'"'):
        raw = b'[{"type":"text","text":%b}]' % raw
    return [(bytes(one), _block.decode(one)) for one in _blocks.decode(raw)]


# Attachments are sent as reminders, of which the log keeps only the values that they are made of; so their text is the
# strings of those values, one a line. Kinds that are only shown to the user, and unknown kinds, are left out.


def _content_of(attachment: Mapping[str, object]) -> bytes | None:
    """The content that an attachment adds to a message, as JSON; None for one that is not sent."""
    kind, content = attachment.get("type"), attachment.get("content")
    if kind not in _ATTACHED:
        return None
    if kind == "queued_command" and isinstance(prompt := attachment.get("prompt"), str | list) and prompt:
        return orjson.dumps(prompt)
    media = _media(content)
    if media is not None:
        return orjson.dumps([media])
    spoken = {name: value for name, value in attachment.items() if name not in _NOT_SPOKEN}
    if kind == "hook_success":  # of these only what a hook says at the beginning of a session or a turn
        spoken = {"content": content} if attachment.get("hookEvent") in _SPOKEN_HOOKS else {}
    words = "\n".join(dict.fromkeys(strings(spoken)))
    text = f"<system-reminder>\n{words}\n</system-reminder>"
    return orjson.dumps([{"type": "text", "text": text}]) if words else None


def _media(content: object) -> dict[str, object] | None:
    """The picture or document that a file's content is; None for text."""
    if not isinstance(content, dict) or not isinstance(file := content.get("file"), dict):
        return None
    data = file.get("base64")
    if not isinstance(data, str):
        return None
    kind = "image" if content.get("type") == "image" else "document"
    return {"type": kind, "source": {"type": "base64", "media_type": str(file.get("type", "")), "data": data}}
