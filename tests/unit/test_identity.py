"""Whose call it is."""

import pytest

from pager.proxy.log_records import LOGGED_HEADERS
from pager.sessions.identity import SIGNALS, Key, session_key, tenant_of

OPEN = {"keys": {}, "account_headers": ("chatgpt-account-id",), "loopback": True}


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a"}, Key("x-claude-code-session-id", "s", "a")),
        ({"x-claude-code-session-id": "s"}, Key("x-claude-code-session-id", "s")),
        ({"thread-id": "t", "session-id": "t"}, Key("thread-id", "t")),
        ({"thread-id": "child", "session-id": "t"}, Key("thread-id", "t", lane="child")),
        ({"thread-id": "t"}, Key("thread-id", "t")),
        ({"x-session-id": "s"}, Key("x-session-id", "s")),
        ({"x-session-id": "c", "x-parent-session-id": "s"}, Key("x-session-id", "c", lane="c", parent="s")),
        ({"agent-session-id": "20261115_1"}, Key("agent-session-id", "20261115_1")),
        ({"session_id": "p"}, Key("session_id", "p")),
    ],
)
def test_each_client_names_its_session_in_its_own_header(headers, key):
    assert session_key(headers, [("prompt_cache_key", "weaker")]) == key


def test_a_hint_in_the_body_counts_only_without_a_header():
    assert session_key({}, [("metadata.user_id", ""), ("prompt_cache_key", "k")]) == Key("prompt_cache_key", "k")


def test_no_signal_is_no_key():
    assert session_key({"user-agent": "x"}, []) is None


def test_the_claude_code_header_stands_above_the_others():
    headers = {"x-session-id": "s", "thread-id": "t", "x-claude-code-session-id": "c"}
    assert session_key(headers, []) == Key("x-claude-code-session-id", "c")


def test_on_loopback_a_refreshed_credential_stays_the_same_tenant():
    first = tenant_of({"authorization": "Bearer one"}, **OPEN)
    assert first == tenant_of({"authorization": "Bearer two"}, **OPEN) == "local"


def test_elsewhere_the_credential_tells_tenants_apart_and_is_not_readable():
    away = OPEN | {"loopback": False}
    one, two = tenant_of({"authorization": "Bearer one"}, **away), tenant_of({"x-api-key": "two"}, **away)
    assert one != two
    assert one == tenant_of({"x-api-key": "one"}, **away)
    assert "one" not in one


def test_the_account_header_stands_above_the_credential():
    assert tenant_of({"chatgpt-account-id": "acme"}, **OPEN) == "chatgpt-account-id:acme"


def test_beyond_loopback_an_account_header_proves_nothing():
    away = OPEN | {"loopback": False}
    victim = {"authorization": "Bearer one", "chatgpt-account-id": "acme"}
    thief = {"authorization": "Bearer two", "chatgpt-account-id": "acme"}
    assert tenant_of(victim, **away) != tenant_of(thief, **away)
    assert tenant_of(victim, **away) == tenant_of({"authorization": "Bearer one"}, **away)


def test_beyond_loopback_all_credentials_of_a_client_count():
    away = OPEN | {"loopback": False}
    shown = [{}, {"api-key": "one"}, {"api-key": "two"}, {"x-goog-api-key": "three"}]
    both = [{"authorization": "Bearer none", **headers} for headers in shown]
    assert len({tenant_of(headers, **away) for headers in [*shown, *both]}) == 8


def test_a_proxy_with_keys_knows_only_their_tenants():
    keyed = OPEN | {"keys": {"pk-a": "team-a"}}
    assert tenant_of({"authorization": "Bearer pk-a"}, **keyed) == "team-a"
    assert tenant_of({"x-api-key": "pk-a", "chatgpt-account-id": "other"}, **keyed) == "team-a"
    assert tenant_of({"authorization": "Bearer stolen"}, **keyed) is None
    assert tenant_of({}, **keyed) is None


class Noted(dict):
    """Headers that note which of them are read."""

    def __init__(self):
        super().__init__()
        self.read = set()

    def get(self, name, default=None):
        self.read.add(name)
        return {"thread-id": "t", "x-session-id": "s", "x-claude-code-session-id": "c"}.get(name, default)


def test_every_header_that_names_a_session_is_logged():
    for signal in SIGNALS:
        headers = Noted()
        signal.key(headers)
        assert headers.read <= set(signal.names) <= set(LOGGED_HEADERS)
