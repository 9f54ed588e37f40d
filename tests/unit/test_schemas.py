"""What tools took in prompts and how calls of them went, from a log that the real call log and planner have written."""

import asyncio
import json
from hashlib import sha256
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

from instrumentation.accounting.tool_log import ByForm, LogContents
from instrumentation.accounting.tool_use import account, chosen, tooling
from instrumentation.reports import tools as schema_words
from pager.errors import ConfigError, StoreCorrupt
from pager.log.bypass_reasons import BypassReason
from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    Bypassed,
    CallReceived,
    LegFinished,
    ToolCalled,
    ToolsDecided,
)
from pager.log.store import Batch, Stored
from pager.log.stores.memory.store import Store
from pager.paging.pager import Pager
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.paging.tool_forms_of_call import Shortening
from pager.pricing.rates import in_force
from pager.proxy.call_log import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.request_values import Answer, CallAddress, ToolUse, Usage
from pager.tools.decide_forms import decode
from pager.wire.dialects import load

ANTHROPIC = in_force("anthropic", {})
PROSE = "It is explained at length, with all that is to be minded, and what happens if it is not. " * 4
GOOD, BAD = {"title": "a", "count": 2}, {"title": 7}
EMPTY = sha256(b"").hexdigest()


class Turn(NamedTuple):
    """A call to log: its tools and other members, the hidden legs before its answer, and the calls in that."""

    tools: Any = None
    legs: list[dict[str, Any]] = []
    uses: list[tuple[str, str]] = []
    members: dict[str, Any] = {}
    headers: dict[str, str] = {}
    bypass: str = ""
    fails: bool = False
    again: bool = False
    said: str = ""
    gap: float = 10.0


def tool(name, parameters=0):
    properties = {
        "title": {"type": "string", "description": PROSE},
        "count": {"type": "integer", "description": PROSE},
        **{f"parameter_{at}": {"type": "string", "enum": ["one", "two", "three"]} for at in range(parameters)},
    }
    schema = {"type": "object", "properties": properties, "required": ["title"]}
    return {"type": "function", "function": {"name": name, "description": PROSE, "parameters": schema}}


DEFER = Shortening(defer_above=300)
TOOLS = [tool("bash"), *(tool(f"issue_{at}") for at in range(6))]


FORCED = Turn(members={"tool_choice": {"type": "function", "function": {"name": "issue_1"}}})


def body(said, turn):
    messages = [{"role": "user", "content": "do it"}]
    for at in range(said):
        messages += [{"role": "assistant", "content": f"I see {at}."}, {"role": "user", "content": f"go on {at}"}]
    if turn.said:  # another way on from the call before
        messages[-1] = {"role": "user", "content": turn.said}
    tools = TOOLS if turn.tools is None else turn.tools
    offered = {"tools": tools} if tools else {}
    return json.dumps({"model": "some-model", "messages": messages, **offered, **turn.members}).encode()


async def answer(call_log, entry, turn, now):
    """Log the legs and the answer of a call, with what the proxy would say went out."""
    where = (entry.placement.branch.number, entry.placement.call, entry.placement.attempt)
    for number, leg in enumerate(turn.legs, 1):
        event = LegFinished(*where, leg=number, said=EMPTY, body=EMPTY, size=0, **leg)
        await call_log.decide(entry, now, [event], {sha256(b"").digest(): b""})
    if turn.bypass:
        if entry.paged is not None:
            entry.paged.table.sent_in_full("HTTP 400" if turn.bypass == BypassReason.REFUSED else "")
        await call_log.decide(entry, now, [Bypassed(turn.bypass, "HTTP 400", *where[:2])], {})
    paged, unmodified = entry.paged, turn.bypass or entry.paged is None or not entry.paged.outgoing.changed
    outcome = Outcome(200, b"{}", 1.0, 2.0, now, sent="" if unmodified else paged.outgoing.digest(entry.recipe.body))
    if turn.fails:
        call_log.failed(entry, "stream", "it broke off", outcome)
        return
    uses = tuple(ToolUse(at, f"c{now}_{at}", name, said) for at, (name, said) in enumerate(turn.uses))
    call_log.answered(entry, Answer(text="Yes.", calls=uses, usage=Usage(9_000, tells_cached=True)), outcome, 0)


def play(store, turns, *, key="one", at=1_000_000.0, policy="cost_aware", tools=None, dialect="chat"):
    """Log a session as the proxy would; its id."""
    spoken = load(dialect)

    async def go():
        rule = NamedPolicy(policy, load_policy(policy))
        pager = Pager(Arms(rule), ANTHROPIC, load, marks=True, tools=tools or Shortening())
        call_log, now, said = CallLog(store, load, 10, pager), at, 0
        for turn in turns:
            now += turn.gap
            headers = {"x-session-id": key, "user-agent": "pi/0.73", **turn.headers}
            request = spoken.parse(body(said, turn))
            entry = await call_log.receive(Incoming(spoken, request, "local", headers, spoken.path, "", now))
            await answer(call_log, entry, turn, now)
            said += not turn.again
        await call_log.drain()
        return entry.session.id

    return asyncio.run(go())


def told(store, *named):
    return account(store, chosen(store, named), load)


def events(store, kind):
    return [row.event for row in store.events() if isinstance(row.event, kind)]


def decided(store, at=-1):
    """What a decision in the log says, the latest if not said otherwise."""
    event = events(store, ToolsDecided)[at]
    return event, decode(store.blob(bytes.fromhex(event.decision)))


def conserved(found):
    """Whether parts add up to wholes: calls and tools, forms and all, ways in which calls went."""
    tools = found.tools.values()
    assert sum(one.offered for one in tools) == found.offered
    assert [sum(one.sent[form] for one in tools) for form in range(3)] == list(found.sent)
    assert found.sent.total == sum(one.sent.total for one in found.calls)
    assert all(0 <= one.in_full <= one.prompts for one in found.calls)
    assert found.sent.total <= found.offered
    assert all(one.short_calls <= one.calls for one in tools)
    assert all(one.prompts.total <= found.prompts for one in tools if one.sessions)
    plain = json.loads(json.dumps(schema_words.as_json(found)))
    assert plain["tokens"]["offered"] == sum(one["offered"] for one in plain["calls"])
    assert plain["tool_calls"]["short_calls"] == sum(
        one["at_once"] + one["after_fault"] + one["passed_on"] for one in plain["tools"]
    )


def fits(name="issue_1"):
    return (name, json.dumps(GOOD))


def misfits(name="issue_1"):
    return (name, json.dumps(BAD))


# ---------------------------------------------------------------- tokens


def test_tools_are_counted_in_every_prompt_as_offered_and_as_sent():
    store = Store()
    play(store, [Turn()] * 3)
    event, tools = decided(store)
    assert (event.slim, event.tools) == (6, 7)
    found = told(store)
    assert (found.sessions, found.decisions, len(found.calls), found.prompts) == (1, 1, 3, 3)
    assert (found.offered, found.sent.total) == (3 * event.whole, 3 * event.sent)
    slim = sum(one.tokens for one in tools.sent if one.form == "slim")
    assert found.sent == ByForm(whole=3 * (event.sent - slim), slim=3 * slim)
    one = found.tools["issue_1"]
    assert (one.prompts, one.sessions) == (ByForm(slim=3), 1)
    assert one.reason == tools.shortened["issue_1"].reason
    conserved(found)


def test_deferred_tools_are_counted_apart():
    store = Store()
    play(store, [Turn(tools=[tool(f"issue_{at}", parameters=30) for at in range(60)])] * 2, tools=DEFER)
    event, _ = decided(store)
    assert event.deferred
    found = told(store)
    assert found.sent.deferred > 0
    assert found.sent.total == 2 * event.sent
    conserved(found)


def test_every_hidden_leg_sends_the_tools_once_more():
    store = Store()
    legs = [{"schemas": ["issue_1"]}, {"pages": ["pg_1234567812345678"]}]
    play(store, [Turn(legs=legs), Turn()])
    event, _ = decided(store)
    found = told(store)
    assert [one.prompts for one in found.calls] == [3, 1]
    assert [one.offered for one in found.calls] == [3 * event.whole, event.whole]
    conserved(found)


def test_a_leg_beside_calls_of_the_client_is_the_answer_itself():
    store = Store()
    play(store, [Turn(legs=[{"schemas": ["issue_1"], "mixed": True}])])
    found = told(store)
    assert (found.prompts, found.tools["issue_1"].faults) == (1, 1)


def test_a_leg_of_an_attempt_that_failed_was_sent_too():
    store = Store()
    play(store, [Turn(legs=[{"schemas": ["issue_1"]}], fails=True, again=True), Turn()])
    found = told(store)
    assert [(one.attempt, one.prompts) for one in found.calls] == [(1, 1), (2, 1)]
    assert found.undecided == 0


@pytest.mark.parametrize(
    "turn",
    [
        Turn(headers={"x-pager-bypass": "1"}),
        FORCED,
        Turn(bypass="refused"),
        Turn(bypass="failed"),
    ],
    ids=["asked", "cannot_carry", "refused", "failed"],
)
def test_a_call_that_went_out_in_full_had_its_tools_whole(turn):
    store = Store()
    play(store, [Turn(), turn._replace(uses=[fits()])])
    event, _ = decided(store)
    found = told(store)
    assert [one.in_full for one in found.calls] == [0, 1]
    assert found.calls[1].sent == ByForm(whole=event.whole)
    assert found.tools["issue_1"].prompts == ByForm(whole=1, slim=1)
    assert (found.tools["issue_1"].calls, found.tools["issue_1"].short_calls) == (1, 0)
    conserved(found)


def test_a_call_that_could_only_be_marked_had_its_tools_whole():
    store = Store()
    tools = [{"name": one["name"], "input_schema": one["parameters"]} for one in (each["function"] for each in TOOLS)]
    forced = Turn(tools=tools, members={"tool_choice": {"type": "tool", "name": "issue_1"}})
    play(store, [Turn(tools=tools), forced, Turn(tools=tools)], dialect="messages")
    assert all(one.sent for one in events(store, AnswerFinished))
    event, _ = decided(store)
    assert [one.sent.total for one in told(store).calls] == [event.sent, event.whole, event.sent]


def test_what_went_before_a_refusal_was_short():
    store = Store()
    play(store, [Turn(legs=[{"schemas": ["issue_1"]}], bypass="refused"), Turn()])
    event, _ = decided(store)
    found = told(store)
    assert [(one.prompts, one.in_full) for one in found.calls] == [(2, 1), (1, 1)]
    assert found.sent.total == event.sent + 2 * event.whole


def test_calls_without_the_tools_that_were_decided_on_are_left_out():
    store = Store()
    play(store, [Turn(), Turn(tools=[]), Turn()])
    found = told(store)
    assert (len(found.calls), found.undecided) == (2, 1)
    assert "Left out: 1 answered call without a decision on tools, by then" in schema_words.as_text(found)


def test_calls_before_a_decision_are_left_out():
    store = Store()
    play(store, [FORCED, Turn(gap=1_000.0)])
    found = told(store)
    assert ([one.call for one in found.calls], found.undecided) == ([2], 1)


def test_a_list_too_small_to_be_stored_apart_is_known_again():
    store = Store()
    small = [{"type": "function", "function": {"name": "look"}}]
    play(store, [Turn(tools=small)] * 2)
    found = told(store)
    assert (found.prompts, found.offered, found.in_full) == (2, found.sent.total, 0)
    assert found.tools["look"].prompts == ByForm(whole=2)


def test_tools_that_the_client_changes_are_counted_by_their_own_decision():
    store = Store()
    play(store, [Turn(), Turn(tools=[*TOOLS, tool("later")]), Turn()])
    first, second = (decided(store, at)[0] for at in (0, 1))
    found = told(store)
    assert [one.offered for one in found.calls] == [first.whole, second.whole, first.whole]
    assert found.decisions == 3
    assert found.tools["later"].prompts.total == 1
    conserved(found)


def test_a_fork_goes_on_with_the_decision_of_its_parent():
    store = Store()
    play(store, [Turn(), Turn(), Turn(again=True), Turn(said="Or so.")])
    assert [event.reason for event in events(store, BranchOpened)] == ["root", "fork"]
    found = told(store)
    assert (found.decisions, found.undecided) == (1, 0)
    assert [(one.branch, one.call) for one in found.calls] == [(0, 1), (0, 2), (0, 3), (1, 3)]
    assert len({one.sent for one in found.calls}) == 1
    conserved(found)


# ---------------------------------------------------------------- calls


def test_calls_of_short_tools_are_told_apart_by_how_they_went():
    store = Store()
    turns = [
        Turn(uses=[fits(), fits("bash")]),
        Turn(legs=[{"schemas": ["issue_2"]}], uses=[fits("issue_2"), fits("issue_2")]),
        Turn(legs=[{"invalid": ["issue_3"]}, {"invalid": ["issue_3"]}], uses=[misfits("issue_3")]),
        Turn(legs=[{"invalid": ["issue_4"]}], uses=[fits("issue_4")]),
        Turn(uses=[("issue_5", '{"title": "cut o')]),
    ]
    play(store, turns)
    found = told(store)
    ways = {name: (one.at_once, one.after_fault, one.passed_on) for name, one in found.tools.items() if one.calls}
    assert ways == {
        "bash": (0, 0, 0),
        "issue_1": (1, 0, 0),
        "issue_2": (1, 1, 0),
        "issue_3": (0, 0, 1),
        "issue_4": (0, 1, 0),
        "issue_5": (0, 0, 1),
    }
    assert {name: (one.faults, one.invalid) for name, one in found.tools.items() if one.faults or one.invalid} == {
        "issue_2": (1, 0),
        "issue_3": (0, 2),
        "issue_4": (0, 1),
    }
    assert found.sum("calls") == 7
    conserved(found)


def test_a_schema_that_came_beside_other_calls_is_what_the_next_call_goes_by():
    store = Store()
    leg = {"schemas": ["issue_1"], "mixed": True}
    play(store, [Turn(legs=[leg], uses=[fits("bash")]), Turn(uses=[fits()]), Turn(uses=[fits()])])
    one = told(store).tools["issue_1"]
    assert (one.at_once, one.after_fault) == (1, 1)


def test_a_tool_that_nobody_offered_is_counted_but_not_as_offered():
    store = Store()
    play(store, [Turn(uses=[("made_up", "{}")])])
    found = told(store)
    assert (found.tools["made_up"].calls, found.tools["made_up"].sessions) == (1, 0)
    assert "tools     7 offered: 0 called, 7 never" in schema_words.as_text(found)
    assert "made_up" not in schema_words.as_json(found)["never_called"]


def test_arguments_that_are_lost_are_taken_to_fit():
    store = Store()
    session = play(store, [Turn()])
    lost = ToolCalled(0, 1, 1, 0, "issue_1", "c1", sha256(b"lost").hexdigest(), "")
    store.append(Batch(session, 2_000_000.0, [lost])).result()
    assert told(store).tools["issue_1"].at_once == 1


# ---------------------------------------------------------------- sessions


def test_sessions_add_up_and_those_without_a_decision_are_counted_apart():
    store = Store()
    names = [play(store, [Turn(uses=[fits()])], key="a", at=1_000.0), play(store, [Turn()] * 2, key="b", at=2_000.0)]
    play(store, [Turn()], key="c", at=3_000.0, policy="keep_all", tools=Shortening(on=False))
    found, apart = told(store, "all"), [told(store, name) for name in names]
    assert (found.sessions, found.without) == (2, 1)
    assert found.offered == sum(one.offered for one in apart)
    one = found.tools["issue_1"]
    assert (one.sessions, one.called_in, one.calls) == (2, 1, 1)
    assert "Left out: 1 session without a decision on tools." in schema_words.as_text(found)
    conserved(found)


def test_sessions_are_chosen_by_name_and_by_when_they_began():
    store = Store()
    first, second = (play(store, [Turn()], key=key, at=at) for key, at in (("a", 1_000.0), ("b", 2_000.0)))
    assert chosen(store, []) == chosen(store, ["all"]) == [first, second]
    assert chosen(store, [second[:9], first]) == [first, second]
    assert chosen(store, [], 1_500.0) == chosen(store, [first, second], 1_500.0) == [second]
    with pytest.raises(ConfigError, match="session nope: none of 2"):
        chosen(store, ["nope"])


def test_a_decision_whose_content_is_gone_or_broken_is_told():
    for content, words in ((None, "is not in the log"), (b"{}", "can't be read")):
        store = Store()
        digest = sha256(content or b"gone").digest()
        event = ToolsDecided(0, 1, 1, digest.hex(), "", "")
        session = play(store, [Turn()], policy="keep_all", tools=Shortening(on=False))
        store.append(Batch(session, 0.0, [event], {digest: content} if content else {})).result()
        with pytest.raises(StoreCorrupt, match=words):
            told(store)


def test_a_request_that_can_not_be_read_offered_nothing():
    content = b"no JSON"
    call = CallReceived(0, 1, 1, "chat", "/", "m", False, "", 7, sha256(content).hexdigest(), [])
    assert LogContents({sha256(content).digest(): content}.get, load).offered(call) == ""


def test_a_request_of_which_a_part_is_lost_offered_what_is_left():
    store = Store()
    note = {"note": PROSE * 2}
    play(store, [Turn(members={"metadata": note})])
    (call,) = events(store, CallReceived)
    lost = sha256(json.dumps(note).encode()).digest()
    assert store.blob(lost)
    left = LogContents(lambda digest: None if digest == lost else store.blob(digest), load)
    assert left.offered(call) == decided(store)[1].digest


# ---------------------------------------------------------------- laws


NAMES = st.sampled_from(["bash", "issue_1", "issue_2", "issue_3", "made_up"])
LEGS = st.fixed_dictionaries(
    {},
    optional={
        "schemas": st.lists(NAMES, max_size=2),
        "invalid": st.lists(NAMES, max_size=2),
        "mixed": st.booleans(),
    },
)
USES = st.tuples(NAMES, st.sampled_from([json.dumps(GOOD), json.dumps(BAD), "", "{", "[]"]))
TURNS = st.builds(
    Turn,
    tools=st.sampled_from([None, None, [], TOOLS[:3], TOOLS[:1]]),
    legs=st.lists(LEGS, max_size=2),
    uses=st.lists(USES, max_size=3),
    headers=st.sampled_from([{}, {}, {"x-pager-bypass": "1"}]),
    members=st.sampled_from([{}, {}, {"tool_choice": "none"}]),
    bypass=st.sampled_from(["", "", "", "refused", "failed"]),
    fails=st.booleans(),
    again=st.booleans(),
    said=st.sampled_from(["", "", "", "Or so."]),
    gap=st.sampled_from([10.0, 10.0, 1_000.0]),
)


@examples(40)
@given(st.lists(st.lists(TURNS, min_size=1, max_size=6), min_size=1, max_size=3), st.sampled_from([300, 20_000]))
def test_parts_add_up_to_wholes(plays, defer_above):
    store = Store()
    for at, turns in enumerate(plays):
        play(store, turns, key=f"key-{at}", tools=Shortening(defer_above=defer_above))
    found = told(store)
    conserved(found)
    answered = len(events(store, AnswerFinished))
    legs, called = events(store, LegFinished), events(store, ToolCalled)
    told_apart = [told(store, name) for name in chosen(store, [])]
    assert found.offered == sum(one.offered for one in told_apart)
    assert found.sessions + found.without == len(plays)
    counted = [one for one in told_apart if one.sessions]
    assert sum(one.prompts for one in counted) <= answered + sum(not leg.mixed for leg in legs)
    if not found.without:
        assert found.sum("calls") == len(called)
        assert found.sum("faults") == sum(len(leg.schemas) for leg in legs)
        assert found.sum("invalid") == sum(len(leg.invalid) for leg in legs)
    schema_words.as_text(found)


# ---------------------------------------------------------------- in words


def test_the_account_is_told_in_words_with_a_line_for_each_tool():
    store = Store()
    turns = [Turn(uses=[fits()]), Turn(legs=[{"invalid": ["issue_2"]}], uses=[fits("issue_2")])]
    play(store, [*turns, Turn(headers={"x-pager-bypass": "1"})])
    event, tools = decided(store)
    text = schema_words.as_text(told(store))
    assert "sessions  1, with 3 calls with a decision on tools, in 4 prompts" in text
    assert "tools     7 offered: 2 called, 5 never" in text
    saved = 3 * (event.whole - event.sent)
    assert f"{event.whole:,} in a prompt became " in text
    assert f"% less, {saved:,} in all" in text
    assert "in full   1 of these prompts had all tools in full" in text
    assert "2, 2 of them of tools that were sent short: 1 at once, 1 after the model had seen the full tool, 0" in text
    assert "0 schemas asked for, 1 calls caught that did not fit" in text
    (line,) = [line for line in text.splitlines() if line.startswith("issue_2 ")]
    short = tools.shortened["issue_2"]
    sent = round((3 * short.tokens + short.whole_tokens) / 4)
    assert line.split()[:9] == ["issue_2", "shortened,", "full", str(short.whole_tokens), str(sent), "1", "0", "1", "0"]


def test_tools_that_are_called_come_first_then_the_largest():
    store = Store()
    play(store, [Turn(tools=[*TOOLS, tool("zeppelin", parameters=9)], uses=[fits("issue_3")])])
    names = [one.name for one in schema_words.ordered(told(store))]
    assert (names[:2], names[-1]) == (["issue_3", "zeppelin"], "bash")


def test_tools_that_no_answered_prompt_had_are_told_without_numbers():
    store = Store()
    play(store, [Turn(fails=True)])
    text = schema_words.as_text(told(store))
    assert "no prompt with these tools was answered" in text
    (line,) = [line for line in text.splitlines() if line.startswith("bash ")]
    assert line.split()[:4] == ["bash", "none", "0", "0"]


# ---------------------------------------------------------------- at one call


def at_call(store, session, branch, call, attempt=1):
    log: list[Stored] = list(store.events(session))
    return tooling(log, CallAddress(branch, call, attempt), LogContents(store.blob, load))


def test_what_held_at_a_call_is_told_with_where_it_was_decided():
    store = Store()
    other = [{"type": "web_search"}]
    turns = [FORCED, Turn(gap=1_000.0), Turn(), Turn(headers={"x-pager-bypass": "1"}), Turn(tools=other)]
    session = play(store, turns)
    event, tools = decided(store)
    assert at_call(store, session, 0, 1) is None
    now, later, full, other = (at_call(store, session, 0, call) for call in (2, 3, 4, 5))
    assert (now.branch, now.call, now.reason, now.before, now.unused) == (0, 2, event.reason, "", "")
    assert (now.tools, now.offered.total, now.sent.total) == (ByForm(1, 6), event.whole, event.sent)
    assert [one.name for one in now.each if one.handle] == list(tools.shortened)
    assert later == now
    assert full.unused == "it went out with all of its tools whole"
    assert other.unused == "it offers other tools, or none"


def test_what_was_taken_over_in_a_session_is_told_with_its_reason():
    store = Store()
    session = play(store, [Turn(), Turn(tools=TOOLS[:5]), Turn()])
    event = events(store, ToolsDecided)[0]
    found = at_call(store, session, 0, 3)
    assert (found.call, found.reason) == (3, "as it was decided before in this session")
    assert found.before == f"call 0:1: {event.reason}"
