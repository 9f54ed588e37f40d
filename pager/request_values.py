"""The values between the dialects and everything else: no wire format reaches past this module.

A request is kept as the client's own bytes plus the spans in them. Messages are known by the SHA-256 of their raw bytes
(``digest``) and compared across calls by the SHA-256 of a normalised form (``norm``), because clients re-serialise,
move ``cache_control`` and drop ids between calls, while their content stays the same.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

_ADDRESS = re.compile(r"(?:(\d{1,9}):)?(\d{1,9})(?:#(\d{1,9}))?")


class Span(NamedTuple):
    """A half-open range of bytes in a body."""

    start: int
    end: int


class _OfAttempt(Protocol):
    """An event of one attempt at a call."""

    @property
    def branch(self) -> int: ...
    @property
    def call(self) -> int: ...
    @property
    def attempt(self) -> int: ...


class CallAddress(NamedTuple):
    """One attempt at a call of a session; written ``0:12``, or ``0:12#2`` for another attempt than the first."""

    branch: int
    call: int
    attempt: int = 1

    def __str__(self) -> str:
        return f"{self.branch}:{self.call}" + (f"#{self.attempt}" if self.attempt != 1 else "")

    @classmethod
    def of(cls, event: "_OfAttempt") -> "CallAddress":
        """The address of the attempt of an event."""
        return cls(event.branch, event.call, event.attempt)

    @classmethod
    def parse(cls, text: str) -> "CallAddress | None":
        """The address in ``[BRANCH:]CALL[#ATTEMPT]``, by default branch 0 and the first attempt; None if it is none."""
        parts = _ADDRESS.fullmatch(text.strip())
        return cls(int(parts[1] or 0), int(parts[2]), int(parts[3] or 1)) if parts else None


class Kind(StrEnum):
    """What a block of a message is."""

    TEXT = "text"
    CALL = "call"
    RESULT = "result"
    REASONING = "reasoning"
    MEDIA = "media"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Block:
    """One piece of a message: its text as a model reads it, and for tools whose call it belongs to."""

    kind: Kind
    text: str = ""
    call_id: str = ""
    name: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """One decoded message (or Responses item)."""

    role: str
    norm: bytes
    blocks: tuple[Block, ...] = ()

    @property
    def call_ids(self) -> tuple[str, ...]:
        """The ids of the tool calls made or answered here."""
        return tuple(block.call_id for block in self.blocks if block.call_id)


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request: its bytes, where its parts are, and the few facts that steer what we do with it.

    ``members`` are the top-level keys with the span of each value, in order. ``items`` are the raw messages inside the
    member ``items_key``, each beginning at its ``starts``; ``separator`` is between any two of them, or is None
    where they are not evenly spaced. ``system`` is the normalised hash of a system prompt outside the messages.
    ``session_hints`` are fields of the body that may name the session, best first, as (source, value).
    ``server_state`` names the field that makes the provider hold part of the prompt, or is empty; ``follows`` is the id
    of the answer that such a request continues. ``head_marks`` are the lifetimes that the cache marks outside of the
    items ask for, in seconds, and ``auto_mark`` that of a mark which the provider puts on the last block, or 0.
    """

    dialect: str
    body: bytes
    members: Mapping[str, Span]
    items_key: str
    items: Sequence[bytes | memoryview]
    starts: Sequence[int]
    separator: bytes | None
    digests: Sequence[bytes]
    model: str
    stream: bool
    system: bytes
    has_tools: bool
    session_hints: tuple[tuple[str, str], ...] = ()
    server_state: str = ""
    follows: str = ""
    head_marks: tuple[float, ...] = ()
    auto_mark: float = 0.0

    @property
    def outside(self) -> int:
        """The bytes before the first item and after the last."""
        end = self.starts[-1] + len(self.items[-1]) if self.items else 0
        return len(self.body) - (end - self.starts[0] if self.items else 0)

    def build(self) -> bytes:
        """The body, put together from its parts: the same bytes as came in."""
        if not self.items:
            return self.body
        between = [self.body[: self.starts[0]]]
        ends = [start + len(item) for start, item in zip(self.starts, self.items, strict=True)]
        between += [self.body[end:start] for end, start in zip(ends, self.starts[1:], strict=False)]
        pieces = [part for pair in zip(between, self.items, strict=True) for part in pair]
        return b"".join([*pieces, self.body[ends[-1] :]])


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as the provider reported them."""

    input: int = 0  # the whole prompt, cached and written parts included
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0
    tells_cached: bool = False  # whether it reported cached tokens; False in logs from before that was kept
    # The parts of ``written`` that live 5 minutes and an hour: 0 where the provider does not say how long it keeps
    # what was written, and in logs from before they were kept.
    written_5m: int = 0
    written_1h: int = 0

    @property
    def cached_if_told(self) -> int | None:
        """The cached tokens; None where the provider reported none, which is not a miss."""
        return self.cached if self.tells_cached or self.cached else None


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One tool call in an answer."""

    index: int
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the model, as far as it was received.

    ``complete`` is False for a stream that broke off; ``error`` holds an error that came inside a stream of status 200.
    ``cache_miss`` is why its cache did not hold the prompt, in the provider's own word; empty where it gives none.
    """

    id: str = ""
    model: str = ""
    finish: str = ""
    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    usage: Usage | None = None
    complete: bool = True
    error: str = ""
    cache_miss: str = ""
