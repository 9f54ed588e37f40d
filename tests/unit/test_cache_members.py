"""Members of ours that choose a cache in OpenAI's formats: when they are there, and that they stay the same."""

import asyncio

import pytest
from chat_items import offered, say, user
from logged_sessions import OFF, incoming

from instrumentation.accounting.logged_prompts import client_calls
from pager.config.settings import PagingSettings, Settings, UpstreamSettings
from pager.log.stores.memory.store import Store
from pager.paging.conditions import DAY
from pager.paging.pager import Pager
from pager.paging.planning_rules import PlanningRules
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.paging.warmth.choose_lifetime import CacheMembers
from pager.pricing.rates import in_force
from pager.proxy.call_log import CallLog
from pager.sessions.rebuild import Rebuilder
from pager.wire import dialects

BOTH = CacheMembers(key=True, retention="24h")


def call_log(store, members=BOTH):
    arms = Arms(NamedPolicy("cost_aware", load_policy("cost_aware", {})), {}, {}, lambda _: None)
    pager = Pager(arms, in_force("", {}), dialects.load, marks=True, tools=OFF, cache_members=members)
    return CallLog(store, dialects.load, 100, pager)


def sent(log, *messages, model="gpt-5.1", **members):
    """A call as it goes out: the placed call, and its body."""
    call = asyncio.run(log.receive(incoming(*messages, model=model, tools=offered("run"), **members)))
    return call, call.paged.outgoing.body()


def test_a_conversation_keeps_one_key_and_another_has_another():
    log = call_log(Store())
    first, again = sent(log, user("one"))[1], sent(log, user("one"), say("ok"), user("two"))[1]
    other = sent(log, user("another"))[1]
    keys = [dialects.load("chat").parse(body).members["prompt_cache_key"] for body in (first, again, other)]
    values = [body[span.start : span.end] for body, span in zip((first, again, other), keys, strict=True)]
    assert values[0] == values[1] != values[2]
    assert b'"prompt_cache_retention":"24h"' in first


def test_what_the_client_says_itself_stays():
    body = sent(call_log(Store()), user("one"), prompt_cache_key="mine", prompt_cache_retention="in_memory")[1]
    assert body.count(b"prompt_cache_key") == body.count(b"prompt_cache_retention") == 1
    assert b'"mine"' in body


def test_nothing_is_added_unless_the_settings_say_so():
    call, body = sent(call_log(Store(), CacheMembers()), user("one"))
    assert body == call.incoming.request.body


def test_a_longer_retention_is_asked_for_only_where_writing_costs_nothing_extra():
    assert b"prompt_cache_retention" not in sent(call_log(Store()), user("one"), model="gpt-5.6")[1]


def test_a_cache_that_is_kept_for_a_day_is_planned_as_such():
    call, _ = sent(call_log(Store()), user("one"))
    assert call.paged.terms.prices.ttl_seconds == DAY


def test_the_log_has_what_was_added_so_that_later_calls_add_the_same():
    store = Store()
    call, _ = sent(call_log(store), user("one"))
    read = Rebuilder(dialects.load, store.blob).session(call.session.id, list(store.events(call.session.id)))
    assert read.pages.tables[0].members == call.paged.table.members != {}
    assert len(list(client_calls(list(store.events(call.session.id))))) == 1
    changed, body = sent(call_log(store, CacheMembers()), user("one"), say("ok"), user("two"))
    assert changed.session.id == call.session.id
    assert b"prompt_cache_key" in body, "what a branch began with stays"


@pytest.mark.parametrize(
    ("choice", "upstream", "key"),
    [
        ("auto", {}, True),
        ("auto", {"url": "http://127.0.0.1:9/v1"}, False),
        ("on", {"url": "http://127.0.0.1:9/v1"}, True),
        ("off", {}, False),
    ],
)
def test_a_key_is_sent_to_openai_alone_unless_the_user_wants_it(choice, upstream, key):
    settings = Settings(paging=PagingSettings(prompt_cache_key=choice), upstream=UpstreamSettings(**upstream))
    assert PlanningRules.of(settings).cache_members == CacheMembers(key=key)
