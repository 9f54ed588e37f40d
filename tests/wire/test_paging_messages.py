"""Paging in Anthropic's Messages: thinking with its signatures, cache marks, and a usage that is corrected."""

import json

import pytest
from anthropic import beta_tool

from pager.log.events import (
    AnswerFinished,
    AttemptFailed,
    BranchOpened,
    Bypassed,
    LegFinished,
    Repacked,
)
from pager.paging.page_in import NAME
from pager.testing.scripted import (
    Call,
    PageIn,
    Reply,
    Say,
)
from pager.testing.scripted.page_requests import getter
from pager.testing.scripted.prompt_cache import size
from pager.wire.messages.scripted import signature

DONE = Say("All parts are fine. ☔")
LOOK = Call("look", {"path": "small9"})
MARK = {"type": "ephemeral"}
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def marks(received):
    return received.body.count(b'"cache_control"')


def blocks(request, kind):
    contents = (message["content"] for message in request["messages"] if isinstance(message["content"], list))
    return [block for content in contents for block in content if block["type"] == kind]


def test_thinking_goes_back_with_its_own_leg_and_signature(stage, stream):
    thoughts = ["Which part was it?", "And that one?", "Part 1 it is."]
    mixed = PageIn(beside=[LOOK], reasoning=thoughts[1])
    stage.play(
        PageIn(mixed, reasoning=thoughts[0]),
        PageIn(Say("Part 1.", [LOOK], thoughts[2])),
        stage.look(6),
        DONE,
    )
    agent = stage.agent("messages", stream=stream).opened()
    agent.run()
    assert agent.turns[4].reasoning == thoughts[0] + thoughts[1]
    told = blocks(agent.sent[-1], "thinking")
    assert [(block["thinking"], block["signature"]) for block in told] == [(text, signature(text)) for text in thoughts]
    for message in agent.sent[-1]["messages"]:
        kinds = [block["type"] for block in message["content"]] if isinstance(message["content"], list) else []
        assert "thinking" not in kinds[1:]


@pytest.mark.parametrize(("model", "leave"), [("claude-opus-5-5", False), ("scripted-1", True)])
def test_some_models_think_only_behind_the_prompt_as_it_was(stage, model, leave):
    """They refuse thinking behind a prompt that has changed: nothing before it leaves, and no tool is added."""
    thinking = Say(calls=[LOOK], reasoning="So.")
    stage.play(stage.read(1, 2), stage.look(1), thinking, *map(stage.look, (2, 3, 4)), DONE, opening=False)
    agent = stage.agent("messages", model=model)
    agent.run()
    assert bool(stage.log(agent, Repacked)) is leave


def test_usage_is_corrected_at_the_end_of_a_stream(stage):
    stage.play(PageIn(DONE, pages=3))
    agent = stage.agent("messages").opened()
    turn = agent.ask()
    first, last = (size(agent.wire.prompt(one)) for one in agent.sent)
    started = turn.events[0]["message"]["usage"]
    ended = next(event["usage"] for event in turn.events if event["type"] == "message_delta")
    inputs = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    assert sum(started[name] for name in inputs) == first
    assert sum(ended[name] for name in inputs) == last == turn.usage["input"]


def test_blocks_are_numbered_as_the_client_sees_them(stage):
    stage.play(PageIn(PageIn(ahead=[LOOK], beside=[LOOK], text="Both."), text="First.", reasoning="Hm."))
    agent = stage.agent("messages").opened()
    events = agent.ask().events
    starts = [
        (event["index"], event["content_block"]["type"]) for event in events if event["type"] == "content_block_start"
    ]
    assert starts == list(enumerate(["thinking", "text", "text", "tool_use", "tool_use"]))
    assert [event["type"] for event in events].count("message_start") == 1
    assert [event["type"] for event in events][-2:] == ["message_delta", "message_stop"]


def test_an_answer_that_is_cut_short_after_hidden_legs_says_so(stage, stream):
    stage.play(PageIn(Say("All parts are", finish="length")))
    agent = stage.agent("messages", stream=stream).opened()
    assert agent.ask().finish == "max_tokens"
    assert stage.log(agent, LegFinished)


# Cache marks


def test_a_client_without_marks_gets_some_and_its_prompt_is_cached(stage, stream):
    stage.play(PageIn(stage.look(4)), stage.look(5), PageIn(DONE, times=3))
    agent = stage.agent("messages", stream=stream)
    turns = agent.run()
    counts = [marks(received) for received in stage.received]
    assert counts[0] == 0  # too short to be cached
    assert all(1 <= count <= 4 for count in counts[1:])
    cached = [turn.usage["cached"] for turn in turns]
    assert cached[:2] == [0, 0]
    assert all(share > 1000 for share in (*cached[2:4], cached[6]))
    # Nearly all of what went out before is read from the cache, but where a repack has moved it.
    sizes = [size(agent.wire.prompt(received.json())) for received in stage.received]
    assert cached[2] == sizes[1]
    assert cached[3] == sizes[2]


@pytest.mark.parametrize("place", ["system", "tools"])
def test_a_client_that_marks_only_what_stands_before_its_history_gets_no_marks(stage, place):
    """Nothing of its history is cached: a mark of ours would write it for more than plain input costs."""
    stage.play(PageIn(stage.look(4)), stage.look(5), DONE)
    agent = stage.agent("messages")
    if place == "system":
        agent.request["system"] = [{"type": "text", "text": "Be brief. " * 50, "cache_control": MARK}]
    else:
        tools = agent.base()["tools"]
        agent.request["tools"] = [*tools[:-1], {**tools[-1], "cache_control": MARK}]
    agent.run()
    assert {marks(received) for received in stage.received} == {1}
    assert [legs[0].body for legs in agent.legs[:4]] == agent.tee.sent[:4]
    names = [tool["name"] for tool in agent.sent[-1]["tools"]]
    assert NAME in names
    assert (names[-1] == NAME) is (place != "tools")  # a mark ends what is cached, and our tool belongs there


def marks_the_end(agent, ttl):
    """Have an agent mark its system prompt and the last block of its history, as coding agents do."""
    mark = {"type": "ephemeral", "ttl": ttl}
    agent.request["system"] = [{"type": "text", "text": "Be brief. " * 500, "cache_control": mark}]
    ask = agent.ask

    def marking(**more):
        history = json.loads(json.dumps(agent.history, default=lambda block: block.to_dict()))
        for message in history:
            if isinstance(message["content"], str):
                message["content"] = [{"type": "text", "text": message["content"]}]
        history[-1]["content"][-1]["cache_control"] = mark
        return ask(**{"messages": history, **more})

    agent.ask = marking
    return agent


@pytest.mark.parametrize("ttl", ["5m", "1h"])
def test_a_page_in_is_written_once_and_read_by_the_next_call(stage, stream, ttl):
    """The hidden leg ends at a mark of ours, as long as the client's: what it brought is read from then on."""
    stage.play(PageIn(stage.look(4)), stage.look(5), DONE)
    agent = marks_the_end(stage.agent("messages", stream=stream, model="claude-opus-5"), ttl)
    turns = agent.run()
    legs = next(legs for legs in agent.legs if len(legs) > 1)
    after = agent.legs[agent.legs.index(legs) + 1][0]
    assert [marks(one) for one in legs] == [marks(legs[0]), marks(legs[0]) + 1]
    assert max(marks(received) for received in stage.received) <= 4
    assert {ttl.encode() in received.body for received in stage.received} == {True}
    assert (b'"5m"' in after.body) is (ttl == "5m"), "no mark of ours lives shorter or longer than the client's"
    last = json.loads(legs[-1].body)["messages"][-1]
    assert last["content"][-1]["cache_control"] == {"type": "ephemeral", **({} if ttl == "5m" else {"ttl": "1h"})}
    cached = turns[agent.legs.index(legs) + 1].usage["cached"]
    assert cached == size(agent.wire.prompt(legs[-1].json())), "all that the leg held is read"


@pytest.fixture(scope="module")
def unmarked(_model, running, soon, tmp_path_factory):
    with running(_model.url, tmp_path_factory.mktemp("unmarked") / "data", *soon, "--no-paging-cache-marks") as proxy:
        yield proxy


def test_marks_can_be_switched_off(unmarked, open_stage):
    with open_stage(unmarked) as stage:
        stage.play(PageIn(stage.look(4)), DONE)
        agent = stage.agent("messages")
        agent.run()
        assert {marks(received) for received in stage.received} == {0}
        assert [legs[0].body for legs in agent.legs[:4]] == agent.tee.sent[:4]
        assert len(agent.legs[4]) == 2


def test_a_policy_that_keeps_all_changes_nothing(proxy, open_stage, stream):
    with open_stage(proxy) as stage:
        stage.play(PageIn(stage.look(4)), DONE)
        agent = stage.agent("messages", stream=stream)
        agent.run()
        assert [received.body for received in stage.received] == agent.tee.sent


# Counting


def test_tokens_are_counted_as_they_would_be_sent(stage):
    stage.play(stage.look(4), DONE)
    agent = stage.agent("messages").opened()
    agent.run(1)
    asked = {key: value for key, value in agent.body().items() if key != "max_tokens"}
    counted = agent.sdk.messages.count_tokens(**asked).input_tokens
    agent.run()
    assert counted == size(agent.wire.prompt(agent.sent[-1]))
    assert counted < size(agent.wire.prompt(asked)) / 2


@pytest.mark.parametrize("thread", [None, False], ids=["thread", "no thread"])
def test_a_tool_runner_is_paged_where_it_keeps_its_own_history(stage, thread):
    """As it comes it leaves the history to the provider, and nothing of it can be paged."""
    stage.lawful = False
    stage.play(PageIn(DONE))
    agent = stage.agent("messages", stream=False)
    tools = [beta_tool(stage.page, name=name, input_schema=PATH) for name in ("read", "look")]
    history = [{"role": "user", "content": "Look at all parts."}]
    asked = {"model": "scripted-1", "max_tokens": 1000, "messages": history, "tools": tools}
    runner = agent.sdk.beta.messages.tool_runner(**asked, **({} if thread is None else {"thread": thread}))
    assert runner.until_done().content[0].text == DONE.text
    bodies = [received.json() for received in stage.received]
    assert [bool(getter(body)) for body in bodies] == [False] * 4 + ([False] if thread is None else [True, True])
    assert any("thread" in body for body in bodies) is (thread is None)


def said(content, stop, stream):
    """An answer of the provider's, word for word."""
    message = {
        "id": "msg_paused", "type": "message", "role": "assistant", "model": "scripted-1", "content": content,
        "stop_reason": stop, "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 3},
    }  # fmt: skip
    if not stream:
        return Reply(200, json.dumps(message).encode(), {"content-type": "application/json"})
    events = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
    for at, block in enumerate(content):
        whole = "input" not in block
        start = block if whole else {**block, "input": {}}
        events.append({"type": "content_block_start", "index": at, "content_block": start})
        if not whole:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            events.append({"type": "content_block_delta", "index": at, "delta": delta})
        events.append({"type": "content_block_stop", "index": at})
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 3}})
    events.append({"type": "message_stop"})
    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return Reply(200, "".join(lines).encode(), {"content-type": "text/event-stream"})


SEARCH = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "parts"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
]


@pytest.mark.parametrize("paged_in", [False, True], ids=["at once", "after a hidden leg"])
@pytest.mark.parametrize("kept", [False, True], ids=["dropped by the client", "kept by the client"])
def test_an_answer_without_content_passes(stage, stream, paged_in, kept):
    stage.lawful = False  # the client changes its latest message
    stage.refusals = kept  # not every provider takes a message without content
    empty = Say("")
    stage.play(PageIn(empty) if paged_in else empty, stage.look(5), DONE)
    agent = stage.agent("messages", stream=stream).opened()
    turn = agent.ask()
    assert (turn.text, turn.calls, turn.finish) == ("", (), "end_turn")
    assert agent.history[-1] == {"role": "assistant", "content": []}
    if not kept:
        del agent.history[-1]
        agent.history[-1]["content"].append({"type": "text", "text": "And now?"})
    else:
        agent.user("And now?")
    assert agent.run()[-1].text == DONE.text
    assert [event.finish for event in stage.log(agent, AnswerFinished, count=7)][4:] == [
        "end_turn",
        "tool_use",
        "end_turn",
    ]
    assert stage.log(agent, AttemptFailed, Bypassed) == []
    assert len(agent.legs[4]) == 1 + paged_in


def test_a_paused_turn_shows_no_call_for_pages(stage, stream):
    held = {"type": "tool_use", "id": "toolu_held", "name": NAME, "input": {"pages": ["pg_0123456789abcdef"]}}
    stage.play(said([*SEARCH, held], "pause_turn", stream), stage.look(5), DONE)
    agent = stage.agent("messages", stream=stream).opened()
    assert agent.ask().finish == "pause_turn"
    assert agent.run()[-1].text == DONE.text
    assert stage.log(agent, AttemptFailed, Bypassed) == []


@pytest.mark.parametrize("paged_in", [False, True], ids=["at once", "after a hidden leg"])
def test_a_turn_that_the_provider_pauses_goes_on(stage, stream, paged_in):
    paused = said(SEARCH, "pause_turn", stream)
    stage.play(PageIn(paused, text="Hm.") if paged_in else paused, PageIn(stage.look(5)), stage.look(6), DONE)
    agent = stage.agent("messages", stream=stream).opened()
    turn = agent.ask()
    assert turn.finish == "pause_turn"
    kinds = [block["type"] for block in agent.history[-1]["content"]]
    assert kinds == ["text"] * paged_in + ["server_tool_use", "web_search_tool_result"]
    assert agent.run()[-1].text == DONE.text
    finished = [event.finish for event in stage.log(agent, AnswerFinished, count=8)]
    assert finished[4:] == ["pause_turn", "tool_use", "tool_use", "end_turn"]
    assert stage.log(agent, AttemptFailed, Bypassed) == []
    assert [event.branch for event in stage.log(agent, BranchOpened)] == [0]
    assert len(stage.log(agent, LegFinished)) == 1 + paged_in
    assert len(blocks(agent.sent[-1], "server_tool_use")) == 1
