"""Decides which calls of the client's own tools are held back, and what the model is told instead of a result.

Two kinds are: a call that writes a handle where content belongs, and a call of a tool that was sent short whose
arguments do not fit the whole schema. The latter is told what is wrong, with the tool in full, at most so many times;
then it goes to the client as it is, which sees to it as it always has. Arguments that are no JSON go there at once:
they may have been cut off. After the last round of questions nothing is held back: a tool that fails on a handle tells
the model more than an answer without an end.
"""

from collections.abc import Callable

import orjson

from pager.paging.held_calls import ROUNDS, Refusal
from pager.paging.page_table import PageTable
from pager.paging.stub import HANDLE
from pager.tools.check_arguments import STEPS_ON_THE_LOOP, check, is_json, repair_text
from pager.tools.decide import Sent, Toolset
from pager.wire.stitching import HeldCall

CORRECTIONS = 2
"""How often in one answer calls that do not fit are sent back to the model."""


class Guard:
    """Watches the calls of one answer to a request whose ``tools`` were sent in these forms, if they were.

    ``rounds`` are the hidden legs so far. ``prepare`` is given a short tool as soon as a call of it begins.
    """

    def __init__(
        self, table: PageTable, tools: Toolset | None, prepare: Callable[[Sent], None] = lambda _: None
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
        """What is said to a call that was held back; ``tool`` is the one that brings content back."""
        short = self._tools.shortened.get(call.name) if self._tools is not None else None
        if short is None or self.imitates(call.arguments):
            return Refusal("imitated", _imitation(call, tool))
        errors = check(call.arguments, short.schema)
        whole = bytes(short.whole).decode()
        return Refusal("invalid", repair_text(call.name, errors, "" if self._was_told(whole) else whole))

    def _was_told(self, whole: str) -> bool:
        """Whether a tool in full stands in the prompt already, because it was asked for or called wrongly before."""
        written = orjson.dumps(whole)[1:-1]
        legs = (leg for kept in self._table.hidden.values() for leg in kept.legs)
        return any(written in bytes(result) for leg in legs for result in leg.results)

    def imitates(self, arguments: str) -> bool:
        """Whether arguments name something that the model knows by its handle only."""
        return "pg_" in arguments and any(self._table.knows(handle) for handle in HANDLE.findall(arguments))

    def _errors(self, name: str, arguments: str) -> list[str]:
        short = self._short(name)
        return check(arguments, short.schema, STEPS_ON_THE_LOOP) if short is not None and is_json(arguments) else []

    def _short(self, name: str) -> Sent | None:
        """How a tool was sent whose calls are checked; None for one that was sent whole, or as often as it may be."""
        spent = self._corrections >= CORRECTIONS
        return None if spent or self._tools is None else self._tools.shortened.get(name)


def _imitation(call: HeldCall, tool: str) -> str:
    """What the model is told when it writes a stub where content belongs."""
    handles = ", ".join(dict.fromkeys(HANDLE.findall(call.arguments)))
    return (
        f"{call.name} was not run: its arguments hold {handles}, which only stands for content that was moved out of "
        f"this conversation. Get the content with {tool}, then call {call.name} again with the content itself."
    )
