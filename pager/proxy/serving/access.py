"""Access: the addresses that the proxy may listen on, and the requests that it refuses.

A browser lends its user's place in the network to every page it shows. So a request by a page of another site is
refused on every route, however it came here: by a name that is not ours (Host), or across sites (Origin). Programs send
no Origin and are not concerned.
"""

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from pager.config.settings import Settings
from pager.errors import ConfigError
from pager.host_names import is_loopback, is_ours
from pager.proxy.relay import Scope, Send, refuse
from pager.proxy.request_body import Receive
from pager.proxy.serving.app import App
from pager.proxy.serving.control import KEEP_WARM, ROUTES
from pager.proxy.serving.local_clients import is_local
from pager.sessions.identity import credential_of
from pager.wire import dialects

INSIGHTS = frozenset({"/healthz", "/metrics"})
OTHERS = frozenset({"cross-site", "same-site"})
PAGE = "/"  # any page may link to the dashboard, whose own requests then come from itself
MOST_WARNINGS = 20  # a page could be refused any number of times
log = logging.getLogger("ctxpager")


class DoorRefusal(NamedTuple):
    """Why a request is not let through."""

    status: int
    reason: str


def expect_closed(settings: Settings) -> None:
    """Raise ConfigError where anybody on the network could use the proxy, unless that was allowed."""
    if is_loopback(settings.host) or settings.identity.keys:
        return
    beyond = f"host: {settings.host} can be reached by others, and the proxy has no keys of its own"
    if settings.upstream.api_key_env:
        raise ConfigError(
            f"{beyond}: everybody could spend the key that upstream.api_key_env names; set identity.keys, or listen on "
            "127.0.0.1"
        )
    if not settings.allow_open_bind:
        raise ConfigError(f"{beyond}; set identity.keys, listen on 127.0.0.1, or allow it by --allow-open-bind")


def tenants_of(settings: Settings, env: Mapping[str, str]) -> dict[str, str]:
    """The tenants by the proxy's own keys; raises ConfigError where a variable that must hold a key does not."""
    named = {f"identity.keys.{name}": variable for name, variable in settings.identity.keys.items()}
    if settings.upstream.api_key_env:
        named["upstream.api_key_env"] = settings.upstream.api_key_env
    elif named:
        raise ConfigError(
            "identity.keys: also set upstream.api_key_env, as the provider does not know the proxy's keys"
        )
    holders: dict[str, str] = {}
    for key, variable in named.items():
        value = env.get(variable, "")
        if not value:
            raise ConfigError(f"{key}: the environment variable {variable} is not set; set it to the key")
        if not (value.isascii() and value.isprintable()) or value != value.strip():
            raise ConfigError(f"{key}: what the environment variable {variable} holds can't be sent as a key")
        if value in holders:
            raise ConfigError(f"{key}: {variable} holds the same key as {holders[value]}; each needs one of its own")
        holders[value] = variable
    return {env[variable]: name for name, variable in settings.identity.keys.items()}


def expect_elsewhere(settings: Settings) -> None:
    """Raise ConfigError where calls would come back to the proxy itself, without end."""
    for name in dialects.names():
        address = settings.upstream.base(name, dialects.load(name).base_url)
        there = urlsplit(address)
        port = there.port or (443 if there.scheme == "https" else 80)
        if port == settings.port and _is_here(there.hostname or "", settings.host):
            key = "url" if settings.upstream.url else name
            raise ConfigError(f"upstream.{key}: {address} is this proxy itself; name a provider's address")


def _is_here(name: str, host: str) -> bool:
    return name == host.lower() or (is_loopback(name) and (is_loopback(host) or host in {"0.0.0.0", "::"}))  # noqa: S104


class Door:
    """The application behind a door: what is refused never reaches it."""

    def __init__(self, app: App, settings: Settings, keys: Collection[str]) -> None:
        self._app = app
        self._keys = keys
        self._loopback = is_loopback(settings.host)
        # Beyond this machine a proxy has any name, and a page that came by a wrong name has no key.
        self._knows_names = self._loopback or not keys
        self._names = {settings.host.lower(), *settings.allowed_hosts}
        self._origins = frozenset(settings.allowed_origins)
        self._shown_to_all = settings.dashboard.show == "always"
        self._warned: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        refusal = self.refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        if refusal.reason not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(refusal.reason)
            log.warning("refused %s %s: %s", scope["method"], scope["path"], refusal.reason)
        await refuse(send, self._app.owner(scope), refusal.status, refusal.reason)

    def refusal(self, scope: Scope) -> DoorRefusal | None:
        """Why a request is not let through; None if it is."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path, host, origin = scope["path"], headers.get("host"), headers.get("origin")
        knows_names = self._knows_names or path.startswith(ROUTES)  # which ask for no key on this machine
        if host is not None and knows_names and not is_ours(host, self._names):
            why = f"{host!r} is not a name of this proxy; use its address, or add it to allowed_hosts"
            return DoorRefusal(403, why)
        if origin is not None and not self._is_welcome(origin, host):
            return DoorRefusal(403, f"pages of {origin!r} may not use this proxy; allowed_origins names those that may")
        if origin is None and path != PAGE and headers.get("sec-fetch-site") in OTHERS:
            return DoorRefusal(403, "pages of other sites may not use this proxy")
        if path in INSIGHTS and not self._loopback and credential_of(headers) not in self._keys:
            return DoorRefusal(401, f"beyond this machine {path} asks for one of the proxy's own keys")
        return self._control_refusal(scope, headers) if path.startswith(ROUTES) else None

    def _control_refusal(self, scope: Scope, headers: Mapping[str, str]) -> DoorRefusal | None:
        """Why a request may not see or switch what the proxy does; None if it may.

        Only this machine switches. Others see the live sessions where they see the dashboard, or by a key.
        """
        if is_local(scope):
            return None
        if scope["path"] == KEEP_WARM:
            return DoorRefusal(403, "keeping warm is switched only from the machine that the proxy runs on")
        if self._shown_to_all or credential_of(headers) in self._keys:
            return None
        return DoorRefusal(401, f"beyond this machine {scope['path']} asks for one of the proxy's own keys")

    def _is_welcome(self, origin: str, host: str | None) -> bool:
        """Whether a page may send requests: our own, whose name is the Host of its request, or an allowed page."""
        place = origin.lower()
        return place in self._origins or (host is not None and place.partition("://")[2] == host.lower())
