"""Counts signs of harm in a session: files read again, edits that failed, and calls that a turn took.

An agent that lost something it still needed reads files again, edits what is not there, or takes more calls. What a
tool call does is found as in paging (``pages.staleness``); docs/experiments.md says for users what counts.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import orjson

from pager.errors import NotUnderstood, StoreCorrupt
from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    BranchReason,
    CallReceived,
    ToolCalled,
)
from pager.log.store import Stored
from pager.paging.pages.staleness import Deed, Supersession, deed_of
from pager.request_values import Block, Kind, Message
from pager.wire.dialect import Dialect


@dataclass(slots=True)
class HarmCounts:
    """What is counted in one session, or in several together, without side requests such as those for a title."""

    calls: int = 0  # answered
    turns: int = 0  # calls that bring no results of tools: the user, or an agent with a task for another one, spoke
    re_reads: int = 0
    edits: int = 0  # that have a result
    failed_edits: int = 0

    @classmethod
    def sum(cls, counts: "Iterable[HarmCounts]") -> "HarmCounts":
        """All of them together."""
        rows = list(counts)
        return cls(*(sum(getattr(row, name.name) for row in rows) for name in fields(cls)))


class Sign(NamedTuple):
    """A sign of harm: how often ``counted`` occurs for each ``base``, both fields of ``HarmCounts``; more is worse."""

    name: str
    words: str
    counted: str
    base: str


SIGNS = (
    Sign("re_reads", "re-reads per call", "re_reads", "calls"),
    Sign("failed_edits", "failed edits per edit", "failed_edits", "edits"),
    Sign("task_length", "calls per turn", "calls", "turns"),
)


@dataclass(slots=True)
class _AgentHistory:
    """What one agent has read, and its tool calls without a result; a branch that forks is the same agent."""

    known: Supersession = field(default_factory=Supersession)
    made: dict[str, Deed] = field(default_factory=dict)
    reads: int = 0


def count_harm(
    log: Iterable[Stored], fetch: Callable[[bytes], bytes | None], load_dialect: Callable[[str], Dialect]
) -> HarmCounts:
    """The signs of harm in the log of one session; contents that can't be read count for nothing."""
    counts = HarmCounts()
    agents: dict[int, _AgentHistory] = {}
    side: set[int] = set()
    answered: set[tuple[int, int]] = set()
    for row in log:
        match row.event:
            case BranchOpened(branch=branch, reason=reason, parent=parent):
                if reason == BranchReason.SIDE or parent in side:
                    side.add(branch)
                elif parent in agents:
                    agents[branch] = agents[parent]
            case CallReceived(branch=branch) as call if branch not in side:
                results = _results(_messages(call, fetch, load_dialect(call.dialect)))
                counts.turns += call.attempt == 1 and not results
                _count_results(counts, agents.setdefault(branch, _AgentHistory()), results)
            case AnswerFinished(branch=branch, call=number) if branch not in side:
                answered.add((branch, number))
            case ToolCalled(branch=branch, tool=tool, call_id=call_id, arguments=digest) if branch not in side:
                arguments = _content(digest, fetch) or b""
                agents.setdefault(branch, _AgentHistory()).made[call_id] = deed_of(tool, arguments.decode())
            case _:
                pass
    counts.calls = len(answered)
    return counts


def _count_results(counts: HarmCounts, agent: _AgentHistory, results: Mapping[str, Block]) -> None:
    """Count results by the ids of their calls; a read that makes an earlier one obsolete is a re-read.

    An edit makes what was read before obsolete, too, so that reading a file after its edit is none.
    """
    for call_id, result in results.items():
        deed = agent.made.pop(call_id, None)
        if deed is None or _REFUSED.match(result.text):
            continue
        failed = _failed(result)
        if deed.kind == "write":
            counts.edits += 1
            counts.failed_edits += failed
            agent.known.edited(deed, failed=failed)
        elif deed.kind == "read" and not failed:
            agent.reads += 1
            counts.re_reads += bool(agent.known.note(str(agent.reads), "result", deed))


def _messages(call: CallReceived, fetch: Callable[[bytes], bytes | None], dialect: Dialect) -> Iterator[Message]:
    """The messages of a call that are new, from the last one back to the answer before them."""
    for digest in reversed(call.messages):
        raw = _content(digest, fetch)
        if raw is None:
            continue
        try:
            message = dialect.decode(raw)
        except NotUnderstood:
            continue
        if message.role == "assistant" or any(block.kind in (Kind.CALL, Kind.REASONING) for block in message.blocks):
            return
        yield message


def _results(messages: Iterable[Message]) -> dict[str, Block]:
    """The results of tool calls in these messages, which are given from the last to the first, in their own order."""
    blocks = [block for message in messages for block in reversed(message.blocks) if block.kind is Kind.RESULT]
    return {block.call_id: block for block in reversed(blocks)}


def _content(digest: str, fetch: Callable[[bytes], bytes | None]) -> bytes | None:
    try:
        return fetch(bytes.fromhex(digest))
    except StoreCorrupt:
        return None


# Whether a call failed

_REFUSED = re.compile(r"\s*The user doesn't want to (?:proceed|take this action)")
"""How a result of Claude Code begins where the user did not allow the call: nothing was edited, and nothing failed."""

_FAILED = re.compile(
    r"[\s<\[\"'*]*(?:(?:tool_use_)?error(?:[>\]:]|\s+\w+ing\b)|\w*(?:Error|Exception):|[\w ]{0,40}\bfailed\b"
    r"|(?:could|did|does) ?n[o']t\b|can(?:no|')t\b|unable to\b|invalid\b|no (?:changes?|match(?:es)?|replacements?)\b"
    r"|(?:(?:process )?exited with (?:exit )?code|exit code:?) -?[1-9])",
    re.IGNORECASE,
)
"""How results of edits begin that failed, in formats that have no mark for it (Chat Completions, Responses)."""


def _failed(result: Block) -> bool:
    """Whether a result says that its call failed: by its mark, by how it begins, or by a field where it is JSON."""
    return result.is_error or _FAILED.match(result.text) is not None or _has_error(result.text)


def _has_error(text: str) -> bool:
    """Whether a JSON object says in a field of its own, or of its ``metadata``, that something failed."""
    try:
        value = orjson.loads(text) if text.lstrip().startswith("{") else None
    except orjson.JSONDecodeError:
        return False
    if not isinstance(value, dict):
        return False
    inner = value.get("metadata")
    found = {**inner, **value} if isinstance(inner, dict) else value
    return found.get("success") is False or bool(found.get("error")) or found.get("exit_code", 0) not in (0, None)
