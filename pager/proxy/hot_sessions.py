"""Finds the session that a call belongs to, in memory or in the log, and gives the call its place in it.

A session is claimed from the moment a call has its place until its record is on its way to the log: that is the
critical section of the proxy. Other calls of the session wait; other sessions go on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice

from pager.errors import StoreCorrupt
from pager.log.body_delta import Recipe, take_apart
from pager.log.store import Store
from pager.paging.pager import Pager
from pager.proxy.fail_open import FailOpen
from pager.proxy.log_records import Arrival, CallHistory, Incoming, PlacedCall, fingerprints_of_answer, harness_of
from pager.request_values import Answer, Request
from pager.sessions import registry
from pager.sessions.identity import Key, session_key
from pager.sessions.lineage import (
    History,
    Placement,
    Session,
    continued,
    grows,
    history,
    place,
    receive,
    shared_messages,
    shares,
)
from pager.sessions.message_cache import MessageCache
from pager.sessions.rebuild import Rebuilder
from pager.wire.dialect import Dialect

HEAVY_MESSAGES = 1_000  # from here on a request is read and planned in a thread
HEAVY_BYTES = 2 << 20
HEAVY_TOOLS = 256 << 10  # bytes outside of the messages; new tools take a second for each MiB
CANDIDATES = 2  # sessions read from the store because a history names ids of theirs, which prove nothing


def is_heavy(request: Request) -> bool:
    """Whether work on a request may take so long that other calls would notice."""
    many, large = len(request.digests) > HEAVY_MESSAGES, len(request.body) > HEAVY_BYTES
    return many or large or request.outside > HEAVY_TOOLS


class HotSessions:
    """The sessions in memory, and the way to those in the log."""

    def __init__(
        self,
        store: Store,
        load_dialect: Callable[[str], Dialect],
        limit: int,
        pager: Pager | None = None,
        fail_open: FailOpen | None = None,
    ) -> None:
        self._store = store
        self._pager = pager
        self._fail_open = fail_open or FailOpen()
        self._messages = MessageCache()
        self._rebuilder = Rebuilder(load_dialect, store.blob, self._messages)
        if pager is not None:
            pager.tables = self._rebuilder.tables
        self._claims: dict[str, asyncio.Event | None] = {}  # an event where a call waits for the end of the claim
        self._rebuilding: dict[str, asyncio.Future[Session]] = {}
        self.registry = registry.Registry(limit)

    def __len__(self) -> int:
        return len(self.registry)

    async def history(self, incoming: Incoming) -> CallHistory:
        """The history in a request; only messages that were not seen before are decoded."""
        request = incoming.request
        read = partial(self._messages.read, incoming.dialect, request)
        messages, fresh = await asyncio.to_thread(read) if is_heavy(request) else read()
        key = session_key(incoming.headers, request.session_hints)
        return CallHistory(key, history(request, messages, key), fresh)

    @asynccontextmanager
    async def placed(self, incoming: Incoming, lineage: CallHistory) -> AsyncIterator[Arrival]:
        """A call with its place in a session, which stays claimed until the end of the block.

        The call's record must be on its way to the log by then. Where the block fails, memory is ahead of the log, and
        the session is dropped.
        """
        found = await self._find(incoming.tenant, lineage)
        arrival = self._place(incoming, lineage, found)
        with self._claim(arrival.call.session):
            yield arrival

    @asynccontextmanager
    async def claimed(self, session: Session) -> AsyncIterator[None]:
        """Claim this session, once no other call has a claim on it."""
        await self._released(session)
        with self._claim(session):
            yield

    @contextmanager
    def _claim(self, session: Session) -> Iterator[None]:
        self._claims[session.id] = None
        try:
            yield
        except BaseException:
            self.registry.drop(session.id)
            raise
        finally:
            waiting = self._claims.pop(session.id)
            if waiting is not None:
                waiting.set()

    async def _released(self, session: Session) -> None:
        while self.is_claimed(session.id):
            waiting = self._claims[session.id] = self._claims[session.id] or asyncio.Event()
            await waiting.wait()

    def is_claimed(self, session: str) -> bool:
        """Whether a call of this session is between its place and the log."""
        return session in self._claims

    async def preview(self, incoming: Incoming, lineage: CallHistory) -> tuple[Session, Placement] | None:
        """The place that a request would have as a call, in a copy of its session; None if its branch has no table."""
        past, session = lineage.past, await self._find(incoming.tenant, lineage)
        if session is None:  # as the first call of a session would be
            session = self._opened(incoming, lineage, None)
            return session, place(session, past)
        branch = continued(session, past)
        if branch is None or branch.number not in session.pages.tables:
            return None
        copied = replace(session, pages=session.pages.copy_of(branch.number))
        return copied, Placement(branch, branch.call + 1, 1)

    async def _find(self, tenant: str, lineage: CallHistory) -> Session | None:
        """The session of a call, once no other call has a claim on it; None where the call begins a session."""
        key, past = lineage.key, lineage.past
        session = self.registry.find(tenant, key, past)
        if session is None:
            await self._load(tenant, key, past)
            session = self.registry.find(tenant, key, past)
        while session is not None and self.is_claimed(session.id):
            await self._released(session)
            session = self.registry.find(tenant, key, past)
        return session

    def _place(self, incoming: Incoming, lineage: CallHistory, found: Session | None) -> Arrival:
        """Make a call the latest of its branch; nothing is awaited here, so that calls are numbered one by one."""
        key, past, _ = lineage
        session = found or self._opened(incoming, lineage, None)
        placement = place(session, past)
        recipe, blobs = _take_apart(incoming.request, placement)
        if registry.begins_again(placement, key, past, recipe.body):
            found, session = None, self._opened(incoming, lineage, session)
            placement = place(session, past)
            recipe, blobs = _take_apart(incoming.request, placement)
        raws = list(incoming.request.digests) if incoming.request.separator is not None else []
        receive(session, placement, past, raws, recipe.body)
        call = PlacedCall(session, placement, incoming, lineage, recipe)
        fingerprints = registry.fingerprints_of_call(key, past, call.spot)
        self.registry.adopt(session, fingerprints)
        self.registry.note(session, past)
        return Arrival(call, blobs, fingerprints, opened=found is None)

    def _opened(self, incoming: Incoming, lineage: CallHistory, before: Session | None) -> Session:
        """A new session, under the policy and with what was learned so far."""
        session = registry.open_session(incoming.tenant, lineage.key, lineage.past, before)
        session.harness = harness_of(incoming)
        if self._pager is not None:
            session.arm, session.learned = self._pager.settle(session.id)
        return session

    def answered(self, call: PlacedCall, answer: Answer) -> None:
        """Know an answer from now on, before it is in the log: the next call may come at once."""
        placement = call.placement
        ids = [use.call_id for use in answer.calls if use.call_id]
        call.session.answered(placement.branch.number, placement.call, answer.id, ids)
        self.registry.claim(call.session, fingerprints_of_answer(call, answer))

    async def _load(self, tenant: str, key: Key | None, past: History) -> None:
        """Make the session of a call hot, by its key or by the messages that it repeats, if the store has it."""
        if key is None:
            owners = await self._owners(tenant, registry.fingerprints_of_ids(past))
            for owner, fingerprint in islice(owners, CANDIDATES):
                with suppress(StoreCorrupt):  # it may be anybody's
                    session = await self._rebuilt(owner)
                    if grows(session, past) or shares(session, past):
                        self.registry.adopt(session, [fingerprint])
                        if grows(session, past):
                            return
        fingerprints = list(past.fingerprints()) if key is None else registry.fingerprints_of_key(key)
        for owner, fingerprint in islice(await self._owners(tenant, fingerprints), 1):
            self.registry.adopt(await self._rebuilt(owner), [fingerprint])

    async def _owners(self, tenant: str, fingerprints: Sequence[bytes]) -> list[tuple[str, bytes]]:
        """The sessions that own these fingerprints, each with the first that leads to it."""
        places = await asyncio.to_thread(self._store.find, tenant, fingerprints) if fingerprints else {}
        owners = {places[key].session: key for key in reversed(fingerprints) if key in places}
        return list(reversed(owners.items()))

    async def _rebuilt(self, session: str) -> Session:
        """A session from its log, read in a thread once for all calls that wait for it."""
        reading = self._rebuilding.get(session)
        if reading is None:
            reading = self._rebuilding[session] = asyncio.ensure_future(asyncio.to_thread(self._rebuild, session))
            reading.add_done_callback(lambda _: self._rebuilding.pop(session, None))
        return await asyncio.shield(reading)  # a call that is cancelled must not end it for the others

    def _rebuild(self, session: str) -> Session:
        head = self._store.head(session)  # first: what comes in while we read makes the next append a conflict
        log = list(self._store.events(session))
        rebuilt = self._rebuilder.branches(session, log)
        rebuilt.head = head
        if self._pager is not None:
            with self._fail_open(partial(stop_paging, rebuilt)):
                self._pager.experience(rebuilt.learned)  # read here, where no call waits for it
                self._rebuilder.add_tables(rebuilt, log)
        return rebuilt


def stop_paging(session: Session, error: Exception) -> None:
    """Have a session go on without paging, until it is rebuilt: its page tables can't be trusted."""
    session.unpaged = f"{type(error).__name__}: {error}"


def _take_apart(request: Request, placement: Placement) -> tuple[Recipe, dict[bytes, bytes]]:
    keep = shared_messages(placement.parent, request.digests) if placement.parent else 0
    return take_apart(request, keep)
