"""When the tools of a branch are decided on, and that it stays so."""

from dataclasses import replace
from hashlib import sha256

import msgspec
import pytest
from branches import items_of_request
from chat_items import encoded, user

from pager.log.events import BranchOpened
from pager.paging.pages.session_pages import SessionPages, TableSource
from pager.paging.planner import Terms
from pager.paging.policy import TOOL, Prices
from pager.paging.priors import (
    Experience,
    Harness,
    Use,
    owner,
)
from pager.paging.tool_forms_of_call import Shortening, settle
from pager.tools.decide_forms import decode
from pager.wire.dialects import load

CHAT = load("chat")
TERMS = Terms(Prices(), 128_000, 8_000, tenant="local", harness="opencode/1.18")
PROSE = "Does what it says. It has a long story to tell of how and when to use it, and of what else there is. " * 4
OFF = Shortening(on=False)
LONG = replace(TERMS, experience=Experience({"opencode": Harness(lengths=[90] * 30)}))


def tool(name):
    schema = {"type": "object", "properties": {"size": {"type": "integer", "description": PROSE}}}
    return {"type": "function", "function": {"name": name, "description": PROSE, "parameters": schema}}


TOOLS = [tool(f"t{at}") for at in range(12)]
FEW = [{"type": "function", "function": {"name": "ls", "description": "Lists.", "parameters": {"type": "object"}}}]


class Talk:
    """A session whose calls offer tools; ``decided`` is what the latest one brought."""

    def __init__(self, terms=TERMS, wanted=Shortening()):  # noqa: B008 - frozen
        self.pages = SessionPages()
        self.terms, self.wanted = terms, wanted
        self.blobs = {}
        self.tables = TableSource(load, self.blobs.get)
        self.now = 0.0
        self.calls = {}
        self.decided = None

    def call(self, tools=TOOLS, branch=0, gap=10.0, reasons=False):
        if branch not in self.pages.tables:
            self.pages.open(BranchOpened(branch, "root", "chat"), self.tables)
        self.now += gap
        call = self.calls[branch] = self.calls.get(branch, 0) + 1
        thought = {"reasoning_content": "Hm."} if reasons else {}
        said = [{"role": "assistant", "content": "x" * 400, **thought}] * (call - 1)
        body = encoded({"model": "m", "messages": [user(f"branch {branch}"), *said], "tools": tools})
        request = CHAT.parse(body)
        self.table(branch).advance(call, 1, self.now, items_of_request(CHAT, request), len(body), "m")
        names = [one["function"]["name"] for one in tools]
        offers = CHAT.offers(request).offers
        self.decided = settle(self.pages, (branch, call, 1), offers, names, self.terms, self.wanted)
        return self

    def table(self, branch=0):
        return self.pages.tables[branch]

    @property
    def event(self):
        return self.decided.event if self.decided else None


def test_the_first_call_decides_and_adds_the_tool_for_asking():
    talk = Talk().call()
    event = talk.event
    assert (event.branch, event.call, event.tools, event.slim, event.deferred) == (0, 1, 12, 12, 0)
    assert (event.tool, talk.table().tool) == ("page_in", "page_in")
    assert event.sent < event.whole
    assert event.price == 0
    assert event.decision == sha256(talk.decided.content).hexdigest()
    assert decode(talk.decided.content).sent == talk.table().tools.sent
    assert talk.table().freed > 0


def test_later_calls_keep_what_was_decided():
    talk = Talk().call()
    before = talk.table().tools
    for gap in (10.0, 4_000.0):
        assert talk.call(gap=gap).event is None
        assert talk.table().tools is before


def test_that_nothing_is_shortened_is_a_decision_too():
    talk = Talk().call(FEW)
    assert (talk.event.sent, talk.event.tool) == (talk.event.whole, "")
    assert "not pay" in talk.event.reason
    assert talk.call(FEW).event is None


def test_when_the_client_changes_its_tools_it_is_decided_anew():
    talk = Talk().call().call(TOOLS[:-1])
    assert (talk.event.tools, talk.event.price, talk.event.tool) == (11, 0.0, "")
    assert talk.call(TOOLS[:-1]).event is None
    back = talk.call().event
    assert back.reason == "as it was decided before in this session"
    assert back.tools == 12


def test_the_tool_is_renamed_where_the_client_gets_one_of_its_name():
    talk = Talk().call().call([*TOOLS, tool("page_in")])
    assert talk.event.tool == talk.table().tool == "page_in_2"


def test_another_branch_of_the_session_goes_by_the_same_decision():
    talk = Talk().call()
    talk.call(branch=1)
    assert talk.event.reason == "as it was decided before in this session"
    assert talk.table(1).tools is talk.table(0).tools


def test_a_branch_that_is_changed_late_takes_the_sessions_decision_or_none():
    talk = Talk(LONG).call()
    decided = talk.table().tools
    talk.wanted = OFF
    talk.call(branch=1)
    talk.wanted = Shortening()
    talk.call(branch=1)
    assert talk.event.reason == "as it was decided before in this session"
    assert talk.table(1).tools is talk.pages.toolsets[decided.digest] is decided
    poor = Talk().call()
    poor.wanted = OFF
    poor.call(branch=1)
    poor.wanted = Shortening()
    assert poor.call(branch=1).event is None, "it would not pay"
    assert poor.pages.toolsets[decided.digest] is poor.table().tools


def test_a_handle_that_was_shown_for_another_tool_is_not_used_again():
    handle = Talk().call().table().tools.shortened["t3"].handle
    talk = Talk().call(TOOLS[:-1])
    others = talk.table().schemas
    others[handle] = msgspec.structs.replace(others[handle], whole=msgspec.Raw(b'{"name":"another"}'))
    forms = {one.name: (one.form, one.reason) for one in talk.call().table().tools.sent}
    assert forms["t3"] == ("whole", "its handle is that of another tool")
    assert forms["t4"][0] == "slim"
    assert talk.table().schemas[handle].whole == msgspec.Raw(b'{"name":"another"}')


def test_a_change_of_tools_tells_nothing_of_the_providers_cache():
    same, changed = Talk().call(), undecided(1, LONG)
    for talk in (same, changed):
        talk.table().evidence.reported(1_000, 0)
        talk.call()
    assert same.table().evidence.sent_last is not None
    assert changed.table().evidence.sent_last is None


def test_the_tool_that_short_tools_pay_for_is_no_cost_of_paging():
    talk = Talk().call().call()
    assert (talk.table().tool, talk.pages.account.read) == ("page_in", 0)
    few = Talk().call(FEW)
    few.table().tool = "page_in"
    assert few.call(FEW).pages.account.read == -TOOL


def test_what_is_off_is_not_decided():
    assert Talk(wanted=OFF).call().event is None


def undecided(calls, terms=TERMS, **more):
    """A session whose first calls could not be changed."""
    talk = Talk(terms)
    talk.wanted = OFF
    for _ in range(calls):
        talk.call(**more)
    talk.wanted = Shortening()
    return talk


def test_a_second_call_is_changed_if_that_pays_from_the_beginning():
    assert undecided(1).call().event is None
    talk = undecided(1, LONG).call()
    assert talk.event.slim == 12
    assert talk.event.price == pytest.approx(talk.table().prompt * (1.25 - 0.1), rel=0.5)


def test_a_warm_branch_stays_as_it_is():
    assert undecided(2, LONG).call().event is None
    assert undecided(1, LONG).call(FEW).event is None, "and it may be decided when the cache is cold"


def test_a_cold_branch_is_changed_for_nothing():
    talk = undecided(3).call(gap=4_000.0)
    assert (talk.event.slim, talk.event.price) == (12, 0.0)


def test_thinking_that_is_bound_to_its_prompt_is_not_broken():
    bound = replace(LONG, bound=True)
    assert undecided(1, bound).call(reasons=True).event is None
    assert undecided(1, bound).call().event is not None


def test_what_was_learned_of_this_tenants_tools_counts():
    seen = {"t3": Use(50, 40), "t4": Use(50, 1)}
    known = Experience({"opencode": Harness()}, {owner("local", "opencode/2.0"): seen})
    talk = Talk(replace(TERMS, experience=known)).call()
    forms = {one.name: one.form for one in talk.table().tools.sent}
    assert (forms["t3"], forms["t4"], forms["t5"]) == ("whole", "slim", "slim")
    other = Talk(replace(TERMS, experience=known))
    other.terms = replace(other.terms, tenant="somebody else")
    assert {one.form for one in other.call().table().tools.sent} == {"slim"}


def test_a_session_read_from_the_log_goes_by_the_same_decision():
    talk = Talk().call()
    talk.blobs[bytes.fromhex(talk.event.decision)] = talk.decided.content
    again = Talk()
    again.pages.tables[0] = again.tables.make("chat")
    read = TableSource(load, talk.blobs.get)
    again.pages.tables[talk.event.branch].apply(talk.event, read.toolset(talk.event.decision))
    assert again.table().tools.encode() == talk.table().tools.encode()
    assert again.table().tool == "page_in"
    assert read.toolset(talk.event.decision) is again.table().tools, "decoded once"
