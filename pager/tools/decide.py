"""Decides, once for a list of tools, in which form each is sent: whole, slim or deferred.

Most offered tools are never called, and yet stand in every prompt. A short form is sent in the place of a tool that is
hardly ever used; it keeps a handle to the whole, and calls of it are checked against the whole schema. What each form
costs is weighed as everything here is: its tokens in every call to come, and the chance that the model has to ask for
the rest. Tools that sessions of this client program mostly use stay whole.

A decision depends on the tools, the prices and what was learned, and on nothing that differs from one session to the
next, so that all of them have the same beginning, which the provider caches.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Literal, NamedTuple

import msgspec
import orjson

from pager.pricing.prices import ASKING, TOOL, Prices
from pager.pricing.tokens import O200K, Counter
from pager.tools.definitions import (
    Edit,
    Listed,
    Offer,
    Offers,
)
from pager.tools.known_agents import CHANCE, brought
from pager.tools.shorten import (
    Forms,
    Size,
    Slim,
    forms,
)
from pager.values import Span

DIGITS = 9
"""Digits of the handle of a tool's schema: it stands in every prompt, and only a few others stand beside it. They are
decimal ones, which take three tokens; as many bits in hex take five."""

CONTEXT = 12_000
"""Tokens of the prompt that is read once more when the model asks for a schema.

It asks before it first uses a tool: then recorded sessions hold 700 to 28,000 tokens beside their tools, on average.
"""

CALLS = 10.0
"""Calls that a branch is taken to have where nothing was learned of how long they last."""

UNSURE = 0.1
"""How often a model that calls a slim tool has to see the whole of it first."""

OFTEN = 0.25
"""The share of a client program's sessions from which on a tool that they use stays whole."""

USED = 6
"""Different tools that a session is taken to use where nothing is known."""

LEAST = 0.02
"""What shortening must save at least, as a share of what the tools would cost whole."""

LISTS = 128
"""Lists of tools whose forms and decisions are kept at hand: most sessions share theirs with others."""

Form = Literal["whole", "slim", "deferred"]
_counter = Counter()


class ToolAsSent(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """How one tool is sent, and why; tokens are those of its name, description and parameters.

    Where it is not sent whole, ``handle`` is that of the tool in full, kept as ``whole``; ``description`` and
    ``parameters`` are what stands in their place, and make the prompt shorter by ``freed`` bytes.
    """

    name: str
    form: Form
    reason: str
    whole_tokens: int
    tokens: int
    freed: int = 0
    handle: str = ""
    description: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b"{}")
    whole: msgspec.Raw = msgspec.Raw(b"{}")

    @property
    def schema(self) -> object:
        """What its arguments are checked against."""
        return orjson.loads(bytes(self.whole)).get("parameters", {})

    @property
    def short(self) -> Slim:
        """What stands in its place."""
        return Slim(self.name, self.description, bytes(self.parameters))


class Toolset:
    """A decision on a list of tools, as it is logged; ``digest`` is that of the list."""

    def __init__(self, digest: str, sent: Sequence[ToolAsSent]) -> None:
        self.digest = digest
        self.sent = tuple(sent)
        self.shortened: Mapping[str, ToolAsSent] = {one.name: one for one in self.sent if one.handle}
        self.handles: Mapping[str, ToolAsSent] = {one.handle: one for one in self.sent if one.handle}
        self.freed = sum(one.freed for one in self.sent)
        self._edits: tuple[Listed | None, tuple[Edit, ...]] = (None, ())

    @property
    def whole_tokens(self) -> int:
        """The tokens of all tools as the client offers them."""
        return sum(one.whole_tokens for one in self.sent)

    @property
    def tokens(self) -> int:
        """The tokens of all tools as they are sent."""
        return sum(one.tokens for one in self.sent)

    def edits(self, listed: Listed) -> tuple[Edit, ...]:
        """What puts the short forms in place, in the body with this list; written once for each way to write it."""
        if self._edits[0] != listed:
            shorts = {name: one.short for name, one in self.shortened.items()}
            moved = [(_moved(span, listed.start), new) for span, new in listed.offers.edits(shorts)]
            self._edits = (listed, tuple(moved))
        return self._edits[1]

    def without(self, handles: Collection[str]) -> "Toolset":
        """The same with the tools of these handles whole."""
        clash = "its handle is that of another tool"
        kept = [
            ToolAsSent(one.name, "whole", clash, one.whole_tokens, one.whole_tokens) if one.handle in handles else one
            for one in self.sent
        ]
        return Toolset(self.digest, kept)

    def encode(self) -> bytes:
        """The decision as the log keeps it."""
        return msgspec.json.encode([self.digest, self.sent])


def _moved(span: Span, by: int) -> Span:
    return Span(span.start + by, span.end + by)


def decode(content: bytes) -> Toolset:
    """A decision out of the log."""
    digest, sent = msgspec.json.decode(content, type=tuple[str, list[ToolAsSent]])
    return Toolset(digest, sent)


class Outlook(NamedTuple):
    """What a decision is made under.

    ``calls`` is how many the branch is taken to have, None where that is not known; ``chance`` says of a tool how
    likely a session uses it, given what is usual for one that nothing is known of. ``switch`` are the tokens that the
    provider has to read again if anything changes now. Sets of more than ``defer_above`` tokens may be deferred.
    """

    prices: Prices
    calls: float | None
    chance: Callable[[str, float], float]
    tool_added: bool
    switch: int = 0
    defer_above: int = 20_000

    @property
    def weight(self) -> float:
        """What one token costs that stands in every prompt to come."""
        return _weight(self.prices, self.calls) - (self.prices.write - self.prices.read if self.switch else 0.0)

    def pays(self, whole: int, saved: int, risk: float = 0.0) -> bool:
        """Whether it pays to save so many tokens of the whole, if asking for the rest is to cost so much."""
        tool = 0 if self.tool_added else TOOL * self.weight
        switch = self.switch * (self.prices.write - self.prices.read)
        return saved * self.weight - risk - tool - switch > LEAST * whole * self.weight


def _weight(prices: Prices, calls: float | None) -> float:
    return prices.write + prices.read * (max(1.0, calls or CALLS) - 1)


def usual_chance(tools: int) -> float:
    """How likely a session calls a tool that nothing is known of, one of so many: not often, until it is known to."""
    return min(OFTEN * 0.99, USED / max(1, tools))


def decide(offers: Offers, outlook: Outlook) -> tuple[Toolset, str]:
    """How each tool is sent, and what is to be said of it all; for the same tools and prices the same object."""
    if offers.deferring:
        return _unchanged(offers, f"the client loads tools when they are needed: {offers.deferring}")
    usual = usual_chance(len(offers.tools))
    names = [offer.tool.name for offer in offers.tools]
    own = brought(names)
    chances = tuple(outlook.chance(name, CHANCE if name in own else usual) for name in names)
    best, risk = _best(offers, outlook.prices, outlook.calls, chances, outlook.defer_above)
    whole, saved = best.whole_tokens, best.whole_tokens - best.tokens
    if not outlook.pays(whole, saved, risk):
        return _unchanged(offers, f"to send tools short would save {saved:,} of {whole:,} tokens, and not pay")
    short = f"{len(best.shortened)} of {len(best.sent)} are sent short"
    return best, f"{short}: {whole:,} tokens become {best.tokens:,}"


@lru_cache(LISTS)
def _best(
    offers: Offers, prices: Prices, calls: float | None, chances: tuple[float, ...], defer_above: int
) -> tuple[Toolset, float]:
    """Every tool in the form that costs least, and what asking for the rest is to cost."""
    sized = _sized(offers)
    deferrable = sum(made.whole_size.tokens for _, made in sized) > defer_above
    outlook = _Costs(_weight(prices, calls), prices, calls)
    weighed = [
        _chosen(offer, made, outlook, chance, deferrable=deferrable)
        for offer, made, chance in zip(offers.tools, sized, chances, strict=True)
    ]
    return Toolset(offers.digest, [one for one, _ in weighed]), sum(risk for _, risk in weighed)


class _Costs(NamedTuple):
    """What a token costs that stands in every prompt, and what that is made of."""

    weight: float
    prices: Prices
    calls: float | None

    def asking(self, tokens: int) -> float:
        """What it costs when the model asks for the whole of a tool of so many tokens, which then stays."""
        prices = self.prices
        stays = tokens * (prices.write + prices.read * (self.calls or CALLS) / 2)
        return prices.read * CONTEXT + prices.output * ASKING + stays


@lru_cache(LISTS)
def _unchanged(offers: Offers, why: str) -> tuple[Toolset, str]:
    return Toolset(offers.digest, [_whole(*one, why) for one in zip(offers.tools, _sized(offers), strict=True)]), why


def schema_handle(raw: bytes, digits: int = DIGITS) -> str:
    """The handle of a tool in full: a pure function of its bytes."""
    return f"pg_{int(sha256(raw).hexdigest(), 16) % 10**digits:0{digits}d}"


@lru_cache(LISTS)
def _sized(offers: Offers) -> tuple[tuple[str, Forms], ...]:
    """Each tool's handle, and the forms that it may take; counted once for each list of tools."""
    taken: dict[str, bytes] = {}
    made = []
    for one in offers.tools:
        raw = one.tool.raw
        handles = (schema_handle(raw, digits) for digits in (DIGITS, 2 * DIGITS, 3 * DIGITS))
        handle = next(handle for handle in handles if taken.setdefault(handle, raw) == raw)
        made.append((handle, forms(one.tool, handle, _count)))
    return tuple(made)


def _count(text: str) -> int:
    return _counter.count(text, O200K)


def _whole(offer: Offer, made: tuple[str, Forms], reason: str) -> ToolAsSent:
    tokens = made[1].whole_size.tokens
    return ToolAsSent(offer.tool.name, "whole", offer.fixed or reason, tokens, tokens)


def _chosen(
    offer: Offer, made: tuple[str, Forms], outlook: _Costs, chance: float, *, deferrable: bool
) -> tuple[ToolAsSent, float]:
    """The form that costs least, of those that a tool may take; and what asking for the rest of it is to cost."""
    handle, possible = made
    whole = possible.whole_size.tokens
    if offer.fixed:
        return _whole(offer, made, ""), 0.0
    if chance >= OFTEN:
        return _whole(offer, made, f"taken to be called in {chance:.0%} of sessions"), 0.0
    asking = chance * outlook.asking(whole)
    short: list[tuple[Form, Slim | None, Size | None, float]] = [
        ("slim", possible.slim, possible.slim_size, UNSURE * asking),
        ("deferred", possible.deferred if deferrable else None, possible.deferred_size, asking),
    ]
    before = cost = whole * outlook.weight
    best = _whole(offer, made, possible.not_slim or "no other form costs less"), 0.0
    for form, stands, size, risk in short:
        if stands is None or size is None or size.tokens * outlook.weight + risk >= cost:
            continue
        cost = size.tokens * outlook.weight + risk
        why = f"taken to be called in {chance:.1%} of sessions: {cost:,.0f} units instead of {before:,.0f}"
        freed = sum(span.end - span.start - len(new) for span, new in offer.edits(stands))
        best = (
            ToolAsSent(
                offer.tool.name,
                form,
                why,
                whole,
                size.tokens,
                freed,
                handle,
                stands.description,
                msgspec.Raw(stands.parameters),
                msgspec.Raw(offer.tool.raw),
            ),
            risk,
        )
    return best
