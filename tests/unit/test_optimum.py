"""What a schedule costs, worked out by hand, and the optimum against every schedule there is.

Reading a token costs 0.1 and writing one 1.1, so that a warm token that is written again costs 1 more.
"""

import json
import os
from dataclasses import replace
from itertools import chain, combinations
from math import inf, isclose
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

from benchmarks.optimum.best import of_recording, optimum, unpaged
from benchmarks.optimum.bound import Bound
from benchmarks.optimum.exact import exact
from benchmarks.optimum.foresight import Belady, Greedy
from benchmarks.optimum.play import future_of, schedule_of
from benchmarks.optimum.problem import (
    Problem,
    ProblemCall,
    ProblemNeed,
    ProblemPage,
    State,
    cost,
    may_go,
    plain_needs,
    play,
    step,
)
from benchmarks.optimum.recorded import problems, unsaid
from benchmarks.optimum.views import (
    Moment,
    PageSize,
    Recorder,
    problem_from,
    problem_of,
)
from instrumentation.replay import recording_files
from instrumentation.replay.page_needs import Need as Seen
from instrumentation.replay.player import Player
from instrumentation.replay.prepared_recording import Prepared
from instrumentation.replay.recording import Future, RecordedCall, Recording
from pager.log.events import Evicted
from pager.paging.policy import (
    ASKING,
    Decision,
    PageView,
    Prices,
    View,
)
from pager.pricing.rates import in_force
from pager.wire.dialects import load

PRICES = Prices(read=0.1, write=1.1, output=5.0)
ASKS = ASKING * 5.0


def needs(**calls):
    return plain_needs(calls)


def growing(*tokens, cold=(1,), output=0):
    """Calls with prompts of so many tokens, each of which begins with the one before."""
    before = [0, *tokens]
    return [ProblemCall(now, before[at], at + 1 in cold, output) for at, now in enumerate(tokens)]


# ---------------------------------------------------------------- what a schedule costs


PAGE = ProblemPage("a", 500, 40, before=300, first=1, free=2, until=5)
FOUR = Problem(growing(1_000, 1_200, 1_400, 1_600), [PAGE], prices=PRICES, tool=10)


def costs(problem, schedule=None):
    return [round(charged.cost, 6) for charged in play(problem, schedule or {})]


def test_without_a_repack_what_was_sent_is_read_and_what_is_new_is_written():
    assert costs(FOUR) == [1_100, 320, 340, 360]
    assert costs(replace(FOUR, calls=growing(1_000, 1_200, 1_400, 1_600, output=7))) == [1_135, 355, 375, 395]


def test_a_prompt_above_the_step_costs_more_for_all_of_its_tokens():
    dearer = replace(FOUR, prices=replace(PRICES, step_tokens=1_200, step_factor=5.0))
    assert costs(dearer) == [1_100, 320, 5 * 340, 5 * 360]
    assert costs(dearer, {4: {0}})[-1] < 5 * 360


def test_the_first_repack_writes_all_of_the_prompt_with_the_tool():
    # 1,200 - 460 + 10 tokens are written; from then on the prompt is shorter by 450.
    assert costs(FOUR, {2: [0]}) == [1_100, 825, 295, 315]


def test_a_later_repack_writes_again_what_stands_behind_the_page():
    late = PAGE._replace(content="b", before=900, first=1, free=3)
    both = replace(FOUR, pages=[PAGE, late])
    # 900 - 460 + 10 tokens are held before the second page, and 1,400 - 900 - 460 are not.
    assert costs(both, {2: [0], 3: [1]})[2] == pytest.approx(0.1 * 450 + 1.1 * 40)
    # The other way round 310 are held; both stubs, and 400 + 100 - 400 tokens of the rest, are not.
    early = replace(FOUR, pages=[PAGE, late._replace(free=2)])
    assert costs(early, {2: [1], 3: [0]})[2] == pytest.approx(0.1 * 310 + 1.1 * (1_400 - 300 - 920))


def test_in_a_cold_call_everything_is_written_whatever_goes():
    cold = replace(FOUR, calls=growing(1_000, 1_200, 1_400, 1_600, cold=(1, 3)))
    assert costs(cold) == [1_100, 320, 1_540, 360]
    assert costs(cold, {3: [0]}) == [1_100, 320, 1_045, 315]


def test_a_page_that_is_missed_is_asked_for_and_its_copy_stays_at_the_end():
    needed = replace(FOUR, needs=needs(a=[3]))
    # At call 3 the prompt of 950 is read once more and the page written; then it is 1,600 - 450 + 500 long.
    assert costs(needed, {2: [0]}) == [1_100, 825, 295 + 95 + ASKS + 550, 0.1 * 1_450 + 220]
    assert costs(needed) == costs(FOUR)


def test_a_copy_can_go_and_then_leaves_a_stub_too():
    needed = replace(FOUR, needs=needs(a=[2, 4]), stays=0)
    # The copy stands behind 1,200 tokens. At call 4 they are held, with the tool and without 460; the stub is not.
    charged = list(play(needed, {2: [0], 4: [0]}))
    assert [one.faults for one in charged] == [(), (0,), (), (0,)]
    assert (charged[3].prompt, charged[3].cached) == (1_600 - 450 + 40, 1_200 - 450)


def test_what_the_client_takes_out_is_gone_with_its_copies():
    calls = [*growing(1_000, 1_200), ProblemCall(600, 200, cold=False), ProblemCall(700, 600, cold=False)]
    cut = Problem(calls, [PAGE._replace(until=3)], needs(a=[2, 4]), PRICES, tool=10)
    charged = list(play(cut, {2: [0]}))
    assert [one.prompt for one in charged] == [1_000, 750, 610, 710]
    assert charged[2].cached == 210
    assert charged[3].faults == ()


def test_a_page_that_comes_with_what_the_client_rewrote_goes_without_a_price():
    calls = [*growing(1_000, 1_200), ProblemCall(900, 300, cold=False)]
    again = ProblemPage("b", 500, 40, before=300, first=3, free=3, until=4)
    both = Problem(calls, [PAGE._replace(until=3), again], prices=PRICES, tool=10)
    assert costs(both, {2: [0], 3: [1]})[2] == pytest.approx(0.1 * 310 + 1.1 * 140)


def test_of_two_pages_with_one_content_one_is_enough():
    twin = PAGE._replace(before=900)
    both = replace(FOUR, pages=[PAGE, twin], needs=needs(a=[3]))
    assert [one.faults for one in play(both, {2: [1]})] == [(), (), (), ()]
    assert [one.faults for one in play(both, {2: [0, 1]})] == [(), (), (1,), ()]


@pytest.mark.parametrize("schedule", [{1: [0]}, {2: [0], 3: [0]}, {2: [0, 0]}])
def test_what_may_not_go_is_an_error(schedule):
    with pytest.raises(ValueError, match="may go at call"):
        cost(FOUR, schedule)


# ---------------------------------------------------------------- laws


@st.composite
def branches(draw, calls=5, pages=3, needs=True, rewrites=True, grace=None):
    """Small branches: items come at the end, the client drops some, pages are needed again or twice the same."""
    line, sent, made = [], [], []
    for number in range(1, draw(st.integers(1, calls)) + 1):
        kept = len(line) if number > 1 else 0
        if kept and rewrites and draw(st.integers(0, 4)) == 0:
            kept = draw(st.integers(0, kept - 1))
            made = [
                page._replace(until=min(page.until, number)) if page.before >= sum(line[:kept]) else page
                for page in made
            ]
        held = sum(line[:kept])
        line = line[:kept]
        for size in draw(st.lists(st.integers(1, 300), min_size=1, max_size=2)):
            content = draw(st.sampled_from(["", "a", "b", "c"])) if len(made) < pages else ""
            tokens = 60 + 70 * "abc".index(content) if content else 0
            if content:
                free = number + (draw(st.integers(0, 2)) if grace is None else grace)
                made.append(ProblemPage(content, tokens, 20, sum(line), number, free, 99))
            line.append(size + tokens)
        sent.append(ProblemCall(sum(line), held, number == 1 or draw(st.integers(0, 3)) == 0, draw(st.integers(0, 2))))
    end = len(sent) + 1
    made = [page._replace(until=min(page.until, end)) for page in made]
    made = [page._replace(free=min(page.free, page.until)) for page in made]
    some = st.builds(
        lambda call, asked, others: ProblemNeed(call, asked, others | {asked}), st.integers(1, end - 1), names, others
    )
    wanted = draw(st.lists(some, max_size=6)) if needs else []
    prices = Prices(
        draw(st.sampled_from([0.1, 0.5])),
        draw(st.sampled_from([0.5, 1.0, 1.25])),
        draw(st.sampled_from([0.0, 0.2, 5.0])),
    )
    return Problem(sent, made, wanted, prices, tool=draw(st.sampled_from([0, 5, 150])), stays=draw(st.integers(0, 2)))


names = st.sampled_from("abc")
others = st.one_of(st.just(frozenset()), st.frozensets(names))


def subsets(things):
    return chain.from_iterable(combinations(things, count) for count in range(len(things) + 1))


def cheapest(problem, number=1, state=None):
    """The least that the calls from this one on cost: every set of pages is tried at every call."""
    state = state or State()
    if number == problem.end:
        return 0.0
    least = inf
    for evict in subsets(may_go(problem, number, state)):
        charged = step(problem, number, state, evict)
        least = min(least, charged.cost + cheapest(problem, number + 1, charged.state))
    return least


class Whims:
    """A policy that lets go what a stream of draws says."""

    def __init__(self, draw):
        self._draw = draw

    def choose(self, view):
        gone = [page.handle for page in view.pages if page.evictable and self._draw(st.booleans())]
        return Decision(tuple(gone), None, "a whim")


def alike(left, right):
    return isclose(left, right, rel_tol=1e-9, abs_tol=1e-6)


@examples(150)
@given(branches())
def test_the_optimum_of_a_small_branch_is_the_cheapest_of_all_schedules(problem):
    found = optimum(problem, steps=10**6)
    assert found.is_exact
    assert alike(found.reached, cheapest(problem))
    assert alike(cost(problem, found.schedule), found.reached)


@examples(150)
@given(branches(), st.integers(50, 900))
def test_the_optimum_knows_that_long_prompts_cost_more_for_each_of_their_tokens(problem, tokens):
    stepped = replace(problem.prices, step_tokens=tokens, step_factor=5.0, step_output=3.0)
    dearer = replace(problem, prices=stepped)
    found, least = optimum(dearer, steps=10**6), cheapest(dearer)
    assert found.is_exact
    assert alike(found.reached, least)
    assert Bound(dearer.evenly_priced()).cost <= least + 1e-6


@examples(150)
@given(branches())
def test_all_ways_lead_to_the_optimum_even_if_no_schedule_is_known(problem):
    least, schedule = exact(problem, inf, 10**6)
    assert alike(least, cheapest(problem))
    assert alike(cost(problem, schedule), least)


@examples(200)
@given(branches())
def test_the_bound_is_below_every_schedule(problem):
    assert Bound(problem).cost <= cheapest(problem) + 1e-6


@given(branches(calls=14, pages=10), st.data())
def test_nothing_is_cheaper_than_the_bound_or_dearer_than_doing_nothing(problem, data):
    found = optimum(problem, steps=0)
    future = future_of(problem)
    tried = [schedule_of(problem, policy) for policy in (Greedy(future), Belady(future, 100), Whims(data.draw))]
    assert found.ideal <= found.bound + 1e-6
    assert found.bound <= found.reached + 1e-6
    assert all(found.bound <= cost(problem, schedule) + 1e-6 for schedule in tried)
    assert found.reached <= min(cost(problem, tried[0]), cost(problem, {})) + 1e-6
    assert alike(cost(problem, found.schedule), found.reached)


@examples(80)
@given(branches(calls=14, pages=10, needs=False, rewrites=False, grace=1))
def test_if_no_page_is_needed_again_the_bound_is_reached(problem):
    assert optimum(problem, steps=0).is_exact


@given(branches(calls=14, pages=10, needs=False))
def test_if_the_cache_costs_nothing_every_page_goes_at_once(problem):
    free = replace(problem, prices=Prices(1.0, 1.0), tool=0)
    saved = sum(page.gain * (page.until - page.free) for page in free.pages)
    assert alike(optimum(free, steps=0).reached, cost(free, {}) - saved)


@given(branches())
def test_knowing_less_of_the_needs_is_never_dearer(problem):
    assert cheapest(replace(problem, needs=())) <= cheapest(problem) + 1e-6


def test_a_policy_that_evicts_what_is_gone_already_is_found_out():
    class Twice:
        def choose(self, view):
            return Decision(tuple(page.handle for page in view.pages if view.call > 1), None, "all, always")

    with pytest.raises(ValueError, match="gone already at call 3"):
        schedule_of(FOUR, Twice())


def test_a_branch_without_pages_costs_what_it_costs():
    found = optimum(Problem(growing(100, 200), []))
    assert found.is_exact
    assert found.untouched == found.bound == found.reached == found.ideal
    assert found.schedule == {}


def test_a_branch_of_hundreds_of_calls_and_pages_has_a_bound():
    calls = growing(*range(20_000, 20_000 + 400 * 500, 500), cold=range(1, 401, 50))
    pages = [
        ProblemPage(f"p{at}", 400, 40, 20_000 + 500 * at - 450, at + 1, min(at + 3, 401), 401) for at in range(1, 400)
    ]
    wanted = plain_needs({f"p{at}": [at + 8, at + 30] for at in range(1, 360, 7)})
    found = optimum(Problem(calls, pages, wanted))
    assert found.ideal < found.bound <= found.reached < 0.6 * found.untouched


# ---------------------------------------------------------------- from what a policy sees


def seen(call, tokens, *pages, facts=()):
    """A call in whose prompt these pages stand: name, place, and whether they are pinned."""
    shown = [
        PageView(name, "result", 1_750, 500, 40, at, before, 0, 0, 0, 0, 0, False, pinned, True, True)
        for at, (name, before, pinned) in enumerate(pages)
    ]
    return View(call, PRICES, call > 1, 200_000, 0, tokens, shown, facts)


REWRITTEN = ("client_rewrote_history",)


def test_a_problem_is_what_a_recorder_saw():
    recorder = Recorder()
    views = [
        seen(1, 1_000, ("a", 300, True)),
        seen(2, 2_000, ("a", 300, True), ("a@2", 1_400, True)),
        seen(3, 2_100, ("a", 300, False), ("a@2", 1_400, True)),
    ]
    assert [recorder.choose(view).evict for view in views] == [(), (), ()]
    problem = problem_of(recorder.views, Future([True, False, True], {"a": [3]}), [7, 8])
    assert problem.calls == [
        ProblemCall(1_000, 0, True, 7),
        ProblemCall(2_000, 1_000, False, 8),
        ProblemCall(2_100, 2_000, True, 0),
    ]
    assert problem.pages == [ProblemPage("a", 500, 40, 300, 1, 3, 4), ProblemPage("a", 500, 40, 1_400, 2, 4, 4)]
    assert problem.needs == [ProblemNeed(3, "a", frozenset("a"))]
    assert problem.prices == PRICES


def test_a_recorder_keeps_what_it_saw_though_it_changes():
    pages, facts = [PAGE_VIEW], []
    recorder = Recorder()
    recorder.choose(View(1, PRICES, False, 0, 0, 1_000, pages, facts))
    pages.clear()
    facts.append("fault")
    assert recorder.views == [View(1, PRICES, False, 0, 0, 1_000, [PAGE_VIEW], [])]


PAGE_VIEW = seen(1, 1_000, ("a", 300, False)).pages[0]


def test_what_the_client_rewrites_leaves_and_comes_anew():
    views = [
        seen(1, 2_000, ("a", 300, False), ("b", 900, False), ("c", 1_500, False)),
        seen(2, 1_500, ("a", 300, False), ("c", 950, False), facts=REWRITTEN),
        seen(3, 1_400, ("a", 200, False), ("c", 850, False), facts=REWRITTEN),
        seen(4, 1_450, ("a", 201, False), ("c", 851, False)),
    ]
    problem = problem_of(views, Future([True, False, False, False]))
    assert [call.kept for call in problem.calls] == [0, 900, 200, 1_400]
    assert [(page.content, page.before, page.first, page.until) for page in problem.pages] == [
        *[("a", 300, 1, 3), ("b", 900, 1, 2), ("c", 1_500, 1, 2), ("c", 950, 2, 3)],
        *[("a", 200, 3, 5), ("c", 850, 3, 5)],
    ]


def test_a_problem_can_be_of_no_calls():
    assert cost(problem_of([], Future([])), {}) == 0


def test_a_page_no_larger_than_its_stub_never_goes():
    problem = problem_from(
        [Moment(seen(1, 1_000, ("a", 300, False)), ProblemCall(1_000, 0, True))], {"a": PageSize(40, 40)}
    )
    assert problem.pages == [ProblemPage("a", 40, 40, 300, 1, 2, 2)]


# ---------------------------------------------------------------- from recordings


MODELS = in_force("anthropic", {})


def text(name):
    return "\n".join(f"line {at} of the file {name} as it was read" for at in range(80))


def read(name, call_id):
    """A tool call and its result."""
    function = {"name": "read", "arguments": json.dumps({"path": name})}
    made = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
    return [made, {"role": "tool", "tool_call_id": call_id, "content": text(name)}]


def step_of(at, keep, items, **more):
    raw = tuple(json.dumps(item).encode() for item in items)
    return RecordedCall(
        at, keep, raw, 3_000, model="claude-sonnet-4-5", **{"output": 5, "tools": frozenset({"read"}), **more}
    )


def session(*, said="", gap=400.0, more=()):
    """Eight calls that each read a file; the cache is cold before each if the gap is long."""
    steps = [step_of(0.0, 0, [{"role": "user", "content": "go"}])]
    for at in range(1, 8):
        words = said if at == 7 else ""
        steps.append(step_of(at * gap, 2 * at - 1, read(f"file{at}.txt", f"c{at}"), said=words))
    return Prepared(Recording("s", "chat", [*steps, *more]), load("chat"))


def saving(prepared, policy=None):
    """What a policy saves in the replay, and what the model of it says that doing nothing costs."""
    player = Player(prepared, lambda _: policy, MODELS)
    player.play()
    return prepared.unpaged(MODELS).cost - player.bill.charged.cost


class Everything:
    def choose(self, view):
        return Decision(tuple(page.handle for page in view.pages if page.evictable), None, "all goes")


def test_a_recording_that_is_cold_all_the_time_has_the_optimum_of_evicting_everything():
    prepared = session()
    total = of_recording(prepared, MODELS)
    assert total.untouched == pytest.approx(prepared.unpaged(MODELS).cost)
    assert (total.exact, total.branches) == (1, 1)
    assert total.untouched - total.reached == pytest.approx(saving(prepared, Everything()), rel=0.05)
    assert total.ideal < total.bound


def test_what_the_last_answer_repeats_is_missed_if_it_is_gone():
    quotes = session(said="line 17 of the file file1.txt as it was read")
    (problem,) = problems(quotes, MODELS)
    assert problem.musts[0] == [8]
    assert not any(problem.musts[1:])
    assert of_recording(quotes, MODELS).reached > of_recording(session(), MODELS).reached


def test_what_a_stub_says_is_not_missed():
    stubs = {"a": Evicted("a", "00", "k", "[a: order_471100]"), "b": Evicted("b", "00", "k", "[b: order_471101]")}
    both = frozenset("ab")
    assert unsaid(3, [Seen(("order_471100", "order_471101"), both, "b")], stubs) == []
    assert unsaid(3, [Seen(("order_471100",), frozenset("b"), "b")], stubs) == [ProblemNeed(3, "b", frozenset("b"))]
    assert unsaid(3, [Seen(("order_471100", "other_471100"), both, "b")], stubs) == [ProblemNeed(3, "b", both)]
    assert unsaid(3, [Seen(("order_471100",), frozenset("c"), "c")], stubs) == [ProblemNeed(3, "c", frozenset("c"))]


def test_a_branch_that_goes_on_where_another_ended_is_one_problem_with_it():
    compacted = step_of(4_000.0, 1, [{"role": "user", "content": "in short"}], branch=1, parent=0)
    after = step_of(4_010.0, 2, read("late.txt", "c9"), branch=1)
    (problem,) = problems(session(more=[compacted, after]), MODELS)
    assert len(problem.calls) == 10
    assert {page.until for page in problem.pages} == {9, 11}


def test_branches_beside_each_other_are_problems_of_their_own():
    aside = [step_of(2_810.0, 0, [{"role": "user", "content": "title"}], branch=1)]
    fork = [step_of(2_820.0, 1, [{"role": "user", "content": "other"}], branch=2, parent=0, fork_call=1)]
    twice = [step_of(2_830.0, 1, [{"role": "user", "content": "third"}], branch=3, parent=0, fork_call=1)]
    on = [step_of(2_840.0, 15, read("more.txt", "c9"))]
    found = problems(session(more=aside + fork + on), MODELS)
    assert [len(problem.calls) for problem in found] == [9, 1, 1]
    found = problems(session(more=fork + twice), MODELS)
    assert [len(problem.calls) for problem in found] == [9, 1]


def test_calls_that_no_policy_was_asked_for_and_those_without_an_answer_are_no_part_of_a_problem():
    without_tools = step_of(2_810.0, 15, [{"role": "user", "content": "sum up"}], tools=None)
    broken = step_of(2_820.0, 15, [{"role": "user", "content": "next"}], answered=False)
    (problem,) = problems(session(more=[without_tools, broken]), MODELS)
    assert len(problem.calls) == 8


@pytest.mark.recorded
@pytest.mark.skipif("CTXPAGER_RECORDINGS" not in os.environ, reason="CTXPAGER_RECORDINGS names no recordings")
@pytest.mark.parametrize("place", ["entire-cli", "pi-mono", "tau2"])
def test_no_policy_saves_more_of_a_recording_than_the_bound_says(place):
    files = recording_files.files(Path(os.environ["CTXPAGER_RECORDINGS"]) / "traces" / place)
    for file in files[:: max(1, len(files) // 6)]:
        prepared = Prepared(recording_files.load(file), load("chat"))
        total = of_recording(prepared, MODELS, steps=0, tries=0)
        futures = prepared.futures(MODELS)
        player = Player(prepared, lambda branch, futures=futures: Greedy(futures[branch]), MODELS)
        player.play()
        before = unpaged(prepared, MODELS)
        assert total.untouched == pytest.approx(before, rel=1e-3)
        assert before - player.bill.charged.cost <= total.untouched - total.bound + 0.01 * before
