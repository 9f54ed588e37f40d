"""Has questions answered by a process of its own, so that no call ever waits for one.

Telling the story of a long session takes seconds of one core. A process with a low priority does it; it is started for
the first question and ended when none has come for a while. Questions are lines of JSON on its standard input; an
answer is a line with its status and length, then its body.
"""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import BinaryIO

import orjson

from instrumentation.dashboard.answers import Answers, Asked, DashboardAnswer
from pager.config.settings import Settings
from pager.log.stores import open_store

NICENESS = 10
IDLE = 600.0  # seconds after which a process that is not asked is ended
FAILED = DashboardAnswer(500, b'{"error":"the dashboard failed; standard error says why"}')


class Elsewhere:
    """Asks another process, one question at a time."""

    def __init__(self, settings: Settings, idle: float = IDLE) -> None:
        self._first = settings.model_dump_json().encode() + b"\n"
        self._idle = idle
        self._lock = asyncio.Lock()
        self._process: Process | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def answer(self, what: str, asked: Asked) -> DashboardAnswer:
        """The answer to one question; a process that fails at it is not asked again, but the next one."""
        async with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            try:
                return await self._ask(orjson.dumps([what, dict(asked)]) + b"\n")
            except (OSError, asyncio.IncompleteReadError, ValueError):
                await self._end()
                return FAILED
            finally:
                self._timer = asyncio.get_running_loop().call_later(self._idle, self._kill)

    async def close(self) -> None:
        """End the process, whatever it is doing."""
        if self._timer is not None:
            self._timer.cancel()
        await self._end()

    async def _ask(self, question: bytes) -> DashboardAnswer:
        process = await self._running()
        assert process.stdin is not None  # noqa: S101 - as it was started with pipes
        assert process.stdout is not None  # noqa: S101
        process.stdin.write(question)
        status, length = (await process.stdout.readline()).split()
        return DashboardAnswer(int(status), await process.stdout.readexactly(int(length)))

    async def _running(self) -> Process:
        """The process that is asked; a new one where there is none."""
        if self._process is None or self._process.returncode is not None:
            module = "instrumentation.dashboard.process"
            command = [sys.executable, "-P", "-m", module]  # -P: never what the working folder calls so
            process = self._process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
            with suppress(OSError):  # it may have ended already
                os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
            assert process.stdin is not None  # noqa: S101
            process.stdin.write(self._first)
        return self._process

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _end(self) -> None:
        self._kill()
        if self._process is not None:
            await self._process.wait()
            self._process = None


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer the questions that come, until no more can: the first line are the settings."""
    settings = Settings.model_validate(orjson.loads(questions.readline()))
    store = open_store(settings.store_url, read_only=True)
    try:
        dashboard = Answers(store, settings)
        for line in questions:
            what, asked = orjson.loads(line)
            answer = dashboard.answer(what, asked)
            answers.write(b"%d %d\n" % (answer.status, len(answer.body)) + answer.body)
            answers.flush()
    finally:
        store.close()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, BrokenPipeError):  # the proxy is being stopped, which is no news
        serve(sys.stdin.buffer, sys.stdout.buffer)
