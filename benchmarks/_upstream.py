"""A fixed, fast model server: what it answers was made before the first request came.

The request's ``user`` field says which answer: ``bench-json`` one body; ``bench-sse`` a stream of 100 events, each
written by itself as fast as they go; ``bench-paced`` a stream of 60 events, one each 5 ms, with the monotonic time of
its writing inside; ``bench-slow`` a body after two seconds, so that many calls are open at once.
"""

import asyncio
import sys
import time
from typing import cast

import orjson
import uvloop

EVENTS = 100
PACED_EVENTS = 60
PACE = 0.005
SLOW = 2.0
_MARK = b'"bench-'
_HEAD = b"HTTP/1.1 200 OK\r\nx-request-id: req_bench\r\n"
_LAST = b"0\r\n\r\n"


def _whole() -> bytes:
    message = {"role": "assistant", "content": "The test fails because the buffer is closed too early. " * 12}
    usage = {"prompt_tokens": 50_000, "completion_tokens": 150, "total_tokens": 50_150}
    answer = {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage,
    }
    body = orjson.dumps(answer)
    return _HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "gpt-4o",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return _framed(b"data: " + orjson.dumps(chunk) + b"\n\n")


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_WHOLE = _whole()
_STREAM_HEAD = _HEAD + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_END = [_event({}, "stop"), _framed(b"data: [DONE]\n\n"), _LAST]
_STREAM = [
    _STREAM_HEAD + _event({"role": "assistant", "content": ""}),
    *(_event({"content": f" word{at}"}) for at in range(EVENTS - 3)),
    *_END,
]


class Upstream(asyncio.Protocol):
    """One connection of a client; requests come one after the other."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        """A connection that has not been read from."""
        self._parts: list[bytes] = []
        self._missing = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        if self._missing < 0:
            data = b"".join([*self._parts, data])
            self._parts.clear()
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._parts.append(data)
                return
            self._missing = _content_length(data[:end]) + end + 4
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing == 0:
            self._missing = -1
            self._answer(b"".join(self._parts))
            self._parts.clear()

    def _answer(self, request: bytes) -> None:
        at = request.find(_MARK) + len(_MARK)
        mode = request[at : request.find(b'"', at)]
        loop = asyncio.get_running_loop()
        if mode == b"sse":
            self._stream(0)
        elif mode == b"paced":
            self._write(_STREAM_HEAD)
            loop.call_later(PACE, self._paced, 0)
        else:
            loop.call_later(SLOW if mode == b"slow" else 0, self._write, _WHOLE)

    def _stream(self, at: int) -> None:
        self._write(_STREAM[at])
        if at + 1 < len(_STREAM):
            # One write an iteration of the loop: uvloop would send what is written in one as one packet.
            asyncio.get_running_loop().call_soon(self._stream, at + 1)

    def _paced(self, at: int) -> None:
        if at == PACED_EVENTS:
            self._write(b"".join(_END))
            return
        self._write(_event({"content": f"t={time.monotonic_ns()}; "}))
        asyncio.get_running_loop().call_later(PACE, self._paced, at + 1)

    def _write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
