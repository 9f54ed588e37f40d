"""A bound: what a branch costs at least, whatever goes when, and the repacks by which one might come near it.

What a schedule costs above the bare prompt is the sum of what its warm repacks write again, of what each page costs
while it is held, and of its faults. Four things are made cheaper here than they can be, so that the pages become
independent of each other once the repacks are known:

- a repack writes again only what could not possibly have gone by then;
- a page that is missed at least once costs what it would cost at best if repacks were free (``early``);
- otherwise it goes after its last need, at the first repack that reaches it; and of pages that become free later than
  one behind them, it is taken that a repack reaches them which reaches that one;
- when the client itself takes pages out of the prompt, what stays may go for free, as when the cache is cold.

Put in the order in which they become free, a repack at a call then reaches a run of pages: from its cut to the last
that is free. Cold calls, and those at which the client rewrites, part the branch into stretches, as all that is free
goes there. Let ``F(i, t)`` be the least that the pages from ``i`` on that are free by ``t`` cost, if all of them are
gone at ``t`` and nothing before ``i`` goes. Either no earlier repack begins at ``i``, and its page is held until ``t``;
or the last that does is at ``s``, where everything from ``i`` on goes that is free by then, and what follows is a
stretch of its own::

    F(i, t) = min(F(i + 1, t) + held(i, t),  min over s < t of F(i, s) + price(s, i) + F(first page free after s, t))

Nothing goes before the first repack, which writes all of the prompt again if it is warm; every call is tried for it.
If no page is needed again once it is free, pages come free in the order in which they stand, and the client drops all
or none, nothing here is cheaper than it can be, and the bound is the optimum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from benchmarks.optimum.pages import Free, PlannedRepack, early
from benchmarks.optimum.problem import Problem, cost
from pager.pricing.prices import ASKING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Ground:
    """The pages of a problem as columns, and sums over those that may have gone by each call."""

    problem: Problem

    @cached_property
    def gain(self) -> Floats:
        """Tokens that each page's stub saves."""
        return np.array([page.gain for page in self.problem.pages], float)

    @cached_property
    def before(self) -> Ints:
        """The place of each page."""
        return self._column("before")

    @cached_property
    def free(self) -> Ints:
        """The call from which on each page may go."""
        return self._column("free")

    @cached_property
    def until(self) -> Ints:
        """The call at which each page is in the prompt no more."""
        return self._column("until")

    @cached_property
    def start(self) -> Ints:
        """The call from which on each page may go and is not missed again."""
        return self._free_after(self.problem.musts)

    def possible(self, call: int) -> NDArray[np.bool_]:
        """The pages that may be gone at a call."""
        return (self.free <= call) & (call < self.until)

    def least_prompt(self, call: int) -> float:
        """The tokens of a call's prompt, if all is gone that may be."""
        return self.problem.calls[call - 1].tokens - float(self.gain[self.possible(call)].sum())

    @cached_property
    def asked(self) -> list[float]:
        """The least that asking for a page costs at each call, shared by all that may be asked for together."""
        problem, prices = self.problem, self.problem.prices
        found = [0.0] * (problem.end + 1)
        for call, wants in problem.wants.items():
            together = sum(problem.pages[one].free <= call for one in {want.page for want in wants})
            leg = prices.read * (self.least_prompt(call) + problem.tool) + prices.output * ASKING
            found[call] = leg / max(1, together)
        return found

    @cached_property
    def early(self) -> Floats:
        """The least that each page costs if it is missed at least once."""
        market = Free(self.problem, self.asked)
        return np.array([early(self.problem, one, market).cost for one in range(len(self.problem.pages))])

    @cached_property
    def newly(self) -> Floats:
        """What a token costs more for each page's first call, where it may go with that."""
        problem = self.problem
        extra = [problem.prices.write - problem.per_token[page.first] for page in problem.pages]
        return np.where(self.free == self._column("first"), extra, 0.0)

    def held(self, goes: Ints | int) -> Floats:
        """What each page costs from where it is free, if it goes at a call, or when the client takes it."""
        goes = np.maximum(np.minimum(goes, self.until), self.free)
        tokens = self.problem.standing[goes] - self.problem.standing[self.free]
        held: Floats = self.gain * (tokens + np.where(goes > self.free, self.newly, 0.0))
        return held

    def again(self, call: int, cuts: Ints) -> Floats:
        """What a warm repack at a call costs at least, for each cut: what is kept behind it is written again."""
        problem = self.problem
        now, prices = problem.calls[call - 1], problem.prices
        may = self.possible(call) & (self.before < now.kept)
        order = np.argsort(self.before[may], kind="stable")
        places, gains = self.before[may][order], self.gain[may][order]
        behind = np.concatenate((np.cumsum(gains[::-1])[::-1], [0.0]))
        kept = now.kept - cuts - behind[np.searchsorted(places, cuts)]
        price: Floats = (prices.write - prices.read) * np.maximum(kept, 0.0)
        return price

    def _free_after(self, needs: Sequence[Sequence[int]]) -> Ints:
        last = [calls[-1] + 1 if calls else 0 for calls in needs]
        free: Ints = np.maximum(self.free, np.array(last, int))
        return free

    def _column(self, name: str) -> Ints:
        return np.array([getattr(page, name) for page in self.problem.pages], int)


class Patience(Ground):
    """The ground on which no page goes while it is asked for: no bound, but a guess where repacks should be."""

    @cached_property
    def start(self) -> Ints:
        """The call from which on each page may go and is asked for no more."""
        return self._free_after(self.problem.asked)

    def possible(self, call: int) -> NDArray[np.bool_]:
        """The pages that are gone at a call, if all goes that is not asked for."""
        return (self.start <= call) & (call < self.until)

    @cached_property
    def early(self) -> Floats:
        """No page is missed."""
        return np.full(len(self.problem.pages), np.inf)


class Stretch:
    """The calls between two at which everything may go for free, and the pages that come free in them.

    ``least[i, t]`` is ``F`` of the module's theory; columns are calls, the first of which is ``begin``.
    """

    def __init__(self, ground: Ground, begin: int, end: int) -> None:
        self._ground = ground
        self.begin, self.end = begin, end
        chosen = np.flatnonzero((ground.start >= begin) & (ground.start <= end) & (ground.start < ground.until))
        self.pages = chosen[np.lexsort((ground.before[chosen], ground.start[chosen]))]
        self.starts = ground.start[self.pages]
        self.cuts = np.maximum.accumulate(ground.before[self.pages])
        self._price = np.array([ground.again(call, self.cuts) for call in range(begin, end)])
        self.next_page = np.searchsorted(self.starts, np.arange(begin, end + 1), side="right")
        self.least = self._solved()

    def _solved(self) -> Floats:
        count, width = len(self.pages), self.end - self.begin + 1
        least = np.zeros((count + 1, width))
        for page in reversed(range(count)):
            row = least[page]
            first = int(self.starts[page]) - self.begin
            row[:] = least[page + 1]
            row[first:] += self._held(page)[first:]
            for at in range(first, width - 1):
                rest = least[self.next_page[at], at + 1 :]
                np.minimum(row[at + 1 :], rest + (row[at] + self._price[at, page]), out=row[at + 1 :])
        return least

    def _held(self, page: int) -> Floats:
        """What a page costs if it goes at each call, or by the better of that and being missed."""
        ground, number = self._ground, self.pages[page]
        calls = np.minimum(np.arange(self.begin, self.end + 1), ground.until[number])
        standing = ground.problem.standing
        newly = np.where(calls > ground.free[number], ground.newly[number], 0.0)
        held = ground.gain[number] * (standing[calls] - standing[ground.free[number]] + newly)
        at_best: Floats = np.minimum(held, ground.early[number])
        return at_best

    def best_after(self, call: int) -> float:
        """The least that the pages cost which come free after a call at which all others have gone."""
        return float(self.least[self.next_page[call - self.begin], -1])

    def repacks_after(self, call: int) -> list[PlannedRepack]:
        """The repacks by which that is reached; each really reaches the pages that the bound takes it to reach."""
        found: list[PlannedRepack] = []
        todo = [(int(self.next_page[call - self.begin]) if call >= self.begin else 0, self.end - self.begin)]
        while todo:
            page, to = todo.pop()
            if page == len(self.pages) or self.starts[page] - self.begin >= to:
                continue
            at = self._last_repack(page, to)
            if at is None:
                todo.append((page + 1, to))
            else:
                reached = self.pages[page : self.next_page[at]]
                found.append(PlannedRepack(self.begin + at, int(self._ground.before[reached].min())))
                todo += [(page, at), (int(self.next_page[at]), to)]
        return sorted(found)

    def _last_repack(self, page: int, to: int) -> int | None:
        """The last repack before a call that begins at a page, if one is worth it."""
        first = int(self.starts[page]) - self.begin
        ats = np.arange(first, to)
        ways = self.least[page, ats] + self._price[ats, page] + self.least[self.next_page[ats], to]
        without = self.least[page + 1, to] + self._held(page)[to]
        return int(ats[ways.argmin()]) if ways.size and ways.min() < without - 1e-9 else None


class Bound:
    """What a branch costs at least."""

    def __init__(self, problem: Problem, ground: Ground | None = None) -> None:
        self.problem = problem
        self._ground = ground or Ground(problem)
        calls = range(2, problem.end)
        parts = [call for call in calls if problem.calls[call - 1].cold or call in problem.leaving]
        edges = [1, *parts, problem.end]
        self._stretches = [Stretch(self._ground, begin + (begin > 1), end) for begin, end in pairwise(edges)]
        self.untouched = cost(problem, {})

    @cached_property
    def firsts(self) -> Floats:
        """What the branch costs at least if the first page goes at each call, by its number; infinite for none."""
        ground, problem = self._ground, self.problem
        found = np.full(problem.end, np.inf)
        if not len(problem.pages):
            return found
        bare = self.untouched - float(ground.held(problem.end).sum())
        later = np.cumsum([0.0, *(one.least[0, -1] for one in reversed(self._stretches))])[::-1]
        for at, stretch in enumerate(self._stretches):
            for call in range(max(1, stretch.begin - (at > 0)), stretch.end):
                if not ground.possible(call).any():
                    continue
                inside = stretch.best_after(call) if call >= stretch.begin else float(stretch.least[0, -1])
                found[call] = bare + self._first(call) + inside + later[at + 1]
        return found

    def _first(self, call: int) -> float:
        """What the first repack costs, with the tool from there on, and the pages that are no part of what follows."""
        ground, problem, prices = self._ground, self.problem, self.problem.prices
        now = problem.calls[call - 1]
        price = 0.0 if now.cold else float(ground.again(call, np.array([0]))[0])
        tool = problem.tool * (prices.write + problem.standing[-1] - problem.standing[call + 1])
        gone_by = ground.start <= call
        at_best = np.where(ground.until > call, ground.early, np.inf)
        stays = np.minimum(ground.held(problem.end), at_best)
        never = np.where(ground.start >= ground.until, stays, 0.0)
        pages = np.where(gone_by, ground.held(call), never)
        return price + float(tool) + float(pages.sum())

    @property
    def cost(self) -> float:
        """The bound."""
        return min(self.untouched, float(self.firsts.min(initial=np.inf)))

    def repacks(self, first: int) -> list[PlannedRepack]:
        """The repacks of the cheapest way that begins at a call, with all that cost nothing."""
        found = [PlannedRepack(first, -1)]
        for stretch in self._stretches:
            if stretch.end > first:
                found += stretch.repacks_after(first)
            if first < stretch.end < self.problem.end:
                now = self.problem.calls[stretch.end - 1]
                found.append(PlannedRepack(stretch.end, -1 if now.cold else now.kept))
        return sorted(set(found))
