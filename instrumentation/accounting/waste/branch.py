"""Follows one branch of a session call by call: the parts of its prompt, and which of its pages are waste.

This is not the page table, because it must undo: where a client takes back the end of its prompt, the pages that only
that end superseded count in full again here, while the page table never forgets what was superseded. What both do
alike they share: names of duplicates (``pages.duplicates``) and what a call supersedes (``pages.staleness``).

The part of a page depends on the prompt around it and on the last call that needs its content, on nothing else. It is
counted again only when one of these changes, so that a call costs work for its new items.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from instrumentation.accounting.waste.items import ItemCall, ItemParts, PagePiece
from pager.paging.pages.duplicates import next_name, page_name
from pager.paging.pages.page import Found
from pager.paging.pages.page_table import common_length
from pager.paging.pages.staleness import Deed, Supersession

WORKING = 10
"""Calls for which a page that was used is of the working set."""

_REMEMBERED = 4
"""Calls whose state of ``Supersession`` is kept, for prompts whose end is taken back."""

_LETTERS = {"": ".", "results": "r", "stale": "s", "duplicates": "s", "superseded": "s"}


@dataclass(slots=True, eq=False)
class WastePage:
    """One page of a branch; ``born`` is its first call, ``last`` the last that needs it, ``used`` the latest use.

    ``buried`` is the place of the item that superseded it, -1 where none has; ``part`` is the part of its tokens, empty
    while it is not in the prompt. ``marks`` are the letters of its states, each from a call on, and ``uses`` the calls
    whose answer used it, both by their place in the branch.
    """

    name: str
    found: Found
    made: ItemCall | None
    tokens: int
    born: int
    last: int
    used: int
    here: bool = False
    buried: int = -1
    part: str = ""
    working: bool = False
    marks: list[tuple[int, str]] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)


class _LaterDeed(NamedTuple):
    """An answered call, which may supersede earlier pages; ``page`` is the name of its own page, or empty."""

    page: str
    part: Literal["result", "argument"]
    deed: Deed
    failed: bool


@dataclass(slots=True)
class _WasteItem:
    """An item in the prompt."""

    item: ItemParts
    pages: list[WastePage] = field(default_factory=list)
    deeds: list[_LaterDeed] = field(default_factory=list)


class WasteBranch:
    """The prompt of a branch as of its latest call.

    ``last`` has the last call that needs each page, by handle. ``bytes`` and ``tokens`` are those of the items, tokens
    by part, ``working`` the tokens of the working set, ``steps`` the numbers in the session of the branch's calls,
    ``pages`` all that it ever had, and ``known`` the system prompts of its answered calls.
    """

    def __init__(self, number: int, last: Mapping[str, int]) -> None:
        self.number = number
        self.bytes = 0
        self.tokens: Counter[str] = Counter()
        self.working = 0
        self.steps: list[int] = []
        self.pages: list[WastePage] = []
        self.known: set[object] = set()
        self._last = last
        self._call = 0
        self._answered = 0
        self._digests: list[bytes] = []
        self._slots: list[_WasteItem] = []
        self._here: dict[str, WastePage] = {}
        self._left: dict[tuple[str, str], WastePage] = {}
        self._counts: Counter[str] = Counter()
        self._made: dict[str, list[ItemCall]] = {}
        self._due: dict[int, list[WastePage]] = {}
        self._graves: list[WastePage] = []
        self._dead = Supersession(by_edits=False)
        self._states: list[tuple[int, Supersession]] = []

    def fork(self, number: int, last: Mapping[str, int], call: int) -> "WasteBranch":
        """A branch that leaves this one after ``call``; what happened here later did not happen there."""
        child = WasteBranch(number, last)
        child.known = set(self.known)
        for page in self._here.values():
            born = min(page.born, call + 1)
            used, needed = max(born, min(page.used, call)), last.get(page.found.handle, 0)
            child._left[page.name, page.found.key] = WastePage(
                page.name, page.found, page.made, page.tokens, born, needed, used
            )
        return child

    def advance(self, step: int, call: int, digests: Sequence[bytes], items: Mapping[bytes, ItemParts]) -> None:
        """Take the prompt of a call; ``step`` is its number in the session, ``call`` in the branch."""
        self.steps.append(step)
        since, self._call = self._call, call
        for number in range(since + 1, call + 1):
            for page in self._due.pop(number, ()):
                self._settle(page)
        self._cut(common_length(self._digests, digests))
        self._states = [*self._states[1 - _REMEMBERED :], (len(self._slots), self._dead.copy())]
        for digest in digests[len(self._slots) :]:
            self._push(items[digest])
        self._digests = list(digests)
        self._left = {}

    def use(self, handles: Iterable[str]) -> None:
        """Note the pages that the answer uses; of several with one content, the last."""
        for handle in handles:
            page = self._here.get(page_name(handle, self._counts[handle]))
            if page is not None:
                page.used = self._call
                page.uses.append(len(self.steps) - 1)
                self._wake(page)

    def new(self) -> Iterator[ItemParts]:
        """The items that no answered call of the branch has had at their place."""
        return (slot.item for slot in self._slots[self._answered :])

    def answered(self) -> None:
        """Note that the call was answered: its items are no longer new."""
        self.known.update(item.norm for item in self.new() if item.tokens["system"])
        self._answered = len(self._slots)

    # Items that are added

    def _push(self, item: ItemParts) -> None:
        slot = _WasteItem(item)
        self._slots.append(slot)
        self.bytes += item.size
        self.tokens.update(item.tokens)
        for made in item.made:  # each time a deed of its own: a prompt may have an item twice, word by word
            self._made.setdefault(made.call_id, []).append(made._replace(deed=replace(made.deed)))
        slot.pages = [self._page(piece) for piece in item.pages]
        slot.deeds = list(self._deeds(slot))
        for name in self._deaths(slot):
            page = self._here[name]
            page.buried = len(self._slots) - 1
            self._graves.append(page)
            self._settle(page)
        for page in slot.pages:
            self._wake(page)

    def _page(self, piece: PagePiece) -> WastePage:
        """A new page, or one that comes back at once in an item that was written anew."""
        found = piece.found
        number = self._counts[found.handle] = self._counts[found.handle] + 1
        name = page_name(found.handle, number)
        page = self._left.pop((name, found.key), None)
        if page is None:
            made, last = self._made.get(found.call_id), self._last.get(found.handle, 0)
            page = WastePage(name, found, made[-1] if made else None, 0, self._call, last, self._call)
        if not page.marks:
            self.pages.append(page)
        page.tokens, page.here = piece.tokens, True
        self._here[name] = page
        if number > 1:
            self._settle(self._here[page_name(found.handle, number - 1)])
        return page

    def _deeds(self, slot: _WasteItem) -> Iterator[_LaterDeed]:
        """The calls that an item answers: small results first, as in the page table."""
        paged = {page.found.call_id for page in slot.pages if page.found.kind == "result"}
        for call_id, failed in slot.item.answered:
            if call_id not in paged and (made := self._made.get(call_id)):
                yield _LaterDeed("", "result", made[-1].deed, failed)
        for page in slot.pages:
            if made := self._made.get(page.found.call_id):
                part: Literal["result", "argument"] = "result" if page.found.kind == "result" else "argument"
                yield _LaterDeed(page.name, part, made[-1].deed, page.found.is_error)

    def _deaths(self, slot: _WasteItem) -> Iterator[str]:
        """The names of the pages that an item supersedes."""
        for later in slot.deeds:
            if later.page:
                yield from self._dead.note(later.page, later.part, later.deed, failed=later.failed)
            else:
                yield from self._dead.edited(later.deed, failed=later.failed)

    # Items that are taken back

    def _cut(self, keep: int) -> None:
        """Take back all items from the one numbered ``keep`` on."""
        if keep == len(self._slots):
            return
        while len(self._slots) > keep:
            self._pop(self._slots.pop())
        self._answered = min(self._answered, keep)
        while self._graves and self._graves[-1].buried >= keep:
            page = self._graves.pop()
            page.buried = -1
            self._settle(page)
        self._restore(keep)

    def _pop(self, slot: _WasteItem) -> None:
        self.bytes -= slot.item.size
        self.tokens.subtract(slot.item.tokens)
        for made in slot.item.made:
            self._made[made.call_id].pop()
        for page in reversed(slot.pages):
            page.here = False
            self._left[page.name, page.found.key] = self._here.pop(page.name)
            self._counts[page.found.handle] -= 1
            self._settle(page)
            earlier = self._here.get(page_name(page.found.handle, self._counts[page.found.handle]))
            if earlier is not None:
                self._settle(earlier)

    def _restore(self, keep: int) -> None:
        """Go back to the superseded pages of the first ``keep`` items, from the latest state that is kept of them."""
        while self._states and self._states[-1][0] > keep:
            self._states.pop()
        begin, self._dead = self._states[-1] if self._states else (0, Supersession(by_edits=False))
        self._dead = self._dead.copy()
        for slot in self._slots[begin:]:
            list(self._deaths(slot))

    # Tokens of pages by part

    def _wake(self, page: WastePage) -> None:
        """Count a page that is new or was used, and again when it leaves the working set or gets stale."""
        for due in {max(page.born, page.last) + 1, page.used + WORKING}:
            if due > self._call:
                self._due.setdefault(due, []).append(page)
        self._settle(page)

    def _settle(self, page: WastePage) -> None:
        """Count a page's tokens for its part as of now."""
        part = self._part(page)
        working = part not in ("", "duplicates") and self._call - page.used < WORKING
        self.tokens[page.part] -= page.tokens
        self.tokens[part] += page.tokens
        self.working += page.tokens * (working - page.working)
        page.part, page.working = part, working
        at, letter = len(self.steps) - 1, _LETTERS[part]
        if page.marks and page.marks[-1][0] == at:
            page.marks.pop()
        if (page.marks[-1][1] if page.marks else "") != letter:
            page.marks.append((at, letter))

    def _part(self, page: WastePage) -> str:
        if not page.here:
            return ""
        if next_name(page.name) in self._here:
            return "duplicates"
        if page.buried >= 0:
            return "superseded"
        return "stale" if self._call > max(page.born, page.last) else "results"
