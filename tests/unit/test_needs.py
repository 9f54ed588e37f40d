"""What the answers of a session need to see."""

import json

import pytest
from chat_items import item
from hypothesis import given
from hypothesis import strategies as st

from instrumentation.replay.page_needs import (
    Need,
    Needs,
    distinctive,
    shown_in,
)
from instrumentation.replay.prepared_recording import Prepared
from instrumentation.replay.recording import Future, RecordedCall, Recording
from pager.paging.pages.stub import handle_of
from pager.pricing.rates import in_force
from pager.wire.dialects import load

CHAT = load("chat")
MODELS = in_force("anthropic", {})


def user(text):
    return item(role="user", content=text)


def calls(call_id="c1", **arguments):
    function = {"name": "read", "arguments": json.dumps(arguments)}
    return item(role="assistant", content=None, tool_calls=[{"id": call_id, "type": "function", "function": function}])


def result(content, call_id="c1"):
    return item(role="tool", tool_call_id=call_id, content=content)


def page(name):
    return "\n".join(f"    {at}→def {name}_function_number_{at}(argument):" for at in range(40))


def handle(text):
    return handle_of(text.encode())


A, B = page("alpha"), page("beta")
LINE = "def alpha_function_number_3(argument):"


def needs(answer, *prompt):
    return Needs(CHAT).of(prompt, answer)


# ---- signs


def test_long_lines_are_signs_without_their_numbers_and_blanks():
    assert distinctive("   12→  return the value of it all  \nshort\n") == {"return the value of it all"}


def test_words_that_nobody_writes_by_chance_are_signs():
    assert distinctive("see src/pager/paging/pages/page_table.py: or item_4711_b, (antidisestablishment)") >= {
        "src/pager/paging/pages/page_table.py",
        "item_4711_b",
    }
    assert "antidisestablishment" not in distinctive("antidisestablishment")


def test_a_line_of_nothing_but_marks_is_no_sign():
    assert distinctive("-" * 30 + " a b c") == set()


# ---- what a prompt shows


def test_pages_are_told_from_what_always_stays():
    shown = list(shown_in(CHAT, result(A)))
    assert [(one.handle, one.text) for one in shown] == [(handle(A), A)]
    assert [(one.handle, one.text) for one in shown_in(CHAT, result("small"))] == [("", "small")]
    assert [(one.handle, one.text) for one in shown_in(CHAT, user("hello"))] == [("", "hello")]


def test_of_a_call_large_arguments_are_pages_and_small_ones_stay():
    large = A + B
    shown = {one.text: one.handle for one in shown_in(CHAT, calls(path="src/a.py", content=large))}
    assert shown == {"src/a.py": "", large: handle(large)}


def test_arguments_that_are_no_object_stay():
    function = {"name": "read", "arguments": '["src/a.py"]'}
    raw = item(role="assistant", content="I look.", tool_calls=[{"id": "c1", "function": function}])
    assert {(one.handle, one.text) for one in shown_in(CHAT, raw)} == {("", "I look."), ("", "src/a.py")}


# ---- needs


def test_a_line_that_only_a_page_showed_is_needed():
    assert needs(f"I change\n{LINE}\nnow", user("do it"), result(A)) == [
        Need(("alpha_function_number_3", LINE), frozenset({handle(A)}), handle(A))
    ]


def test_what_nothing_showed_is_not_needed():
    assert needs("def gamma_function_number_3(argument):", user("do it"), result(A)) == []


@pytest.mark.parametrize("other", [user(LINE), user(f"so: {LINE} and more"), result(LINE, "c2")])
def test_what_stands_elsewhere_in_the_prompt_is_not_needed(other):
    assert needs(LINE, result(A), other) == []


def test_the_newest_page_is_asked_for_and_any_that_shows_it_will_do():
    later = A + "\nand one line more than before"
    (need,) = needs(LINE, result(A), result(B, "c2"), result(later, "c3"))
    assert (need.shown, need.asked) == (frozenset({handle(A), handle(later)}), handle(later))


def test_a_page_that_shows_it_inside_of_something_longer_will_do():
    inside = "x" * 700 + "\nin /home/src/pager/paging/pages/page_table.py here"
    alone = "y" * 700 + "\nsrc/pager/paging/pages/page_table.py"
    (need,) = needs("src/pager/paging/pages/page_table.py", result(alone), result(inside, "c2"))
    assert (need.shown, need.asked) == (frozenset({handle(alone), handle(inside)}), handle(alone))


def test_only_what_is_in_the_prompt_now_counts():
    reader = Needs(CHAT)
    assert reader.of([user("do it"), result(A)], LINE)
    assert reader.of([user("summary")], LINE) == []
    assert reader.of([user("summary"), result(A)], LINE)
    assert reader.of([user("summary"), result(A), user(LINE)], LINE) == []


def test_what_has_come_to_stand_elsewhere_once_is_looked_for_no_more():
    reader, inside = Needs(CHAT), user(f"so: {LINE} and more")
    assert reader.of([result(A)], LINE)
    assert [reader.of([result(A), inside, *more], LINE) for more in ([], [result(B, "c2")])] == [[], []]


@given(st.lists(st.sampled_from([user("do it"), result(A), result(B, "c2"), user(LINE)]), max_size=6), st.data())
def test_reading_call_by_call_finds_the_same_as_reading_at_once(items, data):
    reader = Needs(CHAT)
    for length in data.draw(st.lists(st.integers(0, len(items)), max_size=4)):
        assert reader.of(items[:length], A + B) == Needs(CHAT).of(items[:length], A + B)


# ---- the future of a branch


def futures(*steps):
    return Prepared(Recording("s", "chat", steps), CHAT).futures(MODELS)


def test_a_future_knows_cold_calls_and_the_calls_that_need_a_page():
    first = RecordedCall(0.0, 0, (user("do it"), result(A)), 10, said="I see.")
    more = [
        RecordedCall(at, keep, (user("on"),), 10, said=said)
        for at, keep, said in ((10, 2, LINE), (900, 3, ""), (901, 4, LINE))
    ]
    assert futures(first, *more) == {0: Future([True, False, True, False], {handle(A): [2, 4]})}


def test_a_branch_that_forks_has_the_calls_of_its_parent_before_its_own():
    steps = [
        RecordedCall(0.0, 0, (user("do it"), result(A)), 10),
        RecordedCall(10.0, 2, (user("on"),), 10),
        RecordedCall(20.0, 2, (user("else"),), 10, branch=1, parent=0, fork_call=1, said=LINE),
        RecordedCall(30.0, 0, (user("side"),), 10, branch=2),
    ]
    found = futures(*steps)
    assert (found[1], found[2]) == (Future([True, False], {handle(A): [2]}), Future([True]))
    assert [found[branch].calls for branch in found] == [2, 2, 1]


def test_a_further_attempt_is_no_call_of_its_own():
    first = RecordedCall(0.0, 0, (user("do it"), result(A)), 10, said=LINE)
    again = first._replace(at=5.0, keep=2, new=(), attempt=2)
    assert futures(first, again) == {0: Future([True], {handle(A): [1]})}
