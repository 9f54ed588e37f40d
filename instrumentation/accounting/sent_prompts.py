"""Rebuilds from the log what went upstream for a call, after paging, and proves that it is the same.

Nothing of what was sent is stored: the client's own bytes and the decisions are. The page table is folded again up to
the call's answer, the prompt is rendered again, and its digest is compared with the one that was logged when it was
sent.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from instrumentation.accounting.logged_prompts import sent
from pager.errors import StoreCorrupt
from pager.log.events import AnswerFinished, CallReceived
from pager.log.store import Stored
from pager.paging.held_calls import LONGEST
from pager.paging.page_table import PageTable
from pager.paging.render import (
    Outgoing,
    lacks_marks,
    marked,
    render,
)
from pager.sessions.rebuild import Rebuilder
from pager.values import Request
from pager.wire.dialect import Dialect
from pager.wire.stitching import Carrier

Fetch = Callable[[bytes], bytes | None]


class Where(NamedTuple):
    """One attempt at a call."""

    branch: int
    call: int
    attempt: int = 1


def outgoing(log: Sequence[Stored], where: Where, fetch: Fetch, load_dialect: Callable[[str], Dialect]) -> list[bytes]:
    """The bodies that went upstream for an answered call, one for each leg; ``log`` is that of its session.

    Raises StoreCorrupt unless every one is proven to be what was sent.
    """
    calls = {(one.call.branch, one.call.call, one.call.attempt): one for one in sent(log)}
    end, answer = _answer(log, where)
    if where not in calls or answer is None:
        raise StoreCorrupt(f"attempt {where.attempt} at call {where.call} of branch {where.branch} has no answer here")
    call = calls[where]
    if not answer.sent:
        return [call.body(fetch)]
    dialect = load_dialect(call.call.dialect)
    table = Rebuilder(load_dialect, fetch).session("", log[:end]).pages.tables[where.branch]
    request = dialect.parse(call.body(fetch))
    first = _proven(dialect, request, table, call.call, answer)
    bodies = [first.body()]
    for leg in table.legs_now()[: answer.legs]:
        if not leg.mixed:
            first = first.followed_by(dialect.appended(leg))
            is_last = len(bodies) == LONGEST
            bodies.append((first.without_calls(dialect) if is_last else first).body())
    return bodies


def _answer(log: Sequence[Stored], where: Where) -> tuple[int, AnswerFinished | None]:
    for at, row in enumerate(log):
        one = row.event
        if isinstance(one, AnswerFinished) and (one.branch, one.call, one.attempt) == where:
            return at, one
    return 0, None


def _proven(
    dialect: Dialect, request: Request, table: PageTable, call: CallReceived, answer: AnswerFinished
) -> Outgoing:
    """The request as it was sent: paged or in full, with cache marks or without, whichever has the logged digest."""
    place = dialect.carrier(request)
    carrier = place if isinstance(place, Carrier) else None
    ways = [render(dialect, request, table, carrier)]
    table.set_marks(ends=lacks_marks(dialect, request, table), anchors=[table.last_end + 1])  # before marks were logged
    ways.append(render(dialect, request, table, carrier))
    for way in [*ways, marked(dialect, request)]:
        if way.digest(call.body) == answer.sent:
            return way
    raise StoreCorrupt(f"call {call.call} of branch {call.branch} can't be proven: its prompt is not what was sent")
