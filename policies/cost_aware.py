"""Evicts only when it pays: prices every page and every cut, and spends what was saved, or what a user can spare.

Money is counted in units of one uncached input token. A page of ``s`` tokens that is not in the prompt saves reading it
on every call until it is needed; if the model asks for it again, that costs a request, and writing the page. Where the
provider still holds the prompt, evicting also costs writing again all that stands after the first page that goes, so
pages are weighed from the end of the prompt towards its beginning, and the cut with the greatest net wins.

How likely a page is needed again follows a plain law that held on every kind of recorded session: the chance that the
next call needs it falls with the calls since it was last used, as one over their number, and grows with its size, as
there is more in it to be needed.

How long a decision counts differs. A prompt whose cache has gone cold is written anew in any case, so that evicting is
free then: a repack in between only has to pay until the next such moment comes. Where nothing is cached at all, every
call is such a moment, and a page is weighed for that call alone. And nobody knows how long a session lasts: unless
other sessions have taught better, it is taken to go on for twice the calls it has had.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pager.errors import PolicyError
from pager.paging.pages.page_arrays import columns, handles
from pager.paging.policy import (
    ASKING,
    TOOL,
    Decision,
    View,
    Weighed,
)
from pager.paging.priors import GROWTH, SIZE, STRENGTH

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pager.paging.pages.page_arrays import Flags, Numbers

    Places = NDArray[np.intp]

ROOM = 0.8  # the share of the limit that is left filled, so that not every later call is above it again


@dataclass(frozen=True, slots=True)
class CostAware:
    """The default policy.

    ``reuse`` is the chance that a page of 1,300 tokens that was used at the last call is needed at the next; it falls
    as one over the calls since, and grows with the page's size to the power of ``growth``. A session is taken to last
    ``horizon`` times the calls that it has had, the next cold cache to come after ``patience`` times the calls that
    there were between such moments so far. A repack of a prompt that is cached must bring at least ``margin`` of the
    prompt's tokens. One of a warm prompt costs at most what paging has saved the session so far, less all that its
    repacks and faults have cost; with a credit from the user's account it may cost more, if it is expected to bring
    ``on_credit`` times its price. One of a cold prompt must, with what was saved, save ``cover`` times what a fault
    costs within ``soon`` calls. Whatever it costs, a prompt above ``limit`` tokens is cut below it.
    """

    reuse: float = STRENGTH
    growth: float = GROWTH
    horizon: float = 2.0
    patience: float = 1.0
    margin: float = 0.05
    soon: int = 12
    cover: float = 1.0
    on_credit: float = 9.0
    limit: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
                raise PolicyError(f"policy 'cost_aware': {name} must be a number of at least 0, not {value!r}")

    def choose(self, view: View) -> Decision:
        """The cut with the greatest net, if it pays by the margin and can be paid for; or what the limit demands."""
        return WeighedPages(self, view).decide()

    def explain(self, view: View) -> Sequence[Weighed]:
        """What each page was weighed at, in the order of the prompt."""
        return WeighedPages(self, view).weighed(frozenset(self.choose(view).evict))


class Below(NamedTuple):
    """What each cut saves by the step in prices: now, and in the calls that follow."""

    now: "Numbers"
    later: "Numbers"


class WeighedPages:
    """The pages of one view, with what each is worth; pages are told by their positions."""

    def __init__(self, rule: CostAware, view: View) -> None:
        self._rule, self._view = rule, view
        self._it = it = columns(view.pages)
        self._caches = view.prices.read < view.prices.write
        self._left = max(1.0, rule.horizon * view.call if view.to_go is None else view.to_go)
        self._frees = it.tokens - it.stub_tokens
        self.may_go: Flags = it.evictable
        self._dearer = view.prices.factors(view.tokens)[0]
        self._fault = self._dearer * (self._asking + (view.prices.write - view.prices.read) * it.tokens)

    def decide(self) -> Decision:
        """What goes, and why."""
        if not self.may_go.any():
            return Decision(reason="no page may go")
        chosen, cut, reason = self.best()
        rule, view = self._rule, self._view
        above = rule.limit > 0 and view.tokens - self.freed(chosen) > rule.limit
        if above:
            chosen, reason = self.cut_down(chosen)
        if not chosen.size:
            return Decision(cut=cut, reason=reason)
        return Decision(handles(view.pages, chosen.tolist()), int(chosen[0]), reason, urgent=above)

    def best(self) -> tuple["Places", int | None, str]:
        """The pages behind the best cut, in the order of the prompt, its position, and why.

        There are no pages if no cut pays or can be paid, and no position either if none pays.
        """
        rule, view = self._rule, self._view
        worth = self.worth()
        good = np.flatnonzero(self.may_go & (worth > 0))[::-1]
        if not good.size:
            return good, None, f"none of {int(self.may_go.sum())} pages that could go pays for itself"
        freed = np.cumsum(self._frees[good])
        price, below = self._prices(good, freed), self._below(freed)
        net = np.cumsum(worth[good]) + below.later + below.now - price
        at = int(net.argmax())
        chosen, cut = good[at::-1], int(good[at])
        told = f"{at + 1} of {len(worth)} pages: net {net[at]:.0f}, price {price[at]:.0f}"
        if net[at] <= 0:
            return chosen[:0], None, f"{told}; does not pay"
        if self._caches and net[at] < rule.margin * self._dearer * view.tokens:
            return chosen[:0], cut, f"{told}; less than {rule.margin:g} of {view.tokens} tokens"
        if not self._is_covered(
            float(price[at] - below.now[at]), float(net[at]), float(freed[at]), float(self._fault[chosen].max())
        ):
            lent = f", nor by {view.credit:.0f} of credit" if view.warm and view.credit else ""
            return chosen[:0], cut, f"{told}; not covered by {view.saved - view.spent:.0f} saved so far{lent}"
        return chosen, cut, told

    def cut_down(self, chosen: "Places") -> tuple["Places", str]:
        """These pages, and with them those that are worth most for their size, until the prompt is below the limit."""
        rule, view = self._rule, self._view
        others = self.may_go.copy()
        others[chosen] = False
        rest = np.flatnonzero(others)
        rest = rest[np.argsort(-(self.worth()[rest] / self._frees[rest]), kind="stable")]
        missing = view.tokens - self.freed(chosen) - ROOM * rule.limit
        enough = int(np.searchsorted(np.cumsum(self._frees[rest]), missing)) + 1
        gone = np.sort(np.concatenate([chosen, rest[:enough]]))
        return gone, f"{len(gone)} of {len(others)} pages: {view.tokens} tokens are above the limit of {rule.limit}"

    def freed(self, chosen: "Places") -> float:
        """The tokens that the prompt is shorter without these pages."""
        return float(self._frees[chosen].sum())

    def weighed(self, gone: frozenset[str]) -> list[Weighed]:
        """Every page with its numbers."""
        chance, saving, worth = self.chance(), self.saving(), self.worth()
        return [
            Weighed(page, page.handle in gone, *map(float, (chance[at], saving[at], self._fault[at], worth[at])))
            for at, page in enumerate(self._view.pages)
        ]

    @property
    def _asking(self) -> float:
        """What it costs to be asked for anything at all."""
        view, prices = self._view, self._view.prices
        return prices.read * view.tokens + prices.output * ASKING

    @property
    def span(self) -> float:
        """The calls for which a decision counts: until it can be taken again for nothing, or to the end."""
        if not self._caches:
            return 1.0
        if not self._view.warm:
            return self._left
        between = (self._view.call + 8) / (self._view.colds + 0.5)
        return min(self._left, max(1.0, self._rule.patience * between))

    @cached_property
    def _strength(self) -> "Numbers":
        """How much a page is in demand: the chance that it is needed a call after its use."""
        it, rule = self._it, self._rule
        strength = rule.reuse * it.usual * (np.maximum(it.tokens, 1.0) / SIZE) ** rule.growth
        strength = strength * np.where(it.faults, 1.5, 1.0) * np.where(it.superseded, 0.5, 1.0)
        return np.minimum(strength, 0.95)

    def chance(self) -> "Numbers":
        """How likely each page is needed within the span: a chance of strength / n in the n-th call after its use."""
        idle = np.maximum(self._it.idle, 1.0)
        chance: Numbers = 1 - (idle / (idle + self.span)) ** self._strength
        return chance

    def saving(self) -> "Numbers":
        """What evicting each page saves until it is needed or the span is over."""
        prices, idle, wanes = self._view.prices, np.maximum(self._it.idle, 1.0), 1 - self._strength
        calls = idle / wanes * ((1 + (self.span - 1) / idle) ** wanes - 1)
        return self._dearer * self._frees * ((prices.read if self._view.warm else prices.write) + prices.read * calls)

    def worth(self) -> "Numbers":
        """What evicting each page is expected to bring, where that costs nothing by itself."""
        return self.saving() - self.chance() * self._fault

    def _prices(self, good: "Places", freed: "Numbers") -> "Numbers":
        """What each cut costs: writing again what is kept behind it, all where the tool is yet to be added."""
        view, prices, it = self._view, self._view.prices, self._it
        if view.tool_added:
            behind, tool = (it.tokens + it.after + it.before - it.found)[good], 0.0
        else:
            behind = np.full(len(good), float(view.tokens))
            tool = TOOL * (prices.write + prices.read * (self._left if self._caches else 0.0))
        again = (prices.write - prices.read) * np.maximum(behind - freed, 0.0) if view.warm else 0.0 * behind
        return np.where(self._room(freed) >= 0, 1.0, self._dearer) * again + tool

    def _room(self, freed: "Numbers") -> "Numbers":
        """The tokens by which the prompt is below the step in prices once so many are freed; endless without a step."""
        step = self._view.prices.step_tokens
        return step - self._view.tokens + freed if step else np.full_like(freed, inf)

    def _below(self, freed: "Numbers") -> "Below":
        """What it saves that the prompt is below the step in prices: in this call, and for as long as it stays there.

        It is taken to grow as it did so far. Of what is freed itself ``saving`` has reckoned already.
        """
        view, prices, room = self._view, self._view.prices, self._room(freed)
        if not prices.step_tokens:
            return Below(np.zeros_like(freed), np.zeros_like(freed))
        grows, more = max(1.0, view.tokens / max(1, view.call)), prices.step_factor - 1
        later, anyway = (np.clip(left / grows, 0.0, self.span - 1) for left in (room, room - freed))
        prompt = prices.step_tokens - np.minimum(freed, np.maximum(room, 0.0)) / 2
        drops = (room >= 0) & (room < freed)
        now = more * (prices.read if view.warm else prices.write) * np.where(drops, view.tokens - freed, 0.0)
        return Below(now, more * prices.read * prompt * (later - anyway))

    def _is_covered(self, price: float, net: float, freed: float, fault: float) -> bool:
        """Whether a repack can be paid.

        A warm one by what was saved so far, or with the user's credit if it brings a multiple of its price; a cold one
        if it soon brings what a fault would cost.
        """
        rule, view, prices = self._rule, self._view, self._view.prices
        fund = view.saved - view.spent
        if view.warm:
            return price <= fund or (price <= fund + view.credit and net >= rule.on_credit * price)
        calls = min(rule.soon, max(1.0, view.call / 2))  # a session that has just begun may be over soon
        brings = freed * (prices.write + prices.read * (calls - 1)) - (0 if view.tool_added else TOOL * prices.write)
        return self._dearer * brings + fund >= rule.cover * fault
