"""Plays a policy on a problem: makes the views that it would see, and the schedule out of what it says."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.optimum.problem import (
    Problem,
    Schedule,
    State,
    may_go,
    step,
    without_what_left,
)
from instrumentation.replay.recording import Future
from pager.paging.policy import PageView, Policy, View

WINDOW = 10**9


class _PromptPart(NamedTuple):
    """Something of a page that stands in the prompt: itself or a copy, whole or as a stub."""

    place: float
    page: int
    resident: bool
    copied: bool


def future_of(problem: Problem) -> Future:
    """What a policy that knows the future is told of a problem."""
    needs: dict[str, list[int]] = defaultdict(list)
    for call, wants in sorted(problem.wants.items()):
        for content in {problem.pages[want.page].content for want in wants}:
            needs[content].append(call)
    return Future([call.cold for call in problem.calls], needs)


def schedule_of(problem: Problem, policy: Policy) -> Schedule:
    """The schedule that a policy makes of a problem; raises ValueError if it breaks a rule."""
    state, schedule = State(), {}
    for number in range(1, problem.end):
        state = without_what_left(problem, number, state)
        standing = _standing(problem, number, state)
        names = _names(problem, standing)
        decision = policy.choose(_view(problem, number, state, standing))
        chosen = [standing[names.index(name)] for name in decision.evict]
        if any(not one.resident for one in chosen):
            raise ValueError(f"of {decision.evict} something is gone already at call {number}")
        if chosen:
            schedule[number] = [one.page for one in chosen]
        state = step(problem, number, state, schedule.get(number, ())).state
    return schedule


def _standing(problem: Problem, number: int, state: State) -> list[_PromptPart]:
    """All that stands in the prompt of pages, in its order."""
    own = [
        _PromptPart(page.before, one, one not in state.gone, copied=False)
        for one, page in enumerate(problem.pages)
        if page.first <= number < page.until
    ]
    copies = [_PromptPart(copy.anchor - 0.5, copy.page, copy.resident, copied=True) for copy in state.copies]
    return sorted(own + copies)


def _names(problem: Problem, standing: Sequence[_PromptPart]) -> list[str]:
    """The name of each in the branch: its content, with a number where that stands there again."""
    seen: Counter[str] = Counter()
    names = []
    for one in standing:
        content = problem.pages[one.page].content
        seen[content] += 1
        names.append(content if seen[content] == 1 else f"{content}@{seen[content]}")
    return names


def _view(problem: Problem, number: int, state: State, standing: Sequence[_PromptPart]) -> View:
    """The branch as a policy sees it."""
    call = problem.calls[number - 1]
    free = set(may_go(problem, number, state))
    shift, pages = problem.tool if state.tool else 0, []
    total = call.tokens + shift + sum(_grows(problem, one) for one in standing)
    for position, (one, name) in enumerate(zip(standing, _names(problem, standing), strict=True)):
        page, before = problem.pages[one.page], round(one.place) + shift
        shift += _grows(problem, one)
        after = total - before - (page.tokens if one.resident else page.stub)
        shown = (page.tokens * 4, page.tokens, page.stub, position, before, after, number - page.first, 0, 0, 0)
        warm = not call.cold and page.first < number
        pinned = one.page not in free
        pages.append(
            PageView(name, "result", *shown, superseded=False, pinned=pinned, cached=warm, resident=one.resident)
        )
    return View(number, problem.prices, not call.cold, WINDOW, 0, total, pages, tool_added=state.tool)


def _grows(problem: Problem, one: _PromptPart) -> int:
    """The tokens by which it makes the prompt longer than the client's."""
    page = problem.pages[one.page]
    if one.copied:
        return page.tokens if one.resident else page.stub
    return 0 if one.resident else -page.gain
