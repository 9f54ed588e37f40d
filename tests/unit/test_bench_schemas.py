"""The benchmark of tool schemas: its calls, its model, and what it makes of a session."""

import json
import random
from dataclasses import replace

import orjson
import pytest

from benchmarks.schemas import __main__ as schemas
from benchmarks.schemas.client import WIRES, ToolCallMade
from benchmarks.schemas.figures import LEAST, SchemaFigures, look_at, tokens
from benchmarks.schemas.model import DONE, ModelStep, Thought, handle_of, told
from benchmarks.schemas.tools import OfferedTool, careless, fitting, read_tools
from pager.testing.scripted import Received, Script
from pager.wire.chat.scripted import Scripted as Chat

PROSE = "It follows links, keeps the order of what it finds, and says so where something can't be read. " * 3
HANDLE = "pg_0123abcd"


def tool(name, parts=12):
    known = {f"{name}_{part}": {"type": "integer", "minimum": part, "description": PROSE} for part in range(parts)}
    nested = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/one"}}
    choice = {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}, {"type": "string", "maxLength": 9, "minLength": 2}]}
    properties = {"nested": nested, "choice": choice, "flag": {"type": "boolean"}, **known}
    one = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": ["number", "null"]}}}
    definitions = {"one": {**one, "required": ["path"], "additionalProperties": False}}
    required = {"required": ["nested", f"{name}_0"], "additionalProperties": False}
    return OfferedTool(
        name,
        f"Inspects {name}. {PROSE}",
        {"type": "object", "properties": properties, "$defs": definitions, **required},
    )


TOOLS = [tool(f"inspect_{number:03}") for number in range(90)]


# Calls


@pytest.mark.parametrize("seed", range(20))
def test_arguments_fit_and_careless_ones_do_not(seed):
    made = fitting(TOOLS[0], random.Random(seed))
    assert TOOLS[0].errors(json.dumps(made)) == []
    assert TOOLS[0].errors(json.dumps(careless(TOOLS[0], made)))


def test_a_tool_that_takes_everything_can_not_be_called_carelessly():
    assert careless(OfferedTool("any", "", {"type": "object"}), {}) is None


def test_a_tool_that_takes_nothing_has_no_arguments():
    with pytest.raises(ValueError, match="no arguments were found for never"):
        fitting(OfferedTool("never", "", {"type": "object", "not": {}}), random.Random(1))


def test_the_tools_of_all_servers_are_read(tmp_path):
    for name in ("b", "a"):
        listed = [{"name": f"{name}{at}", "inputSchema": {"type": "object"}} for at in range(2)]
        (tmp_path / f"tools_{name}.json").write_bytes(orjson.dumps({"server": name, "tools": listed}))
    assert [one.name for one in read_tools(tmp_path)] == ["a0", "a1", "b0", "b1"]


@pytest.mark.parametrize("used", schemas.USED)
def test_a_session_uses_all_its_tools_and_is_always_the_same(used):
    steps = schemas.plan(TOOLS, used)
    assert len(steps) == schemas.CALLS
    assert len({step.tool for step in steps}) == used
    assert 1 <= sum(step.careless is not None for step in steps) <= 4
    assert schemas.plan(TOOLS, used) == steps


# The model


def prompt(*entries, messages=()):
    return {"model": "m", "tools": [{"type": "function", "function": one} for one in entries], "messages": messages}


SHORT = {"name": "short", "description": f"It is. [{HANDLE}]", "parameters": {"type": "object"}}
SLIM = {"name": "slim", "description": f"It is. [{HANDLE}]", "parameters": {"type": "object", "properties": {}}}
WHOLE = {"name": "whole", "description": "It is.", "parameters": {"type": "object"}}
ASKING = {"name": "page_in", "parameters": {"properties": {"pages": {"type": "array"}}}}


def said(thought, *entries):
    step = thought.next(Chat(), prompt(*entries, messages=[{"role": "user", "content": "Go."}]))
    return [(call.name, call.arguments) for call in step.answer.calls]


def test_the_model_looks_a_deferred_tool_up_once():
    thought = Thought(Script(), steps=[ModelStep("short", {"a": 1}), ModelStep("short", {"a": 2})])
    assert said(thought, SHORT, ASKING) == [("page_in", {"pages": [HANDLE]})]
    assert said(thought, SHORT, ASKING) == [("short", {"a": 1})]
    assert said(thought, SHORT, ASKING) == [("short", {"a": 2})]
    assert thought.next(Chat(), prompt(SHORT, messages=[{"role": "user", "content": "Go."}])).answer == DONE
    assert (thought.faults, thought.mistakes) == (1, 0)


def test_the_model_calls_what_it_knows_at_once_and_errs_only_where_it_was_not_shown_all():
    wrong = {"a": "x"}
    thought = Thought(Script(), steps=[ModelStep("slim", {"a": 1}, wrong), ModelStep("whole", {"a": 2}, wrong)])
    assert said(thought, SLIM, WHOLE, ASKING) == [("slim", wrong)]
    assert said(thought, SLIM, WHOLE, ASKING) == [("slim", {"a": 1})]
    assert said(thought, SLIM, WHOLE, ASKING) == [("whole", {"a": 2})]
    assert (thought.faults, thought.mistakes) == (0, 1)


def test_a_handle_is_that_of_the_tool_that_is_meant():
    assert handle_of("slim", prompt(WHOLE, SLIM)) == HANDLE
    assert handle_of("slim", prompt(WHOLE, SLIM), deferred=True) == ""
    assert handle_of("short", prompt(SHORT), deferred=True) == HANDLE
    assert handle_of("whole", prompt(WHOLE)) == handle_of("other", prompt(WHOLE)) == ""


# Figures


def received(body):
    return Received("POST", "/v1/chat/completions", (), 0, orjson.dumps(body))


def test_schemas_are_counted_in_tools_and_in_messages():
    page = f"=== {HANDLE}, all 1 line ===\n{{}}"
    fix = "slim was not run\nThe tool in full:\n{}\nCall slim again"
    shown = [
        {"role": "tool", "content": page},
        {"role": "tool", "content": "a result"},
        {"role": "tool", "content": fix},
    ]
    assert told(prompt(messages=shown)) == [page, fix]
    blocks = [{"type": "tool_result", "content": page}, {"type": "text", "text": page}]
    assert told({"messages": [{"role": "user", "content": blocks}]}) == [page]
    assert told({"input": [{"type": "function_call_output", "output": fix}]}) == [fix]
    direct = [received(prompt(WHOLE, messages=[]))] * 2
    found = look_at("chat", direct, [received(prompt(SLIM, messages=shown[:at])) for at in (0, 1, 3)])
    assert found.whole == 2 * tokens(orjson.dumps(WHOLE).decode())
    assert found.offered == 3 * tokens(orjson.dumps(SLIM).decode())
    assert found.told == 2 * tokens(page) + tokens(fix)
    assert (found.calls, found.requests, found.same_tools, found.one_prefix) == (2, 3, True, True)


def test_a_prefix_that_changes_is_seen():
    tools = look_at("chat", [received(prompt(WHOLE))], [received(prompt(SLIM)), received(prompt(SHORT))])
    assert not tools.same_tools
    said = [[{"role": "user", "content": text}] for text in ("a", "b")]
    history = look_at("chat", [received(prompt(WHOLE))], [received(prompt(SLIM, messages=one)) for one in said])
    assert history.same_tools
    assert not history.one_prefix


GOOD = SchemaFigures(
    "chat", 10, 12, 1_000_000, 180_000, 4_000, 9.0, 3.0, same_tools=True, one_prefix=True, used=5, valid=5
)


def test_a_session_that_meets_every_demand_misses_none():
    assert GOOD.changes["a prompt"] == pytest.approx(184_000 / 12 / 100_000 - 1)
    assert GOOD.changes["in all"] == pytest.approx(-0.816)
    assert GOOD.missed == []


@pytest.mark.parametrize(
    "change",
    [{"offered": 250_000}, {"same_tools": False}, {"one_prefix": False}, {"valid": 4}, {"invalid": 1}],
    ids=lambda change: next(iter(change)),
)
def test_every_demand_can_be_missed(change):
    assert len(replace(GOOD, **change).missed) == 1


# All of it


@pytest.mark.parametrize("dialect", WIRES)
def test_a_client_reads_what_it_is_told(dialect):
    call = ToolCallMade("call_1", "slim", '{"a":1}')
    function = {"name": call.name, "arguments": call.arguments}
    answers = {
        "chat": {
            "choices": [{"message": {"role": "assistant", "tool_calls": [{"id": call.id, "function": function}]}}]
        },
        "messages": {"content": [{"type": "tool_use", "id": call.id, "name": call.name, "input": {"a": 1}}]},
        "responses": {"output": [{"type": "function_call", "call_id": call.id, **function}]},
    }
    assert WIRES[dialect].calls(answers[dialect]) == [call]
    assert call.id in json.dumps([WIRES[dialect].said(answers[dialect]), WIRES[dialect].results({call.id: "done"})])


def test_a_session_through_the_proxy_meets_every_demand(tmp_path):
    with schemas.standing(tmp_path) as (model, root):
        found = schemas.measured(model, root, "chat", TOOLS, 5)
    assert found.missed == []
    assert (found.calls, found.faults, found.corrections) == (schemas.CALLS + 1, 5, 2)
    assert found.requests == found.calls + found.faults + found.corrections
    assert -found.changes["in all"] > LEAST


def test_without_tools_to_offer_nothing_is_measured(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        schemas.main(["--recordings", str(tmp_path)])
    assert stopped.value.code == 2
    assert "schemas/tools_*.json" in capsys.readouterr().err


def test_the_figures_are_printed_as_a_table_and_as_json(capsys):
    schemas.tell([GOOD, replace(GOOD, dialect="messages", invalid=1)], 90, as_json=True)
    told = orjson.loads(capsys.readouterr().out)
    assert told["tools"] == 90
    assert [(one["dialect"], one["met"]) for one in told["sessions"]] == [("chat", True), ("messages", False)]
    schemas.tell([GOOD, replace(GOOD, one_prefix=False)], 90, as_json=False)
    table = capsys.readouterr().out
    assert "-81.6%" in table
    assert table.index("unchanged") < table.index("CHANGED")
