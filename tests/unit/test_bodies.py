"""Request bodies off the wire."""

import asyncio
import gzip
import tomllib
import zlib
from itertools import pairwise
from pathlib import Path

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from pager.errors import BodyTooLarge, BodyTooSlow, NotUnderstood
from pager.proxy.request_body import (
    GIVEN,
    ClientLeft,
    ContentDecoder,
    decoded,
    read,
)

SOON = 60.0  # seconds: longer than any test takes

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
    assert asyncio.run(read(receive, 1000, SOON)) == b"".join(pieces)


def test_a_body_over_the_limit_is_read_to_its_end_and_refused():
    receive = client(part(b"x" * 60), part(b"x" * 60), part(b"x", more=False), part(b"next request"))
    with pytest.raises(BodyTooLarge, match="max_body_mib"):
        asyncio.run(read(receive, 100, SOON))
    assert asyncio.run(receive())["body"] == b"next request"


def test_a_body_without_end_is_not_read_for_ever():
    async def receive():
        return part(b"x" * 100)

    with pytest.raises(BodyTooLarge):
        asyncio.run(read(receive, 100, SOON))


def test_a_client_that_leaves_before_its_request_is_complete_is_noticed():
    with pytest.raises(ClientLeft):
        asyncio.run(read(client(part(b"x"), {"type": "http.disconnect"}), 100, SOON))


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


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "lzma", ", ".join(["identity"] * 5)])
def test_what_does_not_decode_is_not_understood(encoding):
    with pytest.raises(NotUnderstood):
        decoded(b"this is not compressed", encoding, 10_000)


def test_a_body_that_stands_still_is_too_slow():
    async def receive():
        await asyncio.Event().wait()

    with pytest.raises(BodyTooSlow, match="body_seconds"):
        asyncio.run(read(receive, 100, 0.05))


def test_a_body_that_comes_byte_by_byte_is_too_slow():
    async def receive():
        await asyncio.sleep(0.01)
        return part(b"x")

    with pytest.raises(BodyTooSlow):
        asyncio.run(read(receive, 1 << 20, 0.2))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("cut", [1, 3, 8])
def test_a_compressed_body_that_is_cut_short_is_not_taken_for_a_whole(encoding, cut):
    with pytest.raises(NotUnderstood):
        decoded(PACKED[encoding][:-cut], encoding, 10_000)


@pytest.mark.parametrize("encoding", [name for name in PACKED if name])
@given(st.lists(st.integers(min_value=0, max_value=2_000), max_size=6))
def test_any_split_of_a_compressed_body_gives_the_same_bytes(encoding, cuts):
    packed, decoder = PACKED[encoding], ContentDecoder(encoding)
    places = [0, *sorted(min(cut, len(packed)) for cut in cuts), len(packed)]
    pieces = [packed[start:end] for start, end in pairwise(places)]
    assert b"".join(plain for piece in pieces for plain in decoder.feed(piece)) == PLAIN
    decoder.end()


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("br", brotli.compress), ("zstd", zstandard.ZstdCompressor().compress)],
)
def test_a_bomb_is_unpacked_in_small_pieces(encoding, compress):
    bomb = compress(bytes(20_000_000))
    sizes = [len(piece) for piece in ContentDecoder(encoding).feed(bomb)]
    assert sum(sizes) == 20_000_000
    assert max(sizes) <= 2 * GIVEN


def test_no_brotli_is_installed_that_can_not_unpack_in_small_pieces():
    """Versions before 1.2 have no ``output_buffer_limit``: all that was packed came out at once."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (needed,) = (one for one in map(Requirement, project["dependencies"]) if one.name == "brotli")
    assert [needed.specifier.contains(version) for version in ("1.0.9", "1.1.0", "1.2.0")] == [False, False, True]


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_a_body_of_nothing_but_empty_members_is_not_understood(encoding, compress):
    with pytest.raises(NotUnderstood, match="members"):
        decoded(compress(b"") * 200_000, encoding, 10_000)


def test_a_body_of_some_members_is_read_whole():
    assert decoded(gzip.compress(PLAIN) * 500, "gzip", 1 << 20) == PLAIN * 500
