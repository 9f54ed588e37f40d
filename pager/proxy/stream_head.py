"""Looks for an error in the first events of a streamed answer, while another request can still be sent.

Some providers accept a request, begin the stream and only then say that the prompt was too long, or that they are
overloaded. Nothing has been shown by then, so a shorter prompt can still be sent, or a hidden leg once more, if that
event does not reach the client.
"""

from pager.paging.context_length import Overflow, overflow
from pager.proxy.hidden_leg_retries import Setback, stream_error
from pager.wire.sse import Decoder

EVENTS = 4
"""Events at the beginning of a stream that are looked at."""


class Opening:
    """The beginning of one stream; ``overflow`` is the error of a prompt that is too long, None until it comes.

    The beginning of a ``hidden`` leg lasts until it is released; any other error in it is a ``setback``.
    """

    def __init__(self, *, hidden: bool = False) -> None:
        self._decoder = Decoder()
        self._hidden = hidden
        self._left = EVENTS
        self._withheld = b""
        self.overflow: Overflow | None = None
        self.setback: Setback | None = None

    def feed(self, chunk: bytes) -> bytes:
        """What may go on of these bytes: whole events that are no such error; after the beginning, everything."""
        if not self._left:
            return chunk
        events = self._decoder.feed(chunk)
        for at, event in enumerate(events):
            if b"error" in event.raw:
                self.overflow = overflow(200, event.data)
                self.setback = stream_error(event.data) if self._hidden and self.overflow is None else None
            if self.overflow is not None or self.setback is not None:
                self._withheld = b"".join(later.raw for later in events[at:])
                return b"".join(earlier.raw for earlier in events[:at])
            self._left -= bool(event.data) and not self._hidden
            if not self._left:
                break
        passed = b"".join(event.raw for event in events)
        return passed if self._left else passed + self._decoder.rest()

    def release(self) -> bytes:
        """What was kept back, for a stream that has ended or whose error is to be shown after all."""
        kept, self._withheld = self._withheld + (self._decoder.rest() if self._left else b""), b""
        self._left, self.overflow, self.setback = 0, None, None
        return kept
