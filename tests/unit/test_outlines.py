"""An outline tells in one line what a text holds, at a bounded cost, whatever the text is."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from laws import examples

from pager.text.outline import (
    EDGE,
    LINES,
    LONGEST,
    SHOWN,
    clip,
    outline,
    plain,
)

HANDLE_LIKE = re.compile(r"pg_[0-9a-f]{8}", re.IGNORECASE)
FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\"\\]")

PYTHON = """import os

LIMIT = 5

class App(Base):
    def run(self):
        return 1

async def load_config(path):
    return os.open(path)

def main() -> None:
    App().run()
"""
TYPESCRIPT = """import { x } from "y";
export interface Options { a: string; }
export default class Server extends Base {
  private async listen(port: number) {
    return port;
  }
}
export const handler = async (event) => {
  return event;
};
export async function start(): Promise<void> {
}
type Id = string;
"""
GO = """package main

import (
\t"fmt"
)

var ErrStop = errors.New("stop")

type Server struct {
\tname string
}

func (s *Server) Listen(port int) error {
\treturn nil
}

func main() {
}
"""
RUST = """use std::io;

pub(crate) struct Page {
    size: usize,
}

impl Page {
    pub async fn load(&self) -> io::Result<()> {
        Ok(())
    }
}

macro_rules! page {
    () => {};
}
"""
JAVA = """package a.b;

public final class Shop {
    private static final int MAX = 5;

    public static List<String> names(int a) {
        return null;
    }
}
"""
C = """#include <stdio.h>
#define LIMIT 10

static int *find(const char *name,
                 int size)
{
    return 0;
}

int main(void) {
    return 0;
}
"""
SHELL = """#!/bin/bash
set -e
build() {
  make all
}
function deploy() {
  scp a b
}
"""
SQL = """CREATE TABLE IF NOT EXISTS pages (
  id integer,
  size integer
);
create view sizes as select 1;
"""


@pytest.mark.parametrize(
    ("code", "names"),
    [
        (PYTHON, "App, load_config, main, run"),
        (TYPESCRIPT, "Options, Server, handler, start, Id, listen"),
        (GO, "ErrStop, Server, Listen, main"),
        (RUST, "Page, page, load"),
        (JAVA, "Shop, names"),
        (C, "LIMIT, find, main"),
        (SHELL, "build, deploy"),
        (SQL, "pages, sizes"),
    ],
)
def test_code_is_told_by_the_names_it_defines_outermost_first(code, names):
    assert outline(code) == f"defines {names}"


@pytest.mark.parametrize("form", ["{:6d}→{}", "{}: {}", "{}|{}", "{:05d}| {}", "{:6d}\t{}", "{}:{}"])
def test_the_numbers_that_tools_put_before_lines_do_not_hide_the_code(form):
    numbered = "\n".join(form.format(number, line) for number, line in enumerate(GO.split("\n"), 1))
    assert outline(numbered) == outline(GO)


def test_a_part_of_a_file_is_told_by_the_numbers_of_its_lines_too():
    part = "\n".join(f"{number:6d}→{line}" for number, line in enumerate(PYTHON.rstrip().split("\n"), 120))
    assert outline(part) == "numbered 120-132, defines App, load_config, main, run"


def test_what_a_tool_adds_around_numbered_lines_is_left_out():
    lines = "\n".join(f"{number:6d}→word {number}" for number in range(1, 11))
    assert outline(f"<file>\n{lines}\n</file>\n<note>consider this</note>") == "begins: word 1; ends: word 10"


def test_a_time_of_day_is_no_line_number():
    assert outline("12:00:01 start\n12:00:02 middle\n12:00:03 done").startswith("begins: 12:00:01 start")


def test_an_object_is_told_by_its_keys_with_kinds_and_lengths():
    value = {"items": [1] * 120, "next": None, "total": 120, "page": {"a": 1, "b": 2}, "body": "x" * 900}
    assert outline(json.dumps(value)) == "keys: items[120], next, total, page{2}, body(900 chars)"
    assert outline(json.dumps(value, indent=2)) == outline(json.dumps(value))


def test_a_lone_object_in_an_object_is_told_by_its_own_keys():
    assert outline('{"data": {"user": {"id": 1, "name": "n"}}}') == "data: user: keys: id, name"


def test_an_array_is_told_by_its_length_and_the_keys_of_its_first_object():
    assert outline('[{"id": 1, "name": "a"}, {"id": 2}]') == "2 items with keys: id, name"
    assert outline("[1, 2, 3]") == "3 items"
    assert outline("[[]]") == "1 item"
    assert outline("{}") == "no keys"


@pytest.mark.parametrize(
    "text",
    [
        '{"id": 1, "deep": {"not": 1}, "name": "a", "rest": [1, 2',
        "{'id': 1, 'deep': {'not': 1}, 'name': 'it\\'s', 'rest': None}",
        '[{"id": 1, "deep": ["a:b", {"not": 1}], "name": 2, "rest": 3}, {"other": 1}, ... truncated',
        '{"id": 1, "deep": 2, "name": 3, "rest": 4}\n{"id": 2}\n',
    ],
)
def test_json_that_is_cut_off_or_not_quite_json_is_told_by_its_first_keys(text):
    assert outline(text) == "keys: id, deep, name, rest"


def test_json_too_long_to_parse_is_told_by_its_first_keys():
    assert outline(json.dumps({"first": 1, "items": ["x" * 1000] * 1000})) == "keys: first, items"


def test_numbered_json_is_json():
    lines = json.dumps({"name": "a", "scripts": {"b": 1}}, indent=2).split("\n")
    assert outline("\n".join(f"{n}\t{line}" for n, line in enumerate(lines, 1))) == "keys: name, scripts{1}"


def test_a_failed_run_is_told_by_its_error_lines_and_their_number():
    text = (
        "=== RUN   TestLoadError\n--- PASS: TestLoadError (0.00s)\n--- FAIL: TestSave (0.01s)\n"
        "    save_test.go:12: warning: slow disk\nFAIL\nFAIL\texample.com/save\t0.3s\nok  \texample.com/load\t0.1s\n"
    )
    assert outline(text) == "3 error lines, 1 warning: --- FAIL: TestSave (0.01s); FAIL example.com/save 0.3s"


def test_a_traceback_is_told_by_its_exception():
    text = 'Traceback (most recent call last):\n  File "a.py", line 3, in main\n    load()\nValueError: no such page'
    assert outline(text) == "1 error line: ValueError: no such page"


def test_a_log_is_told_by_its_errors_without_colours_and_times():
    text = "".join(
        f"2026-01-01T10:00:{second:02d}Z \x1b[31m{level}\x1b[0m request {second}\n"
        for second, level in enumerate(["INFO", "WARN", "ERROR", "INFO"])
    )
    assert outline(text) == "1 error line, 1 warning: ERROR request 2"


def test_a_clean_run_is_told_by_its_edges():
    text = "$ make test\nok  \ta\t0.1s\n[lint] 0 errors, no warnings\n120 passed in 2.1s\n"
    assert outline(text) == "begins: $ make test; ends: 120 passed in 2.1s"


def test_a_summary_with_failures_is_no_clean_one():
    assert outline("collected\n0 errors, 3 failed\n3 failed in 1s").startswith("2 error lines: 0 errors, 3 failed")


def test_code_that_speaks_of_errors_is_code():
    text = "class LoadError(Exception):\n    pass\n\ndef load(path):\n    raise LoadError(path)\n\nerror: str = ''\n"
    assert outline(text) == "defines LoadError, load"


def test_messages_of_a_compiler_are_errors_and_no_search():
    text = "cmd/a.go:12:5: undefined: id\ncmd/a.go:14:5: undefined: id\ncmd/b.go:1:1: error: x\n"
    assert outline(text).startswith("3 error lines: cmd/a.go:12:5: undefined: id;")


@pytest.mark.parametrize(
    "text",
    [
        "diff --git a/x/one.py b/x/one.py\n--- a/x/one.py\n+++ b/x/one.py\n@@\n-a\n+b\ndiff --git a/two.go b/two.go\n",
        "--- a/x/one.py\t2026\n+++ b/x/one.py\t2026\n@@\n-a\n+b\n--- two.go\n+++ two.go\n@@\n-a\n+b\n+++ /dev/null\n",
        "*** Begin Patch\n*** Update File: x/one.py\n@@\n-a\n+b\n*** Add File: two.go\n+x\n*** End Patch",
    ],
)
def test_a_diff_is_told_by_the_files_it_touches(text):
    assert outline(text) == "diff of x/one.py, two.go"


def test_a_search_is_told_by_its_files_and_how_often_each_matched():
    text = "src/cli/a.py:12:import os\nsrc/cli/a.py:40:os.open()\nsrc/cli/sub/b.py:3:os\nsrc/cli/sub/b.py-4-around it\n"
    assert outline(text) == "3 matches in src/cli: a.py (2), sub/b.py"
    assert outline("a.py:import os\nlib/b.py:os.open()\n") == "2 matches in a.py, lib/b.py"


def test_a_list_of_files_is_told_by_its_length_and_folder():
    assert outline("Found 5 files\n" + "\n".join(f"src/cli/{n}.py" for n in "abcde")) == (
        "5 entries in src/cli: a.py, b.py, c.py, d.py, e.py"
    )
    assert outline("a.py\nb.py\nREADME.md\n") == "3 entries: a.py, b.py, README.md"


def test_a_long_listing_is_told_by_its_names():
    text = "total 8\n-rw-r--r-- 1 me me 120 Jan  1 10:00 one.py\ndrwxr-xr-x 2 me me 4096 Jan  1 10:00 a folder\n"
    assert outline(text) == "2 entries: one.py, a folder"


def test_a_tree_is_told_by_its_names():
    assert outline("src\n├── app.py\n│   └── lib.py\n└── main.py\n") == "3 entries: app.py, lib.py, main.py"


def test_a_document_is_told_by_its_headings():
    assert outline("# Title\n\nSome error here.\n\n## First part\ntext\n## Second part\ntext") == (
        "headings: Title, First part, Second part"
    )


def test_settings_are_told_by_their_outermost_keys():
    assert outline("name: a\nsteps:\n  - run: b\n    with: c\n  - run: d\non: push\n") == "keys: name, steps, on"
    assert outline('[tool.one]\na = 1\nb = "x"\n[tool.two]\nc = 3\n') == "keys: tool.one, tool.two"
    assert outline("Changes:\n\tmodified:   a file\n\tmodified:   b file\n").startswith("begins: Changes")


def test_plain_text_is_told_by_its_first_and_last_line():
    assert outline("\n----\nDear reader,\nmany words follow\nYours\n</note>\n") == "begins: Dear reader,; ends: Yours"
    assert outline("one line only") == "begins: one line only"


def test_prose_that_mentions_an_error_or_a_class_is_still_text():
    text = "Most systems fail sooner or later.\nAn error is a thing of the\nclass of events that we\nknow well.\n"
    assert outline(text).startswith("begins: Most systems")


@pytest.mark.parametrize("text", ["", "\n\n", " \t\r\n"])
def test_blank_is_blank(text):
    assert outline(text) == "blank"


def test_counts_of_a_text_seen_in_part_are_at_least():
    text = "".join(f"src/a.py:{number}:found\n" for number in range(LINES * 4))
    assert re.fullmatch(r"\d+\+ matches in src: a.py \(\d+\)", outline(text))


def test_the_end_of_a_long_log_is_looked_at():
    text = "INFO all is well\n" * (3 * EDGE // 17) + "ERROR the disk is full\n"
    assert outline(text) == "1+ error lines: ERROR the disk is full"


def test_only_the_first_names_are_named():
    names = outline("".join(f"def f{number}():\n    pass\n" for number in range(100)))
    assert names.count(",") == SHOWN - 1


HANDLE = "pg_0123456789abcdef"


@pytest.mark.parametrize(
    "text",
    [
        HANDLE,
        json.dumps({HANDLE: 1, "b": [1]}),
        f"def {HANDLE}():\n    pass\n",
        f"ERROR {HANDLE} is gone",
        f"{HANDLE}/a.py\n{HANDLE}/b.py\n{HANDLE}/c.py",
        f"pg_\x1b[0m{HANDLE[3:]}",
        HANDLE.upper().lower() + "0" * 60,
        "x" * 64 + HANDLE + "f" * 40,
        "x/" * 30 + HANDLE,
    ],
)
def test_no_handle_of_a_page_gets_into_an_outline(text):
    assert not HANDLE_LIKE.search(outline(text))


def test_names_that_only_begin_like_a_handle_stay():
    assert plain("pg_dump pg_catalog pg_class") == "pg_dump pg_catalog pg_class"


def test_plain_text_needs_no_escapes_in_json():
    text = plain('say "hi" \\(once\\)\tin C:\\dir\x00\u2028\ud800 end')
    assert text == "say 'hi' (once) in C:/dir end"
    assert json.dumps(text) == f'"{text}"'


@pytest.mark.parametrize(
    ("text", "width", "clipped"),
    [
        ("short", 5, "short"),
        ("/a/long/path/to/file.py", 16, ".../to/file.py"),
        ("/a/averyveryverylongname.py", 12, "...ngname.py"),
        ("some words, of which few fit", 16, "some words..."),
        ("onelongwordwithoutspaces", 10, "onelong..."),
        ("nothing is left", 3, ""),
    ],
)
def test_a_text_is_cut_to_the_end_of_a_path_or_the_beginning_of_words(text, width, clipped):
    assert clip(text, width) == clipped


SCRAPS = [
    PYTHON,
    GO,
    C,
    HANDLE,
    '{"a": [1, ',
    "]}",
    '"',
    "'",
    "\\",
    "pg_",
    "0123456789abcdef",
    "\r\n",
    "\n",
    "\x1b[31m",
]
SCRAPS += [
    "→",
    "  12→",
    "13: ",
    "14|",
    "diff --git a/x b/y\n",
    "src/a.py:12:",
    "ERROR ",
    "# a\n## b\n",
    "a: b\n",
    "├── ",
]
pieces = st.one_of(st.text(max_size=60), st.sampled_from(SCRAPS))
texts = st.lists(pieces, max_size=30).map("".join)


@examples(400)
@given(texts)
@example("1: \n2: ")
@example("{")
@example("[{")
@example("\ufeff{'")
@example("├── ")
def test_any_text_has_an_outline_of_one_short_plain_line(text):
    told = outline(text)
    assert told
    assert told == outline(text)
    assert len(told) <= LONGEST
    assert not FORBIDDEN.search(told)
    assert len(told.splitlines()) == 1
    assert not HANDLE_LIKE.search(told)
    told.encode()


@given(texts, st.integers(0, 80))
def test_a_clipped_text_is_no_longer_than_asked_for(text, width):
    assert len(clip(text, width)) <= width


@given(st.recursive(st.none() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)))
def test_any_json_has_an_outline(value):
    assert outline(json.dumps(value))


A_MEGABYTE = 1_000_000


def of(piece):
    return piece * (A_MEGABYTE // len(piece))


RUNS = [
    "(",
    "a",
    "\n",
    " ",
    ":",
    "=",
    "/",
    "[",
    '"',
    '\\"',
    '{"a":',
    "'",
    "\x1b[",
    "pg_",
    "\u2028",
    "\ud800",
    "│",
    "1:",
]
RUNS += ["def a(\n", "Error: x\n", "a-1-", "a/b.c:12:", "class " * 40 + "\n", "public " * 40 + "\n", "." * 299 + "\n"]
RUNS += [
    "-rw-r--r-- " + "a " * 140 + "\n",
    "const " + "b" * 290 + "\n",
    "type a<" + "b" * 290 + "\n",
    "no " * 99 + "\n",
]
RUNS += ["=" + " " * 290 + "\n", "int " * 70 + "(\n", "diff --git a/" + " b" * 140 + "\n", "12→" + "(" * 290 + "\n"]


@pytest.mark.parametrize("piece", RUNS, ids=lambda piece: repr(piece[:12]))
def test_the_outline_of_a_megabyte_of_anything_is_short(piece):
    assert len(outline(of(piece))) < 10_000
