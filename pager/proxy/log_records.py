"""What is written to the log of a call: the values that travel with it, and the events made of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from time import time
from types import MappingProxyType
from typing import NamedTuple

import orjson

from pager.log.body_delta import Recipe
from pager.log.bypass_reasons import BypassReason
from pager.log.events import (
    AnswerFinished,
    AttemptFailed,
    Bypassed,
    CallReceived,
    CreditLent,
    Event,
    FailurePhase,
    PromptCounted,
    SessionOpened,
    ToolCalled,
    WarmingStopped,
    encode,
)
from pager.log.store import Batch, Place, answer_fingerprint, moved_head, tool_call_fingerprint
from pager.paging.pager import Paged
from pager.proxy import redaction
from pager.request_values import Answer, CallAddress, Message, Request, ToolUse
from pager.sessions.identity import SESSION_HEADERS, Key
from pager.sessions.lineage import History, Placement, Session
from pager.wire.dialect import Dialect

LOGGED_HEADERS = ("user-agent", "originator", "anthropic-version", "anthropic-beta", "openai-beta", *SESSION_HEADERS)


@dataclass(frozen=True, slots=True)
class Incoming:
    """One request as it was received, read by its dialect; ``unread`` says why if it could not be.

    ``secrets`` are its credentials, which must not be written to the log.
    """

    dialect: Dialect
    request: Request
    tenant: str
    headers: Mapping[str, str]
    path: str
    encoding: str
    at: float
    unread: str = ""
    secrets: tuple[bytes, ...] = ()


class CallHistory(NamedTuple):
    """The history in a request, under the session key that the client names, None where it names none.

    ``fresh`` are the messages that were not seen before, by digest, with their text.
    """

    key: Key | None
    past: History
    fresh: Mapping[bytes, Message]


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """A call with its place in a session; ``paged`` is None where it is not planned."""

    session: Session
    placement: Placement
    incoming: Incoming
    history: CallHistory
    recipe: Recipe
    paged: Paged | None = None

    @property
    def spot(self) -> Place:
        """The call's place in the log."""
        return Place(self.session.id, self.placement.branch.number, self.placement.call)

    @property
    def address(self) -> CallAddress:
        """The branch, the number and the attempt of the call."""
        return CallAddress(self.placement.branch.number, self.placement.call, self.placement.attempt)


class Arrival(NamedTuple):
    """A call that is yet to be logged, with what its record holds; ``opened`` if its session begins with it."""

    call: PlacedCall
    blobs: dict[bytes, bytes]
    fingerprints: Mapping[bytes, Place]
    opened: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attempt; ``body`` is what came back, decoded from ``encoding``, times are milliseconds.

    ``sent`` is a digest of what went out, of ``sent_size`` bytes, where that was not what the client sent, ``legs``
    counts the hidden legs, ``named`` the handles that the model wrote into its text.
    """

    status: int
    body: bytes
    first_byte_ms: float
    total_ms: float
    at: float
    encoding: str = ""
    retry_after: str = ""
    sent: str = ""
    sent_size: int = 0
    legs: int = 0
    named: int = 0


def time_of(headers: Mapping[str, str], *, trusted: bool) -> float:
    """The time of a call now, in seconds since 1970; ``trusted`` if its client may state it in a header."""
    stated = headers.get("x-pager-now") if trusted else None
    try:
        moment = float(stated) if stated else math.nan
    except ValueError:
        moment = math.nan
    return moment if math.isfinite(moment) else time()


def harness_of(incoming: Incoming) -> str:
    """The client program, by what it calls itself."""
    return incoming.headers.get("user-agent", "").split(" ")[0]


def received(
    arrival: Arrival, *, paging: bool, missed: Bypassed | None = None, lent: CreditLent | None = None
) -> Batch:
    """The record of a call that arrives, with what was planned for it; moves the head of its session on.

    ``missed`` says what went unlogged before it, ``lent`` what its session was lent just now; both may be None.
    ``paging`` is False where no call is ever paged.
    """
    call, session, blobs = arrival.call, arrival.call.session, arrival.blobs
    incoming, placement, where = call.incoming, call.placement, call.address[:2]
    events: list[Event] = []
    if arrival.opened:
        key, source = (call.history.key.value, call.history.key.source) if call.history.key else ("", "lineage")
        events.append(SessionOpened(session.tenant, key, source, session.harness, session.arm, session.learned))
    if lent is not None:
        events.append(lent)
    if placement.opened is not None:
        events.append(placement.opened)
    events.append(_call_received(call))
    if incoming.unread:
        events.append(Bypassed(BypassReason.NOT_UNDERSTOOD, incoming.unread, *where))
    if session.unpaged and paging:
        events.append(Bypassed(BypassReason.PAGE_TABLE, session.unpaged, *where))
    elif call.paged is not None:
        events += call.paged.events
        blobs |= call.paged.blobs
    if missed is not None:
        events.append(missed)
    after, session.head = session.head, _moved_on(session.head, call)
    fingerprints = arrival.fingerprints
    return Batch(session.id, incoming.at, events, blobs, session.tenant, fingerprints, after=after, head=session.head)


def _moved_on(head: bytes, call: PlacedCall) -> bytes:
    """The hash over all calls of a session, with this one."""
    branch, number, attempt = call.address
    return sha256(head + f"{branch} {number} {attempt} {call.recipe.body}".encode()).digest()[:16]


def _call_received(call: PlacedCall) -> CallReceived:
    incoming, request, recipe, parent = call.incoming, call.incoming.request, call.recipe, call.placement.parent
    shown = {name: incoming.headers[name] for name in LOGGED_HEADERS if name in incoming.headers}
    return CallReceived(
        *call.address,
        dialect=incoming.dialect.name,
        path=incoming.path,
        model=request.model,
        stream=request.stream,
        body=recipe.body,
        size=recipe.size,
        skeleton=recipe.skeleton,
        cuts=recipe.cuts,
        keep=recipe.keep,
        messages=recipe.messages,
        separator=recipe.separator,
        parent_branch=parent.number if parent else None,
        parent_call=parent.call if parent else 0,
        encoding=incoming.encoding,
        lineage=call.history.past.fingerprint.hex(),
        server_state=request.server_state,
        headers={name: redaction.words(value, incoming.secrets) for name, value in shown.items()},
        head_marks=list(request.head_marks),
        auto_mark=request.auto_mark,
        totals=list(call.paged.totals or ()) if call.paged is not None else [],
    )


def answered(call: PlacedCall, answer: Answer, outcome: Outcome, estimate: int) -> Batch:
    """The record of a whole answer and its tool calls; ``estimate`` is our own count of the prompt, 0 if unknown."""
    body = sha256(outcome.body)
    finished = AnswerFinished(
        *call.address,
        status=outcome.status,
        finish=answer.finish,
        body=body.hexdigest(),
        size=len(outcome.body),
        first_byte_ms=round(outcome.first_byte_ms, 3),
        total_ms=round(outcome.total_ms, 3),
        model=call.incoming.request.model,
        served=answer.model,
        answer_id=answer.id,
        usage=answer.usage,
        estimate=estimate,
        encoding=outcome.encoding,
        error=answer.error,
        sent=outcome.sent,
        sent_size=outcome.sent_size,
        legs=outcome.legs,
        named=outcome.named,
    )
    blobs = {body.digest(): outcome.body}
    events = [finished, *(_tool_called(call, use, blobs) for use in answer.calls)]
    return _later(call, outcome.at, events, blobs, fingerprints_of_answer(call, answer))


def _tool_called(call: PlacedCall, use: ToolUse, blobs: dict[bytes, bytes]) -> ToolCalled:
    """One tool call; the same arguments in another order or spacing give the same idempotency key."""
    arguments = use.arguments.encode()
    blobs[sha256(arguments).digest()] = arguments
    try:
        canonical = orjson.dumps(orjson.loads(arguments), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONDecodeError:
        canonical = arguments
    session, branch, number = call.spot
    return ToolCalled(
        *call.address,
        index=use.index,
        tool=use.name,
        call_id=use.call_id,
        arguments=sha256(arguments).hexdigest(),
        key=f"{session}:{branch}:{number}:{use.index}:{use.name}:{sha256(canonical).hexdigest()[:16]}",
    )


def failed(call: PlacedCall, phase: FailurePhase, error: str, outcome: Outcome) -> Batch:
    """The record of an attempt that brought no whole answer."""
    body = outcome.body
    failure = AttemptFailed(
        *call.address,
        phase=phase,
        error=error[:2000],
        status=outcome.status,
        retry_after=outcome.retry_after,
        body=sha256(body).hexdigest() if body else "",
        size=len(body),
        total_ms=round(outcome.total_ms, 3),
    )
    return _later(call, outcome.at, [failure], {sha256(body).digest(): body} if body else {})


def counted(call: PlacedCall, estimate: int, at: float) -> Batch:
    """The record of our own count of a prompt that was still being counted when its answer was recorded."""
    return _later(call, at, [PromptCounted(*call.address, estimate=estimate)])


def bypassed(call: PlacedCall, reason: BypassReason, detail: str, at: float) -> Batch:
    """The record of a call that went out without our help after all."""
    return _later(call, at, [Bypassed(reason, detail, *call.address[:2])])


def warming_stopped(call: PlacedCall, event: WarmingStopped, at: float) -> Batch:
    """The record of a prompt that is kept warm no longer."""
    return _later(call, at, [event])


def decided(call: PlacedCall, at: float, events: Sequence[Event], blobs: Mapping[bytes, bytes]) -> Batch:
    """The record of what was decided of a call after it was received; moves the head of its session on."""
    events, blobs = redaction.safe(events, blobs, call.incoming.secrets)
    moves, session = b"".join(encode(event) for event in events), call.session
    session.head = moved_head(session.head, moves)
    return Batch(session.id, at, events, blobs, session.tenant, moves=moves)


def _later(
    call: PlacedCall,
    at: float,
    events: Sequence[Event],
    blobs: Mapping[bytes, bytes] = MappingProxyType({}),
    fingerprints: Mapping[bytes, Place] = MappingProxyType({}),
) -> Batch:
    """A record that nobody waits for, without the call's credentials."""
    events, blobs = redaction.safe(events, blobs, call.incoming.secrets)
    return Batch(call.session.id, at, events, blobs, call.session.tenant, fingerprints, urgent=False)


def fingerprints_of_answer(call: PlacedCall, answer: Answer) -> dict[bytes, Place]:
    """The fingerprints that lead to this call from calls after it that name no session."""
    if call.history.key is not None:
        return {}
    fingerprints = [tool_call_fingerprint(use.call_id) for use in answer.calls if use.call_id]
    if answer.id and call.incoming.dialect.chains:
        fingerprints.append(answer_fingerprint(answer.id))
    return dict.fromkeys(fingerprints, call.spot)
