"""Names the blobs that an event stands on."""

from collections.abc import Iterator

from pager.log.events import (
    AnswerFinished,
    AttemptFailed,
    CallReceived,
    Event,
    Learned,
    LegFinished,
    Repacked,
    ToolCalled,
    ToolsDecided,
)


def references(event: Event) -> Iterator[str]:
    """The digests, in hex, of the blobs without which the event can't be read in full."""
    return (digest for digest in _digests(event) if digest)


def _digests(event: Event) -> Iterator[str]:
    match event:
        case CallReceived():
            yield event.skeleton
            yield from (cut.digest for cut in event.cuts)
            yield from event.messages
        case AnswerFinished() | AttemptFailed():
            yield event.body
        case ToolCalled():
            yield event.arguments
        case Repacked():
            yield from (page.message for page in event.pages)
        case ToolsDecided():
            yield event.decision
        case Learned():
            yield event.content
        case LegFinished():
            yield event.said
            yield event.body


def digest_of(reference: str) -> bytes | None:
    """The digest that a reference spells, or None if it spells none."""
    try:
        digest = bytes.fromhex(reference)
    except ValueError:
        return None
    return digest if len(digest) == 32 else None
