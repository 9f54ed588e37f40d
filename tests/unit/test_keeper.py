"""Refreshes of resting sessions: what is sent when, what ends them, and what is forgotten."""

import asyncio
import gc
import json
from contextlib import asynccontextmanager

import pytest
from chat_items import call as tool_call
from chat_items import encoded, page, result, user
from logged_sessions import body, incoming, paging
from yarl import URL

from pager.config.settings import KeepWarmSettings
from pager.log.events import Warmed, WarmingStopped
from pager.log.stores.memory.store import Store
from pager.paging.keep_warm import FixedRefreshes
from pager.proxy.call_log import CallLog
from pager.proxy.fail_open import FailOpen
from pager.proxy.keep_warm import Keeper, rule_of
from pager.proxy.relay import SentRequest
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
    """Answers refreshes with these usages or statuses, one after the other; ``sent`` are their headers and bodies."""

    def __init__(self, *answers):
        self._answers, self.sent, self.asked = list(answers), [], asyncio.Event()

    @asynccontextmanager
    async def send(self, _method, _url, headers, content, _dialect):
        self.sent.append((dict(headers), json.loads(content)))
        self.asked.set()
        answer = self._answers.pop(0) if self._answers else READ
        if isinstance(answer, BaseException):
            raise answer
        choice = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "length"}
        said = {"id": "r", "model": "m", "choices": [choice], "usage": answer}
        yield Response(200, encoded(said)) if isinstance(answer, dict) else Response(answer, b"no")


class Scene:
    """A session that has made one call and rests, with a keeper whose clock is told."""

    def __init__(self, *answers, rule=None, headers=None, **settings):
        self.provider, self.store = Provider(*answers), Store()
        self.calls = CallLog(self.store, load, 10, paging("cost_aware"))
        self.pager = paging("cost_aware")
        self.settings = KeepWarmSettings(mode="fixed", smallest=0, **settings)
        rule = rule or rule_of(self.settings)
        known = self.pager.models
        self.keeper = Keeper(self.settings, rule, self.provider, self.calls, known, FailOpen(), told_time=True)
        self.headers = {"x-session-id": "one", "authorization": f"Bearer {CREDENTIAL}", **(headers or {})}

    async def call(self, at=1_000.0, more=(), usage=FIRST, **members):
        """One call of the session, answered, which then rests."""
        came = incoming(headers=self.headers, at=at, **body(*ITEMS, *more, model="claude-opus-5-5", **members))
        placed = await self.calls.receive(came)
        self.keeper.called(placed)
        placed.paged.table.learn_usage(usage, len(came.request.body), placed.placement.call)
        raw = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        answer = Answer(usage=usage, calls=(ToolUse(0, "c9", "read", "{}"),))
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


def requests_with(credential):
    """The requests in memory that carry this credential."""
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, SentRequest)]
    return [one for one in kept if any(credential in value for _, value in one.headers)]


def test_the_switch_forgets_every_request_and_credential():
    async def play():
        scene = Scene(headers={"authorization": "Bearer sk-of-this-test-alone"})
        await scene.call()
        assert (len(scene.keeper), len(requests_with(b"sk-of-this-test-alone"))) == (1, 1)
        scene.keeper.switch(on=False)
        assert requests_with(b"sk-of-this-test-alone") == []
        await scene.call(at=2_000.0)
        await scene.keeper.tell(9_000.0, "one")
        assert scene.provider.sent == []

    asyncio.run(play())


def test_no_credential_is_in_the_log():
    async def play():
        scene = Scene(400)
        placed = await scene.call()
        await scene.keeper.tell(9_000.0, "one")
        await scene.calls.drain()
        for row in scene.store.events(placed.session.id):
            assert CREDENTIAL not in repr(row.event)
            assert not any(CREDENTIAL.encode() in scene.store.blob(bytes.fromhex(one)) for one in row.event.blobs())

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
