"""Calls that mostly wait for a server, several at a time, on daemon threads.

A process that is interrupted ends at once; `concurrent.futures` would join its threads when the interpreter exits.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")


def begin(function: Callable[..., Value], *arguments: Any) -> Future[Value]:
    """Calls `function` on a thread of its own; returns its future."""
    future: Future[Value] = Future()

    def work() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="prefetch", daemon=True).start()
    return future


def prefetch(function: Callable[[Item], Value], items: Iterable[Item], most: int) -> Iterator[Value]:
    """Yields `function(item)` in the order of the items; up to `most` calls run ahead of the caller."""
    begun: deque[Future[Value]] = deque()
    for item in items:
        begun.append(begin(function, item))
        if len(begun) == most:
            yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()
