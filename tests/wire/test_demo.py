"""The demo plays an agent's session with and without paging, tells of it, and says what was saved."""

import asyncio
import io
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import pytest
from aiohttp import ClientSession
from rich.console import Console
from waiting import PATIENCE

from instrumentation.reports.gather import Wanted, gather
from pager.log.events import (
    AnswerFinished,
    CallReceived,
    LegFinished,
    Repacked,
    SessionOpened,
)
from pager.log.stores import open_store
from pager.pricing.rates import in_force
from pager.testing import demo
from pager.testing.demo.session import (
    MODEL,
    SCRIPT,
    TURNS,
    Clock,
    DemoAgent,
)
from pager.testing.scripted import ScriptedModel
from pager.testing.scripted.prompt_cache import HALF_AN_HOUR, PromptCache
from pager.wire.chat.scripted import Scripted as Chat
from pager.wire.dialects import load


class Shell(NamedTuple):
    """A user's shell in a folder, from which ``ctxpager`` is not found by its name."""

    folder: Path
    path: str

    def run(self, command):
        """What a command line prints."""
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=self.folder,
            env={**os.environ, "PATH": self.path},
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        return done.stdout


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    without = [folder for folder in folders if not (Path(folder) / "ctxpager").exists()]
    return Shell(tmp_path_factory.mktemp("the demo"), os.pathsep.join(without))


@pytest.fixture(scope="module")
def lines(shell):
    """What the demo printed."""
    program = os.path.relpath(Path(sysconfig.get_path("scripts")) / "ctxpager", shell.folder)
    return shell.run(shlex.join([program, "demo", "--data-dir", "a log"])).splitlines()


@pytest.fixture(scope="module")
def played(shell, lines):
    """What the demo printed, as one line, and the folder of its log."""
    return " ".join(" ".join(lines).split()), shell.folder / "a log"


@pytest.fixture(scope="module")
def logged(played):
    """The events of each session of the log, by what the client calls it."""
    store = open_store(f"sqlite:{played[1]}")
    try:
        names, events = {}, {}
        for stored in store.events():
            if isinstance(stored.event, SessionOpened):
                names[stored.session] = stored.event.key
            if stored.session in names:  # not the user's account
                events.setdefault(names[stored.session], []).append(stored.event)
        return events
    finally:
        store.close()


def money(name, printed):
    return float(re.search(rf"{name} +\$([\d.]+)", printed)[1])


def billed(events):
    """What the provider charges for all requests of a session, by the tokens that it reported."""
    known = in_force("", {}).find(MODEL)
    used = [event.usage for event in events if isinstance(event, AnswerFinished | LegFinished) and event.usage]
    plain = sum(one.input - one.cached - one.written for one in used)
    cached, written = sum(one.cached for one in used), sum(one.written for one in used)
    output = sum(one.output for one in used)
    return (plain * known.input + cached * known.cached + written * known.written + output * known.output) / 1e6


def test_the_demo_says_what_the_provider_charged_for_both_sessions(played, logged):
    printed, _ = played
    without, paged = money("without ctxpager", printed), money("with ctxpager", printed)
    assert without == pytest.approx(billed(logged[demo.WITHOUT]), abs=0.006)
    assert paged == pytest.approx(billed(logged[demo.WITH]), abs=0.006)
    assert money("saved", printed) == pytest.approx(without - paged), "of the amounts as they are printed"
    assert f"{MODEL} at its list price" in printed
    assert "live 30 minutes" in printed


def test_paging_makes_the_demos_session_cheaper_by_a_third_at_least(logged):
    assert billed(logged[demo.WITH]) < 0.67 * billed(logged[demo.WITHOUT])


def test_what_the_demo_calls_without_is_what_the_calls_cost_without_any_proxy(logged):
    answers = [event.usage for event in logged[demo.WITHOUT] if isinstance(event, AnswerFinished)]
    assert [(one.input, one.cached, one.written) for one in answers] == asyncio.run(straight())


async def straight():
    """What the provider counts of the same calls, sent to it by the agent itself."""
    clock, counts = Clock(0.0), []
    cache = PromptCache(clock, HALF_AN_HOUR)
    async with ScriptedModel(SCRIPT, clock=clock) as model, ClientSession() as http:

        async def count():
            used = cache.usage(Chat(), model.received[-1].json())
            counts.append((used.input, used.cached, used.written))

        agent = DemoAgent(http, model.root, clock, {})
        for turn in TURNS:
            clock.now += 60 * turn.pause
            await agent.work(turn.text, count)
    return counts


def test_what_a_report_takes_the_paged_session_to_cost_without_paging_is_near_what_the_same_calls_cost(played, logged):
    store = open_store(f"sqlite:{played[1]}")
    try:
        found = gather(store, Wanted(demo.WITH), in_force("", {}), load)
    finally:
        store.close()
    assert found.ledger.total.sums.dollars_before == pytest.approx(billed(logged[demo.WITHOUT]), rel=0.015)


def test_the_demo_tells_of_what_left_and_what_came_back_as_the_log_has_it(played, logged):
    printed, _ = played
    repacks = [event for event in logged[demo.WITH] if isinstance(event, Repacked)]
    first = max(repacks, key=lambda event: len(event.pages))
    assert f"{len(first.pages)} old results leave the prompt: {first.saved:,} tokens less" in printed
    assert " ".join(first.pages[0].stub.split()) in printed, "a stub, as the model sees it"
    (leg,) = [event for event in logged[demo.WITH] if isinstance(event, LegFinished)]
    assert leg.pages == [first.pages[0].page]
    assert "The model asks for one back and gets it" in printed
    assert printed.count("its cache is empty now") == 2


def test_the_demo_plays_every_call_of_its_script_in_both_sessions(logged):
    assert 80 <= len(SCRIPT.answers) <= 140
    for events in logged.values():
        calls = [event.call for event in events if isinstance(event, CallReceived)]
        assert calls == list(range(1, len(SCRIPT.answers) + 1))
    assert not [event for event in logged[demo.WITHOUT] if isinstance(event, Repacked)]


def test_the_demos_next_steps_work_as_they_are_printed(shell, lines):
    """Also where ``ctxpager`` is not on the path, as after ``make demo``, and where the folder's name has a blank."""
    steps = dict(re.split(r"  +", line, maxsplit=1) for line in lines[-4:])
    assert list(steps) == ["dashboard", "in detail", "your own logs", "your own calls"]
    assert MODEL in shell.run(steps["in detail"])
    assert "serve --data-dir" in steps["dashboard"], "nobody stays to serve the dashboard"
    for name, command in (("dashboard", "serve"), ("your own logs", "analyze"), ("your own calls", "serve")):
        assert f"usage: ctxpager {command} " in shell.run(f"{steps[name]} --help")
    assert not [line for line in lines if "http://" in line]


def test_in_a_terminal_the_dashboard_stays_until_it_is_interrupted(tmp_path):
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "pager.cli", "demo", "--data-dir", str(tmp_path / "log")]
    process = subprocess.Popen(
        command, stdout=terminal, stderr=subprocess.STDOUT, stdin=terminal, start_new_session=True
    )
    os.close(terminal)
    printed = b""
    try:
        while b"until Ctrl-C" not in printed:
            printed += os.read(master, 4_096)
        address = re.search(rb"dashboard\s+(http://[\d.:]+/)", printed)[1].decode()
        with urlopen(address, timeout=PATIENCE) as page:
            assert b"ctxpager" in page.read()
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        with suppress(OSError):  # the terminal is gone when its last user is
            while os.read(master, 4_096):
                pass
        assert process.wait(PATIENCE) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(master)


def test_the_demo_begins_without_the_log_of_the_one_before(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    left = tmp_path / "ctxpager" / "demo" / "ctxpager.sqlite3"
    left.parent.mkdir(parents=True)
    left.write_text("from another demo")
    out = io.StringIO()
    outcome = demo.DemoOutcome(demo.Cost(2.0, 10), demo.Cost(1.5, 5), "at a price")
    asyncio.run(demo.run(demo.own_folder(), Console(file=out, width=80), lambda _, __: outcome))
    assert "saved             $0.50, 25%" in out.getvalue()
