"""watermark on traces worked out by hand."""

from dataclasses import replace

import pytest
from msgspec import structs

from pager.errors import PolicyError
from pager.paging.policy import PageView, Prices, View
from policies.watermark import Watermark

# Frees 100 tokens net of its stub.
PAGE = PageView("", "result", 400, 140, 40, 0, 0, 0, 5, 5, 0, 0, False, False, True, True)


def view(tokens, **pages):
    """A prompt of so many tokens; the usable window has 1,000, so the default marks are at 750 and 500."""
    shown = [
        structs.replace(PAGE, handle=handle, position=i, **traits) for i, (handle, traits) in enumerate(pages.items())
    ]
    return View(9, Prices(), warm=True, window=1_200, reserve=200, tokens=tokens, pages=shown)


SIX = {"a": {}, "b": {}, "c": {}, "d": {}, "e": {}, "f": {}}


def test_past_the_high_mark_pages_go_until_the_prompt_is_below_the_low_mark():
    # 751 - 100 - 100 - 100 = 451 is the first below 500.
    decision = Watermark().choose(view(751, **SIX))
    assert decision.evict == ("a", "b", "c")
    assert decision.cut == 0
    assert decision.reason == (
        "751 tokens are above the high mark of 750; 3 of 6 pages go, 451 tokens stay for a low mark of 500"
    )


def test_at_the_high_mark_nothing_goes():
    decision = Watermark().choose(view(750, **SIX))
    assert decision.evict == ()
    assert decision.cut is None
    assert decision.reason == "the prompt of 750 tokens is not above the high mark of 750"


def test_exactly_at_the_low_mark_one_more_goes():
    # 800 - 3 * 100 = 500 is not below 500 yet.
    assert Watermark().choose(view(800, **SIX)).evict == ("a", "b", "c", "d")


def test_between_the_marks_nothing_happens_until_the_high_mark_is_passed_again():
    policy = Watermark()
    first = policy.choose(view(760, **SIX))
    assert first.evict == ("a", "b", "c")  # 460 are left
    rest = {**SIX, **{handle: {"resident": False} for handle in first.evict}}
    assert [policy.choose(view(tokens, **rest)).evict for tokens in (460, 600, 750)] == [(), (), ()]
    assert policy.choose(view(751, **rest)).evict == ("d", "e", "f")


def test_superseded_go_first_then_the_longest_unused_then_the_oldest_then_the_first():
    # 951 needs five of six to go: 451. Only the page in use stays.
    pages = {
        "in_use": {"idle": 0, "age": 9},
        "later": {"idle": 3, "age": 6},
        "oldest": {"idle": 3, "age": 9},
        "later_still": {"idle": 3, "age": 6},
        "unused": {"idle": 8, "age": 8},
        "superseded": {"idle": 0, "age": 1, "superseded": True},
    }
    decision = Watermark().choose(view(951, **pages))
    assert decision.evict == ("superseded", "unused", "oldest", "later", "later_still")
    assert decision.cut == 1


def test_where_too_little_can_go_all_that_can_goes():
    # 900 - 100 = 800 stays above even the high mark.
    pages = {"pinned": {"pinned": True}, "evicted": {"resident": False}, "tiny": {"tokens": 40}, "only": {}}
    decision = Watermark().choose(view(900, **pages))
    assert decision.evict == ("only",)
    assert decision.cut == 3
    assert decision.reason == (
        "900 tokens are above the high mark of 750; 1 of 4 pages go, 800 tokens stay for a low mark of 500"
    )


def test_the_marks_are_arguments():
    # Marks at 300 and 200: 301 - 100 = 201 is not below 200, 101 is.
    assert Watermark(high=0.3, low=0.2).choose(view(300, **SIX)).evict == ()
    assert Watermark(high=0.3, low=0.2).choose(view(301, **SIX)).evict == ("a", "b")


def test_a_reserve_that_leaves_no_window_lets_all_go():
    shown = replace(view(500, a={}, b={}), reserve=5_000)
    decision = Watermark().choose(shown)
    assert decision.evict == ("a", "b")
    assert decision.reason.startswith("500 tokens are above the high mark of 0;")


@pytest.mark.parametrize("value", [0, -0.1, 1.01, 75, float("nan"), "0.7", True, None])
def test_a_wrong_high_mark_is_named_with_what_is_allowed(value):
    with pytest.raises(PolicyError) as caught:
        Watermark(high=value, low=0.0)
    assert str(caught.value) == f"policy 'watermark': high must be a share above 0 and up to 1, not {value!r}"


@pytest.mark.parametrize("value", [-0.1, 0.75, 0.9, float("nan"), "0.5", False, None])
def test_a_wrong_low_mark_is_named_with_what_is_allowed(value):
    with pytest.raises(PolicyError) as caught:
        Watermark(low=value)
    assert str(caught.value) == f"policy 'watermark': low must be a share from 0 to below high (0.75), not {value!r}"


def test_the_widest_marks_are_allowed():
    assert Watermark(high=1, low=0).choose(view(1_000, **SIX)).evict == ()
    assert Watermark(high=1, low=0).choose(view(1_001, **SIX)).evict == ("a", "b", "c", "d", "e", "f")
