"""Keeps the log in memory, for tests and for runs that should leave nothing behind."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from hashlib import sha256
from typing import ClassVar, NamedTuple, Self

from pager.errors import StoreConflict, StoreCorrupt, StoreError
from pager.log.blob_codec import digest_of
from pager.log.events import SessionOpened, decode, encode
from pager.log.store import Batch, Check, Place, Stored, conflict, moved_head
from pager.log.stores import Backend


class _Row(NamedTuple):
    """An event in the bytes that any other store would keep, so that what is read here is what is read there."""

    session: str
    at: float
    kind: str
    data: bytes


class Store(Backend):
    """A log that ends with its process."""

    durable: ClassVar[bool] = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: list[_Row] = []
        self._blobs: dict[bytes, bytes] = {}
        self._fingerprints: dict[tuple[str, bytes], Place] = {}
        self._heads: dict[str, bytes] = {}
        self._open = True

    @classmethod
    def open(cls, address: str, *, read_only: bool = False) -> Self:  # noqa: ARG003 - there is one way to open it
        """An empty log."""
        return cls()

    @classmethod
    def exists(cls, address: str) -> bool:  # noqa: ARG003
        """Yes: an empty one."""
        return True

    def append(self, batch: Batch) -> Future[int]:
        """Append a batch; the future is done when this returns."""
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()
        try:
            rows = [_Row(batch.session, batch.at, event.kind, encode(event)) for event in batch.events]
            future.set_result(self._add(rows, batch))
        except StoreError as error:
            future.set_exception(error)
        return future

    def events(self, session: str | None = None, after: int = 0) -> Iterator[Stored]:
        """The events of one session, or of all, in order, with a sequence number above ``after``."""
        self._expect_open()
        # Rows are only ever added, so walking by position needs no lock and sees what comes in meanwhile.
        start = max(after, 0)
        while start < len(self._rows):
            row = self._rows[start]
            start += 1
            if session is None or row.session == session:
                yield _stored(start, row)

    def sessions(self) -> list[Stored]:
        """How each session began, the newest first."""
        self._expect_open()
        rows = [(seq, row) for seq, row in enumerate(self._rows, 1) if row.kind == SessionOpened.__name__]
        first = {row.session: _stored(seq, row) for seq, row in reversed(rows)}
        return sorted(first.values(), key=lambda row: -row.seq)

    def recent(self, kind: str, limit: int) -> list[Stored]:
        """The newest events of one kind, newest first."""
        self._expect_open()
        found: list[Stored] = []
        for position in range(len(self._rows), 0, -1):
            if len(found) >= limit:
                break
            if self._rows[position - 1].kind == kind:
                found.append(_stored(position, self._rows[position - 1]))
        return found

    def head(self, session: str) -> bytes:
        """The hash over the session's calls so far, empty before the first."""
        self._expect_open()
        return self._heads.get(session, b"")

    def blob(self, digest: bytes) -> bytes | None:
        """The content with this digest, or None; raises StoreCorrupt if it is not what was stored."""
        self._expect_open()
        content = self._blobs.get(digest)
        if content is not None and not _fits(digest, content):
            raise StoreCorrupt(_wrong(digest))
        return content

    def find(self, tenant: str, fingerprints: Sequence[bytes]) -> dict[bytes, Place]:
        """The places that own these fingerprints in this tenant; unknown ones are left out."""
        self._expect_open()
        with self._lock:
            known = self._fingerprints
            return {key: known[tenant, key] for key in fingerprints if (tenant, key) in known}

    def present(self) -> bool:
        """Nobody can take it away."""
        return True

    def check(self, *, repair: bool = False) -> Check:
        """Verify every digest and reference; with ``repair`` forget the blobs that are not what they claim."""
        self._expect_open()
        with self._lock:
            wrong = {digest: _wrong(digest) for digest, content in self._blobs.items() if not _fits(digest, content)}
            for digest in wrong if repair else ():
                del self._blobs[digest]
            lines = tuple(wrong.values())
            problems = (*(() if repair else lines), *self._dangling())
            return Check(len(self._rows), len(self._blobs), problems, lines if repair else ())

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._open = False
            self._rows, self._blobs, self._fingerprints = [], {}, {}

    def _add(self, rows: list[_Row], batch: Batch) -> int:
        with self._lock:
            self._expect_open()
            if batch.after is not None:
                if self._heads.get(batch.session, b"") != batch.after:
                    raise StoreConflict(conflict(batch.session))
                self._heads[batch.session] = batch.head
            if batch.moves:
                self._heads[batch.session] = moved_head(self._heads.get(batch.session, b""), batch.moves)
            for digest, content in batch.blobs.items():
                self._blobs.setdefault(digest, bytes(content))
            self._fingerprints.update({(batch.tenant, key): place for key, place in batch.fingerprints.items()})
            self._rows.extend(rows)
            return len(self._rows)

    def _dangling(self) -> list[str]:
        return [
            f"event {seq} ({row.kind}) refers to blob {reference}, which is missing"
            for seq, row in enumerate(self._rows, 1)
            for reference in decode(row.data).blobs()
            if digest_of(reference) not in self._blobs
        ]

    def _expect_open(self) -> None:
        if not self._open:
            raise StoreError("the log is closed")


def _stored(seq: int, row: _Row) -> Stored:
    return Stored(seq, row.session, row.at, decode(row.data))


def _fits(digest: bytes, content: bytes) -> bool:
    return sha256(content).digest() == digest


def _wrong(digest: bytes) -> str:
    return f"blob {digest.hex()}: the stored content has another digest"
