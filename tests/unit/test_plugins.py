import os
import subprocess
import sys
from pathlib import Path

import pytest

import policies
from pager.errors import PolicyError
from pager.paging.policy import Decision, Prices, View
from pager.paging.policy_loader import load_policy, policy_names

VIEW = View(call=1, prices=Prices(), warm=True, window=1000, reserve=100, tokens=10)
GOOD = """
from __future__ import annotations
from dataclasses import dataclass
from pager.paging.policy import Decision, View

@dataclass
class Mine:
    share: float = 0.5
    name: str = "mine"

    def choose(self, view: View) -> Decision:
        return Decision(reason=f"{self.name} {self.share}")

def helper(): ...
"""


@pytest.fixture
def written(tmp_path):
    """Writes a policy file of a user's own and gives its path."""

    def write(text: str, name: str = "mine.py") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def message_of(ref: str, **settings) -> str:
    with pytest.raises(PolicyError) as caught:
        load_policy(ref, settings)
    assert ref in str(caught.value)
    return str(caught.value)


def test_the_policies_are_the_files_in_their_folder():
    files = Path(policies.__file__).parent.glob("[!_]*.py")
    assert policy_names() == sorted(file.stem for file in files)
    assert "keep_all" in policy_names()


def test_listing_the_policies_imports_none():
    code = (
        "import sys; from pager.paging.policy_loader import policy_names; names = policy_names();"
        "print(bool(names), [name for name in sys.modules if name.startswith('policies')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert ran.stdout.strip() == "True []"


def test_a_policy_exists_because_its_file_does(tmp_path):
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "mine.py").write_text(GOOD)
    (folder / "two.py").write_text(GOOD + "class Other(Mine): ...\n")
    (folder / "none.py").write_text("from pager.paging.policy import Policy")
    code = (
        "from pager.errors import PolicyError\nfrom pager.paging.policy_loader import load_policy, policy_names\n"
        "print(policy_names())\nprint(load_policy('mine', {'name': 'new'}))\n"
        "for name in ('two', 'none'):\n"
        "    try: load_policy(name)\n"
        "    except PolicyError as error: print(error)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, env=env, cwd=tmp_path
    )
    names, mine, two, none = ran.stdout.splitlines()
    assert names == "['mine', 'none', 'two']"
    assert mine == "Mine(share=0.5, name='new')"
    assert two.endswith("two.py must have one public class with a method choose, but has Mine, Other")
    assert none.endswith("none.py must have one public class with a method choose, but has none")


def test_a_policy_is_loaded_by_its_file_name():
    assert load_policy("keep_all").choose(VIEW) == Decision(reason="keep_all never evicts")


def test_an_unknown_name_is_reported_with_the_nearest_and_all_there_are():
    message = message_of("keep_al")
    assert "did you mean 'keep_all'?" in message
    assert all(name in message for name in policy_names())
    assert "path/to/file.py:ClassName" in message


@pytest.mark.parametrize("ref", ["", "zzzzzz", "__init__", "os", "some/file.py", "policies.keep_all"])
def test_what_names_no_policy_is_reported(ref):
    assert "there is none of that name" in message_of(ref)


def test_a_policy_of_ones_own_is_loaded_from_a_file(written):
    policy = load_policy(written(GOOD) + ":Mine")
    assert policy.choose(VIEW).reason == "mine 0.5"


def test_two_files_of_one_name_are_kept_apart(written, tmp_path):
    (tmp_path / "other").mkdir()
    first = load_policy(written(GOOD) + ":Mine")
    second = load_policy(written(GOOD.replace("0.5", "0.7"), "other/mine.py") + ":Mine")
    assert (first.choose(VIEW).reason, second.choose(VIEW).reason) == ("mine 0.5", "mine 0.7")
    assert type(first).__module__ != type(second).__module__


def test_a_policy_is_loaded_from_an_installed_module():
    assert type(load_policy("policies.keep_all:KeepAll")).__name__ == "KeepAll"


def test_options_go_to_the_constructor(written):
    policy = load_policy(written(GOOD) + ":Mine", {"share": 0.25})
    assert policy.choose(VIEW).reason == "mine 0.25"


def test_an_unknown_option_is_reported_with_the_nearest_and_all_there_are(written):
    message = message_of(written(GOOD) + ":Mine", shere=1)
    assert "no option 'shere', did you mean 'share'?; its options are share, name" in message


def test_an_option_for_a_policy_without_any_is_reported():
    assert "no option 'share'; its options are none" in message_of("keep_all", share=1)


def test_an_option_that_must_be_given_is_reported(written):
    ref = written(GOOD.replace("share: float = 0.5", "share: float")) + ":Mine"
    assert "its option 'share' has no default and must be given" in message_of(ref)


def test_an_option_that_the_policy_refuses_is_reported(written):
    text = GOOD + "    def __post_init__(self): raise ValueError('share is too large')\n"
    text = text.replace("def helper(): ...\n", "")
    assert "Mine refuses its options: share is too large" in message_of(written(text) + ":Mine", share=9)


def test_a_policy_may_take_any_options(written):
    text = "class Any:\n    def __init__(self, **options): self.options = options\n    def choose(self, view): ...\n"
    assert load_policy(written(text) + ":Any", {"a": 1}).options == {"a": 1}


def test_a_file_that_is_missing_is_reported(tmp_path):
    assert f"there is no file {tmp_path / 'gone.py'}" in message_of(f"{tmp_path / 'gone.py'}:Mine")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("class Mine(:\n", "invalid syntax"), ("import no_such_module_here", "no_such_module_here"), ("\0", "null bytes")],
)
def test_a_file_that_cannot_be_imported_is_reported(text, reason, written):
    message = message_of(written(text) + ":Mine")
    assert "can't be imported" in message
    assert reason in message


@pytest.mark.parametrize("ref", ["no_such_package.module:Mine", ":Mine", ".relative:Mine"])
def test_a_module_that_cannot_be_imported_is_reported(ref):
    assert "can't be imported" in message_of(ref)


def test_a_class_that_is_missing_is_reported_with_the_nearest_and_all_there_are(written):
    message = message_of(written(GOOD) + ":Mein")
    assert "'Mein' does not exist in" in message
    assert "did you mean 'Mine'?; its policies are Mine" in message


def test_what_is_not_a_class_is_reported(written):
    assert "'helper' is not a class" in message_of(written(GOOD) + ":helper")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("pass", "Bad has no method choose"),
        ("choose = 3", "Bad has no method choose"),
        ("async def choose(self, view): ...", "Bad.choose is async"),
        ("def choose(self): ...", "Bad.choose can't take a view: too many positional arguments"),
        ("def choose(self, view, extra): ...", "Bad.choose can't take a view: missing a required argument"),
    ],
)
def test_what_does_not_follow_the_protocol_is_reported(body, reason, written):
    message = message_of(written(f"class Bad:\n    {body}\n") + ":Bad")
    assert reason in message
    assert "a policy has a method choose(view)" in message
