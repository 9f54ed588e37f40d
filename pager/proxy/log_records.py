"""What is written to the log of a call: the values that travel with it, and the events made of them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import NamedTuple

import orjson

from pager.log.body_delta import Recipe, around_items
from pager.log.bypass import BypassReason
from pager.log.events import (
    AnswerFinished,
    AttemptFailed,
    Bypassed,
    CallReceived,
    Event,
    SessionOpened,
    Tokens,
    ToolCalled,
)
from pager.log.store import Place
from pager.paging.plan_call import Paged
from pager.proxy.redaction import words
from pager.sessions.identity import Key
from pager.sessions.lineage import (
    History,
    Placement,
    Session,
    answer_mark,
    call_mark,
)
from pager.values import (
    Answer,
    Message,
    Request,
    ToolUse,
)
from pager.wire.dialect import Dialect

LOGGED_HEADERS = (
    "user-agent",
    "originator",
    "anthropic-version",
    "anthropic-beta",
    "openai-beta",
    "x-claude-code-session-id",
    "x-claude-code-agent-id",
    "session-id",
    "thread-id",
    "x-session-id",
    "x-parent-session-id",
    "agent-session-id",
    "session_id",
)


@dataclass(frozen=True, slots=True)
class Incoming:
    """One request as the driver received it, read by its dialect; ``unread`` says why if it could not be.

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


@dataclass(frozen=True, slots=True)
class Entry:
    """A call that is in the log: where it stands, how it was taken apart, what is paged.

    ``fresh`` are the messages new to us, by digest.
    """

    session: Session
    key: Key | None
    placement: Placement
    incoming: Incoming
    recipe: Recipe
    fresh: Mapping[bytes, Message]
    paged: Paged | None = None

    @property
    def spot(self) -> Place:
        """The call's place in the log."""
        return Place(self.session.id, self.placement.branch.number, self.placement.call)


class Draft(NamedTuple):
    """A call that has its place and is yet to be planned; ``opened`` if its session begins with it."""

    entry: Entry
    past: History
    blobs: dict[bytes, bytes]
    marks: Mapping[bytes, Place]
    opened: bool

    @property
    def planned(self) -> tuple[Session, Placement, Incoming, History, str]:
        """What it is planned from."""
        entry = self.entry
        around = around_items(entry.recipe.cuts)
        return entry.session, entry.placement, entry.incoming, self.past, around


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


def moved_on(head: bytes, entry: Entry) -> bytes:
    """The hash over all calls of a session, with this one."""
    _, branch, call = entry.spot
    return sha256(head + f"{branch} {call} {entry.placement.attempt} {entry.recipe.body}".encode()).digest()[:16]


def harness_of(incoming: Incoming) -> str:
    """The client program, by what it calls itself."""
    return incoming.headers.get("user-agent", "").split(" ")[0]


def call_events(entry: Entry, past: History, *, opened: bool) -> list[Event]:
    """The events of a call that arrives; ``opened`` if its session begins with it."""
    placement, incoming, key, recipe = entry.placement, entry.incoming, entry.key, entry.recipe
    events: list[Event] = []
    if opened:
        value, source = (key.value, key.source) if key else ("", "lineage")
        session = entry.session
        events.append(SessionOpened(session.tenant, value, source, session.harness, session.arm, session.learned))
    if placement.opened is not None:
        events.append(placement.opened)
    parent, headers = placement.parent, incoming.headers
    events.append(
        CallReceived(
            branch=placement.branch.number,
            call=placement.call,
            attempt=placement.attempt,
            dialect=incoming.dialect.name,
            path=incoming.path,
            model=incoming.request.model,
            stream=incoming.request.stream,
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
            lineage=past.mark.hex(),
            server_state=incoming.request.server_state,
            headers={name: words(headers[name], incoming.secrets) for name in LOGGED_HEADERS if name in headers},
            head_marks=list(incoming.request.head_marks),
            auto_mark=incoming.request.auto_mark,
        )
    )
    if incoming.unread:
        events.append(Bypassed(BypassReason.NOT_UNDERSTOOD, incoming.unread, placement.branch.number, placement.call))
    return events


def answer_finished(entry: Entry, answer: Answer, outcome: Outcome, estimate: int) -> AnswerFinished:
    """The event of a whole answer."""
    placement = entry.placement
    return AnswerFinished(
        branch=placement.branch.number,
        call=placement.call,
        attempt=placement.attempt,
        status=outcome.status,
        finish=answer.finish,
        body=sha256(outcome.body).hexdigest(),
        size=len(outcome.body),
        first_byte_ms=round(outcome.first_byte_ms, 3),
        total_ms=round(outcome.total_ms, 3),
        model=entry.incoming.request.model,
        served=answer.model,
        answer_id=answer.id,
        usage=tokens(answer),
        estimate=estimate,
        encoding=outcome.encoding,
        error=answer.error,
        sent=outcome.sent,
        sent_size=outcome.sent_size,
        legs=outcome.legs,
        named=outcome.named,
    )


def attempt_failed(entry: Entry, phase: str, error: str, outcome: Outcome) -> AttemptFailed:
    """The event of an attempt that brought no whole answer."""
    return AttemptFailed(
        branch=entry.placement.branch.number,
        call=entry.placement.call,
        attempt=entry.placement.attempt,
        phase=phase,
        error=error[:2000],
        status=outcome.status,
        retry_after=outcome.retry_after,
        body=sha256(outcome.body).hexdigest() if outcome.body else "",
        size=len(outcome.body),
        total_ms=round(outcome.total_ms, 3),
    )


def tool_called(entry: Entry, use: ToolUse, blobs: dict[bytes, bytes]) -> ToolCalled:
    """The event of one tool call; the same arguments in another order or spacing give the same idempotency key."""
    arguments = use.arguments.encode()
    blobs[sha256(arguments).digest()] = arguments
    try:
        canonical = orjson.dumps(orjson.loads(arguments), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONDecodeError:
        canonical = arguments
    spot, attempt = entry.spot, entry.placement.attempt
    hashed = sha256(canonical).hexdigest()[:16]
    return ToolCalled(
        branch=spot.branch,
        call=spot.call,
        attempt=attempt,
        index=use.index,
        tool=use.name,
        call_id=use.call_id,
        arguments=sha256(arguments).hexdigest(),
        key=f"{spot.session}:{spot.branch}:{spot.call}:{use.index}:{use.name}:{hashed}",
    )


def marks_of_answer(entry: Entry, answer: Answer) -> dict[bytes, Place]:
    """The marks that lead to this call from calls after it that name no session."""
    if entry.key is not None:
        return {}
    marks = [call_mark(use.call_id) for use in answer.calls if use.call_id]
    if answer.id and entry.incoming.dialect.chains:
        marks.append(answer_mark(answer.id))
    return dict.fromkeys(marks, entry.spot)


def tokens(answer: Answer) -> Tokens | None:
    """The provider's own counts, as the log keeps them."""
    usage = answer.usage
    return Tokens(**asdict(usage)) if usage else None
