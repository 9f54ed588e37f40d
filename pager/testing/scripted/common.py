"""What the three wire formats of the scripted model have in common."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Protocol

from pager.testing.scripted.prompt_cache import Piece, PromptCache, tokens
from pager.testing.scripted.script import Say
from pager.values import Usage

# Answers carry a time of creation; a fixed one keeps the same script at the same bytes.
EPOCH = 1_760_000_000

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer about to be given: its number, the request, what to say, and what the prompt cost.

    ``leg`` is 0 for what a call is answered in the end, so that ids do not depend on how often pages were asked for.
    """

    number: int
    request: Mapping[str, Any]
    say: Say
    prompt: Usage
    leg: int = 0

    def id(self, prefix: str, part: int = 0) -> str:
        """An id as providers make them, the same for the same place in a script."""
        leg = f".{self.leg}" if self.leg else ""
        return prefix + sha256(f"{prefix}{self.number}.{part}{leg}".encode()).hexdigest()[:24]

    @property
    def created(self) -> int:
        """The time of the answer."""
        return EPOCH + self.number

    @property
    def model(self) -> str:
        """The model the client asked for."""
        return str(self.request.get("model", "scripted-1"))

    @property
    def usage(self) -> Usage:
        """The prompt's tokens with those of the answer."""
        said = tokens(self.say.text) + sum(tokens(call.name) + tokens(call.text) for call in self.say.calls)
        thought = tokens(self.say.reasoning)
        return replace(self.prompt, output=said + thought, reasoning=thought)


class Wire(Protocol):
    """One wire format, from the provider's side; ``name`` is that of its dialect."""

    name: str

    def prompt(self, request: Mapping[str, Any]) -> list[Piece]:
        """The parts of the prompt in the order in which the provider caches them."""

    def cost(self, cache: PromptCache, request: Mapping[str, Any]) -> Usage:
        """The prompt's tokens, cached ones told apart as this provider does."""

    def whole(self, turn: Turn) -> Json:
        """The answer in one piece."""

    def stream(self, turn: Turn) -> Iterator[bytes]:
        """The answer as server-sent events."""

    def error(self, status: int, message: str, request_id: str) -> Json:
        """The body of an error."""

    def too_long(self, count: int, limit: int) -> Json:
        """The body of the error for a prompt of ``count`` tokens where ``limit`` fit."""

    def stumble(self, message: str, sequence: int) -> bytes:
        """An error event inside a stream."""

    def headers(self, request_id: str) -> dict[str, str]:
        """The headers this provider sends with every answer."""


def event(data: Mapping[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    lines = f"event: {name}\n" if name else ""
    return f"{lines}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def words(text: str) -> Sequence[str]:
    """The text cut as a model writes it: a word with the blanks before it at a time."""
    return re.findall(r"\s*\S+|\s+$", text)


def bits(text: str) -> Sequence[str]:
    """The arguments of a call, a few characters at a time."""
    return [text[at : at + 11] for at in range(0, len(text), 11)]
