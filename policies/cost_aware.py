"""Evicts only when it pays: prices every page and every cut, and never spends what it has not saved.

Money is counted in units of one uncached input token. A page of ``s`` tokens that is not in the prompt saves reading it
on every call to come; if the model asks for it again, that costs a request, and writing the page. Where the provider
still holds the prompt, evicting also costs writing again all that stands after the first page that goes, so pages are
weighed from the end of the prompt towards its beginning, and the cut with the greatest net wins.

Two things make this less simple than it looks. A prompt whose cache has gone cold is written anew in any case, so that
evicting is free then: a repack in between only has to pay until the next such moment comes. And nobody knows how long a
session lasts: it is taken to go on for twice the calls it has had.
"""

from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING

from pager.errors import PolicyError
from pager.policy import Decision, PageView, View

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ASKING = 40  # tokens in which a model asks for a page
TOOL = 150  # tokens of the tool that brings pages back


@dataclass(frozen=True, slots=True)
class CostAware:
    """The default policy.

    ``reuse`` is the chance that a page just used is needed again; it falls to a half after ``half_life`` calls without
    use. A session is taken to last ``horizon`` times the calls that it has had, the next cold cache to come after
    ``patience`` times the calls that there were between such moments so far. A repack must bring at least ``margin`` of
    the prompt's tokens. What repacks and faults have cost never runs ahead of what they saved: a repack of a warm
    prompt is paid from what was saved before, and one of a cold prompt must save, within ``soon`` calls and with what
    was saved before, ``cover`` times what a fault costs.
    """

    reuse: float = 0.2
    half_life: float = 8.0
    horizon: float = 2.0
    patience: float = 0.7
    margin: float = 0.2
    soon: int = 8
    cover: float = 1.3

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
                raise PolicyError(f"policy 'cost_aware': {name} must be a number of at least 0, not {value!r}")

    def choose(self, view: View) -> Decision:
        """The cut with the greatest net, if it pays by the margin and can be paid for."""
        worth_it = [page for page in view.pages if page.tokens > 1.5 * page.stub_tokens and page.evictable]
        pages = sorted(worth_it, key=attrgetter("position"))
        plan = _Plan(self, view, pages)
        chosen = plan.best() if pages else []
        if not chosen:
            return Decision(reason=f"none of {len(pages)} pages that could go pays for itself")
        net, price = plan.net, plan.price
        told = f"{len(chosen)} of {len(view.pages)} pages: net {net:.0f}, price {price:.0f}"
        if net < self.margin * view.tokens:
            return Decision(reason=f"{told}; less than {self.margin:g} of {view.tokens} tokens")
        if not plan.is_covered():
            return Decision(reason=f"{told}; not covered by {view.saved - view.spent:.0f} saved so far")
        return Decision(tuple(page.handle for page in chosen), chosen[0].position, told)


class _Plan:
    """The pages of one view, from the end of the prompt to its beginning, with what each is worth."""

    def __init__(self, rule: CostAware, view: View, pages: list[PageView]) -> None:
        self._rule = rule
        self._view = view
        self._pages = pages[::-1]
        self.net = self.price = 0.0
        self._freed = self._largest = 0.0

    def best(self) -> list[PageView]:
        """The pages behind the best cut, in the order of the prompt; none if no cut pays."""
        import numpy as np  # only those who use this policy pay for the import

        size = self._column("tokens")
        frees = size - self._column("stub_tokens")
        worth = self._worth(size, frees)
        good = np.flatnonzero(worth > 0)
        if not good.size:
            return []
        freed = np.cumsum(frees[good])
        price = self._prices((size + self._column("after"))[good], freed)
        net = np.cumsum(worth[good]) - price
        at = int(net.argmax())
        self.net, self.price, self._freed = float(net[at]), float(price[at]), float(freed[at])
        self._largest = float(size[good[: at + 1]].max())
        return [self._pages[i] for i in good[at::-1]] if self.net > 0 else []

    def is_covered(self) -> bool:
        """Whether what was saved so far pays for a warm repack, or a cold one soon brings what a fault would cost."""
        rule, view, prices = self._rule, self._view, self._view.prices
        fund = view.saved - view.spent
        if view.warm:
            return self.price <= fund
        calls = min(rule.soon, self._horizon)
        brings = self._freed * (prices.write + prices.read * (calls - 1)) - (
            0 if view.tool_added else TOOL * prices.write
        )
        fault = prices.read * view.tokens + prices.write * self._largest + prices.output * ASKING
        return brings + max(0.0, fund) >= rule.cover * fault

    @property
    def _horizon(self) -> float:
        """The calls that the session is taken to go on for."""
        return max(1.0, self._rule.horizon * self._view.call)

    @property
    def _until_cold(self) -> float:
        """The calls until the cache will be cold again; a warm repack is worth nothing beyond."""
        view = self._view
        return min(self._horizon, max(1.0, self._rule.patience * (view.call + 8) / (view.colds + 0.5)))

    def _column(self, name: str) -> "NDArray[np.float64]":
        """One number of each page."""
        import numpy as np

        return np.fromiter(map(attrgetter(name), self._pages), float, len(self._pages))

    def _worth(self, size: "NDArray[np.float64]", frees: "NDArray[np.float64]") -> "NDArray[np.float64]":
        """What evicting each page saves, less what being asked for it again would cost."""
        view, prices, horizon = self._view, self._view.prices, self._horizon
        calls = self._until_cold if view.warm else horizon
        first = prices.read if view.warm else prices.write
        saving = frees * (first + prices.read * (calls - 1))
        asking = prices.read * view.tokens + prices.output * ASKING
        fault = asking + prices.write * size + prices.read * size * horizon / 2
        # A fault that comes only after the next cold moment would have come without this repack, too.
        share = min(1.0, calls / horizon + 0.3) if view.warm else 1.0
        worth: NDArray[np.float64] = saving - self._chances() * fault * share
        return worth

    def _chances(self) -> "NDArray[np.float64]":
        """How likely each page is needed again: by how long it was not, and by what its tool's pages did."""
        import numpy as np

        rule, column = self._rule, self._column
        chance = rule.reuse / (1 + column("idle") / (rule.half_life or inf))
        chance *= np.where([page.kind == "argument" for page in self._pages], 1.1, 1.0)
        chance *= np.where(column("uses") >= 2, 1.3, 1.0)
        chance *= np.where(column("faults"), 2.0, 1.0)
        chance *= np.where(column("superseded"), 0.5, 1.0)
        usual = (column("tool_reused") + 2) / (0.2 * column("tool_pages") + 2)
        chances: NDArray[np.float64] = np.minimum(0.95, chance * np.clip(usual, 0.3, 3.0))
        return chances

    def _prices(self, behind: "NDArray[np.float64]", freed: "NDArray[np.float64]") -> "NDArray[np.float64]":
        """What each cut costs: writing again what is kept behind it, all where the tool is yet to be added."""
        import numpy as np

        view, prices = self._view, self._view.prices
        kept = (behind if view.tool_added else view.tokens) - freed
        again = (prices.write - prices.read) * np.maximum(kept, 0.0) if view.warm else np.zeros(len(freed))
        return again if view.tool_added else again + TOOL * (prices.write + prices.read * self._horizon)
