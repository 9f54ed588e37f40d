"""Sessions go by what was learned when they began, and by nothing else, to their end."""

import json
import time
from contextlib import contextmanager

import pytest

from pager.cli import main
from pager.log.events import (
    Learned,
    Repacked,
    SessionOpened,
    ToolsDecided,
)
from pager.log.store import Batch
from pager.log.stores import open_store
from pager.paging.priors import (
    LOG,
    Experience,
    Harness,
    Seen,
)
from pager.testing.scripted import Call, Say

FLAGS = ("--policy", "cost_aware", "--prices", "none")
NEEDED = Experience({"OpenAI": Harness(results={"read": Seen(5_000.0, 1.0)})})
"""What was learned where results of ``read`` were always needed again."""

NOT_NEEDED = Experience({"OpenAI": Harness(results={"read": Seen(0.0, 5_000.0)})})
CALLS = 5
"""Calls in which results leave the prompt, unless it was learned that they are always needed again."""


def teach(data_dir, known):
    """Let this be what was last learned in a log that nobody has open."""
    data_dir.mkdir(exist_ok=True)
    store = open_store(f"sqlite:{data_dir}")
    blobs = {bytes.fromhex(known.version): known.encode()}
    store.append(Batch(LOG, 1_000.0, [Learned(known.version, 30, 1)], blobs)).result()
    store.close()


@pytest.fixture
def started(scripted, running, open_stage, tmp_path):
    """Opens a stage with a proxy over the log in a folder of this name."""

    @contextmanager
    def of(name, *flags):
        with running(scripted.url, tmp_path / name, *FLAGS, *flags) as proxy, open_stage(proxy) as stage:
            yield stage
            stage.proxy.process.terminate()
            stage.proxy.process.wait()

    return of


def steps(stage, first=0, count=CALLS):
    return [stage.read(1, 2, 3) if at == 0 else stage.look(at) for at in range(first, first + count)]


def version(stage, agent):
    (opened,) = stage.log(agent, SessionOpened)
    return opened.learned


def gone(stage, agent):
    """The pages that left the prompt so far, call by call."""
    return [(event.call, [page.page for page in event.pages]) for event in stage.log(agent, Repacked)]


def played(started, name, *flags):
    """A whole session over this log: its version, what left the prompt, and every byte that went out."""
    with started(name, *flags) as stage:
        stage.play(*steps(stage, count=CALLS - 1), Say("Done."), opening=False)
        agent = stage.agent("chat", session="one")
        agent.run()
        return version(stage, agent), gone(stage, agent), [one.body for one in stage.received]


def test_a_new_session_goes_by_what_was_last_learned(started, tmp_path):
    teach(tmp_path / "a", NOT_NEEDED)
    teach(tmp_path / "a", NEEDED)
    told, evicted, _ = played(started, "a")
    assert told == NEEDED.version
    assert evicted == []


def test_with_learning_off_it_goes_by_what_is_shipped(started, tmp_path):
    teach(tmp_path / "a", NEEDED)
    told, evicted, bodies = played(started, "a", "--learn", "off")
    assert told == ""
    assert evicted
    assert (told, evicted, bodies) == played(started, "fresh")


def test_the_same_log_gives_the_same_decisions(started, tmp_path):
    for name in ("a", "b"):
        teach(tmp_path / name, NOT_NEEDED)
    first, second = played(started, "a"), played(started, "b")
    assert first == second
    assert first[0] == NOT_NEEDED.version
    assert first[1]


def test_a_session_keeps_its_version_whatever_is_learned_before_a_restart(started, tmp_path):
    teach(tmp_path / "a", NEEDED)
    with started("a") as stage:
        stage.play(*steps(stage, count=2), opening=False)
        old = stage.agent("chat", session="old")
        old.run(2)
    teach(tmp_path / "a", NOT_NEEDED)
    with started("a") as stage:
        stage.play(*steps(stage, 2, CALLS - 2), *steps(stage), opening=False)
        again = stage.agent("chat", session="old")
        again.history = old.history
        again.legs, again.turns = [[] for _ in old.legs], list(old.turns)
        again.run(CALLS - 2)
        new = stage.agent("chat", session="new")
        new.run(CALLS)
        assert (version(stage, again), gone(stage, again)) == (NEEDED.version, [])
        assert version(stage, new) == NOT_NEEDED.version
        assert gone(stage, new)


def test_what_was_learned_and_cant_be_read_leaves_the_proxy_serving(started, tmp_path):
    (tmp_path / "a").mkdir()
    store = open_store(f"sqlite:{tmp_path / 'a'}")
    store.append(Batch(LOG, 1_000.0, [Learned("00" * 32, 30, 1)])).result()
    store.close()
    assert played(started, "a")[:2] == played(started, "fresh")[:2]
    assert "not in the log any more" in (tmp_path / "a.log").read_text()


# Tools

PROSE = "Looks it up. There is a long story to tell of how and when to use it, and of all that it gives and takes. " * 4
OFFERED = [f"{verb}_{noun}" for verb in ("find", "close", "merge") for noun in ("ticket", "branch", "build", "note")]
CALLED = "merge_build"
SESSIONS = 6
HOURS_AGO = 2 * 3_600


def offered(wire):
    """A dozen tools, as a client of this wire format offers them."""
    path = {"type": "object", "properties": {"path": {"type": "string", "description": PROSE}}, "required": ["path"]}
    if wire == "messages":
        return [{"name": name, "description": PROSE, "input_schema": path} for name in OFFERED]
    functions = [{"name": name, "description": PROSE, "parameters": path} for name in OFFERED]
    if wire == "chat":
        return [{"type": "function", "function": function} for function in functions]
    return [{"type": "function", "strict": False, **function} for function in functions]


def client(stage, wire, session):
    """An agent with these tools, in whose session everything happens two hours ago."""
    told = {"x-pager-now": str(time.time() - HOURS_AGO)}
    return stage.agent(wire, session=session, tools=offered(wire), extra_headers=told)


def sent_whole(agent):
    """The tools that went out as the client offers them in the latest call, of those that it offers."""
    sent = agent.legs[-1][0].json()["tools"]
    names = [(tool.get("function") or tool)["name"] for tool in sent]
    assert names[:-1] == OFFERED, "and one to ask for the rest"
    return [name for name, tool in zip(names, sent, strict=True) if tool in agent.request["tools"]]


def use(path="small1"):
    return Say(calls=[Call(CALLED, {"path": path})])


def test_a_tool_that_sessions_call_is_sent_whole_to_those_that_begin_later(started, tmp_path, wire, capsys):
    with started("a", "--trust-clock-header") as stage:
        stage.play(*[use(), Say("Done.")] * SESSIONS, use(), opening=False)
        for number in range(SESSIONS):
            agent = client(stage, wire, f"taught-{number}")
            agent.run()
            assert sent_whole(agent) == []
        old = client(stage, wire, "old")
        old.run(1)
        stage.log(old, ToolsDecided, count=1)
    settings = str((tmp_path / "a").with_suffix(".toml"))
    assert main.main(["learn", "--data-dir", str(tmp_path / "a"), "--config", settings]) == 0
    assert f"{CALLED} " in capsys.readouterr().out
    with started("a", "--trust-clock-header") as stage:
        stage.play(use(), Say("Done."), use("small2"), Say("Done."), opening=False)
        new = client(stage, wire, "new")
        new.run()
        assert sent_whole(new) == [CALLED]
        assert version(stage, new)
        again = client(stage, wire, "old")
        again.history = old.history
        again.legs, again.turns = [old.legs[0]], list(old.turns)
        again.run()
        assert sent_whole(again) == []
        assert json.dumps(again.sent[0]["tools"]) == json.dumps(old.sent[0]["tools"])
        assert version(stage, again) == ""
        assert len(stage.log(again, ToolsDecided)) == 1
