"""Paging in OpenAI's Responses: numbered events, an output that is what was shown, encrypted reasoning."""

import pytest

from pager.log.events import (
    AnswerFinished,
    Bypassed,
    LegFinished,
    Repacked,
)
from pager.paging.page_in import NAME
from pager.testing.scripted import Call, PageIn, Say
from pager.testing.scripted.page_requests import getter
from pager.testing.scripted.prompt_cache import size

DONE = Say("All parts are fine. ☔")
LOOK = Call("look", {"path": "small9"})


def test_a_stream_is_numbered_without_gaps_and_ends_with_what_was_shown(stage):
    stage.play(PageIn(PageIn(ahead=[LOOK], beside=[LOOK], text="Both."), text="First.", reasoning="Hm.", times=2))
    agent = stage.agent("responses").opened()
    events = agent.ask().events
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in done] == list(range(len(done)))
    assert [event["item"] for event in done] == events[-1]["response"]["output"]
    kinds = [event["item"]["type"] for event in done]
    assert kinds == ["reasoning", "message"] * 2 + ["message", "function_call", "function_call"]
    responses = [event["response"] for event in events if "response" in event]
    assert len({response["id"] for response in responses}) == 1
    assert all([tool["name"] for tool in response["tools"]] == ["read", "look", "write"] for response in responses)
    starts = [event["type"] for event in events].count("response.created")
    assert starts == 1


def test_encrypted_reasoning_goes_back_with_its_own_leg(stage, stream):
    thought = Say("It was part 1.", [LOOK], "Part 1 it is.")
    stage.play(PageIn(thought, reasoning="Which part was it?"), stage.look(5), DONE)
    agent = stage.agent("responses", stream=stream).opened()
    agent.run()
    items = agent.sent[-1]["input"]
    thoughts = [at for at, item in enumerate(items) if item.get("type") == "reasoning"]
    assert [items[at]["summary"][0]["text"] for at in thoughts] == ["Which part was it?", "Part 1 it is."]
    assert all(items[at]["encrypted_content"].startswith("gAAAA") for at in thoughts)
    assert (items[thoughts[0] + 1]["type"], items[thoughts[0] + 1]["name"]) == ("function_call", NAME)
    assert items[thoughts[1] + 1]["type"] == "message"


@pytest.mark.parametrize("more", [{"include": None}, {}], ids=["lost", "kept"])
def test_reasoning_that_can_not_be_repeated_is_left_out(stage, stream, more):
    stage.play(PageIn(Say("Part 1.", [LOOK]), reasoning="Which part was it?"), DONE)
    agent = stage.agent("responses", stream=stream, **more).opened()
    agent.ask()
    thoughts = [item for item in agent.sent[-1]["input"] if item.get("type") == "reasoning"]
    assert len(thoughts) == (0 if more else 1)


def test_an_answer_that_is_cut_short_after_hidden_legs_says_so(stage, stream):
    stage.play(PageIn(Say("All parts are", finish="length")))
    agent = stage.agent("responses", stream=stream).opened()
    if stream:
        with agent.sdk.responses.create(**agent.body(), stream=True) as events:
            last = [event.model_dump() for event in events][-1]
        assert last["type"] == "response.incomplete"
        assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    else:
        assert agent.ask().finish == "incomplete"
    assert stage.log(agent, LegFinished)


def test_a_response_that_the_provider_keeps_is_paged_once_the_client_sends_its_history(stage):
    stage.play(PageIn(DONE))
    agent = stage.agent("responses", stream=False, store=True, include=None).opened()
    agent.ask()
    assert [bool(getter(received.json())) for legs in agent.legs for received in legs] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("store", [True, None], ids=["kept", "unsaid"])
def test_a_stream_that_the_provider_keeps_is_not_paged(stage, store):
    """Its id is told with its first event; were the first leg hidden, that would be the id of a call of page_in."""
    stage.play(PageIn(stage.look(4)), PageIn(DONE))
    agent = stage.agent("responses", store=store, include=None).opened()
    assert agent.run()[-1].text == DONE.text
    assert [len(legs) for legs in agent.legs] == [1] * 6
    assert not any(getter(received.json()) for received in stage.received)
    assert [legs[0].body for legs in agent.legs] == agent.tee.sent


def test_an_answer_in_one_piece_has_the_id_of_the_leg_that_the_provider_keeps_as_the_answer(stage):
    stage.play(PageIn(DONE, times=2))
    agent = stage.agent("responses", stream=False).opened()
    [answer] = agent.ask().events
    finished = stage.log(agent, AnswerFinished, count=5)[-1]
    hidden = [event.answer_id for event in stage.log(agent, LegFinished)]
    assert answer["id"] == finished.answer_id
    assert len({answer["id"], *hidden}) == 3


def test_a_call_that_follows_a_kept_answer_goes_out_as_it_came(stage, stream):
    stage.lawful = False
    stage.play(stage.look(4), DONE)
    agent = stage.agent("responses", stream=stream, store=True, include=None).opened()
    agent.run(1)
    agent.history = agent.history[-1:]
    followed = "resp_" + "0" * 24
    agent.ask(previous_response_id=followed)
    [received] = agent.legs[-1]
    assert received.body == agent.tee.sent[-1]
    assert not getter(received.json())


def test_tokens_are_counted_as_they_would_be_sent(stage):
    stage.play(stage.look(4), DONE)
    agent = stage.agent("responses").opened()
    agent.run(1)
    asked = {key: value for key, value in agent.body().items() if key not in ("store", "include")}
    counted = agent.sdk.responses.input_tokens.count(**asked).input_tokens
    agent.run()
    assert counted == size(agent.wire.prompt(agent.sent[-1]))
    assert counted < size(agent.wire.prompt(asked)) / 2


def test_a_summary_of_the_history_sees_all_of_it(stage):
    stage.lawful = False
    stage.play(stage.look(4), Say("It was a long way."), stage.look(5), DONE)
    agent = stage.agent("responses").opened()
    agent.run(1)
    other = stage.agent("responses", session=agent.session)
    other.history = [*agent.history, {"role": "user", "content": "Respond with TEXT ONLY. Do NOT call any tools."}]
    assert other.ask().text == "It was a long way."
    assert other.legs[-1][0].body == other.tee.sent[-1]
    assert [event.reason for event in stage.log(agent, Bypassed)] == ["cannot_carry"]
    assert agent.run()[-1].text == DONE.text
    assert [event.cause for event in stage.log(agent, Repacked)] == ["policy"]
