"""The page table of each call as it was when the call went upstream.

Nothing of what was sent is stored, so the tables are folded again. A table changes with the next call of its branch;
right before that it is looked at.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from pager.log.events import CallReceived
from pager.log.store import Stored
from pager.paging.pages.page_table import PageTable
from pager.request_values import CallAddress
from pager.sessions.lineage import Session
from pager.sessions.rebuild import Rebuilder

See = Callable[[CallAddress, PageTable], None]
"""Is shown the page table of every attempt at a call, with all that was decided of it."""


def watch(name: str, log: Sequence[Stored], rebuilder: Rebuilder, see: See) -> None:
    """Rebuild the page tables of a session, and show each as it was for every call."""
    session = rebuilder.branches(name, log)
    rebuilder.add_tables(session, _watched(session, log, see))


def _watched(session: Session, log: Iterable[Stored], see: See) -> Iterator[Stored]:
    """The rows of the log, one by one as they are folded in."""
    latest: dict[int, CallAddress] = {}

    def look(branch: int) -> None:
        where, table = latest.get(branch), session.pages.tables.get(branch)
        if where is not None and table is not None and (table.call, table.attempt) == where[1:]:
            see(where, table)

    for row in log:
        if isinstance(row.event, CallReceived):
            look(row.event.branch)
            latest[row.event.branch] = CallAddress.of(row.event)
        yield row
    for branch in latest:
        look(branch)
