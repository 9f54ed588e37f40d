"""When a prompt leaves the provider's cache, and what its session's next call costs more from then on.

A call that finds N cached tokens pays ``read`` for each of them. Once they are gone it pays ``write`` for what is left
of them, M, as a return to a cold cache is also the moment at which the policy evicts for nothing:

    costs more = write M - read N

Nothing here reads a clock: the moment of the latest request is passed in.
"""

from dataclasses import dataclass

from pager.paging import planner
from pager.paging.pages.page_table import PageTable
from pager.paging.planner import Terms
from pager.paging.policy import Policy
from pager.paging.warmth.returns import WaitsFor
from pager.pricing.mark_cache import FIVE_MINUTES, HOUR
from pager.pricing.prices import Prices
from pager.request_values import Usage


@dataclass(frozen=True, slots=True)
class CachedPrompt:
    """What the provider has of a branch's latest prompt."""

    read_at: float  # the start of the latest request that wrote or read it, in seconds since 1970
    tokens: int
    lifetime: float  # seconds from ``read_at`` on
    prices: Prices
    freed: int = 0  # tokens that would be evicted for nothing at a return to a cold cache


@dataclass(frozen=True, slots=True)
class Warmth:
    """The state of a cached prompt; money is in units of one uncached input token."""

    cold_at: float | None = None  # None where nothing is cached
    costs_more: float = 0.0  # that the next call costs more once it is cold


def warmth(prompt: CachedPrompt) -> Warmth:
    """When a prompt is dropped, and what the next call costs more then; never less than nothing."""
    prices = prompt.prices
    if prompt.tokens <= 0 or prompt.lifetime <= 0 or prices.read >= prices.write:
        return Warmth()
    left = max(0, prompt.tokens - prompt.freed)
    cold = prices.factors(left)[0] * prices.write * left
    warm = prices.factors(prompt.tokens)[0] * prices.read * prompt.tokens
    return Warmth(prompt.read_at + prompt.lifetime, max(0.0, cold - warm))


def cached_prompt(
    usage: Usage, prices: Prices, read_at: float, *, by_marks: bool, least: int = 0, held: float = 0.0
) -> CachedPrompt:
    """What the provider has cached after an answer with this usage.

    ``by_marks``: only what it says that it read or wrote; else the whole prompt, from ``least`` tokens on. A lifetime
    that the usage names stands over the documented one; ``held`` is the longest pause that a prompt has outlived.
    """
    tokens = usage.cached + usage.written if by_marks else usage.input
    lifetime = prices.ttl_seconds
    if usage.written_5m or usage.written_1h:
        lifetime = max(held, FIVE_MINUTES if usage.written_5m else HOUR)
    return CachedPrompt(read_at, tokens if tokens >= least else 0, lifetime, prices)


def freed_when_cold(policy: Policy, table: PageTable, outside: int, terms: Terms) -> int:
    """The tokens that the policy would evict for nothing if the branch went on with a cold cache."""
    if table.stopped:
        return 0
    resting = planner.resting(policy, table, outside, terms, WaitsFor.USER)
    return resting.tokens - resting.packed
