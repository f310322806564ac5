"""Stages on Ray: long-lived workers, blocks that stay whole, one meter that every stage goes through.

A stage with a pool keeps its workers (Ray actors that hold a model, an index or an engine) for the whole run. A Ray Data
dataset streams one *wave* of shards through thin tasks, one per block and stage, which hand the block to a worker; the
next wave finds the same workers. Waves exist because a dataset's driver keeps something for every block (ray#66016); the
workers do not belong to the dataset because their start-up is dear. A stage without a pool runs in the task itself.

A block is one shard from the first stage to the last: tasks take whole blocks and give back one, far below any split size.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from cluster import costs
from cluster.border import check_border
from cluster.desk import TASK_SLOTS, Attempt, Desk, Page, account
from cluster.session import Pool

__all__ = ["TASK_SLOTS", "Line", "Meter", "Stage", "Worker", "pulse"]

Worker = Callable[[pa.Table], pa.Table]
_CONTROL = "control"  # a worker is told to close on a thread of its own, whatever it is working on
_GOODBYE = 30.0
_NO_SHARD = -1
_ANSWER = 0.2  # seconds that the driver's loop gives the desk for its books


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline: a class that is built once per worker and called with one block at a time."""

    name: str
    worker: Callable[..., Worker]
    settings: Mapping[str, Any]  # what the worker is built from: names and paths, never large objects
    consumes: pa.Schema
    produces: pa.Schema
    pool: Pool | None = None
    blocks: int = 1  # that a worker has under way at a time, each on a thread of its own
    retries: int = 3  # of a block whose worker died under it
    # What becomes of a row on which the worker raises: the row as the stage would give it, with the error on it; it may
    # raise the error instead, where that is not the row's fault. None: the stage fails.
    fallback: Callable[[pa.Table, Exception], pa.Table] | None = None
    # What to count of what this stage has put onto a block, for the books: what is under way is shown before it is committed.
    counts: Callable[[pa.Table], Mapping[str, int]] | None = None


_block = threading.local()  # .tell: how the thread speaks to the desk of the block that it works on


def pulse(share: float | None = None) -> None:
    """Say from inside a long call that work goes on, and which share of the block (0 to 1) is done; the stall watch counts
    from the last such word. To be said on the thread on which the worker was built or called;
    elsewhere it is not heard."""
    if tell := getattr(_block, "tell", None):
        tell(share)


class Meter:
    """A worker with its borders checked and its time attributed. Every stage's call goes through here, several at a time
    where the stage allows it.

    A worker may have `start_up`, seconds by what they were spent on while it was built, and `close()`, which gives back
    what it holds.
    """

    def __init__(self, stage: Stage, start: int) -> None:
        began = time.perf_counter()
        self.stage, self._start = stage, start
        self._worker = stage.worker(**stage.settings)
        self._busy = costs.Busy()
        parts = {f"{costs.START_UP}.{part}": spent for part, spent in getattr(self._worker, "start_up", {}).items()}
        rest = time.perf_counter() - began - sum(parts.values())
        self._start_up = [parts | {costs.START_UP: rest}] if stage.pool else []  # taken by the first block

    def __call__(self, table: pa.Table) -> pa.Table:
        stage = self.stage
        if table.num_rows == 0:  # a shard that was not admitted
            return stage.produces.empty_table()
        check_border(f"{stage.name} was given", table.schema, stage.consumes)
        with self._busy.share() as share:
            result = self._work(table)
            seconds = share()
        check_border(f"{stage.name} returned", result.schema, stage.produces)
        if "costs" not in result.column_names:
            return result
        devices = stage.pool.gpus if stage.pool else 0.0
        settled = costs.settle(result, seconds, devices, self._start)
        with contextlib.suppress(IndexError):
            settled = _charge_start_up(settled, stage.name, self._start_up.pop(), devices, self._start)
        return settled

    def close(self) -> None:
        """Let the worker give back what it holds."""
        if hasattr(self._worker, "close"):
            self._worker.close()

    def _work(self, table: pa.Table) -> pa.Table:
        try:
            return self._worker(table)
        except Exception as error:
            if self.stage.fallback is None:
                raise
            return self._isolate(table, error, [max(1, table.num_rows // 20)])

    def _isolate(self, table: pa.Table, error: Exception, left: list[int]) -> pa.Table:
        """Halve the block until the rows stand alone on which the worker raises. With too many of them (more than `left`)
        it is not the rows' fault, and the error is the stage's."""
        if table.num_rows == 1:
            if not left[0] or self.stage.fallback is None:
                raise error
            left[0] -= 1
            return self.stage.fallback(table, error)
        parts = []
        for part in (table.slice(0, table.num_rows // 2), table.slice(table.num_rows // 2)):
            try:
                parts.append(self._worker(part))
            except Exception as inner:
                parts.append(self._isolate(part, inner, left))
        return pa.concat_tables(parts)


class Line:
    """The workers of a run, and the waves that pass through them."""

    def __init__(self, stages: list[Stage], start: int, wave: int = 256) -> None:
        import ray

        self._stages, self._start, self._wave = stages, start, wave
        self._closed = False
        self._workers: dict[str, list[Any]] = {}
        self._books: dict[str, Page] = {}
        self._asked: Any = None  # what the desk was asked for and has not answered
        crews = {stage.name: stage.pool.workers if stage.pool else 0 for stage in stages}
        limit = max(2, sum(stage.pool.workers * (stage.blocks + 1) for stage in stages if stage.pool))
        desk = ray.remote(Desk).options(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=1000)
        self._desk = desk.remote(limit, crews)
        for stage in stages:
            if stage.pool is None:
                continue
            named = type(stage.name.capitalize(), (_Seat,), {})  # Ray shows the class name
            options = {
                "num_cpus": stage.pool.cpus,
                "num_gpus": stage.pool.gpus,
                "max_restarts": -1,  # a worker that dies comes back; a block that kills it is given up after `retries`
                "max_task_retries": stage.retries,
                "max_concurrency": stage.blocks,
            }
            remote = ray.remote(concurrency_groups={_CONTROL: 1})(named).options(**options)
            self._workers[stage.name] = [remote.remote(stage, start, self._desk, seat) for seat in range(stage.pool.workers)]

    def run(self, shards: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
        """Stream one-row tables (with the column `shard`) through all stages; yields the last stage's rows as they come."""
        import ray
        from ray.data import DataContext, TaskPoolStrategy

        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.target_max_block_size = None  # a block is a shard and is never split
        context.execution_options.preserve_order = False
        context.execution_no_progress_timeout_s = -1  # the job has a stall watch of its own
        waves = iter(shards)
        while not self._closed and (wave := list(itertools.islice(waves, self._wave))):
            data = ray.data.from_arrow(wave)
            data = data.map_batches(
                _admit, fn_kwargs={"desk": self._desk}, batch_size=None, batch_format="pyarrow",
                compute=TaskPoolStrategy(size=1), num_cpus=0.001,
            )  # fmt: skip
            for index, stage in enumerate(self._stages):
                workers = self._workers.get(stage.name, [])
                size = (stage.blocks + 1) * len(workers) if workers else TASK_SLOTS  # one more: it is there when another ends
                data = data.map_batches(
                    _carry,
                    fn_kwargs={"stage": stage, "start": self._start, "workers": workers, "desk": self._desk},
                    batch_size=None,
                    batch_format="pyarrow",
                    compute=TaskPoolStrategy(size=size),
                    num_cpus=0.002 + index / 1000,  # carriers wait; unlike requests also keep Ray Data from fusing stages
                )
            for batch in data.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                yield from batch.to_pylist()

    def committed(self, shard: int) -> None:
        """Make room for the next shard."""
        self._desk.committed.remote(shard)

    def books(self) -> dict[str, Page]:
        """The books of what is not committed, by stage; as they were last, where the desk does not answer at once."""
        import ray

        try:
            self._asked = self._asked or self._desk.books.remote()
            self._books, self._asked = ray.get(self._asked, timeout=_ANSWER), None
        except ray.exceptions.GetTimeoutError:
            pass
        except ray.exceptions.RayError:
            self._asked = None
        return self._books

    def quiet(self) -> float:
        """Seconds since a worker was last heard of; 0 where the desk does not answer at once."""
        import ray

        try:
            return float(ray.get(self._desk.quiet.remote(), timeout=5))
        except ray.exceptions.RayError:
            return 0.0

    def close(self) -> None:
        """Admit no more shards; those under way go on. Said again, it reaches a desk that was started anew."""
        self._closed = True
        self._desk.close.remote()

    def dismiss(self) -> None:
        """Let the workers give back what they hold; those that do not within `_GOODBYE` seconds are left to Ray."""
        import ray

        leaving = [
            worker.close.options(concurrency_group=_CONTROL).remote()
            for workers in self._workers.values()
            for worker in workers
        ]
        with contextlib.suppress(ray.exceptions.RayError):
            ray.wait(leaving, num_returns=len(leaving), timeout=_GOODBYE)


class _Seat:
    """The actor: a worker with its meter, at its place among the workers of its stage."""

    def __init__(self, stage: Stage, start: int, desk: Any, seat: int) -> None:
        self._desk, self._seat = desk, seat
        self._attempts = map(partial(Attempt, uuid.uuid4().hex), itertools.count(1))
        _block.tell = partial(desk.pulse.remote, stage.name, _NO_SHARD)  # a worker that is being built may copy an index
        try:
            self._meter = Meter(stage, start)
        finally:
            del _block.tell
        desk.seated.remote(stage.name, seat, next(self._attempts).life)

    def run(self, table: pa.Table) -> pa.Table:
        return _work(self._meter, table, self._desk, self._seat, next(self._attempts))

    def close(self) -> None:
        self._meter.close()


def _work(meter: Meter, table: pa.Table, desk: Any, seat: int, attempt: Attempt) -> pa.Table:
    """Call the worker with a block and let the desk know how it goes."""
    stage, shard = meter.stage, _shard(table)
    _block.tell = partial(desk.pulse.remote, stage.name, shard)
    desk.began.remote(stage.name, shard, table.num_rows, seat, attempt)
    try:
        result = meter(table)
    finally:
        del _block.tell
    counts = stage.counts(result) if stage.counts else {}
    desk.ended.remote(stage.name, shard, result.num_rows, attempt, account(stage.name, result, counts))
    return result


def _admit(table: pa.Table, desk: Any) -> pa.Table:
    import ray

    return table if ray.get(desk.admit.remote(_shard(table))) else table.slice(0, 0)


def _shard(table: pa.Table) -> int:
    return int(table.column("shard")[0].as_py())


def _carry(table: pa.Table, stage: Stage, start: int, workers: list[Any], desk: Any) -> pa.Table:
    """Take a block to a worker of the stage and bring the result back."""
    import ray

    if table.num_rows == 0:
        return stage.produces.empty_table()
    if not workers:
        return _work(Meter(stage, start), table, desk, _shard(table), Attempt(uuid.uuid4().hex, 1))
    index = ray.get(desk.take.remote(stage.name))
    try:
        return ray.get(workers[index].run.remote(table))
    finally:
        desk.give.remote(stage.name, index)


def _charge_start_up(table: pa.Table, stage: str, parts: Mapping[str, float], devices: float, start: int) -> pa.Table:
    """Put what the worker spent before its first row on the first row, as components of their own."""
    entries = [costs.entry(stage, part, spent, device_seconds=spent * devices, start=start) for part, spent in parts.items()]
    column = table.column("costs")
    first = pa.array([[*column[0].as_py(), *entries]], costs.COSTS)
    joined = pa.concat_arrays([first, *column.slice(1).chunks])
    return table.set_column(table.schema.get_field_index("costs"), pa.field("costs", costs.COSTS), joined)
