"""Putting the hidden legs of an Anthropic Messages call back into the history that the client sends."""

import json

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages_blocks import FOUND, SEARCH, text, thinking

from pager.request_values import Span
from pager.wire.dialects import load
from pager.wire.json_spans import elements, members
from pager.wire.stitching import Expansion, Leg, LegPart

messages = load("messages")
KINDS = {"text": "text", "thinking": "reasoning", "redacted_thinking": "reasoning", "tool_use": "call"}


def raw(value) -> msgspec.Raw:
    return msgspec.Raw(orjson.dumps(value))


def call(call_id, name="read"):
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"path": "a"}}


def ask(call_id):
    return {"type": "tool_use", "id": call_id, "name": "page_in", "input": {"pages": ["pg_0123456789abcdef"]}}


def result(call_id, content="the page"):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgB"}


def is_hidden(block):
    return block.get("name") == "page_in"


def leg(*blocks) -> Leg:
    parts = [LegPart(KINDS.get(block["type"], "other"), raw(block), is_hidden(block)) for block in blocks]
    results = [raw(result(block["id"])) for block in blocks if is_hidden(block)]
    return Leg(parts, results, any(block["type"] == "tool_use" and not is_hidden(block) for block in blocks))


def said(role, content, **more) -> bytes:
    return json.dumps({"role": role, "content": content, **more}, ensure_ascii=False).encode()


def expanded(items, legs):
    """The expansion's items as values."""
    expansion = messages.expand(items, legs)
    assert expansion is not None
    return [orjson.loads(item) for item in expansion.items]


# ---------------------------------------------------------------- written conversations

HIDDEN = leg(thinking("First."), text("I look."), ask("toolu_h"))
HIDDEN_AGAIN = leg(text("Once more."), ask("toolu_i"), ask("toolu_j"))
MIXED = leg(text("Both."), ask("toolu_h"), call("toolu_a"), ask("toolu_i"))


def test_a_leg_adds_what_it_said_and_our_answers():
    assert messages.appended(HIDDEN) == [
        b'{"role":"assistant","content":[' + b",".join(bytes(part.raw) for part in HIDDEN.parts) + b"]}",
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_h","content":"the page"}]}',
    ]


def test_a_leg_from_the_log_adds_the_same_bytes():
    again = msgspec.json.decode(msgspec.json.encode(HIDDEN), type=Leg)
    assert messages.appended(again) == messages.appended(HIDDEN)
    item = said("assistant", [thinking("First."), text("I look."), text("Yes.")])
    assert messages.expand([item], [again]) == messages.expand([item], [HIDDEN])


def test_what_a_leg_showed_is_taken_off_the_clients_message():
    item = said("assistant", [thinking("First."), text("I look."), thinking("Second.", "EqQC"), text("Yes.")])
    rest = said("assistant", [thinking("Second.", "EqQC"), text("Yes.")])
    assert messages.expand([item, b"more"], [HIDDEN]) == Expansion(1, (*messages.appended(HIDDEN), rest))


def test_several_legs_are_put_back_in_their_order():
    item = said("assistant", [thinking("First."), text("I look."), text("Once more."), text("Yes.")])
    both = (*messages.appended(HIDDEN), *messages.appended(HIDDEN_AGAIN))
    assert messages.expand([item], [HIDDEN, HIDDEN_AGAIN]) == Expansion(1, (*both, said("assistant", [text("Yes.")])))


def test_the_message_keeps_its_other_keys_and_its_bytes():
    item = (
        b'{"x": [1e3],\n "content": [ {"type":"text","text":"I look. "} ,\n {"text": "Y\\u0065s.", "type":"text"}\t]}'
    )
    item = item.replace(b"{", b'{"role": "assistant", ', 1)
    expansion = messages.expand([item], [leg(text("I look."), ask("toolu_h"))])
    kept = b'{"role": "assistant", "x": [1e3],\n "content": [ {"text": "Y\\u0065s.", "type":"text"}\t]}'
    assert expansion.items[2:] == (kept,)


def test_a_message_of_which_nothing_is_left_is_left_out():
    item = said("assistant", [thinking("First."), text("I look.")])
    assert messages.expand([item], [HIDDEN]) == Expansion(1, tuple(messages.appended(HIDDEN)))
    assert messages.expand([said("assistant", "I look. ")], [HIDDEN]) == Expansion(1, tuple(messages.appended(HIDDEN)))


def test_a_leg_that_showed_nothing_leaves_the_clients_bytes():
    for content in ("Yes.", [text("Yes.")], [call("toolu_a")]):
        item = said("assistant", content)
        silent = leg(ask("toolu_h"))
        assert messages.expand([item], [silent]) == Expansion(1, (*messages.appended(silent), item))


def test_thinking_that_the_client_dropped_still_goes_back_with_its_leg():
    assert expanded([said("assistant", [text("I look."), text("Yes.")])], [HIDDEN]) == [
        *map(orjson.loads, messages.appended(HIDDEN)),
        {"role": "assistant", "content": [text("Yes.")]},
    ]
    only = leg(thinking("First."), REDACTED, ask("toolu_h"))
    assert expanded([said("assistant", "Yes.")], [only])[2:] == [{"role": "assistant", "content": "Yes."}]


def test_thinking_of_another_leg_is_not_taken_for_this_ones():
    first = leg(thinking("First.", "sig1"), ask("toolu_h"))
    item = said("assistant", [thinking("Second.", "sig2"), text("Yes.")])
    assert messages.expand([item], [first]).items[2] == item
    unsigned = leg(thinking("First.", ""), ask("toolu_h"))
    item = said("assistant", [thinking("First.", ""), thinking("Second.", ""), text("Yes.")])
    rest = [thinking("Second.", ""), text("Yes.")]
    assert expanded([item], [unsigned])[2] == {"role": "assistant", "content": rest}


@pytest.mark.parametrize("joint", ["", " ", "\n\n"])
def test_texts_that_the_client_joined_are_cut_apart(joint):
    first = leg(text("I look.\n"), ask("toolu_h"))
    one = "I look." + joint + "Once more." + joint + "Yes, \u2602 é. "
    assert expanded([said("assistant", one)], [first, HIDDEN_AGAIN])[4:] == [
        {"role": "assistant", "content": "Yes, \u2602 é. "}
    ]
    blocks = [{**text(one), "cache_control": {"type": "ephemeral"}}, call("toolu_a")]
    left = [{**text("Yes, \u2602 é. "), "cache_control": {"type": "ephemeral"}}, call("toolu_a")]
    assert expanded([said("assistant", blocks)], [first, HIDDEN_AGAIN])[4:] == [{"role": "assistant", "content": left}]


def test_blank_texts_count_for_nothing():
    blank = Leg([LegPart("text", raw(text(" \n"))), *HIDDEN.parts], HIDDEN.results)
    for content in (
        [thinking("First."), text("I look."), text("Yes.")],
        [text(" "), thinking("First."), text("\n"), text("I look."), text(""), text("Yes.")],
    ):
        assert expanded([said("assistant", content)], [blank])[2:] == [{"role": "assistant", "content": [text("Yes.")]}]


def test_blocks_of_other_kinds_are_known_by_their_ids():
    first = leg(SEARCH, FOUND, ask("toolu_h"))
    item = said("assistant", [SEARCH, FOUND, text("Yes.")])
    assert expanded([item], [first])[2:] == [{"role": "assistant", "content": [text("Yes.")]}]
    other = said("assistant", [{**SEARCH, "id": "srvtoolu_2"}, FOUND, text("Yes.")])
    assert messages.expand([other], [first]) is None


@pytest.mark.parametrize(
    "items",
    [
        [],
        [b"{"],
        [b'"text"'],
        [b'{"role": "assistant"}'],
        [b'{"role": "assistant", "content": 7}'],
        [said("user", "I look. Yes.")],
        [said("assistant", "Something else.")],
        [said("assistant", "")],
        [said("assistant", [])],
        [said("assistant", [thinking("First."), call("toolu_a")])],
        [said("assistant", [thinking("First."), thinking("Second.", "EqQC"), text("I look.")])],
    ],
)
def test_a_leg_whose_place_is_gone_is_not_put_back(items):
    assert messages.expand(items, [HIDDEN]) is None


def test_hidden_calls_beside_real_ones_go_where_they_stood():
    item = said("assistant", [text("Both."), call("toolu_a")])
    results = said("user", [result("toolu_a", "its text"), text("Go on.")])
    expansion = messages.expand([item, results, b"more"], [MIXED])
    assert expansion.taken == 2
    assert [orjson.loads(raw) for raw in expansion.items] == [
        {"role": "assistant", "content": [text("Both."), ask("toolu_h"), call("toolu_a"), ask("toolu_i")]},
        {
            "role": "user",
            "content": [result("toolu_h"), result("toolu_i"), result("toolu_a", "its text"), text("Go on.")],
        },
    ]


def test_a_mixed_leg_follows_the_legs_before_it():
    item = said("assistant", [thinking("First."), text("I look."), text("Both."), call("toolu_a")])
    found = expanded([item, said("user", [result("toolu_a")])], [HIDDEN, MIXED])
    assert found[:2] == [orjson.loads(raw) for raw in messages.appended(HIDDEN)]
    assert found[2]["content"] == [text("Both."), ask("toolu_h"), call("toolu_a"), ask("toolu_i")]
    joined = said("assistant", [text("I look. Both."), call("toolu_a")])
    assert expanded([joined, said("user", [result("toolu_a")])], [HIDDEN, MIXED])[2] == found[2]


def test_hidden_calls_in_a_row_keep_their_order():
    mixed = leg(ask("toolu_z"), ask("toolu_h"), call("toolu_a"), ask("toolu_y"), ask("toolu_i"))
    (message, _) = expanded([said("assistant", [call("toolu_a")]), said("user", [result("toolu_a")])], [mixed])
    assert [block["id"] for block in message["content"]] == ["toolu_z", "toolu_h", "toolu_a", "toolu_y", "toolu_i"]


def test_a_text_that_the_client_dropped_moves_no_hidden_call_past_a_real_one():
    item, results = said("assistant", [call("toolu_a")]), said("user", [result("toolu_a")])
    message, _ = expanded([item, results], [MIXED])
    assert message["content"] == [ask("toolu_h"), call("toolu_a"), ask("toolu_i")]


CALLED = said("assistant", [text("Both."), call("toolu_a")])


@pytest.mark.parametrize(
    "items",
    [
        [CALLED],
        [CALLED, said("user", "Stop.")],
        [CALLED, said("user", [text("Stop.")])],
        [CALLED, said("assistant", [result("toolu_a")])],
        [CALLED, b"{"],
        [said("assistant", [text("Both."), call("toolu_b")]), said("user", [result("toolu_b")])],
        [said("assistant", "Both."), said("user", [result("toolu_a")])],
    ],
)
def test_a_mixed_leg_whose_place_is_gone_is_not_put_back(items):
    assert messages.expand(items, [MIXED]) is None


def test_a_mixed_leg_without_a_real_call_has_no_place():
    odd = Leg(HIDDEN.parts, HIDDEN.results, mixed=True)
    item = said("assistant", [thinking("First."), text("I look.")])
    assert messages.expand([item, said("user", [result("toolu_a")])], [odd]) is None


# ---------------------------------------------------------------- laws

words = st.text("abé☔ ", min_size=1, max_size=8).filter(str.strip)
signatures = st.integers(0, 10**9).map("sig{}".format)
shown = st.builds(text, words) | st.builds(thinking, words, signatures)
layouts = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}])


@st.composite
def calls(draw):
    """The blocks of the legs of a call, the last of which is either the end or mixed."""
    ids = (f"toolu_{number}" for number in range(100))

    def blocks(makers):
        listed = draw(st.lists(shown, max_size=3))
        return [*listed, *(make(next(ids)) for make in makers)]

    asking = [blocks([ask] * draw(st.integers(1, 2))) for _ in range(draw(st.integers(0, 3)))]
    last = draw(st.lists(st.sampled_from([ask, call]), max_size=4).filter(lambda m: not m or call in m))
    return [*asking, blocks(last)]


def visible(blocks):
    return [block for block in blocks if not is_hidden(block)]


def paired(prompt):
    """Whether every call is answered in the next user message, before all else there."""
    for message, following in zip(prompt, [*prompt[1:], {"role": "", "content": []}], strict=True):
        made = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        answered = [block.get("tool_use_id") for block in following["content"][: len(made)]]
        # The order of results is free, their place is not.
        if made and (following["role"] != "user" or sorted(map(str, answered)) != sorted(made)):
            return False
    return True


def the_rest(legs):
    """The legs to be put back, and the blocks of the last leg."""
    hidden = [leg(*blocks) for blocks in legs if any(map(is_hidden, blocks))]
    return hidden, legs[-1]


def clients(blocks, layout):
    """What a client sends after the call: its own message, and its results."""
    item = json.dumps({"role": "assistant", "content": visible(blocks)}, **layout).encode()
    made = [result(block["id"], "mine") for block in visible(blocks) if block["type"] == "tool_use"]
    return [item, json.dumps({"role": "user", "content": [*made, text("Go on.")]}, **layout).encode()]


@given(calls(), layouts)
def test_every_leg_goes_back_into_the_prompt_that_it_was_said_in(legs, layout):
    items = clients([block for blocks in legs for block in blocks], layout)
    hidden, last = the_rest(legs)
    expansion = messages.expand(items, hidden)
    before = [item for recorded in hidden if not recorded.mixed for item in messages.appended(recorded)]
    assert list(expansion.items[: len(before)]) == before
    prompt = [orjson.loads(item) for item in [*expansion.items, *items[expansion.taken :]]]
    assert paired(prompt)
    kept = prompt[len(before)]["content"] if last else []
    assert kept == last
    assert [block for message in prompt if message["role"] == "assistant" for block in message["content"]] == [
        block for blocks in legs for block in blocks
    ]


@given(calls(), layouts)
def test_the_blocks_that_are_left_keep_their_bytes(legs, layout):
    items = clients([block for blocks in legs for block in blocks], layout)
    hidden, last = the_rest(legs)
    expansion = messages.expand(items, hidden)
    own = _blocks_of(items[0])[len(_blocks_of(items[0])) - len(visible(last)) :]
    ours = [bytes(part.raw) for recorded in hidden if recorded.mixed for part in recorded.parts if part.hidden]
    at = 2 * sum(not recorded.mixed for recorded in hidden)
    found = _blocks_of(expansion.items[at]) if last else []
    assert [block for block in found if block not in ours] == own


@given(calls(), layouts)
def test_a_client_that_drops_thinking_changes_nothing_before_its_own_message(legs, layout):
    legs = [
        [block for block in blocks if block["type"] != "thinking" or at < len(legs) - 1]
        for at, blocks in enumerate(legs)
    ]
    blocks = [block for blocks in legs for block in blocks]
    hidden, _ = the_rest(legs)
    kept = messages.expand(clients(blocks, layout), hidden)
    dropped = messages.expand(clients([block for block in blocks if block["type"] != "thinking"], layout), hidden)
    assert [orjson.loads(item) for item in dropped.items] == [orjson.loads(item) for item in kept.items]


@given(calls(), st.sampled_from(["", "\n", "\n\n"]))
def test_a_client_that_joins_texts_changes_nothing_before_its_own_message(legs, joint):
    legs = [[block for block in blocks if block["type"] != "thinking"] for blocks in legs]
    hidden, _ = the_rest(legs)
    texts = [block["text"] for blocks in legs for block in blocks if block["type"] == "text"]
    real = [block for blocks in legs for block in visible(blocks) if block["type"] == "tool_use"]
    items = clients([*([text(joint.join(texts))] if texts else []), *real], {})
    expansion = messages.expand(items, hidden)
    before = [item for recorded in hidden if not recorded.mixed for item in messages.appended(recorded)]
    assert list(expansion.items[: len(before)]) == before
    assert paired([orjson.loads(item) for item in [*expansion.items, *items[expansion.taken :]]])


def _blocks_of(item):
    content = members(item)["content"]
    return [bytes(block) for block in elements(item, Span(*content)).items]
