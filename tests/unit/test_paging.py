"""Calls as they are planned: what is paged under a policy, what is logged of it, and what goes out."""

import asyncio
import json
import logging
from hashlib import sha256

import pytest
from branches import items_of_request
from chat_items import ON, call, encoded, handle, hidden_leg, offered, page, result, say, user
from logged_sessions import body, incoming
from stand_ins import Broken, Fixed, Greedy, KeepAll

from pager.log.events import (
    Bypassed,
    Learned,
    Repacked,
    SessionOpened,
    ToolsDecided,
)
from pager.log.store import Batch
from pager.log.stores import open_store
from pager.paging import planner
from pager.paging.held_calls import Guard
from pager.paging.page_in import definition
from pager.paging.pager import CallToPlan, Pager, bypassed
from pager.paging.pages.page import PIN_HALF_LIFE, Items, stub_limit, tokens_of
from pager.paging.pages.stub import HANDLE
from pager.paging.policy import Decision, Prices
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.priors import (
    ENOUGH,
    LOG,
    SHIPPED,
    Experience,
    Harness,
)
from pager.pricing.provider_cache import uncached
from pager.pricing.rates import Models
from pager.proxy.call_log import CallLog
from pager.request_values import Usage
from pager.sessions.identity import Key
from pager.sessions.lineage import (
    Session,
    history,
    place,
    receive,
)
from pager.wire.dialects import load

MODELS = Models.load().using(Prices(read=0.1, write=1.25, output=5.0, ttl_seconds=300.0))


class Talk:
    """A session with one harness, planned call by call."""

    def __init__(self, policy=None, name="chat", *, marks=False, models=MODELS):
        self.dialect = load(name)
        self.pager = Pager(Arms(NamedPolicy("test", policy or Greedy())), models, load, marks=marks)
        self.blobs = {}
        self.pager.tables.fetch = self.blobs.get
        self.session = Session("s", "local")
        self.now = 0.0

    def send(self, body, *, bypass="", gap=10.0):
        self.now += gap
        request = self.dialect.parse(body if isinstance(body, bytes) else encoded(body))
        raws = [bytes(item) for item in request.items]
        self.blobs |= zip(request.digests, raws, strict=True)
        past = history(request, [self.dialect.decode(raw) for raw in raws], Key("x-session-id", "s"))
        placement = place(self.session, past)
        receive(self.session, placement, past, list(request.digests), "")
        items = Items(request.digests, past.norms, raws.__getitem__)
        where = (placement.branch.number, placement.call, placement.attempt)
        call = CallToPlan(self.dialect, request, items, self.now, where, placement.opened, bypass=bypass)
        self.paged = self.pager.plan(self.session.pages, call)
        if self.paged is not None:
            self.blobs |= self.paged.blobs
        return self.paged

    @property
    def events(self):
        """What was decided of pages; of tools, tests of their own tell."""
        return [event for event in self.paged.events if not isinstance(event, ToolsDecided)]

    @property
    def out(self):
        return json.loads(self.paged.outgoing.body())

    @property
    def table(self):
        return self.paged.table

    def resolve(self, content, branch=0):
        return self.pager.resolve(self.session.pages, branch, handle(content))


A, B = page("alpha"), page("beta")
START = (user("do it"), call("c1", path="src/a.py"), result("c1", A))
STAGES = (START, (*START, *ON), (*START, *ON, *ON))  # after which the page of START may go


def played(policy=None, name="chat", **more):
    """A talk at the call in which the first page may go."""
    talk = Talk(policy, name, **more)
    for stage in STAGES:
        talk.send(body(*stage))
    return talk


ANOTHER = (*START, *ON * 2, call("c2", path="src/b.py"), result("c2", A.replace("alpha", "beta")))


def with_another_page(talk):
    """The talk at the call before the one in which a second page may go."""
    talk.send(body(*ANOTHER))
    talk.send(body(*ANOTHER, *ON))
    return talk


def leg(content="the page", call_id="h1", text="I look."):
    return hidden_leg(content, call_id, text, arguments={"pages": [handle(A)]})


# ---------------------------------------------------------------- decisions


def test_a_policy_that_keeps_all_changes_no_byte_and_logs_nothing():
    talk = played(KeepAll())
    assert talk.paged.outgoing.body() == talk.paged.request.body
    assert not talk.paged.outgoing.changed
    assert (talk.events, talk.table.tool) == ([], "")


def test_pages_of_the_last_calls_are_not_offered():
    talk = Talk()
    for stage in STAGES[:2]:
        talk.send(body(*stage))
        assert (talk.events, talk.paged.outgoing.changed) == ([], False)


def test_an_eviction_is_logged_with_all_that_is_needed_to_repeat_it():
    talk = played()
    (event,) = talk.events
    content = talk.out["messages"][2]["content"]
    digest = sha256(json.dumps(START[2]).encode()).hexdigest()
    assert isinstance(event, Repacked)
    assert (event.branch, event.call, event.attempt) == (0, 3, 1)
    assert (event.cause, event.reason, event.policy, event.tool) == ("policy", "all goes", "test", "page_in")
    assert [tuple(getattr(gone, key) for key in ("page", "message", "key", "stub")) for gone in event.pages] == [
        (handle(A), digest, "c1", content)
    ]
    size = tokens_of(len(A))
    assert (event.warm, event.saved) == (True, size - stub_limit(size))
    assert abs(event.rewritten - (len(talk.paged.request.body) / 2.7 - event.saved)) < 3
    assert event.price == round(event.rewritten * 1.15, 1)


def test_a_stub_tells_what_it_stands_for_and_how_to_get_it():
    stub = played().out["messages"][2]["content"]
    assert HANDLE.findall(stub) == [handle(A)]
    assert all(part in stub for part in ("read", "src/a.py", "60 lines", "page_in"))


def test_the_tool_is_added_with_the_first_eviction_and_stays():
    talk = played()
    assert talk.out["tools"] == [*offered("read"), json.loads(definition("chat"))]
    talk.send(body(*START, *ON * 3))
    assert talk.events == []
    assert talk.out["tools"][-1] == json.loads(definition("chat"))
    assert talk.out["messages"][3:] == [*ON * 3]


def test_an_evicted_page_is_found_again():
    talk = played()
    assert talk.resolve(A) == A
    assert talk.resolve(B) is None


def test_an_argument_is_evicted_like_a_result():
    large = page("gamma") * 2
    wrote = (user("do it"), call("c1", "write", path="a.py", content=large), result("c1", "ok"))
    talk = Talk()
    for more in range(3):
        talk.send(body(*wrote, *ON * more))
    arguments = json.loads(talk.out["messages"][1]["tool_calls"][0]["function"]["arguments"])
    assert arguments["path"] == "a.py"
    assert arguments["content"].startswith(f"[{handle(large)}: argument of write")
    assert talk.resolve(large) == large


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "part"])
def test_what_a_hidden_leg_brought_is_evicted_as_what_it_was(whole):
    talk = played()
    first = talk.out["messages"][2]["content"]
    part = "\n".join(A.split("\n")[2:58])
    brought = f"=== {handle(A)}, all 60 lines ===\n{A}" if whole else f"=== {handle(A)}, lines 3-58 of 60 ===\n{part}"
    talk.table.keep_leg(3, 1, leg(brought), [handle(A)])
    told = (say("I look.Yes."), user())
    for more in range(PIN_HALF_LIFE + 1):
        talk.send(body(*STAGES[2], *told, *ON * more))
        assert talk.events == [], "what was asked for stays for a while"
    talk.send(body(*STAGES[2], *told, *ON * (PIN_HALF_LIFE + 1)))
    (event,) = talk.events
    (gone,) = event.pages
    assert gone.page == (f"{handle(A)}@b1" if whole else handle(brought))
    assert gone.stub == first if whole else gone.stub.startswith(f"[{handle(brought)}: part of read ")
    assert HANDLE.findall(gone.stub) == [handle(A) if whole else handle(brought)]
    assert set(talk.paged.blobs) == {bytes.fromhex(gone.message)}
    assert (talk.resolve(A), talk.resolve(brought)) == (A, None if whole else brought)


# ---------------------------------------------------------------- what goes out in full


def test_a_client_can_ask_for_its_own_bytes():
    talk = played()
    talk.send(body(*START, *ON * 3), bypass="the client sent x-pager-bypass")
    assert talk.events == [Bypassed("asked", "the client sent x-pager-bypass", 0, 4)]
    assert talk.paged.outgoing.body() == talk.paged.request.body
    talk.send(body(*START, *ON * 4))
    assert handle(A) in talk.out["messages"][2]["content"]
    assert talk.events == []


@pytest.mark.parametrize(
    ("headers", "asked"),
    [
        ({}, False),
        ({"x-pager-bypass": "0"}, False),
        ({"x-pager-bypass": ""}, False),
        ({"x-pager-bypass": " False "}, False),
        ({"x-pager-bypass": "1"}, True),
        ({"x-pager-bypass": "yes"}, True),
    ],
)
def test_the_header_by_which_a_client_asks(headers, asked):
    assert bypassed(headers) == ("the client sent x-pager-bypass" if asked else "")


def test_a_branch_in_which_paging_stopped_goes_out_as_it_came():
    talk = played()
    talk.table.stopped = "400: no"
    talk.send(body(*START, *ON * 3))
    assert (talk.paged.outgoing.changed, talk.events) == (False, [])


def test_a_request_that_can_not_carry_the_tool_goes_out_in_full_and_is_logged_where_stubs_are_missed():
    talk = Talk()
    for stage in STAGES:
        talk.send(body(*stage, tool_choice="required"))
        assert (talk.events, talk.paged.outgoing.changed) == ([], False)
    talk.send(body(*START, *ON * 3))
    assert handle(A) in talk.out["messages"][2]["content"]
    talk.send(body(*START, *ON * 4, tool_choice="required"))
    assert talk.events == [Bypassed("cannot_carry", "a tool_choice other than auto", 0, 5)]
    assert talk.paged.outgoing.body() == talk.paged.request.body


def test_a_request_for_a_summary_sees_the_whole_history():
    talk = played()
    asking = user("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools. Summarise.")
    talk.send(body(*STAGES[2], say(), asking))
    assert talk.events == [Bypassed("cannot_carry", "a summary is asked for", 0, 4)]
    assert not talk.paged.outgoing.changed


def test_a_compaction_sees_the_whole_history():
    talk = played()
    metadata = {"x-codex-turn-metadata": json.dumps({"request_kind": "compaction"})}
    talk.send(body(*STAGES[2], *ON, client_metadata=metadata))
    assert talk.events == [Bypassed("cannot_carry", "a compaction", 0, 4)]
    talk.send(body(*STAGES[2], *ON * 2, client_metadata={"x-codex-turn-metadata": "{}"}))
    assert talk.events == []
    assert talk.paged.outgoing.changed


def test_what_has_no_items_or_not_evenly_spaced_ones_is_not_paged():
    uneven = b'{"tools":[{"function":{}}],"messages":[{"role":"user"},{"role":"user"} , {"role":"user"}]}'
    assert Talk().send(uneven) is None
    assert Talk(name="responses").send({"input": "hello"}) is None
    assert Talk().send(body()) is None


def test_a_branch_without_a_table_is_not_paged():
    talk = Talk()
    talk.send(body(*START))
    talk.session.pages.tables.clear()
    assert talk.send(body(*START, *ON)) is None


# ---------------------------------------------------------------- names


def test_the_tool_gets_another_name_where_the_client_has_one_of_its_name():
    talk = Talk()
    for stage in STAGES:
        talk.send(body(*stage, tools=offered("page_in", "read")))
    assert [entry["function"]["name"] for entry in talk.out["tools"]] == ["page_in", "read", "page_in_2"]
    assert talk.events[0].tool == "page_in_2"
    assert "page_in_2 to see it" in talk.out["messages"][2]["content"]


@pytest.mark.parametrize("rejected", [False, True])
def test_the_tool_is_renamed_when_the_client_gets_one_of_its_name(rejected):
    talk = with_another_page(played())
    rule = NamedPolicy("test", Fixed(Decision(("pg_unknown",) if rejected else ())))
    talk.pager = Pager(Arms(rule), MODELS, load, marks=False)
    talk.send(body(*ANOTHER, *ON * 2, tools=offered("read", "page_in")))
    *others, event = talk.events
    assert (event.cause, event.tool, event.pages) == ("client", "page_in_2", [])
    assert [other.reason for other in others] == (["decision_rejected"] if rejected else [])
    assert [entry["function"]["name"] for entry in talk.out["tools"]] == ["read", "page_in", "page_in_2"]
    talk.send(body(*START, *ON * 4))
    assert talk.out["tools"][-1]["function"]["name"] == "page_in_2"


# ---------------------------------------------------------------- policies that are wrong


@pytest.mark.parametrize("wanted", [("pg_0123456789abcdef",), ("",), (None,), (handle(A), "rubbish")])
def test_a_decision_that_breaks_a_rule_is_logged_and_changes_nothing(wanted, caplog):
    with caplog.at_level(logging.WARNING, "ctxpager"):
        talk = played(Fixed(Decision(wanted)))
    (event,) = talk.events
    assert (event.reason, event.branch, event.call) == ("decision_rejected", 0, 3)
    assert event.detail in caplog.text
    assert not talk.paged.outgoing.changed


def test_a_policy_is_asked_only_when_something_may_go():
    talk = played()
    talk.pager = Pager(Arms(NamedPolicy("test", Broken())), MODELS, load, marks=False)
    talk.send(body(*START, *ON * 3))
    assert (talk.events, talk.paged.full) == ([], False)


def test_after_a_rejected_decision_the_prompt_is_what_it_was():
    talk = with_another_page(played())
    before = talk.paged.outgoing.body()
    talk.pager = Pager(Arms(NamedPolicy("test", Fixed(Decision(("rubbish",))))), MODELS, load, marks=False)
    talk.send(body(*ANOTHER, *ON * 2))
    assert [event.reason for event in talk.events] == ["decision_rejected"]
    assert talk.paged.outgoing.body().startswith(before[: before.rindex(b"]")])


def test_what_a_policy_raises_is_its_callers_business():
    with pytest.raises(ZeroDivisionError, match="no pages"):
        played(Broken())
    with pytest.raises(AttributeError):
        played(Fixed(None))


# ---------------------------------------------------------------- histories that change


def test_a_lost_leg_is_logged_as_a_repack_of_the_clients():
    talk = Talk(KeepAll())
    talk.send(body(*START))
    talk.table.keep_leg(1, 1, leg(), [])
    talk.send(body(*START, say("Something else."), user()))
    (event,) = talk.events
    assert (event.cause, event.pages, event.tool) == ("client", [], "")
    assert event.reason == "the place of 1 hidden legs is gone from the client's history"


def test_a_fork_goes_on_with_the_stubs_of_its_parent_and_the_parent_without_the_forks():
    talk = played()
    talk.send(body(*START, *ON, *ON, user("and this")))
    other = (*START, say("I see."), user("rather that"))
    talk.send(body(*other))
    assert len(talk.session.pages.tables) == 2
    assert handle(A) in talk.out["messages"][2]["content"]
    assert talk.events == []
    read = (call("c2", path="b.py"), result("c2", B))
    for more in range(3):
        talk.send(body(*other, *read, *ON * more))
    assert talk.resolve(B, branch=1) == B
    assert talk.resolve(B, branch=0) == B, "any branch of the session finds it"
    assert handle(B) not in talk.session.pages.tables[0].shown


def test_a_page_whose_content_is_gone_from_the_log_is_unknown():
    talk = played()
    talk.blobs.clear()
    assert talk.resolve(A) is None


def test_handles_of_another_session_are_unknown():
    talk, other = played(), Talk()
    other.send(body(user("another")))
    assert talk.pager.resolve(talk.session.pages, 0, handle(A)) == A
    assert talk.pager.resolve(other.session.pages, 0, handle(A)) is None


# ---------------------------------------------------------------- imitation


def test_a_call_that_names_a_stub_imitates_it():
    talk = played()
    assert Guard(talk.table, None).imitates(json.dumps({"content": f"[{handle(A)}: read]"}))
    assert not Guard(talk.table, None).imitates(json.dumps({"content": f"[{handle(B)}: read]"}))
    assert not Guard(talk.table, None).imitates("{}")


# ---------------------------------------------------------------- rescue


def test_a_rescue_evicts_what_a_policy_would_not():
    talk = Talk(KeepAll())
    talk.send(body(*START))
    before = talk.paged.outgoing.body()
    event = talk.pager.rescue(talk.paged, 100)
    assert (event.cause, event.call, event.attempt, event.tool) == ("rescue", 1, 1, "page_in")
    assert talk.events == [event]
    assert handle(A) in talk.out["messages"][2]["content"]
    assert talk.out["tools"][-1] == json.loads(definition("chat"))
    assert len(talk.paged.outgoing.body()) < len(before)
    assert talk.pager.rescue(talk.paged, 100) is None, "nothing is left"


def test_a_rescue_comes_too_late_when_the_branch_went_on():
    talk = Talk(KeepAll())
    first = talk.send(body(*START))
    talk.send(body(*START, *ON))
    assert first.moved_on
    assert talk.pager.rescue(first, 100) is None
    assert talk.table.shown == {}


def test_a_request_in_full_that_does_not_fit_is_evicted_even_without_the_tool():
    talk = Talk()
    talk.send(body(*START, tool_choice="none"))
    event = talk.pager.rescue(talk.paged, 100)
    assert event.tool == ""
    assert talk.out["tools"] == offered("read")
    assert handle(A) in talk.out["messages"][2]["content"]
    talk.send(body(*START, *ON))
    assert talk.out["tools"][-1] == json.loads(definition("chat"))
    assert [(repack.cause, repack.tool, repack.pages) for repack in talk.events] == [("rescue", "page_in", [])]


def test_a_request_that_asked_for_its_own_bytes_is_evicted_if_it_does_not_fit():
    talk = Talk()
    talk.send(body(*START), bypass="asked")
    assert talk.pager.rescue(talk.paged, 100) is not None
    assert handle(A) in talk.out["messages"][2]["content"]


# ---------------------------------------------------------------- terms


def terms(members, *, model="gpt-4o"):
    talk = Talk(KeepAll())
    return talk.send(body(*START, **{"model": model, **members})).terms


@pytest.mark.parametrize(
    ("members", "reserve"),
    [
        ({}, 16_000),
        ({"max_tokens": 500}, 500),
        ({"max_completion_tokens": 700}, 700),
        ({"max_output_tokens": 900}, 900),
        ({"max_tokens": None}, 16_000),
        ({"max_tokens": "many"}, 16_000),
        ({"max_tokens": 1.5}, 16_000),
        ({"max_tokens": 0}, 16_000),
        ({"max_tokens": 100_000}, 64_000),
    ],
)
def test_room_for_the_answer_is_what_the_client_asks_for_and_never_more_than_half(members, reserve):
    assert (terms(members).window, terms(members).reserve) == (128_000, reserve)


@pytest.mark.parametrize(
    ("told", "window", "reserve"), [(20_000, 20_000, 10_000), (0, 128_000, 16_000), (7, 128_000, 16_000)]
)
def test_a_window_that_the_provider_named_holds_for_the_branch_and_is_in_the_log(told, window, reserve):
    talk = Talk(KeepAll())
    talk.send(body(*START, model="gpt-4o"))
    event = talk.pager.rescue(talk.paged, 100, told)
    assert event.window == (told if told > 7 else 0)
    after = talk.send(body(*START, *ON, model="gpt-4o")).terms
    assert (after.window, after.reserve) == (window, reserve)
    again = talk.session.pages.tables[0].copy()
    again.windows.clear()
    again.apply(event)
    assert again.windows == talk.table.windows
    assert talk.send(body(*START, *ON * 2, model="gpt-4o-mini")).terms.window == 128_000
    other = Talk(KeepAll())
    other.pager = talk.pager
    assert other.send(body(*START, model="gpt-4o")).terms.window == 128_000, "it is in no other session's log"


def test_prices_and_bonds_follow_from_the_model():
    fixed = Prices(0.5, 1.0, 2.0, 60.0)
    talk = Talk(KeepAll(), models=MODELS.using(fixed))
    paged = talk.send(body(*START, model="claude-opus-6"))
    assert (paged.terms.prices, paged.terms.bound) == (fixed, True)
    assert not talk.send(body(*START, *ON)).terms.bound


# ---------------------------------------------------------------- providers that cache, and those that do not

KNOWN = Models.load()
LONG = user("all there is to know. " * 1_000)  # more than the 4,096 tokens from which on a report tells anything
ALL = 6_000  # tokens of it that the provider found in its cache


def told(talk, *reports, model="gpt-4o", history=(LONG,), **members):
    """The terms of a call after so many whose answers reported cached tokens; None where they said nothing of them."""
    for cached in reports:
        talk.send(body(*history, model=model, **members))
        usage = Usage(input=6_500, cached=cached or 0, tells_cached=cached is not None)
        talk.table.learn_usage(usage, len(talk.paged.request.body), talk.table.call)
        history = (*history, *ON)
    return talk.send(body(*history, model=model, **members)).terms


# The answer to the first call tells nothing: there was no prompt before it that could have been kept.
@pytest.mark.parametrize(
    ("reports", "caches"),
    [
        ([], True),
        ([0, 0], True),
        ([0, 0, 0], False),
        ([0, 0, 0, 0], False),
        ([0, 0, ALL, 0], True),
        ([0, 0, 0, ALL], True),
        ([0, None, None], True),
        ([ALL, ALL, 0], True),
    ],
)
def test_a_provider_that_reports_nothing_cached_twice_is_planned_for_as_one_without_a_cache(reports, caches):
    documented = KNOWN.prices("gpt-4o")
    assert documented.read < 1.0
    expected = documented if caches else uncached(documented)
    assert told(Talk(KeepAll(), models=KNOWN), *reports).prices == expected


def test_under_prices_that_were_given_no_report_is_believed():
    fixed = Prices(0.1, 1.25, 5.0, 300.0)
    terms = told(Talk(KeepAll(), models=KNOWN.using(fixed)), 0, 0, 0, 0)
    assert (terms.prices, terms.cacheable) == (fixed, 0)


def test_what_a_provider_reports_is_of_one_model_only():
    talk = Talk(KeepAll(), models=KNOWN)
    assert told(talk, 0, 0, 0).prices.read == 1.0
    assert talk.send(body(LONG, *ON * 4, model="gpt-4.1")).terms.prices == KNOWN.prices("gpt-4.1")


CLAUDE = "claude-sonnet-4-5"
MARK = {"type": "text", "text": "all", "cache_control": {"type": "ephemeral"}}


def test_a_model_that_caches_only_what_is_marked_does_not_cache_for_a_client_without_marks():
    talk = Talk(KeepAll(), models=KNOWN)
    terms = told(talk, model=CLAUDE)
    assert terms.prices == uncached(KNOWN.prices(CLAUDE))
    assert terms.cacheable == KNOWN.cache(CLAUDE).minimum
    assert not planner.view(talk.table, talk.paged.request.outside, terms).warm


def test_it_does_for_one_that_sets_marks():
    marked = {"role": "system", "content": [MARK]}
    assert told(Talk(KeepAll(), models=KNOWN), model=CLAUDE, history=(marked, LONG)).prices == KNOWN.prices(CLAUDE)


def test_it_does_if_the_provider_reports_a_hit():
    assert told(Talk(KeepAll(), models=KNOWN), ALL, ALL, model=CLAUDE).prices == KNOWN.prices(CLAUDE)
    assert told(Talk(KeepAll(), models=KNOWN), ALL, 0, model=CLAUDE).prices.read == 1.0


@pytest.mark.parametrize("marks", [True, False])
def test_it_does_where_we_set_the_marks(marks):
    talk = Talk(KeepAll(), "messages", marks=marks, models=KNOWN)
    tools = [{"name": "read", "input_schema": {}}]
    terms = talk.send({"model": CLAUDE, "tools": tools, "messages": [LONG]}).terms
    assert (terms.prices.read < 1.0) is marks


# ---------------------------------------------------------------- what a session begins with

LEARNED = Experience({"agent": Harness(lengths=[60] * ENOUGH)})
HARNESS = {"user-agent": "agent/1.0 (some system)"}


class Proxy:
    """Journals over a store that outlives them, each with a pager of its own."""

    def __init__(self):
        self.store = open_store("memory:")
        blobs = {bytes.fromhex(LEARNED.version): LEARNED.encode()}
        self.store.append(Batch(LOG, 0.0, [Learned(LEARNED.version, 1, 1)], blobs)).result()
        self.now = 0.0

    def start(self, arms, learned=""):
        self.pager = Pager(arms, MODELS, load, marks=False)
        self.pager.learned = learned
        self.call_log = CallLog(self.store, load, 10, self.pager)
        return self

    def send(self, *items, session="s"):
        self.now += 10.0
        headers = {"x-session-id": session, **HARNESS}

        async def receive():
            entry = await self.call_log.receive(incoming(headers=headers, at=self.now, **body(*items)))
            await self.call_log.drain()
            return entry

        return asyncio.run(receive())

    def opened(self):
        return [row.event for row in self.store.events() if isinstance(row.event, SessionOpened)]


GREEDY, KEEP = NamedPolicy("greedy", Greedy()), NamedPolicy("keep", KeepAll())


def test_arm_and_experience_are_settled_when_a_session_begins_and_hold_to_its_end():
    proxy = Proxy().start(Arms(KEEP, {"greedy": GREEDY}, {"greedy": 1.0}), LEARNED.version)
    first = proxy.send(*START)
    (event,) = proxy.opened()
    assert (event.arm, event.learned, event.harness) == ("greedy", LEARNED.version, "agent/1.0")
    assert (first.paged.rule, first.paged.terms.harness) == (GREEDY, "agent/1.0")

    proxy.pager.learned = ""  # something else was learned since
    second = proxy.send(*START, *ON)
    assert second.session.learned == LEARNED.version
    assert second.paged.terms.experience.encode() == LEARNED.encode()

    proxy.start(Arms(KEEP, {"greedy": GREEDY, "keep": KEEP}, {"keep": 1.0}))
    third = proxy.send(*START, *ON * 2)
    assert (third.session.arm, third.session.learned, third.session.harness) == (
        event.arm,
        event.learned,
        event.harness,
    )
    assert third.paged.rule is GREEDY
    assert third.paged.terms.experience.to_go("agent/2.0", 50) == pytest.approx(10.0)
    assert [repack.policy for repack in third.paged.events] == ["greedy"]
    assert len(proxy.opened()) == 1

    other = proxy.send(*START, session="another")
    assert (other.session.arm, other.session.learned) == ("keep", "")
    assert (other.paged.rule, other.paged.terms.experience) == (KEEP, SHIPPED)


def test_a_session_of_an_arm_that_is_gone_is_under_the_policy_in_force():
    proxy = Proxy().start(Arms(KEEP, {"greedy": GREEDY}, {"greedy": 1.0}))
    proxy.send(*START)
    entry = proxy.start(Arms(KEEP)).send(*START, *ON)
    assert (entry.session.arm, entry.paged.rule) == ("greedy", KEEP)


def test_sessions_of_an_arm_that_changes_nothing_are_not_touched():
    proxy = Proxy().start(Arms(GREEDY, {"keep_all": None}, {"keep_all": 1.0}))
    entries = [proxy.send(*stage) for stage in STAGES]
    assert [entry.paged for entry in entries] == [None] * 3
    assert {entry.session.arm for entry in entries} == {"keep_all"}
    assert not any(isinstance(row.event, Repacked) for row in proxy.store.events())


def test_an_experience_that_the_log_does_not_hold_any_more_is_that_of_a_fresh_install():
    proxy = Proxy().start(Arms(KEEP), "ab" * 32)
    entry = proxy.send(*START)
    assert (entry.session.learned, entry.paged.terms.experience) == ("ab" * 32, SHIPPED)


# ---------------------------------------------------------------- marks


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_cache_marks_are_set_only_if_they_are_wanted(marks, full):
    talk = Talk(KeepAll(), "messages", marks=marks)
    choice = {"tool_choice": {"type": "any"}} if full else {}
    tools = [{"name": "read", "input_schema": {}}]
    talk.send({"system": "Be good. " * 600, "tools": tools, "messages": [user()], **choice})
    assert talk.paged.full is full
    assert talk.paged.outgoing.body().count(b"cache_control") == (2 if marks else 0)


def test_a_call_that_asked_for_its_own_bytes_gets_no_marks():
    talk = Talk(KeepAll(), "messages", marks=True)
    tools = [{"name": "read", "input_schema": {}}]
    talk.send({"system": "Be good. " * 600, "tools": tools, "messages": [user()]}, bypass="asked")
    assert not talk.paged.outgoing.changed


def test_a_plan_can_be_made_for_a_call_that_is_never_logged():
    talk = played()
    copied = talk.session.pages.copy_of(0)
    request = talk.dialect.parse(json.dumps(body(*START, *ON * 3)).encode())
    asked = CallToPlan(talk.dialect, request, items_of_request(talk.dialect, request), 99.0, (0, 4, 1))
    paged = talk.pager.plan(copied, asked)
    assert handle(A).encode() in paged.outgoing.body()
    assert (talk.table.call, len(talk.table.slots)) == (3, 7)
