"""The ledger: what sessions cost, what they would have cost unpaged, and why, summed up in whatever groups one likes.

Tokens are conserved. What the client sent is what went upstream, and what was avoided, without what paging itself put
in: ``client = upstream + avoided - inflicted``. The same holds for money, where what keeping warm brought stands apart.
Groups add up to the total.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import TypeVar

import msgspec

from instrumentation.accounting.ledger.session_story import recordings, story
from instrumentation.accounting.story import CallFigures, CallStory, MissSums, RepackStory, Story, StoryParts

__all__ = ["KEYS", "Ledger", "LedgerRow", "LedgerSums", "grouped", "ledger", "peaks", "recordings", "story"]

TREND = 12
"""Values by which the trend of a group is shown."""

_Item = TypeVar("_Item")


class LedgerSums(CallFigures, frozen=True, kw_only=True):
    """The figures of calls added up.

    ``estimated`` and ``unpriced`` count the calls of which the provider reported no tokens, and those whose model's
    price is not known, which are in no sum of dollars.
    """

    calls: int = 0
    requests: int = 0
    estimated: int = 0
    dollars: float = 0.0
    dollars_before: float = 0.0
    dollars_inflicted: float = 0.0
    unpriced: int = 0
    evicted: int = 0
    repacks: int = 0
    rewritten: int = 0
    misses: MissSums = MissSums()

    @classmethod
    def of(cls, call: CallStory) -> "LedgerSums":
        """One call."""
        known, repack = call.dollars is not None, call.repack or RepackStory("", "")
        per_unit = (call.dollars or 0.0) / call.cost if call.cost else 0.0
        return cls(
            **{name: getattr(call, name) for name in CallFigures.__struct_fields__},
            calls=1,
            estimated=int(call.estimated),
            dollars=call.dollars or 0.0,
            dollars_before=(call.dollars_before or 0.0) if known else 0.0,
            dollars_inflicted=call.inflicted.cost * per_unit,
            unpriced=int(not known),
            evicted=repack.pages,
            repacks=int(call.repack is not None),
            rewritten=repack.rewritten,
            misses=MissSums.of(call.miss),
        )

    def plus(self, other: "LedgerSums") -> "LedgerSums":
        """The sum of both, with the larger working set."""
        return msgspec.structs.replace(super().plus(other), working=max(self.working, other.working))

    # ---- tokens

    @property
    def upstream(self) -> int:
        """The tokens of all prompts that went upstream, those of further requests inside a call included."""
        return self.sent.total + self.inflicted.again

    @property
    def avoided(self) -> Mapping[str, int]:
        """The tokens that the client sent and that did not go upstream, by what they were."""
        names = (name for name in StoryParts.__struct_fields__ if name != "stubs")
        return {name: getattr(self.client, name) - getattr(self.sent, name) for name in names}

    @property
    def avoided_tokens(self) -> int:
        """All of them."""
        return sum(self.avoided.values())

    @property
    def remaining(self) -> Mapping[str, int]:
        """The waste that went upstream, by cause."""
        return self.sent.waste

    @property
    def inflicted_tokens(self) -> int:
        """The tokens that went upstream because of paging alone."""
        return self.sent.stubs + self.inflicted.again

    # ---- money

    @property
    def saved(self) -> float:
        """What was saved after all that it cost, in units; negative where it made things dearer."""
        return self.cost_before - self.cost

    @property
    def avoided_cost(self) -> float:
        """What paging has spared, before what it cost itself, in units; without what keeping warm brought."""
        return self.saved - self.kept_warm.net + self.inflicted.cost

    @property
    def dollars_saved(self) -> float:
        """What was saved after all that it cost, of the calls whose price is known."""
        return self.dollars_before - self.dollars

    @property
    def dollars_avoided(self) -> float:
        """What paging has spared, before what it cost itself, of the calls whose price is known."""
        return self.dollars_saved - self.kept_warm.dollars_net + self.dollars_inflicted

    # ---- ratios

    @property
    def amplification(self) -> float:
        """How often each token that the client had to say was sent by it."""
        return self.client.total / self.new if self.new else 0.0

    @property
    def faults_per_page(self) -> float:
        """How often each evicted page that was asked for at all was asked for."""
        return self.pages_in / self.missed if self.missed else 0.0

    @property
    def faults_per_call(self) -> float:
        """How many pages were asked for, for each call."""
        return self.pages_in / self.calls if self.calls else 0.0

    @property
    def hit_rate(self) -> float:
        """The share of all prompts that the provider's cache held."""
        return self.cached / self.input if self.input else 0.0

    @property
    def hit_rate_before(self) -> float:
        """The same, if nothing had ever been paged."""
        return self.cached_before / self.client.total if self.client.total else 0.0


class LedgerRow(msgspec.Struct, frozen=True):
    """One group: what it is called, how many sessions have calls in it, and what these come to.

    ``trend`` are the tokens of its prompts as they went upstream, the largest of every few calls, in their order.
    """

    name: str
    sessions: int
    sums: LedgerSums
    trend: Sequence[int] = ()


class Ledger(msgspec.Struct, frozen=True):
    """Sessions summed up by something; ``failed`` are the attempts that brought no whole answer."""

    by: str
    rows: Sequence[LedgerRow]
    total: LedgerRow
    failed: int = 0


Entry = tuple[Story, CallStory]

KEYS: Mapping[str, Callable[[Story, CallStory], str]] = {
    "session": lambda one, _: one.session,
    "day": lambda _, call: datetime.fromtimestamp(call.at, UTC).strftime("%Y-%m-%d"),
    "model": lambda _, call: call.model,
    "harness": lambda one, _: one.harness,
    "branch": lambda one, call: f"{one.session} {call.branch}",
    "call": lambda one, call: f"{one.session} {call.branch}:{call.call}#{call.attempt}",
}
"""What calls can be summed up by, and how the group of a call is called."""


def ledger(stories: Iterable[Story], by: str = "session") -> Ledger:
    """These sessions, summed up by one of ``KEYS``; groups stand in the order in which they first occur."""
    told = list(stories)
    entries = [(one, call) for one in told for call in one.calls]
    name = KEYS[by]
    rows = [_row(key, its) for key, its in grouped(entries, lambda entry: name(*entry))]
    return Ledger(by, rows, _row("total", entries), sum(one.failed for one in told))


def grouped(items: Iterable[_Item], key: Callable[[_Item], str]) -> Iterator[tuple[str, list[_Item]]]:
    """The items of each key together, in the order in which keys first occur."""
    groups: dict[str, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    yield from groups.items()


def _row(name: str, entries: Sequence[Entry]) -> LedgerRow:
    sums = LedgerSums.sum(LedgerSums.of(call) for _, call in entries)
    trend = peaks([call.sent.total for _, call in entries], TREND)
    return LedgerRow(name, len({one.session for one, _ in entries}), sums, trend)


def peaks(values: Sequence[int], most: int) -> list[int]:
    """At most so many values that show how a longer series went: the largest of each stretch of it."""
    if len(values) <= most:
        return list(values)
    ends = [len(values) * at // most for at in range(most + 1)]
    return [max(values[begin:end]) for begin, end in pairwise(ends)]
