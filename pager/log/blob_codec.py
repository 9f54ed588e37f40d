"""Packs a blob's content for storage, and reads the digests that name blobs."""

from hashlib import sha256
from typing import NamedTuple

import zstandard

from pager.errors import StoreCorrupt

RAW = "raw"
ZSTD = "zstd"
LEVEL = 3
WORTH_SQUEEZING = 128  # bytes; what is smaller gains next to nothing


class Packed(NamedTuple):
    """Content as it is stored: ``size`` is that of the content itself."""

    size: int
    codec: str
    data: bytes


def pack(content: bytes, compressor: zstandard.ZstdCompressor) -> Packed:
    """The content, compressed where that makes it smaller."""
    squeezed = compressor.compress(content) if len(content) >= WORTH_SQUEEZING else content
    if len(squeezed) < len(content):
        return Packed(len(content), ZSTD, squeezed)
    return Packed(len(content), RAW, content)


def unpack(digest: bytes, packed: Packed) -> bytes:
    """The content with this digest; raises StoreCorrupt if these bytes are not it."""
    content = packed.data if packed.codec == RAW else _decompressed(digest, packed)
    if sha256(content).digest() != digest:
        raise StoreCorrupt(f"blob {digest.hex()}: the stored content has another digest")
    return content


def _decompressed(digest: bytes, packed: Packed) -> bytes:
    if packed.codec != ZSTD:
        raise StoreCorrupt(f"blob {digest.hex()}: unknown codec {packed.codec!r}; expected {RAW} or {ZSTD}")
    try:
        # A damaged header may announce any size: it must be the row's size before memory is allocated for it.
        if zstandard.frame_content_size(packed.data) != packed.size:
            raise StoreCorrupt(f"blob {digest.hex()}: its size is not the {packed.size} bytes noted")
        return zstandard.ZstdDecompressor().decompress(packed.data)
    except zstandard.ZstdError as error:
        raise StoreCorrupt(f"blob {digest.hex()} does not decompress: {error}") from error


def digest_of(reference: str) -> bytes | None:
    """The digest that a reference spells, or None if it spells none."""
    try:
        digest = bytes.fromhex(reference)
    except ValueError:
        return None
    return digest if len(digest) == 32 else None
