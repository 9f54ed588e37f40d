"""What every wire format must do: read requests and answers, and say errors in its own words.

A dialect is one file in ``pager/dialects`` with a class named ``Dialect``; the server and the contract tests find it by
its file name. Dialects are pure: bytes in, values out.
"""

from typing import Protocol

from pager.model import Answer, Message, Request
from pager.sites import Site


class AnswerReader(Protocol):
    """Reads one streamed answer as its bytes come in, split anywhere."""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""

    def answer(self) -> Answer:
        """The answer as far as it has come; ``complete`` says whether the stream reached its end."""


class Dialect(Protocol):
    """One wire format; ``path`` is its endpoint below the base URL.

    ``chains`` says whether a request may name the answer that it follows, instead of sending the history again.
    """

    name: str
    path: str
    chains: bool

    def parse(self, body: bytes) -> Request:
        """Find the parts of a request body; raises NotUnderstood."""

    def decode(self, raw: bytes | memoryview) -> Message:
        """Read one message; what can't be read becomes an opaque message, never an error."""

    def sites(self, raw: bytes) -> list[Site]:
        """The places in a message where a page may stand; none in a message that can't be read exactly."""

    def read(self, body: bytes) -> Answer:
        """Read a whole, unstreamed answer; raises NotUnderstood."""

    def reader(self) -> AnswerReader:
        """A reader for one streamed answer."""

    def error(self, status: int, message: str) -> bytes:
        """An error body as this wire format's provider would send it."""
