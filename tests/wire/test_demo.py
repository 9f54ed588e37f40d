"""The demo plays to its end and prints what the log holds."""

import io
from itertools import pairwise

import pytest
from rich.console import Console

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


def test_the_demo_leaves_nothing_behind_unless_told_to(capsys):
    assert main([]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the log is in" in said
    assert "gone now" in said
