"""Appends records to the log, and waits for those under way.

What can't be written is kept and written later if nothing builds on it; else the session is dropped from memory, so
that its next call builds on what the log has. Errors are raised where a write is awaited.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Collection
from concurrent.futures import Future
from dataclasses import replace

from pager.errors import StoreConflict, StoreReplaced
from pager.log.bypass_reasons import BypassReason
from pager.log.events import Bypassed
from pager.log.store import Batch, Store
from pager.sessions.registry import Registry

BLOBS_REMEMBERED = 200_000
BACKLOG = 1_000  # outcomes of calls kept while the log can't be written
log = logging.getLogger("ctxpager.log")


class LogWriter:
    """The log as the proxy writes it; ``sessions`` are those in memory, which must not be ahead of it."""

    def __init__(self, store: Store, sessions: Registry) -> None:
        self._store = store
        self._sessions = sessions
        self._stored: set[bytes] = set()
        self._pending: set[Future[int]] = set()
        self._backlog: deque[Batch] = deque(maxlen=BACKLOG)
        self._missed = 0
        self._missed_why = ""
        self._replacement: BaseException | None = None
        self.healthy = True
        self.failures = 0
        self.last_failure = ""
        self.begun_anew = 0

    @property
    def present(self) -> bool:
        """Whether the log is still where it was; the next call begins another where it is not."""
        return self._store.present()

    @property
    def queue(self) -> int:
        """How many writes are waiting."""
        return len(self._pending) + len(self._backlog)

    def write_backlog(self) -> None:
        """Append what could not be written before, now that the log can be written again."""
        while self._backlog:
            self.append_later(self._backlog.popleft())

    def missed(self, why: str) -> None:
        """A call or its outcome went unlogged: say so in the log as soon as it can be written again."""
        self._missed += 1
        self._missed_why = why

    def take_missed(self) -> Bypassed | None:
        """What went unlogged since this was last asked; None if nothing did."""
        if not self._missed:
            return None
        detail = f"{self._missed} calls or answers before this went unlogged, last for: {self._missed_why}"
        self._missed = 0
        return Bypassed(BypassReason.NOT_LOGGED, detail)

    async def settled(self) -> None:
        """Wait until all that was appended by now is written, or has failed."""
        pending = tuple(self._pending)
        if pending:
            await asyncio.wait([asyncio.wrap_future(future) for future in pending])

    async def drain(self) -> None:
        """Wait until everything is written, or has failed."""
        while pending := tuple(self._pending):  # the store's thread takes from it
            await asyncio.wait([asyncio.wrap_future(future) for future in pending])
            await asyncio.sleep(0)

    def append(self, batch: Batch) -> Awaitable[int]:
        """Append a batch; it is on its way when this returns, and durable once it was awaited."""
        return asyncio.wrap_future(self.append_later(batch))

    def append_later(self, batch: Batch) -> Future[int]:
        """Append a batch that no call waits for, without the blobs that the store has."""
        if len(self._stored) > BLOBS_REMEMBERED:
            self._stored.clear()
        new = {digest: blob for digest, blob in batch.blobs.items() if digest not in self._stored}
        future = self._store.append(batch if len(new) == len(batch.blobs) else replace(batch, blobs=new))
        self._pending.add(future)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda done: self._appended(done, batch, new.keys(), loop))
        return future

    def _appended(
        self, done: Future[int], batch: Batch, blobs: Collection[bytes], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Note what is stored now; called by the store's thread, so that a success does not wake the event loop."""
        self._pending.discard(done)
        error = done.exception()
        if error is None:
            self._stored.update(blobs)
            self.healthy = True
        elif isinstance(error, StoreReplaced):
            loop.call_soon_threadsafe(self._replaced, error)
        elif not isinstance(error, StoreConflict):
            loop.call_soon_threadsafe(self._failed, error, batch)

    def _replaced(self, error: BaseException) -> None:
        """Forget all that was known to be in a log that is gone; calls under way are not logged any further."""
        if error is self._replacement:  # one error for all that was waiting
            return
        self._replacement = error
        self._stored.clear()
        self._backlog.clear()
        self._sessions.clear()
        self.begun_anew += 1
        self.failures += 1
        self.last_failure = str(error)
        log.error("THE LOG IS GONE: %s; what was in it is lost", error)

    def _failed(self, error: BaseException, batch: Batch) -> None:
        """Drop what memory knew of a session whose log has a gap now: it is read again from what the log has.

        What became of a call is kept and written later. A call itself, or what was decided of it, is not, as the calls
        after it build on it: it goes on without a log.
        """
        session = batch.session
        self._stored.clear()
        self.healthy = False
        if batch.after is not None or batch.moves:
            self._sessions.drop(session)
        elif len(self._backlog) < BACKLOG:
            self._backlog.append(batch)
        else:
            self.missed(f"the outcome of a call: {error}")
        self.failures += 1
        self.last_failure = str(error)
        log.error("NOT LOGGED: %s (session %s; %d writes failed so far)", error, session, self.failures)
