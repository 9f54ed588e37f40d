"""Puts the server together from the settings and runs it."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

import uvicorn

from pager import dialects
from pager.arms import UNCHANGED, Arms, Rule
from pager.errors import PolicyError, StoreError
from pager.models import in_force
from pager.plugins import load_policy
from pager.server.app import App, Dashboard
from pager.server.connection import connection
from pager.server.doors import Door, expect_closed, expect_elsewhere, tenants_of
from pager.server.driver import Driver, FailOpen
from pager.server.journal import Journal
from pager.server.learning import Learner, command, may_learn, recall
from pager.server.metrics import Meter, Metrics
from pager.server.paging import Pager
from pager.server.upstream import Upstream
from pager.settings import Settings
from pager.store import Store
from pager.stores import open_store
from pager.terminal import Formatter, say
from pager.tooling import Shortening

GRACE = 10  # seconds that calls under way have to end when the proxy is stopped
ANSWERS_RECALLED = 500  # newest answers in the log from which the token counts' corrections are learned again
Showing = Callable[[Store], Dashboard]
"""Makes the dashboard of a log."""

log = logging.getLogger("ctxpager")


def build(settings: Settings, env: Mapping[str, str], dashboard: Showing | None = None) -> Door:
    """The application that these settings describe, with a dashboard if there is one for its log."""
    expect_closed(settings)
    expect_elsewhere(settings)
    store = _open(settings)
    shown = dashboard(store) if dashboard is not None and store is not None else None
    pager, fail_open, metrics = _pager(settings), FailOpen(), Metrics()
    meter = Meter(metrics, fail_open)
    hot = settings.identity.hot_sessions
    journal = Journal(store, dialects.load, hot, pager, fail_open, meter) if store else None
    upstream = Upstream(settings.upstream, env)
    tenants = tenants_of(settings, env)
    driver = Driver(settings, upstream, journal, tenants, pager, fail_open, meter)
    _recall(settings, driver, pager, store)
    learner = Learner(pager, store, command(settings)) if pager and store and may_learn(settings) else None

    def start() -> None:
        if learner is not None:
            learner.start()

    async def stop() -> None:
        try:
            if learner is not None:
                await learner.stop()
            if shown is not None:
                await shown.close()
            await driver.drain()
        finally:
            if store is not None:
                await asyncio.to_thread(store.close)

    spoken = [dialects.load(name) for name in dialects.names()]
    return Door(App(driver, spoken, upstream, journal, start, stop, metrics, shown), settings, tenants.keys())


def _pager(settings: Settings) -> Pager | None:
    """What pages prompts under the policies in force; None where nothing is ever to be changed."""
    shares = settings.experiment.arms
    rules = {name: _rule(settings, name) for name in shares}
    default = _rule(settings, settings.policy)

    def former(name: str) -> Rule | None:
        try:
            return _rule(settings, name)
        except PolicyError as error:
            log.warning("sessions of the arm %s go on under %s: %s", name, settings.policy, error)
            return default

    arms = Arms(default, rules, shares, former)
    if arms.change_nothing:
        return None
    models = in_force(settings.prices, settings.models)
    paging = settings.paging
    tools = Shortening(settings.tools.shorten != "off", settings.tools.defer_above)
    return Pager(arms, models, dialects.load, marks=paging.cache_marks, grace=paging.grace, tools=tools)


def _rule(settings: Settings, name: str) -> Rule | None:
    """A policy by its name, with the configured options if it is the one in force."""
    if name == UNCHANGED:
        return None
    options = settings.paging.policy_options if name == settings.policy else {}
    return Rule(name, load_policy(name, options))


def _recall(settings: Settings, driver: Driver, pager: Pager | None, store: Store | None) -> None:
    """Learn again what the log teaches; a log that is damaged there teaches nothing, and the proxy serves."""
    if store is None:
        return
    try:
        driver.estimates.recall(store.recent("AnswerFinished", ANSWERS_RECALLED))
        if pager is not None and settings.learn != "off":
            recall(pager, store)
    except StoreError as error:
        log.error("the log can't be read, run `ctxpager check`: %s", error)  # noqa: TRY400 - the reason is in the message


def run(settings: Settings, env: Mapping[str, str], dashboard: Showing | None = None) -> int:
    """Serve until stopped; the exit status."""
    out = logging.StreamHandler()
    out.setFormatter(Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[out])
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    logging.getLogger("uvicorn.error").addFilter(_worth_telling)
    config = uvicorn.Config(
        build(settings, env, dashboard),
        host=settings.host,
        port=settings.port,
        loop="auto",
        http=connection(settings.limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE,
    )
    server = _Server(config, shows=dashboard is not None)
    with suppress(KeyboardInterrupt):
        server.run()
    return 0 if server.started else 1


def _worth_telling(record: logging.LogRecord) -> bool:
    """Leave out what uvicorn says of streams that break off as the provider's did, and of its own coming and going."""
    cancelled = bool(record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
    broken_off = "without completing response" in record.getMessage()
    return record.levelno >= logging.ERROR and not broken_off and not cancelled


class _Server(uvicorn.Server):
    """Says where it listens once it does."""

    def __init__(self, config: uvicorn.Config, *, shows: bool) -> None:
        super().__init__(config)
        self._shows = shows

    async def startup(self, sockets: object = None) -> None:
        try:
            await super().startup(sockets=sockets)  # type: ignore[arg-type]
        except SystemExit:
            where = f"{self.config.host}:{self.config.port}"
            say(f"ctxpager can't listen on {where}: the reason stands above", error=True)
            raise
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            say(_greeting(self.config.host, port, shows=self._shows), flush=True)

    async def shutdown(self, sockets: object = None) -> None:
        under_way = len(self.server_state.tasks)
        if under_way:
            log.warning("stopping: %d calls under way have %d s to end", under_way, GRACE)
        await super().shutdown(sockets=sockets)  # type: ignore[arg-type]


def _greeting(host: str, port: int, *, shows: bool) -> str:
    name = f"[{host}]" if ":" in host else host
    base = f"http://{name}:{port}"
    return "\n".join(
        [
            f"ctxpager listens on {base}",
            f"  OpenAI clients (Chat Completions, Responses):  base URL {base}/v1",
            f"  Anthropic clients (Messages):                  base URL {base}",
            f"  health, metrics:                               {base}/healthz, {base}/metrics",
            *([f"  dashboard:                                     {base}/"] if shows else []),
        ]
    )


def _open(settings: Settings) -> Store | None:
    """The log; where it can't be opened the proxy serves without one, loudly."""
    try:
        return open_store(settings.store, settings.data_dir)
    except StoreError as error:
        log.error("SERVING WITHOUT A LOG: %s", error)  # noqa: TRY400 - the reason is in the message
        return None
