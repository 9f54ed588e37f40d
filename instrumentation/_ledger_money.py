"""What a call took and cost, as its provider reported it, and what it would have cost if nothing had been paged.

Prompts are counted in tokens of our own, by their bytes. Where the provider reported what it counted, all parts of the
call are scaled to that, so that they add up to what was paid for; where it did not, they are scaled to our own count of
the client's prompt. How much of the client's own prompt a cache would have held is taken from a bill of the client's
prompts, and put right by as much as the bill of what went upstream is off: so an unpaged call costs the same both ways.
The bill is trusted as far as the provider's cache has held so far what the bill says that it holds.
"""

from collections.abc import Sequence
from typing import NamedTuple

from instrumentation.bill import Bill, Charged, Prompt
from instrumentation.costs import cost
from instrumentation.story import Inflicted, Parts, Repack
from pager.events import LegFinished, Tokens
from pager.models import Table as Models
from pager.policy import ASKING, Prices


class Rates:
    """What the model of a call costs; one that is not known may be known by what the provider says has answered."""

    def __init__(self, models: Models, asked: str, served: str) -> None:
        self._models, self._asked, self._served = models, asked, served
        name = asked if models.find(asked).known or not served else served
        self.prices: Prices = models.prices(name)
        self.dollars: float | None = cost(Tokens(input=1), models, asked, served).dollars

    def units(self, usage: Tokens) -> float:
        """What these tokens cost, in units of one uncached input token."""
        return cost(usage, self._models, self._asked, self._served).units

    def prompt(self, usage: Tokens) -> float:
        """What the prompt alone costs."""
        return self.units(usage) - self.answer(usage.input, usage.output)

    def answer(self, prompt: int, output: int) -> float:
        """What an answer of so many tokens costs behind a prompt of so many."""
        return self.prices.factors(prompt)[1] * self.prices.output * output

    def in_dollars(self, units: float) -> float | None:
        """The same cost in dollars, where that is known."""
        return None if self.dollars is None else units * self.dollars


class Bills:
    """Charges the prompts of a session as the client sent them, and as they went upstream; each model has a cache."""

    def __init__(self) -> None:
        self._bills: dict[str, tuple[Bill, Bill]] = {}
        self._held: dict[str, tuple[float, float]] = {}

    def trust(self, model: str) -> float:
        """How much of what the bill took to be cached was cached so far, from 0 to 1."""
        billed, reported = self._held.get(model, (0.0, 0.0))
        return min(1.0, reported / billed) if billed else 1.0

    def learn(self, model: str, charged: Charged, reported: Tokens | None) -> None:
        """Compare what was reported of a request to what was charged for it."""
        if _told(reported) is not None and reported is not None:
            billed, so_far = self._held.get(model, (0.0, 0.0))
            share = reported.cached / reported.input
            self._held[model] = (billed + charged.cached, so_far + min(charged.cached, share * charged.input))

    def charge(
        self, model: str, prices: Prices, at: float, client: Prompt, sent: Sequence[Prompt]
    ) -> tuple[Charged, list[Charged]]:
        """One call: what is charged for the client's prompt, and for each request that went upstream."""
        before, now = self._bills.setdefault(model, (Bill(), Bill()))
        return before.charge(client, at, 0, prices), [now.charge(prompt, at, 0, prices) for prompt in sent]


class Weighed(NamedTuple):
    """A call in tokens of its provider; ``scale`` is how many of them one of our own is."""

    scale: float
    client: Parts
    sent: Parts
    requests: Sequence[Tokens]
    cached_before: int


def weigh(
    client: Parts,
    sent: Parts,
    charged: tuple[Charged, Sequence[Charged]],
    reported: Sequence[Tokens | None],
    estimate: int,
    output: int,
    trust: float,
) -> Weighed:
    """A call with these parts, whose requests were charged so and reported so; ``output`` is our count of the answer.

    ``estimate`` is our own count of the client's prompt, 0 where there is none, ``trust`` is how far the bills hold.
    """
    before, requests = charged
    first = _told(reported[0])
    target = first.input if first else round(_scale(estimate, client.total) * sent.total)
    scale = _scale(target, sent.total)
    theirs, ours = scaled(client, sent, scale, target)
    counts = [target, *(round(scale * one.input) for one in requests[1:])]
    outputs = [*[ASKING] * (len(reported) - 1), output]
    usages = [
        _told(usage) or _guessed(tokens, _share(one), said)
        for usage, tokens, one, said in zip(reported, counts, requests, outputs, strict=True)
    ]
    held = usages[0].cached / max(1, usages[0].input)
    share = min(max(1.0, held), max(0.0, held + trust * (_share(before) - _share(requests[0]))))
    return Weighed(scale, theirs, ours, usages, round(share * theirs.total))


def _told(usage: Tokens | None) -> Tokens | None:
    """What was reported, if it tells anything of the prompt."""
    return usage if usage is not None and usage.input else None


def _guessed(tokens: int, share: float, output: int) -> Tokens:
    """A request of which nothing was reported: what the bill takes to be cached, all else written."""
    cached = round(share * tokens)
    return Tokens(tokens, cached, tokens - cached, output)


def _share(charged: Charged) -> float:
    return charged.cached / charged.input if charged.input else 0.0


def _scale(target: int, counted: int) -> float:
    return target / counted if target and counted else 1.0


def scaled(client: Parts, sent: Parts, scale: float, target: int) -> tuple[Parts, Parts]:
    """Both in other tokens, so that what was sent comes to ``target``, and what is the same in both stays the same."""
    names = Parts.__struct_fields__
    theirs = {name: round(scale * getattr(client, name)) for name in names}
    ours = {name: round(scale * getattr(sent, name)) for name in names}
    left = target - sum(ours.values())
    step = 1 if left > 0 else -1
    for _ in range(abs(left)):  # a few tokens, by which rounding is off
        largest = max(ours, key=ours.__getitem__)
        ours[largest] += step
        theirs[largest] += step if largest != "stubs" else 0
    return Parts(**theirs), Parts(**ours)


def unpaged(weighed: Weighed, rates: Rates) -> float:
    """What the call would have cost: the first request's rates for the client's prompt, and the answer."""
    first, answer = weighed.requests[0], weighed.requests[-1]
    total, cached = weighed.client.total, weighed.cached_before
    if (total, cached) == (first.input, first.cached):
        return rates.prompt(first) + rates.answer(total, answer.output)
    uncached = first.input - first.cached
    read, paid = rates.prices.read, rates.prompt(first) / rates.prices.factors(first.input)[0]
    rate = (paid - read * first.cached) / uncached if uncached > 0 else rates.prices.write
    dearer = rates.prices.factors(total)[0]
    return dearer * (read * cached + rate * (total - cached)) + rates.answer(total, answer.output)


def inflicted(weighed: Weighed, hidden: Sequence[LegFinished], repack: Repack | None, rates: Rates) -> Inflicted:
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
