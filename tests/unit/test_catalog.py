"""The catalogue of models: finding a name, what rules by name and provider say, and where each fact is from."""

import dataclasses
import re
from datetime import date
from pathlib import Path

import pytest

from pager.paging.policy import Prices
from pager.pricing.catalog import (
    Catalog,
    Model,
    family_of,
    read_kept,
    shipped_rules,
)
from pager.pricing.provider_cache import Cache, CacheKind
from pager.pricing.rates import NAMED, Models
from pager.pricing.tokens import (
    CL100K,
    CLAUDE,
    CLAUDE_SINCE_4_7,
    O200K,
    UNKNOWN,
)

AUTOMATIC, MARKED, NONE = CacheKind
PROVIDERS = ["anthropic", "openai", "elsewhere", "bedrock"]


@pytest.fixture(scope="module")
def shipped():
    return Catalog.load()


def entry(name, provider):
    """The entry of a model of which the generated table has no more than its name and provider."""
    return Catalog({name: [0]}, [provider], "2026-01-01", "hand", {}, shipped_rules()).find(name)


# Of November 2026, in dollars per million tokens: input, output, written, written for an hour, read.
@pytest.mark.parametrize(
    ("name", "dollars", "minimum", "step"),
    [
        ("claude-fable-5-2", (8, 40, 10, 16, 0.2), 512, (0, 1.0, 1.0)),
        ("anthropic/claude-fable-5.2", (8, 40, 10, 16, 0.2), 512, (0, 1.0, 1.0)),
        ("us.anthropic.claude-fable-5-2-v1:0", (8, 40, 10, 16, 0.2), 512, (0, 1.0, 1.0)),
        ("claude-fable-5-1", (10, 50, 12.5, 20, 0.25), 512, (0, 1.0, 1.0)),
        ("claude-opus-5-5", (4, 20, 5, 8, 0.2), 512, (0, 1.0, 1.0)),
        ("claude-sonnet-5-5", (2, 10, 2.5, 4, 0.1), 512, (0, 1.0, 1.0)),
        ("claude-haiku-5-5", (0.1, 0.5, 0.125, 0.2, 0.01), 1_024, (100_000, 5.0, 5.0)),
        ("claude-opus-5", (5, 25, 6.25, 10, 0.5), 512, (0, 1.0, 1.0)),
        ("claude-opus-4-8", (5, 25, 6.25, 10, 0.5), 1_024, (0, 1.0, 1.0)),
        ("claude-opus-4-5", (5, 25, 6.25, 10, 0.5), 4_096, (0, 1.0, 1.0)),
        ("gpt-5.6", (4, 20, 5, None, 0.4), 1_024, (272_000, 2.0, 1.5)),
    ],
)
def test_the_prices_of_current_models_are_those_that_their_makers_ask(shipped, name, dollars, minimum, step):
    found = shipped.find(name)
    assert (found.input, found.output, found.written, found.written_1h, found.cached) == dollars
    assert found.cache_minimum == minimum
    assert (found.step_tokens, found.step_factor, found.step_output) == step
    assert found.window >= 200_000
    assert found.known


def test_an_entry_has_every_fact_of_a_model_and_says_where_it_is_from(shipped):
    found = shipped.find("claude-fable-5-2")
    assert (found.window, found.output_limit, found.provider) == (1_000_000, 128_000, "anthropic")
    assert (found.cache_kind, found.cache_seconds, found.cache_seconds_long) == (MARKED, 300.0, 3_600.0)
    assert (found.binds_thinking, found.family) == (True, CLAUDE_SINCE_4_7)
    assert any("9 November 2026" in source for source in found.sources)
    assert "litellm 1.108.4, 2026-11-18" in shipped.find("gpt-5.6").sources


def test_a_model_kept_by_hand_stands_over_the_generated_table_and_over_the_rules():
    rows = {"claude-large-5": [0, 200_000, 64_000, 5, 25, 0.5, 6.25, 10]}
    kept = {
        "claude-large-5": {"provider": "anthropic", "cached": 0.25, "cache_minimum": 64, "source": "s", "date": "d"}
    }
    catalog = Catalog(rows, PROVIDERS, "2026-01-01", "hand", kept, shipped_rules())
    found = catalog.find("anthropic/claude-large-5")
    assert (found.cached, found.input, found.cache_minimum, found.window) == (0.25, 5, 64, 200_000)
    assert found.sources[-2:] == ("hand, 2026-01-01", "s, d")


def test_rules_go_by_the_name_asked_for_where_only_its_beginning_is_known(shipped):
    found = shipped.find("claude-opus-5-7")
    assert (found.name, found.binds_thinking) == ("claude-opus-5", True)


def test_a_name_that_no_rule_knows_has_what_the_rules_say_of_the_one_it_means():
    catalog = Catalog({"us.amazon.nova-mine-2-v1:0": [3]}, PROVIDERS, "2026-01-01", "hand", {}, shipped_rules())
    assert catalog.find("nova-mine-2").cache_kind is MARKED


def test_what_is_kept_by_hand_names_its_source_and_its_day_and_only_what_an_entry_has():
    fields = {one.name for one in dataclasses.fields(Model)}
    kept = read_kept()
    for facts in (*kept["rules"], *kept["models"].values()):
        assert date(2026, 1, 1) < date.fromisoformat(facts["date"])
        assert facts["source"]
        assert facts.keys() - {"since", "before", "source", "date"} <= fields
        assert facts.get("price_list", "none") in NAMED
        if "since" in facts or "before" in facts:
            assert re.compile(facts["name"]).groups == 2
    docs = Path(__file__).parents[2].joinpath("docs", "models.md").read_text()
    assert all(f"`{one.name}`" in docs for one in dataclasses.fields(Model) if one.name not in {"name", "known"})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chatgpt/gpt-5.6-sol", "gpt-5.6"),
        ("gpt-7", "gpt-5.6"),
        ("chatgpt/gpt-5.5", "openai"),
        ("gpt-35-turbo-mine", "openai"),
        ("claude-opus-9-9", "claude-5.5"),
        ("claude-fable-9-1", "claude-fable-5.1"),
        ("claude", "anthropic"),
        ("no-such-model", "none"),
    ],
)
def test_a_model_without_a_price_has_the_ratios_of_its_kind(name, expected):
    catalog = Catalog({}, PROVIDERS, "2026-01-01", "hand", {}, shipped_rules())
    assert Models(catalog).prices(name) == NAMED[expected]


def test_an_hour_costs_what_anthropic_asks_where_the_table_does_not_say():
    rows = {"claude-large-5": [0, None, None, 5, 25, 0.5, 6.25], "gpt-5": [1, None, None, 1.25, 10, 0.125]}
    table = Models(Catalog(rows, PROVIDERS, "2026-01-01", "hand", {}, shipped_rules()))
    assert table.prices("claude-large-5") == Prices(0.1, 1.25, 5.0, 300.0, 2.0)
    assert table.prices("gpt-5") == Prices(0.1, 1.0, 8.0, 600.0, 1.0)


@pytest.mark.parametrize(
    ("name", "provider", "cache"),
    [
        ("claude-opus-5", "anthropic", Cache(MARKED, 512)),
        ("claude-opus-5-20260724", "anthropic", Cache(MARKED, 512)),
        ("claude-opus-5-5", "anthropic", Cache(MARKED, 512)),
        ("claude-sonnet-5.5", "anthropic", Cache(MARKED, 512)),
        ("us.anthropic.claude-fable-5-1-v1:0", "bedrock", Cache(MARKED, 512)),
        ("claude-fable-5-2", "anthropic", Cache(MARKED, 512)),
        ("claude-haiku-5-5", "anthropic", Cache(MARKED, 1_024)),
        ("claude-opus-4-8", "anthropic", Cache(MARKED, 1_024)),
        ("claude-sonnet-4-20250514", "anthropic", Cache(MARKED, 1_024)),
        ("claude-opus-4.7", "github_copilot", Cache(MARKED, 2_048)),
        ("claude-3-5-haiku-20241022", "anthropic", Cache(MARKED, 2_048)),
        ("us.anthropic.claude-opus-4-6-20260205-v1:0", "bedrock", Cache(MARKED, 4_096)),
        ("vertex_ai/claude-haiku-4-5@20251001", "vertex_ai-anthropic_models", Cache(MARKED, 4_096)),
        ("us.amazon.nova-pro-v1:0", "bedrock_converse", Cache(MARKED, 1_024)),
        ("gpt-5.6", "openai", Cache(AUTOMATIC, 1_024)),
        ("xai/grok-4.20", "xai", Cache(AUTOMATIC, 1_024)),
        ("deepseek-chat", "deepseek", Cache(AUTOMATIC, 64)),
        ("minimax/MiniMax-M3", "minimax", Cache(AUTOMATIC, 512)),
        ("gemini-2.0-flash", "gemini", Cache(NONE)),
        ("gemini/gemini-2.5-flash", "gemini", Cache(AUTOMATIC, 2_048)),
        ("Gemini-2.5-Flash", "elsewhere", Cache(AUTOMATIC, 2_048)),
        ("gemini-3.6-flash", "vertex_ai-language-models", Cache(AUTOMATIC, 4_096)),
        ("gemini-flash-latest", "gemini", Cache(AUTOMATIC, 4_096)),
    ],
)
def test_the_documented_cache_follows_from_model_and_provider(name, provider, cache):
    found = entry(name, provider)
    assert Cache(found.cache_kind, found.cache_minimum) == cache


@pytest.mark.parametrize(
    ("name", "provider", "seconds", "long"),
    [
        ("claude-opus-5", "bedrock", 300.0, 3_600.0),
        ("gpt-5", "openai", 600.0, None),
        ("gpt-5.5", "openai", 600.0, None),
        ("gpt-35-turbo", "azure", 600.0, None),
        ("gpt-5.6-sol", "openai", 1_800.0, None),
        ("gpt-6", "openai", 1_800.0, None),
        ("deepseek-chat", "deepseek", 86_400.0, None),
        ("groq/openai/gpt-oss-120b", "groq", 7_200.0, None),
        ("elsewhere/gpt-oss-120b", "elsewhere", 3_600.0, None),
        ("moonshot/kimi-k3", "moonshot", 300.0, 3_600.0),
        ("moonshot/kimi-k2.6", "moonshot", None, None),
        ("elsewhere/llm-9b", "elsewhere", None, None),
    ],
)
def test_the_documented_lifetimes_follow_from_model_and_provider(name, provider, seconds, long):
    found = entry(name, provider)
    assert (found.cache_seconds, found.cache_seconds_long) == (seconds, long)


@pytest.mark.parametrize(
    ("name", "binds"),
    [
        ("claude-fable-5-1", True),
        ("us.anthropic.claude-mythos-5-2-v1:0", True),
        ("claude-opus-5.5", True),
        ("claude-haiku-5-5-20261007", True),
        ("claude-opus-10", True),
        ("claude-haiku-6", True),
        ("anthropic/Claude-Sonnet-5.2", True),
        ("claude-opus-5", False),
        ("claude-opus-5-20260724", False),
        ("claude-opus-4-8", False),
        ("claude-3-5-sonnet-20241022", False),
        ("claude-haiku-20240307", False),
        ("gpt-5.6", False),
    ],
)
def test_a_models_version_tells_whether_it_binds_its_thinking(shipped, name, binds):
    assert shipped.find(name).binds_thinking is binds


FAMILIES = {
    O200K: """gpt-4o gpt-4o-2024-08-06 gpt-4.1-mini gpt-4.5-preview gpt-5 gpt-5.1-codex gpt-6-sol gpt-12 o1 o1-pro o3
        o4-mini chatgpt-4o-latest codex-mini-latest gpt-oss-120b openai/gpt-5 azure/eu/o3 ft:gpt-4o:org::id GPT-5
        openai.gpt-oss-20b-1:0 computer-use-preview my-gpt-5-deployment""",
    CL100K: """gpt-4 gpt-4-turbo gpt-4-32k gpt-4-0613 gpt-3.5-turbo gpt-35-turbo text-embedding-3-small openai/gpt-4
        ft:gpt-4""",
    CLAUDE: """claude-3-5-sonnet-20241022 claude-opus-4-20250514 claude-opus-4-1 claude-sonnet-4-5@20250929
        claude-sonnet-4.6 anthropic/claude-haiku-4-5 us.anthropic.claude-opus-4-6-v1 claude-2.1 claude-instant-1.2
        anthropic.claude-v2:1""",
    CLAUDE_SINCE_4_7: """claude-opus-4-7 claude-opus-4.8 claude-sonnet-5 claude-haiku-5-5 claude-mythos-preview
        claude-opus-10 bedrock/eu.anthropic.claude-opus-4-7 claude-opus-4-7-20260416 claude-opus-4-10""",
    UNKNOWN: "gemini-2.5-pro qwen3-coder deepseek-chat marco-o1 llama-3.1-8b solo1 kimi-k2 gpt-j-6b x",
}
CASES = [(name, family) for family, names in FAMILIES.items() for name in names.split()]


@pytest.mark.parametrize(("name", "family"), CASES, ids=[name for name, _ in CASES])
def test_a_models_name_tells_its_family(name, family):
    assert family_of(name) == family
