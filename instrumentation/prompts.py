"""Rebuilds from the log the exact prompt of any call, as its client sent it."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pager.errors import StoreCorrupt
from pager.events import CallReceived
from pager.recipe import put_together
from pager.store import Stored


class Sent(NamedTuple):
    """A call as it was received, and the digests of all its messages."""

    seq: int
    session: str
    at: float
    call: CallReceived
    messages: tuple[bytes, ...]

    def body(self, fetch: Callable[[bytes], bytes]) -> bytes:
        """The request body, byte for byte; raises StoreCorrupt unless it is proven to be the same."""
        return put_together(self.call, self.messages, fetch)


def sent(log: Iterable[Stored]) -> Iterator[Sent]:
    """Every call in the log with its full list of messages, in order; raises StoreCorrupt where a parent is missing."""
    latest: dict[tuple[str, int], tuple[bytes, ...]] = {}
    for row in log:
        if not isinstance(row.event, CallReceived):
            continue
        call = row.event
        kept: tuple[bytes, ...] = ()
        if call.parent_branch is not None:
            kept = latest.get((row.session, call.parent_branch), ())[: call.keep]
        if len(kept) != call.keep:
            raise StoreCorrupt(f"event {row.seq}: call {call.call} of {row.session} has a parent that is not logged")
        messages = kept + tuple(bytes.fromhex(digest) for digest in call.messages)
        latest[row.session, call.branch] = messages
        yield Sent(row.seq, row.session, row.at, call, messages)
