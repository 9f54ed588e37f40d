"""Under which prices and lifetimes a call is planned: those of the branch's own cache marks and of what was granted."""

import json

import pytest
from branches import empty_table, items_of_request

from pager.paging.conditions import Caller, terms_of
from pager.paging.planner import is_warm
from pager.paging.priors import SHIPPED, Experience, cache_of
from pager.pricing.rates import Models, named_prices
from pager.request_values import Usage
from pager.wire.dialects import load

FIVE = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
OPUS = "claude-opus-5"


class Branch:
    """A branch whose client marks its system prompt and the end of its history, or what else it is given."""

    def __init__(self, name="messages", model=OPUS, models=None, known=SHIPPED):
        self.known = known
        self.dialect, self.model, self.models = load(name), model, models or Models.load()
        self.table = empty_table(name)

    def send(self, head, end, at=0.0, **more):
        said = {"type": "text", "text": "x" * 20_000, **({"cache_control": end} if end else {})}
        system = [{"type": "text", "text": "Be brief.", **({"cache_control": head} if head else {})}]
        body = {"model": self.model, "system": system, "messages": [{"role": "user", "content": [said]}], **more}
        return self.take(body, at)

    def take(self, body, at):
        self.request = self.dialect.parse(json.dumps(body).encode())
        items = items_of_request(self.dialect, self.request)
        self.table.advance(self.table.call + 1, 1, at, items, len(self.request.body), self.model)
        return self

    def reported(self, **written):
        self.table.learn_usage(
            Usage(10_000, 0, sum(written.values()), tells_cached=True, **written), 20_000, self.table.call
        )
        return self

    @property
    def terms(self):
        return terms_of(self.request, self.table, self.models, self.known, caller=Caller("ours"), marks=True)

    @property
    def lifetime(self):
        prices = self.terms.prices
        return prices.ttl_seconds, round(prices.write, 3)


@pytest.mark.parametrize("models", [None, Models.load().using(named_prices("anthropic"))])
def test_an_hour_in_the_clients_mark_is_an_hour_and_its_write_price(models):
    assert Branch(models=models).send(FIVE, FIVE).lifetime == (300.0, 1.25)
    assert Branch(models=models).send(HOUR, HOUR).lifetime == (3600.0, 2.0)
    assert Branch(models=models).send(HOUR, FIVE).lifetime == (300.0, 1.25), "the history lives as long as its own mark"
    assert Branch(models=models).send(None, None, cache_control=HOUR).lifetime == (3600.0, 2.0)


def test_seven_minutes_are_a_living_cache_for_a_client_with_an_hour_and_a_cold_one_with_five_minutes():
    for mark, alive in ((HOUR, True), (FIVE, False)):
        branch = Branch().send(mark, mark, at=0.0).send(mark, mark, at=420.0)
        assert is_warm(branch.table, branch.terms) is alive


def test_what_usage_says_was_granted_stands_over_what_was_asked_for():
    assert Branch().send(HOUR, HOUR).reported(written_5m=9_000).lifetime == (300.0, 1.25)
    assert Branch().send(FIVE, FIVE).reported(written_1h=9_000).lifetime == (3600.0, 2.0)
    mixed = Branch().send(HOUR, FIVE).reported(written_1h=5_000, written_5m=4_000)
    assert mixed.lifetime == (300.0, 1.25), "what is behind an hour's part lives five minutes"


def test_a_cache_that_outlived_a_given_price_list_is_believed():
    branch = Branch(models=Models.load().using(named_prices("anthropic")))
    branch.send(FIVE, FIVE, at=0.0).reported(written_5m=9_000).send(FIVE, FIVE, at=420.0)
    branch.table.learn_usage(Usage(10_000, 9_900, tells_cached=True), 20_000, branch.table.call)
    assert branch.lifetime == (420.0, 1.25)


def test_a_client_that_marks_only_its_system_prompt_has_no_cached_history():
    prices = Branch().send(FIVE, None).terms.prices
    assert (prices.read, prices.write) == (1.0, 1.0)


def test_openai_keeps_a_prompt_for_a_day_if_it_is_asked_to():
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "x" * 9_000}]}
    assert Branch("chat", "gpt-5").take(body, 0.0).terms.prices.ttl_seconds < 86_400
    kept = Branch("chat", "gpt-5").take({**body, "prompt_cache_retention": "24h"}, 0.0)
    assert kept.terms.prices.ttl_seconds == 86_400


def test_where_nobody_names_a_lifetime_one_that_the_tenants_caches_outlived_is_believed():
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "x" * 9_000}]}
    for tenant, lifetime in (("ours", 1_500.0), ("theirs", 600.0)):
        known = Experience(lifetimes={cache_of(tenant, "chat", "gpt-5"): 1_500.0})
        assert Branch("chat", "gpt-5", known=known).take(body, 0.0).terms.prices.ttl_seconds == lifetime
    known = Experience(lifetimes={cache_of("ours", "messages", OPUS): 1_500.0})
    assert Branch(known=known).send(FIVE, FIVE).lifetime == (300.0, 1.25), "the client's own mark says it"


def test_only_a_wire_format_with_marks_is_priced_by_them():
    assert Branch().send(FIVE, FIVE).terms.by_marks
    assert (
        not Branch("chat", "gpt-5")
        .take({"model": "gpt-5", "messages": [{"role": "user", "content": "x"}]}, 0.0)
        .terms.by_marks
    )
    assert not Branch(model="deepseek-chat").send(FIVE, FIVE).terms.by_marks, "it caches by itself"
