"""The command line."""

import json
import socket

import pytest

from pager.cli import main
from pager.config.loading import Folder
from pager.log.stores import open_store

pytestmark = pytest.mark.usefixtures("at_home")


def test_config_prints_what_is_in_force_and_where_it_came_from(tmp_path, capsys):
    (tmp_path / "ctxpager.toml").write_text("port = 9000\n[upstream]\nconnect_timeout = 3.5\n")
    assert main.main(["config", "--host", "::1"]) == 0
    printed = capsys.readouterr().out
    lines = {line.split(" = ")[0]: line for line in printed.splitlines() if " = " in line}
    assert "9000" in lines["port"]
    assert "ctxpager.toml" in lines["port"]
    assert "flag --host" in lines["host"]
    assert lines["policy"].endswith("# default")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--policy", "keep_al"], ["keep_al", "keep_all"]),
        (["serve", "--prices", "nonsense"], ["nonsense", "anthropic", "openai", "none"]),
        (["serve", "--port", "many"], ["--port", "many"]),
        (["serve", "--store", "oracle"], ["oracle", "sqlite"]),
        (["serve", "--upstream-api-key-env", "NOT_SET"], ["upstream.api_key_env", "NOT_SET"]),
        (["serve", "--identity-keys", '{ a = "KEY_OF_A" }'], ["identity.keys", "upstream.api_key_env"]),
        (["check", "--config", "missing.toml"], ["missing.toml"]),
    ],
)
def test_a_wrong_setting_ends_the_command_with_what_is_wrong(arguments, said, capsys):
    assert main.main(arguments) == 2
    told = capsys.readouterr().err
    assert all(word in told for word in said), told


MISTAKES = {
    "a name that is not there": ("undefined", "NameError: name 'undefined' is not defined"),
    "a division": ("\nx = 1 / 0", "ZeroDivisionError: division by zero"),
    "a key": ("x = {}['k']", "KeyError: 'k'"),
    "syntax": ("def", "invalid syntax"),
    "a policy that can't be made": (
        "class P:\n    def __init__(self): self.x\n    def choose(self, view): ...",
        "AttributeError: 'P' object has no attribute 'x'",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("flag", [["--policy", "mine.py:P"], ["--experiment-arms", '{ "mine.py:P" = 1.0 }']])
def test_a_mistake_in_the_code_of_a_policy_is_told_in_one_line(tmp_path, capsys, name, flag):
    code, said = MISTAKES[name]
    (tmp_path / "mine.py").write_text(code)
    assert main.main(["config", *flag]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"ctxpager: flag {flag[0]}: ")
    assert said in told
    assert "mine.py" in told
    assert "line " in told
    assert told.count("\n") == 1


def test_an_option_that_a_policy_does_not_take_is_told_with_where_it_was_given(capsys):
    assert main.main(["config", "--policy", "lru", "--paging-policy-options", "{ nope = 1 }"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(
        "ctxpager: flag --paging-policy-options: paging.policy_options: policy 'lru': it has no option"
    )
    assert told.count("\n") == 1


def test_check_of_a_folder_that_is_not_there_makes_none(tmp_path, capsys):
    assert main.main(["check", "--data-dir", str(tmp_path / "typo")]) == 2
    assert "typo" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


def test_check_of_an_empty_log_is_clean(tmp_path, capsys):
    open_store(f"sqlite:{tmp_path / 'data'}").close()
    assert main.main(["check", "--data-dir", str(tmp_path / "data")]) == 0
    assert "0 events, 0 blobs, clean" in capsys.readouterr().out


def test_a_port_in_use_is_told_in_one_line(tmp_path, capfd):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as ended:
            main.main(["serve", "--port", str(port), "--data-dir", str(tmp_path / "data")])
    assert ended.value.code != 0
    assert f"can't listen on 127.0.0.1:{port}" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["serve", "config", "check"])
@pytest.mark.parametrize(
    ("written", "key"),
    [
        ('policy = "keep_al"', "policy"),
        ('store = "oracle"', "store"),
        ('prices = "nonsense"', "prices"),
        ("[models]\nx = { windw = 3 }", "models"),
    ],
)
def test_a_wrong_name_in_the_file_is_told_with_the_file_and_the_key(tmp_path, capsys, command, written, key):
    (tmp_path / "ctxpager.toml").write_text(written)
    Folder(tmp_path).trust()
    assert main.main([command]) == 2
    told = capsys.readouterr().err
    assert f"{tmp_path / 'ctxpager.toml'}: {key}: " in told


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit):
        main.main(["--help"])
    told = capsys.readouterr().out
    assert all(command in told for command in ("serve", "config", "check", "demo"))


def test_the_version_is_the_distributions(capsys):
    with pytest.raises(SystemExit):
        main.main(["--version"])
    assert json.dumps(capsys.readouterr().out.split()).count("ctxpager") == 1


def test_the_demo_takes_its_own_arguments(capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["demo", "--help"])
    assert ended.value.code == 0
    assert "--data-dir" in capsys.readouterr().out


def test_what_no_command_knows_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["config", "--data-dire", "x"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told == "ctxpager config: unrecognized arguments: --data-dire x; see ctxpager config --help\n"
