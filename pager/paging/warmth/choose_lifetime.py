"""Chooses for how long a prompt is cached at marks that name no lifetime: the five minutes that they get, or an hour.

An hour costs more to write, and spares writing the prompt again after each pause between the two. With N tokens in the
prompt, T calls to come of which each adds some tokens, and the prices of writing w5 and w60, an hour costs

    (w60 - w5) (N + T (added + long N))

more, where ``long`` is the chance at each call of a pause that outlives an hour as well. It saves

    T middling stake

where ``middling`` is the chance of a pause between the two, and the stake what a return to a warm cache saves against
one to a cold cache, by which the prompt is repacked (``pager.paging.warmth.keep_warm``). Chances begin with those of
recorded sessions and go over to the session's own.

On recorded sessions five minutes with eviction cost less than an hour, or at the latest prices about as much, and where
prompts are kept warm less at all prices (``docs/keep_warm.md``); so an hour is asked for only on the evidence of the
session's own pauses. Nothing here reads a clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pager.paging.pages.page_table import PageTable
from pager.pricing.mark_cache import FIVE_MINUTES, HOUR
from pager.pricing.prices import Prices

LifetimeRule = Literal["auto", "5m", "1h"]
"""How it is chosen: by price, or never or always an hour."""


class CacheMembers(NamedTuple):
    """Which members of ours choose a cache, in the formats that have them."""

    key: bool = False  # prompt_cache_key, one for each conversation
    retention: str = ""  # prompt_cache_retention, empty for none


NO_MEMBERS = CacheMembers()


MIDDLING, LONG = 0.031, 0.0034
"""The chances of a pause of five minutes to an hour at each call, and of a longer one.

Counted on every second of 284 recorded sessions of a coding agent: 134 of at least five calls, 8,928 calls in all,
with 278 and 30 such pauses.
"""

WEIGHT = 30
"""Calls of the session itself that count as much as these chances."""

ADDED = 1_500
"""Tokens that a call adds to a prompt, on the same sessions."""

LEFT = 0.75
"""The share of a prompt that is left where it is repacked in a cold cache, for the calls until it is cold again."""

DARES = 4.0
"""By what factor an hour must be expected to save more than it costs.

High, because of what the formula can't see: a session that has paused pauses less often afterwards than it did, and a
return to a cold cache is when paging saves most. On a quarter of the recorded sessions, on which it was chosen among
eight values and combinations tried, a factor of 1.2 lost 1 to 3 % of the bill against five minutes, and 4 at most
0.4 %. On another quarter, played once, 4 lost nothing and saved up to 0.9 %.
"""


@dataclass(frozen=True, slots=True)
class PauseOutlook:
    """A branch whose whole prompt is about to be written, in numbers."""

    tokens: int  # of the prompt
    to_go: float  # calls that are expected to come
    gaps: Sequence[float]  # the seconds between its calls so far
    prices: Prices  # those of five minutes

    def chance(self, longer: float, upto: float, usual: float) -> float:
        """The chance at each call of a pause between these seconds, where ``usual`` is that of other sessions."""
        seen = sum(longer < gap <= upto for gap in self.gaps)
        return (seen + WEIGHT * usual) / (len(self.gaps) + WEIGHT)


def saves_by_an_hour(outlook: PauseOutlook) -> bool:
    """Whether an hour is expected to cost less than five minutes; never where it is not offered."""
    prices, to_go = outlook.prices, max(0.0, outlook.to_go)
    if prices.read >= prices.write or prices.write_long <= prices.write or prices.ttl_seconds >= HOUR:
        return False
    middling = outlook.chance(FIVE_MINUTES, HOUR, MIDDLING)
    long = outlook.chance(HOUR, float("inf"), LONG)
    tokens = outlook.tokens + ADDED * to_go / 2
    until_cold = min(to_go, 1 / (middling + long))
    stake = tokens * (LEFT * (prices.write + until_cold * prices.read) - (1 + until_cold) * prices.read)
    extra = (prices.write_long - prices.write) * (outlook.tokens + to_go * (ADDED + long * tokens))
    return to_go * middling * stake > DARES * extra


def chosen(rule: LifetimeRule, table: PageTable, prices: Prices, to_go: float | None, *, kept_warm: bool) -> float:
    """The lifetime that marks which name none should ask for, in seconds; 0 for the five minutes that they get anyway.

    ``table`` is that of a branch whose whole prompt is about to be written, ``to_go`` None where nothing is known.
    Sub-agents do not pause.
    """
    if rule != "auto":
        return HOUR if rule == "1h" else 0.0
    if kept_warm or table.is_side:
        return 0.0
    outlook = PauseOutlook(table.prompt, 2.0 * table.call if to_go is None else to_go, table.gaps, prices)
    return HOUR if saves_by_an_hour(outlook) else 0.0
