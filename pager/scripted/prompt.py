"""Counts the tokens of a prompt and simulates the provider's cache of its prefix."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from pager.model import Usage

# Providers cache no prompt shorter than this; OpenAI counts cached tokens in steps.
_LEAST = 1024
_STEP = 128


class Piece(NamedTuple):
    """A part of a prompt, and whether the client marked it as the end of what should be cached."""

    text: str
    marked: bool


def piece(value: object) -> Piece:
    """A part of the prompt from its JSON value, without the mark itself, which moves from call to call."""
    text = json.dumps(_unmarked(value), sort_keys=True, ensure_ascii=False)
    return Piece(text, marked='"cache_control"' in json.dumps(value))


def tokens(text: str) -> int:
    """A simple count: four bytes of UTF-8 a token, rounded up."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


def size(pieces: Sequence[Piece]) -> int:
    """The tokens of a prompt."""
    return sum(tokens(part.text) for part in pieces)


class PromptCache:
    """Remembers the prefixes it was shown."""

    def __init__(self) -> None:
        """Begin with nothing in the cache."""
        self._known: set[bytes] = set()

    def read(self, model: str, pieces: Sequence[Piece]) -> Usage:
        """Input and cached tokens where every prompt is cached by itself (OpenAI)."""
        sizes, chain = _measure(model, pieces)
        cached = self._longest(sizes, chain) // _STEP * _STEP
        self._known.update(chain)
        return Usage(input=sum(sizes), cached=cached if cached >= _LEAST else 0)

    def read_marked(self, model: str, pieces: Sequence[Piece]) -> Usage:
        """Input, cached and written tokens where the client marks what to cache (Anthropic)."""
        sizes, chain = _measure(model, pieces)
        marked = max((at + 1 for at, part in enumerate(pieces) if part.marked), default=0)
        if sum(sizes[:marked]) < _LEAST:
            return Usage(input=sum(sizes))
        cached = self._longest(sizes[:marked], chain[:marked])
        self._known.update(chain[:marked])
        return Usage(input=sum(sizes), cached=cached, written=sum(sizes[:marked]) - cached)

    def _longest(self, sizes: Sequence[int], chain: Sequence[bytes]) -> int:
        known = max((at + 1 for at, link in enumerate(chain) if link in self._known), default=0)
        return sum(sizes[:known])


def _measure(model: str, pieces: Sequence[Piece]) -> tuple[list[int], list[bytes]]:
    """The tokens of each piece, and the hash of each prefix that ends with it."""
    link, chain = sha256(model.encode()).digest(), []
    for part in pieces:
        link = sha256(link + part.text.encode("utf-8", "replace")).digest()
        chain.append(link)
    return [tokens(part.text) for part in pieces], chain


def _unmarked(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    return value
