"""The meter, which calls a stage's worker with blocks: checks their schemas, attributes time, keeps errors to their rows."""

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from cluster import costs
from cluster.cause import KilledWorkerError
from cluster.errors import ClusterError, DmqrError
from cluster.isolation import NO_DEATH, Isolation
from cluster.run.progress import ProgressTracker
from cluster.run.snapshot import block_totals
from cluster.run.stage import BlockHalted, Stage, reporting_to, shard_of
from cluster.storage.s3_client import take_traffic

# Errors that no row of the block has caused: a full disk, storage that is away (OSErrors), and what a person has to correct,
# such as an index, a key or a server that was waited for already. Halving the block would wait for it once more per half.
_NOT_OF_A_ROW = (BlockHalted, OSError, DmqrError)
_TURN_SECONDS = 0.2  # between two questions whether a block may start


class Meter:
    """Calls a stage's worker, checks the schemas of its input and output, and attributes its time to the rows.

    What no row has caused goes to the block's column `overhead`: the seconds of a worker that adds no cost entries, and the
    requests to S3 of its process since the block before.

    Thread-safe. A worker may have an attribute `start_up` (part -> seconds while it was built) and a method `close()`. What
    it has spent on a row on which it raises, its error says (`charge_failure`).
    """

    def __init__(self, stage: Stage, start: int, *, own_process: bool = False) -> None:
        began = time.perf_counter()
        self.stage, self._start = stage, start
        self._worker = stage.worker(**stage.settings)
        if own_process:  # which ends with the job
            # What is there now stays: a worker that searches Elasticsearch spent 60 % of its CPU time on looking through it for
            # garbage (1,500 searches: 1.03 -> .42 s).
            gc.collect()
            gc.freeze()
        self._busy = costs.BusyTime()
        parts = {f"{costs.START_UP}.{part}": spent for part, spent in getattr(self._worker, "start_up", {}).items()}
        rest = time.perf_counter() - began - sum(parts.values())
        self._start_up = iter([parts | {costs.START_UP: rest}] if stage.pool else [])  # taken by the first block

    def __call__(
        self,
        table: pa.Table,
        isolation: Isolation = NO_DEATH,
        part_started: Callable[[int, int], object] = lambda _first, _end: None,
    ) -> pa.Table:
        """Returns the worker's output block, with the cost entries settled; raises ClusterError for another schema.

        With `isolation`, what is known of deaths with the block, it is run in parts; `part_started` hears the rows of each.
        """
        stage = self.stage
        if table.num_rows == 0:
            return stage.produces.empty_table()
        check_border(f"{stage.name} was given", table.schema, stage.consumes)
        budget = [max(1, table.num_rows // 20)]  # rows on which the worker may raise, in whatever parts they are
        with self._busy.share() as share:
            parts = []
            for first, end in isolation.parts(table.num_rows, stage.retries):
                rows = table.slice(first, end - first)
                if first in isolation.left_out:
                    parts.append(self._left_out(rows))
                    continue
                if rows.num_rows < table.num_rows:
                    part_started(first, end)
                parts.append(self._call_worker(rows, budget))
            result = pa.concat_tables(parts)
            seconds = share()
        check_border(f"{stage.name} returned", result.schema, stage.produces)
        if "costs" not in result.column_names:
            return result
        name, devices = stage.cost_stage or stage.name, stage.pool.gpus if stage.pool else 0.0
        settled, charged = costs.settle(result, seconds, devices, self._start)
        start_up = next(self._start_up, {}).items()
        start_costs = [costs.entry(name, p, s, device_seconds=s * devices, start=self._start) for p, s in start_up]
        overhead = ({} if charged else {"seconds": seconds}) | take_traffic()  # no row has caused the seconds
        amounts = [{"stage": name, "quantity": quantity, "amount": amount} for quantity, amount in overhead.items()]
        return _append_to_first(_append_to_first(settled, "costs", start_costs), "overhead", amounts)

    def close(self) -> None:
        if hasattr(self._worker, "close"):
            self._worker.close()

    def _left_out(self, row: pa.Table) -> pa.Table:
        """Returns the output of a row under which workers have died: that of the stage's fallback."""
        if self.stage.fallback is None:
            named = f"query {row.column('query_id')[0]}" if "query_id" in row.column_names else "one row"
            problem = f"workers died one after the other under {named} of shard {shard_of(row)} alone, and the others ended"
            remedy = "remove the query, or give each worker more memory (the job's log says why)"
            raise ClusterError("worker-died", f"{self.stage.name}: {problem}; {remedy}")
        return self.stage.fallback(row, KilledWorkerError(f"workers of {self.stage.name} died under this query alone"))

    def _call_worker(self, table: pa.Table, budget: list[int]) -> pa.Table:
        """Returns the worker's output block; halves it until it has the rows on which the worker raises singly.

        They have the stage's fallback. With more than `budget[0]` of them the error is raised: the rows are not the cause.
        """
        bear = partial(self._bear, table.num_rows, budget, list[Exception]())
        try:
            with reporting_to(bear=bear):
                return self._worker(table)
        except _NOT_OF_A_ROW:
            raise
        except Exception as error:
            if self.stage.fallback is None:
                raise
            spent = error.__dict__.pop("spent", [])
            if table.num_rows == 1:
                bear(error)
                return self.stage.fallback(_append_to_first(table, "costs", spent), error)
            halves = table.slice(0, table.num_rows // 2), table.slice(table.num_rows // 2)
            return pa.concat_tables([self._call_worker(half, budget) for half in halves])

    def _bear(self, rows: int, budget: list[int], borne: list[Exception], error: Exception) -> None:
        """Counts a row, once, on which a worker has raised; raises the error where that must not be borne."""
        if rows > 1 or not (borne or budget[0]) or self.stage.fallback is None or isinstance(error, _NOT_OF_A_ROW):
            raise error
        budget[0] -= not borne
        borne.append(error)


def run_block(meter: Meter, table: pa.Table, tracker: ProgressTracker, worker: str) -> pa.Table:
    """Calls a stage's worker, by its name also after a restart, with a block; reports its start, heartbeats and end.

    The result is empty where the block is, or where the worker has halted. Raises ClusterError if `Stage.retries` + 1 workers
    died with this block alone, and not under one row of it.
    """
    stage = meter.stage
    if table.num_rows == 0:
        return stage.produces.empty_table()
    shard = shard_of(table)
    while not (attempt := tracker.block_started(stage.name, shard, table.num_rows, worker)):
        time.sleep(_TURN_SECONDS)
    isolation = (tracker.isolation(stage.name, shard) if attempt > 1 else None) or NO_DEATH
    if isolation.deaths > stage.retries:
        first, end = isolation.row_range or (0, table.num_rows)
        rows = f"the last in rows {first + 1} to {end} of its {table.num_rows}"
        problem = f"{isolation.deaths} workers died one after the other under shard {shard} alone, {rows}"
        remedy = "see the log for the cause; for memory, give each worker more"
        raise ClusterError("worker-died", f"{stage.name}: {problem}; {remedy}")
    try:
        report = partial(tracker.heartbeat, stage.name, shard, attempt)
        with reporting_to(report=report, reserve=partial(tracker.reserve, worker)):
            result = meter(table, isolation if stage.pool else NO_DEATH, partial(tracker.part_started, stage.name, shard))
    except BlockHalted:
        tracker.halt(shard)
        return stage.produces.empty_table()
    counts = stage.counts(table, result) if stage.counts else {}
    totals = block_totals(stage.cost_stage or stage.name, table, result, counts)
    tracker.block_finished(stage.name, shard, result.num_rows, attempt, totals)
    return result


def _append_to_first(table: pa.Table, name: str, entries: list[dict[str, Any]]) -> pa.Table:
    """Returns the block with entries appended to a column of its first row, where there are both."""
    if not entries or name not in table.column_names:
        return table
    column, index = table.column(name), table.schema.get_field_index(name)
    first = pa.array([[*(column[0].as_py() or []), *entries]], column.type)
    return table.set_column(index, table.schema.field(index), pa.concat_arrays([first, *column.slice(1).chunks]))


def check_border(where: str, given: pa.Schema, wanted: pa.Schema) -> None:
    """Raises ClusterError, which names missing and unknown columns, if a table's schema is not the stage's."""
    if given.equals(wanted, check_metadata=False):
        return
    missing, unknown = ([f"{f.name}: {f.type}" for f in a if f not in list(b)] for a, b in ((wanted, given), (given, wanted)))
    problem = f"missing {missing}, unknown {unknown}, found {given.names}; report it as a bug of this stage"
    raise ClusterError("internal-error", f"{where} a table that differs from its schema: {problem}")
