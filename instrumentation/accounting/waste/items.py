"""Takes one item of a prompt apart: its tokens by part, and its pages.

An item's tokens are shared by its blocks in proportion to their bytes as they are written. The bytes between the blocks
(ids, keys, quotes) are shared by them equally, or belong to the media where it has any, as their own bytes are no text.
The arguments of a call that are pages are taken out of its block.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import orjson

from instrumentation.accounting.billing import tokens_in
from instrumentation.accounting.item_sizes import counted_size
from pager.errors import NotUnderstood
from pager.paging.pages.page import Contents, Found, contents
from pager.paging.pages.staleness import Deed, deed_of
from pager.request_values import Block, Kind, Message
from pager.wire.dialect import Dialect
from pager.wire.json_spans import members
from pager.wire.page_spans import Form, PageSpan

SYSTEM = frozenset({"system", "developer"})
"""The roles of a client's instructions to the model."""

_SPEAKERS = {"user": "user", "assistant": "assistant"}
_OF_KIND = {
    Kind.CALL: "assistant",
    Kind.REASONING: "assistant",
    Kind.RESULT: "results",
    Kind.MEDIA: "other",
    Kind.OTHER: "other",
}


class PagePiece(NamedTuple):
    """A page as an item holds it, and its tokens."""

    found: Found
    tokens: int


class ItemCall(NamedTuple):
    """A tool call that an item makes."""

    call_id: str
    tool: str
    arguments: str
    deed: Deed


class ItemParts(NamedTuple):
    """An item taken apart: its bytes as far as they count, its tokens without its pages, and its pages.

    ``tokens`` are by part of ``StoryParts``. ``made`` are the calls in it, ``answered`` the ids of the calls whose
    results are in it, and whether these failed.
    """

    norm: bytes
    size: int
    tokens: Counter[str]
    pages: tuple[PagePiece, ...] = ()
    made: tuple[ItemCall, ...] = ()
    answered: tuple[tuple[str, bool], ...] = ()


class _ItemPiece(NamedTuple):
    """A share of an item: its part, its weight, and its page; None where it is not a page."""

    part: str
    weight: int
    page: Found | None = None


def shared(tokens: int, weights: Sequence[int]) -> list[int]:
    """The tokens shared in proportion to these weights, without a remainder; all for the first where all are 0."""
    total = sum(weights)
    if not total:
        return [tokens, *[0] * (len(weights) - 1)] if weights else []
    ends = [(2 * tokens * end + total) // (2 * total) for end in accumulate(weights, initial=0)]
    return [end - begin for begin, end in pairwise(ends)]


def taken_apart(raw: bytes, dialect: Dialect) -> ItemParts:
    """An item of a prompt in this wire format."""
    message, size = dialect.decode(raw), counted_size(raw, dialect.name)
    tokens = tokens_in(size)
    if message.role in SYSTEM:
        return ItemParts(message.norm, size, Counter(system=tokens))
    page_spans = dialect.page_spans(raw)
    held = contents(message, page_spans)
    pieces = list(_pieces(size, message, page_spans, held)) or [_ItemPiece(_SPEAKERS.get(message.role, "other"), 1)]
    shares = list(zip(pieces, shared(tokens, [piece.weight for piece in pieces]), strict=True))
    of_parts: Counter[str] = Counter()
    for piece, share in shares:
        of_parts[piece.part] += share if piece.page is None else 0
    return ItemParts(
        message.norm,
        size,
        of_parts,
        pages=tuple(PagePiece(piece.page, share) for piece, share in shares if piece.page is not None),
        made=tuple(ItemCall(*call, deed_of(call.tool, call.arguments)) for call in held.calls),
        answered=held.results,
    )


def _pieces(size: int, message: Message, page_spans: Sequence[PageSpan], held: Contents) -> Iterator[_ItemPiece]:
    """The blocks of an item of ``size`` bytes, with their pages apart."""
    pages: dict[tuple[str, str], list[Found]] = {}
    for page in held.pages:
        pages.setdefault((page.kind, page.call_id), []).append(page)
    values = {page_span.call_id for page_span in page_spans if page_span.form is Form.VALUE}
    times, weights = _weights(size, message.blocks, values)
    for block, weight in zip(message.blocks, weights, strict=True):
        if block.kind is Kind.CALL:
            count = _size if block.call_id in values else _encoded
            yield from _call(block, weight, times, pages.pop(("argument", block.call_id), ()), count)
        elif block.kind is Kind.RESULT and (found := pages.get(("result", block.call_id))):
            yield _ItemPiece("results", weight, found.pop(0))
        else:
            yield _ItemPiece(_OF_KIND.get(block.kind) or _SPEAKERS.get(message.role, "other"), weight)


def _weights(size: int, blocks: Sequence[Block], values: set[str]) -> tuple[int, list[int]]:
    """The weight of each block in an item of ``size`` bytes: its bytes times a number that makes them whole.

    The arguments of calls that have ``values`` of their own are written as they are, all other texts as strings.
    """
    if len(blocks) == 1:
        return 1, [size]
    texts = [_size(block.text) if block.call_id in values else _encoded(block.text) for block in blocks]
    between = max(0, size - sum(texts))
    media = [block.kind is Kind.MEDIA for block in blocks]
    sharing = media if any(media) else [True] * len(blocks)
    times = max(1, sum(sharing))
    return times, [text * times + between * shares for text, shares in zip(texts, sharing, strict=True)]


def _call(
    block: Block, weight: int, times: int, pages: Sequence[Found], count: Callable[[str], int]
) -> Iterator[_ItemPiece]:
    """A call, with those of its arguments that are pages apart; ``count`` says how large a part of them is written."""
    written = _arguments(block.text) if pages else {}
    for page in pages:
        name = page.key.removeprefix(f"{page.call_id}.")
        share = min(weight, times * count(written.get(name, page.text)))  # not there: another call has the same id
        weight -= share
        yield _ItemPiece("results", share, page)
    yield _ItemPiece("assistant", weight)


def _arguments(text: str) -> dict[str, str]:
    """The arguments of a call, each as it is written; none if they are no object."""
    raw = text.encode()
    try:
        return {name: raw[span.start : span.end].decode() for name, span in members(raw).items()}
    except NotUnderstood:
        return {}


def _encoded(text: str) -> int:
    """The bytes of a text as a JSON string, without its quotes."""
    return len(orjson.dumps(text)) - 2


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
