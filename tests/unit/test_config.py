import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pager.config.loading import (
    KEYS,
    Folder,
    Loaded,
    Settings,
    load,
    render,
)
from pager.config.reference import example, reference
from pager.config.settings import UpstreamSettings
from pager.config.trust import Trusted
from pager.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(str.strip)
VARIABLE = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
ADDRESS = st.from_regex(r"https?://[a-z]{1,9}(:[1-9][0-9]{0,3})?(/[a-z0-9]{1,5}){0,3}", fullmatch=True)
SECONDS = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
OVERRIDE = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.datetimes()
VALUES = {
    "host": TEXT,
    "port": st.integers(0, 65535),
    "allow_open_bind": st.booleans(),
    "allowed_hosts": st.lists(st.from_regex(r"[A-Za-z0-9.-]{1,20}", fullmatch=True)),
    "allowed_origins": st.lists(st.from_regex(r"[a-z][a-z+]{0,8}://[A-Za-z0-9.:-]{0,20}", fullmatch=True)),
    "data_dir": st.from_regex(r"(~/)?[a-z0-9 /]{0,9}[a-z]", fullmatch=True),
    "store": TEXT,
    "policy": TEXT,
    "learn": st.sampled_from(["daily", "off"]),
    "prices": st.text(st.characters(codec="utf-8")),
    "trust_clock_header": st.booleans(),
    "log_level": st.sampled_from(["debug", "info", "warning", "error"]),
    "show_calls": st.sampled_from(["terminal", "always", "off"]),
    "max_body_mib": st.integers(1, 2**40),
    "limits.headers": st.integers(1, 2**40),
    "limits.head_kib": st.integers(1, 2**40),
    "limits.answer_mib": st.integers(1, 2**40),
    "limits.head_seconds": SECONDS,
    "limits.body_seconds": SECONDS,
    "upstream.url": ADDRESS | st.just(""),
    "upstream.chat": ADDRESS,
    "upstream.responses": ADDRESS,
    "upstream.messages": ADDRESS,
    "upstream.api_key_env": VARIABLE | st.just(""),
    "upstream.connect_timeout": SECONDS,
    "upstream.read_timeout": SECONDS | st.integers(1, 10**6),
    "upstream.leg_retries": st.integers(0, 10**6),
    "upstream.leg_retry_seconds": SECONDS | st.integers(1, 10**6),
    "upstream.max_connections": st.integers(0, 10**6),
    "identity.account_headers": st.lists(st.from_regex(r"[A-Za-z0-9-]{1,20}", fullmatch=True)),
    "identity.hot_sessions": st.integers(1, 10**9),
    "identity.keys": st.dictionaries(TEXT, VARIABLE).map(
        lambda keys: {name: f"{variable}{index}" for index, (name, variable) in enumerate(keys.items())}
    ),
    "paging.cache_marks": st.booleans(),
    "paging.cache_lifetime": st.sampled_from(["auto", "5m", "1h"]),
    "paging.grace": st.integers(1, 10**9),
    "paging.policy_options": st.dictionaries(TEXT, OVERRIDE | st.lists(OVERRIDE, max_size=3), max_size=3),
    "tools.shorten": st.sampled_from(["auto", "off"]),
    "tools.defer_above": st.integers(0, 10**9),
    "paging.prompt_cache_key": st.sampled_from(["auto", "on", "off"]),
    "paging.prompt_cache_retention": st.sampled_from(["", "24h"]),
    "paging.thrift": st.sampled_from(["user", "session"]),
    "credit.total_share": st.floats(0.0, 1.0),
    "credit.session_share": st.floats(0.0, 1.0),
    "credit.allowance": st.floats(0.0, 1e9),
    "credit.most": st.floats(0.0, 1e9),
    "keep_warm.mode": st.sampled_from(["off", "auto", "fixed"]),
    "keep_warm.refreshes": st.integers(0, 10**9),
    "keep_warm.every": st.floats(0.1, 1e9),
    "keep_warm.smallest": st.integers(0, 10**9),
    "keep_warm.refresh_dollars": st.floats(0.0, 1e9),
    "keep_warm.day_dollars": st.floats(0.0, 1e9),
    "keep_warm.most": st.integers(0, 10**9),
    "keep_warm.longest": st.floats(0.0, 1e9),
    "keep_warm.subscriptions": st.booleans(),
    "experiment.arms": st.dictionaries(TEXT, SECONDS, max_size=3),
    "dashboard.show": st.sampled_from(["loopback", "always", "off"]),
    "models": st.dictionaries(TEXT, st.dictionaries(st.text(), OVERRIDE | st.lists(OVERRIDE, max_size=3), max_size=3)),
}
KINDS = ("file", "environment", "flag")
SOME_SETTINGS = st.fixed_dictionaries({}, optional=VALUES)
# One value for each setting that differs from its default, as text a variable could hold.
OTHER_TEXT = {
    "host": "0.0.0.0",
    "port": "9000",
    "allow_open_bind": "true",
    "allowed_hosts": '["proxy.example"]',
    "allowed_origins": '["http://localhost:3000"]',
    "data_dir": "elsewhere",
    "store": "memory",
    "policy": "my/own.py:Policy",
    "learn": "off",
    "prices": "openai",
    "trust_clock_header": "true",
    "log_level": "debug",
    "show_calls": "off",
    "max_body_mib": "8",
    "limits.headers": "8",
    "limits.head_kib": "8",
    "limits.answer_mib": "8",
    "limits.head_seconds": "2.5",
    "limits.body_seconds": "2.5",
    "upstream.url": "http://127.0.0.1:1/v1",
    "upstream.chat": "http://127.0.0.1:2/v1",
    "upstream.responses": "http://127.0.0.1:3/v1",
    "upstream.messages": "http://127.0.0.1:4/v1",
    "upstream.api_key_env": "MY_KEY",
    "upstream.connect_timeout": "1.5",
    "upstream.read_timeout": "60",
    "upstream.leg_retries": "3",
    "upstream.leg_retry_seconds": "20.5",
    "upstream.max_connections": "7",
    "identity.account_headers": '["x-account"]',
    "identity.hot_sessions": "5",
    "identity.keys": '{ team = "TEAM_KEY" }',
    "paging.cache_marks": "false",
    "paging.cache_lifetime": "1h",
    "paging.grace": "5",
    "paging.policy_options": "{ age = 8 }",
    "tools.shorten": "off",
    "tools.defer_above": "5000",
    "paging.prompt_cache_key": "on",
    "paging.prompt_cache_retention": "24h",
    "paging.thrift": "session",
    "credit.total_share": "0.02",
    "credit.session_share": "0.1",
    "credit.allowance": "1.5",
    "credit.most": "3.0",
    "keep_warm.mode": "auto",
    "keep_warm.refreshes": "3",
    "keep_warm.every": "285.0",
    "keep_warm.smallest": "1000",
    "keep_warm.refresh_dollars": "0.25",
    "keep_warm.day_dollars": "3.5",
    "keep_warm.most": "7",
    "keep_warm.longest": "600.0",
    "keep_warm.subscriptions": "true",
    "experiment.arms": "{ cost_aware = 0.9, keep_all = 0.1 }",
    "dashboard.show": "always",
    "models": '{ "a/b.c" = { window = 10 } }',
}


def value_of(loaded: Loaded, name: str) -> object:
    value: object = loaded.settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def in_layers(folder: Path, *, text: str = "", env: Mapping[str, str] | None = None, flags=None) -> Loaded:
    """Load with nothing but these layers: the trusted working folder's file, the environment and the flags."""
    folder.mkdir(exist_ok=True)
    (folder / "ctxpager.toml").write_bytes(text.encode())
    Trusted(folder / "none").add(folder, text.encode())
    return load(flags or {}, cwd=folder, env=env or {}, config_dir=folder / "none")


def message_of(folder: Path, **layers) -> str:
    with pytest.raises(ConfigError) as caught:
        in_layers(folder, **layers)
    return str(caught.value)


def as_toml(name: str, text: str) -> str:
    key = next(key for key in KEYS if key.name == name)
    return f"{name} = " + (f"'{text}'" if key.is_text else text)


def test_without_any_layer_every_setting_has_its_default(tmp_path):
    loaded = load({}, cwd=tmp_path, env={}, config_dir=tmp_path)
    assert loaded.settings == Settings()
    assert loaded.origin == {key.name: "default" for key in KEYS}


def test_the_defaults_are_those_that_users_were_told(tmp_path):
    settings = load({}, cwd=tmp_path, env={}, config_dir=tmp_path).settings
    assert (settings.host, settings.port, settings.store, settings.policy) == (
        "127.0.0.1",
        8787,
        "sqlite:",
        "cost_aware",
    )
    assert settings.data_dir.name == "ctxpager"
    assert settings.upstream.chat == settings.upstream.responses == "https://api.openai.com/v1"
    assert settings.upstream.messages == "https://api.anthropic.com/v1"
    assert settings.identity.account_headers == ("chatgpt-account-id", "openai-organization")


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_every_setting_can_be_given_in_each_layer(key, tmp_path):
    text = OTHER_TEXT[key.name]
    loads = [
        (in_layers(tmp_path, text=as_toml(key.name, text)), f"file {tmp_path / 'ctxpager.toml'}"),
        (in_layers(tmp_path, env={key.variable: text}), f"environment {key.variable}"),
        (in_layers(tmp_path, flags={key.name: text}), f"flag {key.flag}"),
    ]
    assert [loaded.origin[key.name] for loaded, _ in loads] == [origin for _, origin in loads]
    values = [value_of(loaded, key.name) for loaded, _ in loads]
    assert values[0] == values[1] == values[2] != key.default


@given(given_in=st.lists(st.sets(st.sampled_from(KEYS)), min_size=3, max_size=3), ports=st.permutations([1, 2, 3]))
def test_each_layer_beats_the_former_ones(given_in, ports, tmp_path_factory):
    def text(key, port):
        # Layers differ in the port and in the name of the model; the other values tell by their origin.
        own = {"port": str(port), "models": f"{{ m{port} = {{ window = 10 }} }}"}
        return own.get(key.name, OTHER_TEXT[key.name])

    file, env, flags = given_in
    loaded = in_layers(
        tmp_path_factory.mktemp("layers"),
        text="\n".join(as_toml(key.name, text(key, ports[0])) for key in file),
        env={key.variable: text(key, ports[1]) for key in env},
        flags={key.name: text(key, ports[2]) for key in flags},
    )
    for key in KEYS:
        kinds = ["default", *(name for name, layer in zip(KINDS, given_in, strict=True) if key in layer)]
        assert loaded.origin[key.name].split(" ")[0] == kinds[-1]
        if key.name in {"port", "models"}:
            expected = {"default": None, **dict(zip(KINDS, ports, strict=True))}[kinds[-1]]
            assert value_of(loaded, key.name) == (as_value(key, text(key, expected)) if expected else key.default)
        else:
            assert (value_of(loaded, key.name) == key.default) == (kinds[-1] == "default")


def as_value(key, text):
    return tomllib.loads(f"value = {text}")["value"]


def test_a_trusted_working_folders_file_hides_the_users_own(tmp_path):
    cwd, user = tmp_path / "cwd", tmp_path / "user"
    cwd.mkdir()
    user.mkdir()
    (user / "ctxpager.toml").write_text("port = 1\nhost = 'h'")
    assert load({}, cwd=cwd, env={}, config_dir=user).settings.port == 1
    (cwd / "ctxpager.toml").write_text("port = 2")
    Folder(cwd, user).trust()
    settings = load({}, cwd=cwd, env={}, config_dir=user).settings
    assert (settings.port, settings.host) == (2, "127.0.0.1")


def test_a_named_file_is_read_instead_and_the_flag_beats_the_variable(tmp_path):
    for port, name in enumerate(["ctxpager.toml", "variable.toml", "flag.toml"], start=1):
        (tmp_path / name).write_text(f"port = {port}")
    env = {"CTXPAGER_CONFIG": "variable.toml"}
    assert load({}, cwd=tmp_path, env=env, config_dir=tmp_path).settings.port == 2
    named = {"config": str(tmp_path / "flag.toml")}
    assert load(named, cwd=tmp_path, env=env, config_dir=tmp_path).settings.port == 3


@pytest.mark.parametrize(
    ("flags", "env", "culprit"),
    [({"config": "gone.toml"}, {}, "--config"), ({}, {"CTXPAGER_CONFIG": "gone.toml"}, "CTXPAGER_CONFIG")],
)
def test_a_named_file_that_is_missing_is_an_error(flags, env, culprit, tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(flags, cwd=tmp_path, env=env, config_dir=tmp_path)
    assert str(tmp_path / "gone.toml") in str(caught.value)
    assert culprit in str(caught.value)


def test_a_flag_that_was_not_given_changes_nothing(tmp_path):
    assert in_layers(tmp_path, text="port = 3", flags={"port": None}).settings.port == 3


def test_an_empty_variable_counts_as_not_set(tmp_path):
    loaded = in_layers(tmp_path, text="port = 3", env={"CTXPAGER_PORT": "", "CTXPAGER_CONFIG": ""})
    assert loaded.settings.port == 3


@pytest.mark.parametrize(("word", "meaning"), [("1", True), ("Yes", True), ("off", False), ("FALSE", False)])
def test_a_switch_may_be_said_in_several_words(word, meaning, tmp_path):
    env = {"CTXPAGER_TRUST_CLOCK_HEADER": word}
    assert in_layers(tmp_path, env=env).settings.trust_clock_header is meaning


def test_a_flag_may_come_as_a_value_instead_of_text(tmp_path):
    settings = in_layers(tmp_path, flags={"port": 5, "trust_clock_header": True, "data_dir": Path("d")}).settings
    assert (settings.port, settings.trust_clock_header, settings.data_dir) == (5, True, Path("d"))


def test_a_home_folder_is_expanded(tmp_path):
    assert in_layers(tmp_path, text="data_dir = '~/state'").settings.data_dir == Path.home() / "state"


def test_a_base_url_ends_without_a_slash(tmp_path):
    assert in_layers(tmp_path, flags={"upstream.url": "http://h/v1/"}).settings.upstream.url == "http://h/v1"


def test_one_base_url_stands_over_the_three():
    apart = UpstreamSettings(chat="http://a/v1", responses="http://b/v1", messages="http://c/v1")
    assert [apart.base(name) for name in ("chat", "responses", "messages")] == [
        "http://a/v1",
        "http://b/v1",
        "http://c/v1",
    ]
    one = apart.model_copy(update={"url": "http://d/v1"})
    assert {one.base(name) for name in ("chat", "responses", "messages")} == {"http://d/v1"}


def test_settings_are_frozen(tmp_path):
    settings = in_layers(tmp_path).settings
    with pytest.raises(ValidationError):
        settings.port = 1  # type: ignore[misc]


WRONG = {
    "host": ["''", "1"],
    "port": ['"abc"', "-1", "65536", "1.0", "true", '"8787"', "[]"],
    "allow_open_bind": ["1", "'yes'"],
    "allowed_hosts": ["'h'", "[1]", "['a b']", "['']", "['h:1']"],
    "allowed_origins": ["'http://h'", "[1]", "['*']", "['http://*']", "['null']", "['http://h/path']", "['h:1']"],
    "data_dir": ["''", "' '", "3", '"a\\u0000b"'],
    "store": ["''", "1"],
    "policy": ["''", "1"],
    "learn": ["''", "'weekly'", "true"],
    "prices": ["1"],
    "trust_clock_header": ["1", "'yes'"],
    "log_level": ["'loud'", "1"],
    "show_calls": ["''", "'yes'", "true"],
    "max_body_mib": ["0", "1.5", "'64'"],
    "limits.headers": ["0", "1.5", "'64'"],
    "limits.head_kib": ["0", "1.5", "'64'"],
    "limits.answer_mib": ["0", "1.5", "'64'"],
    "limits.head_seconds": ["0", "inf", "'10'"],
    "limits.body_seconds": ["0", "inf", "'10'"],
    "upstream.url": [
        "'host/v1'",
        "'ftp://h/v1'",
        "'http:///v1'",
        "'http://h:x/v1'",
        "'http://h/v1#f'",
        "'http://h /v1'",
    ],
    "upstream.chat": ["''", "'http://h:0/v1'", "'http://h:99999/v1'", "'http://[h/v1'"],
    "upstream.responses": ["''", "1"],
    "upstream.messages": ["''", "1"],
    "upstream.connect_timeout": ["0", "-1", "inf", "nan", "true", "'10'"],
    "upstream.read_timeout": ["0", "'10'"],
    "upstream.leg_retries": ["-1", "0.5"],
    "upstream.leg_retry_seconds": ["0", "'10'"],
    "upstream.max_connections": ["-1", "1.5"],
    "identity.account_headers": ["'x'", "[1]", "['a b']", "['']"],
    "identity.hot_sessions": ["0", "'1'"],
    "paging.cache_marks": ["1", "'no'"],
    "paging.cache_lifetime": ["'30m'", "3600"],
    "paging.grace": ["0", "-1", "1.5", "true", "'2'"],
    "paging.policy_options": ["1", "[]"],
    "tools.shorten": ["'on'", "true", "1"],
    "tools.defer_above": ["-1", "1.5", "true", "'2'"],
    "paging.prompt_cache_key": ["'yes'", "true"],
    "paging.prompt_cache_retention": ["'1h'", "24"],
    "paging.thrift": ["'none'", "1"],
    "credit.total_share": ["-0.1", "1.1", "'1'"],
    "credit.session_share": ["-0.1", "1.1", "true"],
    "credit.allowance": ["-1.0", "inf", "'1'"],
    "credit.most": ["-1.0", "nan", "'1'"],
    "keep_warm.mode": ["'on'", "true"],
    "keep_warm.refreshes": ["-1", "1.5", "true"],
    "keep_warm.every": ["0", "-1", "true", "inf"],
    "keep_warm.smallest": ["-1", "1.5", "true"],
    "keep_warm.refresh_dollars": ["-1", "true", "inf"],
    "keep_warm.day_dollars": ["-1", "true", "nan"],
    "keep_warm.most": ["-1", "1.5", "true"],
    "keep_warm.longest": ["-1", "true", "inf"],
    "keep_warm.subscriptions": ["1", "'yes'"],
    "experiment.arms": [
        "1",
        "[]",
        "{ lru = 0 }",
        "{ lru = -0.5 }",
        "{ lru = inf }",
        "{ lru = '1' }",
        "{ lru = true }",
        "{ '' = 1 }",
    ],
    "dashboard.show": ["true", "1", "'on'"],
    "models": ["1", "{ m = 1 }"],
}
PRIVATE = {
    "upstream.api_key_env": ["'sk-123456'", "['sk-123456']", "'sk 123456'"],
    "identity.keys": ["'sk-123456'", "{ t = 'sk-123456' }", "{ t = ['sk-123456'] }"],
}


def cases(table):
    return [pytest.param(key, text, id=f"{key.name}={text}") for key in KEYS for text in table.get(key.name, ())]


@pytest.mark.parametrize(("key", "text"), cases(WRONG))
def test_a_wrong_value_is_reported_with_file_key_value_and_what_is_allowed(key, text, tmp_path):
    message = message_of(tmp_path, text=f"{key.name} = {text}")
    assert message.startswith(f"file {tmp_path / 'ctxpager.toml'}: {key.name}")
    assert "found " in message
    assert f"allowed: {key.words.allowed}" in message


@pytest.mark.parametrize(("key", "text"), cases(PRIVATE))
def test_a_value_that_may_be_a_secret_is_not_shown(key, text, tmp_path):
    message = message_of(tmp_path, text=f"{key.name} = {text}")
    assert key.name in message
    assert f"allowed: {key.words.allowed}" in message
    assert "123456" not in message


@pytest.mark.parametrize(
    "address",
    ["https://me:hunter2@h/v1", "https://me:hun/hunter2@h/v1", "https://h/v1?key=hunter2", "https://hunter2@h"],
)
def test_a_secret_inside_a_base_url_is_refused_and_not_shown(address, tmp_path):
    message = message_of(tmp_path, env={"CTXPAGER_UPSTREAM_URL": address})
    assert "without credentials" in message
    assert "hunter2" not in message


def test_every_setting_has_a_wrong_value_in_these_tests():
    assert {key.name for key in KEYS} == {*WRONG, *PRIVATE}


def test_what_was_found_is_shown_as_toml_writes_it(tmp_path):
    assert 'port: found "abc"; allowed: a whole number' in message_of(tmp_path, text='port = "abc"')
    assert "port: found true;" in message_of(tmp_path, text="port = true")
    assert "port: found 1979-05-27;" in message_of(tmp_path, text="port = 1979-05-27")
    assert "port: found { a = [1, 2.5] };" in message_of(tmp_path, text="port = {a = [1, 2.5]}")


@pytest.mark.parametrize(
    ("layers", "source"),
    [
        ({"text": "port = 'abc'"}, "file "),
        ({"env": {"CTXPAGER_PORT": "abc"}}, "environment CTXPAGER_PORT: port: "),
        ({"flags": {"port": "abc"}}, "flag --port: port: "),
    ],
)
def test_a_message_begins_with_where_the_value_stands(layers, source, tmp_path):
    message = message_of(tmp_path, **layers)
    assert message.startswith(source)
    assert 'found "abc"; allowed: a whole number from 0 to 65535' in message


def test_a_wrong_value_is_reported_even_where_a_later_layer_hides_it(tmp_path):
    assert "found 70000" in message_of(tmp_path, text="port = 70000", flags={"port": "1"})


def test_two_values_in_one_variable_are_not_smuggled_in(tmp_path):
    message = message_of(tmp_path, env={"CTXPAGER_PORT": "1\nvalue2 = 3"})
    assert message.startswith("environment CTXPAGER_PORT: port: found")


def test_a_variable_that_is_not_unicode_is_refused(tmp_path):
    for name in ("CTXPAGER_HOST", "CTXPAGER_DATA_DIR"):
        assert message_of(tmp_path, env={name: "a\udcff"}).startswith(f"environment {name}: ")


def test_two_tenants_cannot_share_a_variable(tmp_path):
    assert "each variable once" in message_of(tmp_path, text="identity.keys = { a = 'K', b = 'K' }")


@pytest.mark.parametrize(
    ("text", "unknown", "nearest"),
    [
        ("prot = 1", "prot", "port"),
        ("read_timeout = 1", "read_timeout", "upstream.read_timeout"),
        ("upstream.api_key = 'x'", "upstream.api_key", "upstream.api_key_env"),
        ("upstream.port = 1", "upstream.port", "port"),
        ("upstream.timeout = 1", "upstream.timeout", "upstream.read_timeout"),
        ("[upsteam]\nurl = ''", "upsteam", "upstream"),
    ],
)
def test_an_unknown_key_is_reported_with_the_nearest_one(text, unknown, nearest, tmp_path):
    message = message_of(tmp_path, text=text)
    file = tmp_path / "ctxpager.toml"
    assert message == f"file {file}: {unknown} is not a setting; the nearest one is {nearest}"


def test_an_unknown_key_like_no_other_is_reported_with_all_there_are(tmp_path):
    message = message_of(tmp_path, text="'a b' = 1")
    assert '"a b" is not a setting; the settings are host, port,' in message


def test_an_unknown_flag_is_reported(tmp_path):
    message = message_of(tmp_path, flags={"prot": "1"})
    assert message == "flag --prot: prot is not a setting; the nearest one is port"


def test_a_value_in_place_of_a_table_is_reported_with_the_tables_keys(tmp_path):
    message = message_of(tmp_path, text="upstream = 'http://h/v1'")
    assert 'upstream: found "http://h/v1"; allowed: a table, with the keys upstream.url, upstream.chat' in message


def test_an_unknown_variable_is_reported_with_the_nearest_one_but_not_its_value(tmp_path):
    message = message_of(tmp_path, env={"CTXPAGER_UPSTREAM_CHATS": "hunter2"})
    assert message == (
        "environment CTXPAGER_UPSTREAM_CHATS is not a setting; the nearest one is CTXPAGER_UPSTREAM_CHAT"
    )
    assert "the settings are CTXPAGER_HOST," in message_of(tmp_path, env={"CTXPAGER_ZZZ": "1"})


@pytest.mark.parametrize("name", ["CTXPAGER_RECORDINGS", "CTXPAGER_KILLS", "PORT", "ctxpager_port"])
def test_variables_of_others_are_left_alone(name, tmp_path):
    assert in_layers(tmp_path, env={name: "anything"}).settings == Settings()


def test_a_variable_that_holds_a_key_may_begin_as_a_setting_does(tmp_path):
    env = {"CTXPAGER_MY_KEY": "s", "CTXPAGER_TEAM": "t", "CTXPAGER_UPSTREAM_API_KEY_ENV": "CTXPAGER_MY_KEY"}
    loaded = in_layers(tmp_path, text="identity.keys = { team = 'CTXPAGER_TEAM' }", env=env)
    assert loaded.settings.upstream.api_key_env == "CTXPAGER_MY_KEY"
    assert "CTXPAGER_TEAM is not a setting" in message_of(tmp_path, env=env)


def test_the_variables_of_a_kubernetes_service_are_left_alone(tmp_path):
    env = {
        "CTXPAGER_PORT": "tcp://10.0.0.1:8787",
        "CTXPAGER_PORT_8787_TCP_ADDR": "10.0.0.1",
        "CTXPAGER_SERVICE_HOST": "10.0.0.1",
        "CTXPAGER_SERVICE_PORT_HTTP": "8787",
    }
    loaded = in_layers(tmp_path, env=env)
    assert loaded.settings.port == 8787
    assert loaded.origin["port"] == "default"


def test_all_problems_are_in_one_message(tmp_path):
    message = message_of(
        tmp_path,
        text="port = 'abc'\nhots = 1",
        env={"CTXPAGER_LOG_LEVEL": "loud", "CTXPAGER_NOPE": "1"},
        flags={"max_body_mib": "0"},
    )
    first, *rest = message.splitlines()
    assert first == "5 problems in the configuration:"
    for part in ("port: found", "hots is not", "log_level: found", "CTXPAGER_NOPE is not", "max_body_mib: found"):
        assert sum(part in line for line in rest) == 1


def test_a_missing_file_and_a_wrong_flag_are_reported_together(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load({"config": "gone.toml", "port": "x"}, cwd=tmp_path, env={}, config_dir=tmp_path)
    assert "gone.toml" in str(caught.value)
    assert "flag --port" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"port = 1\nport 2\n", 2), (b"a = 1\nb = 2\na = 3\n", 3), (b'a = 1\nb = """', 2), (b"a = 1\n\nb = '\xff'", 3)],
)
def test_a_file_that_is_not_toml_is_reported_with_file_and_line(content, line, tmp_path):
    file = tmp_path / "ctxpager.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load({}, cwd=tmp_path, env={}, config_dir=tmp_path)
    assert str(caught.value).startswith(f"file {file}: ")
    assert f"line {line}" in str(caught.value)


def test_a_file_with_a_byte_order_mark_is_read(tmp_path):
    assert in_layers(tmp_path, text="\ufeffport = 4").settings.port == 4


def test_a_file_name_that_is_too_long_is_no_file(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load({"config": "x" * 5000}, cwd=tmp_path, env={}, config_dir=tmp_path)


@pytest.mark.skipif(not Path("/proc/self/mem").is_file(), reason="needs a file that even root can't read")
def test_a_file_that_cannot_be_read_is_reported(tmp_path):
    with pytest.raises(ConfigError, match=r"^file /proc/self/mem: can't be read: "):
        load({"config": "/proc/self/mem"}, cwd=tmp_path, env={}, config_dir=tmp_path)


@given(values=SOME_SETTINGS)
def test_what_is_printed_gives_the_same_settings_back(values, tmp_path_factory):
    folder = tmp_path_factory.mktemp("render")
    loaded = in_layers(folder, flags=values)
    again = in_layers(folder, text=render(loaded))
    assert again.settings == loaded.settings
    assert set(again.origin.values()) == {f"file {folder / 'ctxpager.toml'}"}


def test_what_is_printed_names_each_values_origin_in_one_column(tmp_path):
    printed = render(in_layers(tmp_path, text="port = 1\n[models.'a.b']\nwindow = 3", env={"CTXPAGER_HOST": "h"}))
    lines = printed.splitlines()
    assert len({line.index("  # ") for line in lines if "  # " in line}) <= 3
    assert any(line.startswith("port = 1 ") and line.endswith(f"# file {tmp_path / 'ctxpager.toml'}") for line in lines)
    assert any(line.startswith('host = "h" ') and line.endswith("# environment CTXPAGER_HOST") for line in lines)
    assert any(line.startswith("[identity.keys] ") and line.endswith("# default") for line in lines)
    assert '"a.b" = { window = 3 }' in lines
    assert sum("#" in line for line in lines) == len(KEYS)


def test_a_strange_file_name_cannot_break_what_is_printed(tmp_path):
    file = tmp_path / "a\nport = 9 #.toml"
    file.write_text("port = 1")
    printed = render(load({"config": str(file)}, cwd=tmp_path, env={}, config_dir=tmp_path))
    assert tomllib.loads(printed)["port"] == 1


def test_the_example_has_every_setting_and_gives_the_defaults(tmp_path):
    loaded = in_layers(tmp_path, text=example())
    assert loaded.settings == Settings()
    assert [name for name, origin in loaded.origin.items() if origin == "default"] == ["data_dir"]
    assert "# data_dir = (the platform's user data folder)" in example().splitlines()
    assert max(len(line) for line in example().splitlines()) <= 100


def test_the_examples_of_tables_in_the_example_are_right(tmp_path):
    shown = [line for key in KEYS for line in key.field.examples or ()]
    text = example()
    for line in shown:
        assert f"# {line}\n" in text
        text = text.replace(f"# {line}\n", f"{line}\n")
    settings = in_layers(tmp_path, text=text).settings
    assert settings.identity.keys == {"team-a": "TEAM_A_PROXY_KEY"}
    assert settings.models == {"my-model": {"window": 200000, "output_limit": 32000}}


def test_every_setting_has_a_description_with_a_reason_and_a_variable_and_flag_of_its_own():
    for key in KEYS:
        assert key.description.count(". ") >= 1, key.name
        assert key.description.endswith("."), key.name
        assert key.words.allowed, key.name
    assert len({key.variable for key in KEYS}) == len({key.flag for key in KEYS}) == len(KEYS)
    assert {key.name: key.flag for key in KEYS}["upstream.url"] == "--upstream"


def test_the_documentation_is_what_the_settings_say():
    documented = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    assert documented == reference(), "run: python -m pager.config.reference > docs/config.md"
    for key in KEYS:
        assert f"### `{key.name}`\n\n{key.description}\n" in documented


def test_the_command_in_the_documentation_makes_it():
    command = [sys.executable, "-m", "pager.config.reference"]
    made = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, text=True)
    assert made.stdout == reference()
    assert "python -m pager.config.reference > docs/config.md" in made.stdout


def test_the_documentation_names_no_folder_of_this_machine():
    assert str(Path.home()) not in reference()
    assert str(Path.home()) not in example()


@pytest.mark.parametrize(
    ("store", "url"),
    [
        ("sqlite", "sqlite:/data"),  # as it was written before stores had URLs
        ("sqlite:", "sqlite:/data"),
        ("sqlite:/elsewhere", "sqlite:/elsewhere"),
        ("memory", "memory:/data"),
    ],
)
def test_a_store_without_an_address_is_kept_in_the_data_folder(store, url):
    assert Settings(data_dir="/data", store=store).store_url == url
