"""The command that works out what the log teaches."""

import time
from hashlib import sha256

import pytest
from logged_sessions import LoggedCall, log_in_folder

from pager.cli import main
from pager.log.events import (
    BranchOpened,
    Learned,
    SessionOpened,
    ToolCalled,
    ToolsDecided,
)
from pager.log.store import Batch
from pager.log.stores import open_store
from pager.paging.priors import LOG, Use, decode
from pager.tools.decide_forms import ToolAsSent, Toolset
from pager.wire.dialects import load

CHAT = load("chat")
TOOLS = [{"type": "function", "function": {"name": "read"}}]


pytestmark = pytest.mark.usefixtures("at_home")


def messages(calls):
    """What a session of so many calls says; it reads a file, and quotes it in the end."""
    function = {"name": "Read", "arguments": '{"path":"a.py"}'}
    content = "\n".join(f"line {line} of the file as it was read" for line in range(100))
    said = [
        {"role": "user", "content": "do it"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": content},
    ]
    for at in range(calls - 1):
        words = "It is:\nline 7 of the file as it was read" if at == calls - 2 else f"Step {at}."
        said += [{"role": "assistant", "content": words}, {"role": "user", "content": "go on"}]
    return said


def log(folder, calls, key="one", harness="claude-cli/2.1.0 (external, cli)", ago=7_200.0):
    said = messages(calls)
    bodies = [{"model": "m", "messages": said[: 3 + 2 * at], "tools": TOOLS} for at in range(calls)]
    made = [LoggedCall(body, gap=1.0) for body in bodies]
    return log_in_folder(folder, made, key=key, harness=harness, begun=time.time() - ago)


def learn(capsys, folder, *arguments):
    status = main.main(["learn", "--data-dir", str(folder), *arguments])
    told = capsys.readouterr()
    return status, told.out, told.err


def learned(folder):
    """What the log holds of it: the events, and the content of the last."""
    store = open_store(f"sqlite:{folder}")
    try:
        events = [row.event for row in store.events(LOG)]
        return events, decode(store.blob(bytes.fromhex(events[-1].content))) if events else None
    finally:
        store.close()


def test_what_the_log_teaches_is_told_and_logged(tmp_path, capsys):
    folder = tmp_path / "data"
    log(folder, 6), log(folder, 9, "two", "claude-cli/2.2.0")
    status, out, _ = learn(capsys, folder)
    assert status == 0
    (event,), known = learned(folder)
    assert isinstance(event, Learned)
    assert (event.sessions, event.content) == (2, known.version)
    seen = known.harnesses["claude-cli"].results["Read"]
    multiple = known.usual("claude-cli", "Read", argument=False)
    lines = out.splitlines()
    assert lines[0] == "claude-cli: 2 branches, 7.5 calls in the median"
    assert lines[1].split() == ["tool", "pages", "needed", "expected", "multiple"]
    assert lines[2].split() == ["Read", "results", "1.2", f"{seen.expected:.1f}", f"{multiple:.2f}"]
    assert lines[4] == "claude-cli of local: pauses of five minutes and more, by what was waited for"
    assert lines[5].split() == ["waits", "for", "ended", "by", "seen", "expected", "multiple"]
    assert lines[8].startswith(f"version {known.version} (2 sessions, events up to ")
    assert lines[9] == "logged: sessions that begin from now on use it"


def test_what_is_known_already_is_not_logged_again(tmp_path, capsys):
    folder = tmp_path / "data"
    log(folder, 6)
    learn(capsys, folder)
    _, out, _ = learn(capsys, folder)
    assert "version" in out
    assert "logged" not in out
    assert len(learned(folder)[0]) == 1


def test_a_dry_run_logs_nothing(tmp_path, capsys):
    folder = tmp_path / "data"
    log(folder, 6)
    _, out, _ = learn(capsys, folder, "--dry-run")
    assert "claude-cli" in out
    assert "logged" not in out
    assert learned(folder) == ([], None)


def test_where_no_session_rests_there_is_nothing_to_learn(tmp_path, capsys):
    folder = tmp_path / "data"
    log(folder, 6, ago=600.0)
    status, out, _ = learn(capsys, folder)
    assert (status, learned(folder)) == (0, ([], None))
    assert out == "there is nothing to learn yet: sessions count once an hour has passed without a call\n"


def test_a_client_without_a_name_and_one_without_pages_are_told_too(tmp_path, capsys):
    folder = tmp_path / "data"
    log(folder, 2, "one", harness="")
    log(folder, 3, "two", "goose/1.0")
    _, out, _ = learn(capsys, folder)
    assert out.splitlines()[0] == "(a client that does not name itself): 1 branches, 2 calls in the median"
    assert out.splitlines()[2] == "goose: 1 branches, 3 calls in the median"


def offer(folder, key, tools, called):
    """Log a session that was offered these tools, and called one."""
    folder.mkdir(exist_ok=True)
    content = Toolset("", [ToolAsSent(tool, "slim", "", 90, 30) for tool in tools]).encode()
    events = [
        SessionOpened("local", key, "x-session-id", "goose/1.0"),
        BranchOpened(0, "root", "chat"),
        ToolsDecided(0, 1, 1, decision=sha256(content).hexdigest(), offered="", reason=""),
        ToolCalled(0, 1, 1, 0, called, "c1", sha256(b"{}").hexdigest(), ""),
    ]
    store = open_store(f"sqlite:{folder}")
    blobs = {sha256(content).digest(): content, sha256(b"{}").digest(): b"{}"}
    store.append(Batch(f"s_{key}", time.time() - 7_200, events, blobs)).result()
    store.close()


def test_which_tools_are_called_is_told_and_logged(tmp_path, capsys):
    folder = tmp_path / "data"
    for key in ("one", "two", "three"):
        offer(folder, key, ["find_ticket", "close_ticket"], "find_ticket")
    _, out, _ = learn(capsys, folder)
    (event,), known = learned(folder)
    assert (event.sessions, event.content) == (3, known.version)
    assert known.tools == {"local goose": {"find_ticket": Use(3, 3), "close_ticket": Use(3, 0)}}
    assert out.splitlines()[:4] == [
        "goose of local: 2 tools, by the sessions that were offered and called them",
        "  tool          sent   offered  called  chance",
        "  find_ticket   whole        3       3    0.53",
        "  close_ticket  short        3       0    0.15",
    ]
    assert out.splitlines()[-1] == "logged: sessions that begin from now on use it"


def test_a_folder_that_is_not_there_is_told(tmp_path, capsys):
    status, _, err = learn(capsys, tmp_path / "nowhere")
    assert status == 2
    assert "there is no log" in err
    assert "`ctxpager serve` makes it" in err
