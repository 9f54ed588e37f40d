"""The server's part in learning: it has it done once a day, and takes what is new."""

import asyncio
import logging
import os
import sys
import time
from contextlib import asynccontextmanager
from hashlib import sha256

import pytest
import uvloop
from waiting import PATIENCE

from pager.config.settings import Settings
from pager.errors import StoreCorrupt
from pager.log.events import (
    BranchOpened,
    Bypassed,
    CallReceived,
    Learned,
    SessionOpened,
)
from pager.log.store import Batch
from pager.log.stores import open_store
from pager.paging.pager import Pager
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.paging.priors import (
    LOG,
    SHIPPED,
    Experience,
    Harness,
)
from pager.pricing.rates import Models
from pager.proxy.call_log import CallLog
from pager.proxy.serving.learner import (
    Learner,
    LearningPace,
    command,
    may_learn,
    recall,
)
from pager.wire.dialects import load

DAY = 86_400.0
SOON = LearningPace(first=0.0, every=0.01)
FIRST = Experience({"claude-cli": Harness(lengths=[3, 4])})
SECOND = Experience({"claude-cli": Harness(lengths=[3, 4, 5])})
APPEND = """
import sys
from pathlib import Path
from pager.log.events import Learned
from pager.paging.priors import LOG, decode
from pager.log.store import Batch
from pager.log.stores import open_store
store, content = open_store(f"sqlite:{Path(sys.argv[1])}"), sys.argv[2].encode()
version = decode(content).version
store.append(Batch(LOG, float(sys.argv[3]), [Learned(version, 1, 1)], {bytes.fromhex(version): content})).result()
store.close()
"""


@pytest.fixture
def store(tmp_path):
    store = open_store(f"sqlite:{tmp_path}")
    yield store
    store.close()


@pytest.fixture
def pager(store):
    made = Pager(Arms(NamedPolicy("cost_aware", load_policy("cost_aware"))), Models.load(), load, marks=True)
    CallLog(store, load, 10, made)
    return made


def note(store, known, ago=0.0):
    blobs = {bytes.fromhex(known.version): known.encode()}
    store.append(Batch(LOG, time.time() - ago, [Learned(known.version, 1, 1)], blobs)).result()


def begin(store, ago):
    """Let the log begin so long ago."""
    store.append(Batch("s", time.time() - ago, [Bypassed("not_logged")])).result()


def python(code, *arguments):
    return [sys.executable, "-c", code, *map(str, arguments)]


def counting(path):
    """A command that leaves a line in a file."""
    return python("import sys; print('done', file=open(sys.argv[1], 'a'))", path)


def runs(path):
    return path.read_text().count("done") if path.exists() else 0


@asynccontextmanager
async def learning(pager, store, command, pace=SOON):
    learner = Learner(pager, store, command, pace)
    learner.start()
    try:
        yield learner
    finally:
        await learner.stop()


async def until(true):
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it does not come true"
        await asyncio.sleep(0.01)


# What was learned before


def test_new_sessions_go_by_what_was_last_learned(store, pager):
    note(store, FIRST, ago=DAY)
    note(store, SECOND)
    known = recall(pager, store)
    assert (known.name, pager.learned) == (SECOND.version, SECOND.version)
    assert pager.experience(pager.learned).encode() == SECOND.encode()


def test_where_nothing_was_learned_they_go_by_what_is_shipped(store, pager):
    assert recall(pager, store) is None
    assert pager.learned == ""
    assert pager.experience("") is SHIPPED


def test_what_the_log_does_not_hold_any_more_is_not_gone_by(store, pager):
    store.append(Batch(LOG, 1.0, [Learned(FIRST.version, 1, 1)])).result()
    with pytest.raises(StoreCorrupt, match="not in the log any more"):
        recall(pager, store)
    assert pager.learned == ""


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"harnesses":{"x":{"lengths":"many"}}}'])
def test_what_cant_be_read_is_not_gone_by(store, pager, content):
    digest = sha256(content)
    event = Learned(digest.hexdigest(), 1, 1)
    store.append(Batch(LOG, 1.0, [event], {digest.digest(): content})).result()
    with pytest.raises(StoreCorrupt, match="can't be read"):
        recall(pager, store)
    assert pager.learned == ""


def test_a_version_that_is_none_is_not_gone_by(store, pager):
    store.append(Batch(LOG, 1.0, [Learned("no digest", 1, 1)])).result()
    with pytest.raises(StoreCorrupt, match="can't be read"):
        recall(pager, store)


# When it is worked out


@pytest.mark.parametrize(
    ("set_to", "may"),
    [
        ({}, True),
        ({"learn": "off"}, False),
        ({"trust_clock_header": True}, False),
        ({"store": "memory"}, False),
    ],
)
def test_it_is_worked_out_daily_unless_that_is_off_or_makes_no_sense(set_to, may):
    assert may_learn(Settings(**set_to)) is may


def test_the_command_is_that_of_this_log(tmp_path):
    told = command(Settings(data_dir=tmp_path, store="sqlite"))
    assert told[0] == sys.executable
    assert told[-3:] == ["learn", "--store", f"sqlite:{tmp_path}"]


def test_what_another_process_works_out_holds_for_new_sessions(store, pager, tmp_path):
    begin(store, ago=DAY + 60)

    async def play():
        work = python(APPEND, tmp_path, FIRST.encode().decode(), time.time())
        async with learning(pager, store, work):
            await until(lambda: pager.learned == FIRST.version)

    asyncio.run(play())
    assert pager.experience(pager.learned).encode() == FIRST.encode()


def test_the_real_command_learns_under_the_servers_own_loop(store, pager, tmp_path):
    opened = [SessionOpened("local", "k", "x-session-id", "claude-cli/2"), BranchOpened(0, "root", "chat")]
    calls = [CallReceived(0, call, 1, "chat", "/", "m", False, "", 0, "", []) for call in (1, 2)]
    store.append(Batch("s", time.time() - 2 * DAY, [*opened, *calls])).result()

    async def play():
        async with learning(pager, store, command(Settings(data_dir=tmp_path))):
            await until(lambda: pager.learned)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(play())
    assert pager.experience(pager.learned).harnesses == {"claude-cli": Harness(lengths=[2])}


@pytest.mark.parametrize("ago", [DAY - 60, None])
def test_a_log_of_less_than_a_day_is_left_alone(store, pager, tmp_path, ago):
    if ago is not None:
        begin(store, ago)
    asyncio.run(_left_alone(pager, store, tmp_path / "ran"))


def test_what_was_learned_today_is_not_worked_out_again(store, pager, tmp_path):
    begin(store, ago=9 * DAY)
    note(store, FIRST, ago=DAY - 60)
    asyncio.run(_left_alone(pager, store, tmp_path / "ran"))
    assert pager.learned == FIRST.version


async def _left_alone(pager, store, path):
    async with learning(pager, store, counting(path)):
        await asyncio.sleep(0.3)
    assert runs(path) == 0


def test_it_is_not_tried_twice_a_day_even_if_it_brings_nothing_new(store, pager, tmp_path):
    note(store, FIRST, ago=2 * DAY)

    async def play():
        async with learning(pager, store, counting(tmp_path / "ran")):
            await until(lambda: runs(tmp_path / "ran"))
            await asyncio.sleep(0.2)

    asyncio.run(play())
    assert runs(tmp_path / "ran") == 1


def test_what_was_worked_out_by_hand_is_taken_too(store, pager, tmp_path):
    note(store, FIRST)

    async def play():
        async with learning(pager, store, counting(tmp_path / "ran")):
            await until(lambda: pager.learned == FIRST.version)
            note(store, SECOND)
            await until(lambda: pager.learned == SECOND.version)

    asyncio.run(play())
    assert runs(tmp_path / "ran") == 0


def test_it_gives_way_to_everything_else(store, pager, tmp_path):
    begin(store, ago=2 * DAY)
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    wait = f"""
import os, pathlib, sys, time
while os.getpriority(os.PRIO_PROCESS, 0) <= {mine}:
    time.sleep(0.01)
pathlib.Path(sys.argv[1]).touch()
"""

    async def play():
        async with learning(pager, store, python(wait, tmp_path / "nice")):
            await until((tmp_path / "nice").exists)

    asyncio.run(play())


# What goes wrong


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (python("import sys; sys.exit('the log is broken')"), "the log is broken"),
        (python("import sys; sys.exit(3)"), "exit status 3"),
        (["/there/is/no/such/command"], "No such file"),
    ],
)
def test_a_failure_is_told_once_and_what_was_known_stays(store, pager, caplog, work, said):
    note(store, FIRST, ago=2 * DAY)

    async def play():
        async with learning(pager, store, work, LearningPace(0.0, 0.01, age=0.0)):
            await until(lambda: caplog.records)
            await asyncio.sleep(0.3)

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())
    (record,) = caplog.records
    assert (record.levelname, said in record.getMessage()) == ("WARNING", True)
    assert pager.learned == FIRST.version


def test_a_failure_after_a_success_is_told_again(store, pager, caplog, tmp_path):
    begin(store, ago=2 * DAY)
    code = """
import pathlib, sys
path = pathlib.Path(sys.argv[1])
before = path.read_text() if path.exists() else ""
path.write_text(before + "x")
sys.exit("odd" if len(before) % 2 else 0)
"""

    async def play():
        async with learning(pager, store, python(code, tmp_path / "ran"), LearningPace(0.0, 0.01, age=0.0)):
            await until(lambda: len(caplog.records) >= 2)

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())


def test_a_log_that_cant_be_read_there_is_told(store, pager, caplog):
    store.append(Batch(LOG, 1.0, [Learned("no digest", 1, 1)])).result()

    async def play():
        async with learning(pager, store, ["true"]):
            await until(lambda: caplog.records)

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())
    assert "can't be read" in caplog.text


def test_the_process_ends_with_the_server(store, pager, tmp_path):
    begin(store, ago=2 * DAY)
    hang = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"

    async def play():
        async with learning(pager, store, python(hang, tmp_path / "pid")):
            await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())

    asyncio.run(play())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_one_that_was_never_begun_can_be_stopped(store, pager):
    asyncio.run(Learner(pager, store, ["true"]).stop())
