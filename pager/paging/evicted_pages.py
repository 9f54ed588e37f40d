"""Remembers the evicted pages of a branch by their handles, so that what comes back has the history of its content."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pager.paging.page import Page
from pager.paging.page_in_answers import Brought


@dataclass(slots=True)
class Past:
    """For each handle the page that was evicted last; it may stand in the prompt still, as a stub.

    ``back`` are the names of what was brought back of each, whole or in part.
    """

    pages: dict[str, Page] = field(default_factory=dict)
    back: dict[str, list[str]] = field(default_factory=dict)

    def keep(self, page: Page) -> None:
        """A page is evicted."""
        self.pages[page.handle] = page

    def fault(self, handles: Iterable[str], known: Mapping[str, Page], call: int) -> None:
        """Count a fault for pages that left the prompt with the client's history; ``known`` are those in it."""
        for page in map(self.pages.get, sorted(handles)):
            if page is not None and known.get(page.name) is not page:
                page.fault(call)

    def hand_on(self, page: Page, came: Brought | None) -> None:
        """Give a new page the history of its content, and say what it was brought from, if it was."""
        if came is not None:
            origins = [self.pages[handle] for handle in came.handles if handle in self.pages]
            page.origins, page.whole = came.handles, came.content is not None
            page.makers = tuple(dict.fromkeys(call_id for one in origins for call_id in one.makers or (one.call_id,)))
            page.tool = origins[0].tool if origins else page.tool
            for handle in came.handles:
                names = self.back.setdefault(handle, [])
                names += [] if page.name in names else [page.name]
        if page.handle in self.pages:
            page.inherit(self.pages[page.handle])

    def copy(self, known: Mapping[str, Page], copies: Mapping[str, Page]) -> "Past":
        """The same for a branch that forks off, which has ``copies`` of the pages that are ``known`` here."""
        return Past(
            {
                handle: copies[page.name] if known.get(page.name) is page else replace(page)
                for handle, page in self.pages.items()
            },
            {handle: list(names) for handle, names in self.back.items()},
        )
