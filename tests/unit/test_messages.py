"""The Anthropic Messages dialect."""

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

messages = load("messages")
NOTHING = sha256(b"").digest()
MARK = {"cache_control": {"type": "ephemeral"}}
SESSION = "0f3c2b1a-6d5e-4f70-8a9b-0c1d2e3f4a5b"


def body(**fields) -> bytes:
    return json.dumps(
        {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "hi"}], **fields}
    ).encode()


def decoded(role, content):
    return messages.decode(json.dumps({"role": role, "content": content}).encode())


def norm(role, content) -> bytes:
    return decoded(role, content).norm


def stream(*events) -> bytes:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def start(index, **block) -> dict:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, **fields) -> dict:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def stop(index) -> dict:
    return {"type": "content_block_stop", "index": index}


FIRST_COUNTS = {
    "input_tokens": 12, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 1000, "output_tokens": 1,
}  # fmt: skip
BEGUN = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
    "stop_reason": None, "stop_sequence": None,
    "usage": FIRST_COUNTS,
}  # fmt: skip
SAMPLE = stream(
    {"type": "message_start", "message": BEGUN},
    start(0, type="thinking", thinking="", signature=""),
    {"type": "ping"},
    delta(0, type="thinking_delta", thinking="Which file?"),
    delta(0, type="signature_delta", signature="EqQB"),
    stop(0),
    start(1, type="text", text=""),
    delta(1, type="text_delta", text="I look "),
    delta(1, type="text_delta", text="at both. \u00e9\U0001f600"),
    stop(1),
    start(2, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}),
    delta(2, type="input_json_delta", partial_json='{"query": "x"}'),
    stop(2),
    start(3, type="tool_use", id="toolu_a", name="read", input={}),
    delta(3, type="input_json_delta", partial_json=""),
    delta(3, type="input_json_delta", partial_json='{"path":'),
    delta(3, type="input_json_delta", partial_json=' "a.txt"}'),
    stop(3),
    start(4, type="tool_use", id="toolu_b", name="list", input={}),
    stop(4),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"input_tokens": None, "output_tokens": 80, "output_tokens_details": {"thinking_tokens": 32}},
    },
    {"type": "message_stop"},
)
SAID = Answer(
    id="msg_1",
    model="claude-sonnet-4-5",
    finish="tool_use",
    text="I look at both. \u00e9\U0001f600",
    calls=(ToolUse(0, "toolu_a", "read", '{"path": "a.txt"}'), ToolUse(1, "toolu_b", "list", "{}")),
    usage=Usage(input=1212, cached=1000, written=200, output=80, reasoning=32, tells_cached=True),
    complete=True,
)


def read(*chunks: bytes) -> Answer:
    reader = messages.reader()
    for chunk in chunks:
        reader.feed(chunk)
    return reader.answer()


def test_a_request_shows_the_facts_that_steer():
    request = messages.parse(body(stream=True, tools=[{"name": "read"}]))
    assert (request.dialect, request.model, request.stream) == ("messages", "claude-sonnet-4-5", True)
    assert (request.items_key, request.has_tools, request.server_state) == ("messages", True, "")


@pytest.mark.parametrize(
    ("metadata", "hints"),
    [
        ({"user_id": f"user_ab12_account_{SESSION[::-1]}_session_{SESSION}"}, (("metadata.user_id", SESSION),)),
        ({"user_id": json.dumps({"device_id": "d", "session_id": SESSION})}, (("metadata.user_id", SESSION),)),
        ({"user_id": "someone"}, ()),
        ({"user_id": "[1]", "session_id": "s"}, (("metadata.session_id", "s"),)),
        ({"user_id": 7}, ()),
        (None, ()),
    ],
)
def test_the_session_is_read_from_the_metadata(metadata, hints):
    assert messages.parse(body(metadata=metadata)).session_hints == hints


@pytest.mark.parametrize(("thread", "state"), [({"type": "create"}, "thread"), ({"id": "t"}, "thread"), (None, "")])
def test_a_thread_is_state_that_the_provider_holds(thread, state):
    assert messages.parse(body(thread=thread)).server_state == state


def test_the_system_prompt_is_known_by_what_it_says():
    def system(prompt):
        return messages.parse(body(system=prompt)).system

    assert system("be kind") == system([{"type": "text", "text": "be kind", **MARK}]) != NOTHING
    assert system("be kind") != system("be brief")
    assert system(None) == system("") == system([]) == messages.parse(body()).system == NOTHING


USE = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a", "n": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "r"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "sig"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("hi", [{"type": "text", "text": "hi"}]),
        ([{"type": "text", "text": "hi", **MARK}], [{"text": "hi", "type": "text", "citations": None}]),
        ([RESULT], [{**RESULT, **MARK}]),
        ([RESULT], [{**RESULT, "is_error": False}]),
        ([RESULT], [{**RESULT, "content": [{"type": "text", "text": "r", **MARK}]}]),
        ([{**RESULT, "content": ""}], [{"type": "tool_result", "tool_use_id": "t1"}]),
        ([USE], [{**USE, "input": {"n": 1.0, "path": "a"}, **MARK}]),
        ([THOUGHT, USE], [THOUGHT, {**USE, **MARK}]),
    ],
)
def test_what_clients_change_without_meaning_is_the_same_message(one, other):
    assert norm("user", one) == norm("user", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("hi", "ho"),
        ([RESULT], [{**RESULT, "is_error": True}]),
        ([RESULT], [{**RESULT, "content": "s"}]),
        ([RESULT], [RESULT, {"type": "text", "text": "and"}]),
        ([USE], [{**USE, "input": {"path": "a", "n": None}}]),
        ([THOUGHT], [{**THOUGHT, "thinking": "ha"}]),
        ([THOUGHT], [{**THOUGHT, "signature": "other"}]),
    ],
)
def test_what_means_something_else_is_another_message(one, other):
    assert norm("user", one) != norm("user", other)


def test_a_message_in_the_middle_keeps_its_role():
    assert norm("system", "note") == norm("system", [{"type": "text", "text": "note"}]) != norm("user", "note")


def test_a_message_is_read_into_blocks():
    image = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
    content = [
        THOUGHT,
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "text", "text": "so"},
        USE,
        {**RESULT, "is_error": True, "content": [{"type": "text", "text": "a"}, image, {"type": "text", "text": "b"}]},
        image,
        {"type": "tool_reference", "tool_name": "x"},
    ]
    message = decoded("user", content)
    assert message.call_ids == ("t1", "t1")
    assert message.blocks == (
        Block(Kind.REASONING, "hm"),
        Block(Kind.REASONING),
        Block(Kind.TEXT, "so"),
        Block(Kind.CALL, '{"path":"a","n":1}', "t1", "read"),
        Block(Kind.RESULT, "a\nb", "t1", is_error=True),
        Block(Kind.MEDIA),
        Block(Kind.MEDIA),
        Block(Kind.OTHER, '{"type":"tool_reference","tool_name":"x"}'),
    )


def test_plain_text_is_one_block():
    assert decoded("user", "hi").blocks == (Block(Kind.TEXT, "hi"),)
    assert decoded("user", "").blocks == ()


def test_a_streamed_answer_is_read():
    assert read(SAMPLE) == SAID


@given(st.lists(st.integers(0, len(SAMPLE)), max_size=20))
def test_any_split_of_the_stream_gives_the_same_answer(cuts):
    edges = sorted({0, len(SAMPLE), *cuts})
    assert read(*(SAMPLE[begin:end] for begin, end in pairwise(edges))) == SAID


def test_a_whole_answer_is_read_as_the_streamed_one():
    content = [
        THOUGHT,
        {"type": "text", "text": SAID.text},
        {"type": "tool_use", "id": "toolu_a", "name": "read", "input": {"path": "a.txt"}},
        {"type": "tool_use", "id": "toolu_b", "name": "list", "input": {}},
    ]
    usage = {**BEGUN["usage"], "output_tokens": 80, "output_tokens_details": {"thinking_tokens": 32}}
    answer = messages.read(
        json.dumps({**BEGUN, "content": content, "stop_reason": "tool_use", "usage": usage}).encode()
    )
    assert [json.loads(call.arguments) for call in answer.calls] == [{"path": "a.txt"}, {}]
    assert (answer.text, answer.usage, answer.finish) == (SAID.text, SAID.usage, SAID.finish)
    assert answer.complete


@pytest.mark.parametrize(("counts", "told"), [({}, False), ({"cache_read_input_tokens": 0}, True)])
def test_no_cached_tokens_and_no_word_of_them_are_told_apart(counts, told):
    begun = {**BEGUN, "usage": {"input_tokens": 10, "output_tokens": 2, **counts}}
    usage = read(stream({"type": "message_start", "message": begun})).usage
    assert usage == Usage(input=10, output=2, tells_cached=told)


def test_later_counts_correct_earlier_ones_field_by_field():
    corrected = {"input_tokens": 5, "cache_read_input_tokens": 1200, "output_tokens": 9}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": corrected}
    usage = read(stream({"type": "message_start", "message": BEGUN}, end)).usage
    assert usage == Usage(input=1405, cached=1200, written=200, output=9, tells_cached=True)


GRANTED = {**FIRST_COUNTS, "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 140}}


def test_written_tokens_are_told_apart_by_how_long_the_provider_keeps_them():
    told = Usage(input=1212, cached=1000, written=200, output=1, tells_cached=True, written_5m=60, written_1h=140)
    assert read(stream({"type": "message_start", "message": {**BEGUN, "usage": GRANTED}})).usage == told
    assert messages.read(json.dumps({**BEGUN, "usage": GRANTED}).encode()).usage == told


def test_a_later_grant_corrects_an_earlier_one():
    corrected = {
        "output_tokens": 9,
        "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 0},
    }
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": corrected}
    usage = read(stream({"type": "message_start", "message": {**BEGUN, "usage": GRANTED}}, end)).usage
    assert (usage.written, usage.written_5m, usage.written_1h) == (200, 200, 0)


@pytest.mark.parametrize("granted", [None, [], "1h", {}, {"ephemeral_1h_input_tokens": None}])
def test_a_grant_that_says_nothing_leaves_both_lifetimes_empty(granted):
    usage = read(
        stream({"type": "message_start", "message": {**BEGUN, "usage": {**FIRST_COUNTS, "cache_creation": granted}}})
    ).usage
    assert (usage.written, usage.written_5m, usage.written_1h) == (200, 0, 0)


def test_arguments_may_stand_in_the_start_of_a_block():
    answer = read(stream(start(0, type="tool_use", id="t", name="f", input={"a": 1})))
    assert answer.calls == (ToolUse(0, "t", "f", '{"a":1}'),)


def test_a_stream_that_breaks_off_is_incomplete():
    answer = read(SAMPLE[: SAMPLE.index(b"event: message_delta")])
    assert not answer.complete
    assert (answer.text, answer.calls, answer.finish) == (SAID.text, SAID.calls, "")


def test_an_error_inside_the_stream_is_kept():
    failed = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    answer = read(stream({"type": "message_start", "message": BEGUN}, failed))
    assert (answer.error, answer.complete, answer.id) == ("overloaded_error: Overloaded", False, "msg_1")


def test_unknown_and_broken_events_are_passed_over():
    answer = read(
        stream({"type": "message_start", "message": BEGUN}, {"type": "later_invention", "x": 1}),
        b"event: content_block_delta\ndata: {broken\n\n: note\n\n",
        stream(delta(9, type="text_delta", text="to a block that never began"), delta(0, type="odd")),
    )
    assert (answer.id, answer.text, answer.error) == ("msg_1", "", "")


@pytest.mark.parametrize("bad", [b"", b"[]", b'{"input_tokens": 12}'])
def test_an_answer_of_another_kind_is_not_understood(bad):
    with pytest.raises(NotUnderstood):
        messages.read(bad)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (418, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_an_error_is_said_as_anthropic_says_it(status, kind):
    assert json.loads(messages.error(status, "why")) == {"type": "error", "error": {"type": kind, "message": "why"}}
