"""Waits of tests for what other threads and processes do."""

import time
from collections.abc import Callable

PATIENCE = 300.0  # seconds, of a test with a busy machine


def until(so: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Waits until something is so; fails if it is not soon enough."""
    end = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.01)
