"""The best that can be done with one page, given when things may go and what standing in the prompt costs.

A page is held until it goes. If it is needed after that, a copy comes and is held in its turn. Between two needs there
is no reason to wait: what goes, goes at the first chance. So only the needs count at which the page is missed, and
they are found by dynamic programming from the last to the first.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.optimum.problem import Problem, ProblemPage


class Market(Protocol):
    """When something may go, and what things cost."""

    def chance(self, place: int, call: int) -> int:
        """The first call from this one on at which something at this place may go; past the last if there is none."""

    def standing(self, place: int) -> NDArray[np.float64]:
        """What a token at this place costs that stands in all calls before the one with this number."""

    def asking(self, call: int) -> float:
        """What it costs to ask for a page at a call, without what it costs to write the page."""


@dataclass(frozen=True, slots=True)
class Free:
    """A market in which anything may go at any call and a repack costs nothing: no schedule has a better one."""

    problem: Problem
    asked: Sequence[float]

    def chance(self, place: int, call: int) -> int:
        """Always now."""
        del place
        return call

    def standing(self, place: int) -> NDArray[np.float64]:
        """The price of reading, or of writing when the cache is cold."""
        del place
        return self.problem.standing

    def asking(self, call: int) -> float:
        """The least that asking can cost."""
        return self.asked[call]


class PlannedRepack(NamedTuple):
    """A call at which the prompt may change behind so many tokens of the line."""

    call: int
    cut: int


class Repacks:
    """A market with a fixed list of repacks: pages may go only then, and what stays behind a cut is written again."""

    def __init__(self, problem: Problem, repacks: Sequence[PlannedRepack], asked: Sequence[float]) -> None:
        self._problem = problem
        self._asked = asked
        self._calls = np.array([repack.call for repack in repacks], int)
        self._cuts = np.array([repack.cut for repack in repacks], int)
        self._kept = np.array([problem.calls[repack.call - 1].kept for repack in repacks], int)
        self._warm = np.array([not problem.calls[repack.call - 1].cold for repack in repacks], bool)

    def chance(self, place: int, call: int) -> int:
        """The first repack that reaches it."""
        found = self._calls[(self._calls >= call) & (self._cuts <= place)]
        return int(found[0]) if found.size else self._problem.end

    def standing(self, place: int) -> NDArray[np.float64]:
        """Each warm repack that reaches it writes it again."""
        per_token = self._problem.per_token.copy()
        again = self._calls[self._warm & (self._cuts <= place) & (self._kept > place)]
        per_token[again] = self._problem.prices.write
        return np.concatenate(([0.0], np.cumsum(per_token)))

    def asking(self, call: int) -> float:
        """What it cost in an earlier plan, or about so much."""
        return self._asked[call]


class PagePlan(NamedTuple):
    """What a page costs above its stub while it may go, and the calls at which it, and then its copies, go."""

    cost: float
    goes: tuple[int, ...] = ()


def held(problem: Problem, page: ProblemPage, standing: NDArray[np.float64], goes: int) -> float:
    """What a page costs from the call on from which it may go, if it goes at ``goes``."""
    goes = min(goes, page.until)
    tokens = float(standing[goes] - standing[page.free])
    if goes > page.free == page.first:  # only what a client writes anew may go with its first call
        tokens += problem.prices.write - float(problem.per_token[page.first])
    return page.gain * tokens


def best(problem: Problem, page: ProblemPage, needs: Sequence[int], market: Market) -> PagePlan:
    """The cheapest plan for a page that is needed at these calls."""
    standing = market.standing(page.before)
    kept = PagePlan(held(problem, page, standing, page.until))
    last = market.chance(page.before, max(page.free, needs[-1] + 1) if needs else page.free)
    late = PagePlan(held(problem, page, standing, last), (last,)) if last < page.until else kept
    return min(kept, late, _Missed(problem, page, needs, needs, market).plan()) if needs else min(kept, late)


def early(problem: Problem, one: int, market: Market) -> PagePlan:
    """The cheapest plan by which a page is missed at least once; its cost is infinite if there is none."""
    musts = problem.musts[one]
    asked = [call for call in problem.asked[one] if musts and call <= musts[-1]]
    return _Missed(problem, problem.pages[one], asked, musts, market).plan()


class _Missed:
    """The plans by which a page is missed.

    It can be asked for at any of the calls ``asked``, and must be at those of them that are ``musts``, unless it is
    there.
    """

    def __init__(
        self, problem: Problem, page: ProblemPage, asked: Sequence[int], musts: Sequence[int], market: Market
    ) -> None:
        self._problem = problem
        self._page = page
        self._asked = asked
        self._musts = musts
        self._market = market

    def plan(self) -> PagePlan:
        """The cheapest; its cost is infinite if there is none."""
        page, found = self._page, PagePlan(inf)
        if not self._asked:
            return found
        after = self._after_faults()
        standing = self._market.standing(page.before)
        for call in self._asked:
            goes = self._market.chance(page.before, max(page.free, self._last_must(call) + 1))
            if goes <= call:
                cost = held(self._problem, page, standing, goes) + after[call].cost
                found = min(found, PagePlan(cost, (goes, *after[call].goes)))
        return found

    def _last_must(self, call: int) -> int:
        """The last call before this one at which the page must be there."""
        at = bisect_left(self._musts, call)
        return self._musts[at - 1] if at else 0

    def _after_faults(self) -> dict[int, PagePlan]:
        """The cheapest plan from each call on, given that the page is asked for at it; nothing after the last."""
        plans = {self._problem.end: PagePlan(0.0)}
        for call in reversed(self._asked):
            paid = self._market.asking(call) + self._problem.prices.write * self._page.tokens
            plan = min(self._copy_plans(call, plans))
            plans[call] = PagePlan(paid + plan.cost, plan.goes)
        return plans

    def _copy_plans(self, call: int, plans: Mapping[int, PagePlan]) -> Iterator[PagePlan]:
        """What may become of the copy that a fault brings: when it goes, if it does, and when the next fault is."""
        page, place, until = self._page, self._problem.calls[call - 1].tokens, self._problem.copies_until[call]
        standing = self._market.standing(place)
        for again, plan in plans.items():
            last = self._last_must(again)
            if call < last and until <= last:  # it has left when it must be there
                continue
            goes = self._market.chance(place, max(call + 1 + self._problem.stays, last + 1))
            if goes <= min(again, until - 1):
                stays = page.tokens * float(standing[goes] - standing[call + 1])
                stub = page.stub * float(standing[until] - standing[goes])
                yield PagePlan(stays + stub + plan.cost, (goes, *plan.goes))
            if until <= again:
                yield PagePlan(page.tokens * float(standing[until] - standing[call + 1]) + plan.cost, plan.goes)
