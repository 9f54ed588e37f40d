"""Asks a running proxy over HTTP, as a command beside it does."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from pager.config.settings import Settings
from pager.errors import NotRunning, Refused

PATIENCE = 10.0  # seconds
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what a proxy that listens everywhere is asked at


def address_of(settings: Settings) -> str:
    """The address at which the proxy of these settings is asked."""
    host = ANYWHERE.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def ask(settings: Settings, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
    """The answer of the proxy of these settings to a GET, or to a POST of this body.

    Raises NotRunning where no ctxpager answers, and Refused where it does not allow or can't do it.
    """
    address = address_of(settings)
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310 - always http
        address + path, data, {"content-type": "application/json"}
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever proxies are set for others
    try:
        with direct.open(request, timeout=PATIENCE) as response:
            answer = json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(address, error) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise NotRunning(f"no proxy answers at {address} ({reason}); `ctxpager serve` starts one") from error
    if not isinstance(answer, dict):
        raise NotRunning(f"what answers at {address} is no ctxpager")
    return answer


def _refusal(address: str, error: urllib.error.HTTPError) -> NotRunning | Refused:
    """What a proxy refused; one that does not know the path is none of ours, or an older one."""
    try:
        message = json.loads(error.read())["error"]["message"]
    except (OSError, ValueError, LookupError, TypeError):
        message = ""
    if isinstance(message, str) and message.startswith("ctxpager: "):
        return Refused(message.removeprefix("ctxpager: "))
    return NotRunning(f"what answers at {address} is no ctxpager, or one without this command: status {error.code}")
