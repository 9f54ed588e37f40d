"""The command that analyses existing logs."""

import io
import json
import os
import re

import pytest

from benchmarks.shared import agent_logs
from instrumentation.analyze import command
from instrumentation.analyze.agents import setups, usual_places
from instrumentation.analyze.analysis import analyze, prepare
from instrumentation.analyze.command import progress_bar
from instrumentation.replay.compare import Contender, ReplayConditions
from instrumentation.reports.analyze import as_json, as_text
from pager.cli import main
from pager.config.loading import Settings

IDLE = {"type": "function", "function": {"name": "idle", "description": "x" * 99, "parameters": {"type": "object"}}}
BASE = "http://127.0.0.1:8787"


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch):
    """A home without anybody's settings, logs or cache; the command line reads the process's own."""
    monkeypatch.chdir(tmp_path)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("config", "cache", "data"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))


def write(folder, name, seeds=(1, 2), calls=30):
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (folder / f"{name}-{seed}.jsonl").write_bytes(b"".join(agent_logs.FORMATS[name](seed, calls)))
    return folder


def record(path, calls=4, **header):
    said = [{"role": "user", "content": "do it"}]
    for at in range(calls):
        function = {"name": header.get("tool", "read"), "arguments": "{}"}
        said.append({"role": "assistant", "content": None, "tool_calls": [{"id": f"c{at}", "function": function}]})
        said.append({"role": "tool", "tool_call_id": f"c{at}", "content": f"{at} " * 900})
    rows = [{"session": "one", "model": "claude-opus-4-5", **header}, *said]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def run(capsys, *arguments):
    status = main.main(["analyze", *map(str, arguments)])
    told = capsys.readouterr()
    return status, told.out, told.err


def lines_of(out, first, count):
    lines = out.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith(first))
    return lines[at : at + count]


def test_it_says_how_sure_the_cost_of_waste_is(tmp_path, capsys):
    told = run(capsys, write(tmp_path / "logs", "claude_code"), "--jobs", 1)[1]
    assert "the cost is a lower bound" in told
    assert "the most that it can have been" not in told
    path = record(tmp_path / "silent.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    counted = {"usage": {"prompt_tokens": 5_000, "completion_tokens": 5}}
    path.write_text(
        "\n".join(json.dumps({**row, "_meta": counted} if row.get("role") == "assistant" else row) for row in rows)
    )
    told = run(capsys, path, "--jobs", 1)[1]
    assert "the cost is a lower bound" not in told
    assert "the most that it can have been" in told


def test_it_tells_what_was_read_sent_paid_and_wasted(tmp_path, capsys):
    folder = write(tmp_path / "logs", "claude_code")
    with (folder / "claude_code-1.jsonl").open("ab") as file:
        file.write(b"{bad\n")
    status, out, err = run(capsys, folder, "--jobs", 1)
    assert (status, err) == (0, "")
    assert "claude_code: 2 sessions, 60 calls" in out
    assert "1 bad line skipped" in out
    assert f"{folder}/claude_code-1.jsonl: line " in out
    assert re.search(r"2 sessions, 60 calls, 2026-09-2\d to 2026-09-2\d", out)
    assert re.search(r"sent +\S+ tokens of prompts, of which \S+ were new", out)
    assert re.search(r"each byte was sent [\d.]+ times", out)
    assert re.search(r"paid +\$ [\d.]+ \(\S+ units\*\) for 60 calls as reported", out)
    assert re.search(r"cached +\d\d\.\d % of the prompts' tokens, as reported", out)
    causes = lines_of(out, "what need not have been sent", 8)
    assert any(line.startswith("stale results") for line in causes)
    assert causes[-1].startswith("all of it")
    assert "session-00000001" in "\n".join(lines_of(out, "worst sessions", 4))
    assert "% " in lines_of(out, "worst tools", 3)[-1] + " "


def test_it_ends_with_what_policies_would_have_saved_and_how_to_start(tmp_path, capsys):
    _, out, _ = run(capsys, write(tmp_path / "logs", "claude_code"), "--policy", "cost_aware,lru,keep_all")
    rows = [line.split()[0] for line in lines_of(out, "policy ", 5)[2:]]
    assert rows == ["keep_all", "cost_aware", "lru"]
    assert out.endswith(
        f"try it:\n\n    ctxpager serve\n\n    ANTHROPIC_BASE_URL={BASE} ENABLE_TOOL_SEARCH=true claude\n"
    )


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("codex", f'    base_url = "{BASE}/v1"\n'),
        ("opencode", f'    "options": {{"baseURL": "{BASE}/v1"}}\n'),
        ("openai_jsonl", f"    base_url = {BASE}/v1 in any OpenAI client, {BASE} in any of Anthropic's\n"),
    ],
)
def test_the_line_for_the_client_is_that_of_the_logs(tmp_path, capsys, name, line):
    _, out, _ = run(capsys, write(tmp_path / "logs", name, calls=4), "--policy", "keep_all")
    assert line in out.split("try it:")[1]


def test_the_address_is_that_of_the_settings(tmp_path, capsys, monkeypatch):
    path = record(tmp_path / "one.jsonl", harness="Claude-Code 2")
    monkeypatch.setenv("CTXPAGER_HOST", "::1")
    monkeypatch.setenv("CTXPAGER_PORT", "99")
    _, out, _ = run(capsys, path)
    assert "ANTHROPIC_BASE_URL=http://[::1]:99 ENABLE_TOOL_SEARCH=true claude" in out


def test_the_client_with_most_calls_comes_first(tmp_path):
    paths = [
        record(tmp_path / f"{name}.jsonl", calls, harness=name) for name, calls in (("goose", 3), ("qwen-code", 5))
    ]
    found = analyze(paths, prepare([Contender("keep_all")], ReplayConditions()))
    assert [line.split("=")[0] for line in setups(found.sessions, BASE)] == ["OPENAI_BASE_URL", "OPENAI_HOST"]


def test_the_output_is_the_same_with_a_cache_without_one_and_with_any_jobs(tmp_path, capsys):
    folder = write(tmp_path / "logs", "claude_code")
    write(folder, "codex")
    for form in ([], ["--json"]):
        cold = run(capsys, folder, "--jobs", 2, *form)
        assert cold == run(capsys, folder, "--jobs", 1, *form)
        assert cold == run(capsys, folder, "--jobs", 1, "--no-cache", *form)
        assert cold == run(capsys, folder, *form)
    assert (tmp_path / "cache" / "ctxpager" / "analyze" / "cache.db").exists()


def test_no_cache_leaves_nothing_behind(tmp_path, capsys):
    run(capsys, record(tmp_path / "one.jsonl"), "--no-cache")
    assert not (tmp_path / "cache").exists()


def test_plain_values_add_up_to_what_was_found(tmp_path, capsys):
    folder = write(tmp_path / "logs", "recording")
    status, out, _ = run(capsys, folder, "--json", "--prices", "anthropic")
    told = json.loads(out)
    found = analyze([folder], prepare([Contender("keep_all"), Contender("cost_aware")], ReplayConditions("anthropic")))
    assert status == 0
    assert told == json.loads(json.dumps(as_json(found)))
    assert sum(told["tokens"].values()) == found.totals.client.total == sum(one["tokens"] for one in told["each"])
    assert told["calls"] == sum(one["calls"] for one in told["each"]) == 60
    assert [one["policy"] for one in told["policies"]] == ["keep_all", "cost_aware"]
    assert sum(one["wasted"] for one in told["each"]) == sum(one["tokens"] for one in told["waste"].values())
    cost = sum(one["cost"]["units"] for one in told["each"])
    assert cost == pytest.approx(told["paid"]["told"]["units"] + told["paid"]["guessed"]["units"])


def test_without_a_path_it_looks_in_the_usual_places_and_says_so(tmp_path, capsys):
    write(tmp_path / ".claude" / "projects" / "p", "claude_code", seeds=[1], calls=3)
    status, out, err = run(capsys)
    assert status == 0
    assert "claude_code: 1 session, 3 calls" in out
    assert err.splitlines() == [
        f"searched {tmp_path}/.claude/projects",
        f"searched {tmp_path}/.codex/sessions: not there",
        f"searched {tmp_path}/data/ctxpager: not there",
    ]


def test_places_follow_the_settings_of_their_clients(tmp_path):
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "c"), "CODEX_HOME": str(tmp_path / "x")}
    places = [tmp_path / "c" / "projects", tmp_path / "x" / "sessions", tmp_path / "data"]
    assert usual_places(tmp_path / "data", env, tmp_path) == places


def test_without_any_logs_it_says_where_it_looked(tmp_path, capsys):
    status, out, err = run(capsys)
    assert (status, out) == (2, "")
    assert f"there are no logs in the usual places ({tmp_path}/.claude/projects, " in err


def test_a_path_that_is_not_there_is_an_error(tmp_path, capsys):
    status, _, err = run(capsys, tmp_path / "none")
    assert (status, err) == (2, f"ctxpager: {tmp_path}/none: there is no such file or folder\n")


@pytest.mark.parametrize(("flag", "value"), [("--policy", "nobody"), ("--policy", ",")])
def test_what_makes_no_sense_is_an_error(tmp_path, capsys, flag, value):
    status, out, err = run(capsys, record(tmp_path / "one.jsonl"), flag, value)
    assert (status, out) == (2, "")
    assert value in err


def test_where_there_is_no_session_it_says_so_and_still_how_to_start(tmp_path, capsys):
    (tmp_path / "notes.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "copy.jsonl").write_text('{"a": 1}\n')
    status, out, _ = run(capsys, tmp_path / "notes.jsonl", tmp_path / "two")
    assert status == 1
    assert "1 file of no known format" in out
    assert "no session of an agent was found there" in out
    assert "1 file with the content of another left out" in out
    assert out.endswith("in any of Anthropic's\n")
    assert run(capsys, tmp_path / "two", "--json")[0] == 1


def test_old_files_are_left_out(tmp_path, capsys):
    path = record(tmp_path / "one.jsonl")
    os.utime(path, (1e9, 1e9))
    status, out, _ = run(capsys, path, "--since", "30d")
    assert status == 1
    assert "1 file not written since then left out" in out


def test_short_sessions_are_left_out(tmp_path, capsys):
    status, out, _ = run(capsys, record(tmp_path / "one.jsonl", 4), "--min-calls", 5)
    assert status == 1
    assert "1 session too short or too old left out" in out


def test_calls_that_nobody_counted_are_told_as_estimates(tmp_path, capsys):
    _, out, _ = run(capsys, record(tmp_path / "one.jsonl"))
    assert re.search(r"^paid     \$ \S+ \(\S+ units\*\), estimated, for 4 calls without counts$", out, re.MULTILINE)
    assert "of the prompts' tokens, as reported" not in out


def test_of_models_without_a_price_no_dollars_are_told(tmp_path, capsys):
    path = record(tmp_path / "one.jsonl", model="nobody-knows-it")
    _, out, _ = run(capsys, path)
    assert re.search(r"^paid     \S+ units\*, estimated", out, re.MULTILINE)
    record(tmp_path / "two.jsonl", session="two")
    _, out, _ = run(capsys, path, tmp_path / "two.jsonl")
    assert "the price of 4 calls is not known: they are in no sum of dollars" in out


def test_answers_that_were_counted_too_soon_are_told_of(tmp_path, capsys):
    usage = {"input_tokens": 100, "output_tokens": 1}
    answer = {"role": "assistant", "content": "a" * 100, "_meta": {"usage": usage}}
    rows = [{"session": "one", "model": "claude-opus-4-5"}, *[{"role": "user", "content": "go"}, answer] * 2]
    (tmp_path / "one.jsonl").write_text("\n".join(map(json.dumps, rows)))
    _, out, _ = run(capsys, tmp_path / "one.jsonl")
    assert "the output of 2 of them is estimated" in out
    assert "worst tools" not in out


def test_an_interrupt_ends_it_quietly(tmp_path, capsys):
    own = tmp_path / "own.py"
    own.write_text("class Own:\n    def choose(self, view):\n        raise KeyboardInterrupt\n")
    path = record(tmp_path / "one.jsonl", 30)
    status, out, err = run(capsys, path, "--jobs", 1, "--policy", f"{own}:Own")
    assert (status, out) == (130, "")
    assert "interrupted" in err


def test_without_policies_nothing_is_said_of_any(tmp_path):
    found = analyze([record(tmp_path / "one.jsonl")], prepare([], ReplayConditions()))
    told = as_text(found)
    assert "\npolicy " not in told
    assert "(sent: how often each byte was)" in told
    assert "these logs don't say which tools were offered" in told
    told = as_text(analyze([record(tmp_path / "two.jsonl", tools=[IDLE])], prepare([], ReplayConditions())))
    assert "these logs don't say which tools were offered" not in told


def test_names_that_a_terminal_would_obey_are_made_harmless(tmp_path):
    path = record(tmp_path / "one.jsonl", session="\x1b[31mred\x07 [bold]x[/bold]", tool="\x1b]0;title\x07")
    found = analyze([path], prepare([Contender("keep_all")], ReplayConditions()))
    told = as_text(found)
    assert "\x1b" not in told
    assert "\x07" not in told
    assert "[31mred [bold]x[/bold]" in told


def test_lines_fit_a_narrow_terminal(tmp_path):
    name, tool = (
        "session-with-a-name-that-is-far-too-long-to-be-shown",
        "tool_with_a_name_that_is_far_too_long_to_be_shown",
    )
    found = analyze(
        [record(tmp_path / "one.jsonl", session=name, tool=tool)], prepare([Contender("keep_all")], ReplayConditions())
    )
    lines = as_text(found, width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("session-with-a-na") for line in lines)
    assert " ".join(map(str.strip, lines)).count("most: by how much one of them would at most)") == 1
    assert name in as_text(found, width=140)


class Terminal(io.StringIO):
    """Somebody is looking."""

    def isatty(self):
        return True


def test_on_a_terminal_a_bar_shows_how_far_it_is(tmp_path):
    folder, err = write(tmp_path / "logs", "codex", calls=3), Terminal()
    wanted = command.AnalyzeOptions([folder], "keep_all", caches=False)
    found, _ = command.run(wanted, Settings(), {}, err)
    assert found.sessions
    assert "reading logs" in err.getvalue()


def test_where_nobody_is_looking_there_is_no_bar():
    out = io.StringIO()
    with progress_bar(out) as told:
        told(1, 2)
    assert out.getvalue() == ""
