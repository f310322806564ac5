"""Calls that wait for somebody else, several at a time, on threads that nobody waits for: a process that is interrupted ends
at once (`concurrent.futures` joins its threads when the interpreter exits)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")


def begin(function: Callable[..., Value], *arguments: Any) -> Future[Value]:
    """Call it on a thread of its own."""
    future: Future[Value] = Future()

    def work() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="ahead", daemon=True).start()
    return future


def ahead(function: Callable[[Item], Value], items: Iterable[Item], most: int) -> Iterator[Value]:
    """`function` of each item, in their order, begun for `most` of them before they are asked for."""
    begun: deque[Future[Value]] = deque()
    for item in items:
        begun.append(begin(function, item))
        if len(begun) == most:
            yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()
