"""Reads request bodies off the wire, within limits of size and time, and undoes content encodings.

Compressed bytes are taken in small pieces and given back in small pieces, so that neither the memory nor the work for a
piece depends on what an attacker packed into it.
"""

import asyncio
import zlib
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, MutableMapping
from functools import partial
from time import monotonic
from typing import Any

from pager.errors import BodyTooLarge, BodyTooSlow, NotUnderstood

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Body = bytes | AsyncIterable[bytes] | None
"""The body of a request to the provider: whole, or as it comes in from the client; None where there is none."""

DISCARDED = 8  # times the limit: how much of a body that is too large is read and thrown away before the answer
SLOWEST = 1_024  # bytes a second that a body has to bring on average, once it has had its seconds
TAKEN = 4_096  # compressed bytes taken at once; what is left of them after a member's end is copied
TAKEN_OF_ZSTD = 512  # the same for zstd, which unpacks all it is given: four bytes may mean 128 KiB
GIVEN = 65_536  # decompressed bytes given at once, more or less
LAYERS = 4  # encodings of one body; each keeps a window
MEMBERS = 10_000  # gzip members or zstd frames in one body; bgzip, which makes many, has a thousand in 64 MiB
LARGEST_WINDOW = 8 << 20  # bytes of history that zstd may ask for; RFC 9659 allows no more over HTTP


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


class BodyPace:
    """The time that a body has: ``seconds`` until its first or next bytes, and a least speed over all of it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = monotonic() + seconds

    async def next(self, receive: Receive) -> MutableMapping[str, Any]:
        """The next piece of the request; raises ClientLeft, or BodyTooSlow if it takes too long."""
        left = min(self._seconds, self._deadline - monotonic())
        try:
            async with asyncio.timeout(left):
                message = await receive()
        except TimeoutError:
            raise BodyTooSlow(
                f"the request body made no progress for {self._seconds:g} s, or came in slower than "
                f"{SLOWEST} bytes a second; raise limits.body_seconds to allow it"
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientLeft
        self._deadline += len(message.get("body", b"")) / SLOWEST
        return message


async def read(receive: Receive, limit: int, seconds: float) -> bytes:
    """The whole request body; raises BodyTooLarge above the limit, having read on so that the client sees why."""
    chunks: list[bytes] = []
    size, pace = 0, BodyPace(seconds)
    while True:
        message = await pace.next(receive)
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
    decoder = ContentDecoder(encoding)
    pieces: list[bytes] = []
    size = 0
    for piece in decoder.feed(body):
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        pieces.append(piece)
    decoder.end()
    return b"".join(pieces)


def unpacked(body: bytes, encoding: str, limit: int) -> bytes | BodyTooLarge | NotUnderstood:
    """A body without its encoding, or why it can't be had."""
    try:
        return decoded(body, encoding, limit)
    except (BodyTooLarge, NotUnderstood) as error:
        return error


def is_known(encoding: str) -> bool:
    """Whether a header names only encodings that can be undone, and not too many; true of an empty one."""
    names = _names(encoding)
    return len(names) <= LAYERS and all(name in _CODECS for name in names)


def _names(encoding: str) -> list[str]:
    return [part.strip().lower() for part in encoding.split(",") if part.strip()]


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the request body is larger than {limit / 2**20:g} MiB; raise max_body_mib to allow it")


class ContentDecoder:
    """Undoes the content encodings that a header names; raises NotUnderstood where one is unknown."""

    def __init__(self, encoding: str) -> None:
        if not is_known(encoding):
            known = ", ".join(sorted(_CODECS))
            raise NotUnderstood(f"content-encoding {encoding[:100]!r} is not made of up to {LAYERS} of {known}")
        self._codecs = [_CODECS[name]() for name in reversed(_names(encoding))]

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The plain bytes of this piece, in pieces; raises NotUnderstood where they do not decompress."""
        pieces: Iterator[bytes] = iter([data] if data else [])
        for codec in self._codecs:
            pieces = _fed(codec, pieces)
        return pieces

    def end(self) -> None:
        """The body ends here; raises NotUnderstood if what it holds does not."""
        if not all(codec.complete for codec in self._codecs):
            raise NotUnderstood("the compressed body is cut short")


class _Codec:
    """One content encoding, here that of plain bytes; ``complete`` where the bytes so far may be all of a body."""

    @property
    def complete(self) -> bool:
        return True

    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data


def _fed(codec: _Codec, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield from codec.feed(piece)


def _sliced(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def _broken(error: Exception) -> NotUnderstood:
    return NotUnderstood(f"the body does not decompress: {error}")


class _Members(_Codec):
    """An encoding whose bodies may be several members, one after the other; ``open_member`` begins the next."""

    def __init__(self, open_member: Callable[[], Any]) -> None:
        self._open_member = open_member
        self._stream = open_member()
        self._begun = False
        self._members = 1

    @property
    def complete(self) -> bool:
        return self._stream.eof or not self._begun

    def _begin(self) -> None:
        """Begin a member if the last has come to its end."""
        self._begun = True
        if self._stream.eof:
            if self._members >= MEMBERS:
                raise NotUnderstood(f"the compressed body has more than {MEMBERS} members")
            self._stream, self._members = self._open_member(), self._members + 1


class _Inflate(_Members):
    """gzip or zlib."""

    def __init__(self, window: int = zlib.MAX_WBITS | 16) -> None:
        super().__init__(partial(zlib.decompressobj, window))

    def feed(self, data: bytes) -> Iterator[bytes]:
        for taken in _sliced(data, TAKEN):
            piece, plain = taken, b""
            while piece or len(plain) == GIVEN:  # a full buffer may have more behind it
                self._begin()
                try:
                    plain = self._stream.decompress(piece, GIVEN)
                except zlib.error as error:
                    raise _broken(error) from error
                if plain:
                    yield plain
                piece = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
                if self._stream.eof:
                    plain = b""


class _Deflate(_Codec):
    """RFC 9110 means zlib by "deflate"; some clients send the bare stream, which lacks zlib's two first bytes."""

    def __init__(self) -> None:
        self._first = b""
        self._inflate: _Inflate | None = None

    @property
    def complete(self) -> bool:
        return self._inflate.complete if self._inflate is not None else not self._first

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._inflate is None:
            data, self._first = self._first + data, b""
            if len(data) < 2:
                self._first = data
                return
            is_zlib = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._inflate = _Inflate(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)
        yield from self._inflate.feed(data)


class _Zstd(_Members):
    def __init__(self) -> None:
        import zstandard  # only bodies that are compressed pay for the import

        self._error: type[Exception] = zstandard.ZstdError
        super().__init__(zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW).decompressobj)

    def feed(self, data: bytes) -> Iterator[bytes]:
        for taken in _sliced(data, TAKEN_OF_ZSTD):
            piece = taken
            while piece:
                self._begin()
                try:
                    plain = self._stream.decompress(piece)
                except self._error as error:
                    raise _broken(error) from error
                yield from _sliced(plain, GIVEN)
                piece = self._stream.unused_data if self._stream.eof else b""


class _Brotli(_Codec):
    def __init__(self) -> None:
        import brotli  # type: ignore[import-untyped]  # only bodies that are compressed pay for the import

        self._error: type[Exception] = brotli.error
        self._stream = brotli.Decompressor()
        self._begun = False

    @property
    def complete(self) -> bool:
        return bool(self._stream.is_finished()) or not self._begun

    def feed(self, data: bytes) -> Iterator[bytes]:
        for taken in _sliced(data, TAKEN):
            self._begun, piece, plain = True, taken, b""
            while piece or len(plain) >= GIVEN:  # a full buffer may have more behind it
                try:
                    plain = self._stream.process(piece, output_buffer_limit=GIVEN)
                except self._error as error:
                    raise _broken(error) from error
                if plain:
                    yield plain
                piece = b""


_CODECS: dict[str, Callable[[], _Codec]] = {
    "identity": _Codec,
    "gzip": _Inflate,
    "x-gzip": _Inflate,
    "deflate": _Deflate,
    "zstd": _Zstd,
    "br": _Brotli,
}
