"""The dashboard: a page at the proxy's own address that shows sessions while they run.

It reads the log, never a live call; what is live, its page asks of ``/ctxpager/status``. It only answers a browser that
was led here by a name that is ours: a page of somebody else, under a name that points to this machine, gets nothing
(DNS rebinding). Its page asks no other host for anything, and runs no script but its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from importlib.resources import files
from typing import Any, Protocol
from urllib.parse import parse_qsl

from instrumentation.dashboard.answers import Answers, Asked, DashboardAnswer
from instrumentation.dashboard.process import Elsewhere
from instrumentation.reports import html_page
from pager.config.settings import Settings
from pager.host_names import is_ours
from pager.log.store import Store
from pager.log.stores import Location

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

API = "/ui/api/"
LIGHT = frozenset({"sessions", "outline"})
"""Questions that are answered in a moment; they never wait for one that takes longer."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
SCRIPTS = ("dashboard_live.js", "dashboard_list.js", "dashboard_session.js", "dashboard.js")
"""The page's own scripts, in the order in which they must run; the charts' run before them."""


@cache
def _file(*names: str) -> str:
    folder = files("instrumentation.reports").joinpath("web")
    return "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


FILES: dict[str, tuple[str, Callable[[], str]]] = {
    "/": ("text/html; charset=utf-8", lambda: _file("dashboard.html")),
    "/ui/charts.js": ("text/javascript; charset=utf-8", html_page.script),
    "/ui/charts.css": ("text/css; charset=utf-8", html_page.style),
    "/ui/dashboard.js": ("text/javascript; charset=utf-8", lambda: _file(*SCRIPTS)),
    "/ui/dashboard.css": ("text/css; charset=utf-8", lambda: _file("dashboard.css")),
}
STRANGE = "ctxpager: this name is not one of the dashboard's: open it by its address, or add the name to allowed_hosts"
FOREIGN = "ctxpager: the dashboard answers its own page only"


class Desk(Protocol):
    """Whoever answers questions."""

    async def answer(self, what: str, asked: Asked) -> DashboardAnswer:
        """The answer to one question."""

    async def close(self) -> None:
        """Answer no more."""


class Here:
    """Answers in a thread of this process: for a log that no other process can read."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._answers = Answers(store, settings)
        self._lock = asyncio.Lock()

    async def answer(self, what: str, asked: Asked) -> DashboardAnswer:
        """The answer to one question."""
        async with self._lock:
            return await asyncio.to_thread(self._answers.answer, what, asked)

    async def close(self) -> None:
        """There is nothing to end."""


class Dashboard:
    """An ASGI application for GET / and GET /ui/..."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._names = {settings.host.lower(), *settings.allowed_hosts}
        apart = Location(settings.store_url).durable
        self._light: Desk = Elsewhere(settings) if apart else Here(store, settings)
        self._heavy: Desk = Elsewhere(settings) if apart else Here(store, settings)

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        """Answer one request."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        path: str = scope["path"]
        if not is_ours(headers.get(b"host", ""), self._names):
            await _say(send, 403, "text/plain; charset=utf-8", STRANGE.encode())
        elif path in FILES:
            kind, read = FILES[path]
            await _say(send, 200, kind, read().encode())
        elif not path.startswith(API):
            await _say(send, 404, "text/plain; charset=utf-8", b"ctxpager: there is no such page")
        elif headers.get(b"sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            await _say(send, 403, "text/plain; charset=utf-8", FOREIGN.encode())
        else:
            asked = dict(parse_qsl(scope["query_string"].decode("latin-1")))
            await self._answer(path.removeprefix(API), asked, send)

    async def close(self) -> None:
        """End what answers."""
        await self._light.close()
        await self._heavy.close()

    async def _answer(self, what: str, asked: Asked, send: Send) -> None:
        answer = await (self._light if what in LIGHT else self._heavy).answer(what, asked)
        await _say(send, answer.status, "application/json", answer.body)


async def _say(send: Send, status: int, kind: str, body: bytes) -> None:
    length = [] if status == 204 else [(b"content-length", str(len(body)).encode())]
    facts = [(b"content-type", kind.encode()), *length, *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": facts})
    await send({"type": "http.response.body", "body": body, "more_body": False})
