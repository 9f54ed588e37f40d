"""The server-sent-events decoder: any split of the bytes gives the same events, and no byte is lost."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pager.wire.sse import Decoder, ServerSentEvent

FIELDS = [
    b"data: one",
    b"data:two",
    b"data:  padded",
    b"data",
    b"data:",
    b"data: caf\xc3\xa9",
    b"event: ping",
    b"event:",
]
OTHERS = [b": comment", b":", b"id: 7", b"retry: 10", b"unknown: x", b"\xef\xbb\xbf", b""]
ENDINGS = [b"\n", b"\r\n", b"\r", b"\n\n"]
streams = st.lists(st.sampled_from([*FIELDS, *OTHERS, *ENDINGS, *ENDINGS]), max_size=24).map(b"".join)


def decoded(*chunks: bytes) -> tuple[list[ServerSentEvent], bytes]:
    decoder = Decoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)], decoder.rest()


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def by_the_book(stream: bytes) -> list[tuple[str, bytes]]:
    """The events with data, found line by line as the standard words it."""
    found, name, data = [], "", []
    for line in re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf")):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            found.append((name, b"\n".join(data)))
            name, data = "", []
        elif field == b"event":
            name = value.decode()
        elif field == b"data":
            data.append(value)
    return [(name, said) for name, said in found if said]


@given(streams, st.lists(st.integers(0, 1000), max_size=12))
def test_any_split_gives_the_same_events(stream, cuts):
    assert decoded(*split(stream, cuts)) == decoded(stream)


@given(streams)
def test_single_bytes_give_the_same_events(stream):
    assert decoded(*(stream[at : at + 1] for at in range(len(stream)))) == decoded(stream)


@given(streams, st.lists(st.integers(0, 1000), max_size=6))
def test_the_raw_bytes_and_the_rest_are_the_input(stream, cuts):
    events, rest = decoded(*split(stream, cuts))
    assert b"".join(event.raw for event in events) + rest == stream


@given(streams)
def test_the_events_are_those_of_the_standard(stream):
    closed = stream + b"\n\n"
    events, rest = decoded(closed)
    assert [(event.name, event.data) for event in events if event.data] == by_the_book(closed)
    assert rest.strip(b"\r\n") == b""


def test_an_event_has_its_name_its_data_and_its_bytes():
    events, rest = decoded(b'event: delta\ndata: {"a": 1}\n\ndata: next')
    assert events == [ServerSentEvent("delta", b'{"a": 1}', b'event: delta\ndata: {"a": 1}\n\n')]
    assert rest == b"data: next"


def test_data_lines_are_joined_and_comments_hold_none():
    events, _ = decoded(b"data: a\ndata:b\n\n: still here\n\n")
    assert [event.data for event in events] == [b"a\nb", b""]


def test_a_line_feed_after_two_carriage_returns_goes_to_the_next_event():
    events, rest = decoded(b"data: a\r\r", b"\ndata: b\r\r")
    assert [(event.data, event.raw) for event in events] == [(b"a", b"data: a\r\r"), (b"b", b"\ndata: b\r\r")]
    assert rest == b""


def test_an_event_is_given_out_as_soon_as_its_empty_line_is_there():
    for ending in (b"\n\n", b"\r\n\r\n", b"\r\r"):
        events, rest = decoded(b"data: a" + ending)
        assert [event.data for event in events] == [b"a"]
        assert rest == b""


def test_a_byte_order_mark_counts_only_at_the_start():
    events, _ = decoded(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n")
    assert [event.data for event in events] == [b"a", b""]


def test_a_name_that_is_no_text_does_not_stop_the_stream():
    events, _ = decoded(b"event: \xff\ndata: a\n\n")
    assert [(event.name, event.data) for event in events] == [("\ufffd", b"a")]


def test_a_large_event_in_tiny_chunks_is_read_in_linear_time():
    # Joined anew at every byte this would move some 80 GB.
    stream = b"data: " + b"x" * 400_000 + b"\n\n"
    events, rest = decoded(*(stream[at : at + 1] for at in range(len(stream))))
    assert [len(event.data) for event in events] == [400_000]
    assert rest == b""
