"""Bytes, headers, connections: what lies below the SDKs goes through the proxy as it came."""

import gzip
import http.client
import json
import socket
import threading
import time
import zlib
from contextlib import closing
from urllib.parse import urlsplit

import brotli
import pytest
import zstandard
from waiting import PATIENCE

from pager.testing.scripted import (
    Drop,
    Fail,
    Gated,
    Reply,
    Say,
    Script,
    Slow,
)

RAIN = Say("It rains in Rīga, as it should. ☔")
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
ENDPOINTS = [CHAT, RESPONSES, MESSAGES]
ASK = {"role": "user", "content": "How is the weather in Rīga? ☔"}
JSON = {"content-type": "application/json"}


def body_for(path, **more):
    items = "input" if path == RESPONSES else "messages"
    return json.dumps({"model": "m-1", "max_tokens": 99, items: [ASK], **more}, ensure_ascii=False).encode()


def connect(root):
    return closing(http.client.HTTPConnection(urlsplit(root).netloc, timeout=PATIENCE))


def send(connection, method, target, headers=(), body=b""):
    """One request with exactly these headers, in this order."""
    connection.putrequest(method, target, skip_accept_encoding=True)
    pairs = headers.items() if isinstance(headers, dict) else headers
    for name, value in pairs:
        connection.putheader(name, value)
    if body:
        connection.putheader("content-length", str(len(body)))
    connection.endheaders(body or None)
    return connection.getresponse()


def exchange(root, method, target, headers=(), body=b""):
    with connect(root) as connection:
        response = send(connection, method, target, headers, body)
        return response.status, response.headers, response.read()


# Streams


@pytest.mark.parametrize("path", ENDPOINTS)
def test_each_event_is_passed_on_before_the_next_is_sent(proxy, scripted, path):
    scripted.play(Script([Gated(RAIN)]))
    with connect(proxy.root) as connection:
        response = send(connection, "POST", path, JSON, body_for(path, stream=True))
        for sent in range(1, 6):
            event = _event(response)
            assert event.startswith(b"data: " if path == CHAT else b"event: ")
            assert scripted.received[0].sent == sent
            scripted.release()
        scripted.release(100)
        assert response.read().endswith(b"\n\n")


def test_the_headers_of_a_stream_come_before_its_first_event(proxy, scripted):
    scripted.play(Script([Slow(0.0, Gated(RAIN))]))
    with connect(proxy.root) as connection:
        response = send(connection, "POST", CHAT, JSON, body_for(CHAT, stream=True))
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["x-request-id"]
        scripted.release(100)
        response.read()


def _event(response):
    lines = []
    while not lines or lines[-1] != b"\n":
        lines.append(response.readline())
    return b"".join(lines)


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_leaves_is_gone_upstream(proxy, scripted, eventually, path, stream):
    scripted.play(Script([Gated(RAIN)]))
    with connect(proxy.root) as connection:
        if stream:
            _event(send(connection, "POST", path, JSON, body_for(path, stream=True)))
        else:
            connection.request("POST", path, body_for(path), JSON)
            assert eventually(lambda: scripted.received)
    assert eventually(lambda: scripted.received[0].left_at)
    assert not scripted.received[0].finished


def test_a_client_that_leaves_in_mid_upload_is_gone_upstream_too(proxy, scripted, eventually):
    with closing(socket.create_connection(urlsplit(proxy.root).netloc.split(":"), 5)) as client:
        client.sendall(b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\nhalf")
        assert eventually(lambda: scripted.received)
    assert eventually(lambda: scripted.received[0].left_at)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_what_had_come_before_a_break_is_passed_on(proxy, scripted, path):
    scripted.play(Script([Drop(5, RAIN)]))
    with connect(proxy.root) as connection:
        response = send(connection, "POST", path, JSON, body_for(path, stream=True))
        assert all(_event(response) for _ in range(5))
        with pytest.raises(http.client.HTTPException):
            response.read()


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_provider_that_hangs_up_without_a_word_is_told_as_a_502(proxy, scripted, path):
    scripted.play(Script([Drop(0), Drop(0)]))
    status, headers, body = exchange(proxy.root, "POST", path, JSON, body_for(path))
    assert status == 502
    assert headers["content-type"] == "application/json"
    assert json.loads(body)["error"]["message"]


@pytest.mark.parametrize("path", [*ENDPOINTS, "/v1/embeddings"])
def test_a_provider_that_is_not_there_is_told_as_a_502(start_proxy, path):
    with start_proxy("--upstream", "http://127.0.0.1:1/v1") as proxy:
        status, _, body = exchange(proxy.root, "POST", path, JSON, body_for(path))
    assert status == 502
    error = json.loads(body)
    assert (error.get("type") == "error") is (path == MESSAGES)
    assert error["error"]["message"]


# Bodies


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("br", brotli.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
    ],
)
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_compressed_body_arrives_as_it_was_sent(proxy, scripted, path, encoding, compress):
    scripted.play(Script([RAIN]))
    body = compress(body_for(path))
    status, _, _ = exchange(proxy.root, "POST", path, {**JSON, "content-encoding": encoding}, body)
    assert status == 200
    assert scripted.received[0].body == body
    assert scripted.received[0].header("content-encoding") == encoding


@pytest.mark.parametrize(
    "body",
    [
        b'{ "model" : "m-1" ,\n"messages":[ {"role":"user","content":"\\u00e9 \xc3\xa9"} ] }\n',
        b'{"model":"m-1","messages":[{"role":"user","content":"half of \\ud83d"}]}',
        b'{"model":"m-1","model":"m-2","messages":[{"role":"user","content":"x","content":"y"}]}',
        b'{"model":"m-1","seed":123456789012345678901234567890,"x":1.0000000000000000001,"messages":[]}',
        b'{"model":"m-1","x":NaN,"messages":[{"role":"user","content":"x"}]}',
        b'{"model":"m-1","messages":[{"role":"user","content":"\xff\xfe"}]}',
        b'[{"role":"user"}]',
        b'{"model":"m-1","messages":[{"role":"user","con',
        b"\x00\x01 no JSON at all",
        b"",
    ],
    ids=["spaces", "surrogate", "twice", "numbers", "nan", "utf8", "list", "cut", "binary", "empty"],
)
@pytest.mark.parametrize("path", ENDPOINTS)
def test_an_odd_body_arrives_as_it_was_sent(proxy, scripted, path, body):
    scripted.play(Script([Reply(418, b"as you like", {"content-type": "text/plain"})]))
    status, _, answer = exchange(proxy.root, "POST", path, JSON, body)
    assert (status, answer) == (418, b"as you like")
    assert [received.body for received in scripted.received] == [body]


def test_a_body_that_does_not_decompress_arrives_as_it_was_sent(proxy, scripted):
    scripted.play(Script([Fail(400), Fail(415)]))
    for encoding, status in (("gzip", 400), ("rot13", 415)):
        body = b"not " + encoding.encode()
        headers = {**JSON, "content-encoding": encoding}
        assert exchange(proxy.root, "POST", CHAT, headers, body)[0] == status
        assert scripted.received[-1].body == body


def test_a_chunked_body_arrives_whole(proxy, scripted):
    scripted.play(Script([RAIN]))
    body = body_for(CHAT)
    with connect(proxy.root) as connection:
        pieces = iter([body[:7], body[7:50], body[50:]])
        connection.request("POST", CHAT, pieces, {**JSON, "transfer-encoding": "chunked"}, encode_chunked=True)
        assert connection.getresponse().read()
    assert scripted.received[0].body == body


def test_five_megabytes_go_both_ways(proxy, scripted):
    long = "x" * 5_000_000
    scripted.play(Script([Say(long)]))
    body = body_for(MESSAGES, system=long)
    status, _, answer = exchange(proxy.root, "POST", MESSAGES, JSON, body)
    assert status == 200
    assert scripted.received[0].body == body
    assert json.loads(answer)["content"][0]["text"] == long


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_body_above_the_limit_gets_a_413_in_the_clients_dialect(limited, scripted, path):
    status, headers, answer = exchange(limited.root, "POST", path, JSON, body_for(path, x="y" * 1_100_000))
    assert status == 413
    assert headers["content-type"] == "application/json"
    error = json.loads(answer)
    assert "1 MiB" in error["error"]["message"]
    assert (error.get("type") == "error") is (path == MESSAGES)
    assert not scripted.received


def test_a_body_that_unpacks_above_the_limit_gets_a_413(limited, scripted):
    bomb = gzip.compress(body_for(CHAT, x="y" * 50_000_000))
    assert exchange(limited.root, "POST", CHAT, {**JSON, "content-encoding": "gzip"}, bomb)[0] == 413
    assert not scripted.received


def test_the_limit_is_for_calls_only(limited, scripted):
    scripted.play(Script(others={"POST /v1/files": Reply(200, b"{}")}))
    assert exchange(limited.root, "POST", "/v1/files", {}, b"z" * 2_000_000)[0] == 200
    assert len(scripted.received[0].body) == 2_000_000


@pytest.fixture
def limited(start_proxy):
    with start_proxy("--max-body-mib", "1") as proxy:
        yield proxy


# Other paths and methods


@pytest.mark.parametrize(
    ("method", "target", "upstream"),
    [
        ("GET", "/v1/models", "/v1/models"),
        ("GET", "/models", "/v1/models"),
        ("HEAD", "/api/hello", "/api/hello"),
        ("GET", "/v1/responses/resp_1?include=x", "/v1/responses/resp_1?include=x"),
        ("POST", "/v1/responses/resp_1/cancel", "/v1/responses/resp_1/cancel"),
        ("POST", "/v1/embeddings", "/v1/embeddings"),
        ("POST", "/v1/messages/batches", "/v1/messages/batches"),
        ("DELETE", "/v1/files/file-1", "/v1/files/file-1"),
        ("PATCH", "/v1/things/1", "/v1/things/1"),
        ("PUT", "/v1/things/1", "/v1/things/1"),
        ("OPTIONS", "/v1/chat/completions", "/v1/chat/completions"),
        ("GET", "/v1/chat/completions", "/v1/chat/completions"),
        ("GET", "/v1/files/a%2Fb%20c%7e", "/v1/files/a%2Fb%20c%7e"),
        ("GET", "/v1/files/%C4%81//b/../c;d=e", "/v1/files/%C4%81//b/../c;d=e"),
    ],
)
def test_any_other_request_is_passed_on(proxy, scripted, method, target, upstream):
    path = upstream.partition("?")[0]
    answer = Reply(207, b'{"any": "thing"}', {"x-any": "thing", "content-type": "application/x-any"})
    scripted.play(Script(others={f"{method} {path}": answer}))
    body = b"" if method in {"GET", "HEAD", "OPTIONS"} else b"\x00any body"
    status, headers, got = exchange(proxy.root, method, target, {"x-mine": "1"}, body)
    assert (status, headers["x-any"], headers["content-type"]) == (207, "thing", "application/x-any")
    assert got == (b"" if method == "HEAD" else answer.body)
    received = scripted.received[0]
    assert (received.method, received.target, received.body) == (method, upstream, body)
    assert received.header("x-mine") == "1"


@pytest.mark.parametrize("query", ["a=1&a=2", "q=%7e%2F+%20%C4%81", "&&=&x", "a=b=c;d?e/f", "beta=true"])
@pytest.mark.parametrize("path", [*ENDPOINTS, "/v1/models"])
def test_a_query_is_kept_byte_for_byte(proxy, scripted, path, query):
    scripted.play(Script([RAIN]))
    method, body = ("GET", b"") if path == "/v1/models" else ("POST", body_for(path))
    assert exchange(proxy.root, method, f"{path}?{query}", JSON, body)[0] == 200
    assert scripted.received[0].target == f"{path}?{query}"


def test_an_upload_is_passed_on_while_it_comes_in(proxy, scripted, eventually):
    scripted.play(Script(others={"POST /v1/files": Reply(200, b'{"id": "file-1"}')}))
    form = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + b"z" * 300_000 + b"\r\n--b--\r\n"
    )
    with connect(proxy.root) as connection:
        connection.putrequest("POST", "/v1/files")
        connection.putheader("content-type", "multipart/form-data; boundary=b")
        connection.putheader("content-length", str(len(form)))
        connection.endheaders(form[:100_000])
        assert eventually(lambda: scripted.received), "nothing reached the provider before the upload was complete"
        connection.send(form[100_000:])
        assert connection.getresponse().read() == b'{"id": "file-1"}'
    assert scripted.received[0].body == form
    assert scripted.received[0].header("content-type") == "multipart/form-data; boundary=b"


def test_a_redirect_is_the_clients_to_follow(proxy, scripted):
    scripted.play(Script(others={"GET /v1/old": Reply(307, b"", {"location": "/v1/new"})}))
    status, headers, _ = exchange(proxy.root, "GET", "/v1/old")
    assert (status, headers["location"]) == (307, "/v1/new")
    assert len(scripted.received) == 1


@pytest.mark.parametrize("path", ["/v1/responses", "/responses", "/v1/realtime?model=x"])
def test_a_websocket_gets_a_426(proxy, scripted, path):
    headers = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    assert exchange(proxy.root, "GET", path, headers)[0] == 426
    assert not scripted.received


# Headers and connections


@pytest.mark.parametrize("target", [CHAT, "/v1/embeddings"])
def test_our_own_headers_never_reach_the_provider(proxy, scripted, target):
    scripted.play(Script([RAIN], others={"POST /v1/embeddings": Reply()}))
    ours = {"X-Pager-Now": "1", "x-pager-session": "s", "X-PAGER-ANYTHING": "2"}
    assert exchange(proxy.root, "POST", target, {**JSON, **ours}, body_for(CHAT))[0] == 200
    assert not [name for name, _ in scripted.received[0].headers if name.lower().startswith("x-pager")]


@pytest.mark.parametrize("target", [CHAT, "/v1/embeddings"])
def test_headers_of_the_hop_stay_on_it(proxy, scripted, target):
    scripted.play(Script([RAIN], others={"POST /v1/embeddings": Reply()}))
    hop = {"connection": "keep-alive, x-only-here", "x-only-here": "1", "keep-alive": "timeout=5", "te": "trailers"}
    assert exchange(proxy.root, "POST", target, {**JSON, **hop, "x-kept": "1"}, body_for(CHAT))[0] == 200
    names = {name.lower() for name, _ in scripted.received[0].headers}
    assert not names & {"x-only-here", "keep-alive", "te"}
    assert "x-kept" in names
    assert scripted.received[0].header("host") == urlsplit(scripted.root).netloc


@pytest.mark.parametrize("target", [CHAT, "/v1/embeddings"])
def test_nothing_is_added_to_a_request(proxy, scripted, target):
    scripted.play(Script([RAIN], others={"POST /v1/embeddings": Reply()}))
    sent = [("X-Twice", "1"), ("x-twice", "2"), ("Authorization", "Bearer sk"), ("Empty", ""), ("x-dots", "a:b; c=d")]
    exchange(proxy.root, "POST", target, sent, body_for(CHAT))
    got = [(name.lower(), value) for name, value in scripted.received[0].headers]
    assert [pair for pair in got if pair[0] not in {"host", "content-length"}] == [
        (name.lower(), value) for name, value in sent
    ]


@pytest.mark.parametrize("target", [CHAT, "/v1/embeddings"])
def test_a_header_beyond_ascii_arrives_as_it_was_sent(proxy, scripted, target):
    scripted.play(Script([RAIN], others={"POST /v1/embeddings": Reply()}))
    folder = '{"workspace": "/home/jānis/projekti"}'
    exchange(proxy.root, "POST", target, {"x-turn-metadata": folder.encode()}, body_for(CHAT))
    assert scripted.received[0].header("x-turn-metadata").encode("latin-1").decode() == folder


def test_a_compressed_answer_is_passed_on_as_it_is(proxy, scripted):
    packed = gzip.compress(b'{"any": "thing"}')
    answer = Reply(200, packed, {"content-encoding": "gzip", "content-type": "application/json"})
    scripted.play(Script([answer], others={"GET /v1/any": answer}))
    for method, path, body in (("POST", CHAT, body_for(CHAT)), ("GET", "/v1/any", b"")):
        _, headers, got = exchange(proxy.root, method, path, {"accept-encoding": "gzip"}, body)
        assert got == packed
        assert headers["content-encoding"] == "gzip"
    assert scripted.received[0].header("accept-encoding") == "gzip"


def test_connections_are_kept_and_used_again(proxy, scripted):
    scripted.play(Script([RAIN], repeat=True))
    with connect(proxy.root) as connection:
        for at in range(6):
            path = ENDPOINTS[at % 3]
            response = send(connection, "POST", path, JSON, body_for(path, stream=at % 2 == 0))
            assert response.read()
            assert not response.will_close
    assert len({received.peer for received in scripted.received}) == 1


def test_a_slow_call_holds_up_no_other(proxy, scripted):
    scripted.play(Script([Gated(RAIN), *[RAIN] * 20]))
    slow = threading.Thread(target=exchange, args=(proxy.root, "POST", CHAT, JSON, body_for(CHAT)))
    slow.start()
    try:
        while not scripted.received:
            time.sleep(0.005)
        statuses = [exchange(proxy.root, "POST", CHAT, JSON, body_for(CHAT, n=at))[0] for at in range(20)]
        assert statuses == [200] * 20
        assert not scripted.received[0].finished
    finally:
        scripted.release()
        slow.join(PATIENCE)
