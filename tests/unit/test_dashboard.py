"""What the dashboard's page is told: the list of sessions, one session, one page, one decision; and who may ask."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import PATIENCE

from instrumentation.accounting.ledger.sums import story
from instrumentation.dashboard.answers import KEPT, Answers
from instrumentation.dashboard.index import Line, SessionIndex
from instrumentation.dashboard.outline import outline
from instrumentation.dashboard.process import FAILED, Elsewhere, serve
from instrumentation.dashboard.server import Dashboard
from pager.config.settings import Settings
from pager.log.events import (
    AnswerFinished,
    AttemptFailed,
    BranchOpened,
    Bypassed,
    CallReceived,
    Learned,
    LegFinished,
    PromptCounted,
    Repacked,
    SessionOpened,
    ToolsDecided,
    Warmed,
)
from pager.log.store import Batch, Stored
from pager.log.stores import open_store
from pager.paging.pager import Pager
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.pricing.rates import in_force
from pager.proxy.call_log import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.request_values import Answer, ToolUse, Usage
from pager.wire.dialects import load

CHAT = load("chat")
MODEL = "claude-opus-4-5"
MODELS = in_force("", {})
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
SECRET = "the harbour lantern"


def opened(key="", harness="agent/1"):
    return SessionOpened("local", key, "x-session-id", harness)


def received(call=1, size=4000, model=MODEL, attempt=1):
    return CallReceived(0, call, attempt, "chat", "/v1/chat/completions", model, True, "b", size, "", [])


def answered(call=1, usage=None, sent_size=0, attempt=1):
    sent = "digest" if sent_size else ""
    return AnswerFinished(
        0, call, attempt, 200, "stop", "", 9, 1.0, 2.0, usage=usage, sent=sent, sent_size=sent_size, estimate=77
    )


def leg(call=1, usage=None, **facts):
    return LegFinished(0, call, 1, 1, said="", body="", size=0, usage=usage, **facts)


def rows(*events, session="s_1", at=100.0):
    return [Stored(seq, session, at + seq, event) for seq, event in enumerate(events, 1)]


def line_of(*events, session="s_1"):
    index = SessionIndex(MODELS)
    for row in rows(*events, session=session):
        index.take(row)
    return index.line(session)


# ---- the index


def test_a_session_is_told_in_one_line():
    usage = Usage(input=1000, cached=800, written=100, output=50)
    found = line_of(opened("mine"), BranchOpened(0, "root", "chat"), received(), answered(usage=usage))
    units = 0.1 * 800 + 1.25 * 100 + 100 + 5 * 50
    assert found == Line(
        "s_1",
        seq=4,
        key="mine",
        harness="agent/1",
        model=MODEL,
        began=101.0,
        seen=104.0,
        calls=1,
        client=1000,
        upstream=1000,
        cached=800,
        output=50,
        cost=pytest.approx(units),
        dollars=pytest.approx(units * 5 / 1e6),
    )


def test_what_went_out_shorter_is_told_by_the_bytes_of_both():
    found = line_of(opened(), received(size=4000), answered(usage=Usage(input=500), sent_size=2000))
    assert (found.client, found.upstream) == (1000, 500)


def test_hidden_legs_are_paid_for_and_the_first_one_tells_the_clients_prompt():
    asked, told = Usage(input=500, output=20), Usage(input=700, output=30)
    found = line_of(
        opened(),
        received(size=4000),
        leg(usage=asked, pages=["pg_1", "pg_2"]),
        leg(pages=["pg_3"], mixed=True),
        answered(usage=told, sent_size=2000),
    )
    assert (found.client, found.upstream, found.output, found.pages_in, found.changed) == (1000, 1200, 50, 3, True)


def test_a_session_is_changed_once_anything_of_it_was_sent_otherwise():
    decided = ToolsDecided(0, 1, 1, "d", "o", "r", whole=100, sent=100)
    assert not line_of(opened(), decided).changed
    assert line_of(opened(), ToolsDecided(0, 1, 1, "d", "o", "r", whole=100, sent=60)).changed
    repacked = line_of(opened(), Repacked(0, 1, 1, "policy", "old"))
    assert (repacked.changed, repacked.repacks) == (True, 1)


def test_a_refresh_costs_money_and_is_no_call():
    usage = Usage(1_000, 0, 1_000, 10)
    refresh = Warmed(0, 1, 1, 300.0, 1, Usage(1_000, 1_000), 100.0, 1_000.0, 300.0)
    before = line_of(opened(), received(), answered(usage=usage))
    after = line_of(opened(), received(), answered(usage=usage), refresh)
    assert after.cost == pytest.approx(before.cost + 100.0)
    assert (after.calls, after.upstream, after.client, after.changed) == (1, 1_000, before.client, True)
    log = rows(opened(), received(), answered(usage=usage), refresh)
    (call,) = outline("s_1", log, MODELS).calls
    assert (call.cost, call.requests, call.input) == (pytest.approx(after.cost), 1, 1_000)


def test_calls_are_under_way_until_they_are_answered_or_fail():
    events = [opened(), received(1), received(2)]
    failed = AttemptFailed(0, 1, 1, "stream", "broke off")
    assert line_of(*events).under_way == 2
    assert (line_of(*events, failed).under_way, line_of(*events, failed).failed) == (1, 1)
    assert line_of(*events, failed, answered(2)).under_way == 0
    assert line_of(*events, failed, answered(2)).calls == 1


def test_answers_without_a_call_and_without_counts_are_calls_all_the_same():
    found = line_of(opened(), answered(7, Usage(input=5)), received(), answered(), PromptCounted(0, 1, 1, 80))
    assert (found.calls, found.client, found.upstream) == (2, 0, 0)


def test_an_unknown_price_is_not_guessed():
    index = SessionIndex(MODELS)
    for row in rows(opened(), received(model="nobody's-model"), answered(usage=Usage(input=10)), session="s_1"):
        index.take(row)
    for row in rows(opened(), received(), answered(usage=Usage(input=10)), session="s_2"):
        index.take(row)
    assert index.line("s_1").dollars is None
    assert index.sums().unpriced == 1
    assert index.sums().dollars == index.line("s_2").dollars > 0


def test_what_belongs_to_no_session_has_no_line():
    assert line_of(Learned("content", 3, 9), session="learned") is None
    assert line_of(received()) is None


def test_the_session_that_was_heard_of_last_comes_first():
    index = SessionIndex(MODELS)
    for at, session in enumerate(["a", "b", "c"], 1):
        index.take(Stored(at, session, float(at), opened(key=f"key-{session}", harness=f"Agent-{session}/1")))
    index.take(Stored(4, "a", 4.0, received()))
    assert [line.session for line in index.lines()] == ["a", "c", "b"]
    assert [line.session for line in index.lines("KEY agent-b")] == ["b"]
    assert [line.session for line in index.lines("opus")] == ["a"]
    assert list(index.lines("key-a agent-b")) == []


EVENTS = st.sampled_from(
    [
        opened("k"),
        received(1),
        received(2, 9000),
        leg(usage=Usage(input=50), pages=["pg_1"]),
        answered(1, Usage(input=100, cached=50, output=5)),
        answered(2, Usage(input=100), sent_size=4000),
        AttemptFailed(0, 2, 1, "status", "busy"),
        Repacked(0, 1, 1, "policy", ""),
    ]
)


@given(st.lists(st.tuples(st.sampled_from("abc"), EVENTS)), st.integers(0, 40))
def test_new_events_alone_bring_the_index_to_where_all_of_them_would(log, cut):
    store = open_store("memory:")
    step, whole = SessionIndex(MODELS), SessionIndex(MODELS)
    for at, (session, event) in enumerate(log):
        if at == cut:
            assert step.catch_up(store, 9.0)
        store.append(Batch(session, float(at), [event])).result()
    assert step.catch_up(store, 9.0)
    assert whole.catch_up(store, 9.0)
    assert list(step.lines()) == list(whole.lines())
    assert step.seq == whole.seq == len(log)


def test_reading_a_long_log_is_told_as_it_goes(tmp_path):
    store = open_store("memory:")
    for start in range(0, 5000, 1000):
        calls = [received(call) for call in range(start, start + 1000)]
        store.append(Batch("s_1", 1.0, [opened(), *calls])).result()
    index = SessionIndex(MODELS)
    assert not index.catch_up(store, 0.0)
    assert index.seq == 2000
    assert index.catch_up(store, 9.0)
    assert index.line("s_1").under_way == 5000


# ---- answers


class Played:
    """A session of some calls in a store, each of which reads a file; results leave the prompt after some calls."""

    def __init__(self, folder, calls=12, kind="memory"):
        self.store = open_store(f"{kind}:{folder}")
        self.settings = Settings(store=kind, data_dir=folder, policy="fifo_age")
        options = {"age": 3, "size": 200}
        pager = Pager(Arms(NamedPolicy("fifo_age", load_policy("fifo_age", options))), MODELS, load, marks=False)
        self.call_log = CallLog(self.store, load, 10, pager)
        self.history = [{"role": "system", "content": "Be good."}, {"role": "user", "content": f"Find {SECRET}."}]
        self.calls = 0
        asyncio.run(self.play(calls))

    async def play(self, calls):
        for _ in range(calls):
            await self.call()
        await self.call_log.drain()

    async def call(self):
        self.calls += 1
        at = 1_000.0 + 10 * self.calls
        body = json.dumps({"model": MODEL, "tools": TOOLS, "messages": self.history}).encode()
        headers = {"x-session-id": "mine", "user-agent": "agent/1"}
        entry = await self.call_log.receive(Incoming(CHAT, CHAT.parse(body), "local", headers, CHAT.path, "", at))
        arguments = json.dumps({"path": f"src/part{self.calls}.py"})
        function = {"name": "read", "arguments": arguments}
        called = [{"id": f"c{self.calls}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": f"Part {self.calls}.", "tool_calls": called}
        said = json.dumps({"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
        out = entry.paged.outgoing
        sent = out.digest(entry.recipe.body) if out.changed else ""
        size = out.size if sent else len(body)
        outcome = Outcome(200, said.encode(), 1.0, 2.0, at + 1, sent=sent, sent_size=size if sent else 0)
        uses = (ToolUse(0, f"c{self.calls}", "read", arguments),)
        answer = Answer(text=message["content"], calls=uses, usage=Usage(size // 4, size // 8, output=20))
        self.call_log.answered(entry, answer, outcome, len(body) // 4)
        self.session = entry.session.id
        told = "".join(f"{number}: {SECRET} stands in part {self.calls}\n" for number in range(40))
        self.history += [message, {"role": "tool", "tool_call_id": f"c{self.calls}", "content": told}]

    def go_on(self):
        asyncio.run(self.play(1))

    def answers(self, **settings):
        return Answers(self.store, self.settings.model_copy(update=settings))


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    return Played(tmp_path_factory.mktemp("played"))


@pytest.fixture
def answers(played):
    return played.answers()


def told(answers, what, **asked):
    answer = answers.answer(what, {name: str(value) for name, value in asked.items()})
    assert answer.status == 200, answer
    return json.loads(answer.body)


def refused(answers, what, **asked):
    answer = answers.answer(what, {name: str(value) for name, value in asked.items()})
    return answer.status, json.loads(answer.body)["error"]


def test_the_list_tells_of_every_session(played, answers):
    listed = told(answers, "sessions")
    (line,) = listed["sessions"]
    assert (listed["found"], listed["with_content"], listed["newest"]) == (1, True, listed["seq"])
    assert (line["session"], line["key"], line["calls"], line["changed"]) == (played.session, "mine", 12, True)
    assert line["upstream"] < line["client"]
    assert listed["sums"]["calls"] == 12


def test_the_list_says_nothing_where_nothing_is_new(answers):
    seq = told(answers, "sessions")["seq"]
    assert answers.answer("sessions", {"since": str(seq)}) == (204, b"")
    assert told(answers, "sessions", since=seq - 1)["seq"] == seq


def test_the_list_comes_in_pages(tmp_path):
    store = open_store("memory:")
    for at in range(120):
        store.append(Batch(f"s_{at:03}", float(at), [opened(f"key-{at % 2}"), received()])).result()
    answers = Answers(store, Settings())
    assert [line["session"] for line in told(answers, "sessions")["sessions"]][:2] == ["s_119", "s_118"]
    page = told(answers, "sessions", offset=100, limit=30)
    assert (page["found"], len(page["sessions"]), page["sessions"][-1]["session"]) == (120, 20, "s_000")
    assert told(answers, "sessions", search="key-1")["found"] == 60
    assert len(told(answers, "sessions", offset=-5, limit=0)["sessions"]) == 1
    assert refused(answers, "sessions", offset="x")[0] == 400


def test_a_log_that_is_still_being_read_says_how_far_it_is(tmp_path):
    store = open_store("memory:")
    store.append(Batch("s_1", 1.0, [opened(), *(received(call) for call in range(2999))])).result()
    first = told(Answers(store, Settings(), at_once=0.0), "sessions")
    assert (first["seq"], first["newest"]) == (2000, 3000)


def test_the_outline_tells_what_the_story_does_as_far_as_events_go(played):
    log = list(played.store.events(played.session))
    quick, whole = outline(played.session, log, MODELS), story(played.store, played.session, MODELS, load)
    kept = ("branch", "call", "attempt", "at", "model", "input", "cached", "written", "output", "requests", "calls")
    for one, other in zip(quick.calls, whole.calls, strict=True):
        assert [getattr(one, name) for name in kept] == [getattr(other, name) for name in kept]
        assert (one.cost, one.dollars, one.repack) == (
            pytest.approx(other.cost),
            pytest.approx(other.dollars),
            other.repack,
        )
        assert one.sent.total == pytest.approx(other.sent.total, abs=2)
        assert one.client.total == pytest.approx(other.client.total, rel=0.15)
    assert (quick.session, quick.key, quick.harness, quick.policy) == (
        whole.session,
        whole.key,
        whole.harness,
        whole.policy,
    )


def test_the_outline_estimates_where_nothing_was_reported():
    log = rows(opened(), BranchOpened(0, "root", "chat"), received(), answered())
    (call,) = outline("s_1", log, MODELS).calls
    assert (call.estimated, call.input, call.client.other, call.cost) == (True, 77, 77, 0.0)


def test_the_outline_is_told_anew_only_where_something_is_new(played, answers):
    first = told(answers, "outline", session=played.session)
    assert len(first["story"]["calls"]) == 12
    assert answers.answer("outline", {"session": played.session, "since": str(first["seq"])}).status == 204
    assert told(answers, "outline", session=played.session, since=first["seq"] - 1)["seq"] == first["seq"]


def test_a_story_is_told_anew_only_where_something_is_new(tmp_path):
    mine = Played(tmp_path, calls=3)
    answers = mine.answers()
    first = told(answers, "story", session=mine.session)
    assert answers.answer("story", {"session": mine.session, "since": str(first["seq"])}).status == 204
    assert told(answers, "story", session=mine.session) == first
    mine.go_on()
    second = told(answers, "story", session=mine.session, since=first["seq"])
    assert (len(first["story"]["calls"]), len(second["story"]["calls"])) == (3, 4)
    assert second["seq"] > first["seq"]


def test_only_so_many_stories_are_kept(tmp_path):
    store = open_store("memory:")
    names = [f"s_{at}" for at in range(KEPT + 2)]
    for name in names:
        store.append(Batch(name, 1.0, [opened()])).result()
    answers = Answers(store, Settings())
    assert [len(told(answers, "story", session=name)["story"]["calls"]) for name in names] == [0] * len(names)
    assert list(answers._stories) == names[-KEPT:]


def test_what_a_session_saved_is_what_its_story_says(played, answers):
    sums = told(answers, "sums", session=played.session)
    calls = story(played.store, played.session, MODELS, load).calls
    assert sums["saved"] == pytest.approx(sum(call.cost_before - call.cost for call in calls))
    assert sums["dollars_saved"] == pytest.approx(sum(call.dollars_before - call.dollars for call in calls))
    assert sums["saved"] != 0


def test_nothing_but_a_page_that_is_asked_for_holds_text_of_a_prompt(played, answers):
    for what, asked in [("sessions", {}), ("outline", {}), ("story", {}), ("sums", {})]:
        assert SECRET.encode() not in answers.answer(what, {"session": played.session, **asked}).body
    (page, *_) = told(answers, "story", session=played.session)["story"]["pages"]
    held = told(answers, "page", session=played.session, branch=page.get("branch", 0), name=page["name"])
    assert SECRET in held["content"]
    assert held["about"] == "src/part1.py"
    assert refused(answers, "page", session=played.session, name="pg_0")[0] == 404


def test_where_others_listen_no_text_is_told_at_all(played):
    answers = played.answers(host="0.0.0.0")
    told(answers, "story", session=played.session)
    assert not told(answers, "sessions")["with_content"]
    assert refused(answers, "page", session=played.session, name="x") == (
        403,
        "what pages hold is shown only where the proxy listens on a loopback address",
    )
    why = told(answers, "why", session=played.session, call="0:9")
    assert {row["about"] for row in why["rows"]} == {""}
    everything = [told(answers, name, session=played.session) for name in ("story", "outline", "sums")]
    everything += [told(answers, "why", session=played.session, call=f"0:{call}") for call in range(1, 13)]
    assert any(one["logged"]["repacks"] for one in everything[3:]), "or there is nothing to hide"
    assert all(word not in json.dumps(everything) for word in (SECRET, "src/part"))


def test_errors_of_a_bypass_are_told_only_to_whoever_is_here(tmp_path):
    mine = Played(tmp_path, calls=2)
    bypassed = Bypassed("refused", "400: the prompt says something odd", 0, 2)
    mine.store.append(Batch(mine.session, 2_000.0, [bypassed])).result()
    asked = {"session": mine.session, "call": "0:2"}
    (here,) = told(mine.answers(), "why", **asked)["logged"]["bypasses"]
    (there,) = told(mine.answers(host="0.0.0.0"), "why", **asked)["logged"]["bypasses"]
    assert (here["detail"], there["detail"]) == (bypassed.detail, "")


def test_it_is_told_why_pages_went(played, answers):
    why = told(answers, "why", session=played.session, call="0:9#1")
    assert (why["call"], why["model"]) == (9, MODEL)
    assert any(row["went"] for row in why["rows"])
    assert why["logged"]["repacks"][0]["reason"]
    assert refused(answers, "why", session=played.session, call="0:99")[0] == 404


def test_what_is_not_there_is_said_so(answers):
    assert refused(answers, "nonsense")[0] == 404
    assert refused(answers, "story", session="s_none") == (404, "there is no session 's_none'")
    assert refused(answers, "outline")[0] == 404


def test_a_log_that_can_not_be_read_is_told(tmp_path):
    store = open_store(f"sqlite:{tmp_path}")
    store.close()
    status, error = refused(Answers(store, Settings()), "sessions")
    assert status == 503
    assert "closed" in error


# ---- a process of its own


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    mine = Played(tmp_path_factory.mktemp("disk"), calls=4, kind="sqlite")
    yield mine
    mine.store.close()


def test_another_process_gives_the_same_answers(on_disk):
    async def ask():
        desk = Elsewhere(on_disk.settings)
        try:
            first = [await desk.answer("sessions", {}), await desk.answer("story", {"session": on_disk.session})]
            return [*first, await desk.answer("sessions", {"since": "no number"})]
        finally:
            await desk.close()

    here = on_disk.answers()
    listed, whole, wrong = asyncio.run(ask())
    assert listed == here.answer("sessions", {})
    assert whole == here.answer("story", {"session": on_disk.session})
    assert wrong.status == 200


def test_a_process_that_fails_is_told_and_replaced(on_disk):
    async def ask():
        desk = Elsewhere(on_disk.settings)
        try:
            await desk.answer("sessions", {})
            desk._process.kill()
            failed = await desk.answer("sessions", {})
            return failed, await desk.answer("sessions", {})
        finally:
            await desk.close()

    failed, again = asyncio.run(ask())
    assert failed == FAILED
    assert again.status == 200


def test_a_process_that_nobody_asks_is_ended(on_disk):
    async def ask():
        desk = Elsewhere(on_disk.settings, idle=0.05)
        first = await desk.answer("sessions", {})
        process = desk._process
        await asyncio.wait_for(process.wait(), PATIENCE)
        second = await desk.answer("sessions", {})
        await desk.close()
        await desk.close()
        return first, second

    first, second = asyncio.run(ask())
    assert first == second


def test_a_desk_that_was_never_asked_closes():
    asyncio.run(Elsewhere(Settings()).close())


def test_questions_are_answered_line_by_line(on_disk, tmp_path):
    lines = [on_disk.settings.model_dump_json(), json.dumps(["sessions", {}]), json.dumps(["nonsense", {}])]
    (tmp_path / "asked").write_text("\n".join(lines) + "\n")
    with (tmp_path / "asked").open("rb") as asked, (tmp_path / "told").open("wb") as answers:
        serve(asked, answers)
    first, rest = (tmp_path / "told").read_bytes().split(b"\n", 1)
    status, length = map(int, first.split())
    assert status == 200
    assert json.loads(rest[:length])["found"] == 1
    assert rest[length:].startswith(b"404 ")


# ---- the application


def get(dashboard, path, query="", **headers):
    said = []

    async def send(message):
        said.append(message)

    given = {"host": "127.0.0.1:8787", **{name.replace("_", "-"): value for name, value in headers.items()}}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in given.items()]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": raw}
    asyncio.run(dashboard(scope, None, send))
    start, body = said
    return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body["body"]


@pytest.fixture
def dashboard(played):
    return Dashboard(played.store, played.settings)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/ui/charts.js", "text/javascript; charset=utf-8"),
        ("/ui/charts.css", "text/css; charset=utf-8"),
        ("/ui/dashboard.js", "text/javascript; charset=utf-8"),
        ("/ui/dashboard.css", "text/css; charset=utf-8"),
    ],
)
def test_the_page_and_its_files_are_served_and_nothing_else(dashboard, path, kind):
    status, headers, body = get(dashboard, path)
    assert (status, headers["content-type"], headers["content-length"]) == (200, kind, str(len(body)))
    assert get(dashboard, "/ui/../secrets")[0] == 404
    assert get(dashboard, "/ui/dashboard.html")[0] == 404


def test_no_page_of_ours_may_ask_another_host_or_be_framed(dashboard, played):
    for path in ("/", "/ui/dashboard.js", "/ui/api/sessions", "/ui/none"):
        headers = get(dashboard, path)[1]
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert not any(name.startswith("access-control") for name in headers)


def test_questions_are_answered(dashboard, played):
    status, headers, body = get(dashboard, "/ui/api/sessions", "search=mine&limit=5")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body)["sessions"][0]["session"] == played.session
    seq = json.loads(body)["seq"]
    status, headers, body = get(dashboard, "/ui/api/sessions", f"since={seq}")
    assert (status, body) == (204, b"")
    assert "content-length" not in headers
    assert json.loads(get(dashboard, "/ui/api/story", f"session={played.session}")[2])["story"]["calls"]
    asyncio.run(dashboard.close())


@pytest.mark.parametrize(
    ("host", "own", "ours"),
    [
        ("127.0.0.1:8787", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("LocalHost:8787", "127.0.0.1", True),
        ("[::1]:8787", "127.0.0.1", True),
        ("[::1]", "127.0.0.1", True),
        ("192.168.1.9:8787", "0.0.0.0", True),
        ("box", "box", True),
        ("proxy.example:80", "0.0.0.0", True),
        ("evil.example", "127.0.0.1", False),
        ("evil.example:8787", "127.0.0.1", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("localhost.evil.example:8787", "127.0.0.1", False),
        ("", "127.0.0.1", False),
        ("127.0.0.1:evil", "127.0.0.1", False),
    ],
)
def test_only_browsers_that_were_led_here_by_our_own_name_get_anything(played, host, own, ours):
    settings = Settings(host=own, store="memory", dashboard={"show": "always"}, allowed_hosts=("proxy.example",))
    dashboard = Dashboard(played.store, settings)
    for path in ("/", "/ui/api/sessions"):
        assert get(dashboard, path, host=host)[0] == (200 if ours else 403)


@pytest.mark.parametrize(
    ("site", "status"), [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)]
)
def test_pages_of_others_get_no_answers(dashboard, site, status):
    assert get(dashboard, "/ui/api/sessions", sec_fetch_site=site)[0] == status
    assert get(dashboard, "/", sec_fetch_site=site)[0] == 200


@pytest.mark.parametrize(
    ("show", "host", "shown"),
    [
        ("loopback", "127.0.0.1", True),
        ("loopback", "::1", True),
        ("loopback", "0.0.0.0", False),
        ("always", "0.0.0.0", True),
        ("off", "127.0.0.1", False),
    ],
)
def test_it_is_shown_where_the_settings_say(show, host, shown):
    assert Settings(host=host, dashboard={"show": show}).dashboard.is_shown(host) is shown


class ReadCounted:
    """A store that counts the events that are read from it."""

    def __init__(self, store):
        self._store, self.read = store, 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def events(self, *which, **more):
        for row in self._store.events(*which, **more):
            self.read += 1
            yield row


def test_the_list_of_many_sessions_reads_every_event_once(tmp_path):
    store = open_store(f"sqlite:{tmp_path}")
    usage = Usage(input=1000, cached=800, output=50)
    for at in range(1_500):
        events = [opened(f"key-{at}"), BranchOpened(0, "root", "chat"), received(), answered(usage=usage)]
        last = store.append(Batch(f"s_{at:016x}", float(at), events, urgent=False))
    last.result()
    counted = ReadCounted(store)
    answers = Answers(counted, Settings(data_dir=tmp_path), at_once=0.0)
    listed = [told(answers, "sessions")]
    while listed[-1]["seq"] < listed[-1]["newest"]:
        listed.append(told(answers, "sessions"))
    assert len(listed) > 1, "no answer keeps the others waiting for long"
    assert listed[-1]["found"] == 1_500
    assert told(answers, "sessions", search="key-1499")["found"] == 1
    assert counted.read == 4 * 1_500
    store.close()
