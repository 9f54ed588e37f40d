"""clear_oldest on traces worked out by hand."""

from dataclasses import replace

import pytest
from msgspec import structs

from pager.errors import PolicyError
from pager.paging.policy import PageView, Prices, View
from policies.clear_oldest import ClearOldest

# Frees 10,000 tokens net of its stub.
RESULT = PageView("", "result", 40_000, 10_040, 40, 0, 0, 0, 1, 1, 0, 0, False, False, True, True, tool="read")


def view(tokens, **pages):
    """A prompt of so many tokens with these pages; each is given by what differs from a plain result."""
    shown = [
        structs.replace(RESULT, handle=handle, position=i, **traits) for i, (handle, traits) in enumerate(pages.items())
    ]
    return View(9, Prices(), warm=True, window=200_000, reserve=0, tokens=tokens, pages=shown)


FIVE = {"a": {}, "b": {}, "c": {}, "d": {}, "e": {}}


def test_above_the_trigger_all_results_but_the_last_three_go():
    # a and b free 2 * (10,040 - 40) = 20,000: exactly the least.
    decision = ClearOldest().choose(view(100_001, **FIVE))
    assert decision.evict == ("a", "b")
    assert decision.cut == 0
    assert decision.reason == "100001 tokens are above the trigger of 100000; clearing 2 of 5 pages frees 20000"


def test_at_the_trigger_nothing_goes():
    decision = ClearOldest().choose(view(100_000, **FIVE))
    assert decision.evict == ()
    assert decision.cut is None
    assert decision.reason == "the prompt of 100000 tokens is not above the trigger of 100000"


def test_one_token_short_of_the_least_nothing_goes():
    decision = ClearOldest().choose(view(150_000, **{**FIVE, "a": {"tokens": 10_039}}))
    assert decision.evict == ()
    assert decision.cut is None
    assert decision.reason == (
        "150000 tokens are above the trigger of 100000; clearing 2 of 5 pages would free 19999, fewer than 20000"
    )


def test_without_a_least_any_gain_is_enough_but_none_is_not():
    policy = ClearOldest(keep=1, clear_at_least=0)
    assert policy.choose(view(150_000, tiny={"tokens": 41}, last={})).evict == ("tiny",)
    assert policy.choose(view(150_000, last={})).reason == (
        "150000 tokens are above the trigger of 100000; clearing 0 of 1 pages would free 0, fewer than 1"
    )


def test_excluded_tools_stay_and_count_among_the_last():
    # The last three are c, d and e; of a and b, b is excluded.
    pages = {**FIVE, "b": {"tool": "memory"}, "d": {"tool": "memory"}}
    decision = ClearOldest(clear_at_least=10_000, exclude_tools=["memory"]).choose(view(150_000, **pages))
    assert decision.evict == ("a",)


def test_what_stays_does_not_count_as_cleared():
    # Only b can go, which frees 10,000 of the 10,001 asked for.
    pages = {
        "pinned": {"pinned": True},
        "evicted": {"resident": False},
        "arg": {"kind": "argument"},
        "b": {},
        "last": {},
    }
    assert ClearOldest(keep=1, clear_at_least=10_001).choose(view(150_000, **pages)).evict == ()
    decision = ClearOldest(keep=1, clear_at_least=10_000).choose(view(150_000, **pages))
    assert decision.evict == ("b",)
    assert decision.cut == 3


def test_a_result_no_larger_than_its_stub_stays():
    pages = {"grows": {"tokens": 39}, "equal": {"tokens": 40}, "b": {}, "last": {}}
    assert ClearOldest(keep=1, clear_at_least=10_000).choose(view(150_000, **pages)).evict == ("b",)


def test_the_oldest_stand_first_in_the_prompt_however_they_are_shown():
    shown = view(150_000, **FIVE)
    assert ClearOldest().choose(replace(shown, pages=shown.pages[::-1])) == ClearOldest().choose(shown)


@pytest.mark.parametrize("name", ["trigger", "keep", "clear_at_least"])
@pytest.mark.parametrize("value", [-1, 2.5, "4", True, None])
def test_a_wrong_number_is_named_with_what_is_allowed(name, value):
    with pytest.raises(PolicyError) as caught:
        ClearOldest(**{name: value})
    assert str(caught.value) == f"policy 'clear_oldest': {name} must be a whole number of at least 0, not {value!r}"


@pytest.mark.parametrize("value", ["memory", [1], None])
def test_wrong_names_of_tools_are_named_with_what_is_allowed(value):
    with pytest.raises(PolicyError) as caught:
        ClearOldest(exclude_tools=value)
    assert str(caught.value) == f"policy 'clear_oldest': exclude_tools must be a list of tools' names, not {value!r}"
