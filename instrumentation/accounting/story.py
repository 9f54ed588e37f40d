"""A session as plain values: the contract between the code that reads sessions and the code that shows them.

Tokens are of prompts. Every token of a prompt is of exactly one part, so that parts add up to wholes; those of parts in
``WASTE`` need not have been sent. No text of a prompt is in here, but for a page's ``about`` and ``content``; they
are left empty unless a user asks for them.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Self

import msgspec

WASTE = ("unused_schemas", "stale", "duplicates", "superseded", "resent")
"""The parts that are waste, each the cause of its own."""


class Addable(msgspec.Struct, frozen=True):
    """Figures that are added field by field."""

    def plus(self, other: Self) -> Self:
        """The sum of both."""
        return type(self)(**{name: _plus(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__})

    @classmethod
    def sum(cls, several: Iterable[Self]) -> Self:
        """The sum of all, in their order."""
        return reduce(cls.plus, several, cls())


def _plus(one: Any, other: Any) -> Any:  # noqa: ANN401 - numbers, or figures in figures
    return one.plus(other) if isinstance(one, Addable) else one + other


class StoryParts(Addable, frozen=True, omit_defaults=True):
    """The tokens of one prompt, or of several, by part.

    - ``system``: the system prompt, the first time that a branch sends it; ``resent``: the same text again, in later
      calls of the branch (static re-send).
    - ``schemas``: tools that the session calls at some time; ``unused_schemas``: tools that it never calls.
    - ``user``, ``assistant``: their messages, tool calls included; ``other``: all else (media, unknown items).
    - ``results``: results of tools, and large arguments of past calls, while they are in use: up to the last call whose
      answer repeats something that only they had shown, and at least in the first call that has them.
    - ``stale``: the same, past that call. ``duplicates``: content that is repeated later in the same prompt.
      ``superseded``: an older state of what was read or written again further on. Where more than one holds, a page is
      a duplicate first, then superseded, then stale.
    - ``stubs``: what paging has put in: stubs, answers to page_in, the tool that was added.
    """

    system: int = 0
    resent: int = 0
    schemas: int = 0
    unused_schemas: int = 0
    user: int = 0
    assistant: int = 0
    results: int = 0
    stale: int = 0
    duplicates: int = 0
    superseded: int = 0
    stubs: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """The tokens of all parts."""
        return sum([getattr(self, name) for name in self.__struct_fields__])

    @property
    def waste(self) -> Mapping[str, int]:
        """What need not have been sent, by cause."""
        return {name: getattr(self, name) for name in WASTE}


class RepackStory(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of the prompt before its end: why, how many pages went, and what the provider must read again for it."""

    cause: str
    reason: str
    pages: int = 0
    saved: int = 0
    rewritten: int = 0
    price: float = 0.0
    warm: bool = False


class MissStory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call did not find in the provider's cache though the call before had left it there, and why.

    ``reason`` is a ``instrumentation.accounting.cache_misses.MissReason``. ``tokens`` cost ``cost`` units more than
    reading them from the cache would have, ``dollars`` where the price is known. ``pause`` are the seconds since the
    prompt was last sent, ``lifetime`` those for which it was kept, ``changed`` the settings that differ, and ``word``
    is the provider's own, where that is the reason.
    """

    reason: str
    tokens: int = 0
    cost: float = 0.0
    dollars: float | None = None
    pause: float = 0.0
    lifetime: float = 0.0
    changed: Sequence[str] = ()
    word: str = ""


class Missed(Addable, frozen=True, omit_defaults=True):
    """Calls that missed the cache: their tokens that were not found, and what these cost more than reading them."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    dollars: float = 0.0

    @classmethod
    def of(cls, miss: MissStory) -> "Missed":
        """One call."""
        return cls(1, miss.tokens, miss.cost, miss.dollars or 0.0)


class MissSums(Addable, frozen=True, omit_defaults=True):
    """Calls that missed the cache, by the reason; those of a ``pause`` are cold rewrites."""

    pause: Missed = Missed()
    tools: Missed = Missed()
    model: Missed = Missed()
    settings: Missed = Missed()
    history: Missed = Missed()
    repack: Missed = Missed()
    short: Missed = Missed()
    dropped: Missed = Missed()
    unknown: Missed = Missed()

    @classmethod
    def of(cls, miss: MissStory | None) -> "MissSums":
        """One call."""
        return cls(**{miss.reason: Missed.of(miss)}) if miss is not None else cls()

    @property
    def each(self) -> Mapping[str, Missed]:
        """All of them by the reason, those of which there are none left out."""
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: missed for name, missed in found.items() if missed.calls}

    @property
    def all(self) -> Missed:
        """All of them together."""
        return Missed.sum(self.each.values())


class KeptWarm(Addable, frozen=True, omit_defaults=True):
    """What keeping prompts warm cost and rescued.

    ``refreshes`` of a call's prompt in the pause after it cost ``cost``. ``rescues`` are calls that found their prompt
    cached only because it was refreshed, ``rescued`` is what they would have cost more.
    """

    refreshes: int = 0
    cost: float = 0.0
    dollars: float = 0.0
    rescues: int = 0
    rescued: float = 0.0
    dollars_rescued: float = 0.0

    @property
    def net(self) -> float:
        """What it has saved after what it cost, in units."""
        return self.rescued - self.cost

    @property
    def dollars_net(self) -> float:
        """The same in dollars."""
        return self.dollars_rescued - self.dollars


NOT_KEPT_WARM = KeptWarm()
NEVER_COLD = Missed()


class Inflicted(Addable, frozen=True, omit_defaults=True):
    """What paging itself cost a call, in units of one uncached input token.

    ``stubs`` is what the tokens cost that it put into the prompt, ``page_ins`` and ``corrections`` the requests that
    brought pages or tools and those in which calls were put right, ``rewritten`` what the provider had to read again.
    The tokens of these requests are ``page_in_tokens`` and ``correction_tokens``.
    """

    stubs: float = 0.0
    page_ins: float = 0.0
    corrections: float = 0.0
    rewritten: float = 0.0
    page_in_tokens: int = 0
    correction_tokens: int = 0

    @property
    def cost(self) -> float:
        """All of it."""
        return self.stubs + self.page_ins + self.corrections + self.rewritten

    @property
    def again(self) -> int:
        """The tokens of prompts that were sent once more."""
        return self.page_in_tokens + self.correction_tokens


class CallFigures(Addable, frozen=True, omit_defaults=True, kw_only=True):
    """The figures of an answered call that sums of calls have, too: a field here is a sum in every report.

    ``client`` are the parts of the prompt as the client sent it, ``sent`` of the first one that went upstream.
    ``input``, ``cached``, ``written`` and ``output`` are tokens of all ``requests`` together. ``cost`` is theirs in
    units of one uncached input token, ``cost_before`` the cost without ctxpager. ``pages_in`` counts pages that were
    fetched back, ``missed`` those of them for the first time in the session, ``schemas_in`` tools, ``corrected`` calls
    that did not fit. ``working`` are the tokens of the working set, pages in use within the last ten calls; of several
    calls, the largest. ``cached_before`` are the tokens that the cache would have held without ctxpager, ``new`` those
    of the client's prompt that no call of the session had sent before; ``inflicted`` is the cost of paging itself,
    ``kept_warm`` what keeping warm cost and brought, which is in ``cost``, too. ``cold_before`` is what would have been
    written again without ctxpager because of a pause.
    """

    client: StoryParts = StoryParts()
    sent: StoryParts = StoryParts()
    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    requests: int = 1
    cost: float = 0.0
    cost_before: float = 0.0
    pages_in: int = 0
    missed: int = 0
    schemas_in: int = 0
    corrected: int = 0
    working: int = 0
    cached_before: int = 0
    new: int = 0
    inflicted: Inflicted = Inflicted()
    kept_warm: KeptWarm = NOT_KEPT_WARM
    cold_before: Missed = NEVER_COLD


class CallStory(CallFigures, frozen=True, omit_defaults=True):
    """One answered call.

    ``estimated`` where the provider did not report its tokens, ``dollars`` are None where the price is not known.
    ``calls`` are the names of the tools that the answer calls, ``miss`` is what the provider's cache did not hold.
    """

    branch: int
    call: int
    attempt: int
    at: float
    model: str
    estimated: bool = False
    dollars: float | None = None
    dollars_before: float | None = None
    repack: RepackStory | None = None
    calls: Sequence[str] = ()
    miss: MissStory | None = None


class PageStory(msgspec.Struct, frozen=True, omit_defaults=True):
    """One page over the calls of its branch: a letter for each call of the story, in its order.

    ``r`` resident, ``u`` used by the answer, ``s`` wasted (stale, a duplicate, superseded), ``e`` evicted, ``f`` paged
    in at this call, ``.`` not there.
    """

    name: str
    branch: int
    kind: str
    tool: str
    tokens: int
    states: str
    about: str = ""
    content: str = ""


class Story(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session: its calls in the order in which they were answered, and its pages in the order of their coming."""

    session: str
    harness: str
    calls: Sequence[CallStory]
    pages: Sequence[PageStory] = ()
    key: str = ""
    policy: str = ""
    failed: int = 0

    @property
    def client(self) -> StoryParts:
        """The parts of all prompts as the client sent them."""
        return StoryParts.sum(call.client for call in self.calls)

    @property
    def sent(self) -> StoryParts:
        """The parts of all prompts as they went upstream."""
        return StoryParts.sum(call.sent for call in self.calls)
