"""Reads out of the log what was decided of tools, and which list of tools a call offered."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from pager.errors import NotUnderstood, StoreCorrupt
from pager.log.events import CallReceived, ToolsDecided
from pager.tools import decide_forms
from pager.tools.decide_forms import Form, Toolset
from pager.wire.dialect import Dialect

Fetch = Callable[[bytes], bytes | None]


class ByForm(NamedTuple):
    """A number for each form that tools are sent in: tokens, tools or prompts."""

    whole: int = 0
    slim: int = 0
    deferred: int = 0

    @property
    def total(self) -> int:
        """All forms together."""
        return self.whole + self.slim + self.deferred

    def plus(self, other: "ByForm") -> "ByForm":
        """The sum of both."""
        return ByForm(self.whole + other.whole, self.slim + other.slim, self.deferred + other.deferred)


NONE = ByForm()


def in_form(form: Form, count: int) -> ByForm:
    """A number for one form."""
    return ByForm(**{form: count})


@dataclass(frozen=True, slots=True)
class ToolDecision:
    """A logged decision: ``offered`` are the tokens of all tools whole, ``sent`` those sent, ``tools`` how many."""

    event: ToolsDecided
    decided: Toolset
    offered: int
    sent: ByForm
    tools: ByForm


class LogContents:
    """Reads contents of a log; what sessions share, as those of one client program mostly do, is read once."""

    def __init__(self, fetch: Fetch, load_dialect: Callable[[str], Dialect]) -> None:
        self.fetch = fetch
        self._load_dialect = load_dialect
        self._decisions: dict[str, ToolDecision] = {}
        self._offered: dict[tuple[str, ...], str] = {}

    def decision(self, event: ToolsDecided) -> ToolDecision:
        """The decision of an event; raises StoreCorrupt where its content can't be read."""
        if event.decision not in self._decisions:
            self._decisions[event.decision] = self._decoded(event)
        return replace(self._decisions[event.decision], event=event)

    def _decoded(self, event: ToolsDecided) -> ToolDecision:
        content = self.fetch(bytes.fromhex(event.decision))
        if content is None:
            raise StoreCorrupt(f"the decision {event.decision[:12]} on tools is not in the log; run `ctxpager check`")
        try:
            decided = decide_forms.decode(content)
        except msgspec.MsgspecError as error:
            raise StoreCorrupt(f"the decision {event.decision[:12]} on tools can't be read: {error}") from error
        sent, tools = NONE, NONE
        for one in decided.sent:
            sent, tools = sent.plus(in_form(one.form, one.tokens)), tools.plus(in_form(one.form, 1))
        return ToolDecision(event, decided, decided.whole_tokens, sent, tools)

    def offered(self, call: CallReceived) -> str:
        """The digest of the list of tools that a call offered; empty if it offered none, or they can't be read."""
        key = (call.dialect, call.skeleton, *(cut.digest for cut in call.cuts))
        if key not in self._offered:
            self._offered[key] = self._listed(call)
        return self._offered[key]

    def _listed(self, call: CallReceived) -> str:
        dialect = self._load_dialect(call.dialect)
        try:
            listed = dialect.offers(dialect.parse(self._around_messages(call)))
        except NotUnderstood:
            return ""
        return "" if listed is None else listed.offers.digest

    def _around_messages(self, call: CallReceived) -> bytes:
        """A request without its messages: all that can hold its tools, and the same for most calls of a session."""
        skeleton = self.fetch(bytes.fromhex(call.skeleton)) or b""
        pieces, at = [], 0
        for cut in call.cuts:
            content = self.fetch(bytes.fromhex(cut.digest)) if cut.digest else b""
            pieces += [skeleton[at : cut.offset], b"null" if content is None else content]
            at = cut.offset
        return b"".join([*pieces, skeleton[at:]])
