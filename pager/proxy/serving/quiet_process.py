"""Runs a command beside the calls: at a low priority, bounded in time, ended with the proxy."""

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

NICENESS = 15


class Finished(NamedTuple):
    """What a command wrote, and its error; empty if there was none."""

    output: str
    error: str


async def run_quietly(command: Sequence[str], longest: float, given: bytes | None = None) -> Finished:
    """Run a command, with this on its standard input; raises TimeoutError after ``longest`` seconds."""
    stdin = DEVNULL if given is None else PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=stdin, stdout=PIPE, stderr=PIPE)
    try:
        with suppress(OSError):  # it may have ended already
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        async with asyncio.timeout(longest):
            output, errors = (text.decode("utf-8", "replace").strip() for text in await process.communicate(given))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Finished(output, (errors or f"exit status {process.returncode}") if process.returncode else "")
