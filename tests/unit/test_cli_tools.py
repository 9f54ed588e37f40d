"""The command that accounts for tools."""

import json
import time

import pytest
from chat_items import say, user
from logged_sessions import LoggedCall, log_in_folder, paging

from pager.cli import main
from pager.paging.tool_forms_of_call import Shortening
from pager.request_values import ToolUse
from pager.wire.dialects import load

CHAT = load("chat")
PROSE = "It is explained at length, with all that is to be minded, and what happens if it is not. " * 4
PARAMETERS = {"type": "object", "properties": {"title": {"type": "string", "description": PROSE}}}


pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def log(tmp_path):
    """Logs a session of two calls that offers seven tools and calls one of them; gives its id."""

    def write(key="one", days_ago=0.0, *, shorten=True):
        names = ["bash", *(f"issue_{at}" for at in range(6))]
        tools = [
            {"type": "function", "function": {"name": name, "description": PROSE, "parameters": PARAMETERS}}
            for name in names
        ]
        calls = [
            LoggedCall(
                {"model": "m", "messages": [user("do it"), *[say(), user()] * at], "tools": tools},
                gap=1.0,
                calls=(ToolUse(0, f"c{at}", "issue_1", '{"title": "a"}'),),
            )
            for at in range(2)
        ]
        pager = paging("cost_aware", tools=Shortening(on=shorten))
        return log_in_folder(tmp_path / "data", calls, pager, key=key, begun=time.time() - 1 - 86_400 * days_ago)

    return write


def tools(capsys, *arguments):
    status = main.main(["tools", "--data-dir", "data", *map(str, arguments)])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_tools_are_accounted_for_in_words(log, capsys):
    session = log()
    status, out, _ = tools(capsys, session[:6])
    assert status == 0
    lines = out.splitlines()
    facts = dict(line.split(maxsplit=1) for line in lines[: lines.index("")])
    assert facts["sessions"] == "1, with 2 calls with a decision on tools, in 2 prompts"
    assert facts["tools"] == "7 offered: 1 called, 6 never"
    assert facts["calls"].startswith("2, 2 of them of tools that were sent short: 2 at once, 0 after")
    head, *rows = lines[lines.index("") + 1 :]
    assert head.split()[:6] == ["tool", "form", "full", "sent", "calls", "faults"]
    called = next(row.split() for row in rows if row.startswith("issue_1"))
    assert (called[1], called[4:8]) == ("shortened", ["2", "0", "0", "0"])
    assert int(called[2]) > int(called[3])


def test_programs_get_plain_values_of_all_sessions(log, capsys):
    log("one")
    log("two")
    status, out, _ = tools(capsys, "--json")
    told = json.loads(out)
    assert (status, told["sessions"], told["prompts"], len(told["calls"])) == (0, 2, 4, 4)
    assert told["tokens"]["sent"] == sum(told["tokens"][form] for form in ("whole", "slim", "deferred"))
    assert told["tokens"]["sent"] < told["tokens"]["offered"]
    assert "issue_1" not in told["never_called"]
    assert json.loads(tools(capsys, "all", "--json")[1]) == told


def test_older_sessions_can_be_left_out(log, capsys):
    log("one", days_ago=10.0)
    log("two", days_ago=1.0)
    _, out, _ = tools(capsys, "--since", 2, "--json")
    assert json.loads(out)["sessions"] == 1


def test_a_log_without_a_decision_says_why_that_may_be(log, capsys):
    log(shorten=False)
    status, out, err = tools(capsys)
    assert (status, out) == (2, "")
    assert "no decision on tools in 1 session:" in err
    assert '[tools] shorten = "off"' in err


def test_without_any_session_that_is_said(log, capsys):
    log("one", days_ago=10.0)
    status, _, err = tools(capsys, "--since", 2)
    assert (status, "the log holds no session that began since then" in err) == (2, True)


def test_a_session_that_is_not_there_is_told_with_those_that_are(log, capsys):
    log()
    status, _, err = tools(capsys, "nope")
    assert (status, "session nope: none of 1 begins like that" in err) == (2, True)
