"""The Chat Completions dialect."""

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

chat = load("chat")
NOTHING = sha256(b"").digest()


def body(**fields) -> bytes:
    return json.dumps({"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()


def norm(message) -> bytes:
    return chat.decode(json.dumps(message).encode()).norm


def stream(*chunks) -> bytes:
    said = [json.dumps(chunk) if isinstance(chunk, dict) else chunk for chunk in chunks]
    return "".join(f"data: {text}\n\n" for text in said).encode()


def chunk(delta=None, finish=None, **fields) -> dict:
    choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}] if delta is not None else []
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1794785168, "model": "gpt-5-2026"}
    return {**frame, "choices": choices, "usage": None, **fields}


def call_delta(index, arguments, call_id=None, name=None) -> dict:
    first = {"id": call_id, "type": "function"} if call_id else {}
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    return {"tool_calls": [{"index": index, **first, "function": function}]}


USAGE = {
    "prompt_tokens": 1200, "completion_tokens": 80, "total_tokens": 1280,
    "prompt_tokens_details": {"cached_tokens": 1024, "cache_write_tokens": 64, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 32, "audio_tokens": 0},
}  # fmt: skip
SAMPLE = stream(
    chunk({"role": "assistant", "content": "", "refusal": None}),
    chunk({"reasoning_content": "Which file?"}),
    chunk({"content": "I look "}),
    chunk({"content": "at both. \u00e9\U0001f600"}),
    chunk(call_delta(0, "", "call_a", "read")),
    chunk(call_delta(0, '{"path":')),
    chunk(call_delta(0, ' "a.txt"}')),
    chunk(call_delta(1, "", "call_b", "shell")),
    chunk(call_delta(1, '{"cmd": "ls"}')),
    chunk({}, "tool_calls"),
    chunk(usage=USAGE),
    "[DONE]",
)
SAID = Answer(
    id="chatcmpl-1",
    model="gpt-5-2026",
    finish="tool_calls",
    text="I look at both. \u00e9\U0001f600",
    calls=(ToolUse(0, "call_a", "read", '{"path": "a.txt"}'), ToolUse(1, "call_b", "shell", '{"cmd": "ls"}')),
    usage=Usage(input=1200, cached=1024, written=64, output=80, reasoning=32, tells_cached=True),
    complete=True,
)


def read(*chunks: bytes) -> Answer:
    reader = chat.reader()
    for piece in chunks:
        reader.feed(piece)
    return reader.answer()


def test_a_request_shows_the_facts_that_steer():
    request = chat.parse(
        body(stream=True, tools=[{"type": "function"}], prompt_cache_key="key", metadata={"session_id": "s"})
    )
    assert (request.dialect, request.model, request.stream, request.has_tools) == ("chat", "gpt-5", True, True)
    assert (request.items_key, request.system, request.server_state) == ("messages", NOTHING, "")
    assert request.session_hints == (("metadata.session_id", "s"), ("prompt_cache_key", "key"))


def test_facts_of_the_wrong_type_are_left_out():
    request = chat.parse(body(model=5, stream="yes", tools=[], prompt_cache_key=None, metadata=["x"]))
    assert (request.model, request.stream, request.has_tools, request.session_hints) == ("", False, False, ())


@pytest.mark.parametrize(
    ("fields", "expected"), [({"functions": [{"name": "f"}]}, True), ({"tools": None}, False), ({}, False)]
)
def test_tools_are_found_in_every_carrier(fields, expected):
    assert chat.parse(body(**fields)).has_tools is expected


@pytest.mark.parametrize("bad", [b'{"model": "m"}', b'{"messages": "hi"}', b'{"messages": null}', b"[]", b"hello"])
def test_a_body_without_messages_is_not_understood(bad):
    with pytest.raises(NotUnderstood):
        chat.parse(bad)


CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a", "n": 1}'}}
ASKED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
MARK = {"cache_control": {"type": "ephemeral"}}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "r"}


def asking(arguments: str) -> dict:
    return {**ASKED, "tool_calls": [{**CALL, "function": {"name": "read", "arguments": arguments}}]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "hi"}, {"content": [{"type": "text", "text": "hi"}], "role": "user"}),
        (ASKED, {**ASKED, "content": ""}),
        (ASKED, {**ASKED, "content": []}),
        (ASKED, {key: value for key, value in ASKED.items() if key != "content"}),
        (ASKED, {**ASKED, "refusal": None, "annotations": [], "audio": None, "function_call": None, "parsed": None}),
        (ASKED, {**ASKED, "provider_specific_fields": {"refusal": None}, **MARK}),
        (ASKED, {**ASKED, "tool_calls": [{**CALL, "index": 0}]}),
        (ASKED, {**ASKED, "tool_calls": [{**CALL, "function": {**CALL["function"], "parsed_arguments": None}}]}),
        (ASKED, asking('{"n":1.0,"path":"\\u0061"}')),
        ({"role": "assistant", "content": "x"}, {"role": "assistant", "content": "x", "tool_calls": [], "name": ""}),
        (RESULT, {**RESULT, "content": [{"type": "text", "text": "r"}]}),
        ({"role": "user", "content": [{"type": "text", "text": "a", **MARK}]}, {"role": "user", "content": "a"}),
    ],
)
def test_what_clients_change_without_meaning_is_the_same_message(one, other):
    assert norm(one) == norm(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "hi"}, {"role": "system", "content": "hi"}),
        ({"role": "user", "content": "hi"}, {"role": "user", "content": "hi "}),
        ({"role": "user", "content": "hi"}, {"role": "user", "name": "bob", "content": "hi"}),
        (RESULT, {**RESULT, "tool_call_id": "d"}),
        (ASKED, {**ASKED, "tool_calls": [{**CALL, "id": "c2"}]}),
        (ASKED, {**ASKED, "tool_calls": [CALL, CALL]}),
        (ASKED, asking('{"path": "b", "n": 1}')),
        (ASKED, {**ASKED, "reasoning_content": "because"}),
        (ASKED, {**ASKED, "refusal": "no"}),
    ],
)
def test_what_means_something_else_is_another_message(one, other):
    assert norm(one) != norm(other)


def test_large_numbers_are_compared_as_javascript_writes_them():
    def said(arguments):
        return norm(asking(arguments))

    assert said('{"id": 9007199254740993}') == said('{"id": 9007199254740992}')
    assert said('{"id": 1e2, "z": -0.0}') == said('{"z": 0, "id": 100}')
    assert said('{"id": 1.5}') != said('{"id": 1}')
    assert said('{"id": true}') != said('{"id": 1}')


def test_a_message_is_read_into_blocks():
    message = chat.decode(
        json.dumps(
            {
                "role": "assistant",
                "reasoning_content": "hm",
                "content": [
                    {"type": "text", "text": "so"},
                    {"type": "refusal", "refusal": "no"},
                    {"type": "odd", "x": 1},
                ],
                "refusal": "never",
                "tool_calls": [CALL, {"id": "c2", "type": "custom", "custom": {"name": "js", "input": "1+1"}}],
                "function_call": {"name": "old", "arguments": "{}"},
            }
        ).encode()
    )
    assert message.role == "assistant"
    assert message.call_ids == ("c1", "c2")
    assert message.blocks == (
        Block(Kind.REASONING, "hm"),
        Block(Kind.TEXT, "so"),
        Block(Kind.TEXT, "no"),
        Block(Kind.OTHER, '{"type":"odd","x":1}'),
        Block(Kind.TEXT, "never"),
        Block(Kind.CALL, '{"path": "a", "n": 1}', "c1", "read"),
        Block(Kind.CALL, "1+1", "c2", "js"),
        Block(Kind.CALL, "{}", name="old"),
    )


def test_a_tool_message_is_a_result_with_its_media_apart():
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"type": "text", "text": "b"},
    ]
    message = chat.decode(json.dumps({"role": "tool", "tool_call_id": "c", "name": "see", "content": parts}).encode())
    assert message.blocks == (Block(Kind.RESULT, "a\nb", "c", "see"), Block(Kind.MEDIA))


def test_half_an_emoji_is_read_as_a_replacement():
    message = chat.decode(b'{"role": "user", "content": "\\ud83d and \\ud83d\\ude00"}')
    assert message.blocks == (Block(Kind.TEXT, "\ufffd and \U0001f600"),)


def test_a_streamed_answer_is_read():
    assert read(SAMPLE) == SAID


@given(st.lists(st.integers(0, len(SAMPLE)), max_size=20))
def test_any_split_of_the_stream_gives_the_same_answer(cuts):
    edges = sorted({0, len(SAMPLE), *cuts})
    assert read(*(SAMPLE[start:end] for start, end in pairwise(edges))) == SAID


def test_a_whole_answer_is_read_as_the_streamed_one():
    calls = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in SAID.calls
    ]
    message = {"role": "assistant", "content": SAID.text, "refusal": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
    whole = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-5-2026",
        "choices": [choice],
        "usage": USAGE,
    }
    assert chat.read(json.dumps(whole).encode()) == SAID


def test_a_stream_that_breaks_off_is_incomplete():
    cut = SAMPLE[: SAMPLE.index(b'"finish_reason": "tool_calls"')]
    answer = read(cut)
    assert not answer.complete
    assert answer.calls == SAID.calls
    assert (answer.finish, answer.usage) == ("", None)


@pytest.mark.parametrize("ending", [stream(chunk({}, "stop")), stream("[DONE]")])
def test_a_finish_reason_or_done_completes_the_answer(ending):
    assert read(stream(chunk({"content": "a"})), ending).complete


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ({"message": "too busy", "type": "server_error", "code": None}, "server_error: too busy"),
        ({"message": "too busy", "code": 502}, "too busy"),
        ("plain", "plain"),
        ({"odd": 1}, '{"odd":1}'),
    ],
)
def test_an_error_inside_the_stream_is_kept(error, told):
    answer = read(stream(chunk({"content": "a"}), {"error": error}))
    assert (answer.error, answer.text, answer.complete) == (told, "a", False)


def test_calls_without_numbers_are_told_apart_by_name():
    def part(**fields):
        return chunk({"tool_calls": [fields]})

    answer = read(
        stream(
            part(id="a", function={"name": "f", "arguments": "{"}),
            part(function={"arguments": "}"}),
            part(id="b", function={"name": "g", "arguments": {"x": 1}}),
        )
    )
    assert answer.calls == (ToolUse(0, "a", "f", "{}"), ToolUse(1, "b", "g", '{"x":1}'))


def test_calls_that_all_have_number_zero_are_told_apart_by_id():
    answer = read(stream(chunk(call_delta(0, "{}", "a", "f")), chunk(call_delta(0, "{}", "b", "f"))))
    assert [call.call_id for call in answer.calls] == ["a", "b"]


def test_a_provider_that_repeats_id_and_name_makes_one_call():
    answer = read(stream(chunk(call_delta(0, "{", "a", "f")), chunk(call_delta(0, "}", "a", "f"))))
    assert answer.calls == (ToolUse(0, "a", "f", "{}"),)


def test_text_is_that_of_the_first_choice():
    second = {"index": 1, "delta": {"content": "B"}, "finish_reason": "length"}
    answer = read(stream(chunk({"content": "A"}, "stop"), chunk(choices=[second])))
    assert (answer.text, answer.finish) == ("A", "stop")


def test_other_providers_names_for_cached_tokens_are_known():
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 8}
    assert read(stream(chunk(usage=usage))).usage == Usage(input=10, cached=8, output=2, tells_cached=True)


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ({}, False),
        ({"prompt_tokens_details": None}, False),
        ({"prompt_tokens_details": {"cached_tokens": None}}, False),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, True),
        ({"prompt_cache_hit_tokens": 0}, True),
    ],
)
def test_no_cached_tokens_and_no_word_of_them_are_told_apart(usage, told):
    usage = {"prompt_tokens": 10, "completion_tokens": 2, **usage}
    assert read(stream(chunk(usage=usage))).usage == Usage(input=10, output=2, tells_cached=told)


def test_broken_events_are_passed_over():
    answer = read(
        b'data: {"choices": [\n\n', b"data: \xff\n\n", b": ping\n\n", b"data: [1]\n\n", stream(chunk({"content": "a"}))
    )
    assert answer.text == "a"


@pytest.mark.parametrize("bad", [b"", b"[]", b"<html>", b'{"object": "list"}'])
def test_an_answer_of_another_kind_is_not_understood(bad):
    with pytest.raises(NotUnderstood):
        chat.read(bad)


def test_an_error_in_place_of_an_answer_is_told():
    answer = chat.read(b'{"error": {"message": "no", "type": "invalid_request_error"}}')
    assert (answer.error, answer.complete) == ("invalid_request_error: no", False)


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", None),
        (401, "authentication_error", "invalid_api_key"),
        (403, "permission_error", None),
        (404, "not_found_error", None),
        (413, "invalid_request_error", "request_too_large"),
        (429, "rate_limit_error", "rate_limit_exceeded"),
        (502, "server_error", None),
    ],
)
def test_an_error_is_said_as_openai_says_it(status, kind, code):
    assert json.loads(chat.error(status, "why")) == {
        "error": {"message": "why", "type": kind, "param": None, "code": code}
    }
