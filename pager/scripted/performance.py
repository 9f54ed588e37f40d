"""Gives one answer of a script over HTTP, in the client's wire format."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

from pager.scripted.prompt import PromptCache
from pager.scripted.script import Answer, Drop, Fail, Gated, Reply, Say, Script, Slow, Stumble
from pager.scripted.wire import Json, Turn, Wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pager.scripted.received import Received


@dataclass(slots=True)
class Stage:
    """One script being played, and what has happened since it began."""

    script: Script
    received: list[Received] = field(default_factory=list)
    cache: PromptCache = field(default_factory=PromptCache)
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    calls: int = 0

    def next_call(self) -> int:
        """The number of the call that arrives now, from 0."""
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
    wire: Wire
    number: int
    received: Received
    request: web.Request

    async def give(self, answer: Answer) -> web.StreamResponse:
        """Answer the request."""
        match answer:
            case Slow():
                await asyncio.sleep(answer.seconds)
                return await self.give(answer.then)
            case Fail():
                return self._fail(answer)
            case Reply():
                return reply(answer.status, answer.body, answer.headers)
            case Drop(after_events=0):
                return self._hang_up(web.Response())
        try:
            asked = self.received.json()
        except ValueError as error:
            return self._fail(Fail(400, message=f"We could not parse the JSON body of your request: {error}"))
        return await (self._stream(answer, asked) if asked.get("stream") else self._whole(answer, asked))

    async def _whole(self, answer: Say | Drop | Stumble | Gated, asked: Json) -> web.StreamResponse:
        match answer:
            case Stumble():
                return self._fail(Fail(500, message=answer.message))
            case Gated():
                await self.stage.gate.acquire()
        whole = self.wire.whole(self._turn(answer, asked))
        self.received.sent += 1
        if isinstance(answer, Drop):
            return await self._half(json.dumps(whole).encode())
        return reply(200, whole, self.wire.headers(self._request_id))

    async def _stream(self, answer: Say | Drop | Stumble | Gated, asked: Json) -> web.StreamResponse:
        response = web.StreamResponse(headers=self._headers("text/event-stream; charset=utf-8"))
        response.enable_chunked_encoding()
        await response.prepare(self.request)
        for at, event in enumerate(self.wire.stream(self._turn(answer, asked))):
            match answer:
                case Gated() if at:
                    await self.stage.gate.acquire()
                case Drop() if at == answer.after_events:
                    return self._hang_up(response)
                case Stumble() if at == answer.after_events:
                    await response.write(self.wire.stumble(answer.message, at))
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

    def _turn(self, answer: Say | Drop | Stumble | Gated, asked: Json) -> Turn:
        say = answer if isinstance(answer, Say) else answer.then
        return Turn(self.number, asked, say, self.wire.cost(self.stage.cache, asked))

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
