"""Lifetimes of caches that only the counts of recorded sessions show."""

import json

import pytest

from instrumentation.accounting.cache_lifetimes import shown
from instrumentation.replay.recording import RecordedCall, Recording
from pager.request_values import Usage


def message(number):
    return json.dumps({"role": "user" if number % 2 == 0 else "assistant", "content": f"{number} " * 9_000}).encode()


def session(*calls, model="claude-opus-4-6", **more):
    """A session of calls, each with its time and the share of the earlier prompt that was cached."""
    steps = []
    for number, (at, share) in enumerate(calls):
        new = tuple(map(message, range(2 * number - 1, 2 * number + 1))) if number else (message(0),)
        tokens, before = 10_000 * (2 * number + 1), 10_000 * max(0, 2 * number - 1)
        usage = Usage(tokens, round(share * before), tokens - round(share * before), 5, tells_cached=True, **more)
        steps.append(RecordedCall(float(at), 2 * number - 1 if number else 0, new, 0, model=model, usage=usage))
    return Recording("one", "chat", steps)


def seconds(recording):
    return [step.lifetime for step in shown(recording).steps]


def test_a_prompt_that_was_found_after_seven_minutes_lives_an_hour():
    assert seconds(session((0, 0), (10, 1), (430, 1), (440, 1))) == [3_600.0] * 4


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_a_prompt_that_was_gone_after_a_pause_shows_nothing(share):
    assert seconds(session((0, 0), (10, 1), (430, share), (440, 1))) == [0.0] * 4


def test_a_pause_that_five_minutes_may_outlive_shows_nothing():
    assert seconds(session((0, 0), (10, 1), (330, 1))) == [0.0] * 3


def test_at_other_providers_it_lives_as_long_as_was_seen():
    assert seconds(session((0, 0), (10, 1), (710, 1), (1_110, 1), model="gpt-5")) == [700.0] * 4


def test_what_the_provider_grants_stands():
    recording = session((0, 0), (10, 1), (430, 1), written_5m=9)
    assert shown(recording).steps == recording.steps


def test_what_the_clients_marks_ask_for_stands():
    recording = session((0, 0), (10, 1), (430, 1))
    marked = Recording("one", "chat", [step._replace(lifetime=300.0) for step in recording.steps])
    assert seconds(marked) == [300.0] * 3


def test_another_model_has_another_cache():
    recording = session((0, 0), (10, 1), (430, 1))
    other = [*recording.steps[:2], recording.steps[2]._replace(model="claude-haiku-4-5")]
    assert seconds(Recording("one", "chat", other)) == [0.0] * 3


def test_a_session_that_nobody_counted_shows_nothing():
    recording = session((0, 0), (10, 1), (430, 1))
    silent = Recording("one", "chat", [step._replace(usage=None) for step in recording.steps])
    assert shown(silent) is silent
