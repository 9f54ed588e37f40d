"""Compares the arms of an experiment: what their sessions cost, as the providers reported it, and signs of harm."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from instrumentation.accounting.billing import UsageCost, cost
from instrumentation.accounting.confidence import (
    FEWEST,
    RateRatio,
    Ratio,
    group,
    needed,
    rate_ratio,
    ratio,
)
from instrumentation.accounting.harm import SIGNS, HarmCounts, Sign, count_harm
from pager.log.events import (
    AnswerFinished,
    AttemptFailed,
    CallReceived,
    LegFinished,
    SessionOpened,
    Warmed,
)
from pager.log.store import Store, Stored
from pager.paging.policy_choice import UNCHANGED
from pager.pricing.rates import Models
from pager.wire.dialect import Dialect

NOT_WORSE, WORSE, TOO_FEW = "not worse", "worse", "too few sessions"

MOST_NEEDED = 1_000_000  # sessions; an experiment that needs more never ends
SHORTEST = 2
"""Answered calls that a session must have to count: paging can't do anything for one call."""

DOLLARS, UNITS = "dollars", "units"


@dataclass(slots=True)
class ArmSession:
    """What became of one session of an arm.

    ``calls`` counts the answered calls whose tokens were reported, by which it is priced, ``untold`` the other answered
    ones.
    """

    session: str
    arm: str
    calls: int = 0
    untold: int = 0
    cost: UsageCost = field(default_factory=UsageCost)
    page_ins: int = 0
    failures: int = 0
    harm: HarmCounts = field(default_factory=HarmCounts)

    @property
    def answered(self) -> int:
        """All answered calls."""
        return self.calls + self.untold


@dataclass(frozen=True, slots=True)
class Arm:
    """The sessions of one arm together; dollars are None where the price of a model is unknown.

    ``harm`` also counts sessions without reported tokens, but none that are too short.
    """

    arm: str
    sessions: int
    calls: int
    untold: int
    units: float
    dollars: float | None
    page_ins: int
    failures: int
    too_short: int
    unpriced: int
    harm: HarmCounts


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """One arm against the control, by cost per call; ``ratio`` is None where there are too few sessions.

    ``needed`` are the sessions of both that would show the difference if the ratio is true, 0 where it is shown
    already, None where no number that makes sense would do.
    """

    arm: str
    control: str
    sessions: tuple[int, int]
    by: str
    ratio: Ratio | None = None
    needed: int | None = None


@dataclass(frozen=True, slots=True)
class HarmComparison:
    """One arm against the control by one sign of harm.

    ``sessions`` and ``rates`` are the arm's and the control's: the sessions that have any of what the sign is counted
    per, and the sign's rate in them, None where there are none. ``ratio`` is None where there are too few sessions.
    """

    arm: str
    control: str
    sign: Sign
    sessions: tuple[int, int]
    rates: tuple[float | None, float | None]
    ratio: RateRatio | None
    verdict: str


@dataclass(frozen=True, slots=True)
class ExperimentReport:
    """An experiment so far; ``outside`` counts the sessions that were given to no arm, ``margin`` is for ``harm``."""

    arms: Sequence[Arm]
    comparisons: Sequence[ArmComparison]
    outside: int
    harm: Sequence[HarmComparison]
    margin: float


def report(
    store: Store,
    models: Models,
    shares: Mapping[str, float],
    load_dialect: Callable[[str], Dialect],
    *,
    since: float,
    margin: float,
) -> ExperimentReport:
    """The experiment in this log, by its sessions that began at ``since`` or later; ``shares`` are those in force.

    An arm may have more of a sign of harm than the control, by this ``margin`` as a share, and still be not worse.
    """
    opened = {row.session: row for row in store.sessions()}
    arms = {
        name: row.event.arm if isinstance(row.event, SessionOpened) else ""
        for name, row in opened.items()
        if row.at >= since
    }
    sessions = []
    for name, arm in arms.items():
        if arm:
            log = list(store.events(name))
            sessions.append(_read(log, name, arm, models))
            sessions[-1].harm = count_harm(log, store.blob, load_dialect)
    sessions.sort(key=lambda one: (one.arm, one.session))
    by_arm = {arm: list(its) for arm, its in groupby(sessions, key=lambda one: one.arm)}
    order = sorted(by_arm, key=lambda arm: (arm != UNCHANGED, -shares.get(arm, 0.0), -len(by_arm[arm]), arm))
    sums = [_summed(arm, by_arm[arm]) for arm in order]
    return ExperimentReport(
        sums,
        list(_comparisons(order, by_arm)),
        sum(not arm for arm in arms.values()),
        [harm for arm in order[1:] for harm in _harm_compared(arm, by_arm[arm], order[0], by_arm[order[0]], margin)],
        margin,
    )


def _read(log: Iterable[Stored], name: str, arm: str, models: Models) -> ArmSession:
    """What one session cost, and what happened in it."""
    session = ArmSession(name, arm)
    asked: dict[tuple[int, int], str] = {}
    reported: set[tuple[int, int]] = set()
    answered: set[tuple[int, int]] = set()
    for row in log:
        match row.event:
            case CallReceived() as call:
                asked[call.branch, call.call] = call.model
            case AnswerFinished(usage=usage) as answer:
                answered.add((answer.branch, answer.call))
                if usage is not None:
                    reported.add((answer.branch, answer.call))
                    session.cost = session.cost.plus(cost(usage, models, answer.model, answer.served))
            case LegFinished(usage=usage) as leg:
                session.page_ins += bool(leg.pages)
                if usage is not None:
                    session.cost = session.cost.plus(cost(usage, models, asked.get((leg.branch, leg.call), "")))
            case Warmed(usage=usage) as refresh:  # paid in this arm, though no call asked for it
                session.cost = session.cost.plus(cost(usage, models, asked.get((refresh.branch, refresh.call), "")))
            case AttemptFailed():
                session.failures += 1
            case _:
                pass
    session.calls, session.untold = len(reported), len(answered - reported)
    return session


def _counts(session: ArmSession) -> bool:
    return session.answered >= SHORTEST and session.calls > 0 and session.cost.units > 0


def _summed(arm: str, sessions: Sequence[ArmSession]) -> Arm:
    counted = [one for one in sessions if _counts(one)]
    total = UsageCost()
    for one in counted:
        total = total.plus(one.cost)
    short = sum(one.answered < SHORTEST for one in sessions)
    return Arm(
        arm,
        sessions=len(counted),
        calls=sum(one.calls for one in counted),
        untold=sum(one.untold for one in counted),
        units=total.units,
        dollars=total.dollars,
        page_ins=sum(one.page_ins for one in counted),
        failures=sum(one.failures for one in counted),
        too_short=short,
        unpriced=len(sessions) - len(counted) - short,
        harm=HarmCounts.sum(one.harm for one in sessions if one.answered >= SHORTEST),
    )


def _comparisons(order: Sequence[str], by_arm: Mapping[str, Sequence[ArmSession]]) -> Iterator[ArmComparison]:
    """Every arm against the first."""
    counted = {arm: [one for one in by_arm[arm] if _counts(one)] for arm in order}
    control, *others = order or [""]
    for arm in others:
        yield _compared(arm, counted[arm], control, counted[control])


def _compared(arm: str, own: Sequence[ArmSession], control: str, others: Sequence[ArmSession]) -> ArmComparison:
    """In dollars where the price of every model is known, as units differ between models."""
    by = DOLLARS if all(one.cost.dollars is not None for one in (*own, *others)) else UNITS
    sizes = (len(own), len(others))
    if min(sizes) < FEWEST:
        return ArmComparison(arm, control, sizes, by)
    found = ratio(group(_costs(own, by)), group(_costs(others, by)))
    enough = needed(found, sum(sizes)) if not found.is_significant else 0
    return ArmComparison(arm, control, sizes, by, found, int(enough) if enough < MOST_NEEDED else None)


def _costs(sessions: Sequence[ArmSession], by: str) -> list[tuple[float, int]]:
    return [((one.cost.dollars or 0.0) if by == DOLLARS else one.cost.units, one.calls) for one in sessions]


def _harm_compared(
    arm: str, own: Sequence[ArmSession], control: str, others: Sequence[ArmSession], margin: float
) -> Iterator[HarmComparison]:
    """By every sign of harm, in all sessions that are not too short: to see harm, no tokens need be reported."""
    for sign in SIGNS:
        pairs = [
            [
                (getattr(one.harm, sign.counted), getattr(one.harm, sign.base))
                for one in sessions
                if one.answered >= SHORTEST and getattr(one.harm, sign.base)
            ]
            for sessions in (own, others)
        ]
        rates = [sum(count for count, _ in one) / sum(base for _, base in one) if one else None for one in pairs]
        found = rate_ratio(group(pairs[0]), group(pairs[1]))
        sizes = (len(pairs[0]), len(pairs[1]))
        yield HarmComparison(arm, control, sign, sizes, (rates[0], rates[1]), found, verdict(found, margin))


def verdict(found: RateRatio | None, margin: float) -> str:
    """Whether an arm is worse than the control: surely by no more than the margin, surely by some, or not known."""
    if found is None:
        return TOO_FEW
    if found.high <= 1 + margin:
        return NOT_WORSE
    return WORSE if found.low > 1 else TOO_FEW
