"""The one broad except of the program: when a step of ours fails, the call goes on without it."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger("ctxpager")


class FailOpen:
    """Guards the steps of ours; ``failed_steps`` counts those that failed."""

    def __init__(self) -> None:
        self.failed_steps = 0

    @contextmanager
    def __call__(self, and_then: Callable[[Exception], None] = lambda _: None) -> Iterator[None]:
        """Log an exception raised inside, hand it to ``and_then``, and go on."""
        try:
            yield
        except Exception as error:
            self.failed_steps += 1
            log.exception("BYPASSED: a step of ours failed; the call goes on without it")
            and_then(error)
