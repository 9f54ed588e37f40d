"""What a provider with a prompt cache charges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instrumentation.accounting.billing import (
    REMEMBERED,
    Bill,
    Charged,
    Marks,
    Prompt,
    tokens_in,
)
from pager.paging.policy import Prices
from pager.pricing.tokens import BYTES_A_TOKEN

PRICES = Prices(read=0.1, write=1.25, output=5.0, ttl_seconds=300.0)


def prompt(**parts):
    return Prompt.of([name.encode() for name in parts], parts.values())


def test_the_first_request_is_written_whole():
    bill = Bill(PRICES)
    assert bill.charge(prompt(head=100, a=20), 0.0, 7) == Charged(120 * 1.25 + 35, 120, 0, 7, 1, 120, written=120)


def test_what_a_request_repeats_is_read_and_the_rest_written():
    bill = Bill(PRICES)
    bill.charge(prompt(head=100, a=20), 0.0, 0)
    assert bill.charge(prompt(head=100, a=20, b=3), 10.0, 0).cost == pytest.approx(120 * 0.1 + 3 * 1.25)
    assert bill.charged == Charged(pytest.approx(150 + 12 + 3.75), 243, 120, 0, 2, 123, written=123)


def test_a_change_in_the_middle_writes_all_that_stands_after_it_again():
    bill = Bill(PRICES)
    bill.charge(prompt(head=100, a=20, b=3), 0.0, 0)
    assert bill.charge(prompt(head=100, stub=5, b=3), 10.0, 0).cached == 100


@pytest.mark.parametrize(("later", "cached"), [(300.0, 120), (300.5, 0)])
def test_the_cache_lives_as_long_as_the_prices_say(later, cached):
    bill = Bill(PRICES)
    bill.charge(prompt(head=100, a=20), 0.0, 0)
    assert bill.charge(prompt(head=100, a=20), later, 0).cached == cached


def test_an_older_request_may_hold_more_than_the_latest():
    bill = Bill(PRICES)
    bill.charge(prompt(head=100, a=20, b=3), 0.0, 0)
    bill.charge(prompt(other=9), 1.0, 0)
    assert bill.charge(prompt(head=100, a=20, c=3), 2.0, 0).cached == 120


def test_only_so_many_requests_are_remembered():
    bill = Bill(PRICES)
    bill.charge(prompt(head=100), 0.0, 0)
    for at in range(REMEMBERED):
        bill.charge(prompt(**{f"other{at}": 9}), 1.0, 0)
    assert bill.charge(prompt(head=100), 2.0, 0).cached == 0


def test_each_request_may_have_prices_of_its_own():
    bill = Bill(PRICES)
    assert bill.charge(prompt(head=100), 0.0, 2, Prices(1.0, 1.0, 8.0, 0.0)).cost == 116


def test_a_prompt_above_the_step_costs_more_for_all_of_its_tokens_and_its_answer():
    bill = Bill(Prices(0.1, 1.25, 5.0, 300.0, step_tokens=120, step_factor=5.0, step_output=4.0))
    assert bill.charge(prompt(head=100, a=20), 0.0, 2).cost == 120 * 1.25 + 10
    assert bill.charge(prompt(head=100, a=20, b=3), 1.0, 2).cost == 5 * (120 * 0.1 + 3 * 1.25) + 4 * 10


def test_a_grown_prompt_keeps_its_beginning():
    grown = prompt(head=100, a=20, b=3).grown([b"c"], [7], 2)
    assert grown == prompt(head=100, a=20, c=7)
    assert prompt(head=100).grown([b"a"], [20]) == prompt(head=100, a=20)
    assert Prompt().grown([b"a"], [1]) == prompt(a=1)
    assert (Prompt().tokens, grown.tokens) == (0, 127)


def test_bytes_become_tokens_at_the_measured_rate():
    assert [tokens_in(size) for size in (0, 1, round(100 * BYTES_A_TOKEN))] == [1, 1, 100]


# ---- the law: the same figures as a bill that looks at every part of every request

requests = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
        st.sampled_from([0.0, 1.0, 200.0, 400.0]),
        st.integers(0, 9),
    ),
    max_size=20,
)
SIZES = {"a": 1, "b": 20, "c": 300}


def naive(series):
    """The totals of a series of requests, each compared part by part with all that may be held."""
    cost, held, clock, tokens, cached_in_all = 0.0, [], 0.0, 0, 0
    for parts, gap, output in series:
        clock += gap
        hits = []
        for at, other in held[-REMEMBERED:]:
            if clock - at <= PRICES.ttl_seconds:
                same = 0
                while same < min(len(parts), len(other)) and parts[same] == other[same]:
                    same += 1
                hits.append(same)
        cached = sum(SIZES[part] for part in parts[: max(hits, default=0)])
        written = sum(SIZES[part] for part in parts) - cached
        cost += PRICES.read * cached + PRICES.write * written + PRICES.output * output
        tokens, cached_in_all = tokens + cached + written, cached_in_all + cached
        held.append((clock, parts))
    return cost, tokens, cached_in_all


@given(requests)
def test_the_bill_is_the_same_as_one_that_compares_part_by_part(series):
    bill, clock = Bill(PRICES), 0.0
    for parts, gap, output in series:
        clock += gap
        bill.charge(Prompt.of([part.encode() for part in parts], [SIZES[part] for part in parts]), clock, output)
    charged = bill.charged
    assert (charged.cost, charged.input, charged.cached) == pytest.approx(naive(series))
    assert charged.requests == len(series)


# ---------------------------------------------------------------- where a provider caches at marks


def marked(*parts, lifetime=300.0):
    return Marks(dict.fromkeys(parts, lifetime), lambda part: 1)


def test_what_ends_at_a_mark_is_written_and_the_rest_is_plain_input():
    bill = Bill(PRICES)
    paid = bill.charge(prompt(head=100, a=20, b=30), 0.0, 0, marks=marked(1, 2))
    assert paid == Charged(pytest.approx(120 * 1.25 + 30), 150, 0, 0, 1, 150, written=120)
    paid = bill.charge(prompt(head=100, a=20, b=30, c=5), 10.0, 0, marks=marked(1, 4))
    assert paid == Charged(pytest.approx(120 * 0.1 + 35 * 1.25), 155, 120, 0, 1, 155, written=35), (
        "found from behind it"
    )


def test_what_is_marked_for_an_hour_is_written_at_the_price_of_an_hour_and_lives_as_long():
    bill = Bill(PRICES)
    assert bill.charge(prompt(head=100, a=20), 0.0, 0, marks=marked(1, 2, lifetime=3600.0)).cost == 240
    paid = bill.charge(prompt(head=100, a=20, b=10), 3_600.0, 0, marks=marked(1, 3, lifetime=3600.0))
    assert (paid.cached, paid.written_1h, paid.cost) == (120, 10, pytest.approx(32))
    assert bill.charge(prompt(head=100, a=20), 7_201.0, 0, marks=marked(1, 2)).cached == 0


def test_a_change_is_paid_from_the_last_living_mark_before_it_on():
    bill = Bill(PRICES)
    bill.charge(prompt(head=100, a=20, b=30, c=40), 0.0, 0, marks=marked(1, 4))
    changed = bill.charge(prompt(head=100, a=20, x=3, c=40), 1.0, 0, marks=marked(1, 4))
    assert (changed.cached, changed.written) == (100, 63), "only the head ends at a mark before the change"
    bill.charge(prompt(head=100, a=20, x=3, c=40), 2.0, 0, marks=marked(1, 2, 4))
    changed = bill.charge(prompt(head=100, a=20, y=3, c=40), 3.0, 0, marks=marked(1, 2, 4))
    assert (changed.cached, changed.written) == (120, 43), "a mark on what was read kept that alive"
