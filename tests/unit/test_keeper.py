"""Refreshes of resting sessions: what is sent when, what ends them, and what is forgotten."""

import asyncio
import gc
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar

import pytest
from chat_items import call as tool_call
from chat_items import encoded, page, result, user
from logged_sessions import body, incoming, paging
from prometheus_client import generate_latest
from yarl import URL

from instrumentation.accounting.ledger.call_facts import facts
from pager.config.settings import KeepWarmSettings
from pager.log.events import Warmed, WarmingStopped
from pager.log.stores import open_store
from pager.log.stores.memory.store import Store
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.paging.warmth.keep_warm import FixedRefreshes
from pager.paging.warmth.returns import WaitsFor
from pager.proxy.call_log import CallLog
from pager.proxy.fail_open import FailOpen
from pager.proxy.keep_warm import Keeper, rule_of
from pager.proxy.log_records import Incoming
from pager.proxy.redaction import secrets_of
from pager.proxy.relay import SentRequest
from pager.proxy.serving.metrics import Meter, Metrics
from pager.request_values import Answer, ToolUse, Usage
from pager.wire.dialects import load

CREDENTIAL = "sk-planted-credential"
ITEMS = (user("do it"), tool_call("c1", path="src/a.py"), result("c1", page("alpha", lines=2_000)))
READ = {"prompt_tokens": 40_000, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 39_990}}
MISSED = {"prompt_tokens": 40_000, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}
FIRST = Usage(40_000, 0, 40_000, 100, tells_cached=True)


class Response:
    def __init__(self, status, body):
        self.status, self._chunks = status, [body]
        self.content = self

    async def iter_any(self):
        for chunk in self._chunks:
            yield chunk


class Provider:
    """Answers refreshes with these usages or statuses, one after the other, then as if the prompt were cached.

    ``sent`` are the headers and bodies of all, ``cancelled`` counts those that nobody waited for any more.
    """

    def __init__(self, *answers, echo=""):
        self.answers, self.sent, self.asked = [*answers, *[READ] * 99], [], asyncio.Event()
        self.cancelled, self._echo = 0, echo

    @asynccontextmanager
    async def send(self, _method, _url, headers, content, _dialect):
        self.sent.append((dict(headers), json.loads(content)))
        self.asked.set()
        try:
            if not self.answers:  # a provider that takes its time
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        choice = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "length"}
        said = {"id": "r", "model": "m", "choices": [choice], "usage": answer}
        yield (
            Response(200, encoded(said))
            if isinstance(answer, dict)
            else Response(answer, b"no: " + self._echo.encode())
        )


class Scene:
    """A session that has made one call and rests, with a keeper whose clock is told."""

    def __init__(
        self,
        *answers,
        rule=None,
        headers=None,
        store=None,
        echo="",
        meter=None,
        mode="fixed",
        arm_keeps_warm=None,
        **settings,
    ):
        self.provider, self.store = Provider(*answers, echo=echo), store or Store()
        arms = Arms(NamedPolicy("cost_aware", load_policy("cost_aware"), arm_keeps_warm))
        self.calls = CallLog(self.store, load, 10, paging("cost_aware", arms=arms), meter=meter)
        self.pager = paging("cost_aware")
        self.settings = KeepWarmSettings(mode=mode, smallest=0, **settings)
        rule = rule or rule_of(self.settings) or FixedRefreshes(1, 280.0)
        known = self.pager.models
        self.keeper = Keeper(self.settings, rule, self.provider, self.calls, known, FailOpen(), told_time=True)
        self.headers = {"x-session-id": "one", "authorization": f"Bearer {CREDENTIAL}", **(headers or {})}

    async def begin(self, at=1_000.0, more=(), items=ITEMS, headers=None, **members):
        """One call of the session, which is not answered yet."""
        members.setdefault("model", "claude-opus-5-5")
        headers = self.headers | (headers or {})
        secrets = secrets_of(headers, b"")
        came = replace(incoming(headers=headers, at=at, **body(*items, *more, **members)), secrets=secrets)
        placed = await self.calls.receive(came)
        self.keeper.called(placed)
        return placed

    async def call(self, at=1_000.0, more=(), usage=FIRST, ends=False, **members):
        """One call of the session, answered with a tool call unless it ``ends`` the turn, which then rests."""
        placed = await self.begin(at, more, **members)
        came = placed.incoming
        placed.paged.table.learn_usage(usage, len(came.request.body), placed.placement.call)
        raw = [(name.encode(), value.encode()) for name, value in came.headers.items()]
        answer = Answer(usage=usage, calls=() if ends else (ToolUse(0, "c9", "read", "{}"),))
        self.calls.sessions.answered(placed, answer)
        self.keeper.answered(placed, placed.paged, answer, SentRequest(URL("http://p/v1"), raw, came.request.body, at))
        return placed

    async def logged(self, session, kind):
        await self.calls.drain()
        return [row.event for row in self.store.events(session) if isinstance(row.event, kind)]


def test_a_refresh_is_the_latest_request_with_the_smallest_output_at_its_due_time():
    async def play():
        scene = Scene()
        placed = await scene.call(stream=True, stream_options={"include_usage": True})
        await scene.keeper.tell(1_279.0, "one")
        assert scene.provider.sent == []
        await scene.keeper.tell(1_340.0, "another")
        assert scene.provider.sent == []
        await scene.keeper.tell(1_340.0, "one")
        [(headers, sent)] = scene.provider.sent
        assert headers[b"x-pager-now"] == b"1280.0"
        asked = json.loads(placed.incoming.request.body)
        assert {**asked, "max_completion_tokens": 1, "stream": False, "stream_options": None} == sent
        [event] = await scene.logged(placed.session.id, Warmed)
        assert (event.at, event.refresh, event.usage.cached) == (1_280.0, 1, 39_990)
        assert event.cost == pytest.approx(0.1 * 39_990 + 10 + 5)
        assert placed.paged.table.account.refreshes == event.cost

    asyncio.run(play())


@pytest.mark.parametrize(
    ("mode", "arm", "kept"),
    [
        ("fixed", None, 1),
        ("fixed", True, 1),
        ("fixed", False, 0),
        ("off", None, 0),
        ("off", True, 1),
        ("off", False, 0),
    ],
)
def test_the_arm_of_a_session_says_whether_it_is_kept_warm(mode, arm, kept):
    async def play():
        scene = Scene(mode=mode, arm_keeps_warm=arm)
        await scene.call()
        assert len(scene.keeper) == kept

    asyncio.run(play())


def test_the_next_call_finds_the_prompt_warm_and_the_rescue_is_counted():
    async def play():
        scene = Scene()
        first = await scene.call()
        await scene.keeper.tell(1_300.0, "one")
        second = await scene.call(at=1_450.0, more=(user("go on"),))
        assert second.paged.table.idle == pytest.approx(170.0)
        assert second.paged.table.account.rescued > 0
        [event] = await scene.logged(first.session.id, Warmed)
        assert second.paged.table.account.rescued == event.stake

    asyncio.run(play())


def test_a_rebuilt_session_knows_its_refreshes():
    async def play():
        scene = Scene()
        first = await scene.call()
        await scene.keeper.tell(1_300.0, "one")
        await scene.calls.drain()
        scene.calls.sessions.registry.drop(first.session.id)
        second = await scene.call(at=1_450.0, more=(user("go on"),))
        assert second.session is not first.session
        assert second.paged.table.idle == pytest.approx(170.0)
        assert second.paged.table.account.refreshes == first.paged.table.account.refreshes

    asyncio.run(play())


@pytest.mark.parametrize(
    ("answer", "reason"), [(MISSED, "wrote"), (400, "refused"), (429, "refused"), (OSError("gone"), "unreachable")]
)
def test_a_refresh_that_reads_nothing_or_fails_is_the_last(answer, reason):
    async def play():
        scene = Scene(answer, rule=FixedRefreshes(3, 280.0))
        placed = await scene.call()
        await scene.keeper.tell(9_000.0, "one")
        assert len(scene.provider.sent) == 1
        assert len(scene.keeper) == 0
        [stopped] = await scene.logged(placed.session.id, WarmingStopped)
        assert stopped.reason == reason

    asyncio.run(play())


def test_a_refresh_that_would_be_late_is_not_sent():
    async def play():
        scene = Scene(rule=FixedRefreshes(2, 295.0))
        placed = await scene.call()
        await scene.keeper.tell(2_000.0, "one")
        assert scene.provider.sent == []
        [stopped] = await scene.logged(placed.session.id, WarmingStopped)
        assert stopped.reason == "late"

    asyncio.run(play())


def test_an_interval_as_long_as_the_lifetime_refreshes_nothing():
    async def play():
        scene = Scene(every=300.0)
        await scene.call()
        assert len(scene.keeper) == 0

    asyncio.run(play())


@pytest.mark.parametrize(
    "limit", [{"refresh_dollars": 0.0}, {"day_dollars": 0.0}, {"most": 0}, {"longest": 0.0}, {"refreshes": 0}]
)
def test_a_limit_of_0_means_no_refresh_at_all(limit):
    async def play():
        scene = Scene(**limit)
        await scene.call()
        await scene.keeper.tell(9_000.0, "one")
        assert scene.provider.sent == []

    asyncio.run(play())


def test_the_money_of_a_day_is_spent_once():
    async def play():
        scene = Scene(refreshes=20, day_dollars=0.04)  # one costs $0.016
        await scene.call()
        await scene.keeper.tell(9_000.0, "one")
        assert len(scene.provider.sent) == 2

    asyncio.run(play())


def test_a_call_ends_the_refreshes_of_the_prompt_before_it():
    async def play():
        scene = Scene()
        await scene.call()
        await scene.call(at=1_200.0, more=(user("go on"),))
        await scene.keeper.tell(1_470.0, "one")
        assert scene.provider.sent == []
        await scene.keeper.tell(1_481.0, "one")
        [(_, sent)] = scene.provider.sent
        assert sent["messages"][-1] == user("go on")

    asyncio.run(play())


@pytest.mark.parametrize("headers", [{"authorization": "Bearer sk-ant-oat01-x"}, {"chatgpt-account-id": "a"}])
def test_a_subscription_is_kept_warm_only_if_so_set(headers):
    async def play():
        for allowed in (False, True):
            scene = Scene(headers=headers, subscriptions=allowed)
            await scene.call()
            assert len(scene.keeper) == allowed

    asyncio.run(play())


def test_nothing_is_refreshed_where_the_provider_reports_nothing_cached():
    async def play():
        scene = Scene()
        await scene.call(usage=Usage(40_000, 0, 0, 100, tells_cached=True))
        assert len(scene.keeper) == 0

    asyncio.run(play())


@pytest.mark.parametrize("answer", [MISSED, 400])
def test_a_refresh_that_reads_nothing_or_is_refused_ends_it_for_the_branch(answer, caplog):
    async def play():
        scene = Scene(answer, rule=FixedRefreshes(3, 280.0))
        placed = await scene.call()
        await scene.keeper.tell(1_300.0, "one")
        assert "is kept warm no longer" in caplog.text
        await scene.call(at=1_400.0, more=(user("go on"),))
        await scene.calls.drain()
        scene.calls.sessions.registry.drop(placed.session.id)  # nor after a restart
        await scene.call(at=1_500.0, more=(user("go on"), user("and on")))
        await scene.keeper.tell(9_000.0, "one")
        assert len(scene.provider.sent) == 1

    asyncio.run(play())


def test_a_provider_that_cant_be_reached_ends_it_for_the_pause_alone():
    async def play():
        scene = Scene(OSError("gone"), rule=FixedRefreshes(3, 280.0))
        await scene.call()
        await scene.keeper.tell(1_300.0, "one")
        await scene.call(at=1_400.0, more=(user("go on"),))
        await scene.keeper.tell(1_700.0, "one")
        assert len(scene.provider.sent) == 2

    asyncio.run(play())


def test_two_models_have_two_caches():
    async def play():
        scene = Scene(rule=FixedRefreshes(1, 280.0))
        await scene.call()
        other = (user("a title, please"), *ITEMS[1:])
        await scene.call(at=1_010.0, items=other, model="claude-haiku-4-5")
        await scene.keeper.tell(1_300.0, "one")
        assert [sent["model"] for _, sent in scene.provider.sent] == ["claude-opus-5-5", "claude-haiku-4-5"]

    asyncio.run(play())


def test_a_branch_that_goes_on_with_another_model_is_one_branch():
    async def play():
        scene = Scene(rule=FixedRefreshes(1, 280.0))
        await scene.call()
        await scene.call(at=1_010.0, more=(user("go on"),), model="claude-haiku-4-5")
        await scene.keeper.tell(1_300.0, "one")
        assert [sent["model"] for _, sent in scene.provider.sent] == ["claude-haiku-4-5"]

    asyncio.run(play())


def test_after_a_compaction_the_history_before_it_is_not_kept():
    async def play():
        scene = Scene(rule=FixedRefreshes(1, 280.0))
        await scene.call()
        await scene.begin(at=1_100.0, items=(user("what happened so far"), *ITEMS[1:]))
        await scene.keeper.tell(9_000.0, "one")
        assert scene.provider.sent == []

    asyncio.run(play())


def test_the_request_for_a_summary_is_not_kept():
    async def play():
        scene = Scene()
        await scene.call(more=(user("Respond with TEXT ONLY. Do NOT call any tools."),))
        assert len(scene.keeper) == 0

    asyncio.run(play())


def test_a_call_that_failed_leaves_nothing_to_keep():
    async def play():
        scene = Scene()
        await scene.call()
        await scene.begin(at=1_100.0, more=(user("go on"),))
        await scene.keeper.tell(9_000.0, "one")
        assert scene.provider.sent == []

    asyncio.run(play())


def test_a_call_that_went_out_past_the_pager_is_not_kept():
    async def play():
        scene = Scene()
        await scene.call(headers={"x-pager-bypass": "1"})
        assert len(scene.keeper) == 0
        await scene.call(at=1_100.0, more=(user("go on"),))
        assert len(scene.keeper) == 1

    asyncio.run(play())


def test_a_call_that_another_one_overtook_is_not_kept():
    async def play():
        scene = Scene()
        first = await scene.begin()
        await scene.begin(at=1_001.0, more=(user("go on"),))
        request = SentRequest(URL("http://p/v1"), [], first.incoming.request.body, 1_000.0)
        scene.keeper.answered(first, first.paged, Answer(usage=FIRST), request)
        assert len(scene.keeper) == 0

    asyncio.run(play())


class Waits(FixedRefreshes):
    """Refreshes once, and notes what was waited for."""

    seen: ClassVar[list] = []

    def refreshes(self, resting):
        self.seen.append(resting.waits_for)
        return super().refreshes(resting)


CLAUDE = {"x-claude-code-session-id": "one"}
SUBAGENT = {**CLAUDE, "x-claude-code-agent-id": "a1"}


def test_a_parent_of_running_subagents_waits_for_a_tool():
    async def play():
        scene = Scene(rule=Waits(1, 280.0))
        Waits.seen.clear()
        task = (user("look there"), *ITEMS[1:])
        await scene.call(headers=CLAUDE)
        await scene.call(at=1_010.0, headers=SUBAGENT, items=task)
        assert len(scene.keeper) == 2  # the parent's prompt is kept while its sub-agent works
        await scene.call(at=1_020.0, headers=CLAUDE, more=(user("meanwhile"),), ends=True)
        await scene.call(at=1_030.0, headers=SUBAGENT, items=task, more=(user("done?"),), ends=True)
        await scene.call(at=1_040.0, headers=CLAUDE, more=(user("meanwhile"), user("thanks")), ends=True)
        assert Waits.seen == [WaitsFor.TOOL, WaitsFor.TOOL, WaitsFor.TOOL, WaitsFor.USER]
        assert len(scene.keeper) == 1  # a sub-agent that is done has nobody to wait for

    asyncio.run(play())


def test_a_subagent_without_a_name_neither_ends_its_parents_rest_nor_has_one():
    async def play():
        scene = Scene(rule=FixedRefreshes(1, 280.0))
        system = {"role": "system", "content": "You look things up."}
        await scene.call()
        await scene.call(at=1_010.0, items=(system, user("look there"), *ITEMS[1:]), ends=True)
        await scene.keeper.tell(1_300.0, "one")
        [(_, sent)] = scene.provider.sent
        assert sent["messages"] == list(ITEMS)

    asyncio.run(play())


def test_one_refresh_of_a_branch_is_under_way_at_a_time_and_a_call_ends_it():
    async def play():
        scene = Scene(rule=FixedRefreshes(3, 280.0), day_dollars=0.04)
        scene.provider.answers.clear()
        placed = await scene.call()
        told = [asyncio.create_task(scene.keeper.tell(1_290.0, "one")) for _ in range(3)]
        await scene.provider.asked.wait()
        await asyncio.sleep(0)
        assert len(scene.provider.sent) == 1
        await scene.call(at=1_295.0, more=(user("go on"),))
        await asyncio.gather(*told)
        assert scene.provider.cancelled == 1
        assert await scene.logged(placed.session.id, Warmed) == []
        assert scene.keeper._money.in_a_day(1_300.0) > 0  # what was sent is paid, though nobody waited for the answer

    asyncio.run(play())


def carriers(credential):
    """The requests in memory that carry this credential: the clients' own, and those that would be sent again."""
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, SentRequest | Incoming)]
    return [one for one in kept if credential in repr(one.headers)]


@pytest.mark.parametrize("under_way", [False, True])
def test_the_switch_forgets_every_request_and_credential(under_way):
    credential = f"sk-of-this-test-alone-{under_way}"

    async def play():
        scene = Scene(headers={"authorization": f"Bearer {credential}"}, refreshes=1)
        await scene.call()
        assert len(carriers(credential)) == 2
        if under_way:
            scene.provider.answers.clear()
            telling = asyncio.create_task(scene.keeper.tell(1_290.0, "one"))
            await scene.provider.asked.wait()
            scene.keeper.switch(on=False)
            await telling
            scene.provider.sent.clear()
        scene.keeper.switch(on=False)
        assert carriers(credential) == []
        await scene.call(at=2_000.0)
        await scene.keeper.tell(9_000.0, "one")
        assert scene.provider.sent == []
        assert carriers(credential) == []

    asyncio.run(play())


def test_a_credential_is_forgotten_with_the_last_refresh():
    credential = "sk-forgotten-with-the-last"

    async def play():
        scene = Scene(headers={"authorization": f"Bearer {credential}"}, refreshes=1)
        await scene.call()
        await scene.keeper.tell(9_000.0, "one")
        scene.provider.sent.clear()
        assert carriers(credential) == []

    asyncio.run(play())


@pytest.mark.parametrize("echoed", [400, MISSED, OSError(f"no route for {CREDENTIAL}")])
def test_no_credential_is_on_disk(echoed, tmp_path, caplog):
    async def play():
        store = open_store(f"sqlite:{tmp_path}")
        scene = Scene(echoed, store=store, echo=CREDENTIAL)
        placed = await scene.call()
        await scene.keeper.tell(9_000.0, "one")
        [stopped] = await scene.logged(placed.session.id, WarmingStopped)
        assert CREDENTIAL not in stopped.detail
        for row in store.events():
            assert CREDENTIAL not in repr(row.event)
            assert not any(CREDENTIAL.encode() in store.blob(bytes.fromhex(one)) for one in row.event.blobs())
        store.close()

    asyncio.run(play())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(CREDENTIAL.encode() in path.read_bytes() for path in files)
    assert CREDENTIAL not in caplog.text


def test_refreshes_are_no_traffic_of_the_user():
    async def play():
        metrics = Metrics()
        scene = Scene(meter=Meter(metrics))
        placed = await scene.call()
        before = generate_latest(metrics._registry)
        await scene.keeper.tell(1_300.0, "one")
        await scene.calls.drain()
        assert len(scene.provider.sent) == 1
        assert generate_latest(metrics._registry) == before
        [attempt] = facts(scene.store.events(placed.session.id)).told.values()  # for reports, one call
        assert len(attempt.refreshes) == 1

    asyncio.run(play())


def test_by_the_clock_a_refresh_is_sent_when_it_is_due(monkeypatch):
    async def play():
        now = [1_000.0]
        monkeypatch.setattr("pager.proxy.keep_warm.time", lambda: now[0])
        scene = Scene()
        scene.keeper._told_time = False
        scene.keeper.start()
        await scene.call()
        now[0] = 1_281.0
        scene.keeper._changed.set()
        await scene.provider.asked.wait()
        assert b"x-pager-now" not in scene.provider.sent[0][0]
        await scene.keeper.stop()
        assert len(scene.keeper) == 0

    asyncio.run(play())


def test_off_has_no_keeper():
    assert rule_of(KeepWarmSettings()) is None


REFUSED = [
    {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    {"tool_choice": {"type": "any"}},
    {"tool_choice": {"type": "tool", "name": "read"}},
    {"output_config": {"format": {"type": "json_schema"}}},
]


def test_messages_are_refreshed_without_any_output():
    wire = load("messages")
    asked = {"model": "m", "max_tokens": 9, "messages": [user("hi")], "thinking": {"type": "adaptive"}, "stream": True}
    assert json.loads(wire.refresh(encoded(asked))) == {**asked, "max_tokens": 0, "stream": False}
    for more in REFUSED:
        assert wire.refresh(encoded({**asked, **more})) is None


def test_a_response_that_the_provider_holds_is_not_refreshed():
    wire, asked = load("responses"), {"model": "m", "input": [user("hi")]}
    assert json.loads(wire.refresh(encoded(asked))) == {
        **asked,
        "max_output_tokens": 16,
        "stream": False,
        "store": False,
    }
    for name in ("previous_response_id", "conversation", "background"):
        assert wire.refresh(encoded({**asked, name: "x"})) is None


class Recorded:
    """A rule that notes the budget it is given, and plans two refreshes."""

    def __init__(self):
        self.budgets = []

    def refreshes(self, resting):
        self.budgets.append((resting.budget, resting.refresh_cost))
        return (280.0, 560.0)


@pytest.mark.parametrize("both", [True, False])
def test_what_is_planned_for_one_agent_of_a_session_is_not_there_for_another(both):
    async def play():
        rule = Recorded()
        scene = Scene(rule=rule)
        await scene.call()
        if not both:  # what was planned is dropped
            scene.keeper.switch(on=False)
            scene.keeper.switch(on=True)
        other = (user("a title, please"), *ITEMS[1:])
        await scene.call(at=1_010.0, items=other, model="claude-haiku-4-5")
        return rule.budgets

    (budget, cost), (left, _) = asyncio.run(play())
    assert budget < 2 * cost, "two refreshes take all of it"
    assert (left == 0.0) == both


def test_a_refresh_that_a_call_cancels_is_in_the_log():
    async def play():
        scene = Scene()
        placed = await scene.call()
        scene.provider.answers = []  # takes its time
        telling = asyncio.create_task(scene.keeper.tell(1_340.0, "one"))
        await scene.provider.asked.wait()
        await scene.begin(at=1_341.0, more=(user("go on"),))
        await telling
        assert [one.reason for one in await scene.logged(placed.session.id, WarmingStopped)] == ["cancelled"]

    asyncio.run(play())
