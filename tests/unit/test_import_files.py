"""Logs as they are found below paths, and told apart by their content."""

import asyncio
import gzip
import json
import os
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import importing as benchmark
from benchmarks.shared import agent_logs
from instrumentation.replay import log_files, log_lines, recording_files, recording_from_log
from instrumentation.replay.importers import detect, found
from instrumentation.replay.log_files import Problems
from pager.log.stores import open_store
from pager.proxy.call_log import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.request_values import Answer, Usage
from pager.wire.dialects import load

SAMPLES = {name: b"".join(make(1, 4)) for name, make in agent_logs.FORMATS.items()}
SAMPLES["openai messages"] = SAMPLES["recording"].split(b"\n", 1)[1]
NAMES = {name: name for name in agent_logs.FORMATS} | {"openai messages": "openai_jsonl"}


@pytest.fixture
def log(tmp_path):
    """A log of our own with one session of two calls, closed."""
    store = open_store(f"sqlite:{tmp_path / 'data'}")
    asyncio.run(play(store))
    store.close()
    return tmp_path / "data" / "ctxpager.sqlite3"


async def play(store):
    chat = load("chat")
    call_log = CallLog(store, load, 10)
    messages = [{"role": "user", "content": "go"}]
    for number in range(2):
        body = json.dumps({"model": "gpt-5", "messages": messages}).encode()
        known = {"x-session-id": "one", "user-agent": "some-cli/1"}
        entry = await call_log.receive(Incoming(chat, chat.parse(body), "local", known, chat.path, "", float(number)))
        answer = Answer(text="Yes.", usage=Usage(100, 50, 0, 7, tells_cached=True))
        said = {"role": "assistant", "content": "Yes."}
        raw = json.dumps({"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}).encode()
        call_log.answered(entry, answer, Outcome(200, raw, 1.0, 2.0, float(number)), 0)
        messages += [said, {"role": "user", "content": "on"}]
    await call_log.drain()


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def plain(recording):
    """A recording as values that can be compared."""
    steps = [step._replace(offers=step.offers.digest if step.offers else None) for step in recording.steps]
    return recording.name, recording.dialect, recording.harness, steps


# ---- telling formats apart


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("name", found())
def test_no_format_is_taken_for_another(tmp_path, sample, name):
    head = log_lines.head(write(tmp_path / "log", SAMPLES[sample]))
    assert found()[name].detect(head) == (name == NAMES[sample])


def test_our_own_log_is_taken_for_no_other(log):
    head = log_lines.head(log)
    assert [name for name, importer in found().items() if importer.detect(head)] == ["own_log"]


def test_a_format_is_known_by_what_is_in_the_file_not_by_its_name(tmp_path):
    path = write(tmp_path / "notes.txt", gzip.compress(SAMPLES["codex"]))
    assert log_files.format_of(path) == "codex"


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\x01\x02",
        b"hello\n",
        b"[1, 2]\n",
        b'{"a": 1}\n',
        b'{"role": "narrator"}\n',
        b'{"messages": [{"role": 1}]}\n',
    ],
)
def test_what_is_no_log_is_of_no_format(tmp_path, content):
    path, problems = write(tmp_path / "x.jsonl", content), Problems()
    assert list(log_files.read(path, problems)) == []
    assert (problems.unknown, problems.bad) == ([path], 0)


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_an_empty_file_is_no_problem(tmp_path, content):
    problems = Problems()
    assert list(log_files.read(write(tmp_path / "x.jsonl", content), problems)) == []
    assert problems == Problems()


def test_a_file_that_is_not_there_is_of_no_known_format(tmp_path):
    problems = Problems()
    assert list(log_files.read(tmp_path / "none.jsonl", problems)) == []
    assert problems.unknown == [tmp_path / "none.jsonl"]


def test_a_title_alone_tells_claude_code():
    assert detect([b'{"type":"summary","summary":"A title","leafUuid":"x"}\n']) == "claude_code"
    assert detect([b'{"type":"permission-mode","sessionId":"x"}\n']) == "claude_code"
    assert detect([b'{"type":"summary","summary":"of something else"}\n']) == ""


# ---- finding files


def test_files_below_folders_are_found_in_order_and_each_once(tmp_path):
    for name in ("b/two.jsonl", "a/one.json", "b/three.jsonl.gz", "c.sqlite3", "notes.md"):
        write(tmp_path / name, b"")
    named = write(tmp_path / "named.log", b"")
    expected = ["a/one.json", "b/three.jsonl.gz", "b/two.jsonl", "c.sqlite3", "named.log"]
    assert log_files.files([tmp_path, named, tmp_path / "b"]) == [tmp_path / name for name in expected]


def test_logs_of_all_formats_are_read_together(tmp_path, log):
    for number, (name, content) in enumerate(SAMPLES.items()):
        write(tmp_path / "logs" / f"{number} {name}.jsonl", content)
    problems = Problems()
    read = list(log_files.read_all([tmp_path / "logs", log], problems))
    assert {one.format for one in read} == set(found())
    sessions = {one.recording.name: (one.recording.dialect, len(one.recording.steps)) for one in read[:-1]}
    assert sessions == {
        "session-00000001": ("messages", 4),
        "thread-00000001": ("responses", 4),
        "ses_00000001": ("chat", 4),
        **{f"3 openai_jsonl:{line}": ("chat", 4) for line in (1, 2, 3, 4)},
        "recorded-1": ("chat", 4),
        "5 openai messages": ("chat", 4),
    }
    assert (problems.bad, problems.broken, problems.unknown) == (0, [], [])
    assert problems.size == sum(map(len, SAMPLES.values())) + log.stat().st_size


@pytest.mark.parametrize("sample", SAMPLES)
@given(data=st.data())
def test_a_log_cut_anywhere_is_read_up_to_there(tmp_path_factory, sample, data):
    content = SAMPLES[sample]
    cut = data.draw(st.integers(0, len(content)))
    path, problems = write(tmp_path_factory.mktemp("cut") / "x.jsonl", content[:cut]), Problems()
    whole = write(path.with_name("x.json"), content)
    every = [plain(one.recording) for one in log_files.read(whole, Problems())]
    for one in log_files.read(path, problems):
        name, _, _, steps = plain(one.recording)
        there = next(known for known in every if known[0] == name)[3]
        assert [step.new for step in steps] == [step.new for step in there][: len(steps)]
    assert problems.bad <= 1


# ---- compressed files


def test_a_compressed_file_that_was_cut_is_read_up_to_there(tmp_path):
    content = b"".join(agent_logs.codex(1, 40))
    path, problems = write(tmp_path / "x.jsonl.gz", gzip.compress(content)[:-3000]), Problems()
    (one,) = log_files.read(path, problems)
    assert 0 < len(one.recording.steps) < 40
    assert problems.broken == [path]
    assert "is no whole gzip file" in problems.examples[-1]


def test_a_file_that_is_gone_when_it_is_read_is_told(tmp_path):
    problems = Problems()
    assert list(found()["codex"].read(tmp_path / "gone.jsonl", problems)) == []
    assert list(found()["opencode"].read(tmp_path / "gone.json", problems)) == []
    assert problems.broken == [tmp_path / "gone.jsonl", tmp_path / "gone.json"]
    assert "can't be read: No such file" in problems.examples[0]


def test_a_file_that_is_no_gzip_after_all_is_of_no_format(tmp_path):
    assert log_files.format_of(write(tmp_path / "x.gz", b"\x1f\x8b and no more")) == ""


def test_problems_beyond_the_first_are_only_counted(tmp_path):
    problems = Problems()
    for number in range(100):
        problems.line(Path("x"), number, "is bad")
    assert (problems.bad, len(problems.examples)) == (100, log_lines.EXAMPLES)


# ---- recordings and messages


@pytest.mark.recorded
@pytest.mark.skipif(not os.environ.get("CTXPAGER_RECORDINGS"), reason="CTXPAGER_RECORDINGS is not set")
def test_recordings_are_read_as_those_who_play_them_read_them():
    every = recording_files.files(Path(os.environ["CTXPAGER_RECORDINGS"]) / "traces")
    problems = Problems()
    for path in every[::7]:
        (one,) = log_files.read(path, problems)
        assert one.format == "recording"
        assert plain(one.recording) == plain(recording_files.load(path))
    assert problems.bad == 0


def test_a_recording_is_read_as_those_who_play_it_read_it(tmp_path):
    path = write(tmp_path / "x.jsonl", SAMPLES["recording"])
    (one,) = log_files.read(path, Problems())
    assert plain(one.recording) == plain(recording_files.load(path))


def test_bad_lines_of_a_recording_are_skipped(tmp_path):
    rows = [b"{", b'{"session": "one"}', b'{"role": "user", "content": "go"}', b"[]", b'{"no": "role"}']
    rows += [b'{"role": "assistant", "content": "1", "_meta": {"usage": {"prompt_tokens": 9, "completion_tokens": 2}}}']
    path, problems = write(tmp_path / "x.jsonl", b"\n".join(rows)), Problems()
    (one,) = log_files.read(path, problems)
    (step,) = one.recording.steps
    assert (step.said, step.usage.input, step.usage.output, problems.bad) == ("1", 9, 2, 3)


def test_a_recording_of_a_header_alone_is_no_session(tmp_path):
    assert list(log_files.read(write(tmp_path / "x.jsonl", b'{"session": "one"}\n'), Problems())) == []


def test_a_conversation_may_tell_its_name_its_model_and_its_tools(tmp_path):
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "1"}]
    rows = [
        {"messages": messages, "id": "chat-1", "model": "gpt-5", "tools": [tool]},
        {"messages": messages, "tools": 3},
    ]
    rows += [{"messages": messages[:1]}, {"other": 1}]
    path, problems = write(tmp_path / "x.jsonl", b"\n".join(json.dumps(row).encode() for row in rows)), Problems()
    first, second = (one.recording for one in log_files.read(path, problems))
    assert (first.name, first.steps[0].model, first.steps[0].tools) == ("chat-1", "gpt-5", frozenset({"look"}))
    assert (second.name, second.steps[0].model, second.steps[0].tools) == ("x:2", "model", None)
    assert problems.bad == 1


@pytest.mark.parametrize("kind", [["object", "null"], {"a": 1}, None, 3, True])
def test_other_peoples_json_is_nobodys_log(tmp_path, kind):
    for name in ("schema.json", "rows.jsonl"):
        (tmp_path / name).write_text(json.dumps({"type": kind, "payload": [], "messages": {}}))
        assert log_files.format_of(tmp_path / name) in (None, "")


def test_messages_of_odd_shapes_are_never_fatal(tmp_path):
    odd = [{"role": "user", "content": 5}, {"role": "user", "content": [7, {"text": 1}]}]
    odd += [
        {"role": "assistant", "content": None, "tool_calls": [3, {"function": "x"}], "_meta": {"usage": {"input": "?"}}}
    ]
    path = write(tmp_path / "x.jsonl", b"\n".join(json.dumps(row).encode() for row in odd))
    (one,) = log_files.read(path, Problems())
    assert [len(step.new) for step in one.recording.steps] == [2]


DEEP = "[" * 5000 + "]" * 5000


@pytest.mark.parametrize("sample", ["claude_code", "codex"])
def test_lines_that_are_too_deep_or_no_text_are_bad_lines(tmp_path, sample):
    bad = b'{"type":"user","payload":%b}\n{"type":"\xff"}\n' % DEEP.encode()
    problems = Problems()
    (one,) = log_files.read(write(tmp_path / "x.jsonl", SAMPLES[sample] + bad), problems)
    assert (len(one.recording.steps), problems.bad) == (4, 2)


def test_a_value_that_is_too_deep_to_be_written_again_ends_its_file(tmp_path):
    deep = "[" * 400 + "]" * 400
    content = SAMPLES["opencode"].replace(b'"input": {', b'"input": {"deep": %b, ' % deep.encode(), 1)
    path, problems = write(tmp_path / "x.json", content), Problems()
    assert list(log_files.read(path, problems)) == []
    assert problems.broken == [path]


# ---- our own log


def test_our_own_log_is_read_as_those_who_play_it_read_it(log):
    (one,) = log_files.read(log, Problems())
    store = open_store(f"sqlite:{log.parent}")
    (known,) = recording_from_log.load(store, recording_from_log.names(store)[0], load)
    store.close()
    assert plain(one.recording) == plain(known)
    assert [step.usage.cached for step in one.recording.steps] == [50, 50]


def test_a_damaged_session_of_our_log_is_told_and_skipped(log):
    with sqlite3.connect(log) as connection:
        connection.execute("UPDATE events SET data = 'x' WHERE kind = 'CallReceived'")
    connection.close()
    problems = Problems()
    assert list(log_files.read(log, problems)) == []
    assert problems.broken == [log]
    assert "session " in problems.examples[0]


def test_another_programs_database_is_told(tmp_path):
    path, problems = tmp_path / "other.sqlite3", Problems()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (a)")
    connection.commit()
    connection.close()
    assert list(log_files.read(path, problems)) == []
    assert problems.broken == [path]
    assert "another program's database" in problems.examples[0]


# ---- how fast


def test_the_benchmark_reads_what_it_writes(capsys):
    assert benchmark.main(["--size", "0.1", "--format", "codex,openai_jsonl", "--json"]) in (0, 1)
    first, second = json.loads(capsys.readouterr().out)
    assert (first["format"], first["calls"], first["bad"]) == ("codex", 300, 0)
    assert (second["sessions"], second["calls"]) == (4, 1200)
    assert benchmark.main(["--size", "0.1", "--format", "codex"]) in (0, 1)
    assert "MB a second of processor time" in capsys.readouterr().out
