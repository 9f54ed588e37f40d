"""The demo plays to its end and prints what the log holds."""

import io
from itertools import pairwise

import pytest
from rich.console import Console

from pager import cli
from pager.demo import main, run
from pager.demo.report import rows
from pager.demo.session import SCRIPT
from pager.stores import open_store


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "log"


@pytest.fixture(scope="module")
def printed(folder):
    output = io.StringIO()
    run(folder, Console(file=output, width=120))
    return output.getvalue()


def test_the_demo_prints_every_call_and_where_the_log_is(printed, folder):
    assert "All ten tests pass." in printed
    assert str(folder) in printed
    assert "read_file x2" in printed
    assert f"in {len(SCRIPT.answers)} calls" in printed


@pytest.mark.usefixtures("printed")
def test_the_demos_log_grows_with_what_is_new(folder):
    store = open_store("sqlite", folder)
    try:
        calls = rows(store)
    finally:
        store.close()
    assert [row.received.call for row in calls] == list(range(1, len(SCRIPT.answers) + 1))
    assert all(later.messages > earlier.messages for earlier, later in pairwise(calls))
    assert sum(row.received.size for row in calls) > 5 * sum(row.new for row in calls)
    assert [len(row.tools) for row in calls] == [len(answer.calls) for answer in SCRIPT.answers]
    assert all(row.answer.usage.output for row in calls)


def test_the_demo_ends_with_a_report_and_where_the_dashboard_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):  # the second time without the log of the first
        assert cli.main(["demo"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "calls 12 answered, in 1 branch" in said
        assert "results past their use *" in said
        assert f"ctxpager serve --data-dir {tmp_path / 'ctxpager' / 'demo'}" in said
        assert "open http://127.0.0.1:8787/" in said


def test_without_somebody_to_report_the_demo_prints_the_log_alone(tmp_path, capsys):
    assert main(["--data-dir", str(tmp_path / "log")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the log is in" in said
    assert "past their use" not in said
