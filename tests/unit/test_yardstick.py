"""What one of our own tokens is in a provider's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.pricing.token_scale import (
    CREDIBLE,
    STEP,
    TOLERANCE,
    Yardstick,
)
from pager.pricing.tokens import BYTES_A_TOKEN

SIZE = 27_000  # bytes of 10,000 of our own tokens


def measured(*reports, model="some-model", calls=2):
    """A branch whose calls brought these reports of a prompt of 10,000 of our tokens, so many calls later."""
    found = Yardstick()
    for call, tokens in enumerate(reports, 1):
        found.begin(call, model)
        if tokens:
            found.report(call, tokens, SIZE)
    for call in range(len(reports) + 1, len(reports) + calls + 1):
        found.begin(call, model)
    return found


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-opus-4-5", 10_000),
        ("claude-opus-5-5", 12_857),
        ("gpt-5.6", 7_105),
        ("some-model", 10_000),
        ("", 10_000),
    ],
)
def test_before_any_report_the_models_family_is_the_measure(model, tokens):
    found = measured(model=model)
    assert found.tokens(SIZE) == tokens
    assert found.size(found.tokens(SIZE)) == pytest.approx(SIZE, abs=3)


def test_a_report_that_is_far_off_is_the_measure_from_then_on():
    assert measured(20_000).tokens(SIZE) == 20_000
    assert measured(20_000, 8_000).tokens(SIZE) == 8_000
    assert measured(7_105, model="gpt-5.6").tokens(SIZE) == 7_105


def test_a_report_counts_from_the_second_call_after_its_own_as_it_may_be_lost_or_late_before():
    assert measured(20_000, calls=1).tokens(SIZE) == 10_000
    assert measured(20_000, calls=2).tokens(SIZE) == 20_000


def test_reports_that_are_nearly_right_change_nothing():
    assert measured(10_900, 9_200, 10_400).tokens(SIZE) == 10_000


def test_a_report_that_was_lost_changes_nothing_where_those_beside_it_say_nearly_the_same():
    assert measured(20_000, None, 20_150, calls=5).scale == measured(20_000, 20_300, 20_150, calls=5).scale


@pytest.mark.parametrize("tokens", [400, 2_900, 30_100])
def test_a_report_of_a_small_prompt_or_of_something_else_than_text_tells_nothing(tokens):
    assert measured(tokens).tokens(SIZE) == 10_000


def test_another_model_is_measured_anew():
    found = measured(20_000)
    found.begin(4, "gpt-5.6")
    assert found.tokens(SIZE) == 7_105


def test_a_copy_goes_its_own_way():
    found = measured(20_000, calls=0)
    other = found.copy()
    other.report(2, 8_000, SIZE)
    for one in (found, other):
        one.begin(4, "some-model")
    assert (found.tokens(SIZE), other.tokens(SIZE)) == (20_000, 8_000)


def test_where_our_own_count_is_the_providers_nothing_changes_it():
    found = Yardstick(fixed=True)
    found.begin(1, "gpt-5.6")
    found.report(1, 20_000, SIZE)
    found.begin(9, "gpt-5.6")
    assert found.tokens(SIZE) == 10_000


@given(st.lists(st.integers(0, 10**6), max_size=20))
def test_the_measure_is_as_near_to_the_last_credible_report_as_is_tolerated(reports):
    found = measured(*reports)
    told = [tokens / 10_000 for tokens in reports if CREDIBLE[0] <= tokens / 10_000 <= CREDIBLE[1]]
    assert found.scale == pytest.approx(told[-1] if told else 1.0, rel=TOLERANCE + 1e-9, abs=STEP / 2)
    assert found.scale * SIZE / BYTES_A_TOKEN == pytest.approx(found.tokens(SIZE), abs=0.5)
