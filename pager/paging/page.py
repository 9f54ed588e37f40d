"""What is known of one page, and what paging has saved and cost a session."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pager.pricing.prices import ASKING, Prices
from pager.pricing.tokens import BYTES_A_TOKEN

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GRACE = 2
"""Calls for which a new page stays: the results since the last two answers."""

PIN_HALF_LIFE = 2
"""Calls after which a pin has half its strength."""

HELD = 0.5
"""A pin holds while so much of a fault is left of it."""

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


_Number = TypeVar("_Number", float, "NDArray[np.float64]")


def left_of(pin: _Number, calls: _Number) -> _Number:
    """What is left of a pin after so many calls."""
    left: _Number = pin * 0.5 ** (calls / PIN_HALF_LIFE)
    return left


def stub_limit(tokens: int) -> int:
    """The tokens that the stub of a page of so many tokens may have."""
    return max(SMALLEST_STUB, min(STUB_TOKENS, tokens // 10))


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
        return self.faults > 0 or self.used - self.born >= GRACE

    def held(self, call: int) -> bool:
        """Whether a fault still holds it."""
        return self.pin > 0 and left_of(self.pin, call - self.pinned_at) >= HELD

    def failing(self, call: int) -> bool:
        """Whether it is an error that the model may be working on."""
        return self.is_error and call - self.born < ERROR_CALLS

    def pinned(self, call: int) -> bool:
        """Whether a fault, or an error that the model is working on, still holds it."""
        return self.held(call) or self.failing(call)

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


@dataclass(slots=True)
class Account:
    """What paging has saved and cost a session so far, in tokens; prices turn it into money.

    ``read`` are the tokens by which prompts were shorter than the client's, ``unwritten`` those that were not even
    written, as the cache was cold when they went; ``repacks`` is what repacks have cost at the prices of their time. A
    fault reads the ``context`` once more and writes what was asked for. ``prompts`` are those that were shorter than
    the client's: the tokens of the client's, and of what was sent.
    """

    read: int = 0
    unwritten: int = 0
    repacks: float = 0.0
    faults: int = 0
    context: int = 0
    written: int = 0
    prompts: list[tuple[int, int]] = field(default_factory=list)

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
