"""One Responses answer made of several legs: the client sees one call, and no trace of what was held back."""

import json
from itertools import count

import httpx2
import msgspec
import pytest
from guards import Picky, Watching
from hypothesis import given
from hypothesis import strategies as st
from laws import examples
from openai import OpenAI

from pager.errors import NotUnderstood
from pager.paging.page_in import definition
from pager.request_values import Usage
from pager.testing.scripted import Call, Say
from pager.tools.decide_forms import ToolAsSent, Toolset, schema_handle
from pager.tools.definitions import Listed
from pager.tools.shorten import slim
from pager.wire.byte_edits import apply_edits
from pager.wire.dialects import load
from pager.wire.responses.scripted import Scripted as Responses
from pager.wire.scripted import Turn
from pager.wire.stitching import HeldCall, LegEnd

responses = load("responses")
HANDLE = "pg_0123456789abcdef"
READ = {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}, "strict": True}
PATCH = {"type": "custom", "name": "patch"}
OURS = json.loads(definition("responses"))
PAGE_IN = Call("page_in", {"pages": [HANDLE]})
OPENINGS = 2  # response.created, response.in_progress


def imitates(arguments: str) -> bool:
    return HANDLE in arguments


# A provider that says any list of items.


def message(text, number=0):
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def thought(text, number=0, *, encrypted=True):
    item = {"id": f"rs_{number}", "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}
    return {**item, "encrypted_content": f"gAAAA{number}"} if encrypted else item


def call(name, arguments="{}", number=0):
    item = {"id": f"fc_{number}", "type": "function_call", "status": "completed"}
    return {**item, "arguments": arguments, "call_id": f"call_{name}_{number}", "name": name}


def custom(name, text="", number=0):
    item = {"id": f"ctc_{number}", "type": "custom_tool_call", "status": "completed"}
    return {**item, "call_id": f"call_{name}_{number}", "input": text, "name": name}


def hidden(number=0):
    return call("page_in", json.dumps({"pages": [HANDLE]}), number)


def event(kind, **data):
    return {"type": kind, **data}


def deltas(kind, place, text):
    yield from (event(kind, **place, delta=text[at : at + 5]) for at in range(0, len(text), 5))


def item_events(index, item):
    place = {"item_id": item["id"], "output_index": index}
    kind = item["type"]
    if kind == "message":
        yield event("response.output_item.added", output_index=index, item={**item, "content": []})
        part = item["content"][0]
        place["content_index"] = 0
        yield event("response.content_part.added", **place, part={**part, "text": ""})
        yield from deltas("response.output_text.delta", place, part["text"])
        yield event("response.output_text.done", **place, text=part["text"])
        yield event("response.content_part.done", **place, part=part)
    elif kind == "reasoning":
        yield event("response.output_item.added", output_index=index, item={**item, "summary": []})
        part = item["summary"][0]
        place["summary_index"] = 0
        yield event("response.reasoning_summary_part.added", **place, part={**part, "text": ""})
        yield from deltas("response.reasoning_summary_text.delta", place, part["text"])
        yield event("response.reasoning_summary_text.done", **place, text=part["text"])
        yield event("response.reasoning_summary_part.done", **place, part=part)
    else:
        key, name = {
            "function_call": ("arguments", "function_call_arguments"),
            "custom_tool_call": ("input", "custom_tool_call_input"),
        }.get(kind, ("", ""))
        yield event("response.output_item.added", output_index=index, item={**item, key: ""} if key else item)
        if key:
            yield from deltas(f"response.{name}.delta", place, item[key])
            yield event(f"response.{name}.done", **place, **{key: item[key]})
    yield event("response.output_item.done", output_index=index, item=item)


def response(items, number=0, *, status="completed", tools=(READ, PATCH, OURS), tokens=(1000, 40), **more):
    asked, said = tokens
    usage = {
        "input_tokens": asked,
        "input_tokens_details": {"cached_tokens": 7 * number},
        "output_tokens": said,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": asked + said,
    }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_760_000_000 + number,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "model": "gpt-5.5",
        "instructions": "The tool page_in is not named here.".replace("page_in", "page-in"),
        "output": list(items),
        "parallel_tool_calls": True,
        "store": False,
        "tool_choice": "auto",
        "tools": tools if isinstance(tools, dict) else list(tools),
        "usage": None if status == "in_progress" else usage,
        **more,
    }


def events_of(items, number=0, *, status="completed", **more):
    """The events of a whole answer, numbered."""
    opening = response([], number, status="in_progress", **more)
    said = [event("response.created", response=opening), event("response.in_progress", response=opening)]
    for index, item in enumerate(items):
        said += item_events(index, item)
    said.append(event(f"response.{status}", response=response(items, number, status=status, **more)))
    return [{**one, "sequence_number": at} for at, one in enumerate(said)]


def encoded(events) -> bytes:
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one, ensure_ascii=False)}\n\n".encode() for one in events)


def stream_of(items, number=0, **more) -> bytes:
    return encoded(events_of(items, number, **more))


def decoded(stream: bytes) -> list:
    """The events of a stream; each has the name that its data has."""
    found = []
    for block in stream.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def whole(data: bytes) -> list:
    return [data]


def bytewise(data: bytes) -> list:
    return [data[at : at + 1] for at in range(len(data))]


def played(legs, cut=whole, *, stitcher=None):
    """The client's bytes of a call with these streamed legs, and what each leg held back and left in the prompt."""
    stitcher = stitcher or responses.stitcher("page_in", Watching(imitates))
    said, held, kept = b"", [], []
    for number, leg in enumerate(legs):
        said += b"".join(stitcher.feed(chunk) for chunk in cut(leg))
        held.append(stitcher.held())
        kept.append(stitcher.leg([f"page for {one.call_id}" for one in held[-1].calls]))
        if number + 1 < len(legs):
            stitcher.go_on()
    return said + stitcher.finish(), held, kept


def is_hidden(item):
    return item.get("name") == "page_in" or imitates(item.get("arguments", "") + item.get("input", ""))


def shown(legs):
    return [item for leg in legs for item in leg if not is_hidden(item)]


def expected_tokens(legs, tokens):
    """The output tokens told to the client: those of the last leg, and what was seen of the earlier ones."""
    total = tokens[-1]
    for leg, said in zip(legs[:-1], tokens[:-1], strict=True):
        unseen = sum(
            len(item["name"] + item.get("arguments", item.get("input"))) // 4 + 8 for item in leg if is_hidden(item)
        )
        total += max(0, said - unseen) if shown([leg]) else 0
    return total


# Scenarios: some legs with hidden calls and without the client's, then a last one with anything.

texts = st.text(st.sampled_from('abc \n"\\é😀'), max_size=12)
talk = st.one_of(
    st.builds(message, texts.filter(str.strip)),
    st.builds(thought, texts),
    st.builds(thought, texts, encrypted=st.just(False)),
)
withheld = st.one_of(
    st.builds(hidden),
    st.just(call("read", json.dumps({"path": f"[{HANDLE}: a file]"}))),
    st.just(custom("patch", f"*** {HANDLE}")),
)
real = st.one_of(st.builds(call, st.just("read"), texts.map(json.dumps)), st.builds(custom, st.just("patch"), texts))
some_talk = st.lists(talk, max_size=3)
hiding_legs = st.tuples(some_talk, st.lists(withheld, min_size=1, max_size=3), some_talk).map(
    lambda parts: [item for part in parts for item in part]
)
last_legs = st.lists(st.one_of(talk, withheld, real), max_size=5)


def numbered(legs):
    """Every item with ids of its own."""
    numbers = count()
    return [[_with_ids(item, next(numbers)) for item in leg] for leg in legs]


def _with_ids(item, number):
    ids = {"id": f"{item['id'].split('_')[0]}_{number}"}
    if "call_id" in item:
        ids["call_id"] = f"call_{'ours' if is_hidden(item) else 'theirs'}_{number}"
    if "encrypted_content" in item:
        ids["encrypted_content"] = f"gAAAA{number}"
    return {**item, **ids}


conversations = st.builds(lambda legs, last: numbered([*legs, last]), st.lists(hiding_legs, max_size=3), last_legs)


def streams_of(legs):
    return [stream_of(leg, number, tokens=(1000 + number, 40 + 9 * number)) for number, leg in enumerate(legs)]


def expected_events(legs):
    """The events of a call in which the model said at once what the client sees of all legs."""
    last = len(legs) - 1
    events = events_of(
        shown(legs),
        0,
        tools=(READ, PATCH),
        tokens=(1000 + last, expected_tokens(legs, [40 + 9 * number for number in range(len(legs))])),
    )
    events[-1]["response"]["usage"]["input_tokens_details"] = {"cached_tokens": 7 * last}
    return events


@given(conversations)
def test_the_client_sees_one_answer_as_if_nothing_was_held_back(legs):
    said, held, _ = played(streams_of(legs))
    events = decoded(said)
    assert events == expected_events(legs)
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    assert events[-1]["response"]["output"] == [
        one["item"] for one in events if one["type"] == "response.output_item.done"
    ]
    assert [len(one.calls) for one in held] == [sum(map(is_hidden, leg)) for leg in legs]


@given(conversations)
def test_no_byte_of_the_tool_reaches_the_client(legs):
    said, _, _ = played(streams_of(legs))
    for secret in (b"page_in", b"pg_", b"call_ours", definition("responses")):
        assert secret not in said


@given(conversations, st.data())
def test_a_stream_split_anywhere_gives_the_same_bytes_and_the_same_legs(legs, data):
    streams = streams_of(legs)

    def cut(stream):
        places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
        return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]

    assert played(streams, cut) == played(streams)


def test_byte_by_byte_is_the_same_as_in_one_piece():
    legs = numbered([[thought("hm"), message("Let me see."), hidden()], [hidden(), call("read", '{"path": "a"}')]])
    assert played(streams_of(legs), bytewise) == played(streams_of(legs))


@given(conversations)
def test_a_leg_says_what_was_held_back_and_what_goes_into_the_prompt(legs):
    _, held, kept = played(streams_of(legs))
    for items, one, leg in zip(legs, held, kept, strict=True):
        ours = [item for item in items if is_hidden(item)]
        assert one.calls == tuple(
            HeldCall(item["call_id"], item["name"], item.get("arguments", item.get("input"))) for item in ours
        )
        assert one.mixed == leg.mixed == any("call_id" in item for item in shown([items]))
        assert one.whole
        repeated = [item for item in items if item["type"] != "reasoning" or "encrypted_content" in item]
        assert [json.loads(bytes(part.raw)) for part in leg.parts] == repeated
        assert [part.hidden for part in leg.parts] == list(map(is_hidden, repeated))
        assert [json.loads(bytes(result)) for result in leg.results] == [
            {
                "type": f"{item['type']}_output",
                "call_id": item["call_id"],
                "output": f"page for {item['call_id']}",
            }
            for item in ours
        ]
    assert [one.shown for one in held] == [bool(shown(legs[: at + 1])) for at in range(len(legs))]


@given(conversations)
def test_a_call_in_one_piece_says_the_same_as_a_streamed_one(legs):
    stitcher = responses.stitcher("page_in", Watching(imitates))
    held, kept = [], []
    for number, leg in enumerate(legs):
        body = response(leg, number, tokens=(1000 + number, 40 + 9 * number))
        stitcher.take(json.dumps(body, ensure_ascii=False).encode())
        held.append(stitcher.held())
        kept.append(stitcher.leg([f"page for {one.call_id}" for one in held[-1].calls]))
        if number + 1 < len(legs):
            stitcher.go_on()
    body = stitcher.finish()
    said, streamed_held, streamed_kept = played(streams_of(legs))
    told, streamed = json.loads(body), decoded(said)[-1]["response"]
    assert told == {**streamed, "id": told["id"], "created_at": told["created_at"]}
    assert told["id"] == response(legs[-1], len(legs) - 1)["id"]  # the one that the provider has stored
    assert held == streamed_held
    assert kept == streamed_kept
    assert b"page_in" not in body
    assert b"pg_" not in body


def test_an_answer_without_a_hidden_call_passes_byte_for_byte_and_at_once():
    stream = stream_of([thought("hm"), message("é"), call("read"), custom("patch", "x")], tools=[READ])
    stitcher = responses.stitcher("page_in", Watching(imitates))
    for one in stream.split(b"\n\n")[:-1]:
        said = stitcher.feed(one + b"\n\n")
        assert (b"_call" in one) or said == one + b"\n\n"
    assert stitcher.held() == LegEnd(mixed=True, shown=True)
    assert stitcher.finish() == b""
    assert played([stream])[0] == stream


def test_a_call_of_another_tool_waits_only_until_it_is_finished():
    stitcher = responses.stitcher("page_in", Watching(imitates))
    *before, done, end = events_of([message("a"), call("read", '{"path": "b"}')], tools=[READ])
    assert stitcher.feed(encoded(before)) == encoded(before[:-5])
    assert before[-5]["type"] == "response.output_item.added"
    assert stitcher.feed(encoded([done])) == encoded([*before[-5:], done])
    assert stitcher.feed(encoded([end])) == encoded([end])


def test_the_text_after_a_hidden_call_is_not_kept_waiting():
    stitcher = responses.stitcher("page_in", Watching(imitates))
    *before, end = events_of([hidden(), message("and now")])
    said = stitcher.feed(encoded(before))
    assert [one["sequence_number"] for one in decoded(said)] == list(range(OPENINGS + 7))
    assert {one["output_index"] for one in decoded(said)[OPENINGS:]} == {0}
    assert stitcher.feed(encoded([end])) == b""
    assert decoded(stitcher.finish())[-1]["response"]["output"] == [message("and now")]


def test_calls_that_come_at_the_same_time_keep_their_places():
    ours, theirs = list(item_events(0, hidden(1))), list(item_events(1, call("read", '{"a": 1}', 2)))
    second = list(item_events(2, call("read", '{"a": 2}', 3)))
    opening, *_, end = events_of([hidden(1), call("read", '{"a": 1}', 2), call("read", '{"a": 2}', 3)], tools=[READ])
    mingled = [opening, theirs[0], second[0], ours[0], *second[1:], *ours[1:], *theirs[1:], end]
    said, held, _ = played([encoded({**one, "sequence_number": at} for at, one in enumerate(mingled))])
    events = decoded(said)
    assert [one["output_index"] for one in events if one["type"] == "response.output_item.done"] == [1, 0]
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    assert [one.call_id for one in held[0].calls] == ["call_page_in_1"]


def test_every_part_of_an_answer_that_the_client_runs_makes_it_mixed():
    for item, mixed in [
        ({"type": "local_shell_call"}, True),
        ({"type": "web_search_call"}, False),
        ({"type": "tool_search_call", "execution": "client"}, True),
        ({"type": "tool_search_call", "execution": "server"}, False),
    ]:
        _, held, kept = played([stream_of([{**item, "id": "x_1"}, hidden()])])
        assert held[0].mixed is mixed
        assert [part.kind for part in kept[0].parts] == ["other", "call"]


def test_thoughts_that_the_provider_stores_are_repeated_by_their_id():
    lost = thought("hm", encrypted=False)
    for store, repeated in [(True, 2), (False, 1)]:
        _, _, kept = played([stream_of([lost, hidden()], store=store)])
        assert len(kept[0].parts) == repeated


@pytest.mark.parametrize("tools", [(OURS,), (OURS, READ), (READ, OURS), (READ, OURS, PATCH)])
def test_the_echo_of_the_tools_loses_ours_and_nothing_else(tools):
    stream, others = stream_of([message("a")], tools=tools), [tool for tool in tools if tool is not OURS]
    for sent in (stream, stream.replace(b", ", b",")):
        said, _, _ = played([sent])
        assert [one["response"]["tools"] for one in decoded(said) if "response" in one] == [others] * 3
        assert b"page_in" not in said
    body = json.dumps(response([message("a")], tools=tools), indent=1).encode()
    stitcher = responses.stitcher("page_in", Watching(imitates))
    stitcher.take(body)
    assert json.loads(stitcher.finish()) == response([message("a")], tools=others)


def test_an_echo_without_our_tool_keeps_its_bytes():
    for tools in [[READ], [{"name": "x", "title": "page_in"}], {"page_in": 1}]:
        body = json.dumps(response([message("a")], tools=tools), indent=3).encode()
        stitcher = responses.stitcher("page_in", Watching(imitates))
        stitcher.take(body)
        assert stitcher.finish() == body


def test_half_an_emoji_among_the_tools_hides_nothing():
    stream = stream_of([message("a")], tools=[{**READ, "description": "HALF"}, OURS]).replace(b"HALF", b"\\ud83d")
    said, _, _ = played([stream])
    echoes = [one["response"]["tools"] for one in decoded(said) if "response" in one]
    assert echoes == [[{**READ, "description": "\ufffd"}]] * 3
    assert b"page_in" not in said


def test_what_is_no_response_is_not_understood():
    for body in (b"<html>", b'{"object": "list"}', b"[]"):
        with pytest.raises(NotUnderstood):
            responses.stitcher("page_in", Watching(imitates)).take(body)


def test_an_error_in_one_piece_stays_as_it_is():
    stitcher = responses.stitcher("page_in", Watching(imitates))
    stitcher.take(b'{"error": {"message": "no"}}')
    assert stitcher.held() == LegEnd(whole=False)
    assert stitcher.finish() == b'{"error": {"message": "no"}}'


@pytest.mark.parametrize("status", ["incomplete", "failed"])
def test_a_leg_that_was_cut_short_is_not_whole_and_tells_so_at_its_end(status):
    stitcher = responses.stitcher("page_in", Watching(imitates))
    said = stitcher.feed(stream_of([message("a"), hidden()], status=status))
    assert decoded(said)[-1]["type"] == "response.output_item.done"
    held = stitcher.held()
    assert not held.whole
    assert held.shown
    (end,) = decoded(stitcher.finish())
    assert end["type"] == f"response.{status}"
    assert end["response"]["output"] == [message("a")]
    assert end["sequence_number"] == decoded(said)[-1]["sequence_number"] + 1


def test_an_answer_that_reaches_its_limit_without_a_hidden_call_is_whole():
    stream = stream_of([message("a")], status="incomplete", tools=[READ])
    said, held, _ = played([stream])
    assert said == stream
    assert held == [LegEnd(shown=True)]


def test_an_error_inside_a_stream_passes_with_the_next_number():
    *before, _ = events_of([message("a"), hidden()])
    error = event("error", code="server_error", message="no", param=None, sequence_number=len(before))
    stitcher = responses.stitcher("page_in", Watching(imitates))
    said = stitcher.feed(encoded([*before, error]))
    assert not stitcher.held().whole
    (end,) = decoded(stitcher.finish())
    assert end == {**error, "sequence_number": len(decoded(said))}


@given(conversations, st.data())
def test_a_stream_that_breaks_off_anywhere_shows_no_trace_either(legs, data):
    streams = streams_of(legs)
    at = data.draw(st.integers(0, len(legs) - 1))
    torn = streams[at][: data.draw(st.integers(0, len(streams[at]) - 3))]
    said, held, _ = played([*streams[:at], torn])
    assert not held[-1].whole
    for secret in (b"page_in", b"pg_", b"call_ours"):
        assert secret not in said
    events, expected = decoded(said), expected_events(legs)
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    told = [(one["type"], one.get("delta")) for one in events]
    assert told == [(one["type"], one.get("delta")) for one in expected[: len(told)]]
    assert "response.completed" not in dict(told)


def test_a_last_event_without_an_empty_line_after_it_still_counts():
    for ending in (b"\n", b""):
        stream = stream_of([message("a"), hidden()]).rstrip(b"\n") + ending
        said, held, _ = played([stream, stream_of([message("b")], 1).rstrip(b"\n") + ending])
        assert held[0].whole
        assert [item["content"][0]["text"] for item in decoded(said)[-1]["response"]["output"]] == ["a", "b"]


def test_comments_and_unknown_events_pass():
    *before, end = events_of([hidden()])
    stitcher = responses.stitcher("page_in", Watching(imitates))
    assert stitcher.feed(b": keep-alive\n\n") == b": keep-alive\n\n"
    stitcher.feed(encoded(before))
    odd = b"event: rate_limits\ndata: not JSON\n\n"
    assert stitcher.feed(odd) == odd
    assert stitcher.feed(encoded([end]) + b"data: [DONE]\n\n") == b""
    assert stitcher.finish().endswith(b"\n\ndata: [DONE]\n\n")


def test_the_end_of_a_leg_is_forgotten_when_another_follows():
    done = b"data: [DONE]\n\n"
    said, _, _ = played([stream_of([hidden()]) + done, stream_of([message("a")], 1) + done])
    assert said.endswith(done)
    assert said.count(done) == 1
    assert said.count(b"event: response.completed\n") == 1


def test_line_ends_and_spacing_of_changed_events_stay():
    stream = stream_of([hidden(), message("a")]).replace(b"\n", b"\r\n")
    said, _, _ = played([stream])
    assert b"\n" not in said.replace(b"\r\n", b"")
    assert decoded(said.replace(b"\r\n", b"\n")) == decoded(played([stream.replace(b"\r\n", b"\n")])[0])


def test_an_event_on_several_lines_is_renumbered():
    lines = [json.dumps(one, indent=1).replace("\n", "\ndata: ") for one in events_of([hidden(), message("a\nb")])]
    stream = "".join(f"data: {text}\n\n" for text in lines).encode()
    said, _, _ = played([stream])
    blocks = said.decode().split("\n\n")[:-1]
    events = [json.loads("".join(line.removeprefix("data: ") for line in block.split("\n"))) for block in blocks]
    assert events == decoded(played([stream_of([hidden(), message("a\nb")])])[0])


def test_an_event_with_names_of_its_numbers_inside_is_renumbered_at_the_right_place():
    numbers = {"sequence_number": 77, "output_index": 78}
    item = {**message("a"), "extra": numbers}
    said, _, _ = played([stream_of([hidden(), item])])
    assert decoded(said)[-1]["response"]["output"] == [item]
    assert [one["output_index"] for one in decoded(said)[OPENINGS:-1]] == [0] * 6


def test_a_key_that_comes_twice_is_no_obstacle():
    stream = stream_of([hidden(), message("a")]).replace(
        b'"output_index": 1,', b'"output_index": 9, "output_index": 1,'
    )
    assert decoded(played([stream])[0]) == decoded(played([stream_of([hidden(), message("a")])])[0])


def test_half_an_emoji_is_no_obstacle():
    stream = stream_of([hidden(), message("HALF")]).replace(b"HALF", b"\\ud83d")
    said, _, kept = played([stream])
    assert [block.count(b"\\ud83d") for block in said.split(b"\n\n")[4:8]] == [1, 1, 1, 1]
    assert decoded(said)[-1]["response"]["output"][0]["content"][0]["text"] == "\ufffd"
    assert len(kept[0].parts) == 2


def test_events_without_numbers_stay_without():
    events = [{key: one[key] for key in one if key != "sequence_number"} for one in events_of([hidden(), message("a")])]
    said = decoded(played([encoded(events)])[0])
    assert not any("sequence_number" in one for one in said)
    assert [one.get("output_index") for one in said] == [None, None, *[0] * 6, None]


def test_the_clients_numbers_begin_where_the_providers_do():
    events = [{**one, "sequence_number": one["sequence_number"] + 5} for one in events_of([message("a"), hidden()])]
    said = decoded(played([encoded(events)])[0])
    assert [one["sequence_number"] for one in said] == list(range(5, 5 + len(said)))


def test_an_event_that_names_only_its_item_is_hidden_with_it():
    *before, end = events_of([hidden()])
    for one in before:
        if "item_id" in one:
            del one["output_index"]
    said, _, _ = played([encoded([*before, end])])
    assert [one["type"] for one in decoded(said)] == [
        "response.created", "response.in_progress", "response.completed",
    ]  # fmt: skip


def test_items_without_ids_are_no_obstacle():
    events = [
        {**one, "item": {key: one["item"][key] for key in one["item"] if key != "id"}} if "item" in one else one
        for one in events_of([message("a"), hidden()])
    ]
    said = decoded(played([encoded({key: one[key] for key in one if key != "item_id"} for one in events)])[0])
    assert [one["type"] for one in said][-2:] == ["response.output_item.done", "response.completed"]
    assert len(said) == OPENINGS + 6 + 1


def without(events, *kinds):
    kept = [one for one in events if one["type"] not in kinds]
    return encoded({**one, "sequence_number": at} for at, one in enumerate(kept))


@pytest.mark.parametrize("items", [[message("a"), hidden()], [call("read", '{"a": 1}'), hidden()]])
def test_items_that_are_never_finished_are_taken_from_the_end(items):
    events = events_of(items)
    said, held, kept = played([without(events, "response.output_item.done")])
    assert [one.arguments for one in held[0].calls] == [hidden()["arguments"]]
    assert decoded(said)[-1]["response"]["output"] == items[:1]
    assert [json.loads(bytes(part.raw)) for part in kept[0].parts] == items


def test_calls_that_nothing_finishes_are_put_together_from_their_pieces():
    events = events_of([call("read", '{"a": 1}', 4), call("read", HANDLE, 5), hidden(6)])
    events[-1]["response"]["output"] = []
    said, held, _ = played([without(events, "response.output_item.done")])
    assert [one.arguments for one in held[0].calls] == [HANDLE, hidden()["arguments"]]
    assert [item["arguments"] for item in decoded(said)[-1]["response"]["output"]] == ['{"a": 1}']
    assert b"pg_" not in said


def test_a_call_whose_name_was_never_told_is_judged_by_its_arguments():
    for arguments, events in [('{"a": 1}', 6), (json.dumps(HANDLE), 3)]:
        given_events = events_of([call("read", arguments)])
        given_events[-1]["response"]["output"] = []
        said, _, _ = played([without(given_events, "response.output_item.done", "response.output_item.added")])
        assert len(decoded(said)) == events
        assert b"pg_" not in said


def test_text_whose_item_was_never_announced_is_shown_at_once():
    events = events_of([message("a")], tools=[READ])
    stitcher = responses.stitcher("page_in", Watching(imitates))
    stream = without(events[:-2], "response.output_item.added")
    assert stitcher.feed(stream) == stream


def test_a_hidden_call_that_only_the_end_tells_of_is_held_back():
    events = events_of([message("a"), hidden()])
    said, held, _ = played([encoded([*events[: OPENINGS + 7], {**events[-1], "sequence_number": OPENINGS + 7}])])
    assert [one.name for one in held[0].calls] == ["page_in"]
    assert decoded(said)[-1]["response"]["output"] == [message("a")]


def test_the_numbers_go_on_where_a_leg_begins_without_an_opening():
    events = events_of([message("a"), hidden()])
    first = encoded([*events[: OPENINGS + 6], {**events[-1], "sequence_number": OPENINGS + 6}])
    second = encoded({**one, "sequence_number": at} for at, one in enumerate(events_of([message("b", 1)])[OPENINGS:]))
    said = decoded(played([first, second])[0])
    assert [one["sequence_number"] for one in said] == list(range(OPENINGS + 6 + 7))


def test_a_custom_call_of_our_tool_is_held_back_too():
    _, held, kept = played([stream_of([custom("page_in", HANDLE)])])
    assert held[0].calls == (HeldCall("call_page_in_0", "page_in", HANDLE),)
    assert json.loads(bytes(kept[0].results[0]))["type"] == "custom_tool_call_output"


def test_the_tool_may_have_another_name():
    tools = (READ, json.loads(definition("responses", "page_in_2")))
    own = call("page_in", "{}", 1)
    stitcher = responses.stitcher("page_in_2", Watching(imitates))
    said, held, _ = played([stream_of([own, call("page_in_2", "{}", 2)], tools=tools)], stitcher=stitcher)
    assert [one.call_id for one in held[0].calls] == ["call_page_in_2_2"]
    assert decoded(said)[-1]["response"]["output"] == [own]
    assert b"page_in_2" not in said


def test_when_the_rounds_are_used_up_the_call_ends_with_what_was_shown():
    legs = numbered([[message("a"), hidden()], [hidden()], [hidden()]])
    said, held, _ = played(streams_of(legs))
    assert decoded(said) == expected_events(legs)
    assert held[-1].calls
    assert not held[-1].mixed


def test_usage_is_of_the_last_leg_with_the_visible_output_of_all():
    unseen = len("page_in" + hidden()["arguments"]) // 4 + 8
    legs = [[message("a"), hidden()], [hidden(1)], [message("b", 2)]]
    streams = [stream_of(leg, at, tokens=(100 * (at + 1), 60 + at)) for at, leg in enumerate(legs)]
    usage = decoded(played(streams)[0])[-1]["response"]["usage"]
    assert usage == {
        "input_tokens": 300,
        "input_tokens_details": {"cached_tokens": 14},
        "output_tokens": 62 + 60 - unseen,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 300 + 62 + 60 - unseen,
    }


def test_a_response_without_usage_stays_without():
    streams = [stream_of([message("a"), hidden()]), stream_of([message("b")], 1, usage=None)]
    assert decoded(played(streams)[0])[-1]["response"]["usage"] is None


def test_nothing_came_nothing_goes():
    stitcher = responses.stitcher("page_in", Watching(imitates))
    assert stitcher.held() == LegEnd(whole=False)
    assert stitcher.finish() == b""


def test_a_failure_between_legs_is_an_error_event_with_the_next_number_and_a_failed_response():
    stitcher = responses.stitcher("page_in", Watching(imitates))
    said = stitcher.feed(stream_of([message("a"), hidden()]))
    stitcher.go_on()
    error, failed = decoded(stitcher.fail(503, "upstream is gone"))
    assert error == {
        "type": "error", "code": "server_error", "message": "upstream is gone", "param": None,
        "sequence_number": len(decoded(said)),
    }  # fmt: skip
    assert (failed["type"], failed["sequence_number"]) == ("response.failed", len(decoded(said)) + 1)
    assert failed["response"]["error"] == {"code": "server_error", "message": "upstream is gone"}
    assert failed["response"]["id"] == decoded(said)[0]["response"]["id"]
    assert [item["type"] for item in failed["response"]["output"]] == ["message"]
    assert decoded(stitcher.fail(429, "slow down"))[0]["code"] == "rate_limit_exceeded"


def test_the_heartbeat_is_a_comment_and_nothing_carries_a_cache_mark():
    assert responses.heartbeat == b": keep-alive\n\n"
    assert responses.mark(b'{"type": "message"}') is None
    assert responses.mark_head(responses.parse(b'{"input": []}')) is None


# The real SDK reads what the client gets.


def sdk(content, kind="text/event-stream"):
    def answer(request):
        return httpx2.Response(200, headers={"content-type": kind}, content=content)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return OpenAI(api_key="k", base_url="http://provider/v1", max_retries=0, http_client=http)


def heard(content):
    """The events that the SDK makes of a stream, and the answer that its helper puts together."""
    with sdk(content) as client:
        with client.responses.create(model="gpt-5.5", input="?", stream=True) as stream:
            events = [one.model_dump() for one in stream]
        with client.responses.stream(model="gpt-5.5", input="?") as stream:
            list(stream)
            is_whole = events[-1]["type"] == "response.completed"
            return events, stream.get_final_response().model_dump() if is_whole else None


def scripted(number, say, *, tools=(READ, OURS), stream=True):
    request = {
        "model": "gpt-5.5", "tools": list(tools), "store": False, "include": ["reasoning.encrypted_content"],
    }  # fmt: skip
    turn = Turn(number, request, say, Usage(1000))
    return b"".join(Responses().stream(turn)) if stream else json.dumps(Responses().whole(turn)).encode()


FINAL = [
    Say("It is on line 7. ☔", reasoning="I have it now."),
    Say("Now the file.", calls=[Call("read", {"path": "a.py"}), Call("read", {"path": "b.py"})]),
    Say("cut", finish="length"),
]


def as_first_leg(stream, first, last):
    """A stream that has the identity of the first leg instead of its own."""
    a, b = Turn(first, {}, Say(), Usage()), Turn(last, {}, Say(), Usage())
    for mine, theirs in [(a.id("resp_"), b.id("resp_")), (f'"created_at":{a.created}', f'"created_at":{b.created}')]:
        stream = stream.replace(theirs.encode(), mine.encode())
    return stream


@pytest.mark.parametrize("final", FINAL, ids=lambda say: say.ending)
@pytest.mark.parametrize("rounds", [1, 4])
def test_the_sdk_hears_a_call_with_hidden_legs_as_one_without(final, rounds):
    legs = [scripted(number, Say(calls=[PAGE_IN] * (1 + number % 2))) for number in range(rounds)]
    said, _, _ = played([*legs, scripted(rounds, final)], bytewise)
    direct = as_first_leg(scripted(rounds, final, tools=[READ]), 0, rounds)
    assert heard(said) == heard(direct)
    assert said == direct


@examples(30)
@given(conversations)
def test_the_sdk_accepts_every_conversation(legs):
    said, _, _ = played(streams_of(legs))
    assert heard(said) == heard(encoded(expected_events(legs)))


@pytest.mark.parametrize("final", FINAL, ids=lambda say: say.ending)
def test_the_sdk_reads_a_call_in_one_piece_as_one_without(final):
    stitcher = responses.stitcher("page_in", Watching(imitates))
    stitcher.take(scripted(0, Say(calls=[PAGE_IN]), stream=False))
    stitcher.go_on()
    stitcher.take(scripted(1, final, stream=False))
    answers = []
    direct = scripted(1, final, tools=[READ], stream=False).replace(b'"created_at": ', b'"created_at":')
    for body in (stitcher.finish(), direct):
        with sdk(body, "application/json") as client:
            answers.append(client.responses.create(model="gpt-5.5", input="?").model_dump())
    assert answers[0] == answers[1]


def test_the_sdk_hears_of_a_failure():
    stitcher = responses.stitcher("page_in", Watching(imitates))
    said = stitcher.feed(scripted(0, Say("Let me see.", calls=[PAGE_IN])))
    stitcher.go_on()
    with sdk(said + stitcher.fail(502, "upstream is gone")) as client:
        *_, error, failed = client.responses.create(model="gpt-5.5", input="?", stream=True)
    assert (error.type, error.message) == ("error", "upstream is gone")
    assert (failed.response.status, failed.response.error.code) == ("failed", "server_error")


# The echo of tools that were sent short

PROPERTIES = {"a": {"type": "string", "description": "What it is."}}
LONG = {**READ, "description": "Reads. At length.", "parameters": {"type": "object", "properties": PROPERTIES}}
BARE = {"type": "function", "name": "bare", "strict": False, "parameters": {"type": "object", "title": "Bare"}}
INNER = {**LONG, "name": "inner", "description": "Lies in a namespace. It does."}
GROUP = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [INNER]}


def sent_short(*tools):
    """The decision to send all of these short, and the tools as the provider gets and repeats them."""
    raw = json.dumps(tools).encode()
    offers = responses.offers(responses.parse(b'{"model": "m", "input": [], "tools": %b}' % raw)).offers
    sent = []
    for one in offers.tools:
        handle = schema_handle(one.tool.raw)
        made = slim(one.tool, handle)
        shapes = {"description": made.description, "parameters": msgspec.Raw(made.parameters)}
        sent.append(ToolAsSent(one.tool.name, "slim", "", 9, 1, 0, handle, **shapes, whole=msgspec.Raw(one.tool.raw)))
    decided = Toolset(offers.digest, sent)
    return decided, json.loads(apply_edits(raw, decided.edits(Listed(0, offers))))


@pytest.mark.parametrize("tools", [(LONG,), (LONG, PATCH), (GROUP,), (PATCH, GROUP, LONG)])
def test_the_echo_shows_tools_that_were_sent_short_as_the_client_offers_them(tools):
    decided, short = sent_short(*(one for one in tools if one is not PATCH))
    others = iter(short)
    told = [one if one is PATCH else next(others) for one in tools] + [OURS]
    assert json.dumps(short).count("[pg_") == len(decided.shortened)
    stitcher = responses.stitcher("page_in", Watching(imitates), decided)
    said, _, _ = played([stream_of([message("a")], tools=told)], stitcher=stitcher)
    assert [one["response"]["tools"] for one in decoded(said) if "response" in one] == [list(tools)] * 3
    stitcher = responses.stitcher("page_in", Watching(imitates), decided)
    stitcher.take(json.dumps(response([message("a")], tools=told), indent=1).encode())
    assert json.loads(stitcher.finish()) == response([message("a")], tools=tools)


def test_the_echo_of_a_tool_without_a_description_has_none_either():
    decided, short = sent_short(BARE)
    stitcher = responses.stitcher("page_in", Watching(imitates), decided)
    said, _, _ = played([stream_of([message("a")], tools=[*short, OURS])], stitcher=stitcher)
    assert decoded(said)[0]["response"]["tools"] == [{**BARE, "description": None}]


def test_an_echo_that_is_no_list_or_has_other_tools_stays():
    decided, _ = sent_short(LONG)
    for tools, told in (({"page_in": 1}, {"page_in": 1}), ([READ, OURS], [READ])):
        stitcher = responses.stitcher("page_in", Watching(imitates), decided)
        stitcher.take(json.dumps(response([message("a")], tools=tools)).encode())
        assert json.loads(stitcher.finish())["tools"] == told


# Calls that nobody watches


def picky(**more):
    return responses.stitcher("page_in", Picky(**more))


def free(number=0):
    return call("free", '{"a": "é and more"}', number)


def test_a_call_that_nobody_watches_passes_as_it_comes():
    stitcher = picky()
    for one in events_of([message("a"), free(1), custom("free", "as it is", 2)], tools=[READ]):
        assert stitcher.feed(encoded([one])) == encoded([one])
    assert stitcher.held() == LegEnd(mixed=True, shown=True)
    assert stitcher.finish() == b""


def test_a_call_that_nobody_watches_is_out_with_the_last_byte_of_each_event():
    stitcher, stream, out = picky(), stream_of([free()], tools=[READ]), b""
    for at in range(len(stream)):
        out += stitcher.feed(stream[at : at + 1])
        whole_events = stream[: at + 1].rpartition(b"\n\n")
        assert out == whole_events[0] + whole_events[1]


@pytest.mark.parametrize("name", ["page_in", "refused", "checked"])
def test_a_call_behind_one_that_waits_passes_as_it_comes(name):
    stitcher, first = picky(), call(name, '{"b": "12345"}', 1)
    events = events_of([first, free(2)], tools=[READ])
    size = OPENINGS + len(list(item_events(0, first)))
    out = [stitcher.feed(encoded([one])) for one in events[:size]]
    assert out[OPENINGS:-1] == [b""] * (size - OPENINGS - 1)
    index = 1 if name == "checked" else 0
    assert out[-1] == (encoded(events[OPENINGS:size]) if index else b"")
    number = count(size if index else OPENINGS)
    for one in events[size:-1]:
        expected = {**one, "output_index": index, "sequence_number": next(number)}
        assert decoded(stitcher.feed(encoded([one]))) == [expected]


def test_a_watched_call_behind_one_that_nobody_watches_waits_until_it_is_complete():
    stitcher = picky()
    *events, done, end = events_of([free(1), call("checked", '{"b": "12345"}', 2)], tools=[READ])
    size = OPENINGS + len(list(item_events(0, free(1))))
    for one in events[:size]:
        assert stitcher.feed(encoded([one])) == encoded([one])
    assert [stitcher.feed(encoded([one])) for one in events[size:]] == [b""] * len(events[size:])
    assert stitcher.feed(encoded([done])) == encoded([*events[size:], done])
    assert stitcher.feed(encoded([end])) == encoded([end])


def test_what_a_guard_does_not_watch_it_can_not_hold():
    class Careless(Picky):
        def holds(self, name, arguments):
            return True

    body = json.dumps(response([free()], tools=[READ])).encode()
    stitcher = responses.stitcher("page_in", Careless())
    stitcher.take(body)
    assert stitcher.held().calls == ()
    assert stitcher.finish() == body
    unannounced = without(events_of([free()], tools=[READ]), "response.output_item.added")
    said, held, _ = played([unannounced], stitcher=responses.stitcher("page_in", Careless()))
    assert held[0].calls == ()
    assert said == unannounced


mixable = st.sampled_from(["page_in", "refused", "checked", "free", "custom", "text"])


@st.composite
def mixtures(draw):
    """Legs whose calls are ours or refused, then one with any."""
    numbers = count()

    def item(name):
        if name == "text":
            return message("Hm.", next(numbers))
        said = json.dumps({"a": draw(texts)})
        return custom("free", said, next(numbers)) if name == "custom" else call(name, said, next(numbers))

    hiding = draw(st.lists(st.lists(st.sampled_from(["page_in", "refused"]), min_size=1, max_size=2), max_size=2))
    return [[item(name) for name in leg] for leg in [*hiding, draw(st.lists(mixable, max_size=4))]]


def visible(legs):
    return [item for leg in legs for item in leg if item.get("name") not in ("page_in", "refused")]


@given(mixtures())
def test_to_watch_more_calls_changes_nothing_but_when_they_come(legs):
    soon, late = picky(), picky(everything=True)
    client = awaited = b""
    for number, leg in enumerate(legs):
        if number:
            soon.go_on()
            late.go_on()
        for one in events_of(leg, number):
            client, awaited = client + soon.feed(encoded([one])), awaited + late.feed(encoded([one]))
            assert client.startswith(awaited)
        assert soon.held() == late.held()
        answers = ["a page"] * len(soon.held().calls)
        assert soon.leg(answers) == late.leg(answers)
    client, awaited = client + soon.finish(), awaited + late.finish()
    assert client == awaited
    events = decoded(client)
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    done = [(one["output_index"], one["item"]) for one in events if one["type"] == "response.output_item.done"]
    assert done == list(enumerate(visible(legs)))
    assert events[-1]["response"]["output"] == visible(legs)


@examples(50)
@given(mixtures())
def test_a_call_in_one_piece_with_some_watched_calls_says_the_same(legs):
    streams = [stream_of(leg, number) for number, leg in enumerate(legs)]
    _, held, kept = at_once = played(streams, stitcher=picky())
    assert played(streams, bytewise, stitcher=picky()) == at_once
    for stitcher in (picky(), picky(everything=True)):
        for number, leg in enumerate(legs):
            if number:
                stitcher.go_on()
            stitcher.take(json.dumps(response(leg, number)).encode())
            assert stitcher.held() == held[number]
            assert stitcher.leg([f"page for {one.call_id}" for one in held[number].calls]) == kept[number]
        assert json.loads(stitcher.finish())["output"] == visible(legs)
