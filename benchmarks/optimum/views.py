"""Makes a problem out of what a policy saw of a branch when nothing went."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from benchmarks.optimum.problem import (
    Problem,
    ProblemCall,
    ProblemNeed,
    ProblemPage,
    plain_needs,
)
from instrumentation.replay.recording import Future
from pager.paging.pages.duplicates import handle_in
from pager.paging.policy import Decision, PageView, View
from pager.pricing.prices import Prices


class Recorder:
    """A policy that evicts nothing and keeps what it was shown."""

    def __init__(self) -> None:
        self.views: list[View] = []

    def see(self, view: View) -> None:
        """Keep what is shown, as it is now."""
        self.views.append(replace(view, pages=list(view.pages), facts=list(view.facts)))  # both may change later

    def choose(self, view: View) -> Decision:
        """Nothing goes."""
        self.see(view)
        return Decision(reason="only watching")


class Moment(NamedTuple):
    """A call as a policy saw it when nothing had gone, and as it was charged; its needs have the call's number."""

    view: View
    call: ProblemCall
    needs: Sequence[ProblemNeed] = ()


def problem_of(views: Sequence[View], future: Future, outputs: Sequence[int] = ()) -> Problem:
    """The problem of a branch: what a ``Recorder`` saw of its calls, one view each, and what was to come."""
    outputs = [*outputs, *[0] * len(views)]
    calls = [
        ProblemCall(view.tokens, 0, cold, output)
        for view, cold, output in zip(views, future.cold, outputs, strict=False)
    ]
    for at in range(1, len(views)):
        calls[at] = calls[at]._replace(kept=_kept(views[at - 1], views[at]))
    moments = [Moment(view, call) for view, call in zip(views, calls, strict=False)]
    return replace(problem_from(moments), needs=plain_needs(future.needs))


class PageSize(NamedTuple):
    """The tokens that are charged for a page, and for its stub."""

    tokens: int
    stub: int


def problem_from(moments: Sequence[Moment], sizes: Mapping[str, PageSize] | None = None) -> Problem:
    """The problem of calls in a row; a page is charged as told by its content, or else as its view says."""
    calls = [moment.call for moment in moments]
    needs = [need for moment in moments for need in moment.needs]
    prices = moments[0].view.prices if moments else Prices()
    return Problem(calls, _pages(moments, sizes or {}), needs, prices)


def _kept(old: View, new: View) -> int:
    """The tokens that a call repeats of the one before: all, or what stands before the first page that differs."""
    same = _same(old, new)
    views = [new] if same == len(old.pages) else [old, new]
    return min([old.tokens, new.tokens, *(view.pages[same].before for view in views if same < len(view.pages))])


def _same(old: View, new: View) -> int:
    """How many pages, from the first, a call has in common with the one before."""
    rewritten = "client_rewrote_history" in new.facts
    same = 0
    for left, right in zip(old.pages, new.pages, strict=False):
        if left.handle != right.handle or (rewritten and left.before != right.before):
            break
        same += 1
    return same


def _pages(moments: Sequence[Moment], sizes: Mapping[str, PageSize]) -> list[ProblemPage]:
    """Every page that there ever was, in the order in which they came."""
    made: list[ProblemPage] = []
    here: list[_SeenPage] = []
    before = View(0, Prices(), warm=False, window=0, reserve=0, tokens=0)
    for number, (view, call, _) in enumerate(moments, 1):
        kept = [one for one in here[: _same(before, view)] if one.before < call.kept]
        made += [one.page(number, sizes) for one in here[len(kept) :]]
        new = view.pages[len(kept) :]
        here = kept + [_SeenPage(page, number, max(page.before, call.kept)) for page in new]
        for one, page in zip(here, view.pages, strict=True):
            one.free = one.free or (number if page.evictable else 0)
        before = view
    made += [one.page(len(moments) + 1, sizes) for one in here]
    return sorted(made, key=lambda page: (page.first, page.before))


@dataclass(slots=True)
class _SeenPage:
    """A page that stands in the prompt since call ``first``."""

    view: PageView
    first: int
    before: int
    free: int = 0

    def page(self, until: int, sizes: Mapping[str, PageSize]) -> ProblemPage:
        """The page when it has left."""
        content, seen = handle_in(self.view.handle), self.view
        size = sizes.get(content) or PageSize(seen.tokens, seen.stub_tokens)
        free = self.free if size.tokens > size.stub else 0
        return ProblemPage(content, *size, self.before, self.first, free or until, until)
