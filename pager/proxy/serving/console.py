"""Informs the user of what calls show: a line for each of them on a terminal, and advice in the program's log.

Lines are written by a thread of their own: a terminal that is held up, as by Ctrl-S, must not hold up calls. What it
does not take in time is left out.
"""

import logging
import queue
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from pager.log.events import AnswerFinished, AttemptFailed, Bypassed, CallReceived, Event, LegFinished, Repacked
from pager.proxy.log_records import PlacedCall
from pager.request_values import Request, Usage
from pager.terminal import say

Price = Callable[[str, Usage], float | None]
"""What these tokens cost at a model of this name, in US dollars; None where that is not known."""

WAITING = 500  # lines that may wait for the terminal
UNDER_WAY = 1_000  # calls of which something is remembered until they end
LONGEST = 160  # characters of what others say
PATIENCE = 1.0  # seconds in which the last lines must be written
MANY = 10  # MCP tools from which on a prompt is better off without them
_MCP = re.compile(rb'"name"\s*:\s*"mcp__')
_DEFERRED = re.compile(rb'"defer_loading"\s*:\s*true')
log = logging.getLogger("ctxpager")


@dataclass(slots=True)
class _CallTotals:
    """What has happened in a call so far; ``dollars`` is None once the price of a request was not known."""

    dollars: float | None = 0.0
    removed: int = 0
    fetched: int = 0
    corrected: int = 0


class Console:
    """Writes what happens in calls to standard output, one line each."""

    def __init__(self, price: Price) -> None:
        self._price = price
        self._calls: OrderedDict[tuple[str, int, int], _CallTotals] = OrderedDict()
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._write, name="console", daemon=True)
        self._thread.start()

    def happened(self, placed: PlacedCall, events: Sequence[Event]) -> None:
        """Take in what happened in a call, and show what a user should know of it."""
        where = placed.spot.session, placed.spot.branch, placed.spot.call
        call = self._calls.setdefault(where, _CallTotals())
        while len(self._calls) > UNDER_WAY:
            self._calls.popitem(last=False)
        model = placed.incoming.request.model
        for event in events:
            match event:
                case LegFinished():
                    self._paid(call, model, None if event.mixed else event.usage)
                    call.fetched += len(event.pages) + len(event.schemas)
                    call.corrected += len(event.invalid) + event.imitated
                case Repacked():
                    call.removed += len(event.pages)
                case AnswerFinished():
                    self._paid(call, model, event.usage)
                    tokens = _tokens(event, len(placed.incoming.request.body))
                    self._say(placed, ", ".join([tokens, *_facts(event, call)]))
                    self._calls.pop(where, None)
                case AttemptFailed():
                    self._say(placed, _failed(event))
                    self._calls.pop(where, None)
                case Bypassed():
                    self._say(placed, f"not paged, {event.reason.replace('_', ' ')}: {_plain(event.detail)}")

    def close(self) -> None:
        """Write what is left, if the terminal takes it."""
        self._put(None)
        self._thread.join(PATIENCE)

    def _paid(self, call: _CallTotals, model: str, usage: Usage | None) -> None:
        if usage is not None and call.dollars is not None:
            price = self._price(model, usage)
            call.dollars = None if price is None else call.dollars + price

    def _say(self, placed: PlacedCall, words: str) -> None:
        spot = placed.spot
        at = datetime.now().astimezone()
        self._put(f"{at:%H:%M:%S} {spot.session[:10]} {spot.branch}:{spot.call:<4} {words}")

    def _put(self, line: str | None) -> None:
        with suppress(queue.Full):
            self._lines.put_nowait(line)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                say(line, flush=True)
            except (OSError, ValueError):  # the terminal is gone
                return


def _tokens(answer: AnswerFinished, size: int) -> str:
    """The tokens of the prompt: as the client sent it, by its bytes, and as it went out."""
    usage = answer.usage
    if usage is None:
        return f"{size:,} bytes"
    if not answer.sent_size or answer.sent_size == size:
        return f"{usage.input:,} tokens"
    return f"{round(usage.input * size / answer.sent_size):,} -> {usage.input:,} tokens"


def _facts(answer: AnswerFinished, call: _CallTotals) -> Iterator[str]:
    usage = answer.usage
    if usage is not None and usage.input:
        yield f"{usage.cached / usage.input:.0%} cached"
    if usage is not None and call.dollars is not None:
        yield f"${call.dollars:.4f}"
    yield f"{answer.total_ms / 1000:.1f} s"
    for count, words in ((call.removed, "removed"), (call.fetched, "fetched back"), (call.corrected, "corrected")):
        if count:
            yield f"{count} {words}"


def _failed(event: AttemptFailed) -> str:
    status = f" {event.status}" if event.status else ""
    return f"FAILED{status} ({event.phase}): {_plain(event.error)}"


def _plain(text: str) -> str:
    """What others say, on one line."""
    return " ".join(text[: 4 * LONGEST].split())[:LONGEST]


class Advice:
    """Warns once that Claude Code loads all MCP tools into its prompts, as it does behind any base URL."""

    def __init__(self) -> None:
        self._given = False

    def happened(self, placed: PlacedCall, events: Sequence[Event]) -> None:
        """Look at the first call of a branch; those after it bring the same tools."""
        if self._given or not any(isinstance(event, CallReceived) and event.call == 1 for event in events):
            return
        loaded = mcp_tools(placed.incoming.request) if is_claude_code(placed.incoming.headers) else 0
        if loaded >= MANY:
            self._given = True
            log.warning(
                "Claude Code sends %d MCP tools in every prompt, as it does behind any base URL: start it with "
                "ENABLE_TOOL_SEARCH=true, and it loads them only when they are needed",
                loaded,
            )


def is_claude_code(headers: Mapping[str, str]) -> bool:
    """Whether a request is of Claude Code, by what it calls itself or its session."""
    return headers.get("user-agent", "").startswith("claude-cli/") or "x-claude-code-session-id" in headers


def mcp_tools(request: Request) -> int:
    """How many tools of MCP servers a request loads into the prompt; deferred ones are not."""
    span = request.members.get("tools")
    if span is None:
        return 0
    tools = request.body[span.start : span.end]
    return max(0, len(_MCP.findall(tools)) - len(_DEFERRED.findall(tools)))
