"""Live sessions as a proxy knows them: which branch is shown, what it is about to cost, and what it has cost."""

import asyncio

import pytest
from chat_items import call as tool_call
from chat_items import page, result, user
from logged_sessions import ANSWER, body, incoming, paging

from pager.log.stores.memory.store import Store
from pager.pricing.rates import in_force
from pager.proxy.call_log import CallLog
from pager.proxy.fail_open import FailOpen
from pager.proxy.log_records import Outcome
from pager.proxy.serving.live_sessions import MOST, RECENT, LiveSessions
from pager.request_values import Answer, Usage
from pager.wire.dialects import load

MODEL, SMALL = "claude-opus-5-5", "claude-haiku-5-5"
ITEMS = (user("do it"), tool_call("c1", path="src/a.py"), result("c1", page("alpha", lines=900)))
USAGE = Usage(40_000, 30_000, 9_000, 100, tells_cached=True)


class Scene:
    """A call log that is watched."""

    def __init__(self, price=lambda model, usage: usage.input * 1e-6, policy="cost_aware"):
        self.live = LiveSessions(in_force("anthropic", {}), FailOpen(), price)
        self.store = Store()
        pager = paging(policy) if policy else None
        self.calls = CallLog(self.store, load, 10, pager, watch=self.live.happened)

    async def call(self, *items, session="one", at=1_000.0, usage=USAGE, model=MODEL, ended=True, **headers):
        came = incoming(headers={"x-session-id": session, **headers}, at=at, **body(*(items or ITEMS), model=model))
        placed = await self.calls.receive(came)
        outcome = Outcome(200, ANSWER, 1.0, 2.0, at)
        if ended and usage is None:
            self.calls.failed(placed, "status", "HTTP 500", outcome)
        elif ended:
            self.calls.answered(placed, Answer(text="Yes.", usage=usage), outcome, 0)
        await self.calls.drain()
        return placed

    def shown(self, now=1_001.0):
        recent = self.live.recent(now)
        self.live.read_bills(self.store, recent)
        return list(self.live.described(recent, self.calls.sessions, None))


def played(act, **settings):
    async def play():
        scene = Scene(**settings)
        await act(scene)

    asyncio.run(play())


def test_a_session_is_shown_once_it_has_an_answer_and_costs_what_the_log_says():
    async def act(scene):
        await scene.call(ended=False)
        assert scene.shown() == []
        await scene.call(*ITEMS, user("go on"), at=1_010.0)
        [one] = scene.shown()
        assert (one["model"], one["before"], one["after"], one["cached"]) == (MODEL, 40_000, 40_000, 30_000)
        assert one["dollars"] == pytest.approx(0.04)
        await scene.call(*ITEMS, user("go on"), user("and on"), at=1_020.0)
        assert scene.shown()[0]["dollars"] == pytest.approx(0.08)

    played(act)


def test_what_has_no_price_has_no_cost():
    async def act(scene):
        await scene.call()
        assert scene.shown()[0]["dollars"] is None

    played(act, price=None)
    played(act, price=lambda model, usage: None)


def test_a_call_under_way_is_said_and_a_failed_one_is_over():
    async def act(scene):
        await scene.call()
        assert scene.shown()[0]["under_way"] == 0
        await scene.call(*ITEMS, user("go on"), ended=False)
        assert scene.shown()[0]["under_way"] == 1
        await scene.call(*ITEMS, user("another"), usage=None)
        assert scene.shown()[0]["under_way"] == 1

    played(act)


def test_a_side_request_to_another_model_does_not_hide_the_conversation():
    async def act(scene):
        await scene.call()
        await scene.call(user("a title, please"), model=SMALL, usage=Usage(500, 0, 0, 9), at=1_100.0)
        [one] = scene.shown()
        assert (one["model"], one["cold_at"], one["seen"]) == (MODEL, 1_300.0, 1_100.0)
        await scene.call(user("a new conversation"), model=SMALL, usage=Usage(5_000, 0, 0, 9), at=9_000.0)
        assert scene.shown()[0]["model"] == SMALL

    played(act)


def test_what_a_cold_return_would_evict_is_asked_once_and_never_while_a_call_changes_the_session():
    async def act(scene):
        items = [user("do it")]
        for at in range(8):
            items += [tool_call(f"c{at}", path=f"src/{at}.py"), result(f"c{at}", page(f"part{at}", lines=400))]
            placed = await scene.call(*items, at=1_000.0 + at)
        async with scene.calls.sessions.claimed(placed.session):
            whole = scene.shown()[0]["costs_more"]
        evicted = scene.shown()[0]["costs_more"]
        assert whole == pytest.approx(1.25 * 40_000 - 0.1 * 40_000)
        assert evicted < whole
        placed.paged.table.stopped = "it is not asked again"
        assert scene.shown()[0]["costs_more"] == evicted

    played(act)


def test_a_session_that_was_dropped_from_memory_is_shown_all_the_same():
    async def act(scene):
        placed = await scene.call()
        scene.calls.sessions.registry.drop(placed.session.id)
        assert scene.shown()[0]["costs_more"] == pytest.approx(1.25 * 40_000 - 0.1 * 40_000)

    played(act)


def test_sessions_of_long_ago_and_more_than_can_be_remembered_are_not_shown():
    async def act(scene):
        for number in range(MOST + 5):
            await scene.call(session=f"session-{number}", at=1_000.0 + number)
        shown = scene.shown(1_000.0 + RECENT)
        assert [one["key"] for one in shown[:2]] == [f"session-{MOST + 4}", f"session-{MOST + 3}"]
        assert len(shown) == MOST
        assert scene.shown(2_000.0 + RECENT) == []

    played(act, policy="")
