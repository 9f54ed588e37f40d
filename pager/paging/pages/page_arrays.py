"""The numbers of a prompt's pages in arrays, for planning that must not take longer with every page.

A page table mirrors what it knows of its pages here; only rows of pages that have changed are written again. A policy
that reckons with arrays asks for ``columns`` of what it is shown; one that would rather look at pages never pays for
arrays, nor the other way round.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np

from pager.paging.policy import PageView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pager.paging.pages.page import Page

    Numbers = NDArray[np.float64]
    Flags = NDArray[np.bool_]

BETWEEN = 1
"""Bytes between two items of a prompt."""

_FIELDS = (
    *("tokens", "stub_tokens", "size", "born", "used", "uses", "faults", "superseded", "evicted", "is_error"),
    *("pin", "pinned_at", "slot", "is_argument"),
)
_PLACE = {name: at for at, name in enumerate(_FIELDS)}
_values = attrgetter(*_FIELDS)


class SizedItem(Protocol):
    """An item of a prompt, of ``size`` bytes."""

    size: int


class Mirror:
    """What a table knows of its pages and slots, in arrays that are brought up to date when they are asked for."""

    def __init__(self) -> None:
        self._rows = np.zeros((64, len(_FIELDS)))
        self._tools = np.zeros(64, dtype=np.intp)
        self._codes: dict[str, int] = {}
        self._starts = np.zeros(65)
        self._known_pages = self._known_slots = 0
        self._touched: set[int] = set()

    def touch(self, page: "Page") -> None:
        """Something of this page has changed."""
        self._touched.add(page.row)

    def cut(self, pages: int, slots: int) -> None:
        """All behind the first ``pages`` and ``slots`` is gone."""
        self._known_pages = min(self._known_pages, pages)
        self._known_slots = min(self._known_slots, slots)

    def sync(self, pages: "Sequence[Page]", slots: Sequence[SizedItem]) -> None:
        """Take over what has changed since the last time."""
        for row in self._touched:
            if row < self._known_pages:
                self._rows[row] = _values(pages[row])
        self._touched.clear()
        self._add_pages(pages[self._known_pages :])
        self._add_slots(slots[self._known_slots :])

    def __getitem__(self, field: str) -> "Numbers":
        return _read_only(self._rows[: self._known_pages, _PLACE[field]])

    @property
    def tools(self) -> "NDArray[np.intp]":
        """The number of each page's tool; which tool has which number is the same while the table lives."""
        tools: NDArray[np.intp] = _read_only(self._tools[: self._known_pages])
        return tools

    @property
    def tool_names(self) -> list[str]:
        """The tools by their numbers."""
        return list(self._codes)

    @property
    def starts(self) -> "Numbers":
        """The bytes of all slots before each slot, and at the end those of all."""
        return self._starts[: self._known_slots + 1]

    def _add_pages(self, pages: "Sequence[Page]") -> None:
        first, last = self._known_pages, self._known_pages + len(pages)
        if last > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros((last, len(_FIELDS)))])
            self._tools = np.concatenate([self._tools, np.zeros(last, dtype=np.intp)])
        if pages:
            self._rows[first:last] = list(map(_values, pages))
            self._tools[first:last] = [self._codes.setdefault(page.tool, len(self._codes)) for page in pages]
        self._known_pages = last

    def _add_slots(self, slots: Sequence[SizedItem]) -> None:
        first, last = self._known_slots, self._known_slots + len(slots)
        if last >= len(self._starts):
            self._starts = np.concatenate([self._starts, np.zeros(last + 1)])
        if slots:
            sizes = np.fromiter((slot.size for slot in slots), float, len(slots))
            self._starts[first + 1 : last + 1] = self._starts[first] + np.cumsum(sizes + BETWEEN)
        self._known_slots = last


def _read_only(column: "NDArray[Any]") -> "NDArray[Any]":
    """The same numbers, which policies are shown and must not change."""
    column.flags.writeable = False
    return column


@dataclass(frozen=True, slots=True)
class Columns:
    """The numbers of all pages of a prompt, in its order: what a ``PageView`` says of one."""

    tokens: "Numbers"
    stub_tokens: "Numbers"
    size: "Numbers"
    before: "Numbers"
    after: "Numbers"
    age: "Numbers"
    idle: "Numbers"
    uses: "Numbers"
    faults: "Numbers"
    superseded: "Flags"
    pinned: "Flags"
    cached: "Flags"
    resident: "Flags"
    is_argument: "Flags"
    tool: "NDArray[np.intp]"
    tool_pages: "Numbers"
    tool_reused: "Numbers"
    usual: "Numbers"
    found: "Numbers"

    @property
    def evictable(self) -> "Flags":
        """Whether the rules allow to evict each, and there is anything to gain."""
        may_go: Flags = self.resident & ~self.pinned & (self.tokens > self.stub_tokens)
        return may_go


class LazyPages(Sequence[PageView]):
    """The pages of a prompt, made one by one only for those who look at them."""

    def __init__(self, pages: "Sequence[Page]", columns: Columns) -> None:
        self._pages = pages
        self.columns = columns
        self._made: list[PageView] | None = None

    def __len__(self) -> int:
        return len(self.columns.tokens)

    @overload
    def __getitem__(self, at: int) -> PageView: ...
    @overload
    def __getitem__(self, at: slice) -> list[PageView]: ...
    def __getitem__(self, at: int | slice) -> PageView | list[PageView]:
        return self._views[at]

    def __iter__(self) -> Iterator[PageView]:
        return iter(self._views)

    def handles(self, places: Iterable[int]) -> tuple[str, ...]:
        """The names of the pages at these places."""
        return tuple([self._pages[at].name for at in places])

    @property
    def _views(self) -> list[PageView]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self) -> list[PageView]:
        it = self.columns
        counts = (it.tokens, it.stub_tokens, it.before, it.after)
        numbers = (*counts, it.age, it.idle, it.uses, it.faults, it.tool_pages, it.tool_reused, it.found)
        flags = (it.superseded, it.pinned, it.cached, it.resident)
        whole = zip(*(column.astype(int).tolist() for column in numbers), strict=True)
        traits = zip(*(column.tolist() for column in flags), strict=True)
        rows = zip(self._pages, whole, traits, it.usual.tolist(), strict=True)
        return [
            PageView(
                one.name,
                one.kind,
                one.size,
                tokens,
                stub_tokens,
                at,
                before,
                after,
                age,
                idle,
                uses,
                faults,
                superseded,
                pinned,
                cached,
                resident,
                one.tool,
                made,
                reused,
                usual,
                found,
            )
            for at, (
                one,
                (tokens, stub_tokens, before, after, age, idle, uses, faults, made, reused, found),
                (superseded, pinned, cached, resident),
                usual,
            ) in enumerate(rows)
        ]


def handles(pages: Sequence[PageView], places: Iterable[int]) -> tuple[str, ...]:
    """The handles of the pages at these places."""
    return pages.handles(places) if isinstance(pages, LazyPages) else tuple(pages[at].handle for at in places)


def columns(pages: Sequence[PageView]) -> Columns:
    """The numbers of these pages in arrays."""
    if isinstance(pages, LazyPages):
        return pages.columns
    codes: dict[str, int] = {}
    tools = [codes.setdefault(page.tool, len(codes)) for page in pages]

    def numbers(name: str) -> "Numbers":
        return np.fromiter(map(attrgetter(name), pages), float, len(pages))

    def flags(name: str) -> "Flags":
        return np.fromiter(map(attrgetter(name), pages), bool, len(pages))

    before, found = numbers("before"), numbers("found")
    return Columns(
        tokens=numbers("tokens"),
        stub_tokens=numbers("stub_tokens"),
        size=numbers("size"),
        before=before,
        after=numbers("after"),
        age=numbers("age"),
        idle=numbers("idle"),
        uses=numbers("uses"),
        faults=numbers("faults"),
        superseded=flags("superseded"),
        pinned=flags("pinned"),
        cached=flags("cached"),
        resident=flags("resident"),
        is_argument=np.fromiter((page.kind == "argument" for page in pages), bool, len(pages)),
        tool=np.array(tools, dtype=np.intp),
        tool_pages=numbers("tool_pages"),
        tool_reused=numbers("tool_reused"),
        usual=numbers("usual"),
        found=np.where(found < 0, before, found),
    )
