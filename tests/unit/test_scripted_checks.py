"""The scripted model refuses the prompts that a real provider would refuse, and no others."""

import copy
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import REQUESTS

from pager.testing.scripted.request_rules import problems
from pager.wire.messages.scripted import signature

PATHS = {"/v1/chat/completions": "chat", "/v1/messages": "messages", "/v1/responses": "responses"}


def chat_call(number, arguments="{}"):
    return {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": arguments}}


def chat_tool(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def tool_use(number, **more):
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "read", "input": {}, **more}


def tool_result(number, **more):
    return {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "x", **more}


def thinking(text="Hm.", **more):
    return {"type": "thinking", "thinking": text, "signature": signature(text), **more}


def function_call(number, **more):
    item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": "read"}
    return {**item, "arguments": "{}", **more}


def output(number, **more):
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": "x", **more}


USER = {"role": "user", "content": "Go on."}
MARK = {"cache_control": {"type": "ephemeral"}}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
CUSTOM = {"type": "custom_tool_call", "call_id": "call_9", "name": "patch", "input": "*** Begin"}
CUSTOM_OUTPUT = {"type": "custom_tool_call_output", "call_id": "call_9", "output": "done"}


def asks(*numbers, **more):
    return {"role": "assistant", "content": None, "tool_calls": [chat_call(number) for number in numbers], **more}


def answers(number, content="x"):
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": content}


def says(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def hears(*blocks):
    return {"role": "user", "content": list(blocks)}


GOOD = {
    "chat": [
        [USER],
        [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": [{"type": "text", "text": "a"}]}],
        [USER, asks(1, 2), answers(2), answers(1), asks(3, content=""), answers(3), USER],
        [USER, asks(1), answers(1, [{"type": "text", "text": "x"}]), {"role": "assistant", "content": "Done."}],
        [USER, {"role": "assistant", "content": None, "reasoning_content": "Hm."}],
        [USER, asks(1), answers(1), asks(1), answers(1)],
    ],
    "messages": [
        [USER],
        [USER, says(tool_use(1), tool_use(2)), hears(tool_result(2), tool_result(1), {"type": "text", "text": "b"})],
        [USER, says(tool_use(1), tool_use(2)), hears(tool_result(1)), hears(tool_result(2))],
        [
            USER,
            says(thinking(), tool_use(1)),
            hears(tool_result(1)),
            says(thinking("So."), thinking("Ah."), tool_use(2)),
            hears(tool_result(2)),
            {"role": "system", "content": "Be brief."},
        ],
        [USER, says({"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "Begin"})],
        [USER, says(thinking(signature="of another model"))],
        [USER, says(tool_use(1, **MARK), tool_use(2, input=MARK)), hears(tool_result(1, **MARK), tool_result(2))],
        [hears({"type": "something_new", "anything": []})],
    ],
    "responses": [
        [USER],
        [{"type": "message", **USER}, function_call(1), function_call(2), output(2), output(1), USER],
        [USER, REASONING, {**REASONING, "id": "rs_2"}, function_call(1), output(1), CUSTOM, CUSTOM_OUTPUT],
        [USER, REASONING, {"type": "message", "role": "assistant", "content": "So."}],
        [{"type": "web_search_call", "id": "ws_1"}, {"type": "item_reference", "id": "msg_1"}, USER],
    ],
}
BAD = {
    "chat": [
        ([USER, asks(1)], "did not have response messages: call_1"),
        ([USER, asks(1, 2), answers(1), USER], "did not have response messages: call_2"),
        ([USER, asks(1), USER, answers(1)], "did not have response messages: call_1"),
        ([USER, answers(1)], "must be a response to a preceding message"),
        ([USER, asks(1), answers(1), answers(1)], "must be a response to a preceding message"),
        ([USER, asks(1, 1), answers(1)], "Duplicate value for 'tool_call_id': call_1"),
        ([{"role": "robot", "content": "a"}], "Invalid value: 'robot'"),
        ([{"content": "a"}], "Invalid value: 'None'"),
        ([{"role": "user"}], "Invalid type for 'messages[0].content'"),
        ([{"role": "user", "content": []}], "Invalid type for 'messages[0].content'"),
        ([{"role": "user", "content": [{"type": "tool_result"}]}], "Invalid type for 'messages[0].content'"),
        ([USER, asks(1), answers(1, None)], "Invalid type for 'messages[2].content'"),
        ([USER, {"role": "assistant", "content": None}], "Invalid type for 'messages[1].content'"),
        ([USER, {"role": "assistant", "tool_calls": [chat_call(1, "{")]}, answers(1)], "arguments is not valid JSON"),
        ([USER, {"role": "assistant", "tool_calls": [chat_call(1, {})]}, answers(1)], "arguments is not valid JSON"),
    ],
    "messages": [
        (
            [USER, says(tool_use(1))],
            "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_1",
        ),
        ([USER, says(tool_use(1)), hears({"type": "text", "text": "b"})], "without `tool_result` blocks"),
        ([USER, says(tool_use(1)), {"role": "system", "content": "a"}, hears(tool_result(1))], "without `tool_result`"),
        ([hears(tool_result(1))], "unexpected `tool_use_id` found in `tool_result` blocks: toolu_1"),
        ([USER, says(tool_use(1)), hears(tool_result(1), tool_result(1))], "more than one `tool_result` for toolu_1"),
        (
            [USER, says(tool_use(1)), hears(tool_result(1)), says(tool_use(1)), hears(tool_result(1))],
            "`tool_use` ids must be unique: toolu_1",
        ),
        (
            [USER, says(tool_use(1)), hears({"type": "text", "text": "b"}, tool_result(1))],
            "`tool_result` blocks must come first",
        ),
        ([USER, says({"type": "text", "text": "So"}, thinking())], "must start with a thinking block, found `text`"),
        ([USER, says(thinking(**MARK))], "`cache_control` can't be set on `thinking` blocks"),
        ([USER, says(thinking(signature=""))], "thinking.signature: Field required"),
        ([USER, says(thinking(signature=signature("Something else.")))], "Invalid `signature` in `thinking` block"),
        ([hears({"type": "text", "text": ""})], "text content blocks must be non-empty"),
        ([{"role": "user", "content": ""}], "text content blocks must be non-empty"),
        ([USER, says(tool_use(1, input="{}")), hears(tool_result(1))], "Input should be a valid dictionary"),
        ([USER, {"role": "assistant", "content": "It is "}], "cannot end with trailing whitespace"),
        ([{"role": "tool", "content": "a"}], "unexpected role 'tool'"),
        (
            [USER, says(*[tool_use(n, **MARK) for n in range(5)]), hears(*map(tool_result, range(5)))],
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
    ],
    "responses": [
        ([USER, function_call(1)], "No tool output found for function call call_1"),
        ([USER, CUSTOM], "No tool output found for function call call_9"),
        ([USER, output(1)], "No tool call found for function call output with call_id call_1"),
        ([USER, output(1), function_call(1)], "No tool call found for function call output with call_id call_1"),
        ([USER, function_call(1), output(1), output(1)], "No tool call found for function call output"),
        ([USER, CUSTOM, output(9)], "No tool call found for function call output with call_id call_9"),
        ([USER, function_call(1), function_call(1, id="fc_2"), output(1)], "Duplicate function call found"),
        (
            [USER, function_call(1), output(1), function_call(2, id="fc_1"), output(2)],
            "Duplicate item found with id fc_1",
        ),
        ([USER, REASONING], "'rs_1' of type 'reasoning' was provided without its required following item"),
        ([REASONING, USER], "'rs_1' of type 'reasoning' was provided without its required following item"),
        ([function_call(1), REASONING, output(1)], "without its required following item"),
        ([{"type": "tool_result"}], "Invalid value: 'tool_result'. (input[0].type)"),
        ([USER, function_call(1, arguments="{"), output(1)], "input[1].arguments is not valid JSON"),
    ],
}


def request(dialect, items, **more):
    return {"model": "m-1", "input" if dialect == "responses" else "messages": items, **more}


@pytest.mark.parametrize(("dialect", "items"), [(name, items) for name, all_of in GOOD.items() for items in all_of])
def test_a_prompt_that_a_provider_takes_has_no_problem(dialect, items):
    assert problems(dialect, request(dialect, items)) == []


@pytest.mark.parametrize(
    ("dialect", "items", "words"), [(name, *pair) for name, all_of in BAD.items() for pair in all_of]
)
def test_what_is_wrong_with_a_prompt_is_said_as_the_provider_says_it(dialect, items, words):
    assert any(words in problem for problem in problems(dialect, request(dialect, items)))


def test_responses_may_be_asked_with_a_bare_text():
    assert problems("responses", {"model": "m-1", "input": "Hello."}) == []


def test_results_of_calls_that_the_provider_keeps_itself_are_in_order():
    kept = {"previous_response_id": "resp_1"}
    assert problems("responses", request("responses", [output(1)], **kept)) == []
    assert problems("responses", request("responses", [function_call(1), output(1), output(1)], **kept)) != []
    going_on = request("messages", [hears(tool_result(1))], thread={"type": "continue"})
    assert problems("messages", going_on) == []


@pytest.mark.parametrize(
    ("dialect", "tools"),
    [
        ("chat", [chat_tool("read"), chat_tool("read")]),
        ("messages", [{"name": "read", "input_schema": {}}, {"name": "read", "input_schema": {}}]),
        (
            "responses",
            [{"type": "function", "name": "read"}, {"type": "web_search"}, {"type": "custom", "name": "read"}],
        ),
    ],
)
def test_two_tools_of_one_name_are_refused(dialect, tools):
    assert "must be unique" in problems(dialect, request(dialect, [USER], tools=tools))[0]
    assert problems(dialect, request(dialect, [USER], tools=tools[:1])) == []


def test_tools_among_the_items_count_with_the_others():
    tool = {"type": "function", "name": "read"}
    more = {"type": "additional_tools", "tools": [tool]}
    assert problems("responses", request("responses", [more, USER])) == []
    assert "must be unique" in problems("responses", request("responses", [more, USER], tools=[tool]))[0]


def test_marks_count_wherever_they_are():
    marked = request(
        "messages",
        [hears({"type": "text", "text": "a", **MARK}), says(tool_use(1)), hears(tool_result(1))],
        tools=[{"name": "read", "input_schema": {"properties": MARK}, **MARK}],
        system=[{"type": "text", "text": "s", **MARK}],
    )
    assert problems("messages", marked) == []
    inner = {"type": "text", "text": "x", **MARK}
    marked["messages"][2]["content"][0]["content"] = [inner]
    assert problems("messages", marked) == []
    marked["messages"][2]["content"][0]["content"] = [inner, inner]
    assert problems("messages", marked) == ["A maximum of 4 blocks with cache_control may be provided. Found 5."]


# Each number is how many calls an answer makes.
STEPS = st.lists(st.integers(0, 3), min_size=1, max_size=6)


def conversation(dialect, steps):
    items, number = [USER], 0
    for count in steps:
        numbers = range(number, number + count)
        number += count
        if dialect == "chat":
            items += [asks(*numbers) if count else {"role": "assistant", "content": "So."}, *map(answers, numbers)]
        elif dialect == "messages":
            text = {"type": "text", "text": "So."}
            items += [says(thinking(), text, *map(tool_use, numbers)), hears(*map(tool_result, numbers), text)]
        else:
            items += [*map(function_call, numbers), *map(output, numbers)]
    return items


def places(items):
    """Where the results and calls are: (item,) or (item, block)."""
    for at, item in enumerate(items):
        if item.get("role") == "tool" or item.get("type") in ("function_call", "function_call_output"):
            yield (at,)
        if isinstance(item.get("content"), list):
            kinds = [block["type"] for block in item["content"]]
            yield from ((at, inner) for inner, kind in enumerate(kinds) if kind in ("tool_use", "tool_result"))


def without(items, place):
    left = copy.deepcopy(items)
    if len(place) == 1:
        del left[place[0]]
    else:
        del left[place[0]]["content"][place[1]]
    return left


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
@given(steps=STEPS, data=st.data())
def test_a_conversation_is_taken_whole_and_refused_without_any_one_call_or_result(dialect, steps, data):
    items = conversation(dialect, steps)
    assert problems(dialect, request(dialect, items)) == []
    pairs = list(places(items))
    if pairs:
        assert problems(dialect, request(dialect, without(items, data.draw(st.sampled_from(pairs)))))


@pytest.mark.recorded
@pytest.mark.skipif(not REQUESTS, reason="CTXPAGER_RECORDINGS names no folder with recorded/*/*.jsonl.gz")
def test_no_recorded_request_of_a_real_client_would_be_refused():
    found = {}
    for file in REQUESTS:
        with gzip.open(file, "rt") as lines:
            calls = [
                call for call in map(json.loads, lines) if call["path"] in PATHS and isinstance(call["body"], dict)
            ]
        wrong = [problem for call in calls for problem in problems(PATHS[call["path"]], call["body"])]
        found |= {f"{file.parent.name}/{file.name}": wrong} if wrong else {}
    assert found == {}
