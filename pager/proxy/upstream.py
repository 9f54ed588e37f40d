"""Sends requests on to the provider, over one pool of kept-alive connections."""

import errno
import os
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from pager.config.settings import UpstreamSettings
from pager.proxy.request_body import Body
from pager.sessions.identity import credential_headers
from pager.wire.dialect import Dialect
from pager.wire.dialects import load as load_dialect

HOP = frozenset(
    b"connection content-length expect host keep-alive proxy-authenticate proxy-authorization proxy-connection te "
    b"trailer transfer-encoding upgrade".split()
)
STATUSES = range(200, 600)  # of answers; what is below comes before one, or switches protocols, which we never ask for
BODILESS = frozenset({204, 304})
OWN = b"x-pager-"  # headers of ours, never sent on
# What providers serve below their base URL. Anything else (HEAD /api/hello) is meant for the host itself.
RESOURCES = re.compile(
    "assistants|audio|batches|chat|completions|containers|conversations|embeddings|evals|files|fine_tuning|images|"
    "messages|models|moderations|organizations|realtime|responses|skills|threads|uploads|vector_stores|videos"
)
_CLOSED = frozenset({errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE})
_AUTOMATIC = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")

RawHeaders = Iterable[tuple[bytes, bytes]]


def passed_on(headers: RawHeaders, *, also: Iterable[bytes] = ()) -> list[tuple[bytes, bytes]]:
    """The headers for the other side: all but those of this hop, those that its Connection header names, and ours."""
    headers = list(headers)
    named = {
        part.strip().lower() for name, value in headers if name.lower() == b"connection" for part in value.split(b",")
    }
    dropped = HOP | named | set(also)
    return [
        (name, value) for name, value in headers if name.lower() not in dropped and not name.lower().startswith(OWN)
    ]


def headers_for_client(response: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    """The response's headers for the client; its length stays, unless it is of a body that is not sent."""
    headers = passed_on(response.raw_headers)
    if response.status not in BODILESS:
        headers += [(name, value) for name, value in response.raw_headers if name.lower() == b"content-length"]
    return [(name.lower(), value) for name, value in headers]


def error_text(error: BaseException) -> str:
    """An error in words, without the address: a query may hold a key."""
    text = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    return f"{type(error).__name__}: {text}".rstrip(": ")


def _text(value: bytes) -> str:
    """A header's value such that aiohttp, which writes UTF-8, sends the same bytes; those of other encodings change."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


@dataclass(slots=True)
class _ConnectionUse:
    """The connection of a request; ``kept`` if it had been used before."""

    kept: bool = False


async def _note_reuse(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    context.trace_request_ctx.kept = True


def _is_unanswered(error: Exception) -> bool:
    """Whether the provider closed the connection, and not in the middle of an answer's head.

    A provider that closes it while our bytes are on their way resets it; a head that a reset cut is not seen.
    """
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return isinstance(error.message, str)
    return isinstance(error, ConnectionError) or (isinstance(error, OSError) and error.errno in _CLOSED)


def _end_with_connection(response: aiohttp.ClientResponse) -> None:
    """Have an answer end, with an error, when its connection does: after a malformed chunk aiohttp would wait on."""
    protocol = response.connection.protocol if response.connection is not None else None
    closed = protocol.closed if protocol is not None else None
    content = response.content

    def end(_: object) -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the provider's answer is malformed"))

    if closed is not None:
        closed.add_done_callback(end)


async def read_up_to(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The answer's bytes; where they are more than the limit, no more than it takes to know that."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            break
    return b"".join(chunks)


class Upstream:
    """The provider: its address for each path, the credential, and the connections to it."""

    def __init__(self, settings: UpstreamSettings, env: Mapping[str, str] = os.environ) -> None:
        self._settings = settings
        self.key = env.get(settings.api_key_env, "") if settings.api_key_env else ""
        self._session: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the pool."""
        self._session = self._open(keepalive_timeout=30)
        self._fresh = self._open(force_close=True)

    def _open(self, **how: Any) -> aiohttp.ClientSession:  # noqa: ANN401 - options of the connector
        settings = self._settings
        noted = aiohttp.TraceConfig()
        noted.on_connection_reuseconn.append(_note_reuse)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=settings.max_connections, ttl_dns_cache=300, **how),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=settings.connect_timeout, sock_read=settings.read_timeout
            ),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=65536,
            max_field_size=65536,
            trace_configs=[noted],
        )

    async def close(self) -> None:
        """Close the pool."""
        for session in (self._session, self._fresh):
            if session is not None:
                await session.close()

    def address(self, dialect: Dialect, scope: Mapping[str, Any]) -> URL:
        """The provider's URL for a client's request."""
        return self.url(dialect.name, scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1"))

    def url(self, dialect: str, path: str, query: str) -> URL:
        """The provider's URL for a path of ours; the client's base URL may or may not have had its ``/v1``."""
        spoken = load_dialect(dialect)
        base = self._settings.base(dialect, spoken.base_url)
        path = path if path.startswith("/") else "/"  # OPTIONS * asks about the host
        if path == "/v1" or path.startswith("/v1/"):
            path = path[3:]
        elif not RESOURCES.fullmatch(path.split("/")[1]) and not spoken.accepts(path):
            base = base.removesuffix("/v1")
        return URL(f"{base}{path}" + (f"?{query}" if query else ""), encoded=True)

    @asynccontextmanager
    async def send(
        self, method: str, url: URL, headers: RawHeaders, body: Body, dialect: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request with the client's headers and credential, or the proxy's credential in its place.

        A provider may close a kept connection just when it is used again: then the request, of which nothing was
        answered, is sent once more on a new connection.
        """
        sent, use = self._headers(headers, dialect), _ConnectionUse()
        try:
            response = await self._request(self._session, method, url, sent, body, use)
        except (aiohttp.ClientConnectionError, ConnectionError) as error:
            if not use.kept or not _is_unanswered(error) or not (body is None or isinstance(body, bytes)):
                raise
            response = await self._request(self._fresh, method, url, sent, body, _ConnectionUse())
        _end_with_connection(response)
        async with response:
            yield response

    async def _request(
        self,
        session: aiohttp.ClientSession | None,
        method: str,
        url: URL,
        headers: CIMultiDict[str],
        body: Body,
        use: _ConnectionUse,
    ) -> aiohttp.ClientResponse:
        if session is None:
            raise RuntimeError("the upstream pool is not open")
        options: Any = {"allow_redirects": False, "skip_auto_headers": _AUTOMATIC, "trace_request_ctx": use}
        return await session.request(method, url, headers=headers, data=body, **options)

    def _headers(self, headers: RawHeaders, dialect: str) -> CIMultiDict[str]:
        sent = CIMultiDict((name.decode("latin-1"), _text(value)) for name, value in headers)
        if not self.key:
            return sent
        for name in credential_headers():
            sent.popall(name, None)
        name, value = load_dialect(dialect).credential(self.key)
        sent[name] = value
        return sent
