"""Decides for each call what is paged, under the policy and the prices in force, and writes the decision down.

It knows the policy, the table of models and the wire formats. It changes page tables only in ways that the log can
repeat: every change is an event that goes into the log with it.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from pager.errors import StoreError
from pager.log.bypass import BypassReason
from pager.log.events import (
    Bypassed,
    Event,
    Marked,
    Repacked,
)
from pager.paging import planner
from pager.paging import settle_tools as tooling
from pager.paging.conditions import carrier_of, terms_of
from pager.paging.page import GRACE, Page
from pager.paging.page_table import Items, Source, Table
from pager.paging.page_tables import Tables
from pager.paging.planner import Plan, Terms
from pager.paging.policy_choice import Arms, Rule
from pager.paging.priors import SHIPPED, Experience, recalled
from pager.paging.render import (
    Outgoing,
    lacks_marks,
    marked,
    render,
)
from pager.paging.repack import Stubs, carry_out, text_at
from pager.paging.settle_tools import Shortening
from pager.pricing.mark_cache import MOST_MARKS
from pager.pricing.rates import Models
from pager.sessions.lineage import Placement, Session
from pager.tools.decide import Toolset
from pager.values import Request
from pager.wire.dialect import Dialect
from pager.wire.stitching import Carrier

BYPASS = "x-pager-bypass"
ON = Shortening()
PLAUSIBLE = range(2_000, 20_000_001)  # tokens that a window may have
log = logging.getLogger("ctxpager")


class Call(NamedTuple):
    """A call that is to be planned; ``bypass`` says why it must go out in full, if it must.

    ``around`` tells what stands around its items from what stands around another's.
    """

    dialect: Dialect
    request: Request
    items: Items
    at: float
    bypass: str = ""
    around: str = ""


def bypassed(headers: Mapping[str, str]) -> str:
    """Why a client wants its call to go out in full; empty if it does not."""
    return f"the client sent {BYPASS}" if headers.get(BYPASS, "0").strip().lower() not in ("", "0", "false") else ""


@dataclass(slots=True)
class Paged:
    """A call as it was planned: ``untouched``, else in full but for cache marks, else paged.

    The tool is added where there is a ``carrier`` for it. ``rule`` is the policy it is planned under. ``spot`` is the
    call's number and attempt; ``events`` and ``blobs`` are for the log.
    """

    dialect: Dialect
    request: Request
    table: Table
    terms: Terms
    spot: tuple[int, int]
    rule: Rule
    untouched: bool = False
    full: bool = True
    carrier: Carrier | None = None
    outgoing: Outgoing | None = None
    events: list[Event] = field(default_factory=list)
    blobs: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def outside(self) -> int:
        """The bytes of the prompt that stand outside of its items."""
        return self.request.outside - self.table.freed

    @property
    def tools(self) -> Toolset | None:
        """In which forms the client's tools are sent, if that was decided."""
        return self.outgoing.tools if self.outgoing is not None else None

    @property
    def moved_on(self) -> bool:
        """Whether the branch has another latest call by now, so that its table tells nothing of this one."""
        return (self.table.call, self.table.attempt) != self.spot


class Pager:
    """Plans calls, and finds pages again."""

    def __init__(
        self,
        arms: Arms,
        models: Models,
        load_dialect: Callable[[str], Dialect],
        *,
        marks: bool,
        grace: int = GRACE,
        tools: Shortening = ON,
    ) -> None:
        self._arms = arms
        self._grace = grace
        self._tools = tools
        self._models = models
        self._load_dialect = load_dialect
        self._marks = marks
        self._stubs = Stubs()
        self._windows: dict[str, int] = {}
        self._experiences = {"": SHIPPED}
        self.learned = ""
        self.tables = Tables(load_dialect, lambda _: None)

    def settle(self, session: Session) -> None:
        """Decide for a session that begins what holds to its end: its arm, and what it goes by of what was learned."""
        session.arm, session.learned = self._arms.arm(session.id), self.learned

    def plan(self, session: Session, placement: Placement, call: Call) -> Paged | None:
        """Take a call into its branch's table and decide what is paged; None where it can't be paged at all."""
        branch, request = placement.branch.number, call.request
        if placement.opened is not None:
            opened = placement.opened
            self.tables.open_branch(session, branch, opened.parent, opened.dialect, opened.fork_call)
        rule = self._arms.rule(session.arm)
        if rule is None or request.separator is None or not request.items or branch not in session.tables:
            return None
        table = session.tables[branch]
        where = (branch, placement.call, placement.attempt)
        table.advance(*where[1:], call.at, call.items, len(request.body), request.model, call.around)
        marks_before = (table.ends, table.anchors, table.mark_legs)
        table.ends = self._marks and lacks_marks(call.dialect, request, table)
        terms = self._terms(request, table, session)
        paged = Paged(call.dialect, request, table, terms, (table.call, table.attempt), rule)
        if table.lost_legs:
            gone = f"the place of {table.lost_legs} hidden legs is gone from the client's history"
            lost = Repacked(*where, cause="client", reason=gone, policy=rule.name)
            table.apply(lost)
            paged.events.append(lost)
        if call.bypass:
            paged.events.append(Bypassed(BypassReason.ASKED, call.bypass, branch, placement.call))
            table.sent_in_full()
        paged.untouched = bool(call.bypass or table.stopped)
        anchors: tuple[int, ...] = ()
        if not paged.untouched:
            anchors = self._decide(paged, session, where)
        legs = self._marks and terms.by_marks and not paged.full and table.client_marks < MOST_MARKS
        table.set_marks(ends=table.ends, anchors=anchors if self._marks else (), legs=legs)
        if (table.ends, table.anchors, table.mark_legs) != marks_before:
            paged.events.append(Marked(*where, table.ends, list(table.anchors), table.mark_legs))
        paged.outgoing = self._render(paged)
        return paged

    def _render(self, paged: Paged) -> Outgoing:
        if paged.untouched:
            return Outgoing(paged.request)
        if paged.full:
            return marked(paged.dialect, paged.request) if paged.table.ends else Outgoing(paged.request)
        return render(paged.dialect, paged.request, paged.table, paged.carrier)

    def rescue(self, paged: Paged, branch: int, excess: int) -> Repacked | None:
        """Evict until the prompt is so many tokens shorter; None if nothing is left to evict, or the branch went on."""
        if paged.moved_on:
            return None
        plan = planner.rescue(paged.table, paged.outside, paged.terms, excess)
        if not plan.pages:
            return None
        carrier = paged.dialect.carrier(paged.request)
        paged.carrier = carrier if isinstance(carrier, Carrier) else None
        paged.full = paged.untouched = False
        repacked = self._repack(paged, (branch, *paged.spot), plan)
        paged.outgoing = self._render(paged)
        return repacked

    def learn_window(self, model: str, window: int) -> None:
        """Believe what the provider said of a model's window."""
        if window in PLAUSIBLE and len(self._windows) < 1_000:
            self._windows[model] = window

    def resolve(self, session: Session, branch: int, handle: str) -> str | None:
        """The text of a page that was evicted somewhere in this session, best in this branch; None if none was."""
        tables = list(session.tables.items())  # a copy: this is done beside other calls
        for _, table in sorted(tables, key=lambda one: one[0] != branch):
            source, schema = table.shown.get(handle), table.schemas.get(handle)
            if source is not None:
                return self._text(self._load_dialect(table.dialect), source)
            if schema is not None:
                return bytes(schema.whole).decode()
        return None

    def tool(self, session: Session, handle: str) -> str:
        """The tool that this is the handle of, in whatever branch it was sent short; empty if it is that of a page."""
        tables = list(session.tables.values())  # a copy: a branch may be opened aside
        return next((table.schemas[handle].name for table in tables if handle in table.schemas), "")

    def _decide(self, paged: Paged, session: Session, where: tuple[int, int, int]) -> tuple[int, ...]:
        """Decide on tools and pages; the prefixes that cache marks of ours should end."""
        table = paged.table
        carrier = carrier_of(paged.dialect, paged.request)
        if isinstance(carrier, str):
            if table.tool:
                paged.events.append(Bypassed(BypassReason.CANNOT_CARRY, carrier, where[0], where[1]))
                table.sent_in_full()
            return ()
        paged.carrier, paged.full = carrier, False
        self._decide_tools(paged, session, where, carrier)
        plan = planner.propose(paged.rule.policy, table, paged.outside, paged.terms)
        if plan.rejected:
            log.warning("the policy's decision was rejected: %s", plan.rejected)
            paged.events.append(Bypassed(BypassReason.DECISION_REJECTED, plan.rejected, where[0], where[1]))
        anchors = plan.anchors
        plan = plan if plan.pages else planner.unasked(table, carrier.names)
        if plan.cause:
            self._repack(paged, where, plan)
        return anchors

    def _decide_tools(self, paged: Paged, session: Session, where: tuple[int, int, int], carrier: Carrier) -> None:
        if not self._tools.on or carrier.item is not None:
            return
        listed = paged.dialect.offers(paged.request)
        if listed is None:
            return
        decided = tooling.settle(session, where, listed.offers, carrier.names, paged.terms, self._tools)
        if decided is not None:
            paged.blobs[bytes.fromhex(decided.event.decision)] = decided.content
            paged.events.append(decided.event)

    def _repack(self, paged: Paged, where: tuple[int, int, int], plan: Plan) -> Repacked:
        table, names = paged.table, None if paged.carrier is None else paged.carrier.names
        repacked = carry_out(plan, table, where, names, partial(self._stub, paged), paged.rule.name)
        for page in plan.pages:
            slot = table.slots[page.slot]
            if slot.raw is not None:
                paged.blobs[slot.digest] = slot.raw
        paged.events.append(repacked)
        return repacked

    def _stub(self, paged: Paged, page: Page, tool: str) -> str:
        slot = paged.table.slots[page.slot]
        raw = slot.raw if slot.raw is not None else bytes(paged.request.items[slot.item])
        return self._stubs.make(paged.dialect, paged.table, page, raw, tool)

    def _terms(self, request: Request, table: Table, session: Session) -> Terms:
        known, window = self.experience(session.learned), self._windows.get(request.model)
        return terms_of(
            request, table, self._models, known, session, marks=self._marks, window=window, grace=self._grace
        )

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
