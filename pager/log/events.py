"""The facts that the log is made of: frozen, in the past tense, each with the version of the schema it was written in.

A kind of event is one class here: it lists its fields and the blobs that it refers to, and readers match on the class.
Events hold small values and the digests of content; content itself is stored beside them. An event belongs to a
session, which the log keeps next to it. ``docs/log.md`` has the table of kinds and fields that users
build on; a test keeps it and this page the same.
"""

from collections.abc import Iterable
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from pager.errors import StoreCorrupt, StoreError
from pager.request_values import Usage

SCHEMA_VERSION = 1


class Event(msgspec.Struct, frozen=True, tag_field="kind", tag=True, omit_defaults=True):
    """A fact of a session."""

    @property
    def kind(self) -> str:
        """The name under which the log keeps this event."""
        return type(self).__name__

    def blobs(self) -> list[str]:
        """The digests, in hex, of the content without which the event can't be read in full."""
        return [digest for digest in self._blobs() if digest]

    def _blobs(self) -> Iterable[str]:
        """The same; empty digests, of content that there is not, are left out later."""
        return ()


class SessionOpened(Event, frozen=True):
    """The first call of a session arrived."""

    tenant: str
    key: str  # what the client calls the session, empty where it does not
    source: str  # how the session was recognised: a header's name, or ``lineage``
    harness: str = ""
    arm: str = ""  # the arm of an experiment that it was given to
    learned: str = ""  # the version of what other sessions had taught by then, which it uses to its end


class BranchReason(StrEnum):
    """Why a branch was opened; the log holds its value."""

    ROOT = "root"
    SUBAGENT = "subagent"
    SIDE = "side"
    FORK = "fork"


class BranchOpened(Event, frozen=True):
    """A new line of history began."""

    branch: int
    reason: str  # a BranchReason
    dialect: str
    lane: str = ""  # the agent's id, where the client names it
    parent: int | None = None
    fork_call: int = 0  # the last call that it shares with its parent
    # Hashes by which later calls are compared to this branch (``pager.sessions.lineage``).
    seed: str = ""
    family: str = ""
    kin: str = ""  # empty in logs from before it was kept
    head: int = 0  # system messages at its beginning; 0 in logs from before it was kept


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """A value taken out of a body."""

    offset: int
    digest: str  # of its blob, or empty for the list of messages


class CallReceived(Event, frozen=True):
    """A request arrived, written as its difference from the request of its parent call."""

    branch: int
    call: int
    attempt: int
    dialect: str
    path: str
    model: str
    stream: bool
    body: str  # a digest over the digests of all parts, the same only for the same bytes
    size: int  # of the whole body, decoded from its content ``encoding``
    skeleton: str  # the blob of the body without what ``cuts`` took out
    cuts: list[Cut]
    keep: int = 0  # messages at the beginning that are those of the parent call
    messages: list[str] = []  # the digests of the others
    separator: str = ""  # between the messages
    parent_branch: int | None = None
    parent_call: int = 0
    encoding: str = ""
    lineage: str = ""
    server_state: str = ""
    headers: dict[str, str] = {}
    head_marks: list[float] = []  # lifetimes in seconds that the client's cache marks outside of the messages ask for
    auto_mark: float = 0.0  # that of a cache mark for the request as a whole
    totals: list[float] = []  # of the session up to here, by our estimate: dollars paid, and saved

    def _blobs(self) -> Iterable[str]:
        return [self.skeleton, *(cut.digest for cut in self.cuts), *self.messages]


class AnswerFinished(Event, frozen=True):
    """The answer reached its end; where there were hidden legs before it, this is the last one."""

    branch: int
    call: int
    attempt: int
    status: int
    finish: str
    body: str  # the blob of the response as it came
    size: int
    first_byte_ms: float
    total_ms: float
    model: str = ""  # that was asked for
    served: str = ""  # that the provider says answered
    answer_id: str = ""
    usage: Usage | None = None
    estimate: int = 0  # our own count of the client's prompt, 0 where a PromptCounted follows
    encoding: str = ""
    error: str = ""
    sent: str = ""  # a digest over the client's prompt and every change to it, where another one was sent
    sent_size: int = 0  # bytes of the prompt that was sent
    legs: int = 0  # hidden legs before this answer
    named: int = 0  # handles of evicted pages in the answer's text
    redacted: int = 0  # bytes of a credential in the body that were replaced by stars before it was written

    def _blobs(self) -> Iterable[str]:
        return [self.body]


class PromptCounted(Event, frozen=True):
    """Our own count of a prompt that was too large to be counted before its answer was logged."""

    branch: int
    call: int
    attempt: int
    estimate: int


class ToolCalled(Event, frozen=True):
    """The model called a tool."""

    branch: int
    call: int
    attempt: int
    index: int
    tool: str
    call_id: str
    arguments: str  # their blob
    key: str  # the idempotency key, equal for every repetition of the same call

    def _blobs(self) -> Iterable[str]:
        return [self.arguments]


class FailurePhase(StrEnum):
    """How far a request came before it failed; the log holds its value."""

    CONNECT = "connect"
    STATUS = "status"  # an error status came back
    STREAM = "stream"  # the answer broke off
    CLIENT = "client"  # the client left
    PROXY = "proxy"  # the proxy was stopped, or failed


class AttemptFailed(Event, frozen=True):
    """An attempt at a call brought no whole answer."""

    branch: int
    call: int
    attempt: int
    phase: str  # a FailurePhase
    error: str
    status: int = 0
    retry_after: str = ""
    body: str = ""  # the blob of what had come by then
    size: int = 0
    total_ms: float = 0.0
    redacted: int = 0  # bytes of a credential in the body that were replaced by stars

    def _blobs(self) -> Iterable[str]:
        return [self.body]


class Bypassed(Event, frozen=True):
    """A call went out without our help."""

    reason: str  # a pager.log.bypass_reasons.BypassReason
    detail: str = ""
    branch: int | None = None
    call: int = 0


class Evicted(msgspec.Struct, frozen=True, array_like=True):
    """A page that is not in the prompt any more."""

    page: str  # its name in the branch
    message: str  # the digest of the message that holds it
    key: str  # its place in the message
    stub: str  # the text in its stead


class RepackCause(StrEnum):
    """Why the prompt of a branch changed before its end; the log holds its value."""

    POLICY = "policy"
    RESCUE = "rescue"  # it would not fit the model's window
    CLIENT = "client"  # the client changed what the prompt was built on
    READY = "ready"  # our tool is in the first prompt already, so that a later repack need not begin there


class Repacked(Event, frozen=True):
    """The prompt of a branch changed before its end, from this call on."""

    branch: int
    call: int
    attempt: int
    cause: str  # a RepackCause
    reason: str
    policy: str = ""
    tool: str = ""  # the name of the tool that was added for the pages
    warm: bool = False
    pages: list[Evicted] = []  # that are evicted now
    saved: int = 0  # tokens that every call from now on is shorter by
    rewritten: int = 0  # tokens that the provider must read again
    price: float = 0.0  # what that costs, in units of one uncached input token
    window: int = 0  # tokens of the model's window as the provider named it when it refused the prompt, or 0
    lent: float = 0.0  # the part of the price that the session's credit pays, in the same units

    def _blobs(self) -> Iterable[str]:
        return [page.message for page in self.pages]


class ToolsDecided(Event, frozen=True):
    """In which form each tool of a branch is sent from this call on, until the client changes its tools.

    Tokens are our own count.
    """

    branch: int
    call: int
    attempt: int
    decision: str  # the blob of the decision, tool by tool, with the short forms themselves
    offered: str  # the digest of the client's list of tools
    reason: str
    tool: str = ""  # the name of the tool that was added for asking
    tools: int = 0
    whole: int = 0  # tokens of the tools as the client offers them
    sent: int = 0  # tokens of the tools as they are sent
    slim: int = 0  # tools in this form
    deferred: int = 0  # tools in this form
    price: float = 0.0  # what the change costs, in units of one uncached input token

    def _blobs(self) -> Iterable[str]:
        return [self.decision]


class Marked(Event, frozen=True):
    """Cache marks of ours were set in a branch, from this call on until others are."""

    branch: int
    call: int
    attempt: int
    ends: bool = False  # the client sets none at all, so we mark what is before the messages, and the last of them
    anchors: list[int] = []  # prefixes, by their number of items as sent, that are kept alive for a later repack
    legs: bool = False  # hidden legs end at a mark of their own
    lifetime: float = 0.0  # seconds that all marks ask for, where the client names none and we chose them; else 0
    members: dict[str, str] = {}  # of ours in the body, for caches that are chosen by them: their values as JSON


class LegFinished(Event, frozen=True):
    """A hidden leg of a call ended: the model asked for pages, and was answered here."""

    branch: int
    call: int
    attempt: int
    leg: int
    said: str  # the blob of the model's message with our answers, as it is in the prompt from now on
    body: str  # the blob of the response as it came
    size: int
    total_ms: float = 0.0
    answer_id: str = ""
    usage: Usage | None = None
    pages: list[str] = []  # handles of which the model got something
    unknown: list[str] = []  # handles that it made up
    imitated: int = 0  # calls of the client's tools that were held back because they named a stub
    schemas: list[str] = []  # tools that the model asked for in full
    invalid: list[str] = []  # tools whose calls did not fit their schema
    mixed: bool = False  # the last leg, answered when the client's results come; its tokens are in the AnswerFinished
    redacted: int = 0  # bytes of a credential in the body that were replaced by stars

    def _blobs(self) -> Iterable[str]:
        return [self.said, self.body]


class LegFailed(Event, frozen=True):
    """A request of ours for a hidden leg brought no answer."""

    branch: int
    call: int
    attempt: int
    leg: int
    tries: int  # requests for this leg so far
    phase: str  # a FailurePhase; the client was shown nothing of what failed
    error: str
    status: int = 0
    wait: float | None = None  # seconds after which it was sent again; None where it was given up


class Warmed(Event, frozen=True):
    """The latest prompt of a branch was sent once more in a pause, only to keep it in the provider's cache."""

    branch: int
    call: int  # whose prompt it was
    attempt: int
    at: float  # when it was sent, in seconds since 1970
    refresh: int  # its number in the pause, from 1 on
    usage: Usage
    cost: float  # in units of one uncached input token
    stake: float  # what a call in the time that it buys saves, against one that finds nothing cached, in the same units
    lifetime: float  # seconds for which the prompt is cached from then on
    total_ms: float = 0.0
    dollars: float = 0.0  # the same cost in US dollars


class WarmingEnd(StrEnum):
    """Why a prompt is kept warm no longer though its pause goes on; the log holds its value."""

    WROTE = "wrote"  # the provider had dropped it, so that the refresh wrote it instead of reading it
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    LATE = "late"  # there was no time left before the prompt expired
    LIMIT = "limit"  # a limit on money was reached
    CANCELLED = "cancelled"  # a call came, or it was switched off, while a refresh was on its way


class WarmingStopped(Event, frozen=True):
    """A prompt is kept warm no longer though its pause goes on."""

    branch: int
    call: int
    attempt: int
    reason: str  # a WarmingEnd
    detail: str = ""
    status: int = 0  # of the provider's answer, 0 where it gave none


class CreditLent(Event, frozen=True):
    """A session was lent a credit from its user's account; logged there and in the session."""

    session: str
    dollars: float


class CreditReturned(Event, frozen=True):
    """The credit of a session that rests came back to its user's account."""

    session: str
    paid: float  # dollars that it has paid so far
    saved: float  # dollars that it has saved so far against doing nothing


class Learned(Event, frozen=True):
    """What the log's sessions teach was worked out anew."""

    content: str  # its blob, and its version
    sessions: int  # that it counts
    upto: int  # the sequence number of the last event that it counts

    def _blobs(self) -> Iterable[str]:
        return [self.content]


EVENT_TYPES: tuple[type[Event], ...] = tuple(Event.__subclasses__())
_encoder = msgspec.json.Encoder(order="deterministic")
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(reduce(or_, EVENT_TYPES))


def encode(event: Event) -> bytes:
    """The event as the log keeps it; raises StoreError where it can't be written."""
    try:
        return _encoder.encode(event)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise StoreError(f"an event can't be written: {error}") from error


def decode(data: bytes, version: int = SCHEMA_VERSION) -> Event:
    """The event that was written with this schema version."""
    if version > SCHEMA_VERSION:
        raise StoreCorrupt(f"event of schema version {version}: this ctxpager reads up to {SCHEMA_VERSION}; upgrade it")
    try:
        event: Event = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"an event does not decode: {error}") from error
    return event
