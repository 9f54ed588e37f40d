"""Keeps credentials out of the log: providers repeat in their errors what they were sent.

A credential is replaced by as many stars as it has bytes, so that sizes stay true; the event has the number of bytes
that were replaced, since its digest is of the stored content. The client gets what the provider sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from urllib.parse import parse_qsl

import msgspec
import orjson

from pager.log.events import AnswerFinished, AttemptFailed, Bypassed, Event, LegFailed, LegFinished, WarmingStopped
from pager.sessions.identity import credentials_of

QUERY = frozenset({"key", "api_key", "api-key", "apikey", "access_token", "token"})
SHORTEST = 6  # characters of what is taken for a credential; local servers take any word for a key
SHORTEST_WORD = 16  # characters, where all of them are letters
TELLING = 8  # bytes of a credential that are hidden where the rest of it was cut off


def secrets_of(headers: Mapping[str, str], query: bytes, own: str = "") -> tuple[bytes, ...]:
    """The credentials of a request in all the ways in which an answer may write them, the longest first.

    ``own`` is the credential that the proxy puts in the client's place, if it has one.
    """
    in_query = [value for name, value in parse_qsl(query.decode("latin-1")) if name.lower() in QUERY]
    credentials = [*credentials_of(headers), *in_query, own]
    credentials += [credential.rpartition(" ")[2] for credential in credentials]  # without a scheme
    forms = {form for credential in credentials if _is_secret(credential) for form in _forms(credential)}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _is_secret(credential: str) -> bool:
    return len(credential) >= (SHORTEST_WORD if credential.isalpha() else SHORTEST)


def _forms(credential: str) -> Iterable[bytes]:
    """The credential as it is, and inside a JSON string."""
    plain = credential.encode("utf-8", "surrogatepass")
    yield plain
    quoted = orjson.dumps(credential)[1:-1] if credential.isprintable() else plain
    yield quoted
    yield quoted.replace(b"/", b"\\/")


def redacted(content: bytes, secrets: Iterable[bytes]) -> bytes:
    """The content with stars in place of credentials, and of the beginning of one at its end, where it was cut."""
    for secret in secrets:
        content = content.replace(secret, b"*" * len(secret))
        cut = next((size for size in range(len(secret) - 1, TELLING - 1, -1) if content.endswith(secret[:size])), 0)
        content = content[: len(content) - cut] + b"*" * cut if cut else content
    return content


def words(text: str, secrets: Iterable[bytes]) -> str:
    """The text with stars in place of credentials."""
    return redacted(text.encode("utf-8", "surrogatepass"), secrets).decode("utf-8", "surrogatepass")


def safe(
    events: Sequence[Event], blobs: Mapping[bytes, bytes], secrets: Sequence[bytes]
) -> tuple[Sequence[Event], Mapping[bytes, bytes]]:
    """The events, and the answers among the blobs, as they may be written."""
    if not secrets:
        return events, blobs
    kept = dict(blobs)
    return [_safe(event, kept, secrets) for event in events], kept


def _safe(event: Event, blobs: dict[bytes, bytes], secrets: Sequence[bytes]) -> Event:
    if isinstance(event, AnswerFinished | AttemptFailed | LegFinished) and bytes.fromhex(event.body) in blobs:
        before = blobs.pop(bytes.fromhex(event.body))
        after = redacted(before, secrets)
        digest = sha256(after)
        blobs[digest.digest()] = after
        stars = sum(old != new for old, new in zip(before, after, strict=True)) if after != before else 0
        event = msgspec.structs.replace(event, body=digest.hexdigest(), redacted=stars)
    if isinstance(event, AnswerFinished | AttemptFailed | LegFailed):
        event = msgspec.structs.replace(event, error=words(event.error, secrets))
    if isinstance(event, Bypassed | WarmingStopped):
        event = msgspec.structs.replace(event, detail=words(event.detail, secrets))
    return event
