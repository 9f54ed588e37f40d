"""What paging writes into a Chat Completions request: one more tool, and the hidden legs of earlier calls."""

import json

import pytest
from guards import Watching
from hypothesis import given
from hypothesis import strategies as st

from pager.paging.page_in import definition
from pager.request_values import Usage
from pager.wire.chat.scripted import Scripted as Chat
from pager.wire.dialects import load
from pager.wire.scripted import Call, Say, Turn
from pager.wire.stitching import Expansion, ToolSlot

chat = load("chat")
TOOL = "page_in"
HANDLE = "pg_0123456789abcdef"
HIDDEN = Call(TOOL, {"pages": [HANDLE]})
MIMIC = Call("edit", {"text": HANDLE})
READ, SHELL = Call("read", {"path": "a.py"}), Call("shell", {"cmd": "make"})
MARK = {"cache_control": {"type": "ephemeral"}}


def is_hidden(call) -> bool:
    return call.name == TOOL or "pg_" in call.text


# One more tool


def function(name, **more) -> dict:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}, **more}


def request(raw_tools=None, **fields):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()
    return chat.parse(body if raw_tools is None else body[:-1] + b', "tools": %b, "z": 1}' % raw_tools)


def with_tool(asked) -> dict:
    place = chat.tool_slot(asked)
    assert isinstance(place, ToolSlot)
    assert place.item is None
    entry = place.before + definition("chat", TOOL) + place.after
    return json.loads(asked.body[: place.at] + entry + asked.body[place.at :])


OURS = json.loads(definition("chat", TOOL))


def test_the_tool_goes_to_the_end_of_the_list():
    tools = [function("a"), function("b")]
    asked = request(tools=tools, n=1, tool_choice="auto", logprobs=False, top_logprobs=None, functions=[])
    assert with_tool(asked)["tools"] == [*tools, OURS]
    assert chat.tool_slot(asked).names == {"a", "b"}


@pytest.mark.parametrize("marked", [function("b", **MARK), {"type": "function", "function": {"name": "b", **MARK}}])
def test_the_tool_goes_before_the_first_entry_with_a_cache_mark(marked):
    tools = [function("a"), marked, function("c", **MARK)]
    assert with_tool(request(tools=tools))["tools"] == [tools[0], OURS, *tools[1:]]
    assert with_tool(request(tools=tools[1:]))["tools"] == [OURS, *tools[1:]]


def test_all_names_are_taken_whatever_the_kind_of_tool():
    odd = [{"type": "custom", "custom": {"name": "c"}}, {"type": "function", "name": "flat"}, {"type": "web_search"}, 7]
    assert chat.tool_slot(request(tools=[function("a"), *odd])).names == {"a", "c", "flat"}
    assert with_tool(request(tools=odd))["tools"] == [*odd, OURS]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "no tools"),
        ({"tools": None}, "no tools"),
        ({"tools": []}, "no tools"),
        ({"tools": "all"}, "tools that are no list"),
        ({"tools": [{"type": "web_search"}, 7]}, "only tools of the provider"),
        ({"functions": [{"name": "f"}]}, "legacy functions"),
        ({"function_call": "auto"}, "legacy functions"),
        ({"tool_choice": "none"}, "a tool_choice other than auto"),
        ({"tool_choice": "required"}, "a tool_choice other than auto"),
        ({"tool_choice": {"type": "function", "function": {"name": "a"}}}, "a tool_choice other than auto"),
        ({"n": 2}, "more than one choice"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "logprobs"),
    ],
)
def test_a_request_that_must_not_get_the_tool_says_why(fields, reason):
    tools = {} if reason == "no tools" else {"tools": [function("a")]}
    assert chat.tool_slot(request(**{**tools, **fields})) == reason


blanks = st.text(" \t\n\r", max_size=2)
entries = st.lists(st.sampled_from([function("a"), function("b", **MARK), {"type": "web_search"}]), max_size=4)


@given(entries, blanks, blanks, st.integers(0, 30))
def test_the_place_is_found_in_any_layout_and_wherever_the_list_stands(tools, inner, outer, pad):
    tools = [*tools, function("z")]
    written = inner.join(["", ",".join(inner + json.dumps(tool) + outer for tool in tools), ""])
    for metadata in ({}, {"x": "y" * pad}):  # the second time the list is known
        asked = request(f"[{written}]".encode(), metadata=metadata)
        told = with_tool(asked)
        assert [tool for tool in told["tools"] if tool != OURS] == tools
        assert told["tools"].count(OURS) == 1
        assert {**told, "tools": tools} == json.loads(asked.body)


def test_providers_of_this_format_need_no_marks():
    assert chat.mark(b'{"role": "user", "content": "hi"}') is None
    assert chat.mark_head(request(tools=[function("a")])) is None


# Hidden legs


def turn(number, say) -> Turn:
    return Turn(number, {"model": "m"}, say, Usage(100))


def legs_of(*says):
    """The hidden legs of a call, and the message that the client was shown."""
    stitcher, legs = chat.stitcher(TOOL, Watching(lambda arguments: "pg_" in arguments)), []
    for number, say in enumerate(says):
        if number:
            stitcher.go_on()
        stitcher.take(json.dumps(Chat().whole(turn(number, say))).encode())
        held = stitcher.held()
        if held.calls:
            legs.append(stitcher.leg([f"page {number}.{at}" for at in range(len(held.calls))]))
    return legs, json.loads(stitcher.finish())["choices"][0]["message"]


def raw(message) -> bytes:
    return json.dumps(message).encode()


def read(items) -> list[dict]:
    return [json.loads(item) for item in items]


def expanded(message, legs, *more) -> list[dict] | None:
    found = chat.expand([raw(message), *map(raw, more)], legs)
    return found and read(found.items)


def call(number, at, said) -> dict:
    function = {"name": said.name, "arguments": said.text}
    return {"id": turn(number, Say()).id("call_", at), "type": "function", "function": function}


def result(number, at, held=0) -> dict:
    return {"role": "tool", "tool_call_id": turn(number, Say()).id("call_", at), "content": f"page {number}.{held}"}


def test_a_leg_is_appended_as_what_it_said_and_what_it_was_answered():
    [leg, bare], _ = legs_of(Say("I look.", [HIDDEN, MIMIC], "Hm."), Say("", [HIDDEN]), Say("So."))
    assert read(chat.appended(leg)) == [
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm.",
            "tool_calls": [call(0, 0, HIDDEN), call(0, 1, MIMIC)],
        },
        result(0, 0),
        result(0, 1, 1),
    ]
    assert read(chat.appended(bare))[0] == {"role": "assistant", "content": None, "tool_calls": [call(1, 0, HIDDEN)]}


def test_the_legs_stand_before_what_is_left_of_the_clients_message():
    legs, shown = legs_of(Say("I look.", [HIDDEN], "Hm."), Say(" Again.", [HIDDEN]), Say(" So.", [READ], "Ah."))
    found = chat.expand([raw(shown), raw({"role": "tool"})], legs)
    assert found.taken == 1
    assert found.items[:-1] == (*chat.appended(legs[0]), *chat.appended(legs[1]))
    assert json.loads(found.items[-1]) == {**shown, "content": " So.", "reasoning_content": "Ah."}


def test_what_is_left_of_the_clients_message_keeps_its_bytes():
    legs, _ = legs_of(Say("I look.", [HIDDEN]), Say(" So.", [READ]))
    mine = b'{ "x":1.50,"content" :"I look. So.", "tool_calls":[ {"id":"\\u0061"} ],"role":"assistant" }'
    assert chat.expand([mine], legs).items[-1] == mine.replace(b'"I look. So."', b'" So."')
    silent, _ = legs_of(Say("", [HIDDEN]), Say("So."))
    for message in (mine, mine.replace(b"I look.", b"\\u0049 look."), mine.replace(b'"I look. So."', b"[ ]")):
        assert chat.expand([message], silent).items[-1] == message


def test_a_message_of_which_nothing_is_left_is_left_out():
    legs, shown = legs_of(Say("I look.", [HIDDEN]), Say(""))
    assert shown["content"] == "I look."
    for content in ("I look.", "I look. \n", [{"type": "text", "text": "I look."}]):
        found = chat.expand([raw({"role": "assistant", "content": content})], legs)
        assert found == Expansion(1, tuple(chat.appended(legs[0])))


def test_a_message_of_which_only_calls_are_left_stays():
    legs, shown = legs_of(Say("I look.", [HIDDEN]), Say("", [READ]))
    assert expanded(shown, legs)[-1] == {**shown, "content": None}
    parts = {**shown, "content": [{"type": "text", "text": "I look."}]}
    assert expanded(parts, legs)[-1] == {**shown, "content": None}


@pytest.mark.parametrize(
    ("content", "left"),
    [
        ("\nI look. \n\nSo.", "So."),
        ("I look. \n\nSo.", "So."),
        ("I look.So.", "So."),
        ([{"type": "text", "text": "I look. \n\nSo."}], [{"type": "text", "text": "So."}]),
        ([{"type": "text", "text": "I look. "}, {"type": "text", "text": "So."}], [{"type": "text", "text": "So."}]),
        ([{"type": "image"}, {"text": "I look. \n\nSo.", "x": 1}], [{"type": "image"}, {"text": "So.", "x": 1}]),
        ([{"type": "text", "text": "I look."}, {"type": "text", "text": "So."}], [{"type": "text", "text": "So."}]),
        ("I looked.", None),
        ("So.", None),
        ("", None),
        (None, None),
        ([], None),
        ([{"type": "text", "text": "So."}], None),
        ([7], None),
    ],
)
def test_the_text_of_a_leg_is_found_as_clients_send_it(content, left):
    legs, _ = legs_of(Say("\nI look. \n\n", [HIDDEN]), Say("So."))
    found = expanded({"role": "assistant", "content": content}, legs)
    assert (found and found[-1]["content"]) == left


def test_blanks_alone_are_no_text_that_must_be_found():
    legs, _ = legs_of(Say("\n", [HIDDEN]), Say("So."))
    assert expanded({"role": "assistant", "content": "\nSo."}, legs)[-1]["content"] == "So."
    assert expanded({"role": "assistant", "content": "So."}, legs)[-1]["content"] == "So."
    parts = {"role": "assistant", "content": None, "tool_calls": [call(1, 0, READ)]}
    assert expanded(parts, legs)[-1] == parts


@pytest.mark.parametrize(
    ("kept", "left"),
    [
        ({}, {}),
        ({"reasoning_content": "Hm. Ah."}, {"reasoning_content": " Ah."}),
        ({"reasoning_content": "Hm."}, {"reasoning_content": None}),
        ({"reasoning": "Hm. Ah."}, {"reasoning": " Ah."}),
        ({"reasoning_content": "Other."}, {"reasoning_content": "Other."}),
        ({"reasoning_content": None}, {"reasoning_content": None}),
    ],
)
def test_the_reasoning_of_a_leg_is_taken_off_where_the_client_kept_it(kept, left):
    legs, _ = legs_of(Say("", [HIDDEN], "Hm."), Say("So."))
    message = {"role": "assistant", "content": "So."}
    assert expanded({**message, **kept}, legs)[-1] == {**message, **left}


THOUGHTS = [{"type": "reasoning.summary", "summary": "s"}, {"type": "reasoning.text", "text": "Hm.", "signature": "1"}]
NEXT = {"type": "reasoning.text", "text": " Ah.", "signature": "2"}


def thinking_leg(details):
    message = {**Chat().whole(turn(0, Say("", [HIDDEN])))["choices"][0]["message"], "reasoning": "Hm."}
    choice = {"index": 0, "message": {**message, "reasoning_details": details}, "finish_reason": "tool_calls"}
    stitcher = chat.stitcher(TOOL, Watching(lambda _: False))
    stitcher.take(raw({"id": "1", "choices": [choice]}))
    return stitcher.leg(["page"])


def test_structured_reasoning_goes_back_under_the_names_it_came_with():
    assert read(chat.appended(thinking_leg(THOUGHTS)))[0] == {
        "role": "assistant",
        "content": None,
        "reasoning": "Hm.",
        "reasoning_details": THOUGHTS,
        "tool_calls": [call(0, 0, HIDDEN)],
    }


@pytest.mark.parametrize(
    ("kept", "left"),
    [
        ([*THOUGHTS, NEXT], [NEXT]),
        (THOUGHTS, None),
        ([THOUGHTS[0], {**NEXT, "text": "Hm. Ah."}], [NEXT]),
        ([THOUGHTS[0], {**THOUGHTS[1], "format": "new"}, NEXT], [NEXT]),
        ([NEXT], [NEXT]),
        ([THOUGHTS[0]], [THOUGHTS[0]]),
        ([THOUGHTS[0], NEXT], [THOUGHTS[0], NEXT]),
        (None, None),
    ],
)
def test_structured_reasoning_of_a_leg_is_taken_off_where_the_client_kept_it(kept, left):
    message = {"role": "assistant", "content": "So."}
    assert expanded({**message, "reasoning_details": kept}, [thinking_leg(THOUGHTS)])[-1] == {
        **message,
        "reasoning_details": left,
    }


def test_sealed_reasoning_is_taken_off_only_if_it_is_the_same():
    sealed = {"type": "reasoning.encrypted", "data": "x"}
    leg = thinking_leg([sealed])
    message = {"role": "assistant", "content": "So."}
    for kept, left in (([sealed, NEXT], [NEXT]), ([{**sealed, "data": "xy"}], [{**sealed, "data": "xy"}])):
        assert expanded({**message, "reasoning_details": kept}, [leg])[-1]["reasoning_details"] == left


@pytest.mark.parametrize("mixture", [[HIDDEN, READ], [READ, HIDDEN], [HIDDEN, MIMIC, READ, HIDDEN, SHELL, HIDDEN]])
def test_hidden_calls_beside_real_ones_go_back_to_their_places(mixture):
    legs, shown = legs_of(Say("I look.", [HIDDEN]), Say(" Both.", mixture))
    results = [{"role": "tool", "tool_call_id": made["id"], "content": "done"} for made in shown["tool_calls"]]
    found = chat.expand([raw(shown), *map(raw, results)], legs)
    assert found.items[:2] == tuple(chat.appended(legs[0]))
    said, *answers = read(found.items[2:])
    assert said == {**shown, "content": " Both.", "tool_calls": [call(1, at, made) for at, made in enumerate(mixture)]}
    places = [at for at, made in enumerate(mixture) if is_hidden(made)]
    assert answers == [result(1, at, held) for held, at in enumerate(places)]
    assert found.taken == 1


def test_the_clients_own_form_of_its_calls_stays():
    legs, shown = legs_of(Say("", [HIDDEN, READ, HIDDEN]))
    mine = raw({**shown["tool_calls"][0], "arguments": {"path": "a.py"}}).replace(b": ", b" : ")
    message = b'{"role": "assistant", "tool_calls": [ %b ] , "content": ""}' % mine
    said = chat.expand([message], legs).items[0]
    assert mine in said
    assert said.endswith(b'] , "content": ""}')
    assert [made["id"] for made in json.loads(said)["tool_calls"]] == [call(0, at, READ)["id"] for at in range(3)]


def test_without_the_calls_beside_it_a_hidden_call_has_no_place():
    legs, shown = legs_of(Say("", [READ, HIDDEN, SHELL]))
    for calls in ([], shown["tool_calls"][:1], [{**shown["tool_calls"][0], "id": "x"}, shown["tool_calls"][1]], None):
        assert expanded({**shown, "tool_calls": calls}, legs) is None
    turned = {**shown, "tool_calls": [7, *reversed(shown["tool_calls"])]}
    assert [made if made == 7 else made["id"] for made in expanded(turned, legs)[0]["tool_calls"]] == [
        7,
        call(0, 2, SHELL)["id"],
        call(0, 0, READ)["id"],
        call(0, 1, HIDDEN)["id"],
    ]


def test_where_the_answer_does_not_follow_the_legs_have_no_place():
    legs, shown = legs_of(Say("I look.", [HIDDEN]), Say(" So."))
    assert chat.expand([], legs) is None
    assert chat.expand([raw({"role": "user", "content": "I look. So."})], legs) is None
    assert chat.expand([b"7"], legs) is None
    assert chat.expand([b"{"], legs) is None
    assert chat.expand([raw(shown)[:-1] + b', "content": "I look. So."}'], legs) is None


# Laws

words = st.lists(st.sampled_from([" I", " see", " the\n", " \u00e9", " \U0001f600.", '"', " {}"]), max_size=5).map(
    "".join
)
real_calls = st.sampled_from([READ, SHELL, Call("read", "{}"), Call("todo", "")])
hidden_calls = st.sampled_from([HIDDEN, MIMIC, Call(TOOL, "")])
hiding_legs = st.builds(Say, words, st.lists(hidden_calls, min_size=1, max_size=3), words)
last_legs = st.builds(Say, words, st.lists(real_calls | hidden_calls, max_size=4), words).filter(
    lambda say: not say.calls or not all(map(is_hidden, say.calls))
)
scenarios = st.builds(lambda hiding, last: [*hiding, last], st.lists(hiding_legs, max_size=3), last_legs)


def as_it_came(message):
    return message


def as_parts(message):
    return {**message, "content": [{"type": "text", "text": message["content"]}] if message["content"] else []}


def stripped(message):
    return {**message, "content": (message["content"] or "").strip()}


def without_reasoning(message):
    return {key: value for key, value in message.items() if key not in ("reasoning_content", "refusal", "annotations")}


def assert_paired(items):
    """Every call is answered once, directly behind the message that made it."""
    open_ids = []
    for item in items:
        if item["role"] == "tool":
            open_ids.remove(item["tool_call_id"])
            continue
        assert open_ids == []
        open_ids = [made["id"] for made in item.get("tool_calls") or ()]
    assert open_ids == []


@given(scenarios, st.sampled_from([as_it_came, as_parts, stripped, without_reasoning]))
def test_what_the_client_was_shown_expands_to_what_the_model_said(says, form):
    legs, shown = legs_of(*says)
    results = [{"role": "tool", "tool_call_id": made["id"], "content": "r"} for made in shown.get("tool_calls", ())]
    items = [raw(form(shown)), *map(raw, results), raw({"role": "user", "content": "go on"})]
    found = chat.expand(items, legs)
    hiding = [item for leg in legs if not leg.mixed for item in chat.appended(leg)]
    assert list(found.items[: len(hiding)]) == hiding
    prompt = read([*found.items, *items[found.taken :]])
    assert_paired(prompt)
    made = [made for item in prompt for made in item.get("tool_calls") or ()]
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in made] == [
        (call.name, call.text) for say in says for call in say.calls
    ]
    assert chat.expand(items, legs) == found
    left = prompt[len(hiding)]["content"] if len(prompt) > len(hiding) + 1 else ""
    left = left[0]["text"] if isinstance(left, list) and left else left or ""
    assert left.strip() == says[-1].text.strip()
