"""Sums one session up: what its prompts held, what it cost, what was wasted, and what policies would have saved.

All values are small and hold no text of a prompt, so that those of many sessions fit in memory and in a cache.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from instrumentation.accounting import client_cost
from instrumentation.accounting.billing import MILLION, Charged, priced_as
from instrumentation.accounting.cache_misses import CacheMisses, as_read, cached_request
from instrumentation.accounting.client_cost import Counted
from instrumentation.accounting.story import WASTE, Addable, MissStory, MissSums, StoryParts
from instrumentation.accounting.waste.anatomy import (
    Anatomy,
    CallAnatomy,
    Totals,
    anatomy,
    head_of,
)
from instrumentation.accounting.waste.branch import WasteBranch
from instrumentation.accounting.waste.items import shared
from instrumentation.replay.compare import Contender, outcomes_of
from instrumentation.replay.player import PolicyOutcome
from instrumentation.replay.prepared_recording import Prepared
from instrumentation.replay.recording import RecordedCall
from instrumentation.replay.recording_draft import BEGINNING
from pager.pricing.rates import Models

FUTURE = 32_503_680_000.0
"""The year 3000: later times are none."""

_NAMES = StoryParts.__struct_fields__
_EXACT = 1_000  # parts of a token in which shares are weighed

WASTED = "s"
"""The letter of a page that is stale, a duplicate or superseded."""


class Spending(Addable, frozen=True):
    """Money: in units of one uncached input token of the call's model, and in dollars as far as prices are known."""

    units: float = 0.0
    dollars: float = 0.0


class PaidCalls(Addable, frozen=True):
    """What calls took and cost.

    ``reported`` are the calls whose tokens the provider has counted, of which ``partly`` those with an answer that was
    counted before it was whole; ``unpriced`` those of models whose price in dollars is not known. ``input``, ``cached``
    and ``written`` are as reported, ``telling`` is the input of calls that say what was cached; ``output`` is estimated
    where it was not counted. ``told`` is what the reported calls cost, ``guessed`` is an estimate for the others.
    """

    calls: int = 0
    reported: int = 0
    partly: int = 0
    unpriced: int = 0
    input: int = 0
    telling: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    told: Spending = Spending()
    guessed: Spending = Spending()

    @property
    def cost(self) -> Spending:
        """What all calls cost."""
        return self.told.plus(self.guessed)

    @property
    def hit_rate(self) -> float | None:
        """The share of the input that was cached, as reported; None where nothing was reported."""
        return self.cached / self.telling if self.telling else None


class ToolWaste(msgspec.Struct, frozen=True):
    """The tokens that were sent in vain for one tool: of its results and arguments, and of its schema."""

    name: str
    pages: int = 0
    schema: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.pages + self.schema


class Replayed(msgspec.Struct, frozen=True):
    """What became of the session under a policy; ``dollars`` is what it would have saved of those that were paid."""

    outcome: PolicyOutcome
    dollars: float = 0.0


class SessionSummary(msgspec.Struct, frozen=True):
    """One session; times are 0 where the log has none.

    ``steps`` counts all calls, also those without an answer, which are in no sum. ``before`` is what it costs by
    replay if nothing is done, ``waste`` what each cause of ``WASTE`` cost at the least, ``misses`` are the calls that
    missed the provider's cache, by the reason.
    """

    name: str
    harness: str
    models: tuple[str, ...]
    first: float
    last: float
    steps: int
    totals: Totals
    paid: PaidCalls
    waste: tuple[Spending, ...]
    tools: tuple[ToolWaste, ...]
    before: Charged
    replayed: tuple[Replayed, ...]
    misses: MissSums = MissSums()


def summed_up(
    prepared: Prepared, contenders: Sequence[Contender], models: Models, credit: float | None = None
) -> SessionSummary:
    """All that is reported of a session; it is replayed with this credit in dollars, if it is lent one."""
    recording, found, bills = prepared.recording, as_reported(anatomy(prepared), prepared), prepared.bills(models)
    steps = recording.steps
    calls = list(_calls(prepared, found, bills, models))
    waste = [Spending.sum(one.waste[at] for one in calls) for at in range(len(WASTE))]
    times = [step.at for at, step in enumerate(steps) if step.at != BEGINNING + at and 0 < step.at < FUTURE]
    spent = PaidCalls.sum(one.paid for one in calls)
    scale = spent.cost.units / bills[-1].cost if bills[-1].cost else 0.0
    played = [outcome for one in contenders for outcome in outcomes_of(prepared, one, models, bills, credit=credit)]
    return SessionSummary(
        name=recording.name,
        harness=recording.harness,
        models=tuple(dict.fromkeys(step.model for step in steps)),
        first=min(times, default=0.0),
        last=max(times, default=0.0),
        steps=len(steps),
        totals=found.totals,
        paid=spent,
        waste=tuple(waste),
        tools=tuple(tool_waste(prepared, found)),
        before=bills[-1],
        replayed=tuple(Replayed(one._replace(so_far=()), _saved(one, steps, bills, models, scale)) for one in played),
        misses=MissSums.sum(_misses(prepared, bills, models)),
    )


# ---------------------------------------------------------------- tokens


def as_reported(found: Anatomy, prepared: Prepared) -> Anatomy:
    """The same in the provider's tokens: the parts of each call add up to what was reported of it.

    A call of which nothing was reported is scaled as all others of the session together; if there are none, not at all.
    """
    steps = prepared.recording.steps
    inputs = [_input(step) if step.answered else 0 for step in steps]
    ours = sum(call.client.total for call, tokens in zip(found.calls, inputs, strict=True) if tokens)
    usual = sum(inputs) / ours if ours else 1.0
    calls = []
    for call, tokens in zip(found.calls, inputs, strict=True):
        total = call.client.total
        scale = (tokens / total if tokens else usual) if total else 1.0
        client = StoryParts(*shared(tokens or round(usual * total), [getattr(call.client, name) for name in _NAMES]))
        calls.append(call._replace(client=client, working=round(scale * call.working), scale=scale))
    return Anatomy(calls, found.branches)


def _input(step: RecordedCall) -> int:
    """The tokens of the client's prompt as its provider counts them; 0 where they are not known."""
    usage = step.usage if step.usage and step.usage.input else step.unpaged
    return usage.input if usage else 0


# ---------------------------------------------------------------- money


class _Priced(NamedTuple):
    """One call: what it cost, and what each cause of waste cost in it."""

    paid: PaidCalls
    waste: tuple[Spending, ...]


def _calls(prepared: Prepared, found: Anatomy, bills: Sequence[Charged], models: Models) -> Iterator[_Priced]:
    """The answered calls."""
    for (step, counted), call in zip(client_cost.calls(prepared, bills), found.calls, strict=True):
        if counted is not None:
            yield _priced(step, call, counted, models)


def _priced(step: RecordedCall, call: CallAnatomy, counted: Counted, models: Models) -> _Priced:
    name, used = priced_as(models, step.model, step.served), counted.tokens
    price, prices, cost = models.find(name).input, models.prices(name), client_cost.cost(step, used, models)
    dearer, dearer_answer = prices.factors(used.input)
    read, uncached = dearer * prices.read, used.input - used.cached
    prompt = cost - dearer_answer * prices.output * used.output - read * used.cached
    rate = prompt / uncached if uncached > 0 else read
    waste = tuple(_spent(one, price) for one in _wasted(call.client, used.input, used.cached, read, rate))
    if not counted.told:
        return _Priced(PaidCalls(1, unpriced=int(not price), output=used.output, guessed=_spent(cost, price)), waste)
    telling = used.input if used.cached_if_told is not None else 0
    counts = (used.input, telling, used.cached, used.written, used.output)
    return _Priced(PaidCalls(1, 1, int(not counted.whole), int(not price), *counts, told=_spent(cost, price)), waste)


def _misses(prepared: Prepared, bills: Sequence[Charged], models: Models) -> Iterator[MissSums]:
    """The calls that missed the provider's cache, as far as their tokens are known."""
    found = CacheMisses(models)
    for call, (step, counted) in zip(prepared.calls, client_cost.calls(prepared, bills), strict=True):
        if counted is None:
            continue
        is_known = counted.told or step.unpaged is not None
        now = cached_request(prepared, call, counted.tokens) if is_known else None
        miss = found.add(step.branch, step.parent, now, prepared.prices(call, models).ttl_seconds)
        if miss is not None:
            rest = client_cost.cost(step, as_read(counted.tokens, miss.tokens), models)
            cost = client_cost.cost(step, counted.tokens, models) - rest
            spent = _spent(cost, models.find(priced_as(models, step.model, step.served)).input)
            yield MissSums.of(MissStory(miss.reason, miss.tokens, spent.units, spent.dollars))


def _wasted(client: StoryParts, tokens: int, cached: int, read: float, rate: float) -> list[float]:
    """What each cause of waste cost at the least, in a prompt of ``tokens`` by the provider's count.

    What is waste was mostly sent before and comes first, so that it is taken to be what was cached, as far as that
    goes; only the rest of it costs what uncached tokens do.
    """
    total, waste = client.total, list(client.waste.values())
    all_of_it = sum(waste)
    if not all_of_it:
        return [0.0] * len(waste)
    wasted = tokens * all_of_it / total
    hit = min(wasted, cached)
    cost = read * hit + rate * (wasted - hit)
    return [cost * one / all_of_it for one in waste]


def _saved(
    outcome: PolicyOutcome, steps: Sequence[RecordedCall], bills: Sequence[Charged], models: Models, scale: float
) -> float:
    """The dollars that a policy would have saved in calls of models whose price is known.

    Replay counts by bytes; ``scale`` is how much of what it says that the session cost was really paid.
    """
    saved = 0.0
    for step, bill, now in zip(steps, pairwise(bills), pairwise((0.0, *outcome.so_far)), strict=True):
        price = models.find(step.model).input or 0.0
        saved += (bill[1].cost - bill[0].cost - (now[1] - now[0])) * price / MILLION
    return saved * scale


def _spent(cost: float, price: float | None) -> Spending:
    return Spending(cost, cost * price / MILLION if price else 0.0)


# ---------------------------------------------------------------- tools


def tool_waste(prepared: Prepared, found: Anatomy) -> list[ToolWaste]:
    """What was sent in vain for each tool, by the tools' names; a page whose call is not known is of none."""
    pages: dict[str, float] = {}
    for branch in found.branches:
        for tool, tokens in _pages(branch, found.calls):
            pages[tool] = pages.get(tool, 0.0) + tokens
    client = found.totals.client
    in_pages = _shares(pages, client.stale + client.duplicates + client.superseded)
    in_schemas = _shares(_schemas(prepared, found), client.unused_schemas)
    names = sorted({*in_pages, *in_schemas})
    return [ToolWaste(name, in_pages.get(name, 0), in_schemas.get(name, 0)) for name in names]


def _shares(weights: Mapping[str, float], tokens: int) -> dict[str, int]:
    """The tokens shared by these weights, so that they add up; tools that get none are left out."""
    names = list(weights)
    shares = shared(tokens, [round(_EXACT * weights[name]) for name in names])
    return {name: share for name, share in zip(names, shares, strict=True) if share}


def _pages(branch: WasteBranch, calls: Sequence[CallAnatomy]) -> Iterator[tuple[str, float]]:
    """The tool of each page, and the tokens of the page in all answered calls in which it is waste."""
    scales = (calls[step].scale * calls[step].answered for step in branch.steps)
    sent = list(accumulate(scales, initial=0.0))
    for page in branch.pages:
        ends = [*(at for at, _ in page.marks[1:]), len(branch.steps)]
        spans = zip(page.marks, ends, strict=True)
        times = sum(sent[end] - sent[begin] for (begin, letter), end in spans if letter == WASTED)
        yield page.made.tool if page.made else "", page.tokens * times


def _schemas(prepared: Prepared, anatomy: Anatomy) -> dict[str, float]:
    """The tokens of tools that are never called, in all answered calls."""
    called = frozenset(name for step in prepared.recording.steps for name in step.called)
    heads: dict[bytes, tuple[RecordedCall, float]] = {}
    for call, taken in zip(prepared.calls, anatomy.calls, strict=True):
        if call.step.answered and call.step.offers:
            key = call.prompt.first
            heads[key] = (call.step, (heads[key][1] if key in heads else 0.0) + taken.scale)
    found: dict[str, float] = {}
    for step, times in heads.values():
        for name, tokens in _idle(step, called):
            found[name] = found.get(name, 0.0) + tokens * times
    return found


def _idle(step: RecordedCall, called: frozenset[str]) -> Iterator[tuple[str, int]]:
    """The tools that are never called, each with its tokens, which add up to those of all of them."""
    offers = step.offers.tools if step.offers else ()
    idle = [one for one in offers if one.tool.name not in called and not one.fixed]
    tokens = shared(head_of(step, called).unused, [one.size for one in idle])
    yield from zip((one.tool.name for one in idle), tokens, strict=True)
