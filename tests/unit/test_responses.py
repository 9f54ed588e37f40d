"""The OpenAI Responses dialect."""

import json
from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.errors import NotUnderstood
from pager.request_values import (
    Answer,
    Block,
    Kind,
    ToolUse,
    Usage,
)
from pager.wire.dialects import load

responses = load("responses")
NOTHING = sha256(b"").digest()


def parsed(*items, **fields):
    return responses.parse(json.dumps({"model": "gpt-5", "input": list(items), **fields}).encode())


def decoded(item):
    return responses.decode(json.dumps(item).encode())


def norm(item) -> bytes:
    return decoded(item).norm


def stream(*events, named=True) -> bytes:
    said = []
    for number, event in enumerate(events):
        name = f"event: {event['type']}\n" if named else ""
        said.append(f"{name}data: {json.dumps({**event, 'sequence_number': number})}\n\n")
    return "".join(said).encode()


def response(status, output=(), **fields) -> dict:
    return {
        "id": "resp_1",
        "object": "response",
        "model": "gpt-5-2026",
        "status": status,
        "output": list(output),
        **fields,
    }


USAGE = {
    "input_tokens": 1200, "input_tokens_details": {"cached_tokens": 1024, "cache_write_tokens": 64},
    "output_tokens": 80, "output_tokens_details": {"reasoning_tokens": 32}, "total_tokens": 1280,
}  # fmt: skip
TEXT = "I look at both. \u00e9\U0001f600"
THOUGHT = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Which?"}],
    "encrypted_content": "gAAA",
}
MESSAGE = {
    "id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
    "content": [{"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}],
}  # fmt: skip
READ = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_a",
    "name": "read",
    "arguments": '{"path": "a"}',
}
EXEC = {
    "id": "ctc_1",
    "type": "custom_tool_call",
    "status": "completed",
    "call_id": "call_b",
    "name": "exec",
    "input": "ls()",
}
OUTPUT = [THOUGHT, MESSAGE, READ, EXEC]


def begun(index, **item) -> dict:
    return {"type": "response.output_item.added", "output_index": index, "item": {**item, "status": "in_progress"}}


def done(index) -> dict:
    return {"type": "response.output_item.done", "output_index": index, "item": OUTPUT[index]}


def delta(kind, index, text) -> dict:
    return {"type": f"response.{kind}.delta", "output_index": index, "item_id": "x", "content_index": 0, "delta": text}


BEFORE_THE_END = (
    {"type": "response.created", "response": response("in_progress")},
    {"type": "response.in_progress", "response": response("in_progress")},
    begun(0, id="rs_1", type="reasoning", summary=[]),
    delta("reasoning_summary_text", 0, "Which?"),
    done(0),
    begun(1, id="msg_1", type="message", role="assistant", content=[]),
    {"type": "response.content_part.added", "output_index": 1, "part": {"type": "output_text", "text": ""}},
    delta("output_text", 1, TEXT[:7]),
    delta("output_text", 1, TEXT[7:]),
    {"type": "response.output_text.done", "output_index": 1, "text": TEXT},
    begun(2, id="fc_1", type="function_call", call_id="call_a", name="read", arguments=""),
    delta("function_call_arguments", 2, '{"path":'),
    delta("function_call_arguments", 2, ' "a"}'),
    {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": '{"path": "a"}'},
    begun(3, id="ctc_1", type="custom_tool_call", call_id="call_b", name="exec", input=""),
    delta("custom_tool_call_input", 3, "ls()"),
)
ENDED = {"type": "response.completed", "response": response("completed", OUTPUT, usage=USAGE, error=None)}
SAMPLE = stream(*BEFORE_THE_END, done(1), done(2), done(3), ENDED)
SAID = Answer(
    id="resp_1",
    model="gpt-5-2026",
    finish="completed",
    text=TEXT,
    calls=(ToolUse(0, "call_a", "read", '{"path": "a"}'), ToolUse(1, "call_b", "exec", "ls()")),
    usage=Usage(input=1200, cached=1024, written=64, output=80, reasoning=32, tells_cached=True),
    complete=True,
)


def read(*chunks: bytes) -> Answer:
    reader = responses.reader()
    for chunk in chunks:
        reader.feed(chunk)
    return reader.answer()


def test_a_request_shows_the_facts_that_steer():
    request = parsed(
        {"role": "user", "content": "hi"}, stream=True, tools=[{"type": "function"}], prompt_cache_key="key"
    )
    assert (request.dialect, request.model, request.stream, request.has_tools) == ("responses", "gpt-5", True, True)
    assert (request.items_key, request.system, request.server_state) == ("input", NOTHING, "")
    assert request.session_hints == (("prompt_cache_key", "key"),)


def test_an_input_that_is_plain_text_has_no_items():
    body = b'{"model": "gpt-5", "input": "hi"}'
    request = responses.parse(body)
    assert (list(request.items), request.build()) == ([], body)


@pytest.mark.parametrize("bad", [b'{"model": "m"}', b'{"input": null}', b'{"input": {}}', b'{"messages": []}'])
def test_a_body_without_input_is_not_understood(bad):
    with pytest.raises(NotUnderstood):
        responses.parse(bad)


def test_instructions_are_known_by_what_they_say():
    assert parsed(instructions="be kind").system != parsed(instructions="be brief").system
    assert parsed(instructions=None).system == parsed(instructions="").system == parsed().system == NOTHING


CARRIER = {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([{"role": "user", "content": "hi"}, CARRIER], True),
        ([{"role": "user", "content": 'about "additional_tools"'}], False),
        ([{"type": "function_call_output", "call_id": "additional_tools", "output": "x"}, CARRIER], True),
        ([{"type": "function_call_output", "call_id": "additional_tools", "output": "x"}], False),
        ([{**CARRIER, "tools": []}], False),
        ([{**CARRIER, "tools": []}, CARRIER], True),
        ([{"type": 5, "name": "additional_tools"}], False),
        ([], False),
    ],
)  # fmt: skip
def test_tools_are_found_among_the_items(items, expected):
    assert parsed(*items).has_tools is expected


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"previous_response_id": "resp_0"}, "previous_response_id"),
        ({"conversation": {"id": "conv_0"}}, "conversation"),
        ({"conversation": "conv_0"}, "conversation"),
        ({"previous_response_id": None, "conversation": None}, ""),
    ],
)
def test_state_that_the_provider_holds_is_named(fields, state):
    assert parsed({"role": "user", "content": "hi"}, **fields).server_state == state


def test_an_item_that_is_a_reference_is_state_that_the_provider_holds():
    reference = {"type": "item_reference", "id": "msg_0"}
    assert parsed(reference).server_state == "item_reference"
    assert parsed(reference, store=False).server_state == ""
    assert parsed({"role": "user", "content": "item_reference"}).server_state == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (MESSAGE, {"role": "assistant", "content": [{"type": "output_text", "text": TEXT}]}),
        (MESSAGE, {"role": "assistant", "content": TEXT}),
        (READ, {"type": "function_call", "call_id": "call_a", "name": "read", "arguments": '{"path":"a"}'}),
        (EXEC, {key: value for key, value in EXEC.items() if key not in ("id", "status")}),
        (EXEC, {**EXEC, "internal_chat_message_metadata_passthrough": {"turn_id": "t"}}),
        (THOUGHT, {**THOUGHT, "id": "rs_2", "content": None, "status": None}),
        (
            {"type": "function_call_output", "call_id": "c", "output": "r"},
            {
                "type": "function_call_output",
                "call_id": "c",
                "id": "fco_1",
                "output": [{"type": "input_text", "text": "r"}],
            },
        ),
    ],
)
def test_what_clients_change_without_meaning_is_the_same_item(one, other):
    assert norm(one) == norm(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (MESSAGE, {**MESSAGE, "role": "user"}),
        (READ, {**READ, "call_id": "call_c"}),
        (READ, {**READ, "namespace": "other"}),
        (EXEC, {**EXEC, "input": "ls( )"}),
        (THOUGHT, {**THOUGHT, "encrypted_content": "gBBB"}),
        ({"type": "item_reference", "id": "a"}, {"type": "item_reference", "id": "b"}),
        ({"id": "a"}, {"id": "b"}),
        ({"type": "compaction_trigger"}, {"type": "configuration_update"}),
    ],
)
def test_what_means_something_else_is_another_item(one, other):
    assert norm(one) != norm(other)


def test_a_reference_may_leave_out_its_type():
    assert norm({"id": "msg_0"}) == norm({"id": "msg_0", "type": "item_reference"})


@pytest.mark.parametrize(
    ("item", "role", "blocks"),
    [
        (MESSAGE, "assistant", (Block(Kind.TEXT, TEXT),)),
        (
            {"role": "user", "content": [{"type": "input_image"}, "text"]},
            "user",
            (Block(Kind.MEDIA), Block(Kind.TEXT, "text")),
        ),
        (READ, "assistant", (Block(Kind.CALL, '{"path": "a"}', "call_a", "read"),)),
        (EXEC, "assistant", (Block(Kind.CALL, "ls()", "call_b", "exec"),)),
        ({"type": "function_call_output", "call_id": "c", "output": "r"}, "tool", (Block(Kind.RESULT, "r", "c"),)),
        (
            {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "r"}]},
            "tool",
            (Block(Kind.RESULT, "r", "c"),),
        ),
        (THOUGHT, "assistant", (Block(Kind.REASONING, "Which?"),)),
        ({"type": "compaction_trigger"}, "compaction_trigger", (Block(Kind.OTHER, '{"type":"compaction_trigger"}'),)),
        (
            {"type": "local_shell_call_output", "call_id": "c"},
            "local_shell_call_output",
            (Block(Kind.OTHER, '{"type":"local_shell_call_output","call_id":"c"}', "c"),),
        ),
    ],
)
def test_an_item_is_read_into_blocks(item, role, blocks):
    message = decoded(item)
    assert (message.role, message.blocks) == (role, blocks)


def test_a_streamed_answer_is_read():
    assert read(SAMPLE) == SAID


def test_events_without_names_are_known_by_their_type():
    assert read(stream(*BEFORE_THE_END, ENDED, named=False)) == SAID


@given(st.lists(st.integers(0, len(SAMPLE)), max_size=20))
def test_any_split_of_the_stream_gives_the_same_answer(cuts):
    edges = sorted({0, len(SAMPLE), *cuts})
    assert read(*(SAMPLE[begin:end] for begin, end in pairwise(edges))) == SAID


def test_a_whole_answer_is_read_as_the_streamed_one():
    assert responses.read(json.dumps(response("completed", OUTPUT, usage=USAGE)).encode()) == SAID


@pytest.mark.parametrize(("details", "told"), [(None, False), ({}, False), ({"cached_tokens": 0}, True)])
def test_no_cached_tokens_and_no_word_of_them_are_told_apart(details, told):
    usage = {"input_tokens": 10, "output_tokens": 2, "input_tokens_details": details}
    answer = responses.read(json.dumps(response("completed", OUTPUT, usage=usage)).encode())
    assert answer.usage == Usage(input=10, output=2, tells_cached=told)


def test_an_end_that_repeats_no_output_keeps_what_was_streamed():
    end = {"type": "response.completed", "response": {"id": "resp_1", "usage": USAGE}}
    assert read(stream(*BEFORE_THE_END, end)) == SAID


def test_a_stream_that_breaks_off_is_incomplete():
    answer = read(stream(*BEFORE_THE_END))
    assert (answer.text, answer.calls) == (SAID.text, SAID.calls)
    assert (answer.complete, answer.finish, answer.usage) == (False, "", None)


def test_an_answer_cut_short_says_why():
    cut = response("incomplete", incomplete_details={"reason": "max_output_tokens"})
    answer = read(stream({"type": "response.incomplete", "response": cut}))
    assert (answer.finish, answer.complete) == ("max_output_tokens", True)


def test_a_failed_answer_says_why():
    failed = response("failed", error={"code": "server_error", "message": "sorry"})
    answer = read(stream({"type": "response.failed", "response": failed}))
    assert (answer.finish, answer.complete, answer.error) == ("failed", True, "server_error: sorry")


@pytest.mark.parametrize(
    "fields", [{"code": "busy", "message": "later"}, {"error": {"type": "busy", "message": "later"}}]
)
def test_an_error_inside_the_stream_is_kept(fields):
    answer = read(stream(BEFORE_THE_END[0], {"type": "error", **fields}))
    assert (answer.error, answer.complete) == ("busy: later", False)


def test_a_refusal_is_text():
    refused = {**MESSAGE, "content": [{"type": "refusal", "refusal": "No."}]}
    added = begun(0, **{**refused, "content": []})
    assert read(stream(added, delta("refusal", 0, "N"), delta("refusal", 0, "o."))).text == "No."
    assert responses.read(json.dumps(response("completed", [refused])).encode()).text == "No."


def test_unknown_and_broken_events_are_passed_over():
    answer = read(
        stream(
            {"type": "response.later_invention", "delta": "x"},
            {"type": "response.created", "response": response("queued")},
        ),
        b"event: response.output_text.delta\ndata: {broken\n\n: note\n\ndata: 7\n\n",
    )
    assert (answer.id, answer.text, answer.complete) == ("resp_1", "", False)


def test_a_background_answer_that_still_runs_is_incomplete():
    answer = responses.read(json.dumps(response("in_progress")).encode())
    assert (answer.complete, answer.finish) == (False, "")


@pytest.mark.parametrize("bad", [b"", b"[]", b'{"object": "list"}'])
def test_an_answer_of_another_kind_is_not_understood(bad):
    with pytest.raises(NotUnderstood):
        responses.read(bad)


def test_an_error_is_said_as_openai_says_it():
    error = {"message": "why", "type": "invalid_request_error", "param": None, "code": None}
    assert json.loads(responses.error(400, "why")) == {"error": error}
