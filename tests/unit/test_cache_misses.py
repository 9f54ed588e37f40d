"""Why calls missed the provider's cache, and what that cost: from logs that the real call log has written."""

import json

import pytest
from chat_items import offered
from hypothesis import given
from hypothesis import strategies as st
from laws import examples
from logged_sessions import ANSWER, LoggedCall, log_session, paging

from instrumentation.accounting.billing import units
from instrumentation.accounting.cache_misses import (
    PROVIDERS_WORDS,
    MissReason,
    as_read,
    as_written,
)
from instrumentation.accounting.explain import explain
from instrumentation.accounting.ledger.sums import KEYS, LedgerSums, ledger, story
from instrumentation.accounting.story import KeptWarm, Missed, MissSums
from instrumentation.reports.explain import as_text
from pager.config.settings import Settings
from pager.log.events import AnswerFinished, Warmed
from pager.log.store import Batch
from pager.log.stores.memory.store import Store
from pager.paging.planning_rules import PlanningRules
from pager.pricing.rates import in_force
from pager.request_values import Usage
from pager.wire.dialects import load

MODELS = in_force("", {})
SONNET, HAIKU = "claude-sonnet-4-5", "claude-haiku-4-5"  # $3 and $1 a million; cached from 1,024 and 4,096 tokens on
READ = {"name": "read", "description": "reads", "input_schema": {"type": "object"}}
WRITE = {"name": "write", "description": "writes", "input_schema": {"type": "object"}}


def words(name, size=2_000):
    return f"{name} " * size


def said(role, name, **more):
    return {"role": role, "content": [{"type": "text", "text": words(name), **more}]}


TALK = [said(role, f"{role}{at}") for at in range(8) for role in ("user", "assistant")]
MARK = {"cache_control": {"type": "ephemeral"}}


def body(turns, *, model=SONNET, tools=(READ,), system="be kind", talk=TALK, **members):
    """A request of Messages after so many turns of talk, marked at its end, so that the mark moves with each call."""
    *before, last = talk[: 2 * turns + 1]
    items = [*before, {**last, "content": [{**last["content"][0], **MARK}]}]
    return {"model": model, "max_tokens": 9, "system": system, "tools": list(tools), "messages": items, **members}


def usage(tokens, cached, written=None, *, hour=False):
    put = tokens - cached if written is None else written
    return Usage(tokens, cached, put, 0, 0, True, 0 if hour else put, put if hour else 0)


def calls_of(*last, gap=10.0, **more):
    """Two calls, the second of which finds the first in the cache and leaves 21,000 tokens in it, and another."""
    return [
        LoggedCall(body(0), usage=usage(20_000, 0)),
        LoggedCall(body(1), usage=usage(21_000, 20_000)),
        *(LoggedCall(one, gap, usage=usage(22_000, 5_000), **more) for one in last),
    ]


def told(calls, *, name="keep_all", options=None, models=MODELS, dialect="messages", events=()):
    store = Store()
    session = log_session(store, calls, paging(name, options, models=models), dialect=dialect)
    for event in events:
        store.append(Batch(session, 2_000_000.0, [event]))
    return story(store, "s_", models, load)


def miss(calls, **more):
    """What the last call missed; none of those before it did."""
    *others, last = told(calls, **more).calls
    assert [one.miss for one in others] == [None] * len(others)
    return last.miss


# ---------------------------------------------------------------- known answers


def test_a_pause_costs_exactly_this():
    """21,000 tokens were left cached, 5,000 found ten minutes later: 16,000 were written at 1.25 instead of 0.1."""
    found = told(calls_of(body(2), gap=600.0))
    last = found.calls[-1]
    assert (last.miss.reason, last.miss.tokens, last.miss.pause, last.miss.lifetime) == ("pause", 16_000, 600.0, 300.0)
    assert last.miss.cost == pytest.approx(16_000 * 1.15)
    assert last.miss.dollars == pytest.approx(16_000 * 1.15 * 3e-6)
    assert last.cold_before == Missed(1, 16_000, last.miss.cost, last.miss.dollars)
    sums = ledger([found]).total.sums
    assert sums.misses == MissSums(pause=last.cold_before)
    assert sums.misses.all == sums.cold_before


def test_what_is_written_for_an_hour_costs_twice_and_lives_longer():
    calls = calls_of(body(2), gap=600.0)
    for seconds, reason in ((600.0, "dropped"), (3_700.0, "pause")):
        again = [one._replace(usage=usage(one.usage.input, one.usage.cached, hour=True)) for one in calls]
        last = told([*again[:2], again[2]._replace(gap=seconds)]).calls[-1].miss
        assert (last.reason, last.tokens, last.lifetime) == (reason, 16_000, 3_600.0)
        assert last.cost == pytest.approx(16_000 * 1.9)


def kept_warm(gap=500.0, cached=21_000, others=0):
    calls = calls_of(body(2), gap=gap)
    calls[0] = calls[0]._replace(usage=usage(20_000, others))
    calls[-1] = calls[-1]._replace(usage=usage(22_000, cached))
    at = 1_000_000.0 + 20.0 + 280.0
    refresh = Warmed(0, 2, 1, at, 1, Usage(21_000, 21_000, 0, 0, 0, True), 2_100.0, 24_150.0, 300.0)
    return told(calls, events=[refresh])


def test_a_refresh_rescues_what_the_next_call_would_have_written():
    """21,000 tokens are read once more at 0.1, and were not written at 1.25 by the call that came after 500 seconds."""
    found = kept_warm()
    _, two, three = found.calls
    assert two.kept_warm == KeptWarm(1, pytest.approx(2_100), pytest.approx(0.0063))
    assert three.kept_warm == KeptWarm(0, 0.0, 0.0, 1, pytest.approx(21_000 * 1.15), pytest.approx(21_000 * 3.45e-6))
    assert three.miss is None
    assert three.cold_before.tokens == 21_000
    assert three.cost_before - three.cost == pytest.approx(21_000 * 1.15)
    sums = ledger([found]).total.sums
    assert (sums.calls, sums.requests, sums.kept_warm.refreshes, sums.kept_warm.rescues) == (3, 3, 1, 1)
    assert sums.kept_warm.net == pytest.approx(21_000 * 1.15 - 2_100)
    assert sums.saved == pytest.approx(sums.kept_warm.net), "net of all"
    assert sums.avoided_cost == pytest.approx(0), "paging did nothing"


def test_what_other_sessions_keep_warm_is_not_rescued():
    """The first call found 6,000 tokens that others had left: its system prompt and tools."""
    last = kept_warm(others=6_000).calls[-1]
    assert last.kept_warm.rescued == pytest.approx(15_000 * 1.15)
    assert (last.cached_before, last.cold_before.tokens) == (6_000, 15_000)


def test_a_refresh_before_a_return_in_time_rescues_nothing():
    found = kept_warm(gap=290.0)
    sums = ledger([found]).total.sums
    assert (sums.kept_warm.rescues, sums.kept_warm.net) == (0, pytest.approx(-2_100))
    assert sums.saved == pytest.approx(-2_100)
    assert sums.avoided_cost == pytest.approx(0)


def test_a_refresh_counts_as_the_time_when_the_prompt_was_last_sent():
    last = kept_warm(gap=500.0, cached=5_000).calls[-1]
    assert (last.miss.reason, last.miss.pause) == ("dropped", pytest.approx(220.0))
    assert last.kept_warm == KeptWarm()


# ---------------------------------------------------------------- reasons


@pytest.mark.parametrize(
    ("last", "reason", "changed"),
    [
        (body(2, tools=(READ, WRITE)), "tools", ("tools",)),
        (body(2, model="claude-opus-4-6"), "model", ()),
        (body(2, system="be brief"), "settings", ("system",)),
        (body(2, thinking={"type": "adaptive"}), "settings", ("thinking",)),
        (body(2, output_config={"effort": "low"}), "settings", ("output_config",)),
        (body(2, tool_choice={"type": "any"}), "settings", ("tool_choice",)),
        (body(2, tools=(WRITE,), tool_choice={"type": "any"}), "tools", ("tools", "tool_choice")),
        (body(2, metadata={"user_id": "me"}, max_tokens=99, stream=True), "dropped", ()),
        (body(2), "dropped", ()),
    ],
)
def test_what_the_client_changed_is_the_reason(last, reason, changed):
    found = miss(calls_of(last))
    assert (found.reason, found.changed, found.word) == (reason, changed, "")


def test_a_changed_setting_is_the_reason_also_after_a_pause_where_nothing_was_left_to_find():
    assert miss(calls_of(body(2, tools=(WRITE,)), gap=600.0)).reason == "tools"


def test_an_edit_of_the_history_costs_what_stands_behind_it():
    edited = [*TALK[:2], said("user", "other"), *TALK[3:]]
    calls = [
        LoggedCall(body(4), usage=usage(20_000, 0)),
        LoggedCall(body(5, talk=edited), usage=usage(24_000, 4_000)),
    ]
    found = miss(calls)
    assert found.reason == "history"
    assert 9_000 < found.tokens < 16_000, "five of eleven messages stand behind the edit, four of them as before"


def test_a_rewind_or_a_summary_is_no_miss():
    back = LoggedCall(body(1), usage=usage(8_000, 7_900, 0))
    assert told([LoggedCall(body(4), usage=usage(20_000, 0)), back]).calls[-1].miss is None
    summary = LoggedCall(body(0, talk=[said("user", "summary")]), usage=usage(4_000, 1_500))
    assert told([LoggedCall(body(4), usage=usage(20_000, 0)), summary]).calls[-1].miss is None


def test_a_system_prompt_among_the_messages_is_a_setting():
    def chat(system, turns):
        talk = [{"role": one["role"], "content": one["content"][0]["text"]} for one in TALK[: 2 * turns + 1]]
        items = [{"role": "system", "content": system}, *talk]
        return {"model": "gpt-5.2", "tools": offered("read"), "messages": items}

    counts = [(20_000, 0), (21_000, 20_000), (22_000, 2_048)]
    bodies = [chat("be kind", 1), chat("be kind", 2), chat("be brief", 3)]
    calls = [LoggedCall(one, usage=usage(*count, 0)) for one, count in zip(bodies, counts, strict=True)]
    found = miss(calls, dialect="chat")
    assert (found.reason, found.changed) == ("settings", ("system",))


def test_a_repack_of_ours_is_the_reason_while_the_cache_is_warm():
    for gap, reason in ((10.0, "repack"), (900.0, "pause")):
        found = told(read_and_go_on(gap), name="fifo_age", options={"age": 1, "size": 500}).calls[-1]
        assert found.repack is not None
        assert found.miss.reason == reason
        assert found.cold_before.calls == (reason == "pause")


def test_cache_marks_of_ours_are_no_repack():
    calls = calls_of(body(2), answer=answered("system_changed"))
    for one in calls:
        del one.body["messages"][-1]["content"][0]["cache_control"]
    for last, reason in ((calls[-1], "settings"), (calls[-1]._replace(answer=ANSWER), "dropped")):
        store = Store()
        pager = paging("cost_aware", models=MODELS, marks=True)
        log_session(store, [*calls[:2], last], pager, dialect="messages")
        assert all(row.event.sent for row in store.events() if isinstance(row.event, AnswerFinished))
        assert story(store, "s_", MODELS, load).calls[-1].miss.reason == reason


def read_and_go_on(gap):
    """A page goes at the last call, and the tool that brings it back is added."""
    use = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}}
    got = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": words("page", 6_000)}]}
    start = [said("user", "do it"), {"role": "assistant", "content": [use]}, {"role": "user", "content": [got]}]
    bodies = [body(0) | {"messages": [*start, *TALK[1 : 1 + 2 * more]]} for more in range(3)]
    reports = [usage(20_000, 0), usage(21_000, 20_000), usage(9_000, 0)]
    return [
        LoggedCall(one, at, usage=report) for one, at, report in zip(bodies, (10.0, 10.0, gap), reports, strict=True)
    ]


def test_a_prompt_below_the_smallest_that_is_cached_is_too_short():
    marked = {"system": [{"type": "text", "text": "be kind", **MARK}]}
    calls = [LoggedCall(body(at, model=HAIKU) | marked, usage=usage(2_000 + 500 * at, 0, 0)) for at in range(2)]
    found = miss(calls)
    assert (found.reason, found.tokens > 1_024) == ("short", True)
    tiny = [one._replace(usage=usage(900 + 90 * at, 0, 0)) for at, one in enumerate(calls)]
    assert told(tiny).calls[-1].miss is None, "nobody caches that"
    unmarked = [LoggedCall(body(at, model=HAIKU), usage=usage(2_000 + 500 * at, 0, 0)) for at in range(2)]
    for one in unmarked:
        del one.body["messages"][-1]["content"][0]["cache_control"]
    assert told(unmarked).calls[-1].miss is None, "nobody asked for a cache"


def test_a_provider_that_counts_no_writes_keeps_all_that_was_sent():
    counts = [(20_000, 0), (21_000, 19_968), (22_000, 0), (23_000, 21_888)]
    gaps = (10.0, 10.0, 700.0, 10.0)
    calls = [
        LoggedCall(body(at, model="gpt-5.2"), gap, usage=usage(*count, 0))
        for at, (count, gap) in enumerate(zip(counts, gaps, strict=True))
    ]
    found = [one.miss for one in told(calls).calls]
    assert [one and (one.reason, one.tokens) for one in found] == [None, None, ("pause", 21_000), None]
    assert found[2].cost == pytest.approx(21_000 * 0.9)


def test_a_provider_that_never_caches_or_says_nothing_of_it_misses_nothing():
    calls = [LoggedCall(body(at, model="gpt-5.2"), usage=usage(20_000 + at, 0, 0)) for at in range(4)]
    assert [one.miss for one in told(calls).calls] == [None] * 4
    silent = [*calls_of(body(2)), LoggedCall(body(3), usage=Usage(23_000)), LoggedCall(body(4)), LoggedCall(body(5))]
    assert [one.miss is not None for one in told(silent).calls] == [False, False, True, False, False, False]


def test_new_content_is_no_miss():
    calls = [*calls_of(), LoggedCall(body(2), usage=usage(90_000, 20_900))]
    assert told(calls).calls[-1].miss is None


# ---------------------------------------------------------------- the provider's own word


def answered(word, *, streamed=False):
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {}}
    message["diagnostics"] = {"cache_miss_reason": {"type": word, "cache_missed_input_tokens": 16_000}}
    if not streamed:
        return json.dumps(message).encode()
    return f"event: message_start\ndata: {json.dumps({'type': 'message_start', 'message': message})}\n\n".encode()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("system_changed", "settings"),
        ("messages_changed", "history"),
        ("tools_changed", "tools"),
        ("model_changed", "model"),
        ("previous_message_not_found", "dropped"),
        ("unavailable", "dropped"),
        ("a word of next year", "dropped"),
    ],
)
def test_the_provider_says_what_the_log_does_not_show(word, reason, streamed):
    found = miss(calls_of(body(2), answer=answered(word, streamed=streamed)))
    assert (found.reason, found.word) == (reason, word if reason != "dropped" else "")


def test_a_pause_and_a_repack_of_ours_need_no_word():
    assert miss(calls_of(body(2), gap=600.0, answer=answered("messages_changed"))).reason == "pause"
    calls = read_and_go_on(10.0)
    calls[-1] = calls[-1]._replace(answer=answered("tools_changed"))
    assert told(calls, name="fifo_age", options={"age": 1, "size": 500}).calls[-1].miss.reason == "repack"


def test_responses_say_it_in_their_own_way():
    told_by = {"type": "cache_miss", "reason": "reasoning_effort_changed", "cache_missed_tokens": 9}
    empty = {"id": "r", "output": []}
    read = load("responses").read
    answer = read(json.dumps({**empty, "prompt_cache_diagnostics": told_by}).encode())
    assert PROVIDERS_WORDS[answer.cache_miss] is MissReason.SETTINGS
    for nothing in ({"prompt_cache_diagnostics": {"type": "cache_hit"}}, {"prompt_cache_diagnostics": None}, {}):
        assert read(json.dumps({**empty, **nothing}).encode()).cache_miss == ""


def test_an_answer_without_any_is_an_answer():
    assert load("chat").read(ANSWER).cache_miss == ""


# ---------------------------------------------------------------- in words


@pytest.mark.parametrize(
    ("last", "gap", "words"),
    [
        (body(2), 600.0, "the cache, pause: 600 s since the prompt was last sent, and it was kept for 300 s"),
        (body(2), 60.0, "the cache, dropped by the provider: 60 s since the prompt was last sent, of 300 s"),
        (body(2, thinking={"type": "adaptive"}), 9.0, "the cache, settings changed: thinking"),
        (body(2, tools=(WRITE,)), 9.0, "the cache, tools changed;"),
    ],
)
def test_a_call_is_explained_with_its_miss(last, gap, words):
    store = Store()
    log_session(store, calls_of(last, gap=gap), paging("cost_aware", models=MODELS), dialect="messages")
    whole, rules = story(store, "s_", MODELS, load), PlanningRules.of(Settings())
    found = explain(store, "s_", "0:3", rules, load, told=whole)
    text = " ".join(as_text(found, width=400).split())
    assert f"missed {words}" in text
    cost = whole.calls[-1].miss.dollars
    assert f"{whole.calls[-1].miss.tokens:,} tokens, ${cost:.4f} more" in text
    assert whole.calls[-1].miss.reason == "tools" or cost == pytest.approx(0.0552)
    assert found.miss == whole.calls[-1].miss
    assert "missed the cache" not in as_text(explain(store, "s_", "0:2", rules, load, told=whole), width=400)
    assert "missed the cache" not in as_text(explain(store, "s_", "0:3", rules, load), width=400)


# ---------------------------------------------------------------- laws

COUNTS = st.tuples(st.integers(2_000, 90_000), st.floats(0, 1), st.floats(0, 1), st.booleans())


def counted(tokens, cached, written, hour):
    found = round(cached * tokens)
    return usage(tokens, found, round(written * (tokens - found)), hour=hour)


@given(COUNTS.map(lambda one: counted(*one)), st.integers(0, 100_000))
def test_moving_tokens_between_reads_and_writes_keeps_the_prompt_whole(one, tokens):
    for other in (as_read(one, tokens), as_written(one, tokens), as_written(one, tokens, hour=True)):
        assert other.input == one.input
        assert min(other.cached, other.written, other.written_1h, other.written_5m) >= 0
        assert other.cached + other.written <= max(one.input, one.cached + one.written)
    prices = MODELS.prices(SONNET)
    assert units(as_read(one, tokens), prices) <= units(one, prices) <= units(as_written(one, tokens), prices)


@examples(40)
@given(
    st.lists(st.tuples(COUNTS, st.sampled_from([10.0, 200.0, 900.0]), st.booleans()), min_size=2, max_size=6),
    st.sampled_from(["keep_all", "fifo_age"]),
    st.sets(st.integers(1, 6)),
)
def test_what_was_charged_is_the_sum_of_its_causes(reports, name, refreshed):
    """A call costs what reading all that was left would have cost, its miss, and refreshes; sums have a cause, too."""
    calls = [
        LoggedCall(body(at, tools=(READ, WRITE) if other else (READ,)), gap, usage=counted(*one))
        for at, (one, gap, other) in enumerate(reports)
    ]
    events = [Warmed(0, at, 1, 1e6 + 40.0 * at, 1, usage(9_000, 9_000), 900.0, 0.0, 300.0) for at in sorted(refreshed)]
    found = told(calls, name=name, options={"age": 1, "size": 500} if name == "fifo_age" else None, events=events)
    for one, logged in zip(found.calls, calls, strict=True):
        if one.miss is not None:
            rest = units(as_read(logged.usage, one.miss.tokens), MODELS.prices(SONNET))
            assert one.cost == pytest.approx(rest + one.miss.cost + one.kept_warm.cost)
            assert 0 < one.miss.tokens <= logged.usage.input - logged.usage.cached
        if name == "keep_all" and not one.kept_warm.rescues and one.miss and one.miss.reason == "pause":
            assert one.cold_before == Missed.of(one.miss)
    for by in KEYS:
        for row in ledger([found], by).rows:
            sums = row.sums
            own = sums.inflicted.cost - sums.avoided_cost
            warm = sums.kept_warm.cost - sums.kept_warm.rescued
            assert sums.cost == pytest.approx(sums.cost_before + own + warm)
            assert sums.misses.all.calls == sum(one.calls for one in sums.misses.each.values())
    assert LedgerSums().misses.all == Missed()
