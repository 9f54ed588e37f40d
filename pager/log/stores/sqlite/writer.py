"""Writes batches to the log's SQLite file from one thread, all that wait in one transaction.

A durable commit costs a flush of the disk, whatever its size. So the thread takes every batch that has come in while
the last flush ran and commits them together: under load the flush is shared, without load a batch is written at once,
unless it is not urgent: then it waits a little for others.
"""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple

import zstandard

from pager.errors import StoreConflict, StoreError, StoreReplaced
from pager.log.blob_codec import LEVEL, pack
from pager.log.events import SCHEMA_VERSION, encode
from pager.log.store import Batch, conflict, moved_head
from pager.log.stores.sqlite.file import (
    PAGE,
    WAL_BYTES,
    FolderLock,
    explained,
    identity,
    open_writer,
    primary_code,
    telling,
    transaction,
)

_GROUP_BATCHES = 256
_GROUP_BYTES = 4 << 20  # more content than this would keep the first in the group waiting for the others' compression
_PATIENCE = 0.005  # seconds that batches which are not urgent wait for others

_LAST_SEQ = """SELECT max(ifnull((SELECT max(seq) FROM events), 0), ifnull((SELECT max(seq) FROM lost_events), 0))"""
_ADD_EVENT = "INSERT INTO events (seq, session, at, version, kind, data) VALUES (?, ?, ?, ?, ?, ?)"
_ADD_BLOB = "INSERT OR IGNORE INTO blobs (digest, size, codec, data) VALUES (?, ?, ?, ?)"
_FIRST_CALL = "INSERT OR IGNORE INTO sessions (head, session) VALUES (?, ?)"
_HEAD = "SELECT head FROM sessions WHERE session = ?"
_MOVE = "INSERT OR REPLACE INTO sessions (session, head) VALUES (?, ?)"
_NEXT_CALL = "UPDATE sessions SET head = ? WHERE session = ? AND head = ?"
_SET_FINGERPRINT = """INSERT INTO marks (tenant, mark, session, branch, call) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET session = excluded.session, branch = excluded.branch, call = excluded.call"""

# What SQLite, the disk, the folder's lock and memory can raise; anything else is a bug and stops the thread loudly.
_FAILURES = (sqlite3.Error, OSError, StoreError, MemoryError)
# Errors that lie in the one batch, or that a smaller transaction may escape. After any other error the batches are not
# tried again: a commit whose flush failed may still come back when the file is opened anew, and would then be doubled.
_WORTH_ANOTHER_TRY = frozenset(
    {0, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_FULL}
)
_HARMLESS = _WORTH_ANOTHER_TRY | {sqlite3.SQLITE_BUSY}


class _Job(NamedTuple):
    batch: Batch
    future: Future[int]
    weight: int  # bytes of content
    events: Sequence[tuple[str, str]] = ()  # kinds and data, once they are encoded


class SqliteWriter:
    """The one thread, and the one connection, that writes."""

    def __init__(self, path: Path, on_replaced: Callable[[], None] = lambda: None) -> None:
        self._path = path
        self._on_replaced = on_replaced
        self._lock, self._connection = _opened(path)
        self._file = identity(path)
        self._suspect = False
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self._pages_in_wal = 0  # an estimate: SQLite has no count of them
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._gate = threading.Lock()  # between append and close: nothing is queued behind the end
        self._open = True
        # A daemon: a process that forgets to close its log must still be able to end.
        self._thread = threading.Thread(target=self._run, name="ctxpager-log", daemon=True)
        self._thread.start()

    def append(self, batch: Batch) -> Future[int]:
        """Queue a batch; cheap, as everything is encoded and compressed by the thread."""
        job = _Job(batch, Future(), sum(map(len, batch.blobs.values())))
        # Running from the start: a caller that stops waiting must not cancel the write.
        job.future.set_running_or_notify_cancel()
        with self._gate:
            if self._open:
                self._queue.put(job)
                return job.future
        job.future.set_exception(StoreError(f"{self._path} is closed"))
        return job.future

    def present(self) -> bool:
        """Whether the file that is written to is still the one at its path."""
        return self._file is not None and identity(self._path) == self._file

    def close(self) -> None:
        """Write what is queued, then let go of the file."""
        with self._gate:
            if self._open:
                self._open = False
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        jobs: list[_Job] = []
        last = False
        try:
            while not last:
                jobs, last = self._waiting()
                if jobs and not self.present():
                    last = self._begin_anew(jobs) or last
                else:
                    self._write(_encoded(jobs))
                if self._pages_in_wal * PAGE >= WAL_BYTES:  # now and then, after the callers have their answer
                    self._pages_in_wal = 0
                    self._checkpoint("PASSIVE")
        finally:
            self._stop(jobs)

    def _waiting(self) -> tuple[list[_Job], bool]:
        """The batches that wait now, as many as one transaction should hold, and whether they are the last."""
        jobs: list[_Job] = []
        weight, urgent = 0, False
        job = self._queue.get()
        while job is not None:
            jobs.append(job)
            weight += job.weight
            urgent = urgent or job.batch.urgent
            if weight > _GROUP_BYTES or len(jobs) >= _GROUP_BATCHES:
                return jobs, False
            try:
                job = self._queue.get_nowait() if urgent else self._queue.get(timeout=_PATIENCE)
            except Empty:
                return jobs, False
        return jobs, True

    def _write(self, jobs: list[_Job]) -> None:
        """Commit the jobs together; if one of them spoils it, each alone."""
        try:
            seqs = self._commit(jobs)
        except _FAILURES as error:
            self._suspect |= self._connection.in_transaction or primary_code(error) not in _HARMLESS
            own = isinstance(error, OSError | StoreError)
            if len(jobs) > 1 and not own and primary_code(error) in _WORTH_ANOTHER_TRY:
                for job in jobs:
                    self._write([job])
                return
            failure = error if isinstance(error, StoreError) else explained(error, self._path, "written")
            for job in jobs:
                job.future.set_exception(failure)
        else:
            for job, seq in zip(jobs, seqs, strict=True):
                if isinstance(seq, StoreConflict):
                    job.future.set_exception(seq)
                else:
                    job.future.set_result(seq)

    def _begin_anew(self, jobs: list[_Job]) -> bool:
        """Open the file that is there now, or a new one; whether the end of the queue was reached.

        The batches that wait build on what is in the old file: none of them is written.
        """
        last = False
        with suppress(Empty):
            while not last:
                job = self._queue.get_nowait()
                last = job is None
                jobs += [job] if job is not None else []
        with suppress(sqlite3.Error, OSError):
            self._connection.close()
        error: StoreError
        try:
            lock, self._connection = _opened(self._path)
        except StoreError as failed:
            error, self._file = failed, None
        else:
            self._lock.close()
            self._lock, self._file, self._suspect, self._pages_in_wal = lock, identity(self._path), False, 0
            self._on_replaced()
            error = StoreReplaced(f"{self._path} was deleted or replaced while it was in use; another is open now")
        for job in jobs:
            job.future.set_exception(error)
        return last

    def _commit(self, jobs: Sequence[_Job]) -> list[int | StoreConflict]:
        """The last sequence number of each batch, all of them durable, or why one was left out."""
        with self._lock:
            connection = self._sound_connection()
            with transaction(connection):
                self._pages_in_wal += 2
                last = connection.execute(_LAST_SEQ).fetchone()[0]
                seqs: list[int | StoreConflict] = []
                for job in jobs:
                    if not self._in_turn(connection, job.batch):
                        seqs.append(StoreConflict(conflict(job.batch.session)))
                        continue
                    last = self._add(connection, job, last)
                    seqs.append(last)
                return seqs

    def _in_turn(self, connection: sqlite3.Connection, batch: Batch) -> bool:
        """Whether the session's last call is the one that the batch builds on; moves its head on if so."""
        if batch.moves:
            row = connection.execute(_HEAD, (batch.session,)).fetchone()
            connection.execute(_MOVE, (batch.session, moved_head(row[0] if row else b"", batch.moves)))
        if batch.after is None:
            return True
        if not batch.after:
            return connection.execute(_FIRST_CALL, (batch.head, batch.session)).rowcount == 1
        return connection.execute(_NEXT_CALL, (batch.head, batch.session, batch.after)).rowcount == 1

    def _add(self, connection: sqlite3.Connection, job: _Job, last: int) -> int:
        batch = job.batch
        rows = [
            (seq, batch.session, batch.at, SCHEMA_VERSION, *event) for seq, event in enumerate(job.events, last + 1)
        ]
        connection.executemany(_ADD_EVENT, rows)
        blobs = [(digest, *pack(content, self._compressor)) for digest, content in batch.blobs.items()]
        connection.executemany(_ADD_BLOB, blobs)
        if batch.fingerprints:
            connection.executemany(
                _SET_FINGERPRINT, [(batch.tenant, key, *place) for key, place in batch.fingerprints.items()]
            )
        self._pages_in_wal += 2 * len(rows) + len(batch.fingerprints) + sum(2 + len(row[-1]) // PAGE for row in blobs)
        return last + len(rows)

    def _sound_connection(self) -> sqlite3.Connection:
        """The connection, opened anew if it may be broken.

        The old one is closed last: SQLite drops the state that readers share with the file's last connection, and it
        could not be made again on a full disk.
        """
        if self._suspect:
            renewed = open_writer(self._path)
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = renewed
            self._suspect = False
        return self._connection

    def _checkpoint(self, mode: str) -> None:
        """Move the write-ahead log into the file."""
        # What can't be moved now stays in the write-ahead log, which is as durable as the file itself.
        with suppress(sqlite3.Error, OSError, StoreError), self._lock:
            self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()

    def _stop(self, jobs: list[_Job]) -> None:
        """Close the file; after a bug, also end the wait of all callers."""
        with self._gate:
            self._open = False
        with suppress(Empty):
            while job := self._queue.get_nowait():
                jobs.append(job)
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(StoreError(f"{self._path}: the log's writer stopped"))
        self._checkpoint("TRUNCATE")
        with suppress(sqlite3.Error, OSError, StoreError), self._lock:
            self._connection.close()
        self._lock.close()


def _encoded(jobs: Sequence[_Job]) -> list[_Job]:
    """The jobs whose events can be written; the futures of the others raise why not."""
    ready: list[_Job] = []
    for job in jobs:
        try:
            events = [(event.kind, encode(event).decode()) for event in job.batch.events]
        except StoreError as error:
            job.future.set_exception(error)
        else:
            ready.append(job._replace(events=events))
    return ready


def _opened(path: Path) -> tuple[FolderLock, sqlite3.Connection]:
    with telling(path, "opened"):
        lock = FolderLock(path.parent)
        try:
            with lock:
                return lock, open_writer(path)
        except BaseException:
            lock.close()
            raise
