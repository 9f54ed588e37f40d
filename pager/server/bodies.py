"""Reads request bodies off the wire, within a limit, and undoes their content encoding."""

import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pager.errors import BodyTooLarge, NotUnderstood

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

DISCARDED = 8  # times the limit: how much of a body that is too large is read and thrown away before the answer


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


async def read(receive: Receive, limit: int) -> bytes:
    """The whole request body; raises BodyTooLarge above the limit, having read on so that the client sees why."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        elif size > limit * DISCARDED:
            raise _too_large(limit)
        else:
            chunks.clear()
        if not message.get("more_body", False):
            break
    if size > limit:
        raise _too_large(limit)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def decoded(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its content encoding; raises NotUnderstood, or BodyTooLarge when it unpacks beyond the limit."""
    for name in reversed([part.strip().lower() for part in encoding.split(",") if part.strip()]):
        decode = _DECODERS.get(name)
        if decode is None:
            raise NotUnderstood(f"content-encoding {name!r} is none of {', '.join(sorted(_DECODERS))}")
        body = decode(body, limit)
        if len(body) > limit:
            raise _too_large(limit)
    return body


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the request body is larger than {limit / 2**20:g} MiB; raise max_body_mib to allow it")


def _identity(body: bytes, limit: int) -> bytes:
    del limit
    return body


def _inflate(window: int) -> Callable[[bytes, int], bytes]:
    def inflate(body: bytes, limit: int) -> bytes:
        plain = b""
        try:
            while body and len(plain) <= limit:  # a body may be several streams, one after the other
                stream = zlib.decompressobj(window)
                plain += stream.decompress(body, limit + 1 - len(plain))
                if not stream.eof and len(plain) <= limit:
                    raise NotUnderstood("the compressed body is cut short")
                body = stream.unused_data
        except zlib.error as error:
            raise NotUnderstood(f"the body does not decompress: {error}") from error
        return plain

    return inflate


def _deflate(body: bytes, limit: int) -> bytes:
    """RFC 9110 means zlib by "deflate"; some clients send the bare stream."""
    try:
        return _inflate(zlib.MAX_WBITS)(body, limit)
    except NotUnderstood:
        return _inflate(-zlib.MAX_WBITS)(body, limit)


def _zstd(body: bytes, limit: int) -> bytes:
    import zstandard  # only bodies that are compressed pay for the import

    try:
        with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as stream:
            return stream.read(limit + 1)
    except zstandard.ZstdError as error:
        raise NotUnderstood(f"the request body does not decompress: {error}") from error


def _brotli(body: bytes, limit: int) -> bytes:
    import brotli  # type: ignore[import-untyped]  # only bodies that are compressed pay for the import

    try:
        plain: bytes = brotli.Decompressor().process(body, output_buffer_limit=limit + 1)
    except brotli.error as error:
        raise NotUnderstood(f"the request body does not decompress: {error}") from error
    return plain


_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "identity": _identity,
    "gzip": _inflate(zlib.MAX_WBITS | 16),
    "x-gzip": _inflate(zlib.MAX_WBITS | 16),
    "deflate": _deflate,
    "zstd": _zstd,
    "br": _brotli,
}
