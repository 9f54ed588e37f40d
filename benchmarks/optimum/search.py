"""Looks for a good schedule of a large branch: good repacks first, then what is best for each page given those."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from benchmarks.optimum.bound import Bound, Ground, Patience
from benchmarks.optimum.foresight import Greedy
from benchmarks.optimum.pages import PlannedRepack, Repacks, best
from benchmarks.optimum.play import future_of, schedule_of
from benchmarks.optimum.problem import (
    ChargedCall,
    Problem,
    Schedule,
    State,
    cost,
    may_go,
    play,
    step,
)
from pager.pricing.prices import ASKING

STARTS = 3
"""Calls that are tried for the first repack: those with the lowest bounds."""

MARGINS = (0.0, 0.05, 0.02, 0.1, 0.2)
"""Shares of the prompt that a repack of a greedy plan must bring; the first ones are tried in large branches, too."""

LARGE = 30_000
"""Calls times pages from which on less is tried, so that a branch takes seconds and not minutes."""


class ScheduleFacts(NamedTuple):
    """What pages depend on each other by: what asking for one more costs at each call, and when each is relied upon."""

    asked: Sequence[float]
    needs: Sequence[Sequence[int]]


class FoundSchedule(NamedTuple):
    """A schedule, what it costs, and the facts under it."""

    cost: float
    repacks: tuple[PlannedRepack, ...]
    schedule: Schedule
    facts: ScheduleFacts


def search(problem: Problem, bound: Bound, tries: int) -> FoundSchedule:
    """The best schedule found: of those near the bound and the greedy ones, improved as long as ``tries`` last."""
    facts = ScheduleFacts(Ground(problem).asked, problem.asked)
    found = FoundSchedule(cost(problem, {}), (), {}, facts)
    if not problem.pages or bound.cost >= found.cost:
        return found
    share = min(1.0, LARGE / (len(problem.calls) * len(problem.pages)))
    margins = MARGINS[: math.ceil(share * len(MARGINS))]
    for other in chain(_greedy(problem, margins), _near_bounds(problem, facts, bound)):
        found = min(found, other, key=_cost)
    return _climbed(problem, found, bound.cost, math.ceil(tries * share))


def _greedy(problem: Problem, margins: Sequence[float]) -> Iterator[FoundSchedule]:
    """What is best for each page with the repacks of greedy plans, and those plans themselves."""
    future = future_of(problem)
    for margin in margins:
        schedule = schedule_of(problem, Greedy(future, margin=margin))
        repacks = _repacks_of(problem, schedule)
        if repacks:
            found = _played(problem, repacks, schedule)
            yield found
            yield _planned(problem, repacks, found.facts)


def _near_bounds(problem: Problem, facts: ScheduleFacts, bound: Bound) -> Iterator[FoundSchedule]:
    """What is best for each page with the repacks by which bounds are reached."""
    even = problem.evenly_priced()
    for guess in (bound, Bound(even, Patience(even))):
        starts = np.argsort(guess.firsts, kind="stable")[:STARTS]
        for first in starts[guess.firsts[starts] < bound.untouched]:
            yield _planned(problem, guess.repacks(int(first)), facts)
    if problem.prices.write <= problem.prices.read:  # a repack costs nothing
        yield _planned(problem, [PlannedRepack(call, -1) for call in range(1, problem.end)], facts)


def _cost(found: FoundSchedule) -> float:
    return found.cost


def _repacks_of(problem: Problem, schedule: Schedule) -> list[PlannedRepack]:
    """The repacks of a schedule, with all that cost nothing once it has begun."""
    found: list[PlannedRepack] = []
    places = [page.before for page in problem.pages]
    for number, charged in enumerate(play(problem, schedule), 1):
        cold = problem.calls[number - 1].cold
        if schedule.get(number):
            everything = cold or not found
            found.append(PlannedRepack(number, -1 if everything else min(places[one] for one in schedule[number])))
        elif found and cold:
            found.append(PlannedRepack(number, -1))
        for one in charged.faults:  # what goes next of it is the copy
            places[one] = problem.calls[number - 1].tokens
    return found


def _climbed(problem: Problem, found: FoundSchedule, least: float, tries: int) -> FoundSchedule:
    """A schedule improved step by step: first with a repack less, then also with one that reaches more or less."""
    tried: set[tuple[PlannedRepack, ...]] = {found.repacks}
    for neighbours in (_with_one_less, _with_one_moved):
        at, same = 0, 0
        while same < len(found.repacks) and len(tried) <= tries and found.cost > least:
            at %= len(found.repacks)
            others = [other for other in neighbours(problem, found, at) if other not in tried]
            tried.update(others)
            other = min([_planned(problem, other, found.facts) for other in others], key=_cost, default=found)
            better = other.cost < found.cost - 1e-9
            found, same, at = (other, 0, at) if better else (found, same + 1, at + 1)
    return found


def _with_one_less(problem: Problem, found: FoundSchedule, at: int) -> list[tuple[PlannedRepack, ...]]:
    """The list of repacks without one, if that has a price."""
    repacks = found.repacks
    return [] if problem.calls[repacks[at].call - 1].cold else [(*repacks[:at], *repacks[at + 1 :])]


def _with_one_moved(problem: Problem, found: FoundSchedule, at: int) -> list[tuple[PlannedRepack, ...]]:
    """Lists of repacks without one, or with another cut of it; but the first changes all of the prompt."""
    less, repack = _with_one_less(problem, found, at), found.repacks[at]
    places = _places_near(problem, found, repack) if less and at else []
    return less + [tuple(sorted([*less[0], PlannedRepack(repack.call, place)])) for place in places]


def _places_near(problem: Problem, found: FoundSchedule, repack: PlannedRepack) -> list[int]:
    """The places of the next pages before and after a cut that are there to go."""
    gone = {one for call, pages in found.schedule.items() if call < repack.call for one in pages}
    free = [
        page.before
        for one, page in enumerate(problem.pages)
        if page.free <= repack.call < page.until and one not in gone
    ]
    lower = sorted({place for place in free if place < repack.cut})
    higher = sorted({place for place in free if place > repack.cut})
    return lower[-2:] + higher[:1]


def _planned(problem: Problem, repacks: Sequence[PlannedRepack], facts: ScheduleFacts) -> FoundSchedule:
    """The best for each page with these repacks, planned twice: what is best for one depends on what else is gone."""
    first = _played(problem, repacks, _wanted(problem, repacks, facts))
    return min(first, _played(problem, repacks, _wanted(problem, repacks, first.facts)), key=_cost)


def _wanted(problem: Problem, repacks: Sequence[PlannedRepack], facts: ScheduleFacts) -> dict[int, list[int]]:
    """The pages that should go at each call."""
    market = Repacks(problem, repacks, facts.asked)
    wanted: dict[int, list[int]] = defaultdict(list)
    for one, needs in enumerate(facts.needs):
        for call in best(problem, problem.pages[one], needs, market).goes:
            wanted[call].append(one)
    return wanted


def _played(problem: Problem, repacks: Sequence[PlannedRepack], wanted: Schedule) -> FoundSchedule:
    """A schedule without what can't be, as a copy that never came since another page did for it."""
    prices, state, total = problem.prices, State(), 0.0
    schedule, asked = {}, [0.0]
    needs: list[list[int]] = [[] for _ in problem.pages]
    for number in range(1, problem.end):
        gone = may_go(problem, number, state, wanted.get(number, ()))
        if gone:
            schedule[number] = gone
        charged = step(problem, number, state, gone)
        state, total = charged.state, total + charged.cost
        asked.append((prices.read * charged.prompt + prices.output * ASKING) / max(1, len(charged.faults)))
        for one in _relied_upon(problem, number, charged):
            needs[one].append(number)
    return FoundSchedule(total, tuple(repacks), schedule, ScheduleFacts(asked, needs))


def _relied_upon(problem: Problem, number: int, charged: ChargedCall) -> set[int]:
    """The pages without which an answer would have had to ask, and those that it did ask for."""
    state = charged.state
    gone = state.gone.difference(copy.page for copy in state.copies if copy.resident)
    relied = set(charged.faults)
    for want in problem.wants.get(number, ()):
        there = [one for one in want.group if one not in gone]
        relied.update(there if len(there) == 1 else ())
    return {one for one in relied if number >= problem.pages[one].free}
