"""Recorded requests of real clients reach the provider as they were sent."""

import gzip
import http.client
import json
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from recordings import REQUESTS
from waiting import PATIENCE

from pager.testing.scripted import Say, Script

OF_THE_HOP = {"host", "connection", "content-length", "transfer-encoding", "keep-alive", "upgrade", "te", "trailer"}

pytestmark = [
    pytest.mark.recorded,
    pytest.mark.skipif(not REQUESTS, reason="CTXPAGER_RECORDINGS names no folder with recorded/*/*.jsonl.gz"),
]


def requests_of(file):
    with gzip.open(file, "rt") as lines:
        return [request for request in map(json.loads, lines) if request["method"] != "WS"]


def is_upgrade(request):
    return any(name.lower() == "upgrade" for name, _ in request["headers"])


def target_of(request):
    query = request.get("query") or ""
    return request["path"] + (f"?{query}" if query else "")


def body_of(request):
    if request["body"] is None:
        return b""
    return json.dumps(request["body"], ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def end_to_end(headers):
    return [(name.lower(), value) for name, value in headers if name.lower() not in OF_THE_HOP]


@pytest.mark.parametrize("file", REQUESTS, ids=lambda file: f"{file.parent.name}-{file.name.partition('.')[0]}")
def test_recorded_requests_reach_the_provider_byte_for_byte(proxy, scripted, file):
    scripted.play(Script([Say("Done.")], repeat=True))
    sent = requests_of(file)
    with closing(http.client.HTTPConnection(urlsplit(proxy.root).netloc, timeout=PATIENCE)) as connection:
        statuses = [_status(connection, request) for request in sent]
    assert statuses == [426 if is_upgrade(request) else 200 for request in sent]
    calls = [request for request in sent if not is_upgrade(request)]
    assert len(scripted.received) == len(calls)
    for request, received in zip(calls, scripted.received, strict=True):
        assert (received.method, received.target) == (request["method"], target_of(request))
        assert end_to_end(received.headers) == end_to_end(request["headers"])
        assert received.body == body_of(request)


def _status(connection, request):
    body = body_of(request)
    connection.putrequest(request["method"], target_of(request), skip_host=True, skip_accept_encoding=True)
    for name, value in request["headers"]:
        if name.lower() not in {"content-length", "transfer-encoding"}:
            connection.putheader(name, value)
    if body:
        connection.putheader("content-length", str(len(body)))
    connection.endheaders(body or None)
    response = connection.getresponse()
    response.read()
    return response.status
