"""How likely a resting session goes on: what is shipped, what its user's sessions taught, and its own pauses."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from chat_items import call as tool_call
from chat_items import page, result, say, user
from hypothesis import given
from hypothesis import strategies as st
from logged_sessions import body, incoming, paging

from pager.log.stores.memory.store import Store
from pager.paging import planner
from pager.paging.priors import SHIPPED, Experience
from pager.paging.warmth.keep_warm import PricedRefreshes, Resting
from pager.paging.warmth.returns import (
    LONGEST,
    SHORTEST,
    Pause,
    Returns,
    WaitsFor,
    chance_of_rest,
    counted,
    counted_alive,
    usual_multiple,
)
from pager.pricing.prices import Prices
from pager.proxy.call_log import CallLog
from pager.wire.dialects import load

MESSAGES = Prices(read=0.1, write=1.25, output=5.0, ttl_seconds=300.0)


@given(st.sampled_from(WaitsFor), st.lists(st.floats(0, 1e6), min_size=2), st.floats(0.1, 5))
def test_the_longer_a_session_rests_the_fewer_still_do(waits_for, moments, times):
    chances = [chance_of_rest(waits_for, at, times) for at in sorted(moments)]
    assert all(0 < later <= sooner <= 1 for sooner, later in pairwise(chances))


def test_the_more_likely_a_return_the_fewer_still_rest():
    chances = [chance_of_rest(WaitsFor.USER, 600.0, times) for times in (0.5, 1.0, 2.0)]
    assert chances == sorted(chances, reverse=True)
    assert chances[2] == pytest.approx(chances[1] ** 2)


def test_a_tool_brings_a_session_back_sooner_than_a_user():
    for seconds in (600.0, 900.0, 3_600.0):
        assert chance_of_rest(WaitsFor.TOOL, seconds) < chance_of_rest(WaitsFor.USER, seconds)


def test_a_small_prompt_is_left_more_often_and_a_user_who_has_just_begun_comes_back():
    assert usual_multiple(WaitsFor.USER, 30_000, 20) < usual_multiple(WaitsFor.USER, 90_000, 20)
    assert usual_multiple(WaitsFor.USER, 90_000, 2) > usual_multiple(WaitsFor.USER, 90_000, 20)
    assert usual_multiple(WaitsFor.TOOL, 90_000, 20) == 1.0


def test_a_few_pauses_say_little_and_many_say_much():
    quick = [Pause(300.0, WaitsFor.USER)]
    few, many = counted(quick * 2).multiple, counted(quick * 200).multiple
    assert 1.0 < few < 1.2
    assert many > 5


def test_pauses_that_never_ended_make_returns_less_likely():
    gone = [Pause(LONGEST, WaitsFor.USER, returned=False)] * 50
    assert counted(gone).multiple < 0.5


def test_short_pauses_say_nothing():
    assert counted([Pause(SHORTEST, WaitsFor.TOOL)]) == Returns()
    assert counted_alive([Pause(SHORTEST, WaitsFor.TOOL)]) == Returns()


def test_that_a_living_session_came_back_every_time_is_no_news():
    usual = [Pause(seconds, WaitsFor.USER) for seconds in (320.0, 380.0, 470.0, 640.0, 1_400.0)]
    assert counted_alive(usual).multiple == pytest.approx(1.0, abs=0.1)
    assert counted(usual).multiple > 1.1


def test_what_the_users_sessions_taught_counts_for_that_user_alone():
    known = Experience(pauses={"ann claude-cli": {"user": Returns(60.0, 20.0)}})
    assert known.returns("ann", "claude-cli/2.1", WaitsFor.USER) == pytest.approx(2.0)
    for tenant, kind in (("ann", WaitsFor.TOOL), ("bob", WaitsFor.USER)):
        assert known.returns(tenant, "claude-cli/2.1", kind) == 1.0
    assert known.version
    assert SHIPPED.returns("ann", "claude-cli/2.1", WaitsFor.USER) == 1.0


def test_a_user_who_never_comes_back_is_kept_warm_less():
    def refreshes(returns):
        resting = Resting(100_000, 100_000, WaitsFor.USER, 10.0, MESSAGES, returns=returns)
        return len(PricedRefreshes().refreshes(resting))

    assert refreshes(0.1) < refreshes(1.0)


def test_no_repack_counts_for_longer_than_the_window_has_room():
    async def play():
        calls = CallLog(Store(), load, 10, paging("cost_aware"))
        items = [user("do it"), tool_call("c1", path="a.py"), result("c1", page("alpha", lines=2_000))]
        paged = (await calls.receive(incoming(**body(*items, model="claude-opus-5-5")))).paged

        def to_go(window):
            terms = replace(paged.terms, window=window)
            return planner.resting(paged.rule.policy, paged.table, paged.outside, terms, WaitsFor.TOOL).to_go

        tokens = planner.view(paged.table, paged.outside, paged.terms).tokens
        assert to_go(100 * tokens) == 1.0  # as many calls as it has had
        assert to_go(int(1.5 * tokens)) == pytest.approx(1.5 * planner.COMPACTED_AT - 1, abs=0.001)
        assert to_go(tokens) == 0.0

    asyncio.run(play())


def test_a_session_knows_its_own_pauses_and_what_it_waited_for():
    async def play():
        calls = CallLog(Store(), load, 10, paging("cost_aware"))
        history, pauses = [user("do it"), tool_call("c1", path="a.py"), result("c1", page("alpha"))], []
        steps = [
            (1_000.0, []),
            (1_100.0, [say("done"), user("go on")]),  # too short to count
            (1_500.0, [tool_call("c2", path="b"), result("c2", "x")]),
            (3_000.0, [say("ready"), user("thanks")]),
        ]
        for at, new in steps:
            history += new
            came = incoming(headers={"x-session-id": "one"}, at=at, **body(*history, model="claude-opus-5-5"))
            pauses = (await calls.receive(came)).paged.table.pauses
        assert pauses == [Pause(400.0, WaitsFor.TOOL), Pause(1_500.0, WaitsFor.USER)]

    asyncio.run(play())
