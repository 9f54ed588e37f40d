"""Prompts as they go upstream when they are paged, in the parts by which a provider caches them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from instrumentation.accounting.billing import Prompt, tokens_in
from instrumentation.accounting.item_sizes import item_tokens
from instrumentation.replay.prepared_recording import PreparedCall
from pager.paging.page_in import definition
from pager.paging.pages.page_table import PageTable, Slot, same_slots
from pager.paging.render import with_stubs
from pager.tools.decide_forms import Toolset
from pager.wire.dialect import Dialect


@dataclass(slots=True)
class _Latest:
    """The prompt of a branch's latest paged call, and what it was made of."""

    head: bytes = b""
    slots: list[Slot] = field(default_factory=list)
    prompt: Prompt = field(default_factory=Prompt)


class PagedPrompts:
    """Makes the prompts of a session; ``raw`` gives the bytes of an item, ``counted`` has tokens of items by digest."""

    def __init__(self, raw: Callable[[Slot], bytes], counted: dict[bytes, int]) -> None:
        self._raw = raw
        self._counted = counted
        self._latest: dict[int, _Latest] = {}

    def paged(self, dialect: Dialect, call: PreparedCall, table: PageTable) -> Prompt:
        """The prompt of a call as it is paged; what it has in common with the one before is not made again."""
        latest, (head, size) = self._latest.setdefault(call.step.branch, _Latest()), head_as_sent(dialect, call, table)
        fresh = min((at for at in table.changed if table.slots[at].sent is None), default=len(table.slots))
        keep = min(fresh, same_slots(latest.slots, table.slots)) if head == latest.head else 0
        if not keep:
            latest.prompt = Prompt.of([head], [tokens_in(size)])
        items = [self._part(dialect, table.slots[at]) for at in range(keep, len(table.slots))]
        latest.prompt = latest.prompt.grown([key for key, _ in items], [tokens for _, tokens in items], keep + 1)
        latest.head, latest.slots = head, list(table.slots)
        return latest.prompt

    def latest(self, branch: int) -> Prompt:
        """The prompt of the branch's latest paged call; empty where none was."""
        return self._latest.get(branch, _Latest()).prompt

    def _part(self, dialect: Dialect, slot: Slot) -> tuple[bytes, int]:
        """What an item is known by in the bill, and its tokens; stubs make it another one."""
        if any(page.stub for page in slot.pages):
            item = with_stubs(dialect, slot, self._raw)
            return sha256(item).digest(), item_tokens(item, dialect.name)
        if slot.digest not in self._counted:
            self._counted[slot.digest] = item_tokens(self._raw(slot), dialect.name)
        return slot.digest, self._counted[slot.digest]


def followed_by(prompt: Prompt, items: Iterable[bytes], dialect: Dialect) -> Prompt:
    """A prompt with the items of a hidden leg behind it."""
    items = list(items)
    tokens = [item_tokens(raw, dialect.name) for raw in items]
    return prompt.grown([sha256(raw).digest() for raw in items], tokens)


def added_tool(call: PreparedCall, table: PageTable) -> str:
    """The name of the tool that was added; empty where the call can't carry it."""
    return table.tool if call.step.tools is not None else ""


def short_tools(call: PreparedCall, table: PageTable) -> Toolset | None:
    """The decision on the tools of a call; None if none of them goes out short."""
    decided, offers = table.tools, call.step.offers
    if not added_tool(call, table) or decided is None or offers is None or decided.digest != offers.digest:
        return None
    return decided if decided.shortened else None


def head_as_sent(dialect: Dialect, call: PreparedCall, table: PageTable) -> tuple[bytes, int]:
    """What is outside of the items: what it is known by in the bill, and its bytes."""
    tool, short = added_tool(call, table), short_tools(call, table)
    if not tool:
        return call.prompt.first, call.step.outside
    entry = definition(dialect.name, tool)
    forms = sorted(f"{one.handle} {one.form}" for one in short.shortened.values()) if short else []
    key = b" ".join([call.prompt.first, entry, *(form.encode() for form in forms)])
    return key, call.step.outside + len(entry) - (short.freed if short else 0)
