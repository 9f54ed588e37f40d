"""The confidence interval of the ratio of two groups' costs or counts per call, with sessions assigned at random.

A session is one draw: its calls share a task, a model and a prompt, so they are not independent of each other. The
cost per call of a group is the sum of its sessions' costs over the sum of their calls, and two groups are compared by
the logarithm of the ratio of both. Its uncertainty is found by drawing sessions again, with replacement, many times.

Costs have long tails: some sessions cost a hundred times what others do, and a group that missed them looks both cheap
and sure of it. So what is drawn is not the ratio but how many of its own standard errors each draw is off, and the
interval is as many standard errors wide as 95 % of the draws stay within. Where the tails are long, that is wider than
the plain percentiles of the draws, which then hold the truth far less often than they claim.

Counts of what happens rarely may be 0 in a group, which has no logarithm. There the difference of both rates is drawn,
and the interval holds every ratio by which the rates may differ within as many standard errors (Fieller's theorem). It
has no upper end where the control's rate may be 0.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

DRAWS = 2_000
CONFIDENCE = 0.95
SEED = 2_718
"""The same log gives the same report."""

FEWEST = 8
"""Sessions that each group must have before a result is given."""

FEWEST_WITH = 4
"""Sessions with any of what is counted that each group must be expected to have: with fewer, chance alone would leave a
group without any in more than 1 of 40 cases."""

POWER = 0.84
"""Standard errors that a normal stays above with a chance of 80 %: how likely a difference that is there is seen."""

_AT_ONCE = 4_000_000  # cells of a matrix of draws that are in memory at a time


class Group(NamedTuple):
    """The sessions of one group: what each cost, and its calls; or how often something happened, and of how many."""

    costs: "Numbers"
    calls: "Numbers"


class Ratio(NamedTuple):
    """One group's cost per call as a multiple of another's, with the interval that should hold the truth.

    ``error`` is the standard error of its logarithm.
    """

    ratio: float
    low: float
    high: float
    error: float

    @property
    def is_significant(self) -> bool:
        """Whether the two groups differ beyond chance."""
        return not self.low <= 1.0 <= self.high


class RateRatio(NamedTuple):
    """One group's rate as a multiple of another's, with the interval that should hold the truth; it may be infinite."""

    ratio: float
    low: float
    high: float


def group(sessions: "list[tuple[float, int]]") -> Group:
    """A group of sessions, each with its cost and its calls."""
    return Group(np.array([cost for cost, _ in sessions], float), np.array([calls for _, calls in sessions], float))


def ratio(treated: Group, control: Group, seed: int = SEED) -> Ratio:
    """The first group's cost per call over the second's; both must have two sessions and cost something."""
    generator = np.random.default_rng(seed)
    (one, one_variance), (other, other_variance) = _measured(treated), _measured(control)
    difference = math.log(one / other)
    error = math.sqrt(one_variance / one**2 + other_variance / other**2)
    drawn, drawn_variance = _drawn(treated, generator)
    again, again_variance = _drawn(control, generator)
    errors = np.sqrt(drawn_variance / drawn**2 + again_variance / again**2)
    off = np.abs(np.log(drawn / again) - difference) / np.maximum(errors, 1e-12)
    margin = float(np.quantile(off, CONFIDENCE)) * error
    return Ratio(math.exp(difference), _exp(difference - margin), _exp(difference + margin), error)


def rate_ratio(treated: Group, control: Group, seed: int = SEED) -> RateRatio | None:
    """The first group's rate over the second's; None where there are too few sessions to say anything."""
    sizes = len(treated.costs), len(control.costs)
    having = np.count_nonzero(treated.costs) + np.count_nonzero(control.costs)
    if min(sizes) < FEWEST or having * min(sizes) < FEWEST_WITH * sum(sizes):
        return None
    generator = np.random.default_rng(seed)
    (one, one_variance), (other, other_variance) = _measured(treated), _measured(control)
    drawn, drawn_variance = _drawn(treated, generator)
    again, again_variance = _drawn(control, generator)
    errors = np.sqrt(drawn_variance + again_variance)
    off = np.abs(drawn - again - (one - other)) / np.maximum(errors, 1e-12)
    squared = float(np.quantile(off, CONFIDENCE)) ** 2
    # The ends are the roots of (one - ratio * other)^2 = squared * (one_variance + ratio^2 * other_variance).
    least, most = one * one - squared * one_variance, other * other - squared * other_variance
    middle = one * other + math.sqrt(max(0.0, (one * other) ** 2 - least * most))
    return RateRatio(
        one / other if other else math.inf,
        0.0 if least <= 0 else least / middle if middle else math.inf,
        middle / most if most > 0 else math.inf,
    )


def needed(found: Ratio, sessions: int) -> float:
    """The sessions of both groups together, divided as these are, that would show the difference if the ratio is true.

    Roughly: the interval narrows with the root of the sessions, and with what the ratio itself may be off by it must
    be no wider than the difference is large.
    """
    difference = abs(math.log(found.ratio))
    if not difference:
        return math.inf
    margin = math.log(found.high / found.ratio)
    return math.ceil(sessions * ((margin + POWER * found.error) / difference) ** 2)


def _exp(value: float) -> float:
    """A very large number rather than one that is too large."""
    return math.exp(min(value, 700.0))


def _measured(sample: Group) -> tuple[float, float]:
    means, variances = _per_call(np.ones((1, len(sample.costs))), sample)
    return float(means[0]), float(variances[0])


def _drawn(sample: Group, generator: np.random.Generator) -> "tuple[Numbers, Numbers]":
    """The costs per call of sessions drawn again, and their variances."""
    count = len(sample.costs)
    at_once = max(1, _AT_ONCE // count)
    parts = []
    for first in range(0, DRAWS, at_once):
        size = min(at_once, DRAWS - first)
        parts.append(_per_call(generator.multinomial(count, np.full(count, 1 / count), size).astype(float), sample))
    return np.concatenate([means for means, _ in parts]), np.concatenate([variances for _, variances in parts])


def _per_call(times: "Numbers", sample: Group) -> "tuple[Numbers, Numbers]":
    """The cost per call of each draw, and its variance; a draw is a row of how often each session counts.

    A session's part in the error is what it cost beyond what its calls cost on average.
    """
    costs, calls = sample
    made, count = times @ calls, len(costs)
    mean = times @ costs / made
    squares = times @ (costs * costs) - 2 * mean * (times @ (costs * calls)) + mean * mean * (times @ (calls * calls))
    return mean, np.maximum(squares, 0.0) / (made * made) * count / (count - 1)
