"""Counts a call's prompt while the model thinks."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, islice
from typing import Any, NamedTuple, TypeVar

from pager.pricing.catalog import family_of
from pager.pricing.tokens import Counter, Family
from pager.proxy.log_records import PlacedCall
from pager.request_values import Message, Request, Span

COUNTS_REMEMBERED = 200_000
BRANCHES_REMEMBERED = 1_000
COUNTED_AT_ONCE = 8_192  # characters; a thread costs more than counting so little
TURN = 131_072  # characters that are counted before another call has its turn; a tenth of a second at worst

Key = tuple[str, float, bytes | str]
_T = TypeVar("_T")


class _PromptTotals(NamedTuple):
    """The tokens of the first 0, 1, 2, ... messages of a branch's latest prompt."""

    family: Family
    totals: list[int]


class Estimates:
    """Token counts of prompts; what a branch's latest prompt had already is not looked at again.

    Only the event loop touches what is remembered; the thread is given texts and gives back numbers.
    """

    def __init__(self) -> None:
        self._counter = Counter()
        self._counts: dict[Key, int] = {}
        self._sums: OrderedDict[tuple[str, int], _PromptTotals] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "ctxpager-tokens")
        self._loaded: set[str] = set()

    async def warm_up(self) -> None:
        """Load the tokenizer that most models use."""
        await self._counted([], family_of(""))

    async def count(self, call: PlacedCall) -> int:
        """The tokens of a prompt."""
        request, family = call.incoming.request, family_of(call.incoming.request.model)
        known = self._known(call, family)
        kind = (family.name, family.factor)
        keys: list[Key] = [(*kind, digest) for digest in request.digests[len(known) - 1 :]]
        outside: dict[Key, Span] = {(*kind, name): span for name, span in _outside(call)}
        wanted: dict[Key, Message | str] = {}
        for at, key in enumerate(keys, len(known) - 1):
            if key not in self._counts:
                fresh = call.history.fresh.get(request.digests[at])
                wanted[key] = fresh or call.incoming.dialect.decode(request.items[at])
        wanted |= {key: _text(request, span) for key, span in outside.items() if key not in self._counts}
        if wanted:
            self._remember(dict(zip(wanted, await self._counted(list(wanted.values()), family), strict=True)))
        found = [self._counts.get(key, 0) for key in keys]
        totals = [*known[:-1], *accumulate(found, initial=known[-1])]
        self._keep(call, _PromptTotals(family, totals))
        return totals[-1] + sum(self._counts.get(key, 0) for key in outside)

    def _known(self, call: PlacedCall, family: Family) -> list[int]:
        """The totals of what this prompt has in common with its parent's; just 0 where they are not known."""
        parent = call.placement.parent
        sums = self._sums.get((call.session.id, parent.number)) if parent else None
        return sums.totals[: call.recipe.keep + 1] if sums and sums.family == family else [0]

    async def _counted(self, pieces: list[Message | str], family: Family) -> list[int]:
        """The tokens of each piece; in a thread where there is much of it, or the tokenizer is yet to be loaded.

        The thread serves all calls: a large text is counted in small turns, so that no other call waits for all of it.
        """
        if sum(map(_size, pieces)) <= COUNTED_AT_ONCE and family.vocabulary in self._loaded:
            return self._work(pieces, family)
        for text in [text for piece in pieces for text in _texts(piece) if len(text) > TURN]:
            await self._count_long(text, family.vocabulary)
        counts: list[int] = []
        for turn in _turns(pieces) or [[]]:
            counts += await self._in_thread(self._work, turn, family)
        self._loaded.add(family.vocabulary)
        return counts

    async def _count_long(self, text: str, vocabulary: str) -> None:
        """Count a text that is more than a turn, so that the counter knows it."""
        parts, tokens = self._counter.pieces(text), 0
        while turn := await self._in_thread(_next_turn, parts):
            tokens += await self._in_thread(self._counter.encoded, turn, vocabulary)
        await self._in_thread(self._counter.learn, text, vocabulary, tokens)

    async def _in_thread(self, work: Callable[..., _T], *given: Any) -> _T:  # noqa: ANN401 - whatever the work takes
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *given)

    def _work(self, pieces: list[Message | str], family: Family) -> list[int]:
        self._counter.count("ctxpager", family)  # loads the tokenizer, even if there is nothing to count
        return [
            self._counter.count(piece, family) if isinstance(piece, str) else self._counter.count_message(piece, family)
            for piece in pieces
        ]

    def _remember(self, counts: dict[Key, int]) -> None:
        if len(self._counts) + len(counts) > COUNTS_REMEMBERED:
            for old in list(islice(self._counts, len(self._counts) // 2)):
                del self._counts[old]
        self._counts |= counts

    def _keep(self, call: PlacedCall, sums: _PromptTotals) -> None:
        spot = (call.session.id, call.placement.branch.number)
        self._sums[spot] = sums
        self._sums.move_to_end(spot)
        if len(self._sums) > BRANCHES_REMEMBERED:
            self._sums.popitem(last=False)


def _texts(piece: Message | str) -> list[str]:
    return [piece] if isinstance(piece, str) else [block.text for block in piece.blocks]


def _size(piece: Message | str) -> int:
    return sum(map(len, _texts(piece)))


def _turns(pieces: list[Message | str]) -> list[list[Message | str]]:
    """The pieces in groups of no more than a turn; a piece that is more by itself was counted before."""
    turns: list[list[Message | str]] = []
    room = 0
    for piece in pieces:
        size = min(_size(piece), TURN)
        if not turns or size > room:
            turns.append([])
            room = TURN
        turns[-1].append(piece)
        room -= size
    return turns


def _next_turn(parts: Iterator[str]) -> list[str]:
    """The next pieces of a text, about a turn's worth; none at its end."""
    taken: list[str] = []
    size = 0
    while size < TURN and (part := next(parts, "")):
        taken.append(part)
        size += len(part)
    return taken


def _outside(call: PlacedCall) -> list[tuple[str, Span]]:
    """The parts of the prompt outside the messages, each by its digest or, where it is short, by its text."""
    request, values = call.incoming.request, call.recipe.values
    found = [(name, request.members[name]) for name in call.incoming.dialect.prompt_members if name in request.members]
    return [(values.get(name) or _text(request, span), span) for name, span in found]


def _text(request: Request, span: Span) -> str:
    return request.body[span.start : span.end].decode("utf-8", "replace")
