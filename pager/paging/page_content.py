"""What an item of a prompt holds that paging cares for: pages, the tool calls made and answered, what was said."""

from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

from pager.paging.stub import handle_of
from pager.text.references import said
from pager.values import Block, Kind, Message
from pager.wire.page_spans import Site

SMALLEST = 500
"""Bytes below which a text is no page: about three stubs' worth of tokens."""

SMALLEST_ARGUMENT = 800
"""Bytes below which an argument is no page: a model learns from its own calls how calls are written."""


class Found(NamedTuple):
    """A page as an item holds it."""

    key: str
    kind: str
    handle: str
    digest: bytes
    size: int
    call_id: str
    text: str
    is_error: bool


class Made(NamedTuple):
    """A tool call that an item makes."""

    call_id: str
    tool: str
    arguments: str


class Contents(NamedTuple):
    """One item: ``said`` is what the model said in it, ``results`` the calls it answers and whether they failed.

    ``positions`` are those that a provider counts when it looks back from a cache mark: calls in a row are one, and so
    are results. ``markable``: whether some block of it can carry a mark.
    """

    pages: tuple[Found, ...] = ()
    calls: tuple[Made, ...] = ()
    results: tuple[tuple[str, bool], ...] = ()
    said: str = ""
    reasoning: bool = False
    positions: int = 1
    markable: bool = True


def contents(message: Message, sites: list[Site]) -> Contents:
    """What a decoded item with these sites holds."""
    calls = [block for block in message.blocks if block.kind is Kind.CALL]
    spoken = [
        said(block.text) if block.kind is Kind.CALL else block.text
        for block in message.blocks
        if block.kind in (Kind.TEXT, Kind.CALL)
    ]
    return Contents(
        pages=tuple(page for site in sites if (page := _page(site)) is not None),
        calls=tuple(Made(block.call_id, block.name, block.text) for block in calls),
        results=tuple((block.call_id, block.is_error) for block in message.blocks if block.kind is Kind.RESULT),
        said="\n".join(spoken) if message.role == "assistant" else "",
        reasoning=any(block.kind is Kind.REASONING for block in message.blocks),
        positions=_positions(message),
        markable=any(_can_carry(block) for block in message.blocks),
    )


def _positions(message: Message) -> int:
    """How many positions a message has; runs of calls, and of results, are one each."""
    kinds = [block.kind for block in message.blocks]
    shared = sum(kind is before and kind in (Kind.CALL, Kind.RESULT) for before, kind in pairwise(kinds))
    return max(1, len(kinds) - shared)


def _can_carry(block: Block) -> bool:
    """Whether a block can carry a cache mark: neither thinking nor an empty text can."""
    return block.kind in (Kind.CALL, Kind.RESULT, Kind.MEDIA) or (block.kind is Kind.TEXT and bool(block.text.strip()))


def found_again(found: Found, content: str) -> Found:
    """A page that stands below a heading, by the handle of its own content."""
    raw = content.encode("utf-8", "surrogatepass")
    return found._replace(handle=handle_of(raw), digest=sha256(raw).digest(), text=content)


def _page(site: Site) -> Found | None:
    """The page at a site, if what stands there is large enough and belongs to a call."""
    least = SMALLEST_ARGUMENT if site.kind is Kind.CALL else SMALLEST
    if len(site.text) * 4 < least or not site.call_id:
        return None
    content = site.text.encode("utf-8", "surrogatepass")
    if len(content) < least:
        return None
    kind = "argument" if site.kind is Kind.CALL else "result"
    handle, digest = handle_of(content), sha256(content).digest()
    return Found(site.key, kind, handle, digest, len(content), site.call_id, site.text, site.is_error)
