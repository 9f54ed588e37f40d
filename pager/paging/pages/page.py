"""Pages: how an item of a prompt holds them, what is known of each, and what paging has saved and cost a session."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, overload

from pager.paging.pages.stub import handle_of
from pager.pricing.prices import ASKING, Prices
from pager.pricing.tokens import BYTES_A_TOKEN
from pager.request_values import Block, Kind, Message, Request
from pager.text.references import said
from pager.wire.page_spans import PageSpan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Flags = NDArray[np.bool_]

GRACE = 2
"""Calls for which a new page stays: the results since the last two answers."""

PIN_HALF_LIFE = 2
"""Calls after which a pin has half its strength."""

PIN_HOLDS = 0.5
"""A page stays pinned while its decayed fault strength is at least this."""

BACK = "@b"
"""Stands between handle and number in the name of a page that page_in brought back; clients' own have ``@`` there."""

STRONGEST = 32.0
"""The most that one fault adds to a pin: it holds for a dozen calls."""

ERROR_CALLS = 6
"""Calls for which the result of a failed tool stays: the model may be working on it."""

STUB_TOKENS = 40
"""What a stub may have at most: a tenth of its page, as it is paid on every call."""

SMALLEST_STUB = 26
"""What a stub may have in any case: room for a handle, a tool and its main argument."""


def tokens_of(size: int) -> int:
    """The tokens of a text with so many bytes, roughly; a branch's yardstick makes them its provider's."""
    return round(size / BYTES_A_TOKEN)


def left_of(pin: float, calls: float) -> float:
    """What is left of a pin after this many calls."""
    return pin * float(0.5 ** (calls / PIN_HALF_LIFE))


@overload
def pin_holds(pin: float, calls: float) -> bool: ...
@overload
def pin_holds(pin: "Numbers", calls: "Numbers") -> "Flags": ...
def pin_holds(pin: "float | Numbers", calls: "float | Numbers") -> "bool | Flags":
    """Whether a pin still holds a page after this many calls; of one page, or of all in arrays."""
    return (pin > 0) & (pin * 0.5 ** (calls / PIN_HALF_LIFE) >= PIN_HOLDS)


@overload
def is_failing(is_error: bool, age: float) -> bool: ...  # noqa: FBT001
@overload
def is_failing(is_error: "Flags", age: "Numbers") -> "Flags": ...
def is_failing(is_error: "bool | Flags", age: "float | Numbers") -> "bool | Flags":
    """Whether a page is an error that the model may be working on."""
    return is_error & (age < ERROR_CALLS)


@overload
def is_reused(faults: float, kept: float) -> bool: ...
@overload
def is_reused(faults: "Numbers", kept: "Numbers") -> "Flags": ...
def is_reused(faults: "float | Numbers", kept: "float | Numbers") -> "bool | Flags":
    """Whether the model needed a page after the answer that it was fetched for; ``kept`` calls up to its last use."""
    return (faults > 0) | (kept >= GRACE)


def stub_limit(tokens: int) -> int:
    """The tokens that the stub of a page of so many tokens may have."""
    return max(SMALLEST_STUB, min(STUB_TOKENS, tokens // 10))


class Items(NamedTuple):
    """A call's items: the hashes of their bytes and of their normal forms, and the bytes of any of them.

    ``head_marks`` and ``auto_mark`` are the lifetimes of the client's cache marks outside of them, as in a ``Request``.
    """

    digests: Sequence[bytes]
    norms: Sequence[bytes]
    raw: Callable[[int], bytes]
    head_marks: Sequence[float] = ()
    auto_mark: float = 0.0

    @classmethod
    def of(cls, request: Request, norms: Sequence[bytes]) -> "Items":
        """The items of a request, with the hashes of their normal forms."""
        items = request.items
        return cls(request.digests, norms, lambda at: bytes(items[at]), request.head_marks, request.auto_mark)


@dataclass(slots=True)
class Page:
    """One page of a branch; calls are counted by their number in the branch. A stub means that it is evicted.

    One that page_in brought back has ``origins``, the handles of what it was brought from; it is ``whole`` where it is
    one page and nothing else, and then has the handle and the history of that page. ``makers`` are the calls that its
    content came from.
    """

    name: str
    handle: str
    key: str
    kind: str
    tool: str
    call_id: str
    size: int
    born: int
    slot: int
    used: int
    is_error: bool = False
    uses: int = 0
    faults: int = 0
    superseded: bool = False
    stub: str = ""
    pin: float = 0.0
    pinned_at: int = 0
    row: int = 0
    origins: tuple[str, ...] = ()
    whole: bool = True
    makers: tuple[str, ...] = ()
    tokens: int = field(init=False)
    stub_tokens: int = 0

    def __post_init__(self) -> None:
        self.tokens = tokens_of(self.size)
        self.stub_tokens = self.stub_tokens or stub_limit(self.tokens)

    @property
    def series(self) -> str:
        """What its name is numbered in: pages of the same content, those that came back apart from the others."""
        return f"{self.handle}{BACK}" if self.origins and self.whole else self.handle

    @property
    def gain(self) -> int:
        """The tokens that its stub saves, if it has one."""
        return self.tokens - self.stub_tokens if self.stub else 0

    @property
    def evicted(self) -> bool:
        """Whether its stub stands for it."""
        return bool(self.stub)

    @property
    def is_argument(self) -> bool:
        """Whether it is an argument of a call, and no result."""
        return self.kind == "argument"

    @property
    def reused(self) -> bool:
        """Whether the model needed it after the answer it was got for."""
        return is_reused(self.faults, self.used - self.born)

    def held(self, call: int) -> bool:
        """Whether a fault still holds it."""
        return pin_holds(self.pin, call - self.pinned_at)

    def failing(self, call: int) -> bool:
        """Whether it is an error that the model may be working on."""
        return is_failing(self.is_error, call - self.born)

    def hold(self, call: int) -> None:
        """It has come because it was asked for: a copy that went at once would only be asked for again."""
        if self.born == call and left_of(self.pin, call - self.pinned_at) < 1.0:
            self.pin, self.pinned_at = 1.0, call

    def fault(self, call: int) -> None:
        """The model needed it though it was evicted; each fault holds it for two calls more than the one before."""
        self.faults += 1
        self.pin, self.pinned_at = left_of(self.pin, call - self.pinned_at) + self._strength, call
        self.used = max(self.used, call)

    def use(self, call: int) -> None:
        """The model used it; what was missed before is held anew."""
        self.uses += 1
        self.used = max(self.used, call)
        if self.faults:
            at = max(call, self.pinned_at)
            self.pin, self.pinned_at = max(left_of(self.pin, at - self.pinned_at), self._strength), at

    def inherit(self, past: "Page") -> None:
        """Take over the history of the page whose content this is."""
        self.uses, self.faults, self.pin, self.pinned_at = past.uses, past.faults, past.pin, past.pinned_at

    @property
    def _strength(self) -> float:
        return min(2.0 ** (self.faults - 1), STRONGEST)


PAUSES = (300.0, 600.0, 1_800.0, 3_600.0, 86_400.0)
"""Seconds for which providers keep prompts: pauses are counted up to each of them."""


@dataclass(slots=True)
class Account:
    """What paging has saved and cost a session so far, in tokens; prices turn it into money.

    ``read`` are the tokens by which prompts were shorter than the client's, ``unwritten`` those that were not even
    written, as the cache was cold when they went; ``repacks`` is what repacks have cost at the prices of their time. A
    fault reads the ``context`` once more and writes what was asked for. ``prompts`` are those that were shorter than
    the client's: the tokens of the client's, and of what was sent. ``fresh`` are the tokens of all prompts that were
    new in them, ``again`` those that the prompt before had already, by the pause since then (``PAUSES``).
    ``refreshes`` is what keeping the prompt warm has cost, and ``rescued`` what it saved.

    Everything here follows from what was sent, and nothing from the provider's answers, of which the last may be lost
    with a crash: the same calls always come to the same account.
    """

    read: int = 0
    unwritten: int = 0
    repacks: float = 0.0
    faults: int = 0
    context: int = 0
    written: int = 0
    prompts: list[tuple[int, int]] = field(default_factory=list)
    fresh: int = 0
    again: tuple[int, ...] = (0,) * (len(PAUSES) + 1)
    refreshes: float = 0.0
    rescued: float = 0.0
    settled: "Checkpoint | None" = None  # up to which what was saved has gone into the user's account

    def copy(self) -> "Account":
        """The same, as it is now."""
        return replace(self, prompts=list(self.prompts))

    def settle(self) -> None:
        """Begin to save anew: what was saved so far has gone into the user's account."""
        self.settled = self.checkpoint()

    @property
    def unsettled(self) -> "Account":
        """What was added since it was last settled."""
        return self if self.settled is None else self.since(self.settled)

    def checkpoint(self) -> "Checkpoint":
        """A point to count from."""
        return Checkpoint(replace(self, prompts=[], settled=None), len(self.prompts))

    def since(self, point: "Checkpoint") -> "Account":
        """What was added since this point."""
        before, prompts = point
        return Account(
            read=self.read - before.read,
            unwritten=self.unwritten - before.unwritten,
            repacks=self.repacks - before.repacks,
            faults=self.faults - before.faults,
            context=self.context - before.context,
            written=self.written - before.written,
            prompts=self.prompts[prompts:],
            fresh=self.fresh - before.fresh,
            again=tuple(now - then for now, then in zip(self.again, before.again, strict=True)),
            refreshes=self.refreshes - before.refreshes,
            rescued=self.rescued - before.rescued,
        )

    def net(self, prices: Prices) -> float:
        """What paging and keeping warm have saved, less what they have cost."""
        return self.saved(prices) + self.rescued - self.spent(prices) - self.refreshes

    def send(self, prompt: int, shared: int, pause: float) -> None:
        """Add a prompt of this many tokens, of which the one before had ``shared``, this many seconds ago."""
        at = bisect_left(PAUSES, pause)
        self.fresh += prompt - shared
        self.again = (*self.again[:at], self.again[at] + shared, *self.again[at + 1 :])

    def cost(self, prices: Prices) -> float:
        """What prompts and page-ins have cost, roughly and without answers, in units of one uncached input token."""
        warm = bisect_right(PAUSES, prices.ttl_seconds)
        written = self.fresh + sum(self.again[warm:])
        return prices.write * written + prices.read * sum(self.again[:warm]) + self.spent(prices)

    def saved(self, prices: Prices) -> float:
        """What was saved, in units of one uncached input token."""
        return prices.read * (self.read + self._by_the_step(prices)) + (prices.write - prices.read) * self.unwritten

    def _by_the_step(self, prices: Prices) -> float:
        """The tokens that long prompts would have cost more, had they been sent as the client has them."""
        if not prices.step_tokens:
            return 0.0
        longer = ((prices.factors(whole)[0] - 1) * whole for whole, _ in self.prompts)
        return sum(longer) - sum((prices.factors(sent)[0] - 1) * sent for _, sent in self.prompts)

    def spent(self, prices: Prices) -> float:
        """What it cost."""
        asked = prices.output * ASKING * self.faults
        return self.repacks + prices.read * self.context + prices.write * self.written + asked


class Checkpoint(NamedTuple):
    """An account at some time, from which on it is counted."""

    account: Account  # without its prompts
    prompts: int


SMALLEST = 500
"""Bytes below which a text is no page: about three stubs' worth of tokens."""

SMALLEST_ARGUMENT = 800
"""Bytes below which an argument is no page: a model learns from its own calls how calls are written."""


class Found(NamedTuple):
    """A page as an item holds it."""

    key: str
    kind: str
    handle: str
    digest: bytes
    size: int
    call_id: str
    text: str
    is_error: bool


class Made(NamedTuple):
    """A tool call that an item makes."""

    call_id: str
    tool: str
    arguments: str


class Contents(NamedTuple):
    """One item: ``said`` is what the model said in it, ``results`` the calls it answers and whether they failed.

    ``positions`` are those that a provider counts when it looks back from a cache mark: calls in a row are one, and so
    are results. ``markable``: whether some block of it can carry a mark.
    """

    pages: tuple[Found, ...] = ()
    calls: tuple[Made, ...] = ()
    results: tuple[tuple[str, bool], ...] = ()
    said: str = ""
    reasoning: bool = False
    positions: int = 1
    markable: bool = True


def contents(message: Message, page_spans: list[PageSpan]) -> Contents:
    """What a decoded item with these page spans holds."""
    calls = [block for block in message.blocks if block.kind is Kind.CALL]
    spoken = [
        said(block.text) if block.kind is Kind.CALL else block.text
        for block in message.blocks
        if block.kind in (Kind.TEXT, Kind.CALL)
    ]
    return Contents(
        pages=tuple(page for page_span in page_spans if (page := _page(page_span)) is not None),
        calls=tuple(Made(block.call_id, block.name, block.text) for block in calls),
        results=tuple((block.call_id, block.is_error) for block in message.blocks if block.kind is Kind.RESULT),
        said="\n".join(spoken) if message.role == "assistant" else "",
        reasoning=any(block.kind is Kind.REASONING for block in message.blocks),
        positions=_positions(message),
        markable=any(_can_carry(block) for block in message.blocks),
    )


def _positions(message: Message) -> int:
    """How many positions a message has; runs of calls, and of results, are one each."""
    kinds = [block.kind for block in message.blocks]
    shared = sum(kind is before and kind in (Kind.CALL, Kind.RESULT) for before, kind in pairwise(kinds))
    return max(1, len(kinds) - shared)


def _can_carry(block: Block) -> bool:
    """Whether a block can carry a cache mark: neither thinking nor an empty text can."""
    return block.kind in (Kind.CALL, Kind.RESULT, Kind.MEDIA) or (block.kind is Kind.TEXT and bool(block.text.strip()))


def found_again(found: Found, content: str) -> Found:
    """A page that stands below a heading, by the handle of its own content."""
    raw = content.encode("utf-8", "surrogatepass")
    return found._replace(handle=handle_of(raw), digest=sha256(raw).digest(), text=content)


def _page(page_span: PageSpan) -> Found | None:
    """The page at a page span, if what stands there is large enough and belongs to a call."""
    least = SMALLEST_ARGUMENT if page_span.kind is Kind.CALL else SMALLEST
    if len(page_span.text) * 4 < least or not page_span.call_id:
        return None
    content = page_span.text.encode("utf-8", "surrogatepass")
    if len(content) < least:
        return None
    kind = "argument" if page_span.kind is Kind.CALL else "result"
    handle, digest = handle_of(content), sha256(content).digest()
    return Found(
        page_span.key, kind, handle, digest, len(content), page_span.call_id, page_span.text, page_span.is_error
    )
