"""Decides whether a hidden leg that failed is sent again, and after how many seconds.

The client knows nothing of hidden legs and cannot repeat one, so a failure that it would have retried is retried here,
by the rules of the providers' own clients: overload, rate limits, server errors, timeouts and broken connections pass,
everything else stays. The provider's ``retry-after`` and ``x-should-retry`` count more than our own rules. All retries
of one answer share a limit in number and in time.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import orjson

from pager.log.events import FailurePhase
from pager.wire.common import is_passing, record

FIRST_DELAY = 0.5  # seconds before the first retry; twice as many before each further retry
LONGEST_DELAY = 8.0  # seconds before any retry, unless the provider asks for more
JITTER = 0.25  # the share of a delay left to chance, so that calls that failed together do not come back together
_FOR_GOOD = (b"insufficient_quota", b"billing_hard_limit_reached")
# In the names of errors inside a stream that do not lie in the request itself.
_TEMPORARY = re.compile(
    "overload|rate_limit|server_error|api_error|internal|timeout|unavailable|slow_down|too_many_requests|exhausted"
)


class RetryLimits(NamedTuple):
    """How many retries one answer may have, and how many seconds after its first failure the last may begin."""

    retries: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Setback:
    """A leg that failed."""

    phase: FailurePhase
    error: str
    status: int = 0
    passing: bool = True  # whether another try may succeed
    wait: float | None = None  # seconds that the provider asks us to wait, None where it does not

    @property
    def words(self) -> str:
        """The error, with the time to wait also where the provider named that only in a header."""
        named = self.wait is None or "try again in" in self.error.lower()
        return self.error if named else f"{self.error} Please try again in {self.wait:g}s."


class Retries:
    """The retries of one answer; ``draw`` gives a number from 0 to 1 by chance."""

    def __init__(self, limits: RetryLimits, draw: Callable[[], float]) -> None:
        self._limits = limits
        self._draw = draw
        self._since: float | None = None
        self.count = 0

    def delay(self, setback: Setback, moment: float) -> float | None:
        """The seconds to wait before the next try, at this moment in seconds; None if there is none."""
        self._since = moment if self._since is None else self._since
        if not setback.passing or self.count >= self._limits.retries:
            return None
        own = min(FIRST_DELAY * 2**self.count, LONGEST_DELAY)
        wait = setback.wait if setback.wait is not None else own * (1 - JITTER * self._draw())
        if moment + wait - self._since > self._limits.seconds:
            return None
        self.count += 1
        return wait


def refused(status: int, headers: Mapping[str, str], body: bytes, now: float) -> Setback:
    """An error status as a setback; ``headers`` by their names in lower case, ``now`` in seconds since 1970."""
    asked = headers.get("x-should-retry", "")
    passing = is_passing(status)
    if asked in ("true", "false"):
        passing = asked == "true"
    elif any(word in body for word in _FOR_GOOD):
        passing = False
    return Setback(FailurePhase.STATUS, message_of(body), status, passing, _wait(headers, now))


def stream_error(data: bytes) -> Setback | None:
    """The setback that an event of a stream reports; None if it is no error."""
    if b"error" not in data:
        return None
    event = _object(data)
    kind = event.get("type")
    error = record(event.get("response")).get("error") if kind == "response.failed" else event.get("error")
    if kind == "error" and not error:
        error = event  # Responses writes it beside the type
    if not error:
        return None
    fields = error if isinstance(error, dict) else {"message": str(error)}
    names = [str(fields[key]) for key in ("code", "type") if fields.get(key) and fields[key] != "error"]
    return Setback(FailurePhase.STREAM, message_of(data), passing=not names or any(map(_is_temporary, names)))


def message_of(body: bytes) -> str:
    """The message in an error body or event; all of its text where it has none."""
    outer = _object(body)
    outer = record(outer.get("response")) or outer
    error = outer.get("error")
    message = error if isinstance(error, str) else record(error).get("message") or outer.get("message")
    return message if isinstance(message, str) and message else body[:2000].decode("utf-8", "replace")


def _is_temporary(name: str) -> bool:
    if name.isdecimal():
        return is_passing(int(name))
    return _TEMPORARY.search(name.lower()) is not None


def _wait(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that the provider asks us to wait; None where it does not ask, or not in a way that can be read."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - now)
    except (KeyError, ValueError):
        return None


def _object(data: bytes) -> dict[str, object]:
    try:
        return record(orjson.loads(data))
    except orjson.JSONDecodeError:
        return {}
