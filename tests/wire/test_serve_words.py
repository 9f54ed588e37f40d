"""What ``serve`` says: at start, of each call, of failures, and in the end."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from importlib.metadata import version

import pytest
from waiting import PATIENCE

from pager.testing.scripted import (
    Call,
    Fail,
    PageIn,
    Say,
    Script,
)

SOON = ("--policy", "fifo_age", "--paging-policy-options", "{ age = 2, size = 500 }")


def said(proxy):
    return proxy.data_dir.with_suffix(".log").read_text()


def lines(proxy):
    """The lines on calls."""
    return [line for line in said(proxy).splitlines() if re.match(r"\d\d:\d\d:\d\d s_", line)]


def post(proxy, body, path="/v1/chat/completions", **headers):
    data = json.dumps(body).encode()
    request = urllib.request.Request(
        f"{proxy.root}{path}", data, {"content-type": "application/json", "authorization": "Bearer x", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        return error.code


def talk(proxy, calls, model="gpt-5.6"):
    """An agent that does what the model says, until it says nothing to do."""
    messages = [{"role": "user", "content": "do it"}]
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "read", "parameters": schema}}]
    for _ in range(calls):
        answer = post(proxy, {"model": model, "messages": messages, "tools": tools}, **{"x-session-id": "one"})
        message = answer["choices"][0]["message"]
        messages.append({key: message[key] for key in ("role", "content", "tool_calls") if key in message})
        for use in message.get("tool_calls", ()):
            text = "\n".join(f"line {at} of {use['id']}" for at in range(120))
            messages.append({"role": "tool", "tool_call_id": use["id"], "content": text})


READ = Say(calls=[Call("read", {"path": "a.py"})])
SCRIPT = Script([READ, READ, READ, READ, PageIn(READ), Say("done")])


def stop(proxy):
    proxy.process.send_signal(signal.SIGINT)
    assert proxy.process.wait(PATIENCE) == 0


def test_serve_says_its_version_policy_folder_and_upstreams_at_start(start_proxy, scripted):
    with start_proxy("--policy", "lru") as proxy:
        shown = said(proxy)
    assert f"ctxpager {version('ctxpager')} listens on {proxy.root}" in shown
    assert re.search(r"policy +lru\n", shown)
    assert re.search(rf"log +{re.escape(str(proxy.data_dir))}\n", shown)
    assert re.search(rf"upstream +chat, messages, responses to {re.escape(scripted.url)}\n", shown)
    assert f"ANTHROPIC_BASE_URL={proxy.root} ENABLE_TOOL_SEARCH=true claude" in shown


def test_each_call_has_a_line_with_tokens_before_and_after_cached_and_money(start_proxy, scripted, eventually):
    scripted.play(SCRIPT)
    with start_proxy(*SOON, "--show-calls", "always") as proxy:
        talk(proxy, 6)
        assert eventually(lambda: len(lines(proxy)) >= 6, PATIENCE), said(proxy)
        stop(proxy)
        shown = lines(proxy)
    first, last = shown[0], shown[-1]
    assert re.search(r"s_\w{8} 0:1 +[\d,]+ tokens, 0% cached, \$0\.\d{4}, \d+\.\d s$", first), first
    assert re.search(r"0:6 +[\d,]+ -> [\d,]+ tokens, \d+% cached, \$0\.\d{4}, ", last), last
    before, after = (int(count.replace(",", "")) for count in re.findall(r"([\d,]+) (?:->|tokens)", last))
    assert before > after
    assert any(line.endswith(" 1 removed") or " 1 removed" in line for line in shown)
    assert any(line.endswith("1 fetched back") for line in shown)


def test_a_failed_call_is_shown_without_what_a_terminal_would_obey(start_proxy, scripted, eventually):
    scripted.play(Script([Fail(529, body=b'{"error": "over\x1b[2Jloaded"}')]))
    with start_proxy("--show-calls", "always") as proxy:
        assert post(proxy, {"model": "m", "messages": [{"role": "user", "content": "x"}]}) == 529
        assert eventually(lambda: lines(proxy), PATIENCE)
        (line,) = lines(proxy)
    assert "FAILED 529 (status)" in line
    assert "loaded" in line
    assert "\x1b" not in line


def test_in_the_end_it_says_what_calls_came_to(start_proxy, scripted):
    scripted.play(SCRIPT)
    with start_proxy(*SOON, "--show-calls", "always") as proxy:
        talk(proxy, 6)
        stop(proxy)
    *_, money, tokens = said(proxy).strip().splitlines()
    assert re.match(r"ctxpager (saved|cost) \$[\d.]+ .* in 6 calls of 1 session\.$", money), money
    assert re.match(r"[\d,.k]+ tokens of prompts, of which [\d,.k]+ went out; 0 failed attempts\.$", tokens), tokens


def test_a_proxy_that_served_nothing_says_so_in_the_end(start_proxy):
    with start_proxy("--show-calls", "always") as proxy:
        stop(proxy)
    assert said(proxy).strip().endswith("ctxpager: there is no answered call to report on")


@pytest.mark.parametrize("flags", [(), ("--show-calls", "off")])
def test_where_there_is_no_terminal_calls_are_not_shown_unless_asked_for(start_proxy, scripted, flags):
    scripted.play(Script([Say("done")]))
    with start_proxy(*flags) as proxy:
        talk(proxy, 1)
        stop(proxy)
    assert not lines(proxy)
    assert "calls of" not in said(proxy)


# ---------------------------------------------------------------- one clear line each


def serve(*flags, **env):
    command = [sys.executable, "-m", "pager.cli", "serve", *map(str, flags)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=env or None)


def test_a_port_in_use_is_one_line_that_says_what_to_do(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = serve("--port", port, "--data-dir", tmp_path / "data")
    assert done.returncode != 0
    assert "listens on" not in done.stdout
    why = "the port is in use; stop what uses it, or choose another by --port"
    assert done.stderr.splitlines() == [f"ctxpager: can't listen on 127.0.0.1:{port}: {why}"]


def test_an_address_that_is_not_here_is_one_line(tmp_path):
    done = serve("--host", "192.0.2.1", "--port", 0, "--data-dir", tmp_path / "data")
    assert done.returncode != 0
    assert "192.0.2.1" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_flag_is_one_line(tmp_path):
    done = serve("--prot", 1)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ctxpager serve: unrecognized arguments: --prot 1; see ctxpager serve --help\n"


def test_a_second_proxy_on_the_same_folder_is_said_in_one_line(start_proxy, scripted, running):
    with start_proxy() as first:
        other = first.data_dir.with_name("other")
        with running(scripted.url, other, "--data-dir", str(first.data_dir)) as second:
            told = [line for line in said(second).splitlines() if "also written by" in line]
        assert len(told) == 1
        assert f"process {first.process.pid} at {first.root}" in told[0]
        assert "also written by" not in said(first)
    with start_proxy() as again:
        assert "also written by" not in said(again), "the first is gone"


def test_a_link_in_place_of_the_folders_lock_is_not_followed(start_proxy, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "mine").write_text("keep this")
    (tmp_path / "data" / "serving.lock").symlink_to(tmp_path / "mine")
    with start_proxy():
        pass
    assert (tmp_path / "mine").read_text() == "keep this"


# ---------------------------------------------------------------- advice


def tools_of_mcp(count, **more):
    schema = {"type": "object", "properties": {}}
    return [{"name": f"mcp__github__tool_{at}", "input_schema": schema, **more} for at in range(count)]


def ask_as_claude_code(proxy, tools, **headers):
    body = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}], "tools": tools}
    post(proxy, body, "/v1/messages", **{"user-agent": "claude-cli/2.1.4 (external, cli)", **headers})


def test_claude_code_with_many_mcp_tools_in_its_prompt_is_warned_of_once(start_proxy, scripted):
    scripted.play(Script([Say("done")], repeat=True))
    with start_proxy() as proxy:
        ask_as_claude_code(proxy, tools_of_mcp(9))
        ask_as_claude_code(proxy, tools_of_mcp(40, defer_loading=True))
        ask_as_claude_code(proxy, tools_of_mcp(40), **{"user-agent": "pi/0.73"})
        assert "ENABLE_TOOL_SEARCH" not in said(proxy).split("listens on")[1].split("claude\n")[1]
        ask_as_claude_code(proxy, tools_of_mcp(40))
        ask_as_claude_code(proxy, tools_of_mcp(41), **{"user-agent": "x", "x-claude-code-session-id": "s"})
        stop(proxy)
        told = [line for line in said(proxy).splitlines() if "MCP tools in every prompt" in line]
    assert len(told) == 1
    assert "Claude Code sends 40 MCP tools in every prompt" in told[0]
    assert "ENABLE_TOOL_SEARCH=true" in told[0]
