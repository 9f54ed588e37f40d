"""A wire format is one folder: one that nobody has heard of is served, paged, played and tested without another change.

It names the model in its path, as some providers do.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

BOOT = "import sys, pager.wire; pager.wire.__path__.append(sys.argv[1]); "

DIALECT = """
import re
from dataclasses import replace

from pager.wire.chat import dialect as chat

PATH = re.compile(r"/telegraphs/([^/:]+):send")


class Dialect(chat.Dialect):
    name = "telegraph"
    path = "/telegraphs/t-1:send"
    resources = ("/telegraphs",)
    base_url = "https://telegraph.invalid/v1"

    def accepts(self, path):
        return PATH.fullmatch(path) is not None

    def credential(self, key):
        return "x-telegraph-key", key

    def parse(self, body, cache=None, *, path=""):
        named = PATH.search(path)
        request = super().parse(body, cache)
        return replace(request, model=named[1] if named else request.model)
"""

SCRIPTED = """
from pager.wire.chat import scripted as chat


class Scripted(chat.Scripted):
    name = "telegraph"
"""

SESSION = """
import asyncio, json, urllib.request
from pathlib import Path

from pager.paging.page_in import definition
from pager.testing.scripted import Call, PageIn, Say, Script, ScriptedModel

PAGE = "\\n".join(f"line {number} of the long text that the tool has read" for number in range(2000))
READ = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}
SCRIPT = Script([Say(calls=[Call("read")])] * 6 + [PageIn(Say("All is read."))], strict=True)


def post(root, body):
    data = json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{root}/v1/telegraphs/t-1:send", data)) as response:
        return json.load(response)["choices"][0]["message"]


def talk(root):
    messages = [{"role": "user", "content": "Read it."}]
    for at in range(7):
        said = post(root, {"messages": messages, "tools": [READ]})
        messages.append(said)
        for call in said.get("tool_calls") or ():
            result = {"role": "tool", "tool_call_id": call["id"], "content": f"{at} {PAGE}"}
            messages.append(result)
    return messages


async def main(folder, port, tmp):
    async with ScriptedModel(SCRIPT) as model:
        flags = ["--port", port, "--upstream", model.url, "--data-dir", str(tmp / "data"), "--policy", "fifo_age",
                 "--paging-policy-options", "{ age = 2, size = 500 }", "--config", str(tmp / "settings.toml")]
        command = [sys.executable, "-c", BOOT + "from pager.cli.main import main; main(sys.argv[2:])", folder, "serve"]
        proxy = await asyncio.create_subprocess_exec(*command, *flags)
        try:
            root = f"http://127.0.0.1:{port}"
            while proxy.returncode is None:
                try:
                    await asyncio.to_thread(urllib.request.urlopen, f"{root}/healthz")
                    break
                except OSError:
                    await asyncio.sleep(0.05)
            messages = await asyncio.to_thread(talk, root)
        finally:
            proxy.terminate()
            await proxy.wait()
        offered = [received.json()["tools"] for received in model.received]
        print(json.dumps({
            "said": messages[-1]["content"],
            "requests": len(model.received),
            "paths": sorted({received.path for received in model.received}),
            "refused": [received.refused for received in model.received if received.refused],
            "page_in": offered[-1][-1] == json.loads(definition("telegraph")),
        }))


asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[1]).parent))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "more" / "telegraph").mkdir(parents=True)
    for name, text in (("__init__", ""), ("dialect", DIALECT), ("scripted", SCRIPTED)):
        (tmp_path / "more" / "telegraph" / f"{name}.py").write_text(text)
    (tmp_path / "settings.toml").touch()
    return str(tmp_path / "more")


def run(*arguments):
    env = {key: value for key, value in os.environ.items() if not key.startswith("CTXPAGER_")}
    return subprocess.run([sys.executable, "-c", *arguments], capture_output=True, text=True, env=env, check=False)


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_a_new_folder_is_served_paged_and_played(folder):
    done = run(f"{BOOT}\nBOOT = {BOOT!r}\n{SESSION}", folder, free_port())
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts == {
        "said": "All is read.",
        "requests": 8,  # six calls, a hidden one that asks for a page, and the answer
        "paths": ["/v1/telegraphs/t-1:send"],
        "refused": [],
        "page_in": True,
    }


def test_a_new_folder_reads_the_model_in_its_path_and_brings_its_own_credential(folder):
    asked = """
from pager.sessions.identity import credential_of
from pager.wire.dialects import load, names
telegraph = load("telegraph")
request = telegraph.parse(b'{"messages": []}', path="/v1/telegraphs/t-9:send")
print(names(), request.model, telegraph.credential("k"), credential_of({"x-telegraph-key": "s"}))
"""
    done = run(BOOT + asked, folder)
    assert done.stdout == "['chat', 'messages', 'responses', 'telegraph'] t-9 ('x-telegraph-key', 'k') s\n", done.stderr


def test_a_new_folder_joins_the_contract_by_existing(folder):
    chosen = ["-q", "--no-cov", "-p", "no:cacheprovider", "-k", "telegraph", str(TESTS / "test_dialects.py")]
    suite = f"import pytest; sys.exit(pytest.main({chosen!r}))"
    done = run(BOOT + suite, folder)
    assert done.returncode == 0, done.stdout + done.stderr
