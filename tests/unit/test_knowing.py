"""The plan of the default policy with the truth in place of its estimates, on prompts worked out by hand.

Reading a token costs 0.1 and writing one 1.1. The usual page has 1,040 tokens and frees 1,000; a fault on it costs
0.1 * 20,000 + 5 * 40 for asking and 1.0 * 1,040 for writing what was read before: 3,240. It is call 11 of 50.
"""

from dataclasses import replace

import pytest
from msgspec import structs

from instrumentation.replay.knowing_policy import Knowing
from instrumentation.replay.recording import Future
from pager.paging.policy import (
    Decision,
    PageView,
    Prices,
    View,
)
from policies.cost_aware import CostAware

PRICES = Prices(read=0.1, write=1.1, output=5.0)
UNCACHED = Prices(read=1.0, write=1.0, output=5.0, ttl_seconds=0.0)
PAGE = PageView("", "result", 4_000, 1_040, 40, 0, 0, 500, 9, 9, 0, 0, False, False, True, True)
NOTHING_PAYS = Decision(reason="none of 1 pages that could go pays for itself")


def future(calls=50, cold=(1,), **needs):
    return Future([number in cold for number in range(1, calls + 1)], needs)


def view(warm=True, tool_added=True, saved=10_000.0, **named):
    pages = [
        structs.replace(PAGE, handle=name, position=at, **traits) for at, (name, traits) in enumerate(named.items())
    ]
    return View(11, PRICES, warm, 200_000, 0, 20_000, pages, tool_added=tool_added, saved=saved)


def test_what_is_never_needed_saves_to_the_end():
    # 40 calls save 4,000; the stub and 500 tokens are written again.
    assert Knowing(future()).choose(view(a={})) == Decision(("a",), 0, "1 of 1 pages: net 3460, price 540")
    # Cold, the first of them saves 1,100 and nothing is written again.
    assert Knowing(future()).choose(view(warm=False, a={})) == Decision(("a",), 0, "1 of 1 pages: net 5000, price 0")


@pytest.mark.parametrize(("need", "goes"), [(11, False), (32, False), (33, True), (50, True)])
def test_a_page_stays_that_is_needed_before_it_has_saved_what_a_fault_costs(need, goes):
    # 1,000 * (1.1 + 0.1 * (need - 11)) against 3,240.
    decision = Knowing(future(a=[need]), rule=CostAware(margin=0.0)).choose(view(warm=False, a={}))
    assert decision.evict == (("a",) if goes else ())


def test_out_of_a_warm_prompt_nothing_counts_beyond_the_next_cold_call():
    # Five calls save 500; what is needed from the cold call on could be kept then.
    seen, knows = view(a={"after": 0}), CostAware(margin=0.0)
    assert Knowing(future(cold=(1, 16), a=[16]), rule=knows).choose(seen).reason == "1 of 1 pages: net 460, price 40"
    assert Knowing(future(cold=(1, 16), a=[15]), rule=knows).choose(seen) == NOTHING_PAYS


def test_out_of_a_cold_prompt_later_cold_calls_end_nothing():
    assert Knowing(future(cold=(1, 11, 16))).choose(view(warm=False, a={})).reason == "1 of 1 pages: net 5000, price 0"


def test_the_tool_costs_what_it_costs_to_the_end_of_the_session():
    # 150 * (1.1 + 0.1 * 39), of what 5,000 are saved.
    decision = Knowing(future()).choose(view(warm=False, tool_added=False, a={}))
    assert decision.reason == "1 of 1 pages: net 4250, price 750"


def test_where_nothing_is_cached_only_the_call_itself_counts():
    seen = replace(view(warm=False, saved=100_000.0, a={}), prices=UNCACHED)
    assert Knowing(future(a=[12])).choose(seen) == Decision(("a",), 0, "1 of 1 pages: net 1000, price 0")
    assert Knowing(future(a=[11])).choose(seen) == NOTHING_PAYS


def test_the_rules_of_thrift_hold_for_those_who_know_the_future_too():
    decision = Knowing(future()).choose(view(saved=0.0, a={}))
    assert decision == Decision(cut=0, reason="1 of 1 pages: net 3460, price 540; not covered by 0 saved so far")
    decision = Knowing(future(), rule=CostAware(margin=0.2)).choose(view(a={}))
    assert decision == Decision(cut=0, reason="1 of 1 pages: net 3460, price 540; less than 0.2 of 20000 tokens")
    assert Knowing(future(), rule=CostAware(limit=5_000)).choose(view(a={}, b={})).evict == ("a", "b")


def test_what_was_brought_back_is_known_by_what_it_holds():
    seen = view(warm=False, a={"resident": False}, copy={})
    assert Knowing(future(a=[12])).choose(seen).evict == ("copy",)
    assert Knowing(future(a=[12]), {"copy": ("a",)}).choose(seen).evict == ()


def test_where_no_page_may_go_nothing_is_weighed():
    assert Knowing(future()).choose(view(a={"pinned": True})) == Decision(reason="no page may go")


def test_what_sessions_usually_do_makes_no_difference():
    seen = view(a={})
    assert Knowing(future()).choose(replace(seen, to_go=1.0, colds=9)) == Knowing(future()).choose(seen)
