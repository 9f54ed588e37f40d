"""The same session in every wire format, streamed and not: the client sees the model, and nothing of paging."""

import json

import pytest

from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    Bypassed,
    LegFinished,
    Repacked,
    ToolCalled,
)
from pager.paging.held_calls import LONGEST, ROUNDS
from pager.paging.page_in import NAME
from pager.paging.pages.stub import handle_of
from pager.testing.scripted import Call, PageIn, Say
from pager.testing.scripted.page_requests import rounds
from pager.testing.scripted.prompt_cache import size
from pager.wire.scripted import tokens

DONE = Say("All parts are fine. ☔")
THOUGHT = Say("I look at one more.", [Call("look", {"path": "small7"})], "Is that all? ☔")
AHEAD, BESIDE = Call("look", {"path": "small-ahead"}), Call("look", {"path": "small-beside"})
UNKNOWN = "pg_0123456789abcdef"


def prompt(received):
    return json.dumps(received.json(), ensure_ascii=False)


def test_a_session_is_the_same_as_without_the_proxy(stage, wire, stream):
    script = [
        PageIn(stage.look(4), pages=2),
        PageIn(THOUGHT, times=2),
        stage.read(4, 5),
        PageIn(stage.look(5), which="newest"),
        stage.look(6),
        PageIn(DONE, search="stands in"),
    ]
    stage.play(*script)
    direct = stage.agent(wire, direct=True, stream=stream)
    expected = [turn.said for turn in direct.run()]
    assert len(stage.received) == len(expected) == 10
    stage.play(*script)
    proxied = stage.agent(wire, stream=stream)
    assert [turn.said for turn in proxied.run()] == expected
    assert len(stage.received) == 10 + 5
    answers = stage.log(proxied, AnswerFinished, count=10)
    assert [event.legs for event in answers][4:] == [1, 2, 0, 1, 0, 1]
    called = [event.tool for event in stage.log(proxied, ToolCalled)]
    assert called == [name for _, _, calls, _ in expected for _, name, _ in calls]


@pytest.mark.parametrize(
    ("then", "asked"),
    [
        (DONE, {}),
        (THOUGHT, {"pages": 3, "times": 2}),
        (DONE, {"times": 4, "lines": "3-5"}),
        (THOUGHT, {"search": "7:"}),
    ],
    ids=["one", "three twice", "four times", "search"],
)
def test_a_call_with_hidden_legs_is_told_event_for_event_as_one_without(stage, wire, stream, then, asked):
    told = []
    for answer in (then, PageIn(then, **asked)):
        stage.play(answer)
        agent = stage.agent(wire, stream=stream).opened()
        turn = agent.ask()
        told.append((turn, [event for event in map(stage.plain, turn.events) if not _says_nothing(event)]))
        assert len(agent.legs[-1]) == 1 + (asked.get("times", 1) if isinstance(answer, PageIn) else 0)
    (without, expected), (turn, events) = told
    assert events == expected
    assert turn.said == without.said
    assert turn.usage["output"] == without.usage["output"]
    assert turn.usage["input"] == size(agent.wire.prompt(agent.sent[-1]))


def _says_nothing(event):
    """Pings, and the chunk of a chat that only says whose turn it is: with a call to come, its content is null."""
    match event:
        case {"choices": [{"delta": {"role": "assistant", "content": "" | None}}]} | {"type": "ping"}:
            return True
    return False


def test_pages_come_back_as_they_were(stage, wire, stream):
    stage.play(PageIn(DONE, pages=3))
    agent = stage.agent(wire, stream=stream).opened()
    agent.ask()
    before, after = agent.legs[-1]
    for part in (1, 2, 3):
        text = stage.page(f"src/part{part}.py")
        assert text not in _texts(before.json())
        assert any(text in one for one in _texts(after.json()))
    finished = stage.log(agent, LegFinished)
    assert [len(event.pages) for event in finished] == [3]


def _texts(value):
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inside for text in _texts(one)]


def test_a_slice_of_a_page_comes_back(stage, wire, stream):
    stage.play(PageIn(PageIn(DONE, search="^9: "), lines="3-5"))
    agent = stage.agent(wire, stream=stream).opened()
    agent.ask()
    lines = stage.page("src/part1.py").splitlines()
    answers = [text for text in _texts(agent.sent[-1]) if text.startswith("=== ")]
    assert len(answers) == 2
    assert "\n".join(lines[2:5]) in answers[0]
    assert lines[6] not in answers[0]
    assert stage.page("src/part2.py").splitlines()[8] in answers[1]
    assert stage.page("src/part2.py").splitlines()[20] not in answers[1]


NO_CALLS = {"chat": "none", "messages": {"type": "none"}, "responses": "none"}


def test_a_model_that_asks_and_asks_is_answered_and_then_writes_its_answer(stage, wire, stream):
    """Four times it may ask; the fifth time it is told to answer, and then it can call nothing."""
    stage.play(PageIn(DONE, times=9, text="Once more. "), stage.look(5), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    turn = agent.ask()
    assert (turn.text, turn.calls) == ("Once more. " * LONGEST + DONE.text, ())
    assert turn.finish == {"chat": "stop", "messages": "end_turn", "responses": "completed"}[wire]
    assert [sent.get("tool_choice") for sent in agent.sent] == [None] * LONGEST + [NO_CALLS[wire]]
    told = [text for text in _texts(agent.sent[-1]) if text.startswith("=== ")]
    assert ["you can ask for more" in text for text in told] == [False] * 3 + [True, False]
    assert ["No tool can be called" in text for text in told] == [False] * 4 + [True]
    agent.user("Go on.")
    assert [name for _, name, _ in agent.ask().calls] == ["look"]
    assert "tool_choice" not in agent.sent[0]
    assert "Once more." in prompt(agent.legs[-1][0])


def test_a_model_goes_on_with_its_own_tools_after_the_last_round(stage, wire, stream):
    stage.play(PageIn(Say("Now I look.", [AHEAD]), times=ROUNDS), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    assert [arguments for _, _, arguments in agent.ask().calls] == [AHEAD.arguments]
    assert [sent.get("tool_choice") for sent in agent.sent] == [None] * (ROUNDS + 1)
    agent.answer()
    assert agent.run()[-1].text == DONE.text


@pytest.mark.parametrize("choice", ["auto", None])
def test_a_choice_that_the_client_names_is_exchanged_in_the_very_last_leg_only(stage, wire, choice):
    named = {"type": choice} if wire == "messages" and choice else choice
    stage.play(PageIn(DONE, times=9))
    agent = stage.agent(wire, stream=False).opened()
    agent.ask(**({"tool_choice": named} if choice else {}))
    assert [sent.get("tool_choice") for sent in agent.sent] == [named] * LONGEST + [NO_CALLS[wire]]


def test_real_calls_are_shown_also_after_the_last_round(stage, wire, stream):
    stage.play(PageIn(PageIn(ahead=[AHEAD], beside=[BESIDE]), times=4), stage.look(5), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    assert [arguments for _, _, arguments in agent.ask().calls] == [AHEAD.arguments, BESIDE.arguments]
    assert len(agent.legs[-1]) == 5
    agent.answer()
    assert agent.run()[-1].text == DONE.text


def test_a_model_that_can_only_ask_gets_the_clients_own_request(stage, wire, stream):
    """An answer that ended with nothing would be taken for the end of the task."""
    stage.lawful = False
    stage.play(PageIn(stage.look(4), times=9, stubborn=True), PageIn(DONE))
    agent = stage.agent(wire, stream=stream).opened()
    turn = agent.ask()
    assert [name for _, name, _ in turn.calls] == ["look"]
    assert turn.finish == {"chat": "tool_calls", "messages": "tool_use", "responses": "completed"}[wire]
    assert len(agent.legs[-1]) == LONGEST + 2
    assert agent.legs[-1][-1].body == agent.tee.sent[-1]
    assert [event.reason for event in stage.log(agent, Bypassed)] == ["kept_asking"]
    agent.answer()
    assert agent.run()[-1].text == DONE.text
    assert len(agent.legs[-1]) == 2  # paging goes on


@pytest.mark.parametrize("said", [{"text": "Let me see."}, {"reasoning": "Which was it?"}], ids=["text", "reasoning"])
def test_what_is_said_before_pages_are_asked_for_is_shown(stage, wire, stream, said):
    thinking = Say("Part 1 it was.", [Call("look", {"path": "small8"})], "Part 1.")
    stage.play(PageIn(thinking, **said, times=2), stage.look(5), stage.look(6), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    turn = agent.ask()
    assert turn.text == said.get("text", "") * 2 + "Part 1 it was."
    assert turn.reasoning == said.get("reasoning", "") * 2 + "Part 1."
    assert [name for _, name, _ in turn.calls] == ["look"]
    shown = tokens(turn.text) + tokens(turn.reasoning)
    most = sum(event.usage.output for event in stage.log(agent, LegFinished)) + tokens("look") + 30
    assert shown * 0.7 < turn.usage["output"] < shown + most
    agent.answer()
    assert [turn.said[:2] for turn in agent.run()] == [("", ""), ("", ""), (DONE.text, "")]
    for received in (legs[0] for legs in agent.legs[5:]):  # what was thought and said stands where it was
        assert prompt(received).count(said.get("text") or "Part 1.") >= 1


def test_the_usage_told_is_of_the_last_leg_and_the_log_has_all(stage, wire, stream):
    stage.play(PageIn(DONE, times=2))
    agent = stage.agent(wire, stream=stream).opened()
    turn = agent.ask()
    sizes = [size(agent.wire.prompt(one)) for one in agent.sent]
    assert turn.usage["input"] == sizes[-1]
    assert turn.usage["output"] == tokens(DONE.text)
    finished = stage.log(agent, LegFinished)
    assert [event.usage.input for event in finished] == sizes[:2]
    assert [event.leg for event in finished] == [1, 2]
    assert stage.log(agent, AnswerFinished, count=5)[-1].usage.input == sizes[2]


@pytest.mark.parametrize(
    ("ahead", "beside"), [([AHEAD], []), ([], [BESIDE]), ([AHEAD], [BESIDE])], ids=["before", "after", "around"]
)
def test_real_calls_beside_are_shown_and_the_pages_come_with_their_results(stage, wire, stream, ahead, beside):
    stage.play(PageIn(text="Both.", ahead=ahead, beside=beside, pages=2), stage.look(6), stage.look(7), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    turn = agent.ask()
    assert [arguments for _, _, arguments in turn.calls] == [call.arguments for call in (*ahead, *beside)]
    assert turn.finish == {"chat": "tool_calls", "messages": "tool_use", "responses": "completed"}[wire]
    assert len(agent.legs[-1]) == 1
    agent.answer()
    assert [turn.text for turn in agent.run()] == ["", "", DONE.text]
    for received in (legs[0] for legs in agent.legs[5:]):
        texts = _texts(received.json())
        assert all(any(stage.page(f"src/part{part}.py") in text for text in texts) for part in (1, 2))
        assert all(stage.page(call.arguments["path"]) in texts for call in (*ahead, *beside))
    assert [event.mixed for event in stage.log(agent, LegFinished)] == [True]


def test_a_mixed_answer_may_follow_hidden_legs(stage, wire, stream):
    stage.play(PageIn(PageIn(beside=[BESIDE], reasoning="And that.")), stage.look(6), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    assert [arguments for _, _, arguments in agent.ask().calls] == [BESIDE.arguments]
    agent.answer()
    assert [turn.text for turn in agent.run()] == ["", DONE.text]
    assert [event.mixed for event in stage.log(agent, LegFinished)] == [False, True]


@pytest.mark.parametrize("arguments", [{"pages": [UNKNOWN]}, {}, {"pages": ["part1"], "lines": "x"}])
def test_a_question_that_can_not_be_answered_is_told_so(stage, wire, stream, arguments):
    stage.play(Say(calls=[Call(NAME, arguments)]), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    assert agent.ask().said == (DONE.text, "", (), agent.turns[-1].finish)
    [event] = stage.log(agent, LegFinished)
    assert event.pages == []
    assert event.unknown == [text for text in _texts(arguments) if text == UNKNOWN]
    told = _texts(agent.sent[-1])
    assert any("Not known in this session" in text or "No handle given" in text for text in told)


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_arguments_that_are_no_json_are_told_so(stage, wire, stream):
    stage.play(Say(calls=[Call(NAME, '{"pages": ["pg_')]), stage.look(5), DONE, strict=False)
    agent = stage.agent(wire, stream=stream).opened()
    assert [name for _, name, _ in agent.ask().calls] == ["look"]
    assert any("not JSON" in text for text in _texts(agent.sent[-1]))
    agent.answer()
    assert agent.run()[-1].text == DONE.text


def test_a_stub_in_a_real_call_is_answered_inside(stage, wire, stream):
    handle = handle_of(stage.page("src/part2.py").encode())
    imitation = Call("write", {"path": "copy.py", "text": f"[{handle}: read src/part2.py, 2.7 KB; page_in to see it]"})
    stage.play(Say("I copy it.", [imitation]), Say(calls=[Call("write", {"path": "small-copy"})]), stage.look(6), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    turn = agent.ask()
    assert turn.text == "I copy it."
    assert [arguments for _, _, arguments in turn.calls] == [{"path": "small-copy"}]
    assert any("write was not run" in text for text in _texts(agent.sent[-1]))
    assert [event.imitated for event in stage.log(agent, LegFinished)] == [1]
    agent.answer()
    assert [turn.text for turn in agent.run()] == ["", DONE.text]


def test_a_call_with_a_stub_is_held_four_times_and_then_let_through(stage, wire, stream):
    """Its tool says what is wrong with it; an answer that ended with nothing would end the task."""
    stage.traces = True
    handle = handle_of(stage.page("src/part2.py").encode())
    imitation = Say(calls=[Call("write", {"path": "copy.py", "text": f"[{handle}: read src/part2.py]"})])
    stage.play(*[imitation] * (ROUNDS + 1), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    assert [arguments["path"] for _, _, arguments in agent.ask().calls] == ["copy.py"]
    assert [event.imitated for event in stage.log(agent, LegFinished)] == [1] * ROUNDS
    agent.answer()
    assert agent.run()[-1].text == DONE.text


def test_a_handle_that_nobody_was_shown_is_the_clients_own(stage, wire, stream):
    stage.traces = True
    own = Say(calls=[Call("look", {"path": "small", "note": "pg_deadbeefdeadbeef"})])
    stage.play(own)
    agent = stage.agent(wire, stream=stream).opened()
    assert agent.ask().calls[0][2]["note"] == "pg_deadbeefdeadbeef"


def test_hidden_legs_stay_where_they_happened(stage, wire, stream):
    stage.play(
        PageIn(stage.look(4), pages=1, text="First."),
        PageIn(stage.look(5), times=2, reasoning="Second."),
        PageIn(beside=[Call("look", {"path": "small-third"})]),
        *map(stage.look, range(6, 12)),
        DONE,
    )
    agent = stage.agent(wire, stream=stream).opened()
    agent.run()
    moved = {event.call for event in stage.log(agent, Repacked)}
    calls = len(agent.legs)
    assert calls == 14
    assert {5} <= moved < set(range(5, 14))  # what was paged in may leave again, later each time; then all is still
    last = [f'"{NAME}"' in prompt(legs[0]) for legs in agent.legs]
    assert last == [False] * 4 + [True] * 10
    assert prompt(agent.legs[-1][0]).count(NAME) >= 5  # the tool, and four calls of it


def test_other_sessions_do_not_know_a_handle(stage, wire):
    handle = handle_of(stage.page("src/part1.py").encode())
    stage.play(Say(calls=[Call(NAME, {"pages": [handle]})]), DONE)
    agent = stage.agent(wire).opened()
    agent.ask()
    assert [event.pages for event in stage.log(agent, LegFinished)] == [[handle]]
    elsewhere = [Say(calls=[Call("read", {"path": f"src/other{n}.py"}) for n in (1, 2)]), *map(stage.look, (1, 2, 3))]
    stage.play(*elsewhere, Say(calls=[Call(NAME, {"pages": [handle]})]), DONE, opening=False)
    other = stage.agent(wire).opened()
    other.ask()
    assert [event.unknown for event in stage.log(other, LegFinished)] == [[handle]]


def test_a_changed_system_prompt_keeps_the_stubs_and_hidden_legs_of_what_is_repeated(stage, wire, stream):
    stage.lawful = False  # the client itself changes the beginning of its prompt
    stage.play(PageIn(stage.look(4)), stage.look(5), PageIn(stage.look(6)), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    agent.run(1)
    before = stage.pieces(agent, agent.legs[-1][-1])
    fresh = "You are resumed on another day. " * 10
    if wire == "chat":
        agent.history[0]["content"] = fresh
    else:
        agent.request["system" if wire == "messages" else "instructions"] = fresh
    agent.run(1)
    after = stage.pieces(agent, agent.legs[-1][-1])
    assert [old for old, new in zip(before, after, strict=False) if old != new] == [
        piece for piece in before if b"You are a careful agent." in piece
    ]
    assert len(after) > len(before)
    assert agent.run()[-1].text == DONE.text
    assert len(agent.legs[6]) == 2
    assert [event.reason for event in stage.log(agent, BranchOpened)] == ["root", "fork"]
    assert [event.cause for event in stage.log(agent, Repacked)] == ["policy"]


def noted(history, note):
    """The history as goose sends it: a note in the midst of the newest answer, each of its calls in its own message."""
    newest = max(at for at, message in enumerate(history) if message.get("tool_calls"))
    said, results = history[newest], {one.get("tool_call_id"): one for one in history[newest:]}
    told = [{"role": "assistant", "content": said["content"]}] if said.get("content") else []
    calls = [[{"role": "assistant", "tool_calls": [one]}, results[one["id"]]] for one in said["tool_calls"]]
    return [*history[:newest], *told, {"role": "user", "content": note}, *(one for pair in calls for one in pair)]


def without_texts(history):
    """The history as Agno sends it on Responses: no text beside calls."""
    return [item for item in history if item.get("type") != "message"]


@pytest.mark.parametrize("wire", ["chat", "responses"])
@pytest.mark.parametrize("mixed", [False, True], ids=["whole", "mixed"])
def test_a_client_that_does_not_send_its_history_as_it_was_keeps_its_hidden_legs(stage, wire, mixed, stream):
    stage.lawful = False  # the client itself changes its prompt
    two = Say("So.", [AHEAD, BESIDE])
    stage.play(PageIn(two, text="Hm.", beside=two.calls if mixed else ()), *map(stage.look, (5, 6)), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    agent.run(1)
    for number in range(3):
        changed = noted(agent.history, f"It is {number}.") if wire == "chat" else without_texts(agent.history)
        agent.ask(**{agent.items: changed})
        agent.answer()
        assert rounds(agent.sent[-1]) == 1
        assert prompt(agent.legs[-1][-1]).count("=== pg_") == 1
    assert agent.turns[-1].text == DONE.text
    assert [event.cause for event in stage.log(agent, Repacked)] == ["policy"]
    assert len(stage.log(agent, LegFinished)) == 1
