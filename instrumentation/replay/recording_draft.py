"""Builds the steps of a recording from a log: prompts with their answers, in lines that fork where a prompt was cut.

A log holds the messages, but not what else was sent: the system prompt and mostly the tools are missing. Their size is
estimated from the tokens that the provider counted for the first call of a line; the tools are those that were called.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from instrumentation.accounting.billing import tokens_in
from instrumentation.accounting.item_sizes import item_tokens
from instrumentation.replay.inferred_tools import InferredTools, offers_in, written
from instrumentation.replay.recording import RecordedCall, Recording
from pager.paging.pages.page_table import common_length
from pager.pricing.tokens import BYTES_A_TOKEN
from pager.request_values import Usage
from pager.tools.definitions import Offers

UNRECORDED = 60_000
"""Tokens that a prompt may have at the most beside what was recorded; more have another cause."""

BEGINNING = 1_700_000_000.0
"""The time of a first call that was recorded without one; the next comes a second later."""

LONGEST_TOKEN = 8
"""Bytes of a token that no whole answer reaches on average; one that does was counted before it was complete."""

_FRESH = ("input_tokens", "prompt_tokens", "input")
_CACHED = ("cache_read_input_tokens", "cacheRead")
_WRITTEN = ("cache_creation_input_tokens", "cacheWrite")
_OUTPUT = ("output_tokens", "completion_tokens", "output")
_LIFETIMES = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
_DETAILS = ("prompt_tokens_details", "input_tokens_details")


def counted(usage: object) -> Usage | None:
    """What a provider counted, in the words of any of them; None if it says nothing."""
    if not isinstance(usage, Mapping) or not usage:
        return None
    fresh, cached, put, output = (_sum(usage, names) for names in (_FRESH, _CACHED, _WRITTEN, _OUTPUT))
    has_cached = any(name in usage for name in _CACHED)
    for details in (usage.get(name) for name in _DETAILS):  # here the cached tokens are among the others
        if isinstance(details, Mapping) and "cached_tokens" in details:
            return Usage(fresh, _sum(details, ("cached_tokens",)), 0, output, tells_cached=True)
    granted = usage.get("cache_creation")
    short, long = (_sum(granted, (name,)) if isinstance(granted, Mapping) else 0 for name in _LIFETIMES)
    return Usage(fresh + cached + put, cached, put, output, tells_cached=has_cached, written_5m=short, written_1h=long)


def _sum(usage: Mapping[str, object], names: Sequence[str]) -> int:
    return sum(int(value) for name in names if isinstance(value := usage.get(name), int | float))


def outside(usage: Usage | None, shown: int, known: int) -> int:
    """The bytes outside of the items: those known, and what the provider counted beyond them and the tokens shown."""
    beyond = (usage.input if usage else 0) - shown - tokens_in(known)
    return known + round(max(0, min(UNRECORDED, beyond)) * BYTES_A_TOKEN)


def size_of(words: str) -> int:
    """The bytes of a text."""
    return len(words.encode("utf-8", "surrogatepass"))


class CallPlace(NamedTuple):
    """The place of a call: what it keeps of the one before, its branch, and where that forks if it begins here."""

    keep: int
    branch: int
    parent: int | None = None
    fork_call: int = 0


@dataclass(slots=True)
class CallLine:
    """A line of calls: the latest prompt, and the lengths of the prompts of its calls up to there."""

    latest: list[bytes] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    branch: int = -1

    def place(self, prompt: Sequence[bytes], free: int) -> CallPlace:
        """The place of the next call; a prompt that does not go on where the last one ended begins the branch ``free``.

        It forks from the last one, be it only with what was not recorded; whoever knows that there was nothing makes it
        a branch without a parent.
        """
        before, keep = self.branch, common_length(self.latest, prompt)
        place = CallPlace(keep, before)
        if before < 0 or keep < len(self.latest):
            fork_call = sum(length <= keep for length in self.lengths)
            del self.lengths[fork_call:]
            self.branch = free
            place = CallPlace(keep, free, before if before >= 0 else None, fork_call)
        self.latest = list(prompt)
        self.lengths.append(len(prompt))
        return place


@dataclass(slots=True)
class OpenCall:
    """A call whose answer is still being read; ``shown`` are the tokens of its items if it is the first of its line."""

    line: CallLine
    place: CallPlace
    new: tuple[bytes, ...]
    shown: int
    at: float
    model: str
    words: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    usage: Usage | None = None
    cache_miss: str = ""

    @property
    def output(self) -> int:
        """The tokens of the answer: the provider's count, unless it was counted before the answer was whole."""
        size = size_of("\n".join(self.words))
        counted = self.usage.output if self.usage else 0
        return counted if counted and counted * LONGEST_TOKEN >= size else max(counted, tokens_in(size))


class RecordingDraft:
    """A recording in the making; ``tools`` are those that its answers call."""

    def __init__(self, dialect: str) -> None:
        self.tools = InferredTools()
        self.calls: list[OpenCall] = []
        self._dialect = dialect
        self._branches = 0
        self._at = BEGINNING - 1

    def begin(self, line: CallLine, prompt: Sequence[bytes], at: float | None, model: str) -> OpenCall:
        """The next call, in the order in which they happened; what its answer says is still to come."""
        shown = sum(item_tokens(item, self._dialect) for item in prompt) if line.branch < 0 else 0
        place = line.place(prompt, self._branches)
        self._branches = max(self._branches, place.branch + 1)
        self._at = self._at + 1 if at is None else at
        call = OpenCall(line, place, tuple(prompt[place.keep :]), shown, self._at, model)
        self.calls.append(call)
        return call

    def recording(self, name: str, harness: str, instructions: int = 0) -> Recording | None:
        """All of it; None if there was no call. ``instructions`` are bytes known to be outside of the items."""
        if not self.calls:
            return None
        tools = written(self.tools.tools(self._dialect)) if self.tools.names else b""
        known = len(tools) + instructions
        offers = offers_in(self._dialect, tools) if tools else None
        around: dict[int, int] = {}
        for call in self.calls:
            around.setdefault(id(call.line), outside(call.usage, call.shown, known))
        steps = [self._step(call, around[id(call.line)], known, offers) for call in self.calls]
        return Recording(name, self._dialect, steps, harness)

    def _step(self, call: OpenCall, around: int, known: int, offers: Offers | None) -> RecordedCall:
        return _step(call, around, offers, self.tools.names or None, shares=call.place.keep > 0 or around > known)


def _step(
    call: OpenCall, around: int, offers: Offers | None, names: frozenset[str] | None, *, shares: bool
) -> RecordedCall:
    place = call.place
    return RecordedCall(
        at=call.at,
        keep=place.keep,
        new=call.new,
        outside=around,
        said="\n".join(call.words),
        output=call.output,
        branch=place.branch,
        parent=place.parent if shares else None,
        fork_call=place.fork_call if shares else 0,
        model=call.model,
        tools=names,
        offers=offers,
        called=tuple(call.called),
        usage=call.usage,
        cache_miss=call.cache_miss,
    )
