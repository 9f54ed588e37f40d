"""A Chat Completions call with hidden legs, as the client sees it."""

import json
import re
from itertools import pairwise

import httpx2
import pytest
from guards import Picky, Watching
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI

from pager.errors import NotUnderstood
from pager.request_values import ToolUse, Usage
from pager.wire.chat.scripted import Scripted as Chat
from pager.wire.dialects import load
from pager.wire.scripted import Call, Say, Turn
from pager.wire.stitching import HeldCall, LegEnd

chat = load("chat")
TOOL = "page_in"
HANDLE = "pg_0123456789abcdef"
HIDDEN = Call(TOOL, {"pages": [HANDLE]})
MIMIC = Call("edit", {"text": f"[{HANDLE}: 90 lines of a.py]"})
READ, SHELL = Call("read", {"path": "a.py"}), Call("shell", {"cmd": "make \u00e9\U0001f600"})


def imitates(arguments) -> bool:
    return "pg_" in arguments


def is_hidden(call) -> bool:
    return call.name == TOOL or imitates(call.text)


def new_stitcher(guard=None):
    return chat.stitcher(TOOL, guard or Watching(imitates))


def turn(number, say, **options) -> Turn:
    options = {"include_usage": True, "include_obfuscation": False, **options}
    return Turn(number, {"model": "gpt-5.5", "stream_options": options}, say, Usage(1000 + number, 512 + number))


def events(number, say, **options) -> list[bytes]:
    return list(Chat().stream(turn(number, say, **options)))


def streamed(number, say, **options) -> bytes:
    return b"".join(events(number, say, **options))


def whole(number, say) -> bytes:
    return json.dumps(Chat().whole(turn(number, say))).encode()


def cut(stream, cuts) -> list[bytes]:
    edges = [0, *sorted(at % (len(stream) + 1) for at in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


def answers_to(held) -> list[str]:
    return [f"answer {number} from the store" for number in range(len(held.calls))]


def play(legs, cuts=(), guard=None):
    """What the client gets of these streamed legs, with what each leg held and is remembered as."""
    stitcher, out, notes = new_stitcher(guard), b"", []
    for number, leg in enumerate(legs):
        out += b"".join(stitcher.feed(piece) for piece in cut(leg, cuts))
        held = stitcher.held()
        notes.append((held, stitcher.leg(answers_to(held))))
        if number + 1 == len(legs) or held.mixed or not held.calls or not held.whole:
            break
        stitcher.go_on()
    return out + stitcher.finish(), notes


def play_whole(bodies, guard=None):
    stitcher, notes = new_stitcher(guard), []
    for number, body in enumerate(bodies):
        stitcher.take(body)
        held = stitcher.held()
        notes.append((held, stitcher.leg(answers_to(held))))
        if number + 1 == len(bodies) or held.mixed or not held.calls:
            break
        stitcher.go_on()
    return stitcher.finish(), notes


def seen(client):
    reader = chat.reader()
    reader.feed(client)
    return reader.answer()


def chunks(client) -> list[dict]:
    data = [line[6:] for line in client.decode().splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(line) for line in data[:-1]]


def sdk(body, kind="text/event-stream"):
    """The real client, given these bytes as the provider's answer."""
    answer = httpx2.Response(200, content=body, headers={"content-type": kind})
    transport = httpx2.MockTransport(lambda request: answer)
    return OpenAI(api_key="sk-test", base_url="http://provider/v1", http_client=httpx2.Client(transport=transport))


ASKED = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}]}


def sdk_chunks(client) -> list[dict]:
    with sdk(client) as openai, openai.chat.completions.create(**ASKED, stream=True) as stream:
        return [chunk.model_dump() for chunk in stream]


def sdk_message(client) -> dict:
    with sdk(client) as openai, openai.chat.completions.stream(**ASKED) as stream:
        return stream.get_final_completion().choices[0].message.model_dump()


def assert_no_trace(client, *numbers):
    text = client.decode()
    assert TOOL not in text
    assert "pg_" not in text
    hidden_ids = {turn(number, Say()).id("call_", at) for number, at in numbers}
    assert not [call_id for call_id in hidden_ids if call_id in text]


# Written conversations


def test_a_call_without_hidden_calls_is_passed_on_byte_for_byte_and_at_once():
    stitcher = new_stitcher()
    for event in events(0, Say("I see.", reasoning="Hm, so.")):
        assert stitcher.feed(event) == event
    assert stitcher.finish() == b""
    assert stitcher.held() == LegEnd(shown=True)


def test_calls_of_other_tools_are_released_when_they_are_complete():
    stitcher = new_stitcher()
    parts = events(0, Say("Both.", [READ, SHELL]))
    read = [at for at, part in enumerate(parts) if b'"tool_calls":[{"index":0' in part]
    shell = [at for at, part in enumerate(parts) if b'"tool_calls":[{"index":1' in part]
    out = [stitcher.feed(part) for part in parts]
    assert b"".join(out) == b"".join(parts)
    assert out[: read[0]] == parts[: read[0]]
    assert [out[at] for at in read] == [b""] * len(read)
    assert out[shell[0]] == b"".join(parts[at] for at in read)
    assert out[shell[-1] + 1] == b"".join(parts[at] for at in shell) + parts[shell[-1] + 1]
    assert (stitcher.held(), stitcher.finish()) == (LegEnd(shown=True), b"")


def test_a_hidden_call_is_answered_and_the_answer_goes_on():
    stitcher = new_stitcher()
    first = streamed(0, Say("I look.", [HIDDEN], reasoning="What was it?"))
    shown = stitcher.feed(first)
    call_id = turn(0, Say()).id("call_", 0)
    assert stitcher.held() == LegEnd((HeldCall(call_id, TOOL, HIDDEN.text),), shown=True)
    leg = stitcher.leg(["the page"])
    assert [(part.kind, json.loads(bytes(part.raw)), part.hidden) for part in leg.parts] == [
        ("reasoning", "What was it?", False),
        ("text", "I look.", False),
        (
            "call",
            {"id": call_id, "type": "function", "function": {"name": TOOL, "arguments": HIDDEN.text}},
            True,
        ),
    ]
    assert [json.loads(bytes(raw)) for raw in leg.results] == [
        {"role": "tool", "tool_call_id": call_id, "content": "the page"}
    ]
    assert leg.mixed is False
    stitcher.go_on()
    shown += stitcher.feed(streamed(1, Say(" Now I see.", [READ])))
    assert stitcher.finish() == b""
    assert_no_trace(shown, (0, 0))
    answer = seen(shown)
    assert (answer.text, answer.finish, answer.complete) == ("I look. Now I see.", "tool_calls", True)
    assert answer.calls == (ToolUse(0, turn(1, Say()).id("call_", 0), "read", READ.text),)
    told = chunks(shown)
    assert {(chunk["id"], chunk["created"]) for chunk in told} == {
        (turn(0, Say()).id("chatcmpl-"), turn(0, Say()).created)
    }
    assert [chunk["choices"][0]["delta"].get("role") for chunk in told if chunk["choices"]].count("assistant") == 1


def test_nothing_of_the_first_legs_end_reaches_the_client_before_the_second_leg():
    stitcher = new_stitcher()
    shown = stitcher.feed(streamed(0, Say("", [HIDDEN])))
    assert shown == events(0, Say("", [HIDDEN]))[0]
    assert stitcher.held().shown is False


def test_the_usage_told_is_the_last_legs_input_and_all_visible_output():
    legs = [Say("I look at it.", [HIDDEN]), Say("", [HIDDEN]), Say("So it is.")]
    client, _ = play([streamed(number, say) for number, say in enumerate(legs)])
    told = chunks(client)[-1]["usage"]
    first, last = turn(0, legs[0]).usage.output, turn(2, legs[2]).usage.output
    visible = max(first - (len(TOOL + HIDDEN.text) // 4 + 8), 0)
    assert told["prompt_tokens"] == 1002
    assert told["prompt_tokens_details"]["cached_tokens"] == 514
    assert told["completion_tokens"] == last + visible
    assert told["total_tokens"] == 1002 + last + visible
    body, _ = play_whole([whole(number, say) for number, say in enumerate(legs)])
    assert json.loads(body)["usage"] == told


def test_a_leg_with_much_text_counts_without_its_hidden_call():
    legs = [Say("word " * 200, [HIDDEN]), Say("end")]
    client, _ = play([streamed(number, say) for number, say in enumerate(legs)])
    said = turn(0, legs[0]).usage.output - (len(TOOL + HIDDEN.text) // 4 + 8)
    assert chunks(client)[-1]["usage"]["completion_tokens"] == said + turn(1, legs[1]).usage.output
    assert said > 200


@pytest.mark.parametrize(
    "mixture", [[HIDDEN, READ], [READ, HIDDEN], [READ, HIDDEN, SHELL, HIDDEN], [HIDDEN, MIMIC, READ]]
)
def test_real_calls_beside_a_hidden_one_are_shown_with_contiguous_numbers(mixture):
    client, [(held, leg)] = play([streamed(0, Say("Both.", mixture)), b"never asked for"])
    real = [(turn(0, Say()).id("call_", at), call) for at, call in enumerate(mixture) if call not in (HIDDEN, MIMIC)]
    assert (held.mixed, held.whole, leg.mixed, len(held.calls)) == (True, True, True, len(mixture) - len(real))
    assert seen(client).calls == tuple(
        ToolUse(at, call_id, call.name, call.text) for at, (call_id, call) in enumerate(real)
    )
    assert [call["index"] for call in sdk_message(client)["tool_calls"]] == list(range(len(real)))
    assert seen(client).finish == "tool_calls"
    assert_no_trace(client, *((0, at) for at, call in enumerate(mixture) if call in (HIDDEN, MIMIC)))
    assert [part.hidden for part in leg.parts if part.kind == "call"] == [call in (HIDDEN, MIMIC) for call in mixture]


def test_a_call_before_the_hidden_one_keeps_its_bytes():
    parts = events(0, Say("", [READ, HIDDEN]))
    client, _ = play([b"".join(parts)])
    assert client == b"".join(part for part in parts if b'"tool_calls":[{"index":1' not in part)


def test_a_call_that_imitates_a_stub_is_held_under_its_own_name():
    client, [(held, _), (last, _)] = play([streamed(0, Say("", [MIMIC])), streamed(1, Say("Sorry."))])
    assert held.calls == (HeldCall(turn(0, Say()).id("call_", 0), "edit", MIMIC.text),)
    assert (seen(client).text, seen(client).calls, last.calls) == ("Sorry.", (), ())
    assert_no_trace(client, (0, 0))
    assert "edit" not in client.decode()


@pytest.mark.parametrize(("calls", "finish"), [([HIDDEN], "stop"), ([HIDDEN, READ], "tool_calls")])
def test_at_the_limit_of_rounds_hidden_calls_are_dropped(calls, finish):
    client, notes = play([streamed(0, Say("a", [HIDDEN])), streamed(1, Say("b", calls))])
    assert notes[-1][0].whole
    assert (seen(client).finish, seen(client).text, len(seen(client).calls)) == (finish, "ab", len(calls) - 1)
    assert_no_trace(client, (0, 0), (1, 0))
    assert [bool(chunk["choices"] and chunk["choices"][0]["finish_reason"]) for chunk in chunks(client)].count(
        True
    ) == 1
    body, _ = play_whole([whole(0, Say("a", [HIDDEN])), whole(1, Say("b", calls))])
    choice = json.loads(body)["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == (finish, "ab")


@pytest.mark.parametrize("finish", ["length", "refusal"])
def test_a_leg_cut_in_a_hidden_call_is_not_whole_and_ends_as_it_ended(finish):
    client, [(held, _)] = play([streamed(0, Say("a", [HIDDEN], finish=finish)), b"never asked for"])
    assert (held.whole, len(held.calls)) == (False, 1)
    assert seen(client).finish == {"length": "length", "refusal": "content_filter"}[finish]
    assert_no_trace(client, (0, 0))


def test_a_leg_cut_in_its_text_is_whole():
    _, [(held, _)] = play([streamed(0, Say("a", finish="length"))])
    assert held == LegEnd(shown=True)


@given(end=st.integers(0, 3000), calls=st.lists(st.sampled_from([READ, SHELL, HIDDEN, MIMIC]), max_size=3))
def test_a_stream_that_breaks_off_stays_broken_and_shows_no_hidden_call(end, calls):
    stream = streamed(0, Say("Well, I see.", calls))
    broken = stream[: end % len(stream)]
    client, [(held, _)] = play([broken, b"never asked for"])
    assert_no_trace(client, *((0, at) for at, call in enumerate(calls) if call is HIDDEN))
    ends = [event for event in events(0, Say("Well, I see.", calls)) if b'"finish_reason":"' in event]
    assert held.whole is (ends[0].strip() in broken)
    if not any(map(is_hidden, calls)):
        assert broken.startswith(client)
        assert client.count(b"\n\n") == broken.count(b"\n\n")  # half an event means nothing


@given(end=st.integers(0, 3000), reasoning=st.sampled_from(["", "Hm, so."]))
def test_a_text_that_breaks_off_keeps_its_bytes(end, reasoning):
    stream = streamed(0, Say("Well, I see.", reasoning=reasoning))
    broken = stream[: end % len(stream)]
    assert play([broken])[0] == broken


def test_a_broken_stream_releases_the_part_of_a_real_call_that_came():
    parts = events(0, Say("", [HIDDEN, SHELL]))
    broken = b"".join(parts[:-4])
    client, [(held, _)] = play([broken])
    assert (held.whole, held.mixed) == (False, True)
    assert seen(client).calls[0].name == "shell"
    assert b"[DONE]" not in client


def test_an_error_inside_a_stream_passes_and_the_leg_is_not_whole():
    error = Chat().stumble("overloaded", 0)
    parts = events(0, Say("", [HIDDEN]))
    client, [(held, _)] = play([b"".join([*parts[:-3], error])])
    assert client.endswith(error)
    assert held.whole is False


def test_an_empty_error_is_none():
    said = [ROLE, chunk({"tool_calls": numbered(WHOLE_CALLS[:1])}), chunk({}, "tool_calls"), chunk(usage={"x": 1})]
    stitcher = new_stitcher()
    assert stitcher.feed(stream(*({**part, "error": None} for part in said))) == stream({**ROLE, "error": None})
    assert stitcher.held().whole


def test_a_failure_is_said_in_place_of_a_chunk():
    stitcher = new_stitcher()
    stitcher.feed(streamed(0, Say("", [HIDDEN])))
    stitcher.go_on()
    said = stitcher.fail(502, "upstream left")
    assert said.startswith(b"data: {")
    assert said.endswith(b"\n\n")
    assert json.loads(said[6:])["error"]["message"] == "upstream left"


def test_comments_and_empty_events_pass_at_once():
    stitcher = new_stitcher()
    parts = events(0, Say("", [HIDDEN]))
    stitcher.feed(b"".join(parts[:2]))
    assert stitcher.feed(b": ping\n\n") == b": ping\n\n"
    assert stitcher.feed(b"\n\n") == b"\n\n"
    stitcher.feed(b"".join(parts[2:]))
    stitcher.go_on()
    assert stitcher.feed(b": ping\r\n\r\n") == b": ping\r\n\r\n"
    assert chat.heartbeat == b": keep-alive\n\n"


# What providers make of the format


def chunk(delta=None, finish=None, **fields) -> dict:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}] if delta is not None else []
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": choices,
        **fields,
    }


def piece(call_id, name, arguments, **fields) -> dict:
    return {**fields, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def stream(*said) -> bytes:
    texts = [json.dumps(data) if isinstance(data, dict) else data for data in said]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


ARGUMENTS = json.dumps({"pages": [HANDLE]})
WHOLE_CALLS = [piece("h", TOOL, ARGUMENTS), piece("r", "read", "{}"), piece("s", "shell", '{"a": 1}')]
ROLE = chunk({"role": "assistant", "content": ""})


def numbered(pieces) -> list[dict]:
    return [{**part, "index": at} for at, part in enumerate(pieces)]


def test_pieces_of_several_calls_in_one_chunk_are_told_apart():
    said = stream(ROLE, chunk({"tool_calls": numbered(WHOLE_CALLS)}), chunk({}, "tool_calls"), "[DONE]")
    client, [(held, _)] = play([said])
    assert [call["id"] for call in sdk_message(client)["tool_calls"]] == ["r", "s"]
    assert [(call.call_id, call.arguments) for call in held.calls] == [("h", ARGUMENTS)]
    assert [call.index for call in seen(client).calls] == [0, 1]


@pytest.mark.parametrize("number", [{"index": 0}, {}], ids=["all numbered 0", "not numbered"])
def test_calls_that_only_their_ids_tell_apart_are_numbered_once_one_is_hidden(number):
    said = stream(ROLE, *(chunk({"tool_calls": [{**part, **number}]}) for part in WHOLE_CALLS), chunk({}, "stop"))
    client, [(held, _)] = play([said])
    assert [call.call_id for call in held.calls] == ["h"]
    assert [(call["index"], call["id"]) for call in sdk_message(client)["tool_calls"]] == [(0, "r"), (1, "s")]


@pytest.mark.parametrize("number", [{"index": 0}, {"index": 7}, {}])
def test_odd_numbers_pass_where_nothing_is_hidden(number):
    said = stream(ROLE, *(chunk({"tool_calls": [{**part, **number}]}) for part in WHOLE_CALLS[1:]), chunk({}, "stop"))
    assert play([said])[0] == said


def test_an_answer_in_a_single_chunk_is_taken_apart():
    one = chunk(
        {"role": "assistant", "content": "Look:", "tool_calls": numbered(WHOLE_CALLS)},
        "tool_calls",
        usage={"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
    )
    stitcher = new_stitcher()
    now = stitcher.feed(stream(one))
    rest = stitcher.finish()
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks(now + b"data: [DONE]\n\n")] == [None]
    assert json.loads(rest[6:])["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    assert json.loads(rest[6:])["usage"]["completion_tokens"] == 7
    message = sdk_message(now + rest)
    assert (message["content"], [call["id"] for call in message["tool_calls"]]) == ("Look:", ["r", "s"])
    assert_no_trace(now + rest)


def test_an_answer_in_a_single_chunk_without_a_hidden_call_keeps_its_bytes():
    one = chunk({"role": "assistant", "content": "Look:", "tool_calls": numbered(WHOLE_CALLS[1:])}, "tool_calls")
    stitcher = new_stitcher()
    assert stitcher.feed(stream(one)) == stream(one)
    assert stitcher.finish() == b""


def test_text_beside_an_undecided_call_does_not_wait():
    stitcher = new_stitcher()
    stitcher.feed(stream(ROLE))
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    now = stitcher.feed(stream(chunk({"content": "Look:", "tool_calls": numbered(WHOLE_CALLS[1:2])}, usage=usage)))
    assert json.loads(now[6:])["choices"][0]["delta"] == {"content": "Look:"}
    later = stitcher.feed(stream(chunk({"content": " there"}), chunk({}, "tool_calls"), "[DONE]"))
    answer = seen(now + later)
    assert (answer.text, answer.calls) == ("Look: there", (ToolUse(0, "r", "read", "{}"),))


def test_text_after_a_call_has_begun_does_not_wait():
    stitcher = new_stitcher()
    stitcher.feed(stream(ROLE, chunk({"tool_calls": numbered(WHOLE_CALLS[1:2])})))
    text = stream(chunk({"content": "meanwhile"}))
    assert stitcher.feed(text) == text


def test_a_name_that_comes_after_the_id_is_waited_for():
    parts = [
        {"index": 0, "id": "h", "type": "function"},
        {"index": 0, "function": {"arguments": ""}},
        {"index": 0, "function": {"name": TOOL}},
        {"index": 0, "function": {"arguments": ARGUMENTS}},
    ]
    stitcher = new_stitcher()
    stitcher.feed(stream(ROLE))
    assert [stitcher.feed(stream(chunk({"tool_calls": [part]}))) for part in parts] == [b""] * 4
    assert stitcher.held().calls == (HeldCall("h", TOOL, ARGUMENTS),)


def test_a_role_in_every_chunk_is_shown_once_where_chunks_are_changed():
    calls = [chunk({"role": "assistant", "content": None, "tool_calls": [part]}) for part in numbered(WHOLE_CALLS)]
    client, _ = play([stream(*calls, chunk({"role": "assistant", "content": ""}, "tool_calls"), "[DONE]")])
    roles = [part["choices"][0]["delta"].get("role") for part in chunks(client)]
    assert roles == ["assistant", None, None, "assistant"]  # the last one came with the end, which is as it was
    later, _ = play(
        [
            stream(*calls[:1], chunk({}, "tool_calls"), "[DONE]"),
            stream(
                chunk({"role": "assistant", "content": "a"}),
                chunk({"role": "assistant", "content": ""}),
                chunk({"content": ""}),
                chunk({}, "stop"),
                "[DONE]",
            ),
        ]
    )
    assert [part["choices"][0]["delta"] for part in chunks(later)] == [
        {"role": "assistant", "content": None},
        {"content": "a"},
        {"content": ""},
        {},
    ]


def test_a_role_that_the_first_leg_did_not_bring_comes_from_the_second():
    first = stream(chunk({"tool_calls": numbered(WHOLE_CALLS[:1])}), chunk({}, "tool_calls"), "[DONE]")
    client, _ = play([first, streamed(1, Say("So."))])
    assert chunks(client)[0]["choices"][0]["delta"]["role"] == "assistant"
    assert sdk_message(client)["content"] == "So."


def test_usage_in_every_chunk_is_told_as_the_clients_own():
    def used(count):
        return {"usage": {"prompt_tokens": 10, "completion_tokens": count, "total_tokens": 10 + count}}

    first = stream(
        ROLE,
        chunk({"content": "abc"}, **used(60)),
        chunk({"tool_calls": numbered(WHOLE_CALLS[:1])}, **used(90)),
        chunk({}, "tool_calls"),
        "[DONE]",
    )
    second = stream(ROLE, chunk({"content": "d"}, **used(1)), chunk({"content": "e"}, "stop", **used(2)), "[DONE]")
    client, _ = play([first, second])
    before = 90 - (len(TOOL + ARGUMENTS) // 4 + 8)
    told = [part["usage"] for part in chunks(client) if part.get("usage")]
    assert [usage["completion_tokens"] for usage in told] == [60, before + 1, before + 2]
    assert [usage["total_tokens"] for usage in told] == [70, before + 11, before + 12]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_last_event_without_its_end_is_read_all_the_same(end):
    plain = streamed(0, Say("abc")).removesuffix(b"\n\n") + end
    assert play([plain])[0] == plain
    hiding = streamed(0, Say("abc", [HIDDEN])).removesuffix(b"data: [DONE]\n\n").removesuffix(b"\n\n") + end
    client, notes = play([hiding, streamed(1, Say("def"))])
    assert [held.whole for held, _ in notes] == [True, True]
    assert (seen(client).text, seen(client).complete) == ("abcdef", True)


def test_text_in_a_last_event_without_its_end_goes_out_before_the_next_leg():
    stitcher = new_stitcher()
    stitcher.feed(
        stream(ROLE, chunk({"tool_calls": numbered(WHOLE_CALLS[:1])}), chunk({"content": "late"}, "stop"))[:-2]
    )
    assert stitcher.held().whole
    stitcher.go_on()
    client = stitcher.feed(stream(ROLE, chunk({"content": "r"}), chunk({}, "stop"), "[DONE]")) + stitcher.finish()
    assert [part["choices"][0]["delta"].get("content") for part in chunks(client)] == ["late", "r", None]


def test_text_in_a_last_event_without_its_end_is_kept_apart_from_a_call_that_waited():
    said = stream(ROLE, chunk({"tool_calls": numbered(WHOLE_CALLS[1:2])}), chunk({"content": "late"}))[:-2]
    client, [(held, _)] = play([said])
    assert (seen(client).text, seen(client).calls[0].call_id, held.whole) == ("late", "r", False)


def test_what_cant_be_read_passes_unless_it_may_hold_a_hidden_call():
    broken = b'data: {"choices": [{"delta": {"tool_calls": [{"function": {"name": "%b\n\n'
    stitcher = new_stitcher()
    assert stitcher.feed(broken % b"read") == broken % b"read"
    assert stitcher.feed(broken % TOOL.encode()) == b""
    stitcher.feed(stream(ROLE, chunk({"tool_calls": numbered(WHOLE_CALLS[:1])})))
    assert stitcher.feed(b"data: {{\n\n") == b""


def test_text_that_is_no_text_is_passed_on_unread():
    odd = [b'{"choices": [{"delta": {"content": "\xff"}}]}', b'{"x": %b%b, "choices": [{"delta": {}}]}']
    parts = [b"data: %b\n\n" % data for data in (odd[0], odd[1] % (b"[" * 5000, b"]" * 5000))]
    stitcher = new_stitcher()
    begun = stitcher.feed(stream(ROLE, chunk({"content": "a"})) + b"".join(parts))
    assert begun == stream(ROLE, chunk({"content": "a"})) + b"".join(parts)
    stitcher.feed(stream(chunk({"tool_calls": numbered(WHOLE_CALLS[:1])}), chunk({}, "stop")))
    leg = stitcher.leg(["half an emoji: \ud83d"])
    assert json.loads(bytes(leg.parts[0].raw)) == "a"
    assert json.loads(bytes(leg.results[0]))["content"] == "half an emoji: ?"


def test_the_end_without_a_reason_is_an_end():
    client, [(held, _)] = play(
        [stream(ROLE, chunk({"tool_calls": numbered([WHOLE_CALLS[1], WHOLE_CALLS[0]])}), "[DONE]")]
    )
    assert held == LegEnd((HeldCall("h", TOOL, ARGUMENTS),), mixed=True, shown=True)
    assert client.endswith(b"data: [DONE]\n\n")


def test_calls_without_ids_get_ids_of_their_own():
    bare = [{**piece("", TOOL, ARGUMENTS), "index": at} for at in range(2)] + [
        {**piece("r", TOOL, "{}"), "index": 2},
        {**piece("r", "read", "{}"), "index": 3},
    ]
    _, [(held, leg)] = play([stream(ROLE, chunk({"tool_calls": bare}), chunk({}, "tool_calls"))])
    ids = [call.call_id for call in held.calls]
    assert len({*ids, "r"}) == 4
    assert all(re.fullmatch("call_[0-9a-f]{16}", call_id) for call_id in ids)
    assert [json.loads(bytes(raw))["tool_call_id"] for raw in leg.results] == ids
    again = play([stream(ROLE, chunk({"tool_calls": bare}), chunk({}, "tool_calls"))])[1]
    assert again == [(held, leg)]


def test_what_a_provider_adds_to_a_call_goes_back_with_it():
    signed = {**WHOLE_CALLS[0], "index": 0, "extra_content": {"google": {"thought_signature": "c2ln"}}}
    _, [(_, leg)] = play([stream(ROLE, chunk({"tool_calls": [signed]}), chunk({}, "tool_calls"))])
    assert json.loads(bytes(leg.parts[0].raw)) == {**WHOLE_CALLS[0], "extra_content": signed["extra_content"]}


def test_a_custom_tools_call_that_imitates_a_stub_is_held_in_its_own_form():
    custom = {"id": "c", "type": "custom", "custom": {"name": "patch", "input": f"see {HANDLE}"}}
    _, [(held, leg)] = play([stream(ROLE, chunk({"tool_calls": [{**custom, "index": 0}]}), chunk({}, "tool_calls"))])
    assert held.calls == (HeldCall("c", "patch", f"see {HANDLE}"),)
    assert json.loads(bytes(leg.parts[0].raw)) == custom


def test_reasoning_is_remembered_in_the_form_it_came_in():
    pieces = [
        {"reasoning": "I ", "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "I "}]},
        {"reasoning": "see", "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "see", "id": None}]},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "c2ln"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "eA=="}]},
    ]  # fmt: skip
    _, [(_, leg)] = play(
        [stream(ROLE, *map(chunk, pieces), chunk({"tool_calls": numbered(WHOLE_CALLS[:1])}), chunk({}, "stop"))]
    )
    assert [(part.kind, json.loads(bytes(part.raw))) for part in leg.parts[:-1]] == [
        ("other", {"reasoning": "I see"}),
        (
            "other",
            [
                {"type": "reasoning.text", "index": 0, "text": "I see", "signature": "c2ln"},
                {"type": "reasoning.encrypted", "index": 1, "data": "eA=="},
            ],
        ),
    ]


# Legs in one piece


def test_a_whole_answer_without_hidden_calls_keeps_its_bytes():
    body = whole(0, Say("Both.", [READ, SHELL]))
    assert play_whole([body]) == (body, [(LegEnd(shown=True), play_whole([body])[1][0][1])])


def test_whole_legs_make_one_answer():
    says = [
        Say("I look.", [HIDDEN], reasoning="Hm. "),
        Say("", [HIDDEN, MIMIC]),
        Say(" Now.", [READ, HIDDEN, SHELL], reasoning="Ah."),
    ]
    body, notes = play_whole([whole(number, say) for number, say in enumerate(says)])
    answer = json.loads(body)
    expected = Chat().whole(turn(0, Say("I look. Now.", [READ, SHELL], reasoning="Hm. Ah.")))
    assert answer["id"] == expected["id"]
    message = answer["choices"][0]["message"]
    assert [call["id"] for call in message.pop("tool_calls")] == [turn(2, Say()).id("call_", at) for at in (0, 2)]
    expected["choices"][0]["message"].pop("tool_calls")
    assert answer["choices"] == expected["choices"]
    assert [(len(held.calls), held.mixed) for held, _ in notes] == [(1, False), (2, False), (1, True)]
    assert_no_trace(body, (0, 0), (1, 0), (1, 1), (2, 1))
    with sdk(body, "application/json") as openai:
        assert openai.chat.completions.create(**ASKED).choices[0].message.content == "I look. Now."


def test_a_whole_answer_of_hidden_calls_alone_says_nothing():
    body, _ = play_whole([whole(0, Say("", [HIDDEN]))])
    choice = json.loads(body)["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"], "tool_calls" in choice["message"]) == (
        "stop",
        None,
        False,
    )


def test_whole_calls_without_ids_or_with_one_number_are_told_apart():
    calls = [{"index": 0, **part, "id": ""} for part in WHOLE_CALLS]
    message = {
        "role": "assistant",
        "content": "x",
        "tool_calls": calls,
        "reasoning_details": [{"text": "a"}, {"text": "b"}],
    }
    body = json.dumps(
        {"id": "1", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    ).encode()
    told, [(held, leg)] = play_whole([body])
    assert [call["function"]["name"] for call in json.loads(told)["choices"][0]["message"]["tool_calls"]] == [
        "read",
        "shell",
    ]
    assert [call.name for call in held.calls] == [TOOL]
    assert json.loads(bytes(leg.parts[0].raw)) == [{"text": "a"}, {"text": "b"}]


def test_structured_reasoning_of_whole_legs_is_told_together():
    def body(call, detail):
        message = {"role": "assistant", "content": None, "reasoning": detail, "reasoning_details": [{"text": detail}]}
        choice = {"index": 0, "message": {**message, **call}, "finish_reason": "tool_calls" if call else "stop"}
        return json.dumps({"id": detail, "choices": [choice]}).encode()

    told, _ = play_whole([body({"tool_calls": WHOLE_CALLS[:1]}, "a"), body({}, "b")])
    answer = json.loads(told)
    assert answer["id"] == "a"
    assert answer["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
        "reasoning": "ab",
        "reasoning_details": [{"text": "a"}, {"text": "b"}],
    }


def test_an_error_in_place_of_an_answer_is_passed_on():
    error = b'{"error": {"message": "overloaded"}}'
    assert play_whole([error])[0] == error
    told, notes = play_whole([whole(0, Say("a", [HIDDEN])), error])
    assert (told, notes[-1][0].whole) == (error, False)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"id": 1}'])
def test_what_is_no_answer_is_not_understood(body):
    with pytest.raises(NotUnderstood):
        new_stitcher().take(body)


# Calls that nobody watches

FREE, CHECKED, REFUSED = Call("free", {"a": "é and more"}), Call("checked", {"b": 1}), Call("refused", {"c": [2, 3]})


def pieces_of(parts, index) -> list[int]:
    """Where among the events the pieces of one call stand."""
    return [at for at, part in enumerate(parts) if b'"tool_calls":[{"index":%d' % index in part]


def test_a_call_that_nobody_watches_passes_as_it_comes():
    stitcher = new_stitcher(Picky())
    for event in events(0, Say("Well.", [FREE, FREE])):
        assert stitcher.feed(event) == event
    assert (stitcher.held(), stitcher.finish()) == (LegEnd(shown=True), b"")


def test_a_call_that_nobody_watches_is_out_with_the_last_byte_of_each_piece():
    stitcher, stream, out = new_stitcher(Picky()), streamed(0, Say("", [FREE])), b""
    for at in range(len(stream)):
        out += stitcher.feed(stream[at : at + 1])
        assert out == stream[: stream.rfind(b"\n\n", 0, at + 1) + 2] if b"\n\n" in stream[: at + 1] else out == b""


@pytest.mark.parametrize("before", [HIDDEN, REFUSED, CHECKED])
def test_a_call_behind_one_that_waits_passes_as_it_comes(before):
    stitcher, parts = new_stitcher(Picky()), events(0, Say("", [before, FREE]))
    held, free = pieces_of(parts, 0), pieces_of(parts, 1)
    out = [stitcher.feed(part) for part in parts]
    assert [out[at] for at in held] == [b""] * len(held)
    released = b"".join(parts[at] for at in held) if before is CHECKED else b""
    assert out[free[0]].startswith(released)
    shown = [out[free[0]].removeprefix(released), *(out[at] for at in free[1:])]
    number = 1 if before is CHECKED else 0
    told, said = [[json.loads(part[6:]) for part in each] for each in (shown, [parts[at] for at in free])]
    for chunk in said:
        chunk["choices"][0]["delta"]["tool_calls"][0]["index"] = number
    assert told == said
    assert len(told) > 2


def test_a_watched_call_behind_one_that_nobody_watches_waits_until_it_is_complete():
    stitcher, parts = new_stitcher(Picky()), events(0, Say("", [FREE, CHECKED]))
    checked = pieces_of(parts, 1)
    out = [stitcher.feed(part) for part in parts]
    assert out[: checked[0]] == parts[: checked[0]]
    assert [out[at] for at in checked] == [b""] * len(checked)
    assert out[checked[-1] + 1] == b"".join(parts[checked[0] : checked[-1] + 2])


@pytest.mark.parametrize("arguments", ['{"b": 1}', ""])
def test_calls_that_are_all_named_before_any_arguments_come_are_judged_by_their_arguments(arguments):
    class Exact(Picky):
        def holds(self, name, arguments):
            return name == "checked" and arguments != '{"b": 1}'

    def piece(index, name="", said=""):
        call = {"index": index, "function": {"name": name, "arguments": said} if name else {"arguments": said}}
        return chunk({"tool_calls": [{**call, "id": f"call_{index}", "type": "function"} if name else call]})

    named = [ROLE, piece(0, "checked"), piece(1, "free"), piece(2, TOOL)]
    given_after = [piece(0, said=arguments), piece(1, said="{}"), piece(2, said="{}")]
    end = [chunk({}, "tool_calls"), chunk(usage={"completion_tokens": 1})]
    client, [(held, _)] = play([stream(*named, *given_after, *end)], guard=Exact())
    ours = HeldCall("call_2", TOOL, "{}")
    shown = [("checked", arguments)] if arguments else []
    assert held.calls == ((ours,) if arguments else (HeldCall("call_0", "checked", ""), ours))
    told = seen(client).calls
    assert [(call.name, call.arguments) for call in told] == [*shown, ("free", "{}")]
    assert [call.index for call in told] == list(range(len(told)))


mixed_calls = st.sampled_from([FREE, CHECKED, REFUSED, HIDDEN, Call("free", ""), Call("checked", "")])
mixed_legs = st.builds(
    lambda hiding, last: [*hiding, last],
    st.lists(
        st.builds(
            Say, st.sampled_from(["", " Hm."]), st.lists(st.sampled_from([REFUSED, HIDDEN]), min_size=1, max_size=2)
        ),
        max_size=2,
    ),
    st.builds(Say, st.sampled_from(["", " Well."]), st.lists(mixed_calls, max_size=4)),
)


@given(mixed_legs)
def test_to_watch_more_calls_changes_nothing_but_when_they_come(says):
    soon, late = new_stitcher(Picky()), new_stitcher(Picky(everything=True))
    client = awaited = b""
    for number, say in enumerate(says):
        for part in events(number, say):
            client, awaited = client + soon.feed(part), awaited + late.feed(part)
            assert client.startswith(awaited)
        assert soon.held() == late.held()
        answers = answers_to(soon.held())
        assert soon.leg(answers) == late.leg(answers)
        if number + 1 < len(says):
            soon.go_on()
            late.go_on()
    client, awaited = client + soon.finish(), awaited + late.finish()
    assert client == awaited
    shown = [call for call in says[-1].calls if call.name in ("free", "checked")]
    told = seen(client).calls
    assert [(call.index, call.name, call.arguments) for call in told] == [
        (at, call.name, call.text) for at, call in enumerate(shown)
    ]


@given(mixed_legs)
def test_whole_and_streamed_legs_with_some_watched_calls_say_the_same(says):
    legs = [streamed(number, say) for number, say in enumerate(says)]
    client, notes = play(legs, guard=Picky())
    assert play(legs, range(max(map(len, legs))), guard=Picky()) == (client, notes)
    for guard in (Picky(), Picky(everything=True)):
        body, noted = play_whole([whole(number, say) for number, say in enumerate(says)], guard)
        assert noted == notes
        assert chat.read(body).calls == seen(client).calls


# Laws

words = st.lists(
    st.sampled_from([" I", " see", " the\n", " file", " \u00e9", " \U0001f600.", '"', " {}"]), max_size=6
).map("".join)
real_calls = st.sampled_from([READ, SHELL, Call("read", "{}"), Call("todo", "")])
hidden_calls = st.sampled_from(
    [HIDDEN, Call(TOOL, {"pages": [HANDLE, "pg_ffffffff"], "lines": "1-9"}), MIMIC, Call(TOOL, "")]
)
hiding_legs = st.builds(Say, words, st.lists(hidden_calls, min_size=1, max_size=3), words)
last_legs = st.builds(Say, words, st.lists(real_calls | hidden_calls, max_size=4), words)
scenarios = st.builds(lambda hiding, last: [*hiding, last], st.lists(hiding_legs, max_size=3), last_legs)


def visible(says):
    """The text, the reasoning and the calls that the client is to see."""
    last = [(turn(len(says) - 1, Say()).id("call_", at), call) for at, call in enumerate(says[-1].calls)]
    calls = tuple(ToolUse(0, call_id, call.name, call.text) for call_id, call in last if not is_hidden(call))
    return (
        "".join(say.text for say in says),
        "".join(say.reasoning for say in says),
        tuple(ToolUse(at, call.call_id, call.name, call.arguments) for at, call in enumerate(calls)),
    )


def hidden_places(says):
    return [(number, at) for number, say in enumerate(says) for at, call in enumerate(say.calls) if is_hidden(call)]


@given(scenarios)
def test_the_client_sees_all_that_was_meant_for_it_and_no_trace_of_the_rest(says):
    client, _ = play([streamed(number, say) for number, say in enumerate(says)])
    text, reasoning, calls = visible(says)
    answer = seen(client)
    assert (answer.text, answer.calls, answer.complete) == (text, calls, True)
    message = sdk_message(client)
    assert (message["content"] or "", message["role"]) == (text, "assistant")
    assert [call["function"]["arguments"] for call in message["tool_calls"] or ()] == [call.arguments for call in calls]
    told = chunks(client)
    thought = [part["choices"][0]["delta"].get("reasoning_content", "") for part in told if part["choices"]]
    assert "".join(thought) == reasoning
    assert {part["id"] for part in told} == {turn(0, Say()).id("chatcmpl-")}
    assert [bool(part["choices"]) for part in told].count(False) == 1
    assert_no_trace(client, *hidden_places(says))


@given(scenarios)
def test_whole_legs_and_streamed_legs_say_the_same(says):
    client, notes = play([streamed(number, say) for number, say in enumerate(says)])
    body, noted = play_whole([whole(number, say) for number, say in enumerate(says)])
    assert noted == notes
    answer, told = seen(client), chat.read(body)
    assert (told.text, told.calls, told.finish, told.usage) == (answer.text, answer.calls, answer.finish, answer.usage)
    assert_no_trace(body, *hidden_places(says))


@given(scenarios, st.lists(st.integers(0, 20_000), max_size=12), st.sampled_from([b"\n", b"\r\n"]))
def test_a_stream_split_anywhere_gives_the_same(says, cuts, line):
    legs = [streamed(number, say, include_obfuscation=True).replace(b"\n", line) for number, say in enumerate(says)]
    assert play(legs, cuts) == play(legs)


def test_a_stream_split_into_bytes_gives_the_same():
    says = [Say("I see.", [HIDDEN, MIMIC], reasoning="Hm."), Say("\u00e9", [READ, HIDDEN, SHELL])]
    legs = [streamed(number, say) for number, say in enumerate(says)]
    assert play(legs, range(max(map(len, legs)))) == play(legs)


@given(last_legs.filter(lambda say: not any(map(is_hidden, say.calls))), st.lists(st.integers(0, 20_000), max_size=6))
def test_a_stream_that_hides_nothing_keeps_its_bytes(say, cuts):
    stream = streamed(0, say, include_obfuscation=True)
    assert play([stream], cuts)[0] == stream


def without_ids(told) -> list[dict]:
    """The chunks, without what can't be the same: the calls' ids, and the count of what was said."""
    for part in told:
        part["usage"] = part["usage"] and part["usage"]["prompt_tokens_details"].keys()
        for choice in part["choices"]:
            for call in choice["delta"]["tool_calls"] or ():
                call["id"] = bool(call["id"])
    return told


plain_words = st.lists(st.sampled_from([" I", " see", " the", " \u00e9"]), max_size=4).map("".join)
plain_calls = st.lists(st.sampled_from([READ, SHELL]), max_size=3)


@given(
    thoughts=st.lists(plain_words, max_size=2),
    texts=st.lists(plain_words, max_size=2),
    last=plain_words,
    calls=plain_calls,
)
def test_the_sdk_reads_the_same_chunks_as_of_a_call_without_hidden_legs(thoughts, texts, last, calls):
    hiding = [Say("", [HIDDEN], thought) for thought in thoughts] + [Say(text, [HIDDEN, MIMIC]) for text in texts]
    says = [*hiding, Say(last, calls)]
    client, _ = play([streamed(number, say) for number, say in enumerate(says)])
    plain = streamed(0, Say("".join(texts) + last, calls, "".join(thoughts)))
    told, expected = without_ids(sdk_chunks(client)), without_ids(sdk_chunks(plain))
    told[0]["choices"][0]["delta"]["content"] = expected[0]["choices"][0]["delta"]["content"]  # "" or null to open with
    assert told == expected


odd_keys = st.sampled_from(
    ["index", "id", "function", "name", "arguments", "role", "content", "tool_calls", "delta", "usage"]
)
odd = st.recursive(
    st.none() | st.integers(0, 2) | st.sampled_from(["", "a", TOOL, "stop", "tool_calls"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_keys, inner, max_size=4),
    max_leaves=8,
)
odd_pieces = st.fixed_dictionaries({}, optional={"index": odd, "id": odd, "function": odd, "custom": odd, "type": odd})
odd_deltas = st.fixed_dictionaries(
    {},
    optional={
        "role": odd,
        "content": odd,
        "tool_calls": st.lists(odd_pieces | odd, max_size=3),
        "reasoning_details": odd,
    },
)
odd_choices = st.fixed_dictionaries(
    {}, optional={"index": odd, "delta": odd_deltas | odd, "message": odd_deltas, "finish_reason": odd}
)
odd_chunks = st.fixed_dictionaries(
    {}, optional={"choices": st.lists(odd_choices, max_size=2) | odd, "usage": odd, "id": odd, "error": odd}
)
odd_streams = st.lists(odd_chunks.map(json.dumps) | st.sampled_from(["[DONE]", "{", "", "7"]), max_size=6)


@given(st.lists(odd_streams, min_size=1, max_size=2), st.lists(st.integers(0, 2000), max_size=6))
def test_odd_streams_break_nothing_and_splits_do_not_matter(streams, cuts):
    legs = [stream(*said) for said in streams]
    whole_legs, split_legs = new_stitcher(), new_stitcher()
    for leg in legs:
        out = whole_legs.feed(leg)
        assert b"".join(split_legs.feed(part) for part in cut(leg, cuts)) == out
        assert split_legs.held() == whole_legs.held()
        whole_legs.go_on()
        split_legs.go_on()
    assert split_legs.finish() == whole_legs.finish()


@given(odd_chunks.map(lambda answer: {"choices": [], **answer}))
def test_odd_whole_answers_break_nothing(answer):
    stitcher = new_stitcher()
    stitcher.take(json.dumps(answer).encode())
    held = stitcher.held()
    stitcher.leg(answers_to(held))
    assert json.loads(stitcher.finish()) is not None
    stitcher.go_on()
    stitcher.take(json.dumps(answer).encode())
    assert json.loads(stitcher.finish()) is not None
