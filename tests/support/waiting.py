"""Waiting for what must come true: so long that it fails only where it never does, on a busy machine too."""

import time

PATIENCE = 120.0
"""Seconds."""


def wait_until(true, seconds=PATIENCE):
    """Whether it has come true."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
