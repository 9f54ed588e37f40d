"""The commands on a log whose names are an attack on the terminal."""

import json
import re
import urllib.error
import urllib.request

import pytest
from waiting import PATIENCE

from pager.cli.main import main
from pager.log.events import SessionOpened
from pager.log.stores import open_store
from pager.testing.scripted import Say, Script

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\r\x08\x7f\x85"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u202a-\u202e\u2066-\u2069]")


def prompt(calls):
    """A request whose model, session, tools and files have names that no terminal should see."""
    history = [{"role": "user", "content": f"look {EVIL}"}]
    for number in range(calls):
        path = json.dumps({"path": f"{EVIL}{number}.py"})
        use = {"id": f"c{number}", "type": "function", "function": {"name": f"read{EVIL}", "arguments": path}}
        history.append({"role": "assistant", "content": None, "tool_calls": [use]})
        history.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} {EVIL} words\n" * 200})
    described = {"name": f"read{EVIL}", "description": EVIL, "parameters": {"type": "object"}}
    return {
        "model": f"m{EVIL}",
        "prompt_cache_key": f"key{EVIL}",
        "tools": [{"type": "function", "function": described}],
        "messages": history,
    }


@pytest.fixture
def log(scripted, start_proxy, tmp_path, soon):
    """A data folder with a session of such names, in which pages were evicted."""
    scripted.play(Script([Say(f"fine {EVIL}")], repeat=True))
    with start_proxy(*soon) as proxy:
        for calls in range(1, 7):
            body = json.dumps(prompt(calls)).encode()
            headers = {"content-type": "application/json", "x-pager-now": "1"}
            request = urllib.request.Request(f"{proxy.url}/chat/completions", body, headers)
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                assert response.status == 200
        led = urllib.request.Request(f"{proxy.root}/%1b%5b2J%0afake", headers={"origin": "https://evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(led, timeout=PATIENCE)
        refused.value.close()
    store = open_store(f"sqlite:{tmp_path / 'data'}")
    opened = [row for row in store.events() if isinstance(row.event, SessionOpened)]
    store.close()
    return tmp_path / "data", opened[0].session


def test_no_command_lets_names_of_others_reach_the_terminal(log, tmp_path, capsys):
    folder, session = log
    commands = [
        ["explain", session, "6"],
        ["explain", session, "6", "--tools"],
        ["explain", session, "6", "--json"],
        ["report"],
        ["report", session],
        *(["report", "--by", by] for by in ("session", "model", "harness", "call")),
        ["report", "--format", "csv", "--by", "model"],
        ["tools"],
        ["check"],
        ["learn", "--dry-run"],
        ["replay", "all", "--policy", "keep_all", "--min-calls", "1"],
        ["analyze", str(folder), "--no-cache", "--policy", "keep_all", "--jobs", "1"],
        ["explain", f"none{EVIL}", "1"],
    ]
    settings = tmp_path / "data.toml"
    for command in commands:
        status = main([*command, "--data-dir", str(folder), "--config", str(settings)])
        done = capsys.readouterr()
        assert status in (0, 2), (command, done.err)
        assert done.out or status == 2, command
        assert not OBEYED.search(done.out + done.err), (command, done)
    logged = (tmp_path / "data.log").read_text(encoding="utf-8")
    assert r"refused GET /\x1b[2J\nfake: " in logged
    assert not OBEYED.search(logged)
