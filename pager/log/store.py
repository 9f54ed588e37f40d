"""What every store must do: keep events and blobs durably, in order, and give them back.

A store is one folder in ``pager/log/stores``, which is found by its name. Content is kept apart from events: a blob is
known by its SHA-256 and stored once.

A fingerprint is a hash by which a later call finds this one, also after a restart or on another instance: of its
history (``pager.sessions.lineage``), of a tool call that it issued, of its answer, or of the client's name for the
session. It is kept with the place in the log that last claimed it, inside one tenant.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, Protocol

from pager.log.events import Event


class Place(NamedTuple):
    """A call's place in the log."""

    session: str
    branch: int
    call: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What is appended in one step: all of it becomes durable, or none.

    ``blobs`` maps a SHA-256 digest to the content it is of. ``fingerprints`` map each to the place that now owns it.
    What is not ``urgent`` may wait a few milliseconds to be written together with what comes next.

    A batch with a call in it has in ``after`` the hash over all calls of its session that it builds on, and in ``head``
    that hash with its own call. Where the log has another hash, nothing of the batch is written and the future raises
    StoreConflict. So calls that race, in one process or several, are settled: the second reads the session again. What
    is decided of a call later ``moves`` the hash on, whatever it is (``moved_head``): a call that does not know of the
    decision conflicts in the same way.
    """

    session: str
    at: float
    events: Sequence[Event] = ()
    blobs: Mapping[bytes, bytes] = field(default_factory=dict)
    tenant: str = ""
    fingerprints: Mapping[bytes, Place] = field(default_factory=dict)
    urgent: bool = True
    after: bytes | None = None
    head: bytes = b""
    moves: bytes = b""


class Stored(NamedTuple):
    """An event in the log."""

    seq: int
    session: str
    at: float
    event: Event


@dataclass(frozen=True, slots=True)
class Check:
    """What a self-check found, and what it mended."""

    events: int
    blobs: int
    problems: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()


class Store(Protocol):
    """A durable, append-only log with its content beside it."""

    def append(self, batch: Batch) -> Future[int]:
        """Append a batch; the future gives its last sequence number once it is durable, or raises StoreError."""

    def events(self, session: str | None = None, after: int = 0) -> Iterator[Stored]:
        """The events of one session, or of all, in order, with a sequence number above ``after``."""

    def sessions(self) -> list[Stored]:
        """The SessionOpened event of each session, the newest first."""

    def recent(self, kind: str, limit: int) -> list[Stored]:
        """The newest events of one kind, newest first."""

    def head(self, session: str) -> bytes:
        """The hash over the session's calls: the ``head`` of the last batch that had one, empty before the first."""

    def blob(self, digest: bytes) -> bytes | None:
        """The content with this digest, or None; raises StoreCorrupt if it is not what was stored."""

    def find(self, tenant: str, fingerprints: Sequence[bytes]) -> dict[bytes, Place]:
        """The places that own these fingerprints in this tenant; unknown ones are left out."""

    def present(self) -> bool:
        """Whether what was written is still there; where it is not, the next append raises StoreReplaced."""

    def check(self, *, repair: bool = False) -> Check:
        """Verify every digest and reference; with ``repair`` mend what can be mended."""

    def close(self) -> None:
        """Finish what was appended, then release the store."""


def moved_head(head: bytes, by: bytes) -> bytes:
    """The hash over a session's calls after something that is no call."""
    return sha256(head + by).digest()[:16]


def conflict(session: str) -> str:
    """The message of a StoreConflict."""
    return f"session {session} went on without this call: another one was logged first, or one before it was not"


def tool_call_fingerprint(call_id: str) -> bytes:
    """The fingerprint under which the call that issued a tool call is found."""
    return sha256(b"call\0" + call_id.encode()).digest()


def answer_fingerprint(answer_id: str) -> bytes:
    """The fingerprint under which the call with this answer is found."""
    return sha256(b"answer\0" + answer_id.encode()).digest()


def session_key_fingerprint(source: str, value: str) -> bytes:
    """The fingerprint under which a session that the client named is found."""
    return sha256(f"key\0{source}\0{value}".encode()).digest()
