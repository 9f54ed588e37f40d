"""Rules of the code base that no linter knows."""

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("pager", "policies", "instrumentation")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def named(path):
    return str(path.relative_to(ROOT))


def handlers(path):
    tree = ast.parse(path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]


def swallows_all(handler):
    """Whether it catches everything and does not raise it again."""
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else {"all"}
    raises_again = any(isinstance(node, ast.Raise) and node.exc is None for node in handler.body)
    return bool(names & {"all", "Exception", "BaseException"}) and not raises_again


def test_there_is_one_broad_except_and_it_fails_open():
    broad = [named(path) for path in MODULES for handler in handlers(path) if swallows_all(handler)]
    assert broad == ["pager/proxy/fail_open.py"]


def writes_by_itself(path):
    """Where a module writes to a terminal other than by ``pager.terminal``."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    plain = [func.lineno for func in calls if isinstance(func, ast.Name) and func.id == "print"]
    written = [func for func in calls if isinstance(func, ast.Attribute) and func.attr in ("write", "writelines")]
    return plain + [func.lineno for func in written if ast.unparse(func.value) in ("sys.stdout", "sys.stderr")]


def test_text_reaches_terminals_through_one_module_which_makes_it_harmless():
    found = [f"{named(path)}:{line}" for path in MODULES for line in writes_by_itself(path)]
    assert {place.split(":")[0] for place in found} == {"pager/terminal.py"}, "use pager.terminal.say"


def test_processes_of_ours_import_nothing_from_the_working_folder():
    lists = [node for path in MODULES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.List)]
    started = [[ast.unparse(part) for part in node.elts] for node in lists]
    commands = [parts for parts in started if parts and parts[0] == "sys.executable"]
    assert len(commands) >= 3
    assert [parts for parts in commands if parts[1] != "'-P'"] == []


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_a_module_says_its_responsibility(path):
    assert ast.get_docstring(ast.parse(path.read_text())), "no docstring"


def test_the_wheel_holds_exactly_the_three_packages(tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("ctxpager-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)
    assert {
        "pager/pricing/data/NOTICE",
        "pager/pricing/data/models.json",
        "pager/pricing/data/catalog.toml",
        "pager/py.typed",
    } <= set(names)


def test_the_help_of_the_command_line_loads_nothing_heavy():
    heavy = ["aiohttp", "uvicorn", "tiktoken", "numpy", "sqlite3", "openai", "zstandard", "pydantic", "msgspec", "rich"]
    code = (
        "import sys; from pager.cli.main import command_parser; command_parser().format_help(); "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "[]"
