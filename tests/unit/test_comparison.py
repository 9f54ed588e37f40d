"""Many sessions under many policies, summed up."""

import json

import pytest
from chat_items import item
from equipped import equipped

from instrumentation.accounting.billing import Charged
from instrumentation.replay.compare import (
    Comparison,
    Contender,
    PlayedSession,
    ReplayConditions,
    compare,
    total,
)
from instrumentation.replay.player import PolicyOutcome
from instrumentation.replay.policy_options import contenders
from instrumentation.replay.recording import RecordedCall, Recording
from instrumentation.reports.replay import as_json, as_text
from pager.errors import ConfigError, PolicyError
from pager.paging.tool_forms_of_call import Shortening

ANTHROPIC = ReplayConditions("anthropic")


def page(name):
    return "\n".join(f"line {at} of the file {name} as it was read" for at in range(200))


def session(name, calls=12, gap=10.0):
    """A session that reads a file with every call."""
    steps, length = [], 0
    for at in range(calls):
        function = {"name": "read", "arguments": json.dumps({"path": f"{name}/{at}.py"})}
        call = {"id": f"c{at}", "type": "function", "function": function}
        read = (
            item(role="assistant", content=None, tool_calls=[call]),
            item(role="tool", tool_call_id=f"c{at}", content=page(f"{name} {at}")),
        )
        new = (item(role="user", content="do it"),) if not at else read
        steps.append(RecordedCall(at * gap, length, new, 3_000, "On.", 2, model="claude-opus-4-5"))
        length += len(new)
    return Recording(name, "chat", steps)


def paid(cost, **more):
    return Charged(cost, **{"input": 100, "cached": 80, "output": 1, "requests": 1, "peak": 60, **more})


TWO = Comparison(
    [
        PlayedSession(
            "one", 10, paid(100.0), (PolicyOutcome("a", paid(90.0), 1, 2, 3, 5.0), PolicyOutcome("knowing", paid(60.0)))
        ),
        PlayedSession(
            "two",
            20,
            paid(300.0),
            (PolicyOutcome("a", paid(310.0, input=60), 1, 1, 1), PolicyOutcome("knowing", paid(300.0))),
        ),
    ],
    left_out=3,
)


def test_a_row_sums_up_what_a_policy_did():
    row, _ = TWO.rows()
    assert (row.policy, row.cost_change, row.token_change) == ("a", 0.0, pytest.approx(-0.2))
    assert (row.page_ins, row.faults, row.repacks, row.hit_rate) == (2, 3, 4, 1.0)
    assert (row.worse, row.worst, row.worst_session) == (1, pytest.approx(1 / 30), "two")
    assert row.triple == pytest.approx(10 / 400)


def test_the_total_of_bills_has_the_mean_of_their_peaks():
    assert total([paid(1.0), paid(2.0, peak=100)]) == Charged(3.0, 200, 160, 2, 2, 80)
    assert total([]) == Charged()


def test_the_table_is_aligned_and_says_what_was_played():
    told, left_out, _, *rest = as_text(TWO).splitlines()
    table, legend = rest[: rest.index("")], rest[rest.index("") + 1 :]
    assert "2 sessions, 30 calls" in told
    assert "80.0 % of them cached" in told
    assert left_out.startswith("3 sessions are left out")
    assert len({len(line) for line in table}) == 1
    assert [line.count("|") for line in table] == [table[0].count("|")] * 4
    assert table[1].startswith("|-")
    assert all(any(f"{name}: " in line for line in legend) for name in ("page-ins", "faults", "repacks", "cost more"))
    assert [cell.strip() for cell in table[2].split("|")[1:-1]] == [
        *("a", "+0.0 %", "-20.0 %", "100.0 %", "2", "3", "4", "1", "+3.3 %", "0.0 %"),
    ]


def test_where_the_future_is_known_every_row_has_its_share_of_that():
    head, _, _, best = (line for line in as_text(TWO).splitlines() if line.startswith("|"))
    assert "of knowing" in head
    assert best.split("|")[-2].strip() == "100.0 %"
    alone = Comparison([played._replace(outcomes=played.outcomes[:1]) for played in TWO.played])
    assert "of knowing" not in as_text(alone)


def test_plain_values_have_every_session():
    values = json.loads(json.dumps(as_json(TWO)))
    assert (values["sessions"], values["calls"], values["left_out"]) == (2, 30, 3)
    assert values["before"]["cost"] == 400.0
    assert values["policies"][0]["charged"]["cost"] == 400.0
    assert values["each"][0] == {"session": "one", "calls": 10, "cost": 100.0, "changes": {"a": -0.1, "knowing": -0.4}}


def test_sessions_are_played_under_every_policy():
    names = ["keep_all", "fifo_age", "knowing"]
    comparison = compare([session("one", 40), session("two", 4)], [Contender(name) for name in names], ANTHROPIC)
    nothing, fifo, knowing = comparison.rows()
    assert (comparison.left_out, comparison.calls) == (1, 40)
    assert [row.policy for row in (nothing, fifo, knowing)] == names
    assert (nothing.cost_change, nothing.repacks) == (0.0, 0)
    assert fifo.repacks > 0
    assert fifo.token_change < 0
    assert knowing.cost_change <= 0.0 < fifo.cost_change


def test_options_and_prices_count():
    far = Contender("fifo_age", {"age": 100})
    first, second = compare([session("one")], [Contender("fifo_age"), far], ReplayConditions("none")).rows()
    assert first.cost_change < second.cost_change == 0.0


def test_tools_are_sent_short_unless_they_are_not_wanted_so():
    whole = ReplayConditions("anthropic", tools=Shortening(on=False))
    policies = [Contender("keep_all"), Contender("cost_aware")]
    (nothing, short), (_, off) = (
        compare([equipped(session("one"))], policies, one).rows() for one in (ANTHROPIC, whole)
    )
    assert nothing.cost_change == 0.0
    assert short.cost_change < off.cost_change - 0.1


def test_processes_give_the_same_as_one():
    sources = [session("one"), equipped(session("two")), session("three", 3)]
    policies = [Contender("fifo_age")]
    assert compare(sources, policies, ANTHROPIC, jobs=2) == compare(sources, policies, ANTHROPIC)


# ---- which policies, with which options


def test_policies_are_named_with_commas():
    assert contenders("keep_all, lru,", []) == [Contender("keep_all"), Contender("lru")]
    assert contenders("knowing", []) == [Contender("knowing")]


def test_an_option_is_set_for_all_that_have_it_or_for_one():
    found = contenders("keep_all,fifo_age,lru", ["size=9", "lru.capacity=1_000", "fifo_age.age=2"])
    assert [one.options for one in found] == [{}, {"size": 9, "age": 2}, {"capacity": 1_000}]


def test_what_is_configured_for_a_policy_counts_unless_it_is_set():
    configured = ("fifo_age", {"age": 7, "size": 3})
    assert contenders("fifo_age,lru", ["age=1"], configured)[0].options == {"age": 1, "size": 3}
    assert contenders("lru", [], configured) == [Contender("lru")]


def test_an_option_may_belong_to_a_policy_of_ones_own(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "class Mine:\n    def __init__(self, share):\n        self.share = share\n\n"
        "    def choose(self, view):\n        raise NotImplementedError\n"
    )
    (found,) = contenders(f"{path}:Mine", ["share=0.5"])
    assert found.options == {"share": 0.5}
    (found,) = contenders(f"{path}:Mine", [f"{path}:Mine.share=0.25"])
    assert found.options == {"share": 0.25}


@pytest.mark.parametrize(
    ("policies", "settings", "said"),
    [
        ("", [], ["names no policy", "cost_aware", "knowing"]),
        ("keep_al", [], ["keep_al", "keep_all"]),
        ("lru", ["capacity"], ["--set capacity", "key=value"]),
        ("lru", ["capacity=many"], ["'many'", "no TOML value"]),
        ("lru", ["capacity=-1"], ["capacity"]),
        ("lru", ["fifo_age.age=1"], ["'fifo_age' is not among", "lru"]),
        ("lru,knowing", ["age=1"], ["none of lru, knowing has an option 'age'"]),
    ],
)
def test_a_wrong_policy_or_option_is_told(policies, settings, said):
    with pytest.raises((ConfigError, PolicyError)) as error:
        contenders(policies, settings)
    assert all(word in str(error.value) for word in said), str(error.value)
