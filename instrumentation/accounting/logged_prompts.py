"""Rebuilds from the log the exact prompt of any call: as its client sent it, and as it went upstream after paging.

Nothing of what went upstream is stored: the client's own bytes and the decisions are. The page table is folded again up
to the call's answer, the prompt is rendered again, and its digest is compared with the one that was logged when it was
sent.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from pager.errors import StoreCorrupt
from pager.log.body_delta import digests_of, put_together
from pager.log.events import AnswerFinished, CallReceived
from pager.log.store import Stored
from pager.paging.held_calls import LONGEST
from pager.paging.pages.page_table import PageTable
from pager.paging.render import (
    Outgoing,
    in_full,
    lacks_marks,
    marked,
    render,
)
from pager.request_values import CallAddress, Request
from pager.sessions.rebuild import Rebuilder
from pager.wire.dialect import Dialect
from pager.wire.stitching import ToolSlot

Fetch = Callable[[bytes], bytes | None]


class ClientCall(NamedTuple):
    """A call as it was received, and the digests of all its messages; None where the log lacks what it builds on."""

    seq: int
    session: str
    at: float
    call: CallReceived
    messages: tuple[bytes, ...] | None

    def body(self, fetch: Callable[[bytes], bytes | None]) -> bytes:
        """The request body, byte for byte; raises StoreCorrupt unless it is proven to be the same."""
        where = f"event {self.seq}: call {self.call.call} of branch {self.call.branch} of {self.session}"
        if self.messages is None:
            raise StoreCorrupt(f"{where} builds on a call that is not in the log")

        def found(digest: bytes) -> bytes:
            content = fetch(digest)
            if content is None:
                raise StoreCorrupt(f"{where} needs content {digest.hex()}, which is missing")
            return content

        return put_together(self.call, self.messages, found)


def client_calls(log: Iterable[Stored]) -> Iterator[ClientCall]:
    """Every call in the log with its full list of messages, in order."""
    latest: dict[tuple[str, int], tuple[bytes, ...] | None] = {}
    for row in log:
        if isinstance(row.event, CallReceived):
            call = row.event
            messages = _messages(call, latest.get((row.session, call.parent_branch or 0)))
            latest[row.session, call.branch] = messages
            yield ClientCall(row.seq, row.session, row.at, call, messages)


def _messages(call: CallReceived, parent: tuple[bytes, ...] | None) -> tuple[bytes, ...] | None:
    try:
        digests = digests_of(call, parent or ())
    except ValueError:
        return None
    return tuple(digests) if len(digests) == call.keep + len(call.messages) else None


def outgoing(
    log: Sequence[Stored], where: CallAddress, fetch: Fetch, load_dialect: Callable[[str], Dialect]
) -> list[bytes]:
    """The bodies that went upstream for an answered call, one for each leg; ``log`` is that of its session.

    Raises StoreCorrupt unless every one is proven to be what was sent.
    """
    calls = {CallAddress.of(one.call): one for one in client_calls(log)}
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


def _answer(log: Sequence[Stored], where: CallAddress) -> tuple[int, AnswerFinished | None]:
    for at, row in enumerate(log):
        one = row.event
        if isinstance(one, AnswerFinished) and CallAddress.of(one) == where:
            return at, one
    return 0, None


def _proven(
    dialect: Dialect, request: Request, table: PageTable, call: CallReceived, answer: AnswerFinished
) -> Outgoing:
    """The request as it was sent: paged or in full, with cache marks or without, whichever has the logged digest."""
    place = dialect.tool_slot(request)
    tool_slot = place if isinstance(place, ToolSlot) else None
    ways = [render(dialect, request, table, tool_slot), in_full(dialect, request, table)]
    table.set_marks(ends=lacks_marks(dialect, request, table), anchors=[table.last_end + 1])  # before marks were logged
    ways.append(render(dialect, request, table, tool_slot))
    for way in [*ways, marked(dialect, request)]:
        if way.digest(call.body) == answer.sent:
            return way
    raise StoreCorrupt(f"call {call.call} of branch {call.branch} can't be proven: its prompt is not what was sent")
