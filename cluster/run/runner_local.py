"""Runs the stages in this process, without Ray: one shard after the other, one worker per stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from cluster.run.progress import ProgressTracker, StageProgress
from cluster.run.stage import Meter, Stage, reporting_to, run_block, shard_of


class LocalRunner:
    """Runs the stages in this process; the methods are those of `cluster.run.runner_ray.RayRunner`."""

    def __init__(self, stages: Sequence[Stage], start: int) -> None:
        """Builds no worker yet.

        Args:
            stages: Linked (`cluster.run.stage.link`).
            start: The number of this start of the run, from 1.
        """
        self._stages, self._start = list(stages), start
        self._tracker = ProgressTracker({stage.name: 1 if stage.pool else 0 for stage in stages}, limit=1)

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

    def progress(self) -> dict[str, StageProgress]:
        """Returns the progress of the shard in flight, by stage."""
        return self._tracker.progress()

    def seconds_since_heartbeat(self) -> float:
        """Returns the seconds since the last report of any worker, or the last commit."""
        return self._tracker.seconds_since_heartbeat()

    def in_flight(self) -> int:
        """Returns the number of shards in flight: admitted and not committed."""
        return self._tracker.in_flight()

    def close(self) -> None:
        """Admits no more shards; the one in flight goes on."""
        self._tracker.close()

    def _build(self, stage: Stage, stack: ExitStack) -> Meter:
        with reporting_to(lambda share: self._tracker.heartbeat(stage.name, None, 0, share)):
            meter = Meter(stage, self._start)
        stack.callback(meter.close)
        if stage.pool:
            self._tracker.worker_started(stage.name, stage.name)
        return meter
