"""The report of an experiment: what is read from the log, and how sure one can be of a difference."""

import json
import math
from hashlib import sha256
from itertools import count

import msgspec
import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

from instrumentation.accounting.confidence import (
    DRAWS,
    Group,
    RateRatio,
    Ratio,
    group,
    needed,
    rate_ratio,
    ratio,
)
from instrumentation.accounting.experiment import report, verdict
from instrumentation.reports.experiment import as_json, as_rows, as_text, compared
from pager.log.events import (
    AnswerFinished,
    AttemptFailed,
    CallReceived,
    LegFinished,
    SessionOpened,
    ToolCalled,
    Warmed,
)
from pager.log.store import Batch
from pager.log.stores.memory.store import Store
from pager.pricing.rates import in_force
from pager.request_values import Usage
from pager.wire.dialects import load as load_dialect

MODELS = in_force("", {"own": {"input": 2.0, "output": 10.0, "cached": 0.2, "written": 2.5}})
SHARES = {"cost_aware": 0.9, "keep_all": 0.1}
_names = count()


def call(number, model="own", branch=0):
    return CallReceived(branch, number, 1, "chat", "/", model, False, "", 9, "", [])


def answer(number, usage=None, model="own", attempt=1):
    return AnswerFinished(0, number, attempt, 200, "stop", "", 0, 1.0, 2.0, model=model, usage=usage)


def leg(number, usage=None, pages=("pg_1",), mixed=False):
    return LegFinished(0, number, 1, leg=1, said="", body="", size=0, usage=usage, pages=list(pages), mixed=mixed)


def failed(number):
    return AttemptFailed(0, number, 1, "status", "overloaded", status=529)


def log(store, arm, *events, at=100.0):
    name = f"s_{next(_names):016x}"
    store.append(Batch(name, at, [SessionOpened("local", "", "lineage", arm=arm), *events]))
    return name


def session(store, arm, cost, calls=3, model="own", at=100.0):
    """A session whose calls cost so many units each."""
    told = [event for number in range(1, calls + 1) for event in (call(number, model), _answer(number, cost, model))]
    return log(store, arm, *told, at=at)


def _answer(number, cost, model):
    return answer(number, Usage(input=round(cost)), model)


def experiment(store, since=0.0, models=MODELS, shares=SHARES, margin=0.1):
    return report(store, models, shares, load_dialect, since=since, margin=margin)


# ---------------------------------------------------------------- what is read from the log


def test_an_arm_is_the_sum_of_its_sessions_legs_and_all():
    store = Store()
    usage = Usage(input=1_000, cached=500, written=100, output=10)
    log(store, "cost_aware", call(1), leg(1, usage), answer(1, usage), call(2), failed(2), answer(2, usage))
    (arm,) = experiment(store).arms
    units = 3 * (0.1 * 500 + 1.25 * 100 + 400 + 5 * 10)
    assert (arm.arm, arm.sessions, arm.calls, arm.page_ins, arm.failures) == ("cost_aware", 1, 2, 1, 1)
    assert arm.units == pytest.approx(units)
    assert arm.dollars == pytest.approx(units * 2.0 / 1e6)


def test_refreshes_are_paid_in_their_arm_and_are_no_calls():
    store = Store()
    usage = Usage(input=1_000, cached=900, written=100)
    refresh = Warmed(0, 2, 1, at=390.0, refresh=1, usage=usage, cost=215.0, stake=1_000.0, lifetime=300.0)
    log(store, "lru+warm", call(1), answer(1, Usage(100)), call(2), answer(2, Usage(100)), refresh)
    (arm,) = experiment(store).arms
    assert (arm.calls, arm.units) == (2, pytest.approx(200 + 0.1 * 900 + 1.25 * 100))


def test_a_leg_that_is_told_with_its_answer_is_paid_once():
    store = Store()
    log(store, "a", call(1), leg(1, None, mixed=True), answer(1, Usage(100)), call(2), answer(2, Usage(100)))
    (arm,) = experiment(store).arms
    assert (arm.units, arm.page_ins) == (200.0, 1)


def test_a_second_attempt_costs_again_but_is_no_other_call():
    store = Store()
    log(store, "a", call(1), answer(1, Usage(100)), answer(1, Usage(100), attempt=2), call(2), answer(2, Usage(100)))
    (arm,) = experiment(store).arms
    assert (arm.units, arm.calls) == (300.0, 2)


def test_sessions_that_are_too_short_or_untold_are_left_out_and_counted():
    store = Store()
    session(store, "a", 10, calls=1)
    log(store, "a", call(1), answer(1), call(2), answer(2))
    log(store, "a", call(1), answer(1), call(2), answer(2, Usage(7)))
    log(store, "", call(1), answer(1))
    found = experiment(store)
    (arm,) = found.arms
    assert (arm.sessions, arm.calls, arm.untold, arm.too_short, arm.unpriced) == (1, 1, 1, 1, 1)
    assert found.outside == 1
    text = as_text(found)
    assert "Left out: 1 sessions have fewer than 2 answered calls." in text
    assert "Left out: 1 sessions have no reported tokens." in text
    assert "Left out: 1 answered calls have no reported tokens." in text
    assert "Left out: 1 sessions were given to no arm." in text


def test_only_sessions_that_began_since_then_count():
    store = Store()
    session(store, "a", 10, at=100.0)
    session(store, "a", 10, at=200.0)
    assert [arm.sessions for arm in experiment(store, since=150.0).arms] == [1]
    assert experiment(store, since=300.0).arms == []


def test_the_control_is_keep_all_else_the_arm_of_the_largest_share():
    store = Store()
    for arm in ("lru", "cost_aware", "keep_all"):
        session(store, arm, 10)
    assert [one.control for one in experiment(store).comparisons] == ["keep_all", "keep_all"]
    other = Store()
    session(other, "lru", 10)
    session(other, "cost_aware", 10)
    (one,) = experiment(other, shares={"lru": 0.3, "cost_aware": 0.7}).comparisons
    assert (one.arm, one.control) == ("lru", "cost_aware")


def test_a_log_without_an_experiment_has_no_arms():
    assert experiment(Store()).arms == []
    assert experiment(Store()).comparisons == []


# ---------------------------------------------------------------- what is said of it


def filled(costs_of, sessions=30, model="own"):
    store = Store()
    generator = np.random.default_rng(5)
    for arm, cost in costs_of.items():
        for _ in range(sessions):
            session(store, arm, cost * generator.lognormal(0, 0.1), int(generator.integers(2, 9)), model)
    return store


def test_a_clear_difference_is_said_with_its_interval():
    (one,) = experiment(filled({"cost_aware": 80_000, "keep_all": 100_000})).comparisons
    assert (one.by, one.needed) == ("dollars", 0)
    assert one.ratio.low < 0.8 < one.ratio.high < 1.0
    told = f"cost_aware costs {one.ratio.ratio:.2f} of keep_all per call ({one.ratio.low:.2f} to {one.ratio.high:.2f})"
    assert compared(one) == f"{told}: {100 * (1 - one.ratio.ratio):.0f} % less"
    (dearer,) = experiment(filled({"lru": 130_000, "keep_all": 100_000})).comparisons
    assert compared(dearer).endswith(" % more")


def test_arms_that_cost_the_same_are_not_told_apart():
    (one,) = experiment(filled({"cost_aware": 100_000, "keep_all": 100_000})).comparisons
    assert not one.ratio.is_significant
    assert one.needed is None or one.needed > 60
    assert "not told apart by 60 sessions" in compared(one)


def test_arms_that_cost_the_very_same_may_well_cost_the_same():
    store = Store()
    for number in range(8):
        for arm in ("cost_aware", "keep_all"):
            session(store, arm, 1_000 + number)
    (one,) = experiment(store).comparisons
    assert (one.ratio.ratio, one.needed) == (1.0, None)
    assert compared(one).endswith("not told apart by 16 sessions; they may well cost the same")


def test_too_few_sessions_are_said_to_be_too_few():
    (one,) = experiment(filled({"cost_aware": 10, "keep_all": 100_000}, sessions=7)).comparisons
    assert one.ratio is None
    assert compared(one) == (
        "too few sessions to tell cost_aware from keep_all: there are 7 and 7, and 8 of each are the least"
    )


def test_arms_are_compared_in_units_where_a_price_is_unknown():
    store = filled({"cost_aware": 80_000, "keep_all": 100_000}, model="nobody-knows-this-1")
    found = experiment(store)
    assert {one.by for one in found.comparisons} == {"units"}
    assert "Compared in units" in as_text(found)
    assert "unknown" in as_text(found)


def test_the_same_log_gives_the_same_report():
    store = filled({"cost_aware": 80_000, "keep_all": 100_000})
    assert as_text(experiment(store)) == as_text(experiment(store))


def test_programs_get_plain_values():
    plain = as_json(experiment(filled({"cost_aware": 80_000, "keep_all": 100_000})))
    assert [arm["arm"] for arm in plain["arms"]] == ["keep_all", "cost_aware"]
    (one,) = plain["comparisons"]
    assert one["told"] is True
    assert one["low"] < one["ratio"] < one["high"]
    assert one["words"].startswith("cost_aware costs 0.")
    few = as_json(experiment(filled({"cost_aware": 10, "keep_all": 100_000}, sessions=2)))
    assert "ratio" not in few["comparisons"][0]


# ---------------------------------------------------------------- signs of harm


def worked(store, arm, edits, failed, calls=3):
    """A session of one turn in which so many edits were made in its first answer, and so many of them failed."""
    arguments, results = orjson.dumps({"file_path": "/a.py"}), [b"Error: no match"] * failed + [b"Done."] * edits
    blobs = {sha256(arguments).digest(): arguments}
    made, items = [], []
    for number, text in enumerate(results[:edits]):
        made.append(ToolCalled(0, 1, 1, number, "Edit", f"c{number}", sha256(arguments).hexdigest(), ""))
        item = b'{"role":"tool","tool_call_id":"c%d","content":"%b"}' % (number, text)
        blobs[sha256(item).digest()] = item
        items.append(sha256(item).hexdigest())
    told = []
    for number in range(1, calls + 1):
        brought = msgspec.structs.replace(call(number), messages=items if number > 1 else [])
        told += [brought, answer(number, Usage(100)), *(made if number == 1 else [])]
    name = f"s_{next(_names):016x}"
    store.append(Batch(name, 100.0, [SessionOpened("local", "", "lineage", arm=arm), *told], blobs))


def worked_by(cost_aware, keep_all, sessions=30, seed=6):
    """A log with two arms whose edits fail with these chances."""
    store, generator = Store(), np.random.default_rng(seed)
    for arm, chance in (("cost_aware", cost_aware), ("keep_all", keep_all)):
        for _ in range(sessions):
            worked(store, arm, 10, int(generator.binomial(10, chance)), int(generator.integers(3, 6)))
    return store


def verdicts(store, margin=0.1):
    return {one.sign.name: one.verdict for one in experiment(store, margin=margin).harm}


def test_an_arm_whose_edits_fail_more_often_is_worse():
    found = experiment(worked_by(0.4, 0.1))
    (one,) = [one for one in found.harm if one.sign.name == "failed_edits"]
    assert one.verdict == "worse"
    assert one.sessions == (30, 30)
    assert one.ratio.low > 1.1
    assert one.rates[0] / one.rates[1] == pytest.approx(one.ratio.ratio)
    assert found.arms[0].harm.edits == 300
    assert found.arms[0].harm.failed_edits == round(300 * one.rates[1])


def test_arms_that_work_alike_are_not_worse_once_there_are_sessions_enough():
    assert verdicts(worked_by(0.3, 0.3, sessions=400))["failed_edits"] == "not worse"
    assert verdicts(worked_by(0.3, 0.3, sessions=20))["failed_edits"] == "too few sessions"
    assert verdicts(worked_by(0.3, 0.3, sessions=20), margin=1.0)["failed_edits"] == "not worse"


def test_seven_sessions_are_too_few_however_different_they_are():
    assert set(verdicts(worked_by(0.9, 0.1, sessions=7)).values()) == {"too few sessions"}


def test_an_arm_that_has_what_the_control_never_has_is_worse():
    found = experiment(worked_by(0.2, 0.0))
    (one,) = [one for one in found.harm if one.sign.name == "failed_edits"]
    assert (one.verdict, one.ratio) == ("worse", (math.inf, math.inf, math.inf))
    assert verdicts(worked_by(0.0, 0.2))["failed_edits"] == "not worse"


def test_what_never_happens_is_not_compared():
    found = experiment(worked_by(0.0, 0.0))
    assert [(one.sign.name, one.rates, one.ratio, one.verdict) for one in found.harm[:2]] == [
        ("re_reads", (0.0, 0.0), None, "too few sessions"),
        ("failed_edits", (0.0, 0.0), None, "too few sessions"),
    ]


def test_a_small_arm_without_any_of_what_is_rare_may_be_so_by_chance():
    store = Store()
    for number in range(200):
        worked(store, "keep_all", 10, int(number % 5 == 0))
    for _ in range(10):
        worked(store, "cost_aware", 10, 0)
    assert verdicts(store)["failed_edits"] == "too few sessions"
    for _ in range(90):
        worked(store, "cost_aware", 10, 0)
    assert verdicts(store)["failed_edits"] == "not worse"


def test_an_arm_that_needs_twice_the_calls_is_worse():
    store = Store()
    for number in range(20):
        worked(store, "cost_aware", 1, 0, calls=8 + number % 3)
        worked(store, "keep_all", 1, 0, calls=4 + number % 3)
    length = experiment(store).harm[-1]
    assert (length.sign.name, length.rates, length.verdict) == ("task_length", (8.95, 4.95), "worse")


def test_harm_is_seen_in_sessions_without_reported_tokens_but_not_in_short_ones():
    store = Store()
    for arm in ("cost_aware", "keep_all"):
        for _ in range(8):
            log(store, arm, call(1), answer(1), call(2), answer(2))
        log(store, arm, call(1), answer(1, Usage(5)))
    reads, edits, length = experiment(store).harm
    assert (reads.sessions, edits.sessions, length.sessions) == ((8, 8), (0, 0), (8, 8))
    assert edits.rates == (None, None)
    assert "none" in as_text(experiment(store))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.9, 1.1, "not worse"),
        (1.05, 1.1, "not worse"),
        (0.9, 1.2, "too few sessions"),
        (1.05, 1.2, "worse"),
        (1.0, math.inf, "too few sessions"),
    ],
)
def test_the_verdict_follows_from_the_ends_of_the_interval(low, high, expected):
    assert verdict(RateRatio(1.0, low, high), 0.1) == expected


def test_every_format_has_the_verdicts():
    found = experiment(worked_by(0.4, 0.0))
    lines = as_text(found).splitlines()
    (row,) = [line.split() for line in lines if " failed edits per edit " in line]
    assert row[5:9] == ["30", "+", "30", f"{found.harm[1].rates[0]:.3f}"]
    assert row[9:] == ["0.000", "∞", "∞", "∞", "worse"]
    assert '"Not worse": at most 10 % more than keep_all, by the upper end of the interval.' in lines
    plain = json.loads(json.dumps(as_json(found), allow_nan=False))
    assert plain["margin"] == 0.1
    one = plain["harm"][1]
    assert (one["arm"], one["control"], one["sign"]) == ("cost_aware", "keep_all", "failed_edits")
    assert (one["ratio"], one["high"], one["verdict"]) == (None, None, "worse")
    (control, other) = as_rows(found)
    assert control["verdicts"]["failed_edits"] == ""
    assert (other["verdicts"]["failed_edits"], other["harm"]["edits"]) == ("worse", 300)


# ---------------------------------------------------------------- how sure one can be


def drawn(generator, sessions, factor=1.0, spread=0.6):
    """Sessions of many lengths; a longer one costs more a call, as prompts grow."""
    calls = np.maximum(2, generator.lognormal(2.5, spread, sessions).round())
    return Group(factor * calls * (1 + calls / 50) * generator.lognormal(8, 0.4, sessions), calls)


@pytest.mark.parametrize("sizes", [(20, 20), (60, 15)])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(sizes):
    generator = np.random.default_rng(11)
    held = 0
    for seed in range(200):
        found = ratio(drawn(generator, sizes[0], 0.8), drawn(generator, sizes[1]), seed)
        held += found.low <= 0.8 <= found.high
    assert 0.90 <= held / 200 <= 0.99


def test_identical_arms_are_rarely_told_apart():
    generator = np.random.default_rng(12)
    told = [ratio(drawn(generator, 30), drawn(generator, 30), seed).is_significant for seed in range(200)]
    assert sum(told) <= 0.1 * 200


def test_the_sessions_said_to_be_needed_mostly_suffice():
    generator = np.random.default_rng(13)
    usual = [ratio(drawn(generator, 20, 0.8), drawn(generator, 20), seed) for seed in range(20)]
    error = sum(one.error for one in usual) / len(usual)
    width = sum(one.high / one.ratio for one in usual) / len(usual)
    enough = int(needed(Ratio(0.8, 0.8 / width, 0.8 * width, error), 40)) // 2
    told = [ratio(drawn(generator, enough, 0.8), drawn(generator, enough), seed).is_significant for seed in range(60)]
    assert 0.5 <= sum(told) / 60 <= 0.97


def test_no_number_of_sessions_tells_what_is_the_same():
    assert needed(Ratio(1.0, 0.9, 1.1, 0.05), 40) == math.inf


def happened(generator, sessions, rate):
    """Sessions in which something happens at rates that differ from one to the next."""
    calls = np.maximum(2, generator.lognormal(2.5, 0.6, sessions).round())
    return Group(generator.poisson(rate * calls * generator.gamma(1.0, 1.0, sessions)).astype(float), calls)


@pytest.mark.parametrize(("sizes", "rate"), [((20, 20), 0.3), ((60, 15), 0.3), ((15, 60), 0.05)])
def test_the_interval_of_rare_events_holds_the_truth_about_as_often_as_it_says(sizes, rate):
    generator = np.random.default_rng(15)
    pairs = [(happened(generator, sizes[0], 1.1 * rate), happened(generator, sizes[1], rate)) for _ in range(200)]
    found = [one for seed, pair in enumerate(pairs) if (one := rate_ratio(*pair, seed)) is not None]
    assert len(found) >= 190
    assert 0.90 <= sum(one.low <= 1.1 <= one.high for one in found) / len(found) <= 0.99
    assert sum(verdict(one, 0.1) == "not worse" for one in found) <= 0.07 * len(found)


def test_twice_the_rate_is_seen_in_many_sessions_and_equal_rates_are_rarely_called_worse():
    generator = np.random.default_rng(16)
    control = [happened(generator, 200, 0.3) for _ in range(50)]
    for factor, verdicts in ((1.0, {"worse": 0.06}), (2.0, {"not worse": 0.0, "too few sessions": 0.06})):
        found = [verdict(rate_ratio(happened(generator, 200, factor * 0.3), other), 0.1) for other in control]
        assert all(found.count(name) <= most * 50 for name, most in verdicts.items())


positive = st.floats(0.01, 1e6)
sessions = st.lists(st.tuples(positive, st.integers(1, 500)), min_size=2, max_size=12)


@examples(40)
@given(sessions, sessions, st.floats(0.01, 100.0))
def test_a_ratio_lies_in_its_interval_and_scales_with_the_costs(own, others, factor):
    one, other = group(own), group(others)
    found = ratio(one, other)
    assert found.low <= found.ratio * (1 + 1e-9)
    assert found.ratio <= found.high * (1 + 1e-9)
    spent = sum(cost for cost, _ in own) / sum(calls for _, calls in own)
    assert found.ratio == pytest.approx(spent / (sum(cost for cost, _ in others) / sum(calls for _, calls in others)))
    scaled = ratio(Group(one.costs * factor, one.calls), other)
    assert scaled.ratio == pytest.approx(found.ratio * factor)


def test_many_sessions_are_drawn_in_parts_that_fit_the_memory():
    generator = np.random.default_rng(14)
    many = drawn(generator, 4_001)
    assert len(many.costs) * DRAWS > 4_000_000
    found = ratio(many, drawn(generator, 20))
    assert found.low < found.ratio < found.high
