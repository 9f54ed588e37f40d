"""Keeps the sessions in use in memory: a cache over the log, from which a dropped session is rebuilt."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import islice

from pager.log.store import Place, answer_fingerprint, session_key_fingerprint, tool_call_fingerprint
from pager.sessions.identity import Key
from pager.sessions.lineage import History, Placement, Session, grows, shares

IDS_LOOKED_UP = 8  # newest tool call ids by which a history without any known beginning is looked for


def fingerprints_of_key(key: Key) -> list[bytes]:
    """The fingerprints of the session that the client names, and of the session that it belongs to."""
    return [session_key_fingerprint(key.source, value) for value in (key.value, key.parent) if value]


def fingerprints_of_ids(past: History) -> list[bytes]:
    """The fingerprints by the ids that a history names: of the answer that it follows, and of its newest tool calls.

    They say where to look, and prove nothing.
    """
    calls = [tool_call_fingerprint(call_id) for call_id in islice(past.call_ids(), IDS_LOOKED_UP)]
    return [answer_fingerprint(past.follows), *calls] if past.follows else calls


def fingerprints_of_call(key: Key | None, past: History, spot: Place) -> dict[bytes, Place]:
    """The fingerprints that lead later calls here."""
    return {past.fingerprint if key is None else session_key_fingerprint(key.source, key.value): spot}


class Registry:
    """The hot sessions of all tenants, the least recently used dropped first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._owners: dict[tuple[str, bytes], str] = {}
        self._fingerprints: dict[str, list[tuple[str, bytes]]] = {}
        self._recent: dict[tuple[str, bytes], str] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session: str) -> Session | None:
        """The hot session of this id; None if it is not hot."""
        return self._sessions.get(session)

    def find(self, tenant: str, key: Key | None, past: History) -> Session | None:
        """The hot session that a call continues, or its key names, or whose history it shares; None if none is hot."""
        if key is not None:
            found = next(self._known_by(tenant, fingerprints_of_key(key)), None)
        else:
            recent = self._sessions.get(self._recent.get((tenant, past.root), ""))
            found = recent if recent is not None and grows(recent, past) else self._kin(tenant, past)
        if found is not None:
            self._sessions.move_to_end(found.id)
        return found

    def _kin(self, tenant: str, past: History) -> Session | None:
        """The hot session that this history continues, else the first that shares it; None if none does."""
        kin: Session | None = None
        for session in self._known_by(tenant, fingerprints_of_ids(past)):
            if grows(session, past):
                return session
            kin = kin or (session if shares(session, past) else None)
        for session in self._known_by(tenant, past.fingerprints()):
            if grows(session, past):
                return session
            kin = kin or session
        return kin

    def _known_by(self, tenant: str, fingerprints: Iterable[bytes]) -> Iterator[Session]:
        """The sessions that these fingerprints lead to, each once."""
        met: set[str] = set()
        for fingerprint in fingerprints:
            owner = self._owners.get((tenant, fingerprint))
            if owner is not None and owner not in met:
                met.add(owner)
                yield self._sessions[owner]

    def note(self, session: Session, past: History) -> None:
        """Look here first for the next call that begins like this one."""
        if len(self._recent) > 4 * self._limit:
            self._recent.clear()
        self._recent[session.tenant, past.root] = session.id

    def adopt(self, session: Session, fingerprints: Iterable[bytes]) -> Session:
        """Keep this session hot under these fingerprints, or the copy that is hot already; the copy that is kept."""
        kept = self._sessions.setdefault(session.id, session)
        self._sessions.move_to_end(session.id)
        self.claim(kept, fingerprints)
        while len(self._sessions) > self._limit:
            self.drop(next(iter(self._sessions)))
        return kept

    def replaced(self, session: Session) -> bool:
        """Whether another copy of this session is hot, which does not know what this one learns."""
        return self._sessions.get(session.id, session) is not session

    def claim(self, session: Session, fingerprints: Iterable[bytes]) -> None:
        """Let these fingerprints lead to this session."""
        if session.id not in self._sessions:
            return
        keys = [(session.tenant, fingerprint) for fingerprint in fingerprints]
        owned = [key for key in keys if self._owners.get(key) != session.id]
        self._owners.update(dict.fromkeys(owned, session.id))
        self._fingerprints.setdefault(session.id, []).extend(owned)

    def clear(self) -> None:
        """Forget all sessions, whose log is gone."""
        for session in self._sessions.values():
            session.gone = True
        for owned in (self._sessions, self._owners, self._fingerprints, self._recent):
            owned.clear()

    def drop(self, session: str) -> None:
        """Forget a session; the log still has it."""
        self._sessions.pop(session, None)
        for owned in self._fingerprints.pop(session, ()):
            if self._owners.get(owned) == session:
                del self._owners[owned]


def open_session(tenant: str, key: Key | None, past: History, before: Session | None) -> Session:
    """A new session, whose id follows from what it began with and from the session that began the same way before."""
    name = f"{key.source}\0{key.value}".encode() if key else past.fingerprint
    after = before.id + before.head.hex() if before else ""
    return Session("s_" + sha256(f"{tenant}\0{after}\0".encode() + name).hexdigest()[:16], tenant)


def begins_again(spot: Placement, key: Key | None, past: History, body: str) -> bool:
    """Whether a call without a key begins a new session with an old session's words, and is no attempt at its call."""
    if key is not None:
        return False
    branch, before = spot.branch, spot.parent
    if spot.opened is not None and before is not None:  # the old one has moved on from its first call since
        return spot.opened.fork_call == 1 and before.lengths.get(1) == len(past.norms)
    return spot.attempt > 1 and branch.call == 1 and branch.finished and branch.body == body
