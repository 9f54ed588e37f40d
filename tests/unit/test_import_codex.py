"""Rollouts of Codex as they are read."""

import json

from instrumentation.accounting.billing import tokens_in
from instrumentation.replay import log_files
from instrumentation.replay.log_files import Problems
from pager.request_values import Usage

THREAD = "019a2d7a-41c4-78b1-b7cc-a45d62a89cd5"


class Rollout:
    """Writes lines as Codex does."""

    def __init__(self, thread=THREAD, at=0, **about):
        self.lines, self.at, self.total = [], at, 0
        meta = {"id": thread, "timestamp": self.now, "cwd": "/p", "originator": "codex_exec", "cli_version": "0.166.0"}
        self.line("session_meta", {**meta, "source": "exec", **about})

    @property
    def now(self):
        return f"2026-01-01T00:{int(self.at) // 60:02}:{int(self.at) % 60:02}.000Z"

    def line(self, kind, payload, wait=1):
        self.lines.append({"timestamp": self.now, "type": kind, "payload": payload})
        self.at += wait

    def item(self, kind, wait=1, **more):
        self.line("response_item", {"type": kind, **more}, wait)

    def model(self, name):
        self.line("turn_context", {"cwd": "/p", "approval_policy": "never", "model": name, "summary": "auto"})

    def user(self, words, **more):
        self.item("message", role="user", content=[{"type": "input_text", "text": words}], **more)

    def says(self, words, **more):
        self.item("message", role="assistant", content=[{"type": "output_text", "text": words}], **more)

    def calls(self, call_id, name="exec_command", **given):
        self.item("function_call", name=name, arguments=json.dumps(given), call_id=call_id)

    def output(self, call_id, words):
        self.item("function_call_output", call_id=call_id, output=words)

    def count(self, given, cached=0, output=9, thought=3, again=False):
        self.total += 0 if again else given + output
        last = {"input_tokens": given, "cached_input_tokens": cached, "output_tokens": output}
        last |= {"reasoning_output_tokens": thought, "total_tokens": given + output}
        info = {"total_token_usage": {"total_tokens": self.total}, "last_token_usage": last, "model_context_window": 9}
        self.line("event_msg", {"type": "token_count", "info": info, "rate_limits": None})

    def read(self, tmp_path, problems=None, tail=""):
        path = tmp_path / f"rollout-2026-01-01T00-00-00-{THREAD}.jsonl"
        rows = [row if isinstance(row, str) else json.dumps(row, separators=(",", ":")) for row in self.lines]
        path.write_text("\n".join(rows) + "\n" + tail)
        return list(log_files.read(path, problems if problems is not None else Problems()))


def only(imported):
    (one,) = imported
    assert one.format == "codex"
    return one.recording


def sent(step):
    return [json.loads(raw) for raw in step.new]


def words(step):
    return [item["content"][0]["text"] for item in sent(step) if item["type"] == "message"]


def test_what_the_model_gives_in_one_go_is_an_answer(tmp_path):
    log = Rollout(instructions=None)
    log.user("<environment_context>...</environment_context>")
    log.user("list the files")
    log.line("event_msg", {"type": "user_message", "message": "list the files", "kind": "plain"})
    log.model("gpt-5-codex")
    log.item("reasoning", summary=[], content=None, encrypted_content="gAAA")
    log.says("I look.")
    log.calls("c1", cmd="ls src")
    log.calls("c2", cmd="pwd")
    log.count(3000, 2000)
    log.output("c1", "a.py")
    log.output("c2", "/p")
    log.says("Done.")
    log.count(3100, 3000, output=5)
    log.count(3100, 3000, output=5, again=True)
    recording = only(log.read(tmp_path))
    first, second = recording.steps
    assert (recording.name, recording.dialect, recording.harness) == (THREAD, "responses", "codex 0.166.0")
    assert words(first) == ["<environment_context>...</environment_context>", "list the files"]
    assert (first.said, first.called, first.model) == ("I look.\nls src\npwd", ("exec_command",) * 2, "gpt-5-codex")
    assert first.usage == Usage(3000, 2000, 0, 9, 3, tells_cached=True)
    assert [item["type"] for item in sent(second)] == [
        *("reasoning", "message", "function_call", "function_call", "function_call_output", "function_call_output")
    ]
    assert (second.keep, second.branch, second.usage.input, second.output) == (2, 0, 3100, 5)
    assert second.at == 1_767_225_600 + 12


def test_counts_may_come_before_the_items_of_their_answer(tmp_path):
    log = Rollout()
    log.user("go")
    log.line("event_msg", {"type": "token_count", "info": None, "rate_limits": {}})
    log.count(1000)
    log.calls("c1", cmd="ls")
    log.output("c1", "a")
    log.count(2000)
    log.says("Done.")
    assert [step.usage.input for step in only(log.read(tmp_path)).steps] == [1000, 2000]


def test_instructions_and_tools_stand_outside(tmp_path):
    log = Rollout(base_instructions={"text": "You are an agent."})
    log.user("go")
    log.calls("c1", cmd="ls", limit=3)
    log.item("custom_tool_call", call_id="c2", name="apply_patch", input="*** Begin Patch", status="completed")
    log.item("web_search_call", status="completed", action={"type": "search", "query": "the manual"})
    log.output("c1", "a")
    log.item("custom_tool_call_output", call_id="c2", output="ok")
    log.says("Done.")
    first, second = only(log.read(tmp_path)).steps
    assert first.tools == frozenset({"exec_command", "apply_patch"})
    assert first.called == ("exec_command", "apply_patch")
    assert first.said == "ls\n*** Begin Patch\nsearch\nthe manual"
    assert [(one.tool.name, bool(one.fixed)) for one in first.offers.tools] == [
        ("apply_patch", True),
        ("exec_command", False),
    ]
    assert first.outside == second.outside > len('"You are an agent."') + 100
    assert (first.usage, first.output) == (None, tokens_in(len(first.said)))


def test_a_compaction_puts_other_items_in_the_place_of_all(tmp_path):
    log = Rollout()
    log.user("one")
    log.says("1")
    log.count(1000)
    log.count(1500)
    summary = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Summary."}]}
    log.line("compacted", {"message": "", "replacement_history": [summary]})
    log.count(0)
    log.user("two")
    log.says("2")
    log.count(700)
    first, second = only(log.read(tmp_path)).steps
    assert (second.keep, second.branch, words(second)) == (0, 1, ["Summary.", "two"])
    assert (first.usage.input, second.usage.input) == (1000, 700)


def test_a_compaction_that_tells_no_items_keeps_what_the_user_said(tmp_path):
    log = Rollout()
    log.user("# AGENTS.md instructions for /p")
    log.user("one")
    log.says("1")
    log.line("compacted", {"message": "Summary."})
    log.says("2")
    assert words(only(log.read(tmp_path)).steps[1]) == ["one", "Summary."]


def test_a_rollback_takes_the_last_turns_away(tmp_path):
    log = Rollout()
    log.user("one")
    log.says("1")
    log.user("two")
    log.says("2")
    log.line("event_msg", {"type": "thread_rolled_back", "num_turns": 1})
    log.user("other")
    log.says("3")
    log.line("event_msg", {"type": "thread_rolled_back", "num_turns": 9})
    log.line("event_msg", {"type": "thread_rolled_back", "num_turns": 1})
    log.line("event_msg", {"type": "thread_rolled_back", "num_turns": None})
    log.user("new")
    log.says("4")
    _, second, third, fourth = only(log.read(tmp_path)).steps
    assert (second.branch, third.branch, third.parent, third.keep, third.fork_call) == (0, 1, 0, 2, 1)
    assert (words(third), words(fourth), fourth.parent) == (["other"], ["new"], None)


def test_the_copy_at_the_beginning_of_a_fork_is_not_counted_again(tmp_path):
    log = Rollout("child", forked_from_id="parent")
    log.at = 0
    log.line("session_meta", {"id": "parent", "cli_version": "0.1"}, wait=0)
    log.user("one", wait=0)
    log.says("1", wait=0)
    log.count(1000)
    log.at = 20
    log.user("two")
    log.says("2")
    log.count(2000)
    recording = only(log.read(tmp_path))
    (step,) = recording.steps
    assert (recording.name, words(step), step.usage.input) == ("child", ["one", "1", "two"], 2000)


def test_what_is_not_sent_and_what_is_unknown_is_left_out(tmp_path):
    log = Rollout()
    log.user("go")
    log.item("ghost_snapshot", ghost_commit={})
    log.line("world_state", {"type": "new"})
    log.line("event_msg", {"type": "agent_message", "message": "1"})
    log.says("1")
    log.item("something_new", data=1)
    log.says("2")
    problems = Problems()
    first, second = only(log.read(tmp_path, problems)).steps
    assert [item["type"] for item in sent(first)] == ["message"]
    assert [item["type"] for item in sent(second)] == ["message", "something_new"]
    assert problems.bad == 0


def test_an_answer_before_any_user_is_no_call(tmp_path):
    log = Rollout()
    log.says("Hello.")
    assert log.read(tmp_path) == []


def test_bad_lines_are_counted_and_skipped(tmp_path):
    log = Rollout()
    log.lines.insert(0, "{")
    log.user("go")
    log.lines.append('{"type":"response_item","payload":[]}')
    log.lines.append('{"type":"event_msg","payload":3}')
    log.item("function_call", name="exec_command", arguments=None, call_id="c1")
    problems = Problems()
    (step,) = only(log.read(tmp_path, problems, tail='{"timestamp":"2026')).steps
    assert (step.said, step.called, problems.bad) == ("", ("exec_command",), 4)


def test_a_file_without_a_session_line_is_named_after_itself(tmp_path):
    log = Rollout()
    log.lines.clear()
    log.user("go")
    log.says("1")
    recording = only(log.read(tmp_path))
    assert (recording.name, recording.harness) == (f"rollout-2026-01-01T00-00-00-{THREAD}", "codex")
