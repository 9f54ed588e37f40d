"""Puts the server together from the settings and runs it."""

import asyncio
import errno
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from time import time
from typing import NamedTuple

import uvicorn

from pager.config.settings import Settings
from pager.errors import PolicyError, StoreError
from pager.log.events import Event
from pager.log.store import Store
from pager.log.stores import Location, open_store
from pager.paging.pager import Pager
from pager.paging.planning_rules import PlanningRules
from pager.paging.policy_choice import UNCHANGED, Arms, NamedPolicy, keeps_warm, policy_of_arm
from pager.paging.policy_loader import load_policy
from pager.paging.warmth.keep_warm import PricedRefreshes
from pager.pricing.rates import in_force
from pager.proxy.call import Pipeline
from pager.proxy.call_log import CallLog
from pager.proxy.fail_open import FailOpen
from pager.proxy.keep_warm import Keeper, rule_of
from pager.proxy.log_records import PlacedCall
from pager.proxy.serving.access import Door, expect_closed, expect_elsewhere, tenants_of
from pager.proxy.serving.app import App, DashboardRoutes, OwnRoutes
from pager.proxy.serving.connection import connection
from pager.proxy.serving.console import Advice, Console, Price
from pager.proxy.serving.control import Control
from pager.proxy.serving.learner import Learner, command, may_learn, recall
from pager.proxy.serving.live_sessions import LiveSessions
from pager.proxy.serving.metrics import Meter, Metrics
from pager.proxy.serving.presence import Presence
from pager.proxy.serving.warm_advice import Estimating, WarmAdvice, may_advise
from pager.proxy.upstream import Upstream
from pager.terminal import Formatter, say
from pager.wire import dialects

TURN = 0.0005  # seconds that a thread that computes has before the event loop is let in; Python's own 0.005 add up
GRACE = 10  # seconds that calls under way have to end when the proxy is stopped
Showing = Callable[[Store], DashboardRoutes]
"""Makes the dashboard of a log."""

Summary = Callable[[float], str]
"""The sum of the logged calls since a time, in words."""


class CostWords(NamedTuple):
    """The cost of calls in words: of each, of all since a time, and what keeping warm would have saved."""

    price: Price
    summary: Summary
    estimating: Estimating | None = None


log = logging.getLogger("ctxpager")


def build(
    settings: Settings,
    env: Mapping[str, str],
    dashboard: Showing | None = None,
    console: Console | None = None,
    words: CostWords | None = None,
) -> Door:
    """The application that these settings describe, with a dashboard if there is one for its log."""
    expect_closed(settings)
    expect_elsewhere(settings)
    store = _open(settings)
    shown = dashboard(store) if dashboard is not None and store is not None else None
    pager, fail_open, metrics = _pager(settings), FailOpen(), Metrics()
    meter = Meter(metrics, fail_open)
    hot = settings.identity.hot_sessions
    models = pager.models if pager is not None else in_force(settings.prices, settings.models)
    live = LiveSessions(models, fail_open, words.price if words else None, trusts_clock=settings.trust_clock_header)
    watch = _guarded(console, live, fail_open)
    calls = CallLog(store, dialects.load, hot, pager, fail_open, meter, watch) if store else None
    upstream = Upstream(settings.upstream, env)
    tenants = tenants_of(settings, env)
    keeper = _keeper(settings, upstream, calls, pager, fail_open)
    pipeline = Pipeline(settings, upstream, calls, tenants, pager, fail_open, meter, keeper)
    _recall(settings, pager, store)
    learner = Learner(pager, store, command(settings)) if pager and store and may_learn(settings) else None

    beside = [one for one in (learner, _advice(settings, words, keeper)) if one is not None]

    async def start() -> None:
        await upstream.start()
        pipeline.warm_up()
        if keeper is not None:
            keeper.start()
        for one in beside:
            one.start()

    async def stop() -> None:
        try:
            if keeper is not None:
                await keeper.stop()
            await upstream.close()
            for one in beside:
                await one.stop()
            if shown is not None:
                await shown.close()
            await pipeline.drain()
        finally:
            if store is not None:
                await asyncio.to_thread(store.close)

    spoken = [dialects.load(name) for name in dialects.names()]
    own = OwnRoutes(shown, Control(settings, live, calls, store, keeper))
    app = App(pipeline, spoken, calls, start, stop, _folder(settings), metrics, own)
    return Door(app, settings, tenants.keys())


def _folder(settings: Settings) -> Path:
    """The folder that the log is in; the data folder where it is in none."""
    return Location(settings.store_url).folder or settings.data_dir


def _guarded(
    console: Console | None, live: LiveSessions, fail_open: FailOpen
) -> Callable[[PlacedCall, Sequence[Event]], None]:
    """Notes what happens in calls, shows it if there is a console, and gives advice; no failure there stops a call."""
    advice = Advice()

    def watch(call: PlacedCall, events: Sequence[Event]) -> None:
        with fail_open():
            live.happened(call, events)
            advice.happened(call, events)
            if console is not None:
                console.happened(call, events)

    return watch


def _pager(settings: Settings) -> Pager | None:
    """The pager of the policies in force; None where no prompt is ever changed."""
    rules, shares = PlanningRules.of(settings), settings.experiment.arms
    default = _rule(rules, rules.policy)

    def former(name: str) -> NamedPolicy | None:
        try:
            return _rule(rules, name)
        except PolicyError as error:
            log.warning("sessions of the arm %s go on under %s: %s", name, settings.policy, error)
            return default

    arms = Arms(default, {name: _rule(rules, name) for name in shares}, shares, former)
    if arms.change_nothing:
        return None
    pager = Pager(
        arms,
        rules.rates(),
        dialects.load,
        marks=rules.cache_marks,
        grace=rules.grace,
        tools=rules.tools,
        credit=rules.credit,
        cache_members=rules.cache_members,
        lifetime=rules.cache_lifetime,
    )
    pager.kept_warm = settings.keep_warm.mode != "off"
    return pager


def _keeper(
    settings: Settings, upstream: Upstream, calls: CallLog | None, pager: Pager | None, fail_open: FailOpen
) -> Keeper | None:
    """What keeps prompts warm, or could if it is switched on; None where prompts are not planned."""
    if calls is None or pager is None:
        return None
    limits, told = settings.keep_warm, settings.trust_clock_header
    rule = rule_of(limits) or PricedRefreshes(limits.most)
    on = limits.mode != "off" or any(map(keeps_warm, settings.experiment.arms))
    return Keeper(limits, rule, upstream, calls, pager.models, fail_open, told_time=told, on=on)


def _advice(settings: Settings, words: CostWords | None, keeper: Keeper | None) -> WarmAdvice | None:
    """What says what keeping warm would have saved; None where it is on, or can't be."""
    estimating = words.estimating if words is not None else None
    return WarmAdvice(estimating, keeper) if estimating and keeper is not None and may_advise(settings) else None


def _rule(rules: PlanningRules, arm: str) -> NamedPolicy | None:
    """The policy of an arm, with the configured options if it is the one in force."""
    name = policy_of_arm(arm)
    return None if name == UNCHANGED else NamedPolicy(name, load_policy(name, rules.options_of(name)), keeps_warm(arm))


def _recall(settings: Settings, pager: Pager | None, store: Store | None) -> None:
    """Take up what was last learned from the log; where that part of it is damaged, the proxy serves without."""
    if store is None or pager is None or settings.learn == "off":
        return
    try:
        recall(pager, store)
    except StoreError as error:
        log.error("the log can't be read, run `ctxpager check`: %s", error)  # noqa: TRY400 - the reason is in the message


def run(
    settings: Settings, env: Mapping[str, str], dashboard: Showing | None = None, words: CostWords | None = None
) -> int:
    """Serve until stopped; the exit status."""
    out = logging.StreamHandler()
    out.setFormatter(Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[out])
    logging.getLogger("asyncio").addFilter(is_a_fault)
    spoken = _Spoken()
    logging.getLogger("uvicorn.error").addFilter(spoken)
    console = Console(words.price) if words is not None and _shows_calls(settings) else None
    began = time()
    sys.setswitchinterval(TURN)
    config = uvicorn.Config(
        build(settings, env, dashboard, console, words),
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
    presence = Presence(_folder(settings))
    if presence.other:
        log.warning("the log in %s is also written by %s", _folder(settings), presence.other)
    server = _Server(config, settings, presence, spoken, shows=dashboard is not None)
    with suppress(KeyboardInterrupt):
        server.run()
    presence.close()
    if console is not None and words is not None and server.started:
        console.close()
        with suppress(KeyboardInterrupt):  # the user does not want to wait for the sum
            say(f"\n{words.summary(began)}", flush=True)
    return 0 if server.started else 1


def _shows_calls(settings: Settings) -> bool:
    """Whether each call is shown: if so set, and else on a terminal."""
    return settings.show_calls == "always" or (settings.show_calls == "terminal" and sys.stdout.isatty())


def is_a_fault(record: logging.LogRecord) -> bool:
    """Whether asyncio reports a fault of ours: an error, and not of a connection that the other side broke."""
    return record.levelno >= logging.ERROR and not (record.exc_info and isinstance(record.exc_info[1], OSError))


class _Spoken(logging.Filter):
    """Leaves out uvicorn's messages on broken streams, which are the provider's, and on its own start and end.

    ``refusal`` is why it could not listen, for a clearer line than its own; None if it could.
    """

    refusal: OSError | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is worth reading."""
        if isinstance(record.msg, OSError):
            self.refusal = record.msg
            return False
        cancelled = bool(record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
        broken_off = "without completing response" in record.getMessage()
        return record.levelno >= logging.ERROR and not broken_off and not cancelled


class _Server(uvicorn.Server):
    """Says where it listens once it does, and why if it can't."""

    def __init__(
        self, config: uvicorn.Config, settings: Settings, presence: Presence, spoken: _Spoken, *, shows: bool
    ) -> None:
        super().__init__(config)
        self._settings = settings
        self._presence = presence
        self._spoken = spoken
        self._shows = shows

    async def startup(self, sockets: object = None) -> None:
        try:
            await super().startup(sockets=sockets)  # type: ignore[arg-type]
        except SystemExit:
            say(_refused(self._settings, self._spoken.refusal), error=True)
            raise
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
            base = f"http://{host}:{port}"
            self._presence.listening(base)
            say(_greeting(self._settings, base, shows=self._shows), flush=True)

    async def shutdown(self, sockets: object = None) -> None:
        under_way = len(self.server_state.tasks)
        if under_way:
            log.warning("stopping: %d calls under way have %d s to end", under_way, GRACE)
        await super().shutdown(sockets=sockets)  # type: ignore[arg-type]


def _refused(settings: Settings, refusal: OSError | None) -> str:
    """Why the proxy can't listen, and the way out."""
    where = f"{settings.host}:{settings.port}"
    if refusal is not None and refusal.errno == errno.EADDRINUSE:
        return f"ctxpager: can't listen on {where}: the port is in use; stop what uses it, or choose another by --port"
    why = (refusal.strerror or str(refusal)) if refusal is not None else "the server did not start"
    return f"ctxpager: can't listen on {where}: {why}"


def _greeting(settings: Settings, base: str, *, shows: bool) -> str:
    """Where the proxy is, what it does, and where it sends calls."""
    spoken: dict[str, list[str]] = {}
    for name in dialects.names():
        spoken.setdefault(settings.upstream.base(name, dialects.load(name).base_url), []).append(name)
    providers = [f"{', '.join(names)} to {url}" for url, names in spoken.items()]
    return "\n".join(
        [
            f"ctxpager {version('ctxpager')} listens on {base}",
            f"  OpenAI clients     base URL {base}/v1",
            f"  Anthropic clients  base URL {base}",
            f"  Claude Code        ANTHROPIC_BASE_URL={base} ENABLE_TOOL_SEARCH=true claude",
            *([f"  dashboard          {base}/"] if shows else []),
            f"  health, metrics    {base}/healthz, {base}/metrics",
            f"  policy             {settings.policy}",
            f"  log                {Location(settings.store_url).folder or settings.store}",
            *(f"  {'upstream' if at == 0 else '':<18} {line}" for at, line in enumerate(providers)),
        ]
    )


def _open(settings: Settings) -> Store | None:
    """The log; where it can't be opened the proxy serves without one, loudly."""
    try:
        return open_store(settings.store_url)
    except StoreError as error:
        log.error("SERVING WITHOUT A LOG: %s", error)  # noqa: TRY400 - the reason is in the message
        return None
