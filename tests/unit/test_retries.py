"""When a hidden leg is sent again, and after how long."""

import json

import pytest

from pager.log.events import FailurePhase
from pager.proxy.hidden_leg_retries import (
    FIRST_DELAY,
    JITTER,
    LONGEST_DELAY,
    Retries,
    RetryLimits,
    Setback,
    message_of,
    refused,
    stream_error,
)

BROKEN = Setback(FailurePhase.CONNECT, "reset")


def retries(count=10, seconds=60.0, draw=lambda: 0.0):
    return Retries(RetryLimits(count, seconds), draw)


def test_each_delay_is_twice_the_one_before_up_to_the_longest():
    one = retries()
    assert [one.delay(BROKEN, 0.0) for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 8.0, LONGEST_DELAY]


def test_chance_makes_a_delay_shorter_by_at_most_a_quarter():
    assert retries(draw=lambda: 1.0).delay(BROKEN, 0.0) == FIRST_DELAY * (1 - JITTER)


def test_the_provider_says_how_long_to_wait():
    assert retries().delay(refused(429, {"retry-after": "7"}, b"", 0.0), 0.0) == 7


def test_no_try_begins_after_the_time_is_up():
    one = retries(seconds=10.0)
    assert one.delay(BROKEN, 100.0) == 0.5
    assert one.delay(refused(429, {"retry-after": "11"}, b"", 0.0), 100.0) is None
    assert one.delay(BROKEN, 109.5) is None


def test_no_more_tries_are_made_than_are_allowed():
    one = retries(2)
    assert [one.delay(BROKEN, 0.0) is None for _ in range(3)] == [False, False, True]
    assert retries(0).delay(BROKEN, 0.0) is None


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 520, 529])
def test_statuses_that_pass(status):
    assert refused(status, {}, b"", 0.0).passing
    assert not refused(status, {"x-should-retry": "false"}, b"", 0.0).passing


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_statuses_that_stay(status):
    assert not refused(status, {}, b"", 0.0).passing
    assert refused(status, {"x-should-retry": "true"}, b"", 0.0).passing


def test_a_quota_that_is_used_up_stays():
    assert not refused(429, {}, b'{"error":{"code":"insufficient_quota"}}', 0.0).passing


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 70.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, 0.0),
    ],
)
def test_what_the_headers_say_of_waiting(headers, wait):
    assert refused(503, headers, b"", 30.0).wait == wait


@pytest.mark.parametrize(
    ("event", "passing"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, True),
        ({"type": "error", "error": {"type": "api_error", "message": "m"}}, True),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "m"}}, False),
        ({"type": "error", "code": "server_error", "message": "m", "param": None}, True),
        ({"type": "error", "code": "invalid_prompt", "message": "m", "param": None}, False),
        ({"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "m"}}}, True),
        ({"type": "response.failed", "response": {"error": {"code": "invalid_prompt", "message": "m"}}}, False),
        ({"error": {"message": "m", "code": 502}}, True),
        ({"error": {"message": "m", "code": 400}}, False),
        ({"error": {"message": "m"}}, True),
        ({"error": "m"}, True),
    ],
)
def test_an_error_inside_a_stream(event, passing):
    setback = stream_error(json.dumps(event).encode())
    assert (setback.error, setback.passing, setback.phase) == ("m", passing, "stream")


@pytest.mark.parametrize(
    "data",
    [
        b"[DONE]",
        b'{"choices":[{"delta":{"content":"an error"}}]}',
        b'{"type":"response.created","response":{"error":null}}',
    ],
)
def test_what_only_names_errors_is_none(data):
    assert stream_error(data) is None


def test_an_error_that_is_no_json_is_told_as_it_came():
    assert message_of(b"<html>bad gateway</html>") == "<html>bad gateway</html>"
