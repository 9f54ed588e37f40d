"""The command that accounts for tools."""

import asyncio
import json
import time

import pytest

from pager.cli import main
from pager.log.stores import open_store
from pager.paging.pager import Pager
from pager.paging.policy_choice import Arms, Rule
from pager.paging.policy_loader import load_policy
from pager.paging.settle_tools import Shortening
from pager.pricing.rates import in_force
from pager.proxy.call import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.values import Answer, ToolUse
from pager.wire.dialects import load

CHAT = load("chat")
PROSE = "It is explained at length, with all that is to be minded, and what happens if it is not. " * 4
PARAMETERS = {"type": "object", "properties": {"title": {"type": "string", "description": PROSE}}}


pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def log(tmp_path):
    """Logs a session of two calls that offers seven tools and calls one of them; gives its id."""
    (tmp_path / "data").mkdir()

    def write(key="one", days_ago=0.0, *, shorten=True):
        store = open_store(f"sqlite:{tmp_path / 'data'}")
        now = time.time() - 86_400 * days_ago
        names = ["bash", *(f"issue_{at}" for at in range(6))]
        tools = [
            {"type": "function", "function": {"name": name, "description": PROSE, "parameters": PARAMETERS}}
            for name in names
        ]

        async def play():
            rule = Rule("cost_aware", load_policy("cost_aware"))
            models = in_force("anthropic", {})
            pager = Pager(Arms(rule), models, load, marks=False, tools=Shortening(on=shorten))
            call_log = CallLog(store, load, 10, pager)
            for at in range(2):
                said = [{"role": "assistant", "content": "I see."}, {"role": "user", "content": "go on"}] * at
                messages = [{"role": "user", "content": "do it"}, *said]
                body = json.dumps({"model": "m", "messages": messages, "tools": tools}).encode()
                headers = {"x-session-id": key}
                incoming = Incoming(CHAT, CHAT.parse(body), "local", headers, CHAT.path, "", now + at)
                entry = await call_log.receive(incoming)
                outgoing = entry.paged.outgoing
                sent = outgoing.digest(entry.recipe.body) if outgoing.changed else ""
                answer = Answer(text="I see.", calls=(ToolUse(0, f"c{at}", "issue_1", '{"title": "a"}'),))
                call_log.answered(entry, answer, Outcome(200, b"{}", 1.0, 2.0, now + at, sent=sent), 0)
            await call_log.drain()
            return entry.session.id

        try:
            return asyncio.run(play())
        finally:
            store.close()

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
    assert facts["sessions"] == "1, with 2 calls whose tools were decided on, in 2 prompts"
    assert facts["tools"] == "7 offered: 1 called, 6 never"
    assert facts["calls"].startswith("2, 2 of them of tools that were sent short: 2 at once, 0 after")
    head, *rows = lines[lines.index("") + 1 :]
    assert head.split()[:6] == ["tool", "form", "whole", "sent", "calls", "faults"]
    called = next(row.split() for row in rows if row.startswith("issue_1"))
    assert (called[1], called[4:8]) == ("slim", ["2", "0", "0", "0"])
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
