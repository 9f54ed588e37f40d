"""Codex and OpenCode do a task of twelve tool calls through the proxy and end as without it."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass

import pytest
from waiting import PATIENCE

from pager.testing.scripted import (
    Call,
    PageIn,
    Say,
    Script,
)
from pager.testing.scripted.page_requests import getter, handles, rounds
from pager.wire.chat.dialect import Dialect as Chat
from pager.wire.responses.dialect import Dialect as Responses

pytestmark = pytest.mark.slow

TASK = "Read all twelve parts and say when you are done."
DONE = "All twelve parts are read."
PARTS = 12
# What Codex writes above the output of a command differs from run to run.
OF_THE_MOMENT = re.compile(r"Chunk ID: \w+\nWall time: [\d.]+ seconds\n")


class Codex:
    """Responses, on its own provider entry."""

    package, version, program = "@openai/codex", "0.166.0", "codex"
    dialect = Responses()

    def settle(self, home, folder, base_url):
        provider = {"name": "scripted", "base_url": base_url, "env_key": "OPENAI_API_KEY", "wire_api": "responses"}
        lines = ['model = "gpt-5"', 'model_provider = "scripted"', "[model_providers.scripted]"]
        (home / ".codex").mkdir()
        (home / ".codex" / "config.toml").write_text(
            "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in provider.items())])
        )

    def flags(self):
        # The commands are our own, and not every machine lets a program build a sandbox.
        return ["exec", "--skip-git-repo-check", "--json", "--dangerously-bypass-approvals-and-sandbox", TASK]

    def call(self, folder, number):
        return Call("exec_command", {"cmd": f"cat part{number}.txt"})

    def happened(self, event):
        """What an event on standard output says was said or done; None for all else."""
        match event:
            case {"type": "item.completed", "item": {"type": "agent_message", "text": text}}:
                return "said", text
            case {"type": "item.completed", "item": {"type": "command_execution", **item}}:
                return "did", item["command"], item["aggregated_output"], item["exit_code"]


class OpenCode:
    """Chat Completions, by the provider package that it carries."""

    package, version, program = "opencode-ai", "1.18.33", "opencode"
    dialect = Chat()

    def settle(self, home, folder, base_url):
        model = {"name": "scripted-1", "limit": {"context": 128_000, "output": 8_192}}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": base_url, "apiKey": "{env:OPENAI_API_KEY}"},
            "models": {"scripted-1": model},
        }
        settings = {
            "model": "scripted/scripted-1",
            "provider": {"scripted": provider},
            "autoupdate": False,
            "share": "disabled",
            # The request for a title comes at any time and would take an answer out of the script.
            "agent": {"title": {"disable": True}},
        }
        (folder / "opencode.json").write_text(json.dumps(settings))

    def flags(self):
        return ["run", "--format", "json", TASK]

    def call(self, folder, number):
        if number % 2:
            return Call("bash", {"command": f"cat part{number}.txt", "description": "Shows a part"})
        return Call("read", {"filePath": str(folder / f"part{number}.txt")})

    def happened(self, event):
        match event:
            case {"type": "text", "part": {"text": text}}:
                return "said", text
            case {"type": "tool_use", "part": {"tool": tool, "state": state}}:
                return "did", tool, json.dumps(state["input"]), state["output"]


@dataclass(frozen=True)
class Run:
    """A harness that has come to its end: what it printed, what it sent, and what the model received."""

    code: int
    printed: str
    events: list
    sent: list
    received: list
    refused: list


@pytest.fixture(scope="module", params=[Codex, OpenCode], ids=lambda kind: kind.program)
def harness(request):
    return request.param()


@pytest.fixture(scope="module")
def program(from_npm, harness):
    return from_npm(harness.package, harness.version, harness.program)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, harness):
    """The working folder, the same for all runs, as its path is in what tools say."""
    made = tmp_path_factory.mktemp("project")
    for number in range(PARTS):
        lines = [f"part {number}, line {line}: a berth of {number * line} feet\n" for line in range(100)]
        (made / f"part{number}.txt").write_text("".join(lines))
    return made


@pytest.fixture
def run(harness, program, folder, scripted, tapped, environment):
    """Has the harness do its task, with a home of its own, on a model at this address."""

    def at(root):
        scripted.play(script(harness, folder))
        home = folder.parent / f"{folder.name}-home"  # always the same path, as Codex tells it to the model
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        with tapped(root) as (tap, sent):
            harness.settle(home, folder, f"{tap}/v1")
            done = subprocess.run(
                [program, *harness.flags()],
                cwd=folder,
                env=environment(home),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        return _run(harness, done, sent, scripted.received)

    return at


@pytest.fixture(scope="module")
def kept():
    """Runs that are the same for all tests of a harness."""
    return {}


@pytest.fixture
def direct(harness, run, scripted, kept):
    """The task without a proxy."""
    if harness.program not in kept:
        kept[harness.program] = run(scripted.root)
    return kept[harness.program]


def script(harness, folder):
    """Twelve calls; twice the model first wants something back that it was shown before."""
    calls = [harness.call(folder, number) for number in range(PARTS)]
    steps = [Say(f"Step {number}.", [call]) for number, call in enumerate(calls)]
    by_itself = PageIn(steps[9])
    beside_a_call = PageIn(text="The last one.", beside=[calls[11]])
    together = Say("Two at once.", calls[3:5])
    return Script([*steps[:3], together, *steps[5:9], by_itself, steps[10], beside_a_call, Say(DONE)])


def _run(harness, done, sent, received):
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    happened = [found for found in map(harness.happened, lines) if found]
    prompts = [one.json() for one in received if one.method == "POST"]
    refused = [one.refused for one in received if one.refused]
    return Run(done.returncode, done.stdout + done.stderr, happened, sent, prompts, refused)


def history(dialect, body):
    """What stands in a prompt, but for ids and what differs from run to run."""
    messages = [dialect.decode(item) for item in dialect.parse(body).items]
    blocks = [(message.role, block) for message in messages for block in message.blocks]
    return [(role, block.kind, block.name, OF_THE_MOMENT.sub("", block.text)) for role, block in blocks]


def assert_ended_as(harness, run, direct):
    """The harness printed the same, did the same and was told the same as in its direct run."""
    assert (run.code, run.refused) == (0, []), run.printed
    assert [text for what, text, *_ in run.events if what == "said"][-1] == DONE
    assert sum(what == "did" for what, *_ in run.events) == PARTS
    # Calls that are made together may end in any order.
    assert sorted(map(str, run.events)) == sorted(map(str, direct.events))
    assert [history(harness.dialect, body) for body in run.sent] == [
        history(harness.dialect, body) for body in direct.sent
    ]


def test_a_harness_ends_its_task_through_the_proxy_as_without_it(harness, run, direct, start_proxy):
    with start_proxy("--policy", "keep_all") as proxy:
        proxied = run(proxy.root)
    assert_ended_as(harness, direct, direct)
    assert_ended_as(harness, proxied, direct)
    assert [getter(prompt) for prompt in proxied.received] == [None] * len(direct.sent)


def test_a_harness_does_not_notice_that_its_model_pages(harness, run, direct, start_proxy):
    with start_proxy("--policy", "fifo_age") as proxy:
        proxied = run(proxy.root)
    last = proxied.received[-1]
    assert handles(last)
    assert rounds(last) == 2
    assert len(proxied.received) == len(direct.received) + 1  # the other time the client's own call came between
    assert all("line 57" in text for text in _brought_back(harness.dialect, last))
    assert_ended_as(harness, proxied, direct)
    for told in (proxied.printed, *(body.decode() for body in proxied.sent)):
        assert getter(last) not in told
        assert not re.search(r"\bpg_[0-9a-f]{8,32}\b", told)


def _brought_back(dialect, prompt):
    """What the model was given for its calls for pages."""
    items = dialect.parse(json.dumps(prompt).encode()).items
    blocks = [block for item in items for block in dialect.decode(item).blocks]
    asked = {block.call_id for block in blocks if block.kind == "call" and block.name == getter(prompt)}
    found = [block.text for block in blocks if block.kind == "result" and block.call_id in asked]
    assert len(found) == 2
    return found
