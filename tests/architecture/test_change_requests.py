"""The promises of CONTRIBUTING.md: each change is made to a copy of the code, in the files named there alone.

A new dialect is in ``tests/contract/test_new_dialect.py``.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND_LINE = "import sys; from pager.cli.main import main; sys.exit(main(sys.argv[1:]))"


class Copy:
    """A copy of the code that may be changed."""

    def __init__(self, folder):
        self.folder = folder
        for package in ("pager", "policies", "instrumentation"):
            shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))

    def add(self, path, text):
        """Add a file, or lines at the end of one."""
        target = self.folder / path
        target.parent.mkdir(exist_ok=True)
        with target.open("a") as file:
            file.write(text)

    def insert(self, path, before, text):
        """Add lines before the first place where a text is found in a file."""
        target = self.folder / path
        head, found, rest = target.read_text().partition(before)
        assert found, f"{path} has no {before!r}"
        target.write_text(head + text + found + rest)

    def twin(self, path, name, renamed):
        """Add a file or folder that differs from another of its kind in its name, and in what is renamed."""
        original = self.folder / path
        target = original.with_name(name + original.suffix)
        (shutil.copytree if original.is_dir() else shutil.copy)(original, target)
        for file in target.rglob("*.py") if target.is_dir() else [target]:
            text = file.read_text()
            for old, new in renamed.items():
                text = text.replace(old, new)
            file.write_text(text)

    def run(self, code, *arguments):
        """What a program prints that runs on the copy."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
        env |= {"PYTHONPATH": str(self.folder), "XDG_CONFIG_HOME": str(self.folder), "COLUMNS": "100"}
        command = [sys.executable, "-P", "-c", code, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def command(self, *arguments):
        """What ``ctxpager`` prints."""
        return self.run(COMMAND_LINE, *arguments)


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


POLICY = '''"""Evicts nothing."""

from pager.paging.policy import Decision, View


class Never:
    """Evicts nothing."""

    def choose(self, view: View) -> Decision:
        """Nothing."""
        return Decision()
'''


def test_a_policy_is_one_file(copy):
    copy.add("policies/never.py", POLICY)
    code = (
        "from pager.paging.policy_loader import load_policy, policy_names; print(policy_names(), load_policy('never'))"
    )
    assert "'never'" in copy.run(code)
    assert "never" in copy.command("config", "--policy", "never")


COMMAND = '''"""``ctxpager greet``: greets somebody."""

from pager.terminal import say

HELP = "greet somebody"
EXAMPLE = "ctxpager greet you"


def add_arguments(parser):
    parser.add_argument("name")


def run(options):
    say(f"hello, {options.name}")
    return 0
'''


def test_a_command_is_one_file(copy):
    copy.add("pager/cli/greet.py", COMMAND)
    assert copy.command("greet", "you") == "hello, you\n"
    assert "greet somebody" in copy.command("--help")


IMPORTER = '''"""Logs of a toy."""


class Importer:
    """Knows them by their first line."""

    def detect(self, head):
        return bool(head) and head[0].startswith(b"toy")

    def read(self, path, problems):
        return iter(())
'''


def test_an_importer_is_one_file(copy, tmp_path):
    copy.add("instrumentation/replay/importers/toy.py", IMPORTER)
    log = tmp_path / "log.jsonl"
    log.write_text("toy\n")
    code = "import sys; from pathlib import Path; from instrumentation.replay.log_files import format_of"
    assert copy.run(f"{code}; print(format_of(Path(sys.argv[1])))", str(log)) == "toy\n"


EVENT = '''class Greeted(Event, frozen=True, tag="Greeted"):
    """Somebody was greeted."""

    name: str = ""


'''


def test_an_event_kind_is_one_class(copy):
    copy.insert("pager/log/events.py", "class SessionOpened(", EVENT)
    code = "from pager.log.events import Greeted, decode, encode; print(decode(encode(Greeted(name='you'))))"
    assert copy.run(code) == "Greeted(name='you')\n"


MODEL = """
[models."toy-1"]
provider = "toys"
window = 12_345
input = 2
output = 4
cached = 1
cache_kind = "marked"
cache_minimum = 77
cache_seconds = 88.0
binds_thinking = true
family = "claude"
source = "a toy"
date = "2026-11-18"
"""


def test_all_facts_of_a_model_are_one_entry(copy):
    copy.add("pager/pricing/data/catalog.toml", MODEL)
    facts = "m.window, m.input, m.cache_kind.name, m.cache_minimum, m.cache_seconds, m.binds_thinking, m.family.name"
    code = (
        "from pager.pricing.catalog import family_of; from pager.pricing.rates import in_force; "
        f"m = in_force('', {{}}).find('toy-1'); print({facts}, family_of('toy-1').name)"
    )
    assert copy.run(code) == "12345 2 MARKED 77 88.0 True claude claude\n"


def test_a_store_is_one_folder(copy, tmp_path):
    copy.twin("pager/log/stores/sqlite", "toy", {"pager.log.stores.sqlite": "pager.log.stores.toy"})
    url = f"toy:{tmp_path / 'data'}"
    code = "import sys; from pager.log.stores import open_store; print(type(open_store(sys.argv[1])).__module__)"
    assert copy.run(code, url) == "pager.log.stores.toy.store\n"
    assert copy.command("check", "--store", url)
