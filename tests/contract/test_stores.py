"""What every store must do. A new store joins by being a file in pager/log/stores."""

import asyncio
import random
import threading
from contextlib import closing
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from laws import examples
from waiting import PATIENCE

from pager.errors import ConfigError, StoreConflict, StoreCorrupt, StoreError
from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    Bypassed,
    CallReceived,
    Cut,
    SessionOpened,
    ToolCalled,
)
from pager.log.store import Batch, Place, moved_head
from pager.log.stores import Location, open_store, schemes


@pytest.fixture(params=schemes())
def name(request):
    return request.param


@pytest.fixture
def store(name, tmp_path):
    with closing(open_store(f"{name}:{tmp_path / 'log'}")) as opened:
        yield opened


def note(text):
    return Bypassed(reason="test", detail=text)


def texts(stored):
    return [one.event.detail for one in stored]


def digest(content):
    return sha256(content).digest()


def append(store, *events, session="s", at=1.0, **rest):
    return store.append(Batch(session, at, events, **rest)).result(PATIENCE)


def test_a_store_is_found_by_the_name_of_its_folder():
    assert {"memory", "sqlite"} <= set(schemes())


def test_an_unknown_store_is_a_wrong_setting_that_names_the_right_ones():
    with pytest.raises(ConfigError, match=r"memory.*sqlite"):
        open_store("nowhere:")


def test_a_store_says_where_on_the_disk_it_is_if_it_outlives_its_process(name, tmp_path):
    location = Location(f"{name}:{tmp_path}")
    assert location.durable == (location.folder == tmp_path)


def test_a_log_that_was_never_written_is_not_there_to_be_read(name, tmp_path):
    location = Location(f"{name}:{tmp_path / 'log'}")
    if location.durable:
        assert not location.exists()
        with pytest.raises(StoreError):
            location.open(read_only=True)
        assert not location.exists(), "looking for it makes none"
    location.open().close()
    assert location.exists()


def test_a_log_is_read_while_another_process_writes_it(name, tmp_path):
    location = Location(f"{name}:{tmp_path}")
    if not location.durable:
        pytest.skip("nobody else can read it")
    with closing(location.open()) as writer, closing(location.open(read_only=True)) as reader:
        append(writer, note("one"), blobs={digest(b"x"): b"x"})
        assert (texts(reader.events()), reader.blob(digest(b"x")), reader.present()) == (["one"], b"x", True)
        with pytest.raises(StoreError, match="read only"):
            append(reader, note("two"))
        append(writer, note("three"))
        assert texts(reader.events()) == ["one", "three"]
        assert reader.check(repair=True).problems == ()


def test_every_session_is_listed_by_how_it_began_the_newest_first(store):
    for session in ("b", "a", "c"):
        append(store, SessionOpened("t", session, "lineage"), note("more"), session=session)
    append(store, note("no beginning"), session="d")
    append(store, note("more"), SessionOpened("t", "again", "lineage"), session="a")
    listed = store.sessions()
    assert [(row.seq, row.session, row.event.key) for row in listed] == [(5, "c", "c"), (3, "a", "a"), (1, "b", "b")]


def test_a_new_log_is_empty(store):
    assert list(store.events()) == []
    assert store.recent("Bypassed", 5) == []
    assert store.blob(digest(b"nothing")) is None
    assert store.find("t", [b"fingerprint"]) == {}
    assert store.check().problems == ()


def test_events_come_back_in_order_with_rising_numbers(store):
    last = [append(store, note("a"), note("b"), at=1.5), append(store, note("c"), at=0.5)]
    stored = list(store.events())
    assert texts(stored) == ["a", "b", "c"]
    assert [one.seq for one in stored] == [1, 2, 3]
    assert last == [2, 3]
    assert [one.at for one in stored] == [1.5, 1.5, 0.5]


def test_sessions_are_kept_apart(store):
    append(store, note("a"), session="one")
    append(store, note("b"), session="two")
    append(store, note("c"), session="one")
    assert texts(store.events("one")) == ["a", "c"]
    assert texts(store.events("two")) == ["b"]
    assert {one.session for one in store.events("one")} == {"one"}
    assert list(store.events("three")) == []


def test_reading_goes_on_after_a_number(store):
    seq = append(store, note("a"), note("b"), session="one")
    append(store, note("c"), session="two")
    append(store, note("d"), session="one")
    assert texts(store.events(after=seq)) == ["c", "d"]
    assert texts(store.events("one", after=seq)) == ["d"]
    assert texts(store.events("one", after=seq - 1)) == ["b", "d"]
    assert list(store.events(after=99)) == []


@pytest.mark.parametrize("event", [note, lambda text: call(detail=text)], ids=["rare", "every call"])
def test_the_newest_of_a_kind_come_first(store, event):
    append(store, *(event(str(number)) for number in range(5)), SessionOpened("t", "k", "lineage"))
    kind = event("").kind
    assert [one.seq for one in store.recent(kind, 3)] == [5, 4, 3]
    assert [one.seq for one in store.recent(kind, 99)] == [5, 4, 3, 2, 1]
    assert store.recent(kind, 0) == []
    assert store.recent("NoSuchKind", 3) == []
    assert [one.event.key for one in store.recent("SessionOpened", 3)] == ["k"]


def test_a_batch_that_cannot_be_written_leaves_no_trace_and_harms_no_other(store):
    bad = Batch("s", 1.0, (note("x"), note("\ud800")), {digest(b"x"): b"x"}, "t", {b"m": Place("s", 1, 1)})
    futures = [store.append(Batch("s", 1.0, (note(str(number)),))) for number in range(20)]
    refused = store.append(bad)
    futures += [store.append(Batch("s", 1.0, (note(str(number)),))) for number in range(20, 40)]
    with pytest.raises(StoreError):
        refused.result(PATIENCE)
    assert [future.result(PATIENCE) for future in futures] == list(range(1, 41))
    assert texts(store.events()) == [str(number) for number in range(40)]
    assert store.blob(digest(b"x")) is None
    assert store.find("t", [b"m"]) == {}


def test_content_comes_back_by_its_digest(store):
    contents = [b"", b"x", b"text " * 1000, random.Random(1).randbytes(100_000), bytes(3_000_000)]
    append(store, note("a"), blobs={digest(content): content for content in contents})
    assert [store.blob(digest(content)) for content in contents] == contents


def test_content_is_stored_once(store):
    content = b"again and again"
    for number in range(3):
        append(store, note(str(number)), blobs={digest(content): content})
    assert store.check().blobs == 1
    assert store.blob(digest(content)) == content


def test_content_under_a_digest_that_is_not_its_own_is_refused_when_read(store):
    append(store, blobs={digest(b"promised"): b"delivered"})
    with pytest.raises(StoreCorrupt):
        store.blob(digest(b"promised"))
    found = store.check()
    assert (found.blobs, len(found.problems), found.repaired) == (1, 1, ())


def test_a_repair_tells_what_it_mended_and_what_is_still_wrong(store):
    promised = digest(b"promised")
    append(store, answer(body=promised.hex()), blobs={promised: b"delivered"})
    mended = store.check(repair=True)
    assert len(mended.repaired) == 1
    assert promised.hex() in mended.repaired[0]
    assert len(mended.problems) == 1
    assert "missing" in mended.problems[0]
    append(store, blobs={promised: b"promised"})
    assert store.blob(promised) == b"promised"
    assert store.check().problems == ()


def test_the_latest_owner_of_a_mark_wins(store):
    append(store, tenant="t", fingerprints={b"m": Place("one", 1, 1), b"n": Place("one", 1, 2)})
    append(store, tenant="t", fingerprints={b"m": Place("two", 3, 4)})
    assert store.find("t", [b"n", b"m", b"unknown"]) == {b"m": Place("two", 3, 4), b"n": Place("one", 1, 2)}


def test_a_mark_belongs_to_its_tenant_alone(store):
    append(store, tenant="t", fingerprints={b"m": Place("one", 1, 1)})
    append(store, tenant="u", fingerprints={b"m": Place("two", 2, 2)})
    assert store.find("t", [b"m"]) == {b"m": Place("one", 1, 1)}
    assert store.find("u", [b"m"]) == {b"m": Place("two", 2, 2)}
    assert store.find("", [b"m"]) == {}


def test_thousands_of_marks_are_found_at_once(store):
    fingerprints = {digest(b"%d" % number): Place("s", 1, number) for number in range(3000)}
    append(store, tenant="t", fingerprints=fingerprints)
    assert store.find("t", [*fingerprints, b"unknown"]) == fingerprints
    assert store.find("t", []) == {}


def test_a_batch_that_builds_on_something_else_is_refused_whole(store):
    assert store.head("s") == b""
    append(store, note("one"), after=b"", head=b"h1")
    content, place = b"of the refused one", {b"fingerprint": Place("s", 0, 1)}
    for after in (b"", b"h0", b"h2"):
        with pytest.raises(StoreConflict, match="session s"):
            append(store, note("two"), after=after, head=b"h2", blobs={digest(content): content}, fingerprints=place)
    assert store.head("s") == b"h1"
    assert store.blob(digest(content)) is None
    assert store.find("", [b"fingerprint"]) == {}
    append(store, note("two"), after=b"h1", head=b"h2")
    append(store, note("anyone may say this"))
    assert store.head("s") == b"h2"
    assert store.head("other") == b""
    assert texts(store.events()) == ["one", "two", "anyone may say this"]


def test_of_many_that_race_to_build_on_the_same_call_one_wins(store):
    futures = [store.append(Batch("s", 1.0, [note(str(n))], after=b"", head=bytes([n]))) for n in range(20)]
    won = [number for number, future in enumerate(futures) if future.exception(30) is None]
    assert len(won) == 1
    assert store.head("s") == bytes(won)
    assert texts(store.events()) == [str(won[0])]


def test_an_empty_batch_gives_the_number_of_the_event_before_it(store):
    assert append(store) == 0
    append(store, note("a"))
    assert append(store) == 1
    assert texts(store.events()) == ["a"]


def test_any_script_and_control_characters_survive(store):
    text = 'żółw 🐢 日本語 \x00 \x1f "quoted" \\ \u2028'
    append(store, note(text), session=text, tenant=text, fingerprints={b"\x00\xff": Place(text, 1, 1)})
    assert texts(store.events(text)) == [text]
    assert store.find(text, [b"\x00\xff"]) == {b"\x00\xff": Place(text, 1, 1)}


def test_ten_thousand_events_come_back_in_order(store):
    for start in range(0, 10_000, 500):
        append(store, *(note(str(number)) for number in range(start, start + 500)), session=f"s{start % 1000}")
    assert texts(store.events()) == [str(number) for number in range(10_000)]
    assert len(list(store.events("s0"))) == 5000
    assert store.check().events == 10_000


def test_sixteen_threads_append_and_read_at_once(store):
    def work(who):
        for number in range(25):
            seq = append(
                store, note(f"{who}:{number}"), session=str(who), blobs={digest(b"%d" % number): b"%d" % number}
            )
            read = list(store.events(str(who)))
            assert read[-1].seq == seq
            assert texts(read) == [f"{who}:{n}" for n in range(number + 1)]
            assert store.blob(digest(b"%d" % number)) == b"%d" % number

    failures = []
    threads = [threading.Thread(target=_catching(work, failures), args=(who,)) for who in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [one.seq for one in store.events()] == list(range(1, 401))
    assert store.check() == store.check(repair=True)
    assert store.check().problems == ()


def _catching(work, failures):
    def run(*args):
        try:
            work(*args)
        except BaseException as error:
            failures.append(error)

    return run


def test_a_batch_is_written_though_its_caller_stops_waiting(store):
    async def leave():
        waiting = asyncio.wrap_future(store.append(Batch("s", 1.0, (note("said"),))))
        waiting.cancel()

    asyncio.run(leave())
    append(store, note("later"))
    assert texts(store.events()) == ["said", "later"]


def test_a_walk_through_the_log_does_not_hold_up_an_append(store):
    append(store, *(note(str(number)) for number in range(2000)))
    walk = store.events()
    next(walk)
    append(store, note("meanwhile"))
    assert texts(walk)[-1] == "meanwhile"


def test_a_missing_blob_is_a_problem_wherever_it_is_named(store):
    there = digest(b"there").hex()
    gone = [digest(b"%d" % number).hex() for number in range(5)]
    events = [
        call(skeleton=gone[0], cuts=[Cut(1, there), Cut(2, gone[1]), Cut(3, "")], messages=[there, gone[2]]),
        answer(body=gone[3]),
        ToolCalled(1, 1, 1, 0, "tool", "id", gone[4], "key"),
    ]
    append(store, *events, blobs={bytes.fromhex(there): b"there"})
    problems = store.check().problems
    assert len(problems) == 5
    assert all(any(digest in problem for problem in problems) for digest in gone)


def test_a_reference_that_is_no_digest_is_a_problem(store):
    append(store, answer(body="not hex"))
    assert len(store.check().problems) == 1


def test_a_closed_store_refuses_to_write_and_to_read(name, tmp_path):
    store = open_store(f"{name}:{tmp_path}")
    append(store, note("a"))
    store.close()
    store.close()
    with pytest.raises(StoreError):
        append(store, note("b"))
    with pytest.raises(StoreError):
        list(store.events())
    with pytest.raises(StoreError):
        store.find("t", [b"m"])


def test_closing_writes_what_was_still_waiting(name, tmp_path):
    store = open_store(f"{name}:{tmp_path}")
    futures = [store.append(Batch("s", 1.0, (note(str(number)),))) for number in range(300)]
    store.close()
    assert [future.result(0) for future in futures] == list(range(1, 301))


def test_a_durable_store_remembers_and_any_other_forgets(name, tmp_path):
    content = b"content " * 100
    with closing(open_store(f"{name}:{tmp_path}")) as store:
        append(store, note("a"), blobs={digest(content): content}, tenant="t", fingerprints={b"m": Place("s", 1, 1)})
        durable = type(store).durable
    with closing(open_store(f"{name}:{tmp_path}")) as store:
        assert texts(store.events()) == (["a"] if durable else [])
        assert store.blob(digest(content)) == (content if durable else None)
        assert store.find("t", [b"m"]) == ({b"m": Place("s", 1, 1)} if durable else {})
        assert append(store, note("b")) == (2 if durable else 1)


def call(detail="", **rest):
    fields = {
        "branch": 1, "call": 1, "attempt": 1, "dialect": "chat", "path": "/v1", "model": detail, "stream": False,
        "body": "", "size": 0, "skeleton": "", "cuts": [],
    }  # fmt: skip
    return CallReceived(**(fields | rest))


def answer(body):
    return AnswerFinished(1, 1, 1, 200, "stop", body, 1, 1.0, 2.0)


_text = st.text(st.characters(codec="utf-8"), max_size=20)
_small = st.integers(0, 5)
_events = st.one_of(
    st.builds(note, _text),
    st.builds(SessionOpened, _text, _text, _text, _text),
    st.builds(BranchOpened, _small, _text, _text, _text, st.none() | _small, _small),
    st.builds(call, _text, headers=st.dictionaries(_text, _text, max_size=3), keep=_small),
)
_contents = st.binary(max_size=300) | st.builds(lambda piece, times: piece * times, st.binary(max_size=5), _small)
_batches = st.builds(
    Batch,
    session=st.sampled_from(["a", "b", "ä"]),
    at=st.floats(0, 2e9),
    events=st.lists(_events, max_size=4).map(tuple),
    blobs=st.lists(_contents, max_size=3).map(lambda contents: {digest(content): content for content in contents}),
    tenant=st.sampled_from(["", "t"]),
    fingerprints=st.dictionaries(
        st.binary(min_size=1, max_size=2), st.builds(Place, _text, _small, _small), max_size=3
    ),
)


@given(batches=st.lists(_batches, max_size=12), wait=st.booleans())
@examples(40, tolerated=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_batches_reads_back_the_same(name, tmp_path_factory, batches, wait):
    with closing(open_store(f"{name}:{tmp_path_factory.mktemp('log')}")) as store:
        futures = []
        for batch in batches:
            futures.append(store.append(batch))
            if wait:
                futures[-1].result(PATIENCE)
        last = [future.result(PATIENCE) for future in futures]

        expected = [(batch.session, batch.at, event) for batch in batches for event in batch.events]
        stored = [(one.session, one.at, one.event) for one in store.events()]
        assert stored == expected
        assert last == [sum(len(batch.events) for batch in batches[: end + 1]) for end in range(len(batches))]
        for session in ("a", "b", "ä"):
            assert [one.event for one in store.events(session)] == [fact[2] for fact in expected if fact[0] == session]
        for kind in ("Bypassed", "CallReceived"):
            newest = [fact[2] for fact in reversed(expected) if fact[2].kind == kind][:3]
            assert [one.event for one in store.recent(kind, 3)] == newest
        for batch in batches:
            assert {key: store.blob(key) for key in batch.blobs} == batch.blobs
        for tenant in ("", "t"):
            owners = {}
            for batch in batches:
                owners |= batch.fingerprints if batch.tenant == tenant else {}
            assert store.find(tenant, list(owners)) == owners
        assert store.check().problems == ()


def test_what_is_decided_after_a_call_is_noticed_by_whoever_builds_on_the_call(store):
    first = Batch("s", 1.0, [note("call")], after=b"", head=b"one")
    store.append(first).result(PATIENCE)
    store.append(Batch("s", 1.0, [note("decided later")], moves=b"so")).result(PATIENCE)
    assert store.head("s") == moved_head(b"one", b"so")
    with pytest.raises(StoreConflict):
        store.append(Batch("s", 1.0, [note("stale")], after=b"one", head=b"two")).result(PATIENCE)
    store.append(Batch("s", 1.0, [note("next")], after=moved_head(b"one", b"so"), head=b"two")).result(PATIENCE)
    assert store.head("s") == b"two"
    assert [row.event.detail for row in store.events("s")] == ["call", "decided later", "next"]
