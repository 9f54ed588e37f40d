"""What the two sessions of the demo cost, by the ledger."""

from instrumentation.reports import gather
from pager.log.store import Store
from pager.pricing.rates import Models, in_force
from pager.testing.demo import (
    WITH,
    WITHOUT,
    Cost,
    DemoOutcome,
)
from pager.wire.dialects import load as load_dialect


def weigh(store: Store, model: str) -> DemoOutcome:
    """Both sessions of the demo's log, whose calls asked for this model."""
    models = in_force("", {})
    known, prices = models.find(model), models.prices(model)
    words = (
        f"{model} at its list price of ${known.input:g} a million tokens: {prices.read:g} of that for cached ones, "
        f"{prices.write:g} for those written to the cache, where they live {prices.ttl_seconds / 60:.0f} minutes. "
        "With other lifetimes and prices more or less is saved."
    )
    return DemoOutcome(_cost(store, WITHOUT, models), _cost(store, WITH, models), words)


def _cost(store: Store, key: str, models: Models) -> Cost:
    found = gather.gather(store, gather.Wanted(key), models, load_dialect)
    return Cost(found.ledger.total.sums.dollars, found.stories[0].calls[-1].input)
