"""Plays sets of sessions under every policy there is and by every oracle, and at several lengths of the grace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.optimum.oracles import ORACLES
from instrumentation.replay.compare import (
    Comparison,
    Contender,
    PolicyRow,
    ReplayConditions,
    compare,
)
from instrumentation.replay.knowing_policy import KNOWING
from pager.paging.policy_choice import UNCHANGED
from pager.paging.policy_loader import policy_names

RECORDINGS = "CTXPAGER_RECORDINGS"
"""Names the folder of recorded sessions in the environment."""

OURS = "cost_aware"
GRACES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
WITH_GRACE = (OURS, KNOWING, "clear_oldest", "fifo_age")
"""What is played at several lengths of the grace."""

GRACE_SESSIONS = 40
"""Sessions, evenly spread, that it is played with: it takes as long as all policies together take for so many."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class PlaySettings:
    """``prices`` as for ``ctxpager replay``, and how many processes play at a time."""

    prices: str = "anthropic"
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """A set as it was played; ``uncached`` is the change of the tokens by our policy where no provider caches."""

    name: str
    comparison: Comparison
    uncached: float

    @property
    def rows(self) -> list[PolicyRow]:
        """Doing nothing, then the policies, the dearest first, then what knows the future."""
        rows = self.comparison.rows()
        policies = [row for row in rows if row.policy in policy_names()]
        others = [row for row in rows if row not in policies]
        return sorted(policies, key=lambda row: (row.policy != UNCHANGED, -row.cost_change)) + others

    def curves(self) -> dict[str, list[Point]]:
        """By policy, what it had cost after so many calls, one session after the other; of an oracle maybe the end."""
        whole, columns = (
            self.comparison.before.cost,
            zip(*(one.outcomes for one in self.comparison.played), strict=True),
        )
        found: dict[str, list[Point]] = {}
        for outcomes in columns:
            spent, points = 0.0, [(0.0, 0.0)]
            for outcome in outcomes:
                points += [(float(len(points) + at), (spent + cost) / whole) for at, cost in enumerate(outcome.so_far)]
                spent += outcome.charged.cost
            found[outcomes[0].policy] = points if len(points) > 1 else [(float(self.comparison.calls), spent / whole)]
        return found


@dataclass(frozen=True, slots=True)
class Graces:
    """So many sessions, played at several lengths of the grace: by policy, the change of the cost at each."""

    sessions: int
    changes: Mapping[str, Sequence[Point]]


def spread(files: Sequence[Path], most: int) -> list[Path]:
    """At most so many of the files, evenly spread; all for 0."""
    if not 0 < most < len(files):
        return list(files)
    return [files[at * len(files) // most] for at in range(most)]


def played(name: str, files: Sequence[Path], settings: PlaySettings) -> PolicyFigures:
    """Play a set: everything under the prices asked for, and our policy once more as if nothing were cached."""
    contenders = [*map(Contender, policy_names()), *ORACLES]
    comparison = compare(files, contenders, ReplayConditions(settings.prices), settings.jobs)
    uncached = compare(files, [Contender(OURS)], ReplayConditions("none"), settings.jobs)
    return PolicyFigures(name, comparison, uncached.rows()[0].token_change)


def at_graces(files: Sequence[Path], settings: PlaySettings, graces: Sequence[int] = GRACES) -> Graces:
    """Play some sessions at each length of the grace."""
    contenders = [Contender(name) for name in WITH_GRACE]
    conditions = [replace(ReplayConditions(settings.prices), grace=grace) for grace in graces]
    found = [compare(files, contenders, one, settings.jobs) for one in conditions]
    changes: dict[str, list[Point]] = {name: [] for name in WITH_GRACE}
    for grace, comparison in zip(graces, found, strict=True):
        for row in comparison.rows():
            changes[row.policy].append((float(grace), row.cost_change))
    return Graces(len(found[0].played), changes)
