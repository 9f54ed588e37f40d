"""When a prompt goes cold, and what that costs: small sums, made by hand."""

import asyncio

import pytest
from chat_items import call as tool_call
from chat_items import page, result, user
from logged_sessions import body, incoming, paging

from instrumentation.reports import status
from pager.log.stores.memory.store import Store
from pager.paging.warmth.going_cold import CachedPrompt, Warmth, cached_prompt, freed_when_cold, warmth
from pager.pricing.prices import Prices
from pager.proxy.call_log import CallLog
from pager.request_values import Usage
from pager.wire.dialects import load

PRICES = Prices(read=0.05, write=1.25, ttl_seconds=300.0)


def test_a_cold_prompt_is_written_instead_of_read():
    found = warmth(CachedPrompt(1_000.0, 100_000, 300.0, PRICES))
    assert found == Warmth(1_300.0, pytest.approx(125_000 - 5_000))


def test_what_a_cold_return_evicts_for_nothing_is_not_written():
    found = warmth(CachedPrompt(1_000.0, 100_000, 300.0, PRICES, freed=60_000))
    assert found.costs_more == pytest.approx(1.25 * 40_000 - 5_000)
    assert warmth(CachedPrompt(1_000.0, 100_000, 300.0, PRICES, freed=99_000)).costs_more == 0.0


def test_a_long_prompt_costs_more_by_the_step_of_its_price():
    stepped = Prices(read=0.1, write=1.25, step_tokens=100_000, step_factor=2.0)
    found = warmth(CachedPrompt(0.0, 120_000, 300.0, stepped, freed=40_000))
    assert found.costs_more == pytest.approx(1.25 * 80_000 - 2 * 0.1 * 120_000)


@pytest.mark.parametrize(
    "prompt",
    [
        CachedPrompt(1.0, 0, 300.0, PRICES),
        CachedPrompt(1.0, 9_000, 0.0, PRICES),
        CachedPrompt(1.0, 9_000, 300.0, Prices(read=1.0, write=1.0)),
    ],
)
def test_what_is_not_cached_never_goes_cold(prompt):
    assert warmth(prompt) == Warmth(None, 0.0)


def test_what_is_cached_is_what_was_read_and_written_at_marks_or_else_all_of_it():
    usage = Usage(10_000, 6_000, 3_000)
    assert cached_prompt(usage, PRICES, 5.0, by_marks=True) == CachedPrompt(5.0, 9_000, 300.0, PRICES)
    assert cached_prompt(usage, PRICES, 5.0, by_marks=False).tokens == 10_000
    assert cached_prompt(usage, PRICES, 5.0, by_marks=False, least=10_001).tokens == 0


def test_a_lifetime_that_was_granted_stands_over_the_documented_one():
    hour = Usage(10_000, 0, 9_000, written_1h=9_000)
    short = Usage(10_000, 0, 9_000, written_5m=1_000, written_1h=8_000)
    assert cached_prompt(hour, PRICES, 0.0, by_marks=True).lifetime == 3_600.0
    assert cached_prompt(short, PRICES, 0.0, by_marks=True).lifetime == 300.0
    assert cached_prompt(short, PRICES, 0.0, by_marks=True, held=900.0).lifetime == 900.0


def test_what_a_branch_would_free_is_asked_of_its_policy():
    async def play():
        calls, items = CallLog(Store(), load, 10, paging("cost_aware")), [user("do it")]
        for at in range(8):
            items += [tool_call(f"c{at}", path=f"src/{at}.py"), result(f"c{at}", page(f"part{at}", lines=400))]
            placed = await calls.receive(incoming(headers={"x-session-id": "one"}, at=1_000.0 + at, **body(*items)))
        return placed.paged

    paged = asyncio.run(play())
    known = (paged.rule.policy, paged.table, paged.outside, paged.terms)
    assert 0 < freed_when_cold(*known) < paged.table.prompt
    paged.table.stopped = "refused"
    assert freed_when_cold(*known) == 0


# ---------------------------------------------------------------- in words


def line(**more):
    known = {"under_way": 0, "cold_at": 1_300.0, "kept_until": None, "costs_more": 155_000.0, "dollars_more": 0.62}
    return {**known, **more}


@pytest.mark.parametrize(
    ("one", "now", "words"),
    [
        (line(), 1_210.0, "cold in 90 s, then $0.62 more"),
        (line(), 1_000.0, "cold in 5 min, then $0.62 more"),
        (line(cold_at=20_000.0), 1_000.0, "cold in 5 h, then $0.62 more"),
        (line(), 1_300.0, "cold now: the next call costs $0.62 more"),
        (line(dollars_more=0.0012), 1_301.0, "cold now: the next call costs $0.0012 more"),
        (line(dollars_more=None), 1_301.0, "cold now: the next call costs 155.0k token-equivalents more"),
        (line(costs_more=0.0, dollars_more=0.0), 1_301.0, "cold now: the next call costs nothing more"),
        (line(cold_at=None), 1_301.0, "nothing is cached"),
        (line(under_way=1), 1_301.0, "a call is under way"),
    ],
)
def test_the_state_in_words(one, now, words):
    assert status.words(one, now) == words


def test_a_session_that_is_kept_warm_says_until_when():
    assert status.words(line(kept_until=4_000.0), 1_000.0).startswith("kept warm until ")
    assert status.words(line(kept_until=900.0), 1_000.0).startswith("cold in ")
