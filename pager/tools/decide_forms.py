"""Decides, once for a list of tools, in which form each is sent: whole, slim or deferred.

Most offered tools are never called, and yet are part of every prompt. A tool that is hardly ever used is sent in a
short form, which has a handle to the whole; calls of it are checked against the whole schema. The price of a form is
that of its tokens in every call to come, and of the chance that the model has to ask for the rest. Tools that sessions
of this client program mostly use stay whole.

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
from pager.request_values import Span
from pager.tools.definitions import Edit, Listed, Offer, Offers
from pager.tools.known_agents import CHANCE, brought
from pager.tools.shorten import Forms, Slim, forms

DIGITS = 9
"""Digits of the handle of a tool's schema: few, as it is part of every prompt, and only tools have such handles. They
are decimal ones, which take three tokens; as many bits in hex take five."""

CONTEXT = 12_000
"""Tokens of the prompt that is read once more when the model asks for a schema.

It asks before it first uses a tool: then recorded sessions hold 700 to 28,000 tokens beside their tools, on average.
"""

CALLS = 10.0
"""Calls that a branch is expected to have where nothing was learned about their number."""

UNSURE = 0.1
"""How often a model that calls a slim tool has to see the whole of it first."""

OFTEN = 0.25
"""The share of a client program's sessions from which on a tool that they use stays whole."""

USED = 6
"""Different tools that a session is expected to use where nothing is known."""

LEAST = 0.02
"""Least share of the whole tools' cost that shortening must save."""

LISTS = 128
"""Lists of tools whose forms and decisions are kept at hand: most sessions share theirs with others."""

Form = Literal["whole", "slim", "deferred"]
_counter = Counter()


class ToolAsSent(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """How one tool is sent, and why; tokens are those of its name, description and parameters.

    Where it is not sent whole, ``handle`` is that of the tool in full, kept as ``whole``; the short ``description`` and
    ``parameters`` make the prompt shorter by ``freed`` bytes.
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
        """The schema that its arguments are checked against."""
        return orjson.loads(bytes(self.whole)).get("parameters", {})

    @property
    def short(self) -> Slim:
        """Its short form."""
        return Slim(self.name, self.description, bytes(self.parameters))


class Toolset:
    """A decision on a list of tools, as it is logged; ``digest`` is that of the list."""

    def __init__(self, digest: str, sent: Sequence[ToolAsSent]) -> None:
        self.digest = digest
        self.sent = tuple(sent)
        self.shortened: Mapping[str, ToolAsSent] = {tool.name: tool for tool in self.sent if tool.handle}
        self.handles: Mapping[str, ToolAsSent] = {tool.handle: tool for tool in self.sent if tool.handle}
        self.freed = sum(tool.freed for tool in self.sent)
        self._edits: tuple[Listed | None, tuple[Edit, ...]] = (None, ())

    @property
    def whole_tokens(self) -> int:
        """The tokens of all tools as the client offers them."""
        return sum(tool.whole_tokens for tool in self.sent)

    @property
    def tokens(self) -> int:
        """The tokens of all tools as they are sent."""
        return sum(tool.tokens for tool in self.sent)

    def edits(self, listed: Listed) -> tuple[Edit, ...]:
        """The edits that put the short forms into the body with this list; made once for each way to write it."""
        if self._edits[0] != listed:
            by = listed.start
            edits = listed.offers.edits({name: sent.short for name, sent in self.shortened.items()})
            self._edits = (listed, tuple((Span(span.start + by, span.end + by), new) for span, new in edits))
        return self._edits[1]

    def without(self, handles: Collection[str]) -> "Toolset":
        """The same with the tools of these handles whole."""
        clash = "its handle is that of another tool"
        kept = [
            ToolAsSent(sent.name, "whole", clash, sent.whole_tokens, sent.whole_tokens)
            if sent.handle in handles
            else sent
            for sent in self.sent
        ]
        return Toolset(self.digest, kept)

    def encode(self) -> bytes:
        """The decision as the log keeps it."""
        return msgspec.json.encode([self.digest, self.sent])


def decode(content: bytes) -> Toolset:
    """A decision out of the log."""
    digest, sent = msgspec.json.decode(content, type=tuple[str, list[ToolAsSent]])
    return Toolset(digest, sent)


class Outlook(NamedTuple):
    """The conditions of a decision.

    ``calls`` is the expected number in the branch, None if unknown; ``chance`` gives the likelihood that a session uses
    a tool, from its name and the likelihood for an unknown one. ``switch`` are the tokens that the provider has to read
    again if anything changes now. Sets of more than ``defer_above`` tokens may be deferred.
    """

    prices: Prices
    calls: float | None
    chance: Callable[[str, float], float]
    tool_added: bool
    switch: int = 0
    defer_above: int = 20_000

    @property
    def weight(self) -> float:
        """The price of one token in every prompt to come."""
        return _weight(self.prices, self.calls) - (self.prices.write - self.prices.read if self.switch else 0.0)

    def pays(self, whole: int, saved: int, risk: float = 0.0) -> bool:
        """Whether it pays to save these tokens of the whole; ``risk`` is the expected cost of asking for the rest."""
        tool = 0 if self.tool_added else TOOL * self.weight
        switch = self.switch * (self.prices.write - self.prices.read)
        return saved * self.weight - risk - tool - switch > LEAST * whole * self.weight


def _weight(prices: Prices, calls: float | None) -> float:
    return prices.write + prices.read * (max(1.0, calls or CALLS) - 1)


def usual_chance(tools: int) -> float:
    """The likelihood that a session calls an unknown tool, of this many: below ``OFTEN``, until more is known."""
    return min(OFTEN * 0.99, USED / max(1, tools))


def decide(offers: Offers, outlook: Outlook) -> tuple[Toolset, str]:
    """The form of each tool, and the reason in words; for the same tools and prices the same object."""
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
    """Every tool in the form that costs least, and the expected cost of asking for the rest."""
    sized = _sized(offers)
    deferrable = sum(made.tokens for _, made in sized) > defer_above
    weight = _weight(prices, calls)
    weighed = []
    for offer, (handle, made), chance in zip(offers.tools, sized, chances, strict=True):
        # When the model asks for the whole tool, the prompt is read once more, and what it gets stays.
        stays = made.tokens * (prices.write + prices.read * (calls or CALLS) / 2)
        asking = chance * (prices.read * CONTEXT + prices.output * ASKING + stays)
        weighed.append(_chosen(offer, handle, made, weight, chance, asking, deferrable=deferrable))
    return Toolset(offers.digest, [sent for sent, _ in weighed]), sum(risk for _, risk in weighed)


@lru_cache(LISTS)
def _unchanged(offers: Offers, why: str) -> tuple[Toolset, str]:
    sized = zip(offers.tools, _sized(offers), strict=True)
    return Toolset(offers.digest, [_whole(offer, made, why) for offer, (_, made) in sized]), why


def schema_handle(raw: bytes, digits: int = DIGITS) -> str:
    """The handle of a tool in full: a pure function of its bytes."""
    return f"pg_{int(sha256(raw).hexdigest(), 16) % 10**digits:0{digits}d}"


@lru_cache(LISTS)
def _sized(offers: Offers) -> tuple[tuple[str, Forms], ...]:
    """Each tool's handle, and the forms that it may take; counted once for each list of tools."""
    taken: dict[str, bytes] = {}
    made = []
    for tool in (offer.tool for offer in offers.tools):
        handles = (schema_handle(tool.raw, digits) for digits in (DIGITS, 2 * DIGITS, 3 * DIGITS))
        handle = next(handle for handle in handles if taken.setdefault(handle, tool.raw) == tool.raw)
        made.append((handle, forms(tool, handle, lambda text: _counter.count(text, O200K))))
    return tuple(made)


def _whole(offer: Offer, made: Forms, reason: str) -> ToolAsSent:
    return ToolAsSent(offer.tool.name, "whole", offer.fixed or reason, made.tokens, made.tokens)


def _chosen(
    offer: Offer, handle: str, made: Forms, weight: float, chance: float, asking: float, *, deferrable: bool
) -> tuple[ToolAsSent, float]:
    """The form that costs least, of those that a tool may take, and the expected cost of asking for the rest of it.

    ``asking`` is that cost where the model must ask before each first use.
    """
    if offer.fixed or chance >= OFTEN:
        return _whole(offer, made, f"taken to be called in {chance:.0%} of sessions"), 0.0
    best = _whole(offer, made, made.not_slim or "no other form costs less"), 0.0
    before = least = made.tokens * weight
    short: list[tuple[Form, Slim | None, int, float]] = [
        ("slim", made.slim, made.slim_tokens, UNSURE * asking),
        ("deferred", made.deferred if deferrable else None, made.deferred_tokens, asking),
    ]
    for form, slim, tokens, risk in short:
        cost = tokens * weight + risk
        if slim is None or cost >= least:
            continue
        least = cost
        why = f"taken to be called in {chance:.1%} of sessions: {cost:,.0f} units instead of {before:,.0f}"
        freed = sum(span.end - span.start - len(new) for span, new in offer.edits(slim))
        parameters, whole = msgspec.Raw(slim.parameters), msgspec.Raw(offer.tool.raw)
        name, description = offer.tool.name, slim.description
        best = ToolAsSent(name, form, why, made.tokens, tokens, freed, handle, description, parameters, whole), risk
    return best
