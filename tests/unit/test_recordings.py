"""Recorded sessions as they are read from files."""

import gzip
import json

import pytest

from instrumentation.accounting.billing import tokens_in
from instrumentation.replay import recording_files
from pager.errors import NotUnderstood
from pager.pricing.tokens import BYTES_A_TOKEN

HEADER = {"session": "one", "model": "claude-opus-4-5", "tools": [], "harness": "some-cli 1"}
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


def user(text="go on", **meta):
    return {"role": "user", "content": text, **({"_meta": meta} if meta else {})}


def says(text="I see.", **meta):
    return {"role": "assistant", "content": text, "reasoning_content": "hm", "_meta": meta}


def calls(call_id="c1", tool="read", **arguments):
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]}


def result(call_id="c1", content="lines"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def read(tmp_path, *messages, header=HEADER, name="one.jsonl.gz"):
    path = tmp_path / name
    lines = "\n".join(json.dumps(row) for row in (header, *messages)).encode()
    path.write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    return recording_files.load(path)


def sent(step):
    return [json.loads(raw) for raw in step.new]


def test_each_answer_to_a_user_is_a_call_whose_prompt_is_all_before_it(tmp_path):
    recording = read(tmp_path, user("do it"), calls(path="a"), result(), says("Done."))
    first, second = recording.steps
    assert (recording.name, recording.dialect, recording.harness) == ("one", "chat", "some-cli 1")
    assert (first.keep, sent(first)) == (0, [user("do it")])
    assert (second.keep, sent(second)) == (1, [calls(path="a"), result()])
    assert (first.model, first.branch, first.parent) == ("claude-opus-4-5", 0, None)


def test_a_plain_file_is_read_too(tmp_path):
    assert len(read(tmp_path, user(), says(), name="one.jsonl").steps) == 1


def test_an_answer_without_a_user_before_it_is_no_call(tmp_path):
    recording = read(tmp_path, says("Hello."), user(), says())
    assert [len(step.new) for step in recording.steps] == [2]


def test_what_was_not_sent_is_left_out(tmp_path):
    second = read(tmp_path, user(), says("I see.", ts="2026-01-01T00:00:00Z"), user(), says()).steps[1]
    assert sent(second)[0] == {"role": "assistant", "content": "I see."}


def test_times_are_the_recorded_ones_else_a_second_apart(tmp_path):
    stamps = ["2026-01-01T00:00:00Z", None, 1_767_225_700, "yesterday"]
    messages = [one for stamp in stamps for one in (user(), says(ts=stamp))]
    at = [step.at for step in read(tmp_path, *messages).steps]
    assert at == [1_767_225_600, 1_767_225_601, 1_767_225_700, 1_767_225_701]


def test_what_an_answer_said_counts_as_its_output(tmp_path):
    (step,) = read(tmp_path, user(), {**calls(path="src/a.py", deep=["x", {"y": "z"}]), "content": "I look."}).steps
    assert step.said == "I look.\nsrc/a.py\nx\nz"
    assert step.output == tokens_in(len(step.said))


def test_content_may_come_in_parts(tmp_path):
    (step,) = read(tmp_path, user(), {"role": "assistant", "content": [{"type": "text", "text": "a"}, "b"]}).steps
    assert step.said == "a\nb"


def test_the_tools_of_the_header_are_outside_of_the_items(tmp_path):
    (step,) = read(tmp_path, user(), says(), header={**HEADER, "tools": [TOOL]}).steps
    assert (step.outside, step.tools) == (len(json.dumps([TOOL])), frozenset({"read"}))


def test_tools_are_read_as_a_client_would_send_them(tmp_path):
    (step,) = read(tmp_path, user(), says(), header={**HEADER, "tools": [TOOL]}).steps
    (offer,) = step.offers.tools
    assert (offer.tool.name, offer.tool.parameters, offer.fixed) == ("read", {"type": "object"}, "")
    assert read(tmp_path, user(), says()).steps[0].offers is None


def test_tools_that_cant_be_read_are_not_offered_to_be_shortened(tmp_path):
    half = {"type": "function", "function": {"name": "read", "description": "\ud83d"}}
    (step,) = read(tmp_path, user(), says(), header={**HEADER, "tools": [half]}).steps
    assert (step.offers, step.tools) == (None, frozenset({"read"}))


def test_an_answer_has_the_names_of_the_tools_it_calls(tmp_path):
    first, second = read(tmp_path, user(), calls(tool="look"), result(), says()).steps
    assert (first.called, second.called) == (("look",), ())


def test_tools_that_were_called_are_offered_where_none_were_recorded(tmp_path):
    messages = [user(), calls(path="a", all=True), result(), calls(tool="run", n=3), {**calls(), "tool_calls": "?"}]
    step = read(tmp_path, *messages).steps[0]
    assert step.tools == frozenset({"read", "run"})
    kinds = [one["function"]["parameters"]["properties"] for one in recording_files.offered(messages)]
    assert kinds == [{"path": {"type": "string"}, "all": {"type": "boolean"}}, {"n": {"type": "integer"}}]


def test_a_call_without_arguments_offers_a_tool_without_parameters():
    bare = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "list", "arguments": None}}]}
    assert recording_files.offered([bare])[0]["function"]["parameters"] == {"type": "object", "properties": {}}


def test_a_session_without_tools_can_carry_none(tmp_path):
    assert read(tmp_path, user(), says()).steps[0].tools is None


def test_arguments_that_are_no_json_are_what_was_said(tmp_path):
    broken = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "read", "arguments": "{broken"}}]}
    assert read(tmp_path, user(), broken).steps[0].said == "{broken"


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({}, 0),
        ({"input_tokens": 3, "cache_read_input_tokens": 997, "output_tokens": 50}, 1000),
        ({"prompt_tokens": 1000}, 1000),
        ({"input": 1000}, 1000),
        ({"input_tokens": 90_000}, 60_000),
    ],
)
def test_what_the_provider_counted_beyond_the_record_is_outside(tmp_path, usage, tokens):
    (step,) = read(tmp_path, user("x" * 27), says(usage=usage)).steps
    recorded = tokens_in(27) + tokens_in(len("[]"))
    beyond = 60_000 if tokens == 60_000 else max(0, tokens - recorded)
    assert step.outside == len("[]") + round(beyond * BYTES_A_TOKEN)


def test_after_a_boundary_the_prompt_begins_anew_in_a_branch_of_its_own(tmp_path):
    messages = [user(), says(), user("summary", compact_boundary=True), says(), user("more"), says()]
    steps = read(tmp_path, *messages).steps
    assert [(step.branch, step.parent, step.keep) for step in steps] == [(0, None, 0), (1, None, 0), (1, None, 1)]
    assert sent(steps[1]) == [{"role": "user", "content": "summary"}]


def test_where_something_went_unrecorded_a_boundary_forks_behind_it(tmp_path):
    messages = [user(), says(usage={"input": 5000}), user("summary", compact_boundary=True), says()]
    steps = read(tmp_path, *messages).steps
    assert (steps[1].branch, steps[1].parent, steps[1].fork_call, steps[1].keep) == (1, 0, 0, 0)
    assert steps[0].outside == steps[1].outside


def test_a_history_that_begins_like_the_old_one_forks_where_they_part(tmp_path):
    old = [user("a"), says("1"), user("b"), says("2")]
    new = [user("a", compact_boundary=True), says("3"), user("c"), says("4")]
    steps = read(tmp_path, *old, *new).steps
    assert [(step.branch, step.parent, step.fork_call, step.keep) for step in steps] == [
        (0, None, 0, 0),
        (0, None, 0, 1),
        (1, 0, 1, 1),
        (1, None, 0, 1),
    ]


def test_half_a_character_is_sent_as_an_escape(tmp_path):
    (step,) = read(tmp_path, user("\ud83d"), says()).steps
    assert b"\\ud83d" in step.new[0]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (b"", "is empty"),
        (b"hello", "line 1 is no JSON object"),
        (b'{"role": "user"}', "line 1 is not the header of a recording: it has no 'session'"),
        (b'{"session": "a"}\n\n[1]', "line 2 is no JSON object"),
        (b'{"session": "a"}\n{"content": 1}', "line 2 is not a message: it has no 'role'"),
        (gzip.compress(b'{"session": "a"}', mtime=0)[:-9], "is no whole gzip file"),
    ],
)
def test_what_is_no_recording_is_told_with_the_file_and_the_line(tmp_path, written, told):
    path = tmp_path / "other.jsonl"
    path.write_bytes(written)
    with pytest.raises(NotUnderstood) as error:
        recording_files.load(path)
    assert str(path) in str(error.value)
    assert told in str(error.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(NotUnderstood, match="can't be read: No such file"):
        recording_files.load(tmp_path / "none.jsonl")


def test_a_folder_is_searched_for_recordings(tmp_path):
    (tmp_path / "deep.jsonl").mkdir()
    for name in ("b.jsonl.gz", "deep.jsonl/a.jsonl", "c.txt"):
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in recording_files.files(tmp_path)] == ["b.jsonl.gz", "a.jsonl"]
    assert recording_files.files(tmp_path / "c.txt") == [tmp_path / "c.txt"]
