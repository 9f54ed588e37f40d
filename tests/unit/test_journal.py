"""Calls as they are placed and logged, live and after a restart."""

import asyncio
import json
import sqlite3
from concurrent.futures import Future

import pytest
from chat_items import offered, result, say, tool_call, user
from logged_sessions import incoming
from stand_ins import Broken
from waiting import PATIENCE

from instrumentation.accounting.log_check import check
from instrumentation.accounting.logged_prompts import client_calls
from pager.errors import StoreError
from pager.log.bypass_reasons import BypassReason
from pager.log.events import (
    AnswerFinished,
    AttemptFailed,
    BranchOpened,
    Bypassed,
    CallReceived,
    SessionOpened,
    ToolCalled,
)
from pager.log.stores import open_store
from pager.paging.pager import Pager
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.pricing.rates import in_force
from pager.proxy.call_log import CallLog
from pager.proxy.fail_open import FailOpen
from pager.proxy.log_records import Outcome, bypassed
from pager.request_values import Answer, ToolUse, Usage
from pager.sessions.rebuild import Rebuilder
from pager.wire import dialects

CHAT = dialects.load("chat")
OK = say("ok")


def calls(*ids):
    return {"role": "assistant", "content": None, "tool_calls": [tool_call(one, "run") for one in ids]}


class Proxy:
    """A call log over a store that outlives it."""

    def __init__(self, store, hot=100):
        self.store, self.hot = store, hot
        self.restart()

    def restart(self):
        self.call_log = CallLog(self.store, dialects.load, self.hot)

    def call(self, *messages, answer=None, **more):
        async def play():
            entry = await self.call_log.receive(incoming(*messages, **more))
            if answer is not None:
                self.call_log.answered(entry, answer, Outcome(200, b"{}", 1.0, 2.0, 2.0), 7)
            await self.call_log.drain()
            return entry

        entry = asyncio.run(play())
        return entry.session.id, entry.placement.branch.number, entry.placement.call, entry.placement.attempt


@pytest.fixture(params=["memory", "sqlite"])
def proxy(request, tmp_path):
    store = open_store(f"{request.param}:{tmp_path}")
    yield Proxy(store)
    store.close()


SAID = Answer(id="a1", finish="stop", text="ok", usage=Usage(input=10, output=2))


def events(proxy, kind):
    return [row.event for row in proxy.store.events() if isinstance(row.event, kind)]


def test_a_call_is_in_the_log_when_receive_returns(proxy):
    proxy.call(user("hello"))
    assert [row.event.kind for row in proxy.store.events()] == ["SessionOpened", "BranchOpened", "CallReceived"]


def test_a_session_goes_on_after_a_restart(proxy):
    first = proxy.call(user("one"), answer=SAID)
    proxy.restart()
    second = proxy.call(user("one"), OK, user("two"))
    assert second == (first[0], 0, 2, 1)
    assert len(events(proxy, SessionOpened)) == len(events(proxy, BranchOpened)) == 1


def test_a_named_session_goes_on_after_a_restart_though_its_history_was_compacted(proxy):
    headers = {"x-session-id": "s"}
    first = proxy.call(user("one"), user("two"), headers=headers)
    proxy.restart()
    assert proxy.call(user("summary"), headers=headers) == (first[0], 1, 1, 1)


def test_a_call_cut_off_by_a_crash_is_tried_again_as_the_same_call(proxy):
    first = proxy.call(user("one"))
    proxy.restart()
    assert proxy.call(user("one")) == (*first[:3], 2)


def test_a_rewritten_history_is_followed_by_its_tool_calls_after_a_restart(proxy):
    headers = {"agent-session-id": "g"}
    issued = Answer(calls=(ToolUse(0, "c1", "run", "{}"),), finish="tool_calls")
    first = proxy.call(user("time 1: do it"), headers=headers, answer=issued)
    proxy.restart()
    again = proxy.call(user("do it"), calls("c1"), result("c1"), user("time 2"), headers=headers)
    assert again == (first[0], 0, 2, 1)


def test_the_same_first_words_after_a_finished_answer_begin_a_new_session(proxy):
    first = proxy.call(user("hello"), answer=SAID)
    second = proxy.call(user("hello"), answer=SAID)
    proxy.restart()
    third = proxy.call(user("hello"))
    assert len({first[0], second[0], third[0]}) == 3
    assert first[1:] == second[1:] == third[1:] == (0, 1, 1)


def test_a_session_that_began_like_a_later_one_is_still_found_by_its_tool_calls(proxy):
    one = Answer(calls=(ToolUse(0, "c1", "run", "{}"),))
    two = Answer(calls=(ToolUse(0, "c2", "run", "{}"),))
    first, second = proxy.call(user("hello"), answer=one), proxy.call(user("hello"), answer=two)
    assert proxy.call(user("hello"), calls("c1"), result("c1")) == (first[0], 0, 2, 1)
    assert proxy.call(user("hello"), calls("c2"), result("c2")) == (second[0], 0, 2, 1)


def test_the_first_words_of_a_session_that_has_gone_on_begin_a_new_session(proxy):
    first = proxy.call(user("hello"), answer=SAID)
    proxy.call(user("hello"), OK, user("more"), answer=SAID)
    second = proxy.call(user("hello"), answer=SAID)
    assert second[0] != first[0]
    assert proxy.call(user("hello"), OK, user("more"), OK, user("still more"))[:3] == (first[0], 0, 3)
    proxy.restart()
    third = proxy.call(user("hello"), answer=SAID)
    assert third[0] not in (first[0], second[0])
    assert first[1:] == second[1:] == third[1:] == (0, 1, 1)


def issuing(*ids):
    return Answer(calls=tuple(ToolUse(at, call_id, "run", "{}") for at, call_id in enumerate(ids)))


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_a_conversation_with_the_call_ids_of_another_is_a_session_of_its_own(proxy, restart):
    system = {"role": "system", "content": "You are an agent."}
    first = proxy.call(system, user("read my diary"), answer=issuing("call_0"))
    mine = (system, user("read my diary"), calls("call_0"), result("call_0", "dear diary"))
    proxy.call(*mine, answer=issuing("call_1"))
    if restart:
        proxy.restart()
    theirs = (system, user("list the files"), calls("call_0"), result("call_0", "a file"))
    other = proxy.call(*theirs, answer=issuing("call_1"))
    assert other[0] != first[0]
    assert other[1:] == (0, 1, 1)
    if restart:
        proxy.restart()
    assert proxy.call(*mine, calls("call_1"), result("call_1", "more")) == (first[0], 0, 3, 1)
    if restart:
        proxy.restart()
    assert proxy.call(*theirs, calls("call_1"), result("call_1", "more")) == (other[0], 0, 2, 1)


def run_of(*numbers):
    return [said for number in numbers for said in (calls(f"c{number}"), result(f"c{number}", f"text {number}"))]


@pytest.mark.parametrize(("shared", "joined"), [(3, True), (2, False)])
@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_a_rewritten_beginning_is_known_by_a_run_of_calls_with_their_results(proxy, restart, shared, joined):
    for number in range(4):
        first = proxy.call(user("Monday"), *run_of(*range(number)), answer=issuing(f"c{number}"))
    if restart:
        proxy.restart()
    resumed = proxy.call(user("Tuesday"), *run_of(*range(3 - shared, 4)))
    assert (resumed[0] == first[0]) is joined
    assert resumed[1:] == ((0, 5, 1) if joined else (0, 1, 1))


def test_examples_that_two_conversations_begin_with_do_not_join_them(proxy):
    examples = [user("an example"), *run_of(7, 8, 9)]
    first = proxy.call(*examples, user("one"), answer=issuing("c9"))
    proxy.call(*examples, user("one"), calls("c9"), result("c9"))
    assert proxy.call(*examples, user("two"), calls("c9"), result("c9"))[0] != first[0]


def test_a_session_that_cannot_be_read_stops_no_call_that_brings_an_id_of_it(tmp_path):
    store = open_store(f"sqlite:{tmp_path}")
    proxy = Proxy(store)
    first = proxy.call(user("one " * 500), answer=issuing("call_0"))
    with sqlite3.connect(tmp_path / "ctxpager.sqlite3") as file:
        file.execute("UPDATE blobs SET data = x'00'")
    proxy.restart()
    assert proxy.call(user("two"), calls("call_0"), result("call_0"))[0] != first[0]
    store.close()


class Counting:
    """A store that counts how often a session is read."""

    def __init__(self, store):
        self.store, self.read = store, []

    def __getattr__(self, name):
        return getattr(self.store, name)

    def events(self, session=None, after=0):
        self.read.append(session)
        return self.store.events(session, after)


@pytest.mark.parametrize("headers", [{"x-session-id": "s"}, {}], ids=["named", "found by lineage"])
def test_twenty_calls_at_once_on_a_cold_session_read_it_once(headers):
    store = Counting(open_store("memory:"))
    proxy = Proxy(store)
    first = proxy.call(user("one"), headers=headers, answer=SAID)
    proxy.restart()

    async def send(number):
        return await proxy.call_log.receive(incoming(user("one"), OK, user(f"part {number}"), headers=headers))

    async def play():
        return await asyncio.gather(*(send(number) for number in range(20)))

    entries = asyncio.run(play())
    assert store.read == [first[0]]
    assert {entry.session.id for entry in entries} == {first[0]}
    assert sorted(entry.placement.branch.number for entry in entries) == list(range(20))


def test_a_named_sessions_first_words_again_are_another_attempt(proxy):
    headers = {"x-session-id": "s"}
    first = proxy.call(user("hello"), headers=headers, answer=SAID)
    assert proxy.call(user("hello"), headers=headers) == (*first[:3], 2)


def test_tenants_never_share_a_session(proxy):
    headers = {"x-session-id": "s"}
    assert proxy.call(user("a"), headers=headers)[0] != proxy.call(user("a"), headers=headers, tenant="other")[0]


def test_a_sub_agents_calls_are_a_branch_of_its_parents_session_however_deep(proxy):
    parent = proxy.call(user("do"), headers={"x-session-id": "s"})
    child = proxy.call(user("part"), headers={"x-session-id": "c", "x-parent-session-id": "s"})
    proxy.restart()
    grandchild = proxy.call(user("detail"), headers={"x-session-id": "g", "x-parent-session-id": "c"})
    assert parent[0] == child[0] == grandchild[0]
    assert [row[1] for row in (parent, child, grandchild)] == [0, 1, 2]
    assert [event.reason for event in events(proxy, BranchOpened)] == ["root", "subagent", "subagent"]


def test_every_prompt_can_be_rebuilt_and_only_new_messages_are_stored(proxy):
    history = []
    for turn in range(20):
        history += [user(f"turn {turn} " + "x" * 1000), {"role": "assistant", "content": f"answer {turn}"}]
        proxy.call(*history[:-1], tools=[{"type": "function", "function": {"name": "t", "description": "d" * 2000}}])
    rebuilt = [call.body(proxy.store.blob) for call in client_calls(proxy.store.events())]
    assert [len(json.loads(body)["messages"]) for body in rebuilt] == list(range(1, 40, 2))
    assert json.loads(rebuilt[-1])["messages"] == history[:-1]
    received = events(proxy, CallReceived)
    assert [len(event.messages) for event in received] == [1] + [2] * 19
    assert check(proxy.store, repair=False).problems == ()


def test_a_fork_is_logged_against_the_branch_it_left(proxy):
    proxy.call(user("a"))
    proxy.call(user("a"), {"role": "assistant", "content": "b"}, user("c"))
    proxy.call(user("a"), {"role": "assistant", "content": "b"}, user("d"))
    fork = events(proxy, CallReceived)[-1]
    assert (fork.branch, fork.parent_branch, fork.keep, len(fork.messages)) == (1, 0, 2, 1)
    assert check(proxy.store, repair=False).problems == ()


def test_an_answer_is_logged_with_its_tool_calls_and_their_idempotency_keys(proxy):
    uses = (ToolUse(0, "c1", "run", '{"b": 1, "a": 2}'), ToolUse(1, "c2", "run", '{"a":2,"b":1}'))
    session, *_ = proxy.call(user("go"), answer=Answer(id="x", calls=uses, finish="tool_calls", usage=Usage(input=9)))
    (finished,), called = events(proxy, AnswerFinished), events(proxy, ToolCalled)
    assert (finished.finish, finished.usage.input, finished.estimate) == ("tool_calls", 9, 7)
    assert [event.key.rsplit(":", 1)[0] for event in called] == [f"{session}:0:1:0:run", f"{session}:0:1:1:run"]
    assert called[0].key.rsplit(":")[-1] == called[1].key.rsplit(":")[-1]


def test_sessions_beyond_the_limit_are_dropped_and_read_again(tmp_path):
    store = open_store(f"sqlite:{tmp_path}")
    proxy = Proxy(store, hot=2)
    firsts = [proxy.call(user(f"session {number}")) for number in range(5)]
    assert len(proxy.call_log.sessions) == 2
    for number, first in enumerate(firsts):
        again = proxy.call(user(f"session {number}"), OK, user("more"))
        assert again == (first[0], 0, 2, 1)
    store.close()


class Breaking:
    """A store that can't be written to while it is broken."""

    def __init__(self, store):
        self.store, self.broken = store, False

    def __getattr__(self, name):
        return getattr(self.store, name)

    def append(self, batch):
        if not self.broken:
            return self.store.append(batch)
        failed = Future()
        failed.set_exception(StoreError("no space left on device"))
        return failed


def test_a_log_that_was_broken_for_a_while_is_sound_afterwards():
    store = Breaking(open_store("memory:"))
    proxy = Proxy(store)
    first = proxy.call(user("a"), answer=SAID)
    store.broken = True
    with pytest.raises(StoreError, match="no space"):
        proxy.call(user("a"), OK, user("b" * 600))
    store.broken = False
    third = proxy.call(user("a"), OK, user("b" * 600), user("c"))
    assert third == (first[0], 0, 2, 1)
    assert proxy.call_log.writer.failures == 1
    assert check(store, repair=False).problems == ()


def test_a_failed_attempt_is_logged_with_its_number_status_and_retry_after(proxy):
    async def play():
        entry = await proxy.call_log.receive(incoming(user("x")))
        outcome = Outcome(429, b'{"error": {}}', 1.0, 2.0, 2.0, retry_after="7")
        proxy.call_log.failed(entry, "status", "too many", outcome)
        await proxy.call_log.drain()

    asyncio.run(play())
    (failed,) = events(proxy, AttemptFailed)
    assert (failed.attempt, failed.status, failed.retry_after, failed.phase) == (1, 429, "7", "status")
    assert proxy.store.blob(bytes.fromhex(failed.body)) == b'{"error": {}}'


class Slow:
    """A store whose writes wait until they are let go, each with its own fate."""

    def __init__(self, store):
        self.store, self.waiting = store, []

    def __getattr__(self, name):
        return getattr(self.store, name)

    def append(self, batch):
        future = Future()
        future.set_running_or_notify_cancel()
        self.waiting.append((batch, future))
        return future

    def let_go(self, *fates):
        for fate in fates:
            batch, future = self.waiting.pop(0)
            if not fate:
                future.set_exception(StoreError("no space left on device"))
                continue
            try:
                future.set_result(self.store.append(batch).result())
            except StoreError as error:
                future.set_exception(error)


async def until(true):
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - the call log tells nobody
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("headers", [{"x-session-id": "s"}, {}], ids=["named", "found by lineage"])
@pytest.mark.parametrize("second", ["the same again", "another branch", "the next call"])
def test_a_call_placed_on_one_that_is_lost_is_placed_anew(headers, second):
    inner = open_store("memory:")
    store = Slow(inner)
    call_log = CallLog(store, dialects.load, 10)
    messages = {
        "the same again": [user("one")],
        "another branch": [user("two")],
        "the next call": [user("one"), OK, user("more")],
    }

    async def send(some):
        return await call_log.receive(incoming(*some, headers=headers))

    async def play():
        first = asyncio.create_task(send([user("one")]))
        await until(lambda: len(store.waiting) == 1)
        later = asyncio.create_task(send(messages[second]))
        await until(lambda: len(store.waiting) == 2)
        store.let_go(False, True)
        while not later.done():
            await asyncio.sleep(0.001)
            store.let_go(*[True] * len(store.waiting))
        with pytest.raises(StoreError, match="no space"):
            await first
        return (await later).placement

    placed = asyncio.run(play())
    assert (placed.branch.number, placed.call, placed.attempt) == (0, 1, 1)
    assert check(inner, repair=False).problems == ()
    assert [type(row.event) for row in inner.events()][:3] == [SessionOpened, BranchOpened, CallReceived]


def test_an_answer_that_could_not_be_written_is_written_later():
    store = Breaking(open_store("memory:"))
    proxy = Proxy(store)

    async def play():
        entry = await proxy.call_log.receive(incoming(user("x")))
        store.broken = True
        proxy.call_log.answered(entry, SAID, Outcome(200, b"{}", 1.0, 2.0, 2.0), 7)
        await asyncio.sleep(0.01)
        assert not proxy.call_log.writer.healthy
        store.broken = False
        await proxy.call_log.receive(incoming(user("y")))
        await proxy.call_log.drain()

    asyncio.run(play())
    assert [event.finish for event in events(proxy, AnswerFinished)] == ["stop"]
    assert proxy.call_log.writer.healthy


def test_a_decision_that_could_not_be_written_is_forgotten():
    store = Breaking(open_store("memory:"))
    call_log = CallLog(store, dialects.load, 10)

    async def play():
        entry = await call_log.receive(incoming(user("one")))
        store.broken = True
        with pytest.raises(StoreError, match="no space"):
            await call_log.decide(entry, 1.0, [Bypassed("refused", "400", 0, 1)], {})
        store.broken = False
        later = await call_log.receive(incoming(user("one"), OK, user("two")))
        await call_log.drain()
        return entry, later

    entry, later = asyncio.run(play())
    placed = later.placement
    assert (later.session.id, placed.branch.number, placed.call, placed.attempt) == (entry.session.id, 0, 2, 1)
    assert later.session.head == store.head(later.session.id)
    assert [type(row.event) for row in store.events()] == [SessionOpened, BranchOpened, CallReceived, CallReceived]
    assert call_log.writer.failures == 1
    assert check(store, repair=False).problems == ()


@pytest.mark.parametrize("headers", [{"x-session-id": "s"}, {}], ids=["named", "found by lineage"])
def test_calls_are_logged_anew_when_the_log_was_deleted(tmp_path, headers):
    store = open_store(f"sqlite:{tmp_path}")
    proxy = Proxy(store)
    long = "a long story " * 100
    proxy.call(user(long), headers=headers, answer=SAID)
    for file in tmp_path.iterdir():
        file.unlink()
    assert not proxy.call_log.writer.present
    second = proxy.call(user(long), OK, user("more"), headers=headers, answer=SAID)
    assert second[1:] == (0, 1, 1)  # the log does not know of the first
    assert proxy.call_log.writer.present
    assert (proxy.call_log.writer.begun_anew, proxy.call_log.writer.failures) == (1, 1)
    third = proxy.call(user(long), OK, user("more"), OK, user("and more"), headers=headers)
    assert third == (second[0], 0, 2, 1)
    proxy.restart()
    assert proxy.call(user(long), OK, user("more"), OK, user("and more"), OK, user("!"), headers=headers)[2] == 3
    assert check(store, repair=False).problems == ()
    store.close()


def test_what_becomes_of_a_call_whose_log_was_deleted_is_not_written_to_another(tmp_path):
    store = open_store(f"sqlite:{tmp_path}")
    call_log = CallLog(store, dialects.load, 10)

    async def play():
        entry = await call_log.receive(incoming(user("one")))
        (tmp_path / "ctxpager.sqlite3").unlink()
        await call_log.decide(entry, 1.0, [Bypassed("asked", "", 0, 1)], {})
        await until(lambda: call_log.writer.begun_anew == 1)
        call_log.answered(entry, SAID, Outcome(200, b"{}", 1.0, 2.0, 2.0), 7)
        call_log.failed(entry, "status", "too many", Outcome(429, b"{}", 1.0, 2.0, 2.0))
        await call_log.receive(incoming(user("two")))
        await call_log.drain()

    asyncio.run(play())
    assert [type(row.event) for row in store.events()] == [SessionOpened, BranchOpened, CallReceived]
    assert check(store, repair=False).problems == ()
    store.close()


def test_a_call_that_could_not_be_planned_is_known_to_have_gone_out_in_full_when_its_session_is_read_again():
    store, answer = open_store("memory:"), "a line that the tool has found\n" * 100

    def received(turns, policy):
        pager = Pager(Arms(NamedPolicy("policy", policy)), in_force("", {}), dialects.load, marks=False)
        call_log = CallLog(store, dialects.load, 10, pager, FailOpen())
        made = [message for number in range(turns) for message in (calls(f"c{number}"), result(f"c{number}", answer))]
        sent = incoming(user("go"), *made, tools=offered("run"), headers={"x-session-id": "s"})
        return asyncio.run(call_log.receive(sent))

    for turns in (1, 2):
        received(turns, load_policy("keep_all", {}))
    session = received(3, Broken()).session
    log = list(store.events(session.id))
    assert log[-1].event.reason == "page_table"
    again = Rebuilder(dialects.load, store.blob).session(session.id, log)
    assert again.pages.tables[0].evidence.apart


def test_whoever_watches_calls_is_shown_no_credential_that_a_provider_repeats():
    key, seen = b"sk-proj-0123456789abcdef", []
    call_log = CallLog(open_store("memory:"), dialects.load, 10, watch=lambda _, told: seen.extend(told))
    outcome = Outcome(401, b'{"error": "wrong key: %b"}' % key, 1.0, 2.0, 2.0)

    async def play():
        entry = await call_log.receive(incoming(user("go"), secrets=(key,)))
        call_log.failed(entry, "status", outcome.body.decode(), outcome)
        call_log.answered(entry, Answer(error=key.decode()), outcome, 0)
        call_log.record(entry, bypassed(entry, BypassReason.FAILED, key.decode(), 1.0))
        await call_log.decide(entry, 1.0, [Bypassed("refused", key.decode(), 0, 1)], {})

    asyncio.run(play())
    assert [type(event) for event in seen[-4:]] == [AttemptFailed, AnswerFinished, Bypassed, Bypassed]
    assert key.decode() not in repr(seen)
