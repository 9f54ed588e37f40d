"""Policies that know the future, on prompts worked out by hand.

Reading a token costs 0.1 and writing one 1.1, so that a warm token that is written again costs 1 more. The usual page
has 1,040 tokens and frees 1,000; a fault on it costs 0.1 * 20,000 + 5 * 40 for asking, and 1.1 * 1,040 for writing it:
3,344. The branch is at call 11 of 50.
"""

from dataclasses import replace
from math import inf

import pytest
from msgspec import structs

from benchmarks.optimum.foresight import Belady, Greedy, next_needs
from instrumentation.replay.recording import Future
from pager.paging.policy import (
    Decision,
    PageView,
    Prices,
    View,
)

PRICES = Prices(read=0.1, write=1.1, output=5.0)
PAGE = PageView("", "result", 4_000, 1_040, 40, 0, 0, 500, 9, 9, 0, 0, False, False, True, True)
NOTHING_PAYS = "none of {} pages that could go pays for itself"


def future(calls=50, cold=(1,), **needs):
    return Future([number in cold for number in range(1, calls + 1)], needs)


def view(warm=True, tool_added=True, pages=None, **named):
    shown = [
        structs.replace(PAGE, handle=name, position=at, **traits) for at, (name, traits) in enumerate(named.items())
    ]
    return View(11, PRICES, warm, 200_000, 0, 20_000, pages or shown, tool_added=tool_added)


def goes(decision):
    return decision.evict


# ---------------------------------------------------------------- what is needed next


def test_a_page_is_needed_at_the_next_call_that_repeats_it_this_one_included():
    seen = view(a={}, b={}, c={})
    assert next_needs(future(a=[3, 11, 20], b=[10]), seen, {}) == {"a": 11, "b": inf, "c": inf}


def test_of_pages_with_one_content_the_last_that_is_there_is_needed():
    shown = [structs.replace(PAGE, handle=name, position=at) for at, name in enumerate(["a", "a@2", "a@3"])]
    shown[2] = structs.replace(shown[2], resident=False)
    assert next_needs(future(a=[12]), view(pages=shown), {}) == {"a": inf, "a@2": 12, "a@3": inf}


def test_what_was_brought_back_is_needed_for_what_it_holds():
    seen = view(a={"resident": False}, b={}, copy={})
    needs = next_needs(future(a=[30], b=[20]), seen, {"copy": ("a", "b")})
    assert needs == {"a": inf, "b": inf, "copy": 20}


# ---------------------------------------------------------------- Belady


def test_belady_lets_go_what_is_needed_last_and_first_of_all_what_never_is():
    seen = view(a={}, b={}, c={}, d={})
    knows = future(a=[40], b=[20], d=[30])
    assert goes(Belady(knows, 4_160).choose(seen)) == ()
    assert goes(Belady(knows, 4_159).choose(seen)) == ("c",)
    assert goes(Belady(knows, 2_080).choose(seen)) == ("a", "c")
    assert Belady(knows, 2_079).choose(seen) == Decision(
        ("a", "c", "d"), 0, "3 pages go: 1040 tokens stay for a capacity of 2079"
    )


def test_belady_keeps_what_is_pinned_and_lets_others_go_instead():
    seen = view(a={"pinned": True}, b={}, c={"resident": False})
    assert goes(Belady(future(b=[12]), 0).choose(seen)) == ("b",)


# ---------------------------------------------------------------- Greedy


def test_greedy_lets_go_out_of_a_cold_prompt_what_is_never_needed():
    # Each saves 1,000 * (1.1 + 0.1 * 39) for nothing.
    decision = Greedy(future()).choose(view(warm=False, a={"after": 15_000}, b={"after": 100}))
    assert decision == Decision(("a", "b"), 0, "2 pages go: net 10000")


def test_greedy_counts_the_cold_calls_to_come():
    # 1,000 * (1.1 + 0.1 * 38 + 1.1).
    decision = Greedy(future(cold=(1, 30))).choose(view(warm=False, a={}))
    assert decision.reason == "1 pages go: net 6000"


@pytest.mark.parametrize(("need", "gone"), [(11, False), (33, False), (34, True), (50, True)])
def test_greedy_keeps_what_is_needed_before_it_has_saved_what_a_fault_costs(need, gone):
    # Cold: 1,000 * (1.1 + 0.1 * (need - 11)) against 3,344.
    decision = Greedy(future(a=[need])).choose(view(warm=False, a={}))
    assert bool(goes(decision)) == gone


def test_greedy_weighs_a_warm_cut_against_what_is_written_again():
    # 40 calls save 4,000; the stub and what stands behind are written again.
    assert goes(Greedy(future()).choose(view(a={"after": 3_959}))) == ("a",)
    decision = Greedy(future()).choose(view(a={"after": 3_961}))
    assert decision == Decision(reason="the best of 1 cuts has a net of -1")


def test_greedy_finds_the_cut_with_the_greatest_net():
    # From c on: 4,000 - 140; from b: 8,000 - 1,040; from a: 12,000 - 13,040.
    seen = view(a={"after": 15_000}, b={"after": 2_000}, c={"after": 100})
    assert Greedy(future()).choose(seen) == Decision(("b", "c"), 1, "2 pages go: net 6960")


def test_a_warm_repack_is_worth_nothing_beyond_the_next_cold_call():
    # Five calls save 500; whatever is needed later could be kept then.
    seen = view(a={"after": 400})
    assert Greedy(future(cold=(1, 16), a=[16])).choose(seen) == Decision(("a",), 0, "1 pages go: net 60")
    assert Greedy(future(cold=(1, 16), a=[15])).choose(seen) == Decision(reason=NOTHING_PAYS.format(1))


def test_before_the_tool_is_there_all_of_the_prompt_is_written_again_with_it():
    seen = view(tool_added=False, a={"tokens": 12_040})
    # 40 calls save 48,000; 8,000 tokens are written again, and 150 cost 1.1 + 0.1 * 39.
    assert Greedy(future()).choose(seen).reason == "1 pages go: net 39250"
    assert Greedy(future()).choose(replace(seen, warm=False)).reason == f"1 pages go: net {12_000 * 5 - 750}"


def test_greedy_with_a_margin_waits_for_more():
    seen = view(a={"after": 0})
    assert goes(Greedy(future(), margin=0.19).choose(seen)) == ("a",)
    assert goes(Greedy(future(), margin=0.2).choose(seen)) == ()


def test_greedy_keeps_what_may_not_go():
    seen = view(warm=False, a={"pinned": True}, b={"resident": False}, c={"tokens": 40})
    assert Greedy(future()).choose(seen) == Decision(reason=NOTHING_PAYS.format(0))


def test_greedy_knows_what_a_copy_holds():
    seen = view(warm=False, a={"resident": False}, copy={})
    assert goes(Greedy(future(a=[12])).choose(seen)) == ("copy",)
    assert goes(Greedy(future(a=[12]), {"copy": ("a",)}).choose(seen)) == ()
