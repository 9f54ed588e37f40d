"""What the calls of a session cost as its client sent them: the figure that reports, replays and analyses share.

A call costs what its provider reported. Where what went upstream was not the client's own prompt, or nothing was
reported, the ledger has worked out what would have been; in a log that is not ours, a bill of the prompts replaces it.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from instrumentation.accounting.billing import Charged, priced_as, units
from instrumentation.replay.prepared_recording import Prepared
from instrumentation.replay.recording import RecordedCall
from instrumentation.replay.recording_draft import LONGEST_TOKEN, size_of
from pager.pricing.rates import Models
from pager.request_values import Usage


class Counted(NamedTuple):
    """The tokens of a call; whether the provider has ``told`` them, and then had counted the ``whole`` answer."""

    tokens: Usage
    told: bool
    whole: bool


def calls(prepared: Prepared, bills: Sequence[Charged]) -> Iterator[tuple[RecordedCall, Counted | None]]:
    """Every step with its tokens, None where it was not answered; ``bills`` are those of ``Prepared.bills``."""
    for step, (before, after) in zip(prepared.recording.steps, pairwise(bills), strict=True):
        yield step, _counted(step, before, after) if step.answered else None


def _counted(step: RecordedCall, before: Charged, after: Charged) -> Counted:
    usage = step.usage
    if usage is not None and usage.input:
        whole = usage.output * LONGEST_TOKEN >= size_of(step.said)
        output = usage.output if whole else max(usage.output, step.output)
        return Counted(msgspec.structs.replace(usage, output=output), told=True, whole=whole)
    if step.unpaged is not None:
        return Counted(step.unpaged, told=False, whole=True)
    tokens, cached = after.input - before.input, after.cached - before.cached
    written, long = after.written - before.written, after.written_1h - before.written_1h
    return Counted(Usage(tokens, cached, written, step.output, written_1h=long), told=False, whole=True)


def cost(step: RecordedCall, tokens: Usage, models: Models) -> float:
    """What tokens of a call cost, in units of one uncached input token."""
    return units(tokens, models.prices(priced_as(models, step.model, step.served)))


def total(prepared: Prepared, bills: Sequence[Charged], models: Models) -> Charged:
    """What a whole session cost."""
    found = [(step, one.tokens) for step, one in calls(prepared, bills) if one is not None]
    return Charged(
        cost=sum(cost(step, tokens, models) for step, tokens in found),
        input=sum(tokens.input for _, tokens in found),
        cached=sum(tokens.cached for _, tokens in found),
        output=sum(tokens.output for _, tokens in found),
        requests=len(found),
        peak=max((tokens.input for _, tokens in found), default=0),
    )
