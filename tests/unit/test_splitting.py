"""The byte spans of a JSON body's parts."""

import json
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.errors import NotUnderstood
from pager.request_values import Span
from pager.wire.json_spans import elements, members, without_surrogates

blanks = st.text(" \t\n\r", max_size=3)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
written = st.builds(lambda value, plain: json.dumps(value, ensure_ascii=plain), values, st.booleans())


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@st.composite
def arrays(draw):
    """An array with odd blanks, and its elements as they are written in it."""
    listed = draw(st.lists(written, max_size=6))
    even = draw(st.booleans())
    comma = draw(blanks) + "," + draw(blanks)
    gaps = [comma if even else draw(blanks) + "," + draw(blanks) for _ in listed[1:]] + [""]
    inner = "".join(text + gap for text, gap in zip(listed, gaps, strict=False))
    return "[" + draw(blanks) + inner + draw(blanks) + "]", listed


@st.composite
def objects(draw):
    """An object with odd blanks, and its members as they are written in it."""
    parts = draw(st.dictionaries(st.text(max_size=6), written, max_size=6))
    plain = draw(st.booleans())
    said = [
        draw(blanks) + json.dumps(key, ensure_ascii=plain) + draw(blanks) + ":" + draw(blanks) + value + draw(blanks)
        for key, value in parts.items()
    ]
    return draw(blanks) + "{" + ",".join(said or [draw(blanks)]) + "}" + draw(blanks), parts


@given(objects())
def test_every_member_is_found_where_it_stands(case):
    text, parts = case
    body = encoded(text)
    spans = members(body)
    assert {key: body[span.start : span.end] for key, span in spans.items()} == {
        key: encoded(value) for key, value in parts.items()
    }
    assert list(spans) == list(parts)


@given(arrays(), blanks)
def test_every_element_is_found_where_it_stands(case, before):
    text, listed = case
    body = encoded(f'{{{before}"list":{before}{text}{before}}}')
    found = elements(body, members(body)["list"])
    raws = [encoded(value) for value in listed]
    assert [bytes(item) for item in found.items] == raws
    assert [body[start : start + len(raw)] for start, raw in zip(found.starts, raws, strict=True)] == raws
    assert list(found.digests) == [sha256(raw).digest() for raw in raws]


@given(arrays())
def test_an_even_array_is_its_elements_joined_by_the_separator(case):
    body = encoded(case[0])
    found = elements(body, Span(0, len(body)))
    if found.items and found.separator is not None:
        last = found.starts[-1] + len(found.items[-1])
        assert found.separator.join(map(bytes, found.items)) == body[found.starts[0] : last]


def test_evenly_spaced_elements_have_a_separator_and_others_none():
    assert elements(b"[1, 2, 3]", Span(0, 9)).separator == b", "
    assert elements(b"[1, 2,3]", Span(0, 8)).separator is None
    assert elements(b"[1,2, 3]", Span(0, 8)).separator is None


@pytest.mark.parametrize(
    "body", [b'{"a":1,"a":2}', b'{"a":1,"b":2,"a":3}', b'{"a":1,"\\u0061":2}', b'{"a":1,"b":1,"b":2}']
)
def test_a_key_that_comes_twice_is_not_understood(body):
    with pytest.raises(NotUnderstood, match="twice"):
        members(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b'{"a":1} x',
        b'{"a":NaN}',
        b"\xff",
        b'{"a":' + b"[" * 9000 + b"]" * 9000 + b"}",
    ],
)
def test_what_is_no_plain_object_is_not_understood(body):
    with pytest.raises(NotUnderstood):
        members(body)


def test_what_is_no_array_is_not_understood():
    with pytest.raises(NotUnderstood, match="an array"):
        elements(b'{"a": 1}', Span(0, 8))


def test_half_an_emoji_does_not_hide_the_parts():
    body = b'{"half \\ud83d": ["\\ud83d", "\\udc00 \\ud83d\\ude00"], "whole \\ud83d\\ude00": 1}'
    spans = members(body)
    assert list(spans) == ["half \ufffd", "whole \U0001f600"]
    found = elements(body, spans["half \ufffd"])
    assert [bytes(item) for item in found.items] == [b'"\\ud83d"', b'"\\udc00 \\ud83d\\ude00"']


@given(st.lists(st.sampled_from([r"\ud83d", r"\ude00", r"\\", r"\"", r"\n", r"\u00e9", "ud83d", "x"]), max_size=12))
def test_only_lone_surrogates_are_replaced_and_the_length_is_kept(pieces):
    raw = '"' + "".join(pieces) + '"'
    mended = without_surrogates(raw.encode())
    assert len(mended) == len(raw)
    expected = json.loads(raw).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert len(json.loads(mended)) == len(expected)
    json.loads(mended).encode()  # nothing lone is left
    assert json.loads(mended) == expected
