"""Rebuilds a log whose SQLite file is damaged, from all rows that can still be read.

The table of a row is known by its shape, so that no tree is needed to find it. Events are decoded and content is
checked against its digest before they count; what does not hold is set aside with the reason. The damaged file is kept
beside the new one.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from pager.errors import StoreCorrupt
from pager.log.blob_codec import Packed, digest_of, unpack
from pager.log.events import (
    SCHEMA_VERSION,
    AnswerFinished,
    BranchOpened,
    CallReceived,
    Event,
    SessionOpened,
    ToolCalled,
    decode,
)
from pager.log.store import answer_fingerprint, session_key_fingerprint, tool_call_fingerprint
from pager.log.stores.sqlite.file import PAGE, FolderLock, open_writer, sync, telling, transaction
from pager.log.stores.sqlite.raw_pages import RawRow, opened

_EVENT = "INSERT OR IGNORE INTO events (seq, session, at, version, kind, data) VALUES (?, ?, ?, ?, ?, ?)"
_LOST_EVENT = "INSERT OR IGNORE INTO lost_events VALUES (?, ?, ?, ?, ?, ?, ?)"
_BLOB = "INSERT OR IGNORE INTO blobs (id, digest, size, codec, data) VALUES (?, ?, ?, ?, ?)"
_LOST_BLOB = "INSERT INTO lost_blobs VALUES (NULL, ?, ?, ?, ?, ?)"
_MARK = "INSERT OR IGNORE INTO marks VALUES (?, ?, ?, ?, ?)"
_HEAD = "INSERT OR IGNORE INTO sessions VALUES (?, ?)"
_TAKEN = "SELECT seq FROM events UNION SELECT seq FROM lost_events"
_WITHOUT_HEAD = """SELECT DISTINCT session FROM events
    WHERE kind = 'CallReceived' AND session NOT IN (SELECT session FROM sessions)"""
_COUNTS = "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM blobs)"
_GONE = "its page was damaged"


@dataclass(slots=True)
class _SalvagedIndex:
    """What the indexes of the damaged file say was in it."""

    sessions: dict[int, str] = field(default_factory=dict)
    digests: set[bytes] = field(default_factory=set)


def salvage(path: Path) -> list[str]:
    """Put a new file with all readable rows in the place of this one; what was done and what is lost.

    Raises StoreCorrupt, and leaves the file alone, where nothing of it is a row of a log.
    """
    rebuilt = path.with_name(path.name + ".rebuilding")
    with telling(path, "repaired"), closing(FolderLock(path.parent)) as lock, lock:
        _remove(rebuilt)
        try:
            with closing(open_writer(rebuilt)) as writer:
                lines = _filled(path, writer)
                writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except BaseException:
            _remove(rebuilt)
            raise
        kept = _set_aside(path)
        rebuilt.rename(path)
        _remove(rebuilt)
        sync(path.parent)
    return [*lines, f"the damaged file is kept as {kept.name}"]


def _filled(path: Path, writer: sqlite3.Connection) -> list[str]:
    index = _SalvagedIndex()
    with opened(path, PAGE) as pages, transaction(writer):
        for row in pages.rows():
            _keep(row, writer, index)
        lost = _missing(writer, index)
        made = sum(writer.execute(_MARK, row).rowcount for row in _fingerprints_of_events(writer))
        for (session,) in writer.execute(_WITHOUT_HEAD).fetchall():
            writer.execute(_HEAD, (session, sha256(b"repaired\0" + session.encode()).digest()[:16]))
    events, blobs = writer.execute(_COUNTS).fetchone()
    if not events and not blobs:
        raise StoreCorrupt(f"{path}: nothing in it is a row of a log; a file moved away is replaced by a new log")
    lines = [f"rebuilt the file from what could be read: {events} events, {blobs} blobs"]
    lines += [f"made {made} fingerprints, by which sessions are found, from the events"] if made else []
    return [*lines, *lost, *_without_content(writer)]


# ---------------------------------------------------------------- whose row it is


def _keep(row: RawRow, writer: sqlite3.Connection, index: _SalvagedIndex) -> None:
    """Put a row into its table, known by the number and the types of its values; a row that fits none is left out."""
    match row:
        case RawRow(int(seq), (None, str(session), int() | float() as at, int(version), str(kind), str(data))) if (
            seq > 0
        ):
            _keep_event(writer, (seq, session, at, version, kind, data))
        case RawRow(int(number), (None, bytes(digest), int(size), str(codec), bytes(data))) if len(digest) == 32:
            _keep_blob(writer, number, digest, Packed(size, codec, data))
        case RawRow(int(seq), (None, _, _, _, _, _, str())):
            writer.execute(_LOST_EVENT, (seq, *row.values[1:]))
        case RawRow(int(), (None, _, _, _, _, str())):
            writer.execute(_LOST_BLOB, row.values[1:])
        case RawRow(None, (str(), bytes(), str(), int(), int())):
            writer.execute(_MARK, row.values)
        case RawRow(None, (str(session), bytes(head))):
            writer.execute(_HEAD, (session, head))
        case RawRow(None, (str(session), int(seq))):
            index.sessions[seq] = session
        case RawRow(None, (bytes(digest), int())) if len(digest) == 32:
            index.digests.add(digest)


def _keep_event(writer: sqlite3.Connection, row: tuple[int, str, float, int, str, str]) -> None:
    try:
        decode(row[-1].encode(), row[3])
    except StoreCorrupt as error:
        if row[3] <= SCHEMA_VERSION:
            writer.execute(_LOST_EVENT, (*row, str(error)))
            return
    writer.execute(_EVENT, row)


def _keep_blob(writer: sqlite3.Connection, number: int, digest: bytes, packed: Packed) -> None:
    try:
        unpack(digest, packed)
    except StoreCorrupt as error:
        writer.execute(_LOST_BLOB, (digest, *packed, str(error)))
        return
    writer.execute(_BLOB, (number, digest, *packed))


# ---------------------------------------------------------------- what follows from the events


def _fingerprints_of_events(writer: sqlite3.Connection) -> Iterator[tuple[str, bytes, str, int, int]]:
    """The fingerprints that follow from the events, the last place of each."""
    opened: dict[str, SessionOpened] = {}
    places: dict[tuple[str, bytes], tuple[str, int, int]] = {}
    for session, version, data in writer.execute("SELECT session, version, data FROM events ORDER BY seq"):
        with suppress(StoreCorrupt):  # of a newer version
            event = decode(data.encode(), version)
            if isinstance(event, SessionOpened):
                opened[session] = event
            elif session in opened:
                found = _fingerprints_of(event, opened[session])
                places |= {(opened[session].tenant, key): (session, branch, call) for key, branch, call in found}
    return ((*key, *place) for key, place in places.items())


def _fingerprints_of(event: Event, session: SessionOpened) -> Iterator[tuple[bytes, int, int]]:
    named = session.source != "lineage"
    match event:
        case BranchOpened(branch=branch, lane=lane) if named and lane:  # a session of its own, in its parent's
            yield session_key_fingerprint(session.source, lane), branch, 1
        case CallReceived(branch=branch, call=call) if named:
            yield session_key_fingerprint(session.source, session.key), branch, call
        case CallReceived(branch=branch, call=call, lineage=lineage) if lineage:
            yield bytes.fromhex(lineage), branch, call
        case ToolCalled(branch=branch, call=call, call_id=call_id) if call_id and not named:
            yield tool_call_fingerprint(call_id), branch, call
        case AnswerFinished(branch=branch, call=call, answer_id=answer_id) if answer_id and not named:
            yield answer_fingerprint(answer_id), branch, call


# ---------------------------------------------------------------- what is lost


def _missing(writer: sqlite3.Connection, index: _SalvagedIndex) -> list[str]:
    """Note the events that are gone, whose numbers stay taken; a line for each session that the index knows."""
    taken = {seq for (seq,) in writer.execute(_TAKEN)}
    last = max([*taken, *index.sessions], default=0)
    gone = [seq for seq in range(1, last + 1) if seq not in taken]
    rows = [(seq, index.sessions.get(seq), None, None, None, None, _GONE) for seq in gone]
    writer.executemany(_LOST_EVENT, rows)
    found = sorted((index.sessions.get(seq, ""), seq) for seq in gone)
    lost = writer.execute("SELECT seq, session, reason FROM lost_events WHERE reason != ? ORDER BY seq", (_GONE,))
    lines = [f"lost: event {seq} of session {session}: {reason}" for seq, session, reason in lost]
    for session, of_session in groupby(found, key=lambda pair: pair[0]):
        numbers = [seq for _, seq in of_session]
        lines.append(f"lost: {_listed(numbers)} of {f'session {session}' if session else 'unknown sessions'}")
    known = {digest for (digest,) in writer.execute("SELECT digest FROM blobs")}
    absent = len(index.digests - known)
    return [*lines, *([f"lost: {absent} blobs"] if absent else [])]


def _listed(numbers: Sequence[int]) -> str:
    """Numbers in order as spans: events 3, 7 to 9."""
    spans = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        first, *others = [number for _, number in run]
        spans.append(f"{first} to {others[-1]}" if others else str(first))
    return f"event{'s' if len(numbers) > 1 else ''} {', '.join(spans)}"


def _without_content(writer: sqlite3.Connection) -> Iterator[str]:
    """The calls that refer to content which is gone."""
    lost: dict[str, set[str]] = {}
    for session, version, data in writer.execute("SELECT session, version, data FROM events ORDER BY seq"):
        with suppress(StoreCorrupt):  # of a newer version
            event = decode(data.encode(), version)
            digests = [digest_of(reference) for reference in event.blobs()]
            if not all(
                writer.execute("SELECT 1 FROM blobs WHERE digest = ?", (digest,)).fetchone() for digest in digests
            ):
                branch, call = getattr(event, "branch", None), getattr(event, "call", None)
                lost.setdefault(session, set()).add(f"{branch}:{call}" if branch is not None else event.kind)
    for session, calls in lost.items():
        yield f"lost: content of {len(calls)} calls of session {session} (branch:call {', '.join(sorted(calls))})"


# ---------------------------------------------------------------- files


def _set_aside(path: Path) -> Path:
    """Move the damaged file, and its write-ahead log, to a name that is free."""
    number = 1
    while (kept := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    wal = path.with_name(path.name + "-wal")
    if wal.exists():
        wal.rename(kept.with_name(kept.name + "-wal"))
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    return path.rename(kept)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
