"""Stubs: the short texts that replace evicted pages in a prompt.

A stub is frozen: the same page, limit and way to count give the same text, on every call and in every process, as one
that changes would cost more than it saves. It is the model's only sign of the page, so it says what the page was, how
large, and what is in it, as far as a few dozen tokens reach. It holds exactly one handle, its own, and nothing that
JSON escapes, so that it may also be in the arguments of a call.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Literal

import orjson

from pager.text.outline import clip, outline, plain

HANDLE = re.compile(r"\bpg_[0-9a-f]{8,32}\b")
"""What the model names a page by."""

DIGITS = 16
"""Hex digits of a handle, unless it clashes."""

LONGEST_ARGUMENT = 36
"""Characters of a call's main argument in a stub."""

SHORTEST_OUTLINE = 20
"""Characters of an outline below which it is of no use."""

LONGEST_TOOL = 64
"""Characters of a tool's name in a stub; providers allow no longer ones."""


def handle_of(content: bytes) -> str:
    """The handle of a page: a pure function of its content."""
    return f"pg_{sha256(content).hexdigest()[:DIGITS]}"


def longer(handle: str, content: bytes, digits: int) -> str:
    """The handle of the same content with more digits, for one that another content has already."""
    made = f"pg_{sha256(content).hexdigest()[:digits]}"
    if len(made) <= len(handle) or not made.startswith(handle) or not HANDLE.fullmatch(made):
        raise ValueError(
            f"{handle} can't be made {digits} digits long: it must grow, to at most 32, on its own content"
        )
    return made


@dataclass(frozen=True, slots=True)
class Subject:
    """What a stub replaces: a tool's result, or an argument of a call.

    ``argument`` is the call's main argument in words, ``size`` is in bytes, ``text`` is the page as a model reads it.
    """

    kind: Literal["result", "argument"]
    tool: str
    argument: str
    size: int
    lines: int
    text: str


def make_stub(
    subject: Subject, handle: str, count: Callable[[str], int], limit: int = 40, *, getter: str = "page_in"
) -> str:
    """The page's stub, of at most ``limit`` tokens by ``count``; the bare handle where even that has no room.

    What has no room is left out, the least useful first: the outline, then the argument, then the tool. ``getter``
    is the name of the tool that brings the page back.
    """
    for longest, text in _shorter_and_shorter(subject, handle, getter):
        found = _widest(text, longest, lambda candidate: count(candidate) <= limit)
        if found:
            return found
    return handle


_Text = Callable[[int], str]
"""A text by how many characters its shortened part may have."""


def _shorter_and_shorter(subject: Subject, handle: str, getter: str) -> Iterator[tuple[int, _Text]]:
    """Ways to write a stub, each with the longest that its shortened part can be."""
    tool = clip(plain(subject.tool), LONGEST_TOOL)
    argument = clip(plain(subject.argument), LONGEST_ARGUMENT)
    summary = outline(subject.text)
    size = _size(subject)

    def text(tool: str, argument: str, summary: str = "") -> str:
        parts = (_what(subject.kind, tool, argument), size, summary)
        return f"[{handle}: {', '.join(part for part in parts if part)}; {getter} to see it]"

    yield len(summary), lambda width: text(tool, argument, clip(summary, width if width >= SHORTEST_OUTLINE else 0))
    yield len(argument), lambda width: text(tool, clip(argument, width))
    yield len(tool), lambda width: text(clip(tool, width), "")
    yield 0, lambda _: f"[{handle}: {getter}]"


def _widest(text: _Text, longest: int, fits: Callable[[str], bool]) -> str:
    """The text with most characters that fits, by halving; empty if none was found to."""
    best, low, high, width = "", 0, longest, longest  # most fit whole
    while low <= high:
        candidate = text(width)
        if fits(candidate):
            best, low = candidate, width + 1
        else:
            high = width - 1
        width = (low + high) // 2
    return best


def _what(kind: str, tool: str, argument: str) -> str:
    named = " ".join(part for part in (tool, argument) if part)
    return f"argument of {named or 'a call'}" if kind == "argument" else named or "a result"


def _size(subject: Subject) -> str:
    lines = f"{subject.lines} lines, " if subject.lines > 1 else ""
    for unit, name in ((1_000_000, "MB"), (1_000, "KB")):
        if subject.size >= unit:
            return f"{lines}{subject.size / unit:.1f} {name}"
    return f"{lines}{subject.size} bytes"


# Most telling first: a search is known by what was looked for, and only then by where.
_TELLING = (
    ("command", "cmd", "script"),
    ("pattern", "query", "regex", "search", "q", "search_term", "search_query"),
    ("url", "uri"),
    ("file_path", "filepath", "path", "file", "filename", "absolute_path", "target_file", "notebook_path", "target"),
    ("tool_name", "name", "id", "title", "description", "question", "prompt", "task", "code", "expression"),
)
_RANKS = {name: rank for rank, name in enumerate(name for names in _TELLING for name in names)}
_SHORT = 200
_READ = 800
_CHANGES_FOLDER = re.compile(r"\s*cd \S+\s*(?:&&|;)\s*(?=\S)")


def main_argument(arguments_json: str) -> str:
    """The argument that says most about a call, shortened; of arguments that are no JSON, what they hold."""
    try:
        arguments = orjson.loads(arguments_json)
    except ValueError:
        return clip(outline(arguments_json), LONGEST_ARGUMENT) if arguments_json.strip() else ""
    words = _most_telling(arguments) if isinstance(arguments, dict) else _words(arguments)
    return clip(plain(words), LONGEST_ARGUMENT)


def _most_telling(arguments: dict[str, Any]) -> str:
    """The value of the most telling name; else the first short text, else the first number."""
    found = [(_rank(name), words, value) for name, value in islice(arguments.items(), 64) if (words := _words(value))]
    named = [(rank, words) for rank, words, _ in found if rank >= 0]
    if named:
        return min(named)[1]
    short = [(words, value) for _, words, value in found if len(words) <= _SHORT]
    texts = [words for words, value in short if not isinstance(value, int | float)]
    return next(iter(texts or [words for words, _ in short]), "")


def _rank(name: str) -> int:
    """The argument's place among the telling ones, or -1; ``filePath`` and ``FILE_PATH`` are ``file_path``."""
    return _RANKS.get(name.lower(), _RANKS.get(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(), -1))


def _words(value: Any) -> str:  # noqa: ANN401 (any JSON)
    """The beginning of a value in words; nothing for an object. Of what a shell is given, what it shall do."""
    match value:
        case str():
            start = value[:_READ]
            return _CHANGES_FOLDER.sub("", start, count=1) if _CHANGES_FOLDER.match(start) else start.strip()
        case [str(), "-c" | "-lc", str(command)]:
            return _words(command)
        case list():
            return " ".join(_words(one) for one in value[:8] if isinstance(one, str | int))[:_READ]
        case bool() | None | dict():
            return ""
        case _:
            return str(value)
