"""Looks at the first events of a streamed answer for an error that says the prompt was too long.

Some providers accept a request, begin the stream and only then say so. Nothing has been shown by then, so the prompt
can still be made shorter and sent again, if that one event does not reach the client.
"""

from pager.dialects.sse import Decoder
from pager.overflow import Overflow, overflow

EVENTS = 4
"""Events at the beginning of a stream that are looked at."""


class Opening:
    """The beginning of one stream; ``found`` is what the error says, once it has come."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._left = EVENTS
        self._withheld = b""
        self.found: Overflow | None = None

    def feed(self, chunk: bytes) -> bytes:
        """What may go on of these bytes: whole events that are no such error; after the beginning, everything."""
        if not self._left:
            return chunk
        events = self._decoder.feed(chunk)
        for at, event in enumerate(events):
            self.found = overflow(200, event.data) if b"error" in event.raw else None
            if self.found is not None:
                self._withheld = b"".join(one.raw for one in events[at:])
                return b"".join(one.raw for one in events[:at])
            self._left -= bool(event.data)
            if not self._left:
                break
        passed = b"".join(one.raw for one in events)
        return passed if self._left else passed + self._decoder.rest()

    def release(self) -> bytes:
        """What was kept back, for a stream that has ended or whose error is to be shown after all."""
        kept, self._withheld = self._withheld + (self._decoder.rest() if self._left else b""), b""
        self._left, self.found = 0, None
        return kept
