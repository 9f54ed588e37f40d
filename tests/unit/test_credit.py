"""The user's account: what a session is lent, within which limits, and that the log settles who gets it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from chat_items import offered, say, user
from hypothesis import given
from hypothesis import strategies as st
from logged_sessions import OFF, incoming

from pager.errors import StoreCorrupt, StoreError
from pager.log.events import CallReceived, CreditLent, CreditReturned, RepackCause, Repacked, SessionOpened, Warmed
from pager.log.store import Batch, Stored
from pager.log.stores.memory.store import Store as MemoryStore
from pager.log.stores.sqlite.store import Store as SqliteStore
from pager.paging import planner
from pager.paging.credit import REST, CreditLimits, SessionMoney, UserAccount, account_of, first_credit
from pager.paging.pager import Pager
from pager.paging.pages.page_table import Refresh
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.pricing.rates import in_force
from pager.proxy.call_log import CallLog
from pager.proxy.user_accounts import UserAccounts
from pager.request_values import Usage
from pager.sessions.rebuild import Rebuilder
from pager.wire import dialects

LIMITS = CreditLimits(total_share=0.01, session_share=0.05, allowance=0.2, most=1.0)


def called(paid, saved):
    """A call of a session that had paid and saved this much before it."""
    plain = {"dialect": "chat", "path": "/", "model": "m", "stream": False, "body": "", "size": 1, "skeleton": ""}
    return CallReceived(0, 1, 1, **plain, cuts=[], totals=[paid, saved])


def session(account, name, at, *events):
    """Have a session with a credit come to these events."""
    seq = account.loans[name].seq
    account.read_session(name, [Stored(seq + place, name, at, event) for place, event in enumerate(events, 1)])


def test_a_new_users_first_session_is_lent_half_of_the_allowance():
    assert UserAccount(LIMITS).lend("a", 0.0).lent == CreditLent("a", 0.1)
    assert (first_credit(LIMITS), first_credit(None)) == (0.1, None)


def test_sessions_that_run_at_once_never_share_a_dollar():
    account = UserAccount(LIMITS)
    lent = [account.lend(name, 0.0).lent.dollars for name in "abcd"]
    assert lent == [0.1, 0.05, 0.025, 0.0125]
    assert account.available() == pytest.approx(0.0125)


def test_what_a_session_saved_is_lent_once_it_has_rested_for_an_hour():
    account = UserAccount(LIMITS)
    account.lend("a", 0.0)
    session(account, "a", 100.0, called(9.5, 0.5))
    before = account.lend("b", 100.0 + REST)
    assert before.returned == ()
    after = account.lend("c", 101.0 + REST)
    assert after.returned == (CreditReturned("a", 9.5, 0.5),)
    # allowance 0.2, a hundredth of 10 dollars, 0.5 saved, less what b still has
    assert account.lend("d", 101.0 + REST).lent.dollars == pytest.approx((0.8 - before.lent.dollars) / 4)


def test_a_loss_comes_off_what_is_lent_and_nothing_is_lent_below_zero():
    account = UserAccount(LIMITS)
    account.lend("a", 0.0)
    session(account, "a", 0.0, called(1.0, -0.1), called(6.0, -1.0))
    assert account.lend("b", 2 * REST).lent.dollars == 0.0


def test_a_refresh_after_the_last_call_counts_as_paid_for_nothing():
    account = UserAccount(LIMITS)
    account.lend("a", 0.0)
    warmed = Warmed(0, 1, 1, 5.0, 1, Usage(10), 1.0, 0.0, 300.0, dollars=0.25)
    session(account, "a", 0.0, called(1.0, 0.5), warmed)
    assert account.lend("b", 2 * REST).returned == (CreditReturned("a", 1.25, 0.25),)


def test_a_session_that_goes_on_after_a_rest_is_counted_once():
    account = UserAccount(LIMITS)
    account.lend("a", 0.0)
    session(account, "a", 0.0, called(9.5, 0.5))
    account.lend("b", 2 * REST)
    account.lend("a", 2 * REST)
    assert account.loans.keys() == {"a", "b"}
    session(account, "a", 2 * REST, called(19.0, 1.0))
    returned = account.lend("c", 4 * REST).returned
    assert CreditReturned("a", 19.0, 1.0) in returned
    assert account.sum_of_known.saved == pytest.approx(1.0)


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 50), st.floats(-1, 5), st.floats(0, 5_000)), max_size=30)
)
def test_if_every_session_lost_its_whole_credit_the_total_would_stay_within_its_share(story):
    """The law of the account: no order of beginnings, rests and losses takes the user beyond the bound."""
    account, now = UserAccount(LIMITS), 0.0
    totals = dict.fromkeys("abcdef", SessionMoney())
    for name, cost, gain, wait in story:
        now += wait
        if name not in account.loans or now - account.loans[name].at > REST:
            account.lend(name, now)
        loan = account.loans[name]
        totals[name] = SessionMoney(totals[name].paid + cost, loan.before.saved + max(gain, -loan.credit))
        session(account, name, now, called(*totals[name]))
        lost = sum(
            loan.credit - (loan.before.saved - account.known.get(at, SessionMoney()).saved)
            for at, loan in account.loans.items()
        )
        without = sum(one.without for one in totals.values())
        bound = LIMITS.allowance + LIMITS.total_share * max(0.0, without)
        assert account.sum_of_known.saved - lost >= -bound - 1e-6


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    opened = MemoryStore() if request.param == "memory" else SqliteStore.open(str(tmp_path))
    yield opened
    opened.close()


def test_a_loan_is_in_the_accounts_log_when_it_is_made(store):
    lent = UserAccounts(store, LIMITS).lend("t", "s", 5.0)
    assert [row.event for row in store.events(account_of("t"))] == [lent]
    assert store.sessions() == [], "an account is no session of the user's"


def test_two_processes_on_one_log_lend_each_dollar_once(store):
    """Both read the account before either writes: the log lets one of them through, and the other reads again."""
    here, there = UserAccounts(store, LIMITS), UserAccounts(store, LIMITS)
    with ThreadPoolExecutor(8) as pool:
        work = [pool.submit((here, there)[at % 2].lend, "t", f"s{at}", 0.0) for at in range(16)]
        lent = sorted((one.result().dollars for one in work), reverse=True)
    assert lent == pytest.approx([round(0.2 / 2**at, 6) for at in range(1, 17)], abs=2e-6)
    assert sum(lent) <= LIMITS.allowance


def test_tenants_have_accounts_of_their_own(store):
    accounts = UserAccounts(store, LIMITS)
    assert [accounts.lend(tenant, "s", 0.0).dollars for tenant in ("t", "u")] == [0.1, 0.1]


def test_an_account_that_is_read_from_the_log_lends_as_the_one_in_memory_would(store):
    accounts = UserAccounts(store, LIMITS)
    accounts.lend("t", "a", 0.0)
    store.append(Batch("a", 50.0, [SessionOpened("t", "", "lineage"), called(9.5, 0.5)])).result()
    lent = accounts.lend("t", "b", 2 * REST)
    assert UserAccounts(store, LIMITS).lend("t", "c", 2 * REST).dollars == pytest.approx(lent.dollars / 2, abs=1e-6)
    assert lent.dollars == pytest.approx((0.2 + 0.1 + 0.5) / 2)


# ---------------------------------------------------------------- in the proxy


def call_log(store, limits=LIMITS):
    """A proxy's call log under the default policy; None for limits where each session pays for itself."""
    arms = Arms(NamedPolicy("cost_aware", load_policy("cost_aware", {})), {}, {}, lambda _: None)
    pager = Pager(arms, in_force("anthropic", {}), dialects.load, marks=True, tools=OFF, credit=limits)
    return CallLog(store, dialects.load, 100, pager)


LONG = user("word " * 30_000)


def play(log, *messages, at):
    async def receive():
        call = await log.receive(incoming(*messages, at=at, tools=offered("run")))
        await log.drain()
        return call

    return asyncio.run(receive())


def in_log(store, call, kind):
    return [row.event for row in store.events(call.session.id) if isinstance(row.event, kind)]


def test_a_session_is_lent_its_credit_with_its_first_call_and_again_after_a_rest(store):
    log = call_log(store)
    first = play(log, LONG, at=100.0)
    play(log, LONG, say("ok"), user("go on"), at=200.0)
    assert in_log(store, first, CreditLent) == [CreditLent(first.session.id, 0.1)]
    play(log, LONG, say("ok"), user("go on"), say("ok"), user("again"), at=300.0 + REST)
    assert len(in_log(store, first, CreditLent)) == 2


def test_a_large_first_prompt_has_our_tool_where_there_is_a_credit_for_it(store):
    ready = play(call_log(store), LONG, at=100.0)
    assert [event.cause for event in in_log(store, ready, Repacked)] == [RepackCause.READY]
    assert b"page_in" in ready.paged.outgoing.body()


@pytest.mark.parametrize("limits", [None, CreditLimits(allowance=0.0)])
def test_without_a_credit_no_first_prompt_has_our_tool(store, limits):
    call = play(call_log(store, limits), LONG, at=100.0)
    assert in_log(store, call, Repacked) == []


def test_a_small_first_prompt_is_left_alone(store):
    call = play(call_log(store), user("hello"), at=100.0)
    assert in_log(store, call, Repacked) == []


def test_a_session_read_from_the_log_has_the_credit_and_the_totals_that_it_had_in_memory(store):
    log = call_log(store)
    play(log, LONG, at=100.0)
    last = play(log, LONG, say("ok"), user("go on"), at=200.0)
    hot = last.session.pages
    read = Rebuilder(dialects.load, store.blob).session(last.session.id, list(store.events(last.session.id))).pages
    assert (read.credit, read.totals) == (hot.credit, hot.totals)
    assert read.account == hot.account
    assert read.totals.paid > 0
    prices = last.paged.terms.prices
    assert read.add_up(prices, 1e-6) == hot.add_up(prices, 1e-6)


def test_where_the_account_can_t_be_read_the_call_goes_on_without_a_credit(monkeypatch, store):
    def broken(*_):
        raise StoreError("no disk")

    log = call_log(store)
    monkeypatch.setattr(UserAccounts, "lend", broken)
    call = play(log, LONG, at=100.0)
    assert in_log(store, call, CallReceived)
    assert call.paged is not None
    assert in_log(store, call, CreditLent) == []


def test_a_cache_mark_that_moves_makes_no_old_tokens_new(store):
    """Clients mark the end of each prompt, so that the last message of a prompt has other bytes in the next one."""
    told, marked = LONG["content"], {"cache_control": {"type": "ephemeral"}}
    first = {"role": "user", "content": [{"type": "text", "text": told, **marked}]}
    plain = {"role": "user", "content": [{"type": "text", "text": told}]}
    log = call_log(store)
    play(log, first, at=100.0)
    play(log, plain, say("ok"), user("go on"), at=110.0)
    account = play(log, plain, say("ok"), user("go on"), say("ok"), user("again"), at=120.0).session.pages.account
    assert account.fresh < 1.1 * sum(account.again) / 2, "the long message was new once, and repeated twice"


def test_calls_that_can_t_spend_a_credit_take_none(store):
    log = call_log(store)

    async def receive(**more):
        call = await log.receive(incoming(LONG, tools=offered("run"), **more))
        await log.drain()
        return call

    passed = asyncio.run(receive(at=100.0, headers={"x-pager-bypass": "1"}))
    assert in_log(store, passed, CreditLent) == []
    planned = play(log, LONG, say("ok"), user("go on"), at=200.0)
    assert in_log(store, planned, CreditLent) == [CreditLent(planned.session.id, 0.1)]


def test_a_session_whose_log_is_damaged_keeps_its_credit_and_stops_no_other(store, monkeypatch):
    accounts = UserAccounts(store, LIMITS)
    accounts.lend("t", "a", 0.0)
    read = type(store).events

    def damaged(self, session=None, after=0):
        if session == "a":
            raise StoreCorrupt("damaged")
        return read(self, session, after)

    monkeypatch.setattr(type(store), "events", damaged)
    assert accounts.lend("t", "b", 10.0).dollars == 0.05


def test_what_a_session_lost_before_a_rest_comes_off_what_it_may_spend_after_it(store):
    log = call_log(store)
    play(log, LONG, at=100.0)
    last = play(log, LONG, say("ok"), user("go on"), at=200.0)
    table, terms = last.paged.table, last.paged.terms
    before = planner.view(table, 0, replace(terms, credit=1e9)).credit
    table.account.repacks += 500.0
    table.account.settle()
    assert planner.view(table, 0, replace(terms, credit=1e9)).credit < before - 450.0


def test_a_fork_does_not_count_a_rescue_again(store):
    table = play(call_log(store), LONG, at=100.0).paged.table
    table.refresh = Refresh(380.0, 1_000.0, 300.0)
    assert table.copy().refresh is None
