"""A stage of the pipeline, and the meter that calls its worker.

A block is one shard from the first stage to the last: a stage takes a whole block and returns one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from cluster import costs
from cluster.errors import ClusterError
from cluster.metrics.table import MetricSample
from cluster.run.border import check_border
from cluster.run.pools import Pool
from cluster.run.snapshot import BlockTotals, block_totals
from cluster.storage.traffic import take_traffic

Worker = Callable[[pa.Table], pa.Table]
_UNLINKED = pa.schema([])


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline: a class, built once per worker and called with one block at a time.

    The class declares what it does to a block's columns: `NEEDS` (required names), `ADDS` (a schema, appended) and `DROPS`
    (names); or `GIVES`, the whole schema, if it returns other rows. `link` derives the schemas.
    """

    name: str
    worker: Callable[..., Worker]
    settings: Mapping[str, Any]  # what the worker is built from: names and paths, never large objects
    consumes: pa.Schema = _UNLINKED
    produces: pa.Schema = _UNLINKED
    pool: Pool | None = None  # None: the worker is stateless and built for each block, in any process
    concurrent_blocks: int = 1  # in flight per worker, each on a thread of its own
    retries: int = 3  # of a block whose worker died
    # Called with one row on which the worker raised; returns the stage's output row, with the error in its column `errors`,
    # or raises if the row did not cause the error. None: the stage fails.
    fallback: Callable[[pa.Table, Exception], pa.Table] | None = None
    # Called with an input block and its output block; returns counts of what was added, for the progress before the commit.
    counts: Callable[[pa.Table, pa.Table], Mapping[str, int]] | None = None
    # Returns figures of an output block for the metrics; None where none are exported.
    samples: Callable[[pa.Table], Sequence[MetricSample]] | None = None
    cost_stage: str = ""  # the value of `costs.stage` in its entries; empty: `name`


def link(stages: Sequence[Stage], source: pa.Schema) -> list[Stage]:
    """Returns the stages with their schemas `consumes` and `produces`.

    Args:
        stages: In the order of the pipeline.
        source: The schema of the first stage's input.

    Raises:
        ClusterError: A stage needs a column that no stage before it adds.
    """
    linked, schema = [], source
    for stage in stages:
        worker: Any = stage.worker
        if missing := [name for name in worker.NEEDS if name not in schema.names]:
            raise ClusterError(
                "stage-table",
                f"stage {stage.name} needs {missing}, which no stage before it adds, found {schema.names}; "
                "report it: the chain of stages is at fault",
            )
        produces = getattr(worker, "GIVES", None)
        if produces is None:
            drops = getattr(worker, "DROPS", ())
            produces = pa.schema([*(field for field in schema if field.name not in drops), *worker.ADDS])
        linked.append(replace(stage, consumes=schema, produces=produces))
        schema = produces
    return linked


class Reporter(Protocol):
    """The methods of `cluster.run.progress.ProgressTracker` that workers call, in this process or another."""

    def block_started(self, stage: str, shard: int, rows: int, worker: str) -> int:
        """Records that a worker has started a block; returns the number of the attempt."""
        ...

    def block_finished(self, stage: str, shard: int, rows: int, attempt: int, totals: BlockTotals) -> object:
        """Records a stage's output block."""
        ...

    def heartbeat(
        self, stage: str, shard: int | None, attempt: int, share: float | None, spent: costs.Totals | None = None
    ) -> object:
        """Records a worker's heartbeat."""
        ...

    def reserve(self, worker: str, spent: float, wanted: float) -> float:
        """Returns the USD that a worker may have spent in all from now on."""
        ...

    def halt(self, shard: int) -> object:
        """Gives up a shard, since the budget is spent."""
        ...


class BlockHalted(Exception):
    """The worker has stopped in the middle of a block, since the run's budget is spent; the next start goes on with it."""


# What a worker raises that no row of its block has caused. Of storage: an OSError where the disk is full, the file system
# broken or the store away (UnavailableError), a ClusterError where it refuses (expired credentials, rights, a certificate).
_NOT_OF_A_ROW = (BlockHalted, OSError, ClusterError)
_thread = threading.local()  # .report, .reserve, .stopping: of the worker that is built or called in this thread


def heartbeat(share: float | None = None, spent: costs.Totals | None = None) -> None:
    """Reports progress from inside a long call; the stall timeout (`limits.stall_minutes`) starts anew.

    Has no effect on threads other than the one that built or called the worker.

    Args:
        share: Finished part of the block, 0 to 1; None if unknown.
        spent: Costs of the block so far; None if unknown.
    """
    if report := getattr(_thread, "report", None):
        report(share, spent)


def reserver() -> Callable[[float, float], float]:
    """Returns the function that reserves money for the worker that is built in this thread; any thread may call it.

    Its arguments are the USD that the worker has spent and those that it wants in addition; it returns the USD that the worker
    may have spent in all from then on. Outside a run there is no limit.
    """
    reserve: Callable[[float, float], float] | None = getattr(_thread, "reserve", None)
    return reserve or (lambda _spent, _wanted: float("inf"))


def stopping() -> Callable[[], bool]:
    """Returns the function that tells the worker that is built in this thread whether the run stops; any thread may call it.

    A run that stops admits no more shards, and may end before those in flight are committed.
    """
    told: Callable[[], bool] | None = getattr(_thread, "stopping", None)
    return told or (lambda: False)


@contextlib.contextmanager
def reporting_to(
    report: Callable[[float | None, costs.Totals | None], object],
    reserve: Callable[[float, float], float] | None = None,
    stopping: Callable[[], bool] | None = None,
) -> Iterator[None]:
    """Passes the heartbeats of this thread to `report`, during the body; its worker calls `reserve` and `stopping`."""
    _thread.report, _thread.reserve, _thread.stopping = report, reserve, stopping
    try:
        yield
    finally:
        del _thread.report, _thread.reserve, _thread.stopping


class Meter:
    """Calls a stage's worker, checks the schemas of its input and output, and attributes its time to the rows.

    What no row has caused goes to the block's column `overhead`: the seconds of a worker that adds no cost entries, and the
    requests to S3 that its process has sent since the block before.

    Called from several threads if the stage has `concurrent_blocks`. A worker may have an attribute `start_up` (part ->
    seconds that it took while the worker was built), a method `close()`, which releases its resources, and a method
    `charge_failed(row)`, which returns a row on which it raises with what it has spent on it.
    """

    def __init__(self, stage: Stage, start: int) -> None:
        """Builds the worker.

        Args:
            stage: Linked (`link`).
            start: The number of this start of the run, from 1.
        """
        began = time.perf_counter()
        self.stage, self._start = stage, start
        self._worker = stage.worker(**stage.settings)
        self._busy = costs.BusyTime()
        parts = {f"{costs.START_UP}.{part}": spent for part, spent in getattr(self._worker, "start_up", {}).items()}
        rest = time.perf_counter() - began - sum(parts.values())
        self._start_up = [parts | {costs.START_UP: rest}] if stage.pool else []  # taken by the first block

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the worker's output block, with the cost entries settled.

        Raises:
            ClusterError: The input or the output has another schema.
        """
        stage = self.stage
        if table.num_rows == 0:
            return stage.produces.empty_table()
        check_border(f"{stage.name} was given", table.schema, stage.consumes)
        with self._busy.share() as share:
            result = self._call_worker(table)
            seconds = share()
        check_border(f"{stage.name} returned", result.schema, stage.produces)
        if "costs" not in result.column_names:
            return result
        devices = stage.pool.gpus if stage.pool else 0.0
        name = stage.cost_stage or stage.name
        settled = costs.settle(result, seconds, devices, self._start)
        overhead = {"seconds": seconds} if settled is result else {}  # no row has caused the seconds
        with contextlib.suppress(IndexError):
            settled = _charge_start_up(settled, name, self._start_up.pop(), devices, self._start)
        return _charge_overhead(settled, name, overhead | take_traffic())

    def close(self) -> None:
        """Releases the worker's resources."""
        if hasattr(self._worker, "close"):
            self._worker.close()

    def _call_worker(self, table: pa.Table) -> pa.Table:
        try:
            return self._worker(table)
        except _NOT_OF_A_ROW:
            raise
        except Exception as error:
            if self.stage.fallback is None:
                raise
            return self._isolate(table, error, [max(1, table.num_rows // 20)])

    def _isolate(self, table: pa.Table, error: Exception, budget: list[int]) -> pa.Table:
        """Returns the output block with the stage's fallback in place of the rows on which the worker raises.

        Halves the block until it has those rows singly. Raises `error` if there are more than `budget[0]` of them: then the
        rows are not the cause.
        """
        if table.num_rows == 1:
            if not budget[0] or self.stage.fallback is None:
                raise error
            budget[0] -= 1
            charge = getattr(self._worker, "charge_failed", None)
            return self.stage.fallback(table if charge is None else charge(table), error)
        parts = []
        for part in (table.slice(0, table.num_rows // 2), table.slice(table.num_rows // 2)):
            try:
                parts.append(self._worker(part))
            except _NOT_OF_A_ROW:
                raise
            except Exception as inner:
                parts.append(self._isolate(part, inner, budget))
        return pa.concat_tables(parts)


def shard_of(table: pa.Table) -> int:
    """Returns the number of a block's shard."""
    return int(table.column("shard")[0].as_py())


def run_block(meter: Meter, table: pa.Table, reporter: Reporter, worker: str) -> pa.Table:
    """Calls a stage's worker with a block, and reports its start, heartbeats and end.

    Args:
        meter: Of the stage's worker.
        table: The block; empty if its shard was not admitted.
        reporter: Receives the reports.
        worker: The worker's name, the same after a restart.

    Returns:
        The block; an empty one if the input was empty or the worker has halted.

    Raises:
        ClusterError: This is attempt `Stage.retries` + 2 at the block; the workers of all earlier ones died.
    """
    stage = meter.stage
    if table.num_rows == 0:
        return stage.produces.empty_table()
    shard = shard_of(table)
    attempt = reporter.block_started(stage.name, shard, table.num_rows, worker)
    if attempt > stage.retries + 1:
        raise ClusterError(
            "worker-died",
            f"{stage.name}: {attempt - 1} workers died one after the other under shard {shard}; look at the log for why "
            "(often memory), give each more room, or make cluster.shard_size smaller",
        )
    try:
        with reporting_to(partial(reporter.heartbeat, stage.name, shard, attempt), partial(reporter.reserve, worker)):
            result = meter(table)
    except BlockHalted:
        reporter.halt(shard)
        return stage.produces.empty_table()
    counts = stage.counts(table, result) if stage.counts else {}
    samples = stage.samples(result) if stage.samples else ()
    totals = block_totals(stage.cost_stage or stage.name, table, result, counts, samples)
    reporter.block_finished(stage.name, shard, result.num_rows, attempt, totals)
    return result


def _charge_overhead(table: pa.Table, stage: str, amounts: Mapping[str, float]) -> pa.Table:
    """Returns the block with amounts in the column `overhead` of its first row."""
    entries = [{"stage": stage, "quantity": name, "amount": amount} for name, amount in amounts.items()]
    return _append_to_first(table, "overhead", entries) if entries and "overhead" in table.column_names else table


def _append_to_first(table: pa.Table, name: str, entries: list[dict[str, Any]]) -> pa.Table:
    column, place = table.column(name), table.schema.get_field_index(name)
    first = pa.array([[*(column[0].as_py() or []), *entries]], column.type)
    return table.set_column(place, table.schema.field(place), pa.concat_arrays([first, *column.slice(1).chunks]))


def _charge_start_up(table: pa.Table, stage: str, parts: Mapping[str, float], devices: float, start: int) -> pa.Table:
    """Returns the block with the worker's start-up seconds on its first row, as cost entries of their own."""
    entries = [costs.entry(stage, part, spent, device_seconds=spent * devices, start=start) for part, spent in parts.items()]
    return _append_to_first(table, "costs", entries)
