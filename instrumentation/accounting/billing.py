"""What requests cost, in units of one uncached input token: by a model of the provider's cache, or as reported.

A request is a list of parts, in the order in which a provider caches them: what comes before the messages, then each
message. The longest beginning that it shares with a request of late, one that the cache still holds, is read; the rest
is written. Requests of one session repeat almost everything, so they are compared as whole lists, and what a beginning
costs is the difference of two running sums.

Where a provider caches at marks (``pager.pricing.mark_cache``), only what ended at a living mark is read, what is
behind that up to the last mark is written, for five minutes or an hour, and the rest is plain input.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from pager.paging.pages.page_table import common_length
from pager.pricing.mark_cache import (
    FIVE_MINUTES,
    Entry,
    renewed,
    within_reach,
)
from pager.pricing.prices import Prices
from pager.pricing.rates import Models
from pager.pricing.tokens import BYTES_A_TOKEN
from pager.request_values import Usage

MILLION = 1_000_000

REMEMBERED = 8
"""Earlier requests whose beginning a provider may still hold."""


def tokens_in(size: int) -> int:
    """The tokens of a part, by its bytes."""
    return max(1, round(size / BYTES_A_TOKEN))


class Prompt:
    """The parts of a request: what each is known by, and the tokens of all up to its end.

    A prompt that only grows shares its lists with those it grew from, as every prompt of a long session would otherwise
    hold all of it once more; each knows how much of them is its own.
    """

    __slots__ = ("_ends", "_keys", "_links", "_size")

    def __init__(
        self,
        keys: list[bytes] | None = None,
        ends: list[int] | None = None,
        size: int | None = None,
        links: list[int] | None = None,
    ) -> None:
        self._keys = [] if keys is None else keys
        self._ends = [] if ends is None else ends
        self._size = len(self._keys) if size is None else size
        self._links = _chained(0, self._keys) if links is None else links

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prompt) and (self.keys, self.ends) == (other.keys, other.ends)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(cls, keys: list[bytes], tokens: Iterable[int]) -> "Prompt":
        """A prompt, by the tokens of its parts."""
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
        """The tokens of the first ``parts``."""
        return self._ends[parts - 1] if parts else 0

    def link(self, parts: int) -> int:
        """The key of the first ``parts`` together."""
        return self._links[parts - 1] if parts else 0

    def grown(self, keys: Sequence[bytes], tokens: Sequence[int], keep: int | None = None) -> "Prompt":
        """The first ``keep`` parts, by default all, and these after them."""
        kept = self._size if keep is None else min(keep, self._size)
        ends = list(accumulate(tokens, initial=self.upto(kept)))[1:]
        if kept < len(self._keys):  # another has grown from here
            return Prompt([*self._keys[:kept], *keys], [*self._ends[:kept], *ends])
        self._links += _chained(self.link(kept), keys)
        self._keys += keys
        self._ends += ends
        return Prompt(self._keys, self._ends, kept + len(keys), self._links)


def _chained(link: int, keys: Iterable[bytes]) -> list[int]:
    """What each beginning is known by: by that of the one before, and its own last part."""
    return list(accumulate(keys, lambda before, key: hash((before, key)), initial=link))[1:]


class Marks(NamedTuple):
    """The cache marks of a request: how many parts end at each, and the lifetime it asks for.

    ``positions`` gives the positions of a part, as the provider counts them, by its number from 0 on.
    """

    ends: Mapping[int, float]
    positions: Callable[[int], int]


class Charged(NamedTuple):
    """What was charged for a request, or for several; ``peak`` are the tokens of the largest prompt."""

    cost: float = 0.0
    input: int = 0
    cached: int = 0
    output: int = 0
    requests: int = 0
    peak: int = 0
    written: int = 0
    written_1h: int = 0


@dataclass(slots=True)
class Bill:
    """The sum of what was charged so far."""

    prices: Prices = field(default_factory=Prices)
    charged: Charged = field(default_factory=Charged)
    _held: list[tuple[float, list[bytes]]] = field(default_factory=list)
    _entries: dict[int, Entry] = field(default_factory=dict)

    def charge(
        self, prompt: Prompt, at: float, output: int, prices: Prices | None = None, marks: Marks | None = None
    ) -> Charged:
        """Charge one request, under these prices from now on if some are given; what it costs.

        With ``marks``, its provider caches at them: for an hour at ``write_long``, for five minutes at ``write``.
        """
        self.prices = prices or self.prices
        tokens, rates, so_far = prompt.tokens, self.prices, self.charged
        if marks is None:
            cached = prompt.upto(self._hit(prompt.keys, at))
            long, written = 0, tokens - cached
            self._held = [*self._held[1 - REMEMBERED :], (at, prompt.keys)]
        else:
            cached, long, written = self._marked(prompt, at, marks)
        paid = rates.read * cached + rates.write * (written - long) + rates.write_long * long
        prompt_times, answer_times = rates.factors(tokens)
        cost = prompt_times * (paid + tokens - cached - written) + answer_times * rates.output * output
        charged = Charged(cost, tokens, cached, output, 1, tokens, written, long)
        self.charged = Charged(
            so_far.cost + cost,
            so_far.input + tokens,
            so_far.cached + cached,
            so_far.output + output,
            so_far.requests + 1,
            max(so_far.peak, tokens),
            so_far.written + written,
            so_far.written_1h + long,
        )
        return charged

    def refresh(self, prompt: Prompt, at: float, prices: Prices, marks: Marks | None = None) -> Charged:
        """Charge a request that only keeps its prompt cached: its money counts, its tokens are no traffic."""
        so_far = self.charged
        charged = self.charge(prompt, at, 0, prices, marks)
        self.charged = so_far._replace(cost=so_far.cost + charged.cost)
        return charged

    def _marked(self, prompt: Prompt, at: float, marks: Marks) -> tuple[int, int, int]:
        """The tokens that are read, those written for an hour, and all that are written, where marks count."""
        reach = sorted({parts for mark in marks.ends for parts in within_reach(mark, marks.positions)}, reverse=True)
        held = (parts for parts in reach if (entry := self._entries.get(prompt.link(parts))) and entry.is_alive(at))
        hit = next((parts for parts in held if parts), 0)
        marked = [(prompt.link(parts), asked, parts > hit) for parts, asked in marks.ends.items()]
        self._entries = renewed(self._entries, at, marked, prompt.link(hit) if hit else 0)
        last = prompt.upto(max([hit, *marks.ends]))
        hours = prompt.upto(max([hit, *(parts for parts, asked in marks.ends.items() if asked > FIVE_MINUTES)]))
        cached = prompt.upto(hit)
        return cached, hours - cached, last - cached

    def _hit(self, keys: list[bytes], at: float) -> int:
        """How many parts the cache holds: the newest requests first, as they mostly hold what all others do."""
        best = 0
        for stamp, held in reversed(self._held if self.prices.ttl_seconds else ()):
            if len(held) > best and at - stamp <= self.prices.ttl_seconds:
                best = max(best, common_length(held, keys))
        return best


# ---------------------------------------------------------------- reported tokens


class UsageCost(NamedTuple):
    """A cost in units of one uncached input token of its model; in dollars, too, where that token's price is known."""

    units: float = 0.0
    dollars: float | None = 0.0

    def plus(self, other: "UsageCost") -> "UsageCost":
        """The sum of both; in dollars only where both are known."""
        known = self.dollars is not None and other.dollars is not None
        return UsageCost(self.units + other.units, (self.dollars or 0.0) + (other.dollars or 0.0) if known else None)


def units(usage: Usage, prices: Prices) -> float:
    """What these tokens cost, in units of one uncached input token.

    Cached and written tokens are parts of the input; what is neither is plain input. A provider that counts both for
    the same token can't make plain input less than none. What was written for an hour has its own price. A long prompt
    may cost more for all of its tokens.
    """
    prompt, answer = prices.factors(usage.input)
    plain = max(0, usage.input - usage.cached - usage.written)
    long = min(usage.written_1h, usage.written)
    written = prices.write * (usage.written - long) + prices.write_long * long
    return prompt * (prices.read * usage.cached + written + plain) + answer * prices.output * usage.output


def priced_as(models: Models, asked: str, served: str = "") -> str:
    """The model whose prices a request has: the one asked for, or the one that answered where that is not known."""
    return asked if models.find(asked).known or not served else served


def cost(usage: Usage, models: Models, asked: str, served: str = "") -> UsageCost:
    """What a request cost that asked for a model, where ``served`` is the model that answered, by the provider."""
    name = priced_as(models, asked, served)
    counted = units(usage, models.prices(name))
    price = models.find(name).input
    return UsageCost(counted, counted * price / MILLION if price else None)
