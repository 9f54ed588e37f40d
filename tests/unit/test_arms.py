"""Experiments: which session is under which policy."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.config.settings import Settings
from pager.paging.policy import Decision
from pager.paging.policy_choice import Arms, NamedPolicy, keeps_warm, policy_of_arm
from pager.proxy.serving.main import _pager


class Idle:
    def choose(self, view):
        return Decision()


RULES = {name: NamedPolicy(name, Idle()) for name in ("cost_aware", "lru", "watermark")}
shares = st.dictionaries(st.text(max_size=8), st.floats(1e-3, 1e3), min_size=1, max_size=5)


def arms(**shares):
    return Arms(RULES["cost_aware"], {name: RULES.get(name) for name in shares}, shares)


# ---------------------------------------------------------------- which arm


@pytest.mark.parametrize("given", [{"cost_aware": 0.9, "keep_all": 0.1}, {"a": 1, "b": 1, "c": 2}, {"a": 30, "b": 70}])
def test_over_many_sessions_the_shares_are_met(given):
    ids = [f"session-{number}" for number in range(10_000)]
    got = Counter(map(arms(**given).arm, ids))
    assert set(got) == set(given)
    for name, share in given.items():
        # Four standard deviations of 10,000 draws are 0.02 at most; the ids are fixed, so this can't fail by chance.
        assert got[name] / len(ids) == pytest.approx(share / sum(given.values()), abs=0.02)


def test_without_an_experiment_there_is_no_arm():
    assert Arms(RULES["lru"]).arm("some session") == ""


@given(shares, st.text())
def test_a_session_is_always_given_to_the_same_arm(shares, session):
    arm = Arms(None, {}, shares).arm(session)
    assert arm in shares
    assert Arms(None, {}, shares).arm(session) == arm


@given(shares, st.text(), st.randoms(use_true_random=False))
def test_the_order_of_the_table_does_not_matter(shares, session, random):
    mixed = list(shares.items())
    random.shuffle(mixed)
    assert Arms(None, {}, dict(mixed)).arm(session) == Arms(None, {}, shares).arm(session)


def test_the_arms_of_these_sessions_are_the_same_in_every_process():
    given = arms(cost_aware=0.5, keep_all=0.5)
    # SHA-256 of "arm", a zero byte and the id begins with c2, 5a, 5a, e4: below 80 is the first half.
    assert [given.arm(session) for session in "abcd"] == ["keep_all", "cost_aware", "cost_aware", "keep_all"]


def test_another_share_moves_only_the_sessions_that_it_has_to():
    ids = [f"session-{number}" for number in range(1_000)]
    few, more = arms(a=0.1, b=0.9), arms(a=0.2, b=0.8)
    assert {one for one in ids if few.arm(one) == "a"} < {one for one in ids if more.arm(one) == "a"}


# ---------------------------------------------------------------- which policy


def test_an_arm_has_its_policy():
    given = arms(lru=1, keep_all=1)
    assert given.rule("lru") is RULES["lru"]
    assert given.rule("keep_all") is None, "changes nothing"


def test_a_session_without_an_arm_or_with_one_that_is_unknown_is_under_the_policy_in_force():
    given = arms(lru=1, keep_all=1)
    assert given.rule("") is given.rule("gone") is RULES["cost_aware"]
    assert Arms(None, {"lru": RULES["lru"]}, {"lru": 1}).rule("gone") is None


def test_a_session_stays_under_its_arm_when_that_is_not_configured_any_more():
    loaded = []

    def load(name):
        loaded.append(name)
        return None if name == "keep_all" else RULES[name]

    given = Arms(RULES["cost_aware"], {}, {}, load)
    assert given.rule("keep_all") is None
    assert given.rule("lru") is given.rule("lru") is RULES["lru"]
    assert given.rule("") is RULES["cost_aware"]
    assert loaded == ["keep_all", "lru"]


def test_nothing_is_ever_changed_only_where_no_arm_changes_anything():
    assert Arms(None).change_nothing
    assert Arms(None, {"keep_all": None}, {"keep_all": 1}).change_nothing
    assert not Arms(None, {"lru": RULES["lru"], "keep_all": None}, {"lru": 0.1, "keep_all": 0.9}).change_nothing
    assert not arms(keep_all=1).change_nothing


# ---------------------------------------------------------------- whether it keeps prompts warm


@pytest.mark.parametrize(
    ("arm", "policy", "warm"),
    [("lru", "lru", None), ("lru+warm", "lru", True), ("lru+cold", "lru", False), ("a.py:X+warm", "a.py:X", True)],
)
def test_the_name_of_an_arm_says_whether_its_prompts_are_kept_warm(arm, policy, warm):
    assert (policy_of_arm(arm), keeps_warm(arm)) == (policy, warm)


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_arms_differ_in_keeping_warm_whatever_is_configured(mode):
    shares = {"lru": 1.0, "lru+warm": 1.0, "lru+cold": 1.0, "keep_all": 1.0}
    made = _pager(Settings.model_validate({"experiment": {"arms": shares}, "keep_warm": {"mode": mode}}))
    found = {arm: made._arms.rule(arm) for arm in shares}
    assert {arm: rule.keep_warm for arm, rule in found.items() if rule} == {
        "lru": None,  # as it is configured, or switched
        "lru+warm": True,
        "lru+cold": False,
    }
    assert {rule.name for rule in found.values() if rule} == {"lru"}
