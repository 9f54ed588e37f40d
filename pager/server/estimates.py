"""Counts a call's prompt while the model thinks, and learns from the provider's numbers how far off the count is."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, islice
from typing import NamedTuple

from pager.events import AnswerFinished
from pager.server.journal import Entry
from pager.store import Stored
from pager.tokens import Calibration, Counter, Family, family_of

PROMPT_MEMBERS = ("tools", "system", "instructions", "functions")
COUNTS_REMEMBERED = 200_000
BRANCHES_REMEMBERED = 1_000
COUNTED_AT_ONCE = 8_192  # bytes of new text; a thread costs more than counting so little


class _Sums(NamedTuple):
    """The tokens of the first 0, 1, 2, ... messages of a branch's latest prompt."""

    family: str
    totals: list[int]


class Estimates:
    """Token counts of prompts; what a branch's latest prompt had already is not looked at again."""

    def __init__(self) -> None:
        self._counter = Counter()
        self._counts: dict[tuple[str, bytes | str], int] = {}
        self._sums: OrderedDict[tuple[str, int], _Sums] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "ctxpager-tokens")
        self.calibration = Calibration()

    def recall(self, recent: Iterable[Stored]) -> None:
        """Learn again from answers in the log, given newest first."""
        for row in reversed(list(recent)):
            answer = row.event
            if isinstance(answer, AnswerFinished) and answer.usage is not None:
                self.observe(answer.model, answer.estimate, answer.usage.input)

    def observe(self, model: str, estimate: int, reported: int) -> None:
        """Learn from what the provider reported for a prompt that we counted."""
        if estimate and reported:
            self.calibration.observe(model, estimate, reported)

    async def warm_up(self) -> None:
        """Load the tokenizer that most models use."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._counter.count, "ctxpager", family_of(""))

    def start(self, entry: Entry) -> int | Awaitable[int]:
        """Count a prompt; where much of it is new, in a thread, as the tokenizer works without Python's lock."""
        request, known = entry.incoming.request, self._known(entry)
        new = sum(map(len, request.items[len(known) - 1 :])) if len(known) > 1 else len(request.body)
        if new <= COUNTED_AT_ONCE:
            return self._count(entry, known)
        return asyncio.get_running_loop().run_in_executor(self._thread, self._count, entry, known)

    def _count(self, entry: Entry, known: list[int]) -> int:
        request, family = entry.incoming.request, family_of(entry.incoming.request.model)
        new = range(len(known) - 1, len(request.digests))
        totals = [*known[:-1], *accumulate((self._message(entry, family, at) for at in new), initial=known[-1])]
        self._remember(entry, _Sums(family.name, totals))
        return totals[-1] + sum(self._member(entry, family, name) for name in PROMPT_MEMBERS)

    def _known(self, entry: Entry) -> list[int]:
        """The totals of what this prompt has in common with its parent's; just 0 where they are not known."""
        parent, keep = entry.placement.parent, entry.recipe.keep
        sums = self._sums.get((entry.session.id, parent.number)) if parent else None
        if sums is None or sums.family != family_of(entry.incoming.request.model).name:
            return [0]
        return sums.totals[: keep + 1]

    def _remember(self, entry: Entry, sums: _Sums) -> None:
        spot = (entry.session.id, entry.placement.branch.number)
        self._sums[spot] = sums
        self._sums.move_to_end(spot)
        if len(self._sums) > BRANCHES_REMEMBERED:
            self._sums.popitem(last=False)

    def _message(self, entry: Entry, family: Family, at: int) -> int:
        incoming = entry.incoming
        digest = incoming.request.digests[at]

        def count() -> int:
            message = entry.fresh.get(digest) or incoming.dialect.decode(incoming.request.items[at])
            return self._counter.count_message(message, family)

        return self._remembered(family, digest, count)

    def _member(self, entry: Entry, family: Family, name: str) -> int:
        """The tokens of a part of the prompt that stands outside the messages."""
        request = entry.incoming.request
        span = request.members.get(name)
        if span is None:
            return 0

        def count() -> int:
            return self._counter.count(request.body[span.start : span.end].decode("utf-8", "replace"), family)

        digest = entry.recipe.values.get(name)
        return self._remembered(family, digest, count) if digest else count()

    def _remembered(self, family: Family, digest: bytes | str, count: Callable[[], int]) -> int:
        key = (family.name, digest)
        known = self._counts.get(key)
        if known is None:
            if len(self._counts) >= COUNTS_REMEMBERED:
                for old in list(islice(self._counts, COUNTS_REMEMBERED // 2)):
                    self._counts.pop(old, None)
            known = self._counts[key] = count()
        return known
