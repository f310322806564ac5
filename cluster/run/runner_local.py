"""Runs the stages in this process, without Ray: each has threads of its own, and shards wait between them.

As on Ray, a stage with a pool has a worker that lives as long as the run, with a thread for each of its `concurrent_blocks`;
consecutive stages without a pool share one thread. The next shard that a stage takes is the first by order of admission, so
where no stage has several threads shards end in the order in which they began. What waits is bounded by the gate.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count, pairwise
from queue import PriorityQueue
from typing import Any

import pyarrow as pa

from cluster.cause import cause
from cluster.costs import Totals
from cluster.run.meter import Meter, run_block
from cluster.run.progress import ProgressTracker
from cluster.run.stage import Stage, groups, reporting_to, shard_of, shards_in_flight

THREAD = "stages"  # the name of the threads
_ADMISSION_SECONDS = 0.1  # timeout of one call of `admit`
_LEAVING_SECONDS = 1.0  # that a stop which waits for nothing gives the threads
_DROPPED_SECONDS = 5.0  # that a failed run waits for blocks in threads which send no heartbeat


class LocalRunner:
    """Runs the stages in this process, once; as `cluster.run.runner_ray.RayRunner`."""

    def __init__(self, stages: Sequence[Stage], start: int, shards: int = 0, budget_usd: float | None = None) -> None:
        """Builds no worker yet; the arguments are those of `RayRunner`."""
        self._stages, self._start = list(stages), start
        workers = {stage.name: 1 if stage.pool else 0 for stage in stages}
        self.tracker = _Tracker(workers, limit=shards_in_flight(stages, shards), budget_usd=budget_usd)
        """Of the shards in flight."""
        self._groups = [(group, group[0].concurrent_blocks if group[0].pool else 1) for group in groups(self._stages)]
        ends = [1, *(threads for _, threads in self._groups), 1]  # threads that admit, those of each group, and the caller
        self._queues = [_BlockQueue(writers, readers) for writers, readers in pairwise(ends)]
        self._built: dict[str, Future[Meter]] = {stage.name: Future() for stage in self._stages}
        self._threads: list[threading.Thread] = []
        self._meters: list[Meter] | None = []  # to be closed at the end; None: it has ended
        self._failure: BaseException | None = None  # the first of any thread
        self._lock, self._ended = threading.Lock(), threading.Event()

    def run(self, shards: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
        """Yields the last stage's rows, as dicts, in the order in which the shards end.

        Builds the workers with the first shard, in the order of the stages, and closes them at the end. An exception of a
        worker is raised when the others have dropped what they have in hand, at their next heartbeat.
        """
        first, *_, ended = self._queues
        complete = False
        try:
            self._begin(self._admit, shards, first)
            for (group, threads), queue, following in zip(self._groups, self._queues, self._queues[1:], strict=False):
                for _ in range(threads):
                    self._begin(self._pass_on, [self._built[stage.name] for stage in group], queue, following)
            while (block := ended.take()) is not None:
                yield from block[1].to_pylist()
            complete = True
        finally:
            if not complete:  # the caller takes no more
                self._drop()
            self._end()
            self._ended.set()
        if self._failure is not None:
            raise self._failure

    def drop(self) -> None:
        """Ends the run where it is: admits nothing more, drops what is in hand, and waits a moment for that."""
        if not self._ended.is_set():
            self.tracker.close()
            self._drop()
            self._ended.wait(_LEAVING_SECONDS)

    def _admit(self, shards: Iterable[pa.Table], queue: _BlockQueue) -> None:
        """Puts each shard into the first queue once it is admitted; the first one has the workers built."""
        try:
            for order, table in enumerate(shards):
                admitted = None
                while admitted is None:
                    if self.tracker.dropped:
                        return
                    admitted = self.tracker.admit(shard_of(table), _ADMISSION_SECONDS)
                if not admitted:
                    return
                if not order:
                    self._begin(self._build_all)
                queue.put(order, table)
        finally:
            queue.close()

    def _pass_on(self, meters: Sequence[Future[Meter]], queue: _BlockQueue, following: _BlockQueue) -> None:
        """Runs the blocks of a queue through the stages of a group, and puts them into the following one."""
        try:
            while not self.tracker.dropped and (taken := queue.take()) is not None:
                order, table = taken
                for built in meters:
                    meter = built.result()
                    table = run_block(meter, table, self.tracker, meter.stage.name)
                following.put(order, table)
        finally:
            following.close()

    def _build_all(self) -> None:
        # One after the other: packages that are imported, and models that are loaded, by two threads at a time disturb each
        # other. The first stages work meanwhile.
        try:
            for stage in self._stages:
                if self.tracker.dropped:
                    raise _Dropped
                self._built[stage.name].set_result(self._build(stage))
        except BaseException as error:
            self._fail(error)  # before those who wait for a worker hear of it
            for left in self._built.values():
                if not left.done():
                    left.set_exception(_Dropped())

    def _build(self, stage: Stage) -> Meter:
        report, reserve = partial(self.tracker.heartbeat, stage.name, None, 0), partial(self.tracker.reserve, stage.name)
        with reporting_to(report=report, reserve=reserve, stopping=self.tracker.closed):
            meter = Meter(stage, self._start)
        with self._lock:
            late = self._meters is None
            if self._meters is not None:
                self._meters.append(meter)
        if late:
            meter.close()
            raise _Dropped
        if stage.pool:
            self.tracker.worker_started(stage.name, stage.name)
        return meter

    def _begin(self, work: Callable[..., None], *arguments: Any) -> None:

        def called() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self._fail(error)

        thread = threading.Thread(target=called, name=THREAD, daemon=True)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if not isinstance(error, _Dropped):
                self._failure = self._failure or error
        self._drop()

    def _drop(self) -> None:
        """Has the threads end: at the next heartbeat, or with the block that they have in hand."""
        self.tracker.dropped = True
        for queue in self._queues:
            queue.end(-1)

    def _end(self) -> None:
        """Waits for the threads to end, and closes the workers; where a thread is still inside one, none is closed.

        What closing raises is raised, or noted on the failure of the run.
        """
        end = time.monotonic() + _DROPPED_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()) if self.tracker.dropped else None)
        with self._lock:
            meters, self._meters = self._meters or [], None
        if any(thread.is_alive() for thread in self._threads):
            return
        failed: Exception | None = None
        for meter in reversed(meters):
            try:
                meter.close()
            except Exception as error:
                failed = failed or error
        if failed is not None and self._failure is not None:
            self._failure.add_note(f"a worker cannot be closed, either: {cause(failed)}")
        elif failed is not None:
            raise failed


class _Dropped(BaseException):
    """Another thread has failed: what this one has in hand is not wanted any more."""


class _Tracker(ProgressTracker):
    """A tracker whose heartbeats end the work of a run that has failed."""

    dropped = False

    def heartbeat(self, stage: str, shard: int | None, attempt: int, share: float | None, spent: Totals | None = None) -> None:
        """Records a worker's heartbeat; raises where the run has failed."""
        super().heartbeat(stage, shard, attempt, share, spent)
        if self.dropped:
            raise _Dropped


class _BlockQueue:
    """The blocks that wait for one group of stages, by their place in the order of admission; thread-safe."""

    def __init__(self, writers: int, readers: int) -> None:
        self._waiting: PriorityQueue[tuple[float, int, pa.Table | None]] = PriorityQueue()
        self._others, self._readers, self._number = iter(range(writers - 1)), readers, count()

    def put(self, order: float, table: pa.Table | None) -> None:
        """Adds a block, or None: one of the readers is to end."""
        self._waiting.put((order, next(self._number), table))

    def take(self) -> tuple[float, pa.Table] | None:
        """Returns the first block by place; waits for one; None: there are no more."""
        order, _, table = self._waiting.get()
        return None if table is None else (order, table)

    def close(self) -> None:
        """Records that one of the writers puts no more; the last one ends the queue."""
        if next(self._others, None) is None:
            self.end(math.inf)

    def end(self, order: float) -> None:
        """Has the readers end when they come to a place."""
        for _ in range(self._readers):
            self.put(order, None)
