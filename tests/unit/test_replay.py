"""Sessions played again under policies: what is evicted, asked for and charged."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from chat_items import handle, page
from stand_ins import Greedy, KeepAll

from instrumentation.accounting.billing import Bill, Prompt, tokens_in
from instrumentation.replay import recording_files
from instrumentation.replay.compare import Contender, ReplayConditions, compare
from instrumentation.replay.player import Player
from instrumentation.replay.prepared_recording import Caching, Prepared
from instrumentation.replay.recording import RecordedCall, Recording
from pager.paging.page_in import definition
from pager.paging.pages.stub import HANDLE
from pager.paging.policy import Decision
from pager.paging.tool_forms_of_call import Shortening
from pager.paging.warmth.keep_warm import FixedRefreshes
from pager.pricing.rates import in_force
from pager.request_values import Usage
from pager.wire.dialects import load
from policies.fifo_age import FifoAge

MODELS = in_force("anthropic", {})
OUTSIDE = 1_000


class Once:
    """Evicts all that it may, one time."""

    done = False

    def choose(self, view):
        gone = tuple(page.handle for page in view.pages if page.evictable and not self.done)
        self.done = self.done or bool(gone)
        return Decision(gone, reason="once")


class Wrong:
    def choose(self, view):
        return Decision(("pg_0000000000000000",), reason="made up")


class Chat:
    """Items of Chat Completions."""

    name = "chat"
    items = "messages"

    def tool(self, **members):
        return {"type": "function", "function": members}

    def user(self, text):
        return {"role": "user", "content": text}

    def says(self, text):
        return {"role": "assistant", "content": text}

    def calls(self, call_id, **arguments):
        function = {"name": "read", "arguments": json.dumps(arguments)}
        call = {"id": call_id, "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def result(self, call_id, content):
        return {"role": "tool", "tool_call_id": call_id, "content": content}


class Messages(Chat):
    name = "messages"

    def tool(self, parameters, **members):
        return {**members, "input_schema": parameters}

    def calls(self, call_id, **arguments):
        block = {"type": "tool_use", "id": call_id, "name": "read", "input": arguments}
        return {"role": "assistant", "content": [block]}

    def result(self, call_id, content):
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": content}]}


class Responses(Chat):
    name = "responses"
    items = "input"

    def tool(self, **members):
        return {"type": "function", "strict": False, **members}

    def calls(self, call_id, **arguments):
        return {"type": "function_call", "call_id": call_id, "name": "read", "arguments": json.dumps(arguments)}

    def result(self, call_id, content):
        return {"type": "function_call_output", "call_id": call_id, "output": content}


CHAT = Chat()


A, B = page("alpha"), page("beta")
QUOTE = "line 17 of the file alpha as it was read"
OTHER = "line 42 of the file alpha as it was read"


def session(*said, wire=CHAT, gap=10.0, first=A, more=(), **members):
    """A session whose first call reads a page; each later call repeats all and says one more thing."""
    start = [wire.user("do it"), wire.calls("c1", path="src/a.py"), wire.result("c1", first), *more]
    steps, length = [], 0
    for number, words in enumerate(said):
        new = start if not number else [wire.says(said[number - 1]), wire.user("go on")]
        raws = tuple(json.dumps(one).encode() for one in new)
        steps.append(RecordedCall(number * gap, length, raws, OUTSIDE, words, tokens_in(len(words)), **members))
        length += len(raws)
    return Recording("s", wire.name, steps)


def played(recording, policy=None, models=MODELS, tools=Shortening()):  # noqa: B008 - a frozen value
    prepared = Prepared(recording, load(recording.dialect), tools=tools)
    player = Player(prepared, lambda _: policy or Greedy(), models)
    player.play()
    player.prepared = prepared
    return player


def test_a_policy_that_keeps_all_costs_what_doing_nothing_costs():
    player = played(session("a", "b", "c", "d"), KeepAll())
    assert player.bill.charged == player.prepared.unpaged(MODELS)
    assert player.outcome("never").repacks == 0


@pytest.mark.parametrize("cache", [Caching(True, 300.0), Caching(True, 3_600.0), Caching(False, 3_600.0)])
def test_doing_nothing_costs_the_same_however_the_provider_caches(cache):
    prepared = Prepared(session("a", "b", "c", "d", gap=200.0), load("chat"), cache=cache)
    player = Player(prepared, lambda _: KeepAll(), MODELS)
    player.play()
    assert player.bill.charged == prepared.unpaged(MODELS)


def test_a_pause_of_seven_minutes_is_cold_for_five_minutes_and_not_for_an_hour():
    recording = session("a", "b", gap=420.0)
    first, grown = (Prepared(recording, load("chat")).calls[at].prompt.tokens for at in (0, 1))
    for lifetime, price, read in ((300.0, 1.25, 0), (3_600.0, 2.0, first)):
        for marks in (True, False):
            paid = Prepared(recording, load("chat"), cache=Caching(marks, lifetime)).unpaged(MODELS)
            assert paid.cached == read
            output = 2 * 5.0 * tokens_in(1)
            assert paid.cost == pytest.approx(price * (first + grown - read) + 0.1 * read + output)


def test_a_refresh_in_a_pause_costs_reading_and_spares_writing():
    prepared = Prepared(session("a", "b", gap=420.0), load("chat"))
    first = prepared.calls[0].prompt.tokens
    players = [
        Player(prepared, lambda _: KeepAll(), MODELS, keep_warm=rule) for rule in (None, FixedRefreshes(1, 280.0))
    ]
    for player in players:
        player.play()
    cold, warm = (player.bill.charged for player in players)
    assert (cold.cached, warm.cached) == (0, first)
    assert warm.input == cold.input  # a refresh is no traffic
    outcome = players[1].outcome("never")
    assert (outcome.refreshes, outcome.wrote) == (2, 0)  # one in the pause, one after the last call
    spent = 0.1 * (prepared.calls[0].prompt.tokens + prepared.calls[1].prompt.tokens)
    assert outcome.refreshing == pytest.approx(spent)
    assert warm.cost == pytest.approx(cold.cost - (1.25 - 0.1) * first + spent)


@pytest.mark.parametrize(
    ("families", "model", "refreshes"),
    [({}, "", 1), ({0: b"a", 1: b"a"}, "", 1), ({0: b"a", 1: b"b"}, "", 2), ({0: b"a", 1: b"a"}, "haiku", 2)],
)
def test_a_branch_in_whose_place_another_went_on_is_kept_warm_no_longer(families, model, refreshes):
    (step,) = session("a").steps
    other = step._replace(at=200.0, branch=1, model=model)  # as after a compaction, unless it is of another agent
    prepared = Prepared(Recording("s", "chat", [step, other], families=families), load("chat"))
    player = Player(prepared, lambda _: KeepAll(), MODELS, keep_warm=FixedRefreshes(1, 280.0))
    player.play()
    assert player.outcome("never").refreshes == refreshes


def test_a_recorded_call_has_the_lifetime_that_was_granted_and_the_next_one_keeps_it():
    long, short = Usage(9_000, 0, 9_000, written_1h=9_000), Usage(9_000, 0, 9_000, written_5m=9_000)
    steps = session("a", "b", "c", "d").steps
    steps = [step._replace(usage=usage) for step, usage in zip(steps, (None, long, None, short), strict=True)]
    prepared = Prepared(Recording("s", "chat", steps), load("chat"))
    assert [prepared.lifetime(call) for call in prepared.calls] == [0.0, 3_600.0, 3_600.0, 300.0]
    assert [prepared.prices(call, MODELS).write for call in prepared.calls] == [1.25, 2.0, 2.0, 1.25]


def test_a_prompt_is_what_stands_outside_and_each_item():
    recording = session("a", "b")
    before = Prepared(recording, load("chat")).unpaged(MODELS)
    sizes = [tokens_in(len(raw)) for step in recording.steps for raw in step.new]
    first, second = tokens_in(OUTSIDE) + sum(sizes[:3]), tokens_in(OUTSIDE) + sum(sizes)
    assert (before.input, before.cached, before.peak) == (first + second, first, second)


def test_pages_go_when_the_rules_allow_it_and_the_tool_comes():
    player = played(session("a", "b", "c", "d"))
    (repacked,) = player.tally.repacked
    assert (repacked.branch, repacked.call, repacked.tool, repacked.warm) == (0, 3, "page_in", True)
    assert [one.page for one in repacked.pages] == [handle(A)]
    assert HANDLE.findall(repacked.pages[0].stub) == [handle(A)]


def test_stubs_and_the_tool_are_charged():
    player = played(session("a", "b", "c"))
    recording = session("a", "b", "c")
    raws = [raw for step in recording.steps for raw in step.new]
    stub = player.tally.repacked[0].pages[0].stub
    raws[2] = raws[2].replace(json.dumps(A).encode(), json.dumps(stub).encode())
    bill = Bill(MODELS.prices(""))
    for length, step in zip((3, 5), recording.steps, strict=False):
        items = [raw for one in recording.steps for raw in one.new][:length]
        bill.charge(
            Prompt.of([b"head", *items], [tokens_in(OUTSIDE), *(tokens_in(len(raw)) for raw in items)]), step.at, 1
        )
    head = tokens_in(OUTSIDE + len(definition("chat")))
    bill.charge(Prompt.of([b"tool", *raws], [head, *(tokens_in(len(raw)) for raw in raws)]), 20.0, 1)
    assert player.bill.charged == bill.charged


@pytest.mark.parametrize("wire", [Chat(), Messages(), Responses()], ids=lambda wire: wire.name)
def test_an_answer_that_repeats_an_evicted_page_asks_for_it_first(wire):
    player = played(session("a", "b", "c", f"See:\n{QUOTE}", "e", wire=wire), Once())
    outcome = player.outcome("greedy")
    assert (outcome.page_ins, outcome.faults, outcome.repacks) == (1, 1, 1)
    assert outcome.charged.requests == 6
    assert 0 < outcome.asking < outcome.charged.cost


def test_what_was_asked_for_stays_in_the_prompt():
    said = ["a", "b", "c", f"See:\n{QUOTE}", "e", f"And:\n{OTHER}", "f"]
    player = played(session(*said), Once())
    assert player.tally.page_ins == 1
    table = player.pages.tables[0]
    assert [page.handle for page in table.pages if page.stub] == [handle(A)]
    assert sum(A in (slot.raw or b"").decode().replace("\\n", "\n") for slot in table.slots) == 1


def test_between_repacks_each_prompt_extends_the_one_before():
    said = ["a", "b", "c", f"See:\n{QUOTE}", "e", "f", "g"]
    player = played(session(*said), Once())
    # From the repack on, everything that a request repeats is read: written are the repack's prompt and what is new.
    before = played(session("a", "b"), KeepAll()).bill.charged
    after = player.bill.charged
    uncached = after.input - after.cached - (before.input - before.cached)
    final = player.prompts.latest(0).tokens
    assert uncached == final


def test_a_page_that_was_brought_back_and_went_again_is_asked_for_again():
    said = ["a", "b", "c", f"See:\n{QUOTE}", *"efghijklmnopqrs", f"And:\n{OTHER}"]
    player = played(session(*said))
    assert (player.tally.page_ins, len(player.tally.repacked)) == (2, 2)


def test_what_the_model_has_said_itself_is_not_asked_for():
    said = ["a", f"See:\n{QUOTE}", "c", f"Again:\n{QUOTE}"]
    assert played(session(*said)).tally.page_ins == 0


def test_what_a_stub_tells_is_not_asked_for():
    stub = played(session("a", "b", "c", "d")).tally.repacked[0].pages[0].stub
    assert "src/a.py" in stub
    shown = A + "\nsrc/a.py_of_old"
    player = played(session("a", "b", "c", "It is src/a.py_of_old", first=shown))
    assert player.tally.page_ins == 1
    assert played(session("a", "b", "c", "It is in src/a.py", first=A + "\nsrc/a.py")).tally.page_ins == 0


def test_pages_that_do_not_fit_one_answer_are_asked_for_in_rounds():
    both = f"See:\n{QUOTE}\n{QUOTE.replace('alpha', 'beta')}"
    more = [CHAT.calls("c2", path="src/b.py"), CHAT.result("c2", B)]
    narrow = in_force("anthropic", {"narrow": {"window": 2_600, "output_limit": 100}})
    player = played(session("a", "b", "c", both, more=more, model="narrow"), Once(), narrow)
    assert [one.cause for one in player.tally.repacked] == ["policy"]
    assert (player.tally.page_ins, player.tally.faults) == (2, 3)


def test_where_no_tool_can_be_added_nothing_goes():
    player = played(session("a", "b", "c", "d", tools=None))
    assert (player.tally.repacked, player.bill.charged) == ([], player.prepared.unpaged(MODELS))


def test_the_added_tool_takes_another_name_than_the_clients_tools():
    recording = session("a", "b", "c", "d", tools=frozenset({"read", "page_in"}))
    assert [one.tool for one in played(recording).tally.repacked] == ["page_in_2"]


def test_a_client_that_takes_the_tools_name_makes_it_change():
    recording = session("a", "b", "c", "d")
    steps = [*recording.steps[:3], recording.steps[3]._replace(tools=frozenset({"page_in"}))]
    repacked = played(Recording("s", "chat", steps)).tally.repacked
    assert [(one.call, one.cause, one.tool) for one in repacked] == [
        (3, "policy", "page_in"),
        (4, "client", "page_in_2"),
    ]


def test_a_decision_that_breaks_a_rule_is_counted_and_not_carried_out():
    outcome = played(session("a", "b", "c", "d"), Wrong()).outcome("wrong")
    assert (outcome.rejected, outcome.repacks) == (2, 0)  # nobody is asked before a page may go


def test_a_call_that_brought_no_answer_is_planned_but_not_charged():
    recording = session("a", "b", "c", "d")
    steps = [step._replace(answered=step.at != 20.0) for step in recording.steps]
    again = steps[2]._replace(at=25.0, keep=7, new=(), attempt=2, answered=True)
    player = played(Recording("s", "chat", [*steps[:3], again, steps[3]]))
    assert [(one.call, one.attempt) for one in player.tally.repacked] == [(3, 1)]
    assert player.bill.charged.requests == player.prepared.unpaged(MODELS).requests == 4


def test_a_request_that_could_not_be_read_is_charged_whole():
    player = played(Recording("s", "chat", [RecordedCall(0.0, 0, (), 2_700, output=3)]))
    assert (player.bill.charged.input, player.bill.charged.output) == (1_000, 3)


def test_a_branch_that_forks_knows_what_its_parent_evicted():
    recording = session("a", "b", "c", "d")
    other = (json.dumps(CHAT.user("else")).encode(),)
    fork = RecordedCall(50.0, 7, other, OUTSIDE, f"See:\n{QUOTE}", 5, branch=1, parent=0, fork_call=3)
    player = played(Recording("s", "chat", [*recording.steps, fork]))
    assert (len(player.tally.repacked), player.tally.page_ins) == (1, 1)
    assert player.pages.tables[1].call == 4


def test_policies_may_differ_by_branch():
    recording = session("a", "b", "c", "d")
    prepared = Prepared(recording, load("chat"))
    asked = []
    Player(prepared, lambda branch: asked.append(branch) or KeepAll(), MODELS).play()
    assert asked == [0, 0, 0, 0]


# ---- the window


SMALL = in_force("anthropic", {"small": {"window": 3_000, "output_limit": 100}})


def test_a_prompt_that_outgrows_the_window_is_rescued():
    large = page("gamma", 200)
    player = played(session("a", "b", "c", "d", first=large, model="small"), KeepAll(), SMALL)
    first = player.tally.repacked[0]
    assert (first.call, first.cause, [one.page for one in first.pages]) == (1, "rescue", [handle(large)])
    assert player.bill.charged.peak < player.prepared.unpaged(SMALL).peak


def test_a_new_result_that_had_to_go_is_asked_for():
    large = page("gamma", 200)
    player = played(session("a", "b", first=large, model="small"), KeepAll(), SMALL)
    assert player.tally.page_ins == 1


def test_what_does_not_fit_even_then_goes_out_all_the_same():
    steps = [RecordedCall(0.0, 0, (json.dumps(CHAT.user("x" * 9_000)).encode(),), 10, "a", model="small")]
    player = played(Recording("s", "chat", steps), KeepAll(), SMALL)
    assert (player.tally.repacked, player.bill.charged.requests) == ([], 1)


def test_a_rescue_without_a_tool_is_made_good_when_one_can_be_added():
    large = page("gamma", 200)
    recording = session("a", "b", first=large, model="small")
    steps = [recording.steps[0]._replace(tools=None), recording.steps[1]]
    repacked = played(Recording("s", "chat", steps), KeepAll(), SMALL).tally.repacked
    assert [(one.call, one.cause, one.tool) for one in repacked] == [(1, "rescue", ""), (2, "rescue", "page_in")]


# ---- tools

PROSE = "Does what its name says. " + "There is much more to be said of it, which hardly anybody needs to know. " * 8
WIRES = pytest.mark.parametrize("wire", [Chat(), Messages(), Responses()], ids=lambda wire: wire.name)
DEFERRING = Shortening(defer_above=0)
TOOL_A, TOOL_B = "tool_7", "tool_8"


def offers(wire=CHAT, names="tool", count=60, parameters=2, prose=PROSE):
    """So many tools as a request offers them, and the bytes of the list."""
    schema = {"type": "object", "properties": {f"parameter_{at}": {"type": "string"} for at in range(parameters)}}
    listed = [wire.tool(name=f"{names}_{at}", description=prose, parameters=schema) for at in range(count)]
    tools = json.dumps(listed).encode()
    dialect = load(wire.name)
    found = dialect.offers(dialect.parse(b'{"%b": [], "tools": %b}' % (wire.items.encode(), tools)))
    return found.offers, len(tools)


def equipped(recording, listed, called=None):
    """The recording with these tools; ``called`` says by a step's place what its answer calls."""
    found, size = listed
    names = frozenset(one.tool.name for one in found.tools)
    more = {"offers": found, "outside": OUTSIDE + size, "tools": names}
    steps = [step._replace(**more, called=(called or {}).get(at, ())) for at, step in enumerate(recording.steps)]
    return replace(recording, steps=steps)


def forms(player):
    return [(one.call, one.slim, one.deferred) for one in player.tally.tools]


@WIRES
def test_tools_that_are_hardly_used_are_sent_short_from_the_first_call_on(wire):
    recording = equipped(session("a", "b", "c", wire=wire), offers(wire))
    player = played(recording, KeepAll())
    assert forms(player) == [(1, 60, 0)]
    freed = player.pages.tables[0].freed
    assert freed > 60 * 400
    raws = [raw for step in recording.steps for raw in step.new]
    head = tokens_in(recording.steps[0].outside - freed + len(definition(wire.name)))
    bill = Bill(MODELS.prices(""))
    for length, step in zip((3, 5, 7), recording.steps, strict=True):
        parts = [head, *(tokens_in(len(raw)) for raw in raws[:length])]
        bill.charge(Prompt.of([b"head", *raws[:length]], parts), step.at, step.output)
    assert player.bill.charged == bill.charged


def test_tools_go_out_as_they_came_where_nobody_wants_them_short():
    player = played(equipped(session("a", "b"), offers()), KeepAll(), tools=Shortening(on=False))
    assert (forms(player), player.bill.charged) == ([], player.prepared.unpaged(MODELS))


def test_a_call_that_can_carry_no_tool_has_them_whole():
    recording = equipped(session("a", "b"), offers())
    steps = [recording.steps[0], recording.steps[1]._replace(tools=None)]
    player = played(replace(recording, steps=steps), KeepAll())
    whole = player.prepared.calls[1].prompt.tokens
    assert player.bill.charged.peak == whole
    assert player.bill.charged.cached == 0


def test_the_policy_sees_the_prompt_as_short_as_it_is():
    seen = []
    for tools in (Shortening(on=False), Shortening()):
        prepared = Prepared(equipped(session("a"), offers()), load("chat"), tools=tools)
        Player(prepared, lambda _: KeepAll(), MODELS, seen.append).play()
    whole, short = seen
    assert (whole.tool_added, short.tool_added) == (False, True)
    assert short.tokens < 0.5 * whole.tokens


def test_a_slim_tool_is_called_without_asking():
    player = played(equipped(session("a", "b"), offers(), {0: (TOOL_A,)}), KeepAll())
    assert (player.tally.page_ins, player.tally.schemas) == (0, 0)


@WIRES
def test_a_deferred_tool_is_asked_for_once_and_stays_in_the_prompt(wire):
    called = {1: (TOOL_A, TOOL_A), 3: (TOOL_A,)}
    recording = equipped(session("a", "b", "c", "d", "e", wire=wire), offers(wire, parameters=40), called)
    player = played(recording, KeepAll(), tools=DEFERRING)
    assert forms(player) == [(1, 0, 60)]
    outcome = player.outcome("never")
    assert (outcome.page_ins, outcome.schemas, outcome.faults) == (1, 1, 0)
    assert (outcome.charged.requests, outcome.asking > 0) == (6, True)
    table = player.pages.tables[0]
    assert sum(b"parameter_39" in (slot.raw or b"") for slot in table.slots) == 1
    # The asking begins like the call before it, and each later request like the one before: only news is written.
    charged = player.bill.charged
    assert charged.input - charged.cached == player.prompts.latest(0).tokens


def test_several_deferred_tools_are_asked_for_together():
    recording = equipped(session("a", "b"), offers(parameters=40), {1: (TOOL_A, TOOL_B, "unheard_of")})
    player = played(recording, KeepAll(), tools=DEFERRING)
    assert (player.tally.page_ins, player.tally.schemas) == (1, 2)


def test_a_deferred_tool_whose_parameters_an_earlier_call_named_is_not_asked_for():
    named = {f"parameter_{at}": "x" for at in range(40)}
    made = CHAT.calls("c2", **named)
    made["tool_calls"][0]["function"]["name"] = TOOL_A
    start = session("a", "b", more=[made, CHAT.result("c2", "done")])
    player = played(equipped(start, offers(parameters=40), {1: (TOOL_A, TOOL_B)}), KeepAll(), tools=DEFERRING)
    assert player.tally.schemas == 1


def test_a_client_that_changes_its_tools_is_decided_on_anew():
    recording, other = session("a", "b", "c", "d"), offers(names="other")
    steps = [*equipped(recording, offers()).steps[:2], *equipped(recording, other).steps[2:]]
    player = played(replace(recording, steps=steps), KeepAll())
    assert forms(player) == [(1, 60, 0), (3, 60, 0)]
    prompts = [call.prompt.tokens for call in player.prepared.calls]
    unpaged = player.prepared.unpaged(MODELS)
    assert unpaged.cached == prompts[0] + prompts[2]  # nothing of the second call's prompt is held by the third
    assert player.bill.charged.cached < player.bill.charged.input - 2 * player.prompts.latest(0).ends[0]


def test_tools_of_the_same_size_are_not_the_same_tools():
    first, second = offers(names="tool"), offers(names="look")
    assert first[1] == second[1]
    recording = session("a", "b")
    steps = [equipped(recording, first).steps[0], equipped(recording, second).steps[1]]
    assert Prepared(replace(recording, steps=steps), load("chat")).unpaged(MODELS).cached == 0


# ---- recorded sessions

TRACES = Path(os.environ.get("CTXPAGER_RECORDINGS", "")) / "traces" / "pi-mono"


@pytest.mark.recorded
@pytest.mark.skipif(not os.environ.get("CTXPAGER_RECORDINGS"), reason="CTXPAGER_RECORDINGS is not set")
def test_recorded_sessions_cost_the_same_under_keep_all_and_less_under_cost_aware():
    paths = recording_files.files(TRACES)
    contenders = [Contender("keep_all"), Contender("cost_aware")]
    comparison = compare(paths, contenders, ReplayConditions("anthropic"))
    nothing, paged = comparison.rows()
    assert nothing.cost_change == 0.0
    assert paged.cost_change < -0.1
    assert paged.worse == 0


@pytest.mark.recorded
@pytest.mark.skipif(not os.environ.get("CTXPAGER_RECORDINGS"), reason="CTXPAGER_RECORDINGS is not set")
def test_a_policy_that_never_evicts_costs_what_doing_nothing_costs_on_recorded_sessions():
    recording = recording_files.load(recording_files.files(TRACES)[0])
    roomy = in_force("anthropic", {recording.steps[0].model: {"window": 10_000_000}})
    player = played(recording, KeepAll(), roomy)
    assert player.bill.charged == player.prepared.unpaged(roomy)


@pytest.mark.recorded
@pytest.mark.skipif(not os.environ.get("CTXPAGER_RECORDINGS"), reason="CTXPAGER_RECORDINGS is not set")
@pytest.mark.parametrize(("place", "saved"), [("agentdojo", 0.12), ("tau2", 0.06)])
def test_recorded_sessions_with_tools_cost_less_as_tools_are_sent_short(place, saved):
    paths = recording_files.files(TRACES.parent / place)
    (paged,) = compare(paths, [Contender("cost_aware")], ReplayConditions("anthropic")).rows()
    assert paged.cost_change < -saved
    assert paged.worse == 0
    (whole,) = compare(
        paths, [Contender("cost_aware")], ReplayConditions("anthropic", tools=Shortening(on=False))
    ).rows()
    assert whole.cost_change == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("wire", [Chat(), Messages(), Responses()], ids=lambda wire: wire.name)
@pytest.mark.parametrize("policy", [Greedy(), FifoAge(2)], ids=["greedy", "fifo_age"])
def test_a_page_that_is_needed_every_six_calls_is_missed_three_times_and_then_stays(wire, policy):
    """Of 13 times that it is needed; it was missed 10 times when each copy of it began without a history."""
    said = [f"line {at % 60} of the file alpha as it was read" if at % 6 == 0 else f"Step {at}." for at in range(1, 80)]
    player = played(session(*said, wire=wire), policy)
    assert sum(words.startswith("line") for words in said) == 13
    assert (player.tally.faults, player.tally.page_ins) == (3, 3)
