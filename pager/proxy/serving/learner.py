"""Learns from the log once a day, in a process of its own, for the sessions that begin after that.

Reading a log takes minutes of one core. A process with a low priority does it, so that no call ever waits for it. If it
fails, there is one warning, and new sessions go on with what was learned before.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from time import time
from typing import NamedTuple

from pager.config.settings import Settings
from pager.errors import StoreError
from pager.log.store import Store
from pager.log.stores import Location
from pager.paging.pager import Pager
from pager.paging.priors import LOG, Version, newest, recalled
from pager.proxy.serving.quiet_process import run_quietly

LONGEST = 3_600.0  # seconds after which learning is given up
LONGEST_WARNING = 500  # letters of an error
log = logging.getLogger("ctxpager.learning")


class LearningPace(NamedTuple):
    """Seconds from the start to the first look, from look to look, and the age at which what was learned is old."""

    first: float = 60.0
    every: float = 3_600.0
    age: float = 86_400.0


DAILY = LearningPace()


def command(settings: Settings) -> list[str]:
    """The command that learns anew."""
    where = ["--store", settings.store_url]
    return [sys.executable, "-P", "-m", "pager.cli", "learn", *where]  # -P: never what the working folder calls pager


def may_learn(settings: Settings) -> bool:
    """Whether to learn daily: not by times that clients made up, nor from a log that only this process can read."""
    return settings.learn == "daily" and not settings.trust_clock_header and Location(settings.store_url).durable


def recall(pager: Pager, store: Store) -> Version | None:
    """Have new sessions use what was last learned, None where nothing was; raises StoreError if that can't be read."""
    known = newest(store.events(LOG))
    if known is not None and known.name != pager.learned:
        recalled(known.name, store.blob)  # raises where it can't be read
        pager.experience(known.name)  # now, as calls must not wait for a disk
        pager.learned = known.name
    return known


class Learner:
    """Starts learning when what is known is old."""

    def __init__(self, pager: Pager, store: Store, command: Sequence[str], pace: LearningPace = DAILY) -> None:
        self._pager = pager
        self._store = store
        self._command = command
        self._pace = pace
        self._tried = 0.0
        self._warned = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, beside the calls."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End, and end the process that may be at work: what it has not logged, the next one will."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        await asyncio.sleep(self._pace.first)
        while True:
            try:
                await self._look()
            except (StoreError, OSError) as error:
                self._warn(str(error))
            await asyncio.sleep(self._pace.every)

    async def _look(self) -> None:
        """Learn if it is time; use what is new, also where another process learned it."""
        known = await asyncio.to_thread(recall, self._pager, self._store)
        if not await asyncio.to_thread(self._is_time, known):
            return
        self._tried = time()
        error = (await run_quietly(self._command, LONGEST)).error
        if error:
            self._warn(error)
        else:
            self._warned = False
            await asyncio.to_thread(recall, self._pager, self._store)

    def _is_time(self, known: Version | None) -> bool:
        """Whether what is known is old; where nothing is known, whether the log is."""
        first = known or next(iter(self._store.events()), None)
        return first is not None and time() - max(first.at, self._tried) >= self._pace.age

    def _warn(self, error: str) -> None:
        if not self._warned:
            log.warning(
                "nothing was learned from the log; sessions go by what was known before: %s", error[-LONGEST_WARNING:]
            )
        self._warned = True
