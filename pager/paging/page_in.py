"""The tool that is offered to the model beside the client's own: its definition, and the answers it gives.

A model asks as it likes, so every question gets an answer that either holds what was asked for or says what to do
instead; nothing here raises. A whole page is in the answer unchanged, byte for byte.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import accumulate
from typing import NamedTuple

from pager.paging.pages.stub import HANDLE
from pager.text.distinctive import encoded
from pager.text.excerpts import (
    LONGEST_PATTERN,
    WORK,
    Range,
    SearchResult,
    Slice,
    cut,
    is_refused,
    lines_of,
    ranges_of,
    search,
    take,
)
from pager.text.references import strings
from pager.wire.dialects import load as load_dialect

NAME = "page_in"

_DESCRIPTION = (
    "A stub [pg_...: ...] stands for content moved out of this conversation, [pg_...] behind a tool's description for "
    "the rest of it. Fetch it by handle (pg_...) whenever you need it: whole, by lines or by search. Never quote or "
    "invent stubs."
)
# The handles come first: a model that fills in only one parameter fills in this one.
_PARAMETERS = {
    "type": "object",
    "properties": {
        "pages": {"type": "array", "items": {"type": "string"}},
        "lines": {"type": "string", "description": "120-180,300"},
        "search": {"type": "string", "description": "text or regex"},
    },
    "required": ["pages"],
}

_EXAMPLE = '{"pages": ["pg_..."], "lines": "120-180", "search": "text"}, lines and search being optional'
_NAMED = 20


def name_for(taken: Collection[str]) -> str:
    """The tool's name, with a number if the client has a tool of that name."""
    name, number = NAME, 2
    while name in taken:
        name, number = f"{NAME}_{number}", number + 1
    return name


@cache
def definition(dialect: str, name: str = NAME) -> bytes:
    """The tool's entry among the tools of a request; always the same bytes."""
    entry = load_dialect(dialect).tool(name, _DESCRIPTION, _PARAMETERS)
    return json.dumps(entry, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class PageInAnswer:
    """What the model gets, and the handles of which it got something, got everything, or that are not known."""

    text: str
    pages: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Question:
    """What the model asks for; ``other`` are the entries of its list of pages that are no handles."""

    handles: tuple[str, ...]
    other: tuple[str, ...]
    lines: str
    search: str


@dataclass(frozen=True, slots=True)
class _Part:
    """What is to be shown of one page, and the notes on it."""

    slices: tuple[Slice, ...] = ()
    count: int = 0
    whole: bool = False
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(len(piece.text) for piece in self.slices)


def answer(arguments: str, resolve: Callable[[str], str | None], *, limit: int = 200_000) -> PageInAnswer:
    """Answer one call of the tool; ``resolve`` gives a page's text, or None for a handle not known in this session.

    ``limit`` bounds the content in the answer, in characters: a page that does not fit beside those before it is left
    out, and the first one is cut at a line if it is too large by itself.
    """
    question = _question(arguments)
    if isinstance(question, str):
        return PageInAnswer(question)
    return _PageInWriter(question, limit).write(resolve)


class _PageInWriter:
    """Writes one answer, page by page."""

    def __init__(self, question: _Question, limit: int) -> None:
        self._question = question
        self._room = max(limit, 0)
        self._sections: list[str] = []
        self._pages: list[str] = []
        self._whole: list[str] = []
        self._unknown: list[str] = []
        self._left_out: list[str] = []

    def write(self, resolve: Callable[[str], str | None]) -> PageInAnswer:
        for handle in self._question.handles:
            text = resolve(handle)
            if text is None:
                self._unknown.append(handle)
            else:
                self._add(handle, self._part(text))
        self._sections += self._closing()
        return PageInAnswer(_joined(self._sections), tuple(self._pages), tuple(self._whole), tuple(self._unknown))

    def _part(self, text: str) -> _Part:
        work = WORK // len(self._question.handles)
        return _part(text, self._question, max(self._room, 1), work)

    def _add(self, handle: str, part: _Part) -> None:
        if part.size > self._room:
            if self._pages:
                self._left_out.append(f"{handle} ({_lines(part.count)})")
                return
            part = _fitted(part, self._room)
        self._room -= part.size
        self._sections += _sections(handle, part)
        if part.slices:
            self._pages.append(handle)
        if part.whole:
            self._whole.append(handle)

    def _closing(self) -> Iterator[str]:
        if self._left_out:
            yield (
                f"Left out, because the answer would be too long: {', '.join(self._left_out)}. "
                "Ask for them in another call, or for a part of them with lines or search."
            )
        if self._unknown:
            yield f"Not known in this session: {', '.join(self._unknown)}. Run the tool that gave the content again."
        if self._question.other:
            quoted = [json.dumps(text[:80]) for text in self._question.other]
            yield f"No handle: {_listed(quoted)}. A handle is the pg_... at the beginning of a stub."


def _question(arguments: str) -> _Question | str:
    """What is asked for, or what is wrong with the question."""
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return f"The arguments are not JSON. Expected: {_EXAMPLE}."
    if not isinstance(given, dict):
        given = {"pages": given}
    # Some models make up a name for the one parameter that matters.
    texts = list(strings(given.get("pages") or [given[key] for key in given if key not in {"lines", "search"}]))
    handles = tuple(dict.fromkeys(handle for text in texts for handle in HANDLE.findall(text)))
    if not handles:
        return f"No handle given. A handle is the pg_... at the beginning of a stub. Expected: {_EXAMPLE}."
    pattern = _text_of(given.get("search"))
    if len(pattern) > LONGEST_PATTERN:
        return f"search is {len(pattern)} characters long, at most {LONGEST_PATTERN} are allowed: give a part of it."
    other = tuple(text for text in texts if not HANDLE.search(text))
    return _Question(handles, other, _spec_of(given.get("lines")), pattern)


def _text_of(value: object) -> str:
    """An optional parameter; null, "" and what is neither text nor number count as left out."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if isinstance(value, str) else str(value) if is_number else ""


def _spec_of(value: object) -> str:
    """The ranges as text, also if they came as numbers or in a list; two numbers are a range."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        between = "-" if len(value) == 2 and all(isinstance(item, int) for item in value) else ","
        return between.join(_text_of(item) for item in value)
    return _text_of(value).strip()


def _part(text: str, question: _Question, room: int, work: int) -> _Part:
    """What the question asks for of one page."""
    if not (question.lines or question.search):
        return _whole(text)
    lines = lines_of(text)
    ranges = ranges_of(question.lines, len(lines)) if question.lines else [Range(1, len(lines))]
    if not ranges or not lines:
        return _Part(count=len(lines), notes=(_bad_range(question.lines, len(lines)),))
    if question.search:
        found = search(lines, question.search, ranges, room, work)
        return _Part(found.slices, len(lines), notes=tuple(_remarks(question.search, found)))
    if ranges == [Range(1, len(lines))]:
        return _whole(text)
    return _Part(tuple(take(lines, wanted) for wanted in ranges), len(lines))


def _whole(text: str) -> _Part:
    count = text.count("\n") + (not text.endswith("\n") and text != "")
    return _Part((Slice(Range(1, count), text),), count, whole=True)


def _bad_range(spec: str, count: int) -> str:
    if not count:
        return "The page is empty."
    return f'No lines {json.dumps(spec[:80])}: the page has {_lines(count)}. Write lines as "1-{count}" or "1-20,40".'


def _remarks(pattern: str, found: SearchResult) -> Iterator[str]:
    """What the model should know about a search."""
    quoted = json.dumps(pattern[:80])
    if is_refused(pattern):
        yield f"{quoted} is no RE2 pattern (which has no look-around and no back-references): searched as plain text."
    if found.how:
        yield f"Found {found.how}."
    if found.more:
        yield "There are more matches: narrow the search, or give lines."
    if found.reached is not None:
        yield f"A costly pattern: searched only up to line {found.reached}. Search other lines, or for plain text."
    if not found.slices:
        yield f"Nothing matches {quoted}. A match lies within one line. Try another search, lines, or the whole page."


def _fitted(part: _Part, room: int) -> _Part:
    """The beginning of a part that is larger than ``room``, with a note on where it ends."""
    fitting = sum(total <= room for total in accumulate(len(piece.text) for piece in part.slices))
    kept, next_one = part.slices[:fitting], part.slices[fitting]
    room -= sum(len(piece.text) for piece in kept)
    if "\n" in next_one.text[: room + 1]:
        kept = (*kept, cut(next_one, room))
    if kept:
        note = f"Cut after line {kept[-1].lines.last}: ask for the rest with lines, or use search."
    else:
        kept = (cut(next_one, room),)
        note = f"Cut inside line {next_one.lines.first}, which is too long: search shows what is around a text."
    return _Part(kept, part.count, notes=(*part.notes, note))


def _sections(handle: str, part: _Part) -> Iterator[str]:
    """A page's headings with the text under them, then the notes on it."""
    label = handle
    for piece in part.slices:
        yield heading(label, _extent(piece, part)) + piece.text
        label = ""  # one handle is enough for all slices of a page
    for note in part.notes:
        yield f"({handle}: {note})" if label else f"({note})"


def _extent(piece: Slice, part: _Part) -> str:
    if part.whole:
        return f"all {_lines(part.count)}"
    first, last = piece.lines
    lines = f"line {first}" if first == last else f"lines {first}-{last}"
    numbers = [str(number) for number in piece.matching]
    return f"{lines} of {part.count}" + (f", match in {_listed(numbers)}" if numbers else "")


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _joined(sections: Sequence[str]) -> str:
    """The sections, each at the beginning of a line."""
    ended = [section if section.endswith("\n") else section + "\n" for section in sections[:-1]]
    return "".join([*ended, *sections[-1:]])


_HEADING = re.compile(r"^=== (pg_[0-9a-f]{8,32}), .* ===$", re.MULTILINE)
_WHOLE = re.compile(r"=== (pg_[0-9a-f]{8,32}), all \d+ lines? ===\n")
_REMARK = re.compile(r"\n\([^\n]*\)\Z")


class Brought(NamedTuple):
    """What an answer brought: pages by their handles, and the text of the page where it is one whole page alone."""

    handles: tuple[str, ...]
    content: str | None = None


def heading(handle: str, extent: str) -> str:
    """The heading of a page, or of a part of it; further parts of the same page have no handle."""
    return f"=== {handle}, {extent} ===\n" if handle else f"=== {extent} ===\n"


def brought_by(answer: str) -> Brought | None:
    """What this answer brought; None if it is none, or brought nothing."""
    if not answer.startswith("=== pg_"):
        return None
    whole = _WHOLE.match(answer)
    if whole is not None:
        for content in _contents(answer[whole.end() :]):
            if sha256(encoded(content)).hexdigest().startswith(whole[1].removeprefix("pg_")):
                return Brought((whole[1],), content)
    found = tuple(dict.fromkeys(_HEADING.findall(answer)))
    return Brought(found) if found else None


def _contents(rest: str) -> Iterator[str]:
    """What a page below its heading may be: all that follows, or that without a remark of ours at its end."""
    yield rest
    yield _REMARK.sub("", rest)
