"""What keeping warm would have saved on the last sessions: played both ways, bounded in time, said in one line."""

import asyncio
import logging
import os
import subprocess
import sys
from itertools import count

import pytest
from chat_items import ON
from logged_sessions import START, LoggedCall, body, log_in_folder, log_session
from waiting import PATIENCE, wait_until

from instrumentation.replay import warm_estimate
from instrumentation.replay.compare import ReplayConditions
from instrumentation.replay.warm_estimate import WarmEstimate, estimate, is_wanted, line, of_files, of_log, of_settings
from pager.cli.main import main
from pager.config.settings import Settings
from pager.log.stores.memory.store import Store
from pager.paging.warmth.keep_warm import FixedRefreshes
from pager.proxy.serving.warm_advice import Estimating, WarmAdvice, may_advise

CONDITIONS = ReplayConditions(prices="anthropic", policy="cost_aware")
ONCE = FixedRefreshes(1, 280.0)
PRICES = ["--prices", "anthropic"]
SETTINGS = {"prices": "anthropic", "policy": "cost_aware"}


def session(pause, calls=6, at=3):
    """The calls of a session that reads a page and pauses once."""
    gaps = [pause if number == at else 10.0 for number in range(calls)]
    return [LoggedCall(body(*START, *ON * number, model="claude-opus-5-5"), gap) for number, gap in enumerate(gaps, 1)]


def log_of(*pauses, calls=6):
    store = Store()
    for number, pause in enumerate(pauses):
        log_session(store, session(pause, calls), key=f"key-{number}", begun=1_000_000.0 * (number + 1))
    return store


def test_a_refresh_that_rescues_a_cache_saves_and_one_in_vain_costs():
    rescued = estimate(of_log(log_of(500.0)), CONDITIONS, ONCE, 60.0)
    in_vain = estimate(of_log(log_of(50_000.0)), CONDITIONS, ONCE, 60.0)
    assert (rescued.sessions, rescued.paused) == (in_vain.sessions, in_vain.paused) == (1, 1)
    assert rescued.saved > 0 > in_vain.saved
    assert rescued.dollars == pytest.approx(rescued.saved * 4e-6)


def test_a_session_without_a_pause_pays_for_the_refreshes_after_its_end():
    found = estimate(of_log(log_of(10.0)), CONDITIONS, ONCE, 60.0)
    assert (found.sessions, found.paused) == (1, 0)
    assert found.saved < 0


def test_short_sessions_and_unknown_prices_are_left_out_of_what_they_can_t_say():
    assert estimate(of_log(log_of(500.0, calls=3)), CONDITIONS, ONCE, 60.0) == WarmEstimate()
    store = Store()
    log_session(store, [LoggedCall(body(*START, *ON * number, model="unheard-of")) for number in range(6)])
    assert estimate(of_log(store), CONDITIONS, ONCE, 60.0).dollars is None


def test_the_latest_sessions_are_played_and_no_more_than_some():
    store = log_of(*[500.0] * 4)
    assert [one.name for one in of_log(store)] == [row.session for row in store.sessions()]
    many = (one for _ in range(100) for one in of_log(store))
    assert estimate(many, CONDITIONS, ONCE, 600.0).sessions == warm_estimate.MOST


def test_it_ends_when_its_time_is_over_and_leaves_out_what_would_take_longer():
    store, ticks = log_of(*[500.0] * 6), count(0.0, 1.0)
    found = estimate(of_log(store), CONDITIONS, ONCE, 5.0, clock=lambda: next(ticks))
    assert 0 < found.sessions < 4
    assert estimate(of_log(store), CONDITIONS, ONCE, 0.001).sessions == 0


def test_the_limits_in_force_count():
    none = Settings(**SETTINGS, keep_warm={"longest": 0.0})
    assert of_settings(of_log(log_of(500.0)), none, 60.0).saved == 0.0


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, True),
        ({"keep_warm": {"mode": "auto"}}, False),
        ({"keep_warm": {"mode": "fixed"}}, False),
        ({"policy": "keep_all"}, False),
    ],
)
def test_it_is_said_only_while_it_is_off_and_could_be_on(settings, wanted):
    assert is_wanted(Settings(**settings)) == wanted


def test_in_words():
    found = WarmEstimate(20, 11, 1_000_000.0, 142_000.0, 3.214)
    start = (
        "keeping prompts warm is off: in 20 of your last sessions, 11 with pauses in which the cache expired, it would "
    )
    assert line(found, "x on") == f"{start}have saved $3.21 net, 14.2 % of their cost; `x on` turns it on"
    assert (
        line(found._replace(dollars=None), "x on") == f"{start}have saved 14.2 % of their cost, net; `x on` turns it on"
    )
    assert line(found._replace(saved=-1.0), "x on") == f"{start}not have saved anything"
    assert line(found._replace(paused=2), "x on") == ""


# ---------------------------------------------------------------- the commands


@pytest.fixture
def folder(tmp_path):
    data = tmp_path / "data"
    for number in range(4):
        log_in_folder(data, session(500.0), key=f"key-{number}", begun=1_000_000.0 * (number + 1))
    (tmp_path / "c.toml").touch()
    return data


def printed(capsys, *arguments):
    assert main(list(map(str, arguments))) == 0
    return " ".join(capsys.readouterr().out.split())


def where(folder):
    return "--data-dir", folder, "--config", folder.parent / "c.toml"


OFF = "keeping prompts warm is off: in 4 of your last sessions, 4 with pauses"


def test_a_report_on_all_sessions_says_it(folder, capsys):
    shown = printed(capsys, "report", *PRICES, *where(folder))
    assert OFF in shown
    (folder.parent / "c.toml").write_text('[keep_warm]\nmode = "auto"\n')
    assert OFF not in printed(capsys, "report", *PRICES, *where(folder))


def test_a_report_on_one_session_or_for_programs_does_not(folder, capsys):
    assert "keeping prompts" not in printed(capsys, "report", "key-1", *PRICES, *where(folder))
    assert "keeping prompts" not in printed(capsys, "report", "--json", *PRICES, *where(folder))


def test_analyze_says_it_of_the_files_that_it_read(folder, capsys):
    shown = printed(capsys, "analyze", folder, "--no-cache", "--jobs", "1", *PRICES, *where(folder))
    assert OFF in shown
    assert shown.index("policy") < shown.index(OFF) < shown.index("try it:")


def test_files_that_can_t_be_read_say_nothing(tmp_path):
    (tmp_path / "x.jsonl").write_text("nonsense\n")
    assert list(of_files([tmp_path / "x.jsonl", tmp_path / "none"])) == []


def estimated(settings):
    command = [sys.executable, "-m", "instrumentation.replay.warm_estimate"]
    given = settings.model_dump_json().encode()
    return subprocess.run(command, input=given, capture_output=True, timeout=PATIENCE, check=True).stdout.decode()


def test_a_process_of_its_own_works_it_out_for_the_log_of_the_settings(folder, tmp_path):
    assert estimated(Settings(**SETTINGS, data_dir=folder)).startswith(OFF)
    assert estimated(Settings(**SETTINGS, data_dir=tmp_path / "none")) == ""
    assert estimated(Settings(**SETTINGS, data_dir=folder, keep_warm={"mode": "auto"})) == ""


# ---------------------------------------------------------------- beside a running proxy


class Switch:
    def __init__(self, *, on):
        self.on = on


def advised(code, *, on=False, until=None):
    """Run advice on what a program prints; until this is true, or it has ended by itself."""

    async def play():
        advice = WarmAdvice(Estimating([sys.executable, "-c", code], b"given"), Switch(on=on), after=0.0)
        advice.start()
        if until is None:
            await advice._task
        else:
            await asyncio.to_thread(wait_until, until)
            await advice.stop()

    asyncio.run(play())


ECHO = "import sys; print(sys.stdin.read(), 'saved')"


def test_serve_says_in_its_log_what_a_process_worked_out(caplog):
    caplog.set_level(logging.INFO)
    advised(ECHO)
    assert [record.getMessage() for record in caplog.records if record.name == "ctxpager"] == ["given saved"]


@pytest.mark.parametrize(("code", "on"), [(ECHO, True), ("", False), ("raise SystemExit(3)", False)])
def test_it_says_nothing_where_it_was_switched_on_or_nothing_is_known(caplog, code, on):
    caplog.set_level(logging.INFO)
    advised(code, on=on)
    assert [record for record in caplog.records if record.name == "ctxpager"] == []


def test_the_process_ends_with_the_proxy(tmp_path):
    begun = tmp_path / "begun"
    code = f"import os, time; open({str(begun)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    advised(code, until=lambda: begun.exists() and begun.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)


@pytest.mark.parametrize(
    "settings",
    [{"keep_warm": {"mode": "auto"}}, {"store": "memory:"}, {"trust_clock_header": True}],
)
def test_it_is_worked_out_only_where_it_can_be(settings):
    assert may_advise(Settings())
    assert not may_advise(Settings(**settings))
