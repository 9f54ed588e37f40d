"""Which calls of the client's own tools are held back, and what the model is told of them."""

import json

import msgspec
import orjson
from work import steps

from pager.log.events import ToolsDecided
from pager.paging.held_calls import CORRECTIONS, ROUNDS, Guard
from pager.paging.pages.page_table import Hidden, PageTable, Source
from pager.paging.policy import Prices
from pager.tools.decide_forms import Outlook, Toolset, decide
from pager.wire.dialects import load
from pager.wire.stitching import HeldCall, Leg

CHAT = load("chat")
PAGE = "pg_aaaaaaaaaaaaaaaa"
PROSE = "Finds things. " + "It has a long story to tell of how and when to use it. " * 10
SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": PROSE}, "limit": {"type": "integer"}},
    "required": ["query"],
    "additionalProperties": False,
}

DECIDED = ToolsDecided(0, 1, 1, decision="", offered="", reason="")


def table(*, evicted=False):
    """A table in which ``find`` and nine others are sent short, and ``bash`` is not."""
    names = ["find_things", *(f"t{at}" for at in range(9)), "bash"]
    functions = [{"name": name, "description": PROSE, "parameters": SCHEMA} for name in names]
    tools = [{"type": "function", "function": function} for function in functions]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": tools}).encode()
    outlook = Outlook(Prices(), None, lambda name, usual: 0.9 if name == "bash" else usual, tool_added=False)
    made = PageTable("chat", lambda raw: None, CHAT.expand)
    made.apply(DECIDED, decide(CHAT.offers(CHAT.parse(body)).offers, outlook)[0])
    if evicted:
        made.shown[PAGE] = Source(b"", "c1")
    return made


def guard(*, evicted=False):
    made = table(evicted=evicted)
    return Guard(made, made.tools)


def call(name="find_things", **arguments):
    return HeldCall("c1", name, json.dumps(arguments))


def holds(watching, called):
    return watching.holds(called.name, called.arguments)


def test_only_calls_of_short_tools_are_waited_for():
    watching = guard()
    assert watching.watches("find_things")
    assert not watching.watches("bash")
    assert not watching.watches("unknown")


def test_where_pages_are_evicted_any_call_may_hold_a_stub():
    watching = guard(evicted=True)
    assert watching.watches("bash")
    assert holds(watching, call("bash", command=f"echo [{PAGE}: a file]"))
    assert not holds(watching, call("bash", command="echo pg_bbbbbbbbbbbbbbbb"))


def test_the_handle_of_a_tool_is_no_content_either():
    made = table()
    handle = made.tools.shortened["t3"].handle
    assert holds(Guard(made, made.tools), call(query=handle))
    refused = Guard(made, made.tools).refusal(call(query=handle), "page_in")
    assert refused.cause == "imitated"
    assert f"its arguments hold {handle}" in refused.text


def test_a_call_that_fits_passes_and_one_that_does_not_is_held():
    watching = guard()
    assert not holds(watching, call(query="x", limit=3))
    assert holds(watching, call())
    assert holds(watching, call(query="x", limit="three"))
    assert holds(watching, HeldCall("c1", "find_things", ""))
    assert not holds(watching, call("bash", limit="three")), "sent whole"


def test_arguments_that_are_no_json_may_have_been_cut_off():
    watching = guard()
    assert not holds(watching, HeldCall("c1", "find_things", '{"limit": "thr'))


def test_the_model_is_told_what_is_wrong_and_the_tool_in_full():
    made = table()
    refused = Guard(made, made.tools).refusal(call(limit="three"), "page_in")
    assert refused.cause == "invalid"
    assert refused.text.startswith("find_things was not run, because the arguments do not fit its parameters:\n- ")
    assert "'query' is a required property" in refused.text
    assert "'three' is not of type 'integer'" in refused.text or '"three" is not of type' in refused.text
    assert bytes(made.tools.shortened["find_things"].whole).decode() in refused.text


def test_a_tool_that_stands_in_full_in_the_prompt_is_not_told_once_more():
    made = table()
    watching = Guard(made, made.tools)
    first = watching.refusal(call(), "page_in").text
    told = {"role": "tool", "tool_call_id": "c1", "content": first}
    made.hidden[1] = Hidden(b"", [Leg([], [msgspec.Raw(orjson.dumps(told))])])
    again = watching.refusal(call(), "page_in").text
    assert "'query' is a required property" in again
    assert "See the tool in full above." in again
    assert PROSE not in again
    assert PROSE in watching.refusal(call("t3"), "page_in").text


def test_tools_that_went_out_whole_are_not_watched():
    watching = Guard(table(), None)
    assert not watching.watches("find_things")
    assert not holds(watching, call())


def test_after_two_corrections_calls_pass_as_they_are():
    watching = guard()
    for _ in range(CORRECTIONS):
        assert holds(watching, call())
        watching.answered(corrected=True)
    assert not holds(watching, call())
    assert not watching.watches("find_things")


def test_a_call_is_not_held_where_no_leg_could_follow():
    watching = guard()
    for _ in range(ROUNDS):
        watching.answered(corrected=False)
    assert not holds(watching, call())
    assert not watching.watches("find_things")


def test_after_the_last_round_a_call_with_a_stub_goes_to_the_client():
    watching = guard(evicted=True)
    named = call("bash", command=f"cat {PAGE}")
    for _ in range(ROUNDS - 1):
        watching.answered(corrected=False)
    assert holds(watching, named)
    watching.answered(corrected=False)
    assert not holds(watching, named)
    assert not watching.watches("bash")


def test_a_stub_is_explained_with_the_tool_that_brings_it_back():
    made = table(evicted=True)
    refused = Guard(made, made.tools).refusal(call("write", content=f"[{PAGE}: read a.py] and [{PAGE}]"), "page_in_2")
    assert refused.text.startswith(f"write was not run: its arguments hold {PAGE}, which only stands for content")
    assert "Get the content with page_in_2, then call write again" in refused.text


def test_what_was_short_before_the_tools_changed_is_still_known():
    made = table()
    handle = made.tools.shortened["t3"].handle
    made.apply(DECIDED, Toolset("another list", ()))
    assert made.knows(handle)
    assert not Guard(made, made.tools).watches("t3")


def test_a_check_that_would_hold_up_other_calls_is_given_up():
    watching = guard()
    holds(watching, call(query="warm"))
    listed = call(query="x", **{f"unknown_{number}": number for number in range(100_000)})
    taken, held = steps(holds, watching, listed)
    assert not held
    assert taken < 10_000


def test_the_check_of_a_short_tool_is_prepared_as_soon_as_a_call_of_it_begins():
    made, prepared = table(), []
    watching = Guard(made, made.tools, lambda tool: prepared.append(tool.name))
    assert watching.watches("t3")
    assert not watching.watches("bash")
    assert prepared == ["t3"]
