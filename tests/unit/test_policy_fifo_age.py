"""fifo_age on traces worked out by hand."""

from dataclasses import replace

import pytest
from msgspec import structs

from pager.errors import PolicyError
from pager.paging.policy import PageView, Prices, View
from policies.fifo_age import FifoAge

# Five calls old and 501 bytes: just over both limits.
OVER = PageView("", "result", 501, 150, 40, 0, 0, 0, 5, 5, 0, 0, False, False, True, True)


def view(**pages):
    """A prompt with these pages, in this order; each is given by what differs from one just over both limits."""
    shown = [
        structs.replace(OVER, handle=handle, position=i, **traits) for i, (handle, traits) in enumerate(pages.items())
    ]
    return View(9, Prices(), warm=True, window=100_000, reserve=0, tokens=9_000, pages=shown)


def test_a_page_goes_when_it_is_over_both_limits():
    decision = FifoAge().choose(
        view(
            young={"age": 3},
            small={"size": 300},
            old={"age": 8},  # over 4 calls and over 500 bytes
            large={"size": 90_000},  # the same
            new={"age": 0, "size": 90_000},
        )
    )
    assert decision.evict == ("old", "large")
    assert decision.cut == 2
    assert decision.reason == "2 of 5 pages can go at over 4 calls and 500 bytes"


def test_a_page_exactly_at_a_limit_stays():
    decision = FifoAge().choose(view(at_age={"age": 4}, at_size={"size": 500}, over={}))
    assert decision.evict == ("over",)


def test_the_limits_are_arguments():
    decision = FifoAge(age=1, size=0).choose(view(a={"age": 1}, b={"age": 2, "size": 1}, c={"age": 2, "size": 0}))
    assert decision.evict == ("b",)


def test_pages_of_every_kind_go_used_or_not():
    decision = FifoAge().choose(view(argument={"kind": "argument"}, used={"idle": 0, "uses": 9}))
    assert decision.evict == ("argument", "used")


def test_pinned_and_evicted_pages_and_those_no_larger_than_their_stub_stay():
    decision = FifoAge().choose(view(pinned={"pinned": True}, evicted={"resident": False}, tiny={"tokens": 40}))
    assert decision.evict == ()
    assert decision.cut is None
    assert decision.reason == "0 of 3 pages can go at over 4 calls and 500 bytes"


def test_pages_go_in_the_order_of_the_prompt_however_they_are_shown():
    shown = view(a={}, b={}, c={})
    decision = FifoAge().choose(replace(shown, pages=shown.pages[::-1]))
    assert decision.evict == ("a", "b", "c")
    assert decision.cut == 0


@pytest.mark.parametrize("name", ["age", "size"])
@pytest.mark.parametrize("value", [-1, 2.5, "4", True, None])
def test_a_wrong_argument_is_named_with_what_is_allowed(name, value):
    with pytest.raises(PolicyError) as caught:
        FifoAge(**{name: value})
    assert str(caught.value) == f"policy 'fifo_age': {name} must be a whole number of at least 0, not {value!r}"
