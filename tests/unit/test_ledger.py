"""The ledger of a log that the real call log and planner have written."""

import json
from hashlib import sha256

import msgspec
import pytest
from chat_items import ON, call, page, result, say, user
from hypothesis import given
from hypothesis import strategies as st
from laws import examples
from logged_sessions import ANTHROPIC, START, LoggedCall, asks_for, body, grown, log_session, paging, too_long
from work import steps

from instrumentation.accounting.billing import tokens_in, units
from instrumentation.accounting.cache_misses import MissReason
from instrumentation.accounting.ledger.call_facts import facts, together
from instrumentation.accounting.ledger.money import (
    Rates,
    WeighedCall,
    scaled,
    unpaged,
)
from instrumentation.accounting.ledger.sums import (
    KEYS,
    LedgerSums,
    grouped,
    ledger,
    peaks,
    recordings,
    story,
)
from instrumentation.accounting.story import (
    WASTE,
    CallStory,
    Inflicted,
    KeptWarm,
    Missed,
    MissStory,
    RepackStory,
    Story,
    StoryParts,
)
from pager.errors import ConfigError
from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    Bypassed,
    CallReceived,
    Cut,
    Evicted,
    PromptCounted,
    Repacked,
    SessionOpened,
    ToolsDecided,
)
from pager.log.store import Batch, Stored
from pager.log.stores.memory.store import Store
from pager.paging.pages.stub import handle_of
from pager.paging.tool_forms_of_call import Shortening
from pager.pricing.rates import in_force
from pager.request_values import CallAddress, ToolUse, Usage
from pager.wire.dialects import load

FIFO = {"age": 1, "size": 500}


def play(store, calls, *, name="fifo_age", options=FIFO, dialect="chat", key="one", **planned):
    pager = paging(name, options if name == "fifo_age" else {}, **planned)
    return log_session(store, calls, pager, dialect=dialect, key=key)


def told(store, session="s_", *, models=ANTHROPIC, **more):
    return story(store, session, models, load, **more)


def paged(*usages, **more):
    """A session that reads a page, evicts it at its third call, asks for it again at once, and goes on."""
    first, *others = usages or (None,) * 5
    calls = [one._replace(usage=usage) for one, usage in zip(grown(3), [first, others[0], others[2]], strict=True)]
    calls[-1] = calls[-1]._replace(then=asks_for(page("alpha"), 3, usage=others[1], **more))
    return [*calls, LoggedCall(body(*START, *ON * 2, say("I look.Yes."), user()), usage=others[3])]


# ---------------------------------------------------------------- known answers


def test_a_small_paged_session_has_exactly_these_figures():
    """The items of its calls have 36, 159, 2,561, then 42 and 36 bytes for each turn: 13, 59, 949, 16 and 13 tokens.

    Around them stand 51 bytes of tools and 50 of all else: 19 tokens each. The tool that is added has 532 bytes, the
    item with the stub has 125 instead of 2,561: 235 tokens before the items and 46 instead of 949. What was said when
    the page was asked for and what was answered is 1,024 tokens more.
    """
    store = Store()
    play(store, paged())
    found = told(store)
    one, two, three, four = found.calls
    head = {"unused_schemas": 19, "stale": 949}
    assert one.client == one.sent == StoryParts(system=19, unused_schemas=19, user=13, assistant=59, results=949)
    assert two.client == two.sent == StoryParts(resent=19, user=26, assistant=75, **head)
    assert three.client == StoryParts(resent=19, user=39, assistant=91, **head)
    assert three.sent == StoryParts(resent=19, unused_schemas=19, user=39, assistant=91, stubs=244)
    assert four.client == StoryParts(resent=19, user=52, assistant=108, **head)
    assert four.sent == StoryParts(resent=19, unused_schemas=19, user=52, assistant=108, stubs=1_266)
    requests = [(call.requests, call.input, call.cached, call.written, call.output) for call in found.calls]
    assert requests[:2] == [(1, 1_059, 0, 1_059, 1), (1, 1_088, 1_059, 29, 1)]
    assert requests[2:] == [(2, 412 + 1_436, 412, 412 + 1_024, 41), (1, 1_464, 1_436, 28, 1)]
    assert all(call.estimated for call in found.calls)
    assert [page.states for page in found.pages] == ["rsfe"]
    assert (three.pages_in, three.repack.cause, three.repack.pages) == (1, "policy", 1)
    assert three.repack.price == pytest.approx(1.15 * 252, rel=1e-3)
    assert [call.new for call in found.calls] == [1_059, 29, 0, 17]


def test_the_same_session_in_money():
    store = Store()
    play(store, paged())
    found = told(store)
    said = 5.0
    assert [call.cost for call in found.calls] == pytest.approx(
        [
            1.25 * 1_059 + said,
            0.1 * 1_059 + 1.25 * 29 + said,
            1.25 * 412 + 5.0 * 40 + 0.1 * 412 + 1.25 * 1_024 + said,
            0.1 * 1_436 + 1.25 * 28 + said,
        ]
    )
    assert [call.cost_before for call in found.calls] == pytest.approx(
        [1.25 * 1_059 + said, *(0.1 * old + 1.25 * new + said for old, new in ((1_059, 29), (1_088, 29), (1_117, 30)))]
    )
    three, sums = found.calls[2], ledger([found]).total.sums
    assert three.inflicted.stubs == pytest.approx(1.25 * 244)
    assert three.inflicted.page_ins == pytest.approx(5.0 * 40 + 0.1 * 412 + 1.25 * 1_024)
    assert (three.inflicted.page_in_tokens, three.inflicted.corrections) == (1_436, 0.0)
    assert sums.client.total == 1_059 + 1_088 + 1_117 + 1_147
    assert sums.upstream == sums.input == 1_059 + 1_088 + 412 + 1_436 + 1_464
    assert (sums.avoided_tokens, sums.avoided["stale"]) == (2 * 949, 2 * 949)
    assert sums.inflicted_tokens == 244 + 1_436 + 1_266
    assert sums.remaining == {"unused_schemas": 4 * 19, "stale": 949, "duplicates": 0, "superseded": 0, "resent": 57}
    assert sums.saved == pytest.approx(sums.avoided_cost - sums.inflicted.cost)
    assert sums.saved < 0
    assert (sums.repacks, sums.pages_in, sums.requests, sums.calls) == (1, 1, 5, 4)
    assert (sums.evicted, sums.missed, sums.faults_per_page, sums.faults_per_call) == (1, 1, 1.0, 0.25)
    assert sums.amplification == pytest.approx(4_411 / 1_105)
    assert sums.hit_rate == pytest.approx((1_059 + 412 + 1_436) / 5_459)
    assert sums.hit_rate_before == pytest.approx((1_059 + 1_088 + 1_117) / 4_411)
    assert sums.working == 949


def test_a_prompt_that_paging_keeps_below_the_step_would_have_cost_the_price_above_it():
    own = {"input": 1.0, "output": 5.0, "cached": 0.1, "written": 1.25}
    models = in_force("", {"own": {**own, "step_tokens": 100, "step_factor": 5.0, "step_output": 4.0}})
    first = Usage(input=90, cached=80, written=10, output=2)
    weighed = WeighedCall(1.0, StoryParts(results=120), StoryParts(results=90), [first], 100)
    rates = Rates(models, "own", "")
    assert rates.units(first) == pytest.approx(0.1 * 80 + 1.25 * 10 + 5 * 2)
    assert rates.units(unpaged(weighed)) == pytest.approx(5 * (0.1 * 100 + 1.25 * 20) + 4 * 5 * 2)


def test_parts_come_to_what_the_provider_reported():
    store = Store()
    reports = [Usage(2_118, written=2_118), Usage(2_176, 2_118, 58), Usage(824, 0, 824, 40), Usage(2_872, 824, 2_048)]
    play(store, paged(*reports, Usage(2_928, 2_872, 56)))
    one, two, three, four = told(store).calls
    assert not any(call.estimated for call in (one, two, three, four))
    assert one.client == StoryParts(system=38, unused_schemas=38, user=26, assistant=118, results=1_898)
    assert three.sent == StoryParts(resent=38, unused_schemas=38, user=78, assistant=182, stubs=488)
    assert three.client.total == 2 * 1_117
    assert (three.input, three.cached, three.written, three.output) == (824 + 2_872, 824, 824 + 2_048, 40)
    assert three.inflicted.page_in_tokens == 2_872
    assert four.cost == pytest.approx(0.1 * 2_872 + 1.25 * 56)
    assert four.cost_before == pytest.approx(0.1 * 2_234 + 1.25 * 60)


def test_a_page_that_went_is_counted_as_what_it_was():
    store = Store()
    again = (call("c2", path="src/a.py"), result("c2", page("alpha")), call("c3", path="src/b.py"))
    start = (*START, *again, result("c3", page("beta")), call("c4", path="src/b.py"), result("c4", page("gamma")))
    play(store, grown(4, *start))
    last = told(store).calls[-1]
    assert (last.client.duplicates, last.client.superseded > 0, last.client.stale > 0) == (949, True, True)
    assert (last.sent.duplicates, last.sent.superseded, last.sent.stale, last.sent.results) == (0, 0, 0, 0)


def test_short_tools_leave_their_part_and_stand_with_the_stubs():
    store = Store()
    prose = "It is explained at length, with all that is to be minded, and what happens if it is not. " * 4
    parameters = {"type": "object", "properties": {"title": {"type": "string", "description": prose}}}
    tools = [
        {"type": "function", "function": {"name": name, "description": prose, "parameters": parameters}}
        for name in ("bash", *(f"issue_{at}" for at in range(6)))
    ]
    calls = [LoggedCall(body(*START, *ON * more, tools=tools)) for more in range(2)]
    play(store, calls, name="cost_aware", tools=Shortening())
    (decided,) = [row.event for row in store.events() if isinstance(row.event, ToolsDecided)]
    for one in told(store).calls:
        assert decided.slim == 6
        assert one.sent.unused_schemas == pytest.approx(one.client.unused_schemas / 7, abs=3)
        assert one.sent.total < one.client.total
        assert one.sent.stubs > 0
        assert one.sent.results + one.sent.stale == 949


# ---------------------------------------------------------------- without paging


@pytest.mark.parametrize("reported", [True, False])
@pytest.mark.parametrize("name", ["keep_all", "cost_aware"])
def test_a_session_without_paging_costs_the_same_before_and_after(name, reported):
    store = Store()
    # a provider that reports more cached tokens than there are is taken at its word
    usages = [Usage(1_500 + 90 * at, 1_400 * (at % 3), 10 * at, 30) if reported else None for at in range(6)]
    play(store, [one._replace(usage=usage) for one, usage in zip(grown(6), usages, strict=True)], name=name)
    found = told(store, models=in_force("", {"some-model": {"input": 2.0, "cached": 0.2, "output": 8.0}}))
    for one in found.calls:
        assert (one.cost_before, one.dollars_before) == (one.cost, one.dollars)
        assert (one.client, one.cached_before) == (one.sent, one.cached)
        assert one.dollars == pytest.approx(2e-6 * one.cost)
        assert (one.inflicted, one.estimated) == (Inflicted(), not reported)
    sums = ledger([found]).total.sums
    assert (sums.saved, sums.dollars_saved, sums.avoided_tokens, sums.inflicted_tokens) == (0, 0, 0, 0)
    assert sums.hit_rate == sums.hit_rate_before


def test_a_provider_that_never_caches_would_not_have_without_paging_either():
    store = Store()
    play(store, [one._replace(usage=Usage(1_000 if at else 1_059, 0, 0, 1)) for at, one in enumerate(grown(5))])
    for one in told(store).calls:
        assert one.cached_before == 0
        assert one.cost_before == pytest.approx(one.client.total + 5.0)


def test_a_miss_that_no_bill_foresaw_would_have_been_one_without_paging_too():
    store = Store()
    hits = [0, 1_059, 1_088, 380, 0]
    play(store, [one._replace(usage=Usage(1_100, hit, 0, 1)) for one, hit in zip(grown(5), hits, strict=True)])
    *_, before, last = told(store).calls
    assert last.sent.stubs > 0
    assert before.cached_before > 1_000
    assert last.cached_before < 0.1 * last.client.total


def test_a_block_that_a_living_cache_misses_is_as_many_tokens_without_paging():
    last = []
    for missed in (0, 30):
        store = Store()
        counts = [(1_059, 0), (1_088, 1_059), (412, 0), (430, 400 - missed)]
        calls = zip(grown(len(counts)), counts, strict=True)
        play(store, [one._replace(usage=Usage(*count, 0, 1)) for one, count in calls])
        last.append(told(store).calls[-1])
    assert last[1].sent.stubs > 0
    assert last[1].cached_before == last[0].cached_before - 30


# ---------------------------------------------------------------- how long a cache lives

MINUTES, HOURS, UNSAID = (1, 0), (0, 1), (0, 0)


def report(tokens, cached, lives, scale=1):
    """What a provider reports that writes what it has not cached, and says so much of how long."""
    written = scale * (tokens - cached)
    return Usage(scale * tokens, scale * cached, written, 1, 0, True, *(written * part for part in lives))


def paused(lives, pause=420.0, *later, scale=1, start=START):
    """A session whose page is evicted after a pause: its prompt shares nothing with the one before it then."""
    counts = [(1_059, 0), (1_088, 1_059), (412, 0), *later]
    calls = [
        one._replace(usage=report(*count, lives, scale))
        for one, count in zip(grown(len(counts), *start), counts, strict=True)
    ]
    return [*calls[:2], calls[2]._replace(gap=pause), *calls[3:]]


@pytest.mark.parametrize(
    ("lives", "pause", "price", "cached"),
    [
        (HOURS, 420.0, 2.0, 1_088),
        (HOURS, 3_700.0, 2.0, 0),
        (MINUTES, 420.0, 1.25, 0),
        (MINUTES, 200.0, 1.25, 1_088),
        (UNSAID, 420.0, 1.25, 0),
    ],
)
def test_a_cache_lives_without_paging_as_long_as_the_provider_granted(lives, pause, price, cached):
    store = Store()
    play(store, paused(lives, pause))
    third = told(store).calls[2]
    assert third.sent.stubs > 0
    assert third.cached_before == cached
    assert third.cost == pytest.approx(price * 412 + 5.0)
    assert third.cost_before == pytest.approx(0.1 * cached + price * (1_117 - cached) + 5.0)
    assert (third.cost_before > third.cost) is (cached == 0), "there is a gain only where the cache had died"


@pytest.mark.parametrize(("pause", "cached"), [(299.0, 1_088), (310.0, 0)])
def test_a_cache_lives_from_the_start_of_a_request_however_long_its_answer_takes(pause, cached):
    store = Store()
    first, long, *others = paused(MINUTES, pause)
    play(store, [first, long._replace(took=250.0), *others])
    assert told(store).calls[2].cached_before == cached


def test_where_no_grant_is_told_the_marks_of_the_client_say_how_long_a_cache_lives():
    marked = {
        "role": "user",
        "content": [{"type": "text", "text": "do it", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    }
    for mark, is_gain in (("1h", False), ("5m", True)):
        marked["content"][0]["cache_control"]["ttl"] = mark
        store = Store()
        play(store, paused(UNSAID, start=(marked, *START[1:])))
        third = told(store).calls[2]
        assert (third.cost_before > third.cost) is is_gain


def test_a_cache_that_later_outlives_such_a_pause_had_not_died_in_it():
    store = Store()
    calls = paused(UNSAID, 420.0, (440, 412), (470, 440), scale=10)
    play(store, calls)
    assert told(store).calls[2].cached_before == 0
    store = Store()
    play(store, [*calls[:4], calls[4]._replace(gap=500.0)])
    third, _, last = told(store).calls[2:]
    assert last.cached == 4_400, "found after more than five minutes"
    assert third.cached_before == pytest.approx(10 * 1_088, rel=0.01)
    assert third.cost_before < third.cost


def test_what_was_found_of_a_cut_prompt_shows_that_the_whole_would_have_been():
    """The tool is there already; at the last call another page goes, after a pause that the cache outlives."""
    more = (call("c2", path="src/b.py"), result("c2", page("beta")))
    bodies = [START, (*START, *ON), (*START, *ON * 2), (*START, *ON * 2, *more), (*START, *ON * 2, *more, *ON)]
    bodies += [(*START, *ON * 2, *more, *ON * 2)]
    for found, is_gain in ((400, False), (0, True)):
        store = Store()
        usages = [Usage(1_000, 0 if at in (0, 2) else 900, 0, 1, 0, True) for at in range(5)]
        calls = [
            LoggedCall(body(*items), usage=usage)
            for items, usage in zip(bodies, [*usages, Usage(600, found, 0, 1, 0, True)], strict=True)
        ]
        play(store, [*calls[:-1], calls[-1]._replace(gap=420.0)])
        last = told(store).calls[-1]
        assert last.repack is not None
        assert (last.cached_before == 0) is is_gain


# ---------------------------------------------------------------- what the log says


def test_without_a_report_our_own_count_is_the_measure():
    store = Store()
    name = play(store, [one._replace(estimate=estimate) for one, estimate in zip(grown(2), (2_118, 0), strict=True)])
    store.append(noted(name, PromptCounted(0, 2, 1, 544)))
    one, two = told(store).calls
    assert (one.input, one.client.total, one.estimated) == (2_118, 2_118, True)
    assert (two.input, two.client.total) == (544, 544)


def noted(session, *events):
    return Batch(session, 2_000_000.0, events)


def test_attempts_without_an_answer_are_counted_apart():
    store = Store()
    first, second = grown(2)
    play(store, [first._replace(answered=False), first, second])
    found = told(store)
    assert (found.failed, [(one.call, one.attempt) for one in found.calls]) == (1, [(1, 2), (2, 1)])
    assert [page.states for page in found.pages] == ["rs"]
    assert ledger([found]).failed == 1


def test_a_call_that_went_out_in_full_is_as_the_client_sent_it():
    store = Store()
    calls = grown(5)
    calls[-1] = calls[-1]._replace(headers={"x-pager-bypass": "1"})
    play(store, calls)
    *_, before, last = told(store).calls
    assert before.sent.stubs > 0
    assert last.sent == last.client
    assert told(store).pages[0].states == "rsees"


def test_a_refused_request_was_answered_in_full_even_if_it_had_cache_marks():
    async def refused(call_log, pager, entry, now):
        await call_log.decide(entry, now, [Bypassed("refused", "HTTP 400", 0, 3)], {})

    store = Store()
    calls = grown(3)
    calls[-1] = calls[-1]._replace(then=refused)
    play(store, calls)
    assert told(store).calls[-1].sent.stubs == 0


def test_cache_marks_alone_change_no_part_and_no_cost():
    store = Store()
    long = [user("do it " * 900), say(), user("go on")]
    head = {"model": "claude-opus-5-1", "max_tokens": 9, "system": "Be good.", "tools": [{"name": "read"}]}
    calls = [LoggedCall({**head, "messages": long + [say(), user()] * at}) for at in range(3)]
    play(store, calls, dialect="messages", marks=True)
    answers = [row.event for row in store.events() if isinstance(row.event, AnswerFinished)]
    assert all(one.sent for one in answers)
    for one in told(store).calls:
        assert (one.sent, one.cost, one.cached) == (one.client, one.cost_before, one.cached_before)


def test_an_answer_that_failed_is_no_answered_call():
    store = Store()
    name = play(store, grown(2))
    received = next(row.event for row in store.events() if isinstance(row.event, CallReceived))
    failed = AnswerFinished(0, 1, 2, 200, "", "", 0, 1.0, 2.0, error="overloaded")
    store.append(noted(name, msgspec.structs.replace(received, attempt=2), failed))
    assert [(one.call, one.attempt) for one in told(store).calls] == [(1, 1), (2, 1)]


def test_what_was_evicted_to_fit_the_window_is_told_though_the_call_was_to_go_in_full():
    store = Store()
    calls = grown(3)
    calls[1] = calls[1]._replace(then=too_long, headers={"x-pager-bypass": "1"})
    play(store, calls, name="cost_aware")
    second = told(store).calls[1]
    assert (second.repack.cause, second.sent.stale, second.sent.stubs > 0) == ("rescue", 0, True)


def test_corrections_and_tools_that_were_asked_for_are_told_apart_from_page_ins():
    store = Store()
    play(store, paged(pages=[], invalid=["edit", "edit"], imitated=1))
    third = told(store).calls[2]
    assert (third.pages_in, third.schemas_in, third.corrected) == (0, 0, 3)
    assert (third.inflicted.page_ins, third.inflicted.correction_tokens) == (0.0, 1_436)
    assert told(store).pages[0].states == "rsee"
    store = Store()
    play(store, paged(pages=[], schemas=["edit"]))
    third = told(store).calls[2]
    assert (third.schemas_in, third.inflicted.corrections, third.inflicted.page_in_tokens) == (1, 0.0, 1_436)


def test_a_page_in_beside_calls_of_the_client_is_no_request_of_its_own():
    store = Store()
    play(store, paged(mixed=True))
    third = told(store).calls[2]
    assert (third.requests, third.pages_in, third.inflicted.page_ins) == (1, 1, 0.0)


def test_several_changes_at_one_call_are_told_as_one():
    async def more(call_log, pager, entry, now):
        more = Repacked(0, 3, 1, "client", "gone", rewritten=5, price=2.0, warm=True)
        store.append(noted(entry.session.id, more))

    store = Store()
    calls = grown(3)
    calls[-1] = calls[-1]._replace(then=more)
    play(store, calls)
    repack = told(store).calls[-1].repack
    assert (repack.cause, repack.pages, repack.warm) == ("policy and client", 1, True)
    assert repack.price == pytest.approx(1.15 * 252 + 2.0, abs=0.1)
    assert repack.reason.endswith("; gone")


def test_a_change_of_tools_in_mid_branch_is_a_repack_and_the_first_decision_is_none():
    received = CallReceived(0, 2, 1, "chat", "/", "m", stream=False, body="", size=0, skeleton="", cuts=[])
    for price, expected in ((7.0, RepackStory("tools", "short", saved=40, price=7.0, warm=True)), (0.0, None)):
        decided = ToolsDecided(0, 2, 1, "", "", "short", whole=90, sent=50, price=price)
        log = [Stored(at, "s_1", 1.0, event) for at, event in enumerate([received, decided])]
        assert together(facts(log).told[CallAddress(0, 2, 1)].repacks) == expected


def test_a_fork_has_pages_of_its_own():
    store = Store()
    play(store, [*grown(4), LoggedCall(body(*START, *ON, say("Or so."), user("yes")))])
    found = told(store)
    assert [(one.branch, one.call) for one in found.calls] == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 3)]
    assert [(page.branch, page.states) for page in found.pages] == [(0, "rsee."), (1, "....e")]
    fork = found.calls[-1]
    assert fork.client.total - sum(ledger([found]).total.sums.avoided.values()) / 3 == fork.sent.total - fork.sent.stubs


def test_a_session_in_two_wire_formats_is_one_story():
    store = Store()
    play(store, grown(2))
    plain = {"model": "claude-opus-5-1", "max_tokens": 9, "messages": [user("hello"), say("Hi."), user("bye")]}
    play(store, [LoggedCall(plain)], dialect="messages")
    found = told(store)
    assert [one.model for one in found.calls] == ["some-model", "some-model", "claude-opus-5-1"]
    assert [page.states for page in found.pages] == ["rs."]


def test_a_request_that_could_not_be_read_is_counted_as_other():
    store = Store()
    log_session(store, [LoggedCall(b"no json at all", unread="no JSON")])
    (one,) = told(store).calls
    assert one.sent == one.client == StoryParts(other=tokens_in(len(b"no json at all")))


def test_what_the_log_says_of_unknown_calls_is_left_alone():
    store = Store()
    name = play(store, grown(1))
    store.append(noted(name, PromptCounted(7, 7, 1, 9), Bypassed("asked", "", 7, 7)))
    assert len(told(store).calls) == 1


def test_the_story_says_whose_it_is():
    store = Store()
    uses = (ToolUse(0, "u1", "read", "{}"), ToolUse(1, "u2", "edit", "{}"))
    calls = [one._replace(calls=uses) for one in grown(3)]
    name = play(store, calls, key="the key")
    found = told(store, name[:9])
    assert (found.session, found.key, found.harness, found.policy) == (name, "the key", "pi/0.73", "fifo_age")
    assert found.calls[0].calls == ("read", "edit")
    assert "".join(page.about + page.content for page in found.pages) == ""
    with_text = told(store, with_content=True).pages[0]
    assert (with_text.about, with_text.content) == ("src/a.py", page("alpha"))
    with pytest.raises(ConfigError, match="none of 1 begins like that"):
        told(store, "nope")


# ---------------------------------------------------------------- laws


PLAYED = st.lists(
    st.tuples(st.integers(3, 120), st.sampled_from([10.0, 900.0]), st.sampled_from([0, 700, 9_000]), st.booleans()),
    min_size=1,
    max_size=9,
)


@examples(25)
@given(PLAYED, st.sampled_from(["fifo_age", "cost_aware", "keep_all"]))
def test_tokens_are_conserved_in_every_call_and_in_every_sum(pages, name):
    store, said, calls = Store(), [user("do it")], []
    for at, (lines, gap, reported, again) in enumerate(pages):
        path = "src/0.py" if again else f"src/{at}.py"
        said += [call(f"c{at}", path=path), result(f"c{at}", page(f"file {path}", lines))]
        usage = Usage(reported, reported // 2, reported // 9, 20) if reported else None
        calls.append(LoggedCall(body(*said), gap, usage=usage))
    play(store, calls, name=name, tools=Shortening())
    found = told(store)
    sizes = {row.event.call: row.event.sent_size for row in store.events() if isinstance(row.event, AnswerFinished)}
    for one in found.calls:
        if one.estimated and sizes[one.call]:  # each item is rounded by itself
            assert one.sent.total == pytest.approx(sizes[one.call] / 2.7, abs=3 * len(calls) + 3)
        for name in StoryParts.__struct_fields__[:-2]:
            assert 0 <= getattr(one.sent, name) <= getattr(one.client, name) or name == "stubs"
        sums = LedgerSums.of(one)
        assert sums.upstream == one.input
        assert one.client.total == sums.upstream + sums.avoided_tokens - sums.inflicted_tokens
        assert sums.avoided_cost == pytest.approx(one.cost_before - one.cost + one.inflicted.cost)
        assert {len(page.states) for page in found.pages} <= {len(found.calls)}
    for by in KEYS:
        assert_adds_up(ledger([found], by))


TOKENS = st.integers(0, 10_000)
PARTS = st.builds(StoryParts, **dict.fromkeys(StoryParts.__struct_fields__, TOKENS))
MONEY = st.integers(0, 1_000_000).map(lambda cents: cents / 64)  # added up in whatever order, the same
CALLS = st.builds(
    CallStory,
    branch=st.integers(0, 2),
    call=st.integers(1, 9),
    attempt=st.integers(1, 2),
    at=st.integers(0, 400_000).map(float),
    model=st.sampled_from(["some", "other"]),
    client=PARTS.map(lambda parts: msgspec.structs.replace(parts, stubs=0)),
    sent=PARTS,
    input=TOKENS,
    cached=TOKENS,
    output=TOKENS,
    new=TOKENS,
    working=TOKENS,
    estimated=st.booleans(),
    cost=MONEY,
    cost_before=MONEY,
    dollars=st.none(),
    pages_in=st.integers(0, 3),
    repack=st.none() | st.builds(RepackStory, st.just("policy"), st.just("so"), rewritten=TOKENS),
    inflicted=st.builds(Inflicted, MONEY, MONEY, MONEY, MONEY, TOKENS, TOKENS),
    miss=st.none() | st.builds(MissStory, st.sampled_from([*MissReason]), TOKENS, MONEY),
    kept_warm=st.builds(KeptWarm, st.integers(0, 3), MONEY, MONEY, st.integers(0, 1), MONEY, MONEY),
    cold_before=st.builds(Missed, st.integers(0, 1), TOKENS, MONEY, MONEY),
)
STORIES = st.lists(
    st.builds(
        Story,
        session=st.sampled_from(["s_1", "s_2", "s_3"]),
        harness=st.sampled_from(["pi", "codex"]),
        calls=st.lists(CALLS, max_size=8),
        failed=st.integers(0, 3),
    ),
    max_size=4,
)


def assert_adds_up(found):
    added = LedgerSums()
    for row in found.rows:
        added = added.plus(row.sums)
    total = found.total.sums
    for name in LedgerSums.__struct_fields__:
        one, other = getattr(added, name), getattr(total, name)
        if isinstance(other, Inflicted):
            one, other = msgspec.structs.astuple(one), msgspec.structs.astuple(other)
        assert one == (other if isinstance(other, StoryParts) else pytest.approx(other)), name
    assert total.cost == pytest.approx(
        total.cost_before - total.avoided_cost + total.inflicted.cost - total.kept_warm.net, abs=1e-3
    )
    assert total.client.total == total.upstream + total.avoided_tokens - total.inflicted_tokens
    assert sum(total.client.waste.values()) == sum(getattr(total.client, name) for name in WASTE)


@examples(60)
@given(STORIES, st.sampled_from(sorted(KEYS)))
def test_groups_add_up_to_the_total_whatever_the_grouping(stories, by):
    found = ledger(stories, by)
    assert_adds_up(found)
    assert found.total.sums.calls == sum(len(one.calls) for one in stories)
    assert len({row.name for row in found.rows}) == len(found.rows)
    assert found.failed == sum(one.failed for one in stories)


@given(PARTS, PARTS, st.integers(0, 100_000))
def test_scaled_parts_come_to_the_target_and_stay_apart_as_they_were(client, other, target):
    sent = StoryParts(
        **{name: min(getattr(client, name), getattr(other, name)) for name in StoryParts.__struct_fields__}
    )
    client = msgspec.structs.replace(client, stubs=0)
    theirs, ours = scaled(client, sent, target / sent.total if sent.total else 1.0, target if sent.total else 0)
    assert ours.total == (target if sent.total else 0)
    for name in StoryParts.__struct_fields__:
        assert getattr(ours, name) >= 0
        if name != "stubs":
            assert getattr(theirs, name) >= getattr(ours, name)
            assert (getattr(client, name) > getattr(sent, name)) or getattr(theirs, name) == getattr(ours, name)


@given(st.lists(st.integers(0, 99)), st.integers(1, 20))
def test_peaks_keep_the_largest_and_are_few(values, most):
    found = peaks(values, most)
    assert len(found) == min(len(values), most)
    assert max(found, default=0) == max(values, default=0)


def test_groups_stand_in_the_order_in_which_they_occur():
    assert list(grouped("badab", str)) == [("b", ["b", "b"]), ("a", ["a", "a"]), ("d", ["d"])]


def long_session(store, count):
    """Log a session of so many calls that reads a file at every tenth, and evicts it soon after."""
    skeleton = b'{"model":"m","messages":[]}'
    blobs, digests, gone = {sha256(skeleton).digest(): skeleton}, [], {}
    events = [SessionOpened("local", "long", "x-session-id", "pi"), BranchOpened(0, "root", "chat")]
    for at in range(1, count + 1):
        said = [user(f"Go on with {at}.")] if at == 1 else [say(f"Step {at} is done."), user(f"Go on with {at}.")]
        if at % 10 == 1:
            said += [call(f"c{at}", path=f"src/{at}.py"), result(f"c{at}", page(f"file {at}"))]
        raws = [json.dumps(one).encode() for one in said]
        keep, new = len(digests), [sha256(raw).digest() for raw in raws]
        blobs.update(zip(new, raws, strict=True))
        digests += new
        if at % 10 == 1:
            text = page(f"file {at}").encode()
            gone[at + 4] = Evicted(handle_of(text), new[-1].hex(), f"c{at}", f"[{handle_of(text)}: a file]")
        cut = Cut(skeleton.index(b"[") + 1, "")
        frame = f"{sha256(skeleton).hexdigest()}|,|{cut.offset}:|".encode()
        events.append(
            CallReceived(
                *(0, at, 1, "chat", "/v1/chat/completions", "m", False, sha256(frame + b"".join(digests)).hexdigest()),
                *(len(skeleton) + sum(map(len, raws)), sha256(skeleton).hexdigest(), [cut]),
                keep=keep,
                messages=[one.hex() for one in new],
                separator=",",
                parent_branch=0 if at > 1 else None,
                parent_call=at - 1,
            )
        )
        events += [Repacked(0, at, 1, "policy", "old", pages=[gone[at]])] if at in gone else []
        events.append(AnswerFinished(0, at, 1, 200, "stop", "", 0, 1.0, 2.0, usage=Usage(9_000, 8_000), sent="paged"))
    store.append(Batch("s_long", 1_000_000.0, events, blobs))


def told_in_steps(count):
    store = Store()
    long_session(store, count)
    return steps(told, store)


def test_twice_as_many_calls_take_about_twice_the_work():
    half, _ = told_in_steps(200)
    whole, found = told_in_steps(400)
    assert whole < 3 * half
    assert (len(found.calls), len(found.pages)) == (400, 40)
    assert found.pages[0].states == "r" + "s" * 3 + "e" * 396
    assert_adds_up(ledger([found], "call"))


# ---------------------------------------------------------------- to be played


def test_a_session_that_is_played_knows_what_its_paged_calls_would_have_been_counted_as():
    store = Store()
    name = play(store, paged(Usage(1_059, written=1_059), Usage(), None, None, Usage(1_464, 1_436, 28)))
    (recording,) = recordings(store, name, ANTHROPIC, load)
    costs = [call.cost_before for call in told(store).calls]
    first, second, third, fourth = recording.steps
    assert (first.usage.input, first.unpaged) == (1_059, None)
    assert second.usage.input == 0, "a count that says nothing"
    for step, cost in zip((second, third, fourth), costs[1:], strict=True):
        assert units(step.unpaged, ANTHROPIC.prices("some-model")) == pytest.approx(cost)


def test_a_session_that_was_counted_as_it_was_sent_is_played_as_reported():
    store = Store()
    name = play(store, [one._replace(usage=Usage(1_100, 0, 0, 1)) for one in grown(3)], name="keep_all")
    (recording,) = recordings(store, name, ANTHROPIC, load)
    assert [step.unpaged for step in recording.steps] == [None] * 3
