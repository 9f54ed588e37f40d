"""One attempt at a call: the bytes that came back, the answer in them, and what failed."""

import logging
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

from pager.errors import NotUnderstood
from pager.log.events import FailurePhase
from pager.proxy.request_body import unpacked
from pager.request_values import Answer
from pager.wire.dialect import Dialect

log = logging.getLogger("ctxpager")


class Failure(NamedTuple):
    """Why an attempt brought no whole answer: how far it came, and the error."""

    phase: FailurePhase
    error: str


STOPPED = Failure(FailurePhase.PROXY, "the proxy was stopped, or failed, before the answer was whole")


@dataclass(slots=True)
class Attempt:
    """One attempt at a call: what came back so far, and when."""

    keep: int  # bytes of an answer that are kept for the log at most
    started: float = field(default_factory=perf_counter)
    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0  # bytes of the answer so far, kept or not
    first_byte: float = 0.0
    begun: bool = False  # whether the client has been sent anything
    read: float = 0.0  # when the request was here in full
    went_out: float = 0.0  # when its first request went upstream
    sent: int = 0  # bytes of all requests that went upstream
    latest: bytes = b""  # the latest of them, empty where it is sent on while it comes in
    latest_out: float = 0.0  # when it went upstream
    failure: Failure | None = STOPPED  # None once the answer has come to its end

    def going_out(self, body: bytes) -> None:
        """Note that a request is sent upstream now; ``body`` is empty where it is sent on while it comes in."""
        self.latest, self.latest_out = body, perf_counter()
        self.went_out = self.went_out or self.latest_out
        self.sent += len(body)

    @property
    def phase(self) -> FailurePhase | None:
        """How far it came if it failed; None if it did not."""
        return self.failure.phase if self.failure else FailurePhase.STATUS if self.status >= 400 else None

    def begin_leg(self) -> None:
        """Forget the response to the request before this: the last response is kept."""
        self.status = self.size = 0
        self.chunks.clear()

    def take(self, chunk: bytes) -> None:
        """Note a piece of the answer."""
        self.first_byte = self.first_byte or perf_counter()
        if self.size < self.keep:
            self.chunks.append(chunk[: self.keep - self.size])
        self.size += len(chunk)

    @property
    def cut(self) -> bool:
        """Whether the answer has more bytes than are kept."""
        return self.size > self.keep > 0

    def header(self, name: bytes) -> str:
        """A header of the response, or empty."""
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == name), "")


def read_answer(dialect: Dialect, attempt: Attempt) -> tuple[bytes, Answer, Failure | None]:
    """What is kept of an answer, decoded where that can be done, the model's answer in it, and what failed.

    A whole answer counts even if the client left or the connection broke after it.
    """
    raw, encoding, failure = b"".join(attempt.chunks), attempt.header(b"content-encoding"), attempt.failure
    plain = unpacked(raw, encoding, attempt.keep) if encoding else raw
    body = plain if isinstance(plain, bytes) else raw
    if attempt.status >= 400:
        return body, Answer(), failure or Failure(FailurePhase.STATUS, body[:500].decode("utf-8", "replace"))
    if attempt.cut:
        why = f"cut: {len(raw)} of its {attempt.size} bytes were kept, as limits.answer_mib says"
        log.warning("an answer was too large to be kept: %s", why)
        return body, Answer(error=why), failure
    if not attempt.status:
        return body, Answer(), failure or STOPPED
    if "text/event-stream" not in attempt.header(b"content-type"):
        try:
            return body, dialect.read(body), None
        except NotUnderstood as error:
            return body, Answer(error=str(error)), failure
    reader = dialect.reader()
    reader.feed(body)
    answer = reader.answer()
    if not answer.complete and failure is None:
        failure = Failure(FailurePhase.STREAM, answer.error or "the stream ended before the answer did")
    return body, answer, None if answer.complete else failure
