"""A fixed, fast model server: what it answers was made before the first request came.

The path says in which wire format, and a field of the request which answer: ``bench-json`` one body; ``bench-sse`` a
stream of 100 events, each written by itself as fast as they go; ``bench-paced`` a stream of 60 events, one each 5 ms,
with the monotonic time of its writing inside; ``bench-long`` such a stream of 1,000 events, one each ms; ``bench-talk``
one of 60 events, one each 200 ms, as models talk; ``bench-slow`` a body after two seconds, so that many calls are open
at once. The id of an answer in one piece tells the size of its request.
"""

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Any, cast

import orjson
import uvloop

EVENTS = 100
PACES = {b"paced": (60, 0.005), b"long": (1_000, 0.001), b"talk": (60, 0.2)}
SLOW = 2.0
_MARK = b'"bench-'
_ID = b"req_bench"
_HEAD = b"HTTP/1.1 200 OK\r\nx-request-id: %b\r\n" % _ID
_STREAM_HEAD = _HEAD + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST = b"0\r\n\r\n"
_TEXT = "The test fails because the buffer is closed too early. " * 12


def _whole(answer: dict[str, Any]) -> bytes:
    body = orjson.dumps(answer)
    return _HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(frozen=True, slots=True)
class FixedChat:
    """Answers of Chat Completions."""

    def whole(self) -> bytes:
        """An answer in one piece."""
        usage = {"prompt_tokens": 50_000, "completion_tokens": 150, "total_tokens": 50_150}
        choice = {"index": 0, "message": {"role": "assistant", "content": _TEXT}, "finish_reason": "stop"}
        return _whole({**_COMPLETION, "object": "chat.completion", "choices": [choice], "usage": usage})

    def opening(self) -> list[bytes]:
        """The events before the text."""
        return [_chunk({"role": "assistant", "content": ""})]

    def text(self, said: str) -> bytes:
        """An event with a piece of text."""
        return _chunk({"content": said})

    def end(self) -> list[bytes]:
        """The events after the text."""
        return [_chunk({}, "stop"), _framed(b"data: [DONE]\n\n")]


_COMPLETION = {"id": "chatcmpl-bench", "created": 1_760_000_000, "model": "gpt-4o"}


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {**_COMPLETION, "object": "chat.completion.chunk", "choices": [choice]}
    return _framed(b"data: " + orjson.dumps(chunk) + b"\n\n")


@dataclass(frozen=True, slots=True)
class FixedMessages:
    """Answers of Anthropic Messages."""

    def whole(self) -> bytes:
        """An answer in one piece."""
        return _whole(_message([{"type": "text", "text": _TEXT}], "end_turn"))

    def opening(self) -> list[bytes]:
        """The events before the text."""
        block = {"type": "text", "text": ""}
        return [
            _event("message_start", message=_message([], None)),
            _event("content_block_start", index=0, content_block=block),
        ]

    def text(self, said: str) -> bytes:
        """An event with a piece of text."""
        return _event("content_block_delta", index=0, delta={"type": "text_delta", "text": said})

    def end(self) -> list[bytes]:
        """The events after the text."""
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        return [
            _event("content_block_stop", index=0),
            _event("message_delta", delta=delta, usage={"output_tokens": 150}),
            _event("message_stop"),
        ]


def _message(content: list[dict[str, str]], stop: str | None) -> dict[str, Any]:
    said = {"id": "msg_bench", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": content}
    usage = {"input_tokens": 50_000, "output_tokens": 150}
    return {**said, "stop_reason": stop, "stop_sequence": None, "usage": usage}


def _event(name: str, **fields: object) -> bytes:
    return _framed(b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps({"type": name, **fields})))


@dataclass(frozen=True, slots=True)
class FixedAnswers:
    """What is sent in one wire format."""

    wire: FixedChat | FixedMessages
    whole: bytes
    begun: bytes
    stream: list[bytes]

    @classmethod
    def of(cls, wire: FixedChat | FixedMessages) -> "FixedAnswers":
        """The answers, made beforehand."""
        first, *more = wire.opening()
        texts = [wire.text(f" word{at}") for at in range(EVENTS - 1 - len(more) - len(wire.end()))]
        stream = [_STREAM_HEAD + first, *more, *texts, *wire.end(), _LAST]
        return cls(wire, wire.whole(), b"".join([_STREAM_HEAD, first, *more]), stream)


_ANSWERS = {b"/v1/chat/completions": FixedAnswers.of(FixedChat()), b"/v1/messages": FixedAnswers.of(FixedMessages())}


class FixedUpstream(asyncio.Protocol):
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
        answers = _ANSWERS[request[:100].split(b" ")[1]]
        at = request.rfind(_MARK) + len(_MARK)
        mode = request[at : request.find(b'"', at)]
        loop = asyncio.get_running_loop()
        if mode == b"sse":
            self._stream(answers.stream, 0)
        elif mode in PACES:
            self._write(answers.begun)
            events, pace = PACES[mode]
            loop.call_later(pace, self._paced, answers.wire, events, pace)
        else:
            answer = answers.whole.replace(_ID, b"req_%d" % len(request), 1)
            loop.call_later(SLOW if mode == b"slow" else 0, self._write, answer)

    def _stream(self, stream: list[bytes], at: int) -> None:
        self._write(stream[at])
        if at + 1 < len(stream):
            # One write an iteration of the loop: uvloop would send what is written in one as one packet.
            asyncio.get_running_loop().call_soon(self._stream, stream, at + 1)

    def _paced(self, wire: FixedChat | FixedMessages, left: int, pace: float) -> None:
        if not left:
            self._write(b"".join([*wire.end(), _LAST]))
            return
        self._write(wire.text(f"t={time.monotonic_ns()}; "))
        asyncio.get_running_loop().call_later(pace, self._paced, wire, left - 1, pace)

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
    server = await asyncio.get_running_loop().create_server(FixedUpstream, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
