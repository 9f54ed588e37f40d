"""The least a proxy on this stack can do: read the body, send it on, hand the answer back chunk by chunk.

Same server (uvicorn, uvloop, httptools, a raw ASGI handler) and same client (aiohttp, keep-alive pool) as ctxpager's.
It watches for the client leaving, because a proxy that goes on paying for an answer nobody reads is no proxy.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp
import uvicorn
from yarl import URL

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_HOP = frozenset({b"host", b"connection", b"content-length", b"transfer-encoding", b"keep-alive", b"accept-encoding"})


class Bare:
    """A raw ASGI application that passes every request on."""

    def __init__(self, upstream: str) -> None:
        """A proxy for the server at this address."""
        self._upstream = upstream
        self._client: aiohttp.ClientSession | None = None

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        body = await _body(receive)
        answering = asyncio.ensure_future(self._forward(scope, body, send))
        watching = asyncio.ensure_future(_left(receive, answering))
        try:
            await answering
        finally:
            watching.cancel()

    async def _forward(self, scope: _Message, body: bytes, send: _Send) -> None:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in _passed(scope["headers"])]
        url = URL(self._upstream + scope["raw_path"].decode(), encoded=True)
        async with self._session().request(scope["method"], url, headers=headers, data=body) as answer:
            passed = [
                (name.lower(), value) for name, value in answer.raw_headers if name.lower() != b"transfer-encoding"
            ]
            await send({"type": "http.response.start", "status": answer.status, "headers": passed})
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None:
            connector = aiohttp.TCPConnector(limit=0)
            timeout = aiohttp.ClientTimeout(total=None)
            self._client = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        return self._client


async def _body(receive: _Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _left(receive: _Receive, answering: asyncio.Future[None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    answering.cancel()


def _passed(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name not in _HOP]


if __name__ == "__main__":
    uvicorn.run(
        Bare(sys.argv[2]),
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
