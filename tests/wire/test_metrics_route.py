"""The route of the metrics, on the real proxy while calls go through it."""

import json
import urllib.error
import urllib.request

from plain_http import answer_to
from prometheus_client.parser import text_string_to_metric_families as read
from waiting import PATIENCE

from pager.testing.scripted import (
    Fail,
    PageIn,
    Say,
    Script,
)


def ask(root, path="/v1/chat/completions", method="POST"):
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}).encode()
    request = urllib.request.Request(root + path, body, {"content-type": "application/json"}, method=method)
    return answer_to(request)


def counted(root):
    """The value of every sample, by its name and its labels; the answer must be in the format that it says it is."""
    with urllib.request.urlopen(f"{root}/metrics", timeout=PATIENCE) as response:
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = list(read(response.read().decode()))
    told = (sample for family in families for sample in family.samples)
    return {(sample.name.removeprefix("ctxpager_"), *sample.labels.values()): sample.value for sample in told}


def test_calls_are_counted_as_they_end(scripted, start_proxy, eventually):
    scripted.play(Script([Say("fine"), Fail(429), Say("fine")]))
    with start_proxy() as proxy:
        assert counted(proxy.root)["sessions_total",] == 0
        assert [ask(proxy.root)[0] for _ in range(2)] == [200, 429]
        assert ask(proxy.root, "/v1/messages")[0] == 200
        assert eventually(lambda: counted(proxy.root).get(("calls_total", "messages", "answered", "2xx")) == 1)
        told = counted(proxy.root)
    assert told["calls_total", "chat", "answered", "2xx"] == 1
    assert told["calls_total", "chat", "status", "4xx"] == 1
    assert told["calls_under_way", "chat"] == told["calls_under_way", "messages"] == 0
    assert told["added_seconds_count", "chat"] == 2
    assert 0 < told["added_seconds_sum", "chat"] < told["call_seconds_sum", "chat"]
    assert told["client_bytes_total", "chat"] == told["upstream_bytes_total", "chat"] > 100
    assert told["tokens_total", "input", "m"] > 0
    assert told["sessions_total",] == told["hot_sessions",] == 3  # the same words begin anew
    assert told["log_up",] == 1
    assert told["failed_steps_total",] == told["log_failures_total",] == 0


def test_what_paging_does_is_counted(start_proxy, open_stage, soon, eventually):
    with start_proxy(*soon) as proxy, open_stage(proxy) as stage:
        stage.play(PageIn(Say("Done.")))
        stage.agent("chat").opened().ask()
        assert eventually(lambda: counted(proxy.root)["calls_total", "chat", "answered", "2xx"] == 5)
        told = counted(proxy.root)
    assert told["repacks_total", "policy"] == 1
    assert told["pages_evicted_total", "policy"] == 3
    assert told["hidden_legs_total",] == told["pages_in_total",] == 1
    assert told["upstream_bytes_total", "chat"] != told["client_bytes_total", "chat"]


def test_the_provider_that_can_not_be_reached_is_told(start_proxy):
    with start_proxy("--upstream", "http://127.0.0.1:9/v1") as proxy:
        assert ask(proxy.root)[0] == 502
        assert counted(proxy.root)["calls_total", "chat", "connect", "none"] == 1


def test_a_proxy_without_a_log_counts_all_the_same(scripted, start_proxy, tmp_path):
    scripted.play(Script([Say("fine")], repeat=True))
    (tmp_path / "data").write_text("a file where the folder should be")
    with start_proxy() as proxy:
        assert ask(proxy.root)[0] == 200
        told = counted(proxy.root)
    assert told["log_up",] == 0
    assert told["bypassed_total", "not_logged"] == 1
    assert told["calls_total", "chat", "answered", "2xx"] == 1


def test_only_reading_is_ours(scripted, start_proxy):
    scripted.play(Script([Say("fine")], repeat=True))
    with start_proxy() as proxy:
        ask(proxy.root, "/metrics")
        with urllib.request.urlopen(
            urllib.request.Request(f"{proxy.root}/metrics", method="HEAD"), timeout=PATIENCE
        ) as head:
            assert head.status == 200
            assert head.read() == b""
    assert [(received.method, received.target) for received in scripted.received] == [("POST", "/metrics")]
