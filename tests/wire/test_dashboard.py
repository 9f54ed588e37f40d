"""The dashboard as the real proxy serves it: whose paths are whose, who gets an answer, what it shows of live calls."""

import json
import os
import urllib.error
import urllib.parse
import urllib.request

import pytest
from waiting import PATIENCE

from pager.testing.scripted import Say, Script


def fetch(root, path, method="GET", **headers):
    """The status, headers and body of one request; ``sec_fetch_site="..."`` sets the header of that name."""
    body = json.dumps({"hello": 1}).encode() if method == "POST" else None
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(root + path, body, named, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, dict(response.headers), response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def ask(root, text="hello", session="a-session"):
    body = {"model": "claude-opus-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}
    headers = {"content-type": "application/json", "x-session-id": session, "user-agent": "agent/1"}
    request = urllib.request.Request(f"{root}/v1/messages", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return response.status


def api(root, what, **asked):
    query = urllib.parse.urlencode(asked)
    status, _, body = fetch(root, f"/ui/api/{what}?{query}")
    return status, json.loads(body) if body else None


@pytest.fixture
def shown(scripted, start_proxy):
    scripted.play(Script([Say("fine")], repeat=True))
    with start_proxy() as proxy:
        yield proxy


def test_sessions_are_seen_while_calls_go_through(shown, eventually):
    status, empty = api(shown.root, "sessions")
    assert (status, empty["sessions"]) == (200, [])
    assert api(shown.root, "sessions", since=empty["seq"]) == (204, None)
    ask(shown.root)
    assert eventually(lambda: (api(shown.root, "sessions")[1]["sessions"] or [{}])[0].get("calls") == 1)
    listed = api(shown.root, "sessions", since=empty["seq"])[1]
    (line,) = listed["sessions"]
    assert (line["key"], line["harness"], line["model"]) == ("a-session", "agent/1", "claude-opus-4-5")
    assert line["client"] == line["upstream"] > 0
    status, told = api(shown.root, "story", session=line["session"])
    assert (status, len(told["story"]["calls"])) == (200, 1)
    assert api(shown.root, "outline", session=line["session"])[1]["seq"] == told["seq"] == listed["seq"]
    assert api(shown.root, "why", session=line["session"], call="0:1")[0] == 200


def test_only_reading_the_page_is_ours(shown, scripted):
    assert fetch(shown.root, "/")[0] == 200
    before = len(scripted.received)
    for method, path in [("POST", "/"), ("HEAD", "/"), ("POST", "/ui/api/sessions"), ("GET", "/ui"), ("GET", "/other")]:
        fetch(shown.root, path, method)
    passed = [(received.method, received.target) for received in scripted.received[before:]]
    assert passed == [
        ("POST", "/"),
        ("HEAD", "/"),
        ("POST", "/ui/api/sessions"),
        ("GET", "/ui"),
        ("GET", "/other"),
    ]


def test_a_browser_that_was_led_here_by_another_name_gets_nothing(shown):
    for path in ("/", "/ui/dashboard.js", "/ui/api/sessions"):
        assert fetch(shown.root, path, host="evil.example")[0] == 403
        assert fetch(shown.root, path, host="localhost:1")[0] == 200
    assert fetch(shown.root, "/ui/api/sessions", sec_fetch_site="cross-site")[0] == 403


@pytest.mark.parametrize("flags", [("--dashboard-show", "off"), ("--host", "0.0.0.0", "--allow-open-bind")])
def test_where_it_is_not_shown_its_paths_go_upstream(scripted, start_proxy, flags):
    with start_proxy(*flags) as proxy:
        fetch(proxy.root, "/")
        fetch(proxy.root, "/ui/api/sessions")
    assert [received.target for received in scripted.received] == ["/", "/ui/api/sessions"]


def test_on_any_address_it_is_shown_only_if_that_is_said_and_without_what_pages_hold(scripted, start_proxy):
    scripted.play(Script([Say("fine")], repeat=True))
    flags = ("--host", "0.0.0.0", "--dashboard-show", "always", "--allowed-hosts", '["proxy.example"]')
    with start_proxy(*flags, "--allow-open-bind") as proxy:
        assert fetch(proxy.root, "/", host="proxy.example:8787")[0] == 200
        assert fetch(proxy.root, "/", host="evil.example")[0] == 403
        ask(proxy.root)
        (line,) = api(proxy.root, "sessions")[1]["sessions"]
        status, told = api(proxy.root, "page", session=line["session"], name="pg_1")
    assert status == 403
    assert "loopback" in told["error"]


def test_a_log_in_memory_is_shown_as_well(scripted, start_proxy, eventually):
    scripted.play(Script([Say("fine")], repeat=True))
    with start_proxy("--store", "memory") as proxy:
        ask(proxy.root)
        assert eventually(lambda: (api(proxy.root, "sessions")[1]["sessions"] or [{}])[0].get("calls") == 1)
        (line,) = api(proxy.root, "sessions")[1]["sessions"]
        assert len(api(proxy.root, "story", session=line["session"])[1]["story"]["calls"]) == 1


def test_without_a_log_there_is_nothing_to_show(scripted, start_proxy, tmp_path):
    (tmp_path / "data").write_text("a file where the folder should be")
    with start_proxy() as proxy:
        fetch(proxy.root, "/")
    assert [received.target for received in scripted.received] == ["/"]


def children(pid):
    """The processes that this one has started."""
    with open(f"/proc/{pid}/task/{pid}/children") as listed:  # noqa: PTH123 - not a file of a folder
        return [int(one) for one in listed.read().split()]


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="processes are counted where Linux lists them")  # noqa: PTH110
def test_no_process_is_left_behind(scripted, start_proxy, eventually):
    with start_proxy() as proxy:
        assert children(proxy.process.pid) == []  # nothing is started before anybody asks
        api(proxy.root, "sessions")
        api(proxy.root, "story", session="none")
        started = children(proxy.process.pid)
        assert len(started) == 2
    assert eventually(lambda: not any(os.path.exists(f"/proc/{one}") for one in started))  # noqa: PTH110
