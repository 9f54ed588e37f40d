"""What a request cost, by the tokens that its provider reported."""

from typing import NamedTuple

from pager.pricing.prices import Prices
from pager.pricing.rates import Models
from pager.values import Usage

MILLION = 1_000_000


class UsageCost(NamedTuple):
    """A cost in units of one uncached input token of its model; in dollars, too, where that token's price is known."""

    units: float = 0.0
    dollars: float | None = 0.0

    def plus(self, other: "UsageCost") -> "UsageCost":
        """The sum of both; in dollars only where both are known."""
        known = self.dollars is not None and other.dollars is not None
        return UsageCost(self.units + other.units, (self.dollars or 0.0) + (other.dollars or 0.0) if known else None)


def units(usage: Usage, prices: Prices) -> float:
    """What these tokens cost, in units of one uncached input token.

    Cached and written tokens are parts of the input; what is neither is plain input. A provider that counts both for
    the same token can't make plain input less than none. What was written for an hour has its own price. A long prompt
    may cost more for all of its tokens.
    """
    prompt, answer = prices.factors(usage.input)
    plain = max(0, usage.input - usage.cached - usage.written)
    long = min(usage.written_1h, usage.written)
    written = prices.write * (usage.written - long) + prices.write_long * long
    return prompt * (prices.read * usage.cached + written + plain) + answer * prices.output * usage.output


def priced_as(models: Models, asked: str, served: str = "") -> str:
    """The model whose prices a request has: the one asked for, or the one that answered where that is not known."""
    return asked if models.find(asked).known or not served else served


def cost(usage: Usage, models: Models, asked: str, served: str = "") -> UsageCost:
    """What a request cost that asked for a model, where the provider said that ``served`` has answered."""
    name = priced_as(models, asked, served)
    counted = units(usage, models.prices(name))
    price = models.find(name).input
    return UsageCost(counted, counted * price / MILLION if price else None)
