"""Writes down what the live sessions of a running proxy are about to cost."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from instrumentation.reports.table import clipped, dollars, percent, short, table

HEAD = ("session", "agent", "model", "context\nbefore", "\nafter", "\ncached", "cost\nso far", "cache")
LEFT = (0, 1, 2, 7)
NAME = 24
"""Letters of a name that are shown."""

Session = Mapping[str, Any]


def as_text(found: Mapping[str, Any], *, width: int = 0, color: bool = False) -> str:
    """A line for each session, the most recent first, and the state of keeping warm."""
    lines = list(_sessions(found, width, color=color)) or ["no session has made a call since the proxy was started"]
    return "\n".join([*lines, "", _keeping(found["keep_warm"]), ""])


def as_json(found: Mapping[str, Any]) -> dict[str, Any]:
    """As the proxy answers."""
    return dict(found)


def _sessions(found: Mapping[str, Any], width: int, *, color: bool) -> Iterator[str]:
    rows = [_row(one, found["now"]) for one in found["sessions"]]
    return table(HEAD, rows, LEFT, width, color=color) if rows else iter(())


def _row(one: Session, now: float) -> tuple[str, ...]:
    return (
        clipped(one["key"] or one["session"], NAME),
        clipped(one["agent"], NAME),
        clipped(one["model"], NAME),
        short(one["before"]),
        short(one["after"]),
        percent(one["cached"] / one["after"]) if one["after"] else "",
        f"${dollars(one['dollars'])}" if one["dollars"] is not None else "",
        words(one, now),
    )


def words(one: Session, now: float) -> str:
    """How long a session's prompt stays cached, and what its next call costs more after that."""
    cold_at, kept = one["cold_at"], one["kept_until"]
    if one["under_way"]:
        return "a call is under way"
    if cold_at is None:
        return "nothing is cached"
    if now >= cold_at:
        return f"cold now: the next call costs {_more(one)}"
    if kept is not None and kept > now:
        until = datetime.fromtimestamp(kept).astimezone()
        return f"kept warm until {until:%H:%M}, then {_more(one)}"
    return f"cold in {span(cold_at - now)}, then {_more(one)}"


def _more(one: Session) -> str:
    amount = one["dollars_more"]
    if not one["costs_more"]:
        return "nothing more"
    if amount is None:
        return f"{short(one['costs_more'])} token-equivalents more"
    return f"${amount:,.2f} more" if amount >= 0.01 else f"${amount:,.4f} more"


def span(seconds: float) -> str:
    """90 s, 12 min, 3 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.0f} h"


def _keeping(state: Mapping[str, Any]) -> str:
    if not state["on"]:
        can = state["impossible"] or "`ctxpager keep-warm on` turns it on"
        return f"keeping warm is off; {can}"
    most = state["limits"]["day_dollars"]
    return f"keeping warm is on ({state['mode']}): ${dollars(state['spent'])} of ${most:,.2f} spent in 24 hours"
