"""Outlines a text in one line: the names that code defines, the keys of JSON, the errors of a log.

The kind is found from the text itself, as a tool's name says little. Only the edges of a long text are looked at, and
of them a limited number of lines, each cut to a width: the work is bounded, and so is what any pattern here can cost.
Kinds are tried from the most certain to the least, and what is none of them is shown by its first and its last line.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

EDGE = 65_536
"""Characters looked at, at the beginning of a text and at its end."""

LINES = 1_500
"""Lines looked at, in each of the two."""

WIDTH = 300
"""Characters of a line that are looked at."""

LONGEST = 400
"""Characters of an outline; a stub shows as much of it as it has room for."""

PARSED = 262_144
"""Longest JSON that is parsed, in characters, which takes 10 ms at most; of a longer one the first keys are read."""

SCANNED = 16_384
"""Characters of JSON that is too long or not whole in which keys are looked for."""

SHOWN = 16
"""Names, keys or files that are named at most."""


def outline(text: str) -> str:
    """What the text holds, in one line without control characters, double quotes, backslashes or handles."""
    view = _look(text)
    if not view.lines:
        return "blank"
    said = _json(text, view)
    for tell in (_diff, _matches, _listing, _headings, _log, _code, _settings, _edges):
        said = said or tell(view)
    where = f"numbered {view.numbers[0]}-{view.numbers[1]}, " if view.numbers and view.numbers[0] > 1 else ""
    return clip(plain(where + said), LONGEST)


# Text as an outline may hold it

_UNSEEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\ufeff\ufff9-\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)
# Shorter and longer than any handle, and without word boundaries: a cut must not make one of what was none.
_LIKE_A_HANDLE = re.compile(r"pg_[0-9a-f]{4,}", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(?=[^\w\s])")
_FOR_JSON = str.maketrans({'"': "'", "\\": "/"})


def plain(text: str) -> str:
    """The text in one line: nothing unseen, nothing that JSON would escape, nothing that looks like a handle."""
    line = " ".join(_UNSEEN.sub(" ", text).split())
    return _LIKE_A_HANDLE.sub("(page)", _ESCAPE.sub("", line).translate(_FOR_JSON))


_SHORTEST = 6


def clip(text: str, width: int) -> str:
    """At most ``width`` characters: the end of a path, the beginning of anything else; nothing if nothing is left."""
    if len(text) <= width:
        return text
    if width < _SHORTEST:
        return ""
    room = width - 3
    if "/" in text and " " not in text:
        end = text[-room:]
        return "..." + (end[end.index("/") :] if "/" in end else end)
    start = text[:room]
    at_word = start.rfind(" ") if text[room] != " " else room
    return (start[:at_word] if at_word > room // 2 else start).rstrip(" ,;:") + "..."


# Looking at a text

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# As tools that read files number them: "  12→code", "12\tcode", "00012| code", "12: code", "12:code"; no time of day.
_NUMBERED = re.compile(r"\s{0,8}(\d{1,7})(?:→|\t|\s?\|\s?|(?P<found>: ?(?!\d\d[:.,])|-(?!\d)))(.*)", re.DOTALL)
_SAMPLE = 40


@dataclass(frozen=True, slots=True)
class _OutlineLines:
    """The lines that are looked at, without blank ones and without their numbers, which are in ``numbers``."""

    lines: Sequence[str]
    whole: bool
    numbers: tuple[int, int] | None = None

    def counted(self, seen: int, one: str, many: str) -> str:
        return f"{seen}{'' if self.whole else '+'} {one if seen == 1 and self.whole else many}"


def _look(text: str) -> _OutlineLines:
    head = text[:EDGE].split("\n", LINES)[:LINES]
    read = min(sum(map(len, head)) + len(head), len(text))
    tail = text[max(read, len(text) - EDGE) :].rsplit("\n", LINES)
    whole = len(text) - read <= EDGE and len(tail) <= LINES
    seen = (*head, *(tail if whole else tail[1:]))  # what the tail begins with is the end of a line, or many lines
    cut = (_ANSI.sub("", line[:WIDTH]) for line in seen)
    return _without_numbers([line for line in cut if line and not line.isspace()], whole=whole)


def _without_numbers(lines: list[str], *, whole: bool) -> _OutlineLines:
    if not _are_numbered(lines):
        return _OutlineLines([line.rstrip() for line in lines], whole)
    found = [match for match in map(_NUMBERED.match, lines) if match]  # what has no number was added around the file
    kept = [match[3].rstrip() for match in found]
    return _OutlineLines([line for line in kept if line] or [""], whole, (int(found[0][1]), int(found[-1][1])))


def _are_numbered(lines: list[str]) -> bool:
    """Whether most lines begin with numbers that rise: one by one, or as they do where a search found something."""
    sample = lines[:_SAMPLE]
    found = [match for match in map(_NUMBERED.match, sample) if match]
    if len(found) < max(2, 0.7 * len(sample)):
        return False
    steps = [int(after[1]) - int(before[1]) for before, after in pairwise(found)]
    by_one = sum(step == 1 for step in steps) >= len(steps) / 2
    return min(steps) > 0 and (by_one or all(match["found"] for match in found))


def _named(names: Iterable[str]) -> str:
    """The first few of the names, each once."""
    return ", ".join(clip(name, 60) for name in list(dict.fromkeys(names))[:SHOWN])


# JSON

_TOKEN = re.compile(r""""(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?|[{}\[\]:,]""", re.DOTALL)
_LONG_TEXT = 200


def _json(text: str, view: _OutlineLines) -> str:
    source = "\n".join(view.lines) if view.numbers else text
    if source[:SCANNED].lstrip("\ufeff \t\r\n")[:1] not in ("{", "["):
        return ""
    try:
        value = orjson.loads(source) if len(source) <= PARSED else None
    except ValueError:
        value = None
    return _described(value) if value is not None else _first_keys(source[:SCANNED])


def _described(value: Any, depth: int = 0) -> str:  # noqa: ANN401 (any JSON)
    if isinstance(value, list):
        keys = list(value[0])[:SHOWN] if value and isinstance(value[0], dict) else []
        return f"{len(value)} item{'s' * (len(value) != 1)}" + (f" with keys: {_named(keys)}" if keys else "")
    if len(value) == 1 and depth < 3:
        key, only = next(iter(value.items()))
        if isinstance(only, dict):
            return f"{clip(key, 60)}: {_described(only, depth + 1)}"
    return "keys: " + _named(_member(*item) for item in list(value.items())[:SHOWN]) if value else "no keys"


def _member(key: str, value: Any) -> str:  # noqa: ANN401 (any JSON)
    match value:
        case list():
            return f"{key}[{len(value)}]"
        case dict():
            return f"{key}{{{len(value)}}}"
        case str() if len(value) > _LONG_TEXT:
            return f"{key}({len(value)} chars)"
        case _:
            return key


def _first_keys(source: str) -> str:
    """The keys of the first object, in JSON of which the end is missing, or in another language's way to write it."""
    wanted = 2 if source.lstrip("\ufeff \t\r\n").startswith("[") else 1
    keys: list[str] = []
    depth, last = 0, ""
    for piece in _TOKEN.findall(source):
        if piece == ":" and depth == wanted and last[:1] in ('"', "'"):
            keys.append(last[1:-1])
        depth += (piece in ("{", "[")) - (piece in ("}", "]"))
        if depth < wanted and keys:
            break
        last = piece
    return f"keys: {_named(keys)}" if keys else ""


# Diffs

_DIFFED = re.compile(r"(?:diff --git a/.*? b/|\+\+\+ (?:b/)?|\*\*\* (?:Add|Update|Delete) File: )([^\t]+)")
_DIFF_STARTS_WITHIN = 60


def _diff(view: _OutlineLines) -> str:
    files = [match[1] for match in map(_DIFFED.match, view.lines) if match and match[1] != "/dev/null"]
    if view.numbers or not files or not any(map(_DIFFED.match, view.lines[:_DIFF_STARTS_WITHIN])):
        return ""
    return f"diff of {_named(files)}"


# Lists of files

# "path:12:line", "path-12-line around it" or "path:line", but not a compiler's "path:12:5: message".
_MATCH = re.compile(
    r"((?:[A-Za-z]:)?(?=[^\s:]*[./\\])[\w@.+~/\\()-]{2,}?)(?:([:-])\d+\2(?!\d+: | (?:error|warning))|:(?!\d|//))"
)
_PATH = re.compile(r"[\w@.+~#%,=()\[\]/\\:-]{1,200}")
_LONG_ENTRY = re.compile(r"[-dlbcps][rwxsStT-]{9}[.+@]?\s(?:\s*\S+\s+){6,7}(\S.*)")
_TREE_ENTRY = re.compile(r"[│├└ \u00a0|`+]*(?:──|--)\s(\S.*)")


def _matches(view: _OutlineLines) -> str:
    """Results of a search in files: the files, each with how often something was found in it."""
    found = [match for match in map(_MATCH.match, view.lines) if match]
    if view.numbers or len(found) < max(2, 0.6 * len(view.lines)):
        return ""
    times = Counter(match[1] for match in found if match[2] != "-") or Counter(match[1] for match in found)
    folder, names = _in_folder(list(times))
    short = (clip(name, 50) for name in names)
    counts = [f"{name} ({often})" if often > 1 else name for name, often in zip(short, times.values(), strict=True)]
    return f"{view.counted(times.total(), 'match', 'matches')} in {folder}{_named(counts)}"


def _listing(view: _OutlineLines) -> str:
    """Names of files, one a line: how many, where, and the first of them."""
    if view.numbers:
        return ""
    entries = [match[1] for line in view.lines if (match := _LONG_ENTRY.match(line) or _TREE_ENTRY.match(line))]
    if len(entries) < max(2, 0.6 * len(view.lines)):
        entries = [line for line in view.lines if _PATH.fullmatch(line)]
        like_paths = sum("/" in line or "." in line.rstrip(".") for line in entries)
        if len(entries) < max(3, 0.8 * len(view.lines)) or like_paths < 0.3 * len(entries):
            return ""
    folder, names = _in_folder(entries)
    return f"{view.counted(len(entries), 'entry', 'entries')}{' in' if folder else ':'} {folder}{_named(names)}"


def _in_folder(paths: list[str]) -> tuple[str, list[str]]:
    """The folder that all paths share, as ``folder: ``, and what is left of each."""
    low, high = min(paths), max(paths)
    same = next((at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low))
    cut = low.rfind("/", 0, same) + 1
    return (f"{clip(low[: cut - 1], 40)}: " if cut > 1 else "", [path[cut:] or path for path in paths])


# Code and documents

_NAME = r"([A-Za-z_$][\w$]*(?:(?:\.|::)~?[\w$]+)*[?!]?)"
_BEFORE = (
    r"\s*+(?:(?:export|default|declare|abstract|async|pub(?:\([\w: ]{1,20}\))?|public|private|protected|internal|static"
    r"|final|sealed|override|virtual|unsafe|extern|open|data|partial|inline|const|local|readonly|suspend)\s+){0,6}"
)
_DEFINITION = re.compile(
    "|".join(
        (
            _BEFORE
            + r"(?:defp?|defmodule|function\s?\*?|func|fun|fn|class|struct|interface|enum|trait|protocol|record|object"
            r"|namespace|module|mod|impl|union|macro_rules!)\s+(?:\([^()]{0,80}\)\s*)?"
            + _NAME
            + r"(?=\s*(?:[(:<{\[=;]|$|(?:extends|implements|for|where)\b))",
            _BEFORE
            + r"type\s+"
            + _NAME
            + r"(?:<[^=]{0,80}>|\[[^=]{0,80}\])?\s*(?:=|(?:struct|interface|func|map|string|u?int|bool)\b)",
            r"(?:export\s+)?(?:const|let|var|static)\s+(?:mut\s+)?"
            + _NAME
            + r"(?=\s*[:=])(?!.{0,80}\b(?:require|import)\()",
            r"(?:var|const)\s+" + _NAME + r"\s+[\w.*\[\]]+(?:\s*=|$)",
            r"\s+(?:(?:public|private|protected|static|final|abstract|override|async|virtual|internal)\s+){1,5}"
            r"(?:[\w<>\[\],.?]{1,80}\s+)?" + _NAME + r"\s*\(",
            r"(?:static|inline|extern|const|unsigned|void|int|char|bool|double|float|struct|size_t|u?int\d+_t)\b"
            r"[\w\s*&:<>,]{0,80}?[\s*&]" + _NAME + r"\s*\([^;]*$",
            r"\s*#\s*define\s+" + _NAME,
            _NAME + r"\s?\(\)\s*\{",
            r"(?i:create\s+(?:or\s+replace\s+)?(?:table|view|function|procedure|type)\s+(?:if\s+not\s+exists\s+)?)"
            + _NAME,
        )
    )
)
_ENDS_LIKE_CODE = re.compile(r"[{}()\[\];:,]$")


def _code(view: _OutlineLines) -> str:
    """The names that are defined, those of the outermost level first."""
    found = _definitions(view.lines)
    if not found or _share_of_code(view.lines) < 0.2:
        return ""
    outer = min(indent for indent, _ in found)
    return "defines " + _named(name for _, name in sorted(found, key=lambda one: one[0] > outer))


def _definitions(lines: Sequence[str]) -> list[tuple[int, str]]:
    """Defined names, each with its line's indent."""
    found = ((line, match) for line, match in zip(lines, map(_DEFINITION.match, lines), strict=True) if match)
    return [(len(line) - len(line.lstrip()), match[match.lastindex or 0]) for line, match in found]


def _share_of_code(lines: Sequence[str]) -> float:
    return sum(_ENDS_LIKE_CODE.search(line) is not None for line in lines) / len(lines)


def _headings(view: _OutlineLines) -> str:
    """The headings of a Markdown document; a second level is asked for, as comments too begin with a hash."""
    found = [line for line in view.lines if re.match(r"#{1,4} \S", line)]
    if len(found) < 2 or not any(line.startswith("## ") for line in found) or _share_of_code(view.lines) > 0.5:
        return ""
    return "headings: " + _named(line.lstrip("# ").rstrip("# ") for line in found)


_SETTING = re.compile(r"(\s*(?:- )?)(?:([A-Za-z_][\w.-]*)\s?(?::(?=\s|$)|=)|\[+([\w.\"' -]+)\]+$)")


def _settings(view: _OutlineLines) -> str:
    """The outermost keys of YAML, TOML and their like."""
    found = [match for match in map(_SETTING.match, view.lines) if match]
    if len(found) < max(3, 0.5 * len(view.lines)):
        return ""
    outer = min(len(match[1]) for match in found)
    sections = [match[3] for match in found if match[3]]
    keys = sections or [match[2] for match in found if len(match[1]) == outer]
    return f"keys: {_named(keys)}" if len(set(keys)) > 1 else ""


# Logs and results of runs

_OF_A_RUN = re.compile(
    r"\s*+(?:Traceback \(most|panic:|goroutine \d|(?:--- )?FAIL\b|FAILED\b|E {2,}\S|npm (?:ERR|error)|Caused by:"
    r"|(?i:fatal|error|warning)(?:\[\w+\])?:|make(?:\[\d+\])?: \*\*\*|\[?(?:ERROR|WARN|INFO|DEBUG|FATAL)|=== RUN"
    r"|ok  ?\t|\w[\w.]*?(?:Error|Exception)(?::|$)|[^\s:]++:\d+:(?:\d+:)? (?:fatal |error|warning|undefined)"
    r"|Exit code [1-9]|\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:|\[?\d\d:\d\d:\d\d|\d+ (?:passed|failed)|=+ .{1,200} =+$"
    r"|[✗✕✖\u00d7] )"
)
_ERROR = re.compile(
    r"(?i:\b(?:errors?|exception|panic|fatal|failed|failures?)\b)|\bFAIL\b|[a-z](?:Error|Exception)\b|^E {2,}\S"
    r"|^\s*[✗✕✖\u00d7] |:\d+:\d+: undefined"
)
_WARNING = re.compile(r"(?i:\bwarn(?:ing)?s?\b)")
_HARMLESS = re.compile(
    r"^\s*(?:--- PASS|=== [A-Z]+ |PASS\b|ok\b|✓)"
    r"|\b(?:0|[Nn]o) (?:errors?|failures?|failed|warnings?|tests)\b(?!.{0,200}[1-9] (?:error|fail))"
)
_BEFORE_MESSAGE = re.compile(r"\s*\[?\d{4}[-/]\d\d[-/]\d\d[T ][\d:.,]*(?:Z|[+-]\d\d:?\d\d)?\]?\s*")


def _log(view: _OutlineLines) -> str:
    """The first lines that report trouble, and how many there are; nothing for code, in which they are texts."""
    run = sum(_OF_A_RUN.match(line) is not None for line in view.lines)
    if view.numbers or not run or run < len(_definitions(view.lines)):
        return ""
    telling = [line for line in view.lines if not _HARMLESS.search(line)]
    errors = [line for line in telling if _ERROR.search(line)]
    warnings = [line for line in telling if _WARNING.search(line) and not _ERROR.search(line)]
    if not (errors or warnings):
        return ""
    counts = [view.counted(len(errors), "error line", "error lines")] if errors else []
    counts += [view.counted(len(warnings), "warning", "warnings")] if warnings else []
    messages = dict.fromkeys(clip(_BEFORE_MESSAGE.sub("", line, count=1).strip(), 90) for line in errors or warnings)
    in_words = [message for message in messages if len(message.split()) > 1] or list(messages)
    return f"{', '.join(counts)}: {'; '.join(in_words[:3])}"


# Anything else

_ONLY_A_TAG = re.compile(r"\s*</?[\w:-]{1,60}/?>\s*")


def _edges(view: _OutlineLines) -> str:
    """The first and the last line that hold a word."""
    telling = [line for line in view.lines if _tells(line)] or view.lines
    first, last = clip(telling[0].strip(), 70), clip(telling[-1].strip(), 60)
    return f"begins: {first}; ends: {last}" if len(telling) > 1 else f"begins: {first}"


def _tells(line: str) -> bool:
    return any(map(str.isalnum, line)) and not _ONLY_A_TAG.fullmatch(line)
