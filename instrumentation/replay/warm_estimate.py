"""Estimates what keeping prompts warm would have saved a user's last sessions, by playing them with and without it.

Both plays are under the policy, the prices and the limits in force, and under the lifetimes that the sessions' own
counts show. Refreshes after a session's last call are paid and bring nothing, so sessions without a pause count too.
Sessions that would take longer than the time that is left are left out.

``python -m instrumentation.replay.warm_estimate`` reads settings as JSON and prints the line on the log's sessions.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import orjson

from instrumentation.accounting import cache_lifetimes
from instrumentation.replay import log_files, recording_from_log
from instrumentation.replay.compare import SHORTEST, ReplayConditions
from instrumentation.replay.log_lines import Problems, head
from instrumentation.replay.player import Player
from instrumentation.replay.prepared_recording import Prepared
from instrumentation.replay.recording import Recording
from pager.config.settings import Settings
from pager.errors import PagerError, StoreError
from pager.log.store import Store
from pager.log.stores import Location, open_store, url_of_file
from pager.paging.policy_choice import UNCHANGED
from pager.paging.policy_loader import load_policy
from pager.paging.warmth.keep_warm import KeepWarm, PricedRefreshes, Resting
from pager.pricing.rates import Models
from pager.terminal import say
from pager.wire.dialects import load as load_dialect

MOST = 20
"""Sessions that are played."""

FEWEST = 3
"""Sessions with a pause below which nothing is said."""

IN_PASSING = 3.0
"""Seconds that a report may take longer for it."""

IN_THE_BACKGROUND = 60.0
"""Seconds that it may take beside a running proxy."""

LARGEST = 64 << 20
"""Bytes of a file that is read once more for it."""

FIRST_GUESS = 0.005
"""Seconds that a call takes to be played twice, before any was."""

Clock = Callable[[], float]


class WarmEstimate(NamedTuple):
    """What keeping warm would have changed; costs are in units of one uncached input token."""

    sessions: int = 0
    paused: int = 0  # those of them with a pause that outlived the cache
    cost: float = 0.0  # of all of them without keeping warm
    saved: float = 0.0  # net; below 0 where it would have cost more
    dollars: float | None = 0.0  # saved; None where a price is not known


class LimitedRefreshes(NamedTuple):
    """A rule within the longest time after a call for which a session may be kept warm."""

    rule: KeepWarm
    longest: float

    def refreshes(self, resting: Resting) -> Sequence[float]:
        """Those of the rule that are not too late."""
        return [after for after in self.rule.refreshes(resting) if after <= self.longest]


def of_settings(
    recordings: Iterable[Recording], settings: Settings, seconds: float, clock: Clock = perf_counter
) -> WarmEstimate:
    """The estimate for these sessions, the latest first, where these settings were in force."""
    limits = settings.keep_warm
    rule = LimitedRefreshes(PricedRefreshes(limits.most), limits.longest)
    return estimate(recordings, ReplayConditions.of(settings), rule, seconds, clock)


def is_wanted(settings: Settings) -> bool:
    """Whether it is worth saying: keeping warm is off, and could be turned on."""
    return settings.keep_warm.mode == "off" and settings.policy != UNCHANGED


def estimate(
    recordings: Iterable[Recording],
    conditions: ReplayConditions,
    rule: KeepWarm,
    seconds: float,
    clock: Clock = perf_counter,
) -> WarmEstimate:
    """What the rule would have changed in these sessions, the latest first, as far as there is time."""
    models, found, end = conditions.rates(), WarmEstimate(), clock() + seconds
    calls, spent = 0, 0.0
    for recording in recordings:
        began, steps = clock(), len(recording.steps)
        if found.sessions == MOST or began >= end:
            break
        pace = max(FIRST_GUESS, spent / calls if calls else 0.0)
        if steps < SHORTEST or steps * pace > end - began:
            continue
        try:
            found = _with(found, recording, conditions, rule, models)
        except (PagerError, RecursionError):  # other commands say what is wrong with it
            continue
        calls, spent = calls + steps, spent + clock() - began
    return found


def _with(
    so_far: WarmEstimate, recording: Recording, conditions: ReplayConditions, rule: KeepWarm, models: Models
) -> WarmEstimate:
    """The estimate with one session more."""
    shown = cache_lifetimes.shown(recording)
    dialect = load_dialect(shown.dialect)
    prepared = Prepared(shown, dialect, conditions.grace, conditions.tools, conditions.cache)
    cost = _played(prepared, conditions, None, models)
    saved = cost - _played(prepared, conditions, rule, models)
    model = Counter(step.model for step in shown.steps).most_common(1)[0][0]
    price = models.find(model).input
    known = so_far.dollars is not None and price
    return WarmEstimate(
        so_far.sessions + 1,
        so_far.paused + _pauses(prepared, models),
        so_far.cost + cost,
        so_far.saved + saved,
        (so_far.dollars or 0.0) + saved * (price or 0.0) / 1e6 if known else None,
    )


def _played(prepared: Prepared, conditions: ReplayConditions, rule: KeepWarm | None, models: Models) -> float:
    policy = load_policy(conditions.policy, conditions.policy_options)
    player = Player(prepared, lambda _: policy, models, keep_warm=rule)
    player.play()
    return player.outcome(conditions.policy).charged.cost


def _pauses(prepared: Prepared, models: Models) -> bool:
    """Whether any call came after its branch's prompt had left the cache."""
    latest: dict[int, float] = {}
    for call in prepared.calls:
        step, lifetime = call.step, prepared.prices(call, models).ttl_seconds
        if 0 < lifetime < step.at - latest.get(step.branch, step.at):
            return True
        latest[step.branch] = step.at
    return False


# ---------------------------------------------------------------- the last sessions


def of_log(store: Store) -> Iterator[Recording]:
    """The sessions of a log, the latest first."""
    for row in store.sessions():
        try:
            yield from recording_from_log.load(store, row.session, load_dialect)
        except PagerError:  # `ctxpager check` says what is wrong with it
            continue


def of_files(paths: Iterable[Path]) -> Iterator[Recording]:
    """The sessions of these files, file by file, those of a log of ours the latest first; large files are left out."""
    for path in paths:
        try:
            url = url_of_file(path, b"".join(head(path)))
            if url:
                store = open_store(url, read_only=True)
                try:
                    yield from of_log(store)
                finally:
                    store.close()
            elif path.stat().st_size <= LARGEST:
                yield from (found.recording for found in log_files.read(path, Problems()))
        except (OSError, StoreError):  # the analysis says which files can't be read
            continue


# ---------------------------------------------------------------- in words


def line(found: WarmEstimate, command: str) -> str:
    """What was found, in one line that names the command which turns it on; empty where too few sessions paused."""
    if found.paused < FEWEST:
        return ""
    sessions = f"{found.sessions:,} of your last sessions, {found.paused:,} with pauses in which the cache expired"
    off = f"keeping prompts warm is off: in {sessions}, it would"
    if found.saved <= 0:
        return f"{off} not have saved anything"
    share = f"{100 * found.saved / found.cost:.1f} % of their cost"
    amount = f"${found.dollars:,.2f} net, {share}" if found.dollars is not None else f"{share}, net"
    return f"{off} have saved {amount}; `{command}` turns it on"


def main() -> None:
    """Print the line for the log of the settings on standard input; nothing where there is nothing to say."""
    settings = Settings.model_validate(orjson.loads(sys.stdin.buffer.read()))
    if not is_wanted(settings) or not Location(settings.store_url).exists():
        return
    store = open_store(settings.store_url, read_only=True)
    try:
        found = of_settings(of_log(store), settings, IN_THE_BACKGROUND)
    finally:
        store.close()
    if words := line(found, "ctxpager keep-warm on"):
        say(words)


if __name__ == "__main__":
    main()
