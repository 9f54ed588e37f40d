"""What a client sent to the scripted model, as it came."""

import gzip
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class Received:
    """One request, and how it went on.

    ``target`` is the path with its query, ``headers`` have their spelling and order. ``sent`` counts the events that
    were written; ``left_at`` is the event loop's time at which the client was seen to be gone before its answer was
    complete; ``peer`` is the client's port, the same for requests on one connection. ``refused`` says what was wrong
    with the prompt, where the model would not take it.
    """

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    peer: int
    body: bytes = b""
    sent: int = 0
    left_at: float | None = None
    finished: bool = False
    refused: str = ""

    def header(self, name: str) -> str | None:
        """The first header of this name, in any spelling."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def path(self) -> str:
        """The path without its query."""
        return self.target.partition("?")[0]

    def json(self) -> dict[str, Any]:
        """The body, decompressed and decoded; raises ValueError if it is no JSON object."""
        value = json.loads(_decompressed(self.body, self.header("content-encoding") or "identity"))
        if not isinstance(value, dict):
            raise ValueError("the body is not a JSON object")  # noqa: TRY004 - a bad value from outside, as json's own
        return value


def _decompressed(body: bytes, encoding: str) -> bytes:
    if encoding == "identity":
        return body
    import brotli  # type: ignore[import-untyped]  # both are rarely needed
    import zstandard

    readers: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.decompress,
        "deflate": zlib.decompress,
        "br": brotli.decompress,
        "zstd": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    }
    try:
        return readers[encoding](body) if encoding in readers else body
    except (OSError, EOFError, zlib.error, brotli.error, zstandard.ZstdError) as error:
        raise ValueError(f"the body does not decompress: {error}") from error
