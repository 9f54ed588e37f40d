"""What a policy sees of a prompt, what it may have of its wishes, and what goes when the prompt does not fit.

All figures can be worked out by hand: one token is 2.7 bytes, and what is no page comes in pieces of 100 tokens.
"""

import json
from dataclasses import replace

import chat_items
import msgspec
import pytest
from branches import empty_table, items_of
from chat_items import handle, raw, tool_call
from hypothesis import given
from hypothesis import strategies as st
from work import steps

from pager.paging.pages.page import STUB_TOKENS
from pager.paging.planner import (
    Plan,
    Terms,
    propose,
    rescue,
    view,
)
from pager.paging.policy import Decision, PageView, Prices
from pager.paging.priors import (
    ENOUGH,
    SHIPPED,
    WEIGHT,
    Experience,
    Harness,
    Seen,
)
from pager.wire.dialects import load
from pager.wire.stitching import Leg, LegPart
from policies.cost_aware import CostAware
from policies.lru import Lru
from policies.watermark import Watermark

chat = load("chat")
PRICES = Prices(read=0.1, write=1.25, output=5.0, ttl_seconds=300.0)
TERMS = Terms(PRICES, window=10_000, reserve=1_000)
HUNDRED = 269  # bytes of an item that, with the comma behind it, has 100 tokens
STUB = "s" * 108  # 40 tokens


def filled(item, size):
    """The item as JSON of exactly so many bytes."""
    bare = json.dumps({**item, "fill": ""}).encode()
    return json.dumps({**item, "fill": "." * (size - len(bare))}).encode()


def user():
    return filled({"role": "user", "content": "go"}, HUNDRED)


def say(**more):
    return filled({"role": "assistant", "content": "ok", **more}, HUNDRED)


def call(call_id, tool="read", path="a.py"):
    return filled(chat_items.call(call_id, tool, path=path), HUNDRED)


def text(letter, tokens):
    return letter * round(tokens * 2.7)


def result(call_id, content):
    """A result whose page has the tokens of its content, with 100 tokens around it."""
    return filled({"role": "tool", "tool_call_id": call_id, "content": content}, len(content) + HUNDRED)


def page_in(call_id, content):
    return Leg([LegPart("call", raw(tool_call(call_id, "page_in")), True)], [msgspec.Raw(result(call_id, content))])


class Branch:
    """A branch that is sent call by call."""

    def __init__(self):
        self.table = empty_table()

    def send(self, *items, at=None, marks=((), 0.0)):
        bare = b'{"model":"m","fill":"","messages":[]}'
        filler = b"." * (270 - len(bare))
        body = bare.replace(b'""', b'"' + filler + b'"').replace(b"[]", b"[" + b",".join(items) + b"]")
        self.request = chat.parse(body)
        number = self.table.call + 1
        self.table.advance(number, 1, number * 10.0 if at is None else at, items_of(chat, items, *marks), len(body))
        return self

    def evict(self, *contents, stub=STUB):
        pages = [self.table.known[handle(content)] for content in contents]
        self.table.evict([self.table.evicted(page, stub) for page in pages])
        self.table.tool = "page_in"
        return self

    def shrink(self, content):
        """Let a page have no more tokens than its stub may have."""
        page = self.table.known[handle(content)]
        page.tokens = page.stub_tokens
        self.table.numbers.touch(page)

    def view(self, terms=TERMS):
        return view(self.table, self.request.outside, terms)


def seen(branch, terms=TERMS):
    return {page.handle: page for page in branch.view(terms).pages}


A, B, C = text("a", 1_000), text("b", 2_000), text("c", 500)
FREES_A, FREES_B, FREES_C = (tokens - STUB_TOKENS for tokens in (1_000, 2_000, 500))
READ_A = (user(), call("c1"), result("c1", A))
READ_B = (call("c2", path="b.py"), result("c2", B))
READ_C = (call("c3", "run"), result("c3", C))
ON = (say(), user())


# ---------------------------------------------------------------- the view


def test_a_prompt_is_seen_in_numbers():
    given = Branch().send(*READ_A, *READ_B).view()
    assert (given.call, given.prices, given.window, given.reserve, given.facts) == (1, PRICES, 10_000, 1_000, [])
    assert given.tokens == 100 + 300 + 1_000 + 200 + 2_000
    common = {
        "kind": "result",
        "stub_tokens": STUB_TOKENS,
        "age": 0,
        "idle": 0,
        "uses": 0,
        "faults": 0,
        "superseded": False,
        "pinned": True,
        "cached": False,
        "resident": True,
        "tool": "read",
        "tool_pages": 2,
        "tool_reused": 0,
    }
    first = {"handle": handle(A), "size": 2_700, "tokens": 1_000, "position": 0}
    second = {"handle": handle(B), "size": 5_400, "tokens": 2_000, "position": 1}
    assert list(given.pages) == [
        PageView(**common, **first, before=300, after=2_300, found=300),
        PageView(**common, **second, before=1_500, after=100, found=1_500),
    ]


def test_a_policy_sees_the_tokens_that_the_provider_counts():
    branch = Branch().send(*READ_A).evict(A)
    branch.table.yardstick.report(1, 2_000, 2_700)  # the provider counts twice as many as we do
    branch.send(*READ_A, *ON)
    ours = branch.view()
    theirs = branch.send(*READ_A, *ON).view()
    assert theirs.tokens == 2 * ours.tokens
    for before, after in zip(ours.pages, theirs.pages, strict=True):
        assert (after.tokens, after.stub_tokens) == (2 * before.tokens, 2 * before.stub_tokens)
        assert (after.before, after.after) == (2 * before.before, 2 * before.after)


@pytest.mark.parametrize("policy", [CostAware(limit=3_000), Lru(capacity=1_500), Watermark(high=0.3, low=0.1)])
def test_what_is_given_in_tokens_means_those_that_the_provider_counts(policy):
    calls = [[*READ_A, *ON * more] for more in range(4)]
    few, many = Branch(), Branch()
    for branch, tokens in ((few, 1_000), (many, 2_000)):
        for at, items in enumerate(calls, 1):
            branch.send(*items)
            branch.table.yardstick.report(at, tokens, 2_700)
    assert few.view().tokens == 2_000
    assert many.view().tokens == 4_000
    assert [bool(propose(policy, one.table, one.request.outside, TERMS).pages) for one in (few, many)] == [False, True]


def test_what_is_evicted_counts_as_its_stub():
    branch = Branch().send(*READ_A, *READ_B).evict(A)
    given = branch.view()
    first, second = given.pages
    assert given.tokens == 3_600 - 1_000 + 40
    assert (first.resident, first.tokens, first.stub_tokens) == (False, 1_000, 40)
    assert (first.before, first.after) == (300, 2_640 - 300 - 40)
    assert (second.resident, second.before, second.after) == (True, 540, 100)


def test_hidden_legs_count_as_they_stand_in_the_prompt():
    branch = Branch().send(*READ_A).evict(A)
    leg = page_in("h1", B)
    branch.table.keep_leg(1, 1, leg, [handle(A)])
    given = branch.send(*READ_A, *ON, *READ_C).view()
    asked = len(chat.appended(leg)[0]) + 1
    outside = (270 + 6 * 270 + asked) / 2.7
    assert given.tokens == round(outside + 40 + 2_100 + 100 + 500)
    first, brought, last = given.pages
    assert (first.before, first.faults) == (300, 1)
    assert (brought.tokens, brought.tool) == (2_000, "page_in")
    assert brought.before == 400 + 40 + round(asked / 2.7)
    assert last.before == given.tokens - 600
    assert last.after == 100


def test_the_numbers_of_a_tool_are_of_all_its_pages():
    branch = Branch().send(*READ_A)
    branch.table.pages[0].faults = 1
    pages = branch.send(*READ_A, *READ_B, *READ_C).view().pages
    assert [(page.tool, page.tool_pages, page.tool_reused) for page in pages] == [
        ("read", 2, 1),
        ("read", 2, 1),
        ("run", 1, 0),
    ]


@pytest.mark.parametrize(("at", "warm"), [(20.0, True), (310.0, True), (310.5, False), (9_000.0, False)])
def test_a_cache_is_warm_as_long_as_the_provider_keeps_it(at, warm):
    branch = Branch().send(*READ_A, at=10.0).send(*READ_A, *READ_B, at=at)
    given = branch.view()
    assert given.warm is warm
    assert [page.cached for page in given.pages] == [warm, False]


def test_the_first_call_of_a_branch_finds_no_cache():
    given = Branch().send(*READ_A).view()
    assert not given.warm
    assert not given.pages[0].cached


@pytest.mark.parametrize(("cacheable", "warm"), [(0, True), (1_400, True), (1_401, False), (100_000, False)])
def test_a_prompt_that_was_too_short_to_be_kept_is_not_cached(cacheable, warm):
    branch = Branch().send(*READ_A)
    assert branch.view().tokens == 1_400
    given = branch.send(*READ_A, *READ_B).view(Terms(PRICES, 10_000, 1_000, cacheable=cacheable))
    assert given.warm is warm
    assert [page.cached for page in given.pages] == [warm, False]


def test_a_prompt_without_what_was_evicted_may_be_too_short_to_be_kept():
    terms = Terms(PRICES, 10_000, 1_000, cacheable=1_000)
    branch = Branch().send(*READ_A).evict(A)
    branch.send(*READ_A, *ON)
    assert branch.view(terms).warm, "it was kept before the page went"
    assert not branch.send(*READ_A, *ON * 2).view(terms).warm


@pytest.mark.parametrize("seconds", [0.0, 1.0, 1e9])
def test_where_nothing_is_kept_no_prompt_is_ever_warm(seconds):
    terms = Terms(Prices(read=1.0, write=1.0, output=5.0, ttl_seconds=0.0), 10_000, 1_000)
    branch = Branch().send(*READ_A, at=10.0).send(*READ_A, *READ_B, at=10.0 + seconds)
    given = branch.view(terms)
    assert not given.warm
    assert not any(page.cached for page in given.pages)


def test_calls_that_found_the_cache_cold_are_counted():
    branch = Branch().send(*READ_A, at=0.0)
    for at in (300.0, 601.0, 610.0, 5_000.0):
        branch.send(*READ_A, at=at)
    assert branch.view().colds == 2


def test_what_other_sessions_taught_reaches_the_policy():
    seen, lengths = {"read": Seen(needed=3 * WEIGHT, expected=WEIGHT)}, [60] * ENOUGH
    learned = Experience({"agent": Harness(results=seen, arguments={"run": Seen(0.0, WEIGHT)}, lengths=lengths)})
    wrote = json.dumps({"text": text("w", 600)})
    made = {"id": "c4", "type": "function", "function": {"name": "run", "arguments": wrote}}
    branch = Branch()
    for _ in range(20):
        branch.send(*READ_A, *READ_C, say(tool_calls=[made], fill=""))
    given = branch.view(Terms(PRICES, 10_000, 1_000, experience=learned, harness="agent/1.2"))
    assert given.to_go == pytest.approx(40.0)
    usual = {(page.tool, page.kind): page.usual for page in given.pages}
    assert usual == {
        ("read", "result"): pytest.approx((3 + 1) / 2),
        ("run", "result"): SHIPPED.usual("", "run", argument=False),
        ("run", "argument"): pytest.approx(SHIPPED.usual("", "run", argument=True) / 2),
    }


def test_of_sessions_like_this_one_nothing_may_be_known():
    given = Branch().send(user(), call("c1", "grep"), result("c1", A)).view()
    assert given.to_go is None
    assert [page.usual for page in given.pages] == [SHIPPED.usual("", "grep", argument=False)]


@pytest.mark.parametrize("grace", [0, 1, 2, 5])
def test_a_new_page_stays_for_as_many_calls_as_the_terms_say(grace):
    branch, pinned = Branch(), []
    for more in range(7):
        branch.send(*READ_A, *ON * more)
        pinned.append(branch.view(Terms(PRICES, 10_000, 1_000, grace=grace)).pages[0].pinned)
    assert pinned == [age < grace for age in range(7)]


def test_a_page_is_pinned_for_the_call_that_brought_it_and_the_next():
    branch = Branch().send(*READ_A)
    pinned = []
    for more in range(4):
        page = branch.view().pages[0]
        pinned.append((page.age, page.pinned, page.evictable))
        branch.send(*READ_A, *ON * (more + 1))
    assert pinned == [(0, True, False), (1, True, False), (2, False, True), (3, False, True)]


def test_a_page_that_was_needed_again_is_pinned_and_tells_it():
    branch = Branch().send(*READ_A).send(*READ_A, *ON).send(*READ_A, *ON * 2)
    assert not branch.view().pages[0].pinned
    branch.table.pages[0].fault(3)
    branch.table.numbers.touch(branch.table.pages[0])
    page = branch.view().pages[0]
    assert (page.pinned, page.faults, page.idle, page.age) == (True, 1, 0, 2)


@pytest.mark.parametrize("faults", [(), (3,), (3, 4), (4, 5)])
def test_what_is_pinned_in_the_arrays_is_what_a_page_says_of_itself(faults):
    branch = Branch().send(*READ_A)
    for more in range(1, 12):
        branch.send(*READ_A, *ON * more)
        if branch.table.call in faults:
            branch.table.pages[0].fault(branch.table.call)
            branch.table.numbers.touch(branch.table.pages[0])
        page, seen = branch.table.pages[0], branch.view().pages[0]
        call = branch.table.call
        assert seen.pinned == (seen.age < TERMS.grace or page.held(call) or page.failing(call))


def test_facts_reach_the_policy():
    branch = Branch().send(*READ_A).send(user(), *READ_C)
    assert branch.view().facts == ["client_rewrote_history"]


# ---------------------------------------------------------------- thinking that binds


BOUND = Terms(PRICES, 10_000, 1_000, bound=True)
THINK = say(reasoning_content="hm")


def later(*items):
    """A branch with these items in its first call, whose pages are old enough to go."""
    branch = Branch().send(*items)
    return branch.send(*items, *ON).send(*items, *ON * 2)


def test_before_thinking_that_binds_nothing_goes():
    branch = later(*READ_A, THINK, *READ_B)
    branch.table.tool = "page_in"
    assert {page.handle: page.pinned for page in branch.view(BOUND).pages} == {handle(A): True, handle(B): False}
    assert not any(page.pinned for page in branch.view().pages)


def test_behind_thinking_that_binds_nothing_goes_either_while_no_tool_was_added():
    branch = later(*READ_A, THINK, *READ_B)
    assert all(page.pinned for page in branch.view(BOUND).pages)


def test_without_thinking_nothing_is_bound():
    branch = later(*READ_A, *READ_B)
    assert not any(page.pinned for page in branch.view(BOUND).pages)


# ---------------------------------------------------------------- proposals


class Wants:
    """A policy that wants what it is told to want."""

    def __init__(self, *handles, reason="because"):
        self.decision = Decision(handles, reason=reason)

    def choose(self, view):
        return self.decision


def proposed(branch, *handles, terms=TERMS):
    return propose(Wants(*handles), branch.table, branch.request.outside, terms)


def test_a_policy_that_wants_nothing_gets_nothing():
    assert proposed(later(*READ_A)) == Plan(reason="because")


@pytest.mark.parametrize(
    ("wanted", "rule"),
    [
        (["pg_0123456789abcdef"], "pg_0123456789abcdef is not in the prompt"),
        (["rubbish"], "rubbish is not in the prompt"),
        ([handle(B)], f"{handle(B)} is pinned"),
        ([handle(C)], f"{handle(C)} is evicted already"),
        ([handle(A), handle(A)], "a page is named twice"),
        ([handle(A), handle(B)], f"{handle(B)} is pinned"),
        ([handle("d" * 700)], f"{handle('d' * 700)} is no larger than its stub"),
    ],
    ids=["unknown", "rubbish", "pinned", "evicted", "twice", "one of two pinned", "too small"],
)
def test_a_proposal_that_breaks_a_rule_is_rejected_whole(wanted, rule):
    small = (call("c4"), result("c4", "d" * 700))
    branch = later(*READ_A, *READ_C, *small)
    branch.evict(C)
    branch.send(*READ_A, *READ_C, *small, *ON * 2, *READ_B)
    branch.shrink("d" * 700)
    assert proposed(branch, *wanted) == Plan(reason="because", rejected=rule)


def test_the_first_eviction_is_priced_from_the_beginning_as_the_tool_is_added():
    branch = later(*READ_A, *READ_B)
    total = 3_600 + 400
    assert branch.view().tokens == total
    plan = proposed(branch, handle(B))
    assert [page.name for page in plan.pages] == [handle(B)]
    assert (plan.cause, plan.reason, plan.rejected, plan.warm) == ("policy", "because", "", True)
    assert (plan.saved, plan.rewritten) == (FREES_B, total - FREES_B)
    assert plan.price == round((total - FREES_B) * 1.15, 1)


def test_a_later_eviction_is_priced_from_the_first_page_that_goes():
    branch = later(*READ_A, *READ_B, *READ_C)
    branch.table.tool = "page_in"
    kept = STUB_TOKENS + 100 + 100 + 600 + 400
    plan = proposed(branch, handle(B))
    assert (plan.saved, plan.rewritten, plan.price) == (FREES_B, kept, round(kept * 1.15, 1))
    plan = proposed(branch, handle(C), handle(B))
    assert [page.name for page in plan.pages] == [handle(B), handle(C)], "in the order of the prompt"
    assert (plan.saved, plan.rewritten) == (FREES_B + FREES_C, kept - FREES_C)


@pytest.mark.parametrize(("step", "times"), [(0, 1), (1_000, 5), (3_500, 1)])
def test_a_repack_is_priced_by_the_length_of_the_prompt_that_is_left(step, times):
    branch, terms = later(*READ_A, *READ_B), replace(TERMS, prices=replace(PRICES, step_tokens=step, step_factor=5.0))
    kept = 3_600 + 400 - FREES_B
    assert proposed(branch, handle(B), terms=terms).price == round(times * kept * 1.15, 1)


def test_what_a_shorter_prompt_saves_by_the_step_is_in_the_account():
    branch = (
        Branch().send(*READ_A).evict(A).send(*READ_A, *ON)
    )  # 1,600 tokens, of which 960 are spared; the tool has 150
    stepped = replace(PRICES, step_tokens=1_000, step_factor=5.0)
    assert branch.view().saved == pytest.approx(0.1 * (960 - 150))
    longer = view(branch.table, branch.request.outside, replace(TERMS, prices=stepped)).saved
    assert longer == pytest.approx(0.1 * (960 - 150) + 0.1 * 4 * (1_600 + 150))


def test_while_the_cache_is_cold_a_repack_costs_nothing():
    branch = later(*READ_A).send(*READ_A, *ON * 3, at=5_000.0)
    plan = proposed(branch, handle(A))
    assert (plan.warm, plan.price) == (False, 0.0)
    assert plan.saved == FREES_A


# ---------------------------------------------------------------- rescue


def rescued(branch, excess):
    plan = rescue(branch.table, branch.request.outside, TERMS, excess)
    return plan, [page.name for page in plan.pages]


def test_a_rescue_takes_the_dead_first_then_the_oldest_then_the_protected():
    again = (call("c4", "run"), result("c4", text("x", 500)))  # the call of C again: C is dead
    branch = later(*READ_A, *READ_B, *READ_C)
    branch.send(*READ_A, *READ_B, *READ_C, *ON * 2, *again)
    assert branch.table.known[handle(C)].superseded
    all_but_x = FREES_C + FREES_A + FREES_B
    steps = [(1, {C}), (FREES_C + 1, {C, A}), (FREES_C + FREES_A + 1, {C, A, B})]
    steps += [(all_but_x, {C, A, B}), (all_but_x + 1, {C, A, B, text("x", 500)})]
    for excess, gone in steps:
        assert set(rescued(branch, excess)[1]) == {handle(content) for content in gone}


def test_pages_of_a_rescue_come_in_the_order_of_the_prompt():
    branch = later(*READ_A, *READ_B, *READ_C)
    branch.table.known[handle(C)].superseded = True
    plan, gone = rescued(branch, 1_000)
    assert gone == [handle(A), handle(C)]
    assert (plan.cause, plan.saved) == ("rescue", FREES_A + FREES_C)
    assert plan.reason == f"1000 tokens too many for a window of 10000; 2 pages go and free {FREES_A + FREES_C}"


def test_a_rescue_is_priced_like_any_other_repack():
    branch = later(*READ_A, *READ_B)
    total = branch.view().tokens
    assert rescued(branch, 900)[0].rewritten == total - FREES_A
    branch.table.tool = "page_in"
    assert rescued(branch, 900)[0].rewritten == total - 300 - FREES_A


def test_a_rescue_leaves_alone_what_is_evicted_or_no_larger_than_its_stub():
    branch = later(*READ_A, *READ_B)
    branch.evict(A)
    branch.shrink(B)
    plan, gone = rescued(branch, 5_000)
    assert gone == []
    assert plan == Plan("rescue", "5000 tokens too many for a window of 10000; 0 pages go and free 0")


@given(st.lists(st.integers(200, 3_000), min_size=1, max_size=8), st.integers(0, 20_000), st.data())
def test_a_rescue_frees_at_least_what_is_too_much_if_there_is_so_much(sizes, excess, data):
    items = [user()]
    for number, size in enumerate(sizes):
        items += [call(f"c{number}", path=str(number)), result(f"c{number}", text(chr(97 + number), size))]
    branch = Branch().send(*items)
    for page in branch.table.pages:
        page.superseded = data.draw(st.booleans())
        page.is_error = data.draw(st.booleans())
    plan, gone = rescued(branch, excess)
    saving = {page.name: page.tokens - page.stub_tokens for page in branch.table.pages}
    assert plan.saved == sum(saving[name] for name in gone)
    assert plan.saved >= excess or len(gone) == len(saving)
    assert plan.saved - max((saving[name] for name in gone), default=0) < max(excess, 1), "and not a page too many"


# ---------------------------------------------------------------- where a provider finds only what ends at a mark

FIVE = ((300.0,), 300.0)  # a client that marks its system prompt and the end of its prompt
BY_MARKS = replace(TERMS, by_marks=True)


class WantsTheOldest:
    """A policy that lets the oldest page go, whatever it costs."""

    def __init__(self, urgent=False):
        self.urgent = urgent

    def choose(self, view):
        may_go = [page for page in view.pages if page.evictable][:1]
        return Decision(tuple(page.handle for page in may_go), may_go[0].position, "wanted", urgent=self.urgent)


def marked_branch():
    """A branch of three calls that ended with 3, 5 and 7 items; its last two pages are too young to go."""
    branch = Branch()
    branch.table.tool = "page_in"
    branch.send(*READ_A, marks=FIVE)
    branch.send(*READ_A, *READ_B, marks=FIVE)
    return branch.send(*READ_A, *READ_B, *READ_C, marks=FIVE)


def carried_out(branch, plan):
    if plan.pages:
        branch.table.evict([branch.table.evicted(page, STUB) for page in plan.pages])
    branch.table.set_marks(ends=False, anchors=plan.anchors)


def test_a_cut_is_priced_from_the_last_mark_before_it_that_is_alive():
    shown = {page.handle: page for page in marked_branch().view(BY_MARKS).pages}
    # A stands in the third item: only the head, of 100 tokens, ends at a mark before it. Before B and C the first call
    # ended after 3 items, the second after 5: each in the slot before the call that asked for them.
    assert [shown[handle(text)].before for text in (A, B, C)] == [300, 1_500, 3_700]
    assert [shown[handle(text)].found for text in (A, B, C)] == [100, 1_400, 3_600]
    assert [page.found for page in marked_branch().view(TERMS).pages] == [300, 1_500, 3_700], (
        "where any prefix is found"
    )


def test_what_ended_at_a_mark_that_has_died_is_not_found():
    branch = marked_branch()
    branch.send(*READ_A, *READ_B, *READ_C, *ON, at=329.0, marks=FIVE)
    assert branch.table.held.alive(329.0) == [0, 5, 7], "3 was read last by the second call, at 20"
    found = [page.found for page in branch.view(BY_MARKS).pages]
    assert found == [100, 100, 3_600]


@pytest.mark.parametrize(("marked", "found"), [(True, 1_750), (False, 1_400)])
def test_what_a_hidden_leg_brought_is_found_where_the_leg_ended_at_a_mark(marked, found):
    branch = Branch().send(*READ_A, marks=FIVE)
    branch.table.set_marks(ends=False, anchors=[], legs=marked)
    branch.table.keep_leg(1, 1, page_in("h1", text("d", 200)), [])
    branch.send(*READ_A, *READ_B, marks=FIVE)
    # The first call ends after 1,400 tokens; of the leg, what the model asked has 50 and the answer to it 300.
    assert seen(branch, BY_MARKS)[handle(B)].found == found


def test_a_page_goes_a_call_later_where_a_mark_before_it_makes_that_cheaper():
    branch = marked_branch()
    plan = propose(WantsTheOldest(), branch.table, branch.request.outside, BY_MARKS)
    assert (plan.pages, plan.anchors) == ((), (2,)), "A stands in the third item"
    assert plan.reason == "wanted; waits a call for a mark before the first page"
    carried_out(branch, plan)
    branch.send(*READ_A, *READ_B, *READ_C, *ON, marks=FIVE)
    plan = propose(WantsTheOldest(), branch.table, branch.request.outside, BY_MARKS)
    assert [page.name for page in plan.pages] == [handle(A)]
    assert plan.anchors == (2,), "by which the provider finds what stands before it"
    assert plan.price == pytest.approx((1.25 - 0.1) * (branch.view().tokens - 300 - 960))


def test_what_is_urgent_does_not_wait():
    branch = marked_branch()
    plan = propose(WantsTheOldest(urgent=True), branch.table, branch.request.outside, BY_MARKS)
    assert [page.name for page in plan.pages] == [handle(A)]
    assert plan.price == pytest.approx((1.25 - 0.1) * (branch.view().tokens - 100 - 960)), "from the head on"


def test_a_mark_is_set_where_a_policy_expects_to_cut_later():
    class Later:
        def choose(self, view):
            return Decision(cut=1, reason="later")

    branch = marked_branch()
    assert propose(Later(), branch.table, branch.request.outside, BY_MARKS).anchors == (4,), (
        "B stands in the fifth item"
    )
    assert propose(Later(), branch.table, branch.request.outside, TERMS).anchors == ()


def test_a_client_that_uses_all_marks_gets_none_of_ours_and_cuts_are_priced_by_its_own():
    branch = Branch()
    branch.table.tool = "page_in"
    four = ((300.0, 300.0, 300.0), 300.0)
    branch.send(*READ_A, marks=four).send(*READ_A, *READ_B, marks=four).send(*READ_A, *READ_B, *READ_C, marks=four)
    plan = propose(WantsTheOldest(), branch.table, branch.request.outside, BY_MARKS)
    assert (len(plan.pages), plan.anchors) == (1, ())


def test_what_the_clients_own_mark_does_not_reach_gets_one_of_ours():
    branch = marked_branch()
    long = [say() for _ in range(24)]  # positions since the last end: more than a provider looks back
    branch.send(*READ_A, *READ_B, *READ_C, *long, user(), marks=FIVE)
    plan = propose(Keeps(), branch.table, branch.request.outside, BY_MARKS)
    assert plan.anchors == (7,)
    branch.table.set_marks(ends=False, anchors=plan.anchors)
    branch.table.catch_up()
    assert branch.table.held.found(branch.table.at, branch.table.sent_marks(), branch.table.positions) == 7


class Keeps:
    def choose(self, view):
        return Decision(reason="keeps")


# ---------------------------------------------------------------- work


def long_branch(pages):
    """A branch of pages of several tools, old enough to go."""
    items = [user()]
    for number in range(pages):
        made = {"id": f"c{number}", "type": "function", "function": {"name": f"tool{number % 7}", "arguments": "{}"}}
        items.append(json.dumps({"role": "assistant", "content": None, "tool_calls": [made]}).encode())
        answer = {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number:05} " * 200}
        items.append(json.dumps(answer).encode())
    branch = Branch()
    for _ in range(3):
        branch.send(*items)
    branch.table.tool = "page_in"
    assert len(branch.table.pages) == pages
    return branch


def planned(policy, branch):
    """The steps that planning takes when it was done before, and the plan."""
    propose(policy, branch.table, branch.request.outside, TERMS)
    return steps(propose, policy, branch.table, branch.request.outside, TERMS)


def test_four_times_the_pages_are_planned_in_no_more_steps():
    few, _ = planned(CostAware(), long_branch(200))
    many, plan = planned(CostAware(), long_branch(800))
    assert (plan.pages, plan.rejected) == ((), "")
    assert many <= few


def test_so_they_are_where_some_of_them_go():
    taken = []
    for count in (200, 800):
        branch = long_branch(count)
        pages = branch.table.pages
        branch.table.evict([branch.table.evicted(page, STUB) for page in pages[:-100]])
        branch.send(*map(branch.request.items.__getitem__, range(2 * count + 1)), at=99_999.0)
        work, plan = planned(CostAware(reuse=0), branch)
        assert [page.name for page in plan.pages] == [page.name for page in pages[-100:]]
        taken.append(work)
    assert taken[1] <= taken[0]
