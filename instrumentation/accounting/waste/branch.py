"""Follows one branch of a session call by call: what its prompt holds, and which of its pages are waste.

What a page is depends on the prompt that it stands in and on when its content is needed for the last time, on nothing
else. It is counted again only when one of these changes, so that a call costs work for what is new in it. Where a
client takes back the end of its prompt, what that had made of the pages before it is taken back, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from instrumentation.accounting.waste.items import ItemCall, ItemParts, PagePiece
from pager.paging.page import Found
from pager.paging.page_table import common_length
from pager.paging.staleness import Deed, Supersession

WORKING = 10
"""Calls for which a page that was used is of the working set."""

_REMEMBERED = 4
"""States of what is dead, as of the latest calls, to which a prompt that was cut can go back."""

_LETTERS = {"": ".", "results": "r", "stale": "s", "duplicates": "s", "superseded": "s"}


@dataclass(slots=True, eq=False)
class WastePage:
    """One page of a branch; ``born`` is its first call, ``last`` the last that needs it, ``used`` the latest so far.

    ``buried`` is the place of the item that made it dead, -1 while it lives; ``part`` is what its tokens are counted
    as, nothing while it is not there. ``marks`` are the letters of its states, each from a call on, and ``uses`` the
    calls whose answer used it, both by their place in the branch.
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
    """What an item tells of earlier pages: the call that it answers, with the page that it is, if it is one."""

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


@dataclass(slots=True)
class PromptParts:
    """The tokens of a prompt's items, by part; ``results`` are those in use, or too small to be pages."""

    system: int = 0
    user: int = 0
    assistant: int = 0
    results: int = 0
    stale: int = 0
    duplicates: int = 0
    superseded: int = 0
    other: int = 0

    def add(self, item: ItemParts, times: int) -> None:
        """Count what is no page of an item that comes (1) or goes (-1)."""
        self.system += times * item.system
        self.user += times * item.user
        self.assistant += times * item.assistant
        self.results += times * item.results
        self.other += times * item.other

    def move(self, tokens: int, source: str, target: str) -> None:
        """Count the tokens of a page as another part; nothing is the part of one that is not there."""
        if source:
            setattr(self, source, getattr(self, source) - tokens)
        if target:
            setattr(self, target, getattr(self, target) + tokens)


class WasteBranch:
    """The prompt of a branch as of its latest call.

    ``last`` tells by a page's handle the last call that needs it. ``bytes`` and ``tokens`` are those of the items,
    ``working`` the tokens of the working set, ``steps`` the numbers of the session's calls that are of this branch,
    ``pages`` all that it ever had, and ``known`` is what stood before the conversation in any answered call.
    """

    def __init__(self, number: int, last: Mapping[str, int]) -> None:
        self.number = number
        self.bytes = 0
        self.tokens = PromptParts()
        self.working = 0
        self.steps: list[int] = []
        self.pages: list[WastePage] = []
        self.known: set[object] = set()
        self._last = last
        self._call = 0
        self._told = 0
        self._digests: list[bytes] = []
        self._slots: list[_WasteItem] = []
        self._here: dict[str, WastePage] = {}
        self._left: dict[tuple[str, str], WastePage] = {}
        self._copies: dict[str, list[WastePage]] = {}
        self._made: dict[str, list[ItemCall]] = {}
        self._due: dict[int, list[WastePage]] = {}
        self._graves: list[WastePage] = []
        self._dead = Supersession(by_edits=False)
        self._states: list[tuple[int, Supersession]] = []

    def fork(self, number: int, last: Mapping[str, int], call: int) -> "WasteBranch":
        """A branch that leaves this one after so many calls; what happened here later did not happen there."""
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
        """The answer uses these pages; of several with one content, the last."""
        for handle in handles:
            for page in self._copies.get(handle, [])[-1:]:
                page.used = self._call
                page.uses.append(len(self.steps) - 1)
                self._wake(page)

    def new(self) -> Iterator[ItemParts]:
        """The items that no answered call of the branch has had at their place."""
        return (slot.item for slot in self._slots[self._told :])

    def answered(self) -> None:
        """The call was answered: what it had is new no more."""
        self.known.update(item.norm for item in self.new() if item.system)
        self._told = len(self._slots)

    # What comes

    def _push(self, item: ItemParts) -> None:
        slot = _WasteItem(item)
        self._slots.append(slot)
        self.bytes += item.size
        self.tokens.add(item, 1)
        for made in item.made:  # each time a deed of its own: an item may stand twice in a prompt, word by word
            self._made.setdefault(made.call_id, []).append(made._replace(deed=replace(made.deed)))
        slot.pages = [self._page(piece) for piece in item.pages]
        slot.deeds = list(self._deeds(slot))
        for name in self._deaths(slot):
            self._bury(name)
        for page in slot.pages:
            self._wake(page)

    def _page(self, piece: PagePiece) -> WastePage:
        """A page that comes, or that comes back at once in an item that was written anew."""
        found = piece.found
        copies = self._copies.setdefault(found.handle, [])
        name = f"{found.handle}@{len(copies) + 1}" if copies else found.handle
        page = self._left.pop((name, found.key), None)
        if page is None:
            made, last = self._made.get(found.call_id), self._last.get(found.handle, 0)
            page = WastePage(name, found, made[-1] if made else None, 0, self._call, last, self._call)
        if not page.marks:
            self.pages.append(page)
        page.tokens, page.here = piece.tokens, True
        self._here[name] = page
        copies.append(page)
        for earlier in copies[-2:-1]:
            self._settle(earlier)
        return page

    def _deeds(self, slot: _WasteItem) -> Iterator[_LaterDeed]:
        """What is known of the calls that an item answers: small results first, as the page table takes them."""
        paged = {page.found.call_id for page in slot.pages if page.found.kind == "result"}
        for call_id, failed in slot.item.answered:
            if call_id not in paged and (made := self._made.get(call_id)):
                yield _LaterDeed("", "result", made[-1].deed, failed)
        for page in slot.pages:
            if made := self._made.get(page.found.call_id):
                part: Literal["result", "argument"] = "result" if page.found.kind == "result" else "argument"
                yield _LaterDeed(page.name, part, made[-1].deed, page.found.is_error)

    def _deaths(self, slot: _WasteItem) -> Iterator[str]:
        """The pages that an item makes dead."""
        for one in slot.deeds:
            if one.page:
                yield from self._dead.note(one.page, one.part, one.deed, failed=one.failed)
            else:
                yield from self._dead.edited(one.deed, failed=one.failed)

    def _bury(self, name: str) -> None:
        page = self._here[name]
        page.buried = len(self._slots) - 1
        self._graves.append(page)
        self._settle(page)

    # What goes

    def _cut(self, keep: int) -> None:
        """Take back all items from the one numbered ``keep`` on."""
        if keep == len(self._slots):
            return
        while len(self._slots) > keep:
            self._pop(self._slots.pop())
        self._told = min(self._told, keep)
        while self._graves and self._graves[-1].buried >= keep:
            page = self._graves.pop()
            page.buried = -1
            self._settle(page)
        self._restore(keep)

    def _pop(self, slot: _WasteItem) -> None:
        self.bytes -= slot.item.size
        self.tokens.add(slot.item, -1)
        for made in slot.item.made:
            self._made[made.call_id].pop()
        for page in reversed(slot.pages):
            page.here = False
            self._left[page.name, page.found.key] = self._here.pop(page.name)
            copies = self._copies[page.found.handle]
            copies.pop()
            for one in (page, *copies[-1:]):
                self._settle(one)

    def _restore(self, keep: int) -> None:
        """Know of dead pages what was known up to there: go back to the latest state that is kept, and on from it."""
        while self._states and self._states[-1][0] > keep:
            self._states.pop()
        begin, self._dead = self._states[-1] if self._states else (0, Supersession(by_edits=False))
        self._dead = self._dead.copy()
        for slot in self._slots[begin:]:
            list(self._deaths(slot))

    # What is counted

    def _wake(self, page: WastePage) -> None:
        """Count a page that came, or was used, and again when that will have worn off."""
        for due in {max(page.born, page.last) + 1, page.used + WORKING}:
            if due > self._call:
                self._due.setdefault(due, []).append(page)
        self._settle(page)

    def _settle(self, page: WastePage) -> None:
        """Count a page as what it is now."""
        part = self._part(page)
        working = part not in ("", "duplicates") and self._call - page.used < WORKING
        self.tokens.move(page.tokens, page.part, part)
        self.working += page.tokens * (working - page.working)
        page.part, page.working = part, working
        self._mark(page, _LETTERS[part])

    def _part(self, page: WastePage) -> str:
        if not page.here:
            return ""
        if self._copies[page.found.handle][-1] is not page:
            return "duplicates"
        if page.buried >= 0:
            return "superseded"
        return "stale" if self._call > max(page.born, page.last) else "results"

    def _mark(self, page: WastePage, letter: str) -> None:
        at = len(self.steps) - 1
        if page.marks and page.marks[-1][0] == at:
            page.marks.pop()
        if (page.marks[-1][1] if page.marks else "") != letter:
            page.marks.append((at, letter))
