"""What the documents point to exists, and what the README quotes is quoted as it is."""

import argparse
import re
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from pager.cli.main import command_names

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
    import_module(f"pager.cli.{name}").add_arguments(parser)
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
    lines = re.findall(r"ctxpager (\w+)\b((?:[^`\n|]|(?<=\w)\|(?=\w)|\n {8})*)", path.read_text())
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


def test_the_readme_quotes_the_report_as_the_page_on_reports_has_it():
    report = (ROOT / "docs" / "report.md").read_text().splitlines()
    _, _, rest = README.partition("## What you see\n")
    quoted, _, _ = rest.partition("The demo suits paging")
    lines = [line for line in quoted.splitlines() if line.startswith("    ")]
    assert len(lines) > 8
    assert [line for line in lines if line not in report] == []
