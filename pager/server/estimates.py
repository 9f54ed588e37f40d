"""Counts a call's prompt while the model thinks, and learns from the provider's numbers how far off the count is."""

import asyncio
from collections.abc import Awaitable, Iterable
from itertools import islice

from pager.events import AnswerFinished
from pager.server.journal import Incoming
from pager.store import Stored
from pager.tokens import Calibration, Counter, Family, family_of

PROMPT_MEMBERS = ("tools", "system", "instructions", "functions")
COUNTS_REMEMBERED = 200_000


class Estimates:
    """Token counts of prompts, kept by message, so that only new messages are counted."""

    def __init__(self) -> None:
        self._counter = Counter()
        self._counts: dict[tuple[str, bytes], int] = {}
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
        await asyncio.to_thread(self._counter.count, "ctxpager", family_of(""))

    def start(self, incoming: Incoming) -> Awaitable[int]:
        """Begin to count a prompt in a thread; the tokenizer lets go of the interpreter while it works."""
        return asyncio.get_running_loop().run_in_executor(None, self._count, incoming)

    def _count(self, incoming: Incoming) -> int:
        request = incoming.request
        family = family_of(request.model)
        spans = [request.members[name] for name in PROMPT_MEMBERS if name in request.members]
        texts = (request.body[span.start : span.end].decode("utf-8", "replace") for span in spans)
        outside = sum(self._counter.count(text, family) for text in texts)
        known = self._counts
        counts = [known.get((family.name, digest)) for digest in request.digests]
        fresh = (
            self._fresh(incoming, family, digest, item)
            for count, digest, item in zip(counts, request.digests, request.items, strict=True)
            if count is None
        )
        return outside + sum(count for count in counts if count is not None) + sum(fresh)

    def _fresh(self, incoming: Incoming, family: Family, digest: bytes, item: bytes | memoryview) -> int:
        count = self._counter.count_message(incoming.dialect.decode(item), family)
        if len(self._counts) >= COUNTS_REMEMBERED:
            for old in list(islice(self._counts, COUNTS_REMEMBERED // 2)):
                self._counts.pop(old, None)
        self._counts[family.name, digest] = count
        return count
