"""Paging in Chat Completions: what only this wire format has."""

import json
from itertools import pairwise

import pytest

from pager.log.events import LegFinished, Repacked
from pager.paging.page_in import NAME
from pager.paging.pages.page import PIN_HALF_LIFE
from pager.paging.pages.stub import HANDLE
from pager.testing.scripted import Call, PageIn, Say

DONE = Say("All parts are fine. ☔")
LOOK = Call("look", {"path": "small9"})


def chunks(agent, **more):
    """A call through the SDK's plain stream, chunk by chunk."""
    before = len(agent.stage.received)
    with agent.sdk.chat.completions.create(**agent.body(), stream=True, **more) as stream:
        got = [chunk.model_dump() for chunk in stream]
    agent.legs.append(list(agent.stage.received[before:]))
    return got


@pytest.mark.parametrize("include_usage", [True, False])
def test_a_stream_has_one_id_one_end_and_usage_only_if_it_was_asked_for(stage, include_usage):
    stage.play(PageIn(Say("Done.", [LOOK]), text="Hm.", times=2))
    agent = stage.agent("chat").opened()
    got = chunks(agent, stream_options={"include_usage": include_usage})
    assert len(agent.legs[-1]) == 3
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in got}) == 1
    choices = [chunk["choices"][0] for chunk in got if chunk["choices"]]
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["tool_calls"]
    assert [choice["delta"]["role"] for choice in choices if choice["delta"]["role"]] == ["assistant"]
    assert "".join(choice["delta"]["content"] or "" for choice in choices) == "Hm.Hm.Done."
    assert [bool(chunk["usage"]) for chunk in got].count(True) == include_usage
    assert bool(got[-1]["usage"]) is include_usage


def test_an_answer_that_is_cut_short_after_hidden_legs_says_so(stage, stream):
    stage.play(PageIn(Say("All parts are", finish="length")))
    agent = stage.agent("chat").opened()
    if stream:
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks(agent)][-1] == "length"
    else:
        assert agent.ask(stream=False).finish == "length"
    assert stage.log(agent, LegFinished)


def test_calls_are_numbered_as_the_client_sees_them(stage, stream):
    ahead = [Call("look", {"path": f"small-ahead{number}"}) for number in (1, 2)]
    stage.play(PageIn(ahead=ahead[:1], beside=ahead[1:]))
    agent = stage.agent("chat", stream=stream).opened()
    turn = agent.ask()
    assert [arguments["path"] for _, _, arguments in turn.calls] == ["small-ahead1", "small-ahead2"]
    if stream:
        deltas = [event["choices"][0]["delta"] for event in turn.events if event != "[DONE]" and event["choices"]]
        indices = [piece["index"] for delta in deltas for piece in delta.get("tool_calls") or []]
        assert indices == sorted(indices)
        assert set(indices) == {0, 1}


def test_reasoning_goes_back_with_its_own_leg(stage, stream):
    thought = Say("It was part 1.", [LOOK], "Part 1 it is.")
    stage.play(PageIn(thought, reasoning="Which part was it?"), stage.look(5), DONE)
    agent = stage.agent("chat", stream=stream).opened()
    assert agent.ask().reasoning == "Which part was it?Part 1 it is."
    agent.answer()
    agent.run()
    said = [message for message in agent.sent[-1]["messages"] if message["role"] == "assistant"]
    legs = [message for message in said if message.get("reasoning_content")]
    assert [message["reasoning_content"] for message in legs] == ["Which part was it?", "Part 1 it is."]
    assert [call["function"]["name"] for message in legs for call in message["tool_calls"]] == [NAME, "look"]


def test_a_tool_of_the_clients_own_may_have_our_name(stage, stream):
    stage.traces = True
    described = {"name": NAME, "description": "Turns a page.", "parameters": {"type": "object", "properties": {}}}
    own = Say(calls=[Call(NAME, {"path": "small-own"})])
    stage.play(PageIn(own), stage.look(5), DONE)
    agent = stage.agent("chat", stream=stream)
    agent.request["tools"] = [*agent.base()["tools"], {"type": "function", "function": described}]
    agent.opened()
    assert [name for _, name, _ in agent.ask().calls] == [NAME]
    assert [event.pages != [] for event in stage.log(agent, LegFinished)] == [True]
    assert [event.tool for event in stage.log(agent, Repacked)] == [f"{NAME}_2"]
    agent.answer()
    assert agent.run()[-1].text == DONE.text
    assert f"{NAME}_2" not in "".join(got.decode() for got in agent.tee.got)


def test_a_client_that_names_no_session_is_known_by_its_history(stage, stream):
    stage.play(PageIn(stage.look(4)), PageIn(beside=[LOOK]), stage.look(5), DONE)
    agent = stage.agent("chat", stream=stream, extra_headers={"x-session-id": ""})
    agent.history[-1]["content"] += agent.session
    stage.lawful = False  # its log has no key to be found by
    agent.run()
    assert len(agent.turns) == 8
    bodies = [json.loads(received.body) for received in stage.received]
    assert len(bodies) == 9
    assert [any(tool["function"]["name"] == NAME for tool in body["tools"]) for body in bodies] == [False] * 4 + [
        True
    ] * 5
    prompts = [stage.pieces(agent, received) for received in stage.received]
    for before, after in pairwise(prompts[4:]):
        assert after[: len(before)] == before


def test_a_conversation_that_brings_ids_of_another_gets_none_of_its_pages(stage, stream):
    stage.lawful = False  # their logs have no keys to be found by
    stage.play(PageIn(DONE))
    owner, stranger = [stage.agent("chat", stream=stream, extra_headers={"x-session-id": ""}) for _ in "ab"]
    owner.history[-1]["content"] += owner.session
    owner.run()
    handle = HANDLE.search(stage.received[-1].body.decode())[0]
    secret = owner.history[3]["content"]
    stranger.history[-1]["content"] = "Something else."
    for number, message in enumerate(owner.history[2:8]):
        other = {"content": stage.page(f"theirs{number}")} if message["role"] == "tool" else {}
        stranger.history.append({**message, **other})
    stage.play(*map(stage.look, (4, 5, 6)), Say(calls=[Call(NAME, {"pages": [handle]})]), DONE, opening=False)
    stranger.run()
    prompts = [received.json()["messages"] for received in stage.received]
    assert prompts[-1][-1]["content"].startswith(f"Not known in this session: {handle}")
    assert secret not in [message.get("content") for prompt in prompts for message in prompt]


def test_arguments_of_past_calls_are_pages_too(stage, stream):
    written = stage.page("src/part9.py")
    write = Say(calls=[Call("write", {"path": "small-copy", "text": written})])
    stage.play(write, *map(stage.look, (1, 2, 3, 4)), PageIn(DONE), opening=False)
    agent = stage.agent("chat", stream=stream)
    assert agent.run()[-1].text == DONE.text
    before, after = agent.sent
    made = [call for message in before["messages"] for call in message.get("tool_calls") or []]
    stubbed = json.loads(made[0]["function"]["arguments"])
    assert stubbed["path"] == "small-copy"
    assert stubbed["text"].startswith("[pg_")
    assert any(written in str(message["content"]) for message in after["messages"] if message["role"] == "tool")


def test_the_same_call_again_brings_an_evicted_page_back(stage, stream):
    later = map(stage.look, range(4, 4 + PIN_HALF_LIFE))
    stage.play(Say(calls=[Call("read", {"path": "src/part1.py"})]), *later, DONE)
    agent = stage.agent("chat", stream=stream).opened()
    agent.run()
    results = [message["content"] for message in agent.sent[-1]["messages"] if message["role"] == "tool"]
    assert results.count(stage.page("src/part1.py")) == 1  # it is pinned: so many calls later it is still there
