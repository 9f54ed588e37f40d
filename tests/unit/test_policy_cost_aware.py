"""cost_aware on prompts worked out by hand.

Reading a token costs 0.1 and writing one 1.1, so that a warm token that is written again costs 1 more. At call 42 a
session is taken to go on for 84 calls, and its cache to stay warm at least as long: (42 + 8) / 0.5 = 100.

The usual page frees 1,000 tokens and was used eight calls ago. A fault on it costs 0.1 * 20,000 + 5 * 40 for asking and
(1.1 - 0.1) * 1,040 for having the page written: 3,240. Where nothing is ever needed again (``PLAIN``), it is worth what
it saves in 84 calls: 1,000 * (1.1 + 0.1 * 83) = 9,400 out of a cold prompt, and 8,400 out of a warm one.

Where a demand of 0.5 or the like is given, it is the same for pages of all sizes: ``growth`` is 0.
"""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pager.errors import PolicyError
from pager.paging.policy import (
    Decision,
    PageView,
    Prices,
    View,
)
from pager.paging.priors import strength
from pager.pricing.rates import named_prices
from policies.cost_aware import CostAware

PRICES = Prices(read=0.1, write=1.1, output=5.0)
PAGE = PageView("", "result", 4_000, 1_040, 40, 0, 0, 500, 20, 8, 0, 0, False, False, True, True)
LARGE = {"tokens": 10_040}  # frees 10,000; a fault costs 12,240
RICH = 1_000_000.0
NOTHING_PAYS = "none of {} pages that could go pays for itself"


def view(warm=True, call=42, tokens=20_000, saved=RICH, tool_added=True, prices=PRICES, **more):
    """A branch at its 42nd call with the page tool in place and savings to spend; pages are added by ``shows``."""
    return View(call, prices, warm, 200_000, 0, tokens, saved=saved, tool_added=tool_added, **more)


def shows(given, **pages):
    """The same branch with these pages, in the order of the prompt."""
    shown = [structs.replace(PAGE, handle=name, position=i, **traits) for i, (name, traits) in enumerate(pages.items())]
    return replace(given, pages=shown)


def warm(**pages):
    return shows(view(), **pages)


def cold(**pages):
    return shows(view(warm=False), **pages)


FIXED = {"horizon": 2, "patience": 1, "margin": 0.1, "soon": 8, "cover": 1.3}  # whatever the defaults come to be


def plain(**options):
    """A policy to which nothing is ever needed again."""
    return CostAware(**{**FIXED, "reuse": 0, **options})


def wanted(demand, **options):
    """A policy to which pages of any size are needed with this chance in the call after their use."""
    return CostAware(**{**FIXED, "reuse": demand, "growth": 0, "margin": 0, **options})


PLAIN = plain()


# ---------------------------------------------------------------- cuts and their prices


def test_a_cold_prompt_lets_pages_go_for_free_wherever_they_stand():
    decision = PLAIN.choose(cold(a={"after": 15_000}, b={"after": 2_000}, c={"after": 100}))
    assert decision == Decision(("a", "b", "c"), 0, "3 of 3 pages: net 28200, price 0")


def test_a_warm_prompt_pays_for_writing_again_what_stands_behind_the_page():
    # 1,040 + 500 - 1,000 tokens are written again.
    assert PLAIN.choose(warm(a={})) == Decision(("a",), 0, "1 of 1 pages: net 7860, price 540")


def test_a_page_goes_while_it_saves_more_than_what_stands_behind_it_costs():
    # It is worth 8,400; with its stub 8,399 or 8,401 tokens are written again.
    policy = plain(margin=0)
    assert policy.choose(warm(a={"after": 8_359})) == Decision(("a",), 0, "1 of 1 pages: net 1, price 8399")
    assert policy.choose(warm(a={"after": 8_361})).evict == ()
    assert policy.choose(warm(a={"after": 9_360})) == Decision(
        reason="1 of 1 pages: net -1000, price 9400; does not pay"
    )


def test_of_several_cuts_the_one_with_the_greatest_net_wins():
    # From c on: 8,400 - 140. From b: 16,800 - 1,040. From a: 25,200 - 13,040.
    decision = PLAIN.choose(warm(a={"after": 15_000}, b={"after": 2_000}, c={"after": 100}))
    assert decision == Decision(("b", "c"), 1, "2 of 3 pages: net 15760, price 1040")


def test_a_page_that_saves_nothing_stays_though_it_stands_behind_the_cut():
    # b would save at most 140 * 8.4; a fault on it costs 2,380 and is as good as certain. From a on, 360 tokens stay.
    certain = {"tokens": 180, "idle": 1, "after": 1_140}
    given = warm(a={"usual": 0.0, "after": 1_320}, b=certain, c={"usual": 0.0, "after": 100})
    assert wanted(0.9).choose(given) == Decision(("a", "c"), 0, "2 of 3 pages: net 16440, price 360")


def test_the_first_eviction_is_priced_from_the_beginning_and_with_the_tool():
    # It saves 84,000. The tool costs 150 * (1.1 + 0.1 * 84); all 10,000 tokens that are kept are written again.
    given = warm(a=LARGE)
    first = replace(given, tool_added=False)
    assert PLAIN.choose(given).reason == "1 of 1 pages: net 83460, price 540"
    assert PLAIN.choose(first) == Decision(("a",), 0, "1 of 1 pages: net 72575, price 11425")
    assert PLAIN.choose(replace(first, warm=False)).reason == "1 of 1 pages: net 92575, price 1425"


def test_where_the_first_page_stands_does_not_matter_before_the_tool_is_added():
    reasons = {
        PLAIN.choose(replace(warm(a={**LARGE, "after": after}), tool_added=False)).reason for after in (0, 500, 9_000)
    }
    assert reasons == {"1 of 1 pages: net 72575, price 11425"}


def test_a_credit_pays_for_a_warm_repack_that_brings_a_multiple_of_its_price():
    # Net 7,860 for 540: 14.6 times the price.
    given = replace(warm(a={}), saved=0.0, credit=540.0)
    assert plain(on_credit=14).choose(given).evict == ("a",)
    assert plain(on_credit=15).choose(given) == Decision(
        cut=0, reason="1 of 1 pages: net 7860, price 540; not covered by 0 saved so far, nor by 540 of credit"
    )
    assert plain(on_credit=14).choose(replace(given, credit=539.0)).evict == ()


def test_what_the_session_saved_itself_pays_whatever_multiple_a_credit_must_bring():
    assert plain(on_credit=1_000).choose(replace(warm(a={}), saved=540.0, credit=540.0)).evict == ("a",)


def test_a_credit_pays_for_no_repack_of_a_cold_prompt():
    given = replace(cold(a={}), saved=0.0)
    assert PLAIN.choose(replace(given, credit=RICH)) == PLAIN.choose(given)


def test_a_page_that_would_pay_does_not_pay_for_the_tool():
    # 8,400 against 19,000 tokens written again and the tool.
    decision = plain(margin=0).choose(replace(warm(a={}), tool_added=False))
    assert decision == Decision(reason="1 of 1 pages: net -12025, price 20425; does not pay")


def test_where_a_provider_finds_less_than_stands_before_the_page_more_is_written_again():
    # 9,000 tokens stand before it, of which the provider finds 5,000: 4,000 more are written again than the 540 behind.
    decision = PLAIN.choose(warm(a={"before": 9_000, "found": 5_000}))
    assert decision == Decision(("a",), 0, "1 of 1 pages: net 3860, price 4540")
    assert PLAIN.choose(warm(a={"before": 9_000, "found": 9_000})).reason == "1 of 1 pages: net 7860, price 540"


# ---------------------------------------------------------------- what a repack must bring


# ---------------------------------------------------------------- prices that depend on the prompt's length


def stepped(step, tokens=21_000, call=42, **more):
    """A branch whose prompt costs five times as much above ``step`` tokens; it has grown by 500 a call."""
    prices = replace(PRICES, step_tokens=step, step_factor=5.0, step_output=5.0)
    return shows(view(call=call, tokens=tokens, prices=prices, **more), a={})


def test_a_prompt_that_comes_below_the_step_saves_on_all_of_its_tokens():
    # The page saves 5 * 8,400. 20,000 tokens cost 0.4 less now, and a call later, when there are 20,250 on average.
    decision = PLAIN.choose(stepped(20_500))
    assert decision == Decision(("a",), 0, "1 of 1 pages: net 57560, price 540")


def test_out_of_a_cold_prompt_that_is_what_writing_it_costs_more():
    # The page saves 5 * 9,400; 20,000 tokens cost 4 * 1.1 less now, and 20,250 of them 0.4 less a call later.
    assert PLAIN.choose(stepped(20_500, warm=False)).reason == "1 of 1 pages: net 143100, price 0"


def test_a_prompt_that_stays_above_the_step_is_written_again_at_the_price_above_it():
    assert PLAIN.choose(stepped(19_900)).reason == "1 of 1 pages: net 39300, price 2700"


def test_a_prompt_below_the_step_stays_there_for_longer():
    # The page saves 8,000 in 80 calls. The prompt is below the step in this call and three more instead of one.
    assert PLAIN.choose(stepped(20_500, tokens=20_000, call=40)).reason == "1 of 1 pages: net 23460, price 540"


def test_what_the_step_saves_in_the_same_call_pays_for_a_repack():
    # 8,000 are saved at once: enough for 540 tokens, not for 15,040.
    poor = stepped(20_500, saved=0.0)
    far = replace(poor, pages=[structs.replace(poor.pages[0], after=15_000)])
    assert PLAIN.choose(poor).evict == ("a",)
    assert PLAIN.choose(far).reason.endswith("not covered by 0 saved so far")


def test_without_a_cache_the_step_counts_for_one_call():
    # The page saves 5 * 1,000, and the 20,000 tokens that are left cost 4 less each.
    none = replace(named_prices("none"), step_tokens=20_500, step_factor=5.0)
    given = replace(stepped(20_500, warm=False), prices=none)
    assert PLAIN.choose(given).reason == "1 of 1 pages: net 85000, price 0"


def test_a_repack_must_bring_its_margin():
    # 7,860 are 0.393 of 20,000.
    assert plain(margin=0.3929).choose(warm(a={})).evict == ("a",)
    assert plain(margin=0.3931).choose(warm(a={})) == Decision(
        cut=0, reason="1 of 1 pages: net 7860, price 540; less than 0.3931 of 20000 tokens"
    )


def test_a_warm_repack_spends_only_what_was_saved():
    given = replace(warm(a={}), spent=1_000.0)
    assert PLAIN.choose(replace(given, saved=1_541.0)).evict == ("a",)
    assert PLAIN.choose(replace(given, saved=1_539.0)) == Decision(
        cut=0, reason="1 of 1 pages: net 7860, price 540; not covered by 539 saved so far"
    )


def test_a_cold_repack_must_soon_bring_what_a_fault_costs_with_what_was_saved():
    # In 8 calls it brings 1,000 * (1.1 + 0.7); 1.3 faults of 3,240 are 4,212: 2,412 are missing.
    given = replace(cold(a={}), spent=1_000.0)
    assert PLAIN.choose(replace(given, saved=3_413.0)).evict == ("a",)
    assert PLAIN.choose(replace(given, saved=3_411.0)) == Decision(
        cut=0, reason="1 of 1 pages: net 9400, price 0; not covered by 2411 saved so far"
    )


def test_a_cold_repack_that_covers_itself_needs_no_savings_but_pays_the_debt():
    # It brings 18,000 in 8 calls; 1.3 faults of 12,240 are 15,912.
    given = replace(cold(a=LARGE), saved=0.0)
    assert PLAIN.choose(given).evict == ("a",)
    assert PLAIN.choose(replace(given, spent=2_088.0)).evict == ("a",)
    assert PLAIN.choose(replace(given, spent=2_089.0)).evict == ()
    assert plain(soon=6).choose(given).evict == ("a",), "16,000 in 6 calls"
    assert plain(soon=5).choose(given).evict == (), "15,000 in 5 calls"


def test_a_first_cold_repack_has_to_cover_the_tool_too():
    # 1.465 faults are 17,931.6; the tool leaves 18,000 - 165 of what it brings.
    given = replace(cold(a=LARGE), saved=0.0)
    assert plain(cover=1.465).choose(given).evict == ("a",)
    assert plain(cover=1.465).choose(replace(given, tool_added=False)).evict == ()


def test_the_dearest_of_the_pages_that_go_has_to_be_covered():
    # 11,000 * 1.8 = 19,800 are brought; of the larger page 1.6 faults are 19,584, 1.7 are 20,808.
    given = replace(cold(a=LARGE, b={}), saved=0.0)
    assert plain(cover=1.6).choose(given).evict == ("a", "b")
    assert plain(cover=1.7).choose(given).evict == ()


# ---------------------------------------------------------------- how long a session lasts


def test_a_young_session_is_not_trusted_to_last():
    # At call 10 only 5 calls are counted on: 10,000 * (1.1 + 0.4) does not cover 15,912; at call 12, 16,000 in 6 do.
    given = replace(cold(a=LARGE), saved=0.0)
    assert PLAIN.choose(replace(given, call=10)) == Decision(
        cut=0, reason="1 of 1 pages: net 30000, price 0; not covered by 0 saved so far"
    )
    assert PLAIN.choose(replace(given, call=12)).evict == ("a",)


def test_a_session_that_has_just_begun_is_counted_on_for_one_call():
    # 10,000 * 1.1 and what was saved before.
    given = replace(cold(a=LARGE), call=1, to_go=99.0)
    assert PLAIN.choose(replace(given, saved=4_913.0)).evict == ("a",)
    assert PLAIN.choose(replace(given, saved=4_911.0)).reason.endswith("; not covered by 4911 saved so far")


def test_a_session_is_taken_to_have_one_call_to_go_at_least():
    once = "1 of 1 pages: net 1100, price 0"
    assert plain(margin=0).choose(replace(cold(a={}), call=0)).reason == once
    assert plain(margin=0).choose(replace(cold(a={}), to_go=0.2)).reason == once


def test_what_sessions_like_this_one_had_to_go_stands_over_what_it_has_had():
    policy = plain(horizon=9, margin=0)
    assert policy.choose(replace(cold(a={}), to_go=10.0)).reason == "1 of 1 pages: net 2000, price 0"
    assert policy.choose(replace(warm(a={}), to_go=30.0)).reason == "1 of 1 pages: net 2460, price 540"


# ---------------------------------------------------------------- the next cold moment


@pytest.mark.parametrize(
    ("patience", "colds", "reason"),
    [
        (1, 0, "1 of 1 pages: net 7860, price 540"),
        (1, 2, "1 of 1 pages: net 1460, price 540"),  # 20 calls save 2,000
        (0.5, 2, "1 of 1 pages: net 460, price 540"),
        (1, 4, "1 of 1 pages: net 571, price 540"),  # 50 / 4.5 calls
        (1, 12, "1 of 1 pages: net -140, price 540; does not pay"),  # 4 calls
        (2, 12, "1 of 1 pages: net 260, price 540"),
    ],
)
def test_a_warm_repack_has_to_pay_before_the_next_cold_moment(patience, colds, reason):
    assert plain(margin=0, patience=patience).choose(replace(warm(a={}), colds=colds)).reason == reason


def test_past_cold_moments_do_not_matter_while_it_is_cold():
    decisions = [PLAIN.choose(replace(cold(a={}), colds=colds)) for colds in (0, 2, 4, 1_000)]
    assert decisions == [Decision(("a",), 0, "1 of 1 pages: net 9400, price 0")] * 4


def test_a_cache_does_not_stay_warm_beyond_the_session():
    # 84 calls, or 42.
    assert plain(patience=10).choose(warm(a={})).reason == "1 of 1 pages: net 7860, price 540"
    assert plain(patience=10, horizon=1).choose(warm(a={})).reason == "1 of 1 pages: net 3660, price 540"


def test_just_before_a_cold_moment_only_pages_that_nobody_asks_for_are_worth_anything():
    # One call saves 100; a chance of 1 - sqrt(8 / 9) = 0.057 of a fault costs 185.
    policy = wanted(0.5, patience=0)
    assert policy.choose(warm(a={}, b={})) == Decision(reason=NOTHING_PAYS.format(2))
    assert policy.choose(warm(a={}, b={"usual": 0.0, "after": 0})).evict == ("b",)


def test_a_cache_is_taken_to_stay_warm_for_one_call_at_least():
    # 1,000 * 0.1, and with nothing behind the page its stub is all that is written again.
    assert plain(margin=0, patience=0).choose(warm(a={"after": 0})).reason == "1 of 1 pages: net 60, price 40"


# ---------------------------------------------------------------- which pages are needed again


def weighed(policy, to_go=99.0, is_warm=False, **traits):
    """What the policy makes of one such page, with so many calls to go."""
    (one,) = policy.explain(shows(view(warm=is_warm, to_go=to_go), a=traits))
    return one


# In 99 calls after one idle one, the chance is 1 - (1 / 100) ** strength = 1 - 10 ** (-2 * strength).
@pytest.mark.parametrize(
    ("traits", "chance"),
    [
        ({}, 0.68377),  # 0.25
        ({"idle": 0}, 0.68377),  # used in this very call: as good as one ago
        ({"idle": 33}, 0.29289),  # 1 - (33 / 132) ** 0.25
        ({"idle": 99}, 0.15910),  # 1 - (99 / 198) ** 0.25
        ({"faults": 1}, 0.82217),  # 0.375
        ({"faults": 3}, 0.82217),
        ({"superseded": True}, 0.43766),  # 0.125
        ({"superseded": True, "faults": 1}, 0.57830),  # 0.1875
        ({"usual": 2.0}, 0.9),  # 0.5
        ({"usual": 0.4}, 0.36904),  # 0.1
        ({"usual": 9.0}, 0.98741),  # 0.95 at most
        ({"usual": 0.0}, 0.0),
        ({"kind": "argument", "uses": 9, "tool_pages": 10, "tool_reused": 9, "age": 50}, 0.68377),  # all in ``usual``
    ],
)
def test_a_page_is_likelier_needed_again_the_more_it_is_in_demand_and_the_later_it_was_used(traits, chance):
    assert weighed(wanted(0.25), **{"idle": 1, **traits}).chance == pytest.approx(chance, abs=1e-5)


@pytest.mark.parametrize(
    ("tokens", "growth", "chance"),
    [
        (1_300, 0.5, 0.68377),  # 0.25
        (5_200, 0.5, 0.9),  # twice as much
        (325, 0.5, 0.43766),  # half as much
        (20_800, 0.5, 0.98741),  # four times, but 0.95 at most
        (2_600, 1, 0.9),
        (20_800, 0, 0.68377),
        (0, 0.5, 0.03143),  # as one token: 0.25 / sqrt(1,300)
    ],
)
def test_a_larger_page_is_likelier_needed_again(tokens, growth, chance):
    policy = CostAware(reuse=0.25, growth=growth)
    assert weighed(policy, tokens=tokens, idle=1).chance == pytest.approx(chance, abs=1e-5)


@pytest.mark.parametrize("tokens", [1, 1_000, 30_000])
def test_by_default_the_demand_is_the_one_that_experience_reckons_with(tokens):
    assert weighed(CostAware(), tokens=tokens, idle=1).chance == pytest.approx(1 - 10 ** (-2 * strength(tokens)))


# With a demand of 0.5 a page is gone for 2 * idle * (sqrt((idle + span - 1) / idle) - 1) more calls until it is needed.
@pytest.mark.parametrize(
    ("is_warm", "idle", "to_go", "demand", "saving"),
    [
        (False, 1, 81.0, 0.5, 2_700),  # 16 calls
        (True, 1, 81.0, 0.5, 1_700),
        (False, 27, 82.0, 0.5, 6_500),  # 54 calls
        (False, 1, 81.0, 0.0, 9_100),  # all 80
        (False, 1, 1.0, 0.5, 1_100),  # this call alone
        (True, 1, 1.0, 0.5, 100),
    ],
)
def test_a_page_saves_until_it_is_needed_or_the_session_ends(is_warm, idle, to_go, demand, saving):
    one = weighed(wanted(demand), to_go, is_warm, idle=idle)
    assert one.saving == pytest.approx(saving)


def test_a_page_is_worth_what_it_saves_less_what_a_fault_may_cost():
    # In 99 calls: 1,000 * (1.1 + 0.1 * 2 * (sqrt(99) - 1)) = 2,890 against 0.9 * 3,240 = 2,916.
    one = weighed(wanted(0.5), idle=1)
    assert (one.chance, one.fault) == (pytest.approx(0.9), pytest.approx(3_240))
    assert (one.saving, one.worth) == (pytest.approx(2_889.97, abs=0.01), pytest.approx(-26.03, abs=0.01))
    assert not one.goes


@pytest.mark.parametrize(
    ("traits", "goes"),
    [
        ({"idle": 1}, False),
        ({"idle": 0}, False),
        ({"idle": 2}, True),  # 3,528 - 0.859 * 3,240
        ({"idle": 1, "superseded": True}, True),
        ({"idle": 1, "usual": 0.9}, True),  # 3,194 - 0.874 * 3,240
        ({"idle": 1, "usual": 1.1}, False),
        ({"idle": 2, "faults": 1}, False),
        ({"idle": 2, "faults": 1, "superseded": True}, True),
    ],
)
def test_likely_pages_stay_and_superseded_ones_go_sooner(traits, goes):
    decision = wanted(0.5).choose(shows(view(warm=False, to_go=99.0), a=traits))
    assert decision.evict == (("a",) if goes else ())


@given(st.floats(0, 0.95), st.integers(1, 60), st.integers(1, 120))
def test_what_is_reckoned_at_once_is_near_what_call_after_call_would_give(demand, idle, to_go):
    kept = [prod(1 - demand / n for n in range(idle + 1, idle + calls + 1)) for calls in range(to_go + 1)]
    one = weighed(wanted(demand), float(to_go), idle=idle)
    assert one.chance == pytest.approx(1 - kept[to_go], abs=0.1)
    assert one.saving == pytest.approx(1_000 * (1.1 + 0.1 * sum(kept[1:to_go])), rel=0.15)


# ---------------------------------------------------------------- which pages are looked at


def test_a_page_no_larger_than_its_stub_stays():
    decision = plain(margin=0).choose(cold(a={"tokens": 39}, b={"tokens": 41}, c={"tokens": 40}))
    assert decision == Decision(("b",), 1, "1 of 3 pages: net 9, price 0")  # 1 * 9.4


def test_pinned_and_evicted_pages_are_left_alone():
    decision = PLAIN.choose(cold(a={**LARGE, "pinned": True}, b={**LARGE, "resident": False}, c={}))
    assert (decision.evict, decision.cut) == (("c",), 2)


def test_without_pages_that_could_go_nothing_goes():
    assert CostAware().choose(view()) == Decision(reason="no page may go")
    assert CostAware(limit=1).choose(cold(a={"pinned": True})) == Decision(reason="no page may go")


# ---------------------------------------------------------------- no cache

FULL = named_prices("none")


def uncached(**pages):
    """A prompt that is read in full on every call: 1 a token, so that a fault costs 20,200 and writes nothing."""
    return shows(view(warm=False, prices=FULL), **pages)


def test_without_a_cache_reading_is_as_dear_as_writing():
    assert Prices(read=1.0, write=1.0, output=5.0, ttl_seconds=0.0, write_long=1.0) == FULL


@pytest.mark.parametrize("to_go", [None, 1.0, 500.0])
@pytest.mark.parametrize("after", [0, 15_000])
def test_without_a_cache_a_page_is_weighed_for_one_call_wherever_it_stands(to_go, after):
    given = replace(uncached(a={"after": after}), to_go=to_go)
    assert PLAIN.choose(given) == Decision(("a",), 0, "1 of 1 pages: net 1000, price 0")


def test_without_a_cache_a_page_goes_once_a_call_without_it_brings_more_than_the_risk():
    # The chance of 1 - sqrt(n / (n + 1)) of a fault costs 1,155 after 8 calls, 940 after 10.
    assert wanted(0.5).choose(uncached(a={"idle": 8})) == Decision(reason=NOTHING_PAYS.format(1))
    assert wanted(0.5).choose(uncached(a={"idle": 10})) == Decision(("a",), 0, "1 of 1 pages: net 60, price 0")


def test_without_a_cache_there_is_no_margin():
    assert plain(margin=10).choose(uncached(a={})).evict == ("a",)


def test_without_a_cache_the_tool_is_paid_for_one_call_too():
    given = replace(uncached(a={}, b={"tokens": 140}), tool_added=False)
    assert PLAIN.choose(given).reason == "2 of 2 pages: net 950, price 150"
    assert (
        PLAIN.choose(replace(given, pages=given.pages[1:])).reason == "1 of 1 pages: net -50, price 150; does not pay"
    )


def test_without_a_cache_a_fault_is_covered_as_well():
    # In 8 calls a page brings 8,000; 1.3 faults of 20,200 are 26,260: three do not cover it, four do.
    given = replace(uncached(a={}, b={}, c={}, d={}), saved=0.0)
    assert PLAIN.choose(given).reason == "4 of 4 pages: net 4000, price 0"
    assert PLAIN.choose(replace(given, pages=given.pages[:3])).evict == ()


# ---------------------------------------------------------------- window first


def ten_pages(**traits):
    """Pages that free 10,000 of 20,000 tokens in a warm prompt, the later ones used later, with nothing to spend."""
    pages = {f"p{at}": {"idle": 20 - at, "after": 1_040 * (9 - at), **traits} for at in range(10)}
    return replace(warm(**pages), saved=0.0)


def test_a_prompt_above_its_limit_is_cut_below_it_whatever_that_costs():
    # It is cut to 0.8 of 15,000: 8,000 tokens go, those first that are worth most.
    decision = wanted(0.5, limit=15_000).choose(ten_pages())
    told = "8 of 10 pages: 20000 tokens are above the limit of 15000"
    assert decision == Decision(tuple(f"p{at}" for at in range(8)), 0, told, urgent=True)
    assert wanted(0.5).choose(ten_pages()).evict == ()


def test_above_the_limit_pages_go_in_the_order_of_the_prompt():
    given = ten_pages()
    given = replace(given, pages=[structs.replace(page, idle=20 - page.idle) for page in given.pages])
    decision = wanted(0.5, limit=15_000).choose(given)
    assert (decision.evict, decision.cut) == (tuple(f"p{at}" for at in range(2, 10)), 2), "the last used stay"


def test_of_pages_that_are_worth_the_same_the_first_go():
    assert plain(limit=19_000).choose(ten_pages(idle=8)).evict == ("p0", "p1", "p2", "p3", "p4")  # 4,800 tokens


def test_a_prompt_at_its_limit_is_left_alone():
    assert wanted(0.5, limit=20_000).choose(ten_pages()).evict == ()
    assert wanted(0.5, limit=19_999).choose(ten_pages()).evict != ()


def test_what_pays_may_be_enough_for_the_limit():
    decision = plain(limit=15_000).choose(replace(ten_pages(), saved=RICH))
    assert (len(decision.evict), decision.reason) == (10, "10 of 10 pages: net 83600, price 400")


def test_what_pays_goes_and_then_what_the_limit_demands():
    # b pays, and frees 1,000 of the 2,000 tokens that are too many; so the page in demand goes as well.
    given = warm(a={**LARGE, "after": 15_000, "usual": 9.0}, b={"after": 100})
    policy = wanted(0.1)
    assert policy.choose(given).evict == ("b",)
    decision = replace(policy, limit=18_000).choose(replace(given, tokens=20_000))
    told = "2 of 2 pages: 20000 tokens are above the limit of 18000"
    assert decision == Decision(("a", "b"), 0, told, urgent=True)


def test_where_all_pages_are_not_enough_for_the_limit_all_go_that_may():
    given = ten_pages()
    given.pages[3] = structs.replace(given.pages[3], pinned=True)
    assert len(plain(limit=100).choose(given).evict) == 9
    assert len(plain(limit=100).choose(replace(given, saved=RICH)).evict) == 9, "all of them pay"


# ---------------------------------------------------------------- why


def test_every_page_is_explained_in_the_order_of_the_prompt():
    given = warm(a={"pinned": True}, b={}, c={"resident": False}, d={"tokens": 20})
    told = PLAIN.explain(given)
    assert [one.page for one in told] == given.pages
    assert [one.goes for one in told] == [False, True, False, False]
    numbers = [(one.chance, one.saving, one.fault, one.worth) for one in told]
    assert numbers[0] == numbers[1] == numbers[2] == pytest.approx((0, 8_400, 3_240, 8_400))
    assert numbers[3] == pytest.approx((0, -168, 2_220, -168))


def test_of_no_pages_there_is_nothing_to_explain():
    assert list(CostAware().explain(view())) == []


# ---------------------------------------------------------------- options


@pytest.mark.parametrize("name", ["reuse", "growth", "horizon", "patience", "margin", "soon", "cover", "limit"])
@pytest.mark.parametrize("value", [-0.1, -1, True, "1", None, float("nan"), float("inf")])
def test_a_wrong_option_is_named_with_what_is_allowed(name, value):
    with pytest.raises(PolicyError) as caught:
        CostAware(**{name: value})
    assert str(caught.value) == f"policy 'cost_aware': {name} must be a number of at least 0, not {value!r}"


def test_all_options_may_be_nothing():
    assert CostAware(0, 0, 0, 0, 0, 0, 0, 0).choose(cold(a={})).evict == ("a",)


# ---------------------------------------------------------------- laws

page_traits = st.fixed_dictionaries(
    {
        "tokens": st.integers(0, 5_000),
        "after": st.integers(0, 20_000),
        "idle": st.integers(0, 40),
        "faults": st.integers(0, 2),
        "superseded": st.booleans(),
        "pinned": st.booleans(),
        "usual": st.floats(0, 4),
    }
)
pages = st.lists(page_traits, max_size=8).map(lambda given: {f"p{i}": traits for i, traits in enumerate(given)})
price_lists = st.sampled_from([PRICES, FULL])


@given(pages, st.booleans(), st.booleans(), price_lists)
def test_no_other_cut_would_have_brought_more(pages, is_warm, has_tool, prices):
    given = shows(view(is_warm, tool_added=has_tool, prices=prices), **pages)
    policy = CostAware(**{**FIXED, "margin": 0})
    told = policy.explain(given)
    left = 84 if prices.read < prices.write else 0
    tool = 0 if has_tool else 150 * (prices.write + prices.read * left)
    nets = [(0.0, ())]
    for first, page in enumerate(given.pages):
        gone = [one for one in told[first:] if one.page.evictable and one.worth > 0]
        if not gone or gone[0].page is not page:
            continue
        behind = page.tokens + page.after if has_tool else given.tokens
        kept = max(0, behind - sum(one.page.tokens - one.page.stub_tokens for one in gone))
        price = tool + ((prices.write - prices.read) * kept if is_warm else 0)
        nets.append((sum(one.worth for one in gone) - price, tuple(one.page.handle for one in gone)))
    chosen = policy.choose(given).evict
    (reached,) = [net for net, gone in nets if gone == chosen]
    assert reached == pytest.approx(max(nets)[0])


@given(pages, st.booleans(), st.booleans(), price_lists, st.integers(0, 25_000))
def test_the_same_view_gives_the_same_decision_in_the_order_of_the_prompt(pages, is_warm, has_tool, prices, limit):
    given = shows(view(is_warm, tool_added=has_tool, prices=prices, saved=2_000.0), **pages)
    decision = CostAware(margin=0.01, limit=limit).choose(given)
    assert CostAware(margin=0.01, limit=limit).choose(given) == decision
    gone = [page for page in given.pages if page.handle in decision.evict]
    assert decision.evict == tuple(page.handle for page in gone)
    assert not gone or decision.cut == gone[0].position
    assert all(page.evictable for page in gone)
    freed = sum(page.tokens - page.stub_tokens for page in gone)
    assert not limit or given.tokens - freed <= limit or len(gone) == sum(page.evictable for page in given.pages)
