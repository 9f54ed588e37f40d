"""An agent's session made of generated text: every body extends the one before it by two small messages.

The shape follows recorded agents: a system prompt, a dozen tools, then pairs of a tool call and its result, most of
the bytes in the results. Text is lines of code-like words with quotes and newlines, so that a scanner meets the
escapes it meets in life.
"""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

MODEL = "gpt-4o"
# LiteLLM starts only with a key that looks strong; all servers get the same one.
KEY = "sk-" + sha256(b"ctxpager benchmark").hexdigest()
STREAMED = frozenset({"sse", "paced", "long", "talk"})
_SYSTEM = "You are a careful engineer. " * 60
_WORDS = re.findall(
    r"\S+",
    "def return self value for in range index error path import result = + ( ) [ ] : \"name\" 'key' None True 0x1f "
    "config request handler parse stream buffer token 200 404 /usr/lib/python assert test_open close read write # ok",
)


class AgentSession:
    """A growing request body; ``mode`` is what the fixed upstream is asked to do with it, and may change."""

    def __init__(
        self, nonce: str, *, mode: str = "json", messages: int = 100, size: int = 197_000, wire: str = "chat"
    ) -> None:
        """A session of this many messages and about this many bytes; ``nonce`` makes its first message its own."""
        self.mode = mode
        self.path = WIRES[wire].path
        self._wire = WIRES[wire]
        self._nonce = nonce
        self._turns = 0
        opening = [*self._wire.opening, {"role": "user", "content": f"Task {nonce}: find out why the test fails."}]
        head = orjson.dumps(self._wire.head)[:-1] + b',"messages":['
        self._sent = head + b",".join(orjson.dumps(message) for message in opening)
        self._fill((messages - 2) // 2, size - len(self._tail()))

    def body(self) -> bytes:
        """The request as it stands."""
        return self._sent + self._tail()

    def grow(self, added: int = 300) -> bytes:
        """The next request: two messages more, the second with a result of about ``added`` bytes."""
        self._turns += 1
        text = f"{self._nonce}: exit 0 in {self._turns} ms\n" + _text(self._turns, added)
        self._sent += self._wire.pair(f"{self._nonce}-{self._turns}", text)
        return self.body()

    def _tail(self) -> bytes:
        user = self._wire.user(f"bench-{self.mode}")
        return b'],"tools":%b,%b' % (self._wire.tools, orjson.dumps({"stream": self.mode in STREAMED, **user})[1:])

    def _fill(self, pairs: int, size: int) -> None:
        """Bring the history to its size with results whose lengths differ by a factor of about five."""
        room = max(0, size - len(self._sent) - pairs * len(self._wire.pair("fill", "")))
        weights = [1 + (7 * at) % 5 for at in range(pairs)]
        # Escaping makes the text about 3 % longer in JSON than in memory.
        lengths = [int(room * weight / sum(weights) / 1.03) for weight in weights]
        self._sent += b"".join(
            self._wire.pair(f"{self._nonce}-fill{at}", f"{self._nonce} {at}\n" + _text(at, length))
            for at, length in enumerate(lengths)
        )


@dataclass(frozen=True, slots=True)
class _SessionWire:
    """How a wire format writes a session; ``pair`` is a tool call and its result, as they stand in the messages."""

    path: str
    head: Mapping[str, Any]
    opening: list[dict[str, str]]
    pair: Callable[[str, str], bytes]
    user: Callable[[str], dict[str, Any]]
    tools: bytes


def _chat_pair(name: str, result: str) -> bytes:
    function = {"name": "shell", "arguments": orjson.dumps({"command": f"run {name}"}).decode()}
    calls = [{"id": f"call_{name}", "type": "function", "function": function}]
    call = {"role": "assistant", "content": None, "tool_calls": calls}
    answer = {"role": "tool", "tool_call_id": f"call_{name}", "content": result}
    return b"," + orjson.dumps(call) + b"," + orjson.dumps(answer)


def _messages_pair(name: str, result: str) -> bytes:
    use = {"type": "tool_use", "id": f"toolu_{name}", "name": "shell", "input": {"command": f"run {name}"}}
    answer = {"type": "tool_result", "tool_use_id": f"toolu_{name}", "content": result}
    call = {"role": "assistant", "content": [use]}
    return b"," + orjson.dumps(call) + b"," + orjson.dumps({"role": "user", "content": [answer]})


def _text(seed: int, length: int) -> str:
    start = (seed * 7919) % (len(_CORPUS) // 2)
    return _CORPUS[start : start + length] if start + length <= len(_CORPUS) else _CORPUS[:length]


def _corpus() -> str:
    chance = random.Random(20)
    lines = (" ".join(chance.choices(_WORDS, k=chance.randint(3, 14))) for _ in range(6000))
    return "\n".join(lines)


def _tool(at: int) -> dict[str, Any]:
    texts = (f"p{at}_{key}" for key in range(6))
    properties = {name: {"type": "string", "description": _CORPUS[at * 99 :][:150]} for name in texts}
    parameters = {"type": "object", "properties": properties, "required": [f"p{at}_0"]}
    return {"name": f"tool_{at}", "description": _CORPUS[at * 501 :][:400], "parameters": parameters}


_CORPUS = _corpus()
_TOOLS = [_tool(at) for at in range(12)]
WIRES = {
    "chat": _SessionWire(
        path="/v1/chat/completions",
        head={"model": MODEL},
        opening=[{"role": "system", "content": _SYSTEM}],
        pair=_chat_pair,
        user=lambda user: {"user": user},
        tools=orjson.dumps([{"type": "function", "function": tool} for tool in _TOOLS]),
    ),
    "messages": _SessionWire(
        path="/v1/messages",
        head={"model": "claude-sonnet-4-5", "max_tokens": 8_000, "system": _SYSTEM},
        opening=[],
        pair=_messages_pair,
        user=lambda user: {"metadata": {"user_id": user}},
        tools=orjson.dumps(
            [
                {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
                for tool in _TOOLS
            ]
        ),
    ),
}
