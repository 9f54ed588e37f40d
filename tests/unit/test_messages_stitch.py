"""Hidden legs of the Anthropic Messages dialect: what the client sees of a call, and what is kept from it."""

import json
from dataclasses import dataclass
from itertools import pairwise

import httpx2
import orjson
import pytest
from anthropic import Anthropic
from guards import Picky, Watching
from hypothesis import given
from hypothesis import strategies as st
from laws import examples
from messages_blocks import FOUND, SEARCH, text, thinking

from pager.errors import NotUnderstood
from pager.request_values import Usage
from pager.wire.dialects import load
from pager.wire.messages.scripted import Scripted as Messages
from pager.wire.scripted import Call, Say, Turn
from pager.wire.sse import Decoder
from pager.wire.stitching import HeldCall, Leg, LegEnd

messages = load("messages")
TOOL, HANDLE = "page_in", "pg_0123456789abcdef"
PAGE_IN = Call(TOOL, {"pages": [HANDLE]})
READ = Call("read", {"path": "a.txt"})
IMITATION = Call("read", {"path": f"[{HANDLE}: a.txt]"})
ROUNDS = 5


# ---------------------------------------------------------------- writing what a provider sends


def event(kind, **fields) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **fields}))


def pieces(text, size=5):
    return [text[at : at + size] for at in range(0, len(text), size)]


def block_events(index, block):
    """The events of one block; its deltas a few characters at a time."""
    hollow = {"text": "", "thinking": "", "signature": "", "input": {}}
    begun = {key: hollow.get(key, value) for key, value in block.items() if key != "citations"}
    yield event("content_block_start", index=index, content_block=begun)
    deltas = [{"type": "thinking_delta", "thinking": bit} for bit in pieces(block.get("thinking", ""))]
    deltas += [{"type": "signature_delta", "signature": block["signature"]}] if "signature" in block else []
    deltas += [{"type": "text_delta", "text": bit} for bit in pieces(block.get("text", ""))]
    deltas += [{"type": "citations_delta", "citation": citation} for citation in block.get("citations", ())]
    given = orjson.dumps(block["input"]).decode() if "input" in block else ""
    deltas += [{"type": "input_json_delta", "partial_json": bit} for bit in pieces(given)]
    yield from (event("content_block_delta", index=index, delta=delta) for delta in deltas)
    yield event("content_block_stop", index=index)


@dataclass(frozen=True)
class Spoken:
    """One leg as the provider says it."""

    number: int
    blocks: tuple
    stop: str = ""

    @property
    def ending(self):
        return self.stop or ("tool_use" if any(block["type"] == "tool_use" for block in self.blocks) else "end_turn")

    @property
    def inputs(self):
        at = self.number
        return {
            "input_tokens": 10 + at, "cache_creation_input_tokens": 20 + at, "cache_read_input_tokens": 30 + at,
        }  # fmt: skip

    @property
    def output(self):
        return 100 * (self.number + 1)

    def message(self, **more):
        frame = {"id": f"msg_{self.number}", "type": "message", "role": "assistant", "model": "claude-x"}
        return {**frame, "content": [], "stop_reason": None, "stop_sequence": None, **more}

    def events(self):
        yield event("message_start", message=self.message(usage={**self.inputs, "output_tokens": 1}))
        yield event("ping")
        for index, block in enumerate(self.blocks):
            yield from block_events(index, block)
        delta = {"stop_reason": self.ending, "stop_sequence": None}
        yield event("message_delta", delta=delta, usage={"output_tokens": self.output})
        yield event("message_stop")

    @property
    def stream(self):
        return b"".join(self.events())

    @property
    def body(self):
        usage = {**self.inputs, "output_tokens": self.output, "service_tier": "standard"}
        return orjson.dumps(self.message(content=self.blocks, stop_reason=self.ending, usage=usage))


def call(call_id, name="read", **arguments):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def ask(call_id):
    return call(call_id, TOOL, pages=[HANDLE])


REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgB"}
MCP = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "echo", "server_name": "s", "input": {"value": HANDLE[3:]}}


# ---------------------------------------------------------------- driving a call


@dataclass(frozen=True)
class Outcome:
    """What the client got, and what was held back and recorded on the way."""

    client: bytes
    helds: tuple[LegEnd, ...]
    legs: tuple[Leg, ...]


def imitates(arguments):
    return HANDLE in arguments


def new_splice(guard=None):
    return messages.stitcher(TOOL, guard or Watching(imitates))


def answers(held):
    return [f"=== answer to {call.call_id} ===" for call in held.calls]


def play(legs, take, guard=None):
    """Play these as the legs of one call."""
    stitcher, out, helds, recorded = new_splice(guard), [], [], []
    for number, leg in enumerate(legs):
        if number:
            stitcher.go_on()
        out += take(stitcher, leg)
        held = stitcher.held()
        helds.append(held)
        if held.calls and held.whole:
            recorded.append(stitcher.leg(answers(held)))
    return Outcome(b"".join([*out, stitcher.finish()]), tuple(helds), tuple(recorded))


def drive(streams, cut=lambda stream: [stream], guard=None):
    return play(streams, lambda stitcher, stream: [stitcher.feed(chunk) for chunk in cut(stream)], guard)


def drive_bodies(bodies, guard=None):
    return play(bodies, lambda stitcher, body: [stitcher.take(body) or b""], guard)


def scripted(number, say):
    turn = Turn(number, {"model": "claude-x"}, say, Usage(input=1000 * (number + 1), cached=500, written=100))
    return b"".join(Messages().stream(turn))


def read_events(stream):
    """The events but pings, as (name, data)."""
    found = [(said.name, orjson.loads(said.data)) for said in Decoder().feed(stream) if said.data]
    return [pair for pair in found if pair[0] != "ping"]


ASKED = {"model": "claude-x", "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]}


class Sdk:
    """The real SDK, fed with the bytes of a stream or a body."""

    def __init__(self):
        transport = httpx2.MockTransport(self._answer)
        self._client = Anthropic(
            api_key="k", base_url="http://provider", max_retries=0, http_client=httpx2.Client(transport=transport)
        )
        self._content, self._kind = b"", ""

    def close(self):
        self._client.close()

    def _answer(self, request):
        return httpx2.Response(200, headers={"content-type": self._kind}, content=self._content)

    def stream(self, content):
        self._content, self._kind = content, "text/event-stream"
        with self._client.messages.stream(**ASKED) as stream:
            events = [said.model_dump() for said in stream]
            return events, stream.get_final_message().model_dump()

    def message(self, content):
        self._content, self._kind = content, "application/json"
        return self._client.messages.create(**ASKED).model_dump()


@pytest.fixture(scope="module")
def sdk():
    reader = Sdk()
    yield reader
    reader.close()


# ---------------------------------------------------------------- written conversations


def test_a_call_without_hidden_calls_is_the_providers_bytes():
    stream = scripted(0, Say("Let me see.", [READ, Call("list")], "Hm."))
    stitcher = new_splice()
    assert stitcher.feed(stream) == stream
    assert stitcher.held() == LegEnd((), mixed=True, whole=True, shown=True)
    assert stitcher.finish() == b""


def test_every_event_that_is_no_calls_passes_at_once():
    stitcher = new_splice()
    for said in Spoken(0, (thinking("Hm."), text("Hello."), REDACTED, SEARCH, FOUND, MCP)).events():
        assert stitcher.feed(said) == said


def test_a_real_call_is_let_go_when_its_arguments_are_known():
    stitcher = new_splice()
    for said in list(Spoken(0, ()).events())[:2]:
        stitcher.feed(said)
    *begun, last = block_events(0, call("toolu_1", path="a.txt"))
    assert [stitcher.feed(said) for said in begun] == [b""] * len(begun)
    assert stitcher.feed(last) == b"".join([*begun, last])


def test_a_page_in_call_is_held_and_the_next_leg_goes_on():
    first, last = scripted(0, Say("I look. ", [PAGE_IN])), scripted(1, Say("It says yes."))
    outcome = drive([first, last])
    held = outcome.helds[0]
    (call_id,) = (held_call.call_id for held_call in held.calls)
    assert held == LegEnd((HeldCall(call_id, TOOL, PAGE_IN.text),), mixed=False, whole=True, shown=True)
    assert outcome.helds[1] == LegEnd((), shown=True)
    events = read_events(outcome.client)
    assert [name for name, _ in events].count("message_start") == 1
    assert [data["index"] for name, data in events if name == "content_block_start"] == [0, 1]
    assert events[0][1]["message"]["id"] == read_events(first)[0][1]["message"]["id"]
    assert events[-2][1]["delta"]["stop_reason"] == "end_turn"
    assert events[-1] == ("message_stop", {"type": "message_stop"})
    assert not any(word in outcome.client for word in (TOOL.encode(), HANDLE.encode(), call_id.encode()))


def test_the_client_is_told_the_last_legs_prompt_and_all_visible_output():
    first = Spoken(0, (text("I look."), ask("toolu_h")))
    outcome = drive([first.stream, Spoken(1, (ask("toolu_i"),)).stream, Spoken(2, (text("Yes."),)).stream])
    hidden = len(TOOL + orjson.dumps({"pages": [HANDLE]}).decode()) // 4 + 8
    told = read_events(outcome.client)[-2][1]["usage"]
    # The second leg showed nothing.
    assert told == {**Spoken(2, ()).inputs, "output_tokens": 300 + 100 - hidden}


def test_a_message_delta_corrects_what_the_legs_message_start_said():
    stitcher = new_splice()
    stitcher.feed(Spoken(0, (ask("toolu_h"),)).stream)
    stitcher.go_on()
    stitcher.feed(event("message_start", message={"usage": {"input_tokens": 5, "cache_read_input_tokens": None}}))
    out = stitcher.feed(event("message_delta", delta={"stop_reason": "end_turn"}, usage={"input_tokens": 7}))
    told = {
        "input_tokens": 7, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0,
    }  # fmt: skip
    assert read_events(out) == [
        ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": told})
    ]


def test_a_later_leg_without_counts_is_told_as_it_came():
    stitcher = new_splice()
    stitcher.feed(Spoken(0, (ask("toolu_h"),)).stream)
    stitcher.go_on()
    ending = event("message_delta", delta={"stop_reason": "end_turn"})
    assert stitcher.feed(ending) == ending


def test_visible_output_is_never_less_than_nothing():
    first = Spoken(-1, (text("I look."), ask("toolu_h")))  # no output tokens at all
    outcome = drive([first.stream, Spoken(1, (text("Yes."),)).stream])
    assert read_events(outcome.client)[-2][1]["usage"]["output_tokens"] == 200


def test_real_calls_beside_a_hidden_one_are_forwarded_and_end_the_call():
    blocks = (text("Both."), call("toolu_a", path="a"), ask("toolu_h"), call("toolu_b", path="b"))
    outcome = drive([Spoken(0, blocks).stream])
    shown = Spoken(0, (blocks[0], blocks[1], blocks[3]))
    assert read_events(outcome.client) == read_events(shown.stream)
    (held,), (leg,) = outcome.helds, outcome.legs
    assert held.mixed
    assert leg.mixed
    assert [part.hidden for part in leg.parts] == [False, False, True, False]
    assert [orjson.loads(bytes(part.raw)) for part in leg.parts] == list(blocks)


def test_the_end_of_a_leg_with_hidden_calls_waits():
    stitcher = new_splice()
    *before, delta, stop = Spoken(0, (ask("toolu_h"),)).events()
    for said in before:
        stitcher.feed(said)
    assert stitcher.feed(delta + stop) == b""
    stitcher.go_on()
    assert stitcher.finish() == b""


def test_an_imitation_is_held_back_like_a_page_in_call():
    outcome = drive([scripted(0, Say("", [IMITATION])), scripted(1, Say("Yes."))])
    assert [held_call.name for held_call in outcome.helds[0].calls] == ["read"]
    assert HANDLE.encode() not in outcome.client
    assert orjson.loads(bytes(outcome.legs[0].parts[0].raw))["input"] == IMITATION.arguments
    assert drive_bodies([Spoken(0, (call("toolu_1", path=HANDLE),)).body, Spoken(1, (text("Yes."),)).body]).legs


def test_at_the_limit_of_rounds_the_client_sees_an_ended_turn(sdk):
    legs = [Spoken(number, (text(f"Look {number}."), ask(f"toolu_{number}"))) for number in range(ROUNDS)]
    outcome = drive([leg.stream for leg in legs])
    _, final = sdk.stream(outcome.client)
    assert final["stop_reason"] == "end_turn"
    assert [block["text"] for block in final["content"]] == [f"Look {number}." for number in range(ROUNDS)]
    whole = sdk.message(drive_bodies([leg.body for leg in legs]).client)
    assert whole["stop_reason"] == "end_turn"
    assert whole["usage"]["output_tokens"] == final["usage"]["output_tokens"]


@pytest.mark.parametrize("stop", ["max_tokens", "refusal", "model_context_window_exceeded", "pause_turn"])
def test_a_leg_that_was_cut_is_not_whole_and_ends_as_it_did(stop):
    spoken = Spoken(0, (text("I look."), ask("toolu_h")), stop)
    outcome = drive([spoken.stream])
    assert [held.whole for held in outcome.helds] == [False]
    assert read_events(outcome.client) == read_events(Spoken(0, (text("I look."),), stop).stream)
    assert orjson.loads(drive_bodies([spoken.body]).client)["stop_reason"] == stop
    plain = Spoken(0, (text("I look."),), stop)
    assert drive([plain.stream]).helds == (LegEnd((), shown=True),)


def test_a_stream_that_breaks_off_stays_broken_and_leaks_nothing():
    blocks = (text("Both."), ask("toolu_h"), call("toolu_i", path=HANDLE), call("toolu_b", path="b"))
    events = list(Spoken(0, blocks).events())
    complete = drive([b"".join(events)]).client
    for kept in range(len(events)):
        for torn in (b"", events[kept][:-1]):
            outcome = drive([b"".join(events[:kept]) + torn])
            whole = kept == len(events) - 1 and bool(torn)  # only the empty line after the last event is missing
            assert [held.whole for held in outcome.helds] == [whole]
            assert complete.startswith(outcome.client)
            assert not any(word in outcome.client for word in (b"page_in", b"pg_0", b"toolu_h", b"toolu_i"))


def test_a_later_leg_that_breaks_off_stays_broken():
    cut = Spoken(1, (text("Yes."),)).stream.partition(b"event: message_delta")[0]
    outcome = drive([Spoken(0, (ask("toolu_h"),)).stream, cut])
    assert outcome.helds[1] == LegEnd((), whole=False, shown=True)
    assert [name for name, _ in read_events(outcome.client)][-1] == "content_block_stop"


def test_pings_comments_errors_and_unknown_events_pass_in_every_leg():
    stitcher = new_splice()
    odd = b": keep-alive\n\n" + event("ping") + event("brand_new", value=1) + b"data: [DONE]\n\n"
    odd += event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    assert stitcher.feed(odd) == odd
    stitcher.feed(Spoken(0, (ask("toolu_h"),)).stream)
    stitcher.go_on()
    assert stitcher.feed(odd) == odd
    assert not stitcher.held().whole


def test_events_of_a_block_that_never_began_pass():
    stitcher = new_splice()
    odd = event("content_block_delta", index=7, delta={"type": "text_delta", "text": "x"})
    odd += event("content_block_stop", index=7)
    assert stitcher.feed(odd) == odd


def test_a_call_that_is_never_closed_is_settled_by_the_end():
    *events, delta, stop = Spoken(0, (call("toolu_a", path="a"),)).events()
    stitcher = new_splice()
    assert stitcher.feed(b"".join([*events[:-1], delta, stop])) == b"".join([*events[:-1], delta, stop])
    *events, delta, stop = Spoken(0, (call("toolu_a", path=HANDLE),)).events()
    stitcher = new_splice()
    assert stitcher.feed(b"".join([*events[:-1], delta, stop])) == b"".join(events[:2])
    assert len(stitcher.held().calls) == 1


def test_a_stream_without_event_names_is_read_by_its_types():
    def unnamed(stream):
        return b"".join(line + b"\n\n" for line in stream.split(b"\n") if line.startswith(b"data: "))

    named = [Spoken(0, (text("A"), ask("toolu_h"), text("B"))).stream, Spoken(1, (text("C"),)).stream]
    assert drive([unnamed(stream) for stream in named]).client == unnamed(drive(named).client)


def test_arguments_that_came_with_the_blocks_start_are_read():
    begun = {"type": "content_block_start", "index": 0, "content_block": ask("toolu_h")}
    stitcher = new_splice()
    stitcher.feed(event("content_block_start", **begun) + event("content_block_stop", index=0))
    assert stitcher.held().calls == (HeldCall("toolu_h", TOOL, '{"pages":["pg_0123456789abcdef"]}'),)


@pytest.mark.parametrize("written", ['{"pages": [', '["pg_1"]', "7"])
def test_arguments_that_are_no_object_go_back_in_one(written):
    stitcher = new_splice()
    stitcher.feed(event("content_block_start", index=0, content_block=call("toolu_h", TOOL)))
    stitcher.feed(event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": written}))
    assert stitcher.held().calls == (HeldCall("toolu_h", TOOL, written),)
    assert orjson.loads(bytes(stitcher.leg(["No."]).parts[0].raw))["input"] == {"INVALID_JSON": written}


def test_arguments_keep_their_own_digits():
    raw = b'{"n": 123456789012345678901234567890}'
    body = b'{"content": [{"type": "tool_use", "id": "t", "name": "page_in", "input": %b}]}' % raw
    stitcher = new_splice()
    stitcher.take(body)
    assert stitcher.held().calls[0].arguments.encode() == raw
    assert raw in bytes(stitcher.leg(["x"]).parts[0].raw)


def test_a_leg_is_recorded_in_the_form_that_a_request_takes():
    cited = {**text("As said."), "citations": [{"type": "char_location", "cited_text": "x"}]}
    blocks = (thinking("Hm."), REDACTED, text(""), text(" \n"), cited, SEARCH, FOUND, {**ask("t"), "caller": None})
    outcome = drive([Spoken(0, blocks).stream])
    (leg,) = outcome.legs
    assert [part.kind for part in leg.parts] == ["reasoning", "reasoning", "text", "other", "other", "call"]
    assert [orjson.loads(bytes(part.raw)) for part in leg.parts] == [
        thinking("Hm."), REDACTED, cited, SEARCH, FOUND, ask("t"),
    ]  # fmt: skip
    result = {"type": "tool_result", "tool_use_id": "t", "content": "=== answer to t ==="}
    assert [orjson.loads(bytes(raw)) for raw in leg.results] == [result]
    assert not leg.mixed


def test_half_an_emoji_in_an_answer_can_be_sent():
    stitcher = new_splice()
    stitcher.feed(Spoken(0, (ask("t"),)).stream)
    assert orjson.loads(bytes(stitcher.leg(["cut \ud83d"]).results[0]))["content"] == "cut ?"


def test_thinking_that_came_in_one_piece_keeps_its_bytes():
    raw = b'{"signature": "EqQB", "thinking": "caf\\u00e9 \\ud83d", "type": "thinking"}'
    stitcher = new_splice()
    stitcher.take(b'{"content": [%b, %b]}' % (raw, orjson.dumps(ask("t"))))
    assert bytes(stitcher.leg(["x"]).parts[0].raw) == raw


def test_a_leg_that_showed_nothing_says_so():
    stitcher = new_splice()
    stitcher.feed(Spoken(0, (text("  "), ask("t"))).stream)
    assert not stitcher.held().shown
    stitcher.go_on()
    stitcher.feed(Spoken(1, (thinking("Hm."), ask("u"))).stream)
    assert stitcher.held().shown
    stitcher.go_on()
    assert stitcher.held().shown


def test_an_error_inside_a_stream_is_an_error_event():
    ((name, data),) = read_events(new_splice().fail(529, "Overloaded"))
    assert name == "error"
    assert data == {"type": "error", "error": {"message": "Overloaded", "type": "overloaded_error"}}


def test_the_heartbeat_is_a_ping():
    (beat,) = Decoder().feed(messages.heartbeat)
    assert (beat.name, orjson.loads(beat.data)) == ("ping", {"type": "ping"})


# ---------------------------------------------------------------- bodies in one piece


def test_a_body_without_hidden_calls_is_the_providers_bytes():
    body = json.dumps(json.loads(Spoken(0, (text("é"), call("toolu_a"))).body), indent=1).encode()
    stitcher = new_splice()
    stitcher.take(body)
    assert stitcher.held() == LegEnd((), mixed=True, shown=True)
    assert stitcher.finish() == body


def test_bodies_are_joined_in_the_last_one():
    first, last = Spoken(0, (text("I look."), ask("toolu_h"))), Spoken(1, (thinking("Hm."), text("Yes.")))
    outcome = drive_bodies([first.body, last.body])
    joined = orjson.loads(outcome.client)
    hidden = len(TOOL + orjson.dumps({"pages": [HANDLE]}).decode()) // 4 + 8
    whole = orjson.loads(last.body)
    usage = {**whole["usage"], "output_tokens": 200 + 100 - hidden}
    assert joined == {**whole, "id": "msg_0", "content": [text("I look."), *last.blocks], "usage": usage}
    assert list(joined) == list(whole)


def test_bodies_without_an_id_and_without_counts_are_joined_all_the_same():
    first = orjson.dumps({"content": [text("A"), ask("toolu_h")], "stop_reason": "tool_use"})
    last = orjson.dumps({"content": [text("B")]})
    assert orjson.loads(drive_bodies([first, last]).client) == {"content": [text("A"), text("B")]}
    named = orjson.dumps({"id": "msg_2", "content": [text("B")]})
    assert orjson.loads(drive_bodies([first, named]).client)["id"] == "msg_2"


def test_a_call_without_input_is_one_without_arguments():
    stitcher = new_splice()
    stitcher.take(orjson.dumps({"content": [{"type": "tool_use", "id": "t", "name": TOOL}]}))
    assert stitcher.held().calls == (HeldCall("t", TOOL, "{}"),)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"error": {}}', b'{"content": null}', b'{"content": "x"}'])
def test_other_bodies_are_not_understood(body):
    stitcher = new_splice()
    with pytest.raises(NotUnderstood):
        stitcher.take(body)


# ---------------------------------------------------------------- laws

words = st.text("ab é☔\n", min_size=1, max_size=12)
shown_blocks = st.one_of(
    words.map(text),
    st.builds(thinking, words, st.sampled_from(["EqQB==", "EqQC=="])),
    st.just(REDACTED),
    st.just(SEARCH),
    st.just(FOUND),
)


@st.composite
def conversations(draw):
    """The legs of a call: some that only ask for pages, then one that ends it, with or without hidden calls."""
    ids = (f"toolu_{number}" for number in range(100))

    def hidden():
        return draw(st.sampled_from([ask(next(ids)), call(next(ids), path=f"[{HANDLE}: a]")]))

    def real():
        return call(next(ids), draw(st.sampled_from(["read", "list"])), path=draw(words))

    def leg(number, makers):
        blocks = [draw(shown_blocks) for _ in range(draw(st.integers(0, 2)))]
        blocks += [draw(shown_blocks) if make is None else make() for make in makers]
        return Spoken(number, tuple(blocks))

    rounds = draw(st.integers(0, 3))
    asking = st.lists(st.sampled_from([hidden, hidden, None]), min_size=1, max_size=3).filter(lambda m: hidden in m)
    legs = [leg(number, draw(asking)) for number in range(rounds)]
    return [*legs, leg(rounds, draw(st.lists(st.sampled_from([real, hidden, None]), max_size=4)))]


def is_hidden(block):
    return block["type"] == "tool_use" and HANDLE in str(block["input"])


def without_hiding(legs):
    """The call as a provider would have said it in one leg, had nothing been hidden."""
    shown = [block for leg in legs for block in leg.blocks if not is_hidden(block)]
    last, spoken = legs[-1], 0
    for leg in legs[:-1]:
        kept = sum(
            len(block["name"] + orjson.dumps(block["input"]).decode()) // 4 + 8
            for block in leg.blocks
            if is_hidden(block)
        )
        seen = any(not is_hidden(block) and block.get("text", "x").strip() for block in leg.blocks)
        spoken += max(0, leg.output - kept) if seen else 0
    real = any(block["type"] == "tool_use" and not is_hidden(block) for block in last.blocks)
    ending = "end_turn" if last.ending == "tool_use" and not real else last.ending
    usage = {"output_tokens": last.output + spoken, **(last.inputs if len(legs) > 1 else {})}
    opening, *_ = legs[0].events()
    body = [said for index, block in enumerate(shown) for said in block_events(index, block)]
    delta = event("message_delta", delta={"stop_reason": ending, "stop_sequence": None}, usage=usage)
    return b"".join([opening, *body, delta, event("message_stop")])


@given(conversations())
def test_the_clients_stream_is_that_of_a_call_without_hidden_legs(legs):
    client = drive([leg.stream for leg in legs]).client
    assert read_events(client) == read_events(without_hiding(legs))


@examples(50)
@given(conversations())
def test_the_sdk_sees_no_difference(sdk, legs):
    assert sdk.stream(drive([leg.stream for leg in legs]).client) == sdk.stream(without_hiding(legs))


@given(conversations())
def test_nothing_hidden_leaks(legs):
    streamed, whole = drive([leg.stream for leg in legs]), drive_bodies([leg.body for leg in legs])
    secret = [TOOL, HANDLE, *(block["id"] for leg in legs for block in leg.blocks if is_hidden(block))]
    for word in secret:
        for client in (streamed.client, whole.client):
            assert f'"{word}"'.encode() not in client
            assert word.startswith("toolu_") or word.encode() not in client


@given(conversations(), st.data())
def test_a_stream_split_at_any_bytes_is_the_same(legs, data):
    def cut(stream):
        at = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
        return [stream[start:end] for start, end in pairwise([0, *at, len(stream)])]

    streams = [leg.stream for leg in legs]
    assert drive(streams, cut) == drive(streams)


@examples(50)
@given(conversations(), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_byte_by_byte_is_the_same_as_at_once(legs, line):
    streams = [leg.stream.replace(b"\n", line) for leg in legs]
    assert drive(streams, lambda stream: [stream[at : at + 1] for at in range(len(stream))]) == drive(streams)


@given(conversations())
def test_streams_and_bodies_hold_and_record_the_same(legs):
    streamed, whole = drive([leg.stream for leg in legs]), drive_bodies([leg.body for leg in legs])
    assert streamed.helds == whole.helds
    assert streamed.legs == whole.legs


@examples(50)
@given(conversations())
def test_the_sdk_reads_the_same_message_from_a_body(sdk, legs):
    _, streamed = sdk.stream(drive([leg.stream for leg in legs]).client)
    whole = sdk.message(drive_bodies([leg.body for leg in legs]).client)
    assert whole["content"] == [_plain(block) for block in streamed["content"]]
    assert whole["stop_reason"] == streamed["stop_reason"]
    assert whole["id"] == streamed["id"]
    assert whole["usage"]["output_tokens"] == streamed["usage"]["output_tokens"]


def _plain(block):
    """A block of a stream's final message without the place for what was parsed of it."""
    return {key: value for key, value in block.items() if key != "parsed_output"}


# ---------------------------------------------------------------- calls that nobody watches


def free(call_id):
    return call(call_id, "free", path="é and more")


def test_a_call_that_nobody_watches_passes_as_it_comes():
    stitcher = new_splice(Picky())
    for said in Spoken(0, (text("Well."), free("toolu_1"), free("toolu_2"))).events():
        assert stitcher.feed(said) == said
    assert stitcher.held() == LegEnd((), mixed=True, whole=True, shown=True)
    assert stitcher.finish() == b""


def test_a_call_that_nobody_watches_is_out_with_the_last_byte_of_each_event():
    stitcher, stream, out = new_splice(Picky()), Spoken(0, (free("toolu_1"),)).stream, b""
    for at in range(len(stream)):
        out += stitcher.feed(stream[at : at + 1])
        whole_events = stream[: at + 1].rpartition(b"\n\n")
        assert out == whole_events[0] + whole_events[1]


@pytest.mark.parametrize(("name", "index"), [(TOOL, 0), ("refused", 0), ("checked", 1)])
def test_a_call_behind_one_that_waits_passes_as_it_comes(name, index):
    stitcher = new_splice(Picky())
    before = list(block_events(0, call("toolu_1", name, path="a")))
    out = [stitcher.feed(said) for said in before]
    assert out[:-1] == [b""] * (len(before) - 1)
    assert out[-1] == (b"".join(before) if name == "checked" else b"")
    for said, expected in zip(block_events(1, free("toolu_2")), block_events(index, free("toolu_2")), strict=True):
        assert read_events(stitcher.feed(said)) == read_events(expected)


def test_a_watched_call_behind_one_that_nobody_watches_waits_until_it_is_complete():
    stitcher = new_splice(Picky())
    for said in block_events(0, free("toolu_1")):
        assert stitcher.feed(said) == said
    *begun, last = block_events(1, call("toolu_2", "checked", path="a"))
    assert [stitcher.feed(said) for said in begun] == [b""] * len(begun)
    assert stitcher.feed(last) == b"".join([*begun, last])


def test_what_a_guard_does_not_watch_it_can_not_hold():
    class Careless(Picky):
        def holds(self, name, arguments):
            return True

    spoken = Spoken(0, (free("toolu_1"),))
    for outcome in (drive([spoken.stream], guard=Careless()), drive_bodies([spoken.body], Careless())):
        assert outcome.helds[0].calls == ()
    assert drive_bodies([spoken.body], Careless()).client == spoken.body


@st.composite
def mixtures(draw):
    """Legs whose calls are ours or refused, then one with any."""
    ids = (f"toolu_{number}" for number in range(100))

    def leg(number, names, least):
        chosen = draw(st.lists(st.sampled_from(names), min_size=least, max_size=4))
        blocks = [text("Hm.") if name == "text" else call(next(ids), name, a=draw(words)) for name in chosen]
        return Spoken(number, tuple(blocks))

    rounds = draw(st.integers(0, 2))
    legs = [leg(number, [TOOL, "refused"], 1) for number in range(rounds)]
    return [*legs, leg(rounds, [TOOL, "refused", "checked", "free", "text"], 0)]


@given(mixtures())
def test_to_watch_more_calls_changes_nothing_but_when_they_come(legs):
    soon, late = new_splice(Picky()), new_splice(Picky(everything=True))
    client = awaited = b""
    for number, leg in enumerate(legs):
        if number:
            soon.go_on()
            late.go_on()
        for said in leg.events():
            client, awaited = client + soon.feed(said), awaited + late.feed(said)
            assert client.startswith(awaited)
        assert soon.held() == late.held()
        assert soon.leg(answers(soon.held())) == late.leg(answers(late.held()))
    client, awaited = client + soon.finish(), awaited + late.finish()
    assert client == awaited
    shown = [block for leg in legs for block in leg.blocks if block.get("name") not in (TOOL, "refused")]
    begun = [data for name, data in read_events(client) if name == "content_block_start"]
    assert [(data["index"], data["content_block"].get("id")) for data in begun] == [
        (at, block.get("id")) for at, block in enumerate(shown)
    ]


@examples(50)
@given(mixtures())
def test_bodies_and_streams_with_some_watched_calls_say_the_same(legs):
    streams, bodies = [leg.stream for leg in legs], [leg.body for leg in legs]
    at_once = drive(streams, guard=Picky())
    assert drive(streams, lambda stream: [stream[at : at + 1] for at in range(len(stream))], Picky()) == at_once
    shown = [block for leg in legs for block in leg.blocks if block.get("name") not in (TOOL, "refused")]
    for guard in (Picky(), Picky(everything=True)):
        whole = drive_bodies(bodies, guard)
        assert (whole.helds, whole.legs) == (at_once.helds, at_once.legs)
        assert orjson.loads(whole.client)["content"] == shown
