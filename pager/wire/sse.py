r"""Cuts a stream of server-sent events into events as its bytes come in.

An event ends with an empty line. Lines end in ``\n``, ``\r\n`` or ``\r``, and a chunk may end anywhere, between ``\r``
and ``\n`` too. The cut is made where it falls for every split of the bytes: ``\r\r`` ends an event at once (a ``\n``
after it belongs to the line that is already over, and goes to the next event), while ``\n\r`` waits for the byte that
shows whether a ``\n`` follows.

What has no border in it yet is kept as the pieces that came, and joined once: the work is linear in the bytes.
"""

import re
from itertools import pairwise
from typing import NamedTuple

_BORDER = re.compile(rb"\n(?:\n|\r\n|\r(?=[^\n]))|\r\r")
_REACH = 2  # bytes of what came before that may be the beginning of a border
_BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event; ``raw`` are its bytes with the empty line that ends it.

    A block of comments only, or an empty one, is an event without data, so that no byte is lost.
    """

    name: str
    data: bytes
    raw: bytes


class Decoder:
    """Cuts one stream into events."""

    __slots__ = ("_begun", "_pieces", "_tail")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._tail = b""
        self._begun = False

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that these bytes complete."""
        window = self._tail + chunk if self._tail else chunk
        ends = _ends(window)
        if not ends:
            self._pieces.append(chunk)
            self._tail = window[-_REACH:]
            return []
        data = b"".join([*self._pieces, chunk]) if self._pieces else chunk
        before = len(data) - len(window)
        cuts = [0, *(before + end for end in ends)]
        rest = data[cuts[-1] :]
        self._pieces, self._tail = [rest] if rest else [], rest[-_REACH:]
        return [self._event(data[start:end]) for start, end in pairwise(cuts)]

    @property
    def idle(self) -> bool:
        """Whether no bytes wait for the end of their event."""
        return not self._pieces

    def rest(self) -> bytes:
        """The bytes that came after the last event's end."""
        return b"".join(self._pieces)

    def _event(self, raw: bytes) -> ServerSentEvent:
        text = raw
        if not self._begun:
            self._begun = True
            text = raw.removeprefix(_BOM)
        name, data = b"", []
        for line in text.splitlines():
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
            elif field == b"event":
                name = value.removeprefix(b" ")
        return ServerSentEvent(name.decode(errors="replace"), data[0] if len(data) == 1 else b"\n".join(data), raw)


def _ends(window: bytes) -> list[int]:
    r"""Where events end; without ``\r`` only one border is possible, which is found without the slower pattern."""
    if b"\r" in window:
        return [border.end() for border in _BORDER.finditer(window)]
    ends = []
    at = window.find(b"\n\n")
    while at >= 0:
        ends.append(at + 2)
        at = window.find(b"\n\n", at + 2)
    return ends
