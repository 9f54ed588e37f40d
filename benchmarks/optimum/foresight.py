"""Policies that know the future: what the same rules could do if nothing had to be guessed.

They see what every policy sees, and a ``Future`` of the branch. They are no optimum: each decides call by call, as a
policy does. What no policy can beat is in ``bound``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from instrumentation.replay.knowing_policy import next_needs
from instrumentation.replay.recording import Future
from pager.paging.policy import Decision, PageView, View
from pager.pricing.prices import ASKING, TOOL


@dataclass(frozen=True, slots=True)
class Belady:
    """Keeps the tokens of resident pages within ``capacity``: what is needed furthest in the future goes first."""

    future: Future
    capacity: int = 60_000
    brought: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def choose(self, view: View) -> Decision:
        """The pages needed last or never, until the others fit; of those the oldest first."""
        left = sum(page.tokens for page in view.pages if page.resident)
        needs = next_needs(self.future, view, self.brought)
        gone: list[PageView] = []
        for page in sorted(view.pages, key=lambda page: (-needs[page.handle], page.position)):
            if left <= self.capacity:
                break
            if page.evictable:
                gone.append(page)
                left -= page.tokens
        return _decision(gone, f"{left} tokens stay for a capacity of {self.capacity}")


@dataclass(frozen=True, slots=True)
class Greedy:
    """The plan of ``cost_aware`` with the truth in place of its estimates, and without its rules of thrift.

    A page is worth what it costs to read until it is needed, or to the end, less the fault if that comes; out of a warm
    prompt only until the next cold call, from which on it could go for free. Pages are weighed from the end of the
    prompt towards its beginning, and the cut with the greatest net wins if that is above ``margin`` of the prompt.
    """

    future: Future
    brought: Mapping[str, Sequence[str]] = field(default_factory=dict)
    margin: float = 0.0

    def choose(self, view: View) -> Decision:
        """The cut with the greatest net."""
        pages = sorted((page for page in view.pages if page.evictable), key=lambda page: -page.position)
        worth = self._worth(view, pages)
        good = [page for page, value in zip(pages, worth, strict=True) if value > 0]
        if not good:
            return Decision(reason=f"none of {len(pages)} pages that could go pays for itself")
        net = np.cumsum(worth[worth > 0]) - self._price(view, good)
        at = int(net.argmax())
        if net[at] <= self.margin * view.tokens:
            return Decision(reason=f"the best of {len(good)} cuts has a net of {net[at]:.0f}")
        return _decision(good[: at + 1], f"net {net[at]:.0f}")

    def _worth(self, view: View, pages: Sequence[PageView]) -> NDArray[np.float64]:
        """What letting each page go now saves, less the fault."""
        prices, needs = view.prices, next_needs(self.future, view, self.brought)
        stop = self._next_cold(view) if view.warm else self.future.calls + 1
        need = np.array([needs[page.handle] for page in pages])
        tokens = np.array([page.tokens for page in pages], float)
        frees = tokens - [page.stub_tokens for page in pages]
        fault = prices.read * view.tokens + prices.output * ASKING + prices.write * tokens
        worth: NDArray[np.float64] = frees * self._standing(view, np.minimum(stop, need + 1))
        return worth - np.where(need < stop, fault, 0.0)

    def _price(self, view: View, good: Sequence[PageView]) -> NDArray[np.float64]:
        """What each cut costs: writing again what is kept behind it, all where the tool is yet to be added."""
        freed = np.cumsum([page.tokens - page.stub_tokens for page in good])
        behind = [page.tokens + page.after if view.tool_added else view.tokens for page in good]
        extra = view.prices.write - view.prices.read if view.warm else 0.0
        to_the_end = float(self._standing(view, np.array(self.future.calls + 1.0)))
        tool = 0.0 if view.tool_added else TOOL * (to_the_end + extra)
        price: NDArray[np.float64] = extra * np.maximum(np.array(behind) - freed, 0.0) + tool
        return price

    def _standing(self, view: View, stop: NDArray[np.float64]) -> NDArray[np.float64]:
        """What a token costs that stands in the prompt from this call to the one before ``stop``, or in this alone."""
        prices = view.prices
        here = prices.read if view.warm else prices.write
        later = np.where(self.future.cold[view.call :], prices.write, prices.read)
        sums = np.concatenate(([here], here + np.cumsum(later)))
        at = np.clip(stop - view.call - 1, 0, len(later)).astype(int)
        found: NDArray[np.float64] = sums[at]
        return found

    def _next_cold(self, view: View) -> int:
        """The next call that finds the cache cold; the one after the last if none does."""
        cold = self.future.cold
        return next((at + 1 for at in range(view.call, len(cold)) if cold[at]), len(cold) + 1)


def _decision(gone: Sequence[PageView], why: str) -> Decision:
    """The decision to let these pages go."""
    ordered = sorted(gone, key=lambda page: page.position)
    cut = ordered[0].position if ordered else None
    return Decision(tuple(page.handle for page in ordered), cut, f"{len(gone)} pages go: {why}")
