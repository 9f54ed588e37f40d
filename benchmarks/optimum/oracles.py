"""What could be done by those who know the future: rows that stand in a comparison beside those of real policies."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.optimum.best import of_recording, unpaged
from benchmarks.optimum.foresight import Belady, Greedy
from instrumentation.accounting.billing import Charged
from instrumentation.replay.knowing import Knowing
from instrumentation.replay.player import Outcome, Player
from instrumentation.replay.prepared import Prepared
from instrumentation.replay.recording import Future
from pager.paging.policy import Policy
from pager.pricing.rates import Models

KNOWING = "knowing"
"""The default policy's own plan with the truth in place of its estimates."""

FORESIGHT = "foresight"
"""A greedy plan that knows the future and need not be thrifty."""

BELADY = "belady"
"""Keeps what is needed soonest, up to a fixed size; the best there is where nothing has a price but a fault."""

OPTIMUM = "optimum"
"""The cheapest schedule that was found for the whole session at once."""

BOUND = "bound"
"""What every schedule costs at least: no policy can do better."""

IDEAL = "ideal"
"""What would be left if every page stood only in the calls that need it, and nothing else had a price."""

Oracle = Callable[[Prepared, Models], Sequence[Outcome]]
_Seer = Callable[[Future, Mapping[str, Sequence[str]]], Policy]


def _plays(name: str, seer: _Seer) -> Oracle:
    """An oracle that plays a session as a policy does, call by call, but with knowledge of its future."""

    def outcomes(prepared: Prepared, models: Models) -> Sequence[Outcome]:
        futures = prepared.futures(models)
        player = Player(prepared, lambda branch: seer(futures[branch], player.brought), models)
        player.play()
        return [player.outcome(name)]

    return outcomes


def _optimum(prepared: Prepared, models: Models) -> Sequence[Outcome]:
    """What the session costs under the best schedule that was found, at least, and in the ideal.

    They are reckoned as if the provider found any prefix again, which is never dearer than finding those at marks,
    without the calls at which no policy is asked, and a branch that forks is taken to begin cold; so it is what they
    save that is told of the session, of whose tools the same is sent as in every play.
    """
    by_prefix = prepared.finding_any_prefix()
    found, before = of_recording(by_prefix, models), unpaged(prepared, models)
    named = ((OPTIMUM, found.reached), (BOUND, found.bound), (IDEAL, found.ideal))
    return [Outcome(name, Charged(max(0.0, before - (found.untouched - cost)))) for name, cost in named]


ORACLES: Mapping[str, Oracle] = {
    KNOWING: _plays(KNOWING, Knowing),
    FORESIGHT: _plays(FORESIGHT, Greedy),
    BELADY: _plays(BELADY, lambda future, brought: Belady(future, brought=brought)),
    OPTIMUM: _optimum,
}
"""By the name that asks for them."""
