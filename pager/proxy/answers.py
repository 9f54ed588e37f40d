"""Reads what came back of a call: what the model said, and what failed."""

import logging

from pager.errors import NotUnderstood
from pager.proxy.relay import STOPPED, Exchange, Failure
from pager.proxy.request_body import unpacked
from pager.values import Answer
from pager.wire.dialect import Dialect

log = logging.getLogger("ctxpager")


def read(dialect: Dialect, exchange: Exchange, failure: Failure | None) -> tuple[bytes, Answer, Failure | None]:
    """What is kept of an answer, decoded where that can be done, what the model said in it, and what failed."""
    raw, encoding = b"".join(exchange.chunks), exchange.header(b"content-encoding")
    plain = unpacked(raw, encoding, exchange.keep) if encoding else raw
    body = plain if isinstance(plain, bytes) else raw
    if not exchange.cut or exchange.status >= 400:
        return body, *_judged(dialect, exchange, body, failure)
    why = f"cut: {len(raw)} of its {exchange.size} bytes were kept, as limits.answer_mib says"
    log.warning("an answer was too large to be kept: %s", why)
    return body, Answer(error=why), failure


def _judged(
    dialect: Dialect, exchange: Exchange, body: bytes, failure: Failure | None
) -> tuple[Answer, Failure | None]:
    """What the model said, and what failed; a whole answer counts even if the client left or the line broke then."""
    if exchange.status >= 400:
        return Answer(), failure or Failure("status", body[:500].decode("utf-8", "replace"))
    if not exchange.status:
        return Answer(), failure or STOPPED
    try:
        answer = answer_of(dialect, exchange, body)
    except NotUnderstood as error:
        return Answer(error=str(error)), failure
    if answer.complete or "text/event-stream" not in exchange.header(b"content-type"):
        return answer, None
    return answer, failure or Failure("stream", answer.error or "the stream ended before the answer did")


def answer_of(dialect: Dialect, exchange: Exchange, body: bytes) -> Answer:
    """What the model said in the last response; raises NotUnderstood where it came in one piece that can't be read."""
    if "text/event-stream" not in exchange.header(b"content-type"):
        return dialect.read(body)
    reader = dialect.reader()
    reader.feed(body)
    return reader.answer()
