"""Makes page tables, and reads what they are made from out of the log."""

from collections.abc import Callable
from functools import partial

import msgspec

from pager.errors import StoreCorrupt
from pager.paging.page_content import Contents, contents
from pager.paging.page_table import Table
from pager.sessions.lineage import Session
from pager.tools import decide
from pager.tools.decide import Toolset
from pager.wire.dialect import Dialect
from pager.wire.stitching import Leg

TOOLSETS = 256
"""Decisions on tools that are kept at hand: sessions of one client program mostly share theirs."""

_leg = msgspec.json.Decoder(Leg)


class Tables:
    """Page tables for the wire formats that ``load_dialect`` gives, from the blobs that ``fetch`` gives."""

    def __init__(self, load_dialect: Callable[[str], Dialect], fetch: Callable[[bytes], bytes | None]) -> None:
        self._load_dialect = load_dialect
        self.fetch = fetch
        self._toolsets: dict[str, Toolset] = {}

    def make(self, dialect: str) -> Table:
        """An empty page table for a branch of this wire format."""
        spoken = self._load_dialect(dialect)
        return Table(dialect, partial(_contents, spoken), spoken.expand)

    def open_branch(self, session: Session, branch: int, parent: int | None, dialect: str, fork: int = 0) -> None:
        """Give a new branch its page table: a copy of the one that it forks from, else an empty one."""
        before = session.tables.get(parent) if parent is not None else None
        alike = before is not None and before.dialect == dialect
        table = session.tables[branch] = before.copy() if before is not None and alike else self.make(dialect)
        table.stopped, table.account = "", session.account
        table.tool = table.tool or _tool_of_kin(session, branch)
        for page in table.known.values():  # what the other branch did after the fork did not happen here
            page.used, page.pinned_at = min(page.used, fork), min(page.pinned_at, fork)

    def item(self, digest: bytes) -> bytes:
        """A blob of the log that must be there."""
        blob = self.fetch(digest)
        if blob is None:
            raise StoreCorrupt(f"the log refers to content {digest.hex()} that it does not hold; run `ctxpager check`")
        return blob

    def leg(self, digest: bytes) -> Leg:
        """A logged leg."""
        return _leg.decode(self.item(digest))

    def toolset(self, digest: str) -> Toolset:
        """A logged decision on tools; one for all branches that share it."""
        known = self._toolsets.get(digest)
        if known is None:
            known = decide.decode(self.item(bytes.fromhex(digest)))
            self.keep(digest, known)
        return known

    def keep(self, digest: str, decided: Toolset) -> None:
        """Have a decision at hand that is being logged."""
        if len(self._toolsets) >= TOOLSETS:
            self._toolsets.clear()
        self._toolsets[digest] = decided


def _tool_of_kin(session: Session, branch: int) -> str:
    """The tool injected in a sibling branch with the same system prompt, or empty.

    A client that compacts its history keeps its beginning: without the tool, that would be another prompt, which the
    provider has not cached.
    """
    family = session.branches[branch].family if branch < len(session.branches) else b""
    kin = [number for number, sibling in enumerate(session.branches) if family and sibling.family == family]
    tables = [session.tables[number] for number in reversed(kin) if number != branch and number in session.tables]
    return next((table.tool for table in tables if table.tool and not table.stopped), "")


def _contents(dialect: Dialect, raw: bytes) -> Contents:
    return contents(dialect.decode(raw), dialect.sites(raw))
