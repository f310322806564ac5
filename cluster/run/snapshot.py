"""Snapshot of a run at one moment: each stage, and the whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.costs import Totals, totals
from cluster.outages import Outage


class BlockTotals(NamedTuple):
    """Costs and counts that a stage added to a block."""

    spent: Totals
    counts: Mapping[str, int]


def block_totals(stage: str, given: pa.Table, table: pa.Table, counts: Mapping[str, int]) -> BlockTotals:
    """Returns the costs and counts that a stage (value of `costs.stage`) added to its block."""
    if "costs" not in table.column_names:
        return BlockTotals({}, counts)
    lists = table.column("costs").combine_chunks()
    flat = lists.flatten()
    if "costs" in given.column_names:  # before those that were appended
        before, after = (pc.fill_null(pc.list_value_length(one), 0).to_numpy() for one in (given.column("costs"), lists))
        places = np.arange(len(flat)) - np.repeat(np.cumsum(after) - after, after)  # of each entry in its row's list
        flat = flat.filter(pa.array(places >= np.repeat(before, after)))
    return BlockTotals(totals(flat.filter(pc.equal(flat.field("stage"), stage))), counts)


class StageProgress(NamedTuple):
    """Progress of the in-flight shards in one stage. Each row counts in one of `done`, `in_flight`, `waiting`."""

    done: int  # rows that have passed this stage
    in_flight: int  # rows of blocks that its workers are processing
    waiting: int  # rows that have passed the stage before and are not started here
    busy_seconds: float  # time with at least one block in flight, summed over the workers
    workers: int
    ready_workers: int  # started workers; all of them for a stage without a pool
    spent: Totals
    counts: Mapping[str, int]
    queued_seconds: float = 0.0  # between the end of the stage before and the begin here, summed over the shards


@dataclass
class ShardState:
    """Position of a shard in flight; `worker` is None while it waits for a worker."""

    stage: int = 0
    rows: int = 0
    worker: str | None = None
    attempt: int = 0
    share: float = 0.0  # of its rows that the worker has finished
    began: float = 0.0  # when the worker started the block
    left: float | None = None  # when it was last taken from a worker, finished or lost
    node: str = ""  # of the worker
    block_rows: int = 0  # of the block that the stage was given
    spent: Totals = field(default_factory=dict)  # by the worker so far
    totals: dict[int, BlockTotals] = field(default_factory=dict)  # stage -> totals

    def queued(self, stage: int, now: float) -> float:
        """Returns the seconds for which it has waited for a worker of a stage until `now`; 0 where it does not."""
        return now - self.left if self.worker is None and self.stage == stage and self.left is not None else 0.0


class Snapshot(NamedTuple):
    """State of a run at one moment."""

    stages: Mapping[str, StageProgress]  # in the order of the stages
    queries: int  # of the shards in flight
    halted: int  # shards that were given up, since the budget is spent
    outages: list[Outage]  # that workers wait out
    retries: list[tuple[str, int, int]]  # stage, shard and attempt of each block that was begun again, as its worker has died


NOTHING = Snapshot({}, 0, 0, [], [])
