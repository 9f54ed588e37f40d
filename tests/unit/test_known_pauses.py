"""Keeping prompts warm by a rule that knows the pauses, and rows of a comparison with and without keeping warm."""

import json
from math import inf

import pytest
from chat_items import item

from instrumentation.replay.compare import Contender, ReplayConditions, compare
from instrumentation.replay.known_pauses import KnownPause, KnownPauses, pays_to_bridge, refreshes_needed
from instrumentation.replay.policy_options import RULES, kept_warm
from instrumentation.replay.prepared_recording import Prepared
from instrumentation.replay.recording import RecordedCall, Recording
from instrumentation.reports.replay import as_json, as_text
from pager.errors import ConfigError
from pager.paging.warmth.keep_warm import Resting, WaitsFor
from pager.pricing.prices import Prices
from pager.pricing.rates import in_force
from pager.wire.dialects import load

PRICES = Prices(read=0.1, write=1.25, output=5.0, ttl_seconds=300.0)
COLD = ReplayConditions("anthropic", shortest=1)


def session(calls, gap):
    """A session that reads a file with every call."""
    steps, length = [], 0
    for at in range(calls):
        function = {"name": "read", "arguments": json.dumps({"path": f"{at}.py"})}
        call = {"id": f"c{at}", "type": "function", "function": function}
        text = "\n".join(f"line {line} of the file {at} as it was read" for line in range(200))
        read = (
            item(role="assistant", content=None, tool_calls=[call]),
            item(role="tool", tool_call_id=f"c{at}", content=text),
        )
        new = (item(role="user", content="do it"),) if not at else read
        steps.append(RecordedCall(at * gap, length, new, 3_000, "On.", 2, model="claude-opus-4-5"))
        length += len(new)
    return Recording("a session", "chat", steps)


def resting(packed=100_000):
    return Resting(100_000, packed, WaitsFor.USER, 0.0, PRICES)


@pytest.mark.parametrize(
    ("seconds", "needed"), [(0.0, 0), (300.0, 0), (301.0, 1), (580.0, 1), (581.0, 2), (3_600.0, 12), (inf, inf)]
)
def test_a_pause_needs_a_refresh_for_each_lifetime_less_a_margin(seconds, needed):
    assert refreshes_needed(PRICES, seconds) == needed


def test_a_known_pause_gets_exactly_the_refreshes_that_it_needs():
    assert list(KnownPause(290.0).refreshes(resting())) == []
    assert list(KnownPause(600.0).refreshes(resting())) == [280.0, 560.0]


def test_no_refresh_is_made_where_all_of_a_pause_cost_more_than_writing_again():
    # eleven at 0.1 cost 1.1 of the prompt, and writing it instead of reading it 1.15; twelve cost 1.2
    assert len(KnownPause(300.0 + 11 * 280.0).refreshes(resting())) == 11
    assert list(KnownPause(301.0 + 11 * 280.0).refreshes(resting())) == []
    assert pays_to_bridge(PRICES, 300.0 + 11 * 280.0)
    assert not pays_to_bridge(PRICES, 301.0 + 11 * 280.0)


def test_a_prompt_with_much_to_evict_is_let_go_also_by_one_who_knows_the_pause():
    assert list(KnownPause(400.0).refreshes(resting(packed=10_000))) == []


def test_the_end_of_a_branch_is_a_pause_without_end():
    calls = Prepared(session(3, 400.0), load("chat")).calls
    pauses = KnownPauses.of(calls)
    assert [pauses.after(call).seconds for call in calls] == [400.0, 400.0, inf]


def test_the_future_of_one_who_keeps_warm_has_only_the_pauses_cold_that_do_not_pay():
    prepared, models = Prepared(session(3, 400.0), load("chat")), in_force("anthropic", {})
    assert list(prepared.futures(models)[0].cold) == [True, True, True]
    assert list(prepared.futures(models, kept_warm=True)[0].cold) == [True, False, False]


def test_every_policy_is_played_alone_and_with_each_rule():
    found = [Contender("keep_all"), Contender("cost_aware"), Contender("knowing")]
    assert [one.label for one in kept_warm(found, ["auto, 2x280", "3x285"])] == [
        *("keep_all", "cost_aware", "cost_aware + auto", "cost_aware + 2x280", "cost_aware + 3x285"),
        *("knowing", "knowing + knowing"),
    ]
    assert kept_warm(found, []) == kept_warm(found, ["off"]) == found
    assert [one.keep_warm for one in kept_warm([Contender("lru")], [""])] == ["", *RULES]


def test_a_rule_that_there_is_not_is_an_error_before_anything_is_played():
    with pytest.raises(ConfigError, match="--keep-warm always"):
        kept_warm([Contender("lru")], ["auto,always"])


def test_rows_have_what_refreshes_did_and_cost():
    rows = kept_warm([Contender("keep_all"), Contender("cost_aware"), Contender("knowing")], ["2x280,knowing"])
    comparison = compare([session(6, 400.0)], rows, COLD)
    nothing, alone, fixed, known, _, knowing = comparison.rows()
    assert (alone.refreshes, alone.refreshing, alone.wrote) == (0, 0.0, 0)
    assert fixed.refreshes == 5 + 2  # one in each pause, two after the last call
    assert known.refreshes == knowing.refreshes == 5
    assert known.cost_change < fixed.cost_change < alone.cost_change <= nothing.cost_change
    paid = sum(outcome.refreshing for outcome in (comparison.played[0].outcomes[2],))
    assert fixed.refreshing == pytest.approx(paid / comparison.before.cost)
    text = as_text(comparison)
    assert "| refreshes | their cost | wrote |" in text
    assert "refreshes: requests that only kept a prompt cached" in text
    assert as_json(comparison)["policies"][2]["refreshes"] == 7


def test_a_table_without_keeping_warm_has_no_columns_for_it():
    text = as_text(compare([session(6, 10.0)], [Contender("cost_aware")], COLD))
    assert "refreshes" not in text


def test_the_share_of_knowing_is_that_of_one_who_knows_the_pauses_where_it_was_played():
    rows = kept_warm([Contender("cost_aware"), Contender("knowing")], ["knowing"])
    lines = as_text(compare([session(6, 400.0)], rows, COLD)).splitlines()
    assert next(line for line in lines if line.startswith("| knowing + knowing")).split("|")[-2].strip() == "100.0 %"
