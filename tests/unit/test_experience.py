"""What other sessions have taught: a few numbers, beside those that are shipped."""

import json
import math
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.log.events import BranchOpened, Bypassed, Learned
from pager.log.store import Stored
from pager.paging import priors, tool_forms_of_call
from pager.paging.pages.session_pages import SessionPages, TableSource
from pager.paging.planner import Terms
from pager.paging.policy import Prices
from pager.paging.priors import (
    ENOUGH,
    GROWTH,
    LONGEST,
    NAME,
    OFFERS,
    SHIPPED,
    SIZE,
    STRENGTH,
    WEIGHT,
    Experience,
    Harness,
    Seen,
    Use,
    Version,
    decode,
    expected,
    family_of_harness,
    newest,
    owner,
    shipped,
    strength,
)
from pager.tools.decide_forms import OFTEN
from pager.wire.dialects import load


def knows(harness="agent", **more):
    return Experience({harness: Harness(**more)})


# ---------------------------------------------------------------- what is shipped


def test_a_fresh_install_knows_tools_by_their_names_in_any_spelling():
    known = {shipped(name, argument=False) for name in ("grep_search", "GrepSearch", "grep-search", "rg")}
    assert known == {shipped("grep", argument=False)}
    assert shipped("grep", argument=False) < shipped("read", argument=False) == 1.0 < shipped("ls", argument=False)


def test_tools_that_nobody_knows_are_as_usual_and_arguments_are_all_alike():
    assert shipped("some_tool", argument=False) == shipped("", argument=False) == 1.0
    assert shipped("grep", argument=True) == shipped("some_tool", argument=True)


@pytest.mark.parametrize("argument", [False, True])
@pytest.mark.parametrize("tool", ["grep", "some_tool"])
def test_where_nothing_was_learned_the_shipped_numbers_hold(tool, argument):
    assert SHIPPED.usual("agent", tool, argument=argument) == shipped(tool, argument=argument)
    assert knows().usual("another", tool, argument=argument) == shipped(tool, argument=argument)
    assert SHIPPED.to_go("agent", 10) is None


def test_demand_grows_with_size():
    assert strength(SIZE) == STRENGTH
    assert strength(32 * SIZE) == pytest.approx(STRENGTH * 32**GROWTH)
    assert strength(0) == strength(1) > 0


# ---------------------------------------------------------------- how often pages are needed


def test_a_page_is_expected_to_be_needed_once_its_grace_is_over():
    assert expected(SIZE, 0) == expected(SIZE, 2) == 0.0
    assert expected(SIZE, 200) == pytest.approx(1 - 100**-STRENGTH)
    assert expected(10**9, 4) == pytest.approx(1 - 2**-0.95), "0.95 at most"


@given(st.floats(0, 1e6), st.floats(0, 1e4), st.floats(1, 100))
def test_larger_pages_and_longer_times_make_a_need_likelier(tokens, calls, more):
    assert 0 <= expected(tokens, calls) <= expected(tokens * more, calls) < 1
    assert expected(tokens, calls) <= expected(tokens, calls * more) < 1


def test_what_was_seen_stands_beside_what_is_shipped_with_its_weight():
    # 30 pages were needed where 10 were expected; beside them count 20 pages that were needed as often as is shipped.
    seen = Seen(needed=30.0, expected=10.0)
    learned = knows(results={"read": seen, "grep": seen}, arguments={"write": seen})
    assert WEIGHT == 20.0
    assert learned.usual("agent", "read", argument=False) == pytest.approx(50 / 30)
    assert learned.usual("agent", "grep", argument=False) == pytest.approx(
        (30 + 20 * shipped("grep", argument=False)) / 30
    )
    assert learned.usual("agent", "write", argument=True) == pytest.approx((30 + 20 * shipped("x", argument=True)) / 30)


def test_results_and_arguments_of_a_tool_are_told_apart():
    learned = knows(results={"edit": Seen(100.0, 10.0)})
    assert learned.usual("agent", "edit", argument=True) == shipped("edit", argument=True)


def test_tools_are_told_apart_by_their_very_name_and_by_the_harness():
    learned = knows(results={"Read": Seen(100.0, 10.0)})
    assert learned.usual("agent", "read", argument=False) == 1.0
    assert learned.usual("another", "Read", argument=False) == 1.0


@given(st.floats(0, 1e5), st.floats(0, 1e5), st.sampled_from(["grep", "read", "ls"]))
def test_what_is_usual_lies_between_what_was_seen_and_what_is_shipped(needed, predicted, tool):
    usual = knows(results={tool: Seen(needed, predicted)}).usual("agent", tool, argument=False)
    seen = needed / predicted if predicted else math.inf
    low, high = sorted((seen, shipped(tool, argument=False)))
    assert low - 1e-9 <= usual <= high * (1 + 1e-9)


# ---------------------------------------------------------------- how long sessions last


def test_the_calls_to_go_are_the_mean_of_what_longer_sessions_still_had():
    # Of sessions of 1 to 100 calls, those above 60 have 80.5 on the average; those above 10 have 55.5.
    learned = knows(lengths=range(1, 101))
    assert learned.to_go("agent", 60) == pytest.approx(20.5)
    assert learned.to_go("agent", 20) == pytest.approx(40.5)


def test_a_session_that_ended_here_has_not_got_further():
    learned = knows(lengths=[10] * ENOUGH + [30] * ENOUGH)
    assert learned.to_go("agent", 9) == pytest.approx(11.0)
    assert learned.to_go("agent", 10) == pytest.approx(20.0)


def test_too_few_sessions_that_got_so_far_say_nothing():
    assert knows(lengths=[30] * (ENOUGH - 1)).to_go("agent", 20) is None
    assert knows(lengths=[30] * ENOUGH).to_go("agent", 20) == pytest.approx(10.0)
    assert knows(lengths=[30] * ENOUGH).to_go("agent", 30) is None


def test_a_young_session_is_not_taken_to_go_on_for_ever():
    learned = knows(lengths=[1_000] * ENOUGH)
    assert learned.to_go("agent", 3) == LONGEST * 3
    assert learned.to_go("agent", 900) == pytest.approx(100.0)


@given(st.lists(st.integers(1, 500), max_size=100).map(sorted), st.integers(0, 600))
def test_there_is_at_least_one_call_to_go_or_none_at_the_very_beginning(lengths, calls):
    to_go = knows(lengths=lengths).to_go("agent", calls)
    longer = [length for length in lengths if length > calls]
    assert (to_go is None) == (len(longer) < ENOUGH)
    if to_go is not None:
        assert min(1, calls) <= to_go <= min(LONGEST * calls, 500 - calls)


# ---------------------------------------------------------------- which tools are called

CORE = ("Bash", "Read", "Edit", "MultiEdit", "Grep", "exec_command", "apply_patch", "run_shell_command", "read_file")
OTHERS = (
    "Write", "Glob", "LS", "TodoWrite", "WebFetch", "WebSearch", "NotebookEdit", "BashOutput", "KillShell",
    "ExitPlanMode", "AskUserQuestion", "todo__todo_write", "update_plan", "write_stdin", "view_image", "List",
    "fetch_web_content", "Checklist",
)  # fmt: skip
CHOICES = ("Task", "Skill", "SlashCommand", "agent", "delegate", "spawn_agent", "Skills")
USUAL = 0.1
"""What is taken of a tool that nothing is known of."""


def uses(offered, called, tool="find_ticket"):
    return Experience(tools={owner("local", "agent/1"): {tool: Use(offered, called)}})


def chance(known, tool="find_ticket", usual=USUAL):
    return known.use("local", "agent/2", tool, usual)


@pytest.mark.parametrize("tool", [*CORE, *OTHERS, *CHOICES])
def test_what_coding_agents_bring_themselves_stays_whole_on_a_fresh_install(tool):
    assert chance(SHIPPED, tool) >= OFTEN


@pytest.mark.parametrize("tool", ["find_ticket", "mcp__github__search_code", "team_cleanup", "delete", "get_goal"])
def test_of_other_tools_a_fresh_install_knows_nothing(tool):
    assert chance(SHIPPED, tool) == USUAL


def test_what_was_seen_of_a_tool_stands_beside_what_is_shipped_with_its_weight():
    assert OFFERS == 5.0
    assert chance(uses(15, 12)) == pytest.approx((12 + 5 * USUAL) / 20)
    assert chance(uses(15, 0, "Read"), "Read") == pytest.approx(5 * 0.9 / 20)
    assert chance(uses(15, 12), "another") == USUAL


counts = st.integers(0, 2_000).flatmap(lambda offered: st.tuples(st.just(offered), st.integers(0, offered)))
named = st.sampled_from(["find_ticket", "Read", "TodoWrite", "Task"])


@given(counts, named, st.floats(0, 1))
def test_a_chance_is_one_and_grows_with_calls(counted, tool, usual):
    offered, called = counted
    now = chance(uses(offered, called, tool), tool, usual)
    assert 0 <= now <= 1
    if called < offered:
        more = chance(uses(offered, called + 1, tool), tool, usual)
        assert more > now or (tool == "Task" and more == now)


@given(st.floats(0, 1), st.sampled_from(["find_ticket", "Read", "TodoWrite"]), st.floats(0, 1))
def test_with_many_sessions_a_chance_is_the_share_of_them(share, tool, usual):
    called = round(share * 10_000)
    assert chance(uses(10_000, called, tool), tool, usual) == pytest.approx(called / 10_000, abs=0.001)


@pytest.mark.parametrize("tool", [*CORE, *OTHERS])
def test_a_shipped_tool_that_is_hardly_ever_called_is_not_kept_whole_for_ever(tool):
    assert chance(uses(1, 0, tool), tool) >= OFTEN
    assert chance(uses(40, 1, tool), tool) < OFTEN


@pytest.mark.parametrize("tool", CHOICES)
def test_tools_that_say_what_there_is_to_choose_from_stay_whole_however_few_calls(tool):
    assert chance(uses(2_000, 0, tool), tool) == chance(SHIPPED, tool) >= OFTEN
    assert chance(uses(2_000, 1_900, tool), tool) == pytest.approx(0.95, abs=0.01)


def test_a_tool_that_is_always_called_is_soon_kept_whole():
    assert chance(uses(1, 1), usual=6 / 221) < OFTEN <= chance(uses(2, 2), usual=6 / 221)


def test_a_tool_is_known_to_its_tenant_its_program_and_by_its_very_name():
    known = uses(100, 100)
    assert known.use("local", "agent/9", "find_ticket", USUAL) > 0.9
    assert known.use("other", "agent/1", "find_ticket", USUAL) == USUAL
    assert known.use("local", "another/1", "find_ticket", USUAL) == USUAL
    assert known.use("local", "agent/1", "Find_Ticket", USUAL) == USUAL


words = st.text(st.sampled_from("ab /"), max_size=5)


@given(st.tuples(words, words), st.tuples(words, words))
def test_no_two_tenants_are_taken_for_one(one, other):
    if one[0] != other[0]:
        assert owner(*one) != owner(*other)


def decided(tenant, known):
    """The form in which each of a dozen tools is sent to this tenant's model."""
    prose = "Does what it says. It has a long story to tell of how and when to use it, and of what there is. " * 4
    described = {"type": "object", "properties": {"id": {"type": "string", "description": prose}}}
    functions = [{"name": f"tool{at}", "description": prose, "parameters": described} for at in range(12)]
    tools = [{"type": "function", "function": one} for one in functions]
    dialect = load("chat")
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": tools}).encode()
    pages = SessionPages()
    pages.open(BranchOpened(0, "root", "chat"), TableSource(load, {}.get))
    terms = Terms(Prices(), 100_000, 10_000, experience=known, tenant=tenant, harness="agent/1")
    offers = dialect.offers(dialect.parse(body)).offers
    found = tool_forms_of_call.settle(pages, (0, 1, 1), offers, [], terms, tool_forms_of_call.Shortening())
    return found.content, {one.name: one.form for one in pages.tables[0].tools.sent}


def test_what_a_tenants_tools_are_called_never_shows_in_anothers_decisions():
    known = uses(30, 30, "tool3")
    content, forms = decided("local", known)
    assert {name for name, form in forms.items() if form == "whole"} == {"tool3"}
    for tenant in ("other", "local agent", "loca", ""):
        assert decided(tenant, known) == decided(tenant, SHIPPED)
        assert decided(tenant, known)[0] != content
    assert set(decided("other", known)[1].values()) == {"slim"}


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("harness", "family"), [("agent/1.0", "agent"), ("agent/2.0/x", "agent"), ("agent", "agent"), ("", ""), ("/1", "")]
)
def test_a_new_version_of_a_program_goes_on_with_what_the_one_before_has_taught(harness, family):
    assert family_of_harness(harness) == family
    learned = Experience({family: Harness(results={"read": Seen(100.0, 0.0)}, lengths=[30] * ENOUGH)})
    assert learned.usual(harness, "read", argument=False) == pytest.approx(6.0)
    assert learned.to_go(harness, 20) == pytest.approx(10.0)


def test_names_of_programs_have_their_length():
    assert len(family_of_harness("x" * 1_000)) == NAME


# ---------------------------------------------------------------- versions

seen = st.builds(Seen, st.floats(0, 1e9), st.floats(0, 1e9))
tools = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), seen, max_size=4)
lengths = st.lists(st.integers(1, 10**6), max_size=5).map(sorted)
harnesses = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=8), st.builds(Harness, tools, tools, lengths)
)


@given(harnesses)
def test_what_is_kept_is_read_again_and_is_the_same_bytes_in_any_order(harnesses):
    one = Experience(harnesses)
    content = one.encode()
    again = decode(content)
    assert (again.encode(), again.version) == (content, one.version)
    backwards = Experience(dict(reversed(harnesses.items())))
    assert (backwards.encode(), backwards.version) == (content, one.version)
    for harness in harnesses:
        assert again.usual(harness, "read", argument=False) == one.usual(harness, "read", argument=False)


def test_a_version_is_the_digest_of_the_content_and_what_is_shipped_has_none():
    one, other = knows(lengths=[1]), knows(lengths=[2])
    assert len(one.version) == 64
    assert one.version != other.version
    assert SHIPPED.version == decode(SHIPPED.encode()).version == ""


def test_what_was_learned_before_there_were_tools_in_it_is_read_and_named_as_ever():
    content = (
        b'{"harnesses":{"claude-cli":{"results":{"Bash":[31.2,27.4],"Grep":[4.8,11.9],"Read":[95.4,91.5]},'
        b'"arguments":{"Edit":[20.4,12.2],"Write":[5.4,4.8]},"lengths":[2,5,9,14,22,31,48,77,130]}}}'
    )
    known = decode(content)
    assert known.tools == {}
    assert known.encode() == content
    assert known.version == sha256(content).hexdigest()
    assert known.version.startswith("3848f1491084")
    assert known.use("local", "claude-cli/2", "Read", USUAL) == SHIPPED.use("local", "claude-cli/2", "Read", USUAL)


used = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=8), st.builds(Use, st.integers(0), st.integers(0))
)


@given(harnesses, st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), used, max_size=3))
def test_which_tools_are_called_is_part_of_the_version(harnesses, tools):
    one = Experience(harnesses, tools)
    assert decode(one.encode()).tools == tools
    assert decode(one.encode()).version == one.version
    assert (one.version == Experience(harnesses).version) == (not tools)
    assert bool(one.version) == bool(harnesses or tools)
    backwards = {name: dict(reversed(calls.items())) for name, calls in reversed(tools.items())}
    assert Experience(harnesses, backwards).encode() == one.encode()


def stored(*events):
    return [Stored(at + 1, priors.LOG, 100.0 * at, event) for at, event in enumerate(events)]


def test_the_newest_version_is_the_last_that_was_logged():
    other = Bypassed("x")
    assert newest([]) is None
    assert newest(stored(other)) is None
    log = stored(Learned("ab" * 32, 3, 10), other, Learned("cd" * 32, 5, 20), other)
    assert newest(log) == Version("cd" * 32, 200.0)
