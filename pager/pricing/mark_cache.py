"""A provider's prompt cache that is filled at marks: what it holds of one branch, and what a request finds in it.

Anthropic writes a prefix of the prompt only where a block is marked (``cache_control``), for five minutes or an hour,
and finds it again only from a mark at its end or at most 19 positions behind it. The highest prefix found is read. That
read, and any mark on a prefix that is held already, start the prefix's lifetime again and cost nothing, so a mark that
the client leaves free can keep an early prefix alive. Lifetimes count from the start of the request.

A prefix is known here by its number of parts: 0 is what comes before the messages, n what ends with the n-th message.
Whoever changes the prompt says from where on (``cut``). Nothing here reads a clock.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

FIVE_MINUTES, HOUR = 300.0, 3_600.0
"""The lifetimes that a mark can ask for, in seconds."""

MOST_MARKS = 4
"""Marks that a request may have."""

LOOKBACK = 20
"""Positions that the provider looks at for each mark, the mark's own included."""

_MARK = re.compile(rb'(?<!\\)"cache_control"\s*:\s*(\{[^{}]*\})')
_MARK_MEMBER = re.compile(rb',?\s*(?<!\\)"cache_control"\s*:\s*\{[^{}]*\}')
_LONG = re.compile(rb'"ttl"\s*:\s*"1h"')


def marks_in(raw: bytes | memoryview, start: int = 0, end: int | None = None) -> tuple[float, ...]:
    """The lifetimes that the marks in these bytes ask for, in their order; a text that speaks of marks has none."""
    stop = len(raw) if end is None else end
    if isinstance(raw, bytes) and raw.find(b'"cache_control"', start, stop) < 0:
        return ()
    return tuple(HOUR if _LONG.search(mark[1]) else FIVE_MINUTES for mark in _MARK.finditer(raw, start, stop))


def without_marks(raw: bytes) -> bytes:
    """The bytes without their marks, to compare what they say; no JSON any more where a mark came first."""
    return _MARK_MEMBER.sub(b"", raw)


class Entry(NamedTuple):
    """A prefix that the provider holds: its lifetime in seconds, and when it was last used."""

    lifetime: float
    used: float

    def is_alive(self, at: float) -> bool:
        """Whether the provider still holds it."""
        return at - self.used <= self.lifetime


Key = TypeVar("Key")


def renewed(
    entries: Mapping[Key, Entry], at: float, marked: Iterable[tuple[Key, float, bool]], hit: Key
) -> dict[Key, Entry]:
    """The prefixes held after a request that read ``hit``, of those held before it.

    Each marked prefix comes with the lifetime that it asks for, and whether it was written now.
    """
    read = entries.get(hit)
    held = {key: entry for key, entry in entries.items() if entry.is_alive(at)}
    for key, asked, is_new in marked:
        if not is_new and key in held:
            lifetime = held[key].lifetime
        else:  # nothing lives longer than the prefix that it was written behind
            lifetime = asked if read is None else min(asked, read.lifetime)
        held[key] = Entry(lifetime, at)
    if read is not None:
        held[hit] = Entry(read.lifetime, at)
    return held


@dataclass(slots=True)
class MarkCache:
    """The prefixes of one branch that the provider holds, by their number of parts."""

    entries: dict[int, Entry] = field(default_factory=dict)

    def cut(self, parts: int) -> None:
        """The prompt changes behind this many parts; -1 where what comes before the messages changes as well."""
        if any(count > parts for count in self.entries):
            self.entries = {count: entry for count, entry in self.entries.items() if count <= parts}

    def alive(self, at: float) -> list[int]:
        """The prefixes that are still held, shortest first."""
        return sorted(count for count, entry in self.entries.items() if entry.is_alive(at))

    def found(self, at: float, marks: Mapping[int, float], positions: Callable[[int], int]) -> int:
        """The longest prefix that a request with these marks finds; -1 if it finds none.

        ``positions`` gives the positions in the part with this number, from 0 on.
        """
        return max(self.findable(at, marks, positions), default=-1)

    def findable(self, at: float, marks: Iterable[int], positions: Callable[[int], int]) -> list[int]:
        """The prefixes still held that the provider looks at for marks at the ends of these, shortest first."""
        reach = {count for mark in marks for count in within_reach(mark, positions)}
        return [count for count in self.alive(at) if count in reach]

    def send(self, at: float, marks: Mapping[int, float], positions: Callable[[int], int]) -> int:
        """Take a request with marks at the ends of these prefixes, and the lifetimes they ask for; what it found."""
        hit = self.found(at, marks, positions)
        marked = [(count, asked, count > hit) for count, asked in marks.items()]
        self.entries = renewed(self.entries, at, marked, hit)
        return hit

    def copy(self) -> "MarkCache":
        """The same for a branch that forks off."""
        return MarkCache(dict(self.entries))


def within_reach(mark: int, positions: Callable[[int], int]) -> Iterator[int]:
    """The prefixes that the provider looks at for a mark at the end of this one."""
    seen = 0
    for count in range(mark, -1, -1):
        yield count
        if count:
            seen += positions(count - 1)
        if seen >= LOOKBACK:
            return
