"""The command that explains a call."""

import asyncio
import json

import pytest

from pager.cli import main
from pager.log.stores import open_store
from pager.paging.pager import Pager
from pager.paging.policy_choice import Arms, Rule
from pager.paging.policy_loader import load_policy
from pager.pricing.rates import in_force
from pager.proxy.call import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.values import Answer, Usage
from pager.wire.dialects import load

CHAT = load("chat")
OPTIONS = {"age": 1, "size": 500}


pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def session(tmp_path):
    """The id of a logged session in which a file was read; its page went at the third call."""
    (tmp_path / "data").mkdir()
    store = open_store(f"sqlite:{tmp_path / 'data'}")
    arguments = json.dumps({"path": "src/harbour.py"})
    called = [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": arguments}}]
    content = "\n".join(f"line {at} of the file as it was read" for at in range(60))
    said = [
        {"role": "user", "content": "do it"},
        {"role": "assistant", "content": None, "tool_calls": called},
        {"role": "tool", "tool_call_id": "c1", "content": content},
    ]

    async def play():
        rule = Rule("fifo_age", load_policy("fifo_age", OPTIONS))
        call_log = CallLog(store, load, 10, Pager(Arms(rule), in_force("anthropic", {}), load, marks=True))
        for at in range(4):
            more = [{"role": "assistant", "content": "I see."}, {"role": "user", "content": "go on"}] * at
            tools = [{"type": "function", "function": {"name": "read"}}]
            body = json.dumps({"model": "m", "messages": said + more, "tools": tools}).encode()
            headers = {"x-session-id": "one"}
            entry = await call_log.receive(Incoming(CHAT, CHAT.parse(body), "local", headers, CHAT.path, "", 10.0 * at))
            answer = Answer(text="I see.", usage=Usage(input=900, cached=700, tells_cached=True))
            call_log.answered(entry, answer, Outcome(200, b"{}", 1.0, 2.0, 10.0 * at), 0)
        await call_log.drain()
        return entry.session.id

    try:
        return asyncio.run(play())
    finally:
        store.close()


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
    assert facts["prices"].startswith("read 0.1, write 1.25, output 5 (those in force now)")
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
    assert lines[-2].startswith("1 pages: 1 (")
    assert lines[-1].startswith("age, idle: calls since it came")


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
    assert last.startswith("read  whole ")
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
