"""What goes wrong while prompts are paged: the client is never worse off than without the proxy."""

import asyncio
import gzip
import json
import re
import threading
import time
from functools import partial

import anthropic
import httpx2
import openai
import pytest
import zstandard
from waiting import PATIENCE

from pager.config.settings import UpstreamSettings
from pager.log.events import (
    AttemptFailed,
    Bypassed,
    LegFinished,
    Repacked,
)
from pager.log.stores import open_store
from pager.paging.pager import Pager
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.pricing.rates import in_force
from pager.proxy.attempt import Attempt
from pager.proxy.call_log import CallLog
from pager.proxy.hidden_leg_retries import RetryLimits
from pager.proxy.log_records import Incoming
from pager.proxy.page_in_loop import FaultLoop, LoopSettings
from pager.proxy.relay import Relay
from pager.proxy.request_body import GIVEN
from pager.proxy.upstream import Upstream
from pager.testing.scripted import (
    Call,
    Drop,
    Fail,
    Gated,
    Overflowing,
    PageIn,
    Picky,
    Reply,
    Say,
    Slow,
    Stumble,
)
from pager.testing.scripted.page_requests import getter, handles
from pager.testing.scripted.prompt_cache import size
from pager.wire import dialects

DONE = Say("All parts are fine. ☔")
ERRORS = (openai.APIError, anthropic.APIError, httpx2.HTTPError)


def is_paged(received):
    return bool(getter(received.json()))


def bypasses(stage, agent):
    return [(event.reason, event.call) for event in stage.log(agent, Bypassed)]


# The provider refuses what we sent


def test_a_tool_that_the_provider_refuses_is_taken_back_for_good(stage, wire, stream):
    stage.refusals, stage.lawful = True, False
    stage.play(Picky(stage.look(4)), Picky(stage.look(5)), Picky(DONE))
    agent = stage.agent(wire, stream=stream).opened()
    assert [turn.text for turn in agent.run()] == ["", "", DONE.text]
    refused, accepted = agent.legs[4]
    assert is_paged(refused)
    assert not is_paged(accepted)
    later = [accepted, *agent.legs[5], *agent.legs[6]]
    assert [received.body for received in later] == agent.tee.sent[4:]
    assert bypasses(stage, agent) == [("refused", 5)]


def test_paging_goes_on_in_other_branches_after_a_refusal(stage, wire):
    stage.refusals, stage.lawful = True, False
    stage.play(Picky(DONE))
    agent = stage.agent(wire).opened()
    agent.ask()
    stage.play(PageIn(DONE))
    other = stage.agent(wire, session=agent.session)
    other.history = [{"role": "user", "content": "Look at other things."}]
    other.opened().ask()
    assert len(other.legs[-1]) == 2
    assert other.turns[-1].text == DONE.text


@pytest.mark.parametrize("status", [400, 422])
def test_a_request_that_is_refused_as_it_came_does_not_stop_paging(stage, wire, stream, status, outcome):
    stage.play(Fail(status, message="no, thanks"), Fail(status, message="no, thanks"), PageIn(DONE))
    agent = stage.agent(wire, stream=stream).opened()
    kind, told, _, body = outcome(agent.ask)
    assert (issubclass(kind, ERRORS), told) == (True, status)
    assert "no, thanks" in str(body)
    assert [is_paged(received) for received in agent.legs[-1]] == [True, False]
    assert agent.legs[-1][1].body == agent.tee.sent[-1]
    stage.lawful = False
    assert agent.ask().text == DONE.text
    assert [is_paged(received) for received in agent.legs[-1]] == [True, True]
    assert ("refused", 5) not in bypasses(stage, agent)


FAILURES = [
    Fail(401),
    Fail(429, headers={"retry-after": "7", "x-should-retry": "false"}),
    Fail(500),
    Fail(503, b"upstream connect error", {"content-type": "text/plain"}),
    Fail(529, headers={"retry-after-ms": "7000", "x-should-retry": "false"}),
]


@pytest.mark.parametrize("fail", FAILURES, ids=lambda fail: str(fail.status))
def test_errors_are_the_providers(stage, wire, stream, outcome, fail):
    seen = []
    for direct in (True, False):
        stage.play(fail, PageIn(DONE))
        agent = stage.agent(wire, stream=stream, direct=direct).opened()
        seen.append(outcome(agent.ask))
        assert len(agent.legs[-1]) == 1
        assert agent.ask().text == DONE.text  # another attempt
    assert seen[1] == seen[0]
    assert set(fail.headers.items()) <= set(seen[1][2])
    assert [event.status for event in stage.log(agent, AttemptFailed, count=1)] == [fail.status]


def test_a_provider_that_hangs_up_without_a_word_is_told_as_a_502(stage, wire, stream, outcome):
    stage.play(Drop(0), Drop(0), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    assert outcome(agent.ask)[1] == 502
    assert agent.ask().text == DONE.text


# A hidden leg fails


def test_a_hidden_leg_that_breaks_off_in_its_text_breaks_the_answer_off(stage, wire, outcome):
    stage.play(PageIn(Stumble(5, Say("Half of this gets lost on its way."))), PageIn(DONE, pages=2))
    agent = stage.agent(wire).opened()
    assert issubclass(outcome(agent.ask)[0], (*ERRORS, RuntimeError))  # which Responses raises without an end
    assert len(agent.legs[-1]) == 2
    assert [event.call for event in stage.log(agent, AttemptFailed, count=1)] == [5]
    stage.lawful = False
    assert agent.ask().text == DONE.text  # another attempt begins anew
    assert len(agent.legs[-1]) == 2


def test_a_hidden_leg_that_is_refused_is_followed_by_the_clients_own_request(stage, wire, stream):
    stage.lawful = False
    stage.play(PageIn(Fail(400, message="no such thing")), DONE, stage.look(5), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    assert agent.ask().text == DONE.text
    assert [is_paged(received) for received in agent.legs[-1]] == [True, True, False]
    assert agent.legs[-1][2].body == agent.tee.sent[-1]
    assert bypasses(stage, agent) == [("refused", 5)]
    agent.user("Go on.")
    agent.run()
    assert [legs[0].body for legs in agent.legs[5:]] == agent.tee.sent[5:]


def test_a_hidden_leg_that_is_refused_after_a_text_was_shown_is_an_error(stage, wire, stream, outcome):
    """A stream can't begin anew; an answer in one piece has not begun."""
    stage.lawful = False
    stage.play(PageIn(Fail(400, message="no such thing"), text="Let me see."), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    if stream:
        assert issubclass(outcome(agent.ask)[0], (*ERRORS, RuntimeError))
        assert len(agent.legs[-1]) == 2
    else:
        assert agent.ask().text == DONE.text
        assert [is_paged(received) for received in agent.legs[-1]] == [True, True, False]


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
def test_an_answer_that_can_not_be_read_is_passed_on_as_it_came(stage, wire, kind):
    odd = Reply(200, b"<html>What?</html>", {"content-type": kind, "x-any": "thing"})
    stage.play(odd, PageIn(odd))
    agent = stage.agent(wire).opened()
    headers = {"x-session-id": agent.session}
    with httpx2.Client(trust_env=False) as http:
        for legs in (1, 2):
            before = len(stage.received)
            answer = http.post(agent.root + agent.path, json=agent.body(), headers=headers)
            assert (answer.status_code, answer.content) == (200, odd.body)
            assert (answer.headers["content-type"], answer.headers["x-any"]) == (kind, "thing")
            assert len(stage.received) == before + legs
            assert is_paged(stage.received[-1])


def test_an_answer_that_is_compressed_all_the_same_is_read(stage, wire, stream):
    stage.play(DONE)
    plain = stage.agent(wire, stream=stream, direct=True).opened().ask().raw
    kind = "text/event-stream" if stream else "application/json"
    packed = Reply(200, gzip.compress(plain), {"content-type": kind, "content-encoding": "gzip"})
    stage.play(packed, PageIn(packed))
    agent = stage.agent(wire, stream=stream).opened()
    assert agent.ask().text == DONE.text
    agent.user("Again.")
    assert agent.ask().text == DONE.text
    assert [received.header("accept-encoding") for received in agent.legs[-1]] == ["identity"] * 2


# The prompt does not fit the window


def test_a_prompt_that_does_not_fit_is_made_to_fit(stage, wire, stream):
    stage.refusals = True
    model = f"small-{wire}-{stream}"  # the proxy remembers what it learned of a model
    script = [stage.read(1, 2, 3), Overflowing(1700, stage.look(1)), Overflowing(1700, PageIn(DONE, lines="7"))]
    stage.play(*script, opening=False)
    agent = stage.agent(wire, stream=stream, model=model)
    assert [turn.text for turn in agent.run()] == ["", "", DONE.text]
    assert [bool(received.refused) for received in agent.legs[1]] == [True, False]
    assert [bool(received.refused) for received in agent.legs[2]] == [False, False]
    assert [is_paged(received) for legs in agent.legs for received in legs] == [False, False, True, True, True]
    assert stage.page("src/part1.py").splitlines()[6] in str(agent.sent[-1])
    assert [event.cause for event in stage.log(agent, Repacked)] == ["rescue"]
    assert bypasses(stage, agent) == []


@pytest.mark.parametrize("text", ["", "Let me see. "], ids=["hidden", "shown"])
def test_a_hidden_leg_that_does_not_fit_is_made_to_fit(stage, wire, stream, text):
    stage.refusals = True
    stage.play(stage.read(4, 5), stage.look(4), PageIn(Overflowing(4200, DONE), pages=3, text=text))
    agent = stage.agent(wire, stream=stream, model=f"medium-{wire}-{stream}-{bool(text)}").opened()
    assert agent.run()[-1].text == text + DONE.text
    assert [bool(received.refused) for received in agent.legs[-1]] == [False, True, False]
    assert [event.cause for event in stage.log(agent, Repacked)] == ["policy", "rescue"]


TOO_LONG = {
    "chat": b'data: {"error":{"message":"maximum context length is 1700 tokens","code":"context_length_exceeded"}}\n\n',
    "messages": b'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error",'
    b'"message":"prompt is too long: 2800 tokens > 1700 maximum"}}\n\n',
    "responses": b'event: error\ndata: {"type":"error","sequence_number":0,"code":"context_length_exceeded",'
    b'"message":"maximum context length is 1700 tokens","param":null}\n\n',
}


def test_a_prompt_that_is_refused_inside_its_stream_is_made_to_fit(stage, wire):
    """Where nothing is left that could go, as in the second call, the error is the client's."""
    stage.lawful = False
    refusal = Reply(200, TOO_LONG[wire], {"content-type": "text/event-stream"})
    stage.play(stage.read(4, 5), refusal, stage.look(5), refusal)
    agent = stage.agent(wire, model=f"streaming-{wire}").opened()
    agent.run(2)
    assert [name for _, name, _ in agent.turns[-1].calls] == ["look"]
    assert len(agent.legs[-1]) == 2
    assert [event.cause for event in stage.log(agent, Repacked)] == ["policy", "rescue"]
    with httpx2.Client(trust_env=False) as http:
        headers = {"x-session-id": agent.session}
        answer = http.post(agent.root + agent.path, json=agent.body(stream=True), headers=headers)
    assert answer.content == TOO_LONG[wire]


def test_a_prompt_that_can_not_be_made_to_fit_is_told_so(stage, wire, stream, outcome):
    stage.refusals, stage.lawful = True, False
    stage.play(Overflowing(10, DONE))
    agent = stage.agent(wire, stream=stream, model=f"tiny-{wire}-{stream}").opened()
    kind, status, _, body = outcome(agent.ask)
    assert (issubclass(kind, ERRORS), status) == (True, 400)
    assert "10" in str(body)
    assert bypasses(stage, agent) == []


NARROW = [("chat", "src"), ("chat", "dense"), ("messages", "src"), ("responses", "src")]
WINDOW = 10_000


@pytest.fixture(scope="module")
def _narrow_proxy(_model, running, tmp_path_factory):
    """A proxy that evicts only where a prompt does not fit."""
    models = [f'"narrow-{wire}-{kind}" = {{ window = {WINDOW}, output_limit = 1000 }}' for wire, kind in NARROW]
    models.append(f'"held" = {{ window = {WINDOW}, input = 3.0, output = 15.0, cached = 0.3, written = 3.75 }}')
    flags = ("--policy", "fifo_age", "--paging-policy-options", "{ age = 1000 }")
    folder = tmp_path_factory.mktemp("narrow") / "data"
    with running(_model.url, folder, *flags, "--models", "{ " + ", ".join(models) + " }") as proxy:
        yield proxy


@pytest.fixture
def narrow(scripted, _narrow_proxy, open_stage):
    with open_stage(_narrow_proxy) as stage:
        yield stage


@pytest.mark.parametrize(("wire", "kind"), NARROW)
def test_a_session_outlives_its_window(narrow, wire, kind):
    narrow.refusals = True  # a count of ours that is too low costs one refused request, and then the prompt is rescued
    reads = [Say(calls=[Call("read", {"path": f"{kind}/part{n}.py"})]) for n in range(42)]
    asked = [PageIn(answer) if n > 12 and n % 5 == 0 else answer for n, answer in enumerate(reads)]
    narrow.play(*(Overflowing(WINDOW, answer) for answer in asked), DONE, opening=False)
    agent = narrow.agent(wire, stream=False, model=f"narrow-{wire}-{kind}")
    assert agent.run()[-1].text == DONE.text
    assert size(agent.wire.prompt(agent.body())) > 3 * WINDOW
    taken = [received for received in narrow.received if not received.refused]
    assert WINDOW / 2 < max(size(agent.wire.prompt(received.json())) for received in taken) <= WINDOW
    legs = narrow.log(agent, LegFinished)
    assert len(legs) == 6
    assert all(event.pages for event in legs)
    repacks = narrow.log(agent, Repacked)
    assert {event.cause for event in repacks} == {"rescue"}
    assert len(narrow.received) - len(taken) <= len(repacks) < len(asked) / 3


def test_a_prompt_that_the_provider_still_holds_is_not_shortened_before_it_is_refused(narrow):
    """To shorten it costs all that is cached, and a refusal costs nothing: the window may be larger than we know."""
    narrow.play(*(Say(calls=[Call("read", {"path": f"src/part{n}.py"})]) for n in range(20)), DONE, opening=False)
    agent = narrow.agent("chat", stream=False, model="held")
    assert agent.run()[-1].text == DONE.text
    assert size(agent.wire.prompt(agent.sent[-1])) > 1.5 * WINDOW
    assert narrow.log(agent, Repacked) == []


# Calls that are not to be paged


def test_a_call_with_the_bypass_header_goes_out_as_it_came(stage, wire, stream):
    stage.lawful = False
    stage.play(stage.look(4), stage.look(5), PageIn(DONE))
    agent = stage.agent(wire, stream=stream).opened()
    agent.run(1)
    agent.run(1, extra_headers={"X-Pager-Bypass": "1"})
    assert agent.legs[-1][0].body == agent.tee.sent[-1]
    assert not [name for name, _ in agent.legs[-1][0].headers if name.lower().startswith("x-pager")]
    assert bypasses(stage, agent) == [("asked", 6)]
    agent.run()
    before, after = (stage.pieces(agent, legs[0]) for legs in (agent.legs[4], agent.legs[6]))
    assert after[: len(before)] == before
    assert len(agent.legs[6]) == 2


CHOICES = {
    "chat": [
        {"tools": None},
        {"tool_choice": "required"},
        {"tool_choice": "none"},
        {"tool_choice": {"type": "function", "function": {"name": "look"}}},
        {"n": 2},
        {"logprobs": True},
    ],
    "messages": [
        {"tools": None},
        {"tool_choice": {"type": "any"}},
        {"tool_choice": {"type": "none"}},
        {"tool_choice": {"type": "tool", "name": "look"}},
    ],
    "responses": [
        {"tools": None},
        {"tool_choice": "required"},
        {"tool_choice": "none"},
        {"tool_choice": {"type": "function", "name": "look"}},
        {"background": True},
    ],
}


@pytest.mark.parametrize(
    ("wire", "more"),
    [(wire, more) for wire, choices in CHOICES.items() for more in choices],
    ids=[f"{wire}-{next(iter(more))}-{at}" for wire, choices in CHOICES.items() for at, more in enumerate(choices)],
)
def test_a_call_that_can_not_carry_the_tool_goes_out_in_full(stage, wire, more):
    stage.lawful = False
    stage.play(stage.look(4), Say("In between."), stage.look(5), PageIn(DONE))
    agent = stage.agent(wire, stream=False).opened()
    agent.run(1)
    own = stage.agent(wire, stream=False, session=agent.session)
    own.history = list(agent.history)
    assert own.ask(**more).text == "In between."
    [received] = own.legs[-1]
    sent = received.json()
    assert handles(sent) == []
    assert not getter(sent)
    assert stage.pieces(own, received) == stage.pieces(own, type(received)("", "", (), 0, own.tee.sent[-1]))
    assert agent.run()[-1].text == DONE.text
    before, after = (stage.pieces(agent, legs[0]) for legs in (agent.legs[4], agent.legs[5]))
    assert after[: len(before)] == before


# Time


def test_a_client_that_leaves_during_a_hidden_leg_is_gone_upstream(stage, wire, stream, outcome, eventually):
    stage.play(PageIn(Slow(600, DONE)), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    assert issubclass(outcome(lambda: agent.ask(timeout=2.0))[0], ERRORS)
    assert len(agent.legs[-1]) == 2
    assert eventually(lambda: agent.legs[-1][1].left_at)
    assert [event.phase for event in stage.log(agent, AttemptFailed, count=1)] == ["client"]
    stage.lawful = False
    assert agent.ask().text == DONE.text


def test_each_event_of_a_paged_call_is_passed_on_before_the_next_is_sent(stage, wire):
    stage.play(Gated(DONE))
    agent = stage.agent(wire).opened()
    headers = {"x-session-id": agent.session, "anthropic-version": "2023-06-01"}
    with httpx2.Client(trust_env=False, timeout=PATIENCE) as http:
        request = http.stream("POST", agent.root + agent.path, json=agent.body(stream=True), headers=headers)
        with request as answer:
            chunks = answer.iter_raw()
            for sent in range(1, 7):
                assert next(chunks).endswith(b"\n\n")
                assert is_paged(stage.received[-1])
                assert stage.received[-1].sent == sent
                stage.scripted.release()
            stage.scripted.release(100)
            assert b"".join(chunks)


@pytest.mark.parametrize(("wire", "events"), [("chat", 3), ("messages", 5), ("responses", 6)])
def test_what_is_said_after_hidden_legs_is_passed_on_at_once(stage, wire, events, eventually):
    """So many events bring the second word; those after it are not sent before the client has that word."""
    stage.play(PageIn(Gated(DONE)))
    agent = stage.agent(wire).opened()
    headers = {"x-session-id": agent.session, "anthropic-version": "2023-06-01"}
    got = bytearray()
    with httpx2.Client(trust_env=False, timeout=PATIENCE) as http:
        request = http.stream("POST", agent.root + agent.path, json=agent.body(stream=True), headers=headers)
        with request as answer:
            reading = threading.Thread(target=lambda: [got.extend(chunk) for chunk in answer.iter_raw()])
            reading.start()
            stage.scripted.release(events - 1)
            assert eventually(lambda: b"parts" in got)
            assert stage.received[-1].sent == events
            stage.scripted.release(100)
            reading.join()
    assert b"fine" in got


BUSY = PageIn(Fail(529, headers={"retry-after": "0.6"}))
STILL = {"leg": (PageIn(Slow(0.6, DONE)),), "held": (Gated(PageIn(DONE, pages=3)),), "waiting": (BUSY, DONE)}


@pytest.mark.parametrize("answers", STILL.values(), ids=STILL)
def test_a_stream_that_stands_still_gets_heartbeats(stage, backstage, wire, answers):
    """Driven without the server, which lets ten seconds pass before it sends one."""
    stage.play()
    agent = stage.agent(wire).opened()
    dialect = dialects.load(wire)
    calls = [*agent.tee.sent, json.dumps(agent.body(stream=True)).encode()]
    stage.play(*answers, opening=False)
    got = backstage.run(_beaten(stage.scripted, dialect, calls))
    assert got.count(dialect.heartbeat) >= 3
    assert b"fine" in b"".join(got)
    assert not re.search(rb"page_in|pg_[0-9a-f]", b"".join(got))
    assert len(stage.received) == 1 + len(answers)


def test_a_compressed_stream_is_unpacked_and_passed_on_in_small_pieces(stage, backstage):
    """However much is packed into it, no more than a few pieces of it are in memory."""
    text = b"x" * 1_000
    event = b'data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
    packed = gzip.compress(event % text * 8_000 + b"data: [DONE]\n\n")
    assert len(packed) < GIVEN, "all of it comes in at once"
    stage.play()
    agent = stage.agent("chat").opened()
    calls = [*agent.tee.sent, json.dumps(agent.body(stream=True)).encode()]
    stage.play(Reply(200, packed, {"content-type": "text/event-stream", "content-encoding": "gzip"}), opening=False)
    got = backstage.run(_beaten(stage.scripted, dialects.load("chat"), calls))
    assert b"".join(got).count(text) == 8_000
    assert max(map(len, got)) < 3 * GIVEN


async def _beaten(scripted, dialect, calls):
    """What the client of the last of these calls gets where a heart beats every hundredth of a second."""
    rule = NamedPolicy("fifo_age", load_policy("fifo_age", {"age": 2}))
    pager = Pager(Arms(rule), in_force("", {}), dialects.load, marks=False)
    call_log = CallLog(open_store("memory:"), dialects.load, 10, pager)
    upstream = Upstream(UpstreamSettings(url=scripted.url), {})
    scope = {"method": "POST", "raw_path": f"/v1{dialect.path}".encode(), "query_string": b"", "headers": []}
    got = []

    async def send(message):
        got.append(message.get("body", b""))

    for body in calls:
        incoming = Incoming(dialect, dialect.parse(body), "local", {"x-session-id": "s"}, "", "", time.time())
        entry = await call_log.receive(incoming)
    attempt = Attempt(keep=1 << 20)
    settings = LoopSettings(RetryLimits(5, 60), 1 << 26, time.time, time.perf_counter, lambda: 0.0)
    loop = FaultLoop(entry, entry.paged, calls[-1], pager, attempt, settings)

    async def receive():
        await asyncio.Event().wait()

    relay = Relay(upstream, dialect, scope, receive, send, attempt, beat=0.01)
    await upstream.start()
    releasing = asyncio.create_task(_release(scripted))
    try:
        await relay.run(loop.flow(), partial(call_log.carry_out, entry))
    finally:
        releasing.cancel()
        await upstream.close()
    return got


async def _release(scripted):
    """Let an event go now and then."""
    while True:
        await asyncio.sleep(0.06)
        scripted.release()


# Bodies and concurrency


@pytest.mark.parametrize(
    "pack", [("gzip", gzip.compress), ("zstd", zstandard.ZstdCompressor().compress)], ids=["gzip", "zstd"]
)
def test_compressed_requests_are_paged(stage, wire, stream, pack):
    stage.lawful = False
    stage.play(PageIn(DONE))
    agent = stage.agent(wire, stream=stream, pack=pack)
    assert agent.run()[-1].text == DONE.text
    if wire != "messages":  # which gets cache marks from the first call on
        assert [legs[0].body for legs in agent.legs[:4]] == agent.tee.sent[:4]
        assert agent.legs[0][0].header("content-encoding") == pack[0]
    assert len(agent.legs[4]) == 2
    assert all(received.header("content-encoding") is None for received in agent.legs[4])


def test_eight_sessions_page_at_once(stage, wire):
    """One script serves all, so who asks for which page is chance; what must hold does not depend on it."""
    reads = [Say("Hm.", [Call("read", {"path": f"src/part{number}.py"})]) for number in range(200)]
    stage.play(*(PageIn(answer, text="Wait.") for answer in reads), opening=False)
    agents = [stage.agent(wire, stream=number % 2 == 0) for number in range(8)]
    failures = []

    def act(agent):
        try:
            for _ in range(10):
                if not agent.ask().calls:
                    agent.user("Go on.")
                agent.answer()
        except Exception as error:  # told below, in the main thread
            failures.append(error)

    threads = [threading.Thread(target=act, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    assert all(len(agent.turns) == 10 for agent in agents)
    assert sum(len(legs) for agent in agents for legs in agent.legs) > 8 * 10 + 8
