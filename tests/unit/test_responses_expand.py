"""What a Responses request says beyond the client's own words: one more tool, and the legs it was not shown."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from guards import Unwatched
from hypothesis import given
from hypothesis import strategies as st
from recordings import REQUESTS

from pager.paging.page_in import definition, name_for
from pager.wire.dialects import load
from pager.wire.stitching import Expansion, Leg, ToolSlot

responses = load("responses")
HANDLE = "pg_0123456789abcdef"
READ = {"type": "function", "name": "read", "parameters": {"type": "object"}}
PATCH = {"type": "custom", "name": "patch"}
SEARCH = {"type": "web_search"}
SPACE = {"type": "namespace", "name": "team", "tools": [{"type": "function", "name": "spawn"}]}
USER = {"role": "user", "content": "Go on."}


def request(*items, separators=(",", ":"), **fields):
    body = {"model": "gpt-5.5", "input": list(items) or [USER], "store": False, "tools": [READ], **fields}
    kept = {key: value for key, value in body.items() if value is not ...}
    return responses.parse(json.dumps(kept, separators=separators).encode())


def written(parsed, place: ToolSlot):
    """The request with our tool at this place."""
    entry = place.before + definition("responses", name_for(place.names)) + place.after
    if place.item is None:
        return json.loads(parsed.body[: place.at] + entry + parsed.body[place.at :])
    raw = bytes(parsed.items[place.item])
    start = parsed.starts[place.item]
    raw_with = raw[: place.at] + entry + raw[place.at :]
    return json.loads(parsed.body[:start] + raw_with + parsed.body[start + len(raw) :])


def offered(parsed) -> list:
    """The names of the tools of the first list that holds ours."""
    place = responses.tool_slot(parsed)
    assert isinstance(place, ToolSlot), place
    body = written(parsed, place)
    tools = body["tools"] if place.item is None else body["input"][place.item]["tools"]
    return [tool.get("name", tool["type"]) for tool in tools]


# The tool


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n", " : ")])
@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ([READ], ["read", "page_in"]),
        ([READ, PATCH], ["read", "patch", "page_in"]),
        ([SPACE], ["team", "page_in"]),
        ([SEARCH, READ], ["web_search", "read", "page_in"]),
        ([READ, {**PATCH, "cache_control": {"type": "ephemeral"}}], ["read", "page_in", "patch"]),
        ([{**READ, "cache_control": {"type": "ephemeral"}}], ["page_in", "read"]),
        ([READ, {**PATCH, "defer_loading": True}, SEARCH], ["read", "page_in", "patch", "web_search"]),
        ([READ, {**PATCH, "defer_loading": False, "cache_control": None}], ["read", "patch", "page_in"]),
        ([{**READ, "name": "page_in"}], ["page_in", "page_in_2"]),
        ([READ, {**SPACE, "tools": [{"type": "function", "name": "page_in"}]}], ["read", "team", "page_in_2"]),
    ],
)
def test_the_tool_goes_to_the_end_but_before_what_must_stay_last(tools, expected, separators):
    assert offered(request(tools=tools, separators=separators)) == expected


def test_unevenly_spaced_tools_take_one_more():
    body = (
        b'{"input": [], "store": false, "tools": [ {"type":"function","name":"a"} ,{"type":"custom","name":"b"},\n7 ]}'
    )
    place = responses.tool_slot(responses.parse(body))
    assert body[: place.at].endswith(b"7")
    assert place == ToolSlot(body.index(b"7") + 1, b",", b"", frozenset({"a", "b"}))


def carried(*tools):
    return {"type": "additional_tools", "role": "developer", "tools": list(tools)}


def test_tools_in_an_item_take_the_tool_there():
    parsed = request(USER, carried(SPACE, READ), USER, carried(PATCH), tools=...)
    assert responses.tool_slot(parsed).item == 1
    assert responses.tool_slot(parsed).names == {"team", "spawn", "read", "patch"}
    assert offered(parsed) == ["team", "read", "page_in"]


def test_the_item_is_used_where_the_member_holds_no_tool_of_the_client():
    assert responses.tool_slot(request(carried(PATCH), tools=[SEARCH])).item == 0
    assert responses.tool_slot(request(carried(PATCH), tools=[])).item == 0
    assert responses.tool_slot(request(carried(SEARCH), carried(PATCH), tools=None)).item == 1


def test_the_member_comes_first_and_knows_the_names_in_items():
    place = responses.tool_slot(request(carried(PATCH), USER))
    assert place.item is None
    assert place.names == {"read", "patch"}


ASSISTANT = {"role": "assistant", "content": "I look."}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tools": ...}, "no tools"),
        ({"tools": []}, "no tools"),
        ({"tools": {"type": "function"}}, "no tools"),
        ({"tools": [SEARCH, {**SPACE, "tools": [SEARCH]}, 7]}, "no tool that the client runs"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "none"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "read"}}, "tool_choice"),
        ({"background": True}, "background"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"store": ..., "input": [{"type": "item_reference", "id": "msg_1"}, ASSISTANT]}, "item_reference"),
        ({"store": ...}, "store"),
        ({"store": True}, "store"),
        ({"store": None}, "store"),
        ({"store": ..., "input": "Hello"}, "store"),
        ({"store": 0}, "store"),
        ({"top_logprobs": 3}, "log prob"),
        ({"include": ["message.output_text.logprobs"]}, "log prob"),
        ({"input": [USER, ASSISTANT, {"type": "compaction_trigger"}]}, "compacted"),
        ({"input": [carried(READ) | {"tools": 7}], "tools": ...}, "can't be read"),
    ],
)
def test_some_requests_must_not_get_the_tool(fields, reason):
    refused = responses.tool_slot(request(**fields))
    assert isinstance(refused, str)
    assert reason in refused


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": "auto"},
        {"tool_choice": None},
        {"background": False},
        {"top_logprobs": 0},
        {"include": ["reasoning.encrypted_content"]},
        {"include": None},
        {"previous_response_id": None},
        {"input": "Hello"},
        {"input": [{"role": "user", "content": 'the "compaction_trigger" of "additional_tools"'}]},
    ],
)
def test_what_means_nothing_is_no_obstacle(fields):
    assert offered(request(**fields)) == ["read", "page_in"]


@pytest.mark.parametrize(
    "said",
    [
        ASSISTANT,
        {**ASSISTANT, "type": "message"},
        {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": ""},
        {"type": "reasoning", "summary": []},
    ],
)
def test_a_client_that_sends_its_history_may_store(said):
    assert offered(request(USER, said, USER, store=...)) == ["read", "page_in"]
    assert "store" in responses.tool_slot(request(USER, said, USER, store=..., stream=True))
    assert offered(request(USER, said, USER, store=False, stream=True)) == ["read", "page_in"]


def test_what_the_client_says_is_no_history():
    items = [USER, {"type": "function_call_output", "call_id": "c", "output": ""}, {"type": 7}, 7]
    assert "store" in responses.tool_slot(request(*items, store=True))


class Watched(Sequence):
    """Items that remember which of them were looked at."""

    def __init__(self, items):
        self._items = items
        self.seen = set()

    def __len__(self):
        return len(self._items)

    def __getitem__(self, at):
        self.seen.add(at % len(self._items))
        return self._items[at]


def test_the_history_is_looked_at_from_its_end_and_no_further_than_needed():
    parsed = request(ASSISTANT, *[USER] * 49, ASSISTANT, USER, store=True)
    items = Watched(parsed.items)
    assert isinstance(responses.tool_slot(replace(parsed, items=items)), ToolSlot)
    assert items.seen == {49, 50, 51}


def test_a_request_that_stores_nothing_is_not_searched_for_its_history():
    parsed = request(*[USER] * 50)
    items = Watched(parsed.items)
    assert isinstance(responses.tool_slot(replace(parsed, items=items)), ToolSlot)
    assert items.seen <= {47, 48, 49}


@pytest.mark.recorded
@pytest.mark.skipif(not REQUESTS, reason="CTXPAGER_RECORDINGS names no folder with recorded/*/*.jsonl.gz")
def test_recorded_requests_with_tools_take_one_more():
    places, refused = {"member": 0, "item": 0}, []
    for body in _recorded():
        parsed = responses.parse(json.dumps(body, ensure_ascii=False).encode())
        place = responses.tool_slot(parsed)
        if isinstance(place, str):
            refused.append((place, parsed))
            continue
        places["member" if place.item is None else "item"] += 1
        after = written(parsed, place)
        assert _count(after) == _count(body) + 1
        added = after["tools"].pop(-1) if place.item is None else after["input"][place.item]["tools"].pop(-1)
        assert added == json.loads(definition("responses"))
        assert after == body
    assert min(places.values()) > 5
    for reason, parsed in refused:
        expected = not parsed.has_tools or bool(parsed.server_state)
        assert expected or "store" in reason or "compacted" in reason


def _recorded():
    for file in REQUESTS:
        with gzip.open(file, "rt") as lines:
            for line in map(json.loads, lines):
                if line["path"].endswith("/responses") and isinstance(line["body"], dict) and "input" in line["body"]:
                    yield line["body"]


def _count(body) -> int:
    carriers = [body, *(item for item in body["input"] if item.get("type") == "additional_tools")]
    return sum(len(tool_slot.get("tools") or []) for tool_slot in carriers)


# The legs


def message(text, number=0):
    part = {"type": "output_text", "annotations": [], "text": text}
    return {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def thought(number=0, *, encrypted=True):
    item = {"id": f"rs_{number}", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    return {**item, "encrypted_content": f"gAAAA{number}"} if encrypted else item


def call(number=0, name="read", arguments="{}"):
    item = {"id": f"fc_{number}", "type": "function_call", "status": "completed"}
    return {**item, "arguments": arguments, "call_id": f"call_{number}", "name": name}


def custom(number=0):
    return {
        "id": f"ctc_{number}",
        "type": "custom_tool_call",
        "call_id": f"call_{number}",
        "name": "patch",
        "input": "",
    }


def hidden(number=0):
    return call(number, "page_in", json.dumps({"pages": [HANDLE]}))


def output(item):
    return {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "out"}


def ours(item):
    return {"type": "function_call_output", "call_id": item["call_id"], "output": "the page"}


def leg_of(*items, store=False) -> Leg:
    stitcher = responses.stitcher("page_in", Unwatched())
    body = {"id": "resp_1", "status": "completed", "output": list(items), "store": store}
    stitcher.take(json.dumps(body).encode())
    return stitcher.leg(["the page"] * len(stitcher.held().calls))


def raws(items) -> list:
    return [json.dumps(item).encode() for item in items]


def expanded(items, *legs):
    """How many of the client's items were taken, and what stands in their place."""
    found = responses.expand(raws(items), legs)
    return None if found is None else (found.taken, [json.loads(item) for item in found.items])


def test_a_leg_without_anything_shown_is_put_in_front():
    leg = leg_of(hidden(1))
    assert expanded([message("b", 2), USER], leg) == (0, [hidden(1), ours(hidden(1))])


def test_what_a_leg_showed_is_replaced_by_all_it_said():
    leg = leg_of(thought(1), message("Let me see.", 2), hidden(3), hidden(4))
    said = [thought(1), message("Let me see.", 2), hidden(3), hidden(4), ours(hidden(3)), ours(hidden(4))]
    assert [json.loads(item) for item in responses.appended(leg)] == said
    assert expanded([thought(1), message("Let me see.", 2), message("Found.", 5), USER], leg) == (2, said)


def test_clients_say_a_message_in_their_own_way():
    leg = leg_of(message("Let me see.\n", 2), hidden(3))
    for mine in [
        {"role": "assistant", "content": "Let me see."},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}], "phase": "commentary"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": " Let me see.\n"}]},
    ]:
        assert expanded([mine, message("Found.")], leg)[0] == 1


def test_a_refusal_is_text():
    refusal = {**message("", 2), "content": [{"type": "refusal", "refusal": "No."}]}
    assert expanded([{"role": "assistant", "content": "No."}, USER], leg_of(refusal, hidden(3)))[0] == 1


def test_thoughts_that_the_client_dropped_come_back_with_their_leg():
    leg = leg_of(thought(1), message("a", 2), hidden(3))
    assert expanded([message("a", 2), message("b", 4)], leg) == (
        1, [thought(1), message("a", 2), hidden(3), ours(hidden(3))],
    )  # fmt: skip


def test_thoughts_of_a_later_leg_stay_the_clients():
    leg = leg_of(thought(1), hidden(2))
    assert expanded([thought(3), message("b", 4)], leg) == (0, [thought(1), hidden(2), ours(hidden(2))])
    assert expanded([thought(1), thought(3), message("b", 4)], leg)[0] == 1


def test_thoughts_that_no_one_can_read_again_are_dropped_with_their_leg():
    lost, other, own = (thought(number, encrypted=False) for number in (1, 2, 3))
    leg = leg_of(lost, message("a", 4), other, hidden(5))
    said = [message("a", 4), hidden(5), ours(hidden(5))]
    assert expanded([lost, message("a", 4), other, own, message("b", 6)], leg) == (3, said)
    assert expanded([message("a", 4), own, message("b", 6)], leg) == (1, said)


def test_thoughts_that_the_provider_has_stored_are_known_by_their_ids():
    first, second, own = (thought(number, encrypted=False) for number in (1, 2, 3))
    leg = leg_of(first, second, hidden(5), store=True)
    said = [first, second, hidden(5), ours(hidden(5))]
    assert expanded([first, second, own, own, message("b", 6)], leg) == (2, said)
    assert expanded([{**first, "id": "rs_x"}, own, message("b", 6)], leg) == (0, said)
    without_ids = [{"type": "reasoning", "summary": []}] * 2
    assert expanded([*without_ids, message("b", 6)], leg) == (2, said)


def test_an_empty_message_may_be_dropped():
    leg = leg_of(message(" ", 1), hidden(2))
    assert expanded([message("b", 3)], leg)[0] == 0
    assert expanded([message("", 1), message("b", 3)], leg)[0] == 1


def test_other_items_may_be_dropped():
    searched = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    leg = leg_of(searched, hidden(2))
    said = [searched, hidden(2), ours(hidden(2))]
    assert expanded([searched, message("b")], leg) == (1, said)
    assert expanded([{**searched, "id": "ws_2"}, message("b")], leg) == (0, said)
    assert expanded([message("b")], leg) == (0, said)


def test_several_legs_stand_one_after_the_other():
    first, second = leg_of(message("a", 1), hidden(2)), leg_of(thought(3), hidden(4))
    assert expanded([message("a", 1), thought(3), message("b", 5), USER], first, second) == (
        2, [message("a", 1), hidden(2), ours(hidden(2)), thought(3), hidden(4), ours(hidden(4))],
    )  # fmt: skip


@pytest.mark.parametrize(
    "items",
    [
        [],
        [USER],
        [{"type": "function_call_output", "call_id": "c", "output": ""}],
        [message("something else")],
        [call(9), output(call(9))],
        [{"type": "compaction", "encrypted_content": "x"}],
        [message("a", 1) | {"role": "user"}],
        [thought(9), message("a", 1)],
        [7],
    ],
)
def test_an_answer_that_the_client_does_not_repeat_leaves_no_place(items):
    assert expanded(items, leg_of(message("a", 1), hidden(2))) is None


def test_the_answer_of_a_leg_that_showed_nothing_must_be_there_too():
    leg = leg_of(hidden(2))
    assert expanded([USER], leg) is None
    assert expanded([], leg) is None


def test_a_call_beside_gets_the_hidden_one_back_in_its_place():
    mine, patch = call(2, arguments='{"a": 1}'), custom(4)
    leg = leg_of(thought(1), mine, hidden(3), patch, hidden(5))
    items = [thought(1), mine | {"arguments": '{"a":1}'}, patch, output(mine), output(patch), USER]
    assert expanded(items, leg) == (
        3, [*items[:2], hidden(3), patch, hidden(5), ours(hidden(3)), ours(hidden(5))],
    )  # fmt: skip


def test_the_clients_own_bytes_stay_in_a_mixed_leg():
    leg = leg_of(hidden(1), call(2))
    mine = b'{ "type":"function_call","call_id":"call_2" }'
    found = responses.expand([mine, b"{}"], [leg])
    assert found == Expansion(1, (bytes(leg.parts[0].raw), mine, bytes(leg.results[0])))


def test_thoughts_that_no_one_can_read_again_stay_where_the_client_has_them_in_a_mixed_leg():
    lost = thought(1, encrypted=False)
    leg = leg_of(lost, hidden(2), call(3))
    assert expanded([lost, call(3), output(call(3))], leg) == (2, [hidden(2), lost, call(3), ours(hidden(2))])


def test_a_client_may_send_each_call_with_its_result():
    leg = leg_of(call(1), hidden(2), call(3))
    items = [call(1), output(call(1)), call(3), output(call(3))]
    assert expanded(items, leg) == (3, [call(1), hidden(2), *items[1:3], ours(hidden(2))])


def test_a_mixed_leg_whose_calls_are_gone_has_no_place():
    leg = leg_of(call(1), hidden(2), call(3))
    assert expanded([call(1), USER], leg) is None
    assert expanded([call(9), call(3)], leg) is None


def test_a_mixed_leg_follows_others():
    first, mixed = leg_of(message("a", 1), hidden(2)), leg_of(message("b", 3), call(4), hidden(5))
    items = [message("a", 1), message("b", 3), call(4), output(call(4))]
    assert expanded(items, first, mixed) == (
        3,
        [message("a", 1), hidden(2), ours(hidden(2)), message("b", 3), call(4), hidden(5), ours(hidden(5))],
    )


# Conversations: some legs that hide calls, the last of them perhaps beside calls of the client's, then an answer.

talk = st.sampled_from(["message", "thought", "lost thought"])
hiding = st.tuples(st.lists(talk, max_size=3), st.just(["hidden"]), st.lists(st.just("hidden") | talk, max_size=3))
mixed_legs = st.permutations(["hidden", "real", "real", "hidden", "message", "custom"])


@st.composite
def conversations(draw):
    legs = [[kind for part in leg for kind in part] for leg in draw(st.lists(hiding, min_size=1, max_size=3))]
    if draw(st.booleans()):
        legs[-1] = draw(mixed_legs)
    numbers = iter(range(1000))
    make = {
        "message": lambda number: message(f"text {number}", number),
        "thought": thought,
        "lost thought": lambda number: thought(number, encrypted=False),
        "hidden": hidden,
        "real": call,
        "custom": custom,
    }
    return [[make[kind](next(numbers)) for kind in leg] for leg in legs]


def is_shown(item):
    return item.get("name") != "page_in"


def is_call(item):
    return item.get("type") in ("function_call", "custom_tool_call")


@given(conversations(), st.booleans())
def test_what_the_client_repeats_becomes_the_prompt_that_the_provider_has_read(legs, drops_thoughts):
    kept = [leg_of(*leg) for leg in legs]
    seen = [item for leg in legs for item in leg if is_shown(item)]
    results = [output(item) for item in seen if is_call(item)]
    sent = [item for item in seen if not (drops_thoughts and item["type"] == "reasoning")]
    rest = results or [message("the answer", 999), USER]
    found = expanded([*sent, *rest], *kept)
    assert found is not None
    taken, said = found
    before = [json.loads(item) for leg in kept if not leg.mixed for item in responses.appended(leg)]
    assert said[: len(before)] == before
    prompt = [*said, *[*sent, *rest][taken:]]
    assert [item for item in prompt if item in rest] == rest
    _assert_paired(prompt)


def _assert_paired(prompt):
    """Every call has one result, after it; each item stands there once."""
    calls = [item["call_id"] for item in prompt if is_call(item)]
    answers = [item["call_id"] for item in prompt if item.get("type", "").endswith("_output")]
    assert sorted(calls) == sorted(answers)
    assert len(set(calls)) == len(calls)
    for call_id in calls:
        places = [at for at, item in enumerate(prompt) if item.get("call_id") == call_id]
        assert is_call(prompt[places[0]])
        assert len(places) == 2


@given(conversations(), st.data())
def test_items_in_any_order_never_break_the_pairing(legs, data):
    kept = [leg_of(*leg) for leg in legs]
    seen = [item for leg in legs for item in leg if is_shown(item)]
    rest = [output(item) for item in seen if is_call(item)] or [message("the answer", 999), USER]
    items = data.draw(st.permutations([*seen, *rest]))
    found = expanded(items, *kept)
    if found is not None:
        taken, said = found
        prompt = [*said, *items[taken:]]
        hidden_ids = [item["call_id"] for leg in legs for item in leg if not is_shown(item)]
        for call_id in hidden_ids:
            places = [item["type"] for item in prompt if item.get("call_id") == call_id]
            assert places == ["function_call", "function_call_output"]
