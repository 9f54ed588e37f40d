"""Keeping prompts warm with knowledge of the pauses: exactly the refreshes that a pause needs, where they pay."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING

from pager.paging.warmth.keep_warm import MARGIN, Resting
from pager.pricing.prices import Prices

if TYPE_CHECKING:
    from instrumentation.replay.prepared_recording import PreparedCall


def refreshes_needed(prices: Prices, seconds: float) -> float:
    """How many refreshes keep a prompt cached for a pause of this length; infinite where none can."""
    every = prices.ttl_seconds - MARGIN
    if seconds <= prices.ttl_seconds:
        return 0
    return inf if every <= MARGIN or seconds == inf else ceil((seconds - prices.ttl_seconds) / every)


def pays_to_bridge(prices: Prices, seconds: float) -> bool:
    """Whether keeping a prompt of which nothing can be evicted costs less than writing it again after this pause."""
    return refreshes_needed(prices, seconds) * prices.read < prices.write - prices.read


@dataclass(frozen=True, slots=True)
class KnownPause:
    """The rule for one pause, whose length is known."""

    seconds: float

    def refreshes(self, resting: Resting) -> Sequence[float]:
        """All that the pause needs, or none where they cost more than a return to a warm cache saves."""
        prices = resting.prices
        needed = refreshes_needed(prices, self.seconds)
        if needed == inf or prices.read >= prices.write or needed * resting.refresh_cost >= resting.stake:
            return ()
        return [(prices.ttl_seconds - MARGIN) * number for number in range(1, int(needed) + 1)]


@dataclass(frozen=True, slots=True)
class KnownPauses:
    """The pauses of a session: when the branch of each call goes on, by branch, call and attempt."""

    pauses: Mapping[tuple[int, int, int], float]

    @classmethod
    def of(cls, calls: Iterable["PreparedCall"]) -> "KnownPauses":
        """Those between these calls; the last call of each branch has none."""
        latest: dict[int, PreparedCall] = {}
        pauses: dict[tuple[int, int, int], float] = {}
        for call in calls:
            before = latest.get(call.step.branch)
            if before is not None:
                pauses[_where(before)] = call.step.at - before.step.at
            latest[call.step.branch] = call
        return cls(pauses)

    def after(self, call: "PreparedCall") -> KnownPause:
        """The rule for the pause behind a call."""
        return KnownPause(self.pauses.get(_where(call), inf))


def _where(call: "PreparedCall") -> tuple[int, int, int]:
    return call.step.branch, call.number, call.step.attempt
