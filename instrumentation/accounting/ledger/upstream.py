"""What went upstream for each call: its page table as it was then, and the prompt that was made with it.

Nothing of what was sent is stored, so the tables are folded again. A table changes with the next call of its branch;
right before that it is looked at.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from instrumentation.accounting.billing import Prompt, tokens_in
from instrumentation.accounting.item_sizes import item_tokens
from instrumentation.accounting.sent_prompts import Where
from instrumentation.replay.prepared import Call
from pager.log.events import CallReceived
from pager.log.store import Stored
from pager.paging.page_in import definition
from pager.paging.page_table import Slot, Table, same_slots
from pager.paging.page_tables import Tables
from pager.sessions.lineage import Session
from pager.sessions.rebuild import Rebuilder
from pager.tools.decide import Toolset
from pager.wire.dialect import Dialect
from pager.wire.page_spans import stubbed

See = Callable[[Where, Table], None]
"""Is shown the page table of every attempt at a call, with all that was decided of it."""


def watch(name: str, log: Sequence[Stored], rebuilder: Rebuilder, see: See) -> None:
    """Rebuild the page tables of a session, and show each as it was for every call."""
    session = rebuilder.branches(name, log)
    rebuilder.add_tables(session, _watched(session, log, see))


def _watched(session: Session, log: Iterable[Stored], see: See) -> Iterator[Stored]:
    """The rows of the log, one by one as they are folded in."""
    latest: dict[int, Where] = {}

    def look(branch: int) -> None:
        where, table = latest.get(branch), session.tables.get(branch)
        if where is not None and table is not None and (table.call, table.attempt) == where[1:]:
            see(where, table)

    for row in log:
        if isinstance(row.event, CallReceived):
            look(row.event.branch)
            latest[row.event.branch] = Where(row.event.branch, row.event.call, row.event.attempt)
        yield row
    for branch in latest:
        look(branch)


@dataclass(slots=True)
class _Sent:
    """The prompt of a branch's latest paged call, and what it was made of."""

    head: bytes = b""
    slots: list[Slot] = field(default_factory=list)
    prompt: Prompt = field(default_factory=Prompt)


class Prompts:
    """Makes the prompts that went upstream, in the parts by which a provider caches them."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._sent: dict[int, _Sent] = {}
        self._counted: dict[bytes, int] = {}

    def paged(self, dialect: Dialect, call: Call, table: Table) -> Prompt:
        """The prompt of a call as it was paged; what it has in common with the one before is not made again."""
        sent, (head, size) = self._sent.setdefault(call.step.branch, _Sent()), _head(dialect, call, table)
        fresh = min((at for at in table.changed if table.slots[at].sent is None), default=len(table.slots))
        keep = min(fresh, same_slots(sent.slots, table.slots)) if head == sent.head else 0
        if not keep:
            sent.prompt = Prompt.of([head], [tokens_in(size)])
        items = [self._as_sent(dialect, table, at) for at in range(keep, len(table.slots))]
        sent.prompt = sent.prompt.grown([key for key, _ in items], [tokens for _, tokens in items], keep + 1)
        sent.head, sent.slots = head, list(table.slots)
        return sent.prompt

    def _as_sent(self, dialect: Dialect, table: Table, at: int) -> tuple[bytes, int]:
        """What an item is known by, and its tokens; stubs make it another one."""
        slot = table.slots[at]
        stubs = {page.key: page.stub for page in slot.pages if page.stub}
        if not stubs:
            return slot.digest, self._tokens(dialect, slot)
        if slot.sent is None:
            raw = slot.raw if slot.raw is not None else self._tables.item(slot.digest)
            slot.sent = stubbed(raw, dialect.sites(raw), stubs)
        return sha256(slot.sent).digest(), item_tokens(slot.sent, dialect.name)

    def _tokens(self, dialect: Dialect, slot: Slot) -> int:
        """The tokens of an item without stubs; counted once."""
        found = self._counted.get(slot.digest)
        if found is None:
            raw = slot.raw if slot.raw is not None else self._tables.item(slot.digest)
            found = self._counted[slot.digest] = item_tokens(raw, dialect.name)
        return found

    def after(self, dialect: Dialect, prompt: Prompt, said: str) -> Prompt:
        """The prompt of the request that followed a hidden one, which had said what is kept under this digest."""
        items = dialect.appended(self._tables.leg(bytes.fromhex(said)))
        tokens = [item_tokens(raw, dialect.name) for raw in items]
        return prompt.grown([sha256(raw).digest() for raw in items], tokens)


def short_tools(call: Call, table: Table) -> Toolset | None:
    """What was decided of the tools of a call, if any of them went out short."""
    decided, offers = table.tools, call.step.offers
    if not added_tool(call, table) or decided is None or offers is None or decided.digest != offers.digest:
        return None
    return decided if decided.shortened else None


def added_tool(call: Call, table: Table) -> str:
    """The name of the tool that was added, where the call could carry it."""
    return table.tool if call.step.tools is not None else ""


def _head(dialect: Dialect, call: Call, table: Table) -> tuple[bytes, int]:
    """What stood outside of the items: what it is known by, and its bytes."""
    tool, short = added_tool(call, table), short_tools(call, table)
    if not tool:
        return call.prompt.first, call.step.outside
    entry = definition(dialect.name, tool)
    forms = sorted(f"{one.handle} {one.form}" for one in short.shortened.values()) if short else []
    key = b" ".join([call.prompt.first, entry, *(form.encode() for form in forms)])
    return key, call.step.outside + len(entry) - (short.freed if short else 0)
