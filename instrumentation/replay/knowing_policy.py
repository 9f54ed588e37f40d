"""The default policy with the truth in place of its estimates: how much of what it could save it loses by guessing.

All else is the plan of ``cost_aware`` itself: how pages are weighed and cuts are priced, and its rules of thrift.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from instrumentation.replay.known_pauses import KnownPauses
from instrumentation.replay.player import Player, PolicyOutcome
from instrumentation.replay.prepared_recording import Prepared
from instrumentation.replay.recording import Future
from pager.paging.pages.duplicates import handle_in
from pager.paging.policy import Decision, Policy, View
from pager.pricing.rates import Models
from policies.cost_aware import CostAware, WeighedPages

if TYPE_CHECKING:
    from pager.paging.pages.page_arrays import Numbers


KNOWING = "knowing"

Seer = Callable[[Future, Mapping[str, Sequence[str]]], Policy]
"""Makes a policy of the future of a branch, and of the pages that each fetch brought back, by its handle."""


@dataclass(frozen=True, slots=True)
class Knowing:
    """Plans as ``rule`` does, but knows when each page is needed next, when the cache goes cold, and when all ends.

    ``brought`` says, by the handle of what was brought back, which pages that holds.
    """

    future: Future
    brought: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rule: CostAware = field(default_factory=CostAware)

    def choose(self, view: View) -> Decision:
        """The cut with the greatest net, if it pays by the margin and can be paid for."""
        seen = replace(view, to_go=float(self.future.calls - view.call))
        return _Truth(self, seen).decide()


class _Truth(WeighedPages):
    """The plan of one view by one who knows what comes."""

    def __init__(self, knowing: Knowing, view: View) -> None:
        super().__init__(knowing.rule, view)
        self._knowing = knowing

    @property
    def span(self) -> float:
        """The calls from this one to the next that finds the cache cold, out of a cold prompt to the end."""
        if not self._caches:
            return super().span
        cold, call = self._knowing.future.cold, self._view.call
        later = range(call, len(cold)) if self._view.warm else ()
        return float(next((at for at in later if cold[at]), len(cold)) + 1 - call)

    @cached_property
    def _until(self) -> "Numbers":
        """The calls after this one up to that which needs each page next."""
        needs = next_needs(self._knowing.future, self._view, self._knowing.brought)
        return np.array([needs[page.handle] for page in self._view.pages]) - self._view.call

    def chance(self) -> "Numbers":
        """One for each page that is needed within the span, zero for all others."""
        return (self._until < self.span).astype(float)

    def saving(self) -> "Numbers":
        """What evicting each page saves until it is needed or the span is over."""
        prices = self._view.prices
        calls = np.minimum(self._until, self.span - 1)
        saved: Numbers = self._frees * ((prices.read if self._view.warm else prices.write) + prices.read * calls)
        return saved


def next_needs(future: Future, view: View, brought: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The call at which each page is needed next, by its name; of several with the same content, the last resident one.

    A page that was brought back is known by another handle; ``brought`` says, by that, what it holds.
    """
    last: dict[str, str] = {}
    for page in view.pages:
        if page.resident:
            handle = handle_in(page.handle)
            last |= dict.fromkeys(brought.get(handle, (handle,)), page.handle)
    found = {page.handle: inf for page in view.pages}
    for content, name in last.items():
        coming = (call for call in future.needs.get(content, ()) if call >= view.call)
        found[name] = min(found[name], *coming, inf)
    return found


def play_knowing(
    prepared: Prepared, models: Models, credit: float | None = None, *, keep_warm: bool = False
) -> Sequence[PolicyOutcome]:
    """Play a session under ``Knowing``, with a credit in dollars where it is lent one.

    Prompts are kept warm in the pauses where that pays, if so asked.
    """
    return play_with_future(KNOWING, Knowing, prepared, models, credit, keep_warm=keep_warm)


def play_with_future(
    name: str, seer: Seer, prepared: Prepared, models: Models, credit: float | None = None, *, keep_warm: bool = False
) -> Sequence[PolicyOutcome]:
    """Play a session as a policy does, call by call, but with knowledge of its future."""
    futures = prepared.futures(models, kept_warm=keep_warm)
    pauses = KnownPauses.of(prepared.calls) if keep_warm else None
    player = Player(
        prepared, lambda branch: seer(futures[branch], player.brought), models, keep_warm=pauses, credit=credit
    )
    player.play()
    return [player.outcome(name)]
