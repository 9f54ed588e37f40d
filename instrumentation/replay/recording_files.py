"""Reads recorded sessions from files: a header line, then one chat message a line, mostly compressed with gzip.

The header has the session's name, its model, and the tools that it was offered. A message may have a ``_meta`` that was
never sent: ``ts``, when it was recorded; ``usage``, what the provider counted; and ``compact_boundary``, where the
harness dropped all that came before. Each assistant message with a user message before it is the answer of a call whose
prompt is all that comes before it, from the last boundary on.

What was sent but not recorded, such as a system prompt, is estimated from the tokens that the provider counted for the
first call. Where no tools were recorded, those that were called are taken to have been offered.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import orjson

from instrumentation.accounting.billing import tokens_in
from instrumentation.replay.inferred_tools import InferredTools, offers_in
from instrumentation.replay.recording import RecordedCall, Recording
from instrumentation.replay.recording_draft import (
    BEGINNING,
    CallLine,
    counted,
    outside,
    size_of,
)
from pager.errors import NotUnderstood
from pager.text.references import said
from pager.tools.definitions import Offers
from pager.wire.common import Json, array, record

SUFFIXES = (".jsonl.gz", ".jsonl")
UNSENT = frozenset({"_meta", "reasoning_content"})


def files(place: Path) -> list[Path]:
    """The file itself, or all files of recordings below a folder, in order."""
    if not place.is_dir():
        return [place]
    return sorted(path for path in place.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())


def load(path: Path) -> Recording:
    """The session in a file; raises NotUnderstood, which names the file and the line."""
    header, messages = _parsed(path)
    return recording(header, messages)


def recording(header: Json, messages: Sequence[Json]) -> Recording:
    """The session in a header and the messages after it."""
    tools = array(header.get("tools")) or offered(messages)
    names = frozenset(str(record(record(tool).get("function")).get("name", "")) for tool in tools)
    written = json.dumps(tools, ensure_ascii=False).encode("utf-8", "surrogatepass")
    model = str(header.get("model") or "model")
    reader = _RecordingReader(model, written, names if tools else None, offers_in("chat", written) if tools else None)
    steps = [step for message in messages for step in reader.take(message)]
    return Recording(str(header["session"]), "chat", steps, str(header.get("harness") or ""))


def offered(messages: Sequence[Json]) -> list[Json]:
    """The tools that were called, with the parameters they were given."""
    found = InferredTools()
    for message in messages:
        for call in _calls(message):
            function = record(call.get("function"))
            found.take(str(function.get("name")), decoded(function.get("arguments")))
    return found.tools("chat")


@dataclass(slots=True)
class _RecordingReader:
    """Turns messages into steps, one by one; ``prompt`` are those since the last boundary, ``shown`` its tokens."""

    model: str
    tools: bytes
    names: frozenset[str] | None
    offers: Offers | None
    prompt: list[bytes] = field(default_factory=list)
    shown: int = 0
    asked: bool = False
    outside: int | None = None
    at: float = BEGINNING - 1
    line: CallLine = field(default_factory=CallLine)

    def take(self, message: Json) -> Iterator[RecordedCall]:
        """Take the next message; the call that it answers, if it does."""
        if _meta(message).get("compact_boundary"):
            self.prompt, self.shown, self.asked = [], 0, False
        if message["role"] == "assistant" and self.asked:
            yield self._step(message)
        self.asked = self.asked or message["role"] == "user"
        self.prompt.append(_sent(message))
        self.shown += tokens_in(size_of(spoken(message)))

    def _step(self, answer: Json) -> RecordedCall:
        usage = counted(_meta(answer).get("usage"))
        if self.outside is None:
            self.outside = outside(usage, self.shown, len(self.tools))
        stamp = _stamp(answer)
        self.at = self.at + 1 if stamp is None else stamp
        words = spoken(answer)
        place = self.line.place(self.prompt, self.line.branch + 1)
        shares = place.keep > 0 or self.outside > len(self.tools)
        return RecordedCall(
            at=self.at,
            keep=place.keep,
            new=tuple(self.prompt[place.keep :]),
            outside=self.outside,
            said=words,
            output=tokens_in(size_of(words)),
            branch=place.branch,
            parent=place.parent if shares else None,
            fork_call=place.fork_call,
            model=self.model,
            tools=self.names,
            offers=self.offers,
            called=called(answer),
            usage=usage,
        )


def spoken(message: Json) -> str:
    """All text of a message: its own, and that of the arguments of its calls."""
    content = message.get("content")
    parts = [content] if isinstance(content, str) else [_text(part) for part in array(content)]
    arguments = [record(call.get("function")).get("arguments") for call in _calls(message)]
    return "\n".join([*parts, *(said(one) for one in arguments if isinstance(one, str))])


def called(message: Json) -> tuple[str, ...]:
    """The names of the tools that a message calls."""
    return tuple(str(record(call.get("function")).get("name", "")) for call in _calls(message))


def _text(part: object) -> str:
    return str(part.get("text", "")) if isinstance(part, dict) else str(part)


def _sent(message: Json) -> bytes:
    """The message as a client would send it."""
    kept = {key: value for key, value in message.items() if key not in UNSENT}
    try:
        return b"{%b}" % b", ".join([b"%b: %b" % (orjson.dumps(key), _written(value)) for key, value in kept.items()])
    except (orjson.JSONEncodeError, UnicodeEncodeError):  # half a character, which can be written only as an escape
        return json.dumps(kept).encode()


def _written(value: object) -> bytes:
    """A value as the standard library writes it; texts, which are most of it, by quicker means."""
    return orjson.dumps(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()


def _stamp(message: Json) -> float | None:
    given = _meta(message).get("ts")
    if isinstance(given, int | float):
        return float(given)
    try:
        return datetime.fromisoformat(given).timestamp() if isinstance(given, str) else None
    except ValueError:
        return None


def _parsed(path: Path) -> tuple[Json, list[Json]]:
    """The header and the messages of a file."""
    rows: list[Json] = []
    for number, line in enumerate(_lines(path), 1):
        where = f"{path}: line {number}"
        row = decoded(line)
        if not isinstance(row, dict):
            raise NotUnderstood(f"{where} is no JSON object; a recording has one on each line")
        wanted = "role" if rows else "session"
        if not isinstance(row.get(wanted), str):
            what = "a message" if rows else "the header of a recording"
            raise NotUnderstood(f"{where} is not {what}: it has no {wanted!r}")
        rows.append(row)
    if not rows:
        raise NotUnderstood(f"{path}: is empty; a recording begins with a header line")
    return rows[0], rows[1:]


def _lines(path: Path) -> list[bytes]:
    try:
        raw = path.read_bytes()
        content = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    except OSError as error:
        raise NotUnderstood(f"{path}: can't be read: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise NotUnderstood(f"{path}: is no whole gzip file: {error}") from error
    return [line for line in content.split(b"\n") if line.strip()]


def decoded(text: object) -> object:
    """A JSON value; None for what is none. What orjson is too strict for is read by the standard library."""
    if not isinstance(text, str | bytes):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _meta(message: Json) -> Json:
    return record(message.get("_meta"))


def _calls(message: Json) -> list[Json]:
    return [call for call in array(message.get("tool_calls")) if isinstance(call, dict)]
