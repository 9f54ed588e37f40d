"""The scripted model is strict with its clients and says when a script has come to its end."""

import asyncio
import gzip
import json

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI

from pager.paging.page_in import definition
from pager.testing.scripted import (
    Call,
    Drop,
    Fail,
    Gated,
    Overflowing,
    PageIn,
    Picky,
    Reply,
    Say,
    Script,
    ScriptedModel,
    Slow,
    Stumble,
)
from pager.testing.scripted.page_requests import getter, handles, rounds
from pager.wire.chat.dialect import Dialect as Chat
from pager.wire.messages.dialect import Dialect as Messages
from pager.wire.responses.dialect import Dialect as Responses
from pager.wire.scripted import tokens

ASK = {"model": "m-1", "messages": [{"role": "user", "content": "Hello."}]}


async def _session(script, act):
    async with (
        ScriptedModel(script) as model,
        AsyncOpenAI(base_url=model.url, api_key="sk-test", max_retries=0) as client,
    ):
        return await act(client)


def test_a_script_that_has_ended_says_so():
    async def act(client):
        await client.chat.completions.create(**ASK)
        await client.chat.completions.create(**ASK)

    with pytest.raises(openai.BadRequestError, match="the script has 1 answers and this is call 2"):
        asyncio.run(_session(Script([Say("Hello.")]), act))


def test_a_script_that_repeats_begins_anew():
    async def act(client):
        answers = [await client.chat.completions.create(**ASK) for _ in range(3)]
        return [answer.choices[0].message.content for answer in answers], len({answer.id for answer in answers})

    assert asyncio.run(_session(Script([Say("tick"), Say("tock")], repeat=True), act)) == (["tick", "tock", "tick"], 3)


def test_a_script_may_give_broken_arguments():
    async def act(client):
        answer = await client.chat.completions.create(**ASK)
        return answer.choices[0].message.tool_calls[0].function.arguments

    assert asyncio.run(_session(Script([Say(calls=[Call("read", '{"path": "a')])]), act)) == '{"path": "a'


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_body_that_is_no_object_gets_a_400(content):
    async def act(client):
        await client.post("/chat/completions", content=content, cast_to=object)

    with pytest.raises(openai.BadRequestError, match="could not parse"):
        asyncio.run(_session(Script([Say("Hello.")]), act))


def test_a_path_that_is_not_there_gets_a_404():
    async def act(client):
        await client.embeddings.create(model="m-1", input="Hello.")

    with pytest.raises(openai.NotFoundError, match="Invalid URL"):
        asyncio.run(_session(Script(), act))


# What a proxy does is done by hand here: stubs in the prompt, and a tool to ask for pages with.

WIRES = {"chat": Chat(), "messages": Messages(), "responses": Responses()}
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
FIRST, SECOND, THIRD = "pg_00000000000000a1", "pg_00000000000000a2", "pg_00000000000000a3"
NEVER = "pg_00000000000000ff"


def stub(handle):
    return f"[{handle}: read notes.txt, 9.9 KB; page_in to see it]"


def called(wire, number, name, arguments):
    """A past call as it stands in the prompt."""
    if wire == "chat":
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls = [{"id": f"call_{number}", "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}
    if wire == "messages":
        return {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": f"c{number}", "name": name, "input": arguments}],
        }
    return {"type": "function_call", "call_id": f"call_{number}", "name": name, "arguments": json.dumps(arguments)}


def result(wire, number, content):
    """Its result."""
    if wire == "chat":
        return {"role": "tool", "tool_call_id": f"call_{number}", "content": content}
    if wire == "messages":
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": content}]}
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": content}


def prompt(wire, *stubs, offer=True, more=(), **rest):
    """A request in which the results of past calls have become stubs."""
    items = [{"role": "user", "content": f"Look at it. ({NEVER} is not to be asked for.)"}]
    for number, handle in enumerate(stubs):
        items += [called(wire, number, "read", {"path": "notes.txt", "offset": 1}), result(wire, number, stub(handle))]
    tools = {"tools": [json.loads(definition(wire))]} if offer else {}
    return {"model": "m-1", "input" if wire == "responses" else "messages": [*items, *more], **tools, **rest}


def leg(wire, number, handle, text="line 1"):
    """What a proxy adds to the prompt when it has answered a call for pages."""
    return called(wire, number, "page_in", {"pages": [handle]}), result(wire, number, f"=== {handle} ===\n{text}")


def played(script, *requests, wire="chat", path=None):
    """What the model answers to each request: the status with the text and the calls, or with what is wrong."""

    async def act():
        async with ScriptedModel(script) as model, aiohttp.ClientSession() as client:
            found = []
            for request in requests:
                async with client.post(model.root + (path or PATHS[wire]), json=request) as response:
                    found.append(_seen(wire, response.status, await response.read()))
            return found, [received.refused for received in model.received]

    found, refused = asyncio.run(act())
    return (found, refused) if any(refused) else found


def _seen(wire, status, body):
    if status != 200:
        return status, json.loads(body)["error"]
    if b"input_tokens" in body and b'"usage"' not in body:
        return json.loads(body)
    answer = WIRES[wire].read(body)
    return answer.text, [(call.name, json.loads(call.arguments)) for call in answer.calls]


EACH_WIRE = pytest.mark.parametrize("wire", list(WIRES))


@EACH_WIRE
def test_a_page_is_asked_for_by_its_stub_and_the_same_answer_goes_on(wire):
    script = Script([PageIn(Say("It says so."), text="I look again."), Say("Next.")])
    asked, said, after = played(
        script,
        prompt(wire, FIRST, SECOND),
        prompt(wire, FIRST, SECOND, more=leg(wire, 7, FIRST)),
        prompt(wire, FIRST, SECOND),
        wire=wire,
    )
    assert asked == ("I look again.", [("page_in", {"pages": [FIRST]})])
    assert said == ("It says so.", [])
    assert after == ("Next.", [])


@EACH_WIRE
def test_stubs_in_the_arguments_of_past_calls_are_seen_too(wire):
    past = called(wire, 7, "write", {"path": "a.txt", "content": stub(SECOND)}), result(wire, 7, "written")
    (asked,) = played(Script([PageIn(Say("."))]), prompt(wire, more=past), wire=wire)
    assert asked == ("", [("page_in", {"pages": [SECOND]})])


@EACH_WIRE
@pytest.mark.parametrize("request_of", [prompt, lambda wire: prompt(wire, FIRST, offer=False)])
def test_without_a_stub_or_without_the_tool_the_answer_comes_at_once(wire, request_of):
    script = Script([PageIn(Say("It says so.")), PageIn(text="Both.", beside=[Call("read")]), Say("Next.")])
    found = played(script, request_of(wire), request_of(wire), request_of(wire), wire=wire)
    assert found == [("It says so.", []), ("Both.", [("read", {})]), ("Next.", [])]


@EACH_WIRE
def test_calls_beside_the_one_for_pages_end_the_answer(wire):
    mixed = PageIn(Say("Never said."), ahead=[Call("list")], beside=[Call("read", {"path": "a"})], reasoning="Hm.")
    asked, after = played(Script([mixed, Say("Next.")]), prompt(wire, FIRST), prompt(wire, FIRST), wire=wire)
    assert asked == ("", [("list", {}), ("page_in", {"pages": [FIRST]}), ("read", {"path": "a"})])
    assert after == ("Next.", [])


def test_pages_are_asked_for_several_at_once_and_in_slices():
    script = Script([PageIn(Say("."), pages=2, which="newest", lines="1-9", search="berth")])
    (asked,) = played(script, prompt("chat", FIRST, SECOND, THIRD))
    assert asked == ("", [("page_in", {"pages": [THIRD, SECOND], "lines": "1-9", "search": "berth"})])


def test_other_pages_are_asked_for_first_and_the_same_again_if_there_are_none():
    once, twice = leg("chat", 7, FIRST), [*leg("chat", 7, FIRST), *leg("chat", 8, SECOND)]
    found = played(
        Script([PageIn(Say("Enough."), times=3)]),
        prompt("chat", FIRST, SECOND),
        prompt("chat", FIRST, SECOND, more=once),
        prompt("chat", FIRST, SECOND, more=twice),
        prompt("chat", FIRST, SECOND, more=twice),
    )
    assert [calls for _, calls in found] == [
        [("page_in", {"pages": [FIRST]})],
        [("page_in", {"pages": [SECOND]})],
        [("page_in", {"pages": [FIRST]})],
        [],
    ]


def test_one_call_for_pages_may_follow_another_and_fail_in_the_end():
    script = Script([PageIn(PageIn(Fail(503), search="x")), Say("Next.")])
    request = prompt("chat", FIRST)
    (_, first), (_, second), (status, _), after = played(script, request, request, request, request)
    assert (first, second) == ([("page_in", {"pages": [FIRST]})], [("page_in", {"pages": [FIRST], "search": "x"})])
    assert (status, after) == (503, ("Next.", []))


def test_ids_do_not_depend_on_how_often_pages_were_asked_for():
    script = Script([PageIn(Say(calls=[Call("read")]))])

    async def act(client):
        asked = await client.post("/chat/completions", body=prompt("chat", FIRST), cast_to=dict)
        after = await client.post("/chat/completions", body=prompt("chat", FIRST), cast_to=dict)
        return asked["choices"][0]["message"]["tool_calls"][0]["id"], after["choices"][0]["message"]["tool_calls"][0][
            "id"
        ]

    async def act_directly(client):
        said = await client.post("/chat/completions", body=prompt("chat"), cast_to=dict)
        return said["choices"][0]["message"]["tool_calls"][0]["id"]

    asked, after = asyncio.run(_session(script, act))
    assert after == asyncio.run(_session(script, act_directly)) != asked


def test_a_call_for_pages_may_be_slow_gated_or_break_off():
    async def act(manner):
        script = Script([manner, Say("Next.")])
        async with ScriptedModel(script) as model, aiohttp.ClientSession() as client:
            model.release(99)
            found = []
            for _ in range(2):
                async with client.post(
                    f"{model.url}/chat/completions", json=prompt("chat", FIRST, stream=True)
                ) as answer:
                    try:
                        found.append(await answer.text())
                    except aiohttp.ClientError:
                        found.append("gone")
            return found

    ask = PageIn(Say("It says so."))
    for manner in (Slow(0.01, ask), Gated(ask)):
        first, second = asyncio.run(act(manner))
        assert ("page_in" in first, "Next" in second, "says" in second) == (True, False, True)
    for manner in (Drop(2, ask), Stumble(2, ask)):
        first, second = asyncio.run(act(manner))
        assert (first == "gone" or "server_error" in first, "Next" in second) == (True, True)


def test_a_client_may_have_a_tool_like_that_of_its_own():
    request = prompt("chat", FIRST)
    request["tools"].append(json.loads(definition("chat", "page_in_2")))
    assert getter(request) == "page_in_2"
    assert played(Script([PageIn(Say("."))]), request) == [("", [("page_in_2", {"pages": [FIRST]})])]


def test_tools_may_stand_among_the_items():
    tool = json.loads(definition("responses"))
    request = prompt("responses", FIRST, offer=False, more=[{"type": "additional_tools", "tools": [tool]}])
    assert getter(request) == "page_in"


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search"},
        {"type": "function", "name": "page_in"},
        {"type": "function", "name": "page_in", "parameters": {"properties": {"pages": {"type": "string"}}}},
        {"type": "function", "name": "page_in", "parameters": {"properties": {"a": {"type": "array"}, "pages": True}}},
    ],
)
def test_a_tool_whose_first_list_is_not_of_pages_brings_none(tool):
    assert getter({"input": "Hello.", "tools": [tool]}) is None


def test_a_prompt_tells_its_handles_and_how_often_pages_were_asked_for():
    broken = {"type": "function_call", "call_id": "c", "name": "x", "arguments": f"{{{THIRD}"}
    parts = result("responses", 8, [{"type": "input_text", "text": f"\n{SECOND}\n"}])
    request = prompt("responses", FIRST, more=[broken, parts, *leg("responses", 7, FIRST)])
    assert (handles(request), rounds(request)) == ([FIRST, THIRD, SECOND], 1)
    assert (handles({}), rounds({})) == ([], 0)


@EACH_WIRE
def test_a_prompt_that_is_too_long_is_refused_until_it_fits(wire):
    long = prompt(wire, more=[{"role": "user", "content": "word " * 4000}])
    found, refused = played(Script([Overflowing(3000, Say("It fits."))]), long, long, prompt(wire), wire=wire)
    assert found[2] == ("It fits.", [])
    assert [status for status, _ in found[:2]] == [400, 400]
    words = found[0][1]
    if wire == "messages":
        assert words["type"] == "invalid_request_error"
        assert words["message"].startswith("prompt is too long: 5")
        assert words["message"].endswith(" tokens > 3000 maximum")
    else:
        assert words["code"] == "context_length_exceeded"
        assert "maximum context length is 3000 tokens" in words["message"]
    assert [bool(why) for why in refused] == [True, True, False]


@EACH_WIRE
def test_a_picky_model_takes_no_tool_for_pages(wire):
    script = Script([Picky(Say("Fine."), "Unknown tool."), Say("Next.")])
    found, refused = played(script, prompt(wire), prompt(wire, offer=False), prompt(wire), wire=wire)
    assert (found[0][0], found[0][1]["type"], found[0][1]["message"]) == (400, "invalid_request_error", "Unknown tool.")
    assert found[1:] == [("Fine.", []), ("Next.", [])]
    assert refused == ["Unknown tool.", "", ""]


@EACH_WIRE
def test_a_prompt_that_no_provider_takes_is_refused_and_does_not_move_the_script_on(wire):
    orphan = prompt(wire, more=[result(wire, 9, "x")])
    found, refused = played(Script([Say("Fine.")]), orphan, prompt(wire), wire=wire)
    assert (found[0][0], found[0][1]["type"]) == (400, "invalid_request_error")
    assert found[1] == ("Fine.", [])
    assert found[0][1]["message"] in refused[0]
    assert refused[1] == ""


def test_a_model_that_is_not_strict_takes_anything():
    assert played(Script([Say("Fine.")], strict=False), prompt("chat", more=[result("chat", 9, "x")])) == [
        ("Fine.", [])
    ]


@EACH_WIRE
def test_a_body_that_can_not_be_read_is_told_so_whatever_the_script_says(wire):
    async def act():
        script = Script([PageIn(Say(".")), Overflowing(9, Say(".")), Picky(Say(".")), Reply(200, b"word for word")])
        async with ScriptedModel(script) as model, aiohttp.ClientSession() as client:
            posts = [client.post(model.root + PATHS[wire], data=b"{") for _ in range(4)]
            return [(response.status, await response.text()) for response in [await post for post in posts]]

    *failed, word_for_word = asyncio.run(act())
    assert all(status == 400 and "could not parse" in text for status, text in failed)
    assert word_for_word == (200, "word for word")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_body_that_does_not_decompress_gets_a_400(encoding):
    async def act():
        async with ScriptedModel(Script([Say(".")])) as model, aiohttp.ClientSession() as client:
            headers = {"content-encoding": encoding}
            async with client.post(
                f"{model.url}/chat/completions", data=gzip.compress(b"{}")[:9], headers=headers
            ) as got:
                return got.status, await got.text()

    status, text = asyncio.run(act())
    assert (status, "does not decompress" in text) == (400, True)


@pytest.mark.parametrize(
    ("wire", "path"), [("messages", "/v1/messages/count_tokens"), ("responses", "/v1/responses/input_tokens")]
)
def test_tokens_are_counted_as_the_model_bills_them(wire, path):
    request = prompt(wire, FIRST, SECOND)
    (counted,) = played(Script(), request, wire=wire, path=path)
    found, _ = played(Script([Overflowing(counted["input_tokens"] - 1, Say("."))]), request, wire=wire)
    assert f"{counted['input_tokens']} tokens" in found[0][1]["message"]
    assert played(Script([Overflowing(counted["input_tokens"], Say("Fits."))]), request, wire=wire) == [("Fits.", [])]
    assert counted["input_tokens"] > tokens(stub(FIRST) * 2)
