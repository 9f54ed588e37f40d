"""A session as its client sent it: what each prompt was made of, found by the place of its call in the log."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from instrumentation.accounting.cache_misses import CachedRequest, cached_request
from instrumentation.accounting.ledger.sent_parts import ClientPages, Whole
from instrumentation.accounting.logged_prompts import client_calls
from instrumentation.accounting.story import PageStory, StoryParts
from instrumentation.accounting.waste.anatomy import (
    Anatomy,
    CallAnatomy,
    anatomy,
    head_of,
)
from instrumentation.replay.prepared_recording import Prepared, PreparedCall
from instrumentation.replay.recording import Recording
from pager.log.store import Stored
from pager.request_values import CallAddress, Usage
from pager.wire.dialect import Dialect


@dataclass(slots=True)
class Client:
    """The calls of a session in one wire format; ``steps`` are their numbers in the recording.

    ``pages`` have a letter for each answered call of the whole session.
    """

    prepared: Prepared
    anatomy: Anatomy
    steps: dict[CallAddress, int]
    pages: Sequence[PageStory]
    _branches: dict[int, ClientPages] = field(default_factory=dict)
    _called: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Sort the pages by their branches."""
        grouped: dict[int, list[PageStory]] = {}
        for page in self.pages:
            grouped.setdefault(page.branch, []).append(page)
        self._branches = {branch: ClientPages(pages) for branch, pages in grouped.items()}
        self._called = frozenset(name for step in self.prepared.recording.steps for name in step.called)

    @property
    def dialect(self) -> Dialect:
        """Its wire format."""
        return self.prepared.dialect

    def call(self, where: CallAddress) -> PreparedCall:
        """A call, with its prompt."""
        return self.prepared.calls[self.steps[where]]

    def parts(self, where: CallAddress) -> StoryParts:
        """What a call's prompt was made of."""
        return self._taken(where).client

    def working(self, where: CallAddress) -> int:
        """The tokens of the working set at a call."""
        return self._taken(where).working

    def new(self, where: CallAddress) -> int:
        """The tokens of a call's prompt that the session had not sent before."""
        taken = self._taken(where)
        return round(taken.client.total * taken.fresh / taken.sent) if taken.sent else 0

    def whole(self, where: CallAddress) -> Whole:
        """The tools of a call, as the client sent them."""
        step = self.call(where).step
        head, offers = head_of(step, self._called), step.offers.tools if step.offers else ()
        idle = frozenset(one.tool.name for one in offers if one.tool.name not in self._called and not one.fixed)
        return Whole({one.tool.name: one.size for one in offers}, idle, head.schemas, head.unused)

    def cached_request(self, where: CallAddress, usage: Usage) -> CachedRequest:
        """A call as its provider's cache sees it, where the client's own prompt was counted as ``usage``."""
        return cached_request(self.prepared, self.call(where), usage)

    def pages_of(self, branch: int) -> ClientPages:
        """The pages of a branch."""
        return self._branches.setdefault(branch, ClientPages(()))

    def stories(self) -> Iterator[PageStory]:
        """All pages, branch by branch, with their states after paging."""
        for pages in self._branches.values():
            yield from pages.stories()

    def _taken(self, where: CallAddress) -> CallAnatomy:
        return self.anatomy.calls[self.steps[where]]


def clients(
    log: Iterable[Stored],
    recordings: Iterable[Recording],
    answered: Sequence[CallAddress],
    load_dialect: Callable[[str], Dialect],
    *,
    with_content: bool,
) -> list[Client]:
    """A session's recordings, one for each wire format in it, taken apart; the text of pages only if it is wanted."""
    places: dict[str, dict[CallAddress, int]] = {}
    for one in client_calls(log):
        steps = places.setdefault(one.call.dialect, {})
        steps[CallAddress.of(one.call)] = len(steps)
    found = []
    for recording in recordings:
        prepared, steps = Prepared(recording, load_dialect(recording.dialect)), places[recording.dialect]
        taken = anatomy(prepared)
        chosen = [steps.get(where, -1) for where in answered]
        found.append(Client(prepared, taken, steps, taken.pages(chosen, with_content=with_content)))
    return found
