"""Runs the stages on Ray Data: one dataset per run, one block per shard.

A stage with a pool is a `map_batches` over an actor pool, whose workers hold a model, an index or an engine; the stages without
a pool behind it run in its workers. Those in front of the first pool are a `map_batches` over tasks, which wait for admission.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import pyarrow as pa

from cluster.metrics.exporter import Exporter
from cluster.outages import outages
from cluster.run.meter import Meter, run_block
from cluster.run.progress import TASKS, ProgressTracker
from cluster.run.pulse import outages_reported, reported_while_busy
from cluster.run.snapshot import NOTHING, Snapshot
from cluster.run.stage import Stage, groups, reporting_to, shard_of, shards_in_flight

_ADMISSION_SECONDS = 1.0  # timeout of one call of `admit`
_PROGRESS_SECONDS = 0.2  # timeout of the driver's loop for the tracker's progress
_REPLY_SECONDS = 5.0  # timeout of the calls in `_UNANSWERED`
_SENT = {"heartbeat", "report_outages", "worker_stopped", "mark_committed", "spent_elsewhere", "close"}  # not waited for
_UNANSWERED: dict[str, Any] = {"closed": False, "seconds_since_heartbeat": 0.0, "in_flight": 1}


class RayRunner:
    """Runs the stages on the Ray cluster that this process is connected to."""

    def __init__(
        self,
        stages: Sequence[Stage],
        start: int,
        shards: int = 0,
        budget_usd: float | None = None,
        metrics: Exporter | None = None,
    ) -> None:
        """Starts the actor that tracks the progress; workers start with `run`.

        `stages` are linked (`cluster.run.stage.link`), `start` is the number of this start of the run, from 1, and `shards` the
        number of shards to run; 0: unknown. The run may cost `budget_usd`; None: without a limit.
        """
        import ray

        self._groups, self._start = groups(stages), start
        workers = {stage.name: group[0].pool.workers if group[0].pool else 0 for group in self._groups for stage in group}
        limit = shards_in_flight(stages, shards)
        tracker = ray.remote(ProgressTracker).options(**tracker_options(ray.get_runtime_context().get_node_id()))
        self._actor = tracker.remote(workers, limit, budget_usd, metrics=metrics, node_alive=node_alive)
        self.tracker = cast(ProgressTracker, RemoteTracker(self._actor))
        """Of the shards in flight. A restarted one is open: `close` is to be called again and again."""

    def run(self, shards: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
        """Yields the last stage's rows, as dicts, in the order in which the shards end."""
        import ray
        from ray.data import ActorPoolStrategy, DataContext, TaskPoolStrategy

        context = DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False  # the job shows its own progress
        context.target_max_block_size = None  # a block is a shard and is never split
        context.execution_options.preserve_order = False
        context.execution_no_progress_timeout_s = -1  # the job has its own: limits.stall_minutes
        # A pool grows when every worker has `concurrent_blocks` in flight. The default threshold, 1.75, cannot be reached with
        # one more block queued: the utilization is at most (blocks + 1) / blocks.
        context.autoscaling_config.actor_pool_util_upscaling_threshold = 1.0
        blocks = list(shards)
        # Not `from_arrow`, which runs a task for the metadata of each block.
        data = ray.data.from_blocks(blocks)
        batches: dict[str, Any] = {"batch_size": None, "batch_format": "pyarrow", "zero_copy_batch": True}
        for group in self._groups:
            stage, pool = group[0], group[0].pool
            common = {"start": self._start, "tracker": self._actor}
            if pool is None:
                # Waiting for admission takes no CPU. A `size` of its own keeps Ray Data from fusing it with an actor pool.
                data = data.map_batches(
                    _run_admitted, fn_kwargs={"stages": group, **common}, num_cpus=0,
                    compute=TaskPoolStrategy(size=min(max(1, len(blocks)), TASKS)), **batches,
                )  # fmt: skip
                continue
            compute = ActorPoolStrategy(
                min_size=pool.workers,
                max_size=pool.max_workers,
                max_tasks_in_flight_per_actor=stage.concurrent_blocks + 1,  # one more is queued
                max_concurrent_calls_per_actor=stage.concurrent_blocks,
                enable_true_multi_threading=True,
            )
            # `map_batches` requires a batch size with GPUs, and merges blocks up to that size. The internal method, which Ray's
            # `map_groups` uses for the same reason, passes blocks unchanged.
            data = data.map_batches_internal(
                type(stage.name.capitalize(), (_BlockActor,), {}),  # Ray shows the class name
                fn_constructor_kwargs={"stages": group, **common}, compute=compute,
                num_cpus=pool.cpus, num_gpus=pool.gpus or None, **batches,
            )  # fmt: skip
        for batch in data.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from batch.to_pylist()

    def drop(self) -> None:
        """Does nothing: workers end with the session."""


def tracker_options(node: str) -> dict[str, Any]:
    """Returns options of the tracker's actor: on the driver's node, so that what was granted is lost with the driver alone."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    beside = NodeAffinitySchedulingStrategy(node, soft=False)
    return {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "max_concurrency": 64, "scheduling_strategy": beside}


def node_alive(node: str) -> bool:
    """Returns True if a node of the cluster is there."""
    import ray

    return all(one["Alive"] for one in ray.nodes() if one["NodeID"] == node)


class RemoteTracker:
    """Calls the methods of the tracker's actor, as if it were a `ProgressTracker` of this process.

    Replies are waited for, so that reports arrive in order, but for those of `_SENT`; without a reply, as while the tracker is
    being restarted, the methods in `_UNANSWERED` return their values, and `progress` its last reply.
    """

    def __init__(self, actor: Any) -> None:
        import ray

        self._actor, self._node = actor, ray.get_runtime_context().get_node_id()
        self._progress = NOTHING  # the last reply
        self._pending: Any = None  # the call of `progress` that has no reply yet

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Returns a method of the tracker, to be called in its process."""
        return partial(self._call, method)

    def block_started(self, stage: str, shard: int, rows: int, worker: str) -> int:
        """Calls `ProgressTracker.block_started` with this process's node."""
        return int(self._call("block_started", stage, shard, rows, worker, self._node))

    def progress(self) -> Snapshot:
        """Returns a snapshot of the work; the last one if the tracker is slow."""
        import ray

        try:
            self._pending = self._pending or self._actor.progress.remote()
            self._progress, self._pending = ray.get(self._pending, timeout=_PROGRESS_SECONDS), None
        except ray.exceptions.GetTimeoutError:
            pass
        except ray.exceptions.RayError:
            self._pending = None
        return self._progress

    def _call(self, method: str, *arguments: object) -> Any:
        import ray

        reply = getattr(self._actor, method).remote(*arguments)
        if method in _SENT:
            return None
        if method not in _UNANSWERED:
            return ray.get(reply)
        try:
            return ray.get(reply, timeout=_REPLY_SECONDS)
        except ray.exceptions.RayError:
            return _UNANSWERED[method]


class _BlockActor:
    """A pool's actor: the workers of the pool's stage and of the stages behind it, with their meters."""

    def __init__(self, stages: Sequence[Stage], start: int, tracker: Any) -> None:
        import ray

        self._tracker: Any = RemoteTracker(tracker)
        self._worker = ray.get_runtime_context().get_actor_id()  # the same after a restart
        self._pulse = outages_reported(partial(self._tracker.report_outages, self._worker))
        self._pulse.__enter__()  # as long as the actor lives
        heard = partial(self._tracker.heartbeat, stages[0].name, None, 0)
        # A worker may copy an index for minutes while it is built; an engine loads its model in one call.
        with (
            reported_while_busy(partial(heard, None, None)),
            reporting_to(
                report=heard,
                # A restarted actor has the same id and has spent nothing: it is another worker, or it gets the money again.
                reserve=partial(self._tracker.reserve, f"{self._worker}/{uuid.uuid4().hex}"),
                stopping=self._tracker.closed,
            ),
        ):
            self._meters = [Meter(stage, start, own_process=True) for stage in stages]
        for stage in stages:
            self._tracker.worker_started(stage.name, self._worker)

    def __call__(self, table: pa.Table) -> pa.Table:
        for meter in self._meters:
            table = run_block(meter, table, self._tracker, self._worker)
        return table

    def __del__(self) -> None:  # Ray Data deletes the worker when it shrinks the pool
        with contextlib.suppress(Exception):
            self._tracker.report_outages(self._worker, outages())
            for meter in self._meters:
                self._tracker.worker_stopped(meter.stage.name, self._worker)
                meter.close()


def _run_admitted(table: pa.Table, stages: Sequence[Stage], start: int, tracker: Any) -> pa.Table:
    """Returns a block after the stages before the first pool, once it is admitted; empty if the gate is closed."""
    progress: Any = RemoteTracker(tracker)
    shard = shard_of(table)
    while (admitted := progress.admit(shard, _ADMISSION_SECONDS)) is None:
        pass
    if not admitted:
        return stages[-1].produces.empty_table()
    worker = f"task-{shard}"
    with outages_reported(partial(progress.report_outages, worker)):
        for stage in stages:
            table = run_block(Meter(stage, start), table, progress, worker)
    return table
