"""Calls that take long to read and to plan: they hold up nobody but their own session."""

import asyncio
import threading

import pytest
from chat_items import call, encoded, result, user
from logged_sessions import incoming, paging
from waiting import PATIENCE

from pager.config.settings import Settings, UpstreamSettings
from pager.log.events import CallReceived
from pager.log.stores import open_store
from pager.paging.tool_forms_of_call import Shortening
from pager.pricing.rates import in_force
from pager.proxy.call import Pipeline
from pager.proxy.call_log import CallLog
from pager.proxy.hot_sessions import HEAVY_MESSAGES
from pager.proxy.upstream import Upstream
from pager.testing.scripted import Say, Script
from pager.wire import dialects

CHAT = dialects.load("chat")
RESULT = "".join(f"line {number} of what the tool found\n" for number in range(50))


def turn(number):
    return [call(f"call_{number}", "run", n=number), result(f"call_{number}", f"{number}\n{RESULT}")]


def history(turns):
    return [user("go"), *(message for number in range(turns) for message in turn(number))]


def named(messages, session):
    return incoming(*messages, headers={"x-session-id": session})


class Proxy:
    """A call log that pages, and calls that are received in one event loop."""

    def __init__(self, store=None):
        self.store = store or open_store("memory:")
        self.call_log = CallLog(self.store, dialects.load, 10, paging("fifo_age", models=in_force("", {})))

    async def receive(self, messages, session):
        return await self.call_log.receive(named(messages, session))

    async def placed(self):
        """Wait until the first call has its place in a session."""
        while not len(self.call_log.sessions):  # noqa: ASYNC110 - the call log tells nobody
            await asyncio.sleep(0.001)


HEAVY = history(HEAVY_MESSAGES * 2)


def test_a_heavy_call_is_planned_while_other_sessions_go_on():
    async def play():
        proxy = Proxy()
        heavy = asyncio.create_task(proxy.receive(HEAVY, "heavy"))
        await asyncio.sleep(0)
        await proxy.receive(history(2), "light")
        under_way = not heavy.done()
        return under_way, await heavy

    under_way, entry = asyncio.run(play())
    assert under_way
    assert entry.paged is not None
    assert entry.session.unpaged == ""


PROSE = "Does what its name says, and nothing else. " * 5


class Waiting:
    """A wire format in which one step of a call waits until other calls are through."""

    def __init__(self, dialect, step):
        self.dialect, self.step = dialect, step
        self.go_on, self.waited = threading.Event(), []

    def __getattr__(self, name):
        found = getattr(self.dialect, name)
        if name != self.step:
            return found

        def wait(*given, **named):
            self.waited.append(self.go_on.wait(PATIENCE))
            return found(*given, **named)

        return wait


async def answer(pipeline, dialect, body):
    """The status of the answer to a call."""
    parts, sent = [{"type": "http.request", "body": body, "more_body": False}], []
    path = f"/v1{dialect.path}"
    scope = {"method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": []}

    async def receive():
        return parts.pop() if parts else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    await pipeline.call(dialect, scope, receive, send)
    return sent[0]["status"]


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # in an instant, to the kernel
@pytest.mark.parametrize(("step", "prose"), [("parse", PROSE), ("decode", PROSE), ("offers", PROSE), ("offers", "")])
def test_a_call_with_ten_thousand_tools_is_read_and_planned_while_others_are_answered(scripted, step, prose):
    """Where a step of it is done on the event loop, no other call is answered before its end."""
    scripted.play(Script([Say("Yes."), Say("Yes.")]))
    settings = Settings(upstream=UpstreamSettings(url=scripted.url))
    tools = [{"type": "function", "function": {"name": f"tool_{n}", "description": prose}} for n in range(10_000)]
    large = encoded({"model": "m", "messages": [user("go")], "tools": tools})
    light = encoded({"model": "m", "messages": [user("on")]})
    waiting = Waiting(CHAT, step)

    async def play():
        pager = paging("fifo_age", models=in_force("", {}), tools=Shortening())
        upstream, call_log = Upstream(settings.upstream, {}), CallLog(open_store("memory:"), dialects.load, 10, pager)
        pipeline = Pipeline(settings, upstream, call_log, {}, pager=pager)
        await upstream.start()
        try:
            heavy = asyncio.create_task(answer(pipeline, waiting, large))
            await asyncio.sleep(0)
            others = await answer(pipeline, CHAT, light)
            waiting.go_on.set()
            return others, await heavy
        finally:
            await pipeline.drain()
            await upstream.close()

    assert asyncio.run(play()) == (200, 200)
    assert waiting.waited
    assert all(waiting.waited), "the other call had to wait"


@pytest.mark.parametrize("session", ["heavy", "new"])
def test_a_heavy_prompt_is_counted_while_others_go_on(session):
    async def play():
        proxy = Proxy()
        await proxy.receive(HEAVY, "heavy")
        heavy = asyncio.create_task(proxy.call_log.preview(named([*HEAVY, *turn(len(HEAVY))], session)))
        await asyncio.sleep(0)
        under_way = not heavy.done()
        return under_way, await heavy

    under_way, paged = asyncio.run(play())
    assert under_way
    assert paged is not None


def test_a_call_waits_for_a_heavy_one_of_its_session():
    async def play():
        proxy = Proxy()
        first = asyncio.create_task(proxy.receive(HEAVY, "heavy"))
        await proxy.placed()
        second = await proxy.receive([*HEAVY, *turn(len(HEAVY))], "heavy")
        return await first, second

    first, second = asyncio.run(play())
    assert first.session is second.session
    spots = [(entry.placement.branch.number, entry.placement.call) for entry in (first, second)]
    assert spots == [(0, 1), (0, 2)]


def test_a_heavy_call_that_is_given_up_leaves_its_session_to_the_next():
    async def play():
        proxy = Proxy()
        given_up = asyncio.create_task(proxy.receive(HEAVY, "heavy"))
        await proxy.placed()
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        return (await proxy.receive(HEAVY, "heavy")).placement

    placement = asyncio.run(play())
    assert (placement.call, placement.attempt) == (1, 1)


@pytest.mark.parametrize("turns", [1, HEAVY_MESSAGES])
def test_a_rescue_waits_for_what_is_done_aside_in_its_session(turns):
    order, go_on = [], threading.Event()

    def heavy():
        go_on.wait(PATIENCE)
        order.append("heavy")

    async def play():
        proxy = Proxy()
        entry = await proxy.receive(HEAVY, "heavy")
        other = await proxy.receive(history(turns), "heavy")
        first = asyncio.create_task(proxy.call_log.aside(entry, heavy))
        await asyncio.sleep(0)
        second = asyncio.create_task(proxy.call_log.aside(other, lambda: order.append("rescue")))
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, second)

    asyncio.run(play())
    assert order == ["heavy", "rescue"]


class Witness:
    """A store that notes whether the session of a call was claimed when its record came in."""

    def __init__(self, store):
        self.store, self.claimed, self.call_log = store, [], None

    def __getattr__(self, name):
        return getattr(self.store, name)

    def append(self, batch):
        if batch.after is not None:
            self.claimed.append(self.call_log.sessions.is_claimed(batch.session))
        return self.store.append(batch)


@pytest.mark.parametrize("turns", [1, HEAVY_MESSAGES], ids=["light", "heavy"])
def test_a_session_is_claimed_from_the_place_of_a_call_until_its_record_is_on_its_way(turns):
    async def play():
        proxy = Proxy(witness := Witness(open_store("memory:")))
        witness.call_log = proxy.call_log
        entry = await proxy.receive(history(turns), "s")
        return witness.claimed, proxy.call_log.sessions.is_claimed(entry.session.id)

    assert asyncio.run(play()) == ([True], False)


def test_calls_of_a_session_at_once_are_numbered_and_logged_one_by_one():
    async def play():
        proxy = Proxy()
        prompts = [history(HEAVY_MESSAGES + number) for number in range(4)]
        entries = await asyncio.gather(*(proxy.receive(prompt, "s") for prompt in prompts))
        return entries, proxy.store

    entries, store = asyncio.run(play())
    spots = sorted((entry.placement.branch.number, entry.placement.call) for entry in entries)
    logged = [row.event for row in store.events() if isinstance(row.event, CallReceived)]
    assert spots == sorted((call.branch, call.call) for call in logged)
    assert len(set(spots)) == 4


def test_a_session_whose_call_could_not_be_recorded_is_read_again_from_the_log():
    class Refusing(Witness):
        def append(self, batch):
            if self.call_log is not None:
                raise RuntimeError("a fault of ours")
            return self.store.append(batch)

    async def play():
        store = Refusing(open_store("memory:"))
        proxy = Proxy(store)
        await proxy.receive(history(1), "s")
        store.call_log = proxy.call_log
        with pytest.raises(RuntimeError):
            await proxy.receive(history(2), "s")
        store.call_log = None
        return (await proxy.receive(history(2), "s")).placement

    placement = asyncio.run(play())
    assert (placement.branch.number, placement.call, placement.attempt) == (0, 2, 1)
