"""Finds what is wrong with a log's SQLite file, mending it on request.

Every problem is found by reading and comes, where there is one, with its cure: the statements that mend it. Damaged
rows are moved to a table of lost ones rather than destroyed, so that a person can still look at them. What an event
refers to and is gone stays a problem for good, because the log can't say again what it lost.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pager.errors import StoreCorrupt
from pager.log.blob_codec import Packed, digest_of, unpack
from pager.log.events import SCHEMA_VERSION, Event, decode
from pager.log.store import Check
from pager.log.stores.sqlite.file import FolderLock, open_reader, open_writer, telling, transaction
from pager.log.stores.sqlite.salvage import salvage

_STEP = 500
# A damaged row may hold values of any type where there should be one: the casts make every row readable.
_EVENTS = """SELECT seq, ifnull(CAST(version AS INTEGER), 0), CAST(kind AS TEXT), ifnull(CAST(data AS BLOB), x'')
    FROM events WHERE seq > ? ORDER BY seq LIMIT ?"""
_NEXT_BLOB = """SELECT id, ifnull(CAST(digest AS BLOB), x''), CAST(size AS INTEGER), CAST(codec AS TEXT),
    ifnull(CAST(data AS BLOB), x'') FROM blobs WHERE id > ? ORDER BY id LIMIT 1"""
_HAS_BLOB = "SELECT 1 FROM blobs WHERE digest = ?"
_LOST_BETWEEN = "SELECT count(*) FROM lost_events WHERE seq > ? AND seq < ?"
_LOSE_EVENT = "INSERT INTO lost_events SELECT seq, session, at, version, kind, data, ? FROM events WHERE seq = ?"
_LOSE_BLOB = "INSERT INTO lost_blobs SELECT NULL, digest, size, codec, data, ? FROM blobs WHERE id = ?"
_DELETE_EVENT, _DELETE_BLOB = "DELETE FROM events WHERE seq = ?", "DELETE FROM blobs WHERE id = ?"
_OF_INDEXES = ("missing from index", "wrong # of entries in index", "non-unique entry in index")
_SET_KIND = "UPDATE events SET kind = ? WHERE seq = ?"


class _Cure(NamedTuple):
    """The statements that mend a problem, and the line that reports it once they ran."""

    report: str
    statements: tuple[tuple[str, tuple[Any, ...]], ...]


@dataclass(slots=True)
class _Findings:
    events: int = 0
    blobs: int = 0
    structure: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    cures: list[_Cure] = field(default_factory=list)
    stopped: bool = False

    @property
    def is_damaged(self) -> bool:
        """Whether more than an index is wrong, which can be made again from its table."""
        return self.stopped or not all(any(words in line for words in _OF_INDEXES) for line in self.structure)

    @property
    def problems(self) -> tuple[str, ...]:
        return (*self.structure, *self.content)

    def add(self, problem: str, cure: _Cure | None = None) -> None:
        self.content.append(problem)
        if cure is not None:
            self.cures.append(cure)


def check_file(path: Path, *, repair: bool) -> Check:
    """Check the file; with ``repair`` mend it, and report what was mended and what is still wrong.

    Nothing is written to a file whose pages are damaged: it is rebuilt from what can be read of it.
    """
    found = _findings(path)
    if not (repair and found.problems):
        return Check(found.events, found.blobs, found.problems)
    repaired = salvage(path) if found.is_damaged else []
    repaired += _mend(path, _findings(path) if repaired else found)
    left = _findings(path)
    return Check(left.events, left.blobs, left.problems, tuple(repaired))


def _findings(path: Path) -> _Findings:
    with closing(open_reader(path)) as connection:
        connection.text_factory = lambda text: text.decode(errors="replace")
        found = _Findings(structure=_structure(connection))
        for look in (_look_at_events, _look_at_blobs):
            try:
                look(connection, found)
            except sqlite3.DatabaseError as error:  # the rest can't be reached: say so and go on with the next table
                found.stopped = True
                found.add(f"reading stopped after {found.events} events and {found.blobs} blobs: {error}")
    return found


def _structure(connection: sqlite3.Connection) -> list[str]:
    """What SQLite itself finds wrong with the file's pages and indexes."""
    try:
        lines = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    except sqlite3.DatabaseError as error:
        lines = [str(error)]
    return [f"the file: {line}" for line in lines if line != "ok"]


def _look_at_events(connection: sqlite3.Connection, found: _Findings) -> None:
    before = 0
    for seq, version, kind, data in _pages_of_events(connection):
        found.events += 1
        missing = seq - before - 1  # numbers are given without gaps: what is not among the lost was taken out
        if missing:
            missing -= connection.execute(_LOST_BETWEEN, (before, seq)).fetchone()[0]
        if missing:
            found.add(f"{missing} events between {before} and {seq} are missing")
        before = seq
        event = _decoded(seq, version, data, found)
        if event is not None:
            _look_at_event(connection, seq, kind, event, found)


def _pages_of_events(connection: sqlite3.Connection) -> Iterator[Any]:
    after = 0
    while rows := connection.execute(_EVENTS, (after, _STEP)).fetchall():
        yield from rows
        after = rows[-1][0]


def _decoded(seq: int, version: int, data: bytes, found: _Findings) -> Event | None:
    try:
        return decode(data, version)
    except StoreCorrupt as error:
        # An event from a newer ctxpager is sound: it is this version that can't read it.
        statements = (_LOSE_EVENT, (str(error), seq)), (_DELETE_EVENT, (seq,))
        cure = _Cure(f"moved event {seq} to lost_events: {error}", statements)
        found.add(f"event {seq}: {error}", None if version > SCHEMA_VERSION else cure)
        return None


def _look_at_event(connection: sqlite3.Connection, seq: int, kind: str, event: Event, found: _Findings) -> None:
    if event.kind != kind:
        cure = _Cure(f"event {seq} is now listed as {event.kind}", ((_SET_KIND, (event.kind, seq)),))
        found.add(f"event {seq} is a {event.kind} listed as {kind}", cure)
    for reference in event.blobs():
        digest = digest_of(reference)
        if digest is None or connection.execute(_HAS_BLOB, (digest,)).fetchone() is None:
            found.add(f"event {seq} ({event.kind}) refers to blob {reference}, which is missing")


def _look_at_blobs(connection: sqlite3.Connection, found: _Findings) -> None:
    after = 0
    # One at a time: content may be as large as a request, and memory must not grow with the log.
    while row := connection.execute(_NEXT_BLOB, (after,)).fetchone():
        after, digest, *packed = row
        found.blobs += 1
        try:
            unpack(digest, Packed(*packed))
        except StoreCorrupt as error:
            statements = (_LOSE_BLOB, (str(error), after)), (_DELETE_BLOB, (after,))
            found.add(str(error), _Cure(f"moved a blob to lost_blobs: {error}", statements))


def _mend(path: Path, found: _Findings) -> Iterator[str]:
    """Apply the cures, each by itself so that a failing cure does not stop the others; the reports of what was done."""
    with (
        telling(path, "repaired"),
        closing(FolderLock(path.parent)) as lock,
        lock,
        closing(open_writer(path)) as writer,
    ):
        if found.structure and _reindexed(writer):
            yield "rebuilt the indexes"
        yield from (cure.report for cure in found.cures if _applied(writer, cure))
        with suppress(sqlite3.Error):
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _reindexed(writer: sqlite3.Connection) -> bool:
    """Rebuild every index from its table; whether that put the file in order."""
    with suppress(sqlite3.Error), transaction(writer):
        writer.execute("REINDEX")
    return not _structure(writer)


def _applied(writer: sqlite3.Connection, cure: _Cure) -> bool:
    try:
        with transaction(writer):
            for statement, values in cure.statements:
                writer.execute(statement, values)
    except sqlite3.Error:
        return False
    return True
