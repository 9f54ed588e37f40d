"""Where a request goes, and with which headers."""

import asyncio

import pytest

from pager.config.settings import UpstreamSettings as Settings
from pager.proxy.upstream import Upstream, passed_on, read_up_to


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/v1/chat/completions", "http://host/api/v1/chat/completions"),
        ("/chat/completions", "http://host/api/v1/chat/completions"),
        ("/v1/models", "http://host/api/v1/models"),
        ("/models/gpt-4o", "http://host/api/v1/models/gpt-4o"),
        ("/v1/files/a%2Fb", "http://host/api/v1/files/a%2Fb"),
        ("/api/hello", "http://host/api/api/hello"),
        ("/v1", "http://host/api/v1"),
        ("/", "http://host/api/"),
        ("/v10/models", "http://host/api/v10/models"),
    ],
)
def test_a_path_with_or_without_v1_reaches_the_same_place(path, target):
    assert str(Upstream(Settings(url="http://host/api/v1"), {}).url("chat", path, "")) == target


def test_a_query_is_kept_byte_for_byte():
    url = Upstream(Settings(url="http://host/v1"), {}).url("chat", "/v1/models", "a=%20b&c=%2F+&d")
    assert str(url) == "http://host/v1/models?a=%20b&c=%2F+&d"


def test_each_dialect_has_a_provider_of_its_own_unless_one_serves_all():
    apart = Upstream(Settings(), {})
    assert apart.url("messages", "/v1/messages", "").host == "api.anthropic.com"
    assert apart.url("chat", "/v1/chat/completions", "").host == "api.openai.com"
    assert Upstream(Settings(url="http://one/v1"), {}).url("messages", "/v1/messages", "").host == "one"


def test_headers_of_the_hop_and_our_own_stay_here():
    headers = [
        (b"host", b"h"), (b"connection", b"keep-alive, X-Once"), (b"x-once", b"1"), (b"x-pager-now", b"2"),
        (b"X-Pager-Bypass", b"1"), (b"te", b"trailers"), (b"authorization", b"Bearer k"), (b"x-session-id", b"s"),
    ]  # fmt: skip
    assert passed_on(headers) == [(b"authorization", b"Bearer k"), (b"x-session-id", b"s")]


@pytest.mark.parametrize(
    ("dialect", "sent"), [("chat", {"authorization": "Bearer own"}), ("messages", {"x-api-key": "own"})]
)
def test_a_key_of_the_proxys_own_takes_the_place_of_the_clients(dialect, sent):
    upstream = Upstream(Settings(api_key_env="OWN"), {"OWN": "own"})
    headers = upstream._headers([(b"authorization", b"Bearer theirs"), (b"x-api-key", b"theirs")], dialect)
    assert dict(headers) == sent


def test_a_pool_that_was_not_opened_says_so():
    async def send(upstream):
        async with upstream.send("GET", upstream.url("chat", "/", ""), [], None, "chat"):
            pass

    with pytest.raises(RuntimeError, match="not open"):
        asyncio.run(send(Upstream(Settings(), {})))


def test_a_pool_that_was_not_opened_can_be_closed():
    asyncio.run(Upstream(Settings(), {}).close())


def test_of_an_answer_that_is_longer_than_the_limit_no_more_is_read_than_shows_it():
    read = []

    class Long:
        async def iter_any(self):
            for _ in range(100):
                read.append(b"x" * 10)
                yield read[-1]

    class Response:
        content = Long()

    assert asyncio.run(read_up_to(Response(), 35)) == b"x" * 40
    assert len(read) == 4
