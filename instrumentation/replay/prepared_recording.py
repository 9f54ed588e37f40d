"""A recording made ready to be played many times: what depends on no policy is worked out once, when it is needed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

from instrumentation.accounting.billing import (
    Bill,
    Charged,
    Marks,
    Prompt,
    tokens_in,
)
from instrumentation.accounting.item_sizes import item_tokens
from instrumentation.replay.known_pauses import pays_to_bridge
from instrumentation.replay.page_needs import Need, Needs
from instrumentation.replay.recording import Future, RecordedCall, Recording
from pager.paging.pages.page import GRACE, Contents, Items, contents
from pager.paging.tool_forms_of_call import Shortening
from pager.paging.warmth.choose_lifetime import LifetimeRule
from pager.pricing.mark_cache import FIVE_MINUTES, HOUR
from pager.pricing.prices import Prices
from pager.pricing.provider_cache import CacheKind
from pager.pricing.rates import Models
from pager.request_values import Usage
from pager.wire.dialect import Dialect

ON = Shortening()


class Caching(NamedTuple):
    """How a provider is taken to cache, where that is not to follow from the recording.

    ``marks``: at cache marks, or any prefix; None by the model and the wire format. ``lifetime`` are the seconds that
    the client's marks ask for, 0 for those that the recording shows. ``rule`` chooses what they ask for where the
    client is taken to name none; ``5m`` leaves it at that.
    """

    marks: bool | None = None
    lifetime: float = 0.0
    rule: LifetimeRule = "5m"


AS_RECORDED = Caching()


class PreparedCall(NamedTuple):
    """A step with its place: the number of its call in the branch, and its prompt as the client sent it."""

    step: RecordedCall
    number: int
    prompt: Prompt

    @property
    def items(self) -> list[bytes]:
        """The digests of its items."""
        return self.prompt.keys[1:]


class Prepared:
    """A recording, its prompts, and what its answers need.

    Whoever plays it, a new page stays for ``grace`` calls, and ``tools`` says whether tools are sent short. ``cache``
    says how the provider is taken to cache.
    """

    def __init__(
        self,
        recording: Recording,
        dialect: Dialect,
        grace: int = GRACE,
        tools: Shortening = ON,
        cache: Caching = AS_RECORDED,
    ) -> None:
        self.recording = recording
        self.dialect = dialect
        self.grace = grace
        self.tools = tools
        self.cache = cache
        self.blobs: dict[bytes, bytes] = {}
        self._contents: dict[bytes, Contents] = {}
        self.counted: dict[bytes, int] = {}  # tokens of items by their digests

    @property
    def shortens(self) -> bool:
        """Whether any of its tools might be sent short."""
        return self.tools.on and any(
            step.offers is not None and step.tools is not None for step in self.recording.steps
        )

    @cached_property
    def calls(self) -> list[PreparedCall]:
        """All steps; the first part of a prompt is all outside of its items, the others are the items."""
        return list(self._calls())

    def _calls(self) -> Iterator[PreparedCall]:
        latest: dict[int, PreparedCall] = {}
        for step in self.recording.steps:
            before = latest.get(step.branch if step.parent is None else step.parent)
            keep = step.keep if before is not None else 0
            digests = [sha256(raw).digest() for raw in step.new]
            self.blobs.update(zip(digests, step.new, strict=True))
            sizes = [self.tokens(digest, raw) for digest, raw in zip(digests, step.new, strict=True)]
            prompt = _begun(step, before.prompt if before else Prompt(), keep).grown(digests, sizes)
            known = latest.get(step.branch)
            number = (known.number if known else step.fork_call) + (step.attempt == 1)
            latest[step.branch] = PreparedCall(step, number, prompt)
            yield latest[step.branch]

    def tokens(self, digest: bytes, raw: bytes) -> int:
        """The tokens of an item; counted once."""
        found = self.counted.get(digest)
        if found is None:
            found = self.counted[digest] = item_tokens(raw, self.dialect.name)
        return found

    def items(self, call: PreparedCall) -> Items:
        """The items of a call, as a page table takes them."""
        digests = call.items
        norms = list(map(self._norms.__getitem__, digests))
        return Items(digests, norms, lambda at: self.blobs[digests[at]])

    # ---- how the provider caches

    def finding_any_prefix(self) -> "Prepared":
        """The same for a provider that finds any prefix again."""
        cache = self.cache._replace(marks=False)
        return Prepared(self.recording, self.dialect, self.grace, self.tools, cache)

    def by_marks(self, call: PreparedCall, models: Models) -> bool:
        """Whether the provider of a call finds only what ends at a cache mark."""
        prices = models.prices(call.step.model)
        if prices.read >= prices.write:
            return False
        if self.cache.marks is not None:
            return self.cache.marks
        return self.dialect.marks_cache and models.find(call.step.model).cache_kind is CacheKind.MARKED

    def lifetime(self, call: PreparedCall) -> float:
        """The seconds that a call's cache marks ask for, or were granted; 0 where nothing is known of them."""
        return self.cache.lifetime or self._lifetimes[call.step.branch, call.number]

    @cached_property
    def _lifetimes(self) -> dict[tuple[int, int], float]:
        """The lifetime at each call; one that says nothing of it has that of the call before."""
        found: dict[tuple[int, int], float] = {}
        latest: dict[int, float] = {}
        for call in self.calls:
            step = call.step
            granted = lifetime_of(step.usage) if step.usage is not None else 0.0
            before = latest.get(step.branch, latest.get(step.parent, 0.0) if step.parent is not None else 0.0)
            latest[step.branch] = found[step.branch, call.number] = granted or step.lifetime or before
        return found

    def prices(self, call: PreparedCall, models: Models) -> Prices:
        """The prices at a call, under the lifetime that its client has."""
        return lasting(models.prices(call.step.model), self.lifetime(call))

    def client_marks(self, call: PreparedCall) -> Marks:
        """The marks of a client that marks what comes before its messages, and their end."""
        asked = self.lifetime(call) or FIVE_MINUTES
        items = call.items

        def positions(part: int) -> int:
            return self.read(self.blobs[items[part - 1]]).positions if part else 1

        return Marks({1: asked, len(items) + 1: asked}, positions)

    def size(self, call: PreparedCall) -> int:
        """The bytes of a call's request."""
        items = call.items
        return call.step.outside + sum(map(self._sizes.__getitem__, items)) + len(items) - 1

    @cached_property
    def _norms(self) -> dict[bytes, bytes]:
        return {digest: self.dialect.decode(raw).norm for digest, raw in self.blobs.items()}

    @cached_property
    def _sizes(self) -> dict[bytes, int]:
        return {digest: len(raw) for digest, raw in self.blobs.items()}

    def read(self, raw: bytes) -> Contents:
        """What an item holds; read once."""
        found = self._contents.get(raw)
        if found is None:
            found = self._contents[raw] = contents(self.dialect.decode(raw), self.dialect.page_spans(raw))
        return found

    @cached_property
    def needs(self) -> Sequence[Sequence[Need]]:
        """What the answer of each step needs to see."""
        needs = Needs(self.dialect)
        return [needs.of([self.blobs[digest] for digest in call.items], call.step.said) for call in self.calls]

    def futures(self, models: Models, *, kept_warm: bool = False) -> dict[int, Future]:
        """What will happen in each branch, for those who may know it.

        ``kept_warm``: prompts are kept cached in the pauses where that pays even if nothing can be evicted.
        """
        cold: dict[int, list[bool]] = {}
        needs: dict[int, dict[str, list[int]]] = {}
        at: dict[int, float] = {}
        for call, wanted in zip(self.calls, self.needs, strict=True):
            step = call.step
            if step.branch not in cold:
                before = cold.get(step.parent, []) if step.parent is not None else []
                cold[step.branch], needs[step.branch] = before[: step.fork_call], {}
                at[step.branch] = at.get(step.parent, 0.0) if step.parent is not None else 0.0
            if step.attempt == 1:
                idle, prices = step.at - at[step.branch], self.prices(call, models)
                is_kept = idle <= prices.ttl_seconds or (kept_warm and pays_to_bridge(prices, idle))
                cold[step.branch].append(call.number == 1 or not is_kept)
            at[step.branch] = step.at
            for need in wanted:
                needs[step.branch].setdefault(need.asked, []).append(call.number)
        return {branch: Future(cold[branch], _once(needs[branch])) for branch in cold}

    def unpaged(self, models: Models) -> Charged:
        """What the session costs if nothing is done to it."""
        return self.bills(models)[-1]

    def bills(self, models: Models) -> list[Charged]:
        """What the session has cost before its first call and after each, if nothing is done to it."""
        bill = Bill()
        found = [bill.charged]
        for call in self.calls:
            step = call.step
            if step.answered:
                if self.by_marks(call, models):
                    marks = self.client_marks(call)
                    bill.charge(call.prompt, step.at, step.output, models.prices(step.model), marks)
                else:
                    bill.charge(call.prompt, step.at, step.output, self.prices(call, models))
            found.append(bill.charged)
        return found


def _begun(step: RecordedCall, before: Prompt, keep: int) -> Prompt:
    """A prompt that keeps the first ``keep`` items of the prompt before, behind all outside of its own."""
    offered = step.offers.digest.encode() if step.offers else b""
    head = step.head or b"outside %d %b" % (step.outside, offered)
    if before.keys[:1] == [head]:
        return before.grown((), (), keep + 1)
    kept = [after - end for end, after in zip(before.ends[:keep], before.ends[1 : keep + 1], strict=True)]
    return Prompt.of([head, *before.keys[1 : keep + 1]], [tokens_in(step.outside), *kept])


def lifetime_of(usage: Usage) -> float:
    """The seconds for which a provider says that it wrote the end of a prompt; 0 where it says nothing."""
    return FIVE_MINUTES if usage.written_5m else HOUR if usage.written_1h else 0.0


def lasting(prices: Prices, lifetime: float) -> Prices:
    """The prices for a client whose cache lives this long; 0 where nothing is known of that."""
    if lifetime <= prices.ttl_seconds or prices.read >= prices.write:
        return prices
    write = prices.write_long if lifetime >= HOUR else prices.write
    return replace(prices, write=write, ttl_seconds=lifetime)


def _once(calls: dict[str, list[int]]) -> dict[str, list[int]]:
    return {handle: list(dict.fromkeys(numbers)) for handle, numbers in calls.items()}
