"""How long a recorded session's cache lived, inferred from the provider's counts where nothing states it.

A prompt that was read from the cache after a pause was kept for that long. At Anthropic that is five minutes or an
hour, so that whatever outlives the first lives for the second.
"""

from collections.abc import Iterator
from dataclasses import replace

from instrumentation.replay.prepared_recording import Prepared, PreparedCall
from instrumentation.replay.recording import RecordedCall, Recording
from pager.paging.pages.page_table import common_length
from pager.pricing.catalog import family_of
from pager.pricing.mark_cache import FIVE_MINUTES, HOUR
from pager.pricing.provider_cache import HIT_SHARE, TELLING
from pager.wire.dialects import load as load_dialect

MARGIN = 30.0
"""Seconds above five minutes from which on a hit shows a longer lifetime: times in logs are those of answers."""


def shown(recording: Recording) -> Recording:
    """The recording with the lifetime that its counts show, in every call of which nothing else says one."""
    if not any(_pauses(recording)):
        return recording
    held: dict[int, float] = {}
    for branch, gap in _outlived(Prepared(recording, load_dialect(recording.dialect))):
        held[branch] = max(gap, held.get(branch, 0.0))
    return replace(recording, steps=[_with(step, held) for step in recording.steps]) if held else recording


def _pauses(recording: Recording) -> Iterator[bool]:
    """Whether each call that found something cached came after a pause in its branch."""
    latest: dict[int, float] = {}
    for step in recording.steps:
        cached = step.usage.cached if step.usage else 0
        yield cached > 0 and step.at - latest.get(step.branch, step.at) > FIVE_MINUTES + MARGIN
        latest[step.branch] = step.at


def _with(step: RecordedCall, held: dict[int, float]) -> RecordedCall:
    seconds = held.get(step.branch, 0.0)
    granted = step.usage is not None and (step.usage.written_5m or step.usage.written_1h)
    if not seconds or granted or step.lifetime:
        return step
    return step._replace(lifetime=HOUR if family_of(step.model).name == "claude" else seconds)


def _outlived(prepared: Prepared) -> Iterator[tuple[int, float]]:
    """The pauses of more than five minutes after which a branch's prompt was found again."""
    latest: dict[int, PreparedCall] = {}
    for call in prepared.calls:
        step = call.step
        before = latest.get(step.branch)
        if before is not None and step.answered and _was_found(before, call):
            gap = step.at - before.step.at
            if gap > FIVE_MINUTES + MARGIN:
                yield step.branch, gap
        latest[step.branch] = call


def _was_found(before: PreparedCall, call: PreparedCall) -> bool:
    usage = call.step.usage
    if usage is None or not usage.cached or before.step.model != call.step.model:
        return False
    shared = call.prompt.upto(common_length(before.prompt.keys, call.prompt.keys))
    expected = usage.input * shared / max(1, call.prompt.tokens)
    return expected >= TELLING and usage.cached >= HIT_SHARE * expected
