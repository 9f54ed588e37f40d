"""Exports of OpenCode as they are read."""

import gzip
import json

from instrumentation.replay import log_files
from instrumentation.replay.importers import found
from instrumentation.replay.log_files import Problems
from pager.request_values import Usage

NOW = 1_767_225_600_000


class Export:
    """Makes an export as OpenCode does."""

    def __init__(self, **about):
        self.info = {"id": "ses_1", "version": "1.18.0", "projectID": "p", "directory": "/p", "title": "t", **about}
        self.messages = []

    def message(self, role, parts, **more):
        number = len(self.messages)
        info = {"id": f"msg_{number}", "sessionID": "ses_1", "role": role, "time": {"created": NOW + 1000 * number}}
        parts = [{"id": f"prt_{number}_{at}", "sessionID": "ses_1", **part} for at, part in enumerate(parts)]
        self.messages.append({"info": {**info, **more}, "parts": parts})
        return info["id"]

    def user(self, *parts, **more):
        parts = [text(part) if isinstance(part, str) else part for part in parts]
        return self.message("user", parts, agent="build", **more)

    def answer(self, *parts, tokens=None, **more):
        model = {"modelID": "claude-opus-4-5", "providerID": "anthropic", "cost": 0}
        return self.message("assistant", parts, **model, **({"tokens": tokens} if tokens else {}), **more)

    def read(self, tmp_path, problems=None, cut=None):
        path = tmp_path / "session.json"
        path.write_text(
            (json.dumps({"info": self.info, "messages": self.messages, "todos": []}, indent=2) + "\n")[:cut]
        )
        return list(log_files.read(path, problems if problems is not None else Problems()))


def text(words, **more):
    return {"type": "text", "text": words, **more}


def tool(call_id, output="out", name="read", time=None, status="completed", given=None, **state):
    state = {
        "status": status,
        "input": given or {"filePath": "src/a.py"},
        "output": output,
        "time": time or {},
        **state,
    }
    return {"type": "tool", "callID": call_id, "tool": name, "state": state}


def counts(fresh, read=0, write=0, output=9, reasoning=2):
    return {"input": fresh, "output": output, "reasoning": reasoning, "cache": {"read": read, "write": write}}


def only(imported):
    (one,) = imported
    assert one.format == "opencode"
    return one.recording


def sent(step):
    return [json.loads(raw) for raw in step.new]


START = {"type": "step-start"}


def finish(tokens):
    return {"type": "step-finish", "reason": "stop", "cost": 0, "tokens": tokens}


def test_an_answer_and_its_results_are_messages_of_their_own(tmp_path):
    log = Export()
    log.user("look at a.py")
    log.answer(START, text("I look."), tool("c1", "x = 1"), finish(counts(10, 900, 90)), tokens=counts(1))
    log.answer(START, text(""), tokens=counts(1009))
    log.answer(START, text("Done."), tokens=counts(1010))
    recording = only(log.read(tmp_path))
    first, empty, second = recording.steps
    assert (recording.name, recording.dialect, recording.harness) == ("ses_1", "chat", "opencode 1.18.0")
    assert sent(first) == [{"role": "user", "content": "look at a.py"}]
    assert (first.said, first.called, first.model) == ("I look.\nsrc/a.py", ("read",), "claude-opus-4-5")
    assert first.usage == Usage(1000, 900, 90, 11, 2, tells_cached=True)
    assert second.usage.input == 1010
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"filePath":"src/a.py"}'}}
    assert (second.keep, second.new) == (3, ())
    assert (empty.keep, sent(empty)) == (
        1,
        [
            {"role": "assistant", "content": "I look.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "x = 1"},
        ],
    )
    assert (first.at, second.at) == (NOW / 1000 + 1, NOW / 1000 + 3)
    assert first.tools == frozenset({"read"})


def test_a_message_may_hold_several_steps(tmp_path):
    log = Export()
    log.user("go")
    one = [START, tool("c1"), finish(counts(100))]
    two = [START, text("Done.", time={"start": NOW + 5000}), finish(counts(200))]
    log.answer(*one, *two, {"type": "patch", "hash": "x", "files": []})
    first, second = only(log.read(tmp_path)).steps
    assert [(step.usage.input, step.at) for step in (first, second)] == [(100, NOW / 1000 + 1), (200, NOW / 1000 + 5)]
    assert (second.said, second.keep) == ("Done.", 1)


def test_a_cleared_result_was_sent_in_full_until_then(tmp_path):
    log = Export()
    log.user("go")
    log.answer(tool("c1", "long", time={"start": NOW, "end": NOW, "compacted": NOW + 2500}))
    log.answer(tool("c2"))
    log.answer(text("Done."))
    _, second, third = only(log.read(tmp_path)).steps
    assert sent(second)[1]["content"] == "long"
    assert (third.keep, third.branch, third.parent) == (2, 1, 0)
    assert sent(third)[0] == {"role": "tool", "tool_call_id": "c1", "content": "[Old tool result content cleared]"}


def test_a_summary_is_a_call_and_what_came_before_it_is_gone(tmp_path):
    log = Export()
    log.user("one")
    log.answer(tool("c0", time={"compacted": NOW}))
    log.answer(text("1"))
    asked = log.user({"type": "compaction", "auto": True})
    log.answer(text("Summary."), summary=True, finish="stop", parentID=asked)
    log.user("two")
    log.answer(text("2"))
    _, _, summary, last = only(log.read(tmp_path)).steps
    assert (summary.said, summary.branch) == ("Summary.", 0)
    contents = [one["content"] for one in sent(last)]
    assert (last.keep, last.branch, contents) == (0, 1, ["What did we do so far?", "Summary.", "two"])


def test_a_summary_may_keep_the_last_messages(tmp_path):
    log = Export()
    log.user("one")
    log.answer(text("1"))
    tail = log.user("two")
    log.answer(text("2"))
    asked = log.user({"type": "compaction", "auto": True, "tail_start_id": tail})
    log.answer(text("Summary."), summary=True, finish="stop", parentID=asked)
    log.user("three")
    log.answer(text("3"))
    last = only(log.read(tmp_path)).steps[-1]
    assert [one["content"] for one in sent(last)] == ["two", "2", "What did we do so far?", "Summary.", "three"]


def test_failed_answers_are_not_sent_but_broken_off_ones_are(tmp_path):
    log = Export()
    log.user("go")
    log.answer(START, text("lost"), error={"name": "APIError", "data": {}})
    log.answer(START, error={"name": "MessageAbortedError", "data": {}})
    log.answer(START, text("half"), error={"name": "MessageAbortedError", "data": {}})
    log.answer(START, text("Done."))
    first, second = only(log.read(tmp_path)).steps
    assert (first.said, second.said) == ("half", "Done.")
    assert [one["content"] for one in sent(second)] == ["half"]


def test_tools_that_failed_or_were_interrupted_tell_so(tmp_path):
    log = Export()
    log.user("go")
    interrupted = {"interrupted": True, "output": "half"}
    log.answer(tool("c1", status="error", error="no file"), tool("c2", status="error", metadata=interrupted))
    log.answer(tool("c3", status="running"), tool("c4", None))
    log.answer(text("Done."))
    _, second, third = only(log.read(tmp_path)).steps
    told = [one["content"] for step in (second, third) for one in sent(step) if one["role"] == "tool"]
    assert told == ["no file", "half", "[Tool execution was interrupted]", ""]


def test_files_and_notes_of_the_user_are_sent_as_opencode_does(tmp_path):
    log = Export()
    picture = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AA"}
    listed = {"type": "file", "mime": "text/plain", "url": "file:///a"}
    log.user(
        "see", text("not sent", ignored=True), picture, listed, {"type": "subtask", "prompt": "p"}, {"type": "agent"}
    )
    log.user()
    log.answer(tool("c1", attachments=[picture]))
    log.answer(text("Done."))
    first, second = only(log.read(tmp_path)).steps
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    told = text("The following tool was executed by the user")
    assert sent(first) == [{"role": "user", "content": [text("see"), shown, told]}]
    assert sent(second)[2] == {"role": "user", "content": [shown]}


def test_an_answer_before_any_user_is_no_call(tmp_path):
    log = Export()
    log.answer(text("Hello."))
    assert log.read(tmp_path) == []


def test_a_message_of_nobody_is_counted_and_skipped(tmp_path):
    log = Export()
    log.user("go")
    log.message("system", [text("new")])
    log.messages += [3, {"info": 1, "parts": 2}]
    log.answer(text("1"))
    problems = Problems()
    assert len(only(log.read(tmp_path, problems)).steps) == 1
    assert problems.bad == 3


def test_a_document_that_was_cut_is_a_bad_line(tmp_path):
    log = Export()
    log.user("go")
    problems = Problems()
    assert log.read(tmp_path, problems, cut=-40) == []
    assert problems.bad == 1


def test_a_compressed_document_that_was_cut_is_a_broken_file(tmp_path):
    log = Export(note="".join(map(chr, range(40, 20_000))))
    log.user("go")
    log.read(tmp_path)
    path, problems = tmp_path / "session.json.gz", Problems()
    path.write_bytes(gzip.compress((tmp_path / "session.json").read_bytes())[:-20])
    assert list(found()["opencode"].read(path, problems)) == []
    assert problems.broken == [path]
