"""Many requests in flight: an event loop on a thread of its own, which any number of calls share.

A worker has several shards under way at a time, so that the slowest request of one shard leaves no place empty. Each
call streams its own requests; what is under way over all calls is bounded by `ahead`, and the rest waits unsent.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from rewriters.engines import Completion, Request
from rewriters.errors import RewriterError

_T = TypeVar("_T")
_Answered = tuple[Request, Completion]
_Arrived = queue.SimpleQueue[list[_Answered] | BaseException | None]


class Flow:
    """The loop and its thread.

    ahead: requests that are under way at most, retries that wait included; the queue in memory.
    """

    def __init__(self, ahead: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="requests", daemon=True)
        self._thread.start()
        self._places = asyncio.Semaphore(ahead)
        self._closed = False

    def stream(self, requests: Iterable[Request], answer: Callable[[Request], Awaitable[Completion]]) -> Iterator[_Answered]:
        """Every request once with its completion, as they come. What `answer` raises ends this call and is raised here; a
        caller that stops early cancels what it had under way."""
        arrived: _Arrived = queue.SimpleQueue()
        feed = asyncio.run_coroutine_threadsafe(self._feed(requests, answer, arrived), self._loop)
        try:
            while (some := arrived.get()) is not None:
                if isinstance(some, asyncio.CancelledError):
                    raise RewriterError("the engine was closed while requests were under way; run the same command again")
                if isinstance(some, BaseException):
                    raise some
                yield from some
        finally:
            feed.cancel()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of a coroutine on the loop; the calling thread waits."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the thread; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self.run(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _feed(
        self,
        requests: Iterable[Request],
        answer: Callable[[Request], Awaitable[Completion]],
        arrived: _Arrived,
    ) -> None:
        # What is answered in one turn of the loop goes out together: every hand-over between threads has the loop wait for the
        # caller's thread to get a core, and an engine answers hundreds of requests in a step.
        answered: list[_Answered] = []

        def hand_over() -> None:
            if answered:
                arrived.put(answered.copy())
                answered.clear()

        async def one(request: Request) -> None:
            completion = await answer(request)
            answered.append((request, completion))
            if len(answered) == 1:
                self._loop.call_soon(hand_over)

        try:
            async with asyncio.TaskGroup() as tasks:
                for request in requests:
                    await self._places.acquire()
                    task = tasks.create_task(one(request))
                    task.add_done_callback(lambda _: self._places.release())  # also where it is cancelled before it begins
            hand_over()
            arrived.put(None)
        except BaseExceptionGroup as group:
            hand_over()
            arrived.put(_first(group))
        except BaseException as error:  # cancelled, or `requests` raised: the caller hears of it
            hand_over()
            arrived.put(error)


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
