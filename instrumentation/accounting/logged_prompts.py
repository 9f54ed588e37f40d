"""Rebuilds from the log the exact prompt of any call, as its client sent it."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pager.errors import StoreCorrupt
from pager.log.body_delta import digests_of, put_together
from pager.log.events import CallReceived
from pager.log.store import Stored


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


def sent(log: Iterable[Stored]) -> Iterator[ClientCall]:
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
