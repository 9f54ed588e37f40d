"""The user's account: what paging and keeping warm have saved a tenant, and what a session may spend of it in advance.

A session that never pauses has no moment at which removing results costs nothing, so that it saves nothing unless it
may first spend. It is lent a credit for that, from the account of its user:

    available = allowance + total share x what all sessions would have cost + what ended ones have saved - what is lent

A session may lose its credit, and what page-ins cost, but nothing beyond it, so that the user's running total is never
more than the total share above doing nothing, the allowance of a new user aside. Of its credit a session may spend, at
any time, up to the session share of its own cost so far. What is lent comes back when the session has rested for an
hour, with what it has saved; a session that goes on after that is lent a new credit, and begins to save anew.

An account is a log of its own, which is read anew (``read``) and to which every loan is appended (``lend``). Nothing
here reads a store or a clock. All amounts are US dollars.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from pager.log.events import CallReceived, CreditLent, CreditReturned, Event, Warmed
from pager.log.store import Stored

REST = 3_600.0
"""Seconds after its latest event at which the credit of a session comes back."""

PART = 0.5
"""The part of what is available that one session is lent at most: others may begin while it runs."""


SESSION_SHARE = 0.05
"""The share of its own cost so far that a session may be down by."""


def account_of(tenant: str) -> str:
    """The name of the log that holds a tenant's account."""
    return "account_" + sha256(tenant.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class CreditLimits:
    """The limits on what is lent: shares are of what sessions cost or would have cost, the others US dollars."""

    total_share: float = 0.01
    session_share: float = SESSION_SHARE
    allowance: float = 0.25
    most: float = 1.0


class SessionMoney(NamedTuple):
    """What a session has paid so far, and what it has saved against doing nothing; negative where it lost."""

    paid: float = 0.0
    saved: float = 0.0

    @property
    def without(self) -> float:
        """What it would have paid had nothing been done."""
        return self.paid + self.saved

    def plus(self, other: "SessionMoney") -> "SessionMoney":
        """The sum of two."""
        return SessionMoney(self.paid + other.paid, self.saved + other.saved)


NOTHING = SessionMoney()


@dataclass(slots=True)
class Loan:
    """A session that has a credit."""

    credit: float
    at: float  # of its latest event
    before: SessionMoney = NOTHING  # when it was lent the credit
    totals: SessionMoney = NOTHING  # by now
    seq: int = 0  # of its latest event that was read

    @property
    def at_stake(self) -> float:
        """What it may have lost in the end, of what it had before: its credit, or more where page-ins cost more."""
        return max(self.credit, self.before.saved - self.totals.saved)


class Lending(NamedTuple):
    """A loan, and the credits that came back before it."""

    returned: tuple[CreditReturned, ...]
    lent: CreditLent

    @property
    def events(self) -> list[Event]:
        """What is to be logged, in this order."""
        return [*self.returned, self.lent]


@dataclass(slots=True)
class UserAccount:
    """The account of one tenant as of the latest event that was read."""

    limits: CreditLimits = field(default_factory=CreditLimits)
    known: dict[str, SessionMoney] = field(default_factory=dict)  # of sessions, when their credit last came back
    sum_of_known: SessionMoney = NOTHING
    loans: dict[str, Loan] = field(default_factory=dict)
    seq: int = 0  # of its latest event that was read

    def read(self, log: Iterable[Stored]) -> None:
        """Take further events of the account's own log."""
        for row in log:
            self.seq = row.seq
            self._apply(row.event, row.at)

    def read_session(self, session: str, log: Iterable[Stored]) -> None:
        """Take further events of a session that has a credit."""
        loan = self.loans[session]
        for row in log:
            loan.seq, loan.at = row.seq, max(loan.at, row.at)
            match row.event:
                case CallReceived(totals=[paid, saved]):
                    loan.totals = SessionMoney(paid, saved)
                case Warmed(dollars=dollars):
                    loan.totals = loan.totals.plus(SessionMoney(dollars, -dollars))
                case _:
                    pass

    def available(self) -> float:
        """What may be lent now; below 0 where sessions have lost more than they were allowed to."""
        limits, loans = self.limits, self.loans.values()
        without = self.sum_of_known.without + sum(loan.totals.without - loan.before.without for loan in loans)
        lent = sum(loan.at_stake for loan in loans)
        return limits.allowance + limits.total_share * without + self.sum_of_known.saved - lent

    @property
    def is_full(self) -> bool:
        """Whether it can lend the most to any session."""
        return PART * self.available() >= self.limits.most

    def lend(self, session: str, at: float) -> Lending:
        """Lend a credit to a session that begins, or goes on after a rest; sessions that rest by then return theirs."""
        rested = [name for name, loan in self.loans.items() if name == session or at - loan.at > REST]
        returned = tuple(CreditReturned(name, *self.loans[name].totals) for name in rested)
        for event in returned:
            self._apply(event, at)
        credit = max(0.0, min(PART * self.available(), self.limits.most))
        lent = CreditLent(session, round(credit, 6))
        self._apply(lent, at)
        return Lending(returned, lent)

    def _apply(self, event: Event, at: float) -> None:
        match event:
            case CreditLent(session=session, dollars=dollars):
                totals = self.known.get(session, NOTHING)
                self.loans[session] = Loan(dollars, at, totals, totals)
            case CreditReturned(session=session, paid=paid, saved=saved):
                self.loans.pop(session, None)
                before = self.known.get(session, NOTHING)
                self.known[session] = SessionMoney(paid, saved)
                self.sum_of_known = self.sum_of_known.plus(SessionMoney(paid - before.paid, saved - before.saved))
            case _:
                pass


def first_credit(limits: CreditLimits | None) -> float | None:
    """What the first session of a new user is lent; None where each session pays for itself."""
    return None if limits is None else UserAccount(limits).lend("", 0.0).lent.dollars
