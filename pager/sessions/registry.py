"""Keeps the sessions in use hot in memory, and rebuilds one from its log when it is not.

Memory is a cache over the log: whatever is here can be dropped and folded again from events. Nothing here reads a
store; the driver does, and hands over what it read.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice

from pager.log.bypass import WENT_IN_FULL, BypassReason
from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    Bypassed,
    CallReceived,
    Cut,
    LegFinished,
    Marked,
    Repacked,
    SessionOpened,
    Tokens,
    ToolCalled,
    ToolsDecided,
)
from pager.log.store import Place, Stored
from pager.paging.page_table import Items, Table
from pager.paging.page_tables import Tables
from pager.sessions.identity import Key
from pager.sessions.lineage import (
    Branch,
    History,
    Placement,
    Session,
    answer_mark,
    call_mark,
    grows,
    key_mark,
    mark_of,
    shares,
)
from pager.tools.decide import Toolset
from pager.wire.stitching import Leg

IDS_LOOKED_UP = 8  # newest tool call ids by which a history without any known beginning is looked for

NormsOf = Callable[[str, Sequence[bytes]], list[bytes]]


def marks_of_key(key: Key) -> list[bytes]:
    """The marks of the session that the client names, and of the session that it belongs to."""
    return [key_mark(key.source, value) for value in (key.value, key.parent) if value]


def marks_of_ids(past: History) -> list[bytes]:
    """The marks by the ids that a history names: of the answer that it follows, and of its newest tool calls.

    They say where to look, and prove nothing.
    """
    calls = [call_mark(call_id) for call_id in islice(past.call_ids(), IDS_LOOKED_UP)]
    return [answer_mark(past.follows), *calls] if past.follows else calls


def marks_of_call(key: Key | None, past: History, spot: Place) -> dict[bytes, Place]:
    """The marks that lead later calls here."""
    return {past.mark if key is None else key_mark(key.source, key.value): spot}


class Registry:
    """The hot sessions of all tenants, the least recently used dropped first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._owners: dict[tuple[str, bytes], str] = {}
        self._marks: dict[str, list[tuple[str, bytes]]] = {}
        self._recent: dict[tuple[str, bytes], str] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, tenant: str, key: Key | None, past: History) -> Session | None:
        """The hot session that this call continues, else one that its key names or whose history it shares."""
        if key is not None:
            found = next(self._known_by(tenant, marks_of_key(key)), None)
        else:
            recent = self._sessions.get(self._recent.get((tenant, past.root), ""))
            found = recent if recent is not None and grows(recent, past) else self._kin(tenant, past)
        if found is not None:
            self._sessions.move_to_end(found.id)
        return found

    def _kin(self, tenant: str, past: History) -> Session | None:
        """The session that goes on with this history, else the first that shares it."""
        kin: Session | None = None
        for session in self._known_by(tenant, marks_of_ids(past)):
            if grows(session, past):
                return session
            kin = kin or (session if shares(session, past) else None)
        for session in self._known_by(tenant, past.marks()):
            if grows(session, past):
                return session
            kin = kin or session
        return kin

    def _known_by(self, tenant: str, marks: Iterable[bytes]) -> Iterator[Session]:
        """The sessions that these marks lead to, each once."""
        owners = (self._owners.get((tenant, mark)) for mark in marks)
        return (self._sessions[owner] for owner in unique(owner for owner in owners if owner is not None))

    def note(self, session: Session, past: History) -> None:
        """Look here first for the next call that begins like this one."""
        if len(self._recent) > 4 * self._limit:
            self._recent.clear()
        self._recent[session.tenant, past.root] = session.id

    def adopt(self, session: Session, marks: Iterable[bytes]) -> Session:
        """Keep this session hot, known by these marks; one that became hot in the meantime stays instead."""
        kept = self._sessions.setdefault(session.id, session)
        self._sessions.move_to_end(session.id)
        self.claim(kept, marks)
        while len(self._sessions) > self._limit:
            self.drop(next(iter(self._sessions)))
        return kept

    def replaced(self, session: Session) -> bool:
        """Whether another copy of this session is hot, which does not know what this one learns."""
        return self._sessions.get(session.id, session) is not session

    def claim(self, session: Session, marks: Iterable[bytes]) -> None:
        """Let these marks lead to this session."""
        if session.id not in self._sessions:
            return
        owned = [key for mark in marks if self._owners.get(key := (session.tenant, mark)) != session.id]
        self._owners.update(dict.fromkeys(owned, session.id))
        self._marks.setdefault(session.id, []).extend(owned)

    def clear(self) -> None:
        """Forget all sessions, whose log is gone."""
        for session in self._sessions.values():
            session.gone = True
        for owned in (self._sessions, self._owners, self._marks, self._recent):
            owned.clear()

    def drop(self, session: str) -> None:
        """Forget a session; the log still has it."""
        self._sessions.pop(session, None)
        for owned in self._marks.pop(session, ()):
            if self._owners.get(owned) == session:
                del self._owners[owned]


def unique(ids: Iterable[str]) -> Iterator[str]:
    """Each id at its first place."""
    met: set[str] = set()
    for one in ids:
        if one not in met:
            met.add(one)
            yield one


def open_session(tenant: str, key: Key | None, past: History, before: Session | None) -> Session:
    """A new session, whose id follows from what it began with and from the session that began the same way before."""
    name = f"{key.source}\0{key.value}".encode() if key else past.mark
    after = before.id + before.head.hex() if before else ""
    return Session("s_" + sha256(f"{tenant}\0{after}\0".encode() + name).hexdigest()[:16], tenant)


def begins_again(spot: Placement, key: Key | None, past: History, body: str) -> bool:
    """Whether a call without a key starts a new session with the words of an old one, and is no other attempt at it."""
    if key is not None:
        return False
    branch, before = spot.branch, spot.parent
    if spot.opened is not None and before is not None:  # the old one has moved on from its first call since
        return spot.opened.fork_call == 1 and before.lengths.get(1) == len(past.norms)
    return spot.attempt > 1 and branch.call == 1 and branch.finished and branch.body == body


def received(session: Session, placement: Placement, past: History, digests: Sequence[bytes], body: str) -> None:
    """Make this call the latest of its branch."""
    branch = placement.branch
    session.move_tip(branch, past.mark)
    branch.call, branch.attempt, branch.body = placement.call, placement.attempt, body
    branch.raws, branch.norms = list(digests), past.norms
    branch.lengths[branch.call] = len(past.norms)
    branch.finished = False


def fold(session: str, log: Iterable[Stored], norms_of: NormsOf) -> Session:
    """The session as its events left it; ``norms_of`` gives the normalised hashes of messages by dialect and digest."""
    rebuilt = Session(session, "")
    dialects: dict[int, str] = {}
    for row in log:
        match row.event:
            case SessionOpened() as opened:
                rebuilt.tenant, rebuilt.harness = opened.tenant, opened.harness
                rebuilt.arm, rebuilt.learned = opened.arm, opened.learned
            case BranchOpened() as begun:
                dialects[begun.branch] = begun.dialect
                _make_room(rebuilt, max(begun.branch, begun.parent or 0))
                rebuilt.branches[begun.branch] = _branch(begun)
                if begun.parent is not None:
                    rebuilt.branches[begun.branch].inherit(rebuilt.branches[begun.parent])
            case CallReceived() as call:
                _replay(rebuilt, call)
            case ToolCalled(branch=number, call=call_number, call_id=call_id):
                rebuilt.answered(number, call_number, "", [call_id] if call_id else ())
            case AnswerFinished(branch=number, call=call_number, answer_id=answer_id):
                rebuilt.answered(number, call_number, answer_id)
            case _:
                pass
    for branch in rebuilt.branches:
        if branch.number in dialects:
            branch.norms = norms_of(dialects[branch.number], branch.raws)
            rebuilt.move_tip(branch, mark_of(branch.seed, branch.norms))
    return rebuilt


def fold_tables(session: Session, log: Iterable[Stored], norms_of: NormsOf, tables: Tables) -> None:
    """Rebuild the page tables of a session from its events; its branches are those that ``fold`` gave."""
    raws: dict[int, list[bytes]] = {}
    sizes: dict[tuple[int, int], int] = {}
    for row in log:
        match row.event:
            case BranchOpened() as opened:
                open_table(session, opened.branch, opened.parent, opened.dialect, tables, opened.fork_call)
            case CallReceived() as call if call.branch in session.tables:
                kept = raws.get(call.parent_branch, [])[: call.keep] if call.parent_branch is not None else []
                sizes[call.branch, call.call] = call.size
                digests = raws[call.branch] = kept + [bytes.fromhex(digest) for digest in call.messages]
                if digests:
                    items = _logged(call, digests, norms_of(call.dialect, digests), tables)
                    table, around = session.tables[call.branch], around_items(call.cuts)
                    table.advance(call.call, call.attempt, row.at, items, call.size, call.model, around)
            case AnswerFinished(branch=number, usage=usage) as answer if number in session.tables and usage:
                size = 0 if answer.legs else answer.sent_size or sizes.get((number, answer.call), 0)
                learn_usage(session.tables[number], usage, size, answer.call)
            case (Repacked(branch=number) | Marked(branch=number)) as decision if number in session.tables:
                carry_out(session.tables[number], decision)
            case ToolsDecided(branch=number) as decided if number in session.tables:
                decide_tools(session, decided, tables.toolset(decided.decision))
            case LegFinished(branch=number) as leg if number in session.tables:
                keep_leg(session.tables[number], leg, tables.leg(bytes.fromhex(leg.said)))
            case Bypassed(reason=reason, branch=number, detail=detail) if (
                reason in WENT_IN_FULL and number in session.tables
            ):
                sent_in_full(session.tables[number], detail if reason == BypassReason.REFUSED else "")
            case _:
                pass


def around_items(cuts: Iterable[Cut]) -> str:
    """What tells apart what stands around a call's items: the digests of the larger values there."""
    return " ".join(cut.digest for cut in cuts if cut.digest)


def _logged(call: CallReceived, digests: list[bytes], norms: list[bytes], tables: Tables) -> Items:
    return Items(digests, norms, lambda at: tables.item(digests[at]), call.head_marks, call.auto_mark)


def open_table(session: Session, branch: int, parent: int | None, dialect: str, tables: Tables, fork: int = 0) -> None:
    """Give a new branch its page table: a copy of the one that it forks from, else an empty one."""
    before = session.tables.get(parent) if parent is not None else None
    alike = before is not None and before.dialect == dialect
    table = session.tables[branch] = before.copy() if before is not None and alike else tables.make(dialect)
    table.stopped, table.account = "", session.account
    table.tool = table.tool or _tool_of_kin(session, branch)
    for page in table.known.values():  # what the other branch did after the fork did not happen here
        page.used, page.pinned_at = min(page.used, fork), min(page.pinned_at, fork)


def _tool_of_kin(session: Session, branch: int) -> str:
    """The tool that a branch of the same kind has had added: a client that compacts its history keeps its beginning.

    Without the tool, that beginning would be another prompt, which the provider has not cached.
    """
    family = session.branches[branch].family if branch < len(session.branches) else b""
    kin = [number for number, one in enumerate(session.branches) if family and one.family == family]
    tables = [session.tables[number] for number in reversed(kin) if number != branch and number in session.tables]
    return next((table.tool for table in tables if table.tool and not table.stopped), "")


def carry_out(table: Table, decision: Repacked | Marked) -> None:
    """Carry out a logged decision."""
    if isinstance(decision, Repacked):
        repack(table, decision)
    else:
        table.set_marks(ends=decision.ends, anchors=decision.anchors, legs=decision.legs)


def repack(table: Table, repacked: Repacked) -> None:
    """Let the pages of a logged decision go."""
    if repacked.tool:
        table.tool = repacked.tool
        table.held.cut(-1)
    table.evict(repacked.pages)
    table.account.repacks += repacked.price
    table.account.unwritten += 0 if repacked.warm else repacked.saved
    table.evidence.changed()


def decide_tools(session: Session, event: ToolsDecided, decided: Toolset) -> None:
    """Carry out a logged decision on the tools of a branch."""
    table = session.tables[event.branch]
    table.tool = event.tool or table.tool
    changed = decided.shortened or (table.tools is not None and table.tools.shortened)
    table.decide_tools(decided)
    session.toolsets[decided.digest] = decided
    if changed or event.tool:
        table.held.cut(-1)
    if changed and table.call > 1:
        table.evidence.changed()


def learn_usage(table: Table, usage: Tokens, size: int, call: int) -> None:
    """Learn how many tokens the provider found in a call's prompt, of ``size`` bytes if not 0, and in its cache."""
    if usage.input and size:
        table.reported = (usage.input, size)
        table.yardstick.report(call, usage.input, size)
    table.evidence.reported(usage.input, usage.cached_if_told)
    table.evidence.granted_by(usage.written_5m, usage.written_1h)


def sent_in_full(table: Table, stopped: str = "") -> None:
    """A call went out as the client had sent it; ``stopped`` says why paging ends with it, if it does."""
    table.stopped = stopped or table.stopped
    table.evidence.sent_apart()


def keep_leg(table: Table, finished: LegFinished, leg: Leg) -> None:
    """Keep a logged leg in the prompt."""
    table.keep_leg(finished.call, finished.attempt, leg, finished.pages)
    if finished.usage is not None:
        table.evidence.reported(finished.usage.input, finished.usage.cached_if_told)
        table.evidence.granted_by(finished.usage.written_5m, finished.usage.written_1h)


def _make_room(session: Session, number: int) -> None:
    """Have a branch with this number; one whose opening was lost from the log is there, and is never continued."""
    while len(session.branches) <= number:
        session.branches.append(Branch(len(session.branches), "", b"", b""))


def _branch(opened: BranchOpened) -> Branch:
    seed, family, kin = (bytes.fromhex(told) for told in (opened.seed, opened.family, opened.kin))
    return Branch(opened.branch, opened.lane, seed, family, kin, opened.head, call=opened.fork_call)


def _replay(session: Session, call: CallReceived) -> None:
    _make_room(session, max(call.branch, call.parent_branch or 0))
    branch = session.branches[call.branch]
    kept = session.branches[call.parent_branch].raws[: call.keep] if call.parent_branch is not None else []
    branch.raws = kept + [bytes.fromhex(digest) for digest in call.messages]
    branch.call, branch.attempt, branch.body = call.call, call.attempt, call.body
    branch.lengths[call.call] = len(branch.raws)
    branch.finished = False
