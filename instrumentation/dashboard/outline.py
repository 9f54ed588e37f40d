"""Tells of a session in outline, by its events alone, at once: what its prompts were made of takes longer to read.

Prompts are shown as one part, by the provider's count; what the session would have cost unpaged is not known here, so a
call costs as much before as after.
"""

from collections.abc import Iterable, Sequence

from instrumentation.accounting.billing import UsageCost, cost
from instrumentation.accounting.ledger.call_facts import AttemptFacts, facts, together
from instrumentation.accounting.story import CallStory, Story, StoryParts
from instrumentation.dashboard.index import client_tokens
from pager.log.store import Stored
from pager.pricing.rates import Models
from pager.request_values import CallAddress, Usage


def outline(session: str, log: Iterable[Stored], models: Models) -> Story:
    """The session in outline, with a call for every call that its story has."""
    found = facts(log)
    calls = [_call(where, found.told[where], models) for where in found.answered]
    return Story(session, found.harness, calls, (), found.key, found.policy, found.failed)


def _call(where: CallAddress, facts: AttemptFacts, models: Models) -> CallStory:
    answer, legs = facts.answer, facts.hidden
    usages = [*(leg.usage for leg in legs), answer.usage if answer else None]
    known = [usage for usage in usages if usage is not None]
    spent = _cost([*known, *(one.usage for one in facts.refreshes)], models, facts)
    first = known[0].input if known else facts.estimate
    return CallStory(
        *where,
        at=facts.at,
        model=facts.received.model,
        client=StoryParts(other=client_tokens(first, facts.received.size, answer.sent_size if answer else 0)),
        sent=StoryParts(other=first),
        input=sum(usage.input for usage in known) or facts.estimate,
        cached=sum(usage.cached for usage in known),
        written=sum(usage.written for usage in known),
        output=sum(usage.output for usage in known),
        estimated=len(known) < len(usages),
        requests=len(usages),
        cost=spent.units,
        cost_before=spent.units,
        dollars=spent.dollars,
        dollars_before=spent.dollars,
        pages_in=sum(len(leg.pages) for leg in facts.legs),
        schemas_in=sum(len(leg.schemas) for leg in facts.legs),
        corrected=sum(len(leg.invalid) + leg.imitated for leg in facts.legs),
        repack=together(facts.repacks),
        calls=tuple(facts.calls),
    )


def _cost(usages: Sequence[Usage], models: Models, facts: AttemptFacts) -> UsageCost:
    served = facts.answer.served if facts.answer else ""
    total = UsageCost()
    for usage in usages:
        total = total.plus(cost(usage, models, facts.received.model, served))
    return total
