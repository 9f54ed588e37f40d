"""Keeps the log in one SQLite file: the embedded default.

Writing is the business of one thread (``_sqlite_writer``). Readers have connections of their own and read in short
steps, so that a long walk through the log never keeps the write-ahead log from being moved into the file.
"""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

from pager.errors import StoreCorrupt, StoreError
from pager.log.blob_codec import Packed, unpack
from pager.log.events import decode
from pager.log.store import (
    Batch,
    Check,
    Place,
    Stored,
)
from pager.log.stores.sqlite.check import check_file
from pager.log.stores.sqlite.file import FILE_NAME, open_reader, telling
from pager.log.stores.sqlite.salvage import salvage
from pager.log.stores.sqlite.writer import Writer

_STEP = 500  # rows read, or marks asked for, at a time
_IDLE = 8  # connections kept for the next reader

# Text is read as bytes: a damaged row must reach the decoder, which says what is wrong with it.
_COLUMNS = "SELECT seq, session, at, version, CAST(data AS BLOB) FROM events"
_ALL = f"{_COLUMNS} WHERE seq > ? ORDER BY seq LIMIT ?"
_OF_SESSION = f"{_COLUMNS} WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?"
# Without an index, which every append would have to write: the kinds that are asked for are in every call.
_RECENT = f"{_COLUMNS} WHERE kind = ? ORDER BY seq DESC LIMIT ?"
_BLOB = "SELECT size, codec, data FROM blobs WHERE digest = ?"
_HEAD = "SELECT head FROM sessions WHERE session = ?"
_MARKS = "SELECT mark, session, branch, call FROM marks WHERE tenant = ? AND mark IN"


class Store:
    """A log in the file ``ctxpager.sqlite3`` of a folder."""

    durable: ClassVar[bool] = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._readers = _Readers(path)
        self._writer = Writer(path, self._readers.renew)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the folder's log, making both if need be; raises StoreError if it can't be used."""
        return cls(folder / FILE_NAME)

    def append(self, batch: Batch) -> Future[int]:
        """Append a batch; the future gives its last sequence number once it is on the disk, or raises StoreError."""
        return self._writer.append(batch)

    def events(self, session: str | None = None, after: int = 0) -> Iterator[Stored]:
        """The events of one session, or of all, in order, with a sequence number above ``after``."""
        while rows := self._page(session, after):
            yield from map(_stored, rows)
            after = rows[-1][0]

    def recent(self, kind: str, limit: int) -> list[Stored]:
        """The newest events of one kind, newest first."""
        return [_stored(row) for row in self._rows(_RECENT, (kind, max(limit, 0)))]

    def head(self, session: str) -> bytes:
        """Where the session stands."""
        return b"".join(row[0] for row in self._rows(_HEAD, (session,)))

    def blob(self, digest: bytes) -> bytes | None:
        """The content with this digest, or None; raises StoreCorrupt if it is not what was stored."""
        for row in self._rows(_BLOB, (digest,)):
            return unpack(digest, Packed(*row))
        return None

    def find(self, tenant: str, marks: Sequence[bytes]) -> dict[bytes, Place]:
        """The places that own these marks in this tenant; unknown marks are left out."""
        found: dict[bytes, Place] = {}
        for start in range(0, len(marks), _STEP):
            some = marks[start : start + _STEP]
            query = f"{_MARKS} ({','.join('?' * len(some))})"
            found |= {mark: Place(*place) for mark, *place in self._rows(query, (tenant, *some))}
        return found

    def present(self) -> bool:
        """Whether the file is still the one that is written to."""
        return self._writer.present()

    def check(self, *, repair: bool = False) -> Check:
        """Verify the file, every digest and every reference; with ``repair`` mend what can be mended."""
        if not repair:
            return check_file(self._path, repair=False)
        self._writer.close()  # the file may be replaced: nothing may be open that would write to the old one
        self._readers.renew()
        found = check_file(self._path, repair=True)
        self._readers.renew()
        self._writer = Writer(self._path, self._readers.renew)
        return found

    @classmethod
    def salvage(cls, folder: Path) -> list[str]:
        """Rebuild a log that can't be opened from what can be read of it; what was done and what is lost."""
        return salvage(folder / FILE_NAME)

    def close(self) -> None:
        """Finish what was appended, then release the file."""
        self._readers.close()  # first, as a reader would keep the write-ahead log from being emptied
        self._writer.close()

    def _page(self, session: str | None, after: int) -> list[tuple[Any, ...]]:
        if session is None:
            return self._rows(_ALL, (after, _STEP))
        return self._rows(_OF_SESSION, (session, after, _STEP))

    def _rows(self, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with self._readers.lend() as connection:
            return connection.execute(query, values).fetchall()


class _Readers:
    """Lends connections that can only read, so that any thread may read and none waits for another."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._open = True
        self._generation = 0

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """A connection for the time of one step."""
        generation, connection = self._taken()
        try:
            with telling(self._path, "read"):
                yield connection
        except BaseException:
            connection.close()  # it may be broken; the next reader gets a new one
            raise
        self._give_back(connection, generation)

    def renew(self) -> None:
        """Lend no connection any more that was opened before: another file is there now."""
        with self._lock:
            self._generation += 1
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close what is not lent; the rest is closed when it comes back."""
        with self._lock:
            self._open = False
        self.renew()

    def _taken(self) -> tuple[int, sqlite3.Connection]:
        with self._lock:
            if not self._open:
                raise StoreError(f"{self._path} is closed")
            generation = self._generation
            if self._idle:
                return generation, self._idle.pop()
        return generation, open_reader(self._path)

    def _give_back(self, connection: sqlite3.Connection, generation: int) -> None:
        with self._lock:
            if self._open and generation == self._generation and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()


def _stored(row: tuple[Any, ...]) -> Stored:
    seq, session, at, version, data = row
    try:
        return Stored(seq, session, at, decode(data, version))
    except StoreCorrupt as error:
        raise StoreCorrupt(f"event {seq}: {error}; `ctxpager check --repair` sets damaged events aside") from error
