"""A later call makes earlier results, and arguments, dead; what it did is told by its name and arguments alone."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import TRACES

from pager.paging.pages.staleness import Supersession, deed_of

PATCH = """*** Begin Patch
*** Update File: src/a.py
@@
-old
+new
*** Add File: ./src/b.py
+text
*** Delete File: c.txt
*** Update File: d.py
*** Move to: e.py
*** End Patch"""


def deed(tool, **arguments):
    return deed_of(tool, json.dumps(arguments))


def read(path="a.py", **span):
    return deed("Read", file_path=path, **span)


def edit(path="a.py", old="x"):
    return deed("Edit", file_path=path, old_string=old, new_string="y")


def write(path="a.py", content="text"):
    return deed("Write", file_path=path, content=content)


def run(command="make test", **more):
    return deed("Bash", command=command, **more)


class Branch:
    """Feeds calls; each has pages named by its number: ``3`` its result, ``3a`` its arguments."""

    def __init__(self, state=None):
        self.state = state or Supersession()
        self.calls = 0

    def call(self, done, *, arguments=False, failed=False, small=False):
        self.calls += 1
        if arguments:
            assert self.state.note(f"{self.calls}a", "argument", done) == []
        if small:
            return self.state.edited(done, failed=failed)
        return self.state.note(str(self.calls), "result", done, failed=failed)


# What a call does


@pytest.mark.parametrize(
    ("tool", "arguments", "kind", "targets"),
    [
        ("Read", {"file_path": "/p/a.py"}, "read", ("/p/a.py",)),
        ("read", {"filePath": "a.py"}, "read", ("a.py",)),
        ("read_file", {"path": "a.py"}, "read", ("a.py",)),
        ("read_file", {"absolute_path": "/a.py"}, "read", ("/a.py",)),
        ("read_file", {"target_file": "a.py"}, "read", ("a.py",)),
        ("Read", {"filepath": "a.py"}, "read", ("a.py",)),
        ("read_files", {"files": [{"path": "a.py"}, {"path": "b.py"}]}, "read", ("a.py", "b.py")),
        ("read_multiple_files", {"paths": ["a.py", "b.py", "a.py", 5]}, "read", ("a.py", "b.py")),
        ("view_image", {"path": "a.png", "detail": "high"}, "read", ("a.png",)),
        ("mcp__filesystem__read_text_file", {"path": "a.py"}, "read", ("a.py",)),
        ("mcp__edit-server__getDiagnostics", {"uri": "file:///p/a.py"}, "read", ("/p/a.py",)),
        ("WebFetch", {"url": "https://example.org//x/", "prompt": "?"}, "read", ("https://example.org/x",)),
        ("webfetch", {"url": "https://example.org"}, "read", ("https://example.org",)),
        (
            "fetch_web_content",
            {"requests": [{"url": "https://example.org", "prompt": "?"}]},
            "read",
            ("https://example.org",),
        ),
        ("get_file_contents", {"owner": "o", "repo": "r", "path": "a.py"}, "read", ("o/r:a.py",)),
        ("Write", {"file_path": "a.py", "content": "path"}, "write", ("a.py",)),
        ("Edit", {"file_path": "a.py", "old_string": "x", "new_string": "y"}, "write", ("a.py",)),
        ("MultiEdit", {"file_path": "a.py", "edits": [{"old_string": "x"}]}, "write", ("a.py",)),
        ("NotebookEdit", {"notebook_path": "a.ipynb", "new_source": "x"}, "write", ("a.ipynb",)),
        ("editor", {"path": "a.py", "new_text": "x"}, "write", ("a.py",)),
        ("replace_in_file", {"path": "a.py", "diff": "x"}, "write", ("a.py",)),
        ("move_file", {"source": "a.py", "destination": "b.py"}, "write", ("a.py", "b.py")),
        ("str_replace_based_edit_tool", {"command": "view", "path": "a.py"}, "read", ("a.py",)),
        ("str_replace_editor", {"command": "str_replace", "path": "a.py"}, "write", ("a.py",)),
        ("str_replace_editor", {"command": "undo_edit", "path": "a.py"}, "write", ("a.py",)),
        ("apply_patch", {"patchText": PATCH}, "write", ("src/a.py", "src/b.py", "c.txt", "d.py", "e.py")),
        ("shell", {"command": ["apply_patch", PATCH]}, "write", ("src/a.py", "src/b.py", "c.txt", "d.py", "e.py")),
        ("edit_file", {"path": "a.py", "edits": [], "dryRun": True}, "other", ()),
        ("Bash", {"command": "cat a.py", "path": "a.py"}, "other", ()),
        ("exec_command", {"cmd": "view", "workdir": "/p"}, "other", ()),
        ("bash", {"command": f"echo '{PATCH}'"}, "other", ()),
        ("Grep", {"pattern": "x", "path": "a.py"}, "other", ()),
        ("Task", {"prompt": f"use apply_patch:\n{PATCH}"}, "other", ()),
        ("get_order", {"order_id": "7"}, "other", ()),
        ("read", {"path": None, "file": "", "files": "a.py", "filename": "a\nb"}, "other", ()),
        ("__", {"path": "a.py"}, "other", ()),
    ],
)
def test_a_tools_name_and_arguments_tell_what_it_does(tool, arguments, kind, targets):
    done = deed(tool, **arguments)
    assert (done.kind, done.targets) == (kind, targets)


def test_a_patch_need_not_be_json():
    assert deed_of("apply_patch", PATCH).targets == ("src/a.py", "src/b.py", "c.txt", "d.py", "e.py")
    assert deed_of("apply_patch", "*** nothing").kind == "other"
    assert deed_of("exec", "text(await tools.exec_command({cmd: 'ls'}))").kind == "other"


@pytest.mark.parametrize(
    ("done", "whole"),
    [
        (write(), True),
        (deed("create_or_update_file", path="a.py", content="x"), True),
        (deed("delete", file_path="a.py"), True),
        (deed("str_replace_editor", command="create", path="a.py", file_text="x"), True),
        (deed("str_replace_editor", command="insert", path="a.py"), False),
        (deed("write_file", path="a.py", content="x", mode="append"), False),
        (deed("write_file", path="a.py", content="x", append=True), False),
        (edit(), False),
        (deed("append_to_file", path="a.py", content="x"), False),
        (deed_of("apply_patch", "*** Add File: a.py\n+x"), True),
        (deed_of("apply_patch", PATCH), False),
    ],
)
def test_a_write_is_whole_if_nothing_of_the_old_is_left(done, whole):
    assert done.kind == "write"
    assert done.whole == whole


@pytest.mark.parametrize("path", ["a/b.py", "./a/b.py", "././a/b.py", "a//b.py", "a/b.py/", "a/./b.py", " a/b.py"])
def test_a_path_can_be_written_in_many_ways(path):
    assert read(path).targets == ("a/b.py",)


def test_the_root_stays_the_root():
    assert read("/").targets == ("/",)
    assert read("/./").targets == ("/",)
    assert read("file:///p//a.py").targets == ("/p/a.py",)


@pytest.mark.parametrize(
    "span", [{}, {"offset": None}, {"offset": 0}, {"offset": 1}, {"start_line": 1}, {"view_range": [1, -1]}]
)
def test_a_read_from_the_beginning_to_the_end_is_of_the_whole(span):
    assert read(**span).span == ()


def test_a_span_has_one_form():
    assert read(offset=10, limit=5).span == (("limit", "5"), ("offset", "10"))
    assert read(startLine=10, endLine=20).span == read(end_line=20, start_line=10).span
    assert read(offset=1, limit=5).span == read(limit=5).span != ()
    assert deed("read_files", files=[{"path": "a.py", "start_line": 3}]).span != ()
    assert deed("read_files", files=[{"path": "a.py"}]).span == ()


ARGUMENTS = st.dictionaries(
    st.sampled_from(["path", "offset", "limit", "content", "command", "pattern", "files", "x"]),
    st.none() | st.booleans() | st.integers(0, 99) | st.text() | st.lists(st.text(max_size=5), max_size=3),
)


@given(st.sampled_from(["Read", "Write", "edit", "Bash", "apply_patch", "grep"]), ARGUMENTS, st.randoms())
def test_the_order_of_keys_and_the_spacing_do_not_matter(tool, arguments, random):
    shuffled = list(arguments.items())
    random.shuffle(shuffled)
    one = deed_of(tool, json.dumps(arguments))
    other = deed_of(tool, json.dumps(dict(shuffled), indent=2))
    names = ("signature", "kind", "span", "scope", "whole")
    assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]
    assert set(one.targets) == set(other.targets)


def test_other_arguments_and_other_tools_have_other_signatures():
    done = [read(), read("b.py"), read(offset=5), deed("View", file_path="a.py"), run(), deed_of("Read", ""), write()]
    done += [deed_of("Read", "[1, 2]"), deed_of("Read", "no json"), deed_of("Read", "no  json")]
    assert len({one.signature for one in done}) == len(done)
    assert deed_of("Read", "").signature == deed_of("Read", "{}").signature


def test_remarks_on_a_command_are_no_part_of_it():
    assert run(description="Run the tests", timeout=5).signature == run(description="Again").signature
    assert run().signature != run("make lint").signature
    assert deed("Task", description="x").signature != deed("Task", description="y").signature


@given(st.text(), st.text())
def test_no_call_is_too_strange(tool, arguments):
    done = deed_of(tool, arguments)
    assert done.tool == tool
    assert len(done.signature) == 16


def test_arguments_nested_too_deeply_to_be_written_are_hashed_as_they_are():
    deep = '{"path": "a.py", "x": ' + "[" * 300 + "]" * 300 + "}"
    assert deed_of("Read", deep).signature != deed_of("Read", deep.replace("a.py", "b.py")).signature
    assert deed_of("Read", deep).targets == ("a.py",)


def test_half_of_an_emoji_is_no_error():
    assert deed_of("Read", '{"path": "\\ud83d"}').kind == "other"
    assert deed_of("Read\ud83d", "\ud83d").kind == "other"


# The same call again


def test_the_same_call_again_makes_the_earlier_result_dead():
    branch = Branch()
    assert branch.call(run()) == []
    assert branch.call(run("make lint")) == []
    assert branch.call(run()) == ["1"]
    assert branch.call(run()) == ["3"]


def test_a_small_result_makes_a_large_one_dead():
    branch = Branch()
    branch.call(run())
    assert branch.call(run(), small=True) == ["1"]
    assert branch.call(run(), small=True) == []


def test_a_failed_call_makes_nothing_dead():
    branch = Branch()
    branch.call(read())
    assert branch.call(read(), failed=True) == []
    assert branch.call(edit(), failed=True) == []
    assert branch.call(write(), failed=True, small=True) == []
    assert branch.call(read()) == ["1", "2"]


def test_what_a_failed_call_said_is_dead_when_the_call_succeeds():
    branch = Branch()
    branch.call(run(), failed=True)
    assert branch.call(run()) == ["1"]


# Reads


def test_the_same_part_read_again_makes_the_earlier_read_dead():
    branch = Branch()
    branch.call(read(offset=10, limit=5))
    branch.call(read(offset=20, limit=5))
    branch.call(read("b.py", offset=10, limit=5))
    assert branch.call(deed("Read", limit=5, offset=10, file_path="./a.py")) == ["1"]


def test_the_whole_read_again_makes_reads_of_parts_dead():
    branch = Branch()
    branch.call(read(offset=10, limit=5))
    branch.call(read(offset=20))
    branch.call(read("b.py", offset=20))
    assert branch.call(read()) == ["1", "2"]


def test_a_part_read_again_leaves_the_whole_alive():
    branch = Branch()
    branch.call(read())
    assert branch.call(read(offset=10)) == []


def test_another_question_about_the_same_page_is_not_the_same_read():
    branch = Branch()
    branch.call(deed("WebFetch", url="https://example.org", prompt="How old?"))
    assert branch.call(deed("WebFetch", url="https://example.org", prompt="How new?")) == []
    branch.call(deed("get_file_contents", owner="o", repo="r", path="a.py"))
    assert branch.call(deed("get_file_contents", owner="o", repo="other", path="a.py")) == []
    assert branch.call(deed("get_file_info", owner="o", repo="r", path="a.py")) == []


# Writes


def test_a_write_makes_earlier_reads_and_results_of_writes_dead():
    branch = Branch()
    branch.call(read())
    branch.call(read(offset=10))
    branch.call(read("b.py"))
    assert branch.call(edit()) == ["1", "2"]
    assert branch.call(edit(old="z")) == ["4"]
    assert branch.call(write(), small=True) == ["5"]
    assert branch.call(write("b.py"), small=True) == ["3"]


def test_a_read_leaves_the_result_of_a_write_alive():
    branch = Branch()
    branch.call(edit())
    assert branch.call(read()) == []


def test_an_edit_can_be_told_to_leave_results_alive():
    branch = Branch(Supersession(by_edits=False))
    branch.call(read())
    branch.call(edit(), arguments=True)
    assert branch.state.copy().edited(edit(old="z")) == []
    assert branch.state.copy().edited(write()) == ["1", "2a", "2"]


def test_a_search_or_a_command_is_not_made_dead_by_a_write():
    branch = Branch()
    branch.call(deed("Grep", pattern="x", path="a.py"))
    branch.call(run("cat a.py"))
    assert branch.call(write()) == []


def test_the_arguments_of_a_write_are_dead_when_the_whole_is_written_again():
    branch = Branch()
    branch.call(write(), arguments=True, small=True)
    branch.call(edit(), arguments=True, small=True)
    branch.call(write("b.py"), arguments=True, small=True)
    assert branch.call(write(content="new"), arguments=True, small=True) == ["1a", "2a"]
    assert branch.call(deed("delete", file_path="a.py"), small=True) == ["4a"]


def test_an_edit_leaves_the_arguments_of_the_write_before_alive():
    branch = Branch()
    branch.call(write(), arguments=True)
    assert branch.call(edit(), arguments=True) == ["1"]


def test_a_call_leaves_its_own_pages_alive():
    branch = Branch()
    assert branch.call(write(), arguments=True) == []
    done = write()
    state = Supersession()
    assert state.note("first argument", "argument", done) == []
    assert state.note("second argument", "argument", done) == []
    assert state.note("result", "result", done) == []
    assert state.note("second part of the result", "result", done) == []


def test_calls_made_at_once_are_settled_by_their_results():
    first, second = write(content="first"), write(content="second")
    state = Supersession()
    state.note("1a", "argument", first)
    state.note("2a", "argument", second)
    assert state.edited(first) == []
    assert state.edited(second) == ["1a"]


def test_the_arguments_of_other_calls_never_die():
    branch = Branch()
    branch.call(deed("Task", prompt="long"), arguments=True)
    assert branch.call(deed("Task", prompt="long"), arguments=True) == ["1"]


def test_the_arguments_of_a_failed_write_are_dead_when_the_whole_is_written():
    branch = Branch()
    branch.call(write(content="bad"), arguments=True, small=True, failed=True)
    assert branch.call(write(), small=True) == ["1a"]


def test_a_patch_makes_reads_of_all_its_files_dead():
    branch = Branch()
    for path in ("src/a.py", "d.py", "f.py"):
        branch.call(read(path))
    assert branch.call(deed_of("apply_patch", PATCH)) == ["1", "2"]


def test_a_read_of_several_files_is_dead_when_all_were_written():
    branch = Branch()
    branch.call(deed("read_files", paths=["a.py", "b.py"]))
    assert branch.call(edit("a.py"), small=True) == []
    assert branch.call(edit("a.py", old="z"), small=True) == []
    assert branch.call(edit("b.py"), small=True) == ["1"]


def test_a_page_that_comes_again_is_alive_again():
    state = Supersession()
    state.note("page", "result", read())
    assert state.edited(edit()) == ["page"]
    assert state.note("page", "result", read()) == []
    assert state.note("page", "result", read()) == []
    assert state.edited(edit()) == ["page"]


# Laws


def calls():
    yield from (read(), read("b.py"), read(offset=5), edit(), edit("b.py"), write(), write("b.py"), run())
    yield from (deed("read_files", paths=["a.py", "b.py"]), deed_of("apply_patch", "*** Update File: a.py"))


DEEDS = st.sampled_from([*calls(), *calls()])  # each call is made twice
STEPS = st.lists(
    st.tuples(st.sampled_from("pqrstuv"), st.sampled_from(["argument", "result", "end"]), DEEDS, st.booleans()),
    max_size=15,
)


def feed(state, steps):
    dead = []
    for page, part, done, failed in steps:
        told = state.edited(done, failed=failed) if part == "end" else state.note(page, part, done, failed=failed)
        assert part == "end" or page not in told, "a page never makes itself dead"
        assert len(set(told)) == len(told)
        assert not (failed and told)
        dead.append(told)
    return dead


@given(STEPS, STEPS, STEPS)
def test_feeding_a_copy_is_feeding_the_original(before, after, elsewhere):
    state = Supersession()
    first = feed(state, before)
    fork = state.copy()
    feed(fork, elsewhere)
    fork = state.copy()
    assert first + feed(fork, after) == feed(Supersession(), before + after)
    assert first + feed(state, after) == feed(Supersession(), before + after)


@given(STEPS)
def test_only_living_pages_die(steps):
    state, living = Supersession(), set()
    for page, part, done, failed in steps:
        told = feed(state, [(page, part, done, failed)])[0]
        assert set(told) <= living
        living = (living - set(told)) | (set() if part == "end" else {page})


# Recorded sessions


@pytest.mark.recorded
@pytest.mark.skipif(not TRACES, reason="CTXPAGER_RECORDINGS names no folder with traces/*/*.jsonl.gz")
def test_the_files_of_recorded_calls_are_known():
    known = {"read": 0, "write": 0}
    for path in TRACES[::8]:
        with gzip.open(path, "rt") as file:
            calls = [call["function"] for line in list(file)[1:] for call in json.loads(line).get("tool_calls") or []]
        for call in calls:
            done = deed_of(call["name"], call["arguments"])
            expected = {"read": "read", "edit": "write", "write": "write"}.get(call["name"].lower())
            if expected:
                assert (done.kind, len(done.targets)) == (expected, 1)
                known[expected] += 1
    assert min(known.values()) > 100
