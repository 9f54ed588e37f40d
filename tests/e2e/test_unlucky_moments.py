"""What can go wrong around a call, and what the log says of it."""

import http.client
import json
import signal
import socket
import sqlite3
import threading
import urllib.error
import urllib.request

import pytest
from plain_http import answer_to
from waiting import PATIENCE

from instrumentation.accounting.log_check import check
from pager.log.events import (
    AnswerFinished,
    AttemptFailed,
    Bypassed,
    CallReceived,
    ToolCalled,
)
from pager.log.stores import open_store
from pager.testing.scripted import (
    Call,
    Gated,
    Reply,
    Say,
    Script,
)


def body(*texts, stream=False):
    messages = [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)]
    return json.dumps({"model": "gpt-4o", "messages": messages, "stream": stream}).encode()


def ask(root, payload, query="", **headers):
    url = f"{root}/v1/chat/completions{query}"
    request = urllib.request.Request(url, payload, {"content-type": "application/json", **headers})
    return answer_to(request)


def logged(folder, *kinds):
    store = open_store(f"sqlite:{folder}")
    try:
        return [row.event for row in store.events() if isinstance(row.event, kinds)], check(
            store, repair=False
        ).problems
    finally:
        store.close()


def test_a_client_that_leaves_when_it_has_the_whole_answer_got_an_answer(scripted, start_proxy, tmp_path, eventually):
    chunk = {"id": "a", "choices": [{"index": 0, "delta": {"content": "done"}, "finish_reason": "stop"}]}
    events = b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"
    upstream, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve():
        line, _ = upstream.accept()
        line.recv(100_000)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        line.sendall(head + b"%x\r\n%b\r\n" % (len(events), events))
        over.wait(PATIENCE)  # the end of the body comes late
        line.close()

    threading.Thread(target=serve, daemon=True).start()
    with start_proxy("--upstream", f"http://127.0.0.1:{upstream.getsockname()[1]}/v1") as proxy:
        client = http.client.HTTPConnection(proxy.root.removeprefix("http://"), timeout=PATIENCE)
        client.request("POST", "/v1/chat/completions", body("hello", stream=True))
        response = client.getresponse()
        assert response.read(len(events)).endswith(b"[DONE]\n\n")
        client.sock.close()
        response.close()
        client.close()
        assert eventually(lambda: logged(tmp_path / "data", AnswerFinished, AttemptFailed)[0])
    over.set()
    upstream.close()
    found, problems = logged(tmp_path / "data", AnswerFinished, AttemptFailed)
    assert [(event.kind, event.finish) for event in found] == [("AnswerFinished", "stop")]
    assert problems == ()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_proxy_stopped_in_mid_stream_ends_and_says_so_in_the_log(scripted, start_proxy, tmp_path, how):
    scripted.play(Script([Gated(Say("one two three four"))]))
    with start_proxy() as proxy:
        client = http.client.HTTPConnection(proxy.root.removeprefix("http://"), timeout=PATIENCE)
        client.request("POST", "/v1/chat/completions", body("hello", stream=True))
        response = client.getresponse()
        response.read(1)
        proxy.process.send_signal(how)
        proxy.process.wait(PATIENCE)
        response.close()
        client.close()
    scripted.release(100)
    found, problems = logged(tmp_path / "data", AttemptFailed)
    assert [event.phase for event in found] == ["proxy"]
    assert problems == ()
    assert "Traceback" not in (tmp_path / "data.log").read_text()


def test_a_damaged_row_does_not_keep_the_proxy_from_serving(scripted, start_proxy, tmp_path):
    scripted.play(Script([Say("fine")], repeat=True))
    with start_proxy() as proxy:
        assert ask(proxy.root, body("hello"))[0] == 200
    with sqlite3.connect(tmp_path / "data" / "ctxpager.sqlite3") as file:
        file.execute("UPDATE events SET data = '{\"kind\": \"Answ' WHERE kind = 'AnswerFinished'")
    file.close()
    with start_proxy() as proxy:
        assert ask(proxy.root, body("hello again"))[0] == 200


def test_a_body_in_an_unknown_encoding_is_in_the_log_as_it_came(scripted, start_proxy, tmp_path):
    scripted.play(Script([Say("fine")], repeat=True))
    with start_proxy() as proxy:
        ask(proxy.root, b"\x00\x01secret sauce", **{"content-encoding": "lzw"})
    assert scripted.received[-1].body == b"\x00\x01secret sauce"
    (call, bypassed), problems = logged(tmp_path / "data", CallReceived, Bypassed)
    assert (call.encoding, call.size, bypassed.reason) == ("lzw", 14, "not_understood")
    assert "lzw" in bypassed.detail
    assert problems == ()


def test_a_key_in_the_query_is_neither_logged_nor_told(scripted, start_proxy, tmp_path):
    scripted.play(Script([Reply(200, b"{}", {"x-large": "x" * 100_000})]))
    with start_proxy() as proxy:
        status, told = ask(proxy.root, body("hello"), query="?key=SECRET-IN-QUERY")
    assert status == 502
    assert b"SECRET" not in told
    assert b"SECRET" not in b"".join(file.read_bytes() for file in (tmp_path / "data").iterdir())


def test_a_status_that_http_does_not_know_is_a_bad_gateway_and_in_the_log(scripted, start_proxy, tmp_path):
    scripted.play(Script([Reply(799, b"what?")]))
    with start_proxy() as proxy:
        status, told = ask(proxy.root, body("hello"))
    assert status == 502
    assert b"799" in told
    found, _ = logged(tmp_path / "data", AttemptFailed)
    assert [event.phase for event in found] == ["connect"]


def test_two_proxies_on_one_log_number_calls_as_one_would(scripted, start_proxy, tmp_path):
    scripted.play(Script([Say("fine", calls=[Call("run", {"a": 1})])], repeat=True))
    with start_proxy() as one, start_proxy() as two:
        texts = ["start"]
        for number in range(12):
            proxy = (one, two)[number % 2]
            assert ask(proxy.root, body(*texts), **{"x-session-id": "s"})[0] == 200
            texts += [f"answer {number}", f"question {number}"]
        racing = [
            threading.Thread(
                target=ask, args=(proxy.root, body(*texts, f"branch {number}")), kwargs={"x-session-id": "s"}
            )
            for number in range(8)
            for proxy in (one, two)
        ]
        for thread in racing:
            thread.start()
        for thread in racing:
            thread.join()
    found, problems = logged(tmp_path / "data", CallReceived)
    assert problems == ()
    assert [(event.branch, event.call) for event in found[:12]] == [(0, call) for call in range(1, 13)]
    assert len(found) == 12 + 16
    spots = [(event.branch, event.call, event.attempt) for event in found]
    assert len(set(spots)) == len(spots)
    called, _ = logged(tmp_path / "data", ToolCalled)
    assert len(called) == 28
