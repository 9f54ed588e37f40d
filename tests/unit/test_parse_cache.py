"""What is remembered of earlier bodies never changes what is found in a body, only how fast."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

from pager.errors import NotUnderstood
from pager.wire import parse_cache
from pager.wire.parse_cache import ParseCache, split

LONG = "x" * parse_cache.WORTH_KEEPING


def body(messages, *, indent=None, tools_first=False, **more):
    members = {"model": "m", "messages": messages, "tools": [{"name": "t"}], **more}
    if tools_first:
        members = {"tools": members.pop("tools"), **members}
    return json.dumps(members, indent=indent).encode()


def found(parts):
    items = [bytes(item) for item in parts.elements.items]
    return parts.members, items, list(parts.starts), parts.separator, list(parts.digests)


def same_as_fresh(memory, one):
    try:
        expected = found(split(one, "messages"))
    except NotUnderstood:
        with pytest.raises(NotUnderstood):
            memory.split(one, "messages")
        return
    assert found(memory.split(one, "messages")) == expected


turn = st.lists(
    st.one_of(st.text(max_size=5), st.integers(0, 20), st.just({"role": "user", "content": "é\ud83d"})), max_size=4
)


@examples(200)
@given(
    st.lists(st.tuples(turn, st.integers(0, 6), st.booleans(), st.sampled_from([None, 1])), max_size=6), st.booleans()
)
def test_a_growing_shrinking_and_edited_history_is_found_as_if_it_were_new(steps, numbers):
    memory, history = ParseCache(), [{"role": "system", "content": LONG}]
    for added, dropped, marked, indent in steps:
        history = history[: max(1, len(history) - dropped)] + (added if numbers else [{"c": one} for one in added])
        if marked and isinstance(history[-1], dict):
            history = [*history[:-1], {**history[-1], "cache_control": {"type": "ephemeral"}}]
        same_as_fresh(memory, body(history, indent=indent))
        same_as_fresh(memory, body(history, indent=indent, tools_first=True, stream=True))


def test_only_the_new_messages_of_a_known_history_are_hashed():
    history = [{"role": "user", "content": f"{number} {LONG}"} for number in range(20)]
    memory = ParseCache()
    first = memory.split(body(history), "messages")
    second = memory.split(body([*history, {"role": "assistant", "content": "new"}]), "messages")
    taken_over = [one is two for one, two in zip(first.digests, second.digests, strict=False)]
    assert taken_over == [True] * 20


def test_a_moved_cache_mark_costs_only_the_messages_it_stood_on():
    def marked(history):
        return [*history[:-1], {**history[-1], "cache_control": {"type": "ephemeral"}}]

    history = [{"role": "user", "content": f"{number} {LONG}"} for number in range(20)]
    memory = ParseCache()
    first = memory.split(body(marked(history)), "messages")
    second = memory.split(body(marked([*history, {"role": "assistant", "content": "new"}])), "messages")
    assert [one is two for one, two in zip(first.digests, second.digests, strict=False)] == [True] * 19 + [False]


@pytest.mark.parametrize(
    "tail",
    [
        b', {"c": 2}], "model": "twice"}',
        b', {"c": 2}], "messages": []}',
        b', {"c": 2}], "": 1}',
        b', {"c": 2}], "end": 1',
        b',  {"c": 2}, {"c": 3}], "end": 1}',
        b', {"c": 2}]}',
        b"]}",
        b" ]  }",
    ],
)
def test_a_tail_of_any_kind_is_found_as_if_the_body_were_new(tail):
    memory = ParseCache()
    start = b'{"model": "m", "messages": [{"c": "' + LONG.encode() + b'"}, {"c": 1}'
    same_as_fresh(memory, start + b', {"c": 9}]}')
    same_as_fresh(memory, start + tail)


def test_memory_is_bounded_and_forgets_the_oldest():
    memory = ParseCache(limit=100_000)
    for number in range(200):
        memory.split(body([{"c": f"{number} {LONG}"}, {"c": 2}, {"c": 3}]), "messages")
    assert memory._size <= 100_000
    assert len(memory._kept) <= 100_000 // len(LONG)
    assert sum(map(len, memory._groups.values())) <= len(memory._kept) * len(parse_cache.STEPS_BACK)


def test_many_sessions_that_open_alike_do_not_crowd_the_probes():
    memory = ParseCache()
    for number in range(500):
        memory.split(body([{"c": LONG}, {"c": number}, {"c": 3}]), "messages")
    assert sum(map(len, memory._groups.values())) <= (parse_cache.ALIKE + 1) * len(parse_cache.STEPS_BACK)


def test_bodies_with_the_same_probes_can_be_dropped_in_any_order():
    memory, tail = ParseCache(), "the same end of both, longer than a probe is, to be sure of it"
    alike = [[{"c": LONG}, {"c": middle * 40}, {"c": tail}, {"c": tail}] for middle in "ab"]
    for history in (*alike, *alike):
        same_as_fresh(memory, body(history))
        same_as_fresh(memory, body([*history, {"c": LONG}]))


def test_bodies_of_another_member_are_no_help_and_no_harm():
    memory = ParseCache()
    history = [{"c": LONG}, {"c": 2}, {"c": 3}]
    both = json.dumps({"messages": history, "input": history}).encode()
    for key in ("messages", "input", "messages"):
        assert found(memory.split(both, key)) == found(split(both, key))
