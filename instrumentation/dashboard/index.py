"""Knows every session of the log in one line, what it is and what it took; kept up from new events only."""

from collections import OrderedDict
from collections.abc import Iterator
from time import perf_counter

import msgspec

from instrumentation.accounting.billing import UsageCost, cost
from pager.log.events import (
    AnswerFinished,
    AttemptFailed,
    CallReceived,
    Event,
    LegFinished,
    Repacked,
    SessionOpened,
    ToolsDecided,
    Warmed,
)
from pager.log.store import Store, Stored
from pager.pricing.rates import Models
from pager.request_values import CallAddress, Usage

LOOKED_AT = 2_000
"""Events between two looks at the clock."""


class Line(msgspec.Struct):
    """One session. Tokens and money are of its answered calls, as far as the provider reported them.

    Refreshes of its prompts cost money, too.
    ``client`` are the tokens of prompts as the client sent them: where they went out shorter, by the bytes of both.
    ``changed`` is whether anything of it was ever sent otherwise than it came, or once more to keep it cached.
    """

    session: str
    seq: int = 0
    key: str = ""
    harness: str = ""
    arm: str = ""
    model: str = ""
    began: float = 0.0
    seen: float = 0.0
    calls: int = 0
    failed: int = 0
    under_way: int = 0
    client: int = 0
    upstream: int = 0
    cached: int = 0
    output: int = 0
    cost: float = 0.0
    dollars: float | None = 0.0
    pages_in: int = 0
    repacks: int = 0
    changed: bool = False


class Sums(msgspec.Struct, frozen=True):
    """All sessions together; ``unpriced`` are those that are not in the dollars, as a model's price is unknown."""

    sessions: int = 0
    calls: int = 0
    client: int = 0
    upstream: int = 0
    dollars: float = 0.0
    unpriced: int = 0


class _Open(msgspec.Struct):
    """A call that was received and whose answer is not here yet: its bytes, and what its hidden legs reported."""

    size: int
    model: str
    usages: list[Usage] = msgspec.field(default_factory=list)


class SessionIndex:
    """The sessions of a log, the one that was heard of last at the end."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._lines: OrderedDict[str, Line] = OrderedDict()
        self._open: dict[str, dict[CallAddress, _Open]] = {}
        self.seq = 0

    def catch_up(self, store: Store, seconds: float) -> bool:
        """Take in what is new, for about so long; whether that was all of it."""
        end = perf_counter() + seconds
        for count, row in enumerate(store.events(after=self.seq), 1):
            self.take(row)
            if count % LOOKED_AT == 0 and perf_counter() > end:
                return False
        return True

    def line(self, session: str) -> Line | None:
        """What is known of a session."""
        return self._lines.get(session)

    def lines(self, search: str = "") -> Iterator[Line]:
        """The sessions in which all words of this occur, the one that was heard of last first."""
        words = search.lower().split()
        for line in reversed(self._lines.values()):
            if not words or all(word in _text(line) for word in words):
                yield line

    def sums(self) -> Sums:
        """All sessions together."""
        lines = self._lines.values()
        return Sums(
            len(lines),
            sum(line.calls for line in lines),
            sum(line.client for line in lines),
            sum(line.upstream for line in lines),
            sum(line.dollars or 0.0 for line in lines),
            sum(line.dollars is None for line in lines),
        )

    def take(self, row: Stored) -> None:
        """Take in one event; what is of no session has no line."""
        self.seq, event = row.seq, row.event
        if isinstance(event, SessionOpened):
            self._lines[row.session] = Line(
                row.session, key=event.key, harness=event.harness, arm=event.arm, began=row.at
            )
        line = self._lines.get(row.session)
        if line is None:
            return
        line.seq, line.seen = row.seq, max(line.seen, row.at)
        self._lines.move_to_end(row.session)
        under_way = self._open.setdefault(row.session, {})
        self._tell(line, event, under_way)
        line.under_way = len(under_way)
        if not under_way:
            del self._open[row.session]

    def _tell(self, line: Line, event: Event, under_way: dict[CallAddress, _Open]) -> None:
        match event:
            case CallReceived():
                line.model = event.model or line.model
                under_way[CallAddress.of(event)] = _Open(event.size, event.model)
            case LegFinished():
                line.pages_in, line.changed = line.pages_in + len(event.pages), True
                call = under_way.get(CallAddress.of(event))
                if call is not None and event.usage is not None:
                    call.usages.append(event.usage)
            case AnswerFinished():
                self._answered(line, event, under_way.pop(CallAddress.of(event), None))
            case AttemptFailed():
                line.failed += 1
                under_way.pop(CallAddress.of(event), None)
            case Repacked():
                line.repacks, line.changed = line.repacks + 1, True
            case ToolsDecided():
                line.changed |= event.sent < event.whole
            case Warmed():
                spent = cost(event.usage, self._models, line.model)
                line.cost, line.dollars = UsageCost(line.cost, line.dollars).plus(spent)
                line.changed = True
            case _:
                pass

    def _answered(self, line: Line, answer: AnswerFinished, call: _Open | None) -> None:
        line.calls += 1
        if call is None:
            return
        usages = [*call.usages, *([answer.usage] if answer.usage else [])]
        if usages:
            line.client += client_tokens(usages[0].input, call.size, answer.sent_size)
        sum_ = UsageCost(line.cost, line.dollars)
        for usage in usages:
            line.upstream, line.cached = line.upstream + usage.input, line.cached + usage.cached
            line.output += usage.output
            sum_ = sum_.plus(cost(usage, self._models, call.model, answer.served))
        line.cost, line.dollars = sum_


def client_tokens(tokens: int, size: int, sent_size: int) -> int:
    """The tokens of a client's prompt, by its bytes and by the tokens and bytes of what was sent upstream."""
    return round(tokens * size / sent_size) if sent_size else tokens


def _text(line: Line) -> str:
    return f"{line.session} {line.key} {line.harness} {line.model} {line.arm}".lower()
