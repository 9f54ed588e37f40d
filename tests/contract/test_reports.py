"""Every report joins these tests by being the report of a command."""

from importlib import import_module
from importlib.util import find_spec

import pytest

from instrumentation.reports import table
from instrumentation.reports.output_formats import formats
from pager.cli.main import command_names, command_parser

REPORTS = [name for name in command_names() if find_spec(f"instrumentation.reports.{name}")]
PLACES = {"replay": ["all"], "explain": ["s", "0:1"]}


@pytest.mark.parametrize("name", REPORTS)
def test_a_command_offers_just_the_formats_that_its_report_has(name, capsys):
    report, taken = import_module(f"instrumentation.reports.{name}"), []
    for form in ("text", "json", "csv", "html"):
        try:
            command_parser().parse_args([name, *PLACES.get(name, []), "--format", form])
            taken.append(form)
        except SystemExit:
            assert "--format" in capsys.readouterr().err
    assert taken == formats(report)
    assert taken[:2] == ["text", "json"]


def test_every_report_is_that_of_a_command():
    assert {"analyze", "experiment", "explain", "replay", "report", "tools"} <= set(REPORTS)


# ---------------------------------------------------------------- tables


def test_a_table_has_a_head_a_rule_and_aligned_columns():
    lines = list(table.table(("name", "first\nnumber"), [("a", "1"), (), ("long name", "1,000")]))
    assert lines == ["            first", "name       number", "─" * 17, "a               1", "", "long name   1,000"]


def test_words_go_on_in_the_next_line_and_numbers_are_never_cut():
    lines = list(table.columns([("some words that take long", "123,456,789")], width=30))
    assert lines == ["some words that    123,456,789", "take long"]
    assert max(map(len, table.columns([("x" * 90, "1" * 20)], width=40))) == 40


def test_a_table_on_a_terminal_has_a_bold_head():
    assert next(table.table(("a",), [("b",)], color=True)) == "\x1b[1ma\x1b[0m"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (table.counted(1, "session"), "1 session"),
        (table.counted(1_000, "session"), "1,000 sessions"),
        (table.counted(2, "branch"), "2 branches"),
        (table.short(9_999), "9,999"),
        (table.short(12_345), "12.3k"),
        (table.short(-2_500_000.4), "-2.5M"),
        (table.percent(-0.00001), "0.0 %"),
        (table.share_of(1, 0), ""),
        (table.signed(0.5), "+50.0 %"),
        (table.dollars(1_234.5), "1,234.50"),
        (table.dollars(0.01234), "0.0123"),
        (table.size(1_000), "1.0 kB"),
    ],
)
def test_numbers_have_one_format(text, expected):
    assert text == expected
