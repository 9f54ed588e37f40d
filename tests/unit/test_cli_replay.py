"""The command that plays sessions again."""

import gzip
import json

import pytest
from logged_sessions import LoggedCall, log_in_folder

from instrumentation.replay.policy_options import RULES
from pager.cli import main
from pager.log.stores import open_store
from pager.wire.dialects import load

CHAT = load("chat")


pytestmark = pytest.mark.usefixtures("at_home")


def messages(calls):
    """What a session of so many calls says; every call reads a file."""
    said = [{"role": "user", "content": "do it"}]
    for at in range(calls):
        function = {"name": "read", "arguments": json.dumps({"path": f"{at}.py"})}
        said.append({"role": "assistant", "content": None, "tool_calls": [{"id": f"c{at}", "function": function}]})
        content = "\n".join(f"line {line} of file {at} as it was read" for line in range(200))
        said.append({"role": "tool", "tool_call_id": f"c{at}", "content": content})
    return said


def record(path, calls=8, name="one", model="claude-opus-4-5", tools=()):
    rows = [{"session": name, "model": model, "tools": list(tools)}, *messages(calls)]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    return str(path)


def log(folder, calls, key):
    """Log a session; its id."""
    said, head = (
        messages(calls),
        {"model": "claude-opus-4-5", "tools": [{"type": "function", "function": {"name": "read"}}]},
    )
    bodies = [{**head, "messages": said[: 1 + 2 * at]} for at in range(calls)]
    return log_in_folder(folder, map(LoggedCall, bodies), key=key)


def replay(capsys, *arguments):
    status = main.main(["replay", *map(str, arguments)])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_a_file_is_played_under_the_policies_named(tmp_path, capsys):
    path = record(tmp_path / "one.jsonl.gz")
    status, out, _ = replay(capsys, path, "--policy", "keep_all,fifo_age", "--set", "age=2", "--prices", "none")
    assert status == 0
    assert "1 session, 8 calls" in out
    rows = [line.split()[1] for line in out.splitlines() if line.startswith("| ")]
    assert rows == ["policy", "keep_all", "fifo_age"]


def test_what_knowing_the_future_would_save_is_named_like_a_policy(tmp_path, capsys):
    path = record(tmp_path / "one.jsonl.gz")
    _, out, _ = replay(capsys, path, "--policy", "keep_all,knowing")
    assert [row.split()[1] for row in out.splitlines() if row.startswith("| ")] == ["policy", "keep_all", "knowing"]
    assert "of knowing" in out


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        ([], ["fifo_age"]),
        (["--keep-warm"], ["fifo_age", *(f"fifo_age + {rule}" for rule in RULES)]),
        (["--keep-warm", "auto", "--keep-warm", "2x280@9"], ["fifo_age", "fifo_age + auto", "fifo_age + 2x280@9"]),
    ],
)
def test_policies_are_played_with_and_without_keeping_warm(tmp_path, capsys, given, rows):
    path = record(tmp_path / "one.jsonl.gz")
    _, out, _ = replay(capsys, path, "--policy", "fifo_age", "--json", *given)
    assert [row["policy"] for row in json.loads(out)["policies"]] == rows


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_a_number_of_processes_that_makes_no_sense_is_refused(tmp_path, capsys, jobs):
    with pytest.raises(SystemExit):
        replay(capsys, record(tmp_path / "one.jsonl.gz"), "--jobs", jobs)
    assert f"{jobs}" in capsys.readouterr().err


def test_without_a_policy_the_one_in_force_is_played(tmp_path, capsys):
    (tmp_path / "ctxpager.toml").write_text('policy = "fifo_age"\n[paging.policy_options]\nage = 2\n')
    path = record(tmp_path / "one.jsonl.gz")
    _, out, _ = replay(capsys, path, "--json")
    _, other, _ = replay(capsys, path, "--json", "--set", "age=1")
    told, changed = json.loads(out)["policies"], json.loads(other)["policies"]
    assert [row["policy"] for row in told] == ["fifo_age"]
    assert changed[0]["repacks"] > 0
    assert told[0]["charged"] != changed[0]["charged"]


def test_prices_follow_from_the_model_unless_they_are_named(tmp_path, capsys):
    path = record(tmp_path / "one.jsonl.gz", model="claude-opus-4-5")
    costs = {
        prices: json.loads(replay(capsys, path, "--json", "--policy", "keep_all", *prices)[1])["before"]["cost"]
        for prices in ((), ("--prices", "anthropic"), ("--prices", "none"))
    }
    assert costs[()] == costs["--prices", "anthropic"] < costs["--prices", "none"]


def test_the_settings_say_whether_tools_are_sent_short(tmp_path, capsys):
    prose = "Does what its name says. " + "There is much more to be said of it, which hardly anybody needs. " * 8
    parameters = {"type": "object", "properties": {f"parameter_{at}": {"type": "string"} for at in range(40)}}
    functions = [{"name": "read", "parameters": parameters}]
    functions += [{"name": f"tool_{at}", "description": prose, "parameters": parameters} for at in range(50)]
    tools = [{"type": "function", "function": one} for one in functions]
    path = record(tmp_path / "one.jsonl.gz", tools=tools)
    common = (path, "--prices", "anthropic", "--policy", "cost_aware", "--json")
    settings = [("--tools-shorten", "off"), ("--tools-defer-above", "1_000_000"), ("--tools-defer-above", "0")]
    rows = [json.loads(replay(capsys, *common, *flags)[1])["policies"][0] for flags in settings]
    off, slim, deferred = (row["cost_change"] for row in rows)
    assert deferred < slim < off
    assert [row["schemas"] for row in rows] == [0, 0, 0]  # nobody calls any but the one that is sent whole


def test_a_folder_is_played_in_processes(tmp_path, capsys):
    for name in ("a", "b", "c"):
        record(tmp_path / f"{name}.jsonl.gz", 3 if name == "c" else 8, name)
    _, out, _ = replay(capsys, tmp_path, "--policy", "fifo_age", "--jobs", "2")
    assert "2 sessions, 16 calls" in out
    assert "1 session is left out, as it is too short" in out
    _, out, _ = replay(capsys, tmp_path, "--policy", "fifo_age", "--min-calls", "1")
    assert "3 sessions, 19 calls" in out


def test_a_session_of_the_log_is_named_by_its_id_its_beginning_or_its_clients_name_for_it(tmp_path, capsys):
    folder = tmp_path / "data"
    first, second = log(folder, 8, "one"), log(folder, 6, "two")
    common = ("--data-dir", folder, "--policy", "fifo_age", "--json")
    assert json.loads(replay(capsys, first, *common)[1])["calls"] == 8
    beginning = next(second[:length] for length in range(3, 20) if not first.startswith(second[:length]))
    assert json.loads(replay(capsys, beginning, *common)[1])["calls"] == 6
    assert json.loads(replay(capsys, "two", *common)[1])["calls"] == 6
    assert json.loads(replay(capsys, "all", *common)[1])["calls"] == 14
    recorded = record(tmp_path / "one.jsonl.gz", 5)
    assert json.loads(replay(capsys, "all", first, recorded, *common)[1])["calls"] == 19


def test_a_beginning_that_several_sessions_have_is_told(tmp_path, capsys):
    log(tmp_path / "data", 1, "one"), log(tmp_path / "data", 1, "two")
    status, _, err = replay(capsys, "s_", "--data-dir", tmp_path / "data")
    assert status == 2
    assert "s_: 2 sessions begin like that" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["broken.jsonl"], ["broken.jsonl: line 1 is no JSON object"]),
        (["empty"], ["empty: there are no recordings", ".jsonl.gz"]),
        (["nobody", "--data-dir", "data"], ["nobody: is neither a file or folder of recordings nor", "0 sessions"]),
        (["nobody", "--data-dir", "nowhere"], ["there is no log", "nowhere"]),
        (["short.jsonl.gz"], ["nothing to play: 1 session has", "--min-calls"]),
        (["short.jsonl.gz", "--policy", "keep_al"], ["keep_al", "keep_all", "cost_aware"]),
        (["short.jsonl.gz", "--prices", "nonsense"], ["nonsense", "anthropic"]),
        (["short.jsonl.gz", "--keep-warm", "always"], ["--keep-warm always", "2x280@20000"]),
        (["short.jsonl.gz", "--set", "x=1"], ["has an option 'x'"]),
    ],
)
def test_what_cant_be_played_is_told(tmp_path, capsys, arguments, said):
    (tmp_path / "broken.jsonl").write_text("hello")
    (tmp_path / "empty").mkdir()
    open_store(f"sqlite:{tmp_path / 'data'}").close()
    record(tmp_path / "short.jsonl.gz", 2)
    status, out, err = replay(capsys, *arguments)
    assert (status, out) == (2, "")
    assert all(words in err for words in said), err
