"""Request bodies off the wire."""

import asyncio
import gzip
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pager.errors import BodyTooLarge, NotUnderstood
from pager.server.bodies import ClientLeft, decoded, read

PLAIN = b'{"messages": []}' * 50
PACKED = {
    "": PLAIN,
    "identity": PLAIN,
    "gzip": gzip.compress(PLAIN),
    "x-gzip": gzip.compress(PLAIN),
    "deflate": zlib.compress(PLAIN),
    "br": brotli.compress(PLAIN),
    "zstd": zstandard.ZstdCompressor().compress(PLAIN),
    "gzip, zstd": zstandard.ZstdCompressor().compress(gzip.compress(PLAIN)),
    " GZIP ": gzip.compress(PLAIN),
}


def client(*messages):
    queue = list(messages)

    async def receive():
        return queue.pop(0)

    return receive


def part(body, more=True):
    return {"type": "http.request", "body": body, "more_body": more}


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_a_body_in_any_pieces_is_read_whole(pieces):
    receive = client(*map(part, pieces), part(b"", more=False))
    assert asyncio.run(read(receive, 1000)) == b"".join(pieces)


def test_a_body_over_the_limit_is_read_to_its_end_and_refused():
    receive = client(part(b"x" * 60), part(b"x" * 60), part(b"x", more=False), part(b"next request"))
    with pytest.raises(BodyTooLarge, match="max_body_mib"):
        asyncio.run(read(receive, 100))
    assert asyncio.run(receive())["body"] == b"next request"


def test_a_body_without_end_is_not_read_for_ever():
    async def receive():
        return part(b"x" * 100)

    with pytest.raises(BodyTooLarge):
        asyncio.run(read(receive, 100))


def test_a_client_that_leaves_before_its_request_is_complete_is_noticed():
    with pytest.raises(ClientLeft):
        asyncio.run(read(client(part(b"x"), {"type": "http.disconnect"}), 100))


@pytest.mark.parametrize("encoding", PACKED)
def test_every_encoding_that_clients_use_is_undone(encoding):
    assert decoded(PACKED[encoding], encoding, 10_000) == PLAIN


def test_a_bare_deflate_stream_is_accepted_too():
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    assert decoded(packer.compress(PLAIN) + packer.flush(), "deflate", 10_000) == PLAIN


@pytest.mark.parametrize("encoding", [name for name in PACKED if name not in ("", "identity")])
def test_a_bomb_is_refused_before_it_unpacks(encoding):
    with pytest.raises(BodyTooLarge):
        decoded(PACKED[encoding], encoding, 100)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "lzma"])
def test_what_does_not_decode_is_not_understood(encoding):
    with pytest.raises(NotUnderstood):
        decoded(b"this is not compressed", encoding, 10_000)
