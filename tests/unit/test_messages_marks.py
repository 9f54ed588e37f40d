"""Where an Anthropic Messages request takes one more tool, and the marks that end what the provider caches."""

import gzip
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages_blocks import text
from recordings import REQUESTS

from pager.paging.page_in import definition
from pager.wire.byte_edits import apply_edits
from pager.wire.dialects import load
from pager.wire.stitching import ToolSlot

messages = load("messages")
ENTRY = definition("messages", "page_in")
MARK = {"type": "ephemeral"}
WRITTEN = b',"cache_control":{"type":"ephemeral"}'
READ = {"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}
LIST = {**READ, "name": "list"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
BASH = {"type": "bash_20250124", "name": "bash"}


def body(layout=None, **fields) -> bytes:
    members = {"model": "claude-x", "messages": [{"role": "user", "content": "hi"}], **fields}
    return json.dumps(members, **(layout or {})).encode()


def tool_slot(**fields):
    return messages.tool_slot(messages.parse(body(**fields)))


def with_tool(request):
    """The body with the tool added, and the place that was given."""
    place = messages.tool_slot(request)
    assert isinstance(place, ToolSlot), place
    before, after = request.body[: place.at], request.body[place.at :]
    return before + place.before + ENTRY + place.after + after


def tools_after(**fields):
    added = with_tool(messages.parse(body(**fields)))
    return [tool.get("name") for tool in orjson.loads(added)["tools"]]


# ---------------------------------------------------------------- the tool_slot


def test_the_tool_goes_to_the_end_of_the_tools():
    assert tools_after(tools=[READ, LIST, SEARCH]) == ["read", "list", "web_search", "page_in"]
    assert tool_slot(tools=[READ, LIST, SEARCH]).names == {"read", "list", "web_search"}


@pytest.mark.parametrize("trait", [{"cache_control": MARK}, {"defer_loading": True}])
def test_the_tool_goes_before_a_marked_or_deferred_one(trait):
    assert tools_after(tools=[READ, {**LIST, **trait}, SEARCH]) == ["read", "page_in", "list", "web_search"]
    assert tools_after(tools=[{**READ, **trait}]) == ["page_in", "read"]


def test_traits_that_say_nothing_do_not_move_the_tool():
    plain = {**READ, "type": "custom", "cache_control": None, "defer_loading": False}
    assert tools_after(tools=[plain]) == ["read", "page_in"]


@pytest.mark.parametrize("choice", [{}, {"tool_choice": None}, {"tool_choice": {"type": "auto"}}])
def test_a_model_that_may_choose_gets_the_tool(choice):
    assert tools_after(tools=[READ], **choice) == ["read", "page_in"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "the request offers no tools"),
        ({"tools": None}, "the request offers no tools"),
        ({"tools": []}, "the request offers no tools"),
        ({"tools": [READ], "tool_choice": {"type": "any"}}, "tool_choice is any"),
        ({"tools": [READ], "tool_choice": {"type": "tool", "name": "read"}}, "tool_choice is tool"),
        ({"tools": [READ], "tool_choice": {"type": "none"}}, "tool_choice is none"),
        ({"tools": [READ], "tool_choice": "auto"}, "tool_choice is not understood"),
        ({"tools": [SEARCH, BASH]}, "no tool is of the client's own making"),
        ({"tools": ["read"]}, "no tool is of the client's own making"),
        ({"tools": {"read": READ}}, "the tools can't be read"),
        ({"tools": [READ], "thread": {"id": "t"}}, "the provider holds part of the prompt (thread)"),
    ],
)
def test_a_request_that_cant_carry_the_tool_says_why(fields, reason):
    assert tool_slot(**fields) == reason


names = st.text("abé", min_size=1, max_size=4)
tools = st.lists(
    st.fixed_dictionaries(
        {"name": names, "input_schema": st.just({"type": "object"})},
        optional={
            "type": st.sampled_from(["custom", "bash_20250124", None]),
            "cache_control": st.sampled_from([MARK, None]),
            "defer_loading": st.booleans(),
        },
    ),
    min_size=1,
    max_size=4,
)
layouts = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"separators": (" ,\n", " : ")}])


@given(tools, layouts, st.text(max_size=5))
def test_adding_the_tool_changes_no_other_byte(listed, layout, system):
    request = messages.parse(body(layout, system=system, tools=listed))
    place = messages.tool_slot(request)
    if isinstance(place, str):
        assert not any(tool.get("type") in (None, "custom") for tool in listed)
        return
    added = with_tool(request)
    assert added.replace(place.before + ENTRY + place.after, b"", 1) == request.body
    offered = orjson.loads(added)["tools"]
    at = offered.index(orjson.loads(ENTRY))
    assert offered[:at] + offered[at + 1 :] == listed
    assert not any(tool.get("cache_control") or tool.get("defer_loading") for tool in offered[:at])
    assert place.names == {tool["name"] for tool in listed}


# ---------------------------------------------------------------- marks on messages


def marked(content):
    """The content after marking, or None."""
    raw = messages.mark(json.dumps({"role": "user", "content": content}).encode())
    return None if raw is None else orjson.loads(raw)["content"]


THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}
REDACTED = {"type": "redacted_thinking", "data": "Emw"}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "text"}


def test_a_string_becomes_one_marked_text():
    said = b'"Caf\\u00e9 \xe2\x98\x94"'
    block = b'[{"type":"text","text":%b,"cache_control":{"type":"ephemeral"}}]' % said
    raw = b'{"content" : %b , "role":"user"}'
    assert messages.mark(raw % said) == raw % block


def test_the_last_block_is_marked_and_nothing_else_changes():
    raw = b'{"role":"user", "content": [ {"type":"text","text":"a"}, {"type": "tool_result", "content": [1.0] } ]}'
    assert messages.mark(raw) == raw.replace(b"[1.0] }", b"[1.0]" + WRITTEN + b" }")


@pytest.mark.parametrize("last", [THINKING, REDACTED, text(""), text(" \n"), {"type": "brand_new"}, {}, "text"])
def test_a_block_that_may_carry_no_mark_is_passed_over(last):
    assert marked([RESULT, last, last]) == [{**RESULT, "cache_control": MARK}, last, last]
    assert marked([last]) is None


def test_a_block_that_is_marked_stays_as_it_is():
    hour = {**RESULT, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    raw = json.dumps({"role": "user", "content": [text("a"), hour]}).encode()
    assert messages.mark(raw) == raw
    assert marked([{**RESULT, "cache_control": None}]) == [{**RESULT, "cache_control": MARK}]


@pytest.mark.parametrize("content", ["", "  ", None, [], 7])
def test_a_message_that_says_nothing_cant_be_marked(content):
    assert marked(content) is None


@pytest.mark.parametrize(
    "raw", [b"", b"7", b"{}", b'{"role": "user"}', b'{"content": [{"type": "image", "type": "image"}]}']
)
def test_what_is_no_message_cant_be_marked(raw):
    assert messages.mark(raw) is None


blocks = st.sampled_from([text("a"), text("é☔"), text(""), THINKING, REDACTED, RESULT, {"type": "brand_new"}])


@given(st.lists(blocks, max_size=5), layouts)
def test_a_mark_is_the_only_change(content, layout):
    raw = json.dumps({"role": "assistant", "content": content}, **layout).encode()
    found = messages.mark(raw)
    may = [block for block in content if block in (text("a"), text("é☔"), RESULT)]
    assert (found is not None) == bool(may)
    if found is not None:
        assert found.replace(WRITTEN, b"", 1) == raw
        (block,) = [block for block in orjson.loads(found)["content"] if "cache_control" in block]
        assert block == {**may[-1], "cache_control": MARK}


# ---------------------------------------------------------------- marks on the head


def head(**fields):
    """The request after its head was marked, or None."""
    request = messages.parse(body(**fields))
    edit = messages.mark_head(request)
    return None if edit is None else orjson.loads(apply_edits(request.body, [edit]))


def test_the_end_of_the_system_prompt_is_marked():
    assert head(system="Be kind.", tools=[READ])["system"] == [{**text("Be kind."), "cache_control": MARK}]
    found = head(system=[text("Be"), text("kind."), text("")], tools=[READ])
    assert found["system"] == [text("Be"), {**text("kind."), "cache_control": MARK}, text("")]
    assert found["tools"] == [READ]


@pytest.mark.parametrize("fields", [{}, {"system": None}, {"system": ""}, {"system": []}, {"system": [text(" ")]}])
def test_without_a_system_prompt_the_last_tool_is_marked(fields):
    assert head(tools=[READ, LIST], **fields)["tools"] == [READ, {**LIST, "cache_control": MARK}]
    assert head(**fields) is None


def test_a_deferred_tool_is_not_marked():
    deferred = {**LIST, "defer_loading": True}
    assert head(tools=[READ, deferred])["tools"] == [{**READ, "cache_control": MARK}, deferred]
    assert head(tools=[deferred]) is None
    assert head(tools=[]) is None


@pytest.mark.parametrize("fields", [{"system": 7}, {"tools": 7}])
def test_a_head_that_cant_be_read_is_not_marked(fields):
    assert head(**fields) is None


@given(st.lists(blocks, max_size=3) | st.text(max_size=4), tools | st.just([]), layouts)
def test_marking_the_head_changes_nothing_else(system, listed, layout):
    request = messages.parse(body(layout, system=system, tools=listed))
    edit = messages.mark_head(request)
    if edit is None:
        return
    span, new = edit
    changed = apply_edits(request.body, [edit])
    assert (
        changed[: span.start] + request.body[span.start : span.end] + changed[span.start + len(new) :] == request.body
    )
    was, now = orjson.loads(request.body), orjson.loads(changed)
    assert _unmarked(now) == _unmarked({**was, "system": [text(system)] if _is_marked(now, system) else system})


def _is_marked(now, system):
    return isinstance(system, str) and isinstance(now["system"], list)


def _unmarked(value):
    if isinstance(value, dict):
        return {key: _unmarked(inner) for key, inner in value.items() if key != "cache_control"}
    return [_unmarked(inner) for inner in value] if isinstance(value, list) else value


# ---------------------------------------------------------------- real clients


def recorded_bodies():
    for file in REQUESTS:
        with gzip.open(file, "rt") as lines:
            for request in map(json.loads, lines):
                if request["path"].endswith("/messages") and isinstance(request["body"], dict):
                    yield json.dumps(request["body"], ensure_ascii=False).encode("utf-8", "surrogatepass")


@pytest.mark.recorded
@pytest.mark.skipif(not REQUESTS, reason="CTXPAGER_RECORDINGS names no folder with recorded/*/*.jsonl.gz")
def test_real_clients_requests_take_the_tool_and_marks():
    carried = 0
    for sent in recorded_bodies():
        request = messages.parse(sent)
        if not isinstance(messages.tool_slot(request), str):
            assert ENTRY in with_tool(request)
            assert orjson.loads(ENTRY) in orjson.loads(with_tool(request))["tools"]
            carried += 1
        edit = messages.mark_head(request)
        assert edit is None or orjson.loads(apply_edits(sent, [edit]))
        assert all(orjson.loads(found) for item in request.items if (found := messages.mark(bytes(item))))
    assert carried > 20
