"""Signs of harm in the log of a session: what counts as a re-read, a failed edit and a turn."""

from hashlib import sha256

import orjson
import pytest

from instrumentation.accounting.harm import HarmCounts, count_harm
from pager.errors import StoreCorrupt
from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    CallReceived,
    ToolCalled,
)
from pager.log.store import Batch
from pager.log.stores.memory.store import Store
from pager.wire.dialects import load as load_dialect

READ, EDIT, WRITE = "Read", "Edit", "Write"
A, B = {"file_path": "/src/a.py"}, {"file_path": "/src/b.py"}


class Session:
    """A session in the Messages format: each call brings what is new, each answer calls tools."""

    def __init__(self):
        self.events, self.blobs, self.calls, self.made = [], {}, {}, 0
        self.open(0, "root")

    def open(self, branch, reason, parent=None):
        self.events.append(BranchOpened(branch, reason, "messages", parent=parent))

    def call(self, *items, branch=0, attempt=1, dialect="messages"):
        number = self.calls[branch] = self.calls.get(branch, 0) + (attempt == 1)
        digests = [self.blob(orjson.dumps(item)) for item in items]
        self.events += [
            CallReceived(branch, number, attempt, dialect, "/", "m", False, "", 9, "", [], messages=digests),
            AnswerFinished(branch, number, attempt, 200, "stop", "", 0, 1.0, 2.0),
        ]

    def use(self, tool, arguments, result="fine", *, branch=0, is_error=False, beside=()):
        """A tool call of the latest answer, and the next call, which brings its result."""
        self.made += 1
        call_id, arguments = f"c{self.made}", orjson.dumps(arguments)
        called = ToolCalled(branch, self.calls[branch], 1, 0, tool, call_id, self.blob(arguments), "")
        self.events.append(called)
        use = {"type": "tool_use", "id": call_id, "name": tool, "input": orjson.loads(arguments)}
        back = {"type": "tool_result", "tool_use_id": call_id, "content": result, "is_error": is_error}
        answer = {"role": "assistant", "content": [use]}
        self.call(answer, {"role": "user", "content": [back, *beside]}, branch=branch)

    def blob(self, content):
        digest = sha256(content).digest()
        self.blobs[digest] = content
        return digest.hex()

    def counts(self):
        store = Store()
        store.append(Batch("s_1", 100.0, self.events, self.blobs))
        return count_harm(store.events("s_1"), store.blob, load_dialect)


def ask(text="Please."):
    return {"role": "user", "content": text}


@pytest.fixture
def session():
    session = Session()
    session.call(ask())
    return session


# ---------------------------------------------------------------- re-reads


def test_a_file_that_is_read_again_is_a_re_read_each_time(session):
    for arguments in (A, B, A, A):
        session.use(READ, arguments)
    assert session.counts().re_reads == 2


def test_another_part_of_a_file_is_no_re_read(session):
    session.use(READ, {**A, "offset": 1, "limit": 50})
    session.use(READ, {**A, "offset": 51, "limit": 50})
    assert session.counts().re_reads == 0
    session.use(READ, {**A, "offset": 51, "limit": 50})
    assert session.counts().re_reads == 1


def test_reading_a_file_after_its_edit_is_no_re_read_unless_the_edit_failed(session):
    session.use(READ, A)
    session.use(EDIT, {**A, "old_string": "x", "new_string": "y"})
    session.use(READ, A)
    assert session.counts().re_reads == 0
    session.use(EDIT, {**A, "old_string": "x", "new_string": "y"}, "String to replace not found", is_error=True)
    session.use(READ, A)
    assert session.counts().re_reads == 1


def test_a_read_that_failed_has_read_nothing(session):
    session.use(READ, A, "no such file", is_error=True)
    session.use(READ, A)
    assert session.counts().re_reads == 0


def test_the_same_command_again_is_no_re_read(session):
    session.use("Bash", {"command": "cat /src/a.py"})
    session.use("Bash", {"command": "cat /src/a.py"})
    assert session.counts().re_reads == 0


def test_a_sub_agent_has_read_nothing_but_a_fork_what_its_parent_has(session):
    session.use(READ, A)
    session.open(1, "subagent")
    session.call(ask("Look at it."), branch=1)
    session.use(READ, A, branch=1)
    assert session.counts().re_reads == 0
    session.open(2, "fork", parent=0)
    session.call(ask("Once more."), branch=2)
    session.use(READ, A, branch=2)
    assert session.counts().re_reads == 1


# ---------------------------------------------------------------- failed edits


def edits(result, **options):
    session = Session()
    session.call(ask())
    session.use(EDIT, A, result, **options)
    counts = session.counts()
    return counts.edits, counts.failed_edits


@pytest.mark.parametrize(
    "result",
    [
        "<tool_use_error>String to replace not found in file.</tool_use_error>",
        "Error: oldString not found in content",
        "Error editing file: no match",
        "ERROR:\nNo replacement was performed, old_str did not appear verbatim",
        "Could not find the exact text in a.py",
        "No changes made to a.py",
        "Failed to edit, 0 occurrences found",
        "apply_patch verification failed: Failed to find expected lines in a.py",
        "The tool execution failed with the following error:",
        "Exit code: 1\nWall time: 0.1 seconds\nOutput:\n",
        "ValueError: nothing to replace",
        '{"output": "no such lines", "metadata": {"exit_code": 1}}',
        '{"error": "not found"}',
        '{"success": false}',
    ],
)
def test_edits_that_say_they_failed_are_counted(result):
    assert edits(result) == (1, 1)


@pytest.mark.parametrize(
    "result",
    [
        "The file /src/failed_error.py has been updated successfully.",
        "Successfully replaced text in errors.py. Errors: 0 before.",
        "Exit code: 0\nOutput:\nSuccess. Updated the following files:",
        '{"output": "Success.", "metadata": {"exit_code": 0}, "error": null}',
        '{"not json',
        "",
    ],
)
def test_edits_that_do_not_are_not(result):
    assert edits(result) == (1, 0)
    assert edits(result, is_error=True) == (1, 1)


def test_an_edit_that_the_user_refused_is_none():
    assert edits("The user doesn't want to proceed with this tool use.", is_error=True) == (0, 0)


def test_an_edit_without_a_result_is_none(session):
    session.events.append(ToolCalled(0, 1, 1, 0, EDIT, "c9", session.blob(orjson.dumps(A)), ""))
    assert session.counts().edits == 0


def test_results_in_chat_completions_have_no_mark_but_words():
    session = Session()
    session.call(ask(), dialect="chat")
    for call_id, content in (("c1", "Error: no match"), ("c2", "done")):
        session.events.append(ToolCalled(0, 1, 1, 0, WRITE, call_id, session.blob(orjson.dumps(A)), ""))
        session.call({"role": "tool", "tool_call_id": call_id, "content": content}, dialect="chat")
    assert session.counts() == HarmCounts(calls=3, turns=1, edits=2, failed_edits=1)


# ---------------------------------------------------------------- calls and turns


def test_a_turn_begins_with_a_call_that_brings_no_results(session):
    reminder = {"type": "text", "text": "<system-reminder>Mind the time.</system-reminder>"}
    session.use(READ, A, beside=[reminder])
    session.use(READ, B)
    session.call({"role": "assistant", "content": "Done."}, ask("And now?"))
    session.call(ask("And now?"), attempt=2)
    assert session.counts() == HarmCounts(calls=4, turns=2)


def test_side_requests_count_for_nothing(session):
    session.open(1, "side")
    session.call(ask("A title, please."), branch=1)
    session.open(2, "fork", parent=1)
    session.call(ask("A shorter one."), branch=2)
    assert session.counts() == HarmCounts(calls=1, turns=1)


def test_content_that_is_damaged_counts_for_nothing(session):
    session.use(READ, A)
    session.use(READ, A)

    def damaged(_):
        raise StoreCorrupt("not what was stored")

    store = Store()
    store.append(Batch("s_1", 100.0, session.events, session.blobs))
    for fetch in (damaged, lambda _: None, lambda _: b"[1]"):
        assert count_harm(store.events("s_1"), fetch, load_dialect) == HarmCounts(calls=3, turns=3)
