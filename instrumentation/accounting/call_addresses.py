"""Finds what a user names in the log: a session by its id, a call by its branch, number and attempt."""

from collections.abc import Iterable, Sequence

from pager.errors import ConfigError
from pager.log.events import CallReceived, SessionOpened
from pager.log.store import Store, Stored
from pager.request_values import CallAddress

NEWEST = 5
"""Sessions that an error names."""


def meant(store: Store, name: str) -> str:
    """The one session whose id is this, or begins with it, or which its client calls so; raises ConfigError."""
    opened = store.sessions()
    ids = list(dict.fromkeys(row.session for row in opened))
    found = named(name, opened)
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"session {name}: {len(found)} sessions begin like that: {_listed(opened, found)}")
    if not ids:
        raise ConfigError(f"session {name}: the log holds no session at all")
    raise ConfigError(f"session {name}: none of {len(ids)} begins like that; the newest are {_listed(opened, ids)}")


def named(name: str, opened: Sequence[Stored]) -> list[str]:
    """The sessions that a name means: that of this id, else all whose ids begin with it, else all that clients call so.

    ``opened`` are the beginnings of sessions in the log.
    """
    ids = list(dict.fromkeys(row.session for row in opened))
    if not name:
        return []
    if name in ids:
        return [name]
    keyed = (row.session for row in opened if isinstance(row.event, SessionOpened) and row.event.key == name)
    return [one for one in ids if one.startswith(name)] or list(dict.fromkeys(keyed))


def _listed(opened: Iterable[Stored], ids: list[str]) -> str:
    """The newest of these sessions, with what the client calls each."""
    keys = {row.session: row.event.key for row in opened if isinstance(row.event, SessionOpened)}
    named = [f"{one} ({keys[one]})" if keys.get(one) else one for one in ids[:NEWEST]]
    return ", ".join(named) + (", ..." if len(ids) > NEWEST else "")


def find_call(log: Iterable[Stored], named: str) -> CallAddress:
    """The call named by ``[BRANCH:]CALL[#ATTEMPT]``, by default of branch 0 and its first attempt; or ConfigError."""
    where = CallAddress.parse(named)
    if where is None:
        raise ConfigError(f"call {named}: must be a number, as in 12, 0:12 (branch 0) or 0:12#2 (its second attempt)")
    calls = [row.event for row in log if isinstance(row.event, CallReceived)]
    there = [CallAddress.of(call) for call in calls]
    if where in there:
        return where
    raise ConfigError(f"call {named}: {_missing(where, there)}")


def _missing(where: CallAddress, there: list[CallAddress]) -> str:
    """Why there is no such call, with those that there are."""
    attempts = sorted(one.attempt for one in there if one[:2] == where[:2])
    if attempts:
        return f"call {where.branch}:{where.call} has no attempt {where.attempt}; it has {_ranges(attempts)}"
    branches = sorted({one.branch for one in there})
    ranges = [f"{_ranges(sorted({one.call for one in there if one.branch == at}))} in branch {at}" for at in branches]
    return f"there is none; the session has calls {', '.join(ranges)}" if ranges else "the session has no calls"


def _ranges(numbers: list[int]) -> str:
    """Numbers in order, written short: 1-12, 14."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
