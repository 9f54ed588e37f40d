"""Sessions written into a log by the real parts, as the proxy writes them."""

import asyncio
import json
from contextlib import closing
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from chat_items import ON, call, encoded, handle, hidden_leg, offered, page, result, user

from pager.log.events import LegFinished
from pager.log.stores import open_store
from pager.paging.pager import Pager
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.paging.tool_forms_of_call import Shortening
from pager.pricing.rates import in_force
from pager.proxy.call import unread_request
from pager.proxy.call_log import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.request_values import Answer
from pager.wire.dialects import load

CHAT = load("chat")
ANTHROPIC = in_force("anthropic", {})
OFF = Shortening(on=False)
READ = offered("read")
START = (user("do it"), call("c1", path="src/a.py"), result("c1", page("alpha")))
ANSWER = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}}]}).encode()


class LoggedCall(NamedTuple):
    """A call to log."""

    body: Any  # as a value or as bytes
    gap: float = 10.0  # seconds since the call before began
    then: Any = None  # what happens after it was received: a coroutine that says how many hidden legs there were
    usage: Any = None  # as it was reported, or a function that tells it from the entry
    headers: dict[str, str] = {}
    calls: tuple = ()  # of tools, in the answer
    served: str = ""  # the model that the answer names
    answered: bool = True
    estimate: int = 0
    unread: str = ""  # why its body can't be read
    answer: bytes = ANSWER  # the response as it came
    took: float = 0.0  # seconds until its answer was whole


def body(*items, model="some-model", tools=READ, **members):
    return {"model": model, "tools": list(tools), "messages": list(items), **members}


def grown(calls, *start, gap=10.0, **more):
    """The calls of a session that reads a page, or begins otherwise, and then goes on."""
    return [LoggedCall(body(*(start or START), *ON * number), gap, **more) for number in range(calls)]


def incoming(*messages, headers=None, tenant="local", at=1.0, secrets=(), **members):
    """A call of Chat Completions as a call log takes it, with these messages or with those among its members."""
    listed = {"messages": messages} if messages else {}
    request = CHAT.parse(encoded({"model": "gpt-4o", **listed, **members}))
    return Incoming(CHAT, request, tenant, headers or {}, CHAT.path, "", at, secrets=secrets)


def paging(name, options=None, *, arms=None, models=ANTHROPIC, marks=False, tools=OFF):
    """What plans calls by this policy."""
    return Pager(arms or Arms(NamedPolicy(name, load_policy(name, options))), models, load, marks=marks, tools=tools)


def log_session(store, calls, pager=None, *, dialect="chat", key="one", harness="pi/0.73", begun=1_000_000.0):
    """Log calls as the proxy would; the session's id."""
    return asyncio.run(_log(store, calls, pager, load(dialect), {"x-session-id": key, "user-agent": harness}, begun))


async def _log(store, calls, pager, dialect, headers, now):
    call_log = CallLog(store, load, 10, pager)
    for one in calls:
        now += one.gap
        raw = one.body if isinstance(one.body, bytes) else encoded(one.body)
        request = unread_request(dialect, raw) if one.unread else dialect.parse(raw)
        facts = ("local", {**headers, **one.headers}, dialect.path, "", now, one.unread)
        entry = await call_log.receive(Incoming(dialect, request, *facts))
        legs = await one.then(call_log, pager, entry, now) if one.then is not None else 0
        sent = {}
        if entry.paged is not None and entry.paged.outgoing.changed:
            outgoing = entry.paged.outgoing
            sent = {"sent": outgoing.digest(entry.recipe.body), "sent_size": outgoing.size, "legs": legs or 0}
        outcome = Outcome(200, one.answer, 1.0, 2.0 + 1_000 * one.took, now + one.took, **sent)
        if one.answered:
            usage = one.usage(entry) if callable(one.usage) else one.usage
            answer = Answer(text="Yes.", usage=usage, calls=one.calls, model=one.served)
            call_log.answered(entry, answer, outcome, one.estimate)
        else:
            call_log.failed(entry, "status", "HTTP 500", outcome)
    await call_log.drain()
    return entry.session.id


def log_in_folder(folder, calls, pager=None, **more):
    """Log calls into the SQLite log of a folder, which nobody has open then; the session's id."""
    folder.mkdir(exist_ok=True)
    with closing(open_store(f"sqlite:{folder}")) as store:
        return log_session(store, calls, pager, **more)


def asks_for(content, number, *, pages=None, **more):
    """For ``then`` of the call with this number: its answer asks for a page before all else."""
    pages = [handle(content)] if pages is None else pages
    leg = hidden_leg(f"=== {handle(content)}, all 60 lines ===\n{content}", arguments=[handle(content)])
    said, none = msgspec.json.encode(leg), sha256(b"")
    asked = (0, number, 1, 1, sha256(said).hexdigest(), none.hexdigest(), 0)

    async def page_in(call_log, pager, entry, now):
        event = LegFinished(*asked, pages=pages, **more)
        entry.paged.table.apply(event, leg)
        await call_log.decide(entry, now, [event], {sha256(said).digest(): said, none.digest(): b""})
        return 1

    return page_in


async def too_long(call_log, pager, entry, now):
    """For ``then`` of a call: the provider finds its prompt 100 tokens too long."""
    await call_log.decide(entry, now, [pager.rescue(entry.paged, 100)], entry.paged.blobs)
