"""What an answer of page_in is known to have brought."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.paging.page_in import Brought, answer, brought_by
from pager.paging.pages.stub import handle_of

A, B = "".join(f"alpha {at}\n" for at in range(50)), "beta\n(a remark of its own)"


def given_for(*pages, **more):
    texts = {handle_of(page.encode()): page for page in pages}
    return answer(json.dumps({"pages": [*texts], **more}), texts.get).text


@given(st.text(min_size=1), st.sampled_from(["", "\n(Go on with your other tools.)"]))
def test_a_whole_page_is_found_in_its_answer(page, closing):
    assert brought_by(given_for(page) + closing) == Brought((handle_of(page.encode()),), page)


@pytest.mark.parametrize("page", [A, B], ids=["ended", "with a remark"])
def test_a_page_that_ends_like_a_remark_keeps_its_end(page):
    assert brought_by(given_for(page)).content == page


def test_parts_and_several_pages_are_known_by_their_handles():
    first, second = (handle_of(page.encode()) for page in (A, B))
    assert brought_by(given_for(A, lines="3-9,20")) == Brought((first,))
    assert brought_by(given_for(A, search="alpha 4")) == Brought((first,))
    assert brought_by(given_for(A, B)) == Brought((first, second))


@pytest.mark.parametrize("text", ["", "alpha", "Not known in this session: pg_0123456789abcdef.", "=== pg_ ==="])
def test_what_brought_nothing_is_none(text):
    assert brought_by(text) is None


def test_a_page_that_only_looks_like_another_is_not_that_one():
    wrong = given_for(A).replace("alpha 7", "alpha 8")
    assert brought_by(wrong) == Brought((handle_of(A.encode()),))
