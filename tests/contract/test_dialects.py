"""What holds for every dialect; a new one joins by existing."""

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from guards import Unwatched, Watching
from hypothesis import given
from hypothesis import strategies as st
from recordings import REQUESTS

import pager.wire
from pager.errors import ConfigError, NotUnderstood
from pager.paging.page_in import definition
from pager.request_values import Message, Usage
from pager.wire.dialects import load, names, scripted
from pager.wire.parse_cache import ParseCache
from pager.wire.scripted import Call, Say, Turn

every_dialect = pytest.mark.parametrize("dialect", [load(name) for name in names()], ids=names())

HALVES = st.sampled_from(["\ud83d", "\ude00", "\udfff"])  # half an emoji, as JavaScript clients cut it
texts = st.text(max_size=8) | st.builds(str.__add__, st.text(max_size=3), HALVES)
keys = st.sampled_from(
    ["role", "type", "content", "text", "tool_calls", "function", "arguments", "id", "output", "input"]
)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
words = st.sampled_from(
    ["user", "assistant", "tool", "message", "text", "tool_use", "tool_result", "reasoning", "[DONE]"]
)
values = st.recursive(
    leaves | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | texts, inner, max_size=4),
    max_leaves=10,
)
items = st.lists(st.dictionaries(keys, values, max_size=5) | values, max_size=5)
blanks = st.text(" \t\n\r", max_size=2)
layouts = st.fixed_dictionaries(
    {
        "ensure_ascii": st.just(value=True),
        "indent": st.none() | st.integers(0, 2),
        "separators": st.builds(lambda a, b, c, d: (a + "," + b, c + ":" + d), blanks, blanks, blanks, blanks),
    }
)
ITEM_KEYS = tuple(sorted({load(name).items_key for name in names()}))


def body_of(listed, before, after, layout, around=("", "")) -> bytes:
    members = {**before, "model": "m", **dict.fromkeys(ITEM_KEYS, listed), **after}
    return (around[0] + json.dumps(members, **layout) + around[1]).encode()


def distinct(members) -> dict:
    """Without the keys that mean something here, and without those that are the same once half an emoji is replaced."""
    kept = {}
    for key, value in members.items():
        said = key.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if said not in (*ITEM_KEYS, "model", "stream"):
            kept.setdefault(said, (key, value))
    return dict(kept.values())


others = st.dictionaries(texts, values, max_size=3).map(distinct)


@st.composite
def bodies(draw):
    before = draw(others)
    after = distinct({**before, **draw(others)})
    after = {key: value for key, value in after.items() if key not in before}
    return body_of(draw(items), before, after, draw(layouts), (draw(blanks), draw(blanks)))


@every_dialect
@given(body=bodies())
def test_a_request_is_built_to_the_same_bytes(dialect, body):
    request = dialect.parse(body)
    assert request.build() == body
    assert request.body == body


@every_dialect
@given(body=bodies())
def test_the_items_are_the_messages_bytes(dialect, body):
    request = dialect.parse(body)
    listed = json.loads(body)[request.items_key]
    assert [json.loads(bytes(item)) for item in request.items] == listed
    assert list(request.digests) == [sha256(item).digest() for item in request.items]
    ends = [start + len(item) for start, item in zip(request.starts, request.items, strict=True)]
    assert [body[start:end] for start, end in zip(request.starts, ends, strict=True)] == list(map(bytes, request.items))
    if request.separator is not None:
        assert {body[end:start] for end, start in zip(ends, request.starts[1:], strict=False)} <= {request.separator}


@every_dialect
@given(body=bodies())
def test_the_members_are_the_bodys_values(dialect, body):
    spans = dialect.parse(body).members
    assert [json.loads(body[span.start : span.end]) for span in spans.values()] == list(json.loads(body).values())


@every_dialect
@pytest.mark.parametrize("key", ["model", *ITEM_KEYS, "other"])
def test_a_key_that_comes_twice_is_not_understood(dialect, key):
    whole = body_of([], {"other": 1}, {}, {})
    with pytest.raises(NotUnderstood):
        dialect.parse(whole[:-1] + f', "{key}": []}}'.encode())


@every_dialect
@given(
    body=st.binary(max_size=40).filter(lambda raw: b"{" not in raw)
    | (leaves | st.lists(values)).map(lambda value: json.dumps(value).encode())
)
def test_other_bodies_are_not_understood(dialect, body):
    with pytest.raises(NotUnderstood):
        dialect.parse(body)
    with pytest.raises(NotUnderstood):
        dialect.parse(b'{"%b": {}, "x": ' % dialect.items_key.encode() + body + b"}")


@every_dialect
@given(value=st.dictionaries(keys, values, max_size=6) | values)
def test_any_message_can_be_decoded(dialect, value):
    message = dialect.decode(json.dumps(value).encode())
    assert isinstance(message, Message)
    assert len(message.norm) == 32


@every_dialect
@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"7", b'"text"', b"NaN", b"[" * 3000 + b"]" * 3000])
def test_what_cant_be_read_is_opaque(dialect, raw):
    assert dialect.decode(memoryview(raw)) == Message(role="", norm=sha256(raw).digest(), blocks=())


@every_dialect
def test_a_message_nested_too_deep_to_be_written_is_opaque(dialect):
    raw = b'{"role": "user", "content": ' + b"[" * 600 + b"]" * 600 + b"}"
    assert dialect.decode(raw) == Message(role="", norm=sha256(raw).digest(), blocks=())


@every_dialect
@given(value=st.dictionaries(keys, values, max_size=6), layout=layouts)
def test_blanks_and_the_order_of_keys_do_not_change_a_message(dialect, value, layout):
    plain = dialect.decode(json.dumps(value).encode())
    turned = dict(reversed(value.items()))
    assert dialect.decode(json.dumps(value, **layout).encode()).norm == plain.norm
    assert dialect.decode(json.dumps(turned, **layout).encode()).norm == plain.norm


@every_dialect
@given(text=st.text())
def test_escapes_do_not_change_a_message(dialect, text):
    said = {"role": "user", "content": text}
    assert dialect.decode(json.dumps(said, ensure_ascii=False).encode()) == dialect.decode(json.dumps(said).encode())


@every_dialect
@given(value=st.dictionaries(keys, values, max_size=6), kind=st.sampled_from(["ephemeral", "persistent"]))
def test_a_cache_mark_does_not_change_a_message(dialect, value, kind):
    marked = {**value, "cache_control": {"type": kind}}
    assert dialect.decode(json.dumps(marked).encode()).norm == dialect.decode(json.dumps(value).encode()).norm


@every_dialect
def test_text_is_one_text_part_and_nothing_is_none(dialect):
    def norm(**fields):
        return dialect.decode(json.dumps({"role": "assistant", **fields}).encode()).norm

    assert norm(content="hi") == norm(content=[{"type": "text", "text": "hi"}]) != norm(content="ho")
    assert norm() == norm(content=None) == norm(content="") == norm(content=[])


event_names = st.sampled_from(["", "error", "message_start", "content_block_delta", "response.completed", "unknown"])
event_keys = st.sampled_from(["choices", "delta", "usage", "error", "response", "message", "item", "content_block"])
event_data = st.text(max_size=5) | st.dictionaries(keys | event_keys, values, max_size=5).map(json.dumps)
events = st.builds(
    lambda name, data: (f"event: {name}\n" if name else "") + f"data: {data}\n\n", event_names, event_data
)
streams = st.lists(events.map(lambda text: text.encode("utf-8", "replace")) | st.binary(max_size=6), max_size=8).map(
    b"".join
)


@every_dialect
@given(stream=streams, cuts=st.lists(st.integers(0, 2000), max_size=8))
def test_any_stream_can_be_read_and_any_split_reads_the_same(dialect, stream, cuts):
    whole, split = dialect.reader(), dialect.reader()
    whole.feed(stream)
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for start, end in pairwise(edges):
        split.feed(stream[start:end])
    assert split.answer() == whole.answer()


@every_dialect
def test_a_stream_that_said_nothing_is_no_complete_answer(dialect):
    answer = dialect.reader().answer()
    assert (answer.complete, answer.text, answer.calls, answer.usage) == (False, "", (), None)


@every_dialect
@given(body=st.binary(max_size=30) | leaves.map(lambda value: json.dumps(value).encode()))
def test_what_is_no_answer_is_not_understood(dialect, body):
    with pytest.raises(NotUnderstood):
        dialect.read(body)


@every_dialect
@given(
    body=st.dictionaries(st.sampled_from(["choices", "output", "content", "error", "usage", "id"]), values).map(
        json.dumps
    )
)
def test_an_odd_answer_is_read_or_not_understood_but_never_breaks(dialect, body):
    try:
        answer = dialect.read(body.encode())
    except NotUnderstood:
        return
    assert isinstance(answer.text, str)


@every_dialect
@given(status=st.integers(400, 599), message=texts)
def test_an_error_is_json_with_the_message_in_it(dialect, status, message):
    error = json.loads(dialect.error(status, message))["error"]
    assert error["message"] == message.encode(errors="replace").decode()
    assert error["type"]


def test_a_dialect_is_every_folder_with_a_module_of_that_name():
    assert names() == sorted(path.parent.name for path in Path(pager.wire.__file__).parent.glob("*/dialect.py"))
    assert {load(name).name for name in names()} == set(names())


@every_dialect
def test_a_dialect_has_an_endpoint_of_its_own(dialect):
    assert dialect.path.startswith("/")
    assert [load(name) for name in names() if load(name).accepts(dialect.path)] == [dialect]


def test_an_unknown_dialect_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="chat, messages, responses"):
        load("morse")


@every_dialect
def test_threads_that_parse_growing_bodies_do_not_meet(dialect):
    histories = [
        [{"role": "user", "content": f"{at} " + "x" * 2000} for at in range(length)] for length in range(2, 40)
    ]
    growing = [body_of(history, {}, {}, {}) for history in histories]

    def parsed(_):
        return [bytes(dialect.parse(body).items[-1]) for body in growing]

    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(parsed, range(24)):
            assert found == [json.dumps(history[-1]).encode() for history in histories]


@every_dialect
def test_a_cache_of_bodies_changes_nothing_of_a_request(dialect):
    cache, history = ParseCache(), []
    for at in range(8):
        history.append({"role": "user", "content": f"{at} " + "x" * 2000})
        body = body_of(history, {}, {}, {})
        cached, fresh = dialect.parse(body, cache), dialect.parse(body)
        assert (cached.members, list(cached.digests)) == (fresh.members, list(fresh.digests))
        assert list(map(bytes, cached.items)) == list(map(bytes, fresh.items))


# ---- recorded requests of real clients


@every_dialect
@pytest.mark.parametrize("tools", [b"", b'"tools": null,', b'"tools": [],', b'"tools": {},', b'"tools": [1],'])
def test_a_request_without_tools_offers_none(dialect, tools):
    body = b"{" + tools + body_of([], {}, {}, {})[1:]
    assert dialect.offers(dialect.parse(body)) is None


@every_dialect
@given(layout=layouts, after=others)
def test_the_tools_that_a_request_offers_are_found_where_they_stand(dialect, layout, after):
    tools = [json.loads(definition(dialect.name, name)) for name in ("one", "other")]
    after = {key: value for key, value in after.items() if key != "tools"}
    body = body_of([], {"tools": tools}, after, layout)
    request = dialect.parse(body)
    start, offers = dialect.offers(request)
    assert start == request.members["tools"].start
    assert [one.tool.name for one in offers.tools] == ["one", "other"]
    for one in offers.tools:
        description, parameters = (
            json.loads(body[start + span.start : start + span.end]) for span in (one.description, one.parameters)
        )
        assert (description, parameters) == (one.tool.description, one.tool.parameters)
        assert not one.fixed
    assert not offers.deferring


recorded = pytest.mark.recorded
needs_recordings = pytest.mark.skipif(not REQUESTS, reason="CTXPAGER_RECORDINGS names no folder with recordings")


def requests_of(path: Path):
    """The dialect and the body of each recorded request that one of our endpoints would get."""
    with gzip.open(path) as lines:
        for line in map(json.loads, lines):
            dialect = next((load(name) for name in names() if line["path"].startswith("/v1" + load(name).path)), None)
            if dialect is not None and isinstance(line["body"], dict):
                yield dialect, line["body"]


STYLES = (
    {"separators": (",", ":"), "ensure_ascii": False},
    {"separators": (",", ":")},
    {"ensure_ascii": False},
    {"indent": 2},
)


@recorded
@needs_recordings
@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
def test_every_recorded_request_is_built_to_the_same_bytes(path):
    for dialect, body in requests_of(path):
        for style in STYLES:
            written = json.dumps(body, **style).encode()
            request = dialect.parse(written)
            assert request.build() == written
            assert [json.loads(bytes(item)) for item in request.items] == body[request.items_key]
            assert (request.model, request.stream) == (body["model"], body.get("stream", False))


@recorded
@needs_recordings
@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
def test_every_recorded_message_is_read_the_same_in_every_style(path):
    for dialect, body in list(requests_of(path))[-2:]:
        raws = [dialect.parse(json.dumps(body, **style).encode()).items for style in STYLES]
        read = [[dialect.decode(raw) for raw in items] for items in raws]
        assert all(messages == read[0] for messages in read)
        assert all(message.role for message in read[0])


REWRITES_ITS_HISTORY = {"goose"}
LEFT_TO_THE_PROVIDER = {"openai-agents-prev", "sdk-openai-responses-prev", "sdk-anthropic", "sdk-anthropic-stream"}
CALLS = {"basic": 4, "long30": 31}  # calls of the main conversation in these scenarios


def main_conversation(path: Path) -> list[list[bytes]]:
    """The normalised histories that begin as the first request with tools does."""
    histories: list[list[bytes]] = []
    for dialect, body in requests_of(path):
        request = dialect.parse(json.dumps(body).encode())
        history = [request.system, *(dialect.decode(item).norm for item in request.items)]
        if request.has_tools and (not histories or history[: len(histories[0])] == histories[0]):
            histories.append(history)
    return histories


@recorded
@needs_recordings
@pytest.mark.parametrize(
    "path",
    [
        path
        for path in REQUESTS
        if path.name.split(".")[0] in CALLS and path.parent.name not in REWRITES_ITS_HISTORY | LEFT_TO_THE_PROVIDER
    ],
    ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}",
)
def test_each_call_of_a_recorded_conversation_extends_the_one_before(path):
    histories = main_conversation(path)
    assert len(histories) >= min(CALLS[path.name.split(".")[0]], len(list(requests_of(path))))
    for former, later in pairwise(histories):
        assert later[: len(former)] == former


WIRES = {name: scripted(name) for name in names()}
ASKS = Say("Let me see. ", [Call("page_in", {"pages": ["pg_0123456789abcdef"]})])
READS = Say("Now I read. ", [Call("read", {"path": "a.txt"})])


def events_of(dialect, said, number):
    turn = Turn(number, {"model": "m"}, said, Usage(input=1000))
    return list(WIRES[dialect.name].stream(turn))


@every_dialect
@pytest.mark.parametrize("failed", [ASKS, READS, Say(calls=ASKS.calls), Say(calls=READS.calls)])
def test_a_leg_that_fails_before_it_shows_anything_leaves_no_trace(dialect, failed):
    """Whatever came of it: all that the client gets is what it would have got of the leg that takes its place."""
    guard = Watching(lambda _: False)
    asked, broken, last = (events_of(dialect, said, at) for at, said in enumerate([ASKS, failed, READS]))
    retracted = 0
    for length in range(len(broken)):
        told = []
        for fails in (False, True):
            stitcher = dialect.stitcher("page_in", guard)
            got = stitcher.feed(b"".join(asked))
            assert stitcher.held().calls
            stitcher.go_on()
            if fails:
                got += stitcher.feed(b"".join(broken[:length]) + broken[length][:9])
                if not stitcher.silent:
                    break
                stitcher.retract()
                retracted += 1
            got += stitcher.feed(b"".join(last))
            stitcher.held()
            got += stitcher.finish()
            told.append([one for one in got.split(b"\n\n") if b'"content":""' not in one and b"ping" not in one])
        assert told[0] == told[-1]
    assert retracted >= 2 if failed.calls and not failed.text else retracted


@every_dialect
@pytest.mark.parametrize("said", [ASKS, READS, Say("Just words."), Say(calls=[*ASKS.calls, *READS.calls])])
def test_the_answer_of_a_stitched_leg_is_the_one_that_a_reader_finds(dialect, said):
    streamed, whole = dialect.stitcher("page_in", Watching(lambda _: False)), dialect.stitcher("page_in", Unwatched())
    stream = b"".join(events_of(dialect, said, 0))
    reader = dialect.reader()
    for at in range(0, len(stream), 50):
        reader.feed(stream[at : at + 50])
        streamed.feed(stream[at : at + 50])
        assert streamed.answer() == reader.answer()
    streamed.held()
    assert streamed.answer() == reader.answer()
    turn = Turn(0, {"model": "m"}, said, Usage(input=1000))
    body = json.dumps(WIRES[dialect.name].whole(turn), separators=(",", ":")).encode()
    whole.take(body)
    assert replace(whole.answer(), complete=True) == dialect.read(body)
