"""What stands in a comparison beside real policies."""

import json

import pytest
from chat_items import item
from equipped import equipped

from benchmarks.optimum.oracles import ORACLES
from benchmarks.policies.play import PolicyFigures
from benchmarks.policies.publish import section
from instrumentation.accounting.billing import Charged
from instrumentation.replay.compare import Contender, ReplayConditions, compare, outcomes_of
from instrumentation.replay.prepared_recording import Prepared
from instrumentation.replay.recording import RecordedCall, Recording
from instrumentation.reports.replay import as_json
from pager.pricing.rates import in_force
from pager.wire.dialects import load

ANTHROPIC = ReplayConditions("anthropic")
MODELS = in_force("anthropic", {})
NAMED = {one.name: one for one in ORACLES}
QUOTE = "line 17 of the file {} as it was read"


def page(name):
    return "\n".join(f"line {at} of the file {name} as it was read" for at in range(200))


def session(calls=40, tools=frozenset({"read"}), quotes=None):
    """A session that reads a file with every call, with a pause after twelve; ``quotes`` says what calls repeat."""
    steps, length = [], 0
    for at in range(calls):
        function = {"name": "read", "arguments": json.dumps({"path": f"{at}.py"})}
        call = {"id": f"c{at}", "type": "function", "function": function}
        read = (
            item(role="assistant", content=None, tool_calls=[call]),
            item(role="tool", tool_call_id=f"c{at}", content=page(at)),
        )
        new = (item(role="user", content="do it"),) if not at else read
        said = QUOTE.format(quotes[at]) if quotes and at in quotes else "On."
        steps.append(
            RecordedCall(
                at * 10.0 + 1_000 * (at >= 12), length, new, 3_000, said, 12, model="claude-opus-4-5", tools=tools
            )
        )
        length += len(new)
    return Recording("s", "chat", steps)


def contenders(names):
    return [NAMED.get(name, Contender(name)) for name in names]


def table_of(comparison):
    """The lines of the table that the docs have of a comparison."""
    return [line for line in section(PolicyFigures("set", comparison, 0.0)).splitlines() if line.startswith("|")]


def outcomes(recording, name):
    prepared = Prepared(recording, load("chat"))
    found = {one.policy: one for one in outcomes_of(prepared, NAMED[name], MODELS, [Charged()])}
    return found, prepared.unpaged(MODELS).cost


@pytest.mark.parametrize(("name", "saves"), [("knowing", True), ("foresight", True), ("belady", False)])
def test_an_oracle_that_plays_tells_what_a_policy_tells(name, saves):
    found, before = outcomes(session(quotes={30: 3}), name)
    assert list(found) == [name]
    assert (found[name].charged.cost < before) == saves
    assert found[name].so_far[-1] == found[name].charged.cost
    assert list(found[name].so_far) == sorted(found[name].so_far)
    assert (len(found[name].so_far), found[name].repacks > 0) == (40, True)


def test_an_oracle_keeps_what_came_back_for_as_long_as_it_is_needed():
    # The file is needed each fourth call: once it is back, it is not let go again.
    found, _ = outcomes(session(60, quotes=dict.fromkeys(range(30, 60, 4), 3)), "foresight")
    assert found["foresight"].page_ins == 1


def test_the_optimum_tells_what_was_reached_what_is_the_least_and_the_ideal():
    found, before = outcomes(session(quotes={30: 3}), "optimum")
    optimum, bound, ideal = (found[name].charged.cost for name in ("optimum", "bound", "ideal"))
    assert ideal < bound <= optimum < before
    assert {one.charged.requests for one in found.values()} == {0}


@pytest.mark.parametrize("quotes", [None, {20: 3, 21: 4, 35: 3}])
def test_nobody_does_better_than_the_bound(quotes):
    names = ["cost_aware", "clear_oldest", "fifo_age", *NAMED]
    (played,) = compare([session(quotes=quotes)], contenders(names), ANTHROPIC).played
    costs = {one.policy: one.charged.cost for one in played.outcomes}
    ideal = costs.pop("ideal")
    # The replay and the model that the bound is reckoned on differ by some tokens around stubs and copies.
    assert min(costs.values()) >= 0.995 * costs["bound"] > ideal


def test_of_a_session_in_which_nobody_is_asked_nothing_can_be_saved():
    found, before = outcomes(session(tools=None), "optimum")
    assert [one.charged.cost for one in found.values()] == [before] * 3


def test_a_longer_grace_leaves_less_to_save_for_all():
    names = ["cost_aware", "knowing", "optimum"]
    short, long = (
        compare([session()], contenders(names), ReplayConditions("anthropic", grace=grace)).rows() for grace in (1, 30)
    )
    assert all(one.cost_change < other.cost_change for one, other in zip(short, long, strict=True))
    assert [row.policy for row in short] == [*names, "bound", "ideal"]


def test_a_table_says_how_much_of_what_oracles_save_is_reached():
    names = ["keep_all", "mask_recent", "cost_aware", "knowing", "optimum"]
    comparison = compare([session()], contenders(names), ANTHROPIC)
    head, _, nothing, masked, _, knowing, optimum, _, _ = table_of(comparison)
    assert [cell.strip() for cell in head.split("|")[-3:-1]] == ["of knowing", "of the optimum"]
    assert [cell.strip() for cell in nothing.split("|")[-3:-1]] == ["0.0 %", "0.0 %"]
    assert [cell.strip() for cell in masked.split("|")[-3:-1]] == ["none", "none"]
    assert knowing.split("|")[-3].strip() == optimum.split("|")[-2].strip() == "100.0 %"
    assert [cell.strip() for cell in optimum.split("|")[3:8]] == [""] * 5


def test_where_there_is_nothing_to_save_no_share_is_told():
    comparison = compare([session(6)], contenders(["cost_aware", "optimum"]), ReplayConditions("anthropic", grace=9))
    head, _, ours, *_ = table_of(comparison)
    assert "of the optimum" in head
    assert ours.split("|")[-2].strip() == ""


def test_plain_values_do_not_make_up_tokens_of_what_was_only_reckoned():
    comparison = compare([session(8)], contenders(["keep_all", "optimum"]), ANTHROPIC)
    values = json.loads(json.dumps(as_json(comparison)))["policies"]
    assert [row["token_change"] for row in values] == [0.0, None, None, None]
    assert [row["hit_rate"] is None for row in values] == [False, True, True, True]


def test_the_optimum_is_one_of_evictions_and_has_the_tools_that_all_have():
    names = ["cost_aware", "knowing", "optimum"]
    # Ten calls, in none of which a page may go: there is nothing but the tools to save on.
    conditions = ReplayConditions("anthropic", grace=99)
    (played,) = compare([equipped(session(10))], contenders(names), conditions).played
    costs = {one.policy: one.charged.cost for one in played.outcomes}
    assert list(costs) == [*names, "bound", "ideal"]
    assert list(costs.values()) == [pytest.approx(costs["cost_aware"])] * 5
    assert costs["cost_aware"] < 0.8 * played.before.cost


def test_nobody_does_better_than_the_bound_with_short_tools():
    names = ["cost_aware", "fifo_age", "knowing", "foresight", "optimum"]
    (played,) = compare([equipped(session())], contenders(names), ANTHROPIC).played
    costs = {one.policy: one.charged.cost for one in played.outcomes}
    ideal = costs.pop("ideal")
    assert min(costs.values()) >= 0.995 * costs["bound"] > ideal
    assert costs["optimum"] < costs["cost_aware"]
