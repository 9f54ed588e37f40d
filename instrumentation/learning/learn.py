"""Learns from the log's sessions: which tools and pages are needed, and how long branches last.

Every session is folded to its page tables as they were in the end. A page that outlived its grace was asked for again,
quoted again, or neither. This is compared with how likely a page of its size and age is needed at all: the sums of
both, tool by tool, show which tools are out of the ordinary. Which of the tools that a session was offered it also
called, and how often its pauses ended with a call, is counted for each tenant by itself. Only these sums are kept, and
the lengths of branches: no content.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from pager.errors import PagerError
from pager.log.events import (
    BranchOpened,
    BranchReason,
    CallReceived,
    Learned,
    ToolCalled,
)
from pager.log.store import Batch, Store, Stored
from pager.paging.pages.page import GRACE, Page
from pager.paging.priors import (
    LOG,
    Experience,
    Harness,
    Seen,
    Use,
    cache_of,
    expected,
    family_of_harness,
    newest,
    owner,
)
from pager.paging.warmth.returns import LONGEST, SHORTEST, Pause, Returns, WaitsFor, counted
from pager.sessions.lineage import Session
from pager.sessions.rebuild import Rebuilder
from pager.wire.dialect import Dialect

CACHES = 256
"""Caches, each of a tenant and a model, of whose lifetimes something is kept."""

LONG = 300.0
"""Seconds that a cached prompt must have outlived to teach anything: no provider promises less."""

RESTED = 3_600.0
"""Seconds without an event after which a session is taken to be over."""

OLDEST = 90 * 86_400.0
"""Seconds after which a session teaches nothing any more: programs and habits change."""

SESSIONS = 2_000
"""How many of the newest sessions are looked at."""

QUOTED = 0.6
"""What a page counts that an answer quoted while it was there: of such pages 6 in 10 were needed, on recorded sessions;
what was quoted of the others was elsewhere in the prompt, too. A page that was asked for counts in full."""

HARNESSES = 64
TOOLS = 64
LENGTHS = 512
"""At most so many client programs, tools of each and lengths of its branches are kept; a few kilobytes a program."""

OWNERS = 128
USES = 256
NAMED = 128
"""Of at most so many tenants' programs it is kept which tools they call, of at most so many tools with names of at most
so many letters. Of the sessions that are looked at, a program that is left out has at most 15."""

NOT_COUNTED = frozenset({BranchReason.SIDE})
"""Why branches were opened whose lengths say nothing of how long an agent works: titles, summaries and the like."""

DAMAGED = (PagerError, msgspec.MsgspecError, ValueError, LookupError)
"""What reading a session raises whose log is damaged."""


class Lesson(NamedTuple):
    """What was learned, of how many sessions, from events up to which; ``unread`` says of which it could not be."""

    experience: Experience
    sessions: int
    upto: int
    unread: tuple[str, ...] = ()


def learn(store: Store, load_dialect: Callable[[str], Dialect], now: float, most: int = SESSIONS) -> Lesson:
    """What the newest sessions teach, of those that rest at this time; the same log teaches the same."""
    rebuilder = Rebuilder(load_dialect, store.blob)
    taught = _Lessons()
    counted, upto, unread = 0, 0, []
    for name in _newest(store, now, most):
        try:
            log = list(store.events(name))
            if RESTED <= now - max(row.at for row in log) <= OLDEST:
                session = rebuilder.session(name, log)
                taught.add(session, log)
                counted, upto = counted + 1, max(upto, log[-1].seq)
        except DAMAGED as error:
            unread.append(f"{name}: {error}")
    return Lesson(taught.kept(), counted, upto, tuple(unread))


def keep(store: Store, lesson: Lesson, now: float) -> bool:
    """Write a lesson to the log, for the sessions that begin after this; False if it says nothing new."""
    version, known = lesson.experience.version, newest(store.events(LOG))
    if not version or (known is not None and known.name == version):
        return False
    blobs = {bytes.fromhex(version): lesson.experience.encode()}
    store.append(Batch(LOG, now, [Learned(version, lesson.sessions, lesson.upto)], blobs)).result()
    return True


def _newest(store: Store, now: float, most: int) -> list[str]:
    """The newest sessions, without those that can't have rested, the newest first."""
    opened = store.sessions()[:most]
    return list(dict.fromkeys(row.session for row in opened if row.at <= now - RESTED))


@dataclass(slots=True)
class _Taught:
    """What the sessions of one client program have shown so far: of each page, and of each branch."""

    sessions: int = 0
    results: dict[str, list[Seen]] = field(default_factory=dict)
    arguments: dict[str, list[Seen]] = field(default_factory=dict)
    lengths: list[int] = field(default_factory=list)

    def add(self, session: Session, log: Iterable[Stored]) -> None:
        """Count one more session."""
        self.sessions += 1
        self.lengths += _lengths(session, log)
        for page, age in _pages(session):
            if age > GRACE and page.tool:
                kind = self.arguments if page.is_argument else self.results
                needed = 1.0 if page.faults else QUOTED * page.reused
                kind.setdefault(page.tool, []).append(Seen(needed, expected(page.tokens, age)))

    def kept(self) -> Harness:
        """What is kept of it, the same in whatever order the sessions came."""
        pages = Counter({tool: len(seen) for tool, seen in self.results.items()})
        pages.update({tool: len(seen) for tool, seen in self.arguments.items()})
        tools = sorted(pages, key=lambda tool: (-pages[tool], tool))[:TOOLS]
        return Harness(_summed(self.results, tools), _summed(self.arguments, tools), spread(sorted(self.lengths)))


@dataclass(slots=True)
class _Uses:
    """In how many of one owner's sessions each tool was offered, and in how many of them it was called."""

    sessions: int = 0
    offered: Counter[str] = field(default_factory=Counter)
    called: Counter[str] = field(default_factory=Counter)

    def add(self, session: Session, log: Iterable[Stored]) -> None:
        """Count one more session, in which tools were decided on."""
        offered = {
            one.name for decided in session.pages.toolsets.values() for one in decided.sent if len(one.name) <= NAMED
        }
        self.sessions += 1
        self.offered.update(offered)
        self.called.update(offered & {row.event.tool for row in log if isinstance(row.event, ToolCalled)})

    def kept(self) -> dict[str, Use]:
        """What is kept of it: the tools that are called most, then those that are offered most."""
        order = sorted(self.offered, key=lambda tool: (-self.called[tool], -self.offered[tool], tool))
        return {tool: Use(self.offered[tool], self.called[tool]) for tool in order[:USES]}


@dataclass(slots=True)
class _Rests:
    """The pauses of one owner's sessions that were long enough to let a cache expire."""

    sessions: int = 0
    pauses: list[Pause] = field(default_factory=list)

    def add(self, log: Iterable[Stored]) -> None:
        """Count one more session."""
        self.sessions += 1
        self.pauses += [pause for pause in pauses_in(log) if pause.seconds > SHORTEST]

    def kept(self) -> dict[str, Returns]:
        """What is kept of it: how often the sessions went on, and how often that was expected, by kind of wait."""
        sums = {kind: counted(pause for pause in self.pauses if pause.waits_for is kind) for kind in WaitsFor}
        return {kind.value: Returns(one.seen, round(one.expected, 3)) for kind, one in sums.items() if one.expected}


@dataclass(slots=True)
class _Lessons:
    """What all sessions have shown so far, by their client programs, and by whose these are."""

    harnesses: dict[str, _Taught] = field(default_factory=lambda: defaultdict(_Taught))
    owners: dict[str, _Uses] = field(default_factory=lambda: defaultdict(_Uses))
    rests: dict[str, _Rests] = field(default_factory=lambda: defaultdict(_Rests))
    lifetimes: dict[str, float] = field(default_factory=dict)

    def add(self, session: Session, log: Sequence[Stored]) -> None:
        """Count one more session."""
        for table in session.pages.tables.values():
            cache = cache_of(session.tenant, table.dialect, table.evidence.model)
            if table.evidence.held > self.lifetimes.get(cache, 0.0):
                self.lifetimes[cache] = round(table.evidence.held, 1)
        self.harnesses[family_of_harness(session.harness)].add(session, log)
        self.rests[owner(session.tenant, session.harness)].add(log)
        if session.pages.toolsets:
            self.owners[owner(session.tenant, session.harness)].add(session, log)

    def kept(self) -> Experience:
        """What is kept of the client programs that most sessions are of."""
        harnesses = {name: self.harnesses[name].kept() for name in _largest(self.harnesses, HARNESSES)}
        tools = {name: self.owners[name].kept() for name in _largest(self.owners, OWNERS)}
        rests = {name: self.rests[name].kept() for name in _largest(self.rests, OWNERS)}
        return Experience(
            {name: known for name, known in harnesses.items() if known != Harness()},
            {name: used for name, used in tools.items() if used},
            {name: self.lifetimes[name] for name in sorted(self.lifetimes)[:CACHES] if self.lifetimes[name] >= LONG},
            {name: returns for name, returns in rests.items() if returns},
        )


def _largest(taught: Mapping[str, _Taught] | Mapping[str, _Uses] | Mapping[str, _Rests], most: int) -> list[str]:
    """The names of those with most sessions."""
    return sorted(taught, key=lambda name: (-taught[name].sessions, name))[:most]


def pauses_in(log: Iterable[Stored]) -> list[Pause]:
    """The pauses between the calls of each branch, and the one after the session's last call, which never ended.

    Refreshes are no calls, and side requests no work. A branch that another one took the place of has no last pause:
    nobody waited for it.
    """
    latest: dict[int, tuple[int, float]] = {}  # the latest call of each branch that is work: its number, and when
    called: set[tuple[int, int]] = set()
    pauses: list[Pause] = []
    last = -1
    for row in log:
        match row.event:
            case BranchOpened(branch=branch, reason=reason) if reason not in NOT_COUNTED:
                latest[branch] = (0, row.at)
            case CallReceived(branch=branch, call=call, attempt=1) if branch in latest:
                before, at = latest[branch]
                if before:
                    pauses.append(Pause(row.at - at, _waited_for(called, branch, before)))
                latest[branch], last = (call, row.at), branch
            case ToolCalled(branch=branch, call=call):
                called.add((branch, call))
            case _:
                pass
    if pauses:
        pauses.append(Pause(LONGEST, _waited_for(called, last, latest[last][0]), returned=False))
    return pauses


def _waited_for(called: Collection[tuple[int, int]], branch: int, call: int) -> WaitsFor:
    """What was waited for after a call: its tools, if it called any."""
    return WaitsFor.TOOL if (branch, call) in called else WaitsFor.USER


def _pages(session: Session) -> Iterator[tuple[Page, int]]:
    """Every page with the calls that it was there for; one that branches share counts once, where it stayed longest.

    Copies that were paged in are in hidden legs, as answers to calls that no client ever saw: they are left out.
    """
    longest: dict[tuple[str, str, int], tuple[Page, int]] = {}
    for _, table in sorted(session.pages.tables.items()):
        for slot in table.slots:
            for page in slot.pages:
                age, spot = table.call - page.born, (page.name, page.key, page.born)
                is_clients = slot.item >= 0 or page.call_id in session.issued
                if is_clients and (spot not in longest or age > longest[spot][1]):
                    longest[spot] = (page, age)
    yield from longest.values()


def _lengths(session: Session, log: Iterable[Stored]) -> list[int]:
    """How deep the branches got that had calls enough to be work: what is asked later is how deep such branches get."""
    reasons: dict[int, str] = {}
    calls: dict[int, set[int]] = defaultdict(set)
    for row in log:
        match row.event:
            case BranchOpened(branch=branch, reason=reason):
                reasons[branch] = reason
            case CallReceived(branch=branch, call=call):
                calls[branch].add(call)
            case _:
                pass
    worked = [branch for branch, reason in reasons.items() if reason not in NOT_COUNTED and len(calls[branch]) > 1]
    return [session.branches[branch].call for branch in worked]


def spread(ordered: Sequence[int], most: int = LENGTHS) -> tuple[int, ...]:
    """So many of a sorted list at the most, evenly taken, the first and the last among them."""
    if len(ordered) <= most:
        return tuple(ordered)
    return tuple(ordered[at * (len(ordered) - 1) // (most - 1)] for at in range(most))


def _summed(seen: Mapping[str, Sequence[Seen]], tools: Iterable[str]) -> dict[str, Seen]:
    return {tool: _sum(seen[tool]) for tool in tools if tool in seen}


def _sum(seen: Sequence[Seen]) -> Seen:
    """The sums, the same in any order."""
    needed, usual = math.fsum(one.needed for one in seen), math.fsum(one.expected for one in seen)
    return Seen(round(needed, 3), round(usual, 3))
