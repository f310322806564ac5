"""Runs the stages in this process, without Ray: one shard after the other, one worker per stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import pyarrow as pa

from cluster.run.meter import Meter, run_block
from cluster.run.progress import ProgressTracker
from cluster.run.stage import Stage, reporting_to, shard_of


class LocalRunner:
    """Runs the stages in this process; as `cluster.run.runner_ray.RayRunner`."""

    def __init__(self, stages: Sequence[Stage], start: int, budget_usd: float | None = None) -> None:
        """Builds no worker yet.

        Args:
            stages: Linked (`cluster.run.stage.link`).
            start: The number of this start of the run, from 1.
            budget_usd: USD that the run may cost; None: no limit.
        """
        self._stages, self._start = list(stages), start
        workers = {stage.name: 1 if stage.pool else 0 for stage in stages}
        self.tracker = ProgressTracker(workers, limit=1, budget_usd=budget_usd)
        """Of the shards in flight."""

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
                    admitted = self.tracker.admit(shard_of(table), 0.1)
                if not admitted:
                    return
                if not meters:
                    meters = [self._build(stage, stack) for stage in self._stages]
                for meter in meters:
                    table = run_block(meter, table, self.tracker, meter.stage.name)  # noqa: PLW2901
                yield from table.to_pylist()

    def _build(self, stage: Stage, stack: ExitStack) -> Meter:
        reserve = partial(self.tracker.reserve, stage.name)
        with reporting_to(partial(self.tracker.heartbeat, stage.name, None, 0), reserve, self.tracker.closed):
            meter = Meter(stage, self._start)
        stack.callback(meter.close)
        if stage.pool:
            self.tracker.worker_started(stage.name, stage.name)
        return meter
