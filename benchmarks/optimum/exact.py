"""The optimum of a small branch: every way that could be best is followed, call by call.

Two branches in the same state have the same future, so that of all ways to a state only the cheapest is followed on. A
page that is not needed again goes with every repack that reaches it, as that makes all that follows cheaper; only for
pages that are, both ways are tried. What costs more than a known schedule, even if all that may go were gone from there
on, is given up.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations, islice
from math import inf

from benchmarks.optimum.bound import Ground
from benchmarks.optimum.problem import (
    Problem,
    Schedule,
    State,
    may_go,
    step,
)

_Past = tuple["_Past", int, frozenset[int]] | None
_Way = tuple[float, _Past]
_Ways = dict[State, _Way]


def exact(problem: Problem, known: float, limit: int) -> tuple[float, Schedule] | None:
    """The cheapest schedule, if no call has more than ``limit`` steps to follow; ``known`` is a cost one can have."""
    rest = _rest(problem)
    ways: _Ways = {State(): (0.0, None)}
    for number in range(1, problem.end):
        steps = [(state, evict) for state in ways for evict in islice(_choices(problem, number, state), limit + 1)]
        if len(steps) > limit:
            return None
        ways = _onwards(problem, number, ways, steps, known - rest[number + 1])
    cost, past = min(ways.values(), key=lambda way: way[0])
    return cost, _schedule(past)


def _onwards(
    problem: Problem, number: int, ways: _Ways, steps: Iterable[tuple[State, frozenset[int]]], most: float
) -> _Ways:
    """The ways that lead past a call and cost at most so much until then."""
    found: _Ways = {}
    for state, evict in steps:
        before, past = ways[state]
        charged = step(problem, number, state, evict)
        cost = before + charged.cost
        if cost <= most + 1e-6 and cost < found.get(charged.state, (inf, None))[0]:
            found[charged.state] = (cost, (past, number, evict) if evict else past)
    return found


def _choices(problem: Problem, number: int, state: State) -> Iterator[frozenset[int]]:
    """Every set of pages that could be the best to go at a call."""
    places = {one: _place(problem, state, one) for one in may_go(problem, number, state)}
    needed = [one for one in places if problem.last_use[one] >= number]
    useless = {one: place for one, place in places.items() if one not in needed}
    all_alike = problem.calls[number - 1].cold or not state.tool
    cuts = [-1.0] if all_alike else sorted({*useless.values(), inf})
    yield frozenset()
    for some in chain.from_iterable(combinations(needed, count) for count in range(len(needed) + 1)):
        first = min((places[one] for one in some), default=inf)
        reached = {min(cut, first) for cut in cuts}
        for cut in reached:
            chosen = frozenset(some) | {one for one, place in useless.items() if place >= cut}
            if chosen:
                yield chosen


def _place(problem: Problem, state: State, one: int) -> float:
    """Where a page stands: itself, or the copy of it, which stands before what came after it."""
    if one not in state.gone:
        return problem.pages[one].before
    return next(copy.anchor for copy in state.copies if copy.page == one and copy.resident) - 0.5


def _rest(problem: Problem) -> list[float]:
    """What the calls from each on cost at least, by the first one's number: all that may be gone is."""
    ground, prices = Ground(problem), problem.prices
    rest = [0.0] * (problem.end + 1)
    for number in range(problem.end - 1, 0, -1):
        call = problem.calls[number - 1]
        gone = sum(page.gain for page in problem.pages if page.free == page.first == number)
        new = 0 if call.cold else call.tokens - call.kept - gone
        least = ground.least_prompt(number) * float(problem.per_token[number])
        rest[number] = rest[number + 1] + least + (prices.write - prices.read) * new + prices.output * call.output
    return rest


def _schedule(past: _Past) -> Schedule:
    found = {}
    while past is not None:
        past, number, evict = past
        found[number] = evict
    return found
