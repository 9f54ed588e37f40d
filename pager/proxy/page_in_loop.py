"""Brings back one answer to a paged call, however many requests that takes: a generator, without any I/O.

It yields commands (send this request, show the client that, make these events durable) and is given their results, as
httpx's ``auth_flow`` is; ``relay`` carries them out.

The first leg carries the paged prompt. Where the model asks for pages, it is answered from the log and another leg goes
out, which continues the client's stream. A request that the provider refuses is evicted harder if it was too long,
else it is sent once more as the client wrote it. A hidden leg that fails before the client was shown anything of it is
sent again; the first leg is the client's own to repeat.
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec

from pager.errors import BadRequest, NotUnderstood
from pager.log.bypass_reasons import BypassReason
from pager.log.events import Bypassed, Event, FailurePhase, LegFailed, LegFinished
from pager.paging import held_calls as rules
from pager.paging.context_length import Overflow, overflow
from pager.paging.held_calls import Guard, Next
from pager.paging.page_in import name_for
from pager.paging.pager import Paged, Pager
from pager.paging.planner import FILLED_AFTER_RESCUE, is_warm
from pager.paging.render import Outgoing
from pager.proxy import hidden_leg_retries, request_body
from pager.proxy.attempt import Attempt
from pager.proxy.hidden_leg_retries import Retries, RetryLimits, Setback
from pager.proxy.log_records import PlacedCall
from pager.proxy.redaction import redacted
from pager.proxy.request_body import Body
from pager.proxy.stream_head import Opening
from pager.tools.decide_forms import ToolAsSent
from pager.wire.stitching import LegEnd, Stitcher

REFUSALS = frozenset({400, 413, 422})
"""Statuses of an error that lies in the request itself."""

LOOKED_INTO = REFUSALS | {500}
"""Statuses that may mean that the prompt is too long; some local servers say so with a 500."""

SURELY = 1.15  # by how much our own count of a prompt must be over the window before it is believed
LEAST = (0.15, 0.5)  # the least share of a prompt to evict when it is refused for the first and the second time
LONGEST_ERROR = 500  # characters of an error that are logged
log = logging.getLogger("ctxpager")


class SendLeg(NamedTuple):
    """Send a request upstream. Its result is the ``ResponseHead``; LegBroke is raised where there is none."""

    body: Body
    own_bytes: bool  # whether these are the client's bytes, in the encoding that it chose
    readable: bool  # whether we read the answer, which must not be compressed then


class ReadChunk(NamedTuple):
    """Read on in the response. The result is bytes without its content encoding, empty at the response's end."""


class PassOn(NamedTuple):
    """Pass the rest of the response on to the client as it comes."""


class ReadBody(NamedTuple):
    """Read all of the response, or until it is longer than the limit."""

    limit: int | None = None


class StartReply(NamedTuple):
    """Send the client the status and the headers of the response."""

    rewritten: bool = False  # whether its body is another one, and not compressed
    length: int | None = None  # of the other body, None where it is not known yet


class Show(NamedTuple):
    """Send the client these bytes; a heartbeat where there are none and it has waited for long."""

    data: bytes


class Append(NamedTuple):
    """Append events of this call to the log, at this time in seconds since 1970, and wait until they are durable."""

    at: float
    events: Sequence[Event]
    blobs: Mapping[bytes, bytes] = MappingProxyType({})


class Wait(NamedTuple):
    """Let time pass."""

    seconds: float


class InThread(NamedTuple):
    """Do what reads the disk."""

    work: Callable[[], Any]


class Claimed(NamedTuple):
    """Do what changes the session, while no other call of it does."""

    work: Callable[[], Any]


Command = SendLeg | ReadChunk | PassOn | ReadBody | StartReply | Show | Append | Wait | InThread | Claimed
_T = TypeVar("_T")
Flow = Generator[Command, Any, _T]


class ResponseHead(NamedTuple):
    """The beginning of a response; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]


class LegBroke(Exception):
    """A request brought no response, or its response broke off."""


class Came(Enum):
    """What a request brought: the end of the client's answer, a reason to send another, or a leg to its end."""

    OVER = "over"
    AGAIN = "again"
    LEG = "leg"


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The limits, clocks and chance of a fault loop."""

    retries: RetryLimits
    largest: int  # bytes of an answer in one piece that is read
    now: Callable[[], float]  # seconds since 1970
    moment: Callable[[], float]  # seconds of a clock that never goes back
    draw: Callable[[], float]  # a number from 0 to 1 by chance
    prepare: Callable[[ToolAsSent], None] = lambda _: None  # is given a short tool once a call of it begins


def as_it_came(body: Body) -> Flow[bool]:
    """The flow of a request that is not paged: it goes out, and its answer comes back, unread."""
    yield SendLeg(body, own_bytes=True, readable=False)
    yield StartReply()
    yield PassOn()
    return True


class FaultLoop:
    """One paged call on its way; ``rounds`` are its hidden legs, ``hidden`` the ids of calls the client never saw."""

    def __init__(
        self,
        call: PlacedCall,
        paged: Paged,
        own_body: bytes,
        pager: Pager,
        attempt: Attempt,
        settings: LoopSettings,
        counted: int | None = None,
    ) -> None:
        self._call = call
        self._paged = paged
        self._dialect = paged.dialect
        self._own_body = own_body
        self._pager = pager
        self._attempt = attempt
        self._settings = settings
        self._counted = counted
        self._outgoing = paged.outgoing or Outgoing(paged.request)
        self._guard = Guard(paged.table, paged.tools, settings.prepare)
        self._stitcher: Stitcher | None = None
        self._unmodified = not self._outgoing.changed
        self._fell_back = False
        self._shown = False
        self._refusal = ""
        self._rescues = 0
        self._retries = Retries(settings.retries, settings.draw)
        self._tries = 0
        self._started = False
        self._spoken = False
        self._given_up = False
        self._torn = False
        self.hidden: set[str] = set()

    @property
    def rounds(self) -> int:
        """The hidden legs so far."""
        return self._guard.rounds

    @property
    def sent(self) -> str:
        """A digest of what went out, where that was not what the client sent."""
        return "" if self._unmodified else self._outgoing.digest(self._call.recipe.body)

    @property
    def sent_size(self) -> int:
        """The bytes of what went out first, where that was not what the client sent."""
        return 0 if self._unmodified else replace(self._outgoing, more=()).size

    def flow(self) -> Flow[bool]:
        """Go through all legs until the client has its answer; False if it must end as a broken one."""
        if self._counted is not None:
            yield from self._fit(self._counted)
        tool_slot, tool = self._paged.tool_slot, self._paged.table.tool
        if tool_slot is not None and (tool or self._counted is not None):
            self._stitcher = self._dialect.stitcher(tool or name_for(tool_slot.names), self._guard, self._paged.tools)
        while (yield from self._leg()):
            pass
        return not self._torn

    def _fit(self, counted: int) -> Flow[None]:
        """Make a prompt fit the model's window if it does not; ``counted`` is our own count of the client's prompt.

        A rescue for nothing costs the whole cached prefix, a refused request costs nothing and is rescued then. So a
        prompt that the provider still holds waits to be refused. Of others, what the provider reported of this branch
        is believed first, and our own count only where it is far over.
        """
        size, terms = self._outgoing.size, self._paged.terms
        tokens, of = self._paged.table.reported or (round(counted / SURELY), len(self._paged.request.body))
        left = tokens * size / of
        if left > terms.window and not is_warm(self._paged.table, terms):
            yield from self._rescue(self._tokens((left - self._paged.room) * of / tokens))

    def _leg(self) -> Flow[bool]:
        """Send a request and take what it brings; whether another one follows."""
        begun = self._settings.moment()
        try:
            head: ResponseHead = yield self._request()
            came = yield from self._take(head)
        except LegBroke as broke:
            phase = FailurePhase.STREAM if self._attempt.status else FailurePhase.CONNECT
            if (yield from self._again(Setback(phase, str(broke)))):
                return True
            raise
        if came is Came.LEG and self._stitcher is not None:
            return (yield from self._ended(self._stitcher, begun))
        return came is Came.AGAIN

    def _request(self) -> SendLeg:
        very_last = self.rounds >= rules.LONGEST
        outgoing = self._outgoing.without_calls(self._dialect) if very_last else self._outgoing
        body = self._own_body if self._unmodified else outgoing.body()
        return SendLeg(body, own_bytes=self._unmodified, readable=self._stitcher is not None)

    def _take(self, head: ResponseHead) -> Flow[Came]:
        """Take one response."""
        if head.status in LOOKED_INTO and (yield from self._refused(head)):
            return Came.AGAIN
        if head.status >= 400:
            return (yield from self._fail(head))
        yield from self._accepted()
        encoding = head.headers.get("content-encoding", "")
        unreadable = not request_body.is_known(encoding)
        if self._stitcher is None or ((self._fell_back or unreadable) and not self._started):
            yield from self._start(StartReply())
            yield PassOn()
            return Came.OVER
        if "text/event-stream" in head.headers.get("content-type", ""):
            return (yield from self._stream(self._stitcher))
        return Came.LEG if (yield from self._whole(encoding, self._stitcher)) else Came.OVER

    def _start(self, reply: StartReply) -> Flow[None]:
        self._started = True
        yield reply

    def _fail(self, head: ResponseHead) -> Flow[Came]:
        """Pass an error on as it came; where the client's stream has begun, it becomes an event in it."""
        body: bytes = yield ReadBody()
        setback = hidden_leg_retries.refused(head.status, head.headers, body, self._settings.now())
        if (yield from self._again(setback)):
            return Came.AGAIN
        if self._refusal:
            yield from self._bypassed(BypassReason.REFUSED_BOTH, self._refusal)
        self._attempt.take(body)
        if self._started and self._stitcher is not None:
            yield Show(self._stitcher.fail(head.status, setback.words))
            self._torn = not self._dialect.ends_on_error
        else:
            yield from self._start(StartReply())
            yield Show(body)
        return Came.OVER

    def _again(self, setback: Setback) -> Flow[bool]:
        """Wait until a hidden leg that failed may be sent once more; False if it may not be."""
        stitcher = self._stitcher
        if not self.rounds or stitcher is None or self._given_up or (self._started and not stitcher.silent):
            return False
        self._tries += 1
        wait = self._retries.delay(setback, self._settings.moment())
        where, error = (*self._call.address, self.rounds + 1, self._tries), setback.error[:LONGEST_ERROR]
        failed = LegFailed(*where, phase=setback.phase, error=error, status=setback.status, wait=wait)
        yield Append(self._settings.now(), [failed])
        if wait is None:
            return False
        stitcher.retract()
        yield Wait(wait)
        return True

    def _stream(self, stitcher: Stitcher) -> Flow[Came]:
        """Pass a stream on as it comes, without what is held back; a refused stream is followed by another."""
        if not self._started:
            yield from self._start(StartReply(rewritten=True))
        opening = Opening(hidden=bool(self.rounds))
        while chunk := (yield ReadChunk()):
            self._attempt.take(chunk)
            out = stitcher.feed(opening.feed(chunk))
            if self.rounds and not stitcher.silent:
                out += stitcher.feed(opening.release())
            self._spoken = self._spoken or bool(out)
            yield Show(out)
            if opening.overflow is None and opening.setback is None:
                continue
            if opening.overflow is not None and (yield from self._shorten(opening.overflow)):
                self._go_on(stitcher)
                return Came.AGAIN
            if opening.setback is not None and (yield from self._again(opening.setback)):
                return Came.AGAIN
            self._given_up = True  # the client is shown the error, and the answer is over
            yield Show(stitcher.feed(opening.release()))
        yield Show(stitcher.feed(opening.release()))
        if self.rounds and stitcher.silent and not (answer := stitcher.answer()).complete:
            error = answer.error or "the stream ended before the answer did"
            if (yield from self._again(Setback(FailurePhase.STREAM, error))):
                return Came.AGAIN
        return Came.LEG

    def _go_on(self, stitcher: Stitcher) -> None:
        """Have the next leg continue the client's stream, or begin it where nothing of it has been sent."""
        if self._spoken:
            stitcher.go_on()
        else:
            self._stitcher = self._dialect.stitcher(self._paged.table.tool, self._guard, self._paged.tools)

    def _whole(self, encoding: str, stitcher: Stitcher) -> Flow[bool]:
        """Take an answer in one piece; False if it can't be read: then it has been passed on as it came."""
        largest = self._settings.largest
        raw: bytes = yield ReadBody(largest)
        try:
            plain = request_body.decoded(raw, encoding, largest)
            stitcher.take(plain)
        except (NotUnderstood, BadRequest):
            yield from self._start(StartReply())
            self._attempt.take(raw)
            yield Show(raw)
            yield PassOn()
            return False
        self._attempt.take(plain)
        return True

    def _ended(self, stitcher: Stitcher, begun: float) -> Flow[bool]:
        """A leg has come to its end: go on with another, or end the answer."""
        self._tries = 0
        held = stitcher.held()
        self._shown = held.shown
        what = rules.follows(held, self.rounds)
        if what is not Next.FINISH:
            yield from self._answer(stitcher, held, begun)
        if what is Next.RESEND:
            stitcher.go_on()
            return True
        if held.calls and held.whole and not held.mixed and not held.shown and not self._fell_back:
            # The model calls what it can't call, and nothing else: let it answer the client's own request.
            stitcher.go_on()
            self._fall_back()
            asked = f"page_in was called {self.rounds + 1} times for one answer"
            yield from self._bypassed(BypassReason.KEPT_ASKING, asked)
            return True
        end = stitcher.finish()
        if not self._started:
            yield from self._start(StartReply(rewritten=True, length=len(end)))
        yield Show(end)
        return False

    def _fall_back(self) -> None:
        """Let the client's own request go out from now on, in which its tools are whole."""
        self._unmodified = self._fell_back = True
        self._guard.sent_as(None)

    def _answer(self, stitcher: Stitcher, held: LegEnd, begun: float) -> Flow[None]:
        """Answer the calls that the client must not see, keep the leg in the prompt, and make it durable."""
        call, table = self._call, self._paged.table
        pager, branch = self._pager, call.placement.branch.number
        reply = partial(
            rules.reply,
            held,
            table.tool,
            lambda handle: pager.resolve(call.session.pages, branch, handle),
            lambda held_call: self._guard.refusal(held_call, table.tool),
            limit=self._paged.reply_limit(self._tokens(self._outgoing.size)),
            rounds=self.rounds + 1,
        )
        replies: rules.Replies = yield InThread(reply)
        self._guard.answered(corrected=bool(replies.invalid))
        tools = {handle: tool for handle in replies.pages if (tool := pager.tool(call.session.pages, handle))}
        leg = stitcher.leg(replies.texts)
        said, body = msgspec.json.encode(leg), b"".join(self._attempt.chunks)
        answer = stitcher.answer()
        finished = LegFinished(
            *call.address,
            leg=self.rounds,
            said=sha256(said).hexdigest(),
            body=sha256(body).hexdigest(),
            size=len(body),
            total_ms=round((self._settings.moment() - begun) * 1000, 3),
            answer_id=answer.id,
            usage=None if held.mixed else answer.usage,
            pages=[handle for handle in replies.pages if handle not in tools],
            unknown=list(replies.unknown),
            imitated=replies.imitated,
            schemas=list(tools.values()),
            invalid=list(replies.invalid),
            mixed=held.mixed,
        )
        table.apply(finished, leg)
        self.hidden.update(held_call.call_id for held_call in held.calls)
        yield Append(self._settings.now(), [finished], {sha256(said).digest(): said, sha256(body).digest(): body})
        if not held.mixed:
            self._outgoing = self._outgoing.followed_by(self._dialect.appended(leg))

    def _tokens(self, size: float) -> int:
        """The provider's tokens in a number of bytes of the prompt, by the branch's yardstick."""
        return self._paged.table.yardstick.tokens(size)

    def _refused(self, head: ResponseHead) -> Flow[bool]:
        """Change a request that the provider refused; False where there is nothing else to send."""
        if self._refusal:
            return False
        body: bytes = yield ReadBody()
        found = overflow(head.status, body)
        if found is not None and (yield from self._shorten(found)):
            return True
        longer = found is not None and self._outgoing.size <= len(self._paged.request.body)
        if self._unmodified or longer or head.status not in REFUSALS:
            return False
        if self._started and self._shown:
            return False  # what the client has seen goes on only behind the hidden legs
        self._fall_back()
        words = redacted(body[:500], self._call.incoming.secrets)
        self._refusal = f"{head.status}: {words.decode('utf-8', 'replace')}"
        return True

    def _accepted(self) -> Flow[None]:
        """Stop paging in this branch if the provider took the client's own request but not the paged one."""
        if not self._refusal:
            return
        detail, self._refusal = self._refusal, ""
        log.warning("PAGING STOPS for branch %d of %s: %s", *self._call.spot[1::-1], detail)
        yield from self._bypassed(BypassReason.REFUSED, detail)

    def _bypassed(self, reason: BypassReason, detail: str) -> Flow[None]:
        self._paged.table.sent_in_full(detail if reason == BypassReason.REFUSED else "")
        yield Append(self._settings.now(), [Bypassed(reason, detail, *self._call.address[:2])])

    def _shorten(self, found: Overflow) -> Flow[bool]:
        """Evict harder after the provider refused a prompt as too long; whether it is shorter now."""
        if self._rescues >= len(LEAST):
            return False
        self._rescues += 1
        ours = self._tokens(self._outgoing.size)
        theirs = found.tokens - found.reserved if found.tokens else ours
        limit = found.limit or self._paged.terms.window
        reserved = found.reserved or min(self._paged.terms.reserve, limit // 2)
        excess = theirs - round((limit - reserved) * FILLED_AFTER_RESCUE)
        least = round(ours * LEAST[self._rescues - 1])
        return (yield from self._rescue(max(round(excess * ours / max(theirs, 1)), least), found.limit or 0))

    def _rescue(self, excess: int, window: int = 0) -> Flow[bool]:
        """Evict until the prompt is this many tokens shorter; whether anything could be evicted."""
        paged = self._paged
        repacked = yield Claimed(partial(self._pager.rescue, paged, excess, window))
        if repacked is None:
            return False
        yield Append(self._settings.now(), [repacked], paged.blobs)
        more = self._outgoing.more
        self._outgoing = (paged.outgoing or self._outgoing).followed_by(more)
        self._unmodified = False
        self._guard.sent_as(paged.tools)
        if self._stitcher is None and paged.tool_slot is not None:
            self._stitcher = self._dialect.stitcher(paged.table.tool, self._guard, paged.tools)
        return True
