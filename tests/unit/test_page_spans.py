"""Stubs are put where pages stand, and nothing else in a message changes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.errors import NotUnderstood
from pager.request_values import Kind
from pager.wire import dialects
from pager.wire.byte_edits import find
from pager.wire.page_spans import stubbed

STUB = "[pg_0123456789abcdef: a stub]"
text = st.text(max_size=30)
value = st.recursive(st.none() | st.integers() | text, lambda inner: st.lists(inner, max_size=2), max_leaves=4)
arguments = st.dictionaries(st.text(max_size=6), value, max_size=4)
mark = st.sampled_from([{}, {"cache_control": {"type": "ephemeral"}}])
shape = st.sampled_from([None, 0, 2])


def text_parts(kind):
    return st.lists(
        st.builds(lambda said, marked: {"type": kind, "text": said, **marked}, text, mark), min_size=1, max_size=3
    )


chat = st.one_of(
    st.builds(
        lambda content, more: {"role": "tool", "tool_call_id": "c0", "content": content, **more},
        st.one_of(text, text_parts("text")),
        st.sampled_from([{}, {"name": "run"}, {"unknown": [1.50, "x"]}]),
    ),
    st.builds(
        lambda said, calls: {
            "role": "assistant",
            "content": said,
            "tool_calls": [
                {"id": f"c{at}", "type": "function", "function": {"name": "run", "arguments": json.dumps(one)}}
                for at, one in enumerate(calls)
            ],
        },
        st.none() | text,
        st.lists(arguments, max_size=3),
    ),
)
messages = st.builds(
    lambda blocks: {"role": "user", "content": blocks},
    st.lists(
        st.one_of(
            st.builds(
                lambda content, marked, failed: {
                    "type": "tool_result", "tool_use_id": "?", "content": content, **failed, **marked,
                },
                st.one_of(text, text_parts("text")),
                mark,
                st.sampled_from([{}, {"is_error": True}]),
            ),
            st.builds(lambda given: {"type": "tool_use", "id": "?", "name": "run", "input": given}, arguments),
            st.builds(lambda said: {"type": "thinking", "thinking": said, "signature": "s"}, text),
        ),
        max_size=4,
    ),
)  # fmt: skip
responses = st.one_of(
    st.builds(
        lambda kind, output: {"type": kind, "call_id": "c0", "output": output},
        st.sampled_from(["function_call_output", "custom_tool_call_output"]),
        st.one_of(text, text_parts("input_text")),
    ),
    st.builds(
        lambda given: {"type": "function_call", "call_id": "c0", "name": "run", "arguments": json.dumps(given)},
        arguments,
    ),
    st.builds(lambda said: {"type": "reasoning", "encrypted_content": said, "summary": []}, text),
)
MESSAGES = {"chat": chat, "messages": messages, "responses": responses}


def with_own_ids(message):
    """Every call and result in a message has an id of its own."""
    for at, block in enumerate(message["content"] if isinstance(message.get("content"), list) else []):
        for name in ("id", "tool_use_id"):
            if name in block:
                block[name] = f"c{at}"
    return message


@pytest.mark.parametrize("name", MESSAGES)
@given(data=st.data())
def test_only_the_chosen_values_change_and_they_become_the_stub(name, data):
    dialect = dialects.load(name)
    message = with_own_ids(data.draw(MESSAGES[name]))
    raw = json.dumps(message, indent=data.draw(shape)).encode()
    page_spans = dialect.page_spans(raw)
    chosen = (
        data.draw(st.lists(st.sampled_from(page_spans), unique_by=lambda page_span: page_span.key))
        if page_spans
        else []
    )
    stubs = {page_span.key: f"{STUB} {at}" for at, page_span in enumerate(chosen)}
    done = stubbed(raw, page_spans, stubs)
    again = dialect.page_spans(done)
    assert [(page_span.key, page_span.kind, page_span.tool, page_span.is_error) for page_span in again] == [
        (page_span.key, page_span.kind, page_span.tool, page_span.is_error) for page_span in page_spans
    ]
    assert [page_span.text for page_span in again] == [
        stubs.get(page_span.key, page_span.text) for page_span in page_spans
    ]
    assert untouched(name, json.loads(done)) == untouched(name, message)
    if not stubs:
        assert done == raw


def untouched(name, message):
    """The message without what may be a page: ids, order, marks, errors and everything else must stay."""
    bare = json.loads(json.dumps(message))
    if name == "messages":
        for block in bare["content"]:
            for key in ("content", "input"):
                block.pop(key, None) if block["type"] in ("tool_result", "tool_use") else None
    elif bare.get("role") == "tool":
        del bare["content"]
    for call in bare.get("tool_calls", ()):
        del call["function"]["arguments"]
    for key in ("output", "arguments"):
        bare.pop(key, None)
    return bare


def test_a_cache_mark_on_a_replaced_part_stays():
    raw = b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"a"},\
{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}],"is_error":true}]}'
    dialect = dialects.load("messages")
    (part,) = json.loads(stubbed(raw, dialect.page_spans(raw), {"c": STUB}))["content"][0]["content"]
    assert part == {"type": "text", "text": STUB, "cache_control": {"type": "ephemeral"}}


def test_a_result_with_an_image_is_no_page():
    parts = [{"type": "text", "text": "a"}, {"type": "image", "source": {}}]
    raw = json.dumps(
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": parts}]}
    ).encode()
    assert dialects.load("messages").page_spans(raw) == []


def test_other_arguments_keep_their_own_text():
    given = b'"{ \\"n\\": 1.50,\\"content\\":\\"long\\" }"'
    raw = b'{"type":"function_call","call_id":"c","name":"write","arguments":%b}' % given
    dialect = dialects.load("responses")
    done = stubbed(raw, dialect.page_spans(raw), {"c.content": STUB})
    assert json.loads(done)["arguments"] == f'{{ "n": 1.50,"content":"{STUB}" }}'


def test_arguments_that_are_no_object_hold_no_site():
    for broken in ("", "[1]", "{", '{"a": 1, "a": 2}'):
        raw = json.dumps({"type": "function_call", "call_id": "c", "name": "x", "arguments": broken}).encode()
        assert dialects.load("responses").page_spans(raw) == []


def test_half_an_emoji_makes_a_message_that_is_left_alone():
    raw = b'{"role":"tool","tool_call_id":"c","content":"\\ud83d cut"}'
    assert dialects.load("chat").page_spans(raw) == []


def test_a_path_that_leads_nowhere_is_told():
    with pytest.raises(NotUnderstood, match="no 'b'"):
        find(b'{"a": [1]}', ("b",))
    with pytest.raises(NotUnderstood, match="element 3"):
        find(b'{"a": [1]}', ("a", 3))


def test_what_is_a_site_is_a_call_or_a_result():
    raw = b'{"role":"tool","tool_call_id":"c","content":"x"}'
    (page_span,) = dialects.load("chat").page_spans(raw)
    assert (page_span.kind, page_span.text, page_span.call_id) == (Kind.RESULT, "x", "c")
