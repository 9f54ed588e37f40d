"""Rebuilds sessions from their events: the branches of a session, and the page tables of its branches.

The proxy does it for a session that is not in memory, everything else to look at a call as it was then. Nothing here
reads a store: the events are handed in, and ``fetch`` gives the content that they refer to.
"""

from collections.abc import Callable, Iterable, Sequence

from pager.log.body_delta import around_items, digests_of
from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    CallReceived,
    CreditLent,
    Event,
    LegFinished,
    SessionOpened,
    ToolCalled,
    ToolsDecided,
)
from pager.log.store import Stored
from pager.paging.credit import SessionMoney
from pager.paging.pages.page import Items
from pager.paging.pages.session_pages import TableSource
from pager.sessions.lineage import Branch, Session, fingerprint_of
from pager.sessions.message_cache import MessageCache
from pager.wire.dialect import Dialect


class Rebuilder:
    """Rebuilds sessions; a message that several of them have is decoded once."""

    def __init__(
        self,
        load_dialect: Callable[[str], Dialect],
        fetch: Callable[[bytes], bytes | None],
        messages: MessageCache | None = None,
    ) -> None:
        self.tables = TableSource(load_dialect, fetch)
        self._load_dialect = load_dialect
        self._messages = messages or MessageCache()

    def session(self, name: str, log: Sequence[Stored]) -> Session:
        """The session after these events, with its page tables."""
        session = self.branches(name, log)
        self.add_tables(session, log)
        return session

    def branches(self, name: str, log: Iterable[Stored]) -> Session:
        """The session after these events, without page tables."""
        session, dialects = Session(name, ""), dict[int, str]()
        for row in log:
            match row.event:
                case SessionOpened() as opened:
                    session.tenant, session.harness = opened.tenant, opened.harness
                    session.arm, session.learned = opened.arm, opened.learned
                case BranchOpened() as begun:
                    dialects[begun.branch] = begun.dialect
                    _make_room(session, max(begun.branch, begun.parent or 0))
                    session.branches[begun.branch] = _branch(begun)
                    if begun.parent is not None:
                        session.branches[begun.branch].inherit(session.branches[begun.parent])
                case CallReceived() as call:
                    _receive(session, call)
                case ToolCalled(branch=number, call=call_number, call_id=call_id):
                    session.answered(number, call_number, "", [call_id] if call_id else ())
                case AnswerFinished(branch=number, call=call_number, answer_id=answer_id):
                    session.answered(number, call_number, answer_id)
                case _:
                    pass
        for branch in session.branches:
            if branch.number in dialects:
                branch.norms = self._norms(dialects[branch.number], branch.raws)
                session.move_tip(branch, fingerprint_of(branch.seed, branch.norms))
        return session

    def add_tables(self, session: Session, log: Iterable[Stored]) -> None:
        """Rebuild the page tables of a session that has all its branches, one event after the other."""
        digests: dict[int, list[bytes]] = {}
        sizes: dict[tuple[int, int], int] = {}
        for row in log:
            match row.event:
                case BranchOpened() as opened:
                    session.pages.open(opened, self.tables)
                case CallReceived() as call if call.branch in session.pages.tables:
                    parent = digests.get(call.parent_branch, []) if call.parent_branch is not None else []
                    digests[call.branch] = digests_of(call, parent)
                    sizes[call.branch, call.call] = call.size
                    if digests[call.branch]:
                        items, around = self._items(call, digests[call.branch]), around_items(call.cuts)
                        table = session.pages.tables[call.branch]
                        table.advance(call.call, call.attempt, row.at, items, call.size, call.model, around)
                        if call.totals:
                            session.pages.take_totals(SessionMoney(*call.totals))
                case AnswerFinished(branch=number, usage=usage) as answer if number in session.pages.tables and usage:
                    size = 0 if answer.legs else answer.sent_size or sizes.get((number, answer.call), 0)
                    session.pages.tables[number].learn_usage(usage, size, answer.call)
                case CreditLent() as lent:
                    session.pages.lend(lent)
                case event:
                    self._apply(session, event)

    def _apply(self, session: Session, event: Event) -> None:
        table = session.pages.tables.get(getattr(event, "branch", -1))
        if table is None:
            return
        match event:
            case ToolsDecided():
                session.pages.decide_tools(event, self.tables.toolset(event.decision))
            case LegFinished():
                table.apply(event, self.tables.leg(bytes.fromhex(event.said)))
            case _:
                table.apply(event)

    def _items(self, call: CallReceived, digests: list[bytes]) -> Items:
        norms = self._norms(call.dialect, digests)
        return Items(digests, norms, lambda at: self.tables.item(digests[at]), call.head_marks, call.auto_mark)

    def _norms(self, dialect: str, digests: Sequence[bytes]) -> list[bytes]:
        return self._messages.norms(self._load_dialect(dialect), digests, self.tables.item)


def _make_room(session: Session, number: int) -> None:
    """Have a branch with this number; one whose opening was lost from the log is never continued."""
    while len(session.branches) <= number:
        session.branches.append(Branch(len(session.branches), "", b"", b""))


def _branch(opened: BranchOpened) -> Branch:
    seed, family, kin = (bytes.fromhex(digest) for digest in (opened.seed, opened.family, opened.kin))
    return Branch(opened.branch, opened.lane, seed, family, kin, opened.head, call=opened.fork_call)


def _receive(session: Session, call: CallReceived) -> None:
    _make_room(session, max(call.branch, call.parent_branch or 0))
    parent = session.branches[call.parent_branch].raws if call.parent_branch is not None else []
    raws = digests_of(call, parent)
    session.branches[call.branch].receive(call.call, call.attempt, call.body, raws, len(raws))
