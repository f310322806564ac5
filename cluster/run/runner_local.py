"""Runs the stages in this process, without Ray: one shard after the other, one worker per stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import pyarrow as pa

from cluster.run.meter import Meter, run_block
from cluster.run.progress import ProgressTracker
from cluster.run.snapshot import BlockAttempt, Snapshot
from cluster.run.stage import Stage, reporting_to, shard_of


class LocalRunner:
    """Runs the stages in this process; the methods are those of `cluster.run.runner_ray.RayRunner`."""

    def __init__(self, stages: Sequence[Stage], start: int, budget_usd: float | None = None) -> None:
        """Builds no worker yet.

        Args:
            stages: Linked (`cluster.run.stage.link`).
            start: The number of this start of the run, from 1.
            budget_usd: USD that the run may cost; None: no limit.
        """
        self._stages, self._start = list(stages), start
        workers = {stage.name: 1 if stage.pool else 0 for stage in stages}
        self._tracker = ProgressTracker(workers, limit=1, budget_usd=budget_usd)

    def run(self, shards: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
        """Yields the last stage's rows, as dicts. Builds the workers with the first shard and closes them at the end.

        Args:
            shards: One-row tables with the column `shard`.
        """
        with ExitStack() as stack:
            meters: list[Meter] = []
            for table in shards:
                admitted = None
                while admitted is None:  # the shard before is not committed
                    admitted = self._tracker.admit(shard_of(table), 0.1)
                if not admitted:
                    return
                if not meters:
                    meters = [self._build(stage, stack) for stage in self._stages]
                for meter in meters:
                    table = run_block(meter, table, self._tracker, meter.stage.name)  # noqa: PLW2901
                yield from table.to_pylist()

    def mark_committed(self, shard: int) -> None:
        """Records a commit, so that the next shard is admitted."""
        self._tracker.mark_committed(shard)

    def progress(self) -> Snapshot:
        """Returns what is going on."""
        return self._tracker.progress()

    def attempts(self, shard: int | None = None) -> dict[int, list[BlockAttempt]]:
        """Returns shard -> the attempts at its blocks; see `ProgressTracker.attempts`."""
        return self._tracker.attempts(shard)

    def seconds_since_heartbeat(self) -> float:
        """Returns the seconds since the last report of any worker, or the last commit."""
        return self._tracker.seconds_since_heartbeat()

    def in_flight(self) -> int:
        """Returns the number of shards in flight: admitted and not committed."""
        return self._tracker.in_flight()

    def spent_elsewhere(self, usd: float) -> None:
        """Records what the run has cost apart from reserved money."""
        self._tracker.spent_elsewhere(usd)

    def close(self) -> None:
        """Admits no more shards; the one in flight goes on."""
        self._tracker.close()

    def _build(self, stage: Stage, stack: ExitStack) -> Meter:
        reserve = partial(self._tracker.reserve, stage.name)
        with reporting_to(partial(self._tracker.heartbeat, stage.name, None, 0), reserve, self._tracker.closed):
            meter = Meter(stage, self._start)
        stack.callback(meter.close)
        if stage.pool:
            self._tracker.worker_started(stage.name, stage.name)
        return meter
