"""Every command of the command line joins these tests by existing."""

import argparse
import shlex
import time
from pathlib import Path

import pytest

import pager.cli
from pager.cli.main import NO_COMMANDS, command_names, command_parser, main
from pager.cli.options import since

COMMANDS = command_names()
FOLDER = Path(pager.cli.__file__).parent

NEW = '''
"""A command of somebody else's."""
HELP = "say hello to somebody"
EXAMPLE = "ctxpager hello world"


def add_arguments(parser):
    parser.add_argument("name")


def run(options):
    print(f"hello {options.name}")
    return 7
'''


def ended(capsys, *arguments):
    """The exit status of a command line that ends the program, and both of its outputs."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code, *capsys.readouterr()


def test_every_file_of_the_folder_is_a_command():
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", *NO_COMMANDS}
    assert set(COMMANDS) == {name.replace("_", "-") for name in files}
    assert "serve" in files


def test_a_file_is_all_that_a_new_command_takes(tmp_path, monkeypatch, capsys):
    (tmp_path / "hello.py").write_text(NEW)
    monkeypatch.setattr(pager.cli, "__path__", [*pager.cli.__path__, str(tmp_path)])
    assert "say hello to somebody" in ended(capsys, "--help")[1]
    assert main(["hello", "world"]) == 7
    assert capsys.readouterr().out == "hello world\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_a_command_does_with_an_example(name, capsys):
    status, out, err = ended(capsys, name, "--help")
    about = " ".join(out.split())
    assert (status, err) == (0, "")
    assert f"usage: ctxpager {name} " in about
    assert f"example: ctxpager {name}" in about


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_can_be_given(name, capsys):
    epilog = ended(capsys, name, "--help")[1].partition("example:\n")[2]
    lines = [shlex.split(line) for line in epilog.splitlines()]
    assert lines
    for program, *arguments in lines:
        assert program == "ctxpager"
        assert command_parser().parse_args(arguments).command == name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_the_default_of_what_can_be_left_out(name, capsys):
    entries = ended(capsys, name, "--help")[1].split("\n  -")
    without = [
        entry.split()[0] for entry in entries[1:] if " N " in entry and "(default: " not in " ".join(entry.split())
    ]
    assert without == []


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_flag_gets_one_line(name, capsys):
    places = {"explain": ["x", "1"], "replay": ["x", "1"], "keep-warm": ["on"]}
    status, out, err = ended(capsys, name, *places.get(name, []), "--no-such-flag")
    assert (status, out) == (2, "")
    assert err == f"ctxpager {name}: unrecognized arguments: --no-such-flag; see ctxpager {name} --help\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze", "--jobs", "0"],
        ["replay", "all", "--jobs", "few"],
        ["replay", "all", "--min-calls", "-1"],
        ["replay", "all", "--format", "pdf"],
        *([name, "--since", "soon"] for name in ("analyze", "report", "tools", "experiment")),
        ["report", "--since", "2026-13-01"],
        *(["experiment", "--margin", margin] for margin in ("little", "-0.1", "inf", "nan")),
        ["explain", "x"],
        ["nonsense"],
    ],
)
def test_a_wrong_value_gets_one_line(arguments, capsys):
    status, out, err = ended(capsys, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("ctxpager")
    assert "--help" in err


@pytest.mark.parametrize("name", ["analyze", "check", "experiment", "explain", "learn", "replay", "report", "tools"])
def test_commands_that_serve_nothing_take_no_settings_of_the_server(name, capsys):
    out = ended(capsys, name, "--help")[1]
    assert "--data-dir" in out
    assert not any(flag in out for flag in ("--port", "--upstream", "--limits-", "--identity-"))


def test_a_time_is_a_span_until_now_or_a_day():
    day, now = 86_400.0, time.time()
    spans = {"7d": 7 * day, "24h": day, "30m": 1_800.0, "2": 2 * day, "0.5": day / 2, " 1d ": day}
    for text, seconds in spans.items():
        assert since(text) == pytest.approx(now - seconds, abs=60)
    assert since("1970-01-03") == 2 * day
    for wrong in ("", "x", "-1", "7w", "1e9", "d", "2026-02-30"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a span of time such as 7d"):
            since(wrong)
