"""Gives memory back to the system after a burst of large calls.

The C library keeps what was freed, in case it is needed again; a proxy that has served two hundred calls of a megabyte
would stay that large for good. Once nothing is under way any more, what is free is handed back.
"""

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Self

WORTH_IT = 32 << 20  # bytes of bodies served since the last time
CALM = 0.5  # seconds without a call under way before it is done


def give_back() -> None:
    """Hand free memory back to the system, where the C library can."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


class Memory:
    """Counts what passes through, and gives memory back when it is calm."""

    def __init__(self, give_back: Callable[[], None] = give_back, calm: float = CALM) -> None:
        self._under_way = 0
        self._passed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._give_back = give_back
        self._calm = calm

    def __enter__(self) -> Self:
        self._under_way += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return self

    def passed(self, size: int) -> None:
        """Note a body of this size."""
        self._passed += size

    def __exit__(self, *_: object) -> None:
        self._under_way -= 1
        if not self._under_way and self._passed >= WORTH_IT:
            self._timer = asyncio.get_running_loop().call_later(self._calm, self._tidy)

    def _tidy(self) -> None:
        self._timer, self._passed = None, 0
        self._give_back()
