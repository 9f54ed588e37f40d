"""Decides how long a prompt is kept in the provider's cache while its session rests.

A prompt that is sent again before its lifetime is over stays cached for another one, at the price of reading it. That
pays if the session goes on in the time bought, as it would otherwise be written again. But a cold return is also the
moment at which the prompt is repacked for nothing, so both are weighed together: with N tokens in the cache, M left
after a repack, T later calls, and the prices ``read`` and ``write``,

    stake = (M write + T M read) - (1 + T) N read

is what a warm return saves against a cold one. It is small, or below zero, for a prompt with much to evict. A refresh j
then is worth V_j = max(0, stake h_j - N read + s_j V_{j+1}), where h_j is the chance that the session goes on in the
time that only this refresh buys, and s_j that it still rests when the next is due.

Nothing here sends anything or reads a clock.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pager.errors import ConfigError
from pager.paging.warmth.returns import WaitsFor, chance_of_rest
from pager.pricing.prices import Prices

MARGIN = 20.0
"""Seconds before the end of a lifetime at which a refresh is due: one that is late writes instead of reading."""

MOST = 60
"""Refreshes that are looked ahead to."""

_FIXED = re.compile(r"([0-9]{1,4})x([0-9]{1,6})(?:@([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Resting:
    """A branch after an answer, in numbers; money is in units of one uncached input token."""

    tokens: int  # of the prompt that the provider has cached
    packed: int  # of the prompt after a repack for nothing, which a return to a cold cache would bring
    waits_for: WaitsFor
    to_go: float  # calls after the next one for which a repack would count
    prices: Prices
    budget: float = float("inf")  # what its refreshes may cost
    returns: float = 1.0  # how many times as likely as shipped it is that the session goes on

    @property
    def refresh_cost(self) -> float:
        """What one refresh costs."""
        return self.prices.factors(self.tokens)[0] * self.prices.read * self.tokens

    @property
    def stake(self) -> float:
        """What a return to a warm cache saves against one to a cold cache, by which the prompt is repacked."""
        prices, later = self.prices, max(0.0, self.to_go)
        cold = prices.factors(self.packed)[0] * self.packed * (prices.write + later * prices.read)
        return cold - (1 + later) * self.refresh_cost


class KeepWarm(Protocol):
    """A rule for keeping prompts warm."""

    def refreshes(self, resting: Resting) -> Sequence[float]:
        """When to refresh, in seconds after the start of the latest request; empty to let the cache expire."""


@dataclass(frozen=True, slots=True)
class FixedRefreshes:
    """The same number of refreshes for every prompt from a size on, whatever it costs."""

    count: int
    every: float  # seconds
    smallest: int = 0  # tokens

    def refreshes(self, resting: Resting) -> Sequence[float]:
        """All of them, where the provider caches and the lifetime is not over before the first."""
        prices = resting.prices
        if resting.tokens < self.smallest or prices.read >= prices.write or self.every >= prices.ttl_seconds:
            return ()
        return [self.every * number for number in range(1, self.count + 1)]


@dataclass(frozen=True, slots=True)
class PricedRefreshes:
    """Refreshes while they are expected to pay, within the budget; at most ``most`` of them in one pause."""

    most: int = MOST

    def refreshes(self, resting: Resting) -> Sequence[float]:
        """Those up to the first that is not expected to pay."""
        prices, every = resting.prices, resting.prices.ttl_seconds - MARGIN
        if prices.read >= prices.write or every <= MARGIN or resting.stake <= 0:
            return ()
        times = [every * number for number in range(1, MOST + 1)]
        worth = _worths(resting, times)
        lasting = next((number for number, value in enumerate(worth) if value <= 0), MOST)
        affordable = resting.budget / resting.refresh_cost if resting.refresh_cost else MOST
        return times[: max(0, int(min(lasting, self.most, affordable)))]


def rule_of(text: str) -> KeepWarm | None:
    """The rule that a text names: ``auto``, or a number, seconds and perhaps the smallest prompt, ``2x280@20000``.

    None for ``off``. Raises ConfigError.
    """
    if text in ("", "off"):
        return None
    if text == "auto":
        return PricedRefreshes()
    fixed = _FIXED.fullmatch(text)
    if fixed:
        return FixedRefreshes(int(fixed[1]), float(fixed[2]), int(fixed[3] or 0))
    raise ConfigError(
        f"--keep-warm {text}: allowed are off, auto, or refreshes and the seconds between them, as in 2x280, with the "
        "tokens of the smallest prompt behind an @, as in 2x280@20000"
    )


def _worths(resting: Resting, times: Sequence[float]) -> list[float]:
    """What each refresh is worth if all before it were made; 0 where it does not pay."""
    lifetime, stake, cost = resting.prices.ttl_seconds, resting.stake, resting.refresh_cost
    rests = [chance_of_rest(resting.waits_for, at, resting.returns) for at in [0.0, *times]]
    ends = [chance_of_rest(resting.waits_for, at + lifetime, resting.returns) for at in [0.0, *times]]
    worth, found = 0.0, []
    for number in range(len(times), 0, -1):
        goes_on = (ends[number - 1] - ends[number]) / rests[number]
        still = rests[number + 1] / rests[number] if number < len(times) else 0.0
        worth = max(0.0, stake * goes_on - cost + still * worth)
        found.append(worth)
    return found[::-1]
