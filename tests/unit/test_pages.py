"""What an item of a prompt holds that paging cares for, in every wire format."""

import json
from hashlib import sha256

import pytest

from pager.paging.pages.page import (
    SMALLEST,
    SMALLEST_ARGUMENT,
    Contents,
    Found,
    Made,
    contents,
)
from pager.paging.pages.stub import handle_of
from pager.wire.dialects import load

LARGE, LARGE_ARGUMENT = "x" * SMALLEST, "y" * SMALLEST_ARGUMENT


def read(name, item):
    raw = item if isinstance(item, bytes) else json.dumps(item).encode()
    dialect = load(name)
    return contents(dialect.decode(raw), dialect.page_spans(raw))


def found(text, key, kind, call_id, *, is_error=False):
    content = text.encode()
    handle, digest = handle_of(content), sha256(content).digest()
    return Found(key, kind, handle, digest, len(content), call_id, text, is_error)


def result(name, content, call_id="c1"):
    """A tool's result in a wire format."""
    return {
        "chat": {"role": "tool", "tool_call_id": call_id, "content": content},
        "messages": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": content}]},
        "responses": {"type": "function_call_output", "call_id": call_id, "output": content},
    }[name]


def call(name, call_id="c1", **arguments):
    """A call of the tool write in a wire format."""
    encoded = json.dumps(arguments)
    return {
        "chat": {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": {"name": "write", "arguments": encoded}}],
        },
        "messages": {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": call_id, "name": "write", "input": arguments}],
        },
        "responses": {"type": "function_call", "call_id": call_id, "name": "write", "arguments": encoded},
    }[name]


def part(name, text):
    return {"type": "input_text" if name == "responses" else "text", "text": text}


every_format = pytest.mark.parametrize("name", ["chat", "messages", "responses"])


@every_format
def test_a_large_result_is_a_page(name):
    assert read(name, result(name, LARGE)) == Contents((found(LARGE, "c1", "result", "c1"),), (), (("c1", False),))


@every_format
def test_a_result_of_several_texts_is_one_page(name):
    half = "x" * (SMALLEST // 2)
    seen = read(name, result(name, [part(name, half), part(name, half)]))
    assert seen.pages == (found(f"{half}\n{half}", "c1", "result", "c1"),)


@every_format
def test_a_result_below_the_smallest_page_is_none(name):
    assert read(name, result(name, LARGE[1:])) == Contents(results=(("c1", False),))
    assert read(name, result(name, "")).pages == ()


@every_format
def test_sizes_are_counted_in_bytes_not_in_characters(name):
    assert [page.size for page in read(name, result(name, "\N{SNOWMAN}" * 167)).pages] == [501]
    assert read(name, result(name, "\N{SNOWMAN}" * 166)).pages == ()
    assert [page.size for page in read(name, result(name, "\U0001f600" * 125)).pages] == [500]


@every_format
def test_a_large_argument_is_a_page_and_the_other_arguments_are_none(name):
    seen = read(name, call(name, path="a.py", content=LARGE_ARGUMENT, mode=LARGE))
    assert seen.pages == (found(LARGE_ARGUMENT, "c1.content", "argument", "c1"),)
    (made,) = seen.calls
    assert (made.call_id, made.tool, json.loads(made.arguments)["path"]) == ("c1", "write", "a.py")


@every_format
def test_an_argument_that_is_no_text_is_a_page_of_its_json(name):
    edits = [{"old": "a" * 400, "new": "b" * 400}, {"old": "c" * 400, "new": "d" * 400}]
    compact = json.dumps(edits, separators=(",", ":"))
    assert read(name, call(name, edits=edits)).pages == (found(compact, "c1.edits", "argument", "c1"),)


@every_format
def test_an_argument_below_the_smallest_page_is_none(name):
    seen = read(name, call(name, content=LARGE_ARGUMENT[1:]))
    assert seen.pages == ()
    assert [made.call_id for made in seen.calls] == ["c1"]


@every_format
def test_what_belongs_to_no_call_is_no_page(name):
    assert read(name, result(name, LARGE, call_id="")).pages == ()
    assert read(name, call(name, call_id="", content=LARGE_ARGUMENT)).pages == ()


@every_format
def test_what_users_and_models_say_is_no_page(name):
    said = {"role": "user", "content": "z" * 5000}
    assert read(name, said) == Contents()
    assert read(name, {**said, "role": "assistant"}) == Contents(said="z" * 5000)


@every_format
def test_an_item_that_can_not_be_read_holds_nothing(name):
    assert read(name, b"[1, 2]") == Contents(markable=False)
    assert read(name, b'"text"') == Contents(markable=False)


def test_results_with_pictures_are_no_pages():
    picture = {"type": "image", "source": {"type": "base64", "data": "x" * 2000}}
    seen = read("messages", result("messages", [part("messages", LARGE), picture]))
    assert seen == Contents(results=(("c1", False),), positions=2)


def test_parallel_results_in_one_message_are_pages_of_their_own_and_errors_are_known():
    other = "z" * 800
    blocks = [
        {"type": "tool_result", "tool_use_id": "c1", "content": LARGE},
        {"type": "tool_result", "tool_use_id": "c2", "content": other, "is_error": True},
        {"type": "tool_result", "tool_use_id": "c3", "content": "ok"},
    ]
    assert read("messages", {"role": "user", "content": blocks}) == Contents(
        (found(LARGE, "c1", "result", "c1"), found(other, "c2", "result", "c2", is_error=True)),
        (),
        (("c1", False), ("c2", True), ("c3", False)),
    )


def test_what_a_model_says_is_its_text_and_what_it_writes_into_calls():
    blocks = [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "I write it."},
        {"type": "tool_use", "id": "c1", "name": "write", "input": {"path": "a.py", "content": "one\ntwo"}},
    ]
    assert read("messages", {"role": "assistant", "content": blocks}) == Contents(
        (),
        (Made("c1", "write", '{"path":"a.py","content":"one\\ntwo"}'),),
        (),
        "I write it.\na.py\none\ntwo",
        reasoning=True,
        positions=3,
    )


def test_thinking_and_empty_texts_can_carry_no_mark():
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    blank, text = {"type": "text", "text": " "}, {"type": "text", "text": "Yes."}
    for blocks, can in (([thinking], False), ([thinking, blank], False), ([text, thinking], True)):
        assert read("messages", {"role": "assistant", "content": blocks}).markable is can


@pytest.mark.parametrize(
    ("name", "item"),
    [
        ("chat", {"role": "assistant", "content": "So.", "reasoning_content": "Hm."}),
        ("messages", {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}),
        ("responses", {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}),
    ],
)
def test_reasoning_is_known(name, item):
    assert read(name, item).reasoning


def test_half_an_emoji_in_encoded_arguments_is_no_reason_to_fail():
    arguments = '{"content": "' + "y" * 2000 + '\\ud83d"}'
    said = {"id": "c1", "type": "function", "function": {"name": "write", "arguments": arguments}}
    seen = read("chat", {"role": "assistant", "content": None, "tool_calls": [said]})
    assert [page.key for page in seen.pages] == ["c1.content"]


def test_free_text_of_a_custom_tool_is_no_page_but_its_result_is():
    asked = {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": LARGE_ARGUMENT}
    seen = read("responses", asked)
    assert (seen.pages, seen.calls) == ((), (Made("c1", "patch", LARGE_ARGUMENT),))
    answered = {"type": "custom_tool_call_output", "call_id": "c1", "output": LARGE}
    assert read("responses", answered).pages == (found(LARGE, "c1", "result", "c1"),)
