"""Counts the tokens of a prompt and simulates the provider's cache of its prefix."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from pager.request_values import Usage
from pager.wire.dialects import load as load_dialect
from pager.wire.scripted import FIVE_MINUTES, Piece, Scripted, tokens

# Providers cache no prompt shorter than this; OpenAI counts cached tokens in steps.
_LEAST = 1024
_STEP = 128
_COUNTS_WRITES = re.compile(r"gpt-(5\.[6-9]|[6-9])")

HALF_AN_HOUR = 1_800.0
"""Seconds that OpenAI keeps a prompt at least, from GPT-5.6 on."""

_REACH = 20
"""Positions that are searched for a cached prompt from each mark backwards, the mark's own included."""


def size(pieces: Sequence[Piece]) -> int:
    """The tokens of a prompt."""
    return sum(tokens(part.text) for part in pieces)


class _CachedPrefix(NamedTuple):
    """A cached prefix: when it was used last, and the seconds that it lives after that."""

    used: float
    lifetime: float


class PromptCache:
    """Remembers the prefixes that it was shown, each for its lifetime after the last use."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0, lifetime: float = math.inf) -> None:
        """Begin with nothing in the cache; ``lifetime`` is that of prompts which are cached without a mark."""
        self._clock = clock
        self._lifetime = lifetime
        self._known: dict[bytes, _CachedPrefix] = {}

    def usage(self, provider: Scripted, request: Mapping[str, Any]) -> Usage:
        """The tokens of a request's prompt, cached as its provider does."""
        read = self.read_marked if load_dialect(provider.name).marks_cache else self.read
        return read(str(request.get("model")), provider.prompt(request))

    def read(self, model: str, pieces: Sequence[Piece]) -> Usage:
        """Input, cached and, from GPT-5.6 on, written tokens where every prompt is cached by itself (OpenAI)."""
        now = self._clock()
        sizes, chain = _measure(model, pieces)
        known = max((at + 1 for at, link in enumerate(chain) if self._holds(link, now)), default=0)
        found, whole = sum(sizes[:known]) // _STEP * _STEP, sum(sizes)
        cached = found if found >= _LEAST else 0
        self._known.update((link, _CachedPrefix(now, self._lifetime)) for link in chain)
        written = whole - cached if whole >= _LEAST and _COUNTS_WRITES.match(model) else 0
        return Usage(whole, cached, written)

    def read_marked(self, model: str, pieces: Sequence[Piece]) -> Usage:
        """Input, cached and written tokens where the client marks what to cache (Anthropic).

        Only a prompt that ends at a mark is written; it is found from a mark at its end or a few positions behind it.
        """
        now = self._clock()
        sizes, chain = _measure(model, pieces)
        ends = [0, *accumulate(sizes)]
        marks = [count for count, part in enumerate(pieces, 1) if part.lifetime and ends[count] >= _LEAST]
        hit = max((count for count in _reach(pieces, marks) if self._holds(chain[count - 1], now)), default=0)
        asked = [(chain[mark - 1], pieces[mark - 1].lifetime) for mark in marks]
        self._keep(asked, chain[hit - 1] if hit else b"", now)
        long = ends[max([hit, *(mark for mark in marks if pieces[mark - 1].lifetime > FIVE_MINUTES)])] - ends[hit]
        written = ends[max([hit, *marks])] - ends[hit]
        return Usage(ends[-1], ends[hit], written, written_5m=written - long, written_1h=long)

    def _holds(self, link: bytes, now: float) -> bool:
        entry = self._known.get(link)
        return entry is not None and now - entry.used <= entry.lifetime

    def _keep(self, marked: Sequence[tuple[bytes, float]], hit: bytes, now: float) -> None:
        """Use the prefix that was read, if any, and those up to the marks, which live no longer than what was read."""
        read = self._known.get(hit)
        for link, asked in marked:
            kept = self._known[link].lifetime if self._holds(link, now) else asked
            self._known[link] = _CachedPrefix(now, kept if read is None else min(kept, read.lifetime))
        if read is not None:
            self._known[hit] = _CachedPrefix(now, read.lifetime)


def _reach(pieces: Sequence[Piece], marks: Sequence[int]) -> Iterator[int]:
    """The lengths of prompts that can be found from these marks; calls, or results, in a row are one position."""
    positions = list(accumulate(_follows(before, part) for before, part in pairwise([Piece(""), *pieces])))
    for mark in marks:
        for count in range(mark, 0, -1):
            if positions[mark - 1] - positions[count - 1] >= _REACH:
                break
            yield count


def _follows(before: Piece, part: Piece) -> int:
    """How many positions a part is behind the one before it."""
    return int(part.kind != before.kind or part.kind not in {"tool_use", "tool_result"})


def _measure(model: str, pieces: Sequence[Piece]) -> tuple[list[int], list[bytes]]:
    """The tokens of each piece, and the hash of each prefix that ends with it."""
    link, chain = sha256(model.encode()).digest(), []
    for part in pieces:
        link = sha256(link + part.text.encode("utf-8", "replace")).digest()
        chain.append(link)
    return [tokens(part.text) for part in pieces], chain
