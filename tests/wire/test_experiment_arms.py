"""An experiment over the real proxy: which session is under which policy, and what the report says of it."""

import json

from pager.cli import main
from pager.log.events import Repacked, SessionOpened
from pager.log.stores import open_store
from pager.paging.policy_choice import Arms
from pager.testing.scripted import Call, Say

SHARES = {"fifo_age": 0.5, "keep_all": 0.5}
SESSIONS = 24
DONE = Say("All parts are fine. ☔")


def opened(data_dir):
    """The sessions of a log that nobody writes any more, by the client's key: the id, the arm, and its repacks."""
    store = open_store(f"sqlite:{data_dir}")
    try:
        rows = list(store.events())
    finally:
        store.close()
    repacked = {row.session for row in rows if isinstance(row.event, Repacked)}
    begun = [row for row in rows if isinstance(row.event, SessionOpened)]
    return {row.event.key: (row.session, row.event.arm, row.session in repacked) for row in begun}


def test_sessions_are_given_to_arms_by_hash_and_the_report_compares_them(start_proxy, open_stage, soon, capsys):
    arms = ("--experiment-arms", "{ fifo_age = 0.5, keep_all = 0.5 }")
    with start_proxy(*soon, *arms) as proxy, open_stage(proxy) as stage:
        stage.play(DONE, repeat=True)
        agents = [stage.agent("chat", stream=False, session=f"session-{number}") for number in range(SESSIONS)]
        for agent in agents:
            agent.opened().run()
        sent = {agent.session: agent.tee.sent for agent in agents}
        got = {agent.session: [received.body for legs in agent.legs for received in legs] for agent in agents}
    sessions = opened(proxy.data_dir)
    of = {key: arm for key, (_, arm, _) in sessions.items()}
    assert of == {key: Arms(None, {}, SHARES).arm(name) for key, (name, _, _) in sessions.items()}
    assert min(list(of.values()).count(arm) for arm in SHARES) >= 8
    for key, (_, arm, repacked) in sessions.items():
        assert (got[key] == sent[key]) == (arm == "keep_all") == (not repacked)
    assert _report(proxy, capsys)["comparisons"][0]["words"].startswith("fifo_age costs ")


def test_signs_of_harm_are_counted_in_every_wire_format(start_proxy, open_stage, soon, capsys):
    again = Say(calls=[Call("read", {"path": "src/part1.py"}), Call("write", {"path": "small1"})])
    with start_proxy(*soon, "--experiment-arms", "{ fifo_age = 1.0 }") as proxy, open_stage(proxy) as stage:
        stage.play(again, DONE, repeat=True)
        for wire in ("chat", "messages", "responses"):
            stage.agent(wire, stream=False, session=wire).opened().run()
    (arm,) = _told(proxy, capsys)["arms"]
    assert arm["harm"] == {"calls": 18, "turns": 3, "re_reads": 3, "edits": 3, "failed_edits": 0}


def _told(proxy, capsys):
    settings = str(proxy.data_dir.with_suffix(".toml"))
    assert main.main(["experiment", "--data-dir", str(proxy.data_dir), "--config", settings, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _report(proxy, capsys):
    told = _told(proxy, capsys)
    assert [arm["arm"] for arm in told["arms"]] == ["keep_all", "fifo_age"]
    assert sum(arm["sessions"] for arm in told["arms"]) == SESSIONS
    assert {arm["calls"] / arm["sessions"] for arm in told["arms"]} == {5}
    assert {one["verdict"] for one in told["harm"] if one["sign"] == "task_length"} == {"not worse"}
    return told
