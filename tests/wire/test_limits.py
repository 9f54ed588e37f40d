"""What one client, or one answer, may take of the proxy."""

import gzip
import http.client
import json
import socket
import sqlite3
from contextlib import closing
from urllib.parse import urlsplit

import brotli
import pytest
import zstandard
from waiting import PATIENCE

from pager.log.events import AnswerFinished, decode
from pager.testing.scripted import (
    Fail,
    Reply,
    Say,
    Script,
)

RAIN = Say("It rains.")
CHAT = "/v1/chat/completions"
BODY = json.dumps({"model": "m-1", "messages": [{"role": "user", "content": "How is the weather?"}]}).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
EVENT = b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}\n\n'


def dial(proxy):
    return closing(socket.create_connection(urlsplit(proxy.root).netloc.split(":"), 20))


def got(client):
    """The status and body of the next answer."""
    with http.client.HTTPResponse(client) as response:
        response.begin()
        return response.status, response.read()


def answer(client):
    """The status and body of an answer after which the server hangs up."""
    last = got(client)
    assert client.recv(1) == b""
    return last


def ask(proxy, body=BODY, headers=(), path=CHAT, method="POST"):
    with closing(http.client.HTTPConnection(urlsplit(proxy.root).netloc, timeout=PATIENCE)) as connection:
        connection.request(method, path, body, {"content-type": "application/json", **dict(headers)})
        response = connection.getresponse()
        return response.status, response.read()


def answers(proxy):
    with closing(sqlite3.connect(f"file:{proxy.data_dir / 'ctxpager.sqlite3'}?mode=ro", uri=True)) as file:
        rows = file.execute("SELECT version, CAST(data AS BLOB) FROM events WHERE kind = 'AnswerFinished' ORDER BY seq")
        return [decode(data, version) for version, data in rows]


@pytest.fixture(scope="module")
def strict(_model, tmp_path_factory, running):
    """A proxy with little patience."""
    flags = ("--limits-head-seconds", "0.3", "--limits-body-seconds", "0.3", "--limits-headers", "20")
    small = ("--limits-head-kib", "4", "--limits-answer-mib", "1")
    with running(_model.url, tmp_path_factory.mktemp("strict") / "data", *flags, *small) as proxy:
        yield proxy


# Heads


def test_a_request_of_too_many_headers_gets_a_431(strict, scripted):
    with dial(strict) as client:
        client.sendall(HEAD + b"".join(b"x-%d: y\r\n" % number for number in range(20)) + b"\r\n")
        assert answer(client)[0] == 431
    assert not scripted.received


@pytest.mark.parametrize("header", [b"x-long: " + b"y" * 5_000, b"x" * 5_000 + b": y"], ids=["value", "name"])
def test_a_request_of_too_large_a_head_gets_a_431(strict, scripted, header):
    with dial(strict) as client:
        client.sendall(HEAD + header + b"\r\n\r\n")
        assert answer(client)[0] == 431
    assert not scripted.received


def test_a_head_without_end_gets_a_431(strict, scripted):
    with dial(strict) as client:
        client.sendall(HEAD + b"x-endless: " + b"y" * 1_000_000)
        assert got(client)[0] == 431
    assert not scripted.received


@pytest.mark.parametrize("sent", [b"P", HEAD, HEAD + b"x-half: y", b"\r\n"], ids=["byte", "headers", "half", "blank"])
def test_a_head_that_does_not_come_to_its_end_gets_a_408(strict, sent):
    with dial(strict) as client:
        client.sendall(sent)
        assert answer(client)[0] == 408


def test_a_connection_on_which_nothing_comes_is_closed(strict):
    with dial(strict) as client:
        assert client.recv(1) == b""


def test_a_connection_that_rests_between_two_requests_is_kept(strict, scripted):
    scripted.play(Script([RAIN], repeat=True))
    request = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    with dial(strict) as client, dial(strict) as silent:
        for _ in range(2):
            client.sendall(request)
            assert got(client)[0] == 200
            silent.recv(1)  # more time than a head may take has passed


# Bodies


@pytest.mark.parametrize("target", [CHAT, "/v1/files"])
def test_a_body_that_does_not_come_to_its_end_gets_a_408(strict, scripted, target):
    with dial(strict) as client:
        client.sendall(HEAD.replace(CHAT.encode(), target.encode()) + b"content-length: 1000\r\n\r\n{")
        status, body = answer(client)
    assert status == 408
    assert "body_seconds" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
def test_a_body_that_is_cut_short_is_passed_on_unread(proxy, scripted, encoding):
    scripted.play(Script([Fail(400)]))
    body = {"gzip": gzip.compress, "br": brotli.compress, "zstd": zstandard.ZstdCompressor().compress}[encoding](BODY)
    status, _ = ask(proxy, body[:-3], {"content-encoding": encoding})
    assert status == 400
    assert scripted.received[0].body == body[:-3]


# Answers


def stream(size):
    events = [EVENT % (b"x" * 1_000)] * (size // 1_000)
    return Reply(200, b"".join([*events, b"data: [DONE]\n\n"]), {"content-type": "text/event-stream"})


def test_of_a_large_answer_only_the_beginning_is_kept(strict, scripted, eventually):
    scripted.play(Script([stream(3_000_000)]))
    before = len(answers(strict))
    status, body = ask(strict)
    assert (status, body) == (200, stream(3_000_000).body)
    assert eventually(lambda: len(answers(strict)) > before)
    logged = answers(strict)[-1]
    assert logged.size == 1 << 20
    assert logged.error == f"cut: {1 << 20} of its {len(body)} bytes were kept, as limits.answer_mib says"


def test_a_large_answer_within_the_limit_is_kept_whole(proxy, scripted, eventually):
    scripted.play(Script([stream(3_000_000)]))
    before = len(answers(proxy))
    _, body = ask(proxy)
    assert eventually(lambda: len(answers(proxy)) > before)
    assert isinstance(answers(proxy)[-1], AnswerFinished)
    assert (answers(proxy)[-1].size, answers(proxy)[-1].error) == (len(body), "")


# Upgrades


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "TLS/1.0"])
@pytest.mark.parametrize("pieces", [1, 7, 10_000], ids=["whole", "pieces", "bytes"])
def test_a_call_that_would_upgrade_is_answered_as_without(proxy, scripted, protocol, pieces):
    scripted.play(Script([RAIN], repeat=True))
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\nHTTP2-Settings: AAMAAABk\r\n" % protocol.encode()
    request = HEAD + upgrade + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    step = max(1, len(request) // pieces)
    with dial(proxy) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):
            for at in range(0, len(request), step):
                client.sendall(request[at : at + step])
            status, body = got(client)
            assert status == 200
            assert json.loads(body)["choices"][0]["message"]["content"] == RAIN.text
    assert [received.body for received in scripted.received] == [BODY] * 2
    assert not {name.lower() for name, _ in scripted.received[0].headers} & {"upgrade", "http2-settings"}


def test_another_request_that_would_upgrade_is_passed_on_with_its_body(proxy, scripted):
    scripted.play(Script(others={"POST /v1/embeddings": Reply(200, b"{}")}))
    headers = {"connection": "Upgrade", "upgrade": "websocket"}
    assert ask(proxy, headers=headers, path="/v1/embeddings") == (200, b"{}")
    assert scripted.received[0].body == BODY


@pytest.mark.parametrize("left_out", ["connection", "sec-websocket-key"])
def test_what_is_no_handshake_is_passed_on(proxy, scripted, left_out):
    scripted.play(Script(others={"GET /v1/any": Reply(200, b"{}")}))
    handshake = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
    del handshake[left_out]
    assert ask(proxy, b"", handshake, "/v1/any", "GET") == (200, b"{}")
