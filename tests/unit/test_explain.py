"""Why each page stayed or went at a call, from a log that the real call log and planner have written."""

import json
from hashlib import sha256

import pytest
from chat_items import ON, call, page, result, say, user
from hypothesis import given
from hypothesis import strategies as st
from laws import examples
from logged_sessions import START, LoggedCall, asks_for, body, grown, log_session, paging, too_long

from instrumentation.accounting.call_addresses import find_call, meant
from instrumentation.accounting.explain import explain
from instrumentation.reports import explain as explain_words
from pager.errors import ConfigError, PolicyError
from pager.log.events import (
    Bypassed,
    CallReceived,
    ToolsDecided,
)
from pager.log.store import Batch
from pager.log.stores.memory.store import Store
from pager.paging import planner
from pager.paging.planning_rules import PlanningRules
from pager.paging.policy import Decision
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.paging.priors import Experience, Harness
from pager.paging.tool_forms_of_call import Shortening
from pager.request_values import CallAddress, Usage
from pager.wire.dialects import load

FIFO = {"age": 1, "size": 500}


def reads(sizes):
    """The histories of a session that reads a file of so many lines after each call."""
    said = [user("do it")]
    yield list(said)
    for at, lines in enumerate(sizes):
        said += [call(f"c{at}", path=f"src/{at}.py"), result(f"c{at}", page(f"file {at}", lines))]
        yield list(said)


def play(
    store, calls, *, name="cost_aware", options=None, dialect="chat", key="one", learned="", policy=None, **planned
):
    arms = {"arms": Arms(NamedPolicy(name, policy))} if policy else {}
    pager = paging(name, options, tools=Shortening(), **arms, **planned)
    pager.learned = learned
    return log_session(store, calls, pager, dialect=dialect, key=key)


def counted(tokens):
    """The provider counts so many tokens."""
    usage = Usage(tokens, tells_cached=True)

    async def then(call_log, pager, entry, now):
        if entry.paged is not None:
            outgoing = entry.paged.outgoing
            size = outgoing.size if outgoing.changed else entry.recipe.size
            entry.paged.table.learn_usage(usage, size, entry.placement.call)

    return {"then": then, "usage": usage}


def told(store, named, session="s_", *, policy="cost_aware", options=None, instead="", prices="anthropic", **more):
    rules = PlanningRules(prices, policy=policy, policy_options=options or {}, cache_marks=False, **more)
    return explain(store, session, str(named), rules, load, instead)


def fifo(store, named, session="s_", **more):
    return told(store, named, session, policy="fifo_age", options=FIFO, **more)


def verdicts(explanation):
    return [row.verdict for row in explanation.rows]


# ---------------------------------------------------------------- what was decided, weighed again


EAGER = {"margin": 0.0, "cover": 0.0}


def coldly(store):
    """A session that reads many files, under a policy that evicts whenever that costs nothing: at call 11."""
    stages = enumerate(reads([40, 100, 160, 220] * 3))
    play(store, [LoggedCall(body(*said), 1_000.0 if at == 10 else 10.0) for at, said in stages], options=EAGER)


def test_a_page_that_went_is_told_with_the_numbers_that_decided():
    store = Store()
    coldly(store)
    found = told(store, 11, options=EAGER)
    assert (found.warm, found.idle, found.colds, found.arm) == (False, 1_000.0, 1, "")
    assert (found.harness, found.model, found.to_go) == ("pi/0.73", "some-model", 22.0)
    assert found.warmth == "1,000 s since the call before, and a prompt is kept for 300 s"
    assert (found.weighing.policy, found.weighing.chosen_by) == ("cost_aware", "logged with this call")
    assert (found.weighing.differs, found.weighing.unplanned) == ("", "")
    (repacked,) = found.logged.repacks
    gone = [row for row in found.rows if row.went]
    assert [row.page.handle for row in gone] == [one.page for one in repacked.pages] != []
    assert {row.verdict for row in gone} == {"went (policy)"}
    assert verdicts(found)[-2:] == ["stayed: new"] * 2
    assert [row.about for row in found.rows][:2] == ["src/0.py", "src/1.py"]
    for row in found.rows:
        assert row.worth == pytest.approx(row.saving - row.chance * row.fault)
    text = explain_words.as_text(found)
    assert f"repack by policy: {repacked.reason}; {len(gone)} pages removed, {repacked.saved:,} tokens less" in text
    worth = sum(row.worth for row in gone)
    assert f"expected gain {worth:,.0f}*, cost now " in text


def test_pages_that_had_gone_say_when_and_are_not_weighed():
    store = Store()
    coldly(store)
    went = [row.page.handle for row in told(store, 11, options=EAGER).rows if row.went]
    found = told(store, 12, options=EAGER)
    gone = [row for row in found.rows if row.state == "evicted"]
    assert {(row.why, row.verdict, row.worth, row.went) for row in gone} == {("at call 11", "gone before", None, False)}
    assert [row.page.handle for row in gone] == went
    assert found.saved > found.spent == 0.0
    assert found.tool == "page_in"
    assert "evicted at call 11" in explain_words.as_text(found)


@examples(15)
@given(
    st.lists(st.tuples(st.integers(5, 300), st.sampled_from([10.0, 280.0, 900.0])), min_size=3, max_size=14),
    st.sampled_from(["cost_aware", "fifo_age", "lru"]),
)
def test_every_decision_weighed_again_is_the_one_that_was_logged(pages, name):
    store, options = Store(), {"lru": {"capacity": 2_000}}.get(name, {})
    stages = list(reads(lines for lines, _ in pages))[1:]
    calls = [LoggedCall(body(*said), gap, **counted(9_000)) for said, (_, gap) in zip(stages, pages, strict=True)]
    play(store, calls, name=name, options=options)
    for number in range(1, len(calls) + 1):
        found = told(store, number, policy=name, options=options)
        assert found.weighing.differs == ""
        logged = [one.page for event in found.logged.repacks for one in event.pages]
        assert [row.page.handle for row in found.rows if row.went] == logged == list(found.weighing.pages)
        assert [row.goes for row in found.rows] == [row.went for row in found.rows]
        explain_words.as_text(found)


def test_other_prices_now_are_said_where_they_decide_otherwise():
    store = Store()
    play(store, grown(3), name="fifo_age", options=FIFO)
    same = fifo(store, 3)
    assert (same.weighing.differs, verdicts(same)) == ("", ["went (policy)"])
    dearer = fifo(store, 3, prices="openai")
    assert dearer.weighing.differs.startswith("the same pages at another price: ")
    older = told(store, 3, policy="fifo_age", options={"age": 50})
    assert older.weighing.differs == "1 pages went then, 0 would go now, 0 of them the same"
    assert verdicts(older) == ["went (policy); would stay now"]
    assert "differs" in explain_words.as_text(older)


def test_a_longer_grace_now_lets_more_pages_stay():
    store = Store()
    play(store, grown(4), name="fifo_age", options=FIFO)
    found = fifo(store, 3, grace=3)
    assert (found.rows[0].state, found.rows[0].why) == ("pinned", "new")
    assert verdicts(found) == ["went (policy); would stay now"]


def test_a_page_that_would_go_now_is_told_as_such():
    store = Store()
    play(store, grown(4), name="cost_aware")
    found = fifo(store, 4)
    assert found.weighing.chosen_by.startswith("configured now")
    assert verdicts(found) == ["stayed; would go now"]
    assert found.weighing.differs == "0 pages went then, 1 would go now, 0 of them the same"


def test_a_policy_that_gives_no_numbers_still_has_verdicts():
    store = Store()
    play(store, grown(4), name="lru")
    found = told(store, 4, policy="lru")
    assert [(row.verdict, row.worth) for row in found.rows] == [("stayed: not chosen", None)]
    assert (found.to_go, found.guess) == (None, "nothing is known of such sessions")
    assert "worth" not in explain_words.as_text(found)


def test_another_policy_can_be_asked_instead():
    store = Store()
    play(store, grown(4), name="lru")
    found = told(store, 4, instead="fifo_age")
    assert (found.weighing.policy, found.weighing.chosen_by) == ("fifo_age", "as asked for now")
    assert found.weighing.differs == ""
    with pytest.raises(PolicyError, match="fifo_ag"):
        told(store, 4, instead="fifo_ag")


def test_a_decision_that_breaks_a_rule_is_told_with_the_rule():
    class Wrong:
        def choose(self, view):
            return Decision(("pg_0000000000000000",), reason="so it is")

    store = Store()
    play(store, grown(3), policy=Wrong(), name="tests.wrong:Wrong")
    found = told(store, 3)
    assert [event.reason for event in found.logged.bypasses] == ["decision_rejected"]
    assert "bypassed, decision_rejected: pg_0000000000000000 is not in the prompt" in explain_words.as_text(found)


# ---------------------------------------------------------------- why a page stayed


OWN = """
from pager.paging.policy import Decision, Weighed

class Last:
    \"\"\"Evicts the last page that it may, of a prompt that is large enough; every second page costs more.\"\"\"

    def choose(self, view):
        last = [page.handle for page in view.pages if page.evictable][-1:]
        go = last and view.tokens > {least}
        return Decision(tuple(last), reason="the last one") if go else Decision(reason="too small")

    def explain(self, view):
        gone = self.choose(view).evict
        return [Weighed(page, page.handle in gone, 0.5, 2.0, 2.0, 1.0 - page.position % 2) for page in view.pages]
"""


@pytest.mark.parametrize(
    ("least", "expected"),
    [
        (0, ["stayed: before the cut", "stayed: costs more than it saves", "went (policy)"]),
        (1e9, ["stayed: no repack, see above", "stayed: costs more than it saves", "stayed: no repack, see above"]),
    ],
)
def test_a_page_that_might_have_gone_says_why_it_did_not(tmp_path, least, expected):
    path = tmp_path / "own.py"
    path.write_text(OWN.replace("{least}", str(least)))
    store, name = Store(), f"{path}:Last"
    said = list(reads([40, 40, 40]))[-1]
    play(store, [LoggedCall(body(*said, *ON * more)) for more in range(3)], name=name)
    found = told(store, 3, policy=name)
    assert verdicts(found) == expected
    assert [row.worth for row in found.rows] == [1.0, 0.0, 1.0]
    assert found.weighing.policy == name
    lines = explain_words.as_text(found).splitlines()
    assert any(line.split(maxsplit=1) == ["weighed", found.weighing.reason] for line in lines)


def test_the_rules_by_which_a_page_must_stay_are_named():
    store = Store()
    content = page("beta")
    failed = {"type": "tool_result", "tool_use_id": "c1", "content": content, "is_error": True}
    use = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}}
    start = (user("do it"), {"role": "assistant", "content": [use]}, {"role": "user", "content": [failed]})
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    calls = [
        LoggedCall({"model": "m", "max_tokens": 9, "tools": tools, "messages": [*start, *ON * more]})
        for more in range(4)
    ]
    play(store, calls, dialect="messages", name="fifo_age", options=FIFO)
    assert [verdicts(fifo(store, number)) for number in (1, 3)] == [["stayed: new"], ["stayed: a tool that failed"]]
    assert [row.state for row in fifo(store, 3).rows] == ["pinned"]
    assert fifo(store, 3).reserve == 9


def test_a_page_before_thinking_that_is_bound_to_it_stays():
    store = Store()
    use = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}}
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "signed"}
    shown = {"type": "tool_result", "tool_use_id": "c1", "content": page("beta")}
    start = (user("do it"), {"role": "assistant", "content": [use]}, {"role": "user", "content": [shown]})
    later = ({"role": "assistant", "content": [thinking, {"type": "text", "text": "I see."}]}, user())
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    calls = [
        LoggedCall(
            {"model": "claude-opus-5-1", "max_tokens": 9, "tools": tools, "messages": [*start, *later, *ON * more]}
        )
        for more in range(4)
    ]
    play(store, calls, dialect="messages", name="fifo_age", options=FIFO)
    assert verdicts(fifo(store, 4)) == ["stayed: thinking stands behind it"]


def test_a_page_that_was_asked_for_stays_a_while():
    store = Store()
    after = (say("I look.Yes."), user())
    calls = grown(3)
    calls[-1] = calls[-1]._replace(then=asks_for(page("alpha"), 3))
    calls += [LoggedCall(body(*START, *ON * 2, *after, *ON * more)) for more in range(5)]
    play(store, calls, name="fifo_age", options=FIFO)
    assert fifo(store, 3).logged.page_ins == 1
    assert "stayed: asked for lately" in {verdicts(fifo(store, number))[1] for number in range(5, 9)}
    found = fifo(store, 6)
    assert found.rows[0].page.faults == 1
    assert found.spent > 0


def test_a_page_that_went_to_fit_the_window_says_so():
    store = Store()
    calls = grown(2)
    calls[-1] = calls[-1]._replace(then=too_long)
    play(store, calls)
    found = told(store, 2)
    assert verdicts(found) == ["went (rescue)"]
    assert found.weighing.differs == ""
    assert "repack by rescue: 100 tokens too many" in explain_words.as_text(found)


# ---------------------------------------------------------------- calls that were not planned


def test_under_keep_all_nothing_was_planned():
    store = Store()
    arms = Arms(NamedPolicy("cost_aware", load_policy("cost_aware")), {"keep_all": None}, {"keep_all": 1.0})
    play(store, grown(4), arms=arms)
    found = told(store, 4)
    assert (found.arm, found.weighing.policy, found.weighing.chosen_by) == ("keep_all", "keep_all", "the session's arm")
    assert found.weighing.unplanned == "keep_all changes nothing"
    assert verdicts(found) == ["stayed: not planned"]
    assert "not at this call: keep_all changes nothing" in explain_words.as_text(found)
    assert "arm keep_all" in explain_words.as_text(found)


def test_a_call_that_asked_for_its_own_bytes_was_not_planned():
    store = Store()
    calls = grown(4)
    calls[-1] = calls[-1]._replace(headers={"x-pager-bypass": "1"})
    play(store, calls, name="fifo_age", options={"age": 3, "size": 500})
    found = told(store, 4, policy="fifo_age", options={"age": 2})
    assert found.weighing.unplanned == "asked: the client sent x-pager-bypass"
    assert verdicts(found) == ["stayed: not planned"]


def test_a_call_that_can_carry_no_tool_went_out_in_full():
    store = Store()
    calls = [LoggedCall(body(*START, *ON * more, tool_choice="required" if more == 3 else "auto")) for more in range(4)]
    calls[-1] = LoggedCall(body(*START, *ON * 3, tool_choice={"type": "function", "function": {"name": "read"}}))
    play(store, calls, name="fifo_age", options={"age": 3, "size": 500})
    assert told(store, 4, policy="fifo_age").weighing.unplanned.startswith("it went out in full: ")


def test_a_branch_in_which_paging_has_stopped_is_not_planned():
    async def refused(call_log, pager, entry, now):
        entry.paged.table.stopped = "HTTP 400"
        await call_log.decide(entry, now, [Bypassed("refused", "HTTP 400", 0, 2)], {})

    store = Store()
    calls = grown(4)
    calls[1] = calls[1]._replace(then=refused)
    play(store, calls, name="fifo_age", options=FIFO)
    found = fifo(store, 4)
    assert found.weighing.unplanned == "paging has stopped in this branch: HTTP 400"


def test_a_request_that_could_not_be_read_says_so():
    store = Store()
    log_session(store, [LoggedCall(b"no json", unread="no JSON", answered=False)])
    with pytest.raises(ConfigError, match="could not be read"):
        told(store, 1)


def test_a_request_whose_messages_stand_unevenly_can_not_be_explained():
    store = Store()
    items = [json.dumps(one).encode() for one in (user("do it"), say(), user())]
    raw = b'{"model": "m", "messages": [' + items[0] + b",  " + items[1] + b"," + items[2] + b"]}"
    play(store, [LoggedCall(raw)])
    with pytest.raises(ConfigError, match="can't be told apart"):
        told(store, 1)


# ---------------------------------------------------------------- what it was decided under


def test_why_a_cache_is_taken_to_be_warm_or_cold_is_said():
    store = Store()
    play(store, [*grown(3), LoggedCall(body(*START, *ON * 3), 301.0), LoggedCall(body(*START, *ON * 4), 300.0)])
    cases = {number: (told(store, number).warm, told(store, number).warmth) for number in (1, 3, 4, 5)}
    assert cases[1] == (False, "it is the first call")
    assert cases[3] == (True, "10 s since the call before, and a prompt is kept for 300 s")
    assert cases[4] == (False, "301 s since the call before, and a prompt is kept for 300 s")
    assert cases[5][0] is True
    none = told(store, 3, prices="none")
    assert (none.warm, none.warmth) == (False, "nothing is cached under these prices")
    small = told(store, 3, prices="", models={"some-model": {"input": 1.0, "cached": 0.1, "cache_minimum": 90_000}})
    assert (small.warm, "fewer than 90,000 are not cached" in small.warmth) == (False, True)


def test_what_the_session_had_learned_is_used_again():
    lesson = Experience(dict.fromkeys(("pi", "pi/0.73"), Harness(lengths=[50] * 30)))
    content = lesson.encode()
    for kept in (True, False):
        store = Store()
        if kept:
            store.append(Batch("learned", 0.0, blobs={sha256(content).digest(): content}))
        play(store, grown(4), learned=lesson.version)
        found = told(store, 4)
        assert found.learned.startswith("version " if kept else "what is shipped: what was learned as version ")
        assert found.to_go == (16.0 if kept else 8.0)


def test_the_policy_is_taken_from_the_nearest_thing_that_names_it():
    store = Store()
    play(store, grown(5), name="fifo_age", options=FIFO)
    assert told(store, 3).weighing.chosen_by == "logged with this call"
    assert told(store, 5).weighing.chosen_by == "logged with call 0:3 of the session"
    assert told(store, 5).weighing.policy == "fifo_age"


def test_a_fork_knows_when_pages_went_before_it():
    store = Store()
    play(store, [*grown(4), LoggedCall(body(*START, *ON, say("Or so."), user("yes")))], name="fifo_age", options=FIFO)
    found = fifo(store, "1:3")
    assert [(row.state, row.why) for row in found.rows] == [("evicted", "at call 3")]


def test_all_of_it_is_plain_values_for_programs():
    store = Store()
    play(store, grown(3), name="fifo_age", options=FIFO)
    plain = json.loads(json.dumps(explain_words.as_json(fifo(store, 3))))
    assert plain["rows"][0]["page"]["tool"] == "read"
    assert plain["rows"][0]["verdict"] == "went (policy)"
    assert plain["logged"]["repacks"][0]["cause"] == "policy"
    assert plain["prices"]["read"] == 0.1


# ---------------------------------------------------------------- tools


def offered(many=6):
    """Tools with much prose, and one that coding agents mostly use."""
    prose = "It is explained at length, with all that is to be minded, and what happens if it is not. " * 4
    parameters = {"type": "object", "properties": {"title": {"type": "string", "description": prose}}}
    names = ["bash", *(f"issue_{at}" for at in range(many))]
    return [
        {"type": "function", "function": {"name": name, "description": prose, "parameters": parameters}}
        for name in names
    ]


def plainly(found):
    """The lines of an explanation, whatever their columns."""
    return [" ".join(line.split()) for line in explain_words.as_text(found).splitlines()]


def test_what_was_decided_of_tools_is_told_with_the_call():
    store = Store()
    calls = [LoggedCall(body(*START, *ON * more, tools=offered())) for more in range(3)]
    calls[2] = calls[2]._replace(headers={"x-pager-bypass": "1"})
    play(store, calls)
    (event,) = [row.event for row in store.events() if isinstance(row.event, ToolsDecided)]
    found = told(store, 2)
    assert (found.tools.branch, found.tools.call, found.tools.reason) == (0, 1, event.reason)
    assert (found.tools.tools.whole, found.tools.tools.slim, found.tool) == (1, 6, "page_in")
    lines = plainly(found)
    assert f"tools decided at call 0:1: {event.reason}" in lines
    counts = f"6 shortened ({found.tools.sent.slim:,} tokens instead of {found.tools.offered.slim:,})"
    assert any(line.startswith("tools 1 full (") and counts in line for line in lines)
    assert any(line.endswith("cost 0*; page_in was added to them") for line in lines)
    each = lines[-7:]
    assert [line.split()[:2] for line in each] == [
        [one.name, {"whole": "full", "slim": "shortened"}[one.form]] for one in found.tools.each
    ]
    assert each[1].endswith(found.tools.each[1].reason)
    assert "tools not so in this call: it went out with all of its tools whole" in plainly(told(store, 3))
    plain = json.loads(json.dumps(explain_words.as_json(found)))
    assert plain["tools"]["each"][1]["form"] == "slim"


def test_a_prompt_is_as_long_as_it_was_with_its_tools_short():
    then = []

    async def see(call_log, pager, entry, now):
        paged = entry.paged
        then.append((planner.view(paged.table, paged.outside, paged.terms).tokens, paged.table.tool))

    store = Store()
    play(store, [LoggedCall(body(*START, *ON * more, tools=offered()), then=see) for more in range(3)])
    found = [told(store, number) for number in (1, 2, 3)]
    assert [(one.tokens, one.tool) for one in found] == then
    assert {one.tool for one in found} == {"page_in"}


def test_many_tools_have_their_lines_when_they_are_asked_for():
    store = Store()
    play(store, [LoggedCall(body(*START, tools=offered(20)))])
    found = told(store, 1)
    text = explain_words.as_text(found)
    assert "; --tools lists them" in text
    assert "\nissue_7 " not in text
    assert "\nissue_7 " in explain_words.as_text(found, tools=True)


def test_a_decision_that_was_taken_over_says_what_it_was():
    store = Store()
    some, more = offered(), offered(8)
    stages = enumerate([some, more, some])
    play(store, [LoggedCall(body(*START, *ON * at, tools=tools)) for at, tools in stages])
    text = explain_words.as_text(told(store, 3))
    assert "decided at call 0:3: as it was decided before in this session; call 0:1: 6 of 7 are sent short" in text


def test_where_nothing_was_decided_of_tools_that_is_said():
    store = Store()
    play(store, [LoggedCall(body(*START, tool_choice="none"))])
    found = told(store, 1)
    assert found.tools is None
    assert "tools no decision on them by then" in plainly(found)


@examples(10)
@given(
    st.lists(st.tuples(st.integers(5, 300), st.sampled_from([10.0, 900.0]), st.integers(0, 2)), min_size=3, max_size=9)
)
def test_pages_are_weighed_again_with_the_tools_as_they_were_sent(pages):
    store, lists = Store(), [offered(6), offered(9), None]
    stages = list(reads(lines for lines, *_ in pages))[1:]
    calls = [
        LoggedCall(body(*said, **({"tools": lists[at]} if lists[at] else {})), gap, **counted(9_000))
        for said, (_, gap, at) in zip(stages, pages, strict=True)
    ]
    play(store, calls, options=EAGER)
    log = [row.event for row in store.events()]
    for one in [event for event in log if isinstance(event, CallReceived)]:
        found = told(store, f"{one.branch}:{one.call}#{one.attempt}", options=EAGER)
        assert found.weighing.differs == ""


# ---------------------------------------------------------------- which session, which call


def test_a_session_is_known_by_its_beginning_if_no_other_has_it():
    store = Store()
    ids = [play(store, grown(1), key=f"key-{number}") for number in range(7)]
    assert meant(store, ids[0]) == ids[0]
    assert meant(store, ids[0][:12]) == ids[0]
    with pytest.raises(ConfigError, match=r"session s_: 7 sessions begin like that: .*, \.\.\."):
        meant(store, "s_")
    with pytest.raises(ConfigError) as error:
        meant(store, "nope")
    newest = ", ".join(f"{name} (key-{number})" for number, name in reversed([*enumerate(ids)][2:]))
    assert str(error.value) == f"session nope: none of 7 begins like that; the newest are {newest}, ..."


def test_an_empty_log_holds_no_session():
    with pytest.raises(ConfigError, match="no session at all"):
        meant(Store(), "s_1")


def test_a_call_is_named_by_branch_number_and_attempt():
    store = Store()
    again = LoggedCall(body(*START))
    name = play(store, [again, again, *grown(3)[1:], LoggedCall(body(*START, say("Or so."), user("yes")))])
    log = list(store.events(name))
    assert find_call(log, "3") == CallAddress(0, 3, 1)
    assert find_call(log, "0:1#2") == CallAddress(0, 1, 2)
    assert told(store, "1#2").attempts == 2
    for wrong, words in {
        "9": "call 9: there is none; the session has calls 1-3 in branch 0, 2 in branch 1",
        "1#7": "call 1#7: call 0:1 has no attempt 7; it has 1-2",
        "x": "call x: must be a number, as in 12, 0:12 (branch 0) or 0:12#2 (its second attempt)",
    }.items():
        with pytest.raises(ConfigError) as error:
            find_call(log, wrong)
        assert str(error.value) == words
    with pytest.raises(ConfigError, match="has no calls"):
        find_call([], "1")
