"""Plays many sessions under many policies, and sums up what each is worth against doing nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import orjson

from instrumentation.accounting import client_cost
from instrumentation.accounting.billing import Charged
from instrumentation.replay import recording_files
from instrumentation.replay.knowing_policy import KNOWING, play_knowing
from instrumentation.replay.known_pauses import KnownPauses
from instrumentation.replay.player import Player, PolicyOutcome
from instrumentation.replay.prepared_recording import (
    AS_RECORDED,
    Caching,
    Prepared,
)
from instrumentation.replay.recording import Recording
from pager.paging.credit import REST, UserAccount
from pager.paging.planning_rules import PlanningRules
from pager.paging.policy_choice import UNCHANGED
from pager.paging.policy_loader import load_policy
from pager.paging.warmth.keep_warm import rule_of
from pager.pricing.rates import Models, in_force
from pager.wire.dialects import load as load_dialect

WORSE = 0.01
"""The share by which a session must become dearer to count as made worse."""

SHORTEST = 5
"""Calls below which a session shows nothing."""

Source = Path | Recording
"""A session: the file it is in, or itself."""


Oracle = Callable[[Prepared, Models], Sequence[PolicyOutcome]]
"""Plays a session with knowledge of its future; an oracle may have several outcomes."""


class Contender(NamedTuple):
    """A policy with its options, or an oracle by another name.

    ``keep_warm`` is the rule by which prompts are kept cached in pauses, or ``knowing`` for one that knows the pauses;
    empty for none.
    """

    name: str
    options: Mapping[str, object] = {}
    oracle: Oracle | None = None
    keep_warm: str = ""

    @property
    def label(self) -> str:
        """The name of its row."""
        return f"{self.name} + {self.keep_warm}" if self.keep_warm else self.name


@dataclass(frozen=True, slots=True)
class ReplayConditions(PlanningRules):
    """What sessions are played under; each contender brings its own policy."""

    shortest: int = SHORTEST  # sessions with fewer calls are left out
    cache: Caching = AS_RECORDED  # how the provider is taken to cache


class PlayedSession(NamedTuple):
    """One session: what it costs if nothing is done, and what became of it under each policy.

    ``before`` and the outcomes are bills of what is played, ``paid`` is what the session cost by its provider's counts;
    None where that is not known.
    """

    session: str
    calls: int
    before: Charged
    outcomes: tuple[PolicyOutcome, ...] = ()
    paid: Charged | None = None

    def change(self, outcome: PolicyOutcome) -> float:
        """The change of the cost against doing nothing, as a share of it."""
        return outcome.charged.cost / self.before.cost - 1 if self.before.cost else 0.0


class PolicyRow(NamedTuple):
    """What a policy did to all sessions together.

    ``triple`` is the change of the cost if page-ins cost three times as much; ``worst`` is the largest change of any
    session; ``schemas`` counts the tools that were asked for in full. ``refreshes`` only kept prompts cached, which
    cost ``refreshing`` as a share of doing nothing; ``wrote`` of them wrote instead of reading. Of what was not played
    but reckoned, only the cost is known.
    """

    policy: str
    charged: Charged
    cost_change: float
    token_change: float
    hit_rate: float
    page_ins: int
    faults: int
    repacks: int
    rejected: int
    triple: float
    worse: int
    worst: float
    worst_session: str
    schemas: int = 0
    refreshes: int = 0
    refreshing: float = 0.0
    wrote: int = 0

    @property
    def is_played(self) -> bool:
        """Whether the sessions were played, and not only their cost reckoned."""
        return self.charged.requests > 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """All sessions that were played; ``left_out`` counts those that were too short."""

    played: Sequence[PlayedSession]
    left_out: int = 0

    @property
    def before(self) -> Charged:
        """What all sessions cost together if nothing is done."""
        return total(one.before for one in self.played)

    @property
    def paid(self) -> Charged:
        """What all sessions cost together unpaged, by the counts of their providers: the figure that reports say."""
        return total(one.paid or one.before for one in self.played)

    @property
    def calls(self) -> int:
        """The calls of all sessions."""
        return sum(one.calls for one in self.played)

    def rows(self) -> list[PolicyRow]:
        """A row for each policy, in the order in which they were asked for."""
        columns = zip(*(one.outcomes for one in self.played), strict=True)
        return [_row(self.played, outcomes, self.before) for outcomes in columns]


def compare(
    sources: Iterable[Source], contenders: Sequence[Contender], conditions: ReplayConditions, jobs: int = 1
) -> Comparison:
    """Play every session under every policy, with this many processes at a time.

    Where sessions are lent credits, they are played as one user's, one after the other in the order given.
    """
    work = partial(play, contenders=tuple(contenders), conditions=conditions)
    every = list(sources)
    if conditions.credit is None:
        found = list(_each(work, every, jobs))
    else:
        found = list(_in_order(work, every, [UserAccount(conditions.credit) for _ in contenders], jobs))
    played = [one for one in found if one is not None]
    return Comparison(played, len(found) - len(played))


def _in_order(
    work: Callable[..., PlayedSession | None], sources: list[Source], accounts: Sequence[UserAccount], jobs: int
) -> Iterator[PlayedSession | None]:
    """Play sessions one after the other, each with the credit that the account of each policy lends it.

    An account that has saved enough lends the same to all that follow. They are played at a time then, and again from
    the first on for which that turns out to be wrong.
    """
    done = 0
    while done < len(sources):
        lent = _lent(accounts, done)
        full = all(account.is_full for account in accounts)
        left = sources[done:] if full else sources[done : done + 1]
        for played in _each(partial(work, lent=lent), left, jobs):
            if _lent(accounts, done) != lent:
                break
            if played is not None:
                for account, outcome in zip(accounts, played.outcomes, strict=False):
                    account.loans[str(done)].totals = outcome.totals
            done += 1
            yield played


def _lent(accounts: Sequence[UserAccount], session: int) -> tuple[float, ...]:
    """What each account lends a session, by its number, when all before it are over."""
    return tuple(account.lend(str(session), 2 * REST * session).lent.dollars for account in accounts)


def _each(
    work: Callable[[Source], PlayedSession | None], sources: list[Source], jobs: int
) -> Iterator[PlayedSession | None]:
    if min(jobs, len(sources)) <= 1:
        yield from map(work, sources)
        return
    with ProcessPoolExecutor(min(jobs, len(sources))) as pool:
        yield from pool.map(work, sources)


def play(
    source: Source, contenders: Sequence[Contender], conditions: ReplayConditions, lent: Sequence[float] = ()
) -> PlayedSession | None:
    """Play one session under every policy, each with its credit if there are any; None if it is too short."""
    recording = recording_files.load(source) if isinstance(source, Path) else source
    if len(recording.steps) < conditions.shortest:
        return None
    models = _models(conditions.prices, orjson.dumps(conditions.models))
    dialect = load_dialect(recording.dialect)
    prepared = Prepared(recording, dialect, conditions.grace, conditions.tools, conditions.cache)
    before = prepared.bills(models)
    each = tuple(lent) or (None,) * len(contenders)
    outcomes = tuple(
        outcome
        for one, credit in zip(contenders, each, strict=True)
        for outcome in outcomes_of(prepared, one, models, before, credit)
    )
    return PlayedSession(
        recording.name, len(recording.steps), before[-1], outcomes, client_cost.total(prepared, before, models)
    )


@lru_cache(4)
def _models(prices: str, models: bytes) -> Models:
    """The table in force; made once for all sessions that a process plays."""
    return in_force(prices, orjson.loads(models))


def outcomes_of(
    prepared: Prepared,
    contender: Contender,
    models: Models,
    before: Sequence[Charged],
    credit: float | None = None,
) -> Iterable[PolicyOutcome]:
    """What becomes of a session under a policy, with a credit in dollars where it is lent one, or by an oracle."""
    if contender.name == UNCHANGED:  # it needs no page table: a session costs what it costs
        return [PolicyOutcome(contender.name, before[-1], so_far=tuple(bill.cost for bill in before[1:]))]
    if contender.oracle is not None:
        return contender.oracle(prepared, models)
    if contender.name == KNOWING:
        played = play_knowing(prepared, models, credit, keep_warm=bool(contender.keep_warm))
        return [one._replace(policy=contender.label) for one in played]
    policy, knows = load_policy(contender.name, contender.options), contender.keep_warm == KNOWING
    keep_warm = KnownPauses.of(prepared.calls) if knows else rule_of(contender.keep_warm)
    player = Player(prepared, lambda _: policy, models, keep_warm=keep_warm, credit=credit)
    player.play()
    return [player.outcome(contender.label)]


def total(bills: Iterable[Charged]) -> Charged:
    """The sum of bills; its peak is the mean of theirs."""
    every = list(bills)
    return Charged(
        cost=sum(one.cost for one in every),
        input=sum(one.input for one in every),
        cached=sum(one.cached for one in every),
        output=sum(one.output for one in every),
        requests=sum(one.requests for one in every),
        peak=round(sum(one.peak for one in every) / max(1, len(every))),
    )


def _row(played: Sequence[PlayedSession], outcomes: Sequence[PolicyOutcome], before: Charged) -> PolicyRow:
    charged = total(one.charged for one in outcomes)
    changes = [(session.change(one), session.session) for session, one in zip(played, outcomes, strict=True)]
    worst, worst_session = max(changes)
    tripled = charged.cost + 2 * sum(one.asking for one in outcomes)
    return PolicyRow(
        policy=outcomes[0].policy,
        charged=charged,
        cost_change=_change(charged.cost, before.cost),
        token_change=_change(charged.input, before.input),
        hit_rate=charged.cached / max(1, charged.input),
        page_ins=sum(one.page_ins for one in outcomes),
        faults=sum(one.faults for one in outcomes),
        repacks=sum(one.repacks for one in outcomes),
        rejected=sum(one.rejected for one in outcomes),
        triple=_change(tripled, before.cost),
        worse=sum(change > WORSE for change, _ in changes),
        worst=worst,
        worst_session=worst_session,
        schemas=sum(one.schemas for one in outcomes),
        refreshes=sum(one.refreshes for one in outcomes),
        refreshing=sum(one.refreshing for one in outcomes) / before.cost if before.cost else 0.0,
        wrote=sum(one.wrote for one in outcomes),
    )


def _change(after: float, before: float) -> float:
    return after / before - 1 if before else 0.0
