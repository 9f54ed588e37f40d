"""The scripted model's server: keeps what comes in and has it answered by the script or the rest of the API."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Self

from pager.testing.scripted.prompt_cache import PromptCache, size
from pager.testing.scripted.received import Received
from pager.wire.dialects import load, names, scripted
from pager.wire.scripted import EPOCH, Json, ScriptedOpenAI

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiohttp import web

    from pager.testing.scripted.answer import ScriptRun
    from pager.testing.scripted.script import Script

_MODELS = ("scripted-1", "scripted-2")
_LARGEST_BODY = 1 << 30


class ScriptedModel:
    """A model server on a loopback port that follows a script."""

    def __init__(
        self, script: Script, *, port: int = 0, clock: Callable[[], float] = lambda: 0.0, lifetime: float = math.inf
    ) -> None:
        """Serve this script; port 0 takes a free one.

        What is cached lives by ``clock``: up to a mark for as long as that asks for, without marks for ``lifetime``.
        """
        self._port = port
        self._clock = clock
        self._lifetime = lifetime
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: web.AppRunner | None = None
        self._run: ScriptRun
        self.play(script)

    @property
    def root(self) -> str:
        """The server's address without a path."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """The base URL up to and including ``/v1``."""
        return f"{self.root}/v1"

    @property
    def received(self) -> Sequence[Received]:
        """What came in since the script began."""
        return self._run.received

    def play(self, script: Script) -> None:
        """Begin a script, with an empty cache and nothing received."""
        # aiohttp's web server costs a tenth of a second to import: only those who play a script pay for it.
        from pager.testing.scripted.answer import ScriptRun
        from pager.testing.scripted.cursor import ScriptCursor

        self._run = ScriptRun(ScriptCursor(script), cache=PromptCache(self._clock, self._lifetime))

    def release(self, events: int = 1) -> None:
        """Release this number of gated events; may be called from any thread."""
        if self._loop is not None:
            for _ in range(events):
                self._loop.call_soon_threadsafe(self._run.gate.release)

    async def __aenter__(self) -> Self:
        from aiohttp import web  # as in play

        self._loop = asyncio.get_running_loop()
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # aiohttp cancels the handler when a client leaves; bodies are kept as they were sent.
        self._runner = web.AppRunner(
            app, handler_cancellation=True, auto_decompress=False, access_log=None, shutdown_timeout=0.2
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        run, received = self._run, _received(request)
        run.received.append(received)
        try:
            received.body = await request.read()
            response = await _answer(run, received, request)
        except (asyncio.CancelledError, ConnectionError):
            received.left_at = asyncio.get_running_loop().time()
            raise
        received.finished = True
        return response


def _received(request: web.Request) -> Received:
    peer = request.transport.get_extra_info("peername")[1] if request.transport else 0
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers)
    return Received(request.method, request.raw_path, headers, peer)


async def _answer(run: ScriptRun, received: Received, request: web.Request) -> web.StreamResponse:
    from pager.testing.scripted.answer import AnswerWriter, reply

    other = run.cursor.script.others.get(f"{received.method} {received.path}")
    if other is not None:
        return reply(other.status, other.body, other.headers)
    path = received.path.removeprefix("/v1") if received.method == "POST" else ""
    for dialect in map(load, names()):
        if dialect.accepts(path):
            return await AnswerWriter(run, scripted(dialect.name), run.next_call(), received, request).send()
        if path and path == dialect.count_path:
            provider = scripted(dialect.name)
            return reply(200, provider.counted(size(provider.prompt(received.json()))), {})
    status, body = _elsewhere(received)
    return reply(status, body, {})


def _elsewhere(received: Received) -> tuple[int, Json]:
    """The rest of the API, as far as clients need it."""
    if received.method == "GET" and received.path == "/v1/models":
        return 200, _anthropic_models() if received.header("anthropic-version") else _openai_models()
    return 404, ScriptedOpenAI().error(404, f"Invalid URL ({received.method} {received.target})")


def _openai_models() -> Json:
    models = [{"id": name, "object": "model", "created": EPOCH, "owned_by": "scripted"} for name in _MODELS]
    return {"object": "list", "data": models}


def _anthropic_models() -> Json:
    dated = {"created_at": "2025-10-09T08:53:20Z", "lifecycle": "active"}
    models = [{"type": "model", "id": name, "display_name": name.title(), **dated} for name in _MODELS]
    return {"data": models, "has_more": False, "first_id": _MODELS[0], "last_id": _MODELS[-1]}
