"""Logs as they are analysed: what is counted, what is kept for the next run, and what a damaged cache can't do."""

import asyncio
import gzip
import json
import os
import pickle
import shutil
import sqlite3
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from laws import examples

from benchmarks.shared import agent_logs
from instrumentation.accounting.cache_lifetimes import shown
from instrumentation.accounting.story import WASTE, Missed, MissSums
from instrumentation.accounting.waste.anatomy import Totals, anatomy
from instrumentation.analyze.analysis import (
    SessionFilter,
    analyze,
    prepare,
    wasted,
)
from instrumentation.analyze.file_summaries import summarize_file
from instrumentation.analyze.result_cache import ResultCache
from instrumentation.analyze.session_summary import (
    PaidCalls,
    Spending,
    ToolWaste,
    as_reported,
)
from instrumentation.replay import log_files
from instrumentation.replay.compare import Contender, ReplayConditions, compare
from instrumentation.replay.log_files import Problems
from instrumentation.replay.prepared_recording import Prepared
from instrumentation.reports.analyze import as_json, as_text
from pager.errors import PagerError
from pager.log.stores import open_store
from pager.proxy.call_log import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.request_values import Answer, Usage
from pager.wire.dialects import load

POLICIES = (Contender("keep_all"), Contender("cost_aware"))
FORMATS = (*agent_logs.FORMATS, "own_log")


def how(prices="anthropic", policies=POLICIES, **conditions):
    return prepare(policies, ReplayConditions(prices, **conditions))


HOW = how()


def own_log(folder, calls=6):
    """A log of our own with one session, closed."""
    store = open_store(f"sqlite:{folder}")

    async def play():
        chat, call_log = load("chat"), CallLog(store, load, 10)
        messages = [{"role": "user", "content": "go"}]
        for number in range(calls):
            body = json.dumps({"model": "gpt-5", "messages": messages}).encode()
            known = {"x-session-id": "one", "user-agent": "some-cli/1"}
            incoming = Incoming(chat, chat.parse(body), "local", known, chat.path, "", 1_790_000_000.0 + number)
            entry = await call_log.receive(incoming)
            answer = Answer(text="Yes.", usage=Usage(100, 50, 0, 7, tells_cached=True))
            said = {"role": "assistant", "content": "Yes."}
            raw = json.dumps({"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}).encode()
            call_log.answered(entry, answer, Outcome(200, raw, 1.0, 2.0, float(number)), 0)
            messages += [said, {"role": "user", "content": "on"}]
        body = json.dumps({"model": "gpt-5", "messages": messages}).encode()
        await call_log.receive(Incoming(chat, chat.parse(body), "local", known, chat.path, "", 1_790_000_100.0))
        await call_log.drain()

    try:
        asyncio.run(play())
    finally:
        store.close()


def write(folder, name, seeds=(1, 2), calls=12):
    """Logs of a format, below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if name == "own_log":
        own_log(folder)
    else:
        for seed in seeds:
            (folder / f"{name}-{seed}.jsonl").write_bytes(b"".join(agent_logs.FORMATS[name](seed, calls)))
    return folder


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def calling(tool, call_id, arguments="{}", **more):
    function = {"name": tool, "arguments": arguments}
    return message("assistant", None, tool_calls=[{"id": call_id, "type": "function", "function": function}], **more)


def tool(name):
    return {"type": "function", "function": {"name": name, "description": "x" * 200, "parameters": {"type": "object"}}}


def record(path, *messages, tools=(), model="claude-opus-4-5", session="one"):
    rows = [{"session": session, "model": model, "tools": list(tools)}, *messages]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def used(fresh, cached, written, output):
    counts = {"input_tokens": fresh, "cache_read_input_tokens": cached, "cache_creation_input_tokens": written}
    return {"usage": {**counts, "output_tokens": output}}


def many_calls(path, calls=6, words=900, meta=None, **more):
    said = [message("user", "go")]
    for at in range(calls):
        asked = calling("read", f"c{at}", **({"_meta": meta} if meta else {}))
        said += [asked, message("tool", f"{at} " * words, tool_call_id=f"c{at}")]
    return record(path, *said, **more)


def taken_apart(recording):
    """The anatomy of a recording, in the provider's tokens."""
    prepared = Prepared(recording, load(recording.dialect))
    return as_reported(anatomy(prepared), prepared)


# ---- what is counted


@pytest.mark.parametrize("name", FORMATS)
def test_the_figures_are_those_of_the_anatomy_and_of_the_comparison(tmp_path, name):
    folder = write(tmp_path / "logs", name)
    found = analyze([folder], HOW)
    recordings = [one.recording for one in log_files.read_all([folder], Problems())]
    each = [taken_apart(one).totals for one in recordings]
    assert found.totals == reduce(Totals.plus, each, Totals())
    assert found.totals.calls > 0
    direct = compare(recordings, POLICIES, ReplayConditions("anthropic", shortest=2))
    assert found.comparison.rows() == direct.rows()
    assert [one.name for one in found.formats] == [name]
    assert found.read.files == (1 if name == "own_log" else 2)


@pytest.mark.parametrize("name", FORMATS)
def test_a_second_run_reads_nothing_and_finds_the_same(tmp_path, name):
    folder = write(tmp_path / "logs", name)
    first, second = twice(folder, tmp_path / "cache")
    assert (first.work.kept, first.work.studied) == (0, first.read.files)
    assert (second.work.hashed, second.work.studied) == (0, 0)
    assert second.work.kept == first.read.files
    assert second == first == analyze([folder], HOW)


def twice(folder, place, between=lambda: None, then=HOW):
    found = []
    for ways in (HOW, then):
        cache = ResultCache(place)
        found.append(analyze([folder], ways, cache=cache))
        cache.close()
        between()
    return found


def test_any_order_and_number_of_jobs_gives_the_same(tmp_path):
    folders = [write(tmp_path / name, name) for name in agent_logs.FORMATS]
    straight = analyze(folders, HOW)
    assert analyze(folders[::-1], HOW, jobs=2) == straight
    assert analyze([*folders, *folders, folders[0] / "claude_code-1.jsonl"], HOW, jobs=3) == straight


def test_parts_add_up_to_wholes(tmp_path):
    folders = [write(tmp_path / name, name, calls=40) for name in agent_logs.FORMATS]
    found = analyze(folders, HOW)
    client = found.totals.client
    assert sum(tool.pages for tool in found.tools) == client.stale + client.duplicates + client.superseded > 0
    assert sum(tool.schema for tool in found.tools) == client.unused_schemas
    assert sum(wasted(one.session.totals) for one in found.sessions) == wasted(found.totals)
    assert sum(one.calls for one in found.formats) == found.totals.calls == found.paid.calls
    wasted_units = sum(spent.units for spent in found.waste.values())
    assert 0 < wasted_units < found.paid.cost.units


def test_tools_that_are_never_called_are_told_by_name(tmp_path):
    tools = [tool(name) for name in ("read", "idle", "lazy")]
    found = analyze([many_calls(tmp_path / "one.jsonl", tools=tools)], HOW)
    unused = {one.name: one.schema for one in found.tools if one.schema}
    assert unused.keys() == {"idle", "lazy"}
    assert sum(unused.values()) == found.totals.client.unused_schemas
    assert {one.name: one.pages > 0 for one in found.tools} == {"read": True, "idle": False, "lazy": False}


def test_what_the_provider_reported_is_what_was_paid(tmp_path):
    said = (message("user", "go"), message("assistant", "a", _meta=used(10, 0, 90, 5)), message("user", "on"))
    path = record(tmp_path / "one.jsonl", *said, message("assistant", "b", _meta=used(20, 100, 30, 7)))
    paid = analyze([path], HOW).paid
    units = (10 + 1.25 * 90 + 5 * 5) + (20 + 0.1 * 100 + 1.25 * 30 + 5 * 7)
    assert paid.told == Spending(pytest.approx(units), pytest.approx(units * 5 / 1e6))
    assert (paid.calls, paid.reported, paid.partly, paid.unpriced) == (2, 2, 0, 0)
    assert (paid.input, paid.cached, paid.written, paid.output) == (250, 100, 120, 12)
    assert paid.hit_rate == 100 / 250
    assert paid.guessed == Spending()


def test_what_was_written_for_an_hour_is_paid_as_such(tmp_path):
    usage = {
        **used(0, 0, 90, 5)["usage"],
        "cache_creation": {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 60},
    }
    said = [message("user", "go"), message("assistant", "a", _meta={"usage": usage})] * 2
    paid = analyze([record(tmp_path / "one.jsonl", *said)], HOW).paid
    assert paid.told.units == pytest.approx(2 * (1.25 * 30 + 2.0 * 60 + 5 * 5))


def test_what_nobody_counted_is_estimated_and_said_to_be(tmp_path):
    path = record(tmp_path / "one.jsonl", *[message("user", "go"), message("assistant", "a" * 100)] * 2)
    found = analyze([path], HOW)
    paid = found.paid
    assert (paid.calls, paid.reported, paid.told, paid.hit_rate) == (2, 0, Spending(), None)
    assert paid.guessed.units == pytest.approx(found.comparison.before.cost)


def test_an_answer_that_was_counted_too_soon_is_estimated(tmp_path):
    words = "a" * 270
    said = [message("user", "go"), message("assistant", words, _meta=used(10, 0, 90, 1))] * 2
    paid = analyze([record(tmp_path / "one.jsonl", *said)], HOW).paid
    assert (paid.partly, paid.output) == (2, 200)


def test_a_model_without_a_price_is_in_no_sum_of_dollars(tmp_path):
    said = [message("user", "go"), message("assistant", "a", _meta=used(10, 0, 90, 5))] * 2
    paid = analyze([record(tmp_path / "one.jsonl", *said, model="nobody-knows-it")], HOW).paid
    assert (paid.unpriced, paid.told.dollars) == (2, 0.0)
    assert paid.told.units > 0


def test_waste_costs_what_cached_tokens_do_as_far_as_there_are_any(tmp_path):
    """Two calls; the result of the first tool is stale in neither, the system prompt is sent again in the second."""
    system, asked = message("system", "s" * 2700), message("user", "go")
    said = [system, asked, message("assistant", "a", _meta=used(0, 0, 2000, 1)), message("user", "on")]
    cold = analyze([record(tmp_path / "cold.jsonl", *said, message("assistant", "b", _meta=used(3000, 0, 0, 1)))], HOW)
    warm = analyze(
        [record(tmp_path / "warm.jsonl", *said, message("assistant", "b", _meta=used(200, 2800, 0, 1)))], HOW
    )
    assert cold.totals == warm.totals
    again, every = warm.totals.client.resent, call_tokens(tmp_path / "warm.jsonl")
    assert cold.waste["resent"].units == pytest.approx(3000 * again / every)
    assert warm.waste["resent"].units == pytest.approx(0.1 * min(2800, 3000 * again / every) + rest(again, every))
    assert [cause for cause in WASTE if warm.waste[cause].units] == ["resent"]


def call_tokens(path):
    """The tokens of the second call."""
    [one] = log_files.read(path, Problems())
    return taken_apart(one.recording).calls[1].client.total


def rest(again, every):
    return max(0.0, 3000 * again / every - 2800)


def test_the_parts_of_every_call_add_up_to_what_was_reported_of_it(tmp_path):
    folders = [write(tmp_path / name, name) for name in ("claude_code", "codex", "opencode")]
    found = analyze(folders, HOW)
    assert found.paid.reported == found.paid.calls == found.totals.calls > 0
    assert found.totals.client.total == found.paid.input
    calls = [call for one in log_files.read_all(folders, Problems()) for call in taken_apart(one.recording).calls]
    steps = [step for one in log_files.read_all(folders, Problems()) for step in one.recording.steps]
    assert [call.client.total for call in calls] == [step.usage.input for step in steps]


def test_calls_that_nobody_counted_are_scaled_as_the_others_of_their_session(tmp_path):
    said = [message("user", "go"), *(message("assistant", "a" * 2700, _meta=used(9000, 0, 0, 5)) for _ in range(2))]
    path = record(tmp_path / "one.jsonl", *said, message("assistant", "b"))
    [one] = log_files.read(path, Problems())
    first, second, third = taken_apart(one.recording).calls
    plain = anatomy(Prepared(one.recording, load("chat"))).calls
    usual = 18_000 / (plain[0].client.total + plain[1].client.total)
    assert (first.client.total, second.client.total) == (9000, 9000)
    assert third.client.total == pytest.approx(usual * plain[2].client.total, abs=1)
    assert third.scale == pytest.approx(usual)


def pausing(path, *, outlives):
    """A long session with pauses of seven minutes, which the provider's cache outlives, or not."""
    said, tokens, before, at = [message("user", "go")], 20_000, 0, 1_790_000_000
    for number in range(40):
        pauses = number > 0 and number % 8 == 0
        at += 420 if pauses else 10
        cached = before if outlives or not pauses else 0
        text = "\n".join(f"line {line} of {number}: {line * number}" for line in range(400))
        meta = {"ts": at, **used(3, cached, tokens - 3 - cached, 20)}
        said += [calling("read", f"c{number}", f'{{"path": "{number}.py"}}', _meta=meta)]
        said += [message("tool", text, tool_call_id=f"c{number}")]
        before, tokens = tokens, tokens + round(len(text) / 2.6) + 60
    return record(path, *said, model="claude-opus-4-6")


def test_no_gain_is_claimed_from_pauses_that_the_cache_has_outlived(tmp_path):
    died = analyze([pausing(tmp_path / "died.jsonl", outlives=False)], HOW)
    lived = analyze([pausing(tmp_path / "lived.jsonl", outlives=True)], HOW)
    assert died.comparison.rows()[1].cost_change < -0.2
    assert died.dollars_saved[1] > 0
    assert lived.comparison.rows()[1].cost_change > -0.05


def test_what_was_written_again_after_pauses_is_a_share_of_the_bill(tmp_path):
    """After each of four pauses the prompt before, but for 3 tokens, is written at 1.25 instead of read at 0.1."""
    path = pausing(tmp_path / "died.jsonl", outlives=False)
    told = [row["_meta"]["usage"] for row in map(json.loads, path.read_text().splitlines()) if "_meta" in row]
    left = [one["cache_read_input_tokens"] + one["cache_creation_input_tokens"] for one in told]
    tokens = sum(left[at - 1] for at in (8, 16, 24, 32))
    found = analyze([path], HOW)
    cold = Missed(4, tokens, pytest.approx(1.15 * tokens), pytest.approx(1.15 * tokens * 5 / 1e6))
    assert found.misses == MissSums(pause=cold)
    share = f"{100 * 1.15 * tokens / found.paid.cost.units:.1f} % of the cost"
    assert f"{share}: {tokens / 1e3:.1f}k tokens written again after 4 pauses" in as_text(found, width=200)
    values = as_json(found)
    assert values["cache_misses"] == values["each"][0]["cache_misses"]
    assert values["cache_misses"]["pause"]["tokens"] == tokens
    lived = analyze([pausing(tmp_path / "lived.jsonl", outlives=True)], HOW)
    assert lived.misses == MissSums()
    assert "written again" not in as_text(lived)


def test_other_misses_are_named_by_their_reason(tmp_path):
    said = [message("user", "go " * 9_000), message("assistant", "a", _meta=used(3, 0, 20_000, 5))]
    said += [message("user", "on"), message("assistant", "b", _meta=used(3, 5_000, 16_000, 5))]
    path = record(tmp_path / "one.jsonl", *said)
    found = analyze([path], HOW)
    assert found.misses == MissSums(unknown=Missed(1, 15_000, pytest.approx(17_250), pytest.approx(0.08625)))
    assert "other cache misses (1 unknown)" in as_text(found, width=200)


def test_lines_that_are_never_sent_are_named_with_their_number(tmp_path):
    about = {"sessionId": "s", "timestamp": "2026-01-01T00:00:00.000Z"}
    said = {"id": "m", "model": "claude-opus-4-5", "content": [{"type": "text", "text": "b"}]}
    rows = [
        {"type": "user", "uuid": "1", "parentUuid": None, "message": {"content": "a"}},
        {"type": "attachment", "uuid": "2", "parentUuid": "1", "attachment": {"type": "hook_cancelled"}},
        {"type": "progress", "uuid": "3", "parentUuid": "2", "data": {"type": "hook_progress"}},
        {"type": "attachment", "uuid": "4", "parentUuid": "3", "attachment": {"type": "hook_cancelled"}},
        {"type": "assistant", "uuid": "5", "parentUuid": "4", "message": said},
    ]
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(json.dumps({**row, **about}) for row in rows) + "\n")
    found = analyze([path], HOW, SessionFilter(shortest=1))
    assert list(found.read.lines_left_out.items()) == [
        ("attachment that is not sent (hook_cancelled)", 2),
        ("progress that is not sent (hook_progress)", 1),
    ]
    told = as_text(found, width=100)
    assert "3 lines not sent to a model left out:" in told
    assert "2 of attachment that is not sent (hook_cancelled)" in told


def test_sums_of_what_was_paid_are_plain():
    one = PaidCalls(1, 1, 1, 0, 10, 10, 5, 2, 3, Spending(1.0, 2.0), Spending(3.0, 4.0))
    assert one.plus(one).cost == Spending(8.0, 12.0)
    assert one.plus(PaidCalls()) == one
    assert ToolWaste("a", 1, 2).total == 3


def test_dollars_saved_are_a_share_of_what_was_paid(tmp_path):
    """What was reported is twice what replay says, so that twice as much is saved."""
    plain = analyze([many_calls(tmp_path / "a.jsonl", 80, words=3000)], how(prices="none"))
    change = plain.comparison.rows()[1].cost_change
    assert change < -0.05
    assert plain.dollars_saved == [0.0, pytest.approx(-change * plain.paid.cost.dollars)]
    [one] = plain.sessions
    usage = used(round(2 * one.session.before.cost / 80), 0, 0, 100)
    told = analyze([many_calls(tmp_path / "b.jsonl", 80, words=3000, meta=usage)], how(prices="none"))
    change = told.comparison.rows()[1].cost_change
    assert told.paid.reported == 80
    assert told.dollars_saved[1] == pytest.approx(-change * told.paid.cost.dollars)


# ---- what does not count


def test_bad_lines_are_counted_and_skipped(tmp_path):
    path = write(tmp_path, "claude_code", seeds=[1]) / "claude_code-1.jsonl"
    whole = analyze([tmp_path], HOW)
    path.write_bytes(path.read_bytes() + b'{"type": "user"\n\xff\xfe\n')
    found = analyze([tmp_path], HOW)
    assert found.read.bad == 2
    assert found.totals == whole.totals
    assert all(told.startswith(f"{path}: line ") for told in found.read.examples)


def test_files_that_are_no_logs_break_nothing(tmp_path):
    write(tmp_path, "recording", seeds=[1])
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "blank.jsonl").write_bytes(b"")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b"".join(agent_logs.recording(2, 90)))[:-200])
    found = analyze([tmp_path, tmp_path / "gone.jsonl"], HOW)
    assert (found.read.unknown, found.read.copies) == (1, 0)
    assert found.read.broken == 2  # the one that is cut, and the one that is gone
    assert len(found.sessions) == 2


def test_a_file_with_the_content_of_another_counts_once(tmp_path):
    path = write(tmp_path, "codex", seeds=[1]) / "codex-1.jsonl"
    alone = analyze([tmp_path], HOW)
    shutil.copy(path, tmp_path / "z.jsonl")
    (tmp_path / "linked.jsonl").symlink_to(path)
    found = analyze([tmp_path], HOW)
    assert found.totals == alone.totals
    assert found.read.copies == 1


def test_short_sessions_are_left_out(tmp_path):
    many_calls(tmp_path / "a.jsonl", 3, session="a")
    many_calls(tmp_path / "b.jsonl", 1, session="b")
    found = analyze([tmp_path], HOW)
    assert ([one.session.name for one in found.sessions], found.read.left_out) == (["a"], 1)
    assert len(analyze([tmp_path], HOW, SessionFilter(1)).sessions) == 2


def test_sessions_without_a_call_since_then_are_left_out(tmp_path):
    write(tmp_path / "a", "claude_code", seeds=[1])
    write(tmp_path / "b", "claude_code", seeds=[9])
    many_calls(tmp_path / "untimed.jsonl")
    [old, new] = [analyze([tmp_path / name], HOW).span for name in "ab"]
    assert old[0] < old[1] < new[0]
    found = analyze([tmp_path], HOW, SessionFilter(since=new[0]))
    assert (found.span, found.read.left_out, found.read.older) == (new, 2, 0)
    assert analyze([tmp_path / "untimed.jsonl"], HOW).span == (0.0, 0.0)


def test_files_not_written_since_then_are_not_read(tmp_path):
    folder = write(tmp_path, "claude_code")
    os.utime(folder / "claude_code-1.jsonl", (1e9, 1e9))
    found = analyze([tmp_path], HOW, SessionFilter(since=1.1e9))
    assert (found.read.older, found.read.files, len(found.sessions)) == (1, 1, 1)


def test_a_call_without_an_answer_is_in_no_sum(tmp_path):
    [one] = analyze([write(tmp_path, "own_log")], HOW).sessions
    assert (one.session.steps, one.session.totals.calls, one.session.paid.calls) == (7, 6, 6)


def test_nothing_at_all_adds_up_to_nothing(tmp_path):
    found = analyze([tmp_path], HOW)
    assert (found.totals, found.paid, found.waste, found.tools) == (Totals(), PaidCalls(), {}, [])
    assert (found.comparison.rows(), found.dollars_saved, found.worst, found.span) == ([], [], [], (0.0, 0.0))


def resumed(folder):
    """A log, and that of the session that went on from it, which begins with a copy."""
    lines = list(agent_logs.claude_code(1, 12))
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    (folder / "b.jsonl").write_bytes(b"".join(lines))
    return folder


def test_what_a_resumed_session_copies_is_counted_once(tmp_path):
    folder = resumed(tmp_path / "logs")
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "b.jsonl").write_bytes((folder / "b.jsonl").read_bytes())
    whole, found = analyze([tmp_path / "whole"], HOW), analyze([folder], HOW)
    assert found.totals.calls == whole.totals.calls == 12
    assert found.paid.input == whole.paid.input
    direct = [one.recording for one in log_files.read_all([folder], Problems())]
    assert [one.session.steps for one in found.sessions] == [len(one.steps) for one in direct]
    assert analyze([folder / "b.jsonl", folder / "a.jsonl"], HOW, jobs=2) == found
    first, second = twice(folder, tmp_path / "cache")
    assert first == second == found
    assert (first.work.studied, second.work.studied, second.work.hashed) == (3, 0, 0)


# ---- what goes wrong


def user_policy(tmp_path, what):
    path = tmp_path / "own.py"
    path.write_text(
        "import os\nfrom pager.errors import PolicyError\nfrom pager.paging.policy import Decision\n\n"
        f"class Own:\n    def choose(self, view):\n        {what}\n"
    )
    return Contender(f"{path}:Own")


def test_a_session_that_cant_be_played_is_a_problem_of_its_file(tmp_path):
    policy = user_policy(tmp_path, 'raise PolicyError("no idea")')
    path = many_calls(tmp_path / "one.jsonl", 30)
    found = analyze([path], how(policies=(policy,)))
    assert (found.read.broken, found.sessions) == (1, [])
    assert found.read.examples == (f"{path}: session one can't be played: no idea",)


def test_a_process_that_dies_is_told_of(tmp_path):
    policy = user_policy(tmp_path, "os._exit(1)")
    many_calls(tmp_path / "one.jsonl", 30)
    many_calls(tmp_path / "two.jsonl", 31)
    with pytest.raises(PagerError, match="--jobs 1"):
        analyze([tmp_path], how(policies=(policy,)), jobs=2)


SAMPLES = {name: b"".join(make(1, 4)) for name, make in agent_logs.FORMATS.items()}


@given(st.data())
@examples(60, tolerated=[HealthCheck.function_scoped_fixture])
def test_no_damage_to_a_log_is_fatal(tmp_path, data):
    sample = bytearray(SAMPLES[data.draw(st.sampled_from(sorted(SAMPLES)))])
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(sample) - 1))
        sample[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=12))
    path = tmp_path / "log.jsonl"
    path.write_bytes(sample)
    found = summarize_file(path, HOW)
    assert found.size <= len(sample)


# ---- what is kept


def test_only_a_file_that_changed_is_studied_again(tmp_path):
    folder = write(tmp_path / "logs", "codex", seeds=(1, 2, 3))
    changed = folder / "codex-2.jsonl"
    longer = b"".join(agent_logs.codex(2, 20))
    first, second = twice(folder, tmp_path / "cache", lambda: changed.write_bytes(longer))
    assert (second.work.kept, second.work.hashed, second.work.studied) == (2, 1, 1)
    assert second.totals.calls == first.totals.calls + 8


def test_a_file_that_was_only_touched_is_hashed_and_not_studied(tmp_path):
    folder = write(tmp_path / "logs", "codex")
    first, second = twice(folder, tmp_path / "cache", lambda: os.utime(folder / "codex-1.jsonl", (1e9, 1e9)))
    assert (second.work.hashed, second.work.studied) == (1, 0)
    assert first == second


def test_what_is_in_the_write_ahead_log_of_our_own_log_is_not_missed(tmp_path):
    folder = write(tmp_path / "logs", "own_log")
    path = folder / "ctxpager.sqlite3"
    file = sqlite3.connect(path)
    first, second = twice(folder, tmp_path / "cache", lambda: touched(file))
    file.close()
    assert (first.work.studied, second.work.studied) == (1, 1)


def touched(file):
    file.execute("CREATE TABLE IF NOT EXISTS more (a)")
    file.commit()


@pytest.mark.parametrize(
    "then",
    [
        lambda tmp_path: how(prices="openai"),
        lambda tmp_path: how(policies=POLICIES[:1]),
        lambda tmp_path: how(policies=(POLICIES[0], Contender("cost_aware", {"horizon": 3.0}))),
        lambda tmp_path: how(policies=(user_policy(tmp_path, "return Decision()"),)),
        lambda tmp_path: how(grace=5),
        lambda tmp_path: how(models={"claude-*": {"input": 1.0}}),
    ],
)
def test_another_way_to_look_at_it_is_studied_anew(tmp_path, then):
    folder = write(tmp_path / "logs", "codex", seeds=[1])
    _, second = twice(folder, tmp_path / "cache", then=then(tmp_path))
    assert (second.work.hashed, second.work.studied) == (0, 1)


def test_a_policy_of_ones_own_that_changed_is_another(tmp_path):
    before = how(policies=(user_policy(tmp_path, "return Decision()"),))
    assert how(policies=(user_policy(tmp_path, "return Decision()"),)) == before
    assert how(policies=(user_policy(tmp_path, "return Decision(); 1"),)) != before


# ---- what a cache can't do


class Planted:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def rows(place, query, *values):
    file = sqlite3.connect(place / "cache.db")
    with file:
        file.execute(query, values)
    file.close()


def plant_bytes(place, mark):
    rows(place, "UPDATE entries SET sealed = ?", pickle.dumps(Planted(mark)))


def plant_trigger(place, mark):
    rows(place, "CREATE TRIGGER planted AFTER INSERT ON entries BEGIN DELETE FROM entries; END")


def plant_view(place, mark):
    rows(place, "ALTER TABLE entries RENAME TO others")
    rows(place, "CREATE VIEW entries AS SELECT * FROM others")


def another_schema(place, mark):
    (place / "cache.db").unlink()
    rows(place, "CREATE TABLE Cache (key TEXT, value BLOB)")


def cut_values(place, mark):
    rows(place, "UPDATE entries SET sealed = substr(sealed, 1, length(sealed) - 1)")


def swap_values(place, mark):
    rows(place, "UPDATE entries SET sealed = (SELECT sealed FROM entries ORDER BY length(sealed) DESC LIMIT 1)")


def no_bytes(place, mark):
    rows(place, "UPDATE entries SET sealed = 'text'")


def garbage(place, mark):
    (place / "cache.db").write_bytes(b"no database" * 1000)


def no_tables(place, mark):
    rows(place, "DROP TABLE entries")


BEGUN_ANEW = (plant_trigger, plant_view, another_schema, garbage, no_tables)
DAMAGE = (plant_bytes, cut_values, swap_values, no_bytes, *BEGUN_ANEW)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_planted_or_damaged_entry_is_found_out_anew(tmp_path, damage):
    folder, place, mark = write(tmp_path / "logs", "codex"), tmp_path / "cache", tmp_path / "ran"
    first, second = twice(folder, place, lambda: damage(place, mark) if not mark.exists() else None)
    assert not mark.exists()
    assert second.work.kept in (0, 1)  # where one entry took the others' place, it is still its own
    assert first == second
    if damage not in BEGUN_ANEW:
        shutil.rmtree(place)
    third = twice(folder, place)[1]
    assert third.work.studied == 0


def test_an_entry_of_another_kind_is_none(tmp_path):
    cache = ResultCache(tmp_path)
    cache.put("a", [1, 2])
    assert cache.get("a", list[int]) == [1, 2]
    assert cache.get("a", dict[str, int]) is None
    assert cache.get("b", list[int]) is None
    cache.close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_a_link_in_the_folder_is_not_followed(tmp_path, suffix):
    victim, folder = tmp_path / "victim", tmp_path / "cache"
    victim.write_bytes(b"precious")
    folder.mkdir()
    (folder / f"cache.db{suffix}").symlink_to(victim)
    cache = ResultCache(folder)
    cache.put("name", 1)
    assert cache.get("name", int) == 1
    cache.close()
    assert victim.read_bytes() == b"precious"


def test_the_folder_is_the_users_alone(tmp_path):
    ResultCache(tmp_path / "deep" / "cache").close()
    assert (tmp_path / "deep" / "cache").stat().st_mode & 0o777 == 0o700


def test_without_a_folder_there_is_no_cache_and_no_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = ResultCache(tmp_path / "file")
    cache.put("a", 1)
    assert cache.get("a", int) is None
    cache.close()


def test_a_cache_that_another_run_has_locked_is_as_good_as_none(tmp_path):
    cache = ResultCache(tmp_path)
    cache.put("a", 1)
    other = sqlite3.connect(tmp_path / "cache.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    cache.put("a", 2)
    other.execute("ROLLBACK")
    other.close()
    assert cache.get("a", int) == 1
    cache.close()


def test_beyond_the_limit_the_oldest_entries_go(tmp_path):
    cache = ResultCache(tmp_path)
    for name in ("a", "b", "a", "c"):
        cache.put(name, b"x" * 1_000)
    cache.close(limit=2_500)
    cache = ResultCache(tmp_path)
    assert [cache.get(name, bytes) is not None for name in "abc"] == [True, False, True]
    cache.close()


def test_a_name_that_is_no_unicode_is_kept_like_any_other(tmp_path):
    cache = ResultCache(tmp_path)
    cache.put("file /\udcff", 1)
    assert cache.get("file /\udcff", int) == 1
    cache.close()


# ---- recorded sessions


@pytest.mark.recorded
def test_recorded_sessions_are_analysed_as_they_are_compared(tmp_path):
    given = os.environ.get("CTXPAGER_RECORDINGS")
    if not given:
        pytest.skip("needs CTXPAGER_RECORDINGS")
    every = log_files.files([Path(given) / "traces" / "entire-cli"])
    some = sorted(every, key=lambda path: path.stat().st_size)[40:200:20]
    ways = how(prices="")
    found = analyze(some, ways, jobs=2)
    recordings = [shown(one.recording) for one in log_files.read_all(sorted(some), Problems())]
    prepared = [Prepared(one, load(one.dialect)) for one in recordings if len(one.steps) > 1]
    each = [as_reported(anatomy(one), one).totals for one in prepared]
    assert found.totals == reduce(Totals.plus, each, Totals())
    assert found.comparison.rows() == compare(recordings, POLICIES, ReplayConditions(shortest=2)).rows()
    client = found.totals.client
    assert sum(tool.pages for tool in found.tools) == client.stale + client.duplicates + client.superseded
    assert found.paid.reported == found.paid.calls > 100
    assert 0.5 < found.paid.hit_rate < 1.0
