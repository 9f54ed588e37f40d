"""The log's events: what is written can be read, is documented, and stays readable."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.errors import StoreCorrupt
from pager.log import events
from pager.log.events import (
    EVENT_TYPES,
    SCHEMA_VERSION,
    Event,
    decode,
    encode,
)
from pager.request_values import Usage

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "log.md").read_text()
GOLDEN = (ROOT / "tests" / "data" / "log-v1.jsonl").read_text().splitlines()


def types():
    """Everything with fields that can stand in the log."""
    return {
        name: one
        for name, one in vars(events).items()
        if isinstance(one, type) and issubclass(one, msgspec.Struct) and one is not Event
    }


def documented():
    """The fields of each kind, as the document's tables list them."""
    sections = re.findall(r"^### (\w+)\n(.*?)(?=^#|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    return {kind: re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) for kind, text in sections}


def test_every_kind_and_field_is_documented_in_its_order_and_no_other():
    assert documented() == {name: list(one.__struct_fields__) for name, one in types().items()}


def test_the_document_states_the_versions():
    assert f"schema version {SCHEMA_VERSION}" in DOCUMENT


def test_every_kind_can_be_decoded():
    assert {type(decode(line.encode())) for line in GOLDEN} == set(EVENT_TYPES)


@pytest.mark.parametrize("line", GOLDEN, ids=lambda line: json.loads(line)["kind"])
def test_a_log_of_version_1_stays_readable(line):
    written = json.loads(line)
    event = decode(line.encode(), version=1)
    assert event.kind == written["kind"]
    fields = msgspec.to_builtins({field: getattr(event, field) for field in event.__struct_fields__})
    assert {field: fields[field] for field in written if field != "kind"} == {
        field: value for field, value in written.items() if field != "kind"
    }


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_the_golden_log_uses_every_field(kind):
    lines = [json.loads(line) for line in GOLDEN]
    used = {field for line in lines if line["kind"] == kind.__name__ for field in line}
    assert used == {"kind", *kind.__struct_fields__}


def test_no_cached_tokens_and_no_word_of_them_are_told_apart():
    told, untold = Usage(input=9, tells_cached=True), Usage(input=9)
    assert (told.cached_if_told, untold.cached_if_told) == (0, None)
    assert Usage(input=9, cached=4).cached_if_told == 4, "a log from before it was kept whether this was told"


# Read as bytes a string can't hold half of a surrogate pair; the rest of Unicode must survive.
_text = st.text(st.characters(codec="utf-8"))
_values = {
    str: _text,
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    list[str]: st.lists(_text, max_size=3),
    list[int]: st.lists(st.integers(0, 9), max_size=3),
    list[float]: st.lists(st.sampled_from([300.0, 3600.0]), max_size=3),
    dict[str, str]: st.dictionaries(_text, _text, max_size=3),
    int | None: st.none() | st.integers(0, 9),
    float | None: st.none() | st.floats(0, 9),
    list[events.Evicted]: st.lists(st.builds(events.Evicted, _text, _text, _text, _text), max_size=3),
    list[events.Cut]: st.lists(st.builds(events.Cut, st.integers(0, 9), _text), max_size=3),
    Usage: (_usage := st.builds(Usage, *[st.integers(0, 9)] * 5, st.booleans())),
    Usage | None: st.none() | _usage,
}


def made(kind):
    fields = msgspec.structs.fields(kind)
    return st.builds(kind, **{field.name: _values[field.type] for field in fields})


@given(st.one_of(*map(made, EVENT_TYPES)))
def test_what_was_encoded_decodes_to_the_same(event):
    data = encode(event)
    assert decode(data) == event
    assert json.loads(data)["kind"] == event.kind == type(event).__name__


@given(st.one_of(*map(made, EVENT_TYPES)))
def test_the_same_event_is_always_the_same_bytes(event):
    assert encode(decode(encode(event))) == encode(event)


def test_a_field_unknown_to_this_version_is_passed_over():
    assert decode(b'{"kind":"Bypassed","reason":"x","later":[1]}') == events.Bypassed(reason="x")


def test_an_event_of_a_newer_version_asks_for_an_upgrade():
    with pytest.raises(StoreCorrupt, match=r"version 2.*upgrade"):
        decode(encode(events.Bypassed(reason="x")), version=SCHEMA_VERSION + 1)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"kind":"Unheard"}', b'{"kind":"Bypassed"}', b'{"kind":"Bypassed","reason":"\xff"}', b"\0"]
)
def test_bytes_that_are_no_event_are_corrupt(data):
    with pytest.raises(StoreCorrupt):
        decode(data)
