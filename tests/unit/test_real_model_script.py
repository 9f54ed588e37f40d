"""The parts of the benchmark with the real model that need no model: its sessions, its log reader, its verdicts."""

import json
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.real_model import __main__ as real_model
from benchmarks.real_model import server_log
from benchmarks.real_model.needed_pages import NeededPage, wanted
from benchmarks.real_model.play import PRICES, ModelReply, PlayedScript
from benchmarks.real_model.script import AgentScript, ScriptStep, Sizes, offered, script, side_messages
from benchmarks.real_model.server import MODEL, WINDOW, asked, asking
from benchmarks.real_model.server_log import ServerWork
from pager.pricing.rates import parsed_overrides

HANDLE = "pg_0123456789abcdef"
STUB = f"[{HANDLE}: read shop/order.py, 40 lines, 1.1 KB; page_in to see it]"
PAGE_IN = {"type": "function", "function": {"name": "page_in", "description": "", "parameters": {}}}
SIZES = Sizes(file=1_000, failure=600, small=100)
LOG = """\
Llama.generate: 41 prefix-match hit, remaining 212 prompt tokens to eval
llama_perf_context_print:        load time =     310.22 ms
llama_perf_context_print: prompt eval time =    1500.50 ms /   212 tokens (    7.08 ms per token)
llama_perf_context_print:        eval time =     250.00 ms /     7 runs   (   35.71 ms per token)
llama_perf_context_print:       total time =    1760.00 ms /   219 tokens
INFO:     127.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK
"""


def two_steps(needs=1):
    return AgentScript(
        "agent", (ScriptStep("read", {"path": "a.py"}, "the file"), ScriptStep("run", {"command": "ls"}, "a.py", needs))
    )


def with_stub(messages):
    return [{**one, "content": STUB} if one.get("tool_call_id") == "agent-1" else one for one in messages]


def played(seconds, calls=60, requests=60, refusal=""):
    return PlayedScript(calls=calls, own=ServerWork(requests=requests, prompt_seconds=seconds), refusal=refusal)


@given(calls=st.integers(1, 45))
def test_each_call_extends_the_one_before(calls):
    session = script("agent", calls, SIZES, {})
    assert session.calls == calls
    for before, after in pairwise(session.messages(["Next."] * call) for call in range(calls)):
        assert after[: len(before)] == before
        assert [one["role"] for one in after[len(before) :]] == ["assistant", "tool"]


def test_a_script_is_the_same_in_every_run_and_differs_by_its_name():
    one, again, other = (script(name, 30, SIZES, {}) for name in ("a", "a", "b"))
    assert one.steps == again.steps
    assert one.steps != other.steps


def test_every_result_answers_the_call_before_it():
    messages = script("agent", 40, SIZES, {14: 2}).messages([""] * 39)[2:]
    for call, result in zip(messages[::2], messages[1::2], strict=True):
        assert call["tool_calls"][0]["id"] == result["tool_call_id"]
        assert isinstance(json.loads(call["tool_calls"][0]["function"]["arguments"]), dict)
    assert len({result["tool_call_id"] for result in messages[1::2]}) == 39


def test_results_are_about_as_large_as_asked_for():
    reads = [step.result for step in script("agent", 60, SIZES, {}).steps if step.tool == "read"]
    assert all(SIZES.file - 100 <= len(text) <= SIZES.file for text in reads)
    assert len(set(reads)) == len(reads)


def test_only_tools_that_are_offered_are_called():
    names = {tool["function"]["name"] for tool in offered()}
    assert {step.tool for step in script("agent", 30, SIZES, {}).steps} == names


@pytest.mark.parametrize("session", [real_model.agent(60), real_model.windows(36)], ids=lambda session: session.name)
def test_what_is_needed_has_been_read_at_least_five_calls_before(session):
    needs = [(number, step.needs) for number, step in enumerate(session.steps, 1) if step.needs]
    assert needs
    for number, needed in needs:
        assert number - needed >= 5
        assert session.steps[needed - 1].tool == "read"


def test_the_side_requests_differ_from_each_other():
    assert side_messages(1) == side_messages(1) != side_messages(2)


def test_a_needed_result_that_only_its_stub_stands_for_is_wanted():
    messages = with_stub(two_steps().messages(["", ""]))
    assert wanted(messages, [*offered(), PAGE_IN]) == NeededPage("page_in", HANDLE)


def test_nothing_is_wanted_where_the_result_stands_in_the_prompt():
    assert wanted(two_steps().messages(["", ""]), [*offered(), PAGE_IN]) is None


def test_nothing_is_wanted_by_a_step_without_needs():
    assert wanted(with_stub(two_steps(needs=0).messages(["", ""])), [*offered(), PAGE_IN]) is None


def test_nothing_is_wanted_without_a_tool_that_could_bring_it():
    assert wanted(with_stub(two_steps().messages(["", ""])), offered()) is None


def test_nothing_is_wanted_that_was_paged_in_before():
    messages = with_stub(two_steps().messages(["", ""]))
    call = {"name": "page_in", "arguments": json.dumps({"pages": [HANDLE]})}
    leg = {"role": "assistant", "content": None, "tool_calls": [{"id": "page-4", "type": "function", "function": call}]}
    back = {"role": "tool", "tool_call_id": "page-4", "content": "the file"}
    assert wanted([*messages[:-2], leg, back, *messages[-2:]], [*offered(), PAGE_IN]) is None


def test_the_first_call_has_no_result_that_could_need_anything():
    assert wanted(two_steps().messages([]), [*offered(), PAGE_IN]) is None


def test_the_result_of_a_step_that_has_needs_of_its_own_is_found():
    steps = (*two_steps().steps, ScriptStep("run", {"command": "ls"}, "", needs=2))
    messages = AgentScript("agent", steps).messages([""] * 3)
    messages[-3] = {**messages[-3], "content": STUB}
    assert wanted(messages, [*offered(), PAGE_IN]) == NeededPage("page_in", HANDLE)


def test_the_model_server_asks_where_a_page_is_wanted_and_else_says_what_the_model_says():
    said = {"id": "1", "choices": [{"index": 0, "message": {"content": "Yes."}, "finish_reason": "stop"}], "usage": {}}
    answers = asking(lambda **_: said)
    whole, stubbed = two_steps().messages(["", ""]), with_stub(two_steps().messages(["", ""]))
    assert answers(messages=whole, tools=[*offered(), PAGE_IN]) == said
    assert answers(messages=side_messages(1)) == said
    instead = answers(messages=stubbed, tools=[*offered(), PAGE_IN])
    assert instead == asked(said, NeededPage("page_in", HANDLE), "page-6")
    assert instead["choices"][0]["finish_reason"] == "tool_calls"
    message = instead["choices"][0]["message"]
    function = message["tool_calls"][0]["function"]
    assert message["content"] == "Yes."
    assert (function["name"], json.loads(function["arguments"])) == ("page_in", {"pages": [HANDLE]})


def test_a_call_for_a_page_is_never_without_words():
    said = {"choices": [{"index": 0, "message": {"content": ""}, "finish_reason": "stop"}]}
    assert asked(said, NeededPage("page_in", HANDLE), "page-6")["choices"][0]["message"]["content"]


def test_what_the_model_said_stands_before_each_call():
    messages = two_steps().messages(["First.", "Then."])
    assert [one["content"] for one in messages if one["role"] == "assistant"] == ["First.", "Then."]


def test_the_log_tells_what_a_request_made_the_model_compute():
    assert server_log.work(LOG) == ServerWork(1, 212, 1.5005, 7, 0.25)


def test_the_work_of_several_requests_is_added_up():
    assert server_log.work(LOG * 3) == ServerWork(3, 636, 1.5005 * 3, 21, 0.75)


def test_a_log_without_figures_tells_of_no_work():
    assert server_log.work('INFO:     "POST /v1/chat/completions HTTP/1.1" 400 Bad Request\n') == ServerWork()


def test_the_price_file_is_one_that_the_proxy_takes():
    model = parsed_overrides(PRICES, origin="prices.toml").models[MODEL]
    assert model["window"] == WINDOW
    assert model["cached"] < model["input"]


def test_the_session_is_judged_against_both_other_policies():
    session = script("agent", 60, SIZES, {})
    found = {"keep_all": played(300), "fifo_age": played(200), "cost_aware": played(220, requests=63)}
    rows = real_model.agent_rows(session, found)
    judged = {row.against: row.ok for row in rows if row.ok is not None}
    assert judged == {"60 calls": True, "keep_all": True, "fifo_age": False}
    assert rows[-1].values == {"keep_all": 0, "fifo_age": 0, "cost_aware": 3}


@pytest.mark.parametrize(
    ("paged", "plain", "size", "verdicts"),
    [(32, 9, 25_000, [True, True, True]), (20, 9, 25_000, [True, False, True]), (32, 32, 8_000, [False, True, False])],
)
def test_the_long_session_must_finish_with_paging_and_fail_without(paged, plain, size, verdicts):
    session = script("windows", 32, SIZES, {})
    found = {"keep_all": played(60, calls=plain, requests=plain), "cost_aware": played(90, calls=paged, requests=paged)}
    rows = real_model.windows_rows(session, found, size)
    assert [row.ok for row in rows if row.ok is not None] == verdicts


def test_the_figures_can_be_read_by_programs():
    found = {policy: played(1.5, requests=61) for policy in real_model.POLICIES}
    rows = real_model.agent_rows(script("agent", 60, SIZES, {}), found)
    told = orjson.loads(real_model.as_json(rows, {"agent": found}))
    assert told["sessions"]["agent"]["cost_aware"]["page_ins"] == 1
    assert told["sessions"]["agent"]["cost_aware"]["own"]["prompt_seconds"] == 1.5
    assert [row["ok"] for row in told["rows"][:3]] == [True, True, True]


def test_a_session_that_did_not_end_is_no_success_however_little_it_took():
    found = {policy: played(9, calls=14 if policy == "cost_aware" else 60) for policy in real_model.POLICIES}
    rows = real_model.agent_rows(script("agent", 60, SIZES, {}), found)
    assert [row.what for row in rows if row.ok is False] == ["60 calls: answered"]


def test_a_reply_tells_what_the_model_said_and_how_long_its_prompt_was():
    body = {"choices": [{"message": {"content": "Yes."}}], "usage": {"prompt_tokens": 300}}
    reply = ModelReply(200, body)
    assert (reply.said, reply.prompt, reply.refusal) == ("Yes.", 300, "")


def test_a_prompt_that_does_not_fit_is_a_refusal_and_anything_else_an_error():
    told = "This model's maximum context length is 8192 tokens. However, you requested 9096 tokens"
    refused = ModelReply(400, {"error": {"message": told, "code": "context_length_exceeded"}})
    assert (refused.said, refused.prompt, refused.refusal) == ("", 0, told)
    with pytest.raises(RuntimeError, match="422"):
        _ = ModelReply(422, {"error": {"message": "7 validation errors"}}).refusal
