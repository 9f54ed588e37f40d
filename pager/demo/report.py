"""Prints what a session left in the log."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from pager.events import AnswerFinished, CallReceived, ToolCalled
from pager.store import Store


@dataclass(slots=True)
class Row:
    """One call as the log has it; ``new`` are the bytes of content that the log had not seen before."""

    received: CallReceived
    messages: int
    new: int
    answer: AnswerFinished | None = None
    tools: list[str] = field(default_factory=list)


def rows(store: Store) -> list[Row]:
    """The calls of the log, in order."""
    found: dict[tuple[str, int, int, int], Row] = {}
    seen: set[str] = set()
    for stored in store.events():
        event = stored.event
        if isinstance(event, CallReceived):
            place = (stored.session, event.branch, event.call, event.attempt)
            found[place] = Row(event, event.keep + len(event.messages), _new_bytes(store, event, seen))
        elif isinstance(event, AnswerFinished | ToolCalled):
            row = found[stored.session, event.branch, event.call, event.attempt]
            if isinstance(event, AnswerFinished):
                row.answer = event
            else:
                row.tools.append(event.tool)
    return list(found.values())


def show(store: Store, folder: Path, on_disk: int, console: Console) -> None:
    """Print the table of calls and what they came to; ``on_disk`` is the size of the log when nobody has it open."""
    calls = rows(store)
    console.print(_table(calls))
    sent, new = sum(row.received.size for row in calls), sum(row.new for row in calls)
    console.print(f"\nsent by the client   {sent:>10,} bytes in {len(calls)} calls")
    console.print(f"new in these calls   {new:>10,} bytes: each piece is stored once, 1 to {sent / max(new, 1):.1f}")
    console.print(f"log on disk          {on_disk:>10,} bytes, with the answers, events and indexes")
    console.print(f"the log is in        {folder}", soft_wrap=True)


def _new_bytes(store: Store, event: CallReceived, seen: set[str]) -> int:
    parts = {event.skeleton, *(cut.digest for cut in event.cuts if cut.digest), *event.messages} - seen
    seen |= parts
    return sum(len(store.blob(bytes.fromhex(digest)) or b"") for digest in parts)


def _table(calls: list[Row]) -> Table:
    table = Table(
        title="What was logged (bytes and new bytes; in, cached, out: tokens)",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=0,
    )
    for name in ("call", "messages", "bytes", "new", "in", "cached", "out"):
        table.add_column(name, justify="right")
    table.add_column("tool calls", no_wrap=True)
    table.add_column("ms", justify="right")
    for row in calls:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> list[str]:
    answer = row.answer
    usage = answer.usage if answer else None
    tokens = [f"{count:,}" for count in (usage.input, usage.cached, usage.output)] if usage else ["", "", ""]
    facts = [str(row.received.call), str(row.messages), f"{row.received.size:,}", f"{row.new:,}"]
    tools = ", ".join(f"{tool} x{times}" if times > 1 else tool for tool, times in Counter(row.tools).items())
    return [*facts, *tokens, tools, f"{answer.total_ms:.1f}" if answer else "none"]
