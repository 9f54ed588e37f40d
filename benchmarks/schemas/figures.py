"""The tool schemas in the requests of a session: their tokens, and whether they stay the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import msgspec
import orjson

from benchmarks.schemas.model import told
from pager.pricing.prices import Prices
from pager.pricing.tokens import O200K, Counter
from pager.testing.scripted import Received
from pager.testing.scripted.prompt_cache import PromptCache
from pager.wire.chat.scripted import Scripted as Chat
from pager.wire.messages.scripted import Scripted as Messages
from pager.wire.responses.scripted import Scripted as Responses
from pager.wire.scripted import Scripted as Wire

LEAST = 0.80
"""The share of the schemas' tokens that must not be sent, over all requests of a session."""

_READERS: Mapping[str, Wire] = {"chat": Chat(), "messages": Messages(), "responses": Responses()}
_PRICES = {"chat": Prices(0.25, 1.0), "messages": Prices(0.1, 1.25), "responses": Prices(0.25, 1.0)}
_counter = Counter()


@dataclass(frozen=True, slots=True)
class SchemaFigures:
    """What one session showed.

    ``whole`` are the tokens of schemas in all ``calls`` without the proxy; with it there were more ``requests``, and in
    all of them together ``offered`` tokens among the tools and ``told`` in the messages. Costs are those of all input.
    """

    dialect: str
    calls: int
    requests: int
    whole: int
    offered: int
    told: int
    whole_cost: float
    cost: float
    same_tools: bool
    one_prefix: bool
    used: int = 0
    faults: int = 0
    corrections: int = 0
    valid: int = 0
    invalid: int = 0

    @property
    def changes(self) -> Mapping[str, float]:
        """How much less there is: of schemas in all requests, of schemas in a prompt, and of the cost of all input."""
        sent = self.offered + self.told
        a_prompt = sent / self.requests / (self.whole / self.calls)
        return {
            "a prompt": a_prompt - 1,
            "in all": sent / self.whole - 1,
            "input cost": self.cost / self.whole_cost - 1,
        }

    @property
    def missed(self) -> list[str]:
        """Which demands are not met."""
        saved = -self.changes["a prompt"]
        unmet = {
            f"{saved:.1%} of a prompt's schema tokens are saved, not {LEAST:.0%}": saved < LEAST,
            "the prefix changed": not (self.same_tools and self.one_prefix),
            f"{self.used - self.valid} tools were not called with valid arguments": self.valid < self.used,
            f"{self.invalid} calls that do not fit reached the client": self.invalid > 0,
        }
        return [f"{self.dialect}, {self.used} used: {what}" for what, is_so in unmet.items() if is_so]


def look_at(dialect: str, direct: Sequence[Received], proxied: Sequence[Received]) -> SchemaFigures:
    """The figures of a session that was played without the proxy, and with it."""
    return SchemaFigures(
        dialect,
        calls=len(direct),
        requests=len(proxied),
        whole=sum(_size(_tools(one)) for one in direct),
        offered=sum(_size(_tools(one)) for one in proxied),
        told=sum(tokens(text) for one in proxied for text in told(one.json())),
        whole_cost=_cost(dialect, direct),
        cost=_cost(dialect, proxied),
        same_tools=len({_tools(one) for one in proxied}) == 1,
        one_prefix=_grows(dialect, proxied),
    )


def tokens(text: str) -> int:
    """The tokens of a text."""
    return _counter.count(text, O200K)


def _tools(received: Received) -> bytes:
    """The tools of a request, byte for byte."""
    return bytes(msgspec.json.decode(received.body, type=dict[str, msgspec.Raw])["tools"])


@lru_cache(8)
def _size(tools: bytes) -> int:
    """The tokens of a list of tools: of their names, descriptions and parameters, as the model reads them."""
    functions = [entry.get("function") or entry for entry in orjson.loads(tools)]
    read = [
        {
            "name": one["name"],
            "description": one.get("description", ""),
            "parameters": one.get("parameters") or one.get("input_schema"),
        }
        for one in functions
    ]
    return sum(tokens(orjson.dumps(one).decode()) for one in read)


def _cost(dialect: str, received: Sequence[Received]) -> float:
    """What all input of a session costs, in units of one token, where the longest known prefix is cached."""
    cache, prices, cost = PromptCache(), _PRICES[dialect], 0.0
    for one in received:
        used = cache.read(dialect, _READERS[dialect].prompt(one.json()))
        cost += prices.read * used.cached + prices.write * (used.input - used.cached)
    return cost


def _grows(dialect: str, received: Sequence[Received]) -> bool:
    """Whether each prompt begins with all of the one before; cache marks aside."""
    prompts = [[piece.text for piece in _READERS[dialect].prompt(one.json())] for one in received]
    return all(later[: len(before)] == before for before, later in pairwise(prompts))
