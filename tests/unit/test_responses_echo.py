"""Responses repeats a request's tools in its answers: the client must find those there that it offered."""

import json

import orjson
import pytest
from guards import Unwatched

from pager.paging.page_in import NAME, definition
from pager.paging.policy import Prices
from pager.tools.decide_forms import Outlook, decide
from pager.tools.definitions import Listed
from pager.wire.byte_edits import apply_edits
from pager.wire.dialects import load

PROSE = "It follows links, keeps the order of what it finds, and says so where something can't be read. " * 3
DIALECT = load("responses")


def tool(name, **more):
    known = {"path": {"type": "string", "description": PROSE}, "depth": {"type": "integer", "description": PROSE}}
    parameters = {"type": "object", "properties": known, "required": ["path"]}
    return {"type": "function", "name": name, **more, "parameters": parameters, "strict": False}


OFFERED = [
    tool("atlas", description=f"Shows ☔. {PROSE}"),
    tool("beacon"),
    {"type": "web_search"},
    tool("bash", description=f"Runs it. {PROSE}"),
]


def decided(tools):
    """The decision on these tools, and what goes upstream of them."""
    request = DIALECT.parse(orjson.dumps({"model": "m", "input": [], "tools": tools}))
    listed = DIALECT.offers(request)
    found, _ = decide(listed.offers, Outlook(Prices(), None, lambda name, usual: float(name == "bash"), True))
    raw = orjson.dumps(tools)
    return found, apply_edits(raw, found.edits(Listed(0, listed.offers)))[:-1] + b"," + definition("responses") + b"]"


def answered(echo, found):
    """The whole answer as the client gets it, where the provider repeats these tools."""
    stitcher = DIALECT.stitcher(NAME, Unwatched(), found)
    stitcher.take(
        b'{"id":"resp_1","object":"response","status":"completed","output":[],"tools":%b,"usage":null}' % echo
    )
    stitcher.held()
    return orjson.loads(stitcher.finish())["tools"]


def test_tools_that_were_sent_short_are_told_as_they_were_offered():
    found, sent = decided(OFFERED)
    assert sorted(found.shortened) == ["atlas", "beacon"]
    assert b"pg_" in sent
    told = answered(sent, found)
    assert [one.get("description") for one in told] == [
        OFFERED[0]["description"],
        None,
        None,
        OFFERED[3]["description"],
    ]
    assert [one.get("parameters") for one in told] == [one.get("parameters") for one in OFFERED]


def test_what_the_provider_adds_to_a_tool_is_kept():
    found, sent = decided(OFFERED[:1])
    entries = [{**one, "defer_loading": False} for one in json.loads(sent)]
    assert answered(orjson.dumps(entries), found) == [{**OFFERED[0], "defer_loading": False}]


def test_a_tool_that_says_something_else_than_what_was_sent_is_left_alone():
    found, sent = decided(OFFERED[:1])
    [short, ours] = json.loads(sent)
    other = {**short, "description": "Another one."}
    assert answered(orjson.dumps([other, ours]), found) == [other]


@pytest.mark.parametrize("echo", [b"null", b'"page_in"', b'{"name":"page_in"}'])
def test_what_is_no_list_of_tools_is_left_alone(echo):
    found, _ = decided(OFFERED[:1])
    assert answered(echo, found) == orjson.loads(echo)
