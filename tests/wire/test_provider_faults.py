"""Providers that break off, or break HTTP's rules: the client is no worse off than without the proxy."""

import http.client
import json
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from rawprovider import HANG_UP, PAUSE, RESET, RawProvider
from waiting import PATIENCE

CHAT, OTHER = "/v1/chat/completions", "/v1/embeddings"
BODY = json.dumps({"model": "m-1", "messages": [{"role": "user", "content": "How is the weather?"}]}).encode()
FINE = b'{"choices": []}'
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(FINE), FINE)
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module", params=["keep_all", "cost_aware"])
def _standing(request, running, tmp_path_factory):
    with closing(RawProvider()) as provider:
        folder = tmp_path_factory.mktemp("faults") / "data"
        with running(provider.url, folder, "--policy", request.param) as proxy:
            yield provider, proxy


@pytest.fixture
def through(_standing):
    """Asks a provider with these answers through a proxy, so many times on one connection: what the client got."""
    provider, proxy = _standing

    def ask(answers, times=1, path=CHAT, method="POST"):
        provider.play(*answers)
        with closing(http.client.HTTPConnection(urlsplit(proxy.root).netloc, timeout=PATIENCE)) as connection:
            return [_asked(connection, method, path) for _ in range(times)], provider.requests

    return ask


def _asked(connection, method, path):
    body = None if method in ("GET", "HEAD") else BODY
    connection.request(method, path, body, {"content-type": "application/json"} if body else {})
    response = connection.getresponse()
    try:
        return response.status, response.read()
    except http.client.HTTPException as error:
        return response.status, type(error)


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("end", [HANG_UP, RESET], ids=["closed", "reset"])
def test_a_call_on_a_kept_connection_that_is_closed_goes_out_on_a_new_one(through, path, end):
    got, requests = through([[OK], [end], [OK]], times=2, path=path)
    assert got == [(200, FINE)] * 2
    assert requests == [(1, BODY), (1, BODY), (2, BODY)]


@pytest.mark.parametrize("end", [HANG_UP, RESET], ids=["closed", "reset"])
def test_a_call_is_sent_again_once_at_most(through, end):
    got, requests = through([[OK], [end], [end], [OK]], times=2)
    assert [status for status, _ in got] == [200, 502]
    assert len(requests) == 3


def test_a_call_on_a_new_connection_is_not_sent_again(through):
    got, requests = through([[HANG_UP], [OK]])
    assert got[0][0] == 502
    assert len(requests) == 1


def test_a_call_of_which_an_answer_has_begun_is_not_sent_again(through):
    got, requests = through([[OK], [b"HTTP/1.1 200 OK\r\ncontent-ty", HANG_UP], [OK]], times=2)
    assert [status for status, _ in got] == [200, 502]
    assert len(requests) == 2


def test_an_upload_that_can_not_be_repeated_is_not_sent_again(through):
    got, requests = through([[OK], [HANG_UP], [OK]], times=2, path=OTHER)
    assert [status for status, _ in got] == [200, 502]
    assert len(requests) == 2


@pytest.mark.parametrize("path", [CHAT, OTHER])
@pytest.mark.parametrize("broken", [b"zz\r\nhello\r\n", b"-5\r\nhello\r\n", b"3\r\nhello\r\n0\r\n\r\n"])
def test_a_malformed_chunk_breaks_the_answer_off_at_once(through, path, broken):
    got, _ = through([[CHUNKED + b"5\r\ndata:\r\n", PAUSE, broken]], path=path)
    assert got == [(200, http.client.IncompleteRead)]


@pytest.mark.parametrize("path", [CHAT, OTHER])
def test_a_malformed_answer_is_a_502_if_nothing_of_it_was_passed_on(through, path):
    got, _ = through([[CHUNKED + b"zz\r\nhello\r\n"]], path=path)
    assert got[0][0] == 502


@pytest.mark.parametrize("path", [CHAT, OTHER])
def test_a_body_shorter_than_it_says_breaks_off(through, path):
    short = OK.replace(b"content-length: 1", b"content-length: 9")
    got, _ = through([[short, HANG_UP]], path=path)
    assert got == [(200, http.client.IncompleteRead)]


@pytest.mark.parametrize("path", [CHAT, OTHER])
def test_of_a_body_longer_than_it_says_the_client_gets_what_it_says(through, path):
    got, _ = through([[OK[:-1], PAUSE, OK[-1:], PAUSE, b"and more", HANG_UP]], path=path)
    assert got == [(200, FINE)]


@pytest.mark.parametrize("path", [CHAT, OTHER])
@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize("length", [b"", b"content-length: 0\r\n", b"content-length: 77\r\n"])
def test_an_answer_without_a_body_has_none(through, path, status, length):
    if status.startswith(b"204") and b"77" in length:
        pytest.skip("a length that HTTP does not allow there")
    got, _ = through([[b"HTTP/1.1 %b\r\n%b\r\n" % (status, length)], [OK]], times=2, path=path)
    assert got == [(int(status[:3]), b""), (200, FINE)]


@pytest.mark.parametrize("path", [CHAT, OTHER])
def test_what_comes_before_an_answer_is_no_answer(through, path):
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    got, _ = through([[early, OK], [early + OK]], times=2, path=path)
    assert got == [(200, FINE)] * 2


@pytest.mark.parametrize("path", [CHAT, OTHER])
def test_a_switch_of_protocols_that_nobody_asked_for_is_a_502(through, path):
    got, _ = through([[b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"]], path=path)
    assert got[0][0] == 502


def test_the_length_of_a_body_that_is_not_sent_is_told(through):
    got, _ = through([[OK[: -len(FINE)]]], path="/v1/models", method="HEAD")
    assert got == [(200, b"")]
