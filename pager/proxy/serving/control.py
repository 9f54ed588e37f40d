"""The routes by which a running proxy is asked and switched: ``/ctxpager/status`` and ``/ctxpager/keep-warm``.

Who may use them is decided in ``access``. The switch is a POST with a body of JSON, so that neither a link nor a form
of another page can turn it.
"""

import asyncio
from typing import Any

import orjson

from pager.config.settings import Settings
from pager.errors import BadRequest
from pager.log.store import Store
from pager.proxy import request_body
from pager.proxy.call_log import CallLog
from pager.proxy.keep_warm import Keeper
from pager.proxy.log_records import time_of
from pager.proxy.relay import Scope, Send
from pager.proxy.request_body import ClientLeft, Receive
from pager.proxy.serving.live_sessions import LiveSessions
from pager.proxy.serving.local_clients import is_local

ROUTES = "/ctxpager/"
STATUS = f"{ROUTES}status"
KEEP_WARM = f"{ROUTES}keep-warm"
LARGEST = 1_000  # bytes of a body
NO_LOG = "keeping warm needs a log, and the log could not be opened"
UNPLANNED = "under the policy keep_all prompts are not planned, and what is not planned is not kept warm"
LIMITS = ("refresh_dollars", "day_dollars", "most", "longest", "subscriptions")


class Control:
    """An ASGI application for everything below ``/ctxpager/``."""

    def __init__(
        self,
        settings: Settings,
        live: LiveSessions,
        calls: CallLog | None = None,
        store: Store | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self._settings = settings
        self._live = live
        self._calls = calls
        self._store = store
        self._keeper = keeper
        self._reading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        route = scope["path"], scope["method"]
        if route == (STATUS, "GET"):
            await _json(send, 200, await self._status(scope))
        elif route == (KEEP_WARM, "GET"):
            await _json(send, 200, self._kept_warm(scope))
        elif route == (KEEP_WARM, "POST"):
            await _json(send, *await self._switched(scope, receive))
        elif scope["path"] in (STATUS, KEEP_WARM):
            await _json(send, 405, _error(f"{scope['path']} does not take {scope['method']}"))
        else:
            await _json(send, 404, _error(f"there is no {scope['path']}; there are {STATUS} and {KEEP_WARM}"))

    async def _status(self, scope: Scope) -> dict[str, Any]:
        now, calls = self._now(scope), self._calls
        recent = self._live.recent(now)
        if self._store is not None:
            async with self._reading:
                await asyncio.to_thread(self._live.read_bills, self._store, recent)
        sessions = []
        for one in self._live.described(recent, calls.sessions, self._keeper) if calls is not None else ():
            sessions.append(one)
            await asyncio.sleep(0)  # calls come first
        return {"now": now, "keep_warm": self._kept_warm(scope), "sessions": sessions}

    def _kept_warm(self, scope: Scope) -> dict[str, Any]:
        """The state of keeping warm, its limits, and what it spent."""
        keeper, settings = self._keeper, self._settings.keep_warm
        return {
            "on": keeper is not None and keeper.on,
            "mode": "fixed" if settings.mode == "fixed" else "auto",
            "setting": settings.mode,
            "impossible": self._impossible,
            "may_switch": is_local(scope),
            "spent": keeper.spent(self._now(scope)) if keeper is not None else 0.0,
            "kept": len(keeper) if keeper is not None else 0,
            "limits": {name: getattr(settings, name) for name in LIMITS},
        }

    @property
    def _impossible(self) -> str:
        """Why nothing can be kept warm; empty if it can."""
        if self._keeper is not None:
            return ""
        return NO_LOG if self._calls is None else UNPLANNED

    async def _switched(self, scope: Scope, receive: Receive) -> tuple[int, dict[str, Any]]:
        """Turn keeping warm on or off; the status and the answer."""
        kind = dict(scope["headers"]).get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            return 415, _error("the switch takes application/json")
        try:
            body = await request_body.read(receive, LARGEST, self._settings.limits.body_seconds)
            asked = orjson.loads(body)
        except ClientLeft:
            return 400, _error("the request was not whole")
        except BadRequest as error:
            return error.status, _error(str(error))
        except ValueError:
            asked = None
        on = asked.get("on") if isinstance(asked, dict) else None
        if not isinstance(on, bool):
            return 400, _error('expected {"on": true} or {"on": false}')
        if self._keeper is None:
            return (409, _error(self._impossible)) if on else (200, self._kept_warm(scope))
        self._keeper.switch(on=on)
        return 200, self._kept_warm(scope)

    def _now(self, scope: Scope) -> float:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        return time_of(headers, trusted=self._settings.trust_clock_header)


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": f"ctxpager: {message}"}}


async def _json(send: Send, status: int, value: object) -> None:
    body = orjson.dumps(value)
    facts = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": facts})
    await send({"type": "http.response.body", "body": body, "more_body": False})
