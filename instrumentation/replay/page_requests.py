"""Asks for pages as a model would, in each wire format, and has the question answered by the code that does it live."""

from collections.abc import Callable, Sequence
from hashlib import sha256

from pager.paging import held_calls
from pager.paging.held_calls import Refusal, Replies
from pager.wire.dialect import Dialect
from pager.wire.stitching import PASSING, HeldCall, Leg


def ask(
    dialect: Dialect, tool: str, handles: Sequence[str], resolve: Callable[[str], str | None], limit: int, rounds: int
) -> tuple[Leg, Replies]:
    """A hidden leg in which the model asks for these pages, in the given round of its call, and what it was told."""
    splice = dialect.splice(tool, PASSING)
    splice.take(dialect.tool_call(_name(handles, rounds), tool, {"pages": list(handles)}))
    replies = held_calls.reply(splice.held(), tool, resolve, _unasked, limit=limit, rounds=rounds)
    return splice.leg(replies.texts), replies


def _unasked(call: HeldCall) -> Refusal:
    return Refusal("imitated", call.name)


def _name(handles: Sequence[str], rounds: int) -> str:
    return sha256(f"{rounds} {' '.join(handles)}".encode()).hexdigest()[:16]
