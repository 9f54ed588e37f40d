"""Providers' caches: what a branch's own calls make us believe."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pager.paging.policy import Prices
from pager.pricing.provider_cache import (
    TELLING,
    Cache,
    CacheKind,
    Evidence,
    uncached,
)

AUTOMATIC, MARKED, NONE = CacheKind
TTL = 300.0


def warm(evidence, idle, ttl):
    """Whether the planner would take the prefix to be in the cache: it goes by the prices as evidence corrects them."""
    return 0 < evidence.believed(Prices(ttl_seconds=ttl)).ttl_seconds >= idle


def test_a_cache_that_needs_marks_is_not_there_without_them():
    kinds = (AUTOMATIC, MARKED, NONE)
    assert [Cache(kind).serves(marked=False) for kind in kinds] == [True, False, False]
    assert [Cache(kind).serves(marked=True) for kind in kinds] == [True, True, False]


def test_without_a_cache_every_token_counts_in_full():
    assert uncached(Prices(0.1, 1.25, 5.0, 300.0)) == Prices(1.0, 1.0, 5.0, 0.0, 1.0)


# Evidence.

HIT, MISS, PART, UNTOLD = 9_500, 0, 6_000, None


def seen(*calls, model="m"):
    """The evidence of a first call of 10,000 tokens and then of these: (gap, cached), each of the same size again."""
    evidence, at = Evidence(), 1_000.0
    evidence.sent(at, model, 10_000, 0)
    evidence.reported(10_000, 0)
    for gap, cached in calls:
        at += gap
        evidence.sent(at, model, 10_000, 10_000)
        evidence.reported(10_000, cached)
    return evidence


def test_at_first_what_is_documented_is_believed():
    evidence = seen()
    assert evidence.caches(TTL)
    assert warm(evidence, TTL, TTL)
    assert not warm(evidence, TTL + 1, TTL)
    assert evidence.believed(Prices()) == Prices()


def test_two_empty_reports_in_a_row_mean_that_the_provider_does_not_cache():
    assert seen((5, MISS)).caches(TTL)
    evidence = seen((5, MISS), (5, MISS))
    assert not evidence.caches(TTL)
    assert not warm(evidence, 1.0, TTL)
    assert evidence.believed(Prices()) == Prices(1.0, 1.0, 5.0, 0.0, 1.0)


def test_a_report_of_anything_cached_means_that_it_does_after_all():
    assert seen((5, MISS), (5, MISS), (5, MISS), (5, PART)).caches(TTL)
    assert seen((5, MISS), (5, HIT), (5, MISS)).caches(TTL)


def test_an_empty_report_after_the_cache_had_time_to_die_means_nothing():
    evidence = seen((400, MISS), (500, MISS), (600, MISS))
    assert evidence.caches(TTL)
    assert evidence.lifetime(TTL) == TTL


def test_reports_that_do_not_mention_cached_tokens_prove_nothing():
    assert seen(*[(5, UNTOLD)] * 9) == replace(seen(), at=1_045.0)
    assert seen((5, MISS), (5, UNTOLD), (5, MISS)).caches(TTL) is False


def test_a_hit_after_a_longer_gap_than_documented_shows_a_longer_life():
    evidence = seen((900, HIT), (400, HIT))
    assert evidence.lifetime(TTL) == 900
    assert evidence.believed(Prices()) == Prices(ttl_seconds=900.0)


def test_two_misses_after_shorter_gaps_show_a_shorter_life():
    assert seen((5, HIT), (200, 10)).lifetime(TTL) == TTL
    assert seen((5, HIT), (200, 10), (100, 10)).lifetime(TTL) == 200
    assert seen((5, HIT), (200, 10), (250, 10), (100, 10)).lifetime(TTL) == 200


def test_misses_after_gaps_that_were_survived_before_are_chance():
    evidence = seen((250, HIT), (20, 10), (30, 10), (40, 10))
    assert evidence.lifetime(TTL) == TTL


def test_a_hit_takes_back_what_shorter_misses_seemed_to_show():
    assert seen((20, 10), (30, 10), (60, HIT)).lifetime(TTL) == TTL
    assert seen((20, 10), (90, 10), (60, HIT)).lifetime(TTL) == TTL


def test_a_hit_of_part_of_the_prefix_shows_neither():
    evidence = seen((900, PART), (5, PART), (5, PART))
    assert (evidence.held, evidence.lost) == (0.0, ())


def test_a_prompt_that_shares_little_with_the_one_before_tells_nothing():
    evidence = seen()
    for at in (1_001.0, 1_002.0, 1_003.0):
        evidence.sent(at, "m", 10_000, TELLING - 1)
        evidence.reported(10_000, 0)
    assert evidence.caches(TTL)


def test_the_providers_own_count_is_the_measure_of_what_is_shared():
    evidence = seen()
    for at in (1_001.0, 1_002.0):
        evidence.sent(at, "m", 3_000, 3_000)  # by our estimate
        evidence.reported(6_000, 0)
    assert not evidence.caches(TTL)


def test_a_prompt_that_was_changed_tells_nothing():
    evidence = seen()
    for at in (1_001.0, 1_002.0):
        evidence.sent(at, "m", 10_000, 10_000)
        evidence.changed()
        evidence.reported(10_000, 0)
    assert evidence.caches(TTL)


def test_a_call_that_went_out_in_full_and_the_one_after_it_tell_nothing():
    evidence = seen()
    evidence.sent(1_001.0, "m", 10_000, 10_000)
    evidence.sent_apart()
    evidence.reported(10_000, 0)
    evidence.sent(1_002.0, "m", 10_000, 10_000)
    evidence.reported(10_000, 0)
    assert (evidence.lost, evidence.empty) == ((), ())
    evidence.sent(1_003.0, "m", 10_000, 10_000)
    evidence.reported(10_000, 0)
    assert evidence.empty == (1.0,)


def test_a_call_after_one_that_was_not_answered_tells_nothing():
    evidence = seen()
    evidence.sent(1_400.0, "m", 10_000, 10_000)
    evidence.sent(1_401.0, "m", 10_000, 10_000)
    evidence.reported(10_000, 0)
    assert (evidence.held, evidence.lost, evidence.empty) == (0.0, (), ())


def test_only_the_first_report_of_a_call_counts():
    evidence = seen()
    evidence.sent(2_000.0, "m", 10_000, 10_000)
    evidence.reported(10_000, 10)
    evidence.reported(10_000, HIT)
    assert (evidence.held, evidence.lost) == (0.0, (1_000.0,))


def test_another_model_starts_anew():
    evidence = seen((900, HIT), (5, MISS), (5, MISS))
    evidence.sent(9_000.0, "other", 10_000, 10_000)
    evidence.reported(10_000, 0)
    assert evidence == Evidence("other", at=9_000.0, answered=True)


def test_prices_without_a_cache_stay_as_they_are():
    prices = Prices(1.0, 1.0, 5.0, 0.0)
    assert seen((900, HIT)).believed(prices) is prices


def test_a_copy_goes_its_own_way():
    evidence = seen((5, MISS))
    copy = evidence.copy()
    copy.sent(2_000.0, "m", 10_000, 10_000)
    copy.reported(10_000, 0)
    assert evidence == seen((5, MISS))
    assert copy != evidence


gaps = st.floats(0, 10_000)
reports = st.none() | st.integers(0, 10_000)
calls = st.lists(st.tuples(gaps, reports), max_size=30)


@given(calls, st.floats(1, 10_000))
def test_a_hit_is_always_warm_again_after_the_same_gap(history, ttl):
    evidence = seen(*history)
    longest = max((gap for gap, cached in history if cached is not None and cached >= 9_000), default=0.0)
    assert evidence.lifetime(ttl) >= longest - 1e-6
    assert warm(evidence, longest - 1e-6, ttl) == evidence.caches(ttl)


@given(calls, st.floats(1, 10_000))
def test_the_belief_lies_between_what_was_seen_and_what_is_documented(history, ttl):
    evidence = seen(*history)
    assert evidence.held <= evidence.lifetime(ttl) <= max(ttl, evidence.held)
    assert all(gap > evidence.held for gap in evidence.lost)
    assert len(evidence.lost) <= 2
    assert len(evidence.empty) <= 2


@given(calls, gaps, st.integers(1, 10_000), st.floats(1, 10_000))
def test_after_a_report_of_cached_tokens_the_provider_caches(history, gap, cached, ttl):
    assert seen(*history, (gap, cached)).caches(ttl)


@given(st.lists(gaps, max_size=30), st.floats(1, 10_000))
def test_what_is_not_told_changes_no_belief(silent, ttl):
    evidence = seen(*[(gap, None) for gap in silent])
    assert evidence.believed(Prices(ttl_seconds=ttl)) == Prices(ttl_seconds=ttl)


@given(calls, gaps, gaps, st.floats(1, 10_000))
def test_what_is_cold_stays_cold(history, idle, longer, ttl):
    evidence = seen(*history)
    assert warm(evidence, idle, ttl) >= warm(evidence, idle + longer, ttl)


@given(calls)
def test_no_belief_is_worse_than_no_cache(history):
    found = seen(*history).believed(Prices())
    assert found.read in (0.1, 1.0)
    assert 0 <= found.ttl_seconds < math.inf
