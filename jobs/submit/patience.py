"""Waits for what storage says, but not as long as requests to it are repeated, which is minutes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
PATIENCE_SECONDS = 10.0


def within(seconds: float, work: Callable[[], Value], late: Value) -> Value:
    """Returns what a function returns; `late` if it takes longer: it then goes on in a daemon thread.

    Args:
        seconds: How long it is waited for.
        work: The function; it raises nothing.
        late: Stands in for its value.
    """
    found = [late]

    def call() -> None:
        found[0] = work()

    thread = threading.Thread(target=call, name="within", daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0]
