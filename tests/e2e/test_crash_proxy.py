"""The whole proxy killed at random instants under load: whatever reached the provider is in the log."""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

from waiting import PATIENCE

from instrumentation.accounting.log_check import check
from instrumentation.accounting.logged_prompts import client_calls
from pager.log.stores import open_store
from pager.testing.scripted import Call, Say, Script

SEED = int(os.environ.get("CTXPAGER_SEED", "1"))
KILLS = int(os.environ.get("CTXPAGER_KILLS", "8"))
CLIENTS = 4


class Agent(threading.Thread):
    """A client that plays one growing session, trying again whenever the proxy is gone."""

    def __init__(self, number, port, stop):
        super().__init__(daemon=True)
        self.number, self.port, self.stop = number, port, stop
        self.answered = 0

    def run(self):
        history = [{"role": "user", "content": f"session {self.number}"}]
        while not self.stop.is_set():
            if self._send(history):
                self.answered += 1
                step = f"call {len(history)}"
                history += [{"role": "assistant", "content": step}, {"role": "user", "content": step + " x" * 300}]
                history = history if len(history) < 60 else history[:1]
            else:
                time.sleep(0.01)

    def _send(self, history):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        body = json.dumps({"model": "gpt-4o", "messages": history, "stream": self.number % 2 == 0})
        headers = {"content-type": "application/json"} | ({"x-session-id": "s"} if self.number == 0 else {})
        try:
            connection.request("POST", "/v1/chat/completions", body, headers)
            response = connection.getresponse()
            return response.status == 200 and bool(response.read())
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start(port, upstream, folder):
    command = [sys.executable, "-m", "pager.cli", "serve", "--port", str(port), "--upstream", upstream]
    command += ["--data-dir", str(folder), "--log-level", "error"]
    # A process that is killed can't report its coverage, and measuring it would only slow it down.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "CTXPAGER_"))}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env)
    end = time.monotonic() + PATIENCE
    while not listening(port):
        assert process.poll() is None
        assert time.monotonic() < end, "the proxy does not listen"
        time.sleep(0.02)
    return process


@contextmanager
def agents(port):
    stop = threading.Event()
    running = [Agent(number, port, stop) for number in range(CLIENTS)]
    for agent in running:
        agent.start()
    yield running
    stop.set()
    for agent in running:
        agent.join(PATIENCE)


def test_nothing_that_reached_the_provider_is_missing_in_the_log(scripted, tmp_path, eventually):
    scripted.play(Script([Say("fine", calls=[Call("run", {"a": 1})]), Say("fine")], repeat=True))
    chance = random.Random(SEED)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = start(port, scripted.url, tmp_path)
    with agents(port) as running:
        for _ in range(KILLS):
            more = len(scripted.received) + chance.randrange(40)
            eventually(lambda more=more: len(scripted.received) >= more, chance.uniform(2, 4))
            time.sleep(chance.uniform(0, 0.02))
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process = start(port, scripted.url, tmp_path)
        assert eventually(lambda: all(agent.answered for agent in running)), "an agent got nowhere"
    process.terminate()
    process.wait(PATIENCE)

    store = open_store(f"sqlite:{tmp_path}")
    try:
        assert check(store, repair=False).problems == ()
        logged = {call.body(store.blob) for call in client_calls(store.events())}
    finally:
        store.close()
    reached = [received.body for received in scripted.received]
    assert len(reached) > 2 * KILLS
    assert [body for body in reached if body not in logged] == []
