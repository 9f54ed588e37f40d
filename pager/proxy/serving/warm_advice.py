"""Says once, while keeping warm is off, what it would have saved on the last sessions.

That takes a while to work out, so a process of a low priority does it some time after the start.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from pager.config.settings import Settings
from pager.log.stores import Location
from pager.proxy.keep_warm import Keeper
from pager.proxy.serving.quiet_process import run_quietly

AFTER = 15.0  # seconds from the start of the proxy
LONGEST = 300.0  # seconds after which it is given up
log = logging.getLogger("ctxpager")


class Estimating(NamedTuple):
    """The command that works it out and prints it, and what it reads on its standard input."""

    command: Sequence[str]
    given: bytes


def may_advise(settings: Settings) -> bool:
    """Whether to work it out: not by times that clients made up, nor from a log that only this process can read."""
    durable = Location(settings.store_url).durable
    return settings.keep_warm.mode == "off" and durable and not settings.trust_clock_header


class WarmAdvice:
    """Works it out, and says it."""

    def __init__(self, estimating: Estimating, keeper: Keeper, after: float = AFTER) -> None:
        self._estimating = estimating
        self._keeper = keeper
        self._after = after
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, beside the calls."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End, with the process that may be at work."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        await asyncio.sleep(self._after)
        command, given = self._estimating
        try:
            done = await run_quietly(command, LONGEST, given)
        except OSError as error:  # a timeout is one
            log.debug("what keeping warm would have saved is not known: %s", error)
            return
        if done.error:
            log.debug("what keeping warm would have saved is not known: %s", done.error)
        elif done.output and not self._keeper.on:
            log.info("%s", done.output)
