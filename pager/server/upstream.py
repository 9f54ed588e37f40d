"""Sends requests on to the provider, over one pool of kept-alive connections."""

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from pager.config import Upstream as UpstreamSettings
from pager.errors import NotUnderstood
from pager.identity import CREDENTIALS
from pager.server.bodies import Decoder

HOP = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
OWN = b"x-pager-"  # headers of ours, never sent on
# What providers serve below their base URL. Anything else (HEAD /api/hello) is meant for the host itself.
RESOURCES = frozenset(
    {
        "assistants",
        "audio",
        "batches",
        "chat",
        "completions",
        "containers",
        "conversations",
        "embeddings",
        "evals",
        "files",
        "fine_tuning",
        "images",
        "messages",
        "models",
        "moderations",
        "organizations",
        "realtime",
        "responses",
        "skills",
        "threads",
        "uploads",
        "vector_stores",
        "videos",
    }
)
_AUTOMATIC = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")

RawHeaders = Iterable[tuple[bytes, bytes]]
Body = bytes | AsyncIterable[bytes] | None


def passed_on(headers: RawHeaders, *, also: Iterable[bytes] = ()) -> list[tuple[bytes, bytes]]:
    """The headers that go to the other side: all but those of this hop, those the hop's own list names, and ours."""
    headers = list(headers)
    named = {
        part.strip().lower() for name, value in headers if name.lower() == b"connection" for part in value.split(b",")
    }
    dropped = HOP | named | set(also)
    return [
        (name, value) for name, value in headers if name.lower() not in dropped and not name.lower().startswith(OWN)
    ]


def _text(value: bytes) -> str:
    """A header's value such that aiohttp, which writes UTF-8, sends the same bytes; those of other encodings change."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


async def up_to(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The answer's bytes, as far as they are needed to know that they are more than the limit."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            break
    return b"".join(chunks)


async def unpacked(chunks: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """The bytes of a stream without its content encoding; one that does not decompress breaks off there."""
    try:
        decoder = Decoder(encoding)
        async for chunk in chunks:
            for piece in decoder.feed(chunk):
                yield piece
        decoder.end()
    except NotUnderstood as error:
        raise aiohttp.ClientPayloadError(str(error)) from error


class Upstream:
    """The provider's side: where a path goes, with which credential."""

    def __init__(self, settings: UpstreamSettings, env: Mapping[str, str] = os.environ) -> None:
        self._settings = settings
        self.key = env.get(settings.api_key_env, "") if settings.api_key_env else ""
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the pool."""
        settings = self._settings
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=settings.max_connections, keepalive_timeout=30, ttl_dns_cache=300),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=settings.connect_timeout, sock_read=settings.read_timeout
            ),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=65536,
            max_field_size=65536,
        )

    async def close(self) -> None:
        """Close the pool."""
        if self._session is not None:
            await self._session.close()

    def url(self, dialect: str, path: str, query: str) -> URL:
        """Where a path of ours is at the provider; the client's base URL may or may not have had its ``/v1``."""
        base = self._settings.base(dialect)
        path = path if path.startswith("/") else "/"  # OPTIONS * asks about the host
        if path == "/v1" or path.startswith("/v1/"):
            path = path[3:]
        elif path.split("/")[1] not in RESOURCES:
            base = base.removesuffix("/v1")
        return URL(f"{base}{path}" + (f"?{query}" if query else ""), encoded=True)

    def send(
        self, method: str, url: URL, headers: RawHeaders, body: Body, dialect: str
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a request on; the client's own headers and credential go with it, or the proxy's credential instead."""
        if self._session is None:
            raise RuntimeError("the upstream pool is not open")
        return self._session.request(
            method,
            url,
            headers=self._headers(headers, dialect),
            data=body,
            allow_redirects=False,
            skip_auto_headers=_AUTOMATIC,
        )

    def _headers(self, headers: RawHeaders, dialect: str) -> CIMultiDict[str]:
        sent = CIMultiDict((name.decode("latin-1"), _text(value)) for name, value in headers)
        if not self.key:
            return sent
        for name in CREDENTIALS:
            sent.popall(name, None)
        if dialect == "messages":
            sent["x-api-key"] = self.key
        else:
            sent["authorization"] = f"Bearer {self.key}"
        return sent
