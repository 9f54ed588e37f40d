"""Page tables rebuilt from the events of a session."""

import asyncio
import json
from hashlib import sha256

import msgspec
import pytest
from chat_items import call, encoded, handle, hidden_leg, offered, result, say, user
from logged_sessions import incoming
from stand_ins import Greedy

from pager.errors import StoreCorrupt
from pager.log.events import (
    BranchOpened,
    Bypassed,
    CallReceived,
    Evicted,
    LegFinished,
    Repacked,
)
from pager.log.store import Stored
from pager.log.stores import open_store
from pager.paging.pager import Pager
from pager.paging.pages.session_pages import SessionPages, TableSource
from pager.paging.planner import is_warm
from pager.paging.policy import Prices
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.pricing.rates import Models
from pager.proxy.call_log import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.request_values import Answer, Usage
from pager.sessions.message_cache import MessageCache
from pager.sessions.rebuild import Rebuilder
from pager.wire import dialects

chat = dialects.load("chat")
A, B = "a" * 1_000, "b" * 1_000


class Log:
    """A log that is written by hand."""

    def __init__(self):
        self.rows, self.blobs = [], {}
        self.tables = TableSource(dialects.load, self.blobs.get)

    def add(self, *events):
        self.rows += [Stored(len(self.rows) + 1, "s", 10.0 * len(self.rows), event) for event in events]
        return self

    def blob(self, content):
        self.blobs[sha256(content).digest()] = content
        return sha256(content).hexdigest()

    def opened(self, branch, parent=None, dialect="chat", fork_call=0):
        return self.add(BranchOpened(branch, "root", dialect, parent=parent, fork_call=fork_call))

    def received(self, branch, number, *items, keep=0, parent=None, attempt=1):
        return self.add(
            CallReceived(
                branch=branch,
                call=number,
                attempt=attempt,
                dialect="chat",
                path="/",
                model="m",
                stream=False,
                body="",
                size=0,
                skeleton="",
                cuts=[],
                keep=keep,
                messages=[self.blob(encoded(item)) for item in items],
                parent_branch=parent,
            )
        )

    def repacked(self, branch, number, content, item, key, tool="page_in"):
        gone = [Evicted(handle(content), sha256(encoded(item)).hexdigest(), key, f"[stub of {key}]")]
        return self.add(Repacked(branch, number, 1, cause="policy", reason="", tool=tool, pages=gone))

    def answered(self, branch, number, attempt=1, pages=()):
        said = self.blob(msgspec.json.encode(hidden_leg()))
        return self.add(LegFinished(branch, number, attempt, 1, said=said, body="", size=0, pages=list(pages)))

    def rebuilt(self):
        return Rebuilder(dialects.load, self.blobs.get).session("s", self.rows).pages.tables


START = (user("do it"), call("c1"), result("c1", A))


def begun():
    return Log().opened(0).received(0, 1, *START)


def test_a_branch_begins_with_an_empty_table():
    (table,) = Log().opened(0).rebuilt().values()
    assert (table.dialect, table.call, table.slots) == ("chat", 0, [])


def test_calls_advance_the_table_at_the_time_they_came():
    log = begun().received(0, 2, say("ok"), user("more"), keep=3, parent=0)
    (table,) = log.rebuilt().values()
    assert (table.call, table.attempt, table.at, table.idle) == (2, 1, 20.0, 10.0)
    items = (*START, say("ok"), user("more"))
    assert [slot.digest for slot in table.slots] == [sha256(encoded(item)).digest() for item in items]
    assert [(page.name, page.born) for page in table.pages] == [(handle(A), 1)]


def test_decisions_are_carried_out():
    table = begun().repacked(0, 1, A, START[2], "c1").rebuilt()[0]
    assert (table.tool, table.pages[0].stub, table.changed) == ("page_in", "[stub of c1]", {2})
    assert table.shown[handle(A)].message == sha256(encoded(START[2])).digest()


def test_a_later_decision_without_a_tool_leaves_the_tool():
    more = (call("c2"), result("c2", B))
    log = begun().repacked(0, 1, A, START[2], "c1").received(0, 2, *more, keep=3, parent=0)
    table = log.repacked(0, 2, B, more[1], "c2", tool="").rebuilt()[0]
    assert (table.tool, set(table.shown)) == ("page_in", {handle(A), handle(B)})
    table = log.repacked(0, 2, B, more[1], "c2", tool="page_in_2").rebuilt()[0]
    assert table.tool == "page_in_2"


def test_legs_are_kept_in_their_place():
    log = begun().answered(0, 1, pages=[handle(A)])
    table = log.rebuilt()[0]
    assert (len(table.legs_now()), table.pages[0].faults) == (1, 1)
    table = log.received(0, 2, say("I look.Yes."), user("more"), keep=3, parent=0).rebuilt()[0]
    assert [slot.item for slot in table.slots] == [0, 1, 2, -1, -1, -1, 4]


def test_a_leg_of_an_attempt_that_was_given_up_has_no_place():
    log = begun().received(0, 1, keep=3, parent=0, attempt=2).answered(0, 1, attempt=1)
    assert log.rebuilt()[0].legs_now() == []
    assert len(log.answered(0, 1, attempt=2).rebuilt()[0].legs_now()) == 1


def test_where_paging_stopped_it_stays_stopped():
    table = begun().add(Bypassed("refused", "400: no", 0, 1)).rebuilt()[0]
    assert table.stopped == "400: no"
    assert begun().add(Bypassed("asked", "for it", 0, 1)).rebuilt()[0].stopped == ""


def test_a_fork_begins_with_what_its_parent_had_at_that_time():
    log = begun().repacked(0, 1, A, START[2], "c1").opened(1, parent=0, fork_call=1)
    log.received(1, 2, user("rather this"), keep=3, parent=0)
    log.received(0, 2, call("c2"), result("c2", B), keep=3, parent=0).repacked(0, 2, B, result("c2", B), "c2")
    parent, fork = log.rebuilt().values()
    assert (fork.pages[0].stub, fork.tool, fork.call) == ("[stub of c1]", "page_in", 2)
    assert [page.name for page in parent.pages] == [handle(A), handle(B)]
    assert [page.name for page in fork.pages] == [handle(A)]
    assert handle(B) not in fork.shown


def test_a_fork_in_another_wire_format_begins_with_nothing():
    log = begun().opened(1, parent=0, dialect="responses")
    tables = log.rebuilt()
    assert (tables[1].dialect, tables[1].pages) == ("responses", [])


def test_a_branch_whose_parent_has_no_table_begins_with_nothing():
    table = SessionPages().open(BranchOpened(1, "fork", "chat", parent=0), Log().tables)
    assert table.slots == []


def test_a_call_whose_items_were_not_listed_leaves_the_table_as_it_is():
    table = Log().opened(0).received(0, 1).rebuilt()[0]
    assert table.call == 0


def test_events_of_a_branch_whose_opening_is_lost_are_passed_over():
    log = Log().received(0, 1, *START).repacked(0, 1, A, START[2], "c1").answered(0, 1)
    assert log.add(Bypassed("refused", "no", 0, 1)).rebuilt() == {}


def test_content_that_is_missing_from_the_log_is_an_error():
    log = begun()
    del log.blobs[sha256(encoded(START[2])).digest()]
    with pytest.raises(StoreCorrupt, match="does not hold"):
        log.rebuilt()


def test_a_session_that_is_read_again_goes_on_with_the_same_bytes():
    store = open_store("memory:")
    history, bodies = list(START), []

    def journal():
        pager = Pager(Arms(NamedPolicy("greedy", Greedy())), Models.load(), dialects.load, marks=True)
        return CallLog(store, dialects.load, 10, pager)

    async def send(to):
        sent = {"model": "m", "tools": offered("read"), "messages": history}
        entry = await to.receive(incoming(headers={"x-session-id": "s"}, at=1.0 + len(bodies), **sent))
        await to.drain()
        bodies.append(entry.paged.outgoing.body())
        history.extend([say("ok"), user(f"more {len(bodies)}")])

    async def play():
        first = journal()
        for _ in range(4):
            await send(first)
        await send(journal())

    asyncio.run(play())
    assert handle(A).encode() not in bodies[1]
    assert all(handle(A).encode() in body for body in bodies[2:])
    assert bodies[4].startswith(bodies[3][:-2])


@pytest.mark.parametrize("read_again", [False, True])
@pytest.mark.parametrize(("pause", "warm"), [(299.0, True), (310.0, False)])
def test_a_cache_lives_from_the_start_of_a_request_however_long_its_answer_takes(pause, warm, read_again):
    store = open_store("memory:")
    models = Models.load().using(Prices(read=0.1, write=1.25, output=5.0, ttl_seconds=300.0))

    def call_log():
        pager = Pager(Arms(NamedPolicy("greedy", Greedy())), models, dialects.load, marks=False)
        return CallLog(store, dialects.load, 10, pager)

    async def play():
        first = call_log()
        entry = await first.receive(incoming(*START, headers={"x-session-id": "s"}, at=1_000.0))
        leg, said = hidden_leg(), msgspec.json.encode(hidden_leg())
        asked = LegFinished(*entry.address, 1, said=sha256(said).hexdigest(), body=sha256(b"").hexdigest(), size=0)
        entry.paged.table.apply(asked, leg)
        await first.decide(entry, 1_100.0, [asked], {sha256(said).digest(): said, sha256(b"").digest(): b""})
        outcome = Outcome(200, b"{}", 1.0, 250_000.0, 1_250.0, legs=1)
        first.answered(entry, Answer(text="I look.Yes.", usage=Usage(9_000, 0, 9_000)), outcome, 0)
        await first.drain()
        more = (*START, say("I look.Yes."), user("more"))
        later = call_log() if read_again else first
        return await later.receive(incoming(*more, headers={"x-session-id": "s"}, at=1_000.0 + pause))

    entry = asyncio.run(play())
    assert entry.placement.call == 2
    assert is_warm(entry.paged.table, entry.paged.terms) is warm


@pytest.mark.parametrize("read_again", [False, True])
def test_a_client_that_compacts_its_history_keeps_the_added_tool_and_the_account(read_again):
    store, messages = open_store("memory:"), dialects.load("messages")
    bodies, tables = [], []

    def journal():
        pager = Pager(Arms(NamedPolicy("greedy", Greedy())), Models.load(), dialects.load, marks=False)
        return CallLog(store, dialects.load, 10, pager)

    def body(*items, system="be brief"):
        tools = [{"name": "read", "input_schema": {"type": "object"}}]
        return json.dumps({"model": "m", "max_tokens": 9, "system": system, "tools": tools, "messages": items}).encode()

    def item(role, *blocks):
        return {"role": role, "content": list(blocks)}

    def text(words):
        return {"type": "text", "text": words}

    begun = [
        item("user", text("go")),
        item("assistant", {"type": "tool_use", "id": "c1", "name": "read", "input": {}}),
        item("user", {"type": "tool_result", "tool_use_id": "c1", "content": A}),
    ]
    on = [item("assistant", text("ok")), item("user", text("on"))]

    async def send(to, sent):
        at = 1.0 + len(bodies)
        entry = await to.receive(Incoming(messages, messages.parse(sent), "local", {"x-session-id": "s"}, "/", "", at))
        await to.drain()
        bodies.append(json.loads(entry.paged.outgoing.body()))
        tables.append(entry.paged.table)

    async def play():
        first = journal()
        for more in range(4):
            await send(first, body(*begun, *on * more))
        await send(journal() if read_again else first, body(item("user", text("what was done so far: all"))))
        await send(first, body(item("user", text("another task")), system="be kind"))

    asyncio.run(play())
    names = [[tool["name"] for tool in sent["tools"]] for sent in bodies]
    assert names == [["read"], ["read"], *[["read", "page_in"]] * 3, ["read"]]
    assert bodies[4]["tools"] == bodies[3]["tools"]
    assert tables[4] is not tables[3]
    assert tables[4].account.unwritten == tables[3].account.unwritten > 0


def test_a_message_that_came_in_another_wire_format_is_compared_by_its_own():
    item = b'{"role": "user", "content": [{"type": "text", "text": "go"}], "reasoning_content": "x"}'
    digest, messages = sha256(item).digest(), MessageCache()
    formats = [dialects.load(name) for name in ("chat", "messages", "responses")]
    norms = [messages.norms(dialect, [digest], lambda _: item) for dialect in formats]
    assert norms == [[dialect.decode(item).norm] for dialect in formats]
    assert len({norm for (norm,) in norms}) > 1, "the formats differ in what they compare"
