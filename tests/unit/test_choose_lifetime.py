"""Five minutes or an hour for cache marks that name no lifetime: what is chosen, when, and the bytes."""

import json

import pytest
from logged_sessions import LoggedCall, log_session

from instrumentation.accounting.ledger.session_story import story
from instrumentation.accounting.logged_prompts import outgoing
from pager.log.events import Marked
from pager.log.stores import open_store
from pager.paging.pager import Pager
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.paging.warmth.choose_lifetime import PauseOutlook, saves_by_an_hour
from pager.pricing.prices import Prices
from pager.pricing.rates import in_force
from pager.request_values import CallAddress, Usage
from pager.sessions.rebuild import Rebuilder
from pager.wire.byte_edits import apply_edits
from pager.wire.dialects import load

MESSAGES = load("messages")
MARK, LONG = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
TOOLS = [{"name": "read", "input_schema": {"type": "object"}}]
SHORT_GRANT = Usage(20_000, 0, 20_000, 5, tells_cached=True, written_5m=20_000)
LONG_GRANT = Usage(20_000, 0, 20_000, 5, tells_cached=True, written_1h=20_000)


def text(words, mark=None):
    return {"type": "text", "text": words, **({"cache_control": mark} if mark else {})}


def body(turns, mark=MARK, **members):
    """A request of so many turns, whose client marks its system prompt and its last message, if it marks anything."""
    messages = []
    for at in range(turns):
        last = mark if at == turns - 1 else None
        messages.append({"role": "user", "content": [text(f"question {at} " + "word " * 2_000, last)]})
        messages.append({"role": "assistant", "content": [text(f"answer {at}")]})
    system = [text("You help. " * 500, mark)]
    return {"model": "claude-opus-4-5", "system": system, "tools": TOOLS, "messages": messages[:-1], **members}


def pager(rule="1h", *, keep_warm=False, policy="cost_aware"):
    arms = Arms(NamedPolicy(policy, load_policy(policy), keep_warm))
    return Pager(arms, in_force("", {}), load, marks=True, lifetime=rule)


class Logged:
    """A session as it was logged, and every request as it went out, proven by the log."""

    def __init__(self, calls, planner):
        store = open_store("memory:")
        self.id = log_session(store, calls, planner, dialect="messages")
        self.log = list(store.events(self.id))
        self.sent = [
            json.loads(outgoing(self.log, CallAddress(0, number, 1), store.blob, load)[-1])
            for number in range(1, len(calls) + 1)
        ]
        self.table = Rebuilder(load, store.blob).session(self.id, self.log).pages.tables[0]

    @property
    def marks(self):
        """The lifetimes that the marks of each request ask for."""
        return [{mark.get("ttl", "5m") for mark in found(one)} for one in self.sent]

    @property
    def lifetimes(self):
        return [row.event.lifetime for row in self.log if isinstance(row.event, Marked)]


def found(value):
    """All cache marks in a request."""
    if isinstance(value, list):
        return [mark for one in value for mark in found(one)]
    if not isinstance(value, dict):
        return []
    own = [value["cache_control"]] if value.get("cache_control") else []
    return own + [mark for name, one in value.items() if name != "cache_control" for mark in found(one)]


def calls(*gaps, mark=MARK, usage=SHORT_GRANT, **members):
    """Calls after these pauses; ``usage`` is what the provider reports, or tells it from what was asked for."""

    def reported(entry):
        table = entry.paged.table
        told = usage(table.lifetime) if callable(usage) else usage
        table.learn_usage(told, 0, table.call)  # as the proxy does
        return told

    return [LoggedCall(body(at + 1, mark, **members), gap, usage=reported) for at, gap in enumerate(gaps)]


# ---------------------------------------------------------------- what pays

PRICES = Prices(read=0.05, write=1.25, output=5.0, ttl_seconds=300.0)


def test_an_hour_pays_for_a_session_that_keeps_pausing_between_both():
    assert saves_by_an_hour(PauseOutlook(100_000, 60, [1_200.0] * 20, PRICES))
    assert not saves_by_an_hour(PauseOutlook(100_000, 60, [20.0] * 20, PRICES))


def test_an_hour_does_not_pay_by_the_chances_of_other_sessions():
    for read in (0.1, 0.05, 0.025):
        assert not saves_by_an_hour(PauseOutlook(20_000, 60, [], Prices(read=read, ttl_seconds=300.0)))


def test_an_hour_does_not_pay_where_pauses_outlive_it_or_nothing_comes():
    assert not saves_by_an_hour(PauseOutlook(100_000, 60, [9_000.0] * 20, PRICES))
    assert not saves_by_an_hour(PauseOutlook(100_000, 0, [1_200.0] * 20, PRICES))


def test_an_hour_that_is_not_offered_is_never_asked_for():
    flat = Prices(read=0.1, write=1.25, write_long=1.25, ttl_seconds=300.0)
    assert not saves_by_an_hour(PauseOutlook(100_000, 60, [1_200.0] * 20, flat))


# ---------------------------------------------------------------- what goes out


def test_marks_without_a_ttl_ask_for_an_hour_all_alike_and_nothing_else_changes():
    logged = Logged(calls(0, 10, 10, usage=LONG_GRANT), pager("1h"))
    assert logged.marks == [{"1h"}] * 3
    for sent, call in zip(logged.sent, calls(0, 10, 10), strict=True):
        assert json.dumps(sent).replace(', "ttl": "1h"', "") == json.dumps(call.body)
    assert logged.lifetimes == [3_600.0]
    assert (logged.table.lifetime, logged.table.asked_lifetime) == (3_600.0, 3_600.0)


def test_by_default_marks_stay_as_they_came():
    assert Logged(calls(0, 10, 2_000), pager("5m")).marks == [{"5m"}] * 3


def test_a_client_without_marks_gets_ours_for_an_hour():
    logged = Logged(calls(0, 10, mark=None, usage=LONG_GRANT), pager("1h"))
    assert logged.marks == [{"1h"}] * 2


def test_a_mark_of_the_whole_request_asks_for_an_hour_as_well():
    logged = Logged(calls(0, 10, mark=None, usage=LONG_GRANT, cache_control=MARK), pager("1h"))
    assert [one["cache_control"] for one in logged.sent] == [LONG, LONG]


@pytest.mark.parametrize("named", [{"type": "ephemeral", "ttl": "5m"}, LONG])
def test_a_lifetime_that_the_client_names_stays(named):
    for given in (calls(0, 10, mark=named), calls(0, 10, cache_control=named)):
        logged = Logged(given, pager("1h"))
        assert logged.sent == [one.body for one in given]
        assert not any(logged.lifetimes)


def test_a_mark_that_cant_be_changed_keeps_all_others_as_they_came():
    nested = {"type": "tool_result", "tool_use_id": "t", "content": [text("deep", MARK)]}
    given = calls(0)[0].body
    given["messages"][-1]["content"].append(nested)
    assert Logged([LoggedCall(given, usage=SHORT_GRANT)], pager("1h")).marks == [{"5m"}]


def test_an_hour_that_is_not_granted_is_not_asked_for_again():
    logged = Logged(calls(0, 10, 2_000, 4_000, usage=SHORT_GRANT), pager("1h"))
    assert logged.marks == [{"1h"}, {"5m"}, {"5m"}, {"5m"}]
    assert logged.table.hour_denied


def test_a_choice_holds_until_the_whole_prompt_is_written_again():
    store, first, second = open_store("memory:"), pager("5m"), pager("1h")
    given = calls(0, 10, 10, 400, usage=LONG_GRANT)
    log_session(store, given[:1], first, dialect="messages")
    # the settings change while the session goes on
    log_session(store, [given[1]._replace(gap=20)], second, dialect="messages")
    name = log_session(store, [given[2]._replace(gap=3_000)], second, dialect="messages")
    marked = [row.event.lifetime for row in store.events(name) if isinstance(row.event, Marked)]
    assert marked[-1] == 3_600.0
    assert sum(one > 0 for one in marked) == 1


PAUSES = (0, *[1_500] * 40)


def test_by_price_an_hour_is_chosen_by_the_sessions_own_pauses_at_a_cold_moment():
    logged = Logged(calls(*PAUSES, usage=lambda asked: LONG_GRANT if asked else SHORT_GRANT), pager("auto"))
    assert logged.marks[0] == {"5m"}
    assert logged.marks[-1] == {"1h"}
    assert logged.lifetimes.count(3_600.0) == 1


def test_by_price_nothing_is_asked_of_a_provider_that_names_no_lifetimes():
    silent = Usage(20_000, 0, 20_000, 5, tells_cached=True)
    assert Logged(calls(*PAUSES, usage=silent), pager("auto")).marks == [{"5m"}] * len(PAUSES)


def test_by_price_a_prompt_that_is_kept_warm_keeps_five_minutes():
    logged = Logged(calls(*PAUSES), pager("auto", keep_warm=True))
    assert logged.marks == [{"5m"}] * len(PAUSES)


# ---------------------------------------------------------------- bytes


def test_only_the_mark_itself_is_changed():
    raw = b'{ "role":"user","content" : [{"type":"text" ,"text":"a", "cache_control": { "type" : "ephemeral" } }] }'
    assert MESSAGES.lengthen(raw) == raw.replace(b'"ephemeral" }', b'"ephemeral","ttl":"1h" }')
    assert MESSAGES.lengthen(b'{"role":"user","content":"a"}') == b'{"role":"user","content":"a"}'


@pytest.mark.parametrize("mark", [{"type": "ephemeral", "ttl": "5m"}, {"type": "other"}, {"type": "ephemeral", "x": 1}])
def test_a_mark_that_says_more_than_its_type_is_not_changed(mark):
    assert MESSAGES.lengthen(json.dumps({"role": "user", "content": [text("a", mark)]}).encode()) is None
    request = MESSAGES.parse(json.dumps(body(1, None, system=[text("a", mark)])).encode())
    assert MESSAGES.lengthen_head(request) is None or not request.head_marks


def test_a_tools_parameter_of_that_name_is_no_mark():
    schema = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
    request = MESSAGES.parse(json.dumps(body(1, MARK, tools=[{"name": "t", "input_schema": schema}])).encode())
    assert MESSAGES.lengthen_head(request) is None


def test_marks_on_tools_and_system_are_lengthened_together():
    tools = [{**TOOLS[0], "cache_control": MARK}]
    request = MESSAGES.parse(json.dumps(body(1, MARK, tools=tools)).encode())
    changed = json.loads(apply_edits(request.body, MESSAGES.lengthen_head(request)))
    assert [changed["tools"][0]["cache_control"], changed["system"][0]["cache_control"]] == [LONG, LONG]


def test_other_wire_formats_have_no_marks():
    chat = load("chat")
    assert chat.lengthen(b"{}") is None
    assert chat.lengthen_head(chat.parse(b'{"messages":[]}')) is None


# ---------------------------------------------------------------- money


def test_without_us_the_clients_cache_would_have_lived_for_five_minutes():
    written = Usage(20_000, 0, 20_000, 0, tells_cached=True, written_1h=20_000)
    found = Usage(24_000, 20_000, 4_000, 0, tells_cached=True, written_1h=4_000)
    reports = iter([written, found])
    store = open_store("memory:")
    name = log_session(store, calls(0, 1_200, usage=lambda _: next(reports)), pager("1h"), dialect="messages")
    first, second = story(store, name, in_force("anthropic", {}), load).calls
    assert (first.cost, first.cost_before) == (2.0 * 20_000, 1.25 * 20_000)
    assert second.cost == pytest.approx(0.1 * 20_000 + 2.0 * 4_000)
    assert second.cost_before == pytest.approx(1.25 * 24_000, rel=0.01)
