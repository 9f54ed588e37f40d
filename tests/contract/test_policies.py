"""The laws of policies; every file in ``policies`` joins by existing."""

import copy
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

from pager.paging.policy import (
    Decision,
    PageView,
    Policy,
    Prices,
    View,
)
from pager.paging.policy_loader import load_policy, policy_names

MakePolicy = Callable[[], Policy]
COUNT = st.integers(0, 300)
TOKENS = st.integers(0, 50_000)
# A busy machine is no reason to fail.


@st.composite
def pages(draw, index: int, before: int, after: int, tokens: int) -> PageView:
    """One page of a prompt, at its place in it."""
    age, uses = draw(COUNT), draw(COUNT)
    return PageView(
        handle=f"pg_{draw(st.integers(0, 2**32)):08x}{index:08x}",
        kind=draw(st.sampled_from(["result", "argument", "schema", "block"])),
        size=draw(st.integers(0, 200_000)),
        tokens=tokens,
        stub_tokens=draw(st.integers(0, 64)),
        position=index,
        before=before,
        after=after,
        age=age,
        idle=draw(st.integers(0, age)),
        uses=uses,
        faults=draw(COUNT),
        superseded=draw(st.booleans()),
        pinned=draw(st.booleans()),
        cached=draw(st.booleans()),
        resident=draw(st.booleans()),
        tool=draw(st.sampled_from(["", "read", "bash"])),
        tool_pages=draw(COUNT),
        tool_reused=draw(COUNT),
    )


@st.composite
def views(draw, least_pages: int = 0) -> View:
    """A branch at one call: pages in the order of the prompt, with other text between them."""
    sizes = draw(st.lists(st.tuples(TOKENS, TOKENS), min_size=least_pages, max_size=12))
    total = sum(gap + size for gap, size in sizes) + draw(TOKENS)
    shown, before = [], 0
    for index, (gap, size) in enumerate(sizes):
        before += gap
        shown.append(draw(pages(index, before, total - before - size, size)))
        before += size
    prices = st.builds(Prices, *(st.floats(0, 10) for _ in range(3)), ttl_seconds=st.floats(0, 3600))
    return View(
        call=draw(COUNT),
        prices=draw(prices),
        warm=draw(st.booleans()),
        window=draw(st.integers(1, 2_000_000)),
        reserve=draw(TOKENS),
        tokens=total,
        pages=shown,
        facts=draw(st.lists(st.sampled_from(["fault", "client_rewrote_history"]), max_size=3)),
    )


def result(index: int, tokens: int, rest: int) -> PageView:
    """The result at a place of a long prompt; ``rest`` gives its other traits, a bit or two each."""
    age = 60 - index
    traits = {"superseded": rest & 1 == 0, "pinned": rest >> 1 & 3 == 0, "resident": rest >> 3 & 3 != 0}
    return PageView(
        f"pg_{index:016x}", "result", 20 * tokens, tokens, 40, index, 0, 0, age, rest % age, 1, 0, cached=True, **traits
    )


@st.composite
def long_views(draw) -> View:
    """Many results in a prompt that fills its window, for rules that do nothing on little."""
    drawn = draw(
        st.lists(st.tuples(st.sampled_from([1, 40, 41, 10_000]), st.integers(0, 255)), min_size=20, max_size=60)
    )
    shown = [result(index, tokens, rest) for index, (tokens, rest) in enumerate(drawn)]
    return View(60, Prices(), warm=True, window=180_000, reserve=20_000, tokens=150_000, pages=shown)


SESSIONS = st.lists(views(), min_size=1, max_size=4)
LONG_SESSIONS = st.lists(long_views(), min_size=1, max_size=2)


def decides(make: MakePolicy, session: Sequence[View]) -> list[Decision]:
    policy = make()
    return [policy.choose(view) for view in session]


def gives_decisions_with_reasons(make: MakePolicy, session: Sequence[View]) -> None:
    for decision in decides(make, session):
        assert isinstance(decision, Decision)
        assert isinstance(decision.evict, tuple)
        assert decision.reason, "a decision is logged with its reason"


def decides_the_same_on_the_same_session(make: MakePolicy, session: Sequence[View]) -> None:
    assert decides(make, session) == decides(make, copy.deepcopy(session))


def never_evicts_pinned_pages(make: MakePolicy, session: Sequence[View]) -> None:
    for view, decision in zip(session, decides(make, session), strict=True):
        assert not {page.handle for page in view.pages if page.pinned} & set(decision.evict)


def evicts_only_what_it_was_shown(make: MakePolicy, session: Sequence[View]) -> None:
    for view, decision in zip(session, decides(make, session), strict=True):
        assert set(decision.evict) <= {page.handle for page in view.pages}


def evicts_only_what_is_resident(make: MakePolicy, session: Sequence[View]) -> None:
    for view, decision in zip(session, decides(make, session), strict=True):
        assert not {page.handle for page in view.pages if not page.resident} & set(decision.evict)


def names_no_page_twice(make: MakePolicy, session: Sequence[View]) -> None:
    for decision in decides(make, session):
        assert len(set(decision.evict)) == len(decision.evict)


def evicts_only_what_a_stub_makes_smaller(make: MakePolicy, session: Sequence[View]) -> None:
    for view, decision in zip(session, decides(make, session), strict=True):
        assert not {page.handle for page in view.pages if page.tokens <= page.stub_tokens} & set(decision.evict)


def cuts_at_the_first_page_that_goes(make: MakePolicy, session: Sequence[View]) -> None:
    for view, decision in zip(session, decides(make, session), strict=True):
        places = [page.position for page in view.pages if page.handle in decision.evict]
        assert not places or decision.cut == min(places)


def changes_nothing_it_is_shown(make: MakePolicy, session: Sequence[View]) -> None:
    before = copy.deepcopy(session)
    decides(make, session)
    assert session == before


LAWS = [
    gives_decisions_with_reasons,
    decides_the_same_on_the_same_session,
    never_evicts_pinned_pages,
    evicts_only_what_it_was_shown,
    evicts_only_what_is_resident,
    names_no_page_twice,
    evicts_only_what_a_stub_makes_smaller,
    cuts_at_the_first_page_that_goes,
    changes_nothing_it_is_shown,
]


@pytest.mark.parametrize("name", policy_names())
@given(session=SESSIONS)
def test_every_policy_keeps_every_law(name, session):
    for law in LAWS:
        law(lambda: load_policy(name), session)


@pytest.mark.parametrize("name", policy_names())
@given(session=LONG_SESSIONS)
@examples(30)
def test_every_policy_keeps_every_law_in_long_sessions(name, session):
    for law in LAWS:
        law(lambda: load_policy(name), session)


@pytest.mark.parametrize("name", policy_names())
@given(view=views())
def test_every_policy_evicts_nothing_where_there_is_nothing(name, view):
    empty = View(view.call, view.prices, view.warm, view.window, view.reserve, view.tokens, pages=(), facts=view.facts)
    assert load_policy(name).choose(empty).evict == ()


# Enough pages for the order of a set of handles to differ from process to process.
IN_A_PROCESS_OF_ITS_OWN = """
import sys
from pager.paging.policy_loader import load_policy
from pager.paging.policy import PageView, Prices, View
pages = [
    PageView(f"pg_{i:016x}", "result", 4000, 900 + i % 7, 40, i, 1000 * i, 1000 * (60 - i), 60 - i, (60 - i) // 2,
             i % 3, 0, superseded=i % 4 == 0, pinned=i % 10 == 0, cached=i < 50, resident=True, tool="read")
    for i in range(60)
]
policy = load_policy(sys.argv[1])
for warm in (True, False):
    print(policy.choose(View(60, Prices(), warm, 61_000, 4_000, 60_000, pages)))
"""


def decisions_under_hash_seed(name: str, seed: str) -> str:
    command = [sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN, name]
    env = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(command, capture_output=True, check=True, text=True, env=env).stdout


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_decides_the_same_in_every_process(name):
    first = decisions_under_hash_seed(name, "1")
    assert first.count("Decision(") == 2
    assert first == decisions_under_hash_seed(name, "2")


class Evicts:
    """A policy that evicts what a function picks, to show that the laws can be broken."""

    def __init__(self, pick):
        self.pick = pick

    def choose(self, view):
        return Decision(evict=tuple(self.pick(view)), reason="picked")


class Unreasoned:
    def choose(self, view):
        return Decision()


class Mutating:
    def choose(self, view):
        view.pages.clear()
        return Decision(reason="cleared")


def remembering() -> MakePolicy:
    """Policies that share a memory: what one decides depends on those before it."""
    past: list[View] = []

    def pick(view):
        past.append(view)
        return [f"pg_{len(past):08x}"]

    return lambda: Evicts(pick)


BREAKERS = {
    gives_decisions_with_reasons: Unreasoned,
    decides_the_same_on_the_same_session: remembering(),
    never_evicts_pinned_pages: lambda: Evicts(lambda view: [page.handle for page in view.pages]),
    evicts_only_what_it_was_shown: lambda: Evicts(lambda view: ["pg_00000000"]),
    evicts_only_what_is_resident: lambda: Evicts(lambda view: [page.handle for page in view.pages if not page.pinned]),
    names_no_page_twice: lambda: Evicts(lambda view: [page.handle for page in [*view.pages, *view.pages]]),
    evicts_only_what_a_stub_makes_smaller: lambda: Evicts(lambda view: [page.handle for page in view.pages]),
    cuts_at_the_first_page_that_goes: lambda: Evicts(lambda view: [page.handle for page in view.pages]),
    changes_nothing_it_is_shown: Mutating,
}


def page(index: int, *, pinned: bool, resident: bool, tokens: int = 500) -> PageView:
    return PageView(
        f"pg_{index:016x}", "result", 2000, tokens, 30, index, 1000, 1000, 4, 2, 1, 0, False, pinned, True, resident
    )


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_every_law_catches_a_policy_that_breaks_it(law):
    shown = [
        page(1, pinned=True, resident=True),
        page(2, pinned=False, resident=False),
        page(3, pinned=False, resident=True, tokens=30),
    ]
    session = [View(3, Prices(), warm=True, window=9000, reserve=100, tokens=3000, pages=shown)]
    with pytest.raises(AssertionError):
        law(BREAKERS[law], session)
