"""Rows of a comparison that know the future, beside those of real policies."""

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.optimum.best import of_recording, unpaged
from benchmarks.optimum.foresight import Belady, Greedy
from instrumentation.accounting.billing import Charged
from instrumentation.replay.compare import Contender
from instrumentation.replay.knowing_policy import KNOWING, play_with_future
from instrumentation.replay.player import PolicyOutcome
from instrumentation.replay.prepared_recording import Prepared
from instrumentation.replay.recording import Future
from pager.pricing.rates import Models

FORESIGHT = "foresight"
"""A greedy plan that knows the future and need not be thrifty."""

BELADY = "belady"
"""Keeps what is needed soonest, up to a fixed size; the best there is where nothing has a price but a fault."""

OPTIMUM = "optimum"
"""The cheapest schedule that was found for the whole session at once."""

BOUND = "bound"
"""What every schedule costs at least: no policy can do better."""

IDEAL = "ideal"
"""What would be left if every page were only in the calls that need it, and nothing else had a price."""


def _belady(future: Future, brought: Mapping[str, Sequence[str]]) -> Belady:
    return Belady(future, brought=brought)


def _optimum(prepared: Prepared, models: Models) -> Sequence[PolicyOutcome]:
    """The cost of the session under the best schedule found, its lower bound, and the ideal.

    They are computed as if the provider found any prefix again, which never costs more than finding those at marks,
    without the calls at which no policy is asked, and with a cold start for every branch that forks. So the saving is
    taken off the session's own cost; tools are sent in the forms that every play sends.
    """
    by_prefix = prepared.finding_any_prefix()
    found, before = of_recording(by_prefix, models), unpaged(prepared, models)
    named = ((OPTIMUM, found.reached), (BOUND, found.bound), (IDEAL, found.ideal))
    return [PolicyOutcome(name, Charged(max(0.0, before - (found.untouched - cost)))) for name, cost in named]


ORACLES = (
    Contender(KNOWING),
    Contender(FORESIGHT, oracle=partial(play_with_future, FORESIGHT, Greedy)),
    Contender(BELADY, oracle=partial(play_with_future, BELADY, _belady)),
    Contender(OPTIMUM, oracle=_optimum),
)
