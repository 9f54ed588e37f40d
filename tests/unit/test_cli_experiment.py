"""The command that compares the arms of an experiment."""

import json
import time
from hashlib import sha256

import pytest

from pager.cli import main
from pager.log.events import (
    AnswerFinished,
    CallReceived,
    SessionOpened,
)
from pager.log.store import Batch
from pager.log.stores import open_store
from pager.request_values import Usage

RESULT = b'{"role":"tool","tool_call_id":"c1","content":"fine"}'


@pytest.fixture(autouse=True)
def data(at_home, tmp_path):
    """A home with a folder for the log."""
    (tmp_path / "data").mkdir()


def log(tmp_path, sessions, days_ago=0.0):
    """Log sessions of one turn: the arm, the tokens of each call, and how many calls."""
    store = open_store(f"sqlite:{tmp_path / 'data'}")
    at = time.time() - 86_400 * days_ago
    for number, (arm, tokens, calls) in enumerate(sessions):
        events = [SessionOpened("local", "", "lineage", arm=arm)]
        for call in range(1, calls + 1):
            new = [sha256(RESULT).hexdigest()] if call > 1 else []
            events.append(CallReceived(0, call, 1, "chat", "/", "gpt-5.5", False, "", 9, "", [], messages=new))
            usage = Usage(input=tokens + number)
            events.append(AnswerFinished(0, call, 1, 200, "stop", "", 0, 1.0, 2.0, model="gpt-5.5", usage=usage))
        blobs = {sha256(RESULT).digest(): RESULT}
        store.append(Batch(f"s_{days_ago:g}_{number}", at, events, blobs)).result()
    store.close()


def experiment(capsys, *arguments):
    status = main.main(["experiment", "--data-dir", "data", *map(str, arguments)])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_arms_are_compared_in_words(tmp_path, capsys):
    log(tmp_path, [("cost_aware", 8_000, 4)] * 12 + [("keep_all", 10_000, 4)] * 10)
    status, out, _ = experiment(capsys)
    assert status == 0
    head, _, control, other, _, words, *_ = out.splitlines()
    assert head.split()[:3] == ["arm", "sessions", "calls"]
    assert control.split()[:3] == ["keep_all", "10", "40"]
    assert other.split()[:3] == ["cost_aware", "12", "48"]
    assert words == "cost_aware costs 0.80 of keep_all per call (0.80 to 0.80): 20 % less"
    assert "Compared in dollars" in out


def test_programs_get_plain_values(tmp_path, capsys):
    log(tmp_path, [("cost_aware", 8_000, 4)] * 3 + [("keep_all", 10_000, 4)] * 3)
    _, out, _ = experiment(capsys, "--json", "--prices", "none")
    told = json.loads(out)
    assert [arm["sessions"] for arm in told["arms"]] == [3, 3]
    assert told["comparisons"][0]["words"].startswith("too few sessions to tell cost_aware from keep_all: ")


def test_the_margin_decides_what_is_still_not_worse(tmp_path, capsys):
    log(tmp_path, [("cost_aware", 8_000, 9)] * 12 + [("keep_all", 10_000, 6)] * 10)

    def found(*arguments):
        told = json.loads(experiment(capsys, "--json", *arguments)[1])
        return told["margin"], told["harm"][-1]["sign"], told["harm"][-1]["verdict"]

    assert found() == (0.1, "task_length", "worse")
    assert found("--margin", "0.5") == (0.5, "task_length", "not worse")
    _, out, _ = experiment(capsys, "--format", "csv")
    head, control, other = (line.split(",") for line in out.splitlines())
    at = head.index("verdicts_task_length")
    assert (control[at], other[at]) == ("", "worse")


def test_older_sessions_can_be_left_out(tmp_path, capsys):
    log(tmp_path, [("cost_aware", 8_000, 4), ("keep_all", 8_000, 4)], days_ago=10.0)
    log(tmp_path, [("cost_aware", 8_000, 4)], days_ago=1.0)
    _, out, _ = experiment(capsys, "--since", "48h", "--json")
    assert [(arm["arm"], arm["sessions"]) for arm in json.loads(out)["arms"]] == [("cost_aware", 1)]


def test_without_an_experiment_it_says_how_to_begin_one(tmp_path, capsys):
    log(tmp_path, [("", 8_000, 4)])
    status, out, err = experiment(capsys)
    assert (status, out) == (2, "")
    assert "[experiment] arms = " in err
