"""What happens when a leg of a call has ended with calls that are held back: how they are answered, and what follows.

The stream itself is spliced by the wire format (``pager.wire.stitching``); here is what all formats have in common.

An answer has a few rounds of questions. The last reply says that it may go on with its own tools and ask again later. A
model that asks once more is answered once more, and then goes into its very last leg, in which it can call nothing:
an answer that ended with a question which the client never sees would look like the end of its task.
"""

from collections.abc import Callable
from enum import Enum
from typing import Literal, NamedTuple

from pager.paging import page_in
from pager.wire.stitching import Held, HeldCall

ROUNDS = 4
"""Legs of one call in which pages may be asked for."""

LAST = (
    "\n(This was the last page_in for now. Go on with your other tools, or answer; after the next tool result or "
    "message you can ask for more.)"
)
ANSWER_NOW = "\n(No tool can be called right now. Write what you have found, and what you will do next.)"
NO_ROOM = "There is no room left beside the pages above. Ask for this one in another call, or for a part of it."
SMALLEST_REPLY = 4_000
"""Characters of pages that the model gets in any case, however full its window is."""

LONGEST = ROUNDS + 1
"""Hidden legs of one call at most; in the leg after them, the very last one, nothing can be called."""


class Next(Enum):
    """What follows a leg: the end of the answer, another leg, or the client's own results first."""

    FINISH = "finish"
    RESEND = "resend"
    LATER = "later"


class Refusal(NamedTuple):
    """What the model is told of a call of the client's tools that was not run, and why it was not."""

    cause: Literal["imitated", "invalid"]
    text: str


class Replies(NamedTuple):
    """Our answers to the held calls, in their order; the handles that were given and those that nobody knows.

    ``imitated`` counts the calls that named a stub, ``invalid`` are the tools whose calls did not fit their parameters.
    """

    texts: tuple[str, ...]
    pages: tuple[str, ...]
    unknown: tuple[str, ...]
    imitated: int
    invalid: tuple[str, ...] = ()


def follows(held: Held, rounds: int) -> Next:
    """What follows a leg, with so many rounds behind it."""
    if not held.calls or not held.whole or rounds >= LONGEST:
        return Next.FINISH
    return Next.LATER if held.mixed else Next.RESEND


def reply(
    held: Held,
    tool: str,
    resolve: Callable[[str], str | None],
    refuse: Callable[[HeldCall], Refusal],
    *,
    limit: int,
    rounds: int,
) -> Replies:
    """Answer the held calls of this round; ``limit`` bounds what pages may take in all, in characters.

    ``refuse`` says what is told to a call of another tool than ours.
    """
    texts: list[str] = []
    pages: list[str] = []
    unknown: list[str] = []
    refused: list[tuple[str, str]] = []
    for call in held.calls:
        if call.name != tool:
            cause, text = refuse(call)
            texts.append(text)
            refused.append((cause, call.name))
            continue
        closing = ANSWER_NOW if rounds >= LONGEST else LAST if rounds == ROUNDS else ""
        if limit <= 0:
            texts.append(NO_ROOM + closing)
            continue
        given = page_in.answer(call.arguments, resolve, limit=limit)
        limit -= len(given.text)
        texts.append(given.text + closing)
        pages += given.pages
        unknown += given.unknown
    return Replies(
        tuple(texts),
        tuple(dict.fromkeys(pages)),
        tuple(dict.fromkeys(unknown)),
        sum(cause == "imitated" for cause, _ in refused),
        tuple(name for cause, name in refused if cause == "invalid"),
    )
