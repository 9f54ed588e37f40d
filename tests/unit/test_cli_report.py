"""The command that reports on sessions."""

import csv
import io
import json
import time
from argparse import ArgumentTypeError
from datetime import UTC, datetime

import pytest
from chat_items import call, result, say, user
from logged_sessions import LoggedCall, log_in_folder, paging

from pager.cli import main
from pager.cli.options import since
from pager.log.stores import open_store
from pager.request_values import Usage
from pager.wire.dialects import load

CHAT = load("chat")
SECRET = "the secret words of the file"


pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def log(tmp_path):
    """Logs a session of four calls that reads a page and evicts it at the third; gives its id."""

    def write(key="one", days_ago=0.0):
        text = "\n".join(f"{SECRET} {at}" for at in range(60))
        start = [user("do it"), call("c1", path="src/secret.py"), result("c1", text)]
        head = {"model": "gpt-5.5", "tools": [{"type": "function", "function": {"name": "read"}}]}
        bodies = [{**head, "messages": [*start, *[say(), user()] * at]} for at in range(4)]
        calls = [LoggedCall(body, gap=1.0, usage=a_token_in_three_bytes) for body in bodies]
        begun = time.time() - 61 - 86_400 * days_ago
        return log_in_folder(
            tmp_path / "data", calls, paging("fifo_age", {"age": 1, "size": 500}), key=key, begun=begun
        )

    return write


def a_token_in_three_bytes(entry):
    return Usage(entry.paged.outgoing.size // 3, 0, 0, 7)


def run(tmp_path, *arguments):
    return main.main(["report", "--data-dir", str(tmp_path / "data"), *arguments])


def test_all_sessions_are_summed_up(log, tmp_path, capsys):
    names = [log(), log("two")]
    assert run(tmp_path) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in (*names, "total"))
    assert "stale results ~" in told
    assert "\x1b[" not in told


def test_a_session_is_told_by_itself(log, tmp_path, capsys):
    name = log()
    log("two")
    assert run(tmp_path, name[:10]) == 0
    told = capsys.readouterr().out
    assert f"session  {name} (one), pi/0.73, gpt-5.5\n" in told
    assert "1 result removed" in told


@pytest.mark.parametrize(
    ("by", "expected"),
    [("session", 2), ("day", 2), ("model", 1), ("harness", 1), ("branch", 2), ("call", 8)],
)
def test_calls_are_summed_up_by_whatever_is_asked_for(log, tmp_path, capsys, by, expected):
    log(days_ago=3)
    log("two")
    assert run(tmp_path, "--by", by, "--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert (len(rows), sum(int(row["calls"]) for row in rows)) == (expected, 8)


def test_only_calls_of_late_are_counted(log, tmp_path, capsys):
    log(days_ago=3)
    late = log("two")
    yesterday = datetime.fromtimestamp(time.time() - 86_400, UTC).date().isoformat()
    for span in ("2d", "47h", "90m", "2.5", yesterday):
        assert run(tmp_path, "--since", span, "--format", "json") == 0
        assert [row["name"] for row in json.loads(capsys.readouterr().out)["rows"]] == [late]
    assert run(tmp_path, "--since", "0m") == 2
    assert "no answered call to report on" in capsys.readouterr().err


def test_no_format_has_the_text_of_prompts_unless_it_is_asked_for(log, tmp_path, capsys):
    name = log()
    for form in ("text", "json", "csv", "html"):
        assert run(tmp_path, name, "--format", form) == 0
        told = capsys.readouterr().out
        assert SECRET not in told
        assert "secret.py" not in told
    for form in ("json", "html"):
        assert run(tmp_path, name, "--format", form, "--with-content") == 0
        assert SECRET in capsys.readouterr().out


def test_a_report_goes_to_a_file(log, tmp_path, capsys):
    name = log()
    assert run(tmp_path, name, "--format", "html", "-o", str(tmp_path / "report.html")) == 0
    assert capsys.readouterr().out == ""
    assert "<html" in (tmp_path / "report.html").read_text()


def test_a_file_that_cant_be_written_is_told(log, tmp_path, capsys):
    log()
    for place in (tmp_path, tmp_path / "nowhere" / "report.html"):
        assert run(tmp_path, "-o", str(place)) == 2
        assert f"-o {place}: can't be written: " in capsys.readouterr().err


@pytest.mark.parametrize("key", ["k[/x]", "[bold]loud[/bold]", ":warning:", "odd\x1b[2J\x07name"])
def test_names_of_somebody_elses_are_neither_read_nor_obeyed(log, tmp_path, capsys, key):
    name = log(key)
    assert run(tmp_path, name) == 0
    shown = "".join(letter if letter.isprintable() else " " for letter in key)
    assert f"({shown})" in capsys.readouterr().out


def test_a_wrong_session_and_a_log_without_any_are_told(log, tmp_path, capsys):
    log()
    assert run(tmp_path, "nope") == 2
    assert "session nope: none of 1 begins like that" in capsys.readouterr().err
    log("two")
    assert run(tmp_path, "--format", "html") == 2
    assert "--format html shows one session" in capsys.readouterr().err
    open_store(f"sqlite:{tmp_path / 'empty'}").close()
    assert main.main(["report", "--data-dir", str(tmp_path / "empty")]) == 2
    assert "there is no answered call to report on" in capsys.readouterr().err


def test_json_can_be_asked_for_as_with_the_other_commands(tmp_path, capsys, log):
    log()
    assert run(tmp_path, "--format", "json") == 0
    told = capsys.readouterr().out
    assert run(tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(told)


def test_a_span_of_time_or_a_day_says_since_when():
    now = time.time()
    for text, span in (("7d", 604_800), ("24h", 86_400), (" 30m ", 1_800), ("0.5d", 43_200)):
        assert since(text) == pytest.approx(now - span, abs=3_600)
    assert since("2026-09-01") == datetime(2026, 9, 1, tzinfo=UTC).timestamp()
    for wrong in ("", "x", "-1", "7w", "1e9", "d", "2026-13-01"):
        with pytest.raises(ArgumentTypeError, match="expected a span of time such as 7d"):
            since(wrong)
