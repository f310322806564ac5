"""An event loop on a thread of its own, with many requests in flight, shared by any number of calls.

A worker has several shards under way, so that the slowest request of one shard leaves no place empty. Each call streams
its own requests; at most `max_pending` requests of all calls are pending, the rest wait unsent.
"""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any

from cluster.errors import RewriterError
from rewriters.engines import Completion, Request, SendGate

_Answer = Callable[[Request], Awaitable[Completion]]
_Answered = tuple[Request, Completion]
_Results = queue.SimpleQueue[list[_Answered] | BaseException | None]


class EventLoopThread:
    """An event loop and its thread."""

    def __init__(self, max_pending: int) -> None:
        """Starts the thread; `max_pending` requests at most are in memory, in flight or waiting for a retry."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="requests", daemon=True)
        self._thread.start()
        self._pending = asyncio.Semaphore(max_pending)

    def stream(self, requests: Iterable[Request], answer: _Answer, gate: SendGate | None = None) -> Iterator[_Answered]:
        """Yields every request once with its completion, in the order of completion, but for those that the gate refuses.

        A caller that stops early cancels its pending requests. Raises whatever `answer` or `requests` raised, which ends the
        call, and RewriterError if the thread was closed meanwhile.
        """
        results: _Results = queue.SimpleQueue()
        feed = asyncio.run_coroutine_threadsafe(self._feed(requests, answer, gate, results), self._loop)
        try:
            while (batch := results.get()) is not None:
                if isinstance(batch, asyncio.CancelledError):
                    line = "the engine was closed while requests were under way; run the same command again"
                    raise RewriterError("worker-died", line)
                if isinstance(batch, BaseException):
                    raise batch
                yield from batch
        finally:
            feed.cancel()

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs a coroutine on the loop to its end."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Cancels all pending requests and ends the thread; a second call does nothing."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _serve(self) -> None:
        self._loop.run_forever()
        for task in (pending := asyncio.all_tasks(self._loop)):
            task.cancel()
        if pending:
            self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.close()  # asyncio.Runner would also wait for threads, such as those in which the system looks up names

    async def _feed(self, requests: Iterable[Request], answer: _Answer, gate: SendGate | None, results: _Results) -> None:
        # Completions of one turn of the loop are handed over together: at every hand-over the loop waits for the caller's
        # thread to get a core, and an engine answers hundreds of requests in a step.
        answered: list[_Answered] = []

        def hand_over() -> None:
            if answered:
                results.put(answered.copy())
                answered.clear()

        async def feed(request: Request) -> None:
            if gate is not None and not await gate.admit(request):
                return
            answered.append((request, await answer(request)))
            if len(answered) == 1:
                self._loop.call_soon(hand_over)

        ended: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                for request in requests:
                    await self._pending.acquire()
                    task = tasks.create_task(feed(request))
                    task.add_done_callback(lambda _: self._pending.release())  # also if it is cancelled before it begins
        except BaseExceptionGroup as group:
            ended = group.exceptions[0]
        except BaseException as error:  # cancelled, or `requests` raised: `stream` raises it to the caller
            ended = error
        hand_over()
        results.put(ended)
