"""Remembers messages by the hash of their bytes, so that each is decoded once, however often it is sent again."""

from collections.abc import Callable, Sequence
from hashlib import sha256

from pager.request_values import Block, Message, Request
from pager.wire.dialect import Dialect

LIMIT = 100_000
"""Messages remembered for each wire format; more than the longest session has."""


class MessageCache:
    """Messages without their text, by wire format; the oldest are forgotten and decoded again when they come back."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._messages: dict[str, dict[bytes, Message]] = {}

    def read(self, dialect: Dialect, request: Request) -> tuple[list[Message], dict[bytes, Message]]:
        """The messages of a request, and with their text, by digest, the new ones: only these are decoded."""
        if not request.items:
            return self._without_items(dialect, request), {}
        known, digests = self._messages.setdefault(dialect.name, {}), request.digests
        found = [known.get(digest) for digest in digests]
        fresh: dict[bytes, Message] = {}
        for at in [at for at, message in enumerate(found) if message is None]:
            fresh[digests[at]] = message = dialect.decode(request.items[at])
            found[at] = self._learn(known, digests[at], message)
        return found, fresh  # type: ignore[return-value]

    def norms(self, dialect: Dialect, digests: Sequence[bytes], fetch: Callable[[bytes], bytes]) -> list[bytes]:
        """The normalised hashes of messages known by their digests; ``fetch`` gives the bytes of the unknown ones."""
        known = self._messages.setdefault(dialect.name, {})
        return [(known.get(key) or self._learn(known, key, dialect.decode(fetch(key)))).norm for key in digests]

    def _learn(self, known: dict[bytes, Message], digest: bytes, message: Message) -> Message:
        calls = [block for block in message.blocks if block.call_id]
        light = Message(message.role, message.norm, tuple(Block(block.kind, "", block.call_id) for block in calls))
        if len(known) >= self._limit:
            known.pop(next(iter(known), b""), None)  # a thread that rebuilds a session may do the same
        known[digest] = light
        return light

    def _without_items(self, dialect: Dialect, request: Request) -> list[Message]:
        """The one message of a prompt that is a plain string, or of a body that can't be read, which has no role."""
        span = request.members.get(request.items_key)
        if span is None or request.body[span.start : span.start + 1] != b'"':
            return [Message("", sha256(request.body).digest())]
        return [dialect.decode(b'{"role":"user","content":%b}' % request.body[span.start : span.end])]
