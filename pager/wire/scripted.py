"""What the scripted side of a wire format is: the provider's part, played by the scripted model.

A script says what is answered (``Say``); a ``Scripted`` writes it as its provider would, counts the prompt, and refuses
what the provider would refuse. What several of them need is here, too.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import msgspec

from pager.request_values import Usage

# Answers carry a time of creation; a fixed one keeps the same script at the same bytes.
EPOCH = 1_760_000_000

Json = dict[str, Any]


FIVE_MINUTES, HOUR = 300.0, 3_600.0
"""Seconds that Anthropic keeps a prompt up to a mark: by default, and where the mark asks for an hour."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; the arguments are an object, or a string where a script wants them broken."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The arguments as the model writes them."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True, slots=True)
class Say:
    """A whole answer: reasoning, then text, then calls; ``finish`` is stop, length, tools or refusal, or follows."""

    text: str = ""
    calls: Sequence[Call] = ()
    reasoning: str = ""
    finish: str = ""

    @property
    def ending(self) -> str:
        """Why the answer ends."""
        return self.finish or ("tools" if self.calls else "stop")


class Piece(NamedTuple):
    """A part of a prompt.

    ``lifetime`` are the seconds for which the client asks the provider to cache the prompt up to here, 0 without a
    mark. ``kind`` is the type of a block, empty where there is none.
    """

    text: str
    lifetime: float = 0.0
    kind: str = ""


def piece(value: object) -> Piece:
    """A part of the prompt from its JSON value, without the mark itself, which moves from call to call."""
    kind = str(value.get("type", "")) if isinstance(value, Mapping) else ""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if '"cache_control"' not in text:  # nearly always
        return Piece(text, kind=kind)
    return Piece(json.dumps(_unmarked(value), sort_keys=True, ensure_ascii=False), lifetime(value), kind)


def lifetime(value: object) -> float:
    """The longest lifetime that a cache mark in a JSON value asks for; 0 where it has none."""
    if isinstance(value, Mapping):
        mark = value.get("cache_control")
        own = 0.0 if not isinstance(mark, Mapping) else HOUR if mark.get("ttl") == "1h" else FIVE_MINUTES
        return max([own, *map(lifetime, value.values())])
    return max(map(lifetime, value), default=0.0) if isinstance(value, list) else 0.0


def tokens(text: str) -> int:
    """A simple count: four bytes of UTF-8 a token, rounded up."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


def _unmarked(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer about to be given: its number, the request, what to say, and what the prompt cost.

    ``leg`` is 0 for what a call is answered in the end, so that ids do not depend on how often pages were asked for.
    """

    number: int
    request: Mapping[str, Any]
    say: Say
    prompt: Usage
    leg: int = 0

    def id(self, prefix: str, part: int = 0) -> str:
        """An id as providers make them, the same for the same place in a script."""
        leg = f".{self.leg}" if self.leg else ""
        return prefix + sha256(f"{prefix}{self.number}.{part}{leg}".encode()).hexdigest()[:24]

    @property
    def created(self) -> int:
        """The time of the answer."""
        return EPOCH + self.number

    @property
    def model(self) -> str:
        """The model the client asked for."""
        return str(self.request.get("model", "scripted-1"))

    @property
    def usage(self) -> Usage:
        """The prompt's tokens with those of the answer."""
        said = tokens(self.say.text) + sum(tokens(call.name) + tokens(call.text) for call in self.say.calls)
        thought = tokens(self.say.reasoning)
        return msgspec.structs.replace(self.prompt, output=said + thought, reasoning=thought)


Request = Mapping[str, Any]
"""The decoded body of a request."""


class Scripted(Protocol):
    """One wire format, from the provider's side; ``name`` is that of its dialect."""

    name: str

    def prompt(self, request: Request) -> list[Piece]:
        """The parts of the prompt in the order in which the provider caches them."""

    def tools(self, request: Request) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The name and the parameters of every tool offered; no parameters where it has none."""

    def used(self, request: Request) -> Iterator[tuple[str, object]]:
        """Past calls in the prompt as the tool's name and its arguments, and results as an empty name and content."""

    def problems(self, request: Request) -> Iterator[str]:
        """Why the provider would answer this request with a 400, in the order of the prompt."""

    def whole(self, turn: Turn) -> Json:
        """The answer in one piece."""

    def stream(self, turn: Turn) -> Iterator[bytes]:
        """The answer as server-sent events."""

    def error(self, status: int, message: str, request_id: str) -> Json:
        """The body of an error."""

    def too_long(self, count: int, limit: int) -> Json:
        """The body of the error for a prompt of ``count`` tokens where ``limit`` fit."""

    def stumble(self, message: str, sequence: int) -> bytes:
        """An error event inside a stream."""

    def headers(self, request_id: str) -> dict[str, str]:
        """The headers this provider sends with every answer."""

    def counted(self, tokens: int) -> Json:
        """The answer of the endpoint that counts a prompt; empty where there is none."""


def event(data: Mapping[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    lines = f"event: {name}\n" if name else ""
    return f"{lines}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def words(text: str) -> Sequence[str]:
    """The text cut as a model writes it: a word with the blanks before it at a time."""
    return re.findall(r"\s*\S+|\s+$", text)


def bits(text: str) -> Sequence[str]:
    """The arguments of a call, a few characters at a time."""
    return [text[at : at + 11] for at in range(0, len(text), 11)]


def repeated(values: Iterable[str]) -> list[str]:
    """The values that come more than once."""
    return [value for value, count in Counter(values).items() if count > 1]


def listed(request: Request, key: str) -> list[Request]:
    """The objects in a member that is an array; none in any other."""
    found = request.get(key)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def is_json(text: object) -> bool:
    """Whether it is a text that is JSON."""
    try:
        json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return False
    return isinstance(text, str)


def decoded(arguments: object) -> object:
    """The arguments of a call that are the JSON text of a value; as they are if they are not."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


_OPENAI_TYPES = {429: "rate_limit_error", 401: "authentication_error"}
_OPENAI_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


class ScriptedOpenAI:
    """What OpenAI's wire formats have in common."""

    def error(self, status: int, message: str, request_id: str = "") -> Json:  # noqa: ARG002 - it is in a header
        """OpenAI's error object."""
        kind = "server_error" if status >= 500 else _OPENAI_TYPES.get(status, "invalid_request_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": _OPENAI_CODES.get(status)}}

    def headers(self, request_id: str) -> dict[str, str]:
        """The headers of all answers of OpenAI."""
        return {
            "x-request-id": request_id,
            "openai-organization": "scripted",
            "openai-processing-ms": "7",
            "openai-version": "2020-10-01",
            "x-ratelimit-limit-requests": "10000",
            "x-ratelimit-remaining-requests": "9999",
        }

    def overflow(self, found: str, limit: int, param: str) -> Json:
        """The error for a prompt that does not fit."""
        window = f"This model's maximum context length is {limit} tokens."
        error = self.error(400, f"{window} However, {found}. Please reduce the length of the {param}.")["error"]
        return {"error": {**error, "param": param, "code": "context_length_exceeded"}}
