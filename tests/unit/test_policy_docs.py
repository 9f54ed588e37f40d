"""The page on policies: complete, and its example works; and what other pages say of sizes."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest
from msgspec import structs

from pager.paging.pages.page import (
    ERROR_CALLS,
    GRACE,
    PIN_HALF_LIFE,
    SMALLEST,
    SMALLEST_ARGUMENT,
    SMALLEST_STUB,
    STUB_TOKENS,
)
from pager.paging.policy import (
    Decision,
    PageView,
    Prices,
    View,
)
from pager.paging.policy_loader import load_policy, policy_names

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "policies.md").read_text()
PAGING = " ".join((ROOT / "docs" / "paging.md").read_text().split())
README = " ".join((ROOT / "README.md").read_text().split())
NUMBERS = dict(enumerate(["no", "one", "two", "three", "four", "five", "six", "seven", "eight"]))
DEAD = PageView("", "result", 400, 100, 40, 0, 0, 0, 5, 5, 0, 0, True, False, True, True)


def options(policy):
    """The arguments of a policy's class with their defaults."""
    return {name: parameter.default for name, parameter in inspect.signature(type(policy)).parameters.items()}


def documented_options(name):
    """The arguments and defaults in the table under a policy's heading, as written."""
    _, _, rest = PAGE.partition(f"\n### `{name}`\n")
    section, _, _ = rest.partition("\n##")
    assert section.strip(), f"docs/policies.md says nothing of {name}"
    return dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", section, re.MULTILINE))


def plain(value):
    return str(value).replace("_", "")


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_is_described_with_its_arguments_and_defaults(name):
    written = {option: plain(default) for option, default in documented_options(name).items()}
    assert written == {option: plain(default) for option, default in options(load_policy(name)).items()}


def test_every_field_that_a_policy_sees_or_says_is_described():
    described = set(re.findall(r"`(\w+)`", PAGE))
    seen = [PageView.__struct_fields__, *([one.name for one in fields(shown)] for shown in (View, Prices, Decision))]
    assert {name for names in seen for name in names} <= described


def test_the_example_loads_and_evicts_superseded_pages_only(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "superseded.py"
    path.write_text(example)
    pages = [
        structs.replace(DEAD, handle=handle, position=position, **traits)
        for position, (handle, traits) in enumerate(
            {
                "live": {"superseded": False},
                "pinned": {"pinned": True},
                "evicted": {"resident": False},
                "tiny": {"tokens": 40},
                "dead": {},
                "dead_too": {},
            }.items()
        )
    ]
    decision = load_policy(f"{path}:Superseded").choose(View(9, Prices(), True, 9_000, 0, 5_000, pages))
    assert decision == Decision(("dead", "dead_too"), 4, "2 pages were superseded")


def test_the_call_that_gives_options_works_as_written():
    (call,) = re.findall(r"`pager\.paging\.policy_loader\.(load_policy\(.+?\))`", PAGE)
    assert eval(call, {"load_policy": load_policy}).capacity == 40_000


def test_the_default_has_its_law_its_rule_and_its_regimes_described():
    assert "reuse · usual · (tokens / 1000)^growth / n" in PAGE
    for words in (
        "The law of need.",
        "The rule of thrift.",
        "A provider with a cache",
        "No cache at all",
        "Window first",
    ):
        assert f"**{words}**" in PAGE


def test_the_sizes_that_users_are_told_are_those_in_force():
    assert f"a tool's result, from {SMALLEST:,} bytes on" in PAGING
    assert f"one argument of a past tool call, from {SMALLEST_ARGUMENT:,} bytes on" in PAGING
    assert f"A stub has {SMALLEST_STUB} to {STUB_TOKENS} tokens at most" in PAGING
    assert f"stubs of at most {STUB_TOKENS} tokens" in README


def test_the_times_that_users_are_told_are_those_in_force():
    assert f"came with the last {NUMBERS[GRACE]} calls stays (`paging.grace`)" in PAGING
    assert f"a failed tool's result for {NUMBERS[ERROR_CALLS]}" in PAGING
    assert f"what the model has asked for stays for {NUMBERS[PIN_HALF_LIFE]} calls and more" in PAGING
