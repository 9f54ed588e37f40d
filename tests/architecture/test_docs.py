"""What the documents point to exists, and what the README quotes is quoted as it is."""

import argparse
import re
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import lifetimes
from pager.cli.main import command_names, command_parser
from pager.cli.replay import LIFETIMES
from pager.pricing.rates import named_prices

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
README = DOCUMENTS[0].read_text()
CODE = re.compile(r"^```.*?^```|^    [^\n]*", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`((?:pager|policies|instrumentation|benchmarks|tests|scripts|docs)/[\w./-]*)(?::\w+)?`")

MODULE = r"(?<![\w/])(?:pager|policies|instrumentation|benchmarks|scripts)/[\w/]+\.py"


def anchors(path):
    """The headings of a page as links name them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@cache
def flags(name):
    """The flags of a command."""
    parser = argparse.ArgumentParser()
    import_module(f"pager.cli.{name.replace('-', '_')}").add_arguments(parser)
    return {"--help", *(flag for action in parser._actions for flag in action.option_strings)}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if not link.startswith(("http:", "https:")):
            target, _, anchor = link.partition("#")
            page = (path.parent / target) if target else path
            assert page.exists(), f"{path.name} links to {link}"
            assert not anchor or anchor in anchors(page), f"{path.name} links to {link}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_and_folders_that_are_named_exist(path):
    named = set(NAMED.findall(CODE.sub("", path.read_text())))
    assert {name for name in named if not (ROOT / name).exists()} == set(), f"{path.name} names what is not there"


def test_modules_that_are_named_in_pictures_and_examples_exist():
    named = {name for path in DOCUMENTS for name in re.findall(MODULE, path.read_text())}
    assert {name for name in named if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_command_lines_have_only_flags_that_there_are(path):
    lines = re.findall(r"ctxpager ([\w-]+)\b((?:[^`\n|]|(?<=\w)\|(?=\w)|\n {8})*)", path.read_text())
    used = {(name, flag) for name, rest in lines if name in command_names() for flag in re.findall(r"--[a-z-]+", rest)}
    assert {(name, flag) for name, flag in used if flag not in flags(name)} == set()


def test_the_page_on_architecture_has_the_layers_that_are_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["name"] == "Folders are layers")
    assert " > ".join(layer.replace("pager.", "") for layer in layers) in (ROOT / "docs/architecture.md").read_text()


def test_the_readme_quotes_policies_as_the_benchmarks_page_has_them():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    _, _, rest = page.partition("\n### entire-cli\n")
    section, _, _ = rest.partition("\n###")
    (command,) = re.findall(r"^Made by `([^`]+)`", page, re.MULTILINE)
    assert f"`{command}`" in README
    measured = [
        [cell.strip() for cell in row.split("|")[1:-1]] for row in re.findall(r"^\| \w+ .*", section, re.MULTILINE)
    ]
    by_policy = {row[0]: (row[1], row[2], row[7], row[8]) for row in measured}
    quoted = re.findall(r"^\| `(\w+)`[^|]*\| (\S+ %) \| (\S+ %) \| (\d+) of (\d+) \| (\S+ %) \|", README, re.MULTILINE)
    assert len(quoted) >= 6
    for policy, cost, tokens, costs_more, sessions, worst in quoted:
        assert by_policy[policy] == (cost, tokens, costs_more, worst)
        assert section.lstrip().startswith(f"{sessions} sessions")


def test_the_readme_has_a_row_for_each_lifetime_and_price_list_with_the_command_that_measures_it():
    _, _, rest = README.partition("<!-- lifetimes -->\n")
    block, end, _ = rest.partition("<!-- /lifetimes -->")
    assert end
    assert f"`{lifetimes.COMMAND}`" in block
    rows = [[cell.strip(" `") for cell in row.split("|")[1:-1]] for row in block.splitlines() if "--prices" in row]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        (case.client, case.generation, f"--prices {case.prices} {case.options}") for case in lifetimes.CASES
    ]
    assert {row[0].partition(",")[0] for row in rows} >= {"5 minutes", "1 hour"}
    ((command, subcommand, *given),) = (
        line.split() for line in re.findall(r"`(ctxpager replay [^`]+)`", block.replace("\n", " "))
    )
    for row, case in zip(rows, lifetimes.CASES, strict=True):
        options = command_parser().parse_args([subcommand, *given, *row[-1].split()])
        assert command == "ctxpager"
        assert named_prices(case.prices)
        assert options.caching == ("marks" if case.cache.marks else "prefix")
        assert LIFETIMES.get(options.lifetime, 0.0) == case.cache.lifetime
        assert all(re.fullmatch(r"[+-]\d+\.\d %|\d+ of \d+", figure) for figure in row[2:-1])


# ---------------------------------------------------------------- what users of some clients must know

LOADS_TOOLS_WHEN_NEEDED = "ANTHROPIC_BASE_URL=http://127.0.0.1:8787 ENABLE_TOOL_SEARCH=true claude"


@pytest.mark.parametrize("name", ["README.md", "docs/tools.md", "docs/analyze.md"])
def test_claude_code_is_started_so_that_it_loads_tools_when_they_are_needed(name):
    lines = [line for line in (ROOT / name).read_text().splitlines() if "ANTHROPIC_BASE_URL=" in line]
    assert [line for line in lines if LOADS_TOOLS_WHEN_NEEDED in line] == lines != []


def test_no_document_starts_claude_code_with_all_tools_in_its_prompt():
    for path in DOCUMENTS:
        for line in path.read_text().splitlines():
            assert not re.search(r"ANTHROPIC_BASE_URL=\S+ claude\b", line), f"{path.name}: {line}"


@pytest.mark.parametrize(
    ("client", "reason", "way_out"),
    [
        ("AI SDK `openai.responses()`", "`item_reference`", "store: false"),
        ("`tool_runner` of both Anthropic SDKs", "`thread`", "thread=False"),
    ],
)
def test_clients_that_are_not_paged_are_named_with_the_reason_and_the_way_out(client, reason, way_out):
    (row,) = (line for line in (ROOT / "docs/paging.md").read_text().splitlines() if line.startswith(f"| {client}"))
    assert reason in row
    assert way_out in row
    assert reason.strip("`") in (ROOT / "docs/limits.md").read_text()


def test_the_readme_quotes_the_report_as_the_page_on_reports_has_it():
    report = (ROOT / "docs" / "report.md").read_text().splitlines()
    _, _, rest = README.partition("## What you see\n")
    quoted, _, _ = rest.partition("The demo suits paging")
    lines = [line for line in quoted.splitlines() if line.startswith("    ")]
    assert len(lines) > 8
    assert [line for line in lines if line not in report] == []
