"""Plans one call: which of the client's tools are sent short, which pages leave the prompt, and by which stubs.

The proxy plans with it while a call waits, the replay plays recorded calls with it. What is decided changes the page
table at once and is an event for the log, so that the same events give the same table again.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from pager.log.bypass_reasons import BypassReason
from pager.log.events import Bypassed, Event, Repacked
from pager.paging import planner, tool_forms_of_call
from pager.paging.held_calls import SMALLEST_REPLY, USUAL_REPLY
from pager.paging.page_in import NAME, brought_by, name_for
from pager.paging.pages.page import Page, stub_limit
from pager.paging.pages.page_table import PageTable, Slot
from pager.paging.pages.session_pages import SessionPages
from pager.paging.pages.stub import Subject, make_stub
from pager.paging.planner import Plan, Terms
from pager.paging.policy_choice import NamedPolicy
from pager.paging.tool_forms_of_call import Shortening
from pager.pricing.tokens import O200K, Counter
from pager.request_values import CallAddress
from pager.tools.definitions import Offers
from pager.wire.dialect import Dialect

PLAUSIBLE = range(2_000, 20_000_001)  # tokens that a window may have
_count = partial(Counter().count, family=O200K)


@dataclass(slots=True, kw_only=True)
class CallPlan:
    """A call while it is planned; its page table has taken the request already."""

    dialect: Dialect
    pages: SessionPages
    table: PageTable  # of the call's branch
    where: CallAddress
    terms: Terms
    rule: NamedPolicy  # the policy in force
    client_outside: int  # bytes of the client's prompt outside of its items
    raw: Callable[[Slot], bytes]  # the bytes of an item
    full: bool = True  # whether it goes out as the client sent it, cache marks aside
    events: list[Event] = field(default_factory=list)  # what was decided, for the log
    blobs: dict[bytes, bytes] = field(default_factory=dict)  # content that the events refer to

    @property
    def outside(self) -> int:
        """The bytes of the prompt outside of its items, with the client's tools as they are sent."""
        return self.client_outside - self.table.freed

    @property
    def room(self) -> float:
        """The tokens that a prompt has after a rescue."""
        return (self.terms.window - self.terms.reserve) * planner.FILLED_AFTER_RESCUE

    def reply_limit(self, tokens: int) -> int:
        """The characters of pages that still fit the window behind a prompt of ``tokens``."""
        left = self.terms.window - self.terms.reserve - tokens
        size = self.table.yardstick.size
        least = max(SMALLEST_REPLY, min(USUAL_REPLY, size(self.terms.window / 16)))
        return max(least, size(left * planner.FILLED_AFTER_RESCUE))

    def decide_tools(self, names: Collection[str], offers: Offers, shortening: Shortening) -> None:
        """Decide in which forms the client's tools are sent; ``names`` are those of all, ``offers`` may be short."""
        decided = tool_forms_of_call.settle(self.pages, self.where, offers, names, self.terms, shortening)
        if decided is not None:
            self.blobs[bytes.fromhex(decided.event.decision)] = decided.content
            self.events.append(decided.event)

    def decide_pages(self, names: Collection[str]) -> tuple[int, ...]:
        """Let pages go that the policy chooses; the prefixes that cache marks of ours should end.

        ``names`` are those of all tools of the client, beside which ours is added.
        """
        self.full = False
        plan = planner.propose(self.rule.policy, self.table, self.outside, self.terms)
        if plan.rejected:
            self.events.append(Bypassed(BypassReason.DECISION_REJECTED, plan.rejected, *self.where[:2]))
        anchors = plan.anchors
        plan = plan if plan.pages else planner.unasked(self.table, names, self.terms)
        if plan.cause:
            self._repack(plan, names)
        return anchors

    def rescue(self, names: Collection[str] | None, excess: int, window: int = 0) -> Repacked | None:
        """Evict until the prompt is ``excess`` tokens shorter; None if nothing is left to evict.

        ``names`` is None where the request can't carry our tool, ``window`` is what the provider named as the model's
        window, or 0: later calls of the branch are planned under it.
        """
        plan = planner.rescue(self.table, self.outside, self.terms, excess)
        if not plan.pages:
            return None
        self.full = False
        return self._repack(plan, names, window if window in PLAUSIBLE else 0)

    def _repack(self, plan: Plan, names: Collection[str] | None, window: int = 0) -> Repacked:
        """Let the pages of a plan go."""
        table = self.table
        tool = table.tool
        if names is not None and (not tool or tool in names):
            tool = name_for(names)
        repacked = Repacked(
            *self.where,
            cause=plan.cause,
            reason=plan.reason,
            policy=self.rule.name,
            tool="" if tool == table.tool else tool,
            warm=plan.warm,
            pages=[table.evicted(page, self._stub(page, tool or NAME)) for page in plan.pages],
            saved=plan.saved,
            rewritten=plan.rewritten,
            price=plan.price,
            window=window,
            lent=plan.lent,
        )
        table.apply(repacked)
        for slot in [table.slots[page.slot] for page in plan.pages]:
            if slot.raw is not None:  # an item of the client's is in the log already
                self.blobs[slot.digest] = slot.raw
        self.events.append(repacked)
        return repacked

    def _stub(self, page: Page, tool: str) -> str:
        """The stub of a page; ``tool`` is the one by which the model gets it back."""
        raw = self.raw(self.table.slots[page.slot])
        text, size = text_at(self.dialect, raw, page.key) or "", page.size
        came = brought_by(text) if page.origins else None
        if came is not None and came.content is not None:
            text, size = came.content, len(came.content.encode("utf-8", "surrogatepass"))
        (tool_used, about), lines = self.table.named(page), text.count("\n") + 1
        subject = Subject("argument" if page.kind == "argument" else "result", tool_used, about, size, lines, text)
        return make_stub(subject, page.handle, _count, stub_limit(page.tokens), getter=tool)


def text_at(dialect: Dialect, raw: bytes, key: str) -> str | None:
    """The text of the page with this key in an item; None if there is none."""
    return next((page_span.text for page_span in dialect.page_spans(raw) if page_span.key == key), None)
