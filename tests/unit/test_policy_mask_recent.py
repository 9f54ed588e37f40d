"""mask_recent on traces worked out by hand."""

from dataclasses import replace

import pytest
from msgspec import structs

from pager.errors import PolicyError
from pager.paging.policy import PageView, Prices, View
from policies.mask_recent import MaskRecent

RESULT = PageView("", "result", 900, 300, 40, 0, 0, 0, 1, 1, 0, 0, False, False, True, True)


def view(**pages):
    """A prompt with these pages, in this order; each is given by what differs from a plain result."""
    shown = [
        structs.replace(RESULT, handle=handle, position=i, **traits) for i, (handle, traits) in enumerate(pages.items())
    ]
    return View(9, Prices(), warm=True, window=100_000, reserve=0, tokens=9_000, pages=shown)


def results(count):
    return {f"r{index}": {} for index in range(count)}


def test_ten_results_all_stay():
    decision = MaskRecent().choose(view(**results(10)))
    assert decision.evict == ()
    assert decision.cut is None
    assert decision.reason == "0 of 10 results stand before the last 10 and can go"


def test_of_twelve_results_the_first_two_go():
    decision = MaskRecent().choose(view(**results(12)))
    assert decision.evict == ("r0", "r1")
    assert decision.cut == 0
    assert decision.reason == "2 of 12 results stand before the last 10 and can go"


def test_other_kinds_are_neither_counted_nor_evicted():
    # The last two results are c and d, so a and b go; the three others stay wherever they stand.
    shown = view(schema={"kind": "schema"}, a={}, arg={"kind": "argument"}, b={}, c={}, block={"kind": "block"}, d={})
    decision = MaskRecent(keep=2).choose(shown)
    assert decision.evict == ("a", "b")
    assert decision.cut == 1


def test_an_evicted_result_among_the_last_makes_no_room_for_an_older_one():
    # The last two are c (evicted already) and d: b goes although it is among the last two residents.
    decision = MaskRecent(keep=2).choose(view(a={"resident": False}, b={}, c={"resident": False}, d={}))
    assert decision.evict == ("b",)
    assert decision.cut == 1


def test_pinned_results_and_those_no_larger_than_their_stub_stay():
    decision = MaskRecent(keep=1).choose(
        view(pinned={"pinned": True}, tiny={"tokens": 40}, over={"tokens": 41}, last={})
    )
    assert decision.evict == ("over",)


def test_with_nothing_to_keep_all_results_go():
    assert MaskRecent(keep=0).choose(view(a={}, b={})).evict == ("a", "b")


def test_the_last_are_last_in_the_prompt_however_they_are_shown():
    shown = view(a={}, b={}, c={}, d={})
    assert MaskRecent(keep=2).choose(replace(shown, pages=shown.pages[::-1])).evict == ("a", "b")


@pytest.mark.parametrize("value", [-1, 2.5, "4", True, None])
def test_a_wrong_argument_is_named_with_what_is_allowed(value):
    with pytest.raises(PolicyError) as caught:
        MaskRecent(keep=value)
    assert str(caught.value) == f"policy 'mask_recent': keep must be a whole number of at least 0, not {value!r}"
