"""Hidden legs that fail: the client cannot repeat them, so the proxy does, and only then fails as clients can retry."""

import json

import anthropic
import httpx2
import openai
import pytest
from waiting import PATIENCE

from pager.log.events import AttemptFailed, LegFailed
from pager.testing.scripted import (
    Drop,
    Fail,
    PageIn,
    Reply,
    Say,
    Stumble,
)

DONE = Say("All parts are fine. ☔")
SOON = {"retry-after-ms": "1"}
TOO_LATE = {"retry-after": "7000"}
PASSING = {
    "408": Fail(408, headers=SOON),
    "429": Fail(429, headers=SOON),
    "500": Fail(500, headers=SOON),
    "502": Fail(502, b"<html>bad gateway</html>", {**SOON, "content-type": "text/html"}),
    "503": Fail(503, headers=SOON),
    "504": Fail(504, headers=SOON),
    "529": Fail(529, headers=SOON),
    "asked": Fail(418, headers={**SOON, "x-should-retry": "true"}),
    "error first": Stumble(0),
}


def failures(stage, agent, count):
    found = stage.log(agent, LegFailed, count=count)
    return [(event.call, event.leg, event.tries, event.status, event.wait is not None) for event in found]


def posted(agent, **more):
    """The bytes of the next streamed call, however far they come, and whether the stream reached its end."""
    headers = {"x-session-id": agent.session, "anthropic-version": "2023-06-01"}
    got = bytearray()
    with httpx2.Client(trust_env=False, timeout=PATIENCE) as http:
        request = http.stream("POST", agent.root + agent.path, json=agent.body(stream=True, **more), headers=headers)
        with request as answer:
            assert answer.status_code == 200
            try:
                for chunk in answer.iter_raw():
                    got.extend(chunk)
            except httpx2.RemoteProtocolError:
                return bytes(got), False
    return bytes(got), True


@pytest.mark.parametrize("fail", PASSING.values(), ids=PASSING)
def test_a_hidden_leg_that_fails_for_a_moment_is_sent_again(stage, wire, stream, fail):
    stage.play(PageIn(fail, text="Let me see. "), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    assert agent.ask().text == "Let me see. " + DONE.text
    first, failed, again = agent.legs[-1]
    assert failed.body == again.body != first.body
    [(*spot, status, retried)] = failures(stage, agent, 1)
    assert (spot, retried) == ([5, 2, 1], True)
    assert status == (fail.status if isinstance(fail, Fail) else 500 if isinstance(fail, Stumble) and not stream else 0)
    assert stage.log(agent, AttemptFailed) == []


def test_a_hidden_leg_on_a_kept_connection_that_is_closed_is_sent_again_at_once(stage, wire, stream):
    stage.play(PageIn(Drop(0), text="Let me see. "), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    assert agent.ask().text == "Let me see. " + DONE.text
    first, failed, again = agent.legs[-1]
    assert failed.body == again.body != first.body
    assert stage.log(agent, LegFailed) == []


@pytest.mark.parametrize("after", [1, 2])
def test_a_hidden_stream_that_breaks_before_it_shows_anything_is_sent_again(stage, wire, after):
    """Its first events say that it begins, or that a hidden call does."""
    broken = Drop(after, PageIn(DONE, pages=2))
    stage.play(PageIn(broken, text="Let me see. "), DONE)
    agent = stage.agent(wire).opened()
    assert agent.ask().text == "Let me see. " + DONE.text
    assert len(agent.legs[-1]) == 3
    assert [event.phase for event in stage.log(agent, LegFailed, count=1)] == ["stream"]


def test_hidden_legs_are_sent_again_as_often_as_it_takes(stage, wire, stream):
    fail = Fail(529, headers=SOON)
    stage.play(PageIn(fail, text="Let me see. "), fail, fail, PageIn(fail, pages=2, text="And this. "), DONE)
    agent = stage.agent(wire, stream=stream).opened()
    assert agent.ask().text == "Let me see. And this. " + DONE.text
    assert failures(stage, agent, 4) == [(5, 2, tries, 529, True) for tries in (1, 2, 3)] + [(5, 3, 1, 529, True)]


def test_what_was_shown_of_a_hidden_leg_is_never_said_twice(stage, wire):
    """Which is why a leg that breaks in the middle of its text breaks the answer, as it would without us."""
    stage.play(PageIn(Stumble(6, Say("Half of this gets lost on its way.")), text="Let me see. "))
    agent = stage.agent(wire).opened()
    got, _ = posted(agent)
    assert (got.count(b"Half"), got.count(b"the script says so")) == (1, 1)
    assert stage.log(agent, AttemptFailed, count=1)
    assert stage.log(agent, LegFailed) == []


# Where it fails for good


GIVEN_UP = {
    "429": Fail(429, headers=TOO_LATE, message="slow down"),
    "500": Fail(500, headers={"x-should-retry": "false"}, message="slow down"),
    "529": Fail(529, headers=TOO_LATE, message="slow down"),
}


@pytest.mark.parametrize("fail", GIVEN_UP.values(), ids=GIVEN_UP)
def test_a_hidden_leg_that_is_given_up_has_its_status_where_nothing_was_sent(stage, wire, outcome, fail):
    stage.play(PageIn(fail, text="Let me see. "), PageIn(DONE))
    agent = stage.agent(wire, stream=False).opened()
    kind, status, headers, body = outcome(agent.ask)
    assert issubclass(kind, (openai.APIStatusError, anthropic.APIStatusError))
    assert status == fail.status
    assert set(fail.headers.items()) <= set(headers)
    assert "slow down" in str(body)
    assert failures(stage, agent, 1) == [(5, 2, 1, fail.status, False)]
    stage.lawful = False
    assert agent.ask().text == DONE.text  # another attempt of the client's


def last_events(wire, got):
    lines = [line.removeprefix(b"data: ") for line in got.splitlines() if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines][-2 if wire == "responses" else -1 :]


@pytest.mark.parametrize("fail", GIVEN_UP.values(), ids=GIVEN_UP)
def test_a_hidden_leg_that_is_given_up_ends_a_stream_as_clients_retry_it(stage, wire, fail):
    stage.play(PageIn(fail, text="Let me see. "))
    agent = stage.agent(wire).opened()
    got, whole = posted(agent)
    events, limited = last_events(wire, got), fail.status == 429
    match wire:
        case "messages":
            assert events[0]["error"]["type"] == "overloaded_error"
            assert events[0]["error"]["message"].startswith("slow down")
        case "chat":
            assert events[0]["error"]["type"] == ("rate_limit_error" if limited else "server_error")
            assert events[0]["error"]["message"].startswith("slow down")
            assert b"[DONE]" not in got
        case "responses":
            error, failed = events
            assert (error["type"], failed["type"]) == ("error", "response.failed")
            assert failed["sequence_number"] == error["sequence_number"] + 1
            assert failed["response"]["status"] == "failed"
            assert failed["response"]["error"]["code"] == ("rate_limit_exceeded" if limited else "server_error")
            assert failed["response"]["output"][0]["content"][0]["text"] == "Let me see. "
            assert f'"id":"{failed["response"]["id"]}"'.encode() in got.splitlines()[1]
    assert whole is (wire != "chat")  # a client that does not know an error chunk must not take it for an end
    assert (b"try again in 7000s" in got) is (fail.headers == TOO_LATE)
    assert [event.status for event in stage.log(agent, AttemptFailed, count=1)] == [fail.status]


def test_a_stream_that_is_given_up_is_an_error_in_the_sdks(stage, wire, outcome):
    stage.play(PageIn(GIVEN_UP["529"], text="Let me see. "))
    agent = stage.agent(wire).opened()
    kind, *_ = outcome(agent.ask)
    assert issubclass(kind, (openai.APIError, anthropic.APIError, RuntimeError))  # Responses misses an end


def test_an_error_that_does_not_pass_is_not_tried_again(stage, wire, stream, outcome):
    body = b'{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}'
    stage.play(PageIn(Fail(429, body, SOON), text="Let me see. "))
    agent = stage.agent(wire, stream=stream).opened()
    outcome(agent.ask)
    assert len(agent.legs[-1]) == 2


REFUSED = {
    "chat": b'data: {"error":{"message":"not so","type":"invalid_request_error","code":"bad"}}\n\n',
    "messages": b'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error","message":"not so"}}\n\n',
    "responses": b'event: error\ndata: {"type":"error","code":"invalid_prompt","message":"not so","param":null}\n\n',
}


def test_a_hidden_stream_that_is_refused_for_good_is_not_sent_again_once_the_client_knows(stage, wire):
    stage.play(PageIn(Reply(200, REFUSED[wire], {"content-type": "text/event-stream"}), text="Let me see. "), DONE)
    agent = stage.agent(wire).opened()
    got, _ = posted(agent)
    assert got.count(b"not so") == 1
    assert b"fine" not in got
    assert len(stage.received) == 4 + 2
    assert [event.wait for event in stage.log(agent, LegFailed, count=1)] == [None]


def test_a_client_that_leaves_while_a_leg_waits_ends_the_call(stage, wire):
    stage.play(PageIn(Fail(529, headers={"retry-after": "50"}), text="Let me see. "))
    agent = stage.agent(wire).opened()
    headers = {"x-session-id": agent.session, "anthropic-version": "2023-06-01"}
    with httpx2.Client(trust_env=False, timeout=PATIENCE) as http:
        body = agent.body(stream=True)
        with http.stream("POST", agent.root + agent.path, json=body, headers=headers) as answer:
            chunks = answer.iter_raw()
            assert next(chunks)
            assert failures(stage, agent, 1) == [(5, 2, 1, 529, True)]
    assert [event.phase for event in stage.log(agent, AttemptFailed, count=1)] == ["client"]
    assert len(stage.received) == 4 + 2


@pytest.fixture(scope="module")
def hasty_proxy(_model, running, tmp_path_factory, soon):
    """A proxy that sends hidden legs once more at most."""
    flags = (*soon, "--upstream-leg-retries", "1")
    with running(_model.url, tmp_path_factory.mktemp("hasty") / "data", *flags) as proxy:
        yield proxy


def test_no_more_retries_are_made_than_the_settings_allow(hasty_proxy, open_stage, wire, outcome):
    fail = Fail(503, headers=SOON)
    with open_stage(hasty_proxy) as stage:
        stage.play(PageIn(fail, text="Let me see. "), fail, DONE)
        agent = stage.agent(wire, stream=False).opened()
        assert outcome(agent.ask)[1] == 503
        assert failures(stage, agent, 2) == [(5, 2, 1, 503, True), (5, 2, 2, 503, False)]
