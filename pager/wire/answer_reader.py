"""Reads a streamed answer: cuts its bytes into events, each of which a dialect's draft of the answer takes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pager.request_values import Answer
from pager.wire.sse import Decoder


class AnswerDraft(ABC):
    """An answer in the making; each dialect has its own."""

    @abstractmethod
    def take(self, name: str, data: bytes) -> None:
        """Take one event of the stream; what can't be read is passed over."""

    def take_all(self, lines: Sequence[bytes]) -> None:
        """Take the data of several events without names."""
        for line in lines:
            self.take("", line)

    @abstractmethod
    def answer(self) -> Answer:
        """The answer as far as it has come; ``complete`` if the stream reached its end."""


class AnswerReader:
    """Reads one streamed answer as its bytes come in, split anywhere."""

    __slots__ = ("_begun", "_decoder", "_draft")

    def __init__(self, draft: AnswerDraft) -> None:
        self._begun = False
        self._decoder = Decoder()
        self._draft = draft

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream; whole events in them, as in a stream that is read in one go, at once."""
        if self._decoder.idle and b"\r" not in chunk:
            if chunk.startswith(b"data: ") and chunk.endswith(b"\n\n"):
                lines = chunk[6:-2].split(b"\n\ndata: ")
                if chunk.count(b"\n") == 2 * len(lines) and all(lines):  # a stream without names, one line an event
                    self._begun = True
                    self._draft.take_all(lines)
                    return
            *blocks, rest = chunk.split(b"\n\n")
            if blocks and not self._begun:  # it may begin with a byte order mark, which the decoder takes off
                self._decode(blocks.pop(0) + b"\n\n")
            for block in blocks:
                self._take(block)
            chunk = rest
        if chunk:
            self._decode(chunk)

    def _take(self, block: bytes) -> None:
        """Take one event without the empty line at its end; the decoder reads one of an unusual form."""
        name, line = b"", block
        if block.startswith(b"event: "):
            name, _, line = block.partition(b"\n")
        if line.startswith(b"data: ") and len(line) > 6 and b"\n" not in line:
            self._draft.take(name[7:].decode(errors="replace"), line[6:])
        else:
            self._decode(block + b"\n\n")

    def _decode(self, chunk: bytes) -> None:
        self._begun = True
        for event in self._decoder.feed(chunk):
            if event.data:
                self._draft.take(event.name, event.data)

    def answer(self) -> Answer:
        """The answer as far as it has come."""
        return self._draft.answer()
