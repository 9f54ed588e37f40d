"""The page tables of a session's branches, what they share, and what they are read from when a log is read again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from pager.errors import StoreCorrupt
from pager.log.events import BranchOpened, BranchReason, CreditLent, ToolsDecided
from pager.paging.credit import NOTHING, SessionMoney
from pager.paging.pages.page import Account, Checkpoint, Contents, contents
from pager.paging.pages.page_table import PageTable
from pager.pricing.prices import Prices
from pager.tools import decide_forms
from pager.tools.decide_forms import Toolset
from pager.wire.dialect import Dialect
from pager.wire.stitching import Leg

TOOLSETS = 256
"""Decisions on tools that are kept at hand: sessions of one client program mostly share theirs."""

_leg = msgspec.json.Decoder(Leg)


class TableSource:
    """Page tables for the wire formats that ``load_dialect`` gives, from the blobs that ``fetch`` gives."""

    def __init__(self, load_dialect: Callable[[str], Dialect], fetch: Callable[[bytes], bytes | None]) -> None:
        self._load_dialect = load_dialect
        self.fetch = fetch
        self._toolsets: dict[str, Toolset] = {}

    def make(self, dialect: str) -> PageTable:
        """An empty page table for a branch of this wire format."""
        spoken = self._load_dialect(dialect)
        return PageTable(dialect, partial(_contents, spoken), spoken.expand)

    def item(self, digest: bytes) -> bytes:
        """A blob of the log; raises StoreCorrupt if the log does not hold it."""
        blob = self.fetch(digest)
        if blob is None:
            raise StoreCorrupt(f"the log refers to content {digest.hex()} that it does not hold; run `ctxpager check`")
        return blob

    def leg(self, digest: bytes) -> Leg:
        """A logged leg."""
        return _leg.decode(self.item(digest))

    def toolset(self, digest: str) -> Toolset:
        """A logged decision on tools; the same object for all branches that share it."""
        known = self._toolsets.get(digest)
        if known is None:
            if len(self._toolsets) >= TOOLSETS:
                self._toolsets.clear()
            known = self._toolsets[digest] = decide_forms.decode(self.item(bytes.fromhex(digest)))
        return known


@dataclass(slots=True)
class SessionPages:
    """What paging knows of a session."""

    tables: dict[int, PageTable] = field(default_factory=dict)  # by the number of the branch
    account: Account = field(default_factory=Account)  # of all tables together
    toolsets: dict[str, Toolset] = field(default_factory=dict)  # decisions by the digest of the client's tools
    families: dict[int, str] = field(default_factory=dict)  # hashes of the branches' system prompts
    called_at: float = 0.0  # when a credit was last thought of: at its latest call
    credit: float | None = None  # dollars that the user's account lends it; None before it was asked
    totals: SessionMoney = NOTHING
    _counted: Checkpoint = field(default_factory=lambda: Account().checkpoint())  # up to which the totals are

    @property
    def latest(self) -> float:
        """When its latest call came, in seconds since 1970; 0 before the first."""
        return max((table.at for table in self.tables.values()), default=0.0)

    def lend(self, lent: CreditLent) -> None:
        """Have a credit from now on; what was saved before it has gone into the user's account."""
        self.credit = lent.dollars
        self.account.settle()

    def add_up(self, prices: Prices, dollars: float) -> SessionMoney:
        """Bring the totals up to date, at these prices and these dollars for one uncached input token."""
        new = self.account.since(self._counted)
        paid = new.cost(prices) + new.refreshes
        self.take_totals(self.totals.plus(SessionMoney(dollars * paid, dollars * new.net(prices))))
        return self.totals

    def take_totals(self, totals: SessionMoney) -> None:
        """Have these totals as of now."""
        self.totals, self._counted = totals, self.account.checkpoint()

    def open(self, opened: BranchOpened, source: TableSource) -> PageTable:
        """Give a new branch its page table: a copy of the one that it forks from, else an empty one."""
        branch, fork = opened.branch, opened.fork_call
        before = self.tables.get(opened.parent) if opened.parent is not None else None
        alike = before is not None and before.dialect == opened.dialect
        table = before.copy() if before is not None and alike else source.make(opened.dialect)
        self.tables[branch], self.families[branch] = table, opened.family
        table.stopped, table.account = "", self.account
        table.is_side |= opened.reason in (BranchReason.SUBAGENT, BranchReason.SIDE)
        table.tool = table.tool or self._tool_of_sibling(branch)
        for page in table.known.values():  # what the other branch did after the fork did not happen here
            page.used, page.pinned_at = min(page.used, fork), min(page.pinned_at, fork)
        return table

    def _tool_of_sibling(self, branch: int) -> str:
        """The tool injected in the newest sibling branch with the same system prompt, or empty.

        A client that compacts its history keeps its beginning: without the tool, that would be another prompt, which
        the provider has not cached.
        """
        family = self.families[branch]
        siblings = sorted((number for number in self.tables if number != branch), reverse=True)
        tables = [self.tables[number] for number in siblings if family and self.families.get(number) == family]
        return next((table.tool for table in tables if table.tool and not table.stopped), "")

    @property
    def hour_denied(self) -> bool:
        """Whether a lifetime of an hour was asked for in any branch and not granted."""
        return any(table.hour_denied for table in self.tables.values())

    def decide_tools(self, event: ToolsDecided, decided: Toolset) -> None:
        """Carry out a decision on the tools of a branch, which holds for the same tools in all branches."""
        self.tables[event.branch].apply(event, decided)
        self.toolsets[decided.digest] = decided

    def copy_of(self, branch: int) -> "SessionPages":
        """A copy with the table of this branch alone, to plan a call that does not happen."""
        tables = {branch: self.tables[branch].copy()}
        return SessionPages(tables, self.account, dict(self.toolsets), dict(self.families), credit=self.credit)


def _contents(dialect: Dialect, raw: bytes) -> Contents:
    return contents(dialect.decode(raw), dialect.page_spans(raw))
