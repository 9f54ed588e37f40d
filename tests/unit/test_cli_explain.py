"""The command that explains a call."""

import json

import pytest
from chat_items import call, result, say, user
from logged_sessions import LoggedCall, log_in_folder, paging

from pager.cli import main
from pager.paging.tool_forms_of_call import Shortening
from pager.request_values import Usage
from pager.wire.dialects import load

CHAT = load("chat")
OPTIONS = {"age": 1, "size": 500}


pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def session(tmp_path):
    """The id of a logged session in which a file was read; its page went at the third call."""
    content = "\n".join(f"line {at} of the file as it was read" for at in range(60))
    said = [user("do it"), call("c1", path="src/harbour.py"), result("c1", content)]
    tools = [{"type": "function", "function": {"name": "read"}}]
    usage = Usage(input=900, cached=700, tells_cached=True)
    calls = [
        LoggedCall({"model": "m", "messages": [*said, *[say(), user()] * at], "tools": tools}, usage=usage)
        for at in range(4)
    ]
    pager = paging("fifo_age", OPTIONS, marks=True, tools=Shortening())
    return log_in_folder(tmp_path / "data", calls, pager, harness="", begun=-10.0)


def explain(capsys, *arguments):
    in_force_then = ["--prices", "anthropic", "--data-dir", "data"]
    status = main.main(["explain", *map(str, arguments), *in_force_then])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_a_call_is_explained_page_by_page(session, capsys, tmp_path):
    (tmp_path / "ctxpager.toml").write_text('policy = "fifo_age"\n[paging.policy_options]\nage = 1\nsize = 500\n')
    status, out, _ = explain(capsys, session[:6], 3)
    assert status == 0
    lines = out.splitlines()
    facts = dict(line.split(maxsplit=1) for line in lines[: lines.index("")])
    assert facts["session"] == session
    assert facts["call"].startswith("0:3, attempt 1 of 1, 1970-01-01 00:00:20 UTC")
    assert facts["policy"] == "fifo_age (logged with this call)"
    assert facts["cache"] == "warm: 10 s since the call before, and a prompt is kept for 300 s"
    assert facts["prices"].startswith("read 0.1, write 1.25, output 5 of uncached input")
    assert facts["logged"].startswith("repack by policy: ")
    assert facts["logged"].endswith("page_in was added to the tools")
    assert "cache rewritten for " in facts["logged"], "the policy's own price has the tool in it, too"
    assert facts["answered"] == "900 tokens of prompt, 700 of them cached; page-ins before: 0"
    assert "differs" not in facts
    head, _, row = lines[lines.index("") + 1 : lines.index("") + 4]
    assert head.split() == ["page", "of", "tokens", "age", "idle", "uses", "faults", "state", "verdict"]
    assert row.startswith("pg_")
    assert "read src/harbour.py" in row
    assert row.endswith("resident  went (policy)")
    assert any(line.startswith("removed 1 of 1 page (") for line in lines)
    assert any(line.startswith("age, idle: calls since it came") for line in lines)


def test_other_settings_than_then_are_said_plainly(session, capsys, tmp_path):
    (tmp_path / "ctxpager.toml").write_text('policy = "fifo_age"\n[paging.policy_options]\nage = 30\n')
    _, out, _ = explain(capsys, session, 3)
    assert "differs" in out
    assert "the settings, prices or the policy's options are others now" in out


def test_another_policy_can_be_asked_and_programs_get_plain_values(session, capsys):
    status, out, _ = explain(capsys, session, "0:4#1", "--policy", "cost_aware", "--json")
    told = json.loads(out)
    assert (status, told["weighing"]["policy"]) == (0, "cost_aware")
    assert [row["state"] for row in told["rows"]] == ["evicted"]


def test_tools_are_told_each_where_that_is_asked_for(session, capsys):
    _, out, _ = explain(capsys, session, 2)
    _, more, _ = explain(capsys, session, 2, "--tools")
    assert "tools     decided at call 0:1: to send tools short would save 0 of " in out
    assert "; --tools lists them" in out
    last = more.splitlines()[-1]
    assert last.startswith("read  full ")
    assert last not in out


@pytest.mark.parametrize(
    ("named", "call", "said"),
    [
        ("nope", "1", "session nope: none of 1 begins like that; the newest are s_"),
        ("s_", "77", "call 77: there is none; the session has calls 1-4 in branch 0"),
        ("s_", "one", "call one: must be a number"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(session, capsys, named, call, said):
    status, out, err = explain(capsys, named, call)
    assert (status, out) == (2, "")
    assert said in err


def test_a_log_that_is_not_there_is_not_made(capsys, tmp_path):
    status, _, err = explain(capsys, "s_", 1)
    assert (status, "there is no log in data" in err) == (2, True)
    assert not (tmp_path / "data").exists()
