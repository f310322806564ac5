"""Runs the stages in this process, without Ray: each has threads of its own, and shards wait between them.

A stage has a worker that lives as long as the run, with a thread for each of its `concurrent_blocks`. It takes shards in the
order in which they come, so where no stage has several threads shards end in the order in which they began. What waits is
bounded by the gate.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from cluster.cause import cause
from cluster.costs import Totals
from cluster.run.meter import Meter, run_block
from cluster.run.progress import ProgressTracker
from cluster.run.stage import Stage, reporting_to, shard_of, shards_in_flight

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
        self._queues: list[SimpleQueue[pa.Table | None]] = [SimpleQueue() for _ in stages]  # None ends a thread
        # Blocks after the last stage, and how many there will be; an error, or None, ends the run before.
        self._ended: SimpleQueue[pa.Table | int | BaseException | None] = SimpleQueue()
        self._built: dict[str, Future[Meter]] = {stage.name: Future() for stage in self._stages}
        self._threads: list[threading.Thread] = []
        self._meters: list[Meter] | None = []  # to be closed at the end; None: it has ended
        self._lock, self._over = threading.Lock(), threading.Event()

    def run(self, shards: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
        """Yields the last stage's rows, as dicts, in the order in which the shards end.

        Builds the workers with the first shard, in the order of the stages, and closes them at the end. An exception of a
        worker is raised when the others have dropped what they have in hand, at their next heartbeat.
        """
        taken, admitted = 0, math.inf
        failure: BaseException | None = None
        try:
            self._begin(self._admit, shards)
            following = [*self._queues[1:], self._ended]
            for stage, waiting, done in zip(self._stages, self._queues, following, strict=True):
                for _ in range(stage.concurrent_blocks):
                    self._begin(self._pass_on, stage, waiting, done)
            while taken < admitted and (ended := self._ended.get()) is not None:
                if isinstance(ended, BaseException):
                    raise ended
                if isinstance(ended, int):
                    admitted = ended
                    continue
                taken += 1
                yield from ended.to_pylist()
        except BaseException as error:
            failure = error
            raise
        finally:
            self.tracker.dropped |= taken < admitted
            self._end(failure)
            self._over.set()

    def drop(self) -> None:
        """Ends the run where it is: admits nothing more, drops what is in hand, and waits a moment for that."""
        if not self._over.is_set():
            self.tracker.close()
            self.tracker.dropped = True
            self._ended.put(None)
            self._over.wait(_LEAVING_SECONDS)

    def _admit(self, shards: Iterable[pa.Table]) -> None:
        """Puts each shard into the first queue once it is admitted; the first one has the workers built."""
        count = 0
        for table in shards:
            while (admitted := self.tracker.admit(shard_of(table), _ADMISSION_SECONDS)) is None:
                if self.tracker.dropped:
                    return
            if not admitted:
                break
            if not count:
                self._begin(self._build_all)
            self._queues[0].put(table)
            count += 1
        self._ended.put(count)

    def _pass_on(self, stage: Stage, waiting: SimpleQueue[Any], done: SimpleQueue[Any]) -> None:
        """Runs the blocks that wait for a stage through it."""
        while (table := waiting.get()) is not None and not self.tracker.dropped:
            done.put(run_block(self._built[stage.name].result(), table, self.tracker, stage.name))

    def _build_all(self) -> None:
        # One after the other: packages that are imported, and models that are loaded, by two threads at a time disturb each
        # other. The first stages work meanwhile.
        try:
            for stage in self._stages:
                if self.tracker.dropped:
                    raise _Dropped
                self._built[stage.name].set_result(self._build(stage))
        finally:
            for left in self._built.values():
                if not left.done():
                    left.set_exception(_Dropped())

    def _build(self, stage: Stage) -> Meter:
        report, reserve = partial(self.tracker.heartbeat, stage.name, None, 0), partial(self.tracker.reserve, stage.name)
        with reporting_to(report=report, reserve=reserve, stopping=self.tracker.closed):
            meter = Meter(stage, self._start)
        with self._lock:
            if (meters := self._meters) is not None:
                meters.append(meter)
        if meters is None:
            meter.close()
            raise _Dropped
        if stage.pool:
            self.tracker.worker_started(stage.name, stage.name)
        return meter

    def _begin(self, work: Callable[..., None], *arguments: Any) -> None:
        def called() -> None:
            try:
                work(*arguments)
            except _Dropped:
                return
            except BaseException as error:
                self.tracker.dropped = True
                self._ended.put(error)

        thread = threading.Thread(target=called, name=THREAD, daemon=True)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _end(self, failure: BaseException | None) -> None:
        """Waits for the threads to end, and closes the workers; where a thread is still inside one, none is closed.

        What closing raises is raised, or noted on the failure of the run.
        """
        for stage, queue in zip(self._stages, self._queues, strict=True):
            for _ in range(stage.concurrent_blocks):
                queue.put(None)
        end = time.monotonic() + _DROPPED_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()) if self.tracker.dropped else None)
        with self._lock:
            meters, self._meters = self._meters or [], None
        if any(thread.is_alive() for thread in self._threads):
            return
        try:
            with ExitStack() as closing:
                for meter in meters:
                    closing.callback(meter.close)
        except Exception as error:
            if failure is None:
                raise
            failure.add_note(f"a worker cannot be closed, either: {cause(error)}")


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
