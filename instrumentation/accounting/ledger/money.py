"""What a call took and cost, as its provider reported it, and what it would have cost if nothing had been paged.

Prompts are counted in tokens of our own, by their bytes. Where the provider reported what it counted, all parts of the
call are scaled to that, so that they add up to what was paid for; where it did not, they are scaled to our own count of
the client's prompt. How much of the client's own prompt a cache would have held is told by what the provider found of
the prompt that went out: so an unpaged call costs the same both ways, and no lifetime is assumed where counts speak.
Where they can't, the cache is believed to live as long as the provider's usage granted, as the client's marks asked
for, or as is documented, and at least as long as it was seen to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

import msgspec

from instrumentation.accounting.billing import (
    REMEMBERED,
    Bill,
    Charged,
    Prompt,
    cost,
    priced_as,
)
from instrumentation.accounting.story import Inflicted, RepackStory, StoryParts
from pager.log.events import LegFinished
from pager.paging.pages.page_table import common_length
from pager.pricing.mark_cache import FIVE_MINUTES, HOUR
from pager.pricing.prices import ASKING, Prices
from pager.pricing.provider_cache import HIT_SHARE, TELLING
from pager.pricing.rates import Models
from pager.request_values import Usage

WHOLE = 0.8
"""The share of an earlier prompt from which on another one goes on with it, and was not cut."""


class Rates:
    """What the model of a call costs; one that is not known may be known by what the provider says has answered."""

    def __init__(self, models: Models, asked: str, served: str) -> None:
        self._models, self._asked, self._served = models, asked, served
        name = priced_as(models, asked, served)
        self.prices: Prices = models.prices(name)
        self.dollars: float | None = cost(Usage(input=1), models, asked, served).dollars

    def units(self, usage: Usage) -> float:
        """What these tokens cost, in units of one uncached input token."""
        return cost(usage, self._models, self._asked, self._served).units

    def prompt(self, usage: Usage) -> float:
        """What the prompt alone costs."""
        return self.units(usage) - self.answer(usage.input, usage.output)

    def answer(self, prompt: int, output: int) -> float:
        """What an answer of so many tokens costs behind a prompt of so many."""
        return self.prices.factors(prompt)[1] * self.prices.output * output

    def in_dollars(self, units: float) -> float | None:
        """The same cost in dollars, where that is known."""
        return None if self.dollars is None else units * self.dollars


class Shared(NamedTuple):
    """What a prompt has in common with an earlier one of the same side: tokens of our own, and the seconds since.

    ``cut`` is whether the earlier prompt was changed before its end, and not only grew.
    """

    tokens: int = 0
    gap: float = inf
    cut: bool = False


class PromptHistory:
    """The latest prompts of one side, the client's or ours, to one model."""

    def __init__(self) -> None:
        self._held: list[tuple[float, Prompt]] = []

    def add(self, prompt: Prompt, at: float) -> Shared:
        """Add a prompt; what it has in common with those before it, of which the newest counts among equals."""
        keys, best, found = prompt.keys, 0, Shared()
        for stamp, held in reversed(self._held):
            length = common_length(held.keys, keys)
            if length > best:
                best, tokens = length, prompt.upto(length)
                found = Shared(tokens, at - stamp, cut=tokens < WHOLE * held.tokens)
        self._held = [*self._held[1 - REMEMBERED :], (at, prompt)]
        return found


class Billed(NamedTuple):
    """A call on both sides: what its prompts share with earlier ones, what each request is charged, and beliefs.

    ``alive`` is how much of a shared beginning is believed to be in the cache where the provider's counts of this call
    can't tell; ``lifetime`` are the seconds that what is written is believed to live. ``refreshed`` if the shared
    beginning was kept longer than that by refreshes of ours alone, so that the client's own would have expired.
    ``others`` are the tokens that other sessions keep in the cache: those that the first call found there.
    """

    client: Shared
    sent: Shared
    requests: Sequence[Charged]
    alive: float = 1.0
    lifetime: float = 0.0
    refreshed: bool = False
    others: int = 0
    lengthened: bool = False  # an hour was asked for by our choice: the client alone would have five minutes


@dataclass(slots=True)
class _ModelCache:
    """What is known of one model's cache: how long it lives, and how much of what should be in it was found there.

    ``granted`` is the lifetime that the provider's usage has named last, ``asked`` that of the client's marks, ``held``
    the longest pause after which a prompt was found again; each is 0 where there is none.
    """

    client: PromptHistory = field(default_factory=PromptHistory)
    sent: PromptHistory = field(default_factory=PromptHistory)
    bill: Bill = field(default_factory=Bill)
    granted: float = 0.0
    asked: float = 0.0
    held: float = 0.0
    expected: float = 0.0
    found: float = 0.0
    refreshed: float = 0.0  # when one of its prompts was last refreshed
    others: int | None = None  # tokens that the first call found cached; None before it is known

    def lifetime(self, documented: float) -> float:
        """Seconds that a prompt is believed to live: what was granted, else asked for, else what is documented."""
        return max(self.held, self.granted or self.asked or documented)

    @property
    def trust(self) -> float:
        """How much of what should have been cached was found so far, from 0 to 1."""
        return min(1.0, self.found / self.expected) if self.expected else 1.0


class Bills:
    """Follows the prompts of a session as the client sent them, and as they went upstream; each model has a cache."""

    def __init__(self, held: Mapping[str, float] | None = None) -> None:
        self._caches = {model: _ModelCache(held=seconds) for model, seconds in (held or {}).items()}
        self._doubted: dict[str, float] = {}

    @property
    def held(self) -> Mapping[str, float]:
        """The longest pause of the whole session after which each model's prompt was found again."""
        return {model: cache.held for model, cache in self._caches.items()}

    @property
    def was_mistaken(self) -> bool:
        """Whether a cache was believed to be dead after a pause that it has outlived later on."""
        return any(self.held[model] >= gap for model, gap in self._doubted.items())

    def charge(
        self, model: str, prices: Prices, at: float, client: Prompt, sent: Sequence[Prompt], asked: float = 0.0
    ) -> Billed:
        """One call with its prompt and each request that went upstream; ``asked`` is the lifetime in its marks."""
        cache = self._caches.setdefault(model, _ModelCache())
        cache.asked = max(cache.asked, asked)
        lifetime = cache.lifetime(prices.ttl_seconds) if prices.ttl_seconds else 0.0
        before = cache.client.add(client, at)
        now, *_ = [cache.sent.add(prompt, at) for prompt in sent]
        lasting = replace(prices, ttl_seconds=lifetime)
        requests = [cache.bill.charge(prompt, at, 0, lasting) for prompt in sent]
        if lifetime < before.gap < inf:
            self._doubted[model] = min(before.gap, self._doubted.get(model, inf))
        is_kept = now.gap <= lifetime < before.gap < inf and cache.refreshed > at - before.gap
        alive = cache.trust if before.gap <= lifetime else 0.0
        return Billed(before, now, requests, alive, lifetime, is_kept, cache.others or 0)

    def refresh(self, model: str, prices: Prices, prompt: Prompt, at: float) -> None:
        """A prompt of ours was sent once more to keep it cached; the client alone would not have done that."""
        cache = self._caches[model]
        cache.refreshed = max(cache.refreshed, at)
        cache.sent.add(prompt, at)
        cache.bill.charge(prompt, at, 0, replace(prices, ttl_seconds=cache.lifetime(prices.ttl_seconds)))

    def learn(self, model: str, billed: Billed, reported: Sequence[Usage | None]) -> None:
        """Learn from what was reported of a call's requests; a cut prompt is found only where a mark was, if at all."""
        cache, first = self._caches[model], _told(reported[0])
        for usage in reported:
            if usage is not None and (usage.written_5m or usage.written_1h):
                cache.granted = HOUR if usage.written_1h > usage.written_5m else FIVE_MINUTES
        if first is not None and cache.others is None:
            cache.others = first.cached
        if first is None or first.cached_if_told is None or billed.sent.cut or not billed.sent.tokens:
            return
        expected = billed.sent.tokens * first.input / max(1, billed.requests[0].input)
        if expected >= TELLING and first.cached >= HIT_SHARE * expected:
            cache.held = max(cache.held, billed.sent.gap)
        if billed.sent.gap <= billed.lifetime:
            cache.expected += expected
            cache.found += min(expected, first.cached)


class WeighedCall(NamedTuple):
    """A call in tokens of its provider; ``scale`` is how many of them one of our own is.

    ``hour`` is whether what is written lives for an hour, ``lengthened`` whether that is by our choice.
    """

    scale: float
    client: StoryParts
    sent: StoryParts
    requests: Sequence[Usage]
    cached_before: int
    hour: bool = False
    lengthened: bool = False


def weigh(
    client: StoryParts,
    sent: StoryParts,
    billed: Billed,
    reported: Sequence[Usage | None],
    estimate: int,
    output: int,
) -> WeighedCall:
    """A call with these parts, whose requests were billed so and reported so; ``output`` is our count of the answer.

    ``estimate`` is our own count of the client's prompt, 0 where there is none.
    """
    requests, first = billed.requests, _told(reported[0])
    target = first.input if first else round(_scale(estimate, client.total) * sent.total)
    scale = _scale(target, sent.total)
    theirs, ours = scaled(client, sent, scale, target)
    counts = [target, *(round(scale * one.input) for one in requests[1:])]
    outputs = [*[ASKING] * (len(reported) - 1), output]
    usages = [
        _told(usage) or _guessed(tokens, _share(one), said)
        for usage, tokens, one, said in zip(reported, counts, requests, outputs, strict=True)
    ]
    cached = _cached_before(billed, usages[0], first, scale)
    most = theirs.total if usages[0].cached <= usages[0].input else usages[0].cached
    hour = billed.lifetime >= HOUR
    return WeighedCall(scale, theirs, ours, usages, min(most, cached), hour, billed.lengthened)


def _cached_before(billed: Billed, usage: Usage, told: Usage | None, scale: float) -> int:
    """The tokens of the client's own prompt that the cache would have held.

    What was found of the prompt that went out says how much of its shared beginning was still there, and as much would
    have been there of the client's. A cache that holds finds whole blocks of tokens: what it misses at the end is as
    many tokens of either prompt, and no share of them. Only where that prompt was cut, or shares nothing with an
    earlier one, can its counts not show that the cache had died; there the longer of both is believed. What was found
    only because it was refreshed would not have been there, but for what other sessions keep in the cache.
    """
    if told is not None and told.cached_if_told is None:  # a provider that says nothing of a cache
        return 0
    if billed.lengthened and FIVE_MINUTES < billed.client.gap < inf:
        return 0
    expected = scale * billed.sent.tokens
    if billed.refreshed:
        return min(billed.others, usage.cached)
    alive = min(1.0, usage.cached / expected) if expected else 0.0
    if alive >= HIT_SHARE and not billed.sent.cut:
        return round(scale * billed.client.tokens + usage.cached - expected)
    if billed.sent.cut or not expected:
        alive = max(alive, billed.alive)
    return round(alive * scale * billed.client.tokens + max(0.0, usage.cached - expected))


def _told(usage: Usage | None) -> Usage | None:
    """What was reported, if it tells anything of the prompt."""
    return usage if usage is not None and usage.input else None


def _guessed(tokens: int, share: float, output: int) -> Usage:
    """A request of which nothing was reported: what the bill takes to be cached, all else written."""
    cached = round(share * tokens)
    return Usage(tokens, cached, tokens - cached, output)


def _share(charged: Charged) -> float:
    return charged.cached / charged.input if charged.input else 0.0


def _scale(target: int, counted: int) -> float:
    return target / counted if target and counted else 1.0


def scaled(client: StoryParts, sent: StoryParts, scale: float, target: int) -> tuple[StoryParts, StoryParts]:
    """Both in other tokens, so that what was sent comes to ``target``, and what is the same in both stays the same."""
    names = StoryParts.__struct_fields__
    theirs = {name: round(scale * getattr(client, name)) for name in names}
    ours = {name: round(scale * getattr(sent, name)) for name in names}
    left = target - sum(ours.values())
    step = 1 if left > 0 else -1
    for _ in range(abs(left)):  # a few tokens, by which rounding is off
        largest = max(ours, key=ours.__getitem__)
        ours[largest] += step
        theirs[largest] += step if largest != "stubs" else 0
    return StoryParts(**theirs), StoryParts(**ours)


def unpaged(weighed: WeighedCall) -> Usage:
    """What the provider would have counted for the client's own prompt.

    What is not cached is plain or written, for a while or for an hour, in the same shares as in the first request.
    """
    first, answer = weighed.requests[0], weighed.requests[-1]
    total, cached = weighed.client.total, weighed.cached_before
    if (total, cached) == (first.input, first.cached) and not weighed.lengthened:
        return msgspec.structs.replace(first, output=answer.output, reasoning=answer.reasoning)
    left, uncached = total - cached, first.input - first.cached
    written = round(left * min(1.0, first.written / uncached)) if uncached > 0 else left
    long = min(first.written_1h, first.written) / first.written if first.written else float(weighed.hour)
    in_hours = 0 if weighed.lengthened else round(long * written)
    in_minutes = written - in_hours if first.written_5m or weighed.lengthened else 0
    return Usage(total, cached, written, answer.output, answer.reasoning, first.tells_cached, in_minutes, in_hours)


def inflicted(
    weighed: WeighedCall, hidden: Sequence[LegFinished], repack: RepackStory | None, rates: Rates
) -> Inflicted:
    """What paging itself cost a call: its stubs, the requests that its hidden legs led to, what was written again."""
    first = weighed.requests[0]
    costs, tokens = {True: 0.0, False: 0.0}, {True: 0, False: 0}
    for leg, asking, following in zip(hidden, weighed.requests, weighed.requests[1:], strict=False):
        corrects = bool(leg.invalid or leg.imitated) and not (leg.pages or leg.schemas)
        costs[corrects] += rates.answer(asking.input, asking.output) + rates.prompt(following)
        tokens[corrects] += following.input
    return Inflicted(
        weighed.sent.stubs * rates.prompt(first) / max(1, first.input),
        costs[False],
        costs[True],
        repack.price if repack else 0.0,
        tokens[False],
        tokens[True],
    )
