"""Keeping a prompt cached while its session rests: what a warm return is worth, and which refreshes pay."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.errors import ConfigError
from pager.paging.warmth.keep_warm import (
    MARGIN,
    FixedRefreshes,
    PricedRefreshes,
    Resting,
    rule_of,
)
from pager.paging.warmth.returns import WaitsFor
from pager.pricing.prices import Prices


def prices(read=0.1, write=1.25, ttl=300.0):
    return Prices(read=read, write=write, output=5.0, ttl_seconds=ttl)


def resting(tokens=100_000, packed=None, *, waits_for=WaitsFor.TOOL, to_go=10.0, budget=float("inf"), at=None):
    return Resting(tokens, tokens if packed is None else packed, waits_for, to_go, at or prices(), budget)


def count(one, rule=None):
    return len((rule or PricedRefreshes()).refreshes(one))


def test_a_warm_return_saves_writing_against_what_a_repack_would_save():
    # cold: 40,000 written at 1.25 and read ten times at 0.1; warm: 100,000 read eleven times at 0.1
    assert resting(packed=40_000).stake == pytest.approx(40_000 * (1.25 + 10 * 0.1) - 11 * 100_000 * 0.1)
    # nothing to evict: the whole prompt is written instead of read
    assert resting().stake == pytest.approx(100_000 * (1.25 - 0.1))


def test_a_prompt_with_much_to_evict_is_let_go():
    assert count(resting(packed=90_000)) > 0
    assert resting(packed=30_000).stake < 0
    assert count(resting(packed=30_000)) == 0


def test_refreshes_come_a_margin_before_each_lifetime_is_over():
    times = PricedRefreshes().refreshes(resting())
    assert times
    assert times == [(300 - MARGIN) * number for number in range(1, len(times) + 1)]


def test_a_provider_that_does_not_cache_is_not_kept_warm():
    for rule in (PricedRefreshes(), FixedRefreshes(2, 280.0)):
        assert count(resting(at=prices(read=1.0, write=1.0)), rule) == 0


def test_a_lifetime_that_is_hardly_longer_than_the_margin_is_not_kept_up():
    assert count(resting(at=prices(ttl=2 * MARGIN))) == 0


def test_the_cheaper_a_read_the_longer_a_prompt_is_kept():
    counts = [count(resting(at=prices(read=read))) for read in (0.3, 0.1, 0.05, 0.025)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_no_more_is_spent_than_the_budget():
    wanted = count(resting())
    assert wanted >= 2
    assert count(resting(budget=1.5 * resting().refresh_cost)) == 1
    assert count(resting(budget=0.99 * resting().refresh_cost)) == 0


def test_a_limit_of_refreshes_is_kept_and_none_means_none():
    assert count(resting(), PricedRefreshes(most=1)) == 1
    assert count(resting(), PricedRefreshes(most=0)) == 0


def test_a_fixed_rule_refreshes_whatever_it_costs_from_a_size_on():
    rule = FixedRefreshes(2, 280.0, smallest=20_000)
    assert list(rule.refreshes(resting(packed=100, budget=0.0))) == [280.0, 560.0]
    assert count(resting(19_999), rule) == 0
    assert count(resting(20_000), rule) == 2


def test_a_fixed_rule_that_would_come_late_does_not_come():
    assert count(resting(), FixedRefreshes(2, 300.0)) == 0


@given(
    st.integers(0, 10**6),
    st.floats(0, 1),
    st.sampled_from(WaitsFor),
    st.floats(0, 500),
    st.floats(0, 10**6),
    st.sampled_from([0.025, 0.05, 0.1, 0.5, 1.0]),
)
def test_no_refresh_is_late_or_beyond_the_budget(tokens, left, waits_for, to_go, budget, read):
    one = resting(tokens, int(tokens * left), waits_for=waits_for, to_go=to_go, budget=budget, at=prices(read))
    times = PricedRefreshes().refreshes(one)
    assert all(later - sooner < 300 for sooner, later in pairwise([0.0, *times]))
    assert len(times) * one.refresh_cost <= budget


def test_rules_have_names():
    assert rule_of("off") is None
    assert rule_of("") is None
    assert rule_of("auto") == PricedRefreshes()
    assert rule_of("2x280") == FixedRefreshes(2, 280.0)
    assert rule_of("2x280@20000") == FixedRefreshes(2, 280.0, 20_000)
    for wrong in ("on", "2x", "x280", "2x280s", "²x280", "2x280@", "2x280@20k"):
        with pytest.raises(ConfigError, match="as in 2x280"):
            rule_of(wrong)
