"""The facts that the log is made of: frozen, in the past tense, each with the version of the schema it was written in.

Events hold small values and the digests of content; content itself is stored beside them. An event belongs to a
session, which stands next to it in the log. ``docs/log.md`` has the table of kinds and fields that users build on; a
test keeps it and this page the same.
"""

from functools import reduce
from operator import or_
from typing import Any

import msgspec

from pager.errors import StoreCorrupt

SCHEMA_VERSION = 1


class Event(msgspec.Struct, frozen=True, tag_field="kind", tag=True, omit_defaults=True):
    """A fact of a session."""

    @property
    def kind(self) -> str:
        """The name under which the log keeps this event."""
        return type(self).__name__


class SessionOpened(Event, frozen=True):
    """The first call of a session arrived; ``source`` is what told it apart: a header's name or ``lineage``.

    ``arm`` is the arm of an experiment that it was given to; ``learned`` the version of what other sessions had taught
    by then, which it goes by to its end.
    """

    tenant: str
    key: str
    source: str
    harness: str = ""
    arm: str = ""
    learned: str = ""


class BranchOpened(Event, frozen=True):
    """A new line of history began, after ``fork_call`` of branch ``parent`` where it has one.

    ``reason`` is root, subagent, side or fork; ``lane`` is the agent's id where the client names it. ``seed``,
    ``family`` and ``kin`` are the hashes by which later calls are compared to this branch (``pager.sessions.lineage``),
    ``head`` is how many system messages it begins with. Logs from before these two were kept have neither.
    """

    branch: int
    reason: str
    dialect: str
    lane: str = ""
    parent: int | None = None
    fork_call: int = 0
    seed: str = ""
    family: str = ""
    kin: str = ""
    head: int = 0


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """A value taken out of a body at ``offset``: a blob's digest, or empty for the list of messages."""

    offset: int
    digest: str


class CallReceived(Event, frozen=True):
    """A request arrived, written as its difference from the request of its parent call.

    The first ``keep`` messages are those of call (``parent_branch``, ``parent_call``), ``messages`` are the digests of
    the rest. ``skeleton`` is the blob of the body without what ``cuts`` took out; ``separator`` stood between the
    messages.
    ``body`` is a digest over the digests of all parts, the same only for the same bytes; ``size`` is of the whole body,
    decoded from its content ``encoding``.
    ``head_marks`` and ``auto_mark`` are the lifetimes that the client's cache marks outside of the messages ask for, in
    seconds; ``auto_mark`` is that of a mark for the request as a whole.
    """

    branch: int
    call: int
    attempt: int
    dialect: str
    path: str
    model: str
    stream: bool
    body: str
    size: int
    skeleton: str
    cuts: list[Cut]
    keep: int = 0
    messages: list[str] = []
    separator: str = ""
    parent_branch: int | None = None
    parent_call: int = 0
    encoding: str = ""
    lineage: str = ""
    server_state: str = ""
    headers: dict[str, str] = {}
    head_marks: list[float] = []
    auto_mark: float = 0.0


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as the provider reported them; ``input`` is the whole prompt, cached and written parts included.

    ``tells_cached`` is whether it said anything of cached tokens; logs from before that was kept never say so.
    ``written_5m`` and ``written_1h`` are the parts of ``written`` that live 5 minutes and an hour; both are 0 where the
    provider does not say, and in logs from before they were kept.
    """

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0
    tells_cached: bool = False
    written_5m: int = 0
    written_1h: int = 0

    @property
    def cached_if_told(self) -> int | None:
        """The cached tokens; None where the provider said nothing of them."""
        return self.cached if self.tells_cached or self.cached else None


class AnswerFinished(Event, frozen=True):
    """The answer reached its end. ``body`` is the blob of the response as it came; times are milliseconds.

    ``model`` is the one that was asked for, ``served`` the one that the provider says answered. ``estimate`` is our own
    count of the client's prompt, or 0 where a PromptCounted follows; ``usage`` is the provider's.

    Where the prompt that went out was not the client's, ``sent`` is a digest over the client's and every change to it,
    ``sent_size`` its bytes, and ``legs`` counts the hidden legs before this answer; what is told here is of the last
    leg. ``named`` counts the handles of evicted pages that stand in the answer's text. ``redacted`` counts the bytes
    of a credential in it that were replaced by stars before it was written.
    """

    branch: int
    call: int
    attempt: int
    status: int
    finish: str
    body: str
    size: int
    first_byte_ms: float
    total_ms: float
    model: str = ""
    served: str = ""
    answer_id: str = ""
    usage: Tokens | None = None
    estimate: int = 0
    encoding: str = ""
    error: str = ""
    sent: str = ""
    sent_size: int = 0
    legs: int = 0
    named: int = 0
    redacted: int = 0


class PromptCounted(Event, frozen=True):
    """Our own count of a prompt that was too large to be counted before its answer was logged."""

    branch: int
    call: int
    attempt: int
    estimate: int


class ToolCalled(Event, frozen=True):
    """The model called a tool. ``key`` is the idempotency key, equal for every repetition of the same call."""

    branch: int
    call: int
    attempt: int
    index: int
    tool: str
    call_id: str
    arguments: str
    key: str


class AttemptFailed(Event, frozen=True):
    """An attempt at a call brought no whole answer.

    ``phase`` says how far it came: connect, status (an error status came back), stream (it broke off), client (the
    client left) or proxy (we were stopped, or failed). ``body`` is the blob of what had come by then, with
    ``redacted`` bytes of a credential replaced by stars.
    """

    branch: int
    call: int
    attempt: int
    phase: str
    error: str
    status: int = 0
    retry_after: str = ""
    body: str = ""
    size: int = 0
    total_ms: float = 0.0
    redacted: int = 0


class Bypassed(Event, frozen=True):
    """A call went out without our help; ``reason`` is a fixed word, ``detail`` says more."""

    reason: str
    detail: str = ""
    branch: int | None = None
    call: int = 0


class Evicted(msgspec.Struct, frozen=True, array_like=True):
    """A page that is not in the prompt any more: its name in the branch, its place, and the stub in its stead.

    ``message`` is the digest of the message that holds it and ``key`` its place there.
    """

    page: str
    message: str
    key: str
    stub: str


class Repacked(Event, frozen=True):
    """The prompt of a branch changed before its end, from this call on.

    ``cause`` is policy, rescue (it would not fit the model's window) or client (what a hidden leg stood beside is gone
    from the client's history). ``pages`` are now evicted; ``tool`` is the name of the tool that was added for them.
    ``saved`` counts the tokens that every call from now on is shorter by, ``rewritten`` those that the provider must
    read again, ``price`` what that costs in units of one uncached input token.
    """

    branch: int
    call: int
    attempt: int
    cause: str
    reason: str
    policy: str = ""
    tool: str = ""
    warm: bool = False
    pages: list[Evicted] = []
    saved: int = 0
    rewritten: int = 0
    price: float = 0.0


class ToolsDecided(Event, frozen=True):
    """It was decided in which form each tool of a branch is sent from this call on, until the client changes its tools.

    ``decision`` is the blob that says so, tool by tool, with the short forms themselves; ``offered`` the digest of the
    client's list of tools, ``tool`` the name of the tool that was added for asking. Tokens are our own count: ``whole``
    of the tools as the client offers them, ``sent`` as they are sent, by form ``slim`` and ``deferred``, each of so
    many tools. ``price`` is what the change costs, in units of one uncached input token.
    """

    branch: int
    call: int
    attempt: int
    decision: str
    offered: str
    reason: str
    tool: str = ""
    tools: int = 0
    whole: int = 0
    sent: int = 0
    slim: int = 0
    deferred: int = 0
    price: float = 0.0


class Marked(Event, frozen=True):
    """Cache marks of ours were set in a branch, from this call on until others are.

    ``ends``: the client sets none at all, so what stands before the messages and the last of them are marked.
    ``anchors`` are the prefixes, by their number of items as they go out, that are kept alive for a later repack.
    ``legs``: hidden legs end at a mark of their own.
    """

    branch: int
    call: int
    attempt: int
    ends: bool = False
    anchors: list[int] = []
    legs: bool = False


class LegFinished(Event, frozen=True):
    """A hidden leg of a call ended: the model asked for pages, and was answered here.

    ``said`` is the blob of what it said with our answers, as it stands in the prompt from now on; ``body`` that of the
    response as it came, but for ``redacted`` bytes of a credential. ``pages`` are the handles of which the model got
    something, ``unknown`` those it made up;
    ``imitated`` counts calls of the client's tools that were held back because they named a stub. ``schemas`` are the
    tools that the model asked for in full, ``invalid`` those whose calls did not fit. ``mixed``: it is the last leg,
    answered when the client's results come; its tokens are then those of the AnswerFinished.
    """

    branch: int
    call: int
    attempt: int
    leg: int
    said: str
    body: str
    size: int
    total_ms: float = 0.0
    answer_id: str = ""
    usage: Tokens | None = None
    pages: list[str] = []
    unknown: list[str] = []
    imitated: int = 0
    schemas: list[str] = []
    invalid: list[str] = []
    mixed: bool = False
    redacted: int = 0


class LegFailed(Event, frozen=True):
    """A request of ours for a hidden leg brought no answer.

    ``leg`` is the number of the leg, ``tries`` counts its requests so far. ``phase`` is connect, status (an error
    status came back) or stream (it broke off, or an error came in it, before the client was shown anything of it).
    ``wait`` are the seconds after which it was sent again; None where it was given up.
    """

    branch: int
    call: int
    attempt: int
    leg: int
    tries: int
    phase: str
    error: str
    status: int = 0
    wait: float | None = None


class Learned(Event, frozen=True):
    """What the log's sessions teach was worked out anew; ``content`` is its blob, and its version.

    It counts ``sessions`` sessions, of the events up to the sequence number ``upto``.
    """

    content: str
    sessions: int
    upto: int


EVENT_TYPES: tuple[type[Event], ...] = tuple(Event.__subclasses__())
_encoder = msgspec.json.Encoder(order="deterministic")
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(reduce(or_, EVENT_TYPES))


def encode(event: Event) -> bytes:
    """The event as the log keeps it."""
    return _encoder.encode(event)


def decode(data: bytes, version: int = SCHEMA_VERSION) -> Event:
    """The event that was written with this schema version."""
    if version > SCHEMA_VERSION:
        raise StoreCorrupt(f"event of schema version {version}: this ctxpager reads up to {SCHEMA_VERSION}; upgrade it")
    try:
        event: Event = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"an event does not decode: {error}") from error
    return event
