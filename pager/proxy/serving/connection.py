"""A client's connection: uvicorn's, with limits on what a request's head may take, and deaf to ``Upgrade``.

The parser stops where it sees ``Upgrade``, and the request's body is lost. We never upgrade, and a client that asks for
it is answered as if it had not: so the header passes the parser under another name, and has its own again for the
application, which answers WebSocket handshakes.
"""

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pager.config.settings import LimitSettings

_UPGRADE = re.compile(rb"\r\nupgrade(?=[ \t]*:)", re.IGNORECASE)
_HIDDEN = b"x-pager-upgrade"
_REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


class HeadTooLarge(Exception):
    """A head has more headers, or more bytes, than are allowed."""


class Connection(HttpToolsProtocol):
    """One connection of a client."""

    limits = LimitSettings()

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - what uvicorn gives its protocols
        super().__init__(*args, **named)
        self._in_head = True
        self._head_size = 0
        self._fields_size = 0
        self._waiting = b""
        self._refusal = 400
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self.limits.head_seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait for a head."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Give what came to the parser, within the limits."""
        if self._in_head:
            self._head_size += len(data)
            data = self._renamed(data)
        super().data_received(data)
        if self.transport.is_closing() or not self._in_head:
            return
        if self._head_size > self.limits.head_kib * 1024:
            self._refuse(431, self._too_large)
        elif self._head_size and self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.head_seconds, self._too_slow)

    def on_message_begin(self) -> None:
        """Begin to count."""
        super().on_message_begin()
        self._fields_size = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer."""
        self._fields_size += len(name) + len(value)
        if len(self.headers) >= self.limits.headers or self._fields_size > self.limits.head_kib * 1024:
            self._refusal = 431
            raise HeadTooLarge
        super().on_header(b"upgrade" if name == _HIDDEN else name, value)

    def on_headers_complete(self) -> None:
        """The head has come in time; the request begins."""
        self._stop_waiting()
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next bytes are another head."""
        super().on_message_complete()
        self._in_head, self._head_size = True, 0

    def send_400_response(self, msg: str) -> None:
        """Refuse what could not be parsed."""
        self._refuse(self._refusal, self._too_large if self._refusal == 431 else msg)

    @property
    def _too_large(self) -> str:
        most = self.limits
        return f"The head of the request has more than {most.headers} headers or {most.head_kib} KiB."

    def _renamed(self, data: bytes) -> bytes:
        """A head's bytes for the parser, with Upgrade under its other name; a header that is cut waits for its rest."""
        data, self._waiting = self._waiting + data, b""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            begun = data.rfind(b"\r\n")
            end = begun if begun >= 0 else len(data) - data.endswith(b"\r")
            data, self._waiting = data[:end], data[end:]
        if _UPGRADE.search(data, 0, end):
            data = _UPGRADE.sub(b"\r\n" + _HIDDEN, data[:end]) + data[end:]
        return data

    def _too_slow(self) -> None:
        self._head_timer = None
        if not self._head_size:
            self.transport.close()
        else:
            self._refuse(408, f"The head of the request took longer than {self.limits.head_seconds:g} s.")

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: int, message: str) -> None:
        """Answer a request that never began, and hang up."""
        if self.transport.is_closing():
            return
        under_way = self.cycle is not None and not self.cycle.response_complete
        if not under_way:  # an answer under way would be broken by ours
            head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            response = f"{head}content-length: {len(message)}\r\nconnection: close\r\n\r\n{message}"
            self.transport.write(response.encode())
        self.transport.close()


def connection(limits: LimitSettings) -> type[Connection]:
    """The connection within these limits."""
    return type("Connection", (Connection,), {"limits": limits})
