"""Keeps the log in one SQLite file: the embedded default.

Writing is the business of one thread (``writer``), which a log that is open to be read only does not have. Readers have
connections of their own and read in short steps, so that a long walk through the log never keeps the write-ahead log
from being moved into the file.
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
from pager.log.store import Batch, Check, Place, Stored
from pager.log.stores.sqlite.check import check_file
from pager.log.stores.sqlite.file import FILE_NAME, SUFFIX, expect_log, identity, is_log, open_reader, telling
from pager.log.stores.sqlite.salvage import salvage
from pager.log.stores.sqlite.writer import SqliteWriter

_STEP = 500  # rows read, or fingerprints asked for, at a time
_IDLE = 8  # connections kept for the next reader

# Text is read as bytes: a damaged row must reach the decoder, whose error names the damage.
_COLUMNS = "SELECT seq, session, at, version, CAST(data AS BLOB) FROM events"
_ALL = f"{_COLUMNS} WHERE seq > ? ORDER BY seq LIMIT ?"
_OF_SESSION = f"{_COLUMNS} WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?"
# Without an index, which every append would have to write: the kinds that are asked for are in every call.
_RECENT = f"{_COLUMNS} WHERE kind = ? ORDER BY seq DESC LIMIT ?"
# Steps in the index on sessions, a few for each session, however many events there are.
_NAMES = """WITH RECURSIVE names (session) AS (
    SELECT min(session) FROM events UNION ALL
    SELECT (SELECT min(session) FROM events WHERE session > names.session) FROM names WHERE session IS NOT NULL)"""
_OPENED = "SELECT seq FROM events WHERE session = names.session AND kind = 'SessionOpened' ORDER BY seq LIMIT 1"
_SESSIONS = f"{_NAMES} {_COLUMNS} WHERE seq IN (SELECT ({_OPENED}) FROM names) ORDER BY seq DESC"  # noqa: S608 - constants
_BLOB = "SELECT size, codec, data FROM blobs WHERE digest = ?"
_HEAD = "SELECT head FROM sessions WHERE session = ?"
_FINGERPRINTS = "SELECT mark, session, branch, call FROM marks WHERE tenant = ? AND mark IN"


class Store:
    """A log in the file ``ctxpager.sqlite3`` of a folder."""

    durable: ClassVar[bool] = True

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        if read_only:
            expect_log(path)
        self._readers = _Readers(path)
        self._writer = None if read_only else SqliteWriter(path, self._readers.renew)
        self._file = identity(path)

    @classmethod
    def open(cls, address: str, *, read_only: bool = False) -> Self:
        """Open the log in a folder, or in a file of another name; without a file only if it may be made."""
        return cls(_path(address), read_only=read_only)

    @classmethod
    def exists(cls, address: str) -> bool:
        """Whether there is a log."""
        return _path(address).exists()

    @classmethod
    def folder(cls, address: str) -> Path | None:
        """The folder that holds the log."""
        return _path(address).parent

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file that begins with these bytes is a database, and not another program's."""
        return is_log(head)

    def append(self, batch: Batch) -> Future[int]:
        """Append a batch; the future gives its last sequence number once it is on the disk, or raises StoreError."""
        if self._writer is None:
            refused: Future[int] = Future()
            refused.set_exception(StoreError(f"{self._path} is open to be read only"))
            return refused
        return self._writer.append(batch)

    def events(self, session: str | None = None, after: int = 0) -> Iterator[Stored]:
        """The events of one session, or of all, in order, with a sequence number above ``after``."""
        while rows := self._page(session, after):
            yield from map(_stored, rows)
            after = rows[-1][0]

    def sessions(self) -> list[Stored]:
        """How each session began, the newest first."""
        return [_stored(row) for row in self._rows(_SESSIONS, ())]

    def recent(self, kind: str, limit: int) -> list[Stored]:
        """The newest events of one kind, newest first."""
        return [_stored(row) for row in self._rows(_RECENT, (kind, max(limit, 0)))]

    def head(self, session: str) -> bytes:
        """The hash over the session's calls so far, empty before the first."""
        return b"".join(row[0] for row in self._rows(_HEAD, (session,)))

    def blob(self, digest: bytes) -> bytes | None:
        """The content with this digest, or None; raises StoreCorrupt if it is not what was stored."""
        for row in self._rows(_BLOB, (digest,)):
            return unpack(digest, Packed(*row))
        return None

    def find(self, tenant: str, fingerprints: Sequence[bytes]) -> dict[bytes, Place]:
        """The places that own these fingerprints in this tenant; unknown ones are left out."""
        found: dict[bytes, Place] = {}
        for start in range(0, len(fingerprints), _STEP):
            some = fingerprints[start : start + _STEP]
            query = f"{_FINGERPRINTS} ({','.join('?' * len(some))})"
            found |= {key: Place(*place) for key, *place in self._rows(query, (tenant, *some))}
        return found

    def present(self) -> bool:
        """Whether the file is still the one that is written to."""
        return self._writer.present() if self._writer is not None else identity(self._path) == self._file

    def check(self, *, repair: bool = False) -> Check:
        """Verify the file, every digest and every reference; with ``repair`` mend what can be mended."""
        if not repair or self._writer is None:
            return check_file(self._path, repair=False)
        self._writer.close()  # the file may be replaced: nothing may be open that would write to the old one
        self._readers.renew()
        found = check_file(self._path, repair=True)
        self._readers.renew()
        self._writer = SqliteWriter(self._path, self._readers.renew)
        return found

    @classmethod
    def salvage(cls, address: str) -> list[str]:
        """Rebuild a log that can't be opened from what can be read of it; what was done and what is lost."""
        return salvage(_path(address))

    def close(self) -> None:
        """Finish what was appended, then release the file."""
        self._readers.close()  # first, as a reader would keep the write-ahead log from being emptied
        if self._writer is not None:
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


def _path(address: str) -> Path:
    """The file of a log, by its own name or by its folder's."""
    path = Path(address).expanduser()
    return path if path.suffix == SUFFIX or path.is_file() else path / FILE_NAME


def _stored(row: tuple[Any, ...]) -> Stored:
    seq, session, at, version, data = row
    try:
        return Stored(seq, session, at, decode(data, version))
    except StoreCorrupt as error:
        raise StoreCorrupt(f"event {seq}: {error}; `ctxpager check --repair` sets damaged events aside") from error
