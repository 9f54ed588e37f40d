"""Logs of Claude Code as they are read."""

import json

import pytest

from instrumentation.accounting.billing import tokens_in
from instrumentation.replay import log_files
from instrumentation.replay.compare import Contender, ReplayConditions, compare
from instrumentation.replay.log_files import Problems
from pager.pricing.tokens import BYTES_A_TOKEN
from pager.request_values import Usage

SESSION = "5f0c6d2e-0001-4000-8000-000000000001"


class Log:
    """Writes lines as Claude Code does; each follows the last one unless it is told otherwise."""

    def __init__(self, session=SESSION, **about):
        self.about = {"isSidechain": False, "userType": "external", "cwd": "/p", "sessionId": session}
        self.about |= {"version": "2.1.37", "gitBranch": "main", **about}
        self.lines, self.last, self.count = [], None, 0

    def line(self, kind, uuid=None, parent="last", at=None, **more):
        self.count += 1
        uuid = uuid or f"u{self.count}"
        before = self.last if parent == "last" else parent
        stamp = f"2026-01-01T00:{(at or self.count) // 60:02}:{(at or self.count) % 60:02}.000Z"
        self.lines.append({"parentUuid": before, **self.about, "type": kind, "uuid": uuid, "timestamp": stamp, **more})
        self.last = uuid
        return uuid

    def user(self, content, **more):
        return self.line("user", message={"role": "user", "content": content}, **more)

    def result(self, call_id, content, **more):
        block = {"tool_use_id": call_id, "type": "tool_result", "content": content}
        return self.user([block], toolUseResult={"stdout": content}, **more)

    def answer(self, answer_id, *blocks, output=9, given=(4, 100, 1000), granted=None, model="claude-opus-4-5", **more):
        counts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        usage = {**dict(zip(counts, given, strict=True)), "output_tokens": output, "service_tier": "standard"}
        if granted is not None:
            names = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
            usage["cache_creation"] = dict(zip(names, granted, strict=True))
        message = {"model": model, "id": answer_id, "type": "message", "role": "assistant", "content": list(blocks)}
        return self.line("assistant", message={**message, "usage": usage}, requestId=f"req_{answer_id}", **more)

    def add(self, **row):
        self.lines.append(row)

    def read(self, tmp_path, name=f"{SESSION}.jsonl", problems=None, tail=""):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [row if isinstance(row, str) else json.dumps(row, separators=(",", ":")) for row in self.lines]
        path.write_text("\n".join(rows) + "\n" + tail)
        return list(log_files.read(path, problems if problems is not None else Problems()))


def text(words):
    return {"type": "text", "text": words}


def use(call_id, name="Read", **given):
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def only(imported):
    (one,) = imported
    assert one.format == "claude_code"
    return one.recording


def sent(step):
    return [json.loads(raw) for raw in step.new]


def test_each_answer_is_a_call_whose_prompt_is_all_before_it(tmp_path):
    log, thinking = Log(), {"type": "thinking", "thinking": "hm", "signature": "EqoB"}
    log.user("look at a.py")
    log.answer("m1", thinking)
    log.answer("m1", text("I look."))
    log.lines.append("")
    log.answer("m1", use("t1", file_path="src/a.py"), output=31)
    log.result("t1", "1\tx = 1")
    log.answer("m2", text("Done."), given=(2, 50, 1104))
    recording = only(log.read(tmp_path))
    first, second = recording.steps
    assert (recording.name, recording.dialect, recording.harness) == (SESSION, "messages", "claude-code 2.1.37")
    assert (first.keep, sent(first)) == (0, [{"role": "user", "content": "look at a.py"}])
    assert (first.said, first.called, first.model) == ("I look.\nsrc/a.py", ("Read",), "claude-opus-4-5")
    assert (second.keep, second.branch, second.parent) == (1, 0, None)
    assert sent(second) == [
        {"role": "assistant", "content": [thinking, text("I look."), use("t1", file_path="src/a.py")]},
        {"role": "user", "content": [{"tool_use_id": "t1", "type": "tool_result", "content": "1\tx = 1"}]},
    ]
    assert (first.at, second.at) == (1_767_225_602, 1_767_225_606)


def test_calls_without_a_time_come_a_second_after_the_last(tmp_path):
    log = Log()
    for number in range(3):
        log.user("go")
        log.answer(f"m{number}", text("1"))
    log.lines[3]["timestamp"] = "yesterday"
    del log.lines[5]["timestamp"]
    assert [step.at - 1_767_225_600 for step in only(log.read(tmp_path)).steps] == [2, 3, 4]


def test_an_answer_counts_once_with_its_last_counts(tmp_path):
    log = Log()
    log.user("go")
    log.answer("m1", text("a"), output=1)
    log.answer("m1", use("t1"), output=40)
    log.result("t1", "x")
    (step,) = only(log.read(tmp_path)).steps
    assert step.usage == Usage(1104, 1000, 100, 40, tells_cached=True)
    assert step.output == 40


def test_tokens_written_for_an_hour_are_kept_apart_for_each_call(tmp_path):
    log = Log()
    log.user("go")
    log.answer("m1", text("a"), granted=(30, 70))
    log.user("more")
    log.answer("m2", text("b"))
    first, second = only(log.read(tmp_path)).steps
    assert first.usage == Usage(1104, 1000, 100, 9, tells_cached=True, written_5m=30, written_1h=70)
    assert second.usage == Usage(1104, 1000, 100, 9, tells_cached=True), "an older version does not say"


def test_the_providers_own_word_on_a_cache_miss_is_read(tmp_path):
    log = Log()
    log.user("do it")
    log.answer("m1", text("Yes."))
    log.lines[-1]["message"]["diagnostics"] = {"cache_miss_reason": {"type": "tools_changed"}}
    log.user("go on")
    log.answer("m2", text("Yes."))
    log.lines[-1]["message"]["diagnostics"] = {"cache_miss_reason": None}
    assert [step.cache_miss for step in only(log.read(tmp_path)).steps] == ["tools_changed", ""]


def test_counts_of_an_answer_that_had_only_begun_are_not_its_output(tmp_path):
    log = Log()
    log.user("go")
    log.answer("m1", text("word " * 200), output=1)
    (step,) = only(log.read(tmp_path)).steps
    assert (step.usage.output, step.output) == (1, tokens_in(1000))


def test_what_the_provider_counted_beyond_the_log_is_outside(tmp_path):
    log = Log()
    log.user("go")
    log.answer("m1", text("a"), given=(4, 0, 20_000))
    log.user("on")
    log.answer("m2", text("b"), given=(4, 0, 99_000))
    first, second = only(log.read(tmp_path)).steps
    shown = tokens_in(len(first.new[0]))
    assert first.outside == second.outside == round((20_004 - shown - 1) * BYTES_A_TOKEN)


def test_tools_that_were_called_are_offered(tmp_path):
    log = Log()
    log.user("go")
    log.answer("m1", use("t1", "Read", file_path="a", limit=3))
    log.result("t1", "x")
    log.answer("m2", text("b"))
    steps = only(log.read(tmp_path)).steps
    (offer,) = steps[0].offers.tools
    assert steps[1].tools == frozenset({"Read"})
    kinds = {"file_path": {"type": "string"}, "limit": {"type": "integer"}}
    assert offer.tool.parameters == {"type": "object", "properties": kinds}


def test_without_any_call_no_tool_can_be_added(tmp_path):
    log = Log()
    log.user("go")
    log.answer("m1", text("b"))
    (step,) = only(log.read(tmp_path)).steps
    assert (step.tools, step.offers) == (None, None)


def test_results_of_parallel_calls_go_out_together_though_each_follows_its_own_call(tmp_path):
    log = Log()
    log.user("go")
    one = log.answer("m1", use("t1", file_path="a"))
    log.result("t1", "A", parent=one)
    two = log.answer("m1", use("t2", file_path="b"), parent=one)
    log.result("t2", "B", parent=two)
    log.user("and hurry")
    log.answer("m2", text("Done."))
    first, second = only(log.read(tmp_path)).steps
    assert first.called == ("Read", "Read")
    answer, results = sent(second)
    assert [block["id"] for block in answer["content"]] == ["t1", "t2"]
    assert [block.get("content", block.get("text")) for block in results["content"]] == ["A", "B", "and hurry"]


def test_a_block_that_is_logged_twice_is_said_once(tmp_path):
    log = Log()
    log.user("go")
    log.answer("m1", text("a"))
    log.answer("m1", text("a"), use("t1"))
    log.answer("m1", text("a"), use("t1"))
    log.result("t1", "x")
    log.answer("m2", text("b"))
    first, second = only(log.read(tmp_path)).steps
    assert (first.said, first.called) == ("a\n", ("Read",))
    assert sent(second)[0]["content"] == [text("a"), use("t1")]


def test_a_rewind_forks_where_the_user_went_back_to(tmp_path):
    log = Log()
    log.user("one")
    early = log.answer("m1", text("1"))
    log.user("two")
    log.answer("m2", text("2"))
    log.user("other two", parent=early)
    log.answer("m3", text("3"))
    first, second, third = only(log.read(tmp_path)).steps
    assert (second.keep, second.branch) == (1, 0)
    assert (third.keep, third.branch, third.parent, third.fork_call) == (2, 1, 0, 1)
    assert sent(third) == [{"role": "user", "content": "other two"}]
    assert first.outside == third.outside


def test_a_branch_that_was_left_can_be_gone_back_to(tmp_path):
    log = Log()
    log.user("one")
    early = log.answer("m1", text("1"))
    log.user("two")
    late = log.answer("m2", text("2"))
    log.user("other", parent=early)
    log.answer("m3", text("3"))
    log.user("three", parent=late)
    log.answer("m4", text("4"))
    last = only(log.read(tmp_path)).steps[-1]
    assert (last.keep, last.branch, last.parent) == (2, 2, 1)
    assert [one["content"] for one in sent(last)] == ["two", [text("2")], "three"]


def test_going_back_to_a_part_of_a_message_leaves_the_rest_out(tmp_path):
    log = Log()
    part = log.user("one")
    log.user("two")
    log.answer("m1", text("1"))
    log.user("three", parent=part)
    log.answer("m2", text("2"))
    second = only(log.read(tmp_path)).steps[1]
    assert second.keep == 0
    assert [one["content"] for one in sent(second)] == [[text("one"), text("three")]]


def test_a_compaction_begins_anew_with_the_summary(tmp_path):
    log = Log()
    log.user("one")
    last = log.answer("m1", text("1"), given=(4, 0, 20_000))
    metadata = {"trigger": "auto", "preTokens": 155_000}
    log.line("system", subtype="compact_boundary", parent=None, logicalParentUuid=last, compactMetadata=metadata)
    log.user("This session is continued.", isCompactSummary=True, isVisibleInTranscriptOnly=True)
    log.user("only shown", isVisibleInTranscriptOnly=True)
    log.answer("m2", text("2"))
    second = only(log.read(tmp_path)).steps[1]
    assert (second.keep, second.branch, second.parent, second.fork_call) == (0, 1, 0, 0)
    assert sent(second) == [{"role": "user", "content": "This session is continued."}]


@pytest.mark.parametrize("anchor", ["summary", "boundary"])
def test_what_a_compaction_preserves_follows_it(tmp_path, anchor):
    log = Log()
    log.user("one")
    log.answer("m1", text("1"))
    head = log.user("two")
    tail = log.answer("m2", text("2"))
    kept = {"headUuid": head, "anchorUuid": anchor, "tailUuid": tail}
    more = {"compactMetadata": {"trigger": "auto", "preservedSegment": kept}}
    log.line("system", uuid="boundary", parent=None, subtype="compact_boundary", logicalParentUuid=tail, **more)
    log.user("Summary.", uuid="summary", isCompactSummary=True)
    log.user("three", parent=tail)
    log.answer("m3", text("3"))
    last = only(log.read(tmp_path)).steps[-1]
    contents = [one["content"] for one in sent(last)]
    preserved = ["two", [text("2")]]
    if anchor == "summary":
        assert contents == ["Summary.", *preserved, "three"]
    else:
        assert contents == [*preserved, [text("Summary."), text("three")]]


def test_a_compaction_that_preserves_unknown_lines_preserves_nothing(tmp_path):
    log = Log()
    log.user("one")
    log.answer("m1", text("1"))
    kept = {"headUuid": "gone", "anchorUuid": "boundary", "tailUuid": "gone"}
    more = {"compactMetadata": {"preservedSegment": kept}}
    log.line("system", uuid="boundary", parent=None, subtype="compact_boundary", **more)
    log.user("Summary.", isCompactSummary=True)
    log.answer("m2", text("2"))
    assert [one["content"] for one in sent(only(log.read(tmp_path)).steps[1])] == ["Summary."]


def test_sub_agents_in_the_same_file_are_branches_of_their_own(tmp_path):
    log = Log()
    log.user("delegate")
    main = log.answer("m1", use("t1", "Task", prompt="look"))
    for agent in ("x", "y"):
        log.user(f"look {agent}", parent=None, isSidechain=True)
        log.answer(f"s{agent}", text(agent), isSidechain=True, given=(4, 0, 5000))
    log.result("t1", "found", parent=main)
    log.answer("m2", text("Done."))
    steps = only(log.read(tmp_path)).steps
    assert [(step.branch, step.parent, step.keep) for step in steps] == [
        (0, None, 0),
        (1, None, 0),
        (2, None, 0),
        (0, None, 1),
    ]
    assert steps[1].outside != steps[0].outside
    assert sent(steps[2]) == [{"role": "user", "content": "look y"}]


def test_a_sub_agent_is_known_by_its_id_or_by_what_its_lines_follow(tmp_path):
    log = Log()
    main = log.user("delegate")
    log.user("one", parent=main, isSidechain=True)
    log.answer("s1", text("1"), isSidechain=True)
    log.user("two", parent="missing", isSidechain=True)
    log.answer("s2", text("2"), isSidechain=True)
    log.user("three", parent=None, isSidechain=True, agentId="abc")
    log.answer("s3", text("3"), parent="missing", isSidechain=True, agentId="abc")
    steps = only(log.read(tmp_path)).steps
    assert [(step.branch, step.keep) for step in steps] == [(0, 0), (0, 1), (1, 0)]


def test_a_sub_agents_own_file_is_a_session_of_its_own(tmp_path):
    log = Log(isSidechain=True, agentId="de30ae5d")
    log.user("look")
    log.answer("s1", text("1"))
    recording = only(log.read(tmp_path, f"{SESSION}/subagents/agent-de30ae5d.jsonl"))
    assert (recording.name, len(recording.steps)) == (f"{SESSION}/agent-de30ae5d", 1)


def progress(log, agent, line, **more):
    """A line of progress that holds one of a sub-agent."""
    return log.line("progress", data={"type": "agent_progress", "agentId": agent, "message": line, **more})


def aside(kind, content, uuid, answer=None):
    """A line of a sub-agent's own log."""
    said = {"role": kind, "content": content}
    usage = {"input_tokens": 5, "cache_read_input_tokens": 800, "cache_creation_input_tokens": 40, "output_tokens": 7}
    if answer:
        said |= {"id": answer, "model": "claude-haiku-4-5", "usage": usage}
    return {"type": kind, "uuid": uuid, "timestamp": "2026-01-01T00:00:30.000Z", "message": said}


def test_sub_agents_in_lines_of_progress_are_branches_of_their_own(tmp_path):
    log = Log()
    log.user("go")
    log.answer("m1", use("t1", "Task"))
    for agent in ("a", "b"):
        progress(log, agent, aside("user", f"look into {agent}", f"{agent}1"))
        progress(log, agent, aside("assistant", [use(f"{agent}t")], f"{agent}2", f"{agent}m1"))
    for agent in ("b", "a"):
        result = [{"type": "tool_result", "tool_use_id": f"{agent}t", "content": f"found {agent}"}]
        progress(log, agent, aside("user", result, f"{agent}3"))
        progress(log, agent, aside("assistant", [text(f"done {agent}")], f"{agent}4", f"{agent}m2"))
    log.result("t1", "both done")
    log.answer("m2", text("well"))
    recording = only(log.read(tmp_path))
    said = {step.said: step for step in recording.steps}
    assert len(recording.steps) == 6
    assert len({said["done a"].branch, said["done b"].branch, said["well"].branch}) == 3
    assert [message["content"] for message in sent(said["done a"])][-1] == [
        {"type": "tool_result", "tool_use_id": "at", "content": "found a"}
    ]
    assert said["done b"].usage == Usage(845, 800, 40, 7, tells_cached=True)
    assert said["done b"].model == "claude-haiku-4-5"
    assert sent(said["well"])[-1]["content"][0]["content"] == "both done", "the user's own line goes on"


def test_a_sub_agent_whose_question_is_not_in_its_messages_has_it_from_the_progress(tmp_path):
    log = Log()
    log.user("go")
    log.answer("m1", use("t1", "Task"))
    progress(log, "a", aside("assistant", [text("done")], "a2", "am1"), prompt="look into it")
    (step,) = (step for step in only(log.read(tmp_path)).steps if step.said == "done")
    assert sent(step) == [{"role": "user", "content": "look into it"}]


def test_what_a_sub_agent_said_counts_once(tmp_path):
    line = aside("assistant", [text("done")], "a2", "am1")
    log = Log()
    log.user("go")
    log.answer("m1", use("t1", "Task"))
    progress(log, "a", aside("user", "look", "a1"))
    progress(log, "a", line)
    progress(log, "a", line)
    log.lines.append({**log.about, **line, "isSidechain": True, "agentId": "a", "parentUuid": "a1"})
    assert [step.said for step in only(log.read(tmp_path)).steps].count("done") == 1


def test_a_sub_agent_with_a_log_of_its_own_is_read_there(tmp_path):
    log = Log()
    log.user("go")
    log.answer("m1", use("t1", "Task"))
    progress(log, "a", aside("user", "look", "a1"))
    progress(log, "a", aside("assistant", [text("done")], "a2", "am1"))
    (tmp_path / SESSION / "subagents").mkdir(parents=True)
    (tmp_path / SESSION / "subagents" / "agent-a.jsonl").write_text("")
    problems = Problems()
    assert len(only(log.read(tmp_path, problems=problems)).steps) == 1
    assert problems.left_out == {"progress of a sub-agent that has a log of its own": 2}


def test_progress_that_is_only_shown_is_counted(tmp_path):
    log = Log()
    log.user("go")
    log.line("progress", data={"type": "hook_progress", "hookEvent": "PreToolUse"})
    log.line("progress", data={"type": "bash_progress", "output": "1\n2"})
    log.line("progress")
    log.answer("m1", text("1"))
    problems = Problems()
    (step,) = only(log.read(tmp_path, problems=problems)).steps
    assert sent(step) == [{"role": "user", "content": "go"}]
    assert problems.left_out == {
        "progress that is not sent (hook_progress)": 1,
        "progress that is not sent (bash_progress)": 1,
        "progress that is not sent (of no kind)": 1,
    }
    assert problems.bad == 0


def test_attachments_are_content_of_the_message_beside_them(tmp_path):
    log = Log()
    log.line("attachment", parent=None, attachment={"type": "skill_listing", "content": "- commit: make a commit"})
    log.user("see @a.py")
    file = {"filePath": "/a.py", "content": "print(1)", "numLines": 1}
    log.line("attachment", attachment={"type": "file", "filename": "/a.py", "content": {"type": "text", "file": file}})
    shot = {"type": "image", "file": {"base64": "iVBORw0KGgo=", "type": "image/png", "originalSize": 9}}
    log.line("attachment", attachment={"type": "file", "filename": "/b.png", "content": shot})
    log.answer("m1", use("t1"))
    log.result("t1", "x")
    log.line("attachment", attachment={"type": "queued_command", "prompt": "and hurry"})
    log.answer("m2", text("done"))
    first, second = only(log.read(tmp_path)).steps
    (asked,) = sent(first)
    listed, said, shown, picture = asked["content"]
    assert "make a commit" in listed["text"]
    assert said["text"] == "see @a.py"
    assert "print(1)" in shown["text"]
    assert picture == {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
    }
    assert sent(second)[-1]["content"][-1] == {"type": "text", "text": "and hurry"}


@pytest.mark.parametrize(
    ("attachment", "words"),
    [
        ({"type": "hook_success", "hookEvent": "SessionStart", "content": "use tabs", "stdout": "{}"}, "use tabs"),
        ({"type": "deferred_tools_delta", "addedNames": ["A"], "addedLines": ["A: reads"]}, "A: reads"),
        ({"type": "nested_memory", "path": "/C.md", "content": {"content": "be brief"}}, "/C.md\nbe brief"),
        ({"type": "total_tokens_reminder", "text": "9 tokens left"}, "9 tokens left"),
        ({"type": "queued_command", "prompt": {"odd": "shape"}}, "shape"),
        ({"type": "hook_success", "hookEvent": "PostToolUse", "content": "formatted"}, None),
        ({"type": "hook_cancelled", "content": "x"}, None),
        ({"type": "of a later version", "content": "x"}, None),
        ({"type": "plan_mode"}, None),
        ({}, None),
    ],
)
def test_attachments_that_are_not_sent_are_counted_by_their_kind(tmp_path, attachment, words):
    log = Log()
    log.user("go")
    log.line("attachment", attachment=attachment)
    log.answer("m1", text("1"))
    problems = Problems()
    (step,) = only(log.read(tmp_path, problems=problems)).steps
    kind = attachment.get("type", "of no kind")
    if words is None:
        assert sent(step) == [{"role": "user", "content": "go"}]
        assert problems.left_out == {f"attachment that is not sent ({kind})": 1}
    else:
        reminder = f"<system-reminder>\n{words}\n</system-reminder>"
        assert sent(step)[0]["content"][1:] == [{"type": "text", "text": reminder}]
        assert not problems.left_out


def test_what_was_never_sent_is_left_out(tmp_path):
    log = Log()
    log.add(type="summary", summary="A title", leafUuid="x")
    log.add(type="file-history-snapshot", messageId="x", snapshot={}, isSnapshotUpdate=False)
    log.add(type="queue-operation", operation="dequeue", timestamp="2026-01-01T00:00:00Z", sessionId=SESSION)
    log.line("attachment", attachment={"type": "hook"})
    log.user("go")
    log.answer("e1", text("API Error: 529"), model="<synthetic>", isApiErrorMessage=True)
    log.answer("e2", text("No response requested."), model="<synthetic>")
    log.line("system", subtype="turn_duration", durationMs=9)
    log.line("something-new", message="of another shape")
    log.answer("m1", text("1"))
    problems = Problems()
    (step,) = only(log.read(tmp_path, problems=problems)).steps
    assert (step.said, sent(step)) == ("1", [{"role": "user", "content": "go"}])
    assert problems.bad == 0


def test_an_answer_before_any_user_is_no_call(tmp_path):
    log = Log()
    log.answer("m0", text("Hello."))
    log.user("go")
    log.answer("m1", text("1"))
    (step,) = only(log.read(tmp_path)).steps
    assert step.said == "1"


def test_an_answer_may_be_a_plain_text_and_have_no_id(tmp_path):
    log = Log()
    log.user("go")
    log.line("assistant", message={"role": "assistant", "content": "Plain."})
    log.user([])
    log.user("on")
    log.answer("m2", text("2"))
    first, second = only(log.read(tmp_path)).steps
    assert (first.said, first.usage, first.model) == ("Plain.", None, "")
    assert [one["content"] for one in sent(second)] == [[text("Plain.")], [text("on")]]


def test_bad_lines_are_counted_and_skipped(tmp_path):
    log = Log()
    log.user("go")
    log.lines.append("{not json")
    log.lines.append("[1, 2]")
    log.line("user", uuid="no-content", message={"role": "user"})
    log.line("user", uuid="odd-content", message={"role": "user", "content": 3})
    log.line("assistant", uuid="odd-block", message={"id": "m0", "role": "assistant", "content": [7]})
    log.answer("m1", text("1"))
    problems = Problems()
    (step,) = only(log.read(tmp_path, problems=problems, tail='{"parentUuid":"u')).steps
    assert sent(step) == [{"role": "user", "content": "go"}]
    assert (problems.bad, len(problems.examples), problems.lines) == (6, 6, 8)
    assert f"{SESSION}.jsonl: line 2: " in problems.examples[0]


def test_a_file_without_a_call_is_no_session(tmp_path):
    log = Log()
    log.user("go")
    assert log.read(tmp_path) == []


def test_a_copy_of_another_sessions_beginning_is_not_counted_again(tmp_path):
    first, problems = Log(), Problems()
    first.user("one")
    first.answer("m1", text("1"))
    first.read(tmp_path, problems=problems)
    second = Log()
    second.lines, second.last, second.count = list(first.lines), first.last, first.count
    second.about["sessionId"] = "another"
    second.user("two")
    second.answer("m2", text("2"))
    (step,) = only(second.read(tmp_path, "another.jsonl", problems)).steps
    assert step.said == "2"
    assert [one["content"] for one in sent(step)] == ["one", [text("1")], "two"]
    assert only(second.read(tmp_path, "another.jsonl")).name == "another"
    assert len(only(second.read(tmp_path, "another.jsonl")).steps) == 2


def test_an_imported_session_can_be_played_again(tmp_path):
    log = Log()
    log.user("read them all")
    for number in range(30):
        log.answer(f"m{number}", use(f"t{number}", file_path=f"src/module_{number}.py"), at=10 * number)
        log.result(f"t{number}", "\n".join(f"line {line} of src/module_{number}.py is here" for line in range(300)))
    early = log.answer("m30", text("All read."), at=400)
    log.user("once more", parent=early)
    log.answer("m31", text("Again."), at=410)
    recording = only(log.read(tmp_path))
    compared = compare([recording], [Contender("keep_all"), Contender("lru", {"capacity": 5000})], ReplayConditions())
    keep_all, lru = compared.rows()
    assert (compared.calls, keep_all.repacks) == (32, 0)
    assert lru.charged.input < keep_all.charged.input
