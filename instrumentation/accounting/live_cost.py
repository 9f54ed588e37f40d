"""Puts calls into money for those who watch the proxy: each as it ends, and all of them when it is stopped."""

from collections.abc import Callable

from instrumentation.accounting.billing import cost
from pager.errors import PagerError
from pager.log.store import Store
from pager.pricing.rates import Models
from pager.values import Usage


def price(models: Models) -> Callable[[str, Usage], float | None]:
    """What tokens cost at a model of some name, in US dollars; None where its price is not known."""
    return lambda model, usage: cost(usage, models, model).dollars


def summary(open_log: Callable[[], Store], models: Models, since: float) -> str:
    """What calls since a time came to, as the log has them, or why that can't be said."""
    from instrumentation.reports import gather
    from instrumentation.reports import report as report_words  # needed once, when the proxy ends
    from pager.wire.dialects import load as load_dialect

    try:
        store = open_log()
        try:
            return report_words.summary(gather.gather(store, gather.Wanted(since=since), models, load_dialect))
        finally:
            store.close()
    except PagerError as error:
        return f"ctxpager: {error}"
