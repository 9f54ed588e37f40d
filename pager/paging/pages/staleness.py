"""Finds earlier results and arguments of tool calls that a later call has made obsolete.

A result is dead when the same call has been made again, when the same part of the same file has been read again, or
when the file has been written since. The arguments of a write are dead when the whole file has been written again: an
edit changes a part of it, so that what was written before still shows the rest. A call that failed changed nothing.

What a call does is read from its tool's name and arguments alone, and where they leave doubt nothing is dead: a page
that is taken for living costs tokens, one that is taken for dead may cost a fault.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal

import orjson

from pager.text.distinctive import encoded

Part = Literal["result", "argument"]
Act = Literal["read", "write", "other"]
Span = tuple[tuple[str, str], ...]


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Words in the names of tools; whole are writes after which nothing is left of what the file held before.
_READS = _named(
    "browse cat download fetch get load open preview read readfile retrieve scrape show view visit webfetch"
)
_WHOLE = _named("create delete overwrite put remove save write writefile")
_PARTLY = _named("append apply edit editor insert modify move multiedit patch rename replace undo update")
_VERBS = _READS | _WHOLE | _PARTLY
_SHELLS = _named("bash cmd command commands exec execute powershell run sh shell terminal")

# What an editor that is one tool for all takes as its command.
_COMMANDS = _named("create delete insert rename str_replace undo_edit view write")

# Names of arguments, in small letters and without "_" and "-". With other places the same path is another file.
_TARGETS = _named(
    "absolutepath destination destinationpath documenturi file filename filepath fullpath newpath notebookpath oldpath"
    " path relativepath relativeworkspacepath source sourcepath targetfile targetpath uri url"
)
_LISTS = _named("filepaths files paths requests uris urls")
_PLACES = ("owner", "repo", "ref", "branch")
_RANGES = _named(
    "cell cellid count end endchar endindex endline first from head headlimit last length limit line lineend linerange"
    " lineranges lines linestart maxlength maxlines numlines offset page pages range ranges start startchar startindex"
    " startline tail to viewrange"
)
_BEGINNINGS = _named("linestart offset start startchar startindex startline")
_REMARKS = _named("description explanation justification timeout timeoutms timeoutsecs yieldtimems")

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PATCHED = re.compile(r"^\*\*\* (?:(Add|Update|Delete) File|Move to): (.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, eq=False)
class Deed:
    """What one tool call did. Each call has a deed of its own: two calls are never equal, but may have one signature.

    ``signature`` is the same for the same tool and arguments, in any order and spacing; a shell's remarks on a command
    don't count. ``targets`` are the files or addresses that it reads or writes, none where that is not known. ``span``
    are the arguments by which a read names a part of them, none for the whole; ``scope`` is the same for reads that
    differ only in target and span. ``whole`` marks a write after which nothing of the old content is left.
    """

    tool: str
    signature: bytes
    kind: Act = "other"
    targets: tuple[str, ...] = ()
    span: Span = ()
    scope: bytes = b""
    whole: bool = False


def deed_of(tool: str, arguments: str) -> Deed:
    """What the call of a tool with these encoded arguments does."""
    fields = _decoded(arguments)
    words = _words(tool)
    if patched := _patched(words, arguments, fields):
        files = tuple(dict.fromkeys(_normal(path) for _, path in patched))
        whole = all(how in ("Add", "Delete") for how, _ in patched)
        return Deed(tool, _signature(tool, arguments, fields), "write", files, whole=whole)
    if fields is None:
        return Deed(tool, _signature(tool, arguments, None))
    if not _SHELLS.isdisjoint(words):
        telling = {name: value for name, value in fields.items() if _plain(name) not in _REMARKS}
        return Deed(tool, _signature(tool, arguments, telling))
    return _deed(tool, _verb(words, fields), arguments, fields)


class Supersession:
    """The pages of a branch that are still alive, fed in the order of the prompt.

    A call's arguments are noted before its result, all with the call's one deed. They count from the moment that the
    result is there, because only then is it known whether the call changed anything.

    ``by_edits`` says whether an edit of a part makes earlier results of that file dead. It need not: on recorded coding
    sessions 37 % of them were quoted again, of results that a whole write or the same call made dead 9 %.
    """

    __slots__ = ("_by_edits", "_of", "_open", "_pages")

    def __init__(self, *, by_edits: bool = True) -> None:
        self._by_edits = by_edits
        self._pages: dict[str, _LivingPage] = {}
        self._of: dict[bytes | str, tuple[str, ...]] = {}  # by signature, and by target
        self._open: dict[Deed, tuple[str, ...]] = {}  # arguments of calls without a result

    def note(self, page: str, part: Part, deed: Deed, *, failed: bool = False) -> list[str]:
        """Take a new page; the earlier pages that are dead from now on."""
        self._forget(page)
        if part == "argument":
            self._open[deed] = (*self._open.get(deed, ()), page)
            return []
        dead = self.edited(deed, failed=failed)
        self._enter(page, part, deed)
        return dead

    def edited(self, deed: Deed, *, failed: bool = False) -> list[str]:
        """Take the end of a call whose result is no page; the earlier pages that are dead from now on."""
        dead = [] if failed else self._replaced(deed)
        for page in self._open.pop(deed, ()):
            if deed.kind == "write":
                self._enter(page, "argument", deed)
        for page in dead:
            self._forget(page)
        return dead

    def copy(self) -> "Supersession":
        """A state of its own for a branch that forks off here."""
        fork = Supersession(by_edits=self._by_edits)
        fork._pages, fork._of, fork._open = self._pages.copy(), self._of.copy(), self._open.copy()
        return fork

    def _replaced(self, deed: Deed) -> list[str]:
        """The pages that a deed leaves nothing of, in the order in which they came."""
        dead = {page for page in self._of.get(deed.signature, ()) if self._pages[page].deed is not deed}
        for target in deed.targets:
            for page in self._of.get(target, ()):
                known = self._pages[page]
                if known.deed is not deed and self._replaces(deed, known):
                    self._pages[page] = known = replace(known, left=known.left - {target})
                    dead |= set() if known.left else {page}
        return [page for page in self._pages if page in dead] if dead else []

    def _replaces(self, deed: Deed, known: "_LivingPage") -> bool:
        """Whether a deed replaces what a page shows of a target that they share."""
        if deed.kind == "write":
            return deed.whole or (self._by_edits and known.part == "result")
        if known.deed.kind == "write":
            return False
        return deed.scope == known.deed.scope and (not deed.span or deed.span == known.deed.span)

    def _enter(self, page: str, part: Part, deed: Deed) -> None:
        self._forget(page)
        self._pages[page] = _LivingPage(part, deed, frozenset(deed.targets))
        for key in _keys(part, deed):
            self._of[key] = (*self._of.get(key, ()), page)

    def _forget(self, page: str) -> None:
        known = self._pages.pop(page, None)
        for key in _keys(known.part, known.deed) if known else ():
            left = tuple(other for other in self._of[key] if other != page)
            if left:
                self._of[key] = left
            else:
                del self._of[key]


@dataclass(frozen=True, slots=True)
class _LivingPage:
    """A living page; ``left`` are the targets that no later call has replaced."""

    part: Part
    deed: Deed
    left: frozenset[str]


def _keys(part: Part, deed: Deed) -> list[bytes | str]:
    return [*deed.targets, deed.signature] if part == "result" else [*deed.targets]


# What a call does


def _deed(tool: str, verb: str, arguments: str, fields: Mapping[str, object]) -> Deed:
    signature = _signature(tool, arguments, fields)
    targets = tuple(dict.fromkeys(_targets(fields)))
    if not verb or not targets or _tries_only(fields):
        return Deed(tool, signature)
    if verb not in _READS:
        return Deed(tool, signature, "write", targets, whole=verb in _WHOLE and not _appends(fields))
    rest = {name: value for name, value in fields.items() if _plain(name) not in _TARGETS | _LISTS | _RANGES | _REMARKS}
    return Deed(tool, signature, "read", targets, _span(fields), _signature(tool, arguments, rest))


def _words(tool: str) -> list[str]:
    """The words of a tool's name in small letters, without the name of the server that offers it."""
    own = re.split(r"__|[.:/]", tool)[-1]
    return [word.lower() for word in _WORD.findall(own)]


def _verb(words: list[str], fields: Mapping[str, object]) -> str:
    """The first word that says what is done, or nothing."""
    command = fields.get("command")
    if isinstance(command, str) and command in _COMMANDS:
        words = command.split("_")
    return next((word for word in words if word in _VERBS), "")


def _patched(words: list[str], arguments: str, fields: Mapping[str, object] | None) -> list[tuple[str, str]]:
    """The files in a patch, each with what is done to it; a shell may be how a patch is applied."""
    if "***" not in arguments or not ("patch" in words or "apply_patch" in arguments):
        return []
    if fields is None:
        return _PATCHED.findall(arguments)
    if "patch" not in words and _SHELLS.isdisjoint(words):
        return []
    return [file for text in _texts(fields) for file in _PATCHED.findall(text)]


def _texts(fields: Mapping[str, object]) -> Iterator[str]:
    for value in fields.values():
        yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str))


def _targets(fields: Mapping[str, object]) -> Iterator[str]:
    """The files or addresses in the arguments, and in lists of them."""
    place = "/".join(value for name in _PLACES if isinstance(value := fields.get(name), str))
    for value in _values(fields):
        if isinstance(value, str) and value and len(value) <= 2048 and "\n" not in value:
            yield f"{place}:{_normal(value)}" if place else _normal(value)


def _values(fields: Mapping[str, object]) -> Iterator[object]:
    for name, value in fields.items():
        if _plain(name) in _TARGETS:
            yield value
        elif _plain(name) in _LISTS and isinstance(value, list):
            for one in value:
                named = one if isinstance(one, dict) else {"path": one}
                yield from (inner for key, inner in named.items() if _plain(key) in _TARGETS)


def _normal(path: str) -> str:
    """One way to write a path or an address."""
    path = re.sub(r"(?<!:)//+", "/", path.strip().removeprefix("file://"))
    path = re.sub(r"(?<=/)(?:\./)+|^(?:\./)+", "", path)
    return path.rstrip("/") or "/"


def _span(fields: Mapping[str, object]) -> Span:
    """The arguments that name a part; lists of targets with anything else beside them are taken for such."""
    parts = {_plain(name): value for name, value in fields.items() if _plain(name) in _RANGES}
    lists = {_plain(name): value for name, value in fields.items() if _plain(name) in _LISTS}
    said = {name: value for name, value in parts.items() if not _from_the_beginning(name, value)}
    said |= {name: value for name, value in lists.items() if not _only_targets(value)}
    return tuple(sorted((name, _canonical(value).decode("utf-8", "replace")) for name, value in said.items()))


def _from_the_beginning(name: str, value: object) -> bool:
    """Whether a range leaves nothing out: not given, beginning at the first line, or to the end of all."""
    return value is None or (name in _BEGINNINGS and value in (0, 1)) or value in ([1, -1], [0, -1])


def _only_targets(value: object) -> bool:
    ones = value if isinstance(value, list) else [value]
    return all(_plain(name) in _TARGETS for one in ones if isinstance(one, dict) for name in one)


def _tries_only(fields: Mapping[str, object]) -> bool:
    return any(_plain(name) == "dryrun" and value is True for name, value in fields.items())


def _appends(fields: Mapping[str, object]) -> bool:
    return fields.get("append") is True or fields.get("mode") in ("append", "a")


# Arguments in one form


def _decoded(arguments: str) -> dict[str, object] | None:
    """The arguments by name, or None if they are no object."""
    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _signature(tool: str, arguments: str, fields: Mapping[str, object] | None) -> bytes:
    form = _canonical(fields) if fields is not None else b""
    return blake2b(b"%b\0%b" % (encoded(tool), form or encoded(arguments)), digest_size=16).digest()


def _canonical(value: object) -> bytes:
    """A value in one form; empty for one that is nested too deeply to be written."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return b""


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
