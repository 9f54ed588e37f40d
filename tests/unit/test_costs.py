"""What requests cost, by reported tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instrumentation.accounting.billing import UsageCost, cost, units
from pager.paging.policy import Prices
from pager.pricing.rates import in_force
from pager.request_values import Usage

PRICES = Prices(read=0.1, write=1.25, output=5.0, ttl_seconds=300.0)
OWN = {"own": {"input": 2.0, "output": 10.0, "cached": 0.2, "written": 2.5}, "other": {"input": 4.0}}
MODELS = in_force("", OWN)
counts = st.integers(0, 10**7)


def test_cached_written_plain_and_output_have_their_own_prices():
    usage = Usage(input=1_000, cached=600, written=300, output=20)
    assert units(usage, PRICES) == pytest.approx(0.1 * 600 + 1.25 * 300 + 100 + 5.0 * 20)


def test_haiku_5_5_costs_five_times_as_much_above_100_000_tokens():
    below, above = (Usage(input=total, cached=90_000, written=10_000, output=100) for total in (100_000, 100_001))
    assert cost(below, MODELS, "claude-haiku-5-5").dollars == pytest.approx(0.0009 + 0.00125 + 0.00005)
    assert cost(above, MODELS, "claude-haiku-5-5").dollars == pytest.approx(0.0045 + 0.00625 + 0.00025 + 5e-7)


def test_what_was_written_for_an_hour_costs_more():
    usage = Usage(input=1_000, written=900, written_5m=300, written_1h=600)
    assert units(usage, PRICES) == pytest.approx(1.25 * 300 + 2.0 * 600 + 100)
    assert units(Usage(input=900, written=900), PRICES) == pytest.approx(1.25 * 900), "nobody said how long"
    assert units(Usage(input=900, written=900, written_1h=9_999), PRICES) == pytest.approx(2.0 * 900)


def test_without_a_cache_every_input_token_counts_in_full():
    assert units(Usage(input=1_000, output=1), PRICES) == 1_005.0


def test_dollars_follow_from_the_models_own_price():
    usage = Usage(input=1_000_000, cached=900_000, output=1_000)
    found = cost(usage, MODELS, "own")
    assert found.units == pytest.approx(0.1 * 900_000 + 100_000 + 5 * 1_000)
    assert found.dollars == pytest.approx(0.9 * 0.2 + 0.1 * 2.0 + 0.001 * 10.0)


def test_a_model_without_a_known_price_costs_units_only():
    found = cost(Usage(input=100), MODELS, "nobody-knows-this-1")
    assert (found.units, found.dollars) == (100.0, None)


def test_the_model_that_answered_stands_in_where_the_one_asked_for_is_unknown():
    usage = Usage(input=1_000_000)
    assert cost(usage, MODELS, "nobody-knows-this-1", "other").dollars == 4.0
    assert cost(usage, MODELS, "own", "other").dollars == 2.0


def test_a_price_list_for_all_models_stands_over_their_ratios():
    fixed = in_force("none", OWN)
    assert cost(Usage(input=1_000_000, cached=900_000), fixed, "own").dollars == pytest.approx(2.0)


def test_a_sum_is_in_dollars_only_where_both_are():
    assert UsageCost(1.0, 2.0).plus(UsageCost(3.0, 4.0)) == UsageCost(4.0, 6.0)
    assert UsageCost(1.0, None).plus(UsageCost(3.0, 4.0)) == UsageCost(4.0, None)
    assert UsageCost().plus(UsageCost(3.0, 4.0)) == UsageCost(3.0, 4.0)


@given(counts, counts, counts, counts)
def test_a_cost_is_never_below_what_the_cheapest_tokens_would_be(plain, cached, written, output):
    usage = Usage(plain + cached + written, cached, written, output)
    least, most = 0.1 * usage.input + 5 * output, 1.25 * usage.input + 5 * output
    assert least - 1e-6 <= units(usage, PRICES) <= most + 1e-6


@given(counts, counts)
def test_tokens_counted_as_both_cached_and_written_are_not_paid_back(cached, written):
    assert units(Usage(max(cached, written), cached, written), PRICES) >= 0.1 * cached + 1.25 * written - 1e-6
