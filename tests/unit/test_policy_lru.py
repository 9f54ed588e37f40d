"""lru on traces worked out by hand."""

import pytest
from msgspec import structs

from pager.errors import PolicyError
from pager.paging.policy import PageView, Prices, View
from policies.lru import Lru

PAGE = PageView("", "result", 400, 100, 40, 0, 0, 0, 5, 5, 0, 0, False, False, True, True)


def view(**pages):
    """A prompt with these pages, in this order; each has 100 tokens but for what is given."""
    shown = [
        structs.replace(PAGE, handle=handle, position=i, **traits) for i, (handle, traits) in enumerate(pages.items())
    ]
    return View(9, Prices(), warm=True, window=200_000, reserve=0, tokens=90_000, pages=shown)


def test_the_longest_unused_go_until_the_others_fit():
    # 400 tokens for 250: b (unused for 9 calls) leaves 300, d (unused for 7) leaves 200.
    shown = view(a={"idle": 5}, b={"idle": 9, "age": 9}, c={"idle": 0}, d={"idle": 7, "age": 7})
    decision = Lru(capacity=250).choose(shown)
    assert decision.evict == ("b", "d")
    assert decision.cut == 1
    assert decision.reason == "400 tokens in pages for a capacity of 250; 2 of 4 pages go, 200 tokens stay"


def test_pages_that_fit_exactly_stay():
    decision = Lru(capacity=200).choose(view(a={}, b={}))
    assert decision.evict == ()
    assert decision.cut is None
    assert decision.reason == "200 tokens in pages for a capacity of 200; 0 of 2 pages go, 200 tokens stay"


def test_one_token_over_the_default_capacity_one_page_goes():
    assert Lru().choose(view(a={"tokens": 30_000}, b={"tokens": 30_000})).evict == ()
    assert Lru().choose(view(a={"tokens": 30_000}, b={"tokens": 30_001})).evict == ("a",)


def test_of_pages_unused_for_as_long_the_oldest_goes():
    # c came before b and d, though a superseded page is among them.
    shown = view(a={"idle": 4, "age": 30}, b={"age": 8, "superseded": True}, c={"age": 20}, d={"age": 8})
    assert Lru(capacity=300).choose(shown).evict == ("c",)
    # b and d came together, later.
    assert Lru(capacity=200).choose(shown).evict == ("c", "b")


def test_of_pages_that_came_together_superseded_ones_go_then_the_first_in_the_prompt():
    # 500 for 200: c and e, which were superseded, leave 300; a is the first of the rest.
    decision = Lru(capacity=200).choose(view(a={}, b={}, c={"superseded": True}, d={}, e={"superseded": True}))
    assert decision.evict == ("c", "e", "a")
    assert decision.cut == 0


def test_pinned_pages_stay_but_fill_the_capacity():
    # 300 for 150: the pinned page can't go, so both others must.
    decision = Lru(capacity=150).choose(view(pinned={"pinned": True, "idle": 9, "age": 9}, a={}, b={}))
    assert decision.evict == ("a", "b")


def test_evicted_pages_do_not_fill_the_capacity():
    assert Lru(capacity=200).choose(view(gone={"resident": False, "tokens": 90_000}, a={}, b={})).evict == ()


def test_a_page_no_larger_than_its_stub_stays_though_the_rest_does_not_fit():
    decision = Lru(capacity=0).choose(view(tiny={"tokens": 40}, over={"tokens": 41}))
    assert decision.evict == ("over",)
    assert decision.reason == "81 tokens in pages for a capacity of 0; 1 of 2 pages go, 40 tokens stay"


@pytest.mark.parametrize("value", [-1, 2.5, "4", True, None])
def test_a_wrong_argument_is_named_with_what_is_allowed(value):
    with pytest.raises(PolicyError) as caught:
        Lru(capacity=value)
    assert str(caught.value) == f"policy 'lru': capacity must be a whole number of at least 0, not {value!r}"
