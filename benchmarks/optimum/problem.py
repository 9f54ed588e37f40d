"""A recorded branch as an optimisation problem in numbers: the question which page should go at which call.

The prompt is a line of tokens. A call repeats the first ``kept`` tokens of the call before it and adds new ones. Pages
stand on that line at fixed places, ``before`` tokens from its beginning; a page that goes leaves its stub there. What a
provider still holds is read at the price of reading, all else is written; a page that goes changes the prompt, so all
behind the first page that goes is written again, and all of it when the tool that brings pages back is added, which is
when the first page goes. Where the cache is cold everything is written in any case.

A page that is needed when it is gone is asked for: the prompt is read once more, and a copy is written at its end,
where it stays (and can go, too). ``step`` says what one call costs and is the only place that knows prices; ``cost``
adds up the calls of a schedule. Everything that looks for good schedules is judged by it.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pager.paging.pages.page import PIN_HALF_LIFE
from pager.pricing.prices import ASKING, TOOL, Prices

COPY_STAYS = PIN_HALF_LIFE + 1
"""Calls for which a page that was asked for stays, after the first that has it."""

Schedule = Mapping[int, Collection[int]]
"""The pages that go at each call, by their place in ``Problem.pages``: the page itself, or else the copy of it."""


class ProblemCall(NamedTuple):
    """One call as the client sent it: its prompt, how much of it repeats the call before, and its answer's tokens."""

    tokens: int
    kept: int
    cold: bool
    output: int = 0


class ProblemPage(NamedTuple):
    """One page: it is in the prompt from call ``first`` until before call ``until``, and may go from ``free`` on.

    A page that never may go, or whose stub would be no smaller, is free only at ``until``.
    """

    content: str
    tokens: int
    stub: int
    before: int
    first: int
    free: int
    until: int

    @property
    def gain(self) -> int:
        """The tokens that its stub saves."""
        return self.tokens - self.stub


class ProblemNeed(NamedTuple):
    """A call whose answer repeats what only these contents show; if none of them is there, ``asked`` is asked for."""

    call: int
    asked: str
    shown: frozenset[str]


class Want(NamedTuple):
    """What an answer needs, in pages: one of a group, and which of them is asked for."""

    page: int
    group: tuple[int, ...]


class Copy(NamedTuple):
    """What came back of a page: it stands behind ``anchor`` tokens of the line, resident or as a stub of its own."""

    page: int
    anchor: int
    free: int
    until: int
    resident: bool = True


class State(NamedTuple):
    """What became of a branch's prompt so far; ``gained`` are the tokens that the stubs of its own pages save."""

    gone: frozenset[int] = frozenset()
    copies: tuple[Copy, ...] = ()
    tool: bool = False
    gained: int = 0


class ChargedCall(NamedTuple):
    """What a call cost, the tokens of its prompt, those of them that were read, and the pages that were asked for."""

    cost: float
    prompt: int
    cached: int
    faults: tuple[int, ...]
    state: State


@dataclass(frozen=True)
class Problem:
    """A branch in numbers; calls count from 1.

    A page that stands in two calls in a row stands within what the later one keeps; what comes with a call stands
    behind it. ``tool`` are the tokens of the tool that brings pages back, ``stays`` the calls for which a
    copy stays after the first that has it.
    """

    calls: Sequence[ProblemCall]
    pages: Sequence[ProblemPage]
    needs: Sequence[ProblemNeed] = ()
    prices: Prices = field(default_factory=Prices)
    tool: int = TOOL
    stays: int = COPY_STAYS

    @property
    def end(self) -> int:
        """The call after the last."""
        return len(self.calls) + 1

    def evenly_priced(self) -> "Problem":
        """The same where no prompt is so long that its tokens cost more: nothing costs more than here."""
        prices = self.prices
        return replace(self, prices=replace(prices, step_tokens=0)) if prices.step_tokens else self

    @cached_property
    def per_token(self) -> NDArray[np.float64]:
        """What a token that the prompt has anyway costs in each call, by the call's number."""
        cold = [call.cold for call in self.calls]
        return np.concatenate(([0.0], np.where(cold, self.prices.write, self.prices.read)))

    @cached_property
    def standing(self) -> NDArray[np.float64]:
        """What a token costs that stands in all calls before the one with this number."""
        return np.concatenate(([0.0], np.cumsum(self.per_token)))

    @cached_property
    def wants(self) -> dict[int, list[Want]]:
        """What each call's answer needs, as far as pages of its prompt have it."""
        holders: dict[str, list[int]] = defaultdict(list)
        for number, page in enumerate(self.pages):
            holders[page.content].append(number)
        found: dict[int, dict[Want, None]] = defaultdict(dict)
        for need in self.needs:
            group = sorted(one for content in need.shown for one in holders.get(content, ()))
            here = [one for one in group if self.pages[one].first <= need.call < self.pages[one].until]
            if here:
                asked = next((one for one in reversed(here) if self.pages[one].content == need.asked), here[-1])
                found[need.call][Want(asked, tuple(here))] = None
        return {call: list(wants) for call, wants in found.items()}

    @cached_property
    def musts(self) -> list[list[int]]:
        """The calls at which each page is asked for if it is gone, as no other will do, from where it may go on."""
        return self._calls_with(lambda want: want.group if len(want.group) == 1 else ())

    @cached_property
    def asked(self) -> list[list[int]]:
        """The calls at which each page is asked for if it is gone with all others that would do."""
        return self._calls_with(lambda want: (want.page,))

    @cached_property
    def last_use(self) -> list[int]:
        """The last call for which each page can be of use; 0 if there is none."""
        used = self._calls_with(lambda want: want.group)
        return [calls[-1] if calls else 0 for calls in used]

    def _calls_with(self, pages_of: Callable[[Want], Sequence[int]]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.pages]
        for call, wants in sorted(self.wants.items()):
            for one in {one for want in wants for one in pages_of(want)}:
                if call >= self.pages[one].free:
                    found[one].append(call)
        return found

    @cached_property
    def places(self) -> list[int]:
        """Where each page stands."""
        return [page.before for page in self.pages]

    @cached_property
    def gains(self) -> list[int]:
        """The tokens that each page's stub saves."""
        return [page.gain for page in self.pages]

    @cached_property
    def leaving(self) -> dict[int, list[int]]:
        """The pages that the client itself takes out of the prompt, by the call that lacks them."""
        found: dict[int, list[int]] = defaultdict(list)
        for number, page in enumerate(self.pages):
            if page.until < self.end:
                found[page.until].append(number)
        return dict(found)

    @cached_property
    def copies_until(self) -> list[int]:
        """Up to which call a copy stays that was written at the end of a call's prompt, by the call's number."""
        calls = self.calls
        dips = [at + 1 for at in range(1, len(calls)) if calls[at].kept < calls[at - 1].tokens]
        until = [self.end]
        for number, call in enumerate(calls, 1):
            later = dips[bisect_right(dips, number) :]
            until.append(next((dip for dip in later if calls[dip - 1].kept < call.tokens), self.end))
        return until


def step(problem: Problem, number: int, state: State, evict: Collection[int] = ()) -> ChargedCall:
    """What a call costs when these pages go at it; raises ValueError if one of them can't."""
    call, prices = problem.calls[number - 1], problem.prices
    state = without_what_left(problem, number, state)
    cut, after = _evicted(problem, number, state, evict) if evict else (None, state)
    prompt = call.tokens - after.gained + sum(_copied(problem, copy) for copy in after.copies)
    prompt += problem.tool if after.tool else 0
    cached = _cached(problem, call, after, cut) if after.tool == state.tool else 0
    faults = _missing(problem, number, after)
    dearer, dearer_answer = prices.factors(prompt)
    cost = dearer * (prices.read * cached + prices.write * (prompt - cached))
    cost += dearer_answer * prices.output * call.output
    if faults:
        brought = sum(problem.pages[page].tokens for page in faults)
        cost += dearer * (prices.read * prompt + prices.write * brought) + dearer_answer * prices.output * ASKING
        until = problem.copies_until[number]
        made = [Copy(page, call.tokens, number + 1 + problem.stays, until) for page in faults]
        after = after._replace(copies=(*after.copies, *made))
    return ChargedCall(cost, prompt, cached, faults, after)


def play(problem: Problem, schedule: Schedule) -> Iterator[ChargedCall]:
    """The calls of a branch under a schedule."""
    state = State()
    for number in range(1, problem.end):
        charged = step(problem, number, state, schedule.get(number, ()))
        state = charged.state
        yield charged


def cost(problem: Problem, schedule: Schedule) -> float:
    """What a branch costs under a schedule, in units of one uncached input token."""
    return sum(charged.cost for charged in play(problem, schedule))


def may_go(problem: Problem, number: int, state: State, some: Iterable[int] | None = None) -> list[int]:
    """The pages, of some or of all, that may go at a call, before which the branch was in this state."""
    state = without_what_left(problem, number, state)
    back = {copy.page for copy in state.copies if copy.resident and number >= copy.free}
    pages = problem.pages
    return [
        one
        for one in (range(len(pages)) if some is None else some)
        if (one in back if one in state.gone else pages[one].free <= number < pages[one].until)
    ]


def without_what_left(problem: Problem, number: int, state: State) -> State:
    """The state without what the client has dropped from its prompt."""
    left = state.gone.intersection(problem.leaving.get(number, ()))
    if left:
        gained = state.gained - sum(problem.pages[one].gain for one in left)
        state = state._replace(gone=state.gone - left, gained=gained)
    if any(copy.until <= number for copy in state.copies):
        state = state._replace(copies=tuple(copy for copy in state.copies if copy.until > number))
    return state


class _ProblemCut(NamedTuple):
    """From where on the prompt changes: at a page of the line, or at a copy, before others at the same place."""

    place: int
    page: bool


def _evicted(problem: Problem, number: int, state: State, evict: Collection[int]) -> tuple[_ProblemCut, State]:
    """Where the prompt changes when these pages go, and the state thereafter."""
    chosen = set(evict)
    allowed = may_go(problem, number, state, chosen)
    if len(allowed) < len(evict):
        raise ValueError(f"of pages {sorted(evict)} only {sorted(allowed)} may go at call {number}, once each")
    own = chosen - state.gone
    again = chosen & state.gone
    copies = tuple(copy._replace(resident=False) if copy.page in again else copy for copy in state.copies)
    cuts = [_ProblemCut(problem.pages[one].before, page=True) for one in own]
    cuts += [_ProblemCut(copy.anchor, page=False) for copy in state.copies if copy.page in again and copy.resident]
    gained = state.gained + sum(problem.pages[one].gain for one in own)
    return min(cuts), State(state.gone | own, copies, tool=True, gained=gained)


def _cached(problem: Problem, call: ProblemCall, state: State, cut: _ProblemCut | None) -> int:
    """The tokens that the provider still holds of a prompt: what it repeats of the one before, up to the cut."""
    if call.cold:
        return 0
    last = _ProblemCut(call.kept, page=True)
    first = min(cut, last) if cut else last
    held = first.place + (problem.tool if state.tool else 0)
    if cut is None:  # what went before stands in what was sent before
        held -= state.gained
    else:
        places, gains = problem.places, problem.gains
        held -= sum([gains[one] for one in state.gone if places[one] < first.place])
    return held + sum(_copied(problem, copy) for copy in state.copies if _ProblemCut(copy.anchor, page=False) < first)


def _copied(problem: Problem, copy: Copy) -> int:
    page = problem.pages[copy.page]
    return page.tokens if copy.resident else page.stub


def _missing(problem: Problem, number: int, state: State) -> tuple[int, ...]:
    """The pages that are asked for, as nothing in the prompt has what the answer needs."""
    wants = problem.wants.get(number)
    if not wants or not state.gone:
        return ()
    gone = state.gone.difference(copy.page for copy in state.copies if copy.resident)
    return tuple(sorted({want.page for want in wants if gone.issuperset(want.group)}))


def plain_needs(needs: Mapping[str, Iterable[int]]) -> list[ProblemNeed]:
    """Needs that only one content can satisfy, by content."""
    return sorted(ProblemNeed(call, name, frozenset([name])) for name, calls in needs.items() for call in set(calls))
