"""A log of which any one page is damaged, and what a repair makes of it."""

import asyncio
import json
import random
import shutil
import sqlite3
from contextlib import closing
from hashlib import sha256

import pytest
from chat_items import say, user
from logged_sessions import incoming
from waiting import PATIENCE

from instrumentation.accounting.log_check import check
from pager.errors import StoreCorrupt
from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    CallReceived,
    SessionOpened,
)
from pager.log.store import Batch, Place
from pager.log.stores import Location, open_store
from pager.log.stores.sqlite.file import PAGE
from pager.log.stores.sqlite.store import Store
from pager.proxy.call_log import CallLog
from pager.wire import dialects

CHAT = dialects.load("chat")
FILE = "ctxpager.sqlite3"
CALLS = 24


def digest(content):
    return sha256(content).digest()


def content_of(number):
    """Of sizes that fit a page, fill several, and lie in between; it does not compress."""
    return random.Random(number).randbytes((40, 700, 3_000, 9_000)[number % 4])


def fill(folder):
    """A closed log: every call with a head, a mark, an answer and its content."""
    with closing(Store.open(folder)) as store:
        heads = {}
        for number in range(CALLS):
            session, answer, body = f"s_{number % 3}", content_of(number), b"skeleton %d" % number
            new = session not in heads
            opening = [SessionOpened("local", session, "x"), BranchOpened(0, "root", "chat")] if new else []
            call = CallReceived(0, number, 1, "chat", "/", "m", False, "", 1, digest(body).hex(), [])
            finished = AnswerFinished(0, number, 1, 200, "stop", digest(answer).hex(), len(answer), 1.0, 2.0)
            head = digest(b"%d" % number)[:16]
            batch = Batch(
                session,
                float(number),
                [*opening, call, finished],
                {digest(body): body, digest(answer): answer},
                "local",
                {digest(b"mark %d" % number): Place(session, 0, number)},
                after=heads.get(session, b""),
                head=head,
            )
            heads[session] = head
            store.append(batch).result(PATIENCE)


def contents(folder):
    """All that a log holds: events and blobs."""
    with closing(Store.open(folder)) as store:
        events = {row.seq: row.event for row in store.events()}
        blobs = {number: store.blob(digest(content_of(number))) for number in range(CALLS)}
        marks = store.find("local", [digest(b"mark %d" % number) for number in range(CALLS)])
        heads = [store.head(f"s_{number}") for number in range(3)]
    return events, blobs, marks, heads


def repaired(folder):
    """What ``check --repair`` does: mend, or rebuild what can't even be opened."""
    try:
        store = open_store(f"sqlite:{folder}")
    except StoreCorrupt:
        lines = Location(f"sqlite:{folder}").salvage()
        store = open_store(f"sqlite:{folder}")
    else:
        lines = []
    with closing(store):
        found = store.check(repair=True)
        return [*lines, *found.repaired], found.problems


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    fill(folder)
    return folder, contents(folder)


def pages_of(folder):
    return range((folder / FILE).stat().st_size // PAGE)


def overwrite(file, page, content):
    with file.open("r+b") as opened:
        opened.seek(page * PAGE)
        opened.write(content)


@pytest.mark.parametrize("damage", ["zeros", "noise"])
def test_a_log_with_any_one_damaged_page_is_rebuilt_and_says_what_was_lost(sound, tmp_path, damage):
    original, (events, blobs, marks, heads) = sound
    whole = 0
    for page in pages_of(original):
        folder = tmp_path / str(page)
        shutil.copytree(original, folder)
        overwrite(folder / FILE, page, bytes(PAGE) if damage == "zeros" else random.Random(page).randbytes(PAGE))
        lines, problems = repaired(folder)
        left_events, left_blobs, left_marks, left_heads = contents(folder)
        told = " ".join([*lines, *problems])
        assert left_events.items() <= events.items()
        assert all(content in (blobs[number], None) for number, content in left_blobs.items())
        assert marks.items() >= {mark: place for mark, place in left_marks.items() if mark in marks}.items()
        assert all(left_heads)
        gone = events.keys() - left_events.keys()
        lost = {number for number, content in left_blobs.items() if content is None}
        assert len(gone) <= 25
        assert len(lost) <= 8
        assert not gone or "lost: event" in told, (page, lines)
        assert all(digest(content_of(number)).hex() in told for number in lost)
        assert [line for line in problems if "missing" not in line] == [], (page, problems)
        whole += not gone and not lost and left_marks == marks and left_heads == heads and not problems
        with closing(Store.open(folder)) as store:  # and it is a log again
            seq = store.append(Batch("s_0", 1.0, [BranchOpened(9, "root", "chat")])).result(PATIENCE)
            assert seq > max(events)
            assert store.check().problems == problems
    assert whole >= len(pages_of(original)) / 10  # inner pages and indexes cost nothing


def test_the_damaged_file_is_kept(sound, tmp_path):
    folder = tmp_path / "log"
    shutil.copytree(sound[0], folder)
    overwrite(folder / FILE, 0, bytes(PAGE))
    damaged = (folder / FILE).read_bytes()
    lines = Location(f"sqlite:{folder}").salvage()
    assert lines[-1] == f"the damaged file is kept as {FILE}.damaged-1"
    assert (folder / f"{FILE}.damaged-1").read_bytes() == damaged
    assert sorted(file.name for file in folder.iterdir()) == [FILE, f"{FILE}.damaged-1"]
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600
    Location(f"sqlite:{folder}").salvage()
    assert (folder / f"{FILE}.damaged-2").exists()
    assert contents(folder) == sound[1]


def test_what_is_only_in_the_write_ahead_log_is_read_too(tmp_path):
    live, folder = tmp_path / "live", tmp_path / "log"
    fill(live)
    with closing(Store.open(live)) as store:
        store.append(Batch("late", 1.0, [SessionOpened("local", "late", "x")])).result(PATIENCE)
        shutil.copytree(live, folder)  # as a crash leaves it
    overwrite(folder / FILE, 0, bytes(PAGE))
    Location(f"sqlite:{folder}").salvage()
    with closing(Store.open(folder)) as store:
        assert [row.event.key for row in store.events("late")] == ["late"]
        assert store.check().problems == ()


def test_a_file_that_is_no_log_is_left_alone(tmp_path):
    (tmp_path / FILE).write_bytes(b"this is no log " * 1_000)
    with pytest.raises(StoreCorrupt, match="nothing in it"):
        Location(f"sqlite:{tmp_path}").salvage()
    assert [file.name for file in tmp_path.iterdir()] == [FILE]
    assert (tmp_path / FILE).read_bytes() == b"this is no log " * 1_000


def test_rows_that_were_set_aside_before_stay_so(sound, tmp_path):
    folder = tmp_path / "log"
    shutil.copytree(sound[0], folder)
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as connection:
        connection.execute("UPDATE events SET data = '{' WHERE seq = 5")
        connection.execute("UPDATE blobs SET data = x'00' WHERE id = 3")
    with closing(Store.open(folder)) as store:
        assert len(store.check(repair=True).repaired) == 2
    overwrite(folder / FILE, 0, bytes(PAGE))
    assert any(line.startswith("lost: event 5 of session s_1") for line in Location(f"sqlite:{folder}").salvage())
    with closing(sqlite3.connect(folder / FILE)) as connection:
        assert connection.execute("SELECT seq FROM lost_events").fetchall() == [(5,)]
        assert connection.execute("SELECT count(*) FROM lost_blobs").fetchone() == (1,)


def test_the_command_repairs_a_log_that_cannot_be_opened(sound, tmp_path, capsys):
    from pager.cli.main import main

    folder = tmp_path / "log"
    shutil.copytree(sound[0], folder)
    overwrite(folder / FILE, 0, bytes(PAGE))
    with pytest.raises(SystemExit):
        raise SystemExit(main(["check", "--data-dir", str(folder)]))
    assert "damaged or no log of ours" in capsys.readouterr().err
    main(["check", "--repair", "--data-dir", str(folder)])
    told = capsys.readouterr().out
    assert "repaired: rebuilt the file from what could be read: 54 events, 48 blobs" in told
    assert json.dumps(str(folder))[1:-1] in told


@pytest.mark.parametrize("headers", [{"x-session-id": "s"}, {}], ids=["named", "found by lineage"])
@pytest.mark.parametrize("table", ["marks", "sessions"])
def test_sessions_are_found_again_though_what_leads_to_them_was_lost(tmp_path, table, headers):
    async def call(store, *texts):
        messages = [part for text in texts for part in (user(text), say("ok"))][:-1]
        entry = await CallLog(store, dialects.load, 10).receive(incoming(*messages, headers=headers))
        return entry.session.id, entry.placement.call

    with closing(open_store(f"sqlite:{tmp_path}")) as store:
        asyncio.run(call(store, "one"))
        first = asyncio.run(call(store, "one", "two"))
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()[0]
    overwrite(tmp_path / FILE, root - 1, b"\xff" * PAGE)
    lines, problems = repaired(tmp_path)
    assert problems == ()
    assert any(line.startswith("made ") for line in lines) is (table == "marks")
    with closing(open_store(f"sqlite:{tmp_path}")) as store:
        assert asyncio.run(call(store, "one", "two", "three")) == (first[0], 3)


def test_a_sound_log_is_not_rebuilt(sound, tmp_path):
    folder = tmp_path / "log"
    shutil.copytree(sound[0], folder)
    with closing(Store.open(folder)) as store:
        assert store.check(repair=True).repaired == ()
        assert check(store, repair=True).repaired == ()
    assert [file.name for file in folder.iterdir()] == [FILE]
