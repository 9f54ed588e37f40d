"""What is counted for Prometheus, as its own library reads it."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read

from pager.log.events import (
    AnswerFinished,
    Bypassed,
    FailurePhase,
    LegFinished,
    PromptCounted,
    Repacked,
    SessionOpened,
)
from pager.proxy.attempt import Attempt, Failure
from pager.proxy.fail_open import FailOpen
from pager.proxy.serving.metrics import (
    MODELS,
    Meter,
    Metrics,
    ProxyState,
)
from pager.request_values import Usage

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(ctxpager_\w+)` \| (\w+) \| ([^|]*)\|", re.MULTILINE)
QUIET = ProxyState()
EVICTED = [("pg_1@1", "0" * 64, "", "stub"), ("pg_2@1", "0" * 64, "", "stub")]


def families(metrics, standing=QUIET):
    content_type, text = metrics.text(standing)
    assert content_type.startswith("text/plain; version=0.0.4")
    return {family.name: family for family in read(text.decode())}


def samples(metrics, standing=QUIET):
    """The value of every sample, by its name and its labels."""
    told = (sample for family in families(metrics, standing).values() for sample in family.samples)
    return {(sample.name.removeprefix("ctxpager_"), *sample.labels.values()): sample.value for sample in told}


def answered(**usage):
    told = Usage(**usage) if usage else None
    return AnswerFinished(0, 1, 1, 200, "stop", "", 0, 1.0, 2.0, usage=told)


def leg(**facts):
    return LegFinished(0, 1, 1, 1, said="", body="", size=0, **facts)


def busy():
    """Metrics with something in each of their families."""
    metrics = Metrics()
    meter = Meter(metrics)
    with meter.call("chat", 100, attempt := Attempt(keep=0)):
        attempt.going_out(b"x" * 60)
        attempt.take(b"x")
        attempt.status = 200
        attempt.failure = None
    events = [SessionOpened("t", "", ""), answered(input=9), Repacked(0, 1, 1, "policy", ""), leg(), Bypassed("asked")]
    meter.happened("m", events)
    return metrics


def test_every_documented_metric_is_there_and_no_other():
    documented = {name: (kind, labels) for name, kind, labels in ROW.findall(DOCS.read_text())}
    found = {}
    for family in families(busy()).values():
        name = family.name + "_total" * (family.type == "counter")
        (labels,) = {tuple(label for label in sample.labels if label != "le") for sample in family.samples}
        found[name] = (family.type, ", ".join(f"`{label}`" for label in labels))
    assert found == {name: (kind, labels.strip()) for name, (kind, labels) in documented.items()}
    assert len(found) == 22


def test_every_value_of_a_label_is_documented():
    said = DOCS.read_text()
    for family in families(busy()).values():
        for sample in family.samples:
            values = {value for label, value in sample.labels.items() if label not in {"le", "model"}}
            assert all(f"`{value}`" in said for value in values)


def test_a_scraper_that_accepts_openmetrics_gets_it():
    content_type, text = busy().text(ProxyState(), "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert {family.name for family in read_openmetrics(text.decode())} == set(families(busy()))


def test_a_call_is_under_way_until_it_ends():
    metrics = Metrics()
    with Meter(metrics).call("messages", 10, attempt := Attempt(keep=0)):
        assert samples(metrics)["calls_under_way", "messages"] == 1
        attempt.status = 200
        attempt.failure = None
    assert samples(metrics)["calls_under_way", "messages"] == 0
    assert samples(metrics)["calls_total", "messages", "answered", "2xx"] == 1


def test_a_call_that_is_cancelled_has_ended_by_our_fault():
    metrics = Metrics()
    with pytest.raises(KeyboardInterrupt), Meter(metrics).call("chat", 10, Attempt(keep=0)):
        raise KeyboardInterrupt
    assert samples(metrics)["calls_total", "chat", "proxy", "none"] == 1
    assert samples(metrics)["calls_under_way", "chat"] == 0


@pytest.mark.parametrize(
    ("status", "failure", "told"),
    [
        (200, None, ("answered", "2xx")),
        (429, None, ("status", "4xx")),
        (529, Failure(FailurePhase.STATUS, "busy"), ("status", "5xx")),
        (0, Failure(FailurePhase.CONNECT, "refused"), ("connect", "none")),
        (200, Failure(FailurePhase.STREAM, "broke off"), ("stream", "2xx")),
        (200, Failure(FailurePhase.CLIENT, "left"), ("client", "2xx")),
    ],
)
def test_calls_are_told_apart_by_how_they_ended(status, failure, told):
    metrics = Metrics()
    with Meter(metrics).call("chat", 1, attempt := Attempt(keep=0)):
        attempt.status = status
        attempt.failure = failure
    assert samples(metrics)["calls_total", "chat", *told] == 1


def test_bytes_of_all_requests_of_a_call_are_added():
    metrics = Metrics()
    with Meter(metrics).call("chat", 1000, attempt := Attempt(keep=0)):
        attempt.going_out(b"x" * 400)
        attempt.going_out(b"x" * 450)
    assert samples(metrics)["client_bytes_total", "chat"] == 1000
    assert samples(metrics)["upstream_bytes_total", "chat"] == 850


def test_what_we_add_ends_when_the_first_request_goes_out():
    metrics, attempt = Metrics(), Attempt(keep=0, started=90.0)
    with Meter(metrics).call("chat", 1, attempt):
        attempt.read, attempt.went_out, attempt.first_byte = 100.0, 100.0015, 102.0
        attempt.going_out(b"x" * 5)
    told = samples(metrics)
    assert told["added_seconds_sum", "chat"] == pytest.approx(0.0015)
    assert told["added_seconds_bucket", "chat", "0.001"] == 0
    assert told["added_seconds_bucket", "chat", "0.002"] == told["added_seconds_bucket", "chat", "+Inf"] == 1
    assert told["first_byte_seconds_sum", "chat"] == 12.0
    assert told["first_byte_seconds_bucket", "chat", "10.0"] == 0
    assert told["first_byte_seconds_bucket", "chat", "20.0"] == 1


def test_a_call_that_never_went_out_has_no_times_but_its_own():
    metrics = Metrics()
    with Meter(metrics).call("chat", 1, Attempt(keep=0)):
        pass
    told = samples(metrics)
    assert told["call_seconds_count", "chat"] == 1
    assert ("added_seconds_count", "chat") not in told
    assert ("first_byte_seconds_count", "chat") not in told


@given(st.lists(st.floats(0, 2000), min_size=1))
def test_buckets_hold_every_time_at_most_their_bound(times):
    metrics = Metrics()
    for seconds in times:
        metrics.ended("chat", 1, Attempt(keep=0, started=0.0, first_byte=seconds))
    told, positive = samples(metrics), [seconds for seconds in times if seconds]
    bounds = {key[2]: value for key, value in told.items() if key[0] == "first_byte_seconds_bucket"}
    assert bounds == {bound: sum(seconds <= float(bound) for seconds in positive) for bound in bounds}
    assert told.get(("first_byte_seconds_count", "chat"), 0) == len(positive)
    assert told.get(("first_byte_seconds_sum", "chat"), 0) == pytest.approx(sum(positive))


def test_events_are_counted_by_what_they_tell():
    metrics = Metrics()
    metrics.happened(
        "m", [SessionOpened("t", "", ""), answered(input=100, cached=80, written=15, output=7), answered()]
    )
    hidden = Usage(input=110, output=3)
    metrics.happened(
        "m", [leg(usage=hidden, pages=["a", "b"], unknown=["c"], schemas=["t"], invalid=["u"], imitated=2)]
    )
    metrics.happened("m", [Repacked(0, 1, 1, "rescue", "", pages=EVICTED), Repacked(0, 1, 1, "client", "")])
    metrics.happened("m", [Bypassed("refused"), Bypassed("asked"), PromptCounted(0, 1, 1, 5)])
    told = {key: value for key, value in samples(metrics).items() if value}
    assert told == {
        ("sessions_total",): 1,
        ("tokens_total", "input", "m"): 210,
        ("tokens_total", "cached", "m"): 80,
        ("tokens_total", "written", "m"): 15,
        ("tokens_total", "output", "m"): 10,
        ("hidden_legs_total",): 1,
        ("pages_in_total",): 2,
        ("pages_unknown_total",): 1,
        ("schema_faults_total",): 1,
        ("corrected_calls_total", "invalid"): 1,
        ("corrected_calls_total", "imitated"): 2,
        ("repacks_total", "rescue"): 1,
        ("repacks_total", "client"): 1,
        ("pages_evicted_total", "rescue"): 2,
        ("bypassed_total", "refused"): 1,
        ("bypassed_total", "asked"): 1,
    }


def test_an_unlogged_call_is_counted_when_it_happens_and_not_again_when_the_log_tells_of_it():
    metrics = Metrics()
    Meter(metrics).bypassed("not_logged")
    metrics.happened("m", [Bypassed("not_logged", "1 calls or answers before this went unlogged")])
    assert samples(metrics)["bypassed_total", "not_logged"] == 1


def test_words_that_nobody_knows_are_other():
    metrics = Metrics()
    metrics.happened("m", [Bypassed("tomorrow's"), Bypassed("another"), Repacked(0, 1, 1, "a whim", "", pages=EVICTED)])
    told = samples(metrics)
    assert told["bypassed_total", "other"] == 2
    assert told["repacks_total", "other"] == 1
    assert told["pages_evicted_total", "other"] == 2


def test_a_client_can_make_up_any_number_of_models_and_only_so_many_are_told_apart():
    metrics = Metrics()
    for number in range(1000):
        metrics.happened(f"model-{number}", [answered(input=1)])
    metrics.happened("model-3", [answered(input=1)])
    inputs = {key[2]: value for key, value in samples(metrics).items() if key[:2] == ("tokens_total", "input")}
    assert len(inputs) == MODELS + 1
    assert inputs["model-3"] == 2
    assert inputs["other"] == 1000 - MODELS


@pytest.mark.parametrize(
    ("name", "label"),
    [("", "unknown"), ("x" * 5000, "x" * 100), ('a"b\\c\nd', 'a"b\\c\nd'), ("\ud800x", "?x"), ("modèle", "modèle")],
)
def test_any_name_of_a_model_can_be_told(name, label):
    metrics = Metrics()
    metrics.happened(name, [answered(input=1)])
    assert samples(metrics)["tokens_total", "input", label] == 1


def test_how_things_stand_is_told_as_it_is_at_the_moment():
    told = samples(Metrics(), ProxyState(failed_steps=3, log_failures=2, log_up=True, log_queue=5, hot_sessions=7))
    assert told["failed_steps_total",] == 3
    assert told["log_failures_total",] == 2
    assert told["log_up",] == 1
    assert told["log_queue",] == 5
    assert told["hot_sessions",] == 7
    assert told["sessions_total",] == 0


class Broken(Metrics):
    """Fails at whatever it is told."""

    def begun(self, *_):
        raise RuntimeError

    ended = happened = bypassed = begun


def test_counting_never_fails_a_call():
    fail_open = FailOpen()
    meter = Meter(Broken(), fail_open)
    with meter.call("chat", 1, Attempt(keep=0)):
        done = True
    meter.happened("m", [Bypassed("asked")])
    meter.bypassed("asked")
    assert done
    assert fail_open.failed_steps == 4
