"""Plans the calls of the proxy, under the policy and the prices in force, and finds pages again.

It knows the policies, the table of models and the wire formats. It changes page tables only in ways that the log can
repeat: every change is an event that goes into the log with it.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from pager.errors import StoreError
from pager.log.bypass_reasons import BypassReason
from pager.log.events import BranchOpened, Bypassed, Marked, RepackCause, Repacked
from pager.paging.conditions import Caller, lent, terms_of, tool_slot_of
from pager.paging.credit import CreditLimits, SessionMoney
from pager.paging.pages.page import GRACE, Items
from pager.paging.pages.page_table import PageTable, Source, raw_of
from pager.paging.pages.session_pages import SessionPages, TableSource
from pager.paging.plan_call import CallPlan, text_at
from pager.paging.planner import Terms
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.priors import SHIPPED, Experience, recalled
from pager.paging.render import Outgoing, can_lengthen, in_full, lacks_marks, render
from pager.paging.tool_forms_of_call import Shortening
from pager.paging.warmth.choose_lifetime import NO_MEMBERS, CacheMembers, LifetimeRule, chosen
from pager.pricing.mark_cache import MOST_MARKS
from pager.pricing.rates import Models
from pager.request_values import CallAddress, Request
from pager.tools.decide_forms import Toolset
from pager.wire.dialect import Dialect
from pager.wire.stitching import ToolSlot

BYPASS = "x-pager-bypass"
ON = Shortening()
log = logging.getLogger("ctxpager")


class CallToPlan(NamedTuple):
    """A call to be planned."""

    dialect: Dialect
    request: Request
    items: Items
    at: float
    where: CallAddress
    opened: BranchOpened | None = None  # where it is the first of its branch
    caller: Caller = Caller()
    arm: str = ""  # the session's policy in an experiment, or empty
    learned: str = ""  # the version of what other sessions taught, empty for what is shipped
    bypass: str = ""  # why it must go out in full, or empty
    around: str = ""  # a key of all that is around its items


def bypassed(headers: Mapping[str, str]) -> str:
    """Why a client wants its call to go out in full; empty if it does not."""
    return f"the client sent {BYPASS}" if headers.get(BYPASS, "0").strip().lower() not in ("", "0", "false") else ""


@dataclass(slots=True, kw_only=True)
class Paged(CallPlan):
    """A call as it was planned: ``untouched``, else in full but for cache marks, else paged."""

    request: Request
    totals: SessionMoney | None = None  # of the session before this call
    untouched: bool = False
    tool_slot: ToolSlot | None = None  # where the tool is added; None where it is not
    outgoing: Outgoing | None = None

    @property
    def tools(self) -> Toolset | None:
        """In which forms the client's tools are sent, if that was decided."""
        return self.outgoing.tools if self.outgoing is not None else None

    @property
    def moved_on(self) -> bool:
        """Whether the branch has another latest call by now, so that its table is no longer this call's."""
        return (self.table.call, self.table.attempt) != self.where[1:]


class Pager:
    """Plans calls, and finds pages again."""

    def __init__(  # noqa: PLR0913 - what settings say, each by its name
        self,
        arms: Arms,
        models: Models,
        load_dialect: Callable[[str], Dialect],
        *,
        marks: bool,
        grace: int = GRACE,
        tools: Shortening = ON,
        credit: CreditLimits | None = None,
        cache_members: CacheMembers = NO_MEMBERS,
        lifetime: LifetimeRule = "5m",
    ) -> None:
        self._arms = arms
        self.credit = credit  # the limits of users' accounts; None where each session pays for itself
        self._cache_members = cache_members
        self.kept_warm = False  # whether prompts are kept warm of sessions whose arm does not say
        self._grace = grace
        self._tools = tools
        self._lifetime = lifetime
        self.models = models
        self._load_dialect = load_dialect
        self._marks = marks
        self._experiences = {"": SHIPPED}
        self.learned = ""
        self.tables = TableSource(load_dialect, lambda _: None)

    def settle(self, session: str) -> tuple[str, str]:
        """The policy of a new session in an experiment, or empty, and the version of what others taught; to its end."""
        return self._arms.arm(session), self.learned

    def changes(self, arm: str) -> bool:
        """Whether calls of sessions in this arm of an experiment, or in none, may be changed at all."""
        return self._arms.rule(arm) is not None

    def plan(self, pages: SessionPages, call: CallToPlan) -> Paged | None:
        """Take a call into its branch's table and decide what is paged; None where it can't be paged at all."""
        request, branch = call.request, call.where[0]
        if call.opened is not None:
            pages.open(call.opened, self.tables)
        rule = self._arms.rule(call.arm)
        if rule is None or request.separator is None or not request.items or branch not in pages.tables:
            return None
        table = pages.tables[branch]
        table.advance(*call.where[1:], call.at, call.items, len(request.body), request.model, call.around)
        marks_before, dollars = _marks_of(table), self.models.dollars(request.model)
        table.ends = self._marks and lacks_marks(call.dialect, request, table)
        self._choose_lifetime(pages, call, rule)
        is_written = not table.held.alive(call.at)
        if table.call == 1 and call.dialect.cache_members and not call.bypass:
            table.members = self._members(call)
        terms = self._terms(call, pages)
        paged = Paged(
            dialect=call.dialect,
            pages=pages,
            table=table,
            where=call.where,
            terms=terms,
            rule=rule,
            client_outside=request.outside,
            raw=partial(raw_of, request),
            request=request,
            totals=pages.add_up(terms.prices, dollars) if self.credit is not None else None,
        )
        if table.lost_legs:
            gone = f"the place of {table.lost_legs} hidden legs is gone from the client's history"
            paged.events.append(Repacked(*call.where, cause=RepackCause.CLIENT, reason=gone, policy=rule.name))
            table.apply(paged.events[-1])
        if call.bypass:
            self._in_full(paged, BypassReason.ASKED, call.bypass)
        paged.untouched = bool(call.bypass or table.stopped)
        anchors = () if paged.untouched else self._decide(paged)
        if not is_written and not table.held.alive(call.at):  # by a repack from the very beginning
            self._choose_lifetime(pages, call, rule)
            paged.terms = self._terms(call, pages)
        legs = self._marks and paged.terms.by_marks and not paged.full and table.client_marks < MOST_MARKS
        table.set_marks(ends=table.ends, anchors=anchors if self._marks else (), legs=legs)
        if _marks_of(table) != marks_before:
            paged.events.append(
                Marked(
                    *call.where,
                    ends=table.ends,
                    anchors=list(table.anchors),
                    legs=table.mark_legs,
                    lifetime=table.lifetime,
                    members=table.members,
                )
            )
        paged.outgoing = self._render(paged)
        return paged

    def _members(self, call: CallToPlan) -> dict[str, str]:
        """The members of ours that choose a cache for a branch, as JSON, from its first call on."""
        key, retention = self._cache_members
        members: dict[str, str] = {}
        if key:
            begins = sha256(f"{call.caller.tenant}\0{call.around}\0".encode() + call.items.digests[0])
            members["prompt_cache_key"] = f'"ctxpager-{begins.hexdigest()[:32]}"'
        if retention and self.models.prices(call.request.model).write <= 1.0:
            members["prompt_cache_retention"] = f'"{retention}"'
        return members

    def _choose_lifetime(self, pages: SessionPages, call: CallToPlan, rule: NamedPolicy) -> None:
        """Choose what cache marks ask for that name no lifetime, where the whole prompt is written in any case.

        In between it stays as it was chosen, unless an hour is not granted or the client begins to name lifetimes.
        """
        table, request, prices = pages.tables[call.where[0]], call.request, self.models.prices(call.request.model)
        may_ask = self._marks and bool(table.ends or table.client_marks) and prices.read < prices.write
        if not may_ask or pages.hour_denied or not can_lengthen(call.dialect, request, table):
            table.ask_for(0.0)
        elif not table.held.alive(call.at):
            to_go = self.experience(call.learned).to_go(call.caller.harness, table.call)
            knows_ttl = self._lifetime != "auto" or table.evidence.granted > 0  # the provider names lifetimes itself
            kept = self.kept_warm if rule.keep_warm is None else rule.keep_warm
            asked = chosen(self._lifetime, table, prices, to_go, kept_warm=kept) if knows_ttl else 0.0
            table.ask_for(asked)

    def _decide(self, paged: Paged) -> tuple[int, ...]:
        """Decide on tools and pages, where the request can carry our tool; the prefixes to end with cache marks."""
        tool_slot = tool_slot_of(paged.dialect, paged.request)
        if isinstance(tool_slot, str):
            if paged.table.tool:
                self._in_full(paged, BypassReason.CANNOT_CARRY, tool_slot)
            return ()
        paged.tool_slot = tool_slot
        listed = paged.dialect.offers(paged.request) if self._tools.on and tool_slot.item is None else None
        if listed is not None:
            paged.decide_tools(tool_slot.names, listed.offers, self._tools)
        anchors = paged.decide_pages(tool_slot.names)
        for event in paged.events:
            if isinstance(event, Bypassed) and event.reason == BypassReason.DECISION_REJECTED:
                log.warning("the policy's decision was rejected: %s", event.detail)
        return anchors

    def _in_full(self, paged: Paged, reason: BypassReason, why: str) -> None:
        """Let a call go out as the client sent it."""
        paged.events.append(Bypassed(reason, why, *paged.where[:2]))
        paged.table.apply(paged.events[-1])

    def _render(self, paged: Paged) -> Outgoing:
        if paged.untouched:
            return Outgoing(paged.request)
        if paged.full:
            return in_full(paged.dialect, paged.request, paged.table)
        return render(paged.dialect, paged.request, paged.table, paged.tool_slot)

    def rescue(self, paged: Paged, excess: int, window: int = 0) -> Repacked | None:
        """Evict until ``excess`` tokens are gone; None if nothing is left to evict or the branch went on."""
        tool_slot = paged.dialect.tool_slot(paged.request)
        names = tool_slot.names if isinstance(tool_slot, ToolSlot) else None
        repacked = None if paged.moved_on else paged.rescue(names, excess, window)
        if repacked is not None:
            paged.tool_slot = tool_slot if isinstance(tool_slot, ToolSlot) else None
            paged.untouched = False
            paged.outgoing = self._render(paged)
        return repacked

    def resolve(self, pages: SessionPages, branch: int, handle: str) -> str | None:
        """The text of a page that was evicted somewhere in this session, best in this branch; None if none was."""
        tables = list(pages.tables.items())  # a copy: this is done beside other calls
        for _, table in sorted(tables, key=lambda one: one[0] != branch):
            source, schema = table.shown.get(handle), table.schemas.get(handle)
            if source is not None:
                return self._text(self._load_dialect(table.dialect), source)
            if schema is not None:
                return bytes(schema.whole).decode()
        return None

    def tool(self, pages: SessionPages, handle: str) -> str:
        """The tool that this is the handle of, in whatever branch it was sent short; empty if it is that of a page."""
        tables = list(pages.tables.values())  # a copy: a branch may be opened aside
        return next((table.schemas[handle].name for table in tables if handle in table.schemas), "")

    def _terms(self, call: CallToPlan, pages: SessionPages) -> Terms:
        found = terms_of(
            call.request,
            pages.tables[call.where[0]],
            self.models,
            self.experience(call.learned),
            caller=call.caller,
            marks=self._marks,
            grace=self._grace,
        )
        return lent(found, pages.credit, self.credit, self.models.dollars(call.request.model))

    def experience(self, version: str) -> Experience:
        """What was learned by this version; what is shipped, where the log does not hold it any more."""
        known = self._experiences.get(version)
        if known is None:
            known = self._experiences[version] = self._recalled(version)
        return known

    def _recalled(self, version: str) -> Experience:
        try:
            return recalled(version, self.tables.fetch)
        except StoreError as error:
            log.warning("sessions that began with it go by what is shipped: %s", error)
            return SHIPPED

    def _text(self, dialect: Dialect, source: Source) -> str | None:
        raw = self.tables.fetch(source.message)
        return None if raw is None else text_at(dialect, raw, source.key)


def _marks_of(table: PageTable) -> tuple[object, ...]:
    """What is logged of a table's cache marks."""
    return table.ends, table.anchors, table.mark_legs, table.lifetime, table.members
