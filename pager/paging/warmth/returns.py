"""How likely a resting session goes on, by how long it has rested.

Shipped is, for each kind of wait, the share of pauses that last longer than so many seconds, counted on recorded
sessions. What a session's prompt and calls so far say, what the user's sessions have taught and what this session's own
pauses show each make a return so many times as likely at every moment: a share becomes its power of that number. That
number is estimated as returns that were seen by returns that were expected, as is done for pages that are needed again.
"""

from bisect import bisect_right
from collections.abc import Iterable
from enum import StrEnum
from math import log
from typing import NamedTuple

import msgspec

SHORTEST = 280.0
"""Seconds of the shortest pause that counts: no cache that is kept warm is refreshed earlier."""

LONGEST = 3_600.0
"""Seconds after which a pause that goes on counts as one without a return."""

WEIGHT = 20.0
"""Returns that the shipped shares count as beside those of a user's sessions, and these beside a session's own."""

SMALL_PROMPT = 50_000
"""Tokens below which a prompt's user comes back less often."""

FEW_CALLS = 5
"""Calls below which a user is still about to begin."""


class WaitsFor(StrEnum):
    """What a session rests for after an answer."""

    TOOL = "tool"  # the answer called a tool, or sub-agents are running
    USER = "user"  # the answer ended the turn


class Pause(NamedTuple):
    """The seconds between two calls, and what was waited for."""

    seconds: float
    waits_for: WaitsFor
    returned: bool = True


class Returns(msgspec.Struct, frozen=True, array_like=True):
    """How many pauses ended with a return, and how many were expected to by what is shipped."""

    seen: float = 0.0
    expected: float = 0.0

    @property
    def multiple(self) -> float:
        """How many times as likely a return is as shipped."""
        return (self.seen + WEIGHT) / (self.expected + WEIGHT)


# The share of pauses longer than 280 seconds that last longer than so many, on every second of 284 recorded sessions of
# a coding agent (470 such pauses). A pause that another line of the same session ended counts up to there.
_MOMENTS = (SHORTEST, 580.0, 860.0, 1_140.0, 1_420.0, 1_980.0, LONGEST, 7_200.0, 21_600.0, 43_200.0)
_RESTS = {
    WaitsFor.TOOL: (1.0, 0.622, 0.471, 0.328, 0.303, 0.277, 0.202, 0.168, 0.134, 0.134),
    WaitsFor.USER: (1.0, 0.692, 0.603, 0.56, 0.52, 0.494, 0.433, 0.416, 0.395, 0.384),
}


def chance_of_rest(waits_for: WaitsFor, seconds: float, times: float = 1.0) -> float:
    """The chance that a pause which lasts 280 seconds lasts so many; ``times`` as likely as shipped are returns."""
    rests = _RESTS[waits_for]
    at = bisect_right(_MOMENTS, seconds)
    if at == 0 or at == len(_MOMENTS):
        return float(rests[max(0, at - 1)] ** times)
    done = log(seconds / _MOMENTS[at - 1]) / log(_MOMENTS[at] / _MOMENTS[at - 1])
    return float((rests[at - 1] + done * (rests[at] - rests[at - 1])) ** times)


def usual_multiple(waits_for: WaitsFor, tokens: int, calls: int) -> float:
    """How many times as likely a return is for a prompt of so many tokens after so many calls."""
    if waits_for is WaitsFor.TOOL:
        return 0.9 if calls < FEW_CALLS else 1.0
    return (0.8 if tokens < SMALL_PROMPT else 1.0) * (1.15 if calls < FEW_CALLS else 1.0)


def counted(pauses: Iterable[Pause]) -> Returns:
    """The returns of these pauses, seen and expected; a pause counts for its first hour."""
    long = [pause for pause in pauses if pause.seconds > SHORTEST]
    seen = sum(pause.returned and pause.seconds <= LONGEST for pause in long)
    expected = (-log(chance_of_rest(one.waits_for, min(one.seconds, LONGEST))) for one in long)
    return Returns(float(seen), sum(expected))


def counted_alive(pauses: Iterable[Pause]) -> Returns:
    """The same of the pauses of a session that goes on: each of them had to end with a return."""
    long = [pause for pause in pauses if SHORTEST < pause.seconds <= LONGEST]
    return Returns(float(len(long)), sum(-log(_rest_if_returned(pause)) for pause in long))


def _rest_if_returned(pause: Pause) -> float:
    """The chance that a pause lasts as long as this one, if it ends within the hour."""
    never = chance_of_rest(pause.waits_for, LONGEST)
    return max(0.02, (chance_of_rest(pause.waits_for, pause.seconds) - never) / (1.0 - never))
