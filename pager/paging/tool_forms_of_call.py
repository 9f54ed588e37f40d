"""The forms in which a call's tools are sent: as decided before, or decided now where the client's tools are new.

Nothing is decided twice: what was decided in a session for a list of tools holds for it in all branches. A branch whose
tools went out whole so far is changed only where that is free, because the cache is cold, or pays from the beginning.
"""

from collections.abc import Collection
from hashlib import sha256
from typing import NamedTuple

from pager.log.events import ToolsDecided
from pager.paging import planner
from pager.paging.page_in import name_for
from pager.paging.pages.page_table import PageTable
from pager.paging.pages.session_pages import SessionPages
from pager.paging.planner import Terms
from pager.request_values import CallAddress
from pager.tools.decide_forms import Outlook, Toolset, decide
from pager.tools.definitions import Offers

LATEST = 2
"""The call of a branch up to which tools may be changed though the cache is warm; later it never pays."""


class Shortening(NamedTuple):
    """The user's settings: whether tools are sent short at all, and the tokens from which on they may be deferred."""

    on: bool = True
    defer_above: int = 20_000


class Decided(NamedTuple):
    """A decision to be logged: the event, and the content that it names."""

    event: ToolsDecided
    content: bytes


def settle(
    pages: SessionPages,
    where: CallAddress,
    offers: Offers,
    names: Collection[str],
    terms: Terms,
    wanted: Shortening,
) -> Decided | None:
    """Decide on the tools of a call, and carry it out; None where nothing changes.

    ``where`` is the branch, call and attempt, ``names`` are those of all tools of the client.
    """
    table = pages.tables[where[0]]
    if not wanted.on or (table.tools is not None and table.tools.digest == offers.digest):
        return None
    switch = _to_read_again(table, terms)
    if switch is None:
        return None
    decided, reason = _decision(pages, table, offers, terms, wanted, switch)
    if switch and not decided.shortened:
        return None
    # A handle that was shown for another tool before can't mean this one.
    shown = [table.schemas for table in pages.tables.values()]
    clashes = {
        handle
        for handle, sent in decided.handles.items()
        if any(handle in schemas and schemas[handle].whole != sent.whole for schemas in shown)
    }
    decided = decided.without(clashes) if clashes else decided
    tool = table.tool
    if decided.shortened and (not tool or tool in names):
        tool = name_for(names)
    content = decided.encode()
    event = ToolsDecided(
        *where,
        decision=sha256(content).hexdigest(),
        offered=offers.digest,
        reason=reason,
        tool="" if tool == table.tool else tool,
        tools=len(decided.sent),
        whole=decided.whole_tokens,
        sent=decided.tokens,
        slim=sum(sent.form == "slim" for sent in decided.sent),
        deferred=sum(sent.form == "deferred" for sent in decided.sent),
        price=switch * (terms.prices.write - terms.prices.read),
    )
    pages.decide_tools(event, decided)
    return Decided(event, content)


def _to_read_again(table: PageTable, terms: Terms) -> int | None:
    """The tokens that the provider must read again if the tools change now; None where they must not."""
    if table.tools is not None or not planner.is_warm(table, terms):
        return 0
    if table.call > LATEST or (terms.bound and any(slot.reasoning for slot in table.slots)):
        return None
    return table.prompt


def _decision(
    pages: SessionPages, table: PageTable, offers: Offers, terms: Terms, wanted: Shortening, switch: int
) -> tuple[Toolset, str]:
    experience, harness, tenant = terms.experience, terms.harness, terms.tenant
    outlook = Outlook(
        terms.prices,
        experience.calls(harness),
        lambda tool, usual: experience.use(tenant, harness, tool, usual),
        tool_added=bool(table.tool),
        switch=switch,
        defer_above=wanted.defer_above,
    )
    known = pages.toolsets.get(offers.digest)
    if known is None:
        return decide(offers, outlook)
    if switch and not outlook.pays(known.whole_tokens, known.whole_tokens - known.tokens):
        return Toolset(offers.digest, ()), "to change the tools now would not pay"
    return known, "as it was decided before in this session"
