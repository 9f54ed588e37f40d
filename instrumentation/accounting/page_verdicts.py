"""The state of each page of a prompt at a call, and why it stayed or was removed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pager.log.events import RepackCause
from pager.paging.pages.page import Page
from pager.paging.pages.page_table import PageTable
from pager.paging.planner import Plan
from pager.paging.policy import PageView, View, Weighed


@dataclass(frozen=True, slots=True)
class PageVerdict:
    """One page: ``state`` is resident, evicted or pinned, ``why`` the reason, or empty.

    ``went`` is the logged decision, ``goes`` the policy's decision as of now. The numbers are those of ``Weighed``;
    None where the policy gives none, and for pages that had gone before.
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
class PageJudge:
    """All that is known of a call, by which each of its pages is judged.

    ``plan`` is the policy's plan as of now, ``gone`` are the pages that were removed at the call, with the cause,
    ``evicted_at`` the calls at which others had been removed before. ``unplanned`` says why no policy was asked; empty
    where one was. New pages stay for ``grace`` calls.
    """

    table: PageTable
    plan: Plan
    gone: Mapping[str, str]
    evicted_at: Mapping[str, int]
    unplanned: str
    grace: int

    def verdicts(self, seen: View, weighed: Sequence[Weighed] | None) -> list[PageVerdict]:
        """A verdict for every page, in the order of the prompt; ``weighed`` is None if the policy gives no numbers."""
        each: Sequence[Weighed | None] = weighed if weighed is not None else [None] * len(self.table.pages)
        return [self._verdict(*one) for one in zip(self.table.pages, seen.pages, each, strict=True)]

    def _verdict(self, page: Page, seen: PageView, weighed: Weighed | None) -> PageVerdict:
        state, why = self._state(page, seen)
        goes = any(page is planned for planned in self.plan.pages) and not self.unplanned
        words = self._words(seen, weighed, why, goes=goes)
        found = PageVerdict(seen, self.table.about(page), state, why, page.name in self.gone, goes, words)
        if weighed is None or not seen.resident:  # pages that had gone before were not weighed
            return found
        return replace(found, chance=weighed.chance, saving=weighed.saving, fault=weighed.fault, worth=weighed.worth)

    def _state(self, page: Page, seen: PageView) -> tuple[str, str]:
        if not seen.resident:
            at = self.evicted_at.get(page.name)
            return "evicted", "" if at is None else f"at call {at}"
        return ("pinned", _pinned_by(page, self.table.call, self.grace)) if seen.pinned else ("resident", "")

    def _words(self, seen: PageView, weighed: Weighed | None, why: str, *, goes: bool) -> str:
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


def _pinned_by(page: Page, call: int, grace: int) -> str:
    """The rule by which a page must stay."""
    if call - page.born < grace:
        return "new"
    if page.failing(call):
        return "a tool that failed"
    if page.held(call):
        return "asked for lately"
    return "thinking stands behind it"
