"""Gives one answer of a script over HTTP, in the client's wire format."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

from pager.testing.scripted.cursor import Cue, Direction
from pager.testing.scripted.prompt_cache import PromptCache
from pager.testing.scripted.script import (
    Drop,
    Fail,
    Gated,
    Reply,
    Stumble,
)
from pager.wire.scripted import Json, Say, Scripted, Turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pager.testing.scripted.received import Received


@dataclass(slots=True)
class Stage:
    """One script being played, and what has happened since it began."""

    direction: Direction
    received: list[Received] = field(default_factory=list)
    cache: PromptCache = field(default_factory=PromptCache)
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    calls: int = 0

    def next_call(self) -> int:
        """The number of the request that arrives now, from 0."""
        self.calls += 1
        return self.calls - 1


def reply(status: int, body: bytes | Json, headers: Mapping[str, str]) -> web.Response:
    """A response in one piece; JSON unless the headers say otherwise."""
    data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    kind = {} if any(name.lower() == "content-type" for name in headers) else {"content-type": "application/json"}
    return web.Response(status=status, body=data, headers={**kind, **headers})


@dataclass(frozen=True, slots=True)
class Performance:
    """One answer being given to one request."""

    stage: Stage
    wire: Scripted
    number: int
    received: Received
    request: web.Request

    async def give(self) -> web.StreamResponse:
        """Answer the request."""
        try:
            asked, unread = self.received.json(), ""
        except ValueError as error:
            asked, unread = None, f"We could not parse the JSON body of your request: {error}"
        cue = self.stage.direction.next(self.wire, asked)
        self.received.refused = cue.refused or unread
        if cue.seconds:
            await asyncio.sleep(cue.seconds)
        match cue:
            case Cue(said=Fail() as fail):
                return self._fail(fail)
            case Cue(said=Reply() as word_for_word):
                return reply(word_for_word.status, word_for_word.body, word_for_word.headers)
            case Cue(manner=Drop(after_events=0)):
                return self._hang_up(web.Response())
            case Cue(said=Say() as said) if asked is not None:
                turn = Turn(cue.number, asked, said, self.stage.cache.usage(self.wire, asked), cue.leg)
                return await (self._stream(turn, cue) if asked.get("stream") else self._whole(turn, cue))
        return self._fail(Fail(400, message=unread))

    async def _whole(self, turn: Turn, cue: Cue) -> web.StreamResponse:
        match cue.manner:
            case Stumble() as stumble:
                return self._fail(Fail(500, message=stumble.message))
            case Gated():
                await self.stage.gate.acquire()
        whole = self.wire.whole(turn)
        self.received.sent += 1
        if isinstance(cue.manner, Drop):
            return await self._half(json.dumps(whole).encode())
        return reply(200, whole, self.wire.headers(self._request_id))

    async def _stream(self, turn: Turn, cue: Cue) -> web.StreamResponse:
        response = web.StreamResponse(headers=self._headers("text/event-stream; charset=utf-8"))
        response.enable_chunked_encoding()
        await response.prepare(self.request)
        for at, event in enumerate(self.wire.stream(turn)):
            match cue.manner:
                case Gated() if at:
                    await self.stage.gate.acquire()
                case Drop(after_events) if at == after_events:
                    return self._hang_up(response)
                case Stumble(after_events, message=message) if at == after_events:
                    await response.write(self.wire.stumble(message, at))
                    break
            self.received.sent += 1
            await response.write(event)
        await response.write_eof()
        return response

    async def _half(self, body: bytes) -> web.StreamResponse:
        """Promise a body and break off in the middle of it."""
        headers = {**self._headers("application/json"), "content-length": str(len(body))}
        response = web.StreamResponse(headers=headers)
        await response.prepare(self.request)
        await response.write(body[: len(body) // 2])
        return self._hang_up(response)

    def _fail(self, fail: Fail) -> web.Response:
        body = fail.body if fail.body is not None else self.wire.error(fail.status, fail.message, self._request_id)
        return reply(fail.status, body, {**self.wire.headers(self._request_id), **fail.headers})

    def _hang_up(self, response: web.StreamResponse) -> web.StreamResponse:
        """Close the connection under the response, which then can't be finished."""
        if self.request.transport is not None:
            self.request.transport.close()
        return response

    def _headers(self, kind: str) -> dict[str, str]:
        return {"content-type": kind, "cache-control": "no-cache", **self.wire.headers(self._request_id)}

    @property
    def _request_id(self) -> str:
        return f"req_{self.number + 1:024x}"
