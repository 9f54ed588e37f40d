"""The live sessions of a real proxy, and the switch that keeps them warm: asked and turned while it runs."""

import json
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from anthropic import Anthropic
from waiting import PATIENCE, wait_until

from pager.cli.main import main
from pager.testing.scripted import Say, Script

MODEL = "claude-opus-5-5"
CLOCK = ("--policy", "cost_aware", "--trust-clock-header")
LONG = "The harbour is quiet and the lanterns are lit. " * 1_500
MARK = {"type": "ephemeral"}


def get(root, path="/ctxpager/status", data=None, method=None, **headers):
    """The status and the JSON of an answer."""
    named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    request = urllib.request.Request(root + path, data, named, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def switch(root, *, on, **headers):
    headers = {"content_type": "application/json", **headers}
    return get(root, "/ctxpager/keep-warm", json.dumps({"on": on}).encode(), **headers)


@contextmanager
def agent(root, session="one", key="sk-ant-test"):
    """Makes calls of a session by the real SDK, at a time: ``call(at)``."""
    told = {"x-session-id": session, "user-agent": "example-agent/1"}
    with Anthropic(base_url=root, api_key=key, max_retries=0, default_headers=told) as client:
        history = []

        def call(at):
            history.append({"role": "user", "content": [{"type": "text", "text": f"{len(history)} {LONG}"}]})
            marked = [*history[:-1], {**history[-1], "content": [{**history[-1]["content"][0], "cache_control": MARK}]}]
            answer = client.messages.create(
                model=MODEL, max_tokens=99, messages=marked, extra_headers={"x-pager-now": str(at)}
            )
            history.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
            return answer

        yield call


@pytest.fixture
def running_clock(scripted, start_proxy):
    scripted.play(Script([Say("fine")], repeat=True))
    with start_proxy(*CLOCK) as proxy:
        yield proxy


def resting(root, at, since=0.0):
    """The one session, once its latest call has ended and is paid by more dollars than these."""
    found = []

    def rests():
        found[:] = [one for one in get(root, x_pager_now=at)[1]["sessions"] if not one["under_way"]]
        return found and (found[0]["dollars"] or 0.0) > since

    assert wait_until(rests)
    [one] = found
    return one


def refreshes(scripted):
    return [one for one in scripted.received if one.json().get("max_tokens") == 0]


def beat(root, at):
    """Let the proxy do what is due by this time."""
    get(root, "/healthz", x_pager_now=at, x_session_id="one")


def test_a_session_says_when_it_goes_cold_and_what_that_costs(running_clock):
    root = running_clock.root
    assert get(root)[1]["sessions"] == []
    with agent(root) as call:
        usage = call(1_000.0).usage
        cached = usage.cache_creation_input_tokens
        assert cached > 10_000
        one = resting(root, 1_210.0)
        assert (one["key"], one["agent"], one["model"], one["under_way"]) == ("one", "example-agent/1", MODEL, 0)
        assert (one["cold_at"], one["kept_until"]) == (1_300.0, None)
        assert one["before"] == one["after"] == cached + usage.input_tokens
        assert one["dollars_more"] == pytest.approx((1.25 - 0.05) * cached * 4e-6)
        paid = one["dollars"]
        assert paid == pytest.approx((5 * cached + 4 * usage.input_tokens + 20 * usage.output_tokens) / 1e6)
        call(1_250.0)
        one = resting(root, 1_260.0, since=paid)
        assert one["cold_at"] == 1_550.0
        assert one["cached"] == cached


def test_a_session_keeps_its_cost_when_the_proxy_is_started_again(scripted, start_proxy):
    scripted.play(Script([Say("fine")], repeat=True))
    with start_proxy(*CLOCK) as proxy, agent(proxy.root) as call:
        call(1_000.0)
        before = resting(proxy.root, 1_001.0)
    with start_proxy(*CLOCK) as proxy, agent(proxy.root) as call:
        assert get(proxy.root)[1]["sessions"] == []
        call(1_100.0)
        after = resting(proxy.root, 1_101.0, since=before["dollars"])
    assert after["session"] == before["session"]


@pytest.mark.keeps_warm
def test_while_it_is_off_nothing_is_sent_and_the_switch_turns_auto_on(running_clock, scripted):
    root = running_clock.root
    with agent(root) as call:
        call(1_000.0)
        resting(root, 1_001.0)
        beat(root, 9_000.0)
        assert refreshes(scripted) == []
        status, state = switch(root, on=True)
        assert (status, state["on"], state["mode"], state["setting"]) == (200, True, "auto", "off")
        for at in range(10_000, 10_800, 100):
            call(float(at))
        one = resting(root, 10_701.0)
        assert one["kept_until"] > one["cold_at"] == 11_000.0
        beat(root, 10_985.0)
        [refresh] = refreshes(scripted)
        assert any("sk-ant-test" in value for _, value in refresh.headers)
        assert resting(root, 10_986.0)["cold_at"] == 11_280.0
        assert get(root, "/ctxpager/keep-warm", x_pager_now=10_986.0)[1]["spent"] > 0


@pytest.mark.keeps_warm
def test_the_switch_forgets_what_was_kept_and_sends_no_more(scripted, start_proxy):
    scripted.play(Script([Say("fine")], repeat=True))
    fixed = ("--keep-warm", "fixed", "--keep-warm-refreshes", "9")
    with start_proxy(*CLOCK, *fixed, "--keep-warm-smallest", "0") as proxy, agent(proxy.root) as call:
        root = proxy.root
        call(1_000.0)
        assert resting(root, 1_001.0)["kept_until"] == 1_000.0 + 9 * 280 + 300
        beat(root, 1_300.0)
        assert len(refreshes(scripted)) == 1
        assert get(root, "/ctxpager/keep-warm")[1]["kept"] == 1
        status, state = switch(root, on=False)
        assert (status, state["on"], state["kept"], state["setting"]) == (200, False, 0, "fixed")
        beat(root, 9_000.0)
        call(9_000.0)
        assert resting(root, 9_001.0)["kept_until"] is None
        beat(root, 20_000.0)
        assert len(refreshes(scripted)) == 1
        assert switch(root, on=True)[1]["mode"] == "fixed"
        call(20_000.0)
        assert resting(root, 20_001.0)["kept_until"] > 20_300.0


def test_under_keep_all_it_can_t_be_turned_on_and_sessions_are_shown_all_the_same(scripted, start_proxy):
    scripted.play(Script([Say("fine")], repeat=True))
    with start_proxy("--trust-clock-header") as proxy, agent(proxy.root) as call:
        call(1_000.0)
        status, answer = switch(proxy.root, on=True)
        assert (status, "keep_all" in answer["error"]["message"]) == (409, True)
        assert switch(proxy.root, on=False)[0] == 200
        assert resting(proxy.root, 1_100.0)["cold_at"] == 1_300.0
        assert "keep_all" in get(proxy.root)[1]["keep_warm"]["impossible"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"host": "evil.example:8787"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"x_forwarded_for": "192.0.2.1"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_neither_pages_of_others_nor_forms_turn_the_switch(proxy, headers, status):
    assert switch(proxy.root, on=True, **headers)[0] == status


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"on": 1}', b'{"on": "true"}', b"x" * 9_999])
def test_a_switch_that_can_t_be_read_changes_nothing(proxy, body):
    status, answer = get(proxy.root, "/ctxpager/keep-warm", body, content_type="application/json", method="POST")
    assert status in (400, 413)
    assert answer["error"]["message"].startswith("ctxpager: ")


def test_what_is_not_there_is_said_and_never_passed_on(proxy, scripted):
    assert get(proxy.root, "/ctxpager/other")[0] == 404
    assert get(proxy.root, "/ctxpager/status", b"{}")[0] == 405
    assert scripted.received == []


def test_the_commands_ask_and_switch_a_running_proxy(running_clock, capsys, monkeypatch):
    root, settings = running_clock.root, str(running_clock.data_dir.with_suffix(".toml"))
    where = ["--port", root.rpartition(":")[2], "--config", settings]
    with agent(root) as call:
        call(1_000.0)
    assert main(["status", *where]) == 0
    shown = capsys.readouterr().out
    assert "no session has made a call" in shown  # it was long ago
    assert "keeping warm is off; `ctxpager keep-warm on` turns it on" in shown
    with agent(root, "two") as call:
        call("now")  # no time: the clock's
    resting(root, "now")
    assert main(["status", *where]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("two"))
    assert "example-agent/1" in line
    assert "cold in" in line
    assert main(["status", "--format", "json", *where]) == 0
    assert json.loads(capsys.readouterr().out)["sessions"][0]["key"] == "two"
    assert main(["keep-warm", "on", *where]) == 0
    assert "keeping warm is on (auto) until the proxy is started again" in capsys.readouterr().out
    assert main(["keep-warm", "status", *where]) == 0
    assert "$20.00" in capsys.readouterr().out
    assert main(["keep-warm", "off", *where]) == 0
    assert capsys.readouterr().out.startswith("keeping warm is off\n")


@pytest.mark.parametrize("command", [["status"], ["keep-warm", "on"]])
def test_without_a_proxy_there_is_one_line_and_status_1(command, capsys, tmp_path):
    (tmp_path / "c.toml").touch()
    assert main([*command, "--port", "9", "--config", str(tmp_path / "c.toml")]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no proxy answers at http://127.0.0.1:9" in err
    assert "ctxpager serve" in err


def test_what_is_no_ctxpager_is_said_to_be_none(scripted, capsys, tmp_path):
    (tmp_path / "c.toml").touch()
    scripted.play(Script([]))
    port = scripted.root.rpartition(":")[2]
    assert main(["status", "--port", port, "--config", str(tmp_path / "c.toml")]) == 1
    assert "is no ctxpager" in capsys.readouterr().err
