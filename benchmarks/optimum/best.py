"""The offline optimum: what a branch costs if the best pages go at the best calls, and what it costs at least.

Three figures, each by itself: ``bound`` is below what any schedule costs, and so below what any policy can reach;
``reached`` is what the best schedule costs that was found, and so can be reached; and ``ideal`` is what the branch
would cost if nothing but the pages themselves had a price. Where the first two meet, that is the optimum. They are made
to meet in small branches, by following all ways; in large ones mostly if no page is needed again once it may go.
"""

from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.optimum.bound import Bound
from benchmarks.optimum.exact import exact
from benchmarks.optimum.problem import Problem, Schedule, cost
from benchmarks.optimum.recorded import problems, unpaged
from benchmarks.optimum.search import search
from instrumentation.replay.prepared_recording import Prepared
from pager.pricing.rates import Models

__all__ = ["Optimum", "Total", "of_recording", "optimum", "unbounded", "unpaged"]

STEPS = 4_000
"""Steps at one call up to which all ways are followed."""

TRIES = 150
"""Steps in which the schedule of a large branch is improved at the most."""

SAME = 1e-6
"""Differences below this share are of floating point, not of schedules."""


class Total(NamedTuple):
    """What branches cost together: untouched, at least, under the best schedules found, and in the ideal.

    ``exact`` says of how many of ``branches`` the optimum is known.
    """

    untouched: float = 0.0
    bound: float = 0.0
    reached: float = 0.0
    ideal: float = 0.0
    exact: int = 0
    branches: int = 0


@dataclass(frozen=True, slots=True)
class Optimum:
    """What a branch costs untouched, at least, under the best schedule found, and in the ideal."""

    untouched: float
    bound: float
    reached: float
    ideal: float
    schedule: Schedule

    @property
    def is_exact(self) -> bool:
        """Whether nothing can be cheaper than the schedule."""
        return self.reached <= self.bound + SAME * self.untouched


def optimum(problem: Problem, *, steps: int = STEPS, tries: int = TRIES) -> Optimum:
    """The optimum of a branch, or what it lies between.

    All ways are followed as long as they take no more than ``steps`` at any call; in larger branches schedules are
    improved in at most ``tries`` steps.
    """
    even, untouched = problem.evenly_priced(), cost(problem, {})
    bound = Bound(even)
    best = search(problem, bound, tries)
    reached, schedule = best.cost, best.schedule
    least = min(bound.cost, reached)  # they may differ by the last bits
    if reached > least + SAME * untouched:
        proven = exact(problem, reached, steps)
        if proven:
            least = reached = proven[0]
            schedule = proven[1]
    return Optimum(untouched, least, reached, unbounded(even), schedule)


def unbounded(problem: Problem) -> float:
    """What a branch would cost if every page that may go stood only in the calls that need it, and nothing else cost.

    No repack, no fault, no stub and no tool has a price. No policy comes near; it says how much pages cost at all.
    """
    saved = 0.0
    for one, page in enumerate(problem.pages):
        calls = range(page.free, page.until)
        saved += page.tokens * float(problem.per_token[calls.start : calls.stop].sum())
        if calls and page.free == page.first:
            saved += page.tokens * (problem.prices.write - float(problem.per_token[page.first]))
        saved -= page.tokens * problem.prices.read * len(problem.musts[one])
    return cost(problem, {}) - saved


def of_recording(prepared: Prepared, models: Models, *, steps: int = STEPS, tries: int = TRIES) -> Total:
    """The optimum of all branches of a session together, in what the session is charged by."""
    found = [optimum(problem, steps=steps, tries=tries) for problem in problems(prepared, models)]
    return Total(
        untouched=sum(one.untouched for one in found),
        bound=sum(one.bound for one in found),
        reached=sum(one.reached for one in found),
        ideal=sum(one.ideal for one in found),
        exact=sum(one.is_exact for one in found),
        branches=len(found),
    )
