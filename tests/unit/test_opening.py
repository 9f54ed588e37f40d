"""The beginning of a stream: an error that says the prompt is too long is found and kept back, nothing else is."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pager.proxy.stream_head import EVENTS, Opening

CREATED = b'event: response.created\ndata: {"type":"response.created","response":{"id":"r","error":null}}\n\n'
FAILED = (
    b'event: response.failed\ndata: {"type":"response.failed","response":{"id":"r","error":{"code":'
    b'"context_length_exceeded","message":"Your input exceeds the context window of this model."}}}\n\n'
)
TEXT = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"an error"}\n\n'


def pieces(stream, cuts):
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[start:end] for start, end in itertools.pairwise(places)]


@given(st.lists(st.integers(0, 10_000), max_size=8))
def test_the_error_is_kept_back_however_the_stream_is_cut(cuts):
    opening, passed = Opening(), b""
    for chunk in pieces(CREATED + FAILED, cuts):
        passed += opening.feed(chunk)
    assert passed == CREATED
    assert opening.overflow is not None
    assert opening.release() == FAILED
    assert opening.overflow is None
    assert opening.feed(TEXT) == TEXT


@given(st.lists(st.integers(0, 10_000), max_size=8), st.integers(0, EVENTS + 2), st.booleans())
def test_every_other_stream_passes_whole(cuts, texts, torn):
    stream = CREATED + b": a comment\n\n" + TEXT * texts
    stream = stream[:-3] if torn else stream
    opening = Opening()
    passed = b"".join(opening.feed(chunk) for chunk in pieces(stream, cuts))
    assert opening.overflow is None
    assert passed + opening.release() == stream


def test_an_error_after_the_beginning_is_the_answers_own():
    opening = Opening()
    assert opening.feed(TEXT * EVENTS + FAILED) == TEXT * EVENTS + FAILED
    assert opening.overflow is None
