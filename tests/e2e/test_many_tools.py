"""OpenCode and goose with a server of sixty tools do a task through the proxy, which sends those tools short."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from waiting import PATIENCE

from pager.log.events import LegFinished, Repacked, ToolsDecided
from pager.log.stores import open_store
from pager.paging.page_in import NAME as PAGE_IN
from pager.testing.scripted import Call, Say, Script
from pager.tools.decide_forms import schema_handle
from pager.wire.chat.dialect import Dialect as Chat
from pager.wire.messages.dialect import Dialect as Messages

pytestmark = pytest.mark.slow

SERVER = Path(__file__).with_name("mcp_server.py")
TOOLS = 60
TASK = "Bring the book of the harbour office in order."
DONE = "The book is in order."
ONLY_THE_WHOLE_SAYS = "HB for this harbour"
A_HANDLE = re.compile(r"\bpg_[0-9a-f]{8,32}\b")

FIND = "find_tug", {"state": "free", "limit": 3}
CHANGE = "change_berth", {"number": "BER00007", "state": "open", "by": {"name": "Ada Quay", "watch": "night"}}
CLEAR = "clear_tug", {"number": "TUG00003", "clearance": "HB-0412"}
MISTAKEN = "change_berth", {"number": "the seventh", "state": "free", "by": {"name": "Ada Quay"}}


class OpenCode:
    """Messages, by the provider package that it carries."""

    name, package, version, program = "opencode", "opencode-ai", "1.18.33", "opencode"
    dialect = Messages()
    prefix = "harbour_"
    rewrites = False

    def settle(self, home, folder, root, server):
        model = {"name": "scripted-1", "limit": {"context": 128_000, "output": 8_192}}
        provider = {
            "npm": "@ai-sdk/anthropic",
            "options": {"baseURL": f"{root}/v1", "apiKey": "{env:OPENAI_API_KEY}"},
            "models": {"scripted-1": model},
        }
        settings = {
            "model": "scripted/scripted-1",
            "provider": {"scripted": provider},
            "mcp": {"harbour": {"type": "local", "command": server, "enabled": True}},
            "autoupdate": False,
            "share": "disabled",
            # The request for a title comes at any time and would take an answer out of the script.
            "agent": {"title": {"disable": True}},
        }
        (folder / "opencode.json").write_text(json.dumps(settings))
        return {}

    def flags(self):
        return ["run", "--format", "json", TASK]

    def happened(self, event):
        """What an event on standard output says was said or done."""
        match event:
            case {"type": "text", "part": {"text": text}}:
                return [("said", text)]
            case {"type": "tool_use", "part": {"tool": tool, "state": state}}:
                return [("called", tool, state["input"]), ("got", state["output"])]
        return []


class Goose:
    """Chat Completions; its package has the program in a package for each platform."""

    name, package, version, program = "goose", "@aaif/goose-sdk", "0.20.1", "goose"
    dialect = Chat()
    prefix = "harbour__"
    # It sets a note on the time of day before its latest call, and moves it on with every request. What the model was
    # told behind the harness is found again by the ids of calls.
    rewrites = True

    def settle(self, home, folder, root, server):
        extension = {"type": "stdio", "name": "harbour", "enabled": True, "timeout": 60}
        settings = {
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": "scripted-1",
            "GOOSE_MODE": "auto",
            "GOOSE_TELEMETRY_ENABLED": False,
            "extensions": {"harbour": {**extension, "cmd": server[0], "args": server[1:]}},
        }
        (home / ".config" / "goose").mkdir(parents=True)
        (home / ".config" / "goose" / "config.yaml").write_text(json.dumps(settings))  # JSON is YAML
        return {
            "OPENAI_HOST": root,
            "OPENAI_BASE_PATH": "v1/chat/completions",
            "GOOSE_DISABLE_KEYRING": "1",
            "GOOSE_DISABLE_SESSION_NAMING": "true",  # as OpenCode's title
        }

    def flags(self):
        return ["run", "--output-format", "stream-json", "--text", TASK]

    def happened(self, event):
        """What an event on standard output says was said or done."""
        content = event["message"]["content"] if event.get("type") == "message" else []
        return [found for part in content for found in self._happened(part)]

    def _happened(self, part):
        match part:
            case {"type": "text", "text": text}:
                return [("said", text)]
            case {"type": "toolRequest", "toolCall": {"value": call}}:
                return [("called", call["name"], call["arguments"])]
            case {"type": "toolResponse", "toolResult": {"value": {"content": content}}}:
                return [("got", "".join(one["text"] for one in content))]
        return []


HARNESSES = [OpenCode(), Goose()]


@dataclass(frozen=True)
class Run:
    """A harness that has come to its end: what it printed and sent, what its server and what the model received."""

    code: int
    printed: str
    events: list
    served: list
    sent: list
    received: list
    refused: list


@pytest.fixture(scope="module", params=HARNESSES, ids=lambda harness: harness.name)
def harness(request):
    return request.param


@pytest.fixture(scope="module")
def program(from_npm, harness):
    return from_npm(harness.package, harness.version, harness.program)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, harness):
    """The working folder, the same for all runs, as its path is in what harnesses say."""
    return tmp_path_factory.mktemp("office")


@pytest.fixture
def run(harness, program, folder, scripted, tapped, environment):
    """Has the harness do its task, with a home of its own, on a model at this address that says this."""

    def at(root, answers):
        scripted.play(Script(answers))
        home, journal = folder.parent / f"{folder.name}-home", folder.parent / f"{folder.name}-journal"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        journal.write_text("")
        with tapped(root) as (tap, sent):
            variables = harness.settle(home, folder, tap, [sys.executable, str(SERVER), str(journal)])
            done = subprocess.run(
                [program, *harness.flags()],
                cwd=folder,
                env={**environment(home), **variables},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        return _run(harness, done, journal, sent, scripted.received)

    return at


@pytest.fixture(scope="module")
def kept():
    """Runs that are the same for all tests of a harness."""
    return {}


@pytest.fixture
def direct(harness, run, scripted, kept):
    """The task without a proxy."""
    if harness.name not in kept:
        kept[harness.name] = run(scripted.root, plainly(harness))
    return kept[harness.name]


def _run(harness, done, journal, sent, received):
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    happened = joined(found for line in lines for found in harness.happened(line))
    served = [tuple(json.loads(line)) for line in journal.read_text().splitlines()]
    bodies = [one.body for one in received if one.method == "POST"]
    refused = [one.refused for one in received if one.refused]
    return Run(done.returncode, done.stdout + done.stderr, happened, served, sent, bodies, refused)


def joined(events):
    """The events, with what was said in pieces in one, as goose prints it as it comes."""
    found = []
    for what, *rest in events:
        if what == "said" and found and found[-1][0] == "said":
            found[-1] = ("said", found[-1][1] + rest[0])
        else:
            found.append((what, *rest))
    return found


# What the model says


def plainly(harness):
    """Three right calls."""
    steps = [("The tugs.", FIND), ("The berth.", CHANGE), ("The clearance.", CLEAR)]
    return [*(Say(text, [calling(harness, call)]) for text, call in steps), Say(DONE)]


def stumbling(harness, handle):
    """The same, but for a call that is wrong at first, and a tool that is read in full before it is called."""
    first, change, clear, last = plainly(harness)
    wrong = Say(change.text, [calling(harness, MISTAKEN)])
    reading = Say(clear.text, [Call(PAGE_IN, {"pages": [handle]})])
    return [first, wrong, Say(calls=change.calls), reading, Say(calls=clear.calls), last]


def calling(harness, call):
    name, arguments = call
    return Call(harness.prefix + name, arguments)


# What stands in a request


def tools_in(body):
    """The bytes of the tools; a key can't stand in a text, where its quotes would have backslashes."""
    before, _, rest = body.decode().rpartition('"tools":')
    tools, end = json.JSONDecoder().raw_decode(rest)
    assert tools == json.loads(body)["tools"], before[-80:]
    return rest[:end]


def entries(harness, body):
    """The tools of the server, by the names that the server gave them."""
    found = [tool.get("function", tool) for tool in json.loads(tools_in(body))]
    ours = [tool for tool in found if tool["name"].startswith(harness.prefix)]
    return {tool["name"].removeprefix(harness.prefix): tool for tool in ours}


def size(harness, body):
    """The bytes of the server's tools, as they are sent."""
    dumped = [json.dumps(tool, separators=(",", ":"), ensure_ascii=False) for tool in entries(harness, body).values()]
    assert all(text in tools_in(body) for text in dumped)
    return sum(len(text.encode()) for text in dumped)


def handle_of(harness, body, tool):
    """The handle by which the whole of a tool is known, from what the client sends."""
    offers = harness.dialect.offers(harness.dialect.parse(body)).offers
    return next(schema_handle(one.tool.raw) for one in offers.tools if one.tool.name == harness.prefix + tool)


def blocks(harness, body):
    """What stands in a prompt, but for ids, marks, and a note of goose's on the time of day and the tokens so far."""
    dialect = harness.dialect
    messages = [dialect.decode(item) for item in dialect.parse(body).items]
    plain = [(message.role, block.kind, block.name, _read(block)) for message in messages for block in message.blocks]
    return [block for block in plain if block[3]]


def _read(block):
    if block.kind == "call":
        return json.dumps(json.loads(block.text), sort_keys=True)
    return re.sub(r"<info-msg>.*?</info-msg>\n?", "", block.text, flags=re.DOTALL)


def logged(folder, kind):
    store = open_store(f"sqlite:{folder}")
    try:
        return [row.event for row in store.events() if isinstance(row.event, kind)]
    finally:
        store.close()


# What must hold


def assert_ended_as(harness, run, direct):
    """The harness printed, did and was told the same as in its direct run, and so was its server."""
    assert (run.code, run.refused) == (0, []), run.printed
    assert [text for what, text, *_ in run.events if what == "said"][-1] == DONE
    assert run.served == [FIND, CHANGE, CLEAR]
    assert run.events == direct.events
    assert [blocks(harness, body) for body in run.sent] == [blocks(harness, body) for body in direct.sent]


def assert_nothing_shows(run):
    for told in (run.printed, *(body.decode() for body in run.sent)):
        assert not A_HANDLE.search(told)
        assert PAGE_IN not in told
        assert "was not run" not in told


def assert_short_and_stable(harness, run):
    """All requests have the same tools: those of the server short, each with a handle, and the one that reads them."""
    (before,) = {tools_in(body) for body in run.sent}
    (after,) = {tools_in(body) for body in run.received}
    whole, short = entries(harness, run.sent[0]), entries(harness, run.received[0])
    assert list(whole) == list(short)
    assert len(whole) == TOOLS
    assert all(A_HANDLE.search(tool["description"]) for tool in short.values())
    assert ONLY_THE_WHOLE_SAYS in before
    assert ONLY_THE_WHOLE_SAYS not in after
    assert f'"{PAGE_IN}"' in after
    assert size(harness, run.received[0]) <= size(harness, run.sent[0]) / 2


def assert_grows(harness, bodies):
    """Each prompt begins with the one before."""
    prompts = [blocks(harness, body) for body in bodies]
    for before, after in pairwise(prompts):
        assert after[: len(before)] == before


def test_a_task_with_sixty_tools_ends_as_without_the_proxy_for_half_the_bytes(
    harness, run, direct, start_proxy, record_property
):
    with start_proxy("--policy", "cost_aware") as proxy:
        proxied = run(proxy.root, plainly(harness))
    assert_ended_as(harness, direct, direct)
    assert_ended_as(harness, proxied, direct)
    assert_nothing_shows(proxied)
    assert_short_and_stable(harness, proxied)
    assert len(proxied.received) == len(direct.received)
    whole, short = size(harness, direct.received[0]), size(harness, proxied.received[0])
    record_property("bytes of the server's tools", f"{whole} became {short}")
    print(f"{harness.name}: {whole:,} bytes of the server's tools became {short:,}", *_decisions(proxy), sep="\n")


def _decisions(proxy):
    return [event.reason for event in logged(proxy.data_dir, ToolsDecided)]


def test_a_wrong_call_is_put_right_and_a_schema_is_read_behind_the_harness(harness, run, direct, start_proxy):
    handle = handle_of(harness, direct.sent[0], CLEAR[0])
    with start_proxy("--policy", "cost_aware") as proxy:
        proxied = run(proxy.root, stumbling(harness, handle))
    assert_ended_as(harness, proxied, direct)
    assert_nothing_shows(proxied)
    assert_short_and_stable(harness, proxied)
    assert handle in entries(harness, proxied.received[0])[CLEAR[0]]["description"]
    assert len(proxied.received) == len(direct.received) + 2
    _, _, corrected, _, read, _ = [blocks(harness, body) for body in proxied.received]
    assert "was not run" in corrected[-1][3]
    assert "the seventh" in corrected[-1][3]
    assert ONLY_THE_WHOLE_SAYS in read[-1][3]
    legs = logged(proxy.data_dir, LegFinished)
    assert [tool for leg in legs for tool in leg.invalid] == [harness.prefix + MISTAKEN[0]]
    assert [tool for leg in legs for tool in leg.schemas] == [harness.prefix + CLEAR[0]]
    assert logged(proxy.data_dir, Repacked) == []
    if not harness.rewrites:
        assert_grows(harness, proxied.received)
