"""The state of each page of a prompt at a call, and why it stayed or was removed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pager.log.events import RepackCause
from pager.paging.page import Page
from pager.paging.page_table import PageTable
from pager.paging.planner import Plan
from pager.paging.policy import PageView, View, Weighed


@dataclass(frozen=True, slots=True)
class PageVerdict:
    """One page: ``state`` is resident, evicted or pinned, ``why`` says more of it.

    ``went`` is what was logged, ``goes`` what the policy says now. The numbers are those of ``Weighed``; None where the
    policy gives none, and for pages that had gone before.
    """

    page: PageView
    about: str
    state: str
    why: str
    went: bool
    goes: bool
    verdict: str
    chance: float | None = None
    saving: float | None = None
    fault: float | None = None
    worth: float | None = None


@dataclass(frozen=True, slots=True)
class _Judge:
    """All that is known of one call, by which each page is judged."""

    table: PageTable
    plan: Plan
    gone: Mapping[str, str]
    evicted_at: Mapping[str, int]
    unplanned: str
    grace: int

    def row(self, page: Page, seen: PageView, weighed: Weighed | None) -> PageVerdict:
        state, why = self._state(page, seen)
        goes = any(page is one for one in self.plan.pages) and not self.unplanned
        verdict = self._verdict(seen, weighed, why, goes=goes)
        told = weighed if seen.resident else None  # what is gone was not weighed
        numbers = (None,) * 4 if told is None else (told.chance, told.saving, told.fault, told.worth)
        return PageVerdict(seen, self.table.about(page), state, why, page.name in self.gone, goes, verdict, *numbers)

    def _state(self, page: Page, seen: PageView) -> tuple[str, str]:
        if not seen.resident:
            at = self.evicted_at.get(page.name)
            return "evicted", "" if at is None else f"at call {at}"
        return ("pinned", _pinned_by(page, self.table.call, self.grace)) if seen.pinned else ("resident", "")

    def _verdict(self, seen: PageView, weighed: Weighed | None, why: str, *, goes: bool) -> str:
        cause = self.gone.get(seen.handle)
        if cause is not None:
            changed = cause == RepackCause.POLICY and not goes and not self.unplanned
            return f"went ({cause})" + ("; would stay now" if changed else "")
        if not seen.resident:
            return "gone before"
        if seen.pinned:
            return f"stayed: {why}"
        if self.unplanned:
            return "stayed: not planned"
        return "stayed; would go now" if goes else f"stayed: {self._not_chosen(seen, weighed)}"

    def _not_chosen(self, seen: PageView, weighed: Weighed | None) -> str:
        """Why the policy let a page stay that it might have evicted."""
        if weighed is None:
            return "not chosen"
        if weighed.worth <= 0:
            return "costs more than it saves"
        if self.plan.pages and seen.position < self.plan.pages[0].row:
            return "before the cut"
        return "no repack, see above"


def rows(
    table: PageTable,
    seen: View,
    weighed: Sequence[Weighed] | None,
    plan: Plan,
    gone: Mapping[str, str],
    evicted_at: Mapping[str, int],
    unplanned: str,
    grace: int,
) -> list[PageVerdict]:
    """Every page in the order of the prompt.

    ``plan`` is what the policy wants now, ``gone`` are the pages that went, with the cause, ``evicted_at`` the calls at
    which others had gone before; ``unplanned`` says why nobody was asked. New pages stay for ``grace`` calls.
    """
    judge = _Judge(table, plan, gone, evicted_at, unplanned, grace)
    told: Sequence[Weighed | None] = weighed if weighed is not None else [None] * len(table.pages)
    return [judge.row(page, one, its) for page, one, its in zip(table.pages, seen.pages, told, strict=True)]


def _pinned_by(page: Page, call: int, grace: int) -> str:
    """The rule by which a page must stay."""
    if call - page.born < grace:
        return "new"
    if page.failing(call):
        return "a tool that failed"
    if page.held(call):
        return "asked for lately"
    return "thinking stands behind it"
