"""Decides which calls of a leg are held back, and how they are answered before anything else follows.

Calls of our own tool are. So are two kinds of calls of the client's tools: one that writes a handle where content
belongs, and one of a tool that was sent short whose arguments do not fit the whole schema. The latter is answered with
what is wrong and the tool in full, a few times; then it goes to the client as it is. Arguments that are no JSON go
there at once: they may have been cut off.

An answer has a few rounds of questions. The last reply says that it may go on with its own tools and ask again later. A
model that asks once more is answered once more, and then goes into its very last leg, in which it can call nothing:
an answer that ended with a question which the client never sees would look like the end of its task. After the last
round nothing is held back: a tool that fails on a handle helps the model more than an answer without an end.

The stream itself is stitched by the wire format (``pager.wire.stitching``); here is what all formats have in common.
"""

from collections.abc import Callable
from enum import Enum
from typing import Literal, NamedTuple

import orjson

from pager.paging import page_in
from pager.paging.pages.page_table import PageTable
from pager.paging.pages.stub import HANDLE
from pager.tools.check_arguments import STEPS_ON_THE_LOOP, check, is_json, repair_text
from pager.tools.decide_forms import ToolAsSent, Toolset
from pager.wire.stitching import HeldCall, LegEnd

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

USUAL_REPLY = 24_000
"""The same where that is a sixteenth of the window or less: a prompt that does not fit then is made to fit."""

LONGEST = ROUNDS + 1
"""Hidden legs of one call at most; in the leg after them, the very last one, nothing can be called."""


class Next(Enum):
    """What follows a leg: the end of the answer, another leg, or the client's own results first."""

    FINISH = "finish"
    RESEND = "resend"
    LATER = "later"


class Refusal(NamedTuple):
    """Our answer to a call of the client's tools that was not run, and why it was not."""

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


def follows(held: LegEnd, rounds: int) -> Next:
    """What follows a leg, after ``rounds`` rounds."""
    if not held.calls or not held.whole or rounds >= LONGEST:
        return Next.FINISH
    return Next.LATER if held.mixed else Next.RESEND


def reply(
    held: LegEnd,
    tool: str,
    resolve: Callable[[str], str | None],
    refuse: Callable[[HeldCall], Refusal],
    *,
    limit: int,
    rounds: int,
) -> Replies:
    """Answer the held calls of this round; ``limit`` bounds what pages may take in all, in characters.

    ``refuse`` makes the answer to a call of another tool than ours.
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


CORRECTIONS = 2
"""How often in one answer calls that do not fit are sent back to the model."""


class Guard:
    """Watches the calls of one answer to a request whose ``tools`` were sent in these forms, if they were.

    ``rounds`` are the hidden legs so far. ``prepare`` is given a short tool as soon as a call of it begins.
    """

    def __init__(
        self, table: PageTable, tools: Toolset | None, prepare: Callable[[ToolAsSent], None] = lambda _: None
    ) -> None:
        self._table = table
        self._prepare = prepare
        self._tools = tools
        self.rounds = 0
        self._corrections = 0

    def sent_as(self, tools: Toolset | None) -> None:
        """Check calls against these forms of the tools from now on; None where they are sent whole."""
        self._tools = tools

    def answered(self, *, corrected: bool) -> None:
        """One more hidden leg was answered, which had calls that did not fit if ``corrected``."""
        self.rounds += 1
        self._corrections += corrected

    def watches(self, name: str) -> bool:
        """Whether a call of this tool must be complete before it is known if the client may see it."""
        if self.rounds >= ROUNDS:
            return False
        short = self._short(name)
        if short is not None:
            self._prepare(short)
        return short is not None or bool(self._table.shown)

    def holds(self, name: str, arguments: str) -> bool:
        """Whether a call is held back."""
        if self.rounds >= ROUNDS:
            return False
        return self.imitates(arguments) or bool(self._errors(name, arguments))

    def refusal(self, call: HeldCall, tool: str) -> Refusal:
        """The answer to a call that was held back; ``tool`` is the one that brings content back."""
        short = self._tools.shortened.get(call.name) if self._tools is not None else None
        if short is None or self.imitates(call.arguments):
            return Refusal("imitated", _imitation(call, tool))
        errors = check(call.arguments, short.schema)
        whole = bytes(short.whole).decode()
        return Refusal("invalid", repair_text(call.name, errors, "" if self._was_told(whole) else whole))

    def _was_told(self, whole: str) -> bool:
        """Whether a tool in full is in the prompt already, because it was asked for or called wrongly before."""
        written = orjson.dumps(whole)[1:-1]
        legs = (leg for kept in self._table.hidden.values() for leg in kept.legs)
        return any(written in bytes(result) for leg in legs for result in leg.results)

    def imitates(self, arguments: str) -> bool:
        """Whether arguments name something that the model knows by its handle only."""
        return "pg_" in arguments and any(self._table.knows(handle) for handle in HANDLE.findall(arguments))

    def _errors(self, name: str, arguments: str) -> list[str]:
        short = self._short(name)
        return check(arguments, short.schema, STEPS_ON_THE_LOOP) if short is not None and is_json(arguments) else []

    def _short(self, name: str) -> ToolAsSent | None:
        """How a tool was sent whose calls are checked; None for one that was sent whole, or as often as it may be."""
        spent = self._corrections >= CORRECTIONS
        return None if spent or self._tools is None else self._tools.shortened.get(name)


def _imitation(call: HeldCall, tool: str) -> str:
    """The answer to a model that writes a stub where content belongs."""
    handles = ", ".join(dict.fromkeys(HANDLE.findall(call.arguments)))
    return (
        f"{call.name} was not run: its arguments hold {handles}, which only stands for content that was moved out of "
        f"this conversation. Get the content with {tool}, then call {call.name} again with the content itself."
    )
