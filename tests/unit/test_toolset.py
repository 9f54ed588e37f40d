"""Which tools are sent whole, slim or deferred, and why."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.paging.policy import TOOL, Prices
from pager.tools.decide_forms import (
    CALLS,
    DIGITS,
    OFTEN,
    Outlook,
    decide,
    decode,
    schema_handle,
)
from pager.tools.definitions import Listed
from pager.wire.dialects import load

CHAT = load("chat")
PROSE = "Does what it says. It has a long story to tell of how and when to use it, and of what else there is. " * 4


def never(tool, usual):
    return usual


def tool(name, description=PROSE, parameters=3, **more):
    properties = {f"p{at}": {"type": "string", "description": PROSE} for at in range(parameters)}
    schema = {"type": "object", "properties": properties, "required": [*properties][:1]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema, **more}}


def offers(*tools):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": tools}).encode()
    return CHAT.offers(CHAT.parse(body)).offers


def outlook(**changes):
    return Outlook(**{"prices": Prices(), "calls": None, "chance": never, "tool_added": False} | changes)


def decided(*tools, **changes):
    return decide(offers(*tools), outlook(**changes))


def by_form(found):
    return {one.name: one.form for one in found.sent}


MANY = [tool(f"t{at}") for at in range(12)]


def test_tools_that_nothing_is_known_of_are_sent_slim():
    found, reason = decided(*MANY)
    assert set(by_form(found).values()) == {"slim"}
    assert found.tokens < 0.5 * found.whole_tokens
    assert reason == f"12 of 12 are sent short: {found.whole_tokens:,} tokens become {found.tokens:,}"


def test_a_short_form_holds_the_handle_of_the_whole_and_what_is_allowed():
    found, _ = decided(*MANY)
    first = found.sent[0]
    assert json.loads(bytes(first.whole)) == {
        "name": "t0", "description": PROSE, "parameters": MANY[0]["function"]["parameters"],
    }  # fmt: skip
    assert first.handle == schema_handle(bytes(first.whole))
    assert len(first.handle) == len("pg_") + DIGITS
    assert first.short.description == f"Does what it says. [{first.handle}]"
    assert json.loads(first.short.parameters)["properties"] == {f"p{at}": {"type": "string"} for at in range(3)}
    assert first.schema == MANY[0]["function"]["parameters"]


def test_what_sessions_mostly_use_stays_whole():
    found, _ = decided(*MANY, chance=lambda name, usual: OFTEN if name == "t3" else usual)
    assert {name for name, form in by_form(found).items() if form == "whole"} == {"t3"}
    assert found.sent[3].reason == "taken to be called in 25% of sessions"


def test_a_large_set_is_deferred_but_for_what_is_likely_used():
    many = [tool(f"t{at}") for at in range(40)]
    found, _ = decided(*many, defer_above=1_000, chance=lambda name, usual: 0.2 if name == "t3" else 0.01)
    assert {name for name, form in by_form(found).items() if form == "slim"} == {"t3"}
    assert by_form(found)["t0"] == "deferred"
    assert bytes(found.sent[0].parameters) == b'{"type":"object"}'
    assert set(by_form(decided(*many, defer_above=10**6)[0]).values()) == {"slim"}


def test_a_few_small_tools_do_not_pay_for_the_tool_that_is_added():
    small = tool("read", "Reads a file. Gives its text, all of it, line by line.", parameters=1)
    found, reason = decided(small)
    assert by_form(found) == {"read": "whole"}
    assert "not pay" in reason
    assert not found.shortened
    added, _ = decided(tool("read", PROSE[:500], parameters=1), tool_added=True)
    assert by_form(added) == {"read": "slim"}, "what is there already costs nothing more"


def test_a_warm_cache_is_left_alone_unless_that_pays():
    assert decided(*MANY, switch=1_000)[0].shortened
    assert not decided(*MANY, switch=200_000)[0].shortened


def test_without_a_cache_every_call_counts():
    uncached = Prices(1.0, 1.0, 5.0, 0.0)
    assert outlook(prices=uncached).weight == CALLS
    assert outlook(prices=uncached, calls=3.0).weight == 3.0
    assert outlook(calls=11.0).weight == pytest.approx(1.25 + 1.0)
    assert outlook(calls=11.0, switch=5).weight == pytest.approx(0.1 + 1.0)


def test_a_client_that_loads_tools_by_itself_gets_them_all_whole():
    found, reason = decided(*MANY, tool("tool_search"))
    assert not found.shortened
    assert reason == "the client loads tools when they are needed: it has tool_search"


def test_entries_that_must_stay_say_why():
    custom = {"type": "custom", "custom": {"name": "patch", "description": PROSE}}
    found, _ = decided(*MANY, MANY[0], custom)
    assert [one.reason for one in found.sent if one.form == "whole"] == ["its name comes twice"] * 2


def test_a_strict_tool_is_never_deferred():
    many = [tool(f"t{at}", strict=True) for at in range(40)]
    found, _ = decided(*many, defer_above=1_000, chance=lambda _, __: 0.0)
    assert set(by_form(found).values()) == {"slim"}


def test_of_two_tools_with_the_same_handle_one_gets_a_longer_one():
    twins = with_one_handle()
    found, _ = decided(*MANY, *twins)
    first, second = (found.shortened[one["function"]["name"]].handle for one in twins)
    assert second.endswith(first.removeprefix("pg_"))
    assert [len(first), len(second)] == [len("pg_") + DIGITS, len("pg_") + 2 * DIGITS]
    assert len(found.handles) == len(MANY) + 2


def with_one_handle():
    """Two tools that differ in their names, whose hashes begin alike."""
    seen = {}
    names = (f"twin{number}" for number in itertools.count())
    while (handle := schema_handle(in_full(one := tool(next(names))))) not in seen:
        seen[handle] = one
    return seen[handle], one


def in_full(one):
    """A tool as it is kept: its values as they were sent."""
    values = [f'"{key}":{json.dumps(value)}' for key, value in one["function"].items()]
    return ("{" + ",".join(values) + "}").encode()


def test_the_same_tools_are_decided_once_for_all_sessions():
    listed = offers(*MANY)
    first = decide(listed, outlook())[0]
    assert decide(listed, outlook())[0] is first
    assert decide(listed, outlook(tool_added=True, switch=500))[0] is first, "what else there is says only if it pays"
    assert decide(listed, outlook(calls=90.0))[0] is not first


def test_a_decision_survives_the_log():
    found, _ = decided(*MANY, tool("bash"), chance=lambda name, usual: 0.9 if name == "bash" else usual)
    again = decode(found.encode())
    assert (again.digest, again.sent, again.freed) == (found.digest, found.sent, found.freed)
    assert again.shortened.keys() == found.shortened.keys()


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=20),
    st.floats(1.0, 300.0),
    st.floats(0.0, 1.0),
    st.integers(0, 30_000),
    st.sampled_from([Prices(), Prices(1.0, 1.0, 5.0, 0.0), Prices(0.1, 1.0, 8.0, 600.0)]),
)
def test_a_decision_never_costs_more_than_it_saves_in_tokens(parameters, calls, chance, above, prices):
    tools = [tool(f"t{at}", parameters=number) for at, number in enumerate(parameters)]
    found, _ = decided(*tools, calls=calls, chance=lambda _, __: chance, defer_above=above, prices=prices)
    saved = found.whole_tokens - found.tokens
    assert saved > TOOL or not found.shortened
    assert all(one.tokens < one.whole_tokens for one in found.shortened.values())
    assert not (found.shortened and chance >= OFTEN)


def test_what_is_freed_is_what_the_edits_take_out():
    listed = Listed(10, offers(*MANY))
    found, _ = decide(listed.offers, outlook())
    assert found.freed == sum(span.end - span.start - len(new) for span, new in found.edits(listed))
    moved = found.edits(Listed(12, listed.offers))
    assert [span.start for span, _ in moved] == [span.start + 2 for span, _ in found.edits(listed)]
    assert found.edits(listed) is found.edits(listed), "written once"
