"""The door: on which addresses the proxy listens, and which requests it lets through."""

import pytest

from pager.cli import main
from pager.config.settings import Settings
from pager.errors import ConfigError
from pager.host_names import is_loopback, is_ours
from pager.proxy.serving import presence
from pager.proxy.serving.access import (
    Door,
    expect_closed,
    expect_elsewhere,
    tenants_of,
)

OWN_KEYS = {"identity": {"keys": {"team": "TEAM_KEY"}}}
OWN_CREDENTIAL = {"upstream": {"api_key_env": "PROVIDER_KEY"}}
KEYS = {"pk-team": "team"}


def door(keys=(), **settings):
    return Door(None, Settings(**settings), keys)


def refused(own, path="/v1/chat/completions", method="POST", **headers):
    """The status with which a request is refused; None if it is let through."""
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    found = own.refusal({"type": "http", "method": method, "path": path, "headers": named})
    return found and found.status


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.9", "box.example"])
def test_an_address_that_others_reach_needs_keys_or_force(host):
    with pytest.raises(ConfigError, match=r"^host: .*no keys.*--allow-open-bind") as told:
        expect_closed(Settings(host=host))
    assert "\n" not in str(told.value)
    expect_closed(Settings(host=host, allow_open_bind=True))
    expect_closed(Settings(host=host, **OWN_KEYS, **OWN_CREDENTIAL))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.9", "box.example"])
def test_with_a_credential_of_its_own_but_no_keys_no_force_helps(host):
    with pytest.raises(ConfigError, match="everybody could spend the key") as told:
        expect_closed(Settings(host=host, allow_open_bind=True, **OWN_CREDENTIAL))
    assert "--allow-open-bind" not in str(told.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_on_this_machine_alone_no_keys_are_needed(host):
    assert is_loopback(host)
    expect_closed(Settings(host=host, **OWN_CREDENTIAL))


@pytest.mark.usefixtures("at_home")
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--host", "0.0.0.0"], "--allow-open-bind"),
        (["--host", "0.0.0.0", "--allow-open-bind", "--upstream-api-key-env", "HOME"], "everybody could spend"),
    ],
)
def test_the_command_ends_with_one_line_and_makes_no_log(flags, said, tmp_path, capsys):
    assert main.main(["serve", "--data-dir", str(tmp_path / "data"), *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "data").exists()


def test_each_key_is_one_of_its_own_and_can_be_sent():
    keyed = Settings(identity={"keys": {"a": "KEY_A", "b": "KEY_B"}}, **OWN_CREDENTIAL)
    env = {"KEY_A": "one", "KEY_B": "two", "PROVIDER_KEY": "three"}
    assert tenants_of(keyed, env) == {"one": "a", "two": "b"}
    for wrong in ("", "one", "tw\no", "two ", "zwölf"):
        with pytest.raises(ConfigError, match=r"^identity\.keys\.b: .*KEY_B") as told:
            tenants_of(keyed, env | {"KEY_B": wrong})
        assert not wrong or repr(wrong) not in str(told.value)
    with pytest.raises(ConfigError, match=r"^upstream\.api_key_env: PROVIDER_KEY holds the same key as KEY_A"):
        tenants_of(keyed, env | {"PROVIDER_KEY": "one"})


@pytest.mark.parametrize(
    ("host", "port", "upstream", "itself"),
    [
        ("127.0.0.1", 8787, "http://localhost:8787/v1", True),
        ("0.0.0.0", 8787, "http://127.0.0.1:8787/v1", True),
        ("box", 80, "http://Box/v1", True),
        ("127.0.0.1", 8787, "http://localhost:8788/v1", False),
        ("127.0.0.1", 8787, "http://box:8787/v1", False),
        ("127.0.0.1", 443, "https://api.openai.com/v1", False),
    ],
)
def test_calls_that_would_come_back_to_the_proxy_itself_are_a_mistake(host, port, upstream, itself):
    for key in ("url", "messages"):
        settings = Settings(host=host, port=port, upstream={key: upstream})
        if not itself:
            expect_elsewhere(settings)
            continue
        with pytest.raises(ConfigError, match=rf"^upstream\.{key}: .* is this proxy itself"):
            expect_elsewhere(settings)


HOSTS = [
    ("127.0.0.1:8787", True),
    ("localhost:8787", True),
    ("LOCALHOST.", True),
    ("api.localhost:80", True),
    ("[::1]:8787", True),
    ("[::1]", True),
    ("10.0.0.7", True),
    ("host.docker.internal:8787", True),
    ("proxy.example:8787", True),
    ("evil.example:8787", False),
    ("127.0.0.1.evil.example", False),
    ("localhost.evil.example", False),
    ("notlocalhost", False),
    ("0x7f000001.example", False),
    ("", False),
    ("127.0.0.1:evil", False),
]


@pytest.mark.parametrize(("host", "ours"), HOSTS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/healthz", "/metrics", "/", "/anything"])
def test_on_this_machine_a_request_by_a_strangers_name_is_refused_on_every_route(host, ours, path):
    assert is_ours(host, {"proxy.example"}) is ours
    own = door(allowed_hosts=["proxy.example"])
    assert refused(own, path, host=host) == (None if ours else 403)
    assert refused(own, path, method="GET", host=host) == (None if ours else 403)


def test_a_program_that_names_no_host_is_let_through():
    assert refused(door()) is None


@pytest.mark.parametrize(
    ("origin", "welcome"),
    [
        ("http://127.0.0.1:8787", True),
        ("http://localhost:3000", True),
        ("HTTP://LocalHost:3000", True),
        ("app://mine", True),
        ("http://localhost:3001", False),
        ("http://127.0.0.1", False),
        ("https://evil.example", False),
        ("http://evil.example/127.0.0.1:8787", False),
        ("null", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/files", "/healthz", "/", "/ui/api/sessions"])
@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS"])
def test_a_page_may_ask_only_if_it_is_ours_or_allowed(origin, welcome, path, method):
    own = door(allowed_origins=["http://localhost:3000", "app://mine"])
    assert refused(own, path, method, host="127.0.0.1:8787", origin=origin) == (None if welcome else 403)


def test_a_page_that_hides_its_origin_is_known_by_what_the_browser_says():
    for site in ("cross-site", "same-site"):
        assert refused(door(), "/v1/models", "GET", sec_fetch_site=site) == 403
        assert refused(door(), "/", "GET", sec_fetch_site=site) is None
        allowed = door(allowed_origins=["http://a.example"])
        assert refused(allowed, sec_fetch_site=site, origin="http://a.example") is None
    assert refused(door(), sec_fetch_site="same-origin") is None
    assert refused(door(), sec_fetch_mode="cors") is None  # what Node sends


def test_beyond_this_machine_insights_need_a_key():
    own = door(KEYS, host="0.0.0.0")
    for path in ("/healthz", "/metrics"):
        assert refused(own, path, "GET") == 401
        assert refused(own, path, "GET", authorization="Bearer other") == 401
        assert refused(own, path, "GET", authorization="Bearer pk-team") is None
        assert refused(own, path, "GET", x_api_key="pk-team") is None
        assert refused(door(host="0.0.0.0"), path, "GET") == 401
        assert refused(door(host="0.0.0.0"), path, "GET", authorization="Bearer ") == 401
        assert refused(door(KEYS), path, "GET") is None


def test_beyond_this_machine_any_name_will_do_where_a_key_is_asked_for():
    assert refused(door(KEYS, host="0.0.0.0"), host="proxy.example") is None
    assert refused(door(host="0.0.0.0"), host="proxy.example") == 403
    assert refused(door(host="0.0.0.0", allowed_hosts=["proxy.example"]), host="proxy.example:80") is None


def test_the_mark_of_a_serving_proxy_follows_no_link(tmp_path):
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / presence.FILE_NAME).symlink_to(tmp_path / "victim")
    here = presence.Presence(tmp_path / "data")
    here.listening("http://127.0.0.1:1")
    here.close()
    assert (tmp_path / "victim").read_bytes() == b"precious"


# ---------------------------------------------------------------- what the proxy is asked and switched by

STATUS, SWITCH = "/ctxpager/status", "/ctxpager/keep-warm"


def control(own, path, client, **headers):
    """The status with which a client of this address is refused; None if it is let through."""
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "headers": named, "client": client and (client, 4_000)}
    found = own.refusal(scope)
    return found and found.status


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "192.168.1.9"])
@pytest.mark.parametrize("client", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_this_machine_sees_and_switches_whatever_the_proxy_listens_on(host, client):
    own = door(KEYS, host=host)
    assert control(own, STATUS, client) is None
    assert control(own, SWITCH, client, host="localhost:8787") is None


@pytest.mark.parametrize("client", ["192.168.1.5", "10.0.0.1", "::ffff:192.168.1.5", None])
def test_nobody_else_switches_not_even_with_a_key(client):
    own = door(KEYS, host="0.0.0.0")
    assert control(own, SWITCH, client) == 403
    assert control(own, SWITCH, client, authorization="Bearer pk-team") == 403
    assert control(door(KEYS, host="0.0.0.0", dashboard={"show": "always"}), SWITCH, client) == 403


@pytest.mark.parametrize("header", ["forwarded", "via", "x_forwarded_for", "x_real_ip"])
def test_what_a_reverse_proxy_sends_on_is_not_of_this_machine(header):
    assert control(door(), SWITCH, "127.0.0.1", **{header: "192.0.2.1"}) == 403
    assert control(door(), STATUS, "127.0.0.1", **{header: "192.0.2.1"}) == 401


def test_others_see_live_sessions_by_a_key_or_where_the_dashboard_is_for_all():
    own = door(KEYS, host="0.0.0.0")
    assert control(own, STATUS, "192.168.1.5") == 401
    assert control(own, STATUS, "192.168.1.5", authorization="Bearer pk-team") is None
    assert control(door(host="0.0.0.0", dashboard={"show": "always"}), STATUS, "192.168.1.5") is None
    assert control(door(host="0.0.0.0", allow_open_bind=True), STATUS, "192.168.1.5") == 401


def test_a_name_that_was_made_to_point_here_switches_nothing_though_the_proxy_has_keys():
    own = door(KEYS, host="0.0.0.0")
    rebound = {"host": "evil.example:8787", "origin": "http://evil.example:8787"}
    assert control(own, SWITCH, "127.0.0.1", **rebound) == 403
    assert control(own, STATUS, "127.0.0.1", host="evil.example:8787") == 403
