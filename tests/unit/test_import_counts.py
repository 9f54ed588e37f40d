"""What a log tells of tokens and tools, whoever counted them."""

import pytest

from instrumentation.replay.inferred_tools import InferredTools, offers_in, written
from instrumentation.replay.recording_draft import (
    UNRECORDED,
    CallLine,
    RecordingDraft,
    counted,
    outside,
)
from pager.pricing.tokens import BYTES_A_TOKEN
from pager.request_values import Usage


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (None, None),
        ({}, None),
        ("many", None),
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(9, output=2)),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}},
            Usage(9, 8, 0, 2, tells_cached=True),
        ),
        (
            {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": None}},
            Usage(9, 0, 0, 2, tells_cached=True),
        ),
        (
            {"input_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3, "output_tokens": 2},
            Usage(9, 5, 3, 2, tells_cached=True),
        ),
        (
            {
                "input_tokens": 1,
                "cache_read_input_tokens": 5,
                "cache_creation_input_tokens": 9,
                "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 7},
                "output_tokens": 2,
            },
            Usage(15, 5, 9, 2, tells_cached=True, written_5m=2, written_1h=7),
        ),
        (
            {"input_tokens": 1, "cache_creation_input_tokens": 9, "cache_creation": None},
            Usage(10, 0, 9, 0),
        ),
        ({"input": 1, "cacheRead": 5, "cacheWrite": 3, "output": 2, "cost": {}}, Usage(9, 5, 3, 2, tells_cached=True)),
    ],
)
def test_counts_are_understood_in_the_words_of_every_provider(usage, tokens):
    assert counted(usage) == tokens


def test_what_is_outside_is_known_or_counted_but_never_too_much():
    assert outside(None, 10, 270) == 270
    assert outside(Usage(50), 10, 270) == 270
    assert outside(Usage(1110), 10, 270) == 270 + round(1000 * BYTES_A_TOKEN)
    assert outside(Usage(10**9), 10, 270) == 270 + round(UNRECORDED * BYTES_A_TOKEN)


def test_a_line_without_anything_in_common_has_no_parent():
    draft, line = RecordingDraft("chat"), CallLine()
    draft.begin(line, [b"a"], None, "m")
    draft.begin(line, [b"b"], None, "m")
    first, second = draft.recording("one", "some-cli").steps
    assert (first.branch, second.branch, second.parent, second.at - first.at) == (0, 1, None, 1)


def test_a_draft_without_a_call_is_no_recording():
    assert RecordingDraft("chat").recording("one", "some-cli") is None


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_tools_that_were_called_can_be_read_in_every_wire_format(dialect):
    called = InferredTools()
    called.take("look", {"at": [1], "deep": {"x": 1}, "near": 0.5, "none": None})
    called.take("look", "no object")
    (offer,) = offers_in(dialect, written(called.tools(dialect))).tools
    kinds = {"at": "array", "deep": "object", "near": "number", "none": "string"}
    assert offer.tool.parameters["properties"] == {name: {"type": kind} for name, kind in kinds.items()}


def test_tools_that_are_no_json_are_not_offered():
    assert offers_in("chat", b"[") is None
