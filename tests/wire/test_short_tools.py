"""Tools that are sent short: the client knows nothing of it, and gets only calls that fit what it offered."""

import json
import re

import msgspec
import pytest

from pager.log.events import Bypassed, LegFinished, ToolsDecided
from pager.paging.held_calls import CORRECTIONS
from pager.paging.page_in import NAME
from pager.testing.scripted import Call, Picky, Say
from pager.testing.scripted.page_requests import getter

DONE = Say("All is done. ☔")
PROSE = "It follows links, keeps the order of what it finds, and says so where something can't be read. " * 3
MODES = ["plain", "nested", "sorted"]
NOTE = re.compile(r" \[(pg_[0-9a-f]{8,32})\]\Z")
FEW = [f"inspect_{word}" for word in ("atlas", "beacon", "cellar", "dune", "ember", "fjord", "grove", "haven")]
FIRST, SECOND = FEW[:2]
MANY = [f"ledger_{number:02}" for number in range(60)]
WRONG = [{"path": 7}, {"depth": 1}, {"path": "small1", "folder": "."}, {"path": "small1", "mode": "wild"}]


def function(name, parameters):
    return {"name": name, "description": f"Inspects the {name}. {PROSE}", "parameters": parameters}


def few(name):
    """A tool with more prose than parameters."""
    known = {"path": {"type": "string"}, "depth": {"type": "integer"}, "mode": {"enum": MODES}}
    explained = {key: {**schema, "description": f"The {key}. {PROSE}"} for key, schema in known.items()}
    bare = {"type": "object", "properties": known, "required": ["path"], "additionalProperties": False}
    return function(name, {**bare, "properties": explained}), bare


def many(name):
    """A tool with so many parameters that to name them is dear."""
    known = {f"{name}_limit_of_part_{number}": {"type": "integer", "minimum": number} for number in range(30)}
    return function(name, {"type": "object", "properties": {"path": {"type": "string"}, **known}, "required": ["path"]})


def offered(wire, functions):
    """Functions as a request of this wire format offers them."""
    if wire == "chat":
        return [{"type": "function", "function": one} for one in functions]
    if wire == "responses":
        return [{"type": "function", "strict": False, **one} for one in functions]
    return [
        {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]} for one in functions
    ]


def slim_tools(wire, names=FEW):
    return offered(wire, [few(name)[0] for name in names])


def raw_tools(body):
    """The bytes of the tools in a request."""
    return bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw])["tools"])


def functions_of(body):
    """Name, description and parameters of each tool in a request."""
    entries = [one.get("function") or one for one in json.loads(raw_tools(body))]
    return {one["name"]: (one["description"], one.get("parameters") or one.get("input_schema")) for one in entries}


def handle_of(stage, wire, tools, name):
    """The handle of a tool, which all sessions have in common, from one that is over."""
    stage.play(DONE, opening=False)
    other = stage.agent(wire, tools=tools)
    other.ask()
    return NOTE.search(functions_of(other.legs[0][0].body)[name][0])[1]


def prompt(received):
    return json.dumps(received.json(), ensure_ascii=False)


def texts(value):
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inside for text in texts(one)]


def corrections(received):
    """What a prompt says of calls that did not fit."""
    return [text for text in texts(received.json()) if "was not run, because the arguments do not fit" in text]


def calls(path="small1", name=FIRST):
    return Say(calls=[Call(name, {"path": path})])


def erring(arguments=WRONG[0], name=FIRST, **more):
    return Say(calls=[Call(name, arguments)], **more)


@pytest.fixture(scope="module")
def _short_proxy(_model, tmp_path_factory, running):
    with running(_model.url, tmp_path_factory.mktemp("short") / "data", "--policy", "cost_aware") as proxy:
        yield proxy


@pytest.fixture
def short(_short_proxy, open_stage):
    """The scripted model behind a proxy that sends tools short."""
    with open_stage(_short_proxy) as stage:
        yield stage


@pytest.fixture
def agent(short, wire, stream):
    return short.agent(wire, stream=stream, tools=slim_tools(wire))


def is_whole(agent, received):
    """Whether a request's tools went out as the client sent them."""
    return raw_tools(received.body) == raw_tools(agent.tee.sent[-1])


# What goes out


def test_tools_are_sent_short_from_the_first_call_with_the_same_bytes_on_every_later_one(short, agent):
    short.play(*map(calls, ("small1", "small2", "small3")), DONE, opening=False)
    assert [turn.text for turn in agent.run()] == ["", "", "", DONE.text]
    assert [len(legs) for legs in agent.legs] == [1, 1, 1, 1]
    assert len({raw_tools(legs[0].body) for legs in agent.legs}) == 1
    sent = functions_of(agent.legs[0][0].body)
    assert [*sent] == [*FEW, NAME]
    for name in FEW:
        description, parameters = sent[name]
        assert NOTE.sub("", description) == f"Inspects the {name}."
        assert parameters == few(name)[1]
    assert len(raw_tools(agent.legs[0][0].body)) < len(raw_tools(agent.tee.sent[0])) / 3
    [decided] = short.log(agent, ToolsDecided)
    assert (decided.call, decided.tools, decided.slim, decided.deferred) == (1, len(FEW), len(FEW), 0)
    assert decided.sent < decided.whole / 3


def test_a_call_that_fits_passes_as_it_is_without_another_request(short, agent):
    arguments = {"path": "small1", "depth": 3, "mode": "nested"}
    short.play(Say("I look. ☔", [Call(FIRST, arguments), Call(SECOND, {"path": "small2"})]), DONE, opening=False)
    turn = agent.ask()
    assert [(name, given) for _, name, given in turn.calls] == [(FIRST, arguments), (SECOND, {"path": "small2"})]
    assert turn.text == "I look. ☔"
    assert len(agent.legs[-1]) == 1
    agent.answer()
    assert agent.ask().text == DONE.text
    assert short.log(agent, LegFinished) == []


def test_every_session_has_the_same_tools(short, wire):
    seen = []
    for _ in range(2):
        short.play(calls(), DONE, opening=False)
        one = short.agent(wire, tools=slim_tools(wire))
        one.run()
        seen.append(raw_tools(one.legs[0][0].body))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("wire", ["messages"])
@pytest.mark.parametrize("system", ["You are careful. " * 10, None], ids=["system", "none"])
def test_a_client_that_sets_no_cache_marks_gets_some(short, wire, stream, system):
    short.play(calls("small1"), calls("small2"), DONE, opening=False)
    one = short.agent(wire, stream=stream, tools=slim_tools(wire), system=system)
    one.run()
    marked = [legs[0].json()["messages"] for legs in one.legs]
    assert ["cache_control" in messages[-1]["content"][-1] for messages in marked] == [True] * 3
    assert [json.dumps(messages).count("cache_control") for messages in marked] == [1] * 3, "the end before is in reach"
    heads = [
        "cache_control" in json.dumps([body.get("system"), body["tools"]])
        for body in (legs[0].json() for legs in one.legs)
    ]
    assert heads == [True] * 3
    assert len({raw_tools(legs[0].body) for legs in one.legs}) == 1


# Calls that do not fit


@pytest.mark.parametrize("wrong", WRONG, ids=["type", "missing", "name", "enum"])
def test_a_call_that_does_not_fit_is_corrected_before_the_client_sees_it(short, agent, wrong):
    short.play(erring(wrong, text="I look. "), calls(), calls("small2"), DONE, opening=False)
    turn = agent.ask()
    assert [(name, given) for _, name, given in turn.calls] == [(FIRST, {"path": "small1"})]
    assert turn.text == "I look. "
    before, after = agent.legs[-1]
    assert corrections(before) == []
    [told] = corrections(after)
    assert json.dumps(few(FIRST)[0]["parameters"]["properties"]["depth"]["description"])[1:-1] in told
    assert "\n- $" in told
    agent.answer()
    assert [turn.text for turn in agent.run()] == ["", DONE.text]
    assert [corrections(legs[0]) for legs in agent.legs[1:]] == [[told]] * 2
    [leg] = short.log(agent, LegFinished)
    assert (leg.invalid, leg.mixed, leg.schemas, leg.imitated) == ([FIRST], False, [], 0)


def test_a_model_that_errs_again_and_again_is_corrected_twice_and_then_passed_on(short, agent):
    short.play(*map(erring, WRONG[:3]), DONE, opening=False)
    turn = agent.ask()
    assert [given for _, _, given in turn.calls] == [WRONG[2]]
    assert len(agent.legs[-1]) == 1 + CORRECTIONS
    assert len(corrections(agent.legs[-1][-1])) == CORRECTIONS
    agent.result(turn.calls[0][0], "no such folder")
    assert agent.ask().text == DONE.text
    assert len(agent.legs[-1]) == 1
    assert [leg.invalid for leg in short.log(agent, LegFinished)] == [[FIRST]] * CORRECTIONS


def test_another_answer_is_corrected_anew(short, agent):
    short.play(*map(erring, WRONG[:3]), erring(), calls(), DONE, opening=False)
    turn = agent.ask()
    agent.result(turn.calls[0][0], "no such folder")
    assert [given for _, _, given in agent.ask().calls] == [{"path": "small1"}]
    assert len(agent.legs[-1]) == 2


@pytest.mark.parametrize("wrong_first", [True, False], ids=["before", "after"])
def test_a_call_that_fits_is_shown_beside_one_that_does_not(short, agent, wrong_first):
    both = [Call(FIRST, WRONG[0]), Call(SECOND, {"path": "small2"})]
    short.play(Say("Both.", both if wrong_first else both[::-1]), calls(), DONE, opening=False)
    turn = agent.ask()
    assert [(name, given) for _, name, given in turn.calls] == [(SECOND, {"path": "small2"})]
    assert len(agent.legs[-1]) == 1
    agent.answer()
    assert [given for _, _, given in agent.ask().calls] == [{"path": "small1"}]
    [received] = agent.legs[-1]
    assert len(corrections(received)) == 1
    assert "small2 is fine" in texts(received.json())
    agent.answer()
    assert agent.ask().text == DONE.text
    [leg] = short.log(agent, LegFinished)
    assert (leg.invalid, leg.mixed) == ([FIRST], True)


def test_two_calls_that_do_not_fit_are_both_told(short, agent):
    both = [Call(FIRST, WRONG[0]), Call(SECOND, WRONG[1])]
    short.play(Say(calls=both), calls(), DONE, opening=False)
    assert [given for _, _, given in agent.ask().calls] == [{"path": "small1"}]
    assert [name in told for name, told in zip((FIRST, SECOND), corrections(agent.legs[-1][-1]), strict=True)] == [
        True
    ] * 2
    assert [leg.invalid for leg in short.log(agent, LegFinished)] == [[FIRST, SECOND]]


@pytest.mark.parametrize("finish", ["length", "tools"])
@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_arguments_that_are_no_json_are_the_clients(short, wire, stream, finish, outcome):
    """Whatever the client's parser makes of them."""
    cut, told = '{"path": "small1", "dep', []
    for direct in (True, False):
        short.play(Say("Hm.", [Call(FIRST, cut)], finish=finish), opening=False)
        agent = short.agent(wire, stream=stream, direct=direct, tools=slim_tools(wire))
        outcome(agent.ask)
        got = bytes(agent.tee.got[-1]).decode()
        events = re.findall(r"^data: (\{.*)$", got, re.MULTILINE) if stream else [got]
        told.append([short.plain(json.loads(event)) for event in events])
    assert told[1] == told[0]
    assert len(agent.legs[-1]) == 1
    assert short.log(agent, LegFinished) == []


def test_a_tools_handle_never_stands_for_an_argument(short, agent, wire):
    handle = handle_of(short, wire, slim_tools(wire), FIRST)
    short.play(erring({"path": f"[{handle}]"}), calls("small2"), DONE, opening=False)
    assert [given for _, _, given in agent.ask().calls] == [{"path": "small2"}]
    assert len(agent.legs[-1]) == 2
    assert [leg.imitated for leg in short.log(agent, LegFinished)] == [1]


# The rest of a tool


def test_the_model_gets_the_rest_of_a_tool_when_it_asks(short, agent, wire):
    handle = handle_of(short, wire, slim_tools(wire), FIRST)
    short.play(Say(calls=[Call(NAME, {"pages": [handle]})]), calls("small2"), DONE, opening=False)
    assert [given for _, _, given in agent.ask().calls] == [{"path": "small2"}]
    [given] = [text for text in texts(agent.sent[-1]) if text.startswith(f"=== {handle}")]
    assert json.loads(given.split("\n", 1)[1]) == few(FIRST)[0]
    agent.answer()
    assert agent.run()[-1].text == DONE.text
    [leg] = short.log(agent, LegFinished)
    assert (leg.schemas, leg.pages, leg.unknown) == ([FIRST], [], [])


@pytest.fixture(scope="module")
def deferring_proxy(_model, tmp_path_factory, running):
    flags = ("--policy", "cost_aware", "--tools-defer-above", "5000")
    with running(_model.url, tmp_path_factory.mktemp("deferring") / "data", *flags) as proxy:
        yield proxy


def test_tools_of_a_large_set_are_deferred_and_looked_up(deferring_proxy, open_stage, wire, stream):
    with open_stage(deferring_proxy) as stage:
        agent = stage.agent(wire, stream=stream, tools=offered(wire, map(many, MANY)))
        handle = handle_of(stage, wire, agent.request["tools"], MANY[7])
        limit = f"{MANY[7]}_limit_of_part_9"
        wrong = Call(MANY[7], {"path": "small2", limit: 8})
        asking = Call(NAME, {"pages": [handle]})
        right = Call(MANY[7], {"path": "small2", limit: 9})
        stage.play(Say(calls=[wrong]), Say(calls=[asking]), Say(calls=[right]), DONE, opening=False)
        assert [given for _, _, given in agent.ask().calls] == [right.arguments]
        assert len(agent.legs[-1]) == 3
        assert functions_of(agent.legs[0][0].body)[MANY[7]][1] == {"type": "object"}
        assert [event.deferred for event in stage.log(agent, ToolsDecided)] == [len(MANY)]
        agent.answer()
        assert agent.run()[-1].text == DONE.text
        assert [(leg.invalid, leg.schemas) for leg in stage.log(agent, LegFinished)] == [
            ([MANY[7]], []),
            ([], [MANY[7]]),
        ]


# When tools stay whole, or change


def forced(wire):
    chosen = {
        "chat": {"type": "function", "function": {"name": FIRST}},
        "responses": {"type": "function", "name": FIRST},
        "messages": {"type": "tool", "name": FIRST},
    }
    return chosen[wire]


def test_tools_are_whole_where_one_of_them_must_be_called(short, agent, wire):
    short.lawful = False
    short.play(*map(calls, ("small1", "small2", "small3")), DONE, opening=False)
    agent.run(1, tool_choice=forced(wire))
    assert is_whole(agent, agent.legs[-1][0])
    agent.run(1)
    before = raw_tools(agent.legs[-1][0].body)
    agent.run(1, tool_choice=forced(wire))
    assert is_whole(agent, agent.legs[-1][0])
    agent.run(1)
    assert raw_tools(agent.legs[-1][0].body) == before
    assert ("cannot_carry", 3) in [(event.reason, event.call) for event in short.log(agent, Bypassed)]


def test_tools_stay_whole_from_the_first_call_on_where_the_user_says_so(start_proxy, open_stage):
    with start_proxy("--policy", "cost_aware", "--tools-shorten", "off") as proxy, open_stage(proxy) as stage:
        for wire in ("chat", "messages", "responses"):
            stage.play(calls("small1"), erring(), DONE, opening=False)
            agent = stage.agent(wire, tools=slim_tools(wire))
            turns = [*agent.run(1), agent.ask()]
            assert [given for turn in turns for _, _, given in turn.calls] == [{"path": "small1"}, WRONG[0]]
            assert all(is_whole(agent, legs[0]) and len(legs) == 1 for legs in agent.legs)
            assert stage.log(agent, ToolsDecided) == []


def test_tools_that_the_client_changes_are_decided_anew(short, wire, stream):
    short.lawful = False
    isle = "inspect_isle"
    again = (erring(name=isle), calls("small3", isle), calls("small4"))
    short.play(calls("small1"), calls("small2", isle), *again, opening=False)
    agent = short.agent(wire, stream=stream, tools=slim_tools(wire))
    agent.run(1)
    first = raw_tools(agent.legs[-1][0].body)
    agent.request["tools"] = slim_tools(wire, [*FEW[1:], isle])
    agent.run(1)
    assert [*functions_of(agent.legs[-1][0].body)] == [*FEW[1:], isle, NAME]
    second = raw_tools(agent.legs[-1][0].body)
    assert PROSE not in second.decode()
    assert [given for turn in agent.run(1) for _, _, given in turn.calls] == [{"path": "small3"}]
    assert [raw_tools(received.body) for received in agent.legs[-1]] == [second] * 2
    agent.request["tools"] = slim_tools(wire)
    agent.run(1)
    assert raw_tools(agent.legs[-1][0].body) == first
    assert [event.call for event in short.log(agent, ToolsDecided)] == [1, 2, 4]


def test_a_tool_that_left_is_still_known_by_its_handle(short, wire):
    short.lawful = False
    handle = handle_of(short, wire, slim_tools(wire), FIRST)
    agent = short.agent(wire, tools=slim_tools(wire))
    short.play(calls(), Say(calls=[Call(NAME, {"pages": [handle]})]), DONE, opening=False)
    agent.run(1)
    agent.request["tools"] = slim_tools(wire, FEW[1:])
    assert agent.ask().text == DONE.text
    assert [leg.schemas for leg in short.log(agent, LegFinished)] == [[FIRST]]


def test_a_provider_that_refuses_short_tools_gets_the_clients_own_request_from_then_on(short, agent):
    short.refusals, short.lawful = True, False
    short.play(Picky(calls("small1")), Picky(erring()), Picky(DONE), opening=False)
    turns = [*agent.run(1), agent.ask()]
    assert [given for turn in turns for _, _, given in turn.calls] == [{"path": "small1"}, WRONG[0]]
    refused, *taken = [received for legs in agent.legs for received in legs]
    assert getter(refused.json()) == NAME
    assert [received.body for received in taken] == agent.tee.sent
    assert [(event.reason, event.call) for event in short.log(agent, Bypassed)] == [("refused", 1)]


def test_calls_are_not_checked_any_more_once_the_clients_own_request_went_out(short, agent):
    short.refusals, short.lawful = True, False
    short.play(erring(), Picky(erring(WRONG[1])), DONE, opening=False)
    turn = agent.ask()
    assert [given for _, _, given in turn.calls] == [WRONG[1]]
    assert [is_whole(agent, received) for received in agent.legs[-1]] == [False, False, True]
    assert [leg.invalid for leg in short.log(agent, LegFinished)] == [[FIRST]]


def test_a_first_request_is_counted_as_it_would_be_sent(short):
    tools = slim_tools("messages")
    agent = short.agent("messages", tools=tools)
    asked = {"model": "claude-opus-4-5", "messages": [{"role": "user", "content": "A question."}]}
    alone = agent.sdk.messages.count_tokens(**asked).input_tokens
    counted = agent.sdk.messages.count_tokens(**asked, tools=tools).input_tokens
    whole = len(json.dumps(tools)) / 4
    assert 0 < counted - alone < whole / 2
    short.play(DONE, opening=False)
    agent.ask()


def test_a_proxy_that_is_killed_goes_on_with_the_same_tools(scripted, running, open_stage, tmp_path):
    flags = ("--policy", "cost_aware")
    with running(scripted.url, tmp_path / "data", *flags) as proxy, open_stage(proxy) as stage:
        agents = [stage.agent(wire, tools=slim_tools(wire)) for wire in ("chat", "messages", "responses")]
        stage.play(*[erring(), calls("small1")] * 3, *[erring(), calls("small2"), DONE] * 3, opening=False)
        for agent in agents:
            agent.run(1)
        proxy.process.kill()
        proxy.process.wait()
        with running(scripted.url, tmp_path / "data", *flags) as stage.proxy:
            for agent in agents:
                agent.go_to(stage.proxy.root)
                first, second = agent.run()
                assert [given for _, _, given in first.calls] == [{"path": "small2"}]
                assert second.text == DONE.text
                assert [len(legs) for legs in agent.legs] == [2, 2, 1]
                assert len({raw_tools(received.body) for legs in agent.legs for received in legs}) == 1
                assert len(stage.log(agent, ToolsDecided)) == 1
            stage.check()
