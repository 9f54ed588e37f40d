"""Sends one answer of a script over HTTP, in the client's wire format."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

from pager.testing.scripted.cursor import ScriptCursor, ScriptStep
from pager.testing.scripted.prompt_cache import PromptCache
from pager.testing.scripted.script import Drop, Fail, Gated, Reply, Stumble
from pager.wire.scripted import Json, Say, Scripted, Turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pager.testing.scripted.received import Received


@dataclass(slots=True)
class ScriptRun:
    """The run of one script: its place, what was received since it began, and the provider's cache."""

    cursor: ScriptCursor
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
class AnswerWriter:
    """Sends the answer to one request."""

    run: ScriptRun
    wire: Scripted
    number: int
    received: Received
    request: web.Request

    async def send(self) -> web.StreamResponse:
        """Send the next answer of the script."""
        try:
            asked, unread = self.received.json(), ""
        except ValueError as error:
            asked, unread = None, f"We could not parse the JSON body of your request: {error}"
        step = self.run.cursor.next(self.wire, asked)
        self.received.refused = step.refused or unread
        if step.seconds:
            await asyncio.sleep(step.seconds)
        match step:
            case ScriptStep(answer=Fail() as fail):
                return self._fail(fail)
            case ScriptStep(answer=Reply() as fixed):
                return reply(fixed.status, fixed.body, fixed.headers)
            case ScriptStep(delivery=Drop(after_events=0)):
                return self._hang_up(web.Response())
            case ScriptStep(answer=Say() as said) if asked is not None:
                turn = Turn(step.number, asked, said, self.run.cache.usage(self.wire, asked), step.leg)
                return await (self._stream(turn, step) if asked.get("stream") else self._whole(turn, step))
        return self._fail(Fail(400, message=unread))

    async def _whole(self, turn: Turn, step: ScriptStep) -> web.StreamResponse:
        match step.delivery:
            case Stumble() as stumble:
                return self._fail(Fail(500, message=stumble.message))
            case Gated():
                await self.run.gate.acquire()
        whole = self.wire.whole(turn)
        self.received.sent += 1
        if isinstance(step.delivery, Drop):
            return await self._half(json.dumps(whole).encode())
        return reply(200, whole, self.wire.headers(self._request_id))

    async def _stream(self, turn: Turn, step: ScriptStep) -> web.StreamResponse:
        response = web.StreamResponse(headers=self._headers("text/event-stream; charset=utf-8"))
        response.enable_chunked_encoding()
        await response.prepare(self.request)
        for at, event in enumerate(self.wire.stream(turn)):
            match step.delivery:
                case Gated() if at:
                    await self.run.gate.acquire()
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
