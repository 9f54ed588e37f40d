"""A proxy that is killed goes on where it was: with the same bytes, from what is in its log."""

import os
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from pager.log.events import LegFinished
from pager.testing.scripted import (
    Call,
    PageIn,
    Say,
    Slow,
)
from pager.testing.scripted.page_requests import rounds

DONE = Say("All parts are fine. ☔")
WIRES = ("chat", "messages", "responses")
SPELLS = (5, 1, 3, 2)
"""Calls of each agent between two kills: before and after hidden legs, mixed answers and evictions."""


@pytest.fixture
def started(scripted, running, soon, open_stage, tmp_path):
    """Opens a stage with a proxy in a folder of this name, and a way to kill that proxy and start another there."""

    @contextmanager
    def of(name):
        with running(scripted.url, tmp_path / name, *soon) as proxy, open_stage(proxy) as stage:
            yield stage, lambda agents: killed(stage, agents)
            stage.proxy.process.terminate()
            stage.proxy.process.wait()
        assert checked(tmp_path / name).endswith("clean\n")

    def killed(stage, agents):
        stage.proxy.process.kill()
        stage.proxy.process.wait()
        again = running(scripted.url, stage.proxy.data_dir, *soon)
        stage.proxy = again.__enter__()
        cleanups.append(again)
        for agent in agents:
            agent.go_to(stage.proxy.root)

    cleanups = []
    yield of
    for one in cleanups:
        one.__exit__(None, None, None)


def checked(folder):
    """What ``ctxpager check`` says of a folder."""
    command = [sys.executable, "-m", "pager.cli", "check", "--data-dir", str(folder)]
    env = {key: value for key, value in os.environ.items() if not key.startswith("CTXPAGER_")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env).stdout


def answers(stage):
    """The answers that one agent gets, spell by spell."""
    told = [
        stage.read(1, 2, 3),
        *map(stage.look, (1, 2, 3)),
        PageIn(Say("I look on.", [Call("look", {"path": "small4"})], "Hm."), pages=2, reasoning="What was it?"),
        PageIn(beside=[Call("look", {"path": "small5"})], text="Both."),
        stage.read(4, 5),
        stage.look(6),
        PageIn(stage.look(7), times=2, which="newest"),
        stage.look(8),
        PageIn(DONE, search="harbour"),
    ]
    return [[told.pop(0) for _ in range(calls)] for calls in SPELLS]


def test_the_same_bytes_go_out_wherever_the_proxy_is_killed(started):
    played = {}
    for name in ("whole", "killed"):
        with started(name) as (stage, kill):
            agents = [stage.agent(wire, stream=wire != "chat", session=wire) for wire in WIRES]
            stage.play(*(one for spell in answers(stage) for _ in agents for one in spell), opening=False)
            for number, calls in enumerate(SPELLS):
                if number and name == "killed":
                    kill(agents)
                for agent in agents:
                    agent.run(calls)
            played[name] = [received.body for received in stage.received], [agent.turns for agent in agents]
            assert [rounds(agent.sent[-1]) for agent in agents] == [5] * len(agents)
    bodies, turns = zip(*played.values(), strict=True)
    assert bodies[0] == bodies[1]
    assert [[turn.raw for turn in mine] for mine in turns[0]] == [[turn.raw for turn in mine] for mine in turns[1]]


def test_a_call_that_was_killed_between_its_legs_begins_anew(started, outcome):
    """Where nobody is killed the clients leave instead: either way their next attempts are the same."""
    bodies = {}
    for name in ("left", "killed"):
        with started(name) as (stage, kill):
            stage.lawful = False
            agents = [stage.agent(wire, session=wire) for wire in WIRES]
            opening = [stage.read(1, 2, 3), *map(stage.look, (1, 2, 3))]
            anew = [PageIn(stage.look(5), pages=3), stage.look(6), DONE]
            hanging = [*opening, PageIn(Slow(30, DONE))]
            stage.play(*hanging * 3, *anew * 3, opening=False)
            asking = [_asking(agent, outcome) for agent in agents]
            assert [len(stage.log(agent, LegFinished)) for agent in agents] == [1, 1, 1]
            if name == "killed":
                kill(agents)
            for thread in asking:
                thread.join()
            for agent in agents:
                assert agent.run()[-1].text == DONE.text
            bodies[name] = [received.body for received in stage.received]
    assert bodies["killed"] == bodies["left"]
    assert len(bodies["left"]) == 3 * (6 + 4)


def _asking(agent, outcome):
    """The agent's fifth call on its way, with its second leg under way."""
    agent.opened()
    thread = threading.Thread(target=lambda: outcome(lambda: agent.ask(timeout=5.0)))
    before = len(agent.stage.received)
    thread.start()
    assert agent.stage.eventually(lambda: len(agent.stage.received) >= before + 2)
    return thread
