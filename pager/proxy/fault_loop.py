"""Sends a paged call upstream and brings back one answer, however many legs that takes.

The first leg carries the paged prompt. Where the model asks for pages, it is answered from the log and another leg goes
out; the client's stream goes on where it was. A request that the provider refuses is evicted harder if it was too long,
else it is sent once more as the client wrote it. A hidden leg that fails before the client was shown anything of it is
sent again; the first leg is the client's own to repeat.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256
from time import perf_counter

import aiohttp
import msgspec

from pager.errors import BadRequest, NotUnderstood
from pager.log.bypass import BypassReason
from pager.log.events import Bypassed, Event, LegFailed, LegFinished, Repacked
from pager.paging import held_calls as rules
from pager.paging.call_guard import Guard
from pager.paging.context_length import Overflow, overflow
from pager.paging.held_calls import Next
from pager.paging.page_in import name_for
from pager.paging.pager import Paged, Pager
from pager.paging.planner import ROOM, is_warm
from pager.paging.render import Outgoing
from pager.proxy import request_body, retries
from pager.proxy.delivery import Delivery, with_length, without_length
from pager.proxy.log_records import PlacedCall, tokens
from pager.proxy.redaction import redacted
from pager.proxy.relay import (
    STATUSES,
    Exchange,
    Scope,
    Send,
    address,
    back,
    said,
)
from pager.proxy.retries import Limits, Retries, Setback
from pager.proxy.stream_head import Opening
from pager.proxy.upstream import (
    Upstream,
    passed_on,
    unpacked,
    up_to,
)
from pager.wire.stitching import Held, Splice

REFUSALS = frozenset({400, 413, 422})
"""Statuses by which a provider says that it does not like the request itself."""

LOOKED_INTO = REFUSALS | {500}
"""Statuses that may mean that the prompt is too long; some local servers say so with a 500."""

SURELY = 1.15  # by how much our own count of a prompt must be over the window before it is believed
LEAST = (0.15, 0.5)  # the share of a prompt that goes at least when it is refused for the first and the second time
BEAT = 10.0  # seconds without a byte after which a stream gets a heartbeat
LONGEST_ERROR = 500  # characters of an error that are logged
log = logging.getLogger("ctxpager")


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a call with legs needs; ``draw`` gives a number from 0 to 1 by chance, answers in one piece are bounded."""

    upstream: Upstream
    decide: Callable[[PlacedCall, float, Sequence[Event], Mapping[bytes, bytes]], Awaitable[None]]
    aside: Callable[[PlacedCall, Callable[[], Repacked | None]], Awaitable[Repacked | None]]
    pager: Pager
    now: Callable[[], float]
    limits: Limits
    draw: Callable[[], float]
    largest: int = 64 << 20
    beat: float = BEAT


class Came(Enum):
    """What a request brought: the end of the client's answer, a reason to send another, or a leg to its end."""

    OVER = "over"
    AGAIN = "again"
    LEG = "leg"


class Legs:
    """One paged call on its way."""

    def __init__(self, wiring: Wiring, call: PlacedCall, paged: Paged, client: bytes, scope: Scope, send: Send) -> None:
        self._wiring = wiring
        self.call = call
        self.failed = False
        self._paged = paged
        self._dialect = paged.dialect
        self._own = client
        self._scope = scope
        self._client = Delivery(send, paged.dialect.heartbeat, wiring.beat)
        self._outgoing = paged.outgoing or Outgoing(paged.request)
        self._guard = Guard(paged.table, paged.tools)
        self._splice: Splice | None = None
        self._unmodified = not self._outgoing.changed
        self._fell_back = False
        self._shown = False
        self._refusal = ""
        self._rescues = 0
        self._retries = Retries(wiring.limits, wiring.draw)
        self._tries = 0
        self._spoken = False
        self._given_up = False
        self.near_limit = False
        self.rounds = 0
        self.hidden: set[str] = set()

    @property
    def sent(self) -> str:
        """A digest of what went out, where that was not what the client sent."""
        return "" if self._unmodified else self._outgoing.digest(self.call.recipe.body)

    async def fit(self, counted: int) -> None:
        """Make the prompt fit the model's window if it does not; the client's has so many tokens by our own count.

        A rescue for nothing costs the whole cached prefix, a refused request costs nothing and is rescued then. So a
        prompt that the provider still holds waits to be refused. Of others, what the provider reported of this branch
        is believed first, and our own count only where it is far over.
        """
        size, terms = self._outgoing.size, self._paged.terms
        tokens, of = self._paged.table.reported or (round(counted / SURELY), len(self._paged.request.body))
        left = tokens * size / of
        if left > terms.window and not is_warm(self._paged.table, terms):
            await self._rescue(self._tokens((left - self._paged.room) * of / tokens))

    @property
    def sent_size(self) -> int:
        """The bytes of what went out first, where that was not what the client sent."""
        return 0 if self._unmodified else replace(self._outgoing, more=()).size

    async def run(self, exchange: Exchange) -> None:
        """Go through all legs until the client has its answer."""
        carrier, tool = self._paged.carrier, self._paged.table.tool
        if carrier is not None and (tool or self.near_limit):
            self._splice = self._dialect.splice(tool or name_for(carrier.names), self._guard, self._paged.tools)
        while await self._another(exchange):
            pass
        await self._client.finish()

    async def _another(self, exchange: Exchange) -> bool:
        """Send a request and take what it brings; whether another one follows."""
        exchange.begin_leg()
        begun = perf_counter()
        try:
            async with self._sent(exchange) as response:
                came = await self._take(exchange, response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if await self._again(Setback("stream" if exchange.status else "connect", said(error))):
                return True
            raise
        if came is Came.LEG and self._splice is not None:
            return await self._ended(exchange, response, self._splice, begun)
        return came is Came.AGAIN

    @asynccontextmanager
    async def _sent(self, exchange: Exchange) -> AsyncIterator[aiohttp.ClientResponse]:
        """A request that goes out, and its response; a client whose stream has begun gets heartbeats meanwhile."""
        sending = self._request(exchange)
        response = await self._client.during(sending.__aenter__())
        try:
            yield response
        finally:
            await sending.__aexit__(None, None, None)

    def _request(self, exchange: Exchange) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        scope, upstream = self._scope, self._wiring.upstream
        url = address(upstream, self._dialect, scope)
        own = [] if self._splice is None else [b"accept-encoding"]  # an answer that we read must not be compressed
        if not self._unmodified:
            own.append(b"content-encoding")  # nor is what we wrote
        headers = passed_on(scope["headers"], also=own)
        if self._splice is not None:
            headers.append((b"accept-encoding", b"identity"))
        very_last = self.rounds >= rules.LONGEST
        outgoing = self._outgoing.without_calls(self._dialect) if very_last else self._outgoing
        body = self._own if self._unmodified else outgoing.body()
        exchange.going_out(len(body))
        return upstream.send(scope["method"], url, headers, body, self._dialect.name)

    async def _take(self, exchange: Exchange, response: aiohttp.ClientResponse) -> Came:
        """Take one response."""
        if response.status not in STATUSES:
            raise aiohttp.ClientPayloadError(f"it answered with the status {response.status}")
        exchange.status, exchange.headers = response.status, list(response.raw_headers)
        if response.status in LOOKED_INTO and await self._refused(response):
            return Came.AGAIN
        if response.status >= 400:
            return await self._fail(exchange, response)
        await self._accepted()
        unreadable = not request_body.is_known(response.headers.get("content-encoding", ""))
        if self._splice is None or ((self._fell_back or unreadable) and not self._client.started):
            return await self._pass_on(exchange, response)
        if "text/event-stream" in response.headers.get("content-type", ""):
            return await self._stream(exchange, response, self._splice)
        return Came.LEG if await self._whole(exchange, response, self._splice) else Came.OVER

    async def _fail(self, exchange: Exchange, response: aiohttp.ClientResponse) -> Came:
        """Pass an error on as it came; where the client's stream has begun, it becomes an event in it."""
        body = await response.read()
        headers = {name.lower(): value for name, value in response.headers.items()}
        setback = retries.refused(response.status, headers, body, self._wiring.now())
        if await self._again(setback):
            return Came.AGAIN
        if self._refusal:
            await self._bypassed(BypassReason.REFUSED_BOTH, self._refusal)
        exchange.take(body)
        if self._client.started and self._splice is not None:
            await self._client.send(self._splice.fail(response.status, setback.words))
            self._client.torn = not self._dialect.ends_on_error
        else:
            await self._client.start(exchange, response, back(response))
            await self._client.send(body)
        return Came.OVER

    async def _again(self, setback: Setback) -> bool:
        """Wait until a hidden leg that failed may be sent once more; False if it may not be."""
        splice = self._splice
        if not self.rounds or splice is None or self._given_up or (self._client.started and not splice.silent):
            return False
        self._tries += 1
        wait = self._retries.delay(setback, perf_counter())
        spot = self.call.placement
        where = (spot.branch.number, spot.call, spot.attempt, self.rounds + 1, self._tries)
        error = setback.error[:LONGEST_ERROR]
        failed = LegFailed(*where, phase=setback.phase, error=error, status=setback.status, wait=wait)
        await self._wiring.decide(self.call, self._wiring.now(), [failed], {})
        if wait is None:
            return False
        splice.retract()
        await self._client.during(asyncio.sleep(wait))
        return True

    async def _pass_on(self, exchange: Exchange, response: aiohttp.ClientResponse) -> Came:
        """Pass an answer on as it comes."""
        await self._client.start(exchange, response, back(response))
        async for chunk in response.content.iter_any():
            exchange.take(chunk)
            await self._client.send(chunk)
        return Came.OVER

    async def _stream(self, exchange: Exchange, response: aiohttp.ClientResponse, splice: Splice) -> Came:
        """Pass a stream on as it comes, without what is held back; one that is refused is followed by another."""
        if not self._client.started:
            await self._client.start(exchange, response, without_length(back(response)))
        opening = Opening(hidden=bool(self.rounds))
        async for chunk in unpacked(self._chunks(response), response.headers.get("content-encoding", "")):
            exchange.take(chunk)
            out = splice.feed(opening.feed(chunk))
            if self.rounds and not splice.silent:
                out += splice.feed(opening.release())
            if out:
                self._spoken = True
                await self._client.send(out)
            else:
                await self._client.stay_alive()
            if opening.found is not None:
                if await self._shorten(opening.found):
                    self._go_on(splice)
                    return Came.AGAIN
                await self._give_up(splice, opening)
            if opening.setback is not None:
                if await self._again(opening.setback):
                    return Came.AGAIN
                await self._give_up(splice, opening)
        await self._client.send(splice.feed(opening.release()))
        return Came.AGAIN if await self._broke_off(splice) else Came.LEG

    async def _give_up(self, splice: Splice, opening: Opening) -> None:
        """Show the client the error in a stream; whatever else comes of it, the answer is over then."""
        self._given_up = True
        await self._client.send(splice.feed(opening.release()))

    async def _broke_off(self, splice: Splice) -> bool:
        """Whether a hidden leg ended without an end, and is sent again."""
        if not self.rounds or not splice.silent:
            return False
        answer = splice.answer()
        if answer.complete:
            return False
        return await self._again(Setback("stream", answer.error or "the stream ended before the answer did"))

    def _go_on(self, splice: Splice) -> None:
        """The next leg goes on with the client's stream; where none of it has been sent, it begins it."""
        if self._spoken:
            splice.go_on()
        else:
            self._splice = self._dialect.splice(self._paged.table.tool, self._guard, self._paged.tools)

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """The bytes of a streamed leg as they come."""
        content = response.content
        if self.rounds:  # the client has waited for a leg already: keep its connection alive until this one speaks
            yield await self._client.during(content.readany())
        async for chunk in content.iter_any():
            yield chunk

    async def _whole(self, exchange: Exchange, response: aiohttp.ClientResponse, splice: Splice) -> bool:
        """Take an answer in one piece; False if it can't be read: then it has been passed on as it came."""
        raw = await up_to(response, self._wiring.largest)
        encoding = response.headers.get("content-encoding", "")
        try:
            plain = request_body.decoded(raw, encoding, self._wiring.largest)
            splice.take(plain)
        except (NotUnderstood, BadRequest):
            await self._client.start(exchange, response, back(response))
            exchange.take(raw)
            await self._client.send(raw)
            async for chunk in response.content.iter_any():
                exchange.take(chunk)
                await self._client.send(chunk)
            return False
        exchange.take(plain)
        return True

    async def _ended(self, exchange: Exchange, response: aiohttp.ClientResponse, splice: Splice, begun: float) -> bool:
        """A leg has come to its end: go on with another, or end the answer."""
        self._tries = 0
        held = splice.held()
        self._shown = held.shown
        what = rules.follows(held, self.rounds)
        if what is not Next.FINISH:
            await self._answer(exchange, splice, held, begun)
        if what is Next.RESEND:
            splice.go_on()
            return True
        if held.calls and held.whole and not held.mixed and not held.shown and not self._fell_back:
            return await self._ask_anew(splice)
        end = splice.finish()
        if not self._client.started:
            await self._client.start(exchange, response, with_length(back(response), len(end)))
        await self._client.send(end)
        return False

    async def _ask_anew(self, splice: Splice) -> bool:
        """The model calls what it can't call and says nothing else: let it answer the client's own request."""
        splice.go_on()
        self._unmodified = self._fell_back = True
        self._guard.tools = None
        await self._bypassed(BypassReason.KEPT_ASKING, f"page_in was called {self.rounds + 1} times for one answer")
        return True

    async def _answer(self, exchange: Exchange, splice: Splice, held: Held, begun: float) -> None:
        """Answer what the model asked for, keep the leg in the prompt, and log it before anything goes on."""
        self.rounds = self._guard.rounds = self.rounds + 1
        call, table = self.call, self._paged.table
        pager, branch = self._wiring.pager, self.call.placement.branch.number
        replies = await asyncio.to_thread(
            rules.reply,
            held,
            table.tool,
            lambda handle: pager.resolve(call.session.pages, branch, handle),
            lambda held_call: self._guard.refusal(held_call, table.tool),
            limit=self._room(),
            rounds=self.rounds,
        )
        self._guard.corrections += bool(replies.invalid)
        tools = {handle: tool for handle in replies.pages if (tool := pager.tool(call.session.pages, handle))}
        leg = splice.leg(replies.texts)
        said, body = msgspec.json.encode(leg), b"".join(exchange.chunks)
        told = splice.answer()
        finished = LegFinished(
            branch=branch,
            call=call.placement.call,
            attempt=call.placement.attempt,
            leg=self.rounds,
            said=sha256(said).hexdigest(),
            body=sha256(body).hexdigest(),
            size=len(body),
            total_ms=round((perf_counter() - begun) * 1000, 3),
            answer_id=told.id,
            usage=None if held.mixed else tokens(told),
            pages=[handle for handle in replies.pages if handle not in tools],
            unknown=list(replies.unknown),
            imitated=replies.imitated,
            schemas=list(tools.values()),
            invalid=list(replies.invalid),
            mixed=held.mixed,
        )
        table.apply(finished, leg)
        self.hidden.update(held_call.call_id for held_call in held.calls)
        blobs = {sha256(said).digest(): said, sha256(body).digest(): body}
        await self._wiring.decide(call, self._wiring.now(), [finished], blobs)
        if not held.mixed:
            self._outgoing = self._outgoing.followed_by(self._dialect.appended(leg))

    def _room(self) -> int:
        """How many characters of pages still fit the model's window."""
        return self._paged.reply_limit(self._tokens(self._outgoing.size))

    def _tokens(self, size: float) -> int:
        """The provider's tokens in so many bytes of the prompt, by the branch's yardstick."""
        return self._paged.table.yardstick.tokens(size)

    async def _refused(self, response: aiohttp.ClientResponse) -> bool:
        """What to do with a request that the provider does not accept; whether another one goes out."""
        if self._refusal:
            return False
        said = await response.read()
        found = overflow(response.status, said)
        if found is not None and await self._shorten(found):
            return True
        longer = found is not None and self._outgoing.size <= len(self._paged.request.body)
        if self._unmodified or longer or response.status not in REFUSALS:
            return False
        if self._client.started and self._shown:
            return False  # what the client has seen goes on only behind the hidden legs
        self._unmodified = self._fell_back = True
        self._guard.tools = None  # they go out whole
        told = redacted(said[:500], self.call.incoming.secrets)
        self._refusal = f"{response.status}: {told.decode('utf-8', 'replace')}"
        return True

    async def _accepted(self) -> None:
        """Stop paging in this branch if the provider took the client's own request but not the paged one."""
        if not self._refusal:
            return
        call, detail = self.call, self._refusal
        self._refusal = ""
        log.warning("PAGING STOPS for branch %d of %s: %s", *call.spot[1::-1], detail)
        await self._bypassed(BypassReason.REFUSED, detail)

    async def _bypassed(self, reason: BypassReason, detail: str) -> None:
        self._paged.table.sent_in_full(detail if reason == BypassReason.REFUSED else "")
        event = Bypassed(reason, detail, self.call.placement.branch.number, self.call.placement.call)
        await self._wiring.decide(self.call, self._wiring.now(), [event], {})

    async def _shorten(self, found: Overflow) -> bool:
        """Evict harder after the provider said that the prompt is too long; whether it is shorter now."""
        if self._rescues >= len(LEAST):
            return False
        self._rescues += 1
        self._wiring.pager.learn_window(self._paged.request.model, found.limit)
        ours = self._tokens(self._outgoing.size)
        told = found.tokens - found.reserved if found.tokens else ours
        limit = found.limit or self._paged.terms.window
        reserved = found.reserved or min(self._paged.terms.reserve, limit // 2)
        excess = told - round((limit - reserved) * ROOM)
        return await self._rescue(max(round(excess * ours / max(told, 1)), round(ours * LEAST[self._rescues - 1])))

    async def _rescue(self, excess: int) -> bool:
        """Evict until the prompt is so many tokens shorter; whether anything could be evicted."""
        pager, call, paged = self._wiring.pager, self.call, self._paged
        repacked = await self._wiring.aside(call, lambda: pager.rescue(paged, excess))
        if repacked is None:
            return False
        await self._wiring.decide(call, self._wiring.now(), [repacked], paged.blobs)
        more = self._outgoing.more
        self._outgoing = (paged.outgoing or self._outgoing).followed_by(more)
        self._unmodified = False
        self._guard.tools = paged.tools
        if self._splice is None and paged.carrier is not None:
            self._splice = self._dialect.splice(paged.table.tool, self._guard, paged.tools)
        return True
