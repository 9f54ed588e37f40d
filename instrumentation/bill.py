"""What a provider with a prompt cache charges for a series of requests, in units of one uncached input token.

A request is a list of parts, in the order in which a provider caches them: what stands before the messages, then each
message. The longest beginning that it shares with a request of late, one that the cache still holds, is read; the rest
is written. Requests of one session repeat almost everything, so they are compared as whole lists, and what a beginning
costs is the difference of two running sums.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from pager.policy import Prices
from pager.table import common_length

BYTES_A_TOKEN = 2.7
"""Measured on recorded sessions: how many bytes a prompt grew by for each token that the provider counted more."""

REMEMBERED = 8
"""Earlier requests whose beginning a provider may still hold."""


def tokens_in(size: int) -> int:
    """The tokens of a part with so many bytes."""
    return max(1, round(size / BYTES_A_TOKEN))


@dataclass(frozen=True, slots=True)
class Prompt:
    """The parts of a request: what each is known by, and the tokens of all up to its end."""

    keys: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, keys: list[bytes], tokens: Iterable[int]) -> "Prompt":
        """A prompt of parts with so many tokens each."""
        return cls(keys, list(accumulate(tokens)))

    @property
    def tokens(self) -> int:
        """The tokens of the whole prompt."""
        return self.ends[-1] if self.ends else 0

    def grown(self, keys: Sequence[bytes], tokens: Sequence[int], keep: int | None = None) -> "Prompt":
        """The first ``keep`` parts, by default all, and these after them."""
        kept = len(self.keys) if keep is None else keep
        before = self.ends[kept - 1] if kept else 0
        ends = list(accumulate(tokens, initial=before))[1:]
        return Prompt([*self.keys[:kept], *keys], [*self.ends[:kept], *ends])


class Charged(NamedTuple):
    """What was charged for a request, or for several; ``peak`` are the tokens of the largest prompt."""

    cost: float = 0.0
    input: int = 0
    cached: int = 0
    output: int = 0
    requests: int = 0
    peak: int = 0


@dataclass(slots=True)
class Bill:
    """The sum of what was charged so far."""

    prices: Prices = field(default_factory=Prices)
    charged: Charged = field(default_factory=Charged)
    _held: list[tuple[float, list[bytes]]] = field(default_factory=list)

    def charge(self, prompt: Prompt, at: float, output: int, prices: Prices | None = None) -> Charged:
        """Charge one request, under these prices from now on if some are given; what it costs."""
        self.prices = prices or self.prices
        hit = self._hit(prompt.keys, at)
        cached, tokens = prompt.ends[hit - 1] if hit else 0, prompt.tokens
        rates, so_far = self.prices, self.charged
        cost = rates.read * cached + rates.write * (tokens - cached) + rates.output * output
        self.charged = Charged(
            so_far.cost + cost,
            so_far.input + tokens,
            so_far.cached + cached,
            so_far.output + output,
            so_far.requests + 1,
            max(so_far.peak, tokens),
        )
        self._held = [*self._held[1 - REMEMBERED :], (at, prompt.keys)]
        return Charged(cost, tokens, cached, output, 1, tokens)

    def _hit(self, keys: list[bytes], at: float) -> int:
        """How many parts the cache holds: the newest requests first, as they mostly hold what all others do."""
        best = 0
        for stamp, held in reversed(self._held if self.prices.ttl_seconds else ()):
            if len(held) > best and at - stamp <= self.prices.ttl_seconds:
                best = max(best, common_length(held, keys))
        return best
