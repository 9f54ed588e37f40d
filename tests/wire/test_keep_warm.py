"""Keeping prompts warm over the real proxy: what is sent in pauses, and that nothing is while it is off."""

import json
import random
import urllib.request
from collections import Counter

import pytest
from waiting import PATIENCE

from pager.log.events import CallReceived, LegFinished, Warmed
from pager.log.stores import open_store
from pager.testing.scripted import PageIn, Say, Script

NUMBER = "x-number-of-the-call"
BEGUN = 1_000_000.0
PRICED = ("--trust-clock-header", "--prices", "anthropic", "--policy", "fifo_age")
FLAGS = (*PRICED, "--paging-policy-options", "{ age = 2, size = 500 }")
READ = {"name": "read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
CACHED = {"cache_control": {"type": "ephemeral"}}


def page(number):
    return "\n".join(f"line {line} of part {number} says that the harbour is closed" for line in range(300))


def history(calls):
    """The messages of a session that has read a file in each of so many calls, with a mark at the end."""
    messages = [{"role": "user", "content": "read all parts"}]
    for number in range(calls):
        use = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": f"part{number}"}}
        back = {"type": "tool_result", "tool_use_id": f"c{number}", "content": page(number)}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [back]}]
    messages[-1]["content"][0] |= CACHED
    return messages


def ask(root, path, now, session, number="", body=None):
    headers = {"x-pager-now": str(now), "x-session-id": session, "x-api-key": "sk-planted-in-the-wire-test"}
    headers |= {"content-type": "application/json", "anthropic-version": "2023-06-01", NUMBER: number}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(root + path, data, headers), timeout=PATIENCE) as response:
        return response.read()


def play(proxy, seed):
    """Sessions of calls with pauses of all lengths, of which the proxy is told minute by minute."""
    chance, calls = random.Random(seed), 0
    for session in ("one", "two"):
        now = BEGUN
        for number in range(1, 7):
            calls += 1
            asked = {"model": "claude-opus-4-5", "max_tokens": 100, "messages": history(number), "tools": [READ]}
            ask(proxy.root, "/v1/messages", now, session, str(calls), asked)
            pause = chance.choice([5.0, 200.0, 400.0, 1_000.0])
            for told in range(60, int(pause), 60):
                ask(proxy.root, "/healthz", now + told, session)
            now += pause
        for told in range(60, 3_600, 60):
            ask(proxy.root, "/healthz", now + told, session)


def asked_for(data_dir):
    """How many requests the calls of a log account for, hidden legs included, and how often it was refreshed."""
    store = open_store(f"sqlite:{data_dir}")
    try:
        events = [row.event for row in store.events()]
    finally:
        store.close()
    kinds = Counter(type(event) for event in events)
    return kinds[CallReceived] + kinds[LegFinished], kinds[LegFinished], kinds[Warmed]


@pytest.mark.parametrize("seed", range(3))
def test_while_it_is_off_every_request_is_a_clients_call_or_a_hidden_leg(start_proxy, scripted, seed):
    scripted.play(Script([Say("Well."), PageIn(then=Say("So it is."))], repeat=True))
    with start_proxy(*FLAGS) as proxy:
        play(proxy, seed)
        received = list(scripted.received)
    requests, legs, refreshes = asked_for(proxy.data_dir)
    assert legs  # or it would not be seen that they are told apart
    assert (len(received), refreshes) == (requests, 0)
    assert {one.header(NUMBER) for one in received} == {str(number) for number in range(1, 13)}


@pytest.mark.keeps_warm
def test_while_it_is_on_every_other_request_is_a_logged_refresh(start_proxy, scripted):
    scripted.play(Script([Say("Well.")], repeat=True))
    with start_proxy(*FLAGS, "--keep-warm", "fixed", "--keep-warm-smallest", "0") as proxy:
        play(proxy, 0)
        received = list(scripted.received)
    requests, _, refreshes = asked_for(proxy.data_dir)
    assert refreshes
    assert len(received) == requests + refreshes
