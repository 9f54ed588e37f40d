r"""Cuts slices out of a page's text: ranges of its lines, or the lines around what a search finds.

A search may be any text a model thinks of, so its cost must have a bound that no pattern can break. Plain text is found
by the linear search of bytes. Patterns run on RE2, over all lines at once, with three provisos:

- A match never crosses a line (``never_nl``, and no ``\C``), and the search goes on at the next line: so no byte is
  read more than about twice, whatever the pattern.
- RE2 runs an automaton at about 2 ns a byte, until that would need too many states; then it simulates the program, at
  up to 10 ns a byte and instruction. Only patterns with many wild parts (classes, repeats, groups) can need so many
  states. Those may read ``WORK`` divided by their program's size of a page, and the finding says how far they came.
- The search ends when more was found than can be shown.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pager.text.distinctive import encoded
from pager.text.linear_patterns import LARGEST_PROGRAM, program_of

CONTEXT = 2
"""Lines shown on each side of a match."""

MAX_HUNKS = 200
"""Most groups of lines that one search shows of a page."""

MAX_MATCHES = 20_000
"""Most matches that one search shows of a page."""

LONG_LINE = 2_000
"""A line longer than this, in characters, is shown by a search only around its match."""

LONGEST_PATTERN = 1_000
"""In characters, also for a list of ranges; longer ones are refused."""

WORK = 25_000_000
"""Bytes times instructions that a pattern with many wild parts may read: 0.1 to 0.25 s."""

_WILD_PARTS = 12
_TAME_PROGRAM = 1_500  # instructions: more than one class of Unicode's letters makes it larger

_RANGE = re.compile(r"\s*(?:L?(\d{1,18}))?\s*(-|\u2013|:|\.\.)?\s*(?:L?(\d{1,18}))?\s*", re.ASCII)
_SPECIAL = re.compile(r"[\\.^$|?*+()\[\]{}]")
_ESCAPED_SIGN = re.compile(r"\\[^a-zA-Z0-9]")
_WILD = re.compile(r"\\[a-zA-Z0-9]|[.\[(?*+]")
_REPEAT = re.compile(r"\{(\d+),?(\d*)\}")
_ANY_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")


class Range(NamedTuple):
    """Lines ``first`` to ``last`` of a text, counted from 1, both included."""

    first: int
    last: int


class Slice(NamedTuple):
    """Some lines of a text, and which of them a search was for."""

    lines: Range
    text: str
    matching: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found; ``how`` says which reading of the pattern found it, if not the one given.

    ``more`` is True if there is more than is shown. ``reached`` is the last line that was read, if not all were.
    """

    slices: tuple[Slice, ...] = ()
    how: str = ""
    more: bool = False
    reached: int | None = None


def lines_of(text: str) -> list[str]:
    """The lines of a text without their line feeds, which alone separate lines; the last one may lack it."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def ranges_of(spec: str, count: int) -> list[Range] | None:
    """The ranges that a text such as "120-180,300" names in ``count`` lines, in order and joined where they touch.

    What lies beyond the last line is left out; None if the text can't be read.
    """
    if len(spec) > LONGEST_PATTERN:
        return None
    wanted = [_range_of(part, count) for part in spec.split(",") if part.strip()]
    if not wanted or None in wanted:
        return None
    inside = sorted(part for part in wanted if part and part.first <= part.last)
    joined: list[Range] = []
    for part in inside:
        if joined and part.first <= joined[-1].last + 1:
            joined[-1] = Range(joined[-1].first, max(joined[-1].last, part.last))
        else:
            joined.append(part)
    return joined


def _range_of(part: str, count: int) -> Range | None:
    """One range, clamped; its first line is after its last one if it lies outside."""
    found = _RANGE.fullmatch(part)
    if found is None or not (found[1] or found[3]) or (found[1] and found[3] and not found[2]):
        return None
    first = int(found[1] or 1)
    last = int(found[3]) if found[3] else count if found[2] else first
    if found[1] and found[3] and last < first:
        first, last = last, first
    return Range(max(first, 1), min(last, count))


def take(lines: Sequence[str], wanted: Range) -> Slice:
    """The lines of a range, unchanged."""
    return Slice(wanted, "\n".join(lines[wanted.first - 1 : wanted.last]))


def cut(whole: Slice, room: int) -> Slice:
    """As many of a slice's lines as fit into ``room`` characters, or the beginning of the first one."""
    end = whole.text.rfind("\n", 0, room + 1)
    if end < 0:
        return Slice(Range(whole.lines.first, whole.lines.first), whole.text[: max(room, 0)], whole.matching)
    last = whole.lines.first + whole.text.count("\n", 0, end)
    return Slice(Range(whole.lines.first, last), whole.text[:end], tuple(n for n in whole.matching if n <= last))


class Hit(NamedTuple):
    """A match: its first and last line, and where it begins and ends in the bytes searched."""

    lines: Range
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Search:
    """One reading of a pattern: how to find it from a position on, and how many bytes it may read in all."""

    find: Callable[[bytes, int], tuple[int, int] | None]
    how: str = ""
    ignore_case: bool = False
    height: int = 0  # line feeds in what it finds
    reach: int | None = None


def search(lines: Sequence[str], pattern: str, within: Sequence[Range], room: int, work: int = WORK) -> SearchResult:
    """The lines in these ranges that match, with their context, in groups.

    The pattern has at most ``LONGEST_PATTERN`` characters. One that finds nothing is tried as plain text, then both
    with case ignored. Collecting ends when the matching lines fill ``room`` characters.
    """
    reached = None
    for reading in _readings(pattern, work):
        found = _run(lines, reading, within, room)
        if found.slices:
            return found
        reached = found.reached or reached
    return SearchResult(reached=reached)


def is_refused(pattern: str) -> bool:
    """Whether it looks like a pattern but is none of RE2's, so that it is only searched for as plain text."""
    return bool(_SPECIAL.search(pattern)) and _compiled(pattern, ignore_case=False) is None


def _readings(pattern: str, work: int) -> Iterator[_Search]:
    for ignore_case in (False, True):
        note = "ignoring case" if ignore_case else ""
        program = _compiled(pattern, ignore_case=ignore_case) if _SPECIAL.search(pattern) else None
        if program is not None:
            tame = _is_tame(pattern) and program.programsize <= _TAME_PROGRAM
            reach = None if tame else work // program.programsize
            yield _Search(partial(_first_match, program), note, reach=reach)
            note = f"as plain text, {note}" if note else "as plain text"
        needle = encoded(pattern.casefold() if ignore_case else pattern)
        height = needle.rstrip(b"\n").count(b"\n")
        yield _Search(partial(_first_needle, needle), note, ignore_case=ignore_case, height=height)


def _compiled(pattern: str, *, ignore_case: bool) -> Any:  # noqa: ANN401 - the package has no types
    """The program of a pattern, or None if RE2 refuses it or it is too large."""
    if _ANY_BYTE.search(pattern):
        return None
    program = program_of("(?m)" + pattern, memory=4 << 20, one_line=True, ignore_case=ignore_case)
    return program if program is not None and program.programsize <= LARGEST_PROGRAM else None


def _is_tame(pattern: str) -> bool:
    """Whether it has so few wild parts, each counted as often as it is repeated, that the automaton stays small."""
    signs = _ESCAPED_SIGN.sub("", pattern)
    repeats = sum(max(int(least), int(most or 0)) for least, most in _REPEAT.findall(signs))
    return "){" not in signs and len(_WILD.findall(signs)) + repeats <= _WILD_PARTS


def _first_match(program: Any, haystack: bytes, start: int) -> tuple[int, int] | None:  # noqa: ANN401 - untyped
    match = program.search(haystack, start)
    return match.span() if match else None


def _first_needle(needle: bytes, haystack: bytes, start: int) -> tuple[int, int] | None:
    at = haystack.find(needle, start)
    return None if at < 0 else (at, at + len(needle))


def _run(lines: Sequence[str], reading: _Search, within: Sequence[Range], room: int) -> SearchResult:
    collected = _Collected(lines, room)
    left = reading.reach
    for part in within:
        whole = _haystack(lines, part, ignore_case=reading.ignore_case)
        haystack = whole
        if left is not None and len(whole) > left:  # up to the end of a line, if there is one
            end = whole.rfind(b"\n", 0, left + 1)
            haystack = whole[: end if end >= 0 else left]
        if not collected.add(_hits(haystack, reading, part.first), part, haystack):
            return SearchResult(collected.slices(), reading.how, more=True)
        if len(haystack) < len(whole):
            return SearchResult(collected.slices(), reading.how, reached=part.first + haystack.count(b"\n"))
        left = left and left - len(whole)
    return SearchResult(collected.slices(), reading.how)


def _haystack(lines: Sequence[str], part: Range, *, ignore_case: bool) -> bytes:
    """The bytes to search: without carriage returns at the ends of lines, so that ``$`` matches there."""
    text = "\n".join(lines[part.first - 1 : part.last]).replace("\r\n", "\n").removesuffix("\r")
    return encoded(text.casefold() if ignore_case else text)


def _hits(haystack: bytes, reading: _Search, first: int) -> Iterator[Hit]:
    """The first match of each line; ``first`` is the number of the first line."""
    at, line = 0, first
    while (span := reading.find(haystack, at)) is not None:
        start, end = span
        line += haystack.count(b"\n", at, start)
        yield Hit(Range(line, line + reading.height), start, end)
        at = haystack.find(b"\n", start) + 1
        line += 1
        if not at:
            return


class _Collected:
    """The groups of lines around hits as they come in."""

    def __init__(self, lines: Sequence[str], room: int) -> None:
        self._lines = lines
        self._room = room
        self._matches = MAX_MATCHES
        self._hunks: list[tuple[Range, list[int]]] = []
        self._excerpts: dict[int, str] = {}

    def add(self, hits: Iterable[Hit], part: Range, haystack: bytes) -> bool:
        """Take the hits in one range, whose bytes are given too; False if there are more than can be shown."""
        for hit in hits:
            if self._room <= 0 or not self._matches or not self._place(hit, part):
                return False
            self._matches -= 1
            line = self._lines[hit.lines.first - 1]
            if len(line) > LONG_LINE:
                line = self._excerpts[hit.lines.first] = _excerpt(line, hit, haystack)
            self._room -= len(line) + 1
        return True

    def _place(self, hit: Hit, part: Range) -> bool:
        """Put a hit into the last group if its context touches it, else into a new one; False if that is one too many.

        Groups do not reach beyond the range that was asked for.
        """
        around = Range(max(hit.lines.first - CONTEXT, part.first), min(hit.lines.last + CONTEXT, part.last))
        matching: list[int] = []
        if self._hunks and around.first <= self._hunks[-1][0].last + 1:
            before, matching = self._hunks.pop()
            around = Range(before.first, around.last)
        elif len(self._hunks) == MAX_HUNKS:
            return False
        matching.extend(range(max(hit.lines.first, matching[-1] + 1 if matching else 0), hit.lines.last + 1))
        self._hunks.append((around, matching))
        return True

    def slices(self) -> tuple[Slice, ...]:
        return tuple(
            Slice(around, "\n".join(map(self._shown, range(around.first, around.last + 1))), tuple(matching))
            for around, matching in self._hunks
        )

    def _shown(self, number: int) -> str:
        line = self._lines[number - 1]
        return self._excerpts.get(number) or (line if len(line) <= LONG_LINE else _shortened(line, 0, LONG_LINE // 10))


def _excerpt(line: str, hit: Hit, haystack: bytes) -> str:
    """The part of a long line around its match."""
    line_start = haystack.rfind(b"\n", 0, hit.start) + 1
    start = len(haystack[line_start : hit.start].decode("utf-8", "replace"))
    end = start + len(haystack[hit.start : hit.end].decode("utf-8", "replace"))
    margin = LONG_LINE // 4
    return _shortened(line, max(start - margin, 0), min(end, start + LONG_LINE) + margin)


def _shortened(line: str, start: int, end: int) -> str:
    end = min(end, len(line))
    return f"{line[start:end]} [only characters {start + 1}-{end} of this line's {len(line)}]"
