"""A stub says what a page was, within its limit, with its own handle and no other."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from laws import examples

from pager.paging.pages.page import STUB_TOKENS
from pager.paging.pages.stub import (
    HANDLE,
    LONGEST_ARGUMENT,
    Subject,
    handle_of,
    longer,
    main_argument,
    make_stub,
)
from pager.pricing.tokens import CLAUDE_SINCE_4_7, O200K, Counter

CODE = "class App:\n    def run(self):\n        pass\n\ndef main():\n    App().run()\n\ndef load_config():\n    pass\n"
READ = Subject("result", "Read", "src/app.py", 14_200, 412, CODE)
ID = "pg_0123456789abcdef"

counter = Counter()


def quarter(text):
    return len(text) // 4


def o200k(text):
    return counter.count(text, O200K)


def claude(text):
    return counter.count(text, CLAUDE_SINCE_4_7)


def erratic(text):
    """Not monotone: a longer text may count for less."""
    return sha256(text.encode()).digest()[0]


COUNTS = [len, quarter, o200k, claude, erratic]


def test_a_handle_is_the_beginning_of_the_contents_hash():
    assert handle_of(b"") == "pg_e3b0c44298fc1c14"
    assert HANDLE.fullmatch(handle_of(b"a"))
    assert handle_of(b"a") != handle_of(b"b")


@given(st.binary(), st.integers(17, 32))
def test_a_longer_handle_begins_with_the_shorter_one(content, digits):
    made = longer(handle_of(content), content, digits)
    assert made.startswith(handle_of(content))
    assert len(made) == len("pg_") + digits
    assert HANDLE.fullmatch(made)


@pytest.mark.parametrize(
    ("content", "digits"), [(b"a", 16), (b"a", 8), (b"a", 33), (b"another", 20)], ids=["same", "less", "most", "other"]
)
def test_a_handle_does_not_shrink_outgrow_its_form_or_change_its_content(content, digits):
    with pytest.raises(ValueError, match="can't be made"):
        longer(handle_of(b"a"), content, digits)


def test_a_stub_tells_tool_argument_size_outline_and_handle():
    assert make_stub(READ, ID, quarter) == (
        f"[{ID}: Read src/app.py, 412 lines, 14.2 KB, defines App, main, load_config, run; page_in to see it]"
    )


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        (replace(READ, kind="argument", tool="Write"), f"[{ID}: argument of Write src/app.py, 412 lines,"),
        (replace(READ, kind="argument", tool="", argument=""), f"[{ID}: argument of a call, 412 lines,"),
        (replace(READ, tool="", argument=""), f"[{ID}: a result, 412 lines,"),
        (replace(READ, lines=1, size=812), f"[{ID}: Read src/app.py, 812 bytes,"),
        (replace(READ, size=2_340_000), f"[{ID}: Read src/app.py, 412 lines, 2.3 MB,"),
    ],
)
def test_each_kind_of_page_is_named_for_what_it_is(subject, said):
    assert make_stub(subject, ID, quarter).startswith(said)


def test_the_outline_goes_first_then_the_argument_then_the_tool_and_never_the_handle():
    subject = replace(READ, argument="/home/me/project/src/app.py")
    stubs = [make_stub(subject, ID, len, limit) for limit in range(150, 0, -1)]
    parts = ("load_config", "defines", "/home/me", "app.py", "Read", ID)
    kept = [[part in stub for part in parts] for stub in stubs]
    assert all(each == sorted(each) for each in kept), "a part stays only with all that tell more"
    assert kept == sorted(kept, reverse=True), "what was left out does not return"
    assert stubs[0].endswith("load_config, run; page_in to see it]")
    assert stubs[-1] == ID


def test_a_stub_of_the_usual_limit_has_room_for_an_outline():
    long = replace(READ, argument="/home/someone/project/packages/agent/src/terminal/renderer.py")
    assert "defines App" in make_stub(long, ID, o200k)
    assert make_stub(long, ID, o200k) == make_stub(long, ID, o200k, STUB_TOKENS)
    assert o200k(make_stub(long, ID, o200k)) <= STUB_TOKENS


def test_the_tool_that_brings_it_back_may_have_another_name():
    assert make_stub(READ, ID, quarter, getter="page_in_2").endswith("; page_in_2 to see it]")


words = st.text(max_size=90) | st.sampled_from(
    ["pg_", ID, "pg_" + "a" * 40, "src/a.py", '"\\', "x" * 300, "\u2028\ud800"]
)
subjects = st.builds(
    Subject,
    st.sampled_from(["result", "argument"]),
    words,
    words,
    st.integers(0, 10**10),
    st.integers(0, 10**7),
    st.lists(words | st.just("\n") | st.just(CODE), max_size=8).map("".join),
)


@examples(300)
@given(subjects, st.sampled_from(COUNTS), st.integers(0, 120))
@example(replace(READ, tool="pg_", argument="abcdef0123", text="pg_\x00abcdef0123"), quarter, 64)
def test_any_stub_keeps_to_its_limit_and_holds_its_own_handle_only(subject, count, limit):
    stub = make_stub(subject, ID, count, limit)
    assert stub == ID or count(stub) <= limit
    assert HANDLE.findall(stub) == [ID]
    assert stub == make_stub(subject, ID, count, limit)
    assert len(stub.splitlines()) == 1
    assert json.dumps(stub, ensure_ascii=False) == f'"{stub}"'
    stub.encode()


@given(subjects, st.sampled_from([len, quarter, o200k, claude]))
def test_with_the_usual_limit_no_stub_is_a_bare_handle(subject, count):
    assert make_stub(subject, ID, count, STUB_TOKENS) != ID


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"file_path": "src/app.py", "offset": 10}, "src/app.py"),
        ({"filePath": "src/app.py"}, "src/app.py"),
        ({"limit": 3, "path": "src", "pattern": "def main"}, "def main"),
        ({"content": "x" * 900, "path": "a.py"}, "a.py"),
        ({"command": "cd /home/me/project && make test", "timeout": 5}, "make test"),
        ({"command": ["bash", "-lc", "cat a.py"]}, "cat a.py"),
        ({"cmd": ["ls", "-l", "src"]}, "ls -l src"),
        ({"url": "https://example.com/a", "prompt": "read it"}, "https://example.com/a"),
        ({"server": "arxiv", "tool_name": "get_paper", "params": {"id": 1}}, "get_paper"),
        ({"order_id": "#W88", "reason": "late"}, "#W88"),
        ({"flag": True, "count": 4, "city": "Rome"}, "Rome"),
        ({"flag": True, "count": 4}, "4"),
        ({"content": "x" * 900}, ""),
        ({"nested": {"a": 1}}, ""),
        ({"names": ["one", "two"]}, "one two"),
        ({"path": "", "other": "told"}, "told"),
        ({"path": ID}, "(page)"),
        ("just text", "just text"),
        (None, ""),
        ({}, ""),
    ],
)
def test_the_most_telling_argument_stands_for_a_call(arguments, argument):
    assert main_argument(json.dumps(arguments)) == argument


def test_a_long_path_keeps_its_end_and_a_long_command_its_beginning():
    path = main_argument(json.dumps({"path": "/home/someone/project/packages/agent/src/renderer.py"}))
    assert path.startswith(".../")
    assert path.endswith("/src/renderer.py")
    assert main_argument(json.dumps({"command": "go test ./... " + "-v " * 60})).startswith("go test ./... -v")


def test_arguments_that_are_no_json_are_told_by_what_they_hold():
    assert main_argument("*** Begin Patch\n*** Update File: a.py\n@@\n+x\n*** End Patch") == "diff of a.py"
    assert main_argument("") == main_argument("  ") == ""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner) | st.dictionaries(words | st.sampled_from(["path", "command"]), inner),
)


@given(json_values.map(json.dumps) | words)
def test_any_arguments_have_a_short_plain_main_argument(arguments):
    argument = main_argument(arguments)
    assert len(argument) <= LONGEST_ARGUMENT
    assert len(argument.splitlines()) <= 1
    assert not HANDLE.search(argument)
    assert json.dumps(argument, ensure_ascii=False) == f'"{argument}"'
    argument.encode()


@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({"command": " " * 5_000_000}),
        json.dumps({"a": "cd " * 1_600_000}),
        json.dumps(["x" * 1_000_000] * 5),
        json.dumps({f"someKey{number}": number for number in range(200_000)}),
        '{"a":' * 1_000_000,
        "(" * 5_000_000,
    ],
    ids=["spaces", "words", "list", "keys", "nested", "no json"],
)
def test_the_main_argument_of_five_megabytes_is_short(arguments):
    assert len(main_argument(arguments)) < 1_000
