"""Providers' caches of prompt prefixes, and what a branch's own calls have shown about them.

The catalogue of models has what is documented; ``docs/models.md`` says in words what ``Evidence`` believes. Nothing
here reads a clock: times come with the calls, so that the same log gives the same beliefs.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from pager.pricing.mark_cache import FIVE_MINUTES, HOUR
from pager.pricing.prices import Prices

LIFETIME = 3_600.0
"""Seconds that a cached prefix is taken to live where the provider says nothing.

Too long an answer costs a chance to repack for free; too short a one breaks a cache that still lived. So it is long.
"""

MINIMUM = 1_024
"""Tokens below which nothing is cached, where the provider says nothing: what most say."""

TELLING = 4_096
"""Tokens that a prompt must share with the one before for a report to be evidence: the largest minimum there is."""

HIT_SHARE, MISS_SHARE = 0.9, 0.5
"""Shares of these tokens: from the one up, the prefix was still in the cache; below the other, it was gone."""

TWICE = 2
"""How often a miss must be seen to be believed: prompts are routed between machines, so single ones mean nothing."""


class CacheKind(StrEnum):
    """What makes a provider cache a prompt: nothing, marks that the client sets, or nothing ever does."""

    AUTOMATIC = "automatic"
    MARKED = "marked"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Cache:
    """A provider's cache: what fills it, and the tokens below which a prompt is not kept."""

    kind: CacheKind = CacheKind.AUTOMATIC
    minimum: int = MINIMUM

    def serves(self, *, marked: bool) -> bool:
        """Whether it is there for a client that sets marks, or for one that does not."""
        return self.kind is CacheKind.AUTOMATIC or (self.kind is CacheKind.MARKED and marked)


def uncached(prices: Prices) -> Prices:
    """The prices where nothing is cached: every token counts in full on each call."""
    return replace(prices, read=1.0, write=1.0, write_long=1.0, ttl_seconds=0.0)


@dataclass(frozen=True, slots=True)
class Sent:
    """A prompt on its way: the seconds since the one before, and the share of it that both begin with."""

    gap: float
    share: float


@dataclass(slots=True)
class Evidence:
    """What the answered calls of a branch have shown of the provider's cache for one model.

    ``held`` is the longest gap after which the prefix was still there, ``lost`` are the two shortest above it after
    which it was gone, and ``empty`` the two shortest after which nothing at all was cached since anything last was.
    ``granted`` is the lifetime that the provider's usage names for what it wrote last, 0 where it names none.
    A call is evidence if the call before it was answered, asked the same model, and went out as it was noted.
    """

    model: str = ""
    held: float = 0.0
    lost: tuple[float, ...] = ()
    empty: tuple[float, ...] = ()
    granted: float = 0.0
    at: float = 0.0
    answered: bool = False
    apart: bool = False
    sent_last: Sent | None = None

    def sent(self, at: float, model: str, tokens: int, shared: int) -> None:
        """Note a prompt of ``tokens``, of which the first ``shared`` are also those of the prompt before."""
        if model != self.model:
            self.model, self.held, self.lost, self.empty, self.answered = model, 0.0, (), (), False
            self.granted = 0.0
        share = shared / max(shared, tokens, 1)
        tells = self.answered and share > 0 and not self.apart
        self.sent_last = Sent(max(0.0, at - self.at), share) if tells else None
        self.at, self.answered, self.apart = at, False, False

    def changed(self) -> None:
        """Note that the prompt went out other than was noted: what is reported of it is no evidence."""
        self.sent_last = None

    def sent_apart(self) -> None:
        """Note that another prompt than the paged one went out: neither this call nor the next has its beginning."""
        self.sent_last, self.apart = None, True

    def reported(self, tokens: int, cached: int | None) -> None:
        """Note what the provider says of the prompt's tokens; ``cached`` is None where it says nothing of a cache.

        Only the first report after a prompt is of that prompt: hidden legs follow within seconds.
        """
        sent, self.sent_last, self.answered = self.sent_last, None, True
        if cached is None:
            return
        if cached > 0:
            self.empty = ()
        if sent is not None and sent.share * tokens >= TELLING:
            self._learn(sent.gap, cached, cached / (sent.share * tokens))

    def granted_by(self, short: int, long: int) -> None:
        """Note how many tokens were written for five minutes and for an hour; the end of a prompt lives the shorter."""
        if short or long:
            self.granted = FIVE_MINUTES if short else HOUR

    def _learn(self, gap: float, cached: int, found: float) -> None:
        if found >= HIT_SHARE:
            self.held = max(self.held, gap)
            self.lost = tuple(one for one in self.lost if one > self.held)
        elif found < MISS_SHARE and gap > self.held:
            self.lost = _shortest(self.lost, gap)
        if not cached:
            self.empty = _shortest(self.empty, gap)

    def lifetime(self, ttl: float) -> float:
        """Seconds that a prefix is believed to live, where ``ttl`` is what is documented."""
        seen = self.lost[-1] if len(self.lost) == TWICE else math.inf
        return max(self.held, min(ttl, seen))

    def caches(self, ttl: float) -> bool:
        """Whether the provider is believed to cache at all."""
        return len(self.empty) < TWICE or self.empty[-1] > ttl

    def believed(self, prices: Prices) -> Prices:
        """The prices as this evidence corrects them."""
        if prices.read >= 1.0:
            return prices
        if not self.caches(prices.ttl_seconds):
            return uncached(prices)
        return replace(prices, ttl_seconds=self.lifetime(prices.ttl_seconds))

    def copy(self) -> "Evidence":
        """The same for a branch that forks off."""
        return replace(self)


def _shortest(gaps: tuple[float, ...], gap: float) -> tuple[float, ...]:
    return tuple(sorted((*gaps, gap))[:TWICE])
