"""Kills a writing process at random instants: what it was told is durable must be there, and the file sound."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import closing

import pytest

from pager.log.stores import Location, open_store, schemes

KILLS = int(os.environ.get("CTXPAGER_KILLS", "20"))

# Four threads append small and large batches without end; each prints what it was told is durable, in one write.
WRITER = textwrap.dedent(
    """
    import os, random, sys, threading
    from hashlib import sha256
    from pathlib import Path
    from pager.log.events import AnswerFinished, Bypassed
    from pager.log.store import Batch, Place
    from pager.log.stores import open_store

    store = open_store(f"{sys.argv[1]}:{sys.argv[2]}")
    life = sys.argv[3]

    def produce(who):
        dice = random.Random(f"{life}:{who}")
        number = 0
        while True:
            number += 1
            content = dice.randbytes(int(10 ** dice.uniform(0, 5)))
            digest = sha256(content).digest()
            name = f"{life}:{who}:{number}"
            events = (
                AnswerFinished(who, number, 1, 200, name, digest.hex(), len(content), 1.0, 2.0),
                *(Bypassed(reason=name) for _ in range(dice.randrange(3))),
            )
            place = Place(f"s{who}", 1, number)
            seq = store.append(Batch(f"s{who}", 1.0, events, {digest: content}, "t", {digest: place})).result()
            os.write(1, f"{seq} {len(events)} {name} {digest.hex()}\\n".encode())

    for who in range(4):
        threading.Thread(target=produce, args=(who,)).start()
    """
)


def outlives_its_process(name):
    return Location(f"{name}:").durable


@pytest.fixture(params=filter(outlives_its_process, schemes()))
def durable(request):
    return request.param


def killed(durable, folder, life, dice):
    """Let a writer live for a random while, then kill it; gives the lines it printed whole."""
    command = [sys.executable, "-c", WRITER, durable, str(folder), str(life)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            first = child.stdout.readline()  # it runs: from here on any instant is as good
            time.sleep(dice.uniform(0, 0.3))
        finally:
            os.killpg(child.pid, signal.SIGKILL)
        printed = (first + child.stdout.read()).decode()
    return [line.split() for line in printed.splitlines(keepends=True) if line.endswith("\n")]


def test_no_kill_loses_what_was_told_durable(durable, tmp_path):
    dice = random.Random(20)
    told = 0
    for life in range(KILLS):
        lines = killed(durable, tmp_path, life, dice)
        assert lines, "the writer was killed before it wrote anything: the test shows nothing"
        told += len(lines)
        with closing(open_store(f"{durable}:{tmp_path}")) as store:
            stored = {one.seq: one.event for one in store.events()}
            for seq, count, name, digest in lines:
                first = int(seq) - int(count) + 1
                assert stored[first].finish == name
                assert all(stored[number].reason == name for number in range(first + 1, int(seq) + 1))
                assert store.blob(bytes.fromhex(digest)) is not None
                assert store.find("t", [bytes.fromhex(digest)])
            assert sorted(stored) == list(range(1, len(stored) + 1))
            assert store.check().problems == ()
    assert told > KILLS
