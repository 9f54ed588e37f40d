"""What is particular to the SQLite store: the file, its privacy, its damage and its recovery."""

import fcntl
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from hashlib import sha256

import pytest
from waiting import PATIENCE

from pager.errors import StoreCorrupt, StoreError
from pager.log.events import AnswerFinished, Bypassed, SessionOpened
from pager.log.store import Batch, Check, Place
from pager.log.stores.sqlite.file import PAGE, open_reader
from pager.log.stores.sqlite.store import Store

FILE = "ctxpager.sqlite3"


BESIDE = ("", "-wal", "-shm", "-journal")


def note(text):
    return Bypassed(reason="test", detail=text)


def digest(content):
    return sha256(content).digest()


def fill(folder, count=20):
    """A closed log of so many events, each with a blob of its own."""
    with closing(Store.open(folder)) as store:
        for number in range(count):
            content = b"content of %d, " % number * 30
            event = AnswerFinished(1, number, 1, 200, "stop", digest(content).hex(), 1, 1.0, 2.0)
            store.append(Batch(f"s{number % 3}", 1.0, (event,), {digest(content): content})).result(PATIENCE)


def execute(folder, *statements):
    """What another program does to the file."""
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as connection:
        return [connection.execute(*statement).fetchall() for statement in statements]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def in_child(script, *arguments):
    """Run a script in a process of its own; gives its output."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_folder_and_files_are_the_users_alone(tmp_path):
    before = os.umask(0)
    try:
        with closing(Store.open(tmp_path / "new" / "data")) as store:
            store.append(Batch("s", 1.0, (note("a"),))).result(PATIENCE)
            assert list(store.events())
            files = sorted((tmp_path / "new" / "data").iterdir())
            assert [file.name for file in files] == [FILE, f"{FILE}-shm", f"{FILE}-wal"]
            assert {mode(file) for file in files} == {0o600}
            assert mode(tmp_path / "new" / "data") == 0o700
    finally:
        os.umask(before)


def test_a_file_that_others_could_read_is_made_private(tmp_path):
    fill(tmp_path)
    (tmp_path / FILE).chmod(0o644)
    with closing(Store.open(tmp_path)):
        assert {mode(file) for file in tmp_path.iterdir()} == {0o600}


def test_a_closed_log_is_one_file(tmp_path):
    fill(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


def test_commits_reach_the_disk_before_they_are_told(tmp_path):
    with closing(Store.open(tmp_path)) as store:
        writer = store._writer._connection
        assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_what_was_told_durable_is_in_the_files_at_that_moment(tmp_path):
    with closing(Store.open(tmp_path / "live")) as store:
        for number in range(10):
            store.append(Batch("s", 1.0, (note(str(number)),))).result(PATIENCE)
            copy = tmp_path / f"copy{number}"
            shutil.copytree(tmp_path / "live", copy)
            with closing(Store.open(copy)) as revived:
                assert [one.event.detail for one in revived.events()] == [str(n) for n in range(number + 1)]


def test_a_file_of_a_newer_format_is_left_alone(tmp_path):
    fill(tmp_path)
    execute(tmp_path, ("PRAGMA user_version = 99",))
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(StoreError, match=r"format 99.*upgrade"):
        Store.open(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_another_programs_database_is_left_alone(tmp_path):
    execute(tmp_path, ("CREATE TABLE theirs (x)",))
    with pytest.raises(StoreError, match="another program's"):
        Store.open(tmp_path)
    assert execute(tmp_path, ("SELECT name FROM sqlite_schema",)) == [[("theirs",)]]


@pytest.mark.parametrize("size", [100, 5000, 1_000_000])
def test_a_file_of_garbage_is_refused(tmp_path, size):
    (tmp_path / FILE).write_bytes(random.Random(size).randbytes(size))
    with pytest.raises(StoreCorrupt, match="damaged or no log of ours"):
        Store.open(tmp_path)


def test_a_file_cut_short_is_refused_on_opening(tmp_path):
    fill(tmp_path, 200)
    os.truncate(tmp_path / FILE, 3 * 4096)
    with pytest.raises(StoreCorrupt):
        Store.open(tmp_path)


def test_an_empty_file_becomes_a_log(tmp_path):
    (tmp_path / FILE).touch()
    fill(tmp_path, 1)
    with closing(Store.open(tmp_path)) as store:
        assert len(list(store.events())) == 1


def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="could not be opened"):
        Store.open(tmp_path / "file" / "below")


def test_a_full_disk_fails_the_write_and_no_later_one(tmp_path):
    # A limit on the size of files makes writes fail as a full disk does: for real, inside SQLite.
    said = in_child(
        """
        import resource, signal, sys
        from concurrent.futures import wait
        from pathlib import Path
        from pager.errors import StoreError
        from pager.log.events import Bypassed
        from pager.log.store import Batch
        from pager.log.stores.sqlite.store import Store

        def append(name):
            return store.append(Batch("s", 1.0, (Bypassed(reason="x", detail=name),)))

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        store = Store.open(Path(sys.argv[1]))
        append("before").result()
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, unlimited[1]))
        for future in wait([append(f"full{number}") for number in range(20)]).done:
            print("failed" if isinstance(future.exception(), StoreError) else "written")
        print(*(one.event.detail for one in store.events()))
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        append("after").result()
        print(*(one.event.detail for one in store.events()), *store.check().problems)
        store.close()
        """,
        tmp_path,
    )
    assert said == ["failed"] * 20 + ["before"] + ["before", "after"]
    with closing(Store.open(tmp_path)) as store:
        assert [one.event.detail for one in store.events()] == ["before", "after"]
        assert [one.seq for one in store.events()] == [1, 2]


def test_a_batch_too_large_for_the_disk_fails_alone(tmp_path):
    # The tables may hold a few pages more: SQLite then says "full", as it does when the disk has no block left.
    with closing(Store.open(tmp_path)) as store:
        writer = store._writer._connection
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {pages + 8}")
        large = random.Random(1).randbytes(200_000)
        futures = [store.append(Batch("s", 1.0, (note("small"),))) for _ in range(5)]
        refused = store.append(Batch("s", 1.0, (note("large"),), {digest(large): large}))
        futures += [store.append(Batch("s", 1.0, (note("small"),))) for _ in range(5)]
        with pytest.raises(StoreError, match="full"):
            refused.result(PATIENCE)
        assert [future.result(PATIENCE) for future in futures] == list(range(1, 11))
        writer.execute("PRAGMA max_page_count = 1000000")
        assert store.append(Batch("s", 1.0, (note("large"),), {digest(large): large})).result(PATIENCE) == 11
        assert store.check().problems == ()


def test_a_write_waits_for_another_process_only_so_long(tmp_path):
    with closing(Store.open(tmp_path)) as store:
        other = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX)
        futures = [store.append(Batch("s", 1.0, (note(str(number)),))) for number in range(20)]
        with pytest.raises(StoreError, match="held by another process"):
            futures[0].result(PATIENCE)
        with pytest.raises(StoreError, match="held by another process"):
            futures[-1].result(PATIENCE)
        os.close(other)
        assert store.append(Batch("s", 1.0, (note("free"),))).result(PATIENCE) == 1


def test_two_processes_write_to_one_file(tmp_path):
    script = """
        import sys
        from hashlib import sha256
        from pathlib import Path
        from pager.log.events import Bypassed
        from pager.log.store import Batch
        from pager.log.stores.sqlite.store import Store

        store = Store.open(Path(sys.argv[1]))
        for number in range(300):
            content = b"both processes say this, %d" % number
            event = Bypassed(reason="x", detail=str(number))
            print(store.append(Batch(sys.argv[2], 1.0, (event,), {sha256(content).digest(): content})).result())
        store.close()
        """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    children = [subprocess.Popen([*command, who], stdout=subprocess.PIPE, text=True) for who in ("one", "two")]
    seqs = [int(line) for child in children for line in child.communicate(timeout=PATIENCE)[0].split()]
    assert sorted(seqs) == list(range(1, 601))
    with closing(Store.open(tmp_path)) as store:
        for who in ("one", "two"):
            assert [one.event.detail for one in store.events(who)] == [str(number) for number in range(300)]
        assert store.check() == Check(events=600, blobs=300)


def test_a_process_that_forgets_to_close_its_log_still_ends(tmp_path):
    in_child(
        """
        import sys
        from pathlib import Path
        from pager.log.events import Bypassed
        from pager.log.store import Batch
        from pager.log.stores.sqlite.store import Store

        store = Store.open(Path(sys.argv[1]))
        store.append(Batch("s", 1.0, (Bypassed(reason="x"),))).result()
        """,
        tmp_path,
    )
    with closing(Store.open(tmp_path)) as store:
        assert len(list(store.events())) == 1


def test_a_torn_write_is_forgotten_and_what_was_before_it_stays(tmp_path):
    with closing(Store.open(tmp_path / "live")) as store:
        ends = []
        for number in range(5):
            store.append(Batch("s", 1.0, (note(str(number)),))).result(PATIENCE)
            wal = (tmp_path / "live" / f"{FILE}-wal").read_bytes()
            ends.append(len(wal.rstrip(b"\0")))
        for name, tail in (("cut", b""), ("garbage", random.Random(1).randbytes(9000)), ("zeros", bytes(9000))):
            torn = tmp_path / name
            torn.mkdir()
            shutil.copy(tmp_path / "live" / FILE, torn)
            (torn / f"{FILE}-wal").write_bytes(wal[: ends[3] + 1000] + tail)
            with closing(Store.open(torn)) as revived:
                assert [one.event.detail for one in revived.events()] == ["0", "1", "2", "3"]
                assert revived.append(Batch("s", 1.0, (note("on"),))).result(PATIENCE) == 5
                assert revived.check().problems == ()


def test_a_flipped_bit_in_content_is_found_and_set_aside(tmp_path):
    fill(tmp_path)
    [[(row, key, data)]] = execute(tmp_path, ("SELECT id, digest, data FROM blobs WHERE id = 7",))
    flipped = bytes([*data[:-3], data[-3] ^ 16, *data[-2:]])
    execute(tmp_path, ("UPDATE blobs SET data = ? WHERE id = ?", (flipped, row)))
    with closing(Store.open(tmp_path)) as store:
        with pytest.raises(StoreCorrupt):
            store.blob(key)
        found = store.check()
        assert (found.events, found.blobs, len(found.problems), found.repaired) == (20, 20, 1, ())
        mended = store.check(repair=True)
        assert len(mended.repaired) == 1
        assert key.hex() in mended.repaired[0]
        assert "lost_blobs" in mended.repaired[0]
        assert mended.blobs == 19
        assert mended.problems == (f"event 7 (AnswerFinished) refers to blob {key.hex()}, which is missing",)
        assert store.blob(key) is None
        assert store.check() == Check(20, 19, mended.problems)
    assert execute(tmp_path, ("SELECT digest, data FROM lost_blobs",)) == [[(key, flipped)]]


@pytest.mark.parametrize(
    "change", ["size = 9", "codec = 'lzma'", "codec = 'raw'", "data = x'00'", "data = 'text'", "size = 'x'"]
)
def test_a_blob_with_any_wrong_column_is_found(tmp_path, change):
    fill(tmp_path)
    execute(tmp_path, (f"UPDATE blobs SET {change} WHERE id = 3",))
    with closing(Store.open(tmp_path)) as store:
        assert len(store.check().problems) == 1
        assert len(store.check(repair=True).repaired) == 1


@pytest.mark.parametrize(
    "data",
    ["", "{}", '{"kind":"Unheard"}', '{"kind":"Bypassed"', "x'ff'", "NUL \0", b'{"kind":"Bypassed","reason":"\xff"}'],
)
def test_an_event_that_cannot_be_read_is_set_aside_and_its_number_stays_taken(tmp_path, data):
    fill(tmp_path)
    execute(tmp_path, ("UPDATE events SET data = ? WHERE seq = 20", (data,)))
    with closing(Store.open(tmp_path)) as store:
        with pytest.raises(StoreCorrupt, match="event 20"):
            list(store.events())
        assert len(store.check().problems) == 1
        mended = store.check(repair=True)
        assert len(mended.repaired) == 1
        assert mended.repaired[0].startswith("moved event 20 to lost_events: ")
        assert mended.problems == ()
        assert [one.seq for one in store.events()] == list(range(1, 20))
        assert store.append(Batch("s", 1.0, (note("next"),))).result(PATIENCE) == 21
        assert store.check().problems == ()
    assert execute(tmp_path, ("SELECT seq, data FROM lost_events",)) == [[(20, data)]]


def test_an_event_of_a_newer_version_is_reported_and_never_set_aside(tmp_path):
    fill(tmp_path)
    execute(tmp_path, ("UPDATE events SET version = 99 WHERE seq = 5",))
    with closing(Store.open(tmp_path)) as store:
        found = store.check(repair=True)
        assert len(found.problems) == 1
        assert "upgrade" in found.problems[0]
        assert found.repaired == ()
    assert execute(tmp_path, ("SELECT count(*) FROM events",)) == [[(20,)]]


def test_an_event_listed_under_a_wrong_kind_is_listed_right_again(tmp_path):
    fill(tmp_path)
    execute(tmp_path, ("UPDATE events SET kind = 'Bypassed' WHERE seq = 5",))
    with closing(Store.open(tmp_path)) as store:
        assert len(store.check(repair=True).repaired) == 1
        assert store.recent("Bypassed", 9) == []
        assert store.check().problems == ()


def test_events_taken_out_of_the_log_are_missed(tmp_path):
    fill(tmp_path)
    execute(tmp_path, ("DELETE FROM events WHERE seq IN (1, 8, 9)",))
    with closing(Store.open(tmp_path)) as store:
        assert store.check().problems == (
            "1 events between 0 and 2 are missing",
            "2 events between 7 and 10 are missing",
        )


def test_a_broken_index_is_rebuilt(tmp_path):
    fill(tmp_path)
    # The index is built over another column, then told that it was over this one: it no longer lists what it should.
    told = "UPDATE sqlite_schema SET sql = 'CREATE INDEX events_by_session ON events (' || ? || ')' WHERE name = ?"
    execute(
        tmp_path,
        ("PRAGMA writable_schema = ON",),
        (told, ("at", "events_by_session")),
        ("PRAGMA writable_schema = RESET",),
        ("REINDEX events_by_session",),
        ("PRAGMA writable_schema = ON",),
        (told, ("session", "events_by_session")),
        ("PRAGMA writable_schema = RESET",),
    )
    with closing(Store.open(tmp_path)) as store:
        assert list(store.events("s1")) == []
        assert store.check().problems
        assert store.check(repair=True).repaired == ("rebuilt the indexes",)
        assert len(list(store.events("s1"))) == 7
        assert store.check().problems == ()


def test_pages_overwritten_on_the_disk_are_reported_not_raised(tmp_path):
    fill(tmp_path, 500)
    size = (tmp_path / FILE).stat().st_size
    with (tmp_path / FILE).open("r+b") as file:
        for page in range(8, size // PAGE - 8, 5):
            file.seek(page * PAGE)
            file.write(random.Random(page).randbytes(PAGE))
    with closing(Store.open(tmp_path)) as store:
        assert store.check().problems
        assert store.check(repair=True).problems


def test_a_read_of_a_damaged_page_is_a_store_error(tmp_path):
    fill(tmp_path, 500)
    [[(page,)]] = execute(tmp_path, ("SELECT rootpage FROM sqlite_schema WHERE name = 'marks'",))
    with (tmp_path / FILE).open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(b"\xff" * PAGE)
    with closing(Store.open(tmp_path)) as store:
        with pytest.raises(StoreCorrupt):
            store.find("t", [b"m"])
        with pytest.raises(StoreCorrupt):
            store.append(Batch("s", 1.0, (), {}, "t", {b"m": Place("s", 1, 1)})).result(PATIENCE)
        assert store.append(Batch("s", 1.0, (note("on"),))).result(PATIENCE) == 501
        assert len(list(store.events())) == 501


def test_the_write_ahead_log_does_not_grow_with_the_log(tmp_path):
    with closing(Store.open(tmp_path)) as store:
        for number in range(30):
            content = random.Random(number).randbytes(1 << 20)
            store.append(Batch("s", 1.0, (note("a"),), {digest(content): content})).result(PATIENCE)
        assert (tmp_path / f"{FILE}-wal").stat().st_size < 16 << 20


def test_text_takes_less_room_than_it_has(tmp_path):
    with closing(Store.open(tmp_path)) as store:
        text = b"the same words over and over; " * 100_000
        store.append(Batch("s", 1.0, (), {digest(text): text})).result(PATIENCE)
        assert store.blob(digest(text)) == text
    assert (tmp_path / FILE).stat().st_size < 100_000


@pytest.mark.parametrize("suffix", BESIDE)
@pytest.mark.parametrize("there", [True, False], ids=["to a file", "to nothing"])
def test_a_link_that_somebody_planted_in_the_folder_is_not_followed(tmp_path, suffix, there):
    victim, folder = tmp_path / "victim", tmp_path / "data"
    if there:
        victim.write_bytes(b"precious")
        victim.chmod(0o644)
    fill(folder) if suffix else folder.mkdir()
    (folder / f"{FILE}{suffix}").unlink(missing_ok=True)
    (folder / f"{FILE}{suffix}").symlink_to(victim)
    with pytest.raises(StoreError, match="is a symbolic link") as told:
        Store.open(folder)
    assert str(folder / f"{FILE}{suffix}") in str(told.value)
    assert victim.exists() is there
    if there:
        assert (victim.read_bytes(), mode(victim)) == (b"precious", 0o644)


def test_another_log_is_neither_read_nor_written_through_a_link(tmp_path):
    fill(tmp_path / "other")
    before = (tmp_path / "other" / FILE).read_bytes()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / FILE).symlink_to(tmp_path / "other" / FILE)
    with pytest.raises(StoreError, match="is a symbolic link"):
        Store.open(tmp_path / "data")
    with pytest.raises(StoreError, match="is a symbolic link"):
        open_reader(tmp_path / "data" / FILE)
    assert (tmp_path / "other" / FILE).read_bytes() == before


def test_a_link_that_is_planted_while_the_log_is_open_is_not_followed_by_its_next_reader(tmp_path):
    victim = tmp_path / "victim"
    with closing(Store.open(tmp_path / "data")) as store:
        store.append(Batch("s", 1.0, (note("x"),))).result(PATIENCE)
        (tmp_path / "data" / f"{FILE}-journal").symlink_to(victim)
        with pytest.raises(StoreError, match="is a symbolic link"):
            list(store.events())
    assert not victim.exists()


@pytest.mark.parametrize("suffix", BESIDE)
def test_a_pipe_in_the_place_of_a_file_does_not_stop_us(tmp_path, suffix):
    fill(tmp_path)
    (tmp_path / f"{FILE}{suffix}").unlink(missing_ok=True)
    os.mkfifo(tmp_path / f"{FILE}{suffix}")
    with pytest.raises(StoreError, match="is not a file"):
        Store.open(tmp_path)


def test_the_folder_itself_may_be_a_link_of_the_users(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "elsewhere")
    fill(tmp_path / "data")
    with closing(Store.open(tmp_path / "data")) as store:
        assert len(list(store.events())) == 20
    assert (tmp_path / "elsewhere" / FILE).exists()


def test_whoever_only_reads_neither_waits_for_a_writer_nor_starts_one(tmp_path):
    fill(tmp_path)
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    threads = threading.active_count()
    with closing(Store.open(tmp_path, read_only=True)) as store:
        assert threading.active_count() == threads
        assert (len(list(store.events())), store.present()) == (20, True)
    os.close(other)


def test_whoever_only_reads_leaves_the_write_ahead_log_to_its_writer(tmp_path):
    with closing(Store.open(tmp_path)) as writer:
        writer.append(Batch("s", 1.0, (note("kept"),))).result(PATIENCE)
        before = (tmp_path / f"{FILE}-wal").read_bytes()
        with closing(Store.open(tmp_path, read_only=True)) as reader:
            assert len(list(reader.events())) == 1
        assert (tmp_path / f"{FILE}-wal").read_bytes() == before


def test_a_file_that_is_read_only_must_be_a_log_of_ours(tmp_path):
    execute(tmp_path, ("CREATE TABLE bookmarks (url TEXT)",))
    with pytest.raises(StoreError, match="another program"):
        Store.open(tmp_path, read_only=True)
    (tmp_path / FILE).write_bytes(b"")
    with pytest.raises(StoreError, match="nothing was ever logged"):
        Store.open(tmp_path, read_only=True)


def test_sessions_are_listed_without_reading_their_events(tmp_path):
    with closing(Store.open(tmp_path)) as store:
        for session in ("one", "two"):
            store.append(Batch(session, 1.0, (SessionOpened("t", session, "lineage"),))).result(PATIENCE)
            filler = [note("filler " * 40) for _ in range(500)]
            store.append(Batch(session, 1.0, filler)).result(PATIENCE)
    content = (tmp_path / FILE).read_bytes()
    pages = [content[at : at + PAGE] for at in range(0, len(content), PAGE)]
    filled = [number for number, page in enumerate(pages) if page.count(b"filler") > 100 and b"Opened" not in page]
    with (tmp_path / FILE).open("r+b") as file:
        for page in filled[2:-2]:
            file.seek(page * PAGE)
            file.write(b"\xff" * PAGE)
    with closing(Store.open(tmp_path, read_only=True)) as store:
        assert [row.session for row in store.sessions()] == ["two", "one"]
        with pytest.raises(StoreCorrupt):
            store.recent("SessionOpened", 9)
