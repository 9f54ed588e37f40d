"""Reads a session from the log as a recording: what the client sent and what it was answered, not what went upstream.

Whatever policy was in force then, the calls are the client's own, so that they can be played under another one. The
answers are those that were given then; what a model was shown only by paging it in, it had asked for.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from instrumentation.accounting.billing import tokens_in
from instrumentation.accounting.logged_prompts import ClientCall, client_calls
from instrumentation.replay.recording import RecordedCall, Recording
from pager.errors import NotUnderstood, StoreCorrupt
from pager.log.bypass_reasons import UNDER_ANY_POLICY
from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    Bypassed,
    SessionOpened,
    ToolCalled,
)
from pager.log.store import Store, Stored
from pager.paging.conditions import asked_for, tool_slot_of
from pager.paging.priors import SHIPPED, Experience, recalled
from pager.pricing.mark_cache import FIVE_MINUTES, HOUR
from pager.request_values import Answer, CallAddress, Request
from pager.text.references import said
from pager.tools.definitions import Offers
from pager.wire.dialect import Dialect
from pager.wire.stitching import ToolSlot

_PROMPT = ("system", "instructions", "tools", "functions", "response_format", "text")
_OPTIONS = (
    *("thinking", "output_config", "effort", "reasoning", "reasoning_effort", "verbosity", "tool_choice", "speed"),
    *("service_tier", "context_management", "prompt_cache_key"),
)
"""What is no part of the prompt, but a provider may keep apart what it has cached under another value of it."""
_MARK = re.compile(rb',?\s*"cache_control"\s*:\s*\{[^{}]*\}')


def names(store: Store) -> list[str]:
    """The ids of all sessions in the log, the oldest first."""
    return [row.session for row in reversed(store.sessions())]


def load(store: Store, session: str, load_dialect: Callable[[str], Dialect]) -> list[Recording]:
    """A session of the log: one recording for each wire format in it, mostly one; raises StoreCorrupt."""
    log = list(store.events(session))
    reader = _LogReader(store, load_dialect, _facts(log))
    found: dict[str, list[RecordedCall]] = {}
    for call in client_calls(log):
        found.setdefault(call.call.dialect, []).append(reader.step(call))
    several, facts = len(found) > 1, reader.facts
    known = _experience(store, facts.learned)
    families = {number: bytes.fromhex(opened.family) for number, opened in facts.opened.items()}
    return [
        Recording(name, dialect, steps, facts.harness, known, families, facts.tenant)
        for dialect, steps in found.items()
        for name in [f"{session} ({dialect})" if several else session]
    ]


@dataclass(slots=True)
class _LogFacts:
    """What the log says of the calls of a session, beside the calls themselves."""

    tenant: str = ""
    harness: str = ""
    learned: str = ""
    opened: dict[int, BranchOpened] = field(default_factory=dict)
    answers: dict[CallAddress, AnswerFinished] = field(default_factory=dict)
    issued: dict[CallAddress, set[str]] = field(default_factory=dict)
    in_full: set[tuple[int | None, int]] = field(default_factory=set)


def _facts(log: Iterable[Stored]) -> _LogFacts:
    facts = _LogFacts()
    for row in log:
        match row.event:
            case SessionOpened(tenant=tenant, harness=harness, learned=learned):
                facts.tenant, facts.harness, facts.learned = tenant, harness, learned
            case BranchOpened() as opened:
                facts.opened[opened.branch] = opened
            case AnswerFinished() as answer:
                facts.answers[CallAddress.of(answer)] = answer
            case ToolCalled() as tool:
                facts.issued.setdefault(CallAddress.of(tool), set()).add(tool.call_id)
            case Bypassed(reason=reason, branch=branch, call=call) if reason in UNDER_ANY_POLICY:
                facts.in_full.add((branch, call))
            case _:
                pass
    return facts


class _LoggedAnswer(NamedTuple):
    """What an answer said to the client, the tokens of it, and the names of the tools that it called.

    ``cache_miss`` is the provider's own word on why its cache did not hold the prompt.
    """

    words: str
    output: int
    called: tuple[str, ...]
    cache_miss: str = ""


class _LogReader:
    """Makes steps of logged calls."""

    def __init__(self, store: Store, load_dialect: Callable[[str], Dialect], facts: _LogFacts) -> None:
        self.facts = facts
        self._store = store
        self._load_dialect = load_dialect
        self._blobs: dict[bytes, bytes | None] = {}
        self._begun: set[int] = set()

    def step(self, logged: ClientCall) -> RecordedCall:
        """One call."""
        call, dialect = logged.call, self._load_dialect(logged.call.dialect)
        spot = CallAddress.of(call)
        body = logged.body(self._blob)
        request = _parsed(dialect, body)
        listed = request is not None and request.separator is not None
        opened = self.facts.opened.get(call.branch) if call.branch not in self._begun else None
        self._begun.add(call.branch)
        answer = self.facts.answers.get(spot)
        said = self._answer(dialect, spot, answer)
        settings = _settings(request) if request is not None and listed else ()
        tool_slot = _carrier(dialect, request)
        fork = opened if opened is not None and opened.parent in self._begun else None
        keep = call.keep if listed else 0
        return RecordedCall(
            at=logged.at,
            keep=keep,
            new=tuple(bytes(item) for item in request.items[keep:]) if request is not None and listed else (),
            outside=request.outside if request is not None and listed else len(body),
            said=said.words,
            output=said.output,
            branch=call.branch,
            parent=fork.parent if fork else None,
            fork_call=opened.fork_call if opened else 0,
            model=call.model,
            attempt=call.attempt,
            tools=tool_slot.names if tool_slot is not None and spot[:2] not in self.facts.in_full else None,
            reserve=asked_for(request) if request is not None else 0,
            answered=answer is not None and answer.status < 400 and not answer.error,
            offers=_offers(dialect, request, tool_slot),
            called=said.called,
            head=_head(settings) if listed else b"",
            lifetime=_lifetime(body),
            served=answer.served if answer is not None else "",
            usage=answer.usage if answer is not None and not (answer.sent or answer.legs) else None,
            settings=settings,
            cache_miss=said.cache_miss if answer is not None and not answer.legs else "",
        )

    def _answer(self, dialect: Dialect, spot: CallAddress, finished: AnswerFinished | None) -> _LoggedAnswer:
        """The text of an answer to the client."""
        body = self._blob(bytes.fromhex(finished.body)) if finished is not None else None
        answer = _read(dialect, body or b"")
        issued = self.facts.issued.get(spot, set())
        calls = [use for use in answer.calls if use.call_id in issued]
        text = "\n".join([answer.text, *(said(use.arguments) for use in calls)])
        usage = finished.usage if finished is not None else None
        output = usage.output if usage else tokens_in(len(text.encode("utf-8", "surrogatepass")))
        return _LoggedAnswer(text, output, tuple(use.name for use in calls), answer.cache_miss)

    def _blob(self, digest: bytes) -> bytes | None:
        if digest not in self._blobs:
            self._blobs[digest] = self._store.blob(digest)
        return self._blobs[digest]


def _experience(store: Store, version: str) -> Experience:
    """What the session went by of what was learned; what is shipped where that can't be read, as live."""
    try:
        return recalled(version, store.blob)
    except StoreCorrupt:
        return SHIPPED


def _settings(request: Request) -> tuple[tuple[str, bytes], ...]:
    """Digests of what a request sets beside its messages, by name, as far as a cache depends on it; marks may move."""
    return tuple(
        (name, sha256(_MARK.sub(b"", bytes(request.body[span.start : span.end]))).digest())
        for name in (*_PROMPT, *_OPTIONS)
        if (span := request.members.get(name)) is not None
    )


def _head(settings: Iterable[tuple[str, bytes]]) -> bytes:
    """The hash of what of a prompt stands outside of its messages; options are no part of it."""
    return sha256(b"".join(b"%b %b" % (name.encode(), digest) for name, digest in settings if name in _PROMPT)).digest()


def _lifetime(body: bytes) -> float:
    """The longest lifetime that the cache marks of a request ask for; 0 where it has none."""
    return max((HOUR if b'"1h"' in mark[0] else FIVE_MINUTES for mark in _MARK.finditer(body)), default=0.0)


def _parsed(dialect: Dialect, body: bytes) -> Request | None:
    try:
        return dialect.parse(body)
    except NotUnderstood:
        return None


def _read(dialect: Dialect, body: bytes) -> Answer:
    """The answer in a body, whole or streamed; an empty one where it can't be read."""
    try:
        if body.lstrip().startswith(b"{"):
            return dialect.read(body)
    except NotUnderstood:
        return Answer()
    reader = dialect.reader()
    reader.feed(body)
    return reader.answer()


def _carrier(dialect: Dialect, request: Request | None) -> ToolSlot | None:
    tool_slot = tool_slot_of(dialect, request) if request is not None and request.items else ""
    return tool_slot if isinstance(tool_slot, ToolSlot) else None


def _offers(dialect: Dialect, request: Request | None, tool_slot: ToolSlot | None) -> Offers | None:
    """The tools that a request offers; None where they are in an item, which is never changed."""
    if request is None or (tool_slot is not None and tool_slot.item is not None):
        return None
    listed = dialect.offers(request)
    return None if listed is None else listed.offers
