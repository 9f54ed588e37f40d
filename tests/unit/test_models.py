"""The table of models: finding a name, price ratios, overrides, and the script that makes it."""

import dataclasses
import importlib.util
import json
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.errors import ConfigError
from pager.paging.policy import Prices
from pager.pricing.catalog import (
    Catalog,
    Model,
    forms,
    shipped_rules,
)
from pager.pricing.provider_cache import Cache, CacheKind
from pager.pricing.rates import (
    _OVERRIDABLE,
    NAMED,
    Models,
    Overrides,
    named_prices,
    overrides,
    parsed_overrides,
    prices,
)
from pager.pricing.tokens import CLAUDE_SINCE_4_7

PROVIDERS = ["anthropic", "openai", "elsewhere", "bedrock"]
ROWS = {
    "claude-large-5": [0, 1_000_000, 128_000, 5, 25, 0.5, 6.25, 10],
    "claude-large-4-5": [0, 200_000, 64_000, 5, 25, 0.5, 6.25, 10],
    "us.anthropic.claude-old-20240229-v1:0": [3, 200_000, 4_096, 15, 75],
    "gpt-5": [1, 272_000, 128_000, 1.25, 10, 0.125],
    "gpt-4": [1, 8_192, 4_096, 30, 60],
    "gpt-4o": [1, 128_000, 16_384, 2.5, 10, 1.25],
    "gpt-4o-2024-05-13": [1, 128_000, 4_096, 5, 15],
    "gpt-6": [1, 922_000, 128_000, 4, 20, 0.4, 5],
    "elsewhere/gpt-5": [2, 100_000],
    "elsewhere/anthropic/claude-large-4-5": [2, 100_000, None, 9],
    "elsewhere/llm-9b": [2, 32_768, None, 0.1, 0.2],
    "elsewhere/free-1": [2, 32_768, None, 0, 0],
    "elsewhere/chat": [2, 4_096],
    "elsewhere/odd-1": [2, None, None, 2, 4, 0.2, 0],
    "elsewhere/long-1": [2, None, None, 0.1, 0.5, 0.01, 0.125, None, 100_000, 5.0, 4.0],
}


@pytest.fixture(scope="module")
def small():
    return Models(Catalog(ROWS, PROVIDERS, "2026-01-01", "hand", {}, shipped_rules()))


@pytest.fixture(scope="module")
def shipped():
    return Models.load()


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("gpt-5", "gpt-5"),
        ("openai/gpt-5", "gpt-5"),
        ("openrouter/openai/gpt-5", "gpt-5"),
        ("GPT-5", "gpt-5"),
        ("elsewhere/gpt-5", "elsewhere/gpt-5"),
        ("openai/gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("gpt-4o-2031-01-01", "gpt-4o"),
        ("gpt-5-latest", "gpt-5"),
        ("gpt-4-0314", "gpt-4"),
        ("gpt-5-codex:high", "gpt-5"),
        ("anthropic/claude-large-4-5", "claude-large-4-5"),
        ("claude-large-4.5", "claude-large-4-5"),
        ("claude-large-4-5-20250929", "claude-large-4-5"),
        ("vertex_ai/claude-large-4-5@20250929", "claude-large-4-5"),
        ("bedrock/eu.anthropic.claude-large-4-5-20250929-v1:0", "claude-large-4-5"),
        ("claude-old", "us.anthropic.claude-old-20240229-v1:0"),
        ("claude-old-20240229", "us.anthropic.claude-old-20240229-v1:0"),
        ("llm-9b", "elsewhere/llm-9b"),
        ("claude-large-5-1", "claude-large-5"),
    ],
)
def test_a_model_is_found_however_its_name_is_written(small, asked, found):
    model = small.find(asked)
    assert (model.name, model.known) == (found, True)


@pytest.mark.parametrize("asked", ["gpt-4.9", "chat", "gpt-7", "llm", "", "/", "-", "no-such-model"])
def test_an_unknown_model_has_the_default_window_and_no_prices(small, asked):
    found = small.find(asked)
    assert (found.name, found.window, found.input, found.known) == (asked, 128_000, None, False)


def test_an_unknown_claude_still_needs_marks(small):
    assert small.find("claude").cache_kind is CacheKind.MARKED


def test_a_row_becomes_a_model(small):
    assert small.find("claude-large-5") == Model(
        *("claude-large-5", "anthropic", 1_000_000, 128_000, 5, 25, 0.5, 6.25, 10, 300.0, CacheKind.MARKED),
        cache_seconds_long=3_600.0,
        price_list="anthropic",
        family=CLAUDE_SINCE_4_7,
        known=True,
    )
    assert small.find("elsewhere/gpt-5").window == 100_000
    assert small.find("odd-1").window == 128_000


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("claude-large-5", Prices(0.1, 1.25, 5.0, 300.0, 2.0)),
        ("gpt-5", Prices(0.1, 1.0, 8.0, 600.0, 1.0)),
        ("gpt-4o", Prices(0.5, 1.0, 4.0, 600.0, 1.0)),
        ("gpt-6", Prices(0.1, 1.25, 5.0, 1_800.0, 1.25)),
        ("gpt-4", Prices(1.0, 1.0, 2.0, 0.0, 1.0)),
        ("elsewhere/llm-9b", Prices(1.0, 1.0, 2.0, 0.0, 1.0)),
        ("elsewhere/odd-1", Prices(0.1, 1.0, 2.0, 3_600.0, 1.0)),
        ("elsewhere/long-1", Prices(0.1, 1.25, 5.0, 3_600.0, 1.25, 100_000, 5.0, 4.0)),
        ("elsewhere/free-1", NAMED["none"]),
        ("claude-unheard-of", NAMED["anthropic"]),
        ("elsewhere/gpt-5", NAMED["openai"]),
        ("no-such-model", NAMED["none"]),
    ],
)
def test_prices_are_ratios_to_plain_input(small, asked, expected):
    found = small.prices(asked)
    assert dataclasses.astuple(found) == pytest.approx(dataclasses.astuple(expected))


def test_a_prompt_above_the_step_costs_more_for_each_of_its_tokens_and_of_its_answer(small):
    found = small.prices("elsewhere/long-1")
    assert [found.factors(tokens) for tokens in (100_000, 100_001)] == [(1.0, 1.0), (5.0, 4.0)]
    assert small.prices("gpt-5").factors(10**9) == (1.0, 1.0)


money = st.none() | st.floats(0, 1e4)


@given(money, money, money, money, money)
def test_reading_never_costs_more_than_input_and_writing_never_less(cost, output, cached, written, hourly):
    model = Model("m", input=cost, output=output, cached=cached, written=written, written_1h=hourly)
    found = prices(model)
    assert 0.0 <= found.read <= 1.0 <= found.write <= found.write_long
    assert found.output >= 0.0


@given(st.text(max_size=40))
def test_any_text_may_be_a_models_name(small, name):
    assert small.find(name).window > 0
    assert len(list(forms(name))) < 50


# The shipped table.


def test_the_shipped_table_says_when_and_from_what_it_was_made(shipped):
    notice = resources.files("pager.pricing").joinpath("data", "NOTICE").read_text()
    assert shipped.catalog.date in notice
    assert shipped.catalog.source in notice
    assert len(shipped.catalog.rows) > 2_000


def test_the_shipped_table_is_small():
    assert len(resources.files("pager.pricing").joinpath("data", "models.json").read_bytes()) < 300_000


def test_every_shipped_row_becomes_a_sound_model(shipped):
    for name in shipped.catalog.rows:
        model = shipped.find(name)
        assert (model.name, model.known) == (name, True)
        assert model.window > 0
        assert model.provider in shipped.catalog.providers
        assert shipped.prices(name).read <= 1.0


@pytest.mark.parametrize(
    ("asked", "window", "read", "write", "ttl"),
    [
        ("claude-opus-4-7", 1_000_000, 0.1, 1.25, 300),
        ("anthropic/claude-sonnet-4-5", 200_000, 0.1, 1.25, 300),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000, 0.1, 1.25, 300),
        ("gpt-4o", 128_000, 0.5, 1.0, 600),
        ("openai/gpt-5", 272_000, 0.1, 1.0, 600),
        ("o3", 200_000, 0.25, 1.0, 600),
        ("gpt-5.6", 922_000, 0.1, 1.25, 1_800),
        ("deepseek-chat", 131_072, 0.1, 1.0, 86_400),
    ],
)
def test_the_shipped_table_knows_the_usual_models(shipped, asked, window, read, write, ttl):
    found = shipped.prices(asked)
    assert shipped.find(asked).window == window
    assert (found.read, found.write, found.ttl_seconds) == pytest.approx((read, write, ttl))


@pytest.mark.parametrize(
    ("asked", "step"),
    [
        ("claude-haiku-5-5", (100_000, 5.0, 5.0)),
        ("us.anthropic.claude-haiku-5-5-v1:0", (100_000, 5.0, 5.0)),
        ("gemini-2.5-pro", (200_000, 2.0, 1.5)),
        ("gpt-5.6", (272_000, 2.0, 1.5)),
        ("claude-opus-5-5", (0, 1.0, 1.0)),
    ],
)
def test_the_shipped_table_knows_from_which_length_on_prompts_cost_more(shipped, asked, step):
    found = shipped.prices(asked)
    assert (found.step_tokens, found.step_factor, found.step_output) == step


# Caches.


@pytest.mark.parametrize(
    ("asked", "cache"),
    [
        ("claude-opus-5", Cache(CacheKind.MARKED, 512)),
        ("claude-opus-4-8", Cache(CacheKind.MARKED, 1_024)),
        ("claude-haiku-4-5", Cache(CacheKind.MARKED, 4_096)),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", Cache(CacheKind.MARKED, 1_024)),
        ("gpt-5.6", Cache(CacheKind.AUTOMATIC, 1_024)),
        ("gemini-2.5-pro", Cache(CacheKind.AUTOMATIC, 2_048)),
        ("deepseek-chat", Cache(CacheKind.AUTOMATIC, 64)),
        ("gpt-4", Cache(CacheKind.NONE, 0)),
        ("no-such-model", Cache(CacheKind.NONE, 0)),
    ],
)
def test_the_cache_in_force_is_the_documented_one_where_reading_it_is_cheaper(shipped, asked, cache):
    assert shipped.cache(asked) == cache


def test_every_shipped_model_has_a_cache_or_counts_every_token(shipped):
    for name in shipped.catalog.rows:
        found, cache = shipped.prices(name), shipped.cache(name)
        assert (cache.kind is CacheKind.NONE) == (found.read == 1.0)


def test_a_named_price_list_says_too_whether_there_is_a_cache(small):
    assert small.using(NAMED["anthropic"]).cache("gpt-4") == Cache(CacheKind.AUTOMATIC, 0)
    assert small.using(NAMED["none"]).cache("gpt-5") == Cache(CacheKind.NONE, 0)


def test_a_user_can_say_how_the_provider_caches(small):
    text = "[models.'gpt-5']\ncache_kind = 'none'\n[models.'gpt-4o']\ncache_kind = 'marked'\ncache_minimum = 128\n"
    table = small.using(parsed_overrides(text + "[models.'gpt-4']\ncached = 3", origin="p.toml"))
    assert table.prices("gpt-5") == Prices(1.0, 1.0, 8.0, 0.0, 1.0)
    assert table.cache("gpt-5").kind is CacheKind.NONE
    assert table.cache("gpt-4o") == Cache(CacheKind.MARKED, 128)
    assert table.cache("gpt-4") == Cache(CacheKind.AUTOMATIC, 1_024)


# --prices.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("anthropic", Prices(0.1, 1.25, 5.0, 300.0, 2.0)),
        ("claude-5.5", Prices(0.05, 1.25, 5.0, 300.0, 2.0)),
        ("claude-fable-5.1", Prices(0.025, 1.25, 5.0, 300.0, 2.0)),
        ("gpt-5.6", Prices(0.1, 1.25, 5.0, 1_800.0, 1.25)),
        ("openai", Prices(0.1, 1.0, 8.0, 600.0, 1.0)),
        ("none", Prices(1.0, 1.0, 5.0, 0.0, 1.0)),
    ],
)
def test_a_named_price_list_stands_for_every_model(small, name, expected):
    assert named_prices(name) == expected
    table = small.using(named_prices(name))
    assert {table.prices(model) for model in (*ROWS, "no-such-model")} == {expected}
    assert table.find("gpt-5") == small.find("gpt-5")


FILE = """
[models."gpt-5"]
input = 2.5
window = 64000

[models."mine-*"]
window = 32768
input = 1
output = 2

[models."mine-large"]
cached = 0.25
written = 1.5
cache_seconds = 60
"""


@pytest.mark.parametrize("kind", ["toml", "json"])
def test_a_file_overrides_the_table_model_by_model(small, tmp_path, kind):
    path = tmp_path / f"prices.{kind}"
    data = dict(parsed_overrides(FILE, origin="").models)
    path.write_text(FILE if kind == "toml" else json.dumps({"models": data}))
    table = small.using(named_prices(str(path)))
    assert table.find("openai/gpt-5") == dataclasses.replace(small.find("gpt-5"), input=2.5, window=64_000)
    assert table.prices("gpt-5").read == pytest.approx(0.05)
    assert table.find("mine-small") == Model("mine-small", window=32_768, input=1, output=2, known=True)
    assert table.prices("mine-large") == Prices(0.25, 1.5, 2.0, 60.0, 1.5)
    assert table.find("gpt-4o") == small.find("gpt-4o")


def test_the_closest_override_wins(small):
    given = Overrides({"*": {"window": 1}, "gpt-*": {"window": 2}, "gpt-4*": {"window": 3}, "gpt-4": {"window": 4}})
    table = small.using(given)
    assert [table.find(name).window for name in ("gpt-4", "gpt-4o", "gpt-5", "other")] == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("models = 3", "p.toml: models: must be a table, found 3"),
        ("[model.x]\ninput = 3", "p.toml: model: unknown key; allowed is [models.NAME]"),
        ("[models]\nx = 3", "p.toml: models.x: must be a table, found 3"),
        (
            "[models.x]\ninputs = 3",
            "p.toml: models.x.inputs: unknown key; allowed are window, output_limit, input, output, ",
        ),
        (
            "[models.x]\ninput = '3'",
            "p.toml: models.x.input: must be a number of US dollars per million tokens from 0, found",
        ),
        (
            "[models.x]\ninput = -1",
            "p.toml: models.x.input: must be a number of US dollars per million tokens from 0, found",
        ),
        (
            "[models.x]\ninput = nan",
            "p.toml: models.x.input: must be a number of US dollars per million tokens from 0, found",
        ),
        (
            "[models.x]\ninput = true",
            "p.toml: models.x.input: must be a number of US dollars per million tokens from 0",
        ),
        (
            "[models.x]\ncache_seconds = []",
            "p.toml: models.x.cache_seconds: must be a number of seconds from 0, found []",
        ),
        ("[models.x]\nwindow = 0", "p.toml: models.x.window: must be a whole number of tokens from 1, found 0"),
        ("[models.x]\nwindow = 1.5", "p.toml: models.x.window: must be a whole number of tokens from 1, found 1.5"),
        (
            "[models.x]\ncache_minimum = 0",
            "p.toml: models.x.cache_minimum: must be a whole number of tokens from 1, found 0",
        ),
        (
            "[models.x]\ncache_kind = 'auto'",
            "p.toml: models.x.cache_kind: must be one of automatic, marked, none, found 'auto'",
        ),
        (
            "[models.x]\ncache_kind = []",
            "p.toml: models.x.cache_kind: must be one of automatic, marked, none, found []",
        ),
        (
            "[models.x]\nstep_tokens = 0.5",
            "p.toml: models.x.step_tokens: must be a whole number of tokens from 0, found 0.5",
        ),
        ("[models.x]\nstep_factor = -1", "p.toml: models.x.step_factor: must be a number from 0, found -1"),
        ("[models.x", "p.toml: is not valid TOML: "),
    ],
)
def test_a_wrong_file_is_told_with_file_key_and_what_is_allowed(text, told):
    with pytest.raises(ConfigError) as raised:
        parsed_overrides(text, origin="p.toml")
    assert str(raised.value).startswith(told)


@pytest.mark.parametrize(("text", "told"), [("{", "p.json: is not valid JSON: "), ("[]", "p.json: must be a table")])
def test_wrong_json_is_told_too(text, told):
    with pytest.raises(ConfigError) as raised:
        parsed_overrides(text, origin="p.json", is_json=True)
    assert str(raised.value).startswith(told)


def test_a_file_that_is_not_there_is_told_with_what_is_allowed(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml.*allowed are anthropic, .*, none or a TOML or JSON file"):
        named_prices(str(tmp_path / "nowhere.toml"))


def test_a_file_that_is_no_text_is_told(tmp_path):
    (tmp_path / "p.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="can't be read"):
        named_prices(str(tmp_path / "p.toml"))


def test_a_price_without_the_input_price_it_is_a_ratio_to_is_told(small):
    with pytest.raises(ConfigError, match=r"p\.toml: models\.mine\.input: missing"):
        small.using(overrides({"models": {"mine": {"cached": 1}}}, origin="p.toml"))


def test_every_key_of_a_file_is_one_of_a_model_and_is_documented():
    assert set(_OVERRIDABLE) <= {field.name for field in dataclasses.fields(Model)}
    docs = Path(__file__).parents[2].joinpath("docs", "models.md").read_text()
    assert all(f"| `{key}` |" in docs for key in _OVERRIDABLE)


# The script.


@pytest.fixture(scope="module")
def script():
    path = Path(__file__).parents[2] / "scripts" / "make_models.py"
    spec = importlib.util.spec_from_file_location("make_models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_keeps_what_is_needed_and_sorts_it(script):
    source = {
        "b": {
            "mode": "chat",
            "litellm_provider": "two",
            "max_input_tokens": 1_000,
            "max_output_tokens": 100,
            "max_tokens": 100,
            "input_cost_per_token": 3e-06,
            "output_cost_per_token": 1.5e-05,
            "cache_read_input_token_cost": 3e-07,
            "cache_creation_input_token_cost": 3.75e-06,
            "cache_creation_input_token_cost_above_1hr": 6e-06,
            "input_cost_per_token_above_200k_tokens": 6e-06,
            "input_cost_per_token_above_512k_tokens": 9e-06,
            "output_cost_per_token_above_200k_tokens": 2.25e-05,
            "input_cost_per_token_above_100k_tokens_batches": 1e-06,
        },
        "a": {
            "mode": "responses",
            "litellm_provider": "one",
            "max_tokens": 500,
            "input_cost_per_token_cache_hit": 1e-08,
        },
        "c": {
            "mode": "chat",
            "litellm_provider": "one",
            "max_output_tokens": 9,
            "max_tokens": 9,
            "input_cost_per_token": 0,
        },
        "picture": {"mode": "image_generation", "litellm_provider": "one", "max_input_tokens": 5},
        "container": {"mode": "chat", "litellm_provider": "three"},
    }
    assert script.table(source, version="1.2.3", day="2026-01-02") == {
        "date": "2026-01-02",
        "source": "litellm 1.2.3",
        "providers": ["one", "two"],
        "models": {
            "a": [0, 500, None, None, None, 0.01],
            "b": [1, 1_000, 100, 3, 15, 0.3, 3.75, 6, 200_000, 2.0, 1.5],
            "c": [0, None, 9, 0],
        },
    }
