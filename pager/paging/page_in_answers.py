"""Tells of an answer of page_in which pages it brought back, and whether one of them wholly.

The headings that the answers are written with are made here, too, so that both stay the same.
"""

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

_HEADING = re.compile(r"^=== (pg_[0-9a-f]{8,32}), .* ===$", re.MULTILINE)
_WHOLE = re.compile(r"=== (pg_[0-9a-f]{8,32}), all \d+ lines? ===\n")
_REMARK = re.compile(r"\n\([^\n]*\)\Z")


class Brought(NamedTuple):
    """What an answer brought: pages by their handles, and the text of the page where it is one whole page alone."""

    handles: tuple[str, ...]
    content: str | None = None


def heading(handle: str, extent: str) -> str:
    """What stands above a page, or a part of it; further parts of the same page have no handle."""
    return f"=== {handle}, {extent} ===\n" if handle else f"=== {extent} ===\n"


def brought_by(answer: str) -> Brought | None:
    """What this answer brought; None if it is none, or brought nothing."""
    if not answer.startswith("=== pg_"):
        return None
    whole = _WHOLE.match(answer)
    if whole is not None:
        for content in _contents(answer[whole.end() :]):
            if _hash(content).startswith(whole[1].removeprefix("pg_")):
                return Brought((whole[1],), content)
    found = tuple(dict.fromkeys(_HEADING.findall(answer)))
    return Brought(found) if found else None


def _contents(rest: str) -> Iterator[str]:
    """What a page below its heading may be: all that follows, or that without a remark of ours at its end."""
    yield rest
    yield _REMARK.sub("", rest)


def _hash(content: str) -> str:
    return sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
