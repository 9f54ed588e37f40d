"""Tells the story of a session of the log: each answered call as the client sent it, as it went upstream, and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from instrumentation.accounting.billing import Prompt
from instrumentation.accounting.cache_misses import (
    CachedRequest,
    CacheMiss,
    CacheMisses,
    MissReason,
    as_read,
    as_written,
    left_cached,
)
from instrumentation.accounting.call_addresses import meant
from instrumentation.accounting.ledger.call_facts import (
    AttemptFacts,
    SessionFacts,
    facts,
    together,
)
from instrumentation.accounting.ledger.client import Client, clients
from instrumentation.accounting.ledger.money import (
    Bills,
    Rates,
    WeighedCall,
    inflicted,
    unpaged,
    weigh,
)
from instrumentation.accounting.ledger.sent_parts import sent_parts, shortened
from instrumentation.accounting.ledger.tables_as_sent import watch
from instrumentation.accounting.story import (
    NEVER_COLD,
    NOT_KEPT_WARM,
    CallStory,
    KeptWarm,
    Missed,
    MissStory,
    PageStory,
    Story,
    StoryParts,
)
from instrumentation.replay import recording_from_log
from instrumentation.replay.paged_prompts import PagedPrompts, followed_by
from instrumentation.replay.recording import RecordedCall, Recording
from pager.log.store import Store, Stored
from pager.paging.pages.page_table import PageTable, Slot
from pager.pricing.rates import Models
from pager.request_values import CallAddress, Usage
from pager.sessions.rebuild import Rebuilder
from pager.wire.dialect import Dialect

LoadDialect = Callable[[str], Dialect]


def story(
    store: Store, session: str, models: Models, load_dialect: LoadDialect, *, with_content: bool = False
) -> Story:
    """The story of a session, as a user names it; with the text of its pages only if that is asked for.

    Raises ConfigError where there is no such session, and StoreCorrupt where its log can't be read.
    """
    name = meant(store, session)
    teller, _ = _told(store, name, models, load_dialect, with_content=with_content)
    found = teller.facts
    calls = [teller.calls[where] for where in found.answered]
    pages = [teller.page(page) for client in teller.clients for page in client.stories()]
    return Story(name, found.harness, calls, pages, found.key, found.policy, found.failed)


def recordings(store: Store, name: str, models: Models, load_dialect: LoadDialect) -> list[Recording]:
    """A session of the log to be played, with what its calls would have been counted as unpaged; raises StoreCorrupt.

    CallAddress all calls went out as they came, and were counted, that is what was reported.
    """
    loaded = recording_from_log.load(store, name, load_dialect)
    if all(_is_counted(step) or not step.answered for one in loaded for step in one.steps):
        return loaded
    teller, loaded = _told(store, name, models, load_dialect)
    unpaged = {
        (client.prepared.recording.dialect, at): teller.unpaged.get(where)
        for client in teller.clients
        for where, at in client.steps.items()
    }
    return [
        replace(
            one,
            steps=[
                step if _is_counted(step) else step._replace(unpaged=unpaged.get((one.dialect, at)))
                for at, step in enumerate(one.steps)
            ],
        )
        for one in loaded
    ]


def _is_counted(step: RecordedCall) -> bool:
    """Whether the provider has counted the client's own prompt."""
    return step.usage is not None and step.usage.input > 0


def _told(
    store: Store, name: str, models: Models, load_dialect: LoadDialect, *, with_content: bool = False
) -> "tuple[_Teller, list[Recording]]":
    """Go through a session; again, where it shows only later on how long the cache lives."""
    log = list(store.events(name))
    found, loaded = facts(log), recording_from_log.load(store, name, load_dialect)

    def told(bills: Bills) -> _Teller:
        parties = clients(log, loaded, found.answered, load_dialect, with_content=with_content)
        teller = _Teller(found, models, parties, Rebuilder(load_dialect, store.blob), bills=bills)
        teller.tell(name, log)
        return teller

    teller = told(Bills())
    if teller.bills.was_mistaken:
        teller = told(Bills(teller.bills.held))
    return teller, loaded


@dataclass(frozen=True, slots=True)
class _CachedCall:
    """A call as the provider's cache saw it, and as it would have seen the client's own prompt.

    ``hour`` is whether what is written lives for an hour, ``others`` are tokens that other sessions keep cached.
    """

    sent: CachedRequest
    client: CachedRequest
    lifetime: float
    rates: Rates
    hour: bool
    others: int

    def missed(self, miss: CacheMiss, usage: Usage) -> MissStory:
        """A miss in money: what its tokens cost more than reading them from the cache would have."""
        cost = self.rates.units(usage) - self.rates.units(as_read(usage, miss.tokens))
        return MissStory(
            miss.reason,
            miss.tokens,
            cost,
            self.rates.in_dollars(cost),
            miss.pause,
            miss.lifetime,
            miss.changed,
            miss.word,
        )

    def rescued(self, before: CachedRequest | None, models: Models) -> KeptWarm:
        """What refreshes of the prompt ``before`` have rescued, where this call did not miss the cache."""
        if before is None or not before.kept or self.sent.at - before.at <= self.lifetime:
            return NOT_KEPT_WARM
        found = min(self.sent.usage.cached, left_cached(before.left, models.cache(self.sent.model)))
        cold = as_written(self.sent.usage, found - self.others, hour=self.hour)
        cost = self.rates.units(cold) - self.rates.units(self.sent.usage)
        return KeptWarm(rescues=int(cost > 0), rescued=cost, dollars_rescued=self.rates.in_dollars(cost) or 0.0)


@dataclass(slots=True)
class _Teller:
    """Goes through a session call by call."""

    facts: SessionFacts
    models: Models
    clients: Sequence[Client]
    rebuilder: Rebuilder
    calls: dict[CallAddress, CallStory] = field(default_factory=dict)
    bills: Bills = field(default_factory=Bills)
    scales: dict[CallAddress, float] = field(default_factory=dict)
    unpaged: dict[CallAddress, Usage] = field(default_factory=dict)
    cached: dict[CallAddress, "_CachedCall"] = field(default_factory=dict)
    prompts: PagedPrompts = field(init=False)
    of: dict[CallAddress, Client] = field(init=False)
    order: dict[CallAddress, int] = field(init=False)
    missed: dict[CallAddress, int] = field(init=False)

    def __post_init__(self) -> None:
        self.prompts = PagedPrompts(self._raw, {})
        self.of = {where: client for client in self.clients for where in client.steps}
        self.order = {where: at for at, where in enumerate(self.facts.answered)}
        known: set[str] = set()
        self.missed = {}
        for where, told in self.facts.told.items():
            asked = {handle for leg in told.legs for handle in leg.pages}
            self.missed[where] = len(asked - known)
            known |= asked

    def _raw(self, slot: Slot) -> bytes:
        return slot.raw if slot.raw is not None else self.rebuilder.tables.item(slot.digest)

    def tell(self, name: str, log: Sequence[Stored]) -> None:
        """Tell of every answered call; page tables are needed only where something was paged."""
        if any(told.paged for told in self.facts.told.values()):
            watch(name, log, self.rebuilder, self._tell)
        for where in self.facts.told:
            if where not in self.calls:
                self._tell(where, None)
        self._tell_misses()

    def _tell_misses(self) -> None:
        """Add to each call what the provider's cache did not hold; a call is compared with the one before it."""
        sent, client = CacheMisses(self.models), CacheMisses(self.models)
        for where in self.facts.told:
            if where not in self.calls:
                continue
            cached, parent = self.cached.get(where), self.of[where].call(where).step.parent
            before, lifetime = sent.before(where.branch, parent), cached.lifetime if cached else 0.0
            miss = sent.add(where.branch, parent, cached.sent if cached else None, lifetime)
            alone = client.add(where.branch, parent, cached.client if cached else None, lifetime)
            if cached is not None:
                rescued = cached.rescued(None if miss else before, self.models)
                cold = cached.missed(alone, cached.client.usage) if alone and alone.reason is MissReason.PAUSE else None
                call = self.calls[where]
                self.calls[where] = msgspec.structs.replace(
                    call,
                    miss=cached.missed(miss, cached.sent.usage) if miss else None,
                    kept_warm=call.kept_warm.plus(rescued) if rescued.rescues else call.kept_warm,
                    cold_before=Missed.of(cold) if cold else NEVER_COLD,
                )

    def _tell(self, where: CallAddress, table: PageTable | None) -> None:
        told = self.facts.told[where]
        if where not in self.order:
            return
        client = self.of[where]
        sent, prompt = client.parts(where), client.call(where).prompt
        if table is not None and told.paged:
            prompt = self.prompts.paged(client.dialect, client.call(where), table)
            sent = self._paged(where, table, prompt.tokens)
        self.calls[where] = self._call(where, told, sent, prompt)
        asked = {handle for leg in told.legs for handle in leg.pages}
        client.pages_of(where.branch).page_in(asked, self.order[where])

    def _paged(self, where: CallAddress, table: PageTable, total: int) -> StoryParts:
        """The parts of a call as it was paged, in a prompt of so many tokens."""
        client = self.of[where]
        pages = client.pages_of(where.branch).evicted(table, self.order[where])
        tools = shortened(client.call(where), table, client.whole(where))
        return sent_parts(client.parts(where), {**pages, **tools}, total)

    def _call(self, where: CallAddress, told: AttemptFacts, sent: StoryParts, prompt: Prompt) -> CallStory:
        """One call, in the provider's tokens and in money."""
        answer, received, client = told.answer, told.received, self.of[where]
        rates = Rates(self.models, received.model, answer.served if answer else "")
        requests = [prompt]
        for leg in told.hidden:
            requests.append(
                followed_by(
                    requests[-1],
                    client.dialect.appended(self.rebuilder.tables.leg(bytes.fromhex(leg.said))),
                    client.dialect,
                )
            )
        call = client.call(where)
        asked, step = call.step.lifetime, call.step
        billed = self.bills.charge(received.model, rates.prices, told.at, call.prompt, requests, asked)
        reported = [*(leg.usage for leg in told.hidden), answer.usage if answer else None]
        billed = billed._replace(lengthened=told.lengthened)
        weighed = weigh(client.parts(where), sent, billed, reported, told.estimate, step.output)
        self.bills.learn(received.model, billed, reported)
        for refresh in told.refreshes:
            self.bills.refresh(received.model, rates.prices, requests[-1], refresh.at)
        self.scales[where] = weighed.scale
        found = self._priced(where, told, rates, weighed, estimated=not all(reported))
        first, last = reported[0], reported[-1]
        if first is not None and last is not None and first.input:
            whole, kept = self.unpaged[where], max((one.at for one in told.refreshes), default=0.0)
            alone = client.cached_request(where, whole)
            ours = alone._replace(
                prompt=requests[0],
                usage=first,
                latest=requests[-1],
                left=last,
                kept=kept,
                is_own=not told.paged or (len(requests) == 1 and prompt.keys == call.prompt.keys),
                is_repacked=bool(told.repacks),
            )
            self.cached[where] = _CachedCall(ours, alone, billed.lifetime, rates, weighed.hour, billed.others)
        return found

    def _priced(
        self, where: CallAddress, told: AttemptFacts, rates: Rates, weighed: WeighedCall, *, estimated: bool
    ) -> CallStory:
        repack, requests = together(told.repacks), weighed.requests
        self.unpaged[where] = unpaged(weighed)
        refreshes = sum(rates.units(one.usage) for one in told.refreshes)
        cost, before = sum(rates.units(one) for one in requests) + refreshes, rates.units(self.unpaged[where])
        warm = KeptWarm(len(told.refreshes), refreshes, rates.in_dollars(refreshes) or 0.0)
        client = self.of[where]
        return CallStory(
            *where,
            at=told.at,
            model=told.received.model,
            client=weighed.client,
            sent=weighed.sent,
            input=sum(one.input for one in requests),
            cached=sum(one.cached for one in requests),
            written=sum(one.written for one in requests),
            output=sum(one.output for one in requests),
            estimated=estimated,
            requests=len(requests),
            cost=cost,
            cost_before=before,
            dollars=rates.in_dollars(cost),
            dollars_before=rates.in_dollars(before),
            pages_in=sum(len(leg.pages) for leg in told.legs),
            missed=self.missed[where],
            schemas_in=sum(len(leg.schemas) for leg in told.legs),
            corrected=sum(len(leg.invalid) + leg.imitated for leg in told.legs),
            working=round(weighed.scale * client.working(where)),
            repack=repack,
            calls=tuple(told.calls),
            cached_before=weighed.cached_before,
            new=round(weighed.scale * client.new(where)),
            inflicted=inflicted(weighed, told.hidden, repack, rates),
            kept_warm=warm if told.refreshes else NOT_KEPT_WARM,
        )

    def page(self, page: PageStory) -> PageStory:
        """A page in the provider's tokens, as it counted them at the first call that has it."""
        first = next(at for at, letter in enumerate(page.states) if letter != ".")
        scale = self.scales[self.facts.answered[first]]
        return msgspec.structs.replace(page, tokens=round(scale * page.tokens))
