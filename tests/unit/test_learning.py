"""What a log of sessions teaches: whose pages were needed again, and how long branches lasted."""

import asyncio
import json
import math
from hashlib import sha256

import msgspec
import pytest
from chat_items import call, result, say, user
from hypothesis import given
from hypothesis import strategies as st

from instrumentation.learning.describe import told
from instrumentation.learning.learn import (
    OWNERS,
    QUOTED,
    USES,
    Lesson,
    keep,
    learn,
    pauses_in,
    spread,
)
from pager.log.events import (
    BranchOpened,
    CallReceived,
    Learned,
    LegFinished,
    SessionOpened,
    ToolCalled,
    ToolsDecided,
    Warmed,
)
from pager.log.store import Batch, Stored
from pager.log.stores import open_store
from pager.paging.pages.page import tokens_of
from pager.paging.pages.stub import handle_of
from pager.paging.priors import (
    LOG,
    SHIPPED,
    Experience,
    Harness,
    Seen,
    Use,
    decode,
    expected,
    family_of_harness,
    newest,
)
from pager.paging.warmth.returns import Returns, WaitsFor, chance_of_rest
from pager.proxy.call_log import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.request_values import Answer, Usage
from pager.tools.decide_forms import ToolAsSent, Toolset
from pager.wire.dialects import load
from pager.wire.stitching import Leg, LegPart

CHAT = load("chat")
HOUR, DAY = 3_600.0, 86_400.0
BEGUN = 1_000_000.0
LATER = BEGUN + 10 * HOUR
TOOLS = [{"type": "function", "function": {"name": "read"}}]


def text(name, lines=30):
    """What a tool gave: lines that nobody writes by chance."""
    return "\n".join(f"line {at} of {name} says that the harbour is closed" for at in range(lines))


def used(call_id, tool="read", name=""):
    """A tool call with its result, a page."""
    return [call(call_id, tool), result(call_id, text(name or call_id))]


def growing(*steps):
    """The histories of calls each of which adds these messages."""
    histories = [[user("do it")]]
    for step in steps:
        histories.append(histories[-1] + step)
    return histories[1:]


def received(number, branch=0):
    return CallReceived(branch, number, 1, "chat", "/", "m", False, body="", size=0, skeleton="", cuts=[])


def at(time, *events):
    """Events as they are stored at this time."""
    return [Stored(0, "s_1", time, event) for event in events]


def idle(calls, after=0):
    return [[say(f"I think, number {at}."), user()] for at in range(after, after + calls)]


class Log:
    """A log that a real call log has written."""

    def __init__(self, store=None):
        self.store = store or open_store("memory:")

    def played(self, *histories, key="one", harness="claude-cli/2.1.0 (external)", at=BEGUN, **more):
        """Log a session: one call for each history, ``apart`` seconds from each other, each with this ``usage``."""
        asyncio.run(self._play(histories, {"x-session-id": key, "user-agent": harness}, at, more))
        return self

    async def _play(self, histories, headers, at, more):
        apart, usage = more.pop("apart", 1), more.pop("usage", None)
        call_log = CallLog(self.store, load, 100)
        for number, history in enumerate(histories):
            extra = {"tools": TOOLS} if not isinstance(history, dict) else {}
            body = {"model": "m", "messages": history, **extra} if extra else history
            request = CHAT.parse(json.dumps({**body, **more}).encode())
            entry = await call_log.receive(
                Incoming(CHAT, request, "local", headers, CHAT.path, "", at + number * apart)
            )
            answer = Answer(text="Yes.", usage=usage)
            call_log.answered(entry, answer, Outcome(200, b"{}", 1.0, 2.0, at + number), 0)
        await call_log.drain()

    def learned(self, now=LATER):
        return learn(self.store, load, now)

    def harness(self, name="claude-cli", now=LATER):
        return self.learned(now).experience.harnesses[name]


@pytest.fixture(params=["memory", "sqlite"])
def log(request, tmp_path):
    store = open_store(f"{request.param}:{tmp_path}")
    yield Log(store)
    store.close()


def near(needed, *pages):
    """What was seen of pages with these names, each with its age."""
    sums = sum(expected(tokens_of(len(text(name).encode())), age) for name, age in pages)
    return Seen(needed, pytest.approx(sums, abs=0.001))


# Pages


def test_pages_that_were_needed_again_stand_beside_how_many_usually_are(log):
    quoting = [say("It was:\nline 7 of c1 says that the harbour is closed"), user()]
    log.played(*growing(used("c1"), used("c2"), *idle(3), quoting, *idle(1, after=3)))
    assert log.harness().results == {"read": near(QUOTED, ("c1", 6), ("c2", 5))}


def test_a_page_that_was_asked_for_counts_in_full():
    log = Log().played(*growing(used("c1"), *idle(3)), key="one")
    (row,) = [row for row in log.store.events() if isinstance(row.event, CallReceived) and row.event.call == 4]
    leg = msgspec.json.encode(Leg([], []))
    asked = LegFinished(
        0, 4, 1, 1, said=sha256(leg).hexdigest(), body="", size=0, pages=[handle_of(text("c1").encode())]
    )
    log.store.append(Batch(row.session, BEGUN + 4, [asked], {sha256(leg).digest(): leg})).result()
    assert log.harness().results == {"read": near(1.0, ("c1", 3))}


def test_the_answer_that_a_page_was_got_for_does_not_need_it_again():
    quoting = [say("So:\nline 7 of c1 says that the harbour is closed"), user()]
    log = Log().played(*growing(used("c1"), quoting, *idle(4)))
    assert log.harness().results["read"].needed == 0.0


def test_pages_in_their_grace_teach_nothing():
    log = Log().played(*growing(used("c1"), *idle(1), used("c2"), *idle(2)))
    assert log.harness().results == {"read": near(0.0, ("c1", 4))}
    log = Log().played(*growing(used("c1"), *idle(2)))
    assert log.harness().results == {}


def test_tools_and_kinds_are_told_apart():
    written = [call("c2", "write", content=text("w")), result("c2", "fine")]
    log = Log().played(*growing(used("c1", "grep"), written, *idle(4)))
    known = log.harness()
    assert known.results == {"grep": near(0.0, ("c1", 5))}
    assert known.arguments == {"write": near(0.0, ("w", 4))}


def test_a_result_of_a_call_that_nobody_knows_is_of_no_tool():
    log = Log().played(*growing([result("c1", text("c1"))], *idle(4)))
    assert log.harness().results == {}


def test_a_page_that_branches_share_counts_once_where_it_stayed_longest():
    shared = growing(used("c1"), *idle(1))
    first = [shared[-1] + step for step in ([say("a"), user("left")], [say("a"), user("left"), say("b"), user()])]
    second, history = [], shared[-1]
    for at in range(5):
        history = [*history, say(f"right {at}"), user("on")]
        second.append(history)
    known = Log().played(*shared, *first, *second).harness()
    assert known.results == {"read": near(0.0, ("c1", 6))}
    assert known.lengths == (4, 7)


def test_copies_that_were_paged_in_are_pages_of_no_tool():
    content = text("copy")
    function = {"name": "page_in", "arguments": "{}"}
    asked = {"id": "h1", "type": "function", "function": function}
    hidden = Leg(
        [LegPart("text", msgspec.Raw(b'"I look."')), LegPart("call", msgspec.Raw(json.dumps(asked).encode()), True)],
        [msgspec.Raw(json.dumps(result("h1", content)).encode())],
    )
    visible = call("c2", "look", query=text("query"))  # stands in the client's message, which the leg was cut out of
    visible["content"] = "I look."
    history = [user("do it"), *used("c1"), visible, result("c2", text("c2"))]
    blobs, spoken = {}, msgspec.json.encode(hidden)

    def blob(raw):
        blobs[sha256(raw).digest()] = raw
        return sha256(raw).hexdigest()

    def received(number, items, keep):
        messages = [blob(json.dumps(item).encode()) for item in items]
        shared = {"dialect": "chat", "path": "/", "model": "m", "stream": False, "body": "", "size": 0}
        return CallReceived(
            branch=0,
            call=number,
            attempt=1,
            **shared,
            skeleton="",
            cuts=[],
            keep=keep,
            messages=messages,
            parent_branch=0 if keep else None,
        )

    def logged(*, issued):
        events = [
            SessionOpened("local", "k", "x-session-id", "claude-cli/2"),
            BranchOpened(0, "root", "chat"),
            received(1, history[:3], 0),
            LegFinished(0, 1, 1, 1, said=blob(spoken), body="", size=0),
            *([ToolCalled(0, 1, 1, 0, "look", "c2", blob(b"{}"), "")] if issued else []),
            received(2, history[3:], 3),
            *(received(number, [user()], number + 2) for number in range(3, 7)),
        ]
        log = Log()
        log.store.append(Batch("s_1", BEGUN, events, blobs)).result()
        known = log.harness()
        return sorted(known.results), sorted(known.arguments)

    assert logged(issued=True) == (["look", "read"], ["look"])
    assert logged(issued=False) == (["look", "read"], [])


# Branches


def test_branches_count_by_their_calls_from_two_on():
    log = Log().played(*growing(*idle(5)), key="one").played(*growing(*idle(3)), key="two")
    log.played(*growing(*idle(1)), key="three")
    assert log.harness().lengths == (3, 5)


def test_side_requests_do_not_count():
    side = [{"model": "m", "messages": [user("a title"), *idle(at)[-1]]} for at in (1, 2)]
    known = Log().played(*growing(*idle(4)), *side).learned()
    assert known.experience.harnesses["claude-cli"].lengths == (4,)


def test_further_attempts_are_no_calls():
    histories = growing(*idle(3))
    assert Log().played(*histories, histories[-1]).harness().lengths == (3,)


def test_a_branch_whose_opening_is_lost_does_not_count():
    log = Log()
    lost = [
        CallReceived(0, number, 1, "chat", "/", "m", False, body="", size=0, skeleton="", cuts=[]) for number in (1, 2)
    ]
    events = [SessionOpened("local", "k", "x-session-id", "claude-cli/2"), *lost]
    log.store.append(Batch("s_1", BEGUN, events)).result()
    lesson = log.learned()
    assert (lesson.experience, lesson.sessions, lesson.unread) == (SHIPPED, 1, ())


# Pauses


def test_pauses_that_ended_with_a_call_stand_beside_how_many_were_expected_to():
    calling = [*used("c1"), *used("c2")]
    log = Log().played(*growing(calling, *idle(2)), apart=400.0)
    returns = log.learned().experience.pauses["local claude-cli"]
    gone = -math.log(chance_of_rest(WaitsFor.USER, HOUR))
    waited = -math.log(chance_of_rest(WaitsFor.USER, 400.0))
    assert returns == {"user": Returns(2.0, pytest.approx(2 * waited + gone, abs=0.001))}


def test_waiting_for_a_tool_is_told_from_waiting_for_the_user():
    events = [BranchOpened(0, "root", "chat"), received(1), ToolCalled(0, 1, 1, 0, "read", "c1", "", "")]
    rows = [*at(0.0, *events), *at(500.0, received(2)), *at(9_000.0, received(3))]
    tool, user, last = pauses_in(rows)
    assert tool == (500.0, WaitsFor.TOOL, True)
    assert user == (8_500.0, WaitsFor.USER, True)
    assert last == (HOUR, WaitsFor.USER, False)


def test_refreshes_and_side_requests_are_no_calls():
    usage = Usage(40_000, 40_000)
    warmed = Warmed(0, 1, 1, at=280.0, refresh=1, usage=usage, cost=4.0, stake=9.0, lifetime=300.0)
    rows = [*at(0.0, BranchOpened(0, "root", "chat"), received(1)), *at(280.0, warmed)]
    rows += [*at(300.0, BranchOpened(1, "side", "chat"), received(1, branch=1)), *at(500.0, received(2))]
    assert [pause.seconds for pause in pauses_in(rows)] == [500.0, HOUR]


def test_a_session_of_one_call_has_no_pause():
    assert pauses_in(at(0.0, BranchOpened(0, "root", "chat"), received(1))) == []


# Sessions


def test_a_session_counts_once_it_has_rested_for_an_hour():
    log = Log().played(*growing(*idle(3)))
    assert log.learned(BEGUN + HOUR + 1.9).experience == SHIPPED
    assert log.learned(BEGUN + HOUR + 2.0).experience.harnesses["claude-cli"].lengths == (3,)


def test_a_session_that_went_on_does_not_rest():
    histories = growing(*idle(4))
    log = Log().played(*histories[:2])
    asyncio.run(log._play(histories[2:], {"x-session-id": "one", "user-agent": "claude-cli/2.1.0"}, BEGUN + HOUR, {}))
    assert log.learned(BEGUN + 1.5 * HOUR).sessions == 0
    assert log.harness().lengths == (4,)


def test_sessions_of_long_ago_are_left_out():
    log = Log().played(*growing(*idle(3)), key="old").played(*growing(*idle(5)), key="new", at=BEGUN + DAY)
    assert log.harness(now=BEGUN + 90 * DAY).lengths == (3, 5)
    assert log.harness(now=BEGUN + 90 * DAY + 3).lengths == (5,)
    assert log.learned(BEGUN + 92 * DAY).experience == SHIPPED


def test_only_the_newest_sessions_are_looked_at():
    log = Log()
    for at in range(3):
        log.played(*growing(*idle(2 + at)), key=str(at))
    lesson = learn(log.store, load, LATER, 2)
    assert (lesson.sessions, lesson.experience.harnesses["claude-cli"].lengths) == (2, (3, 4))


def test_versions_of_a_client_share_what_they_teach():
    log = Log()
    for at, harness in enumerate(["claude-cli/2.1.0 (x)", "claude-cli/2.2.0", "codex_cli_rs/0.1", ""]):
        log.played(*growing(*idle(2 + at)), key=str(at), harness=harness)
    known = log.learned().experience.harnesses
    assert {name: one.lengths for name, one in known.items()} == {
        "claude-cli": (2, 3),
        "codex_cli_rs": (4,),
        "": (5,),
    }


def test_a_session_goes_by_what_any_version_of_its_client_taught():
    known = Experience({"claude-cli": Harness({"read": Seen(60.0, 20.0)}, {}, [30] * 20)})
    assert known.usual("claude-cli/9.9", "read", argument=False) == 2.0
    assert known.usual("claude", "read", argument=False) == 1.0
    assert known.to_go("claude-cli/9.9", 10) == 20.0
    assert known.to_go("other/1", 10) is None


@pytest.mark.parametrize(
    ("harness", "family"), [("claude-cli/2.1.0", "claude-cli"), ("pi", "pi"), ("", ""), ("x" * 99, "x" * 64)]
)
def test_the_family_of_a_client_is_its_name_without_a_version(harness, family):
    assert family_of_harness(harness) == family
    assert family_of_harness(family) == family


# Size and order


def test_the_same_log_teaches_the_same_wherever_it_is_kept(tmp_path):
    stores = [open_store("memory:"), open_store(f"sqlite:{tmp_path}")]
    lessons = []
    for store in stores:
        log = Log(store).played(*growing(used("c1"), *idle(4)), key="one")
        log.played(*growing(used("c2", "grep"), used("c3"), *idle(4)), key="two")
        lessons += [log.learned(), log.learned()]
        store.close()
    assert [lesson.experience.encode() for lesson in lessons] == [lessons[0].experience.encode()] * 4
    assert len({lesson.experience.version for lesson in lessons}) == 1
    assert decode(lessons[0].experience.encode()).encode() == lessons[0].experience.encode()


def test_the_order_of_sessions_does_not_matter():
    sessions = {str(at): growing(*(used(f"c{at}{n}", f"tool{n}") for n in range(at + 1)), *idle(4)) for at in range(4)}
    forward, backward = Log(), Log()
    for key, histories in sessions.items():
        forward.played(*histories, key=key)
    for key, histories in reversed(sessions.items()):
        backward.played(*histories, key=key)
    assert forward.learned().experience.version == backward.learned().experience.version


@pytest.mark.parametrize(("cached", "lifetimes"), [(9_900, {"local chat m": 420.0}), (0, {})])
def test_a_pause_that_a_cached_prompt_outlived_teaches_its_lifetime(cached, lifetimes):
    usage = Usage(10_000, cached, tells_cached=True)
    log = Log().played(*growing([user("x" * 40_000)], *idle(2)), apart=420, usage=usage)
    assert log.learned().experience.lifetimes == lifetimes


def test_only_the_tools_with_most_pages_are_kept():
    rare = [message for at in range(80) for message in used(f"c{at}", f"tool{at:02}")]
    often = [message for at in range(3) for message in used(f"o{at}", "zoom")]
    known = Log().played(*growing(rare + often, *idle(4))).harness()
    assert sorted(known.results) == [*(f"tool{at:02}" for at in range(63)), "zoom"]


def test_only_the_clients_with_most_sessions_are_kept():
    log = Log()
    for at in range(66):
        log.played(*growing(*idle(2)), key=str(at), harness=f"client{at:02}")
    log.played(*growing(*idle(3)), key="again", harness="client65")
    known = log.learned().experience
    assert sorted(known.harnesses) == [*(f"client{at:02}" for at in range(63)), "client65"]


@given(st.lists(st.integers(2, 10_000)).map(sorted), st.integers(2, 40))
def test_lengths_are_thinned_out_evenly(lengths, most):
    kept = spread(lengths, most)
    assert list(kept) == sorted(kept)
    assert len(kept) == min(len(lengths), most)
    assert kept[:1] == tuple(lengths[:1])
    assert kept[-1:] == tuple(lengths[-1:])


def test_an_even_list_stays_even_when_it_is_thinned_out():
    assert spread(range(1, 101), 12) == tuple(range(1, 101, 9))


# Tools


def offering(*names, branch=0):
    """The event of a decision on tools of these names, and its blob."""
    content = Toolset(" ".join(names), [ToolAsSent(name, "whole", "", 9, 9) for name in names]).encode()
    event = ToolsDecided(branch, 1, 1, decision=sha256(content).hexdigest(), offered="", reason="")
    return event, {sha256(content).digest(): content}


def calling(*tools):
    return [ToolCalled(0, 1, 1, at, tool, f"c{at}", "", "") for at, tool in enumerate(tools)]


def taught(log, name, decisions, called=(), tenant="local", harness="goose/1.0"):
    """Log a session in which these lists of tools were decided on, and these tools called."""
    opened = [SessionOpened(tenant, name, "x-session-id", harness), BranchOpened(0, "root", "chat")]
    made = [offering(*names) for names in decisions]
    blobs = {digest: content for _, blob in made for digest, content in blob.items()}
    events = [*opened, *(event for event, _ in made), *calling(*called)]
    log.store.append(Batch(f"s_{name}", BEGUN, events, blobs)).result()
    return log


def test_tools_that_were_offered_stand_beside_those_that_were_called(log):
    taught(log, "one", [["find", "close"]], ["find"])
    taught(log, "two", [["find", "close"]])
    taught(log, "three", [["find"]], ["find"])
    known = log.learned()
    assert known.experience.tools == {"local goose": {"find": Use(3, 2), "close": Use(2, 0)}}
    assert decode(known.experience.encode()) == known.experience
    assert keep(log.store, known, LATER)
    assert log.store.check().problems == ()


def test_a_session_counts_once_for_each_tool_however_often_it_is_offered_and_called():
    log = taught(Log(), "one", [["find"], ["find", "close"], ["find"]], ["find", "find", "find"])
    assert log.learned().experience.tools == {"local goose": {"find": Use(1, 1), "close": Use(1, 0)}}


def test_a_call_of_a_tool_that_was_not_offered_does_not_count():
    log = taught(Log(), "one", [["find"]], ["page_in", "elsewhere"])
    assert log.learned().experience.tools == {"local goose": {"find": Use(1, 0)}}


def test_sessions_in_which_nothing_was_decided_teach_nothing_of_tools():
    log = taught(Log(), "one", [], ["find"]).played(*growing(used("c1"), *idle(4)))
    taught(log, "none", [[]], ["find"])
    lesson = log.learned()
    assert lesson.experience.tools == {}
    assert lesson.sessions == 3


def test_tenants_and_client_programs_are_told_apart():
    log = Log()
    taught(log, "one", [["find"]], ["find"], tenant="key:ab", harness="goose/1.0")
    taught(log, "two", [["find"]], tenant="key:ab", harness="goose/2.0")
    taught(log, "three", [["secret"]], tenant="key:cd")
    taught(log, "four", [["find"]], tenant="key:ab", harness="")
    assert log.learned().experience.tools == {
        "key:ab goose": {"find": Use(2, 1)},
        "key:cd goose": {"secret": Use(1, 0)},
        "key:ab ": {"find": Use(1, 0)},
    }


def test_the_tools_called_most_are_kept_then_those_offered_most():
    many = [f"tool{at:03}" for at in range(USES)]
    log = taught(Log(), "one", [[*many, "zz_called", "zz_offered"]], ["zz_called"])
    taught(log, "two", [["zz_offered", "x" * 129]])
    (kept,) = log.learned().experience.tools.values()
    assert kept == {"zz_called": Use(1, 1), "zz_offered": Use(2, 0)} | dict.fromkeys(many[:-2], Use(1, 0))


def test_the_tenants_with_most_sessions_are_kept_and_what_is_kept_is_small():
    log = Log()
    many = [f"{at:064}" for at in range(USES + 9)]
    for at in range(OWNERS + 2):
        taught(log, str(at), [many], tenant=f"tenant{at:03}")
    taught(log, "again", [["find"]], tenant=f"tenant{OWNERS + 1:03}")
    known = log.learned().experience
    kept = [*(f"tenant{at:03} goose" for at in range(OWNERS - 1)), f"tenant{OWNERS + 1:03} goose"]
    assert sorted(known.tools) == kept
    assert len(known.encode()) < 3_000_000


listed = st.lists(st.sampled_from(["find", "close", "read", "Read"]), min_size=1, max_size=4, unique=True)
lived = st.tuples(listed, st.lists(st.sampled_from(["find", "close", "read"]), max_size=3), st.sampled_from("ab"))


@given(st.lists(lived, max_size=5), st.randoms())
def test_the_order_of_sessions_does_not_matter_to_tools_either(sessions, random):
    numbered = [*enumerate(sessions)]
    versions = []
    for _ in range(2):
        log = Log()
        for at, (offered, called, tenant) in numbered:
            taught(log, str(at), [offered], called, tenant)
        versions.append(log.learned().experience.version)
        random.shuffle(numbered)
    assert versions[0] == versions[1]


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1", b'["x",[["find"]]]', b"\xff"])
def test_a_decision_that_cant_be_read_does_not_spoil_the_lesson(content):
    log = taught(Log(), "fine", [["find"]], ["find"])
    opened = [SessionOpened("local", "k", "x-session-id", "goose/1"), BranchOpened(0, "root", "chat")]
    digest = sha256(content or b"nowhere").digest()
    broken = ToolsDecided(0, 1, 1, decision=digest.hex(), offered="", reason="")
    blobs = {} if content is None else {digest: content}
    log.store.append(Batch("s_broken", BEGUN, [*opened, broken, *calling("find")], blobs)).result()
    lesson = log.learned()
    assert lesson.experience.tools == {"local goose": {"find": Use(1, 1)}}
    assert (lesson.sessions, [line.split(":")[0] for line in lesson.unread]) == (1, ["s_broken"])


def test_what_was_learned_of_tools_is_told_in_a_table():
    tools = {"open": Use(20, 15), "close": Use(20, 1), "Read": Use(8, 0), "Bash": Use(40, 0)}
    lines = told(Lesson(Experience(tools={"key:ab goose": tools}), 40, 7)).splitlines()
    assert lines[0] == "goose of key:ab: 4 tools, by the sessions that were offered and called them"
    assert lines[1:6] == [
        "  tool   sent   offered  called  chance",
        "  open   whole       20      15    0.65",
        "  close  short       20       1    0.09",
        "  Bash   short       40       0    0.10",
        "  Read   whole        8       0    0.35",
    ]
    assert lines[7].startswith("version ")


def test_of_many_tools_the_rest_is_told_in_one_line():
    tools = {f"tool{at:02}": Use(3, int(at < 41)) for at in range(60)}
    lines = told(Lesson(Experience(tools={"local ": tools}), 3, 7)).splitlines()
    assert lines[0].startswith("(a client that does not name itself) of local: 60 tools")
    assert [line.split()[0] for line in lines[2:42]] == [f"tool{at:02}" for at in range(40)]
    assert lines[42] == "  and 20 more, called in 1 sessions at the most"


# What can't be read


def test_a_session_that_cant_be_folded_is_passed_over_and_told():
    log = Log().played(*growing(used("c1"), *idle(4)))
    missing = CallReceived(
        0, 1, 1, "chat", "/", "m", False, body="", size=0, skeleton="", cuts=[], messages=["00" * 32]
    )
    opened = [SessionOpened("local", "k", "x-session-id", "claude-cli/2"), BranchOpened(0, "root", "chat")]
    log.store.append(Batch("s_broken", BEGUN, [*opened, missing])).result()
    nonsense = CallReceived(0, 1, 1, "chat", "/", "m", False, body="", size=0, skeleton="", cuts=[], messages=["?"])
    log.store.append(Batch("s_nonsense", BEGUN, [*opened, nonsense])).result()
    log.store.append(Batch("s_unknown", BEGUN, [opened[0], BranchOpened(0, "root", "morse")])).result()
    lesson = log.learned()
    assert lesson.sessions == 1
    assert lesson.experience.harnesses["claude-cli"].results == {"read": near(0.0, ("c1", 4))}
    assert [line.split(":")[0] for line in sorted(lesson.unread)] == ["s_broken", "s_nonsense", "s_unknown"]
    assert "could not be read, and is left out: s_broken: the log refers to content 00" in told(lesson)


# Keeping it


def test_a_lesson_is_logged_once(log):
    log.played(*growing(used("c1"), *idle(4)))
    last = max(row.seq for row in log.store.events())
    lesson = log.learned()
    assert (lesson.sessions, lesson.upto) == (1, last)
    assert keep(log.store, lesson, LATER)
    assert not keep(log.store, log.learned(), LATER + 1)
    (row,) = log.store.events(LOG)
    version = lesson.experience.version
    assert (row.at, row.event) == (LATER, Learned(version, 1, last))
    assert newest(log.store.events(LOG)) == (version, LATER)
    assert log.store.blob(bytes.fromhex(version)) == lesson.experience.encode()
    assert log.store.check().problems == ()


def test_what_changed_is_logged_anew():
    log = Log().played(*growing(*idle(3)))
    keep(log.store, log.learned(), LATER)
    log.played(*growing(*idle(4)), key="two")
    again = log.learned()
    assert keep(log.store, again, LATER + DAY)
    assert newest(log.store.events(LOG)) == (again.experience.version, LATER + DAY)


def test_nothing_is_logged_where_nothing_was_learned():
    log = Log()
    assert not keep(log.store, log.learned(), LATER)
    assert list(log.store.events()) == []
    assert newest(log.store.events(LOG)) is None
    assert (
        told(log.learned()) == "there is nothing to learn yet: sessions count once an hour has passed without a call\n"
    )
