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
from pager.tokens import BYTES_A_TOKEN

FIVE_MINUTES, HOUR = 300.0, 3_600.0
"""The lifetimes that a client of Anthropic can ask for, in seconds."""

REMEMBERED = 8
"""Earlier requests whose beginning a provider may still hold."""


def tokens_in(size: int) -> int:
    """The tokens of a part with so many bytes."""
    return max(1, round(size / BYTES_A_TOKEN))


class Prompt:
    """The parts of a request: what each is known by, and the tokens of all up to its end.

    A prompt that only grows shares its lists with those it grew from, as every prompt of a long session would otherwise
    hold all of it once more; each knows how much of them is its own.
    """

    __slots__ = ("_ends", "_keys", "_size")

    def __init__(self, keys: list[bytes] | None = None, ends: list[int] | None = None, size: int | None = None) -> None:
        self._keys = [] if keys is None else keys
        self._ends = [] if ends is None else ends
        self._size = len(self._keys) if size is None else size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prompt) and (self.keys, self.ends) == (other.keys, other.ends)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(cls, keys: list[bytes], tokens: Iterable[int]) -> "Prompt":
        """A prompt of parts with so many tokens each."""
        return cls(keys, list(accumulate(tokens)))

    @property
    def keys(self) -> list[bytes]:
        """What each part is known by."""
        return self._keys[: self._size]

    @property
    def ends(self) -> list[int]:
        """The tokens up to the end of each part."""
        return self._ends[: self._size]

    @property
    def first(self) -> bytes:
        """What the first part is known by."""
        return self._keys[0]

    @property
    def tokens(self) -> int:
        """The tokens of the whole prompt."""
        return self.upto(self._size)

    def upto(self, parts: int) -> int:
        """The tokens of so many parts."""
        return self._ends[parts - 1] if parts else 0

    def grown(self, keys: Sequence[bytes], tokens: Sequence[int], keep: int | None = None) -> "Prompt":
        """The first ``keep`` parts, by default all, and these after them."""
        kept = self._size if keep is None else min(keep, self._size)
        ends = list(accumulate(tokens, initial=self.upto(kept)))[1:]
        if kept < len(self._keys):  # another has grown from here
            return Prompt([*self._keys[:kept], *keys], [*self._ends[:kept], *ends])
        self._keys += keys
        self._ends += ends
        return Prompt(self._keys, self._ends, kept + len(keys))


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
        keys = prompt.keys
        hit = self._hit(keys, at)
        cached, tokens = prompt.upto(hit), prompt.tokens
        rates, so_far = self.prices, self.charged
        prompt_times, answer_times = rates.factors(tokens)
        cost = prompt_times * (rates.read * cached + rates.write * (tokens - cached))
        cost += answer_times * rates.output * output
        self.charged = Charged(
            so_far.cost + cost,
            so_far.input + tokens,
            so_far.cached + cached,
            so_far.output + output,
            so_far.requests + 1,
            max(so_far.peak, tokens),
        )
        self._held = [*self._held[1 - REMEMBERED :], (at, keys)]
        return Charged(cost, tokens, cached, output, 1, tokens)

    def _hit(self, keys: list[bytes], at: float) -> int:
        """How many parts the cache holds: the newest requests first, as they mostly hold what all others do."""
        best = 0
        for stamp, held in reversed(self._held if self.prices.ttl_seconds else ()):
            if len(held) > best and at - stamp <= self.prices.ttl_seconds:
                best = max(best, common_length(held, keys))
        return best
