"""Plays scripts through the real proxy before the real model, and adds up what the model computed for them.

Each policy has a proxy and a model server of its own, all with the same weights. A call goes to one after the other, so
that only one of them computes at any time, and a slow minute of the machine falls on all.

The clock is the script's, told to the proxy by ``X-Pager-Now``: an agent calls every few seconds, and is away for
minutes while another one has the model. Nobody waits for that here; and what a proxy decides does not depend on how
fast the machine is.
"""

import contextlib
import re
import sqlite3
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.real_model.script import AgentScript, Message, offered, side_messages
from benchmarks.real_model.server import MODEL, WINDOW
from benchmarks.real_model.server_log import ServerWork, work
from benchmarks.shared import processes
from benchmarks.shared.processes import Target, free_port, running
from pager.paging.context_length import overflow

ANSWER = 6
"""Tokens that an answer may have: what it says changes nothing."""

EVERY, AWAY = 5, 300
"""Seconds between an agent's calls, and for which it is away while another one has the model."""

CACHE_SECONDS = 60
"""How long the proxy takes the model to remember an agent's prompt: longer than one is busy, shorter than away."""

# Prices are times: a prompt token that the model remembers costs a small part of one that it must process.
PRICES = f"""\
[models."{MODEL}"]
window = {WINDOW}
input = 1.0
cached = 0.04
output = 3.0
cache_seconds = {CACHE_SECONDS}
"""

# Threads that wait for each other sleep: on a busy machine spinning ones took up to twice the CPU for the same prompt.
_PASSIVE = {"OMP_WAIT_POLICY": "passive"}
_START = 1_800_000_000
_COUNTED = re.compile(r"(\d+) in the messages")


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A model server, and where it writes what it does."""

    target: Target
    log: Path


class ModelReply(NamedTuple):
    """An answer: its status and its body."""

    status: int
    body: Any

    @property
    def prompt(self) -> int:
        """The tokens of the prompt, as the server counted them; 0 where it refused it."""
        return int(self.body["usage"]["prompt_tokens"]) if self.status == 200 else 0

    @property
    def said(self) -> str:
        """The text of the answer; empty where there is none."""
        return str(self.body["choices"][0]["message"]["content"] or "") if self.status == 200 else ""

    @property
    def refusal(self) -> str:
        """How the server said that the prompt does not fit its window; empty if it took it."""
        if self.status == 200:
            return ""
        if overflow(self.status, orjson.dumps(self.body)) is None:
            raise RuntimeError(f"answered by {self.status}: {self.body}")
        return str(self.body["error"]["message"])


@dataclass(slots=True)
class PlayedScript:
    """What became of a session under a policy: its own work and that of requests in between, apart."""

    calls: int = 0
    refusal: str = ""
    own: ServerWork = field(default_factory=ServerWork)
    side: ServerWork = field(default_factory=ServerWork)
    seconds: float = 0.0
    cpu: float = 0.0
    longest: int = 0
    repacks: int = 0
    warm_repacks: int = 0
    evicted: int = 0

    @property
    def page_ins(self) -> int:
        """Requests more than calls: each was made to bring a page."""
        return self.own.requests - self.calls


@contextlib.contextmanager
def model_servers(folder: Path, policies: Sequence[str]) -> Iterator[dict[str, ModelServer]]:
    """A model server for each policy."""
    with contextlib.ExitStack() as stack:
        servers = {}
        for policy in policies:
            port, log = free_port(), folder / f"model-{policy}.log"
            command = [sys.executable, "-m", "benchmarks.real_model.server", str(port)]
            pid = stack.enter_context(running(command, port, ready="/v1/models", log=log, env=_PASSIVE))
            servers[policy] = ModelServer(Target(policy, port, pid), log)
        yield servers


class Lane:
    """One policy's proxy before its model server, with a session under way."""

    def __init__(self, port: int, server: ModelServer) -> None:
        self._port = port
        self._target = server.target
        self._log = server.log
        self._read = self._log.stat().st_size
        self._said: list[str] = []
        self.played = PlayedScript()

    def call(self, script: AgentScript, at: float) -> None:
        """Send the script's next call; one that is refused ends the session."""
        began, used = time.perf_counter(), self._target.cpu()
        reply = _post(self._port, script.messages(self._said), _dated(script.name, at), tools=offered())
        self._said.append(reply.said)
        played = self.played
        played.seconds += time.perf_counter() - began
        played.cpu += self._target.cpu() - used
        played.own += self._worked()
        played.longest = max(played.longest, reply.prompt)
        played.refusal = reply.refusal
        played.calls += not reply.refusal

    def aside(self, number: int, at: float) -> None:
        """Send another agent's request, after which the model remembers nothing of the session."""
        reply = _post(self._port, side_messages(number), _dated(f"side-{number}", at))
        if reply.refusal:
            raise RuntimeError(f"a request without any history was refused: {reply.refusal}")
        self.played.side += self._worked()

    def _worked(self) -> ServerWork:
        """What the model has computed since this was last asked."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        self._read += len(new)
        return work(new.decode(errors="replace"))


def _dated(session: str, at: float) -> dict[str, str]:
    return {"x-session-id": session, "x-pager-now": f"{at:.1f}"}


def _post(port: int, messages: list[Message], headers: Mapping[str, str], **more: object) -> ModelReply:
    body = {"model": MODEL, "messages": messages, "max_tokens": ANSWER, "temperature": 0, **more}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    request = urllib.request.Request(url, orjson.dumps(body), {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=1_200) as answer:
            return ModelReply(answer.status, orjson.loads(answer.read()))
    except urllib.error.HTTPError as error:
        return ModelReply(error.code, orjson.loads(error.read()))


def size_of(script: AgentScript, server: ModelServer) -> int:
    """The tokens of a script's whole history, without what the model said, by the model server's own count."""
    reply = _post(server.target.port, script.messages([""] * len(script.steps)), {}, tools=offered())
    counted = _COUNTED.search(reply.refusal)
    return int(counted[1]) if counted else reply.prompt


def play(
    script: AgentScript, servers: Mapping[str, ModelServer], folder: Path, switches: Collection[int] = ()
) -> dict[str, PlayedScript]:
    """Play the script under each policy; before the calls in ``switches`` another agent has the model."""
    with proxies(servers, folder) as lanes:
        at = float(_START)
        for call in range(1, script.calls + 1):
            at += AWAY if call in switches else EVERY
            for lane in (lane for lane in lanes.values() if not lane.played.refusal):
                if call in switches:
                    lane.aside(call, at - AWAY / 2)
                lane.call(script, at)
            _tell(script, call, lanes)
    for policy, lane in lanes.items():
        _count_repacks(folder / policy, lane.played)
    return {policy: lane.played for policy, lane in lanes.items()}


@contextlib.contextmanager
def proxies(servers: Mapping[str, ModelServer], folder: Path) -> Iterator[dict[str, Lane]]:
    """A proxy before each model server, as a user starts it."""
    prices = folder / "prices.toml"
    prices.parent.mkdir(parents=True, exist_ok=True)
    prices.write_text(PRICES)
    lanes = {}
    with contextlib.ExitStack() as stack:
        for policy, server in servers.items():
            port = free_port()
            command = processes.ctxpager(port, server.target.port, folder / policy, policy)
            command += [f"--prices={prices}", "--trust-clock-header"]
            stack.enter_context(running(command, port, ready="/healthz", log=folder / "proxies.log"))
            lanes[policy] = Lane(port, server)
        yield lanes


def _count_repacks(data: Path, played: PlayedScript) -> None:
    """Take from a proxy's log how often it changed a prompt, and how often one that it took to be remembered."""
    with contextlib.closing(sqlite3.connect(f"file:{data}/ctxpager.sqlite3?mode=ro", uri=True)) as log:
        rows = log.execute("select data from events where kind = 'Repacked'").fetchall()
    repacks = [orjson.loads(row) for (row,) in rows]
    played.repacks = len(repacks)
    played.warm_repacks = sum(bool(repack.get("warm")) for repack in repacks)
    played.evicted = sum(len(repack.get("pages", ())) for repack in repacks)


def _tell(script: AgentScript, call: int, lanes: Mapping[str, Lane]) -> None:
    if call % 10 == 0 or call == script.calls:
        so_far = ", ".join(f"{policy} {lane.played.own.prompt_seconds:.0f} s" for policy, lane in lanes.items())
        print(f"{script.name}: call {call} of {script.calls}; prompts took {so_far}", file=sys.stderr)
