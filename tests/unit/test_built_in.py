"""The tools that agents bring themselves stay whole on a fresh install; those of MCP servers do not."""

import gzip
import json

import pytest
from recordings import REQUESTS

from pager.paging.policy import Prices
from pager.paging.priors import SHIPPED
from pager.tools.decide_forms import Outlook, decide
from pager.tools.known_agents import brought
from pager.wire import dialects

CHAT = dialects.load("chat")
PROSE = "Does what it says. It has a long story to tell of how and when to use it, and of what else there is. " * 6

AGENTS = {
    "Copilot CLI": "bash write_bash read_bash stop_bash view create edit report_intent task update_todo web_fetch sql",
    "Cline": "ask_question editor fetch_web_content read_files run_commands search_codebase spawn_agent "
    "submit_and_exit team_await_runs team_status team_task",
    "Codex": "exec_command write_stdin apply_patch view_image spawn_agent send_input wait_agent close_agent "
    "resume_agent update_plan request_user_input",
    "Claude Code": "Task Bash Glob Grep Read Edit Write NotebookEdit WebFetch WebSearch TodoWrite KillShell TaskStop "
    "EnterWorktree CronCreate ExitPlanMode",
    "OpenCode": "bash edit glob grep read skill task todowrite webfetch write lsp question",
    "Qwen Code": "agent edit get_goal glob grep_search list_agents loop_wakeup monitor read_file report_findings "
    "run_shell_command skill write_file zoom_image",
    "goose": "analyze apps__create_app delegate edit extensionmanager__manage_extensions load shell "
    "todo__todo_write tree",
    "Continue": "AskQuestion Bash CheckBackgroundJob Checklist Edit Exit Fetch List Read Skills Write",
    "deepagents": "delete edit_file glob grep ls read_file shell task write_file",
    "Roo Code": "apply_diff ask_followup_question attempt_completion execute_command list_files new_task switch_mode",
    "Cursor": "codebase_search delete_file edit_file read_lints reapply run_terminal_cmd todo_write update_memory",
    "Crush": "agentic_fetch bash download edit job_kill job_output sourcegraph todos view write",
}
ADDED = {
    "Claude Code": "mcp__github__{}",
    "Codex": "mcp__github__{}",
    "OpenCode": "github_{}",
    "Copilot CLI": "github-{}",
    "goose": "github__{}",
}
ISSUES = [
    f"{verb}_{noun}" for verb in ("create", "list", "update", "close") for noun in ("issue", "label", "branch", "tag")
]


def tool(name):
    properties = {f"p{at}": {"type": "string", "description": PROSE} for at in range(3)}
    schema = {"type": "object", "properties": properties, "required": ["p0"]}
    return {"type": "function", "function": {"name": name, "description": PROSE, "parameters": schema}}


def forms(names):
    """In which form each tool is sent on a fresh install."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [tool(name) for name in names]}
    return decided(CHAT, body)


def decided(dialect, body):
    listed = dialect.offers(dialect.parse(json.dumps(body).encode()))
    if listed is None:
        return {}

    def chance(name, usual):
        return SHIPPED.use("local", "an-agent", name, usual)

    found, _ = decide(listed.offers, Outlook(Prices(), None, chance, tool_added=False))
    return {one.name: one.form for one in found.sent}


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agents_own_tools_stay_whole_on_a_fresh_install_and_those_of_a_server_do_not(agent):
    own = AGENTS[agent].split()
    added = [ADDED.get(agent, "mcp__github__{}").format(name) for name in ISSUES]
    found = forms([*own, *added])
    assert {name for name in own if found[name] != "whole"} == set()
    assert {name for name in added if found[name] == "whole"} == set()


def test_tools_of_an_unknown_program_are_not_taken_for_an_agents_because_of_a_name_or_two():
    assert brought(["view", "create", "wait_agent", "rename", "approve"]) == frozenset()
    found = forms(["view", "create", *ISSUES])
    assert {found["view"], found["create"]} == {"slim"}


def test_an_agents_own_tool_is_sent_slim_once_sessions_show_that_it_is_not_called():
    from pager.paging.priors import Experience, Use, owner

    learned = Experience(tools={owner("local", "copilot/1.0"): {"create": Use(offered=8, called=0)}})
    own = AGENTS["Copilot CLI"].split()
    assert "create" in brought(own)
    assert learned.use("local", "copilot/1.0", "create", 0.5) < 0.25
    assert learned.use("local", "copilot/1.0", "view", 0.5) == 0.5


# ---------------------------------------------------------------- recorded clients

BY_PATH = {dialect.path: dialect for dialect in map(dialects.load, dialects.names())}
FLAT = {"chat": tool, "messages": lambda name: {"name": name, "description": PROSE, "input_schema": schema(name)}}


def schema(name):
    return tool(name)["function"]["parameters"]


def flat(name):
    return {"type": "function", **tool(name)["function"], "strict": False}


@pytest.mark.recorded
@pytest.mark.skipif(not REQUESTS, reason="CTXPAGER_RECORDINGS names no folder with recorded requests")
def test_no_tool_that_a_recorded_client_brings_itself_is_sent_slim_on_a_fresh_install():
    short, seen = {}, 0
    for path in REQUESTS:
        for line in gzip.decompress(path.read_bytes()).splitlines():
            row = json.loads(line)
            dialect, body = BY_PATH.get(row["path"].removeprefix("/v1")), row.get("body")
            if dialect is None or not isinstance(body, dict) or not body.get("tools"):
                continue
            added = [FLAT.get(dialect.name, flat)(f"mcp__server__{name}") for name in ISSUES]
            found = decided(dialect, {**body, "tools": [*body["tools"], *added]})
            seen += bool(found)
            own = {name for name, form in found.items() if form != "whole" and not name.startswith("mcp__")}
            short.setdefault(path.parent.name, set()).update(own)
    assert seen
    assert {client: names for client, names in short.items() if names} == {}
