"""The interface of policies: what a policy sees, and the decision that it returns.

A policy proposes what to evict; the planner prices it and enforces the rules. It sees numbers, never content, has no
clock and no unseeded randomness, so that the same log gives the same decisions. A policy is one file in ``policies``
with one class, found by its file name; a user's own is named as ``path/to/file.py:Class`` or ``package.module:Class``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from pager.pricing.prices import ASKING, TOOL, Prices

__all__ = ["ASKING", "TOOL", "Decision", "PageView", "Policy", "Prices", "View", "Weighed"]


class PageView(msgspec.Struct, frozen=True, gc=False):
    """One page as a policy sees it; ages and times are counted in calls, ``size`` in bytes.

    ``handle`` is the page's name in its branch: where content is there twice, a number follows. ``pinned`` pages
    may not be evicted: those that came with the last calls, and those that the model has asked for again. ``position``
    is the page's place among all pages of the prompt; ``before`` and ``after`` are the tokens that come before and
    after it. ``age`` counts the calls since it came, ``idle`` those since it was last used. ``usual`` is how often its
    tool's pages were needed again in other sessions, as a multiple of what is usual for pages of that size and age.
    ``found`` are the tokens that the provider would still find in its cache if this page were the first to go; less
    than ``before`` where it finds only what ends at a cache mark, -1 where that makes no difference.
    """

    handle: str
    kind: str
    size: int
    tokens: int
    stub_tokens: int
    position: int
    before: int
    after: int
    age: int
    idle: int
    uses: int
    faults: int
    superseded: bool
    pinned: bool
    cached: bool
    resident: bool
    tool: str = ""
    tool_pages: int = 0
    tool_reused: int = 0
    usual: float = 1.0
    found: int = -1

    @property
    def evictable(self) -> bool:
        """Whether the rules allow to evict it, and there is anything to gain."""
        return self.resident and not self.pinned and self.tokens > self.stub_tokens


@dataclass(frozen=True, slots=True)
class View:
    """A branch at one call, in numbers.

    ``facts`` are names of what happened since the last decision, such as ``fault`` or ``client_rewrote_history``.
    ``colds`` counts the calls so far that found the cache cold; ``saved`` and ``spent`` are what paging has saved and
    cost the session so far, in units of one uncached input token; ``credit`` is what it may spend beyond that by now,
    from its user's account. Before ``tool_added`` a repack changes the prompt
    from its very beginning. ``to_go`` are the calls that sessions like this one still had at this length, None where
    nothing is known of such sessions.
    """

    call: int
    prices: Prices
    warm: bool
    window: int
    reserve: int
    tokens: int
    pages: Sequence[PageView] = ()
    facts: Sequence[str] = ()
    colds: int = 0
    saved: float = 0.0
    spent: float = 0.0
    tool_added: bool = False
    to_go: float | None = None
    credit: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The pages to evict (by handle), and why.

    ``cut`` is the position of the page at which the change of the prompt begins, or, with nothing to evict, at which a
    later one is likely to begin: a cache mark is set before it. ``urgent``: the pages must go at this call, though at
    the next they might go for less.
    """

    evict: tuple[str, ...] = ()
    cut: int | None = None
    reason: str = ""
    urgent: bool = False


class Weighed(NamedTuple):
    """What a policy made of one page, in units of one uncached input token.

    ``chance`` is how likely it is needed again while the decision counts, ``saving`` what evicting it would save until
    then, ``fault`` what being asked for it would cost, ``worth`` what evicting it is expected to bring; ``goes`` says
    whether it was evicted.
    """

    page: PageView
    goes: bool
    chance: float
    saving: float
    fault: float
    worth: float


class Policy(Protocol):
    """Proposes what to evict."""

    def choose(self, view: View) -> Decision:
        """The pages that should go now."""
