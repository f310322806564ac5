"""A row that kills its worker is found, and nothing else is blamed."""

from collections import Counter

import pyarrow as pa
import pytest

from cluster.isolation import Isolation
from cluster.run.meter import Meter
from cluster.run.pool_sizes import Pool
from cluster.run.progress import ProgressTracker
from cluster.run.snapshot import BlockTotals
from cluster.run.stage import Stage
from tests.support.cluster import few_stages

NOTHING = BlockTotals({}, {})
BLOCKS, RETRIES = 8, 3
ROWS = 1000


@pytest.mark.parametrize("rows", [1, 2, 7, 1000])
@pytest.mark.parametrize("isolation", [Isolation(), Isolation(1, (0, 1)), Isolation(left_out=(0,)), Isolation(2, (0, 1), (0,))])
def test_the_parts_of_a_block_cover_it_once(rows: int, isolation: Isolation) -> None:
    parts = isolation.parts(rows, RETRIES)
    assert [row for first, end in parts for row in range(first, end)] == list(range(rows))
    assert all((row, row + 1) in parts for row in isolation.left_out)


@pytest.fixture
def tracker() -> ProgressTracker:
    return ProgressTracker({"rewrite": 1}, limit=100)


def turn(tracker: ProgressTracker, left: list[int], poison: dict[int, int], rows: int = ROWS) -> Counter[int]:
    """A worker has as many blocks as it can and dies under a poisoned one, or ends them; returns those it died with."""
    started = {shard: tracker.block_started("rewrite", shard, rows, "w") for shard in left[:BLOCKS]}
    had = [shard for shard, attempt in started.items() if attempt]
    assert had, "the worker stands still"
    for shard in had:
        isolation = tracker.isolation("rewrite", shard) or Isolation()
        for first, end in isolation.parts(rows, RETRIES):
            if first in isolation.left_out:
                continue
            tracker.part_started("rewrite", shard, first, end)
            if first <= poison.get(shard, -1) < end:
                tracker.worker_started("rewrite", "w")
                return Counter(had)
    for shard in had:
        tracker.block_finished("rewrite", shard, rows, started[shard], NOTHING)
        tracker.mark_committed(shard)
        left.remove(shard)
    return Counter()


@pytest.mark.parametrize("row", [0, 1, 499, 998, 999])
def test_of_eight_blocks_in_a_worker_only_the_culprit_counts_its_deaths(tracker: ProgressTracker, row: int) -> None:
    left, deaths, found = list(range(20)), Counter[int](), Isolation()
    while left:
        deaths += turn(tracker, left, {3: row})
        found = tracker.isolation("rewrite", 3) or found
        assert all((tracker.isolation("rewrite", shard) or Isolation()).deaths == 0 for shard in range(20) if shard != 3)
        assert found.deaths <= RETRIES
    assert found.left_out == (row,)
    assert deaths == Counter(dict.fromkeys(range(BLOCKS), 1) | {3: 1 + RETRIES + 1})


def test_a_block_in_a_stage_behind_that_of_the_culprit_is_not_blamed() -> None:
    tracker = ProgressTracker({"rerank": 1, "write": 1}, limit=9)
    for _ in range(4):
        ahead = tracker.block_started("write", 0, 9, "w")
        if tracker.block_started("rerank", 1, 9, "w"):
            tracker.worker_started("rerank", "w")  # the one before has died
        else:
            tracker.block_finished("write", 0, 9, ahead, NOTHING)
    assert (tracker.isolation("write", 0), tracker.isolation("rerank", 1)) == (None, Isolation(1, (0, 9)))


def test_two_culprits_in_one_worker_are_both_found(tracker: ProgressTracker) -> None:
    left, found = list(range(BLOCKS)), {}
    while left:
        turn(tracker, left, {2: 10, 5: 700})
        found |= {shard: one.left_out for shard in (2, 5) if (one := tracker.isolation("rewrite", shard))}
    assert found == {2: (10,), 5: (700,)}


def test_a_block_that_waits_to_be_alone_is_not_overtaken_for_ever(tracker: ProgressTracker) -> None:
    for shard in (0, 1):
        tracker.block_started("rewrite", shard, 9, "w")
    tracker.worker_started("rewrite", "w")
    assert tracker.block_started("rewrite", 2, 9, "w") == 1  # a new one, before the two are back
    assert tracker.block_started("rewrite", 0, 9, "w") == 0
    assert tracker.block_started("rewrite", 3, 9, "w") == 0, "the suspected block would never be alone"
    tracker.block_finished("rewrite", 2, 9, 1, NOTHING)
    assert tracker.block_started("rewrite", 0, 9, "w") == 2
    assert tracker.block_started("rewrite", 1, 9, "w") == 0
    assert tracker.block_started("rewrite", 3, 9, "v") == 1, "another worker is free"


def test_a_node_that_goes_blames_no_block() -> None:
    tracker = ProgressTracker({"rewrite": 1}, limit=9, node_alive=lambda node: node != "spot")
    for attempt in range(1, 9):  # preempted again and again
        assert tracker.block_started("rewrite", 0, 9, "w", "spot") == attempt
        tracker.worker_started("rewrite", "w")
        assert tracker.isolation("rewrite", 0) is None
    tracker.block_started("rewrite", 0, 9, "w", "here")
    tracker.worker_started("rewrite", "w")
    assert tracker.isolation("rewrite", 0) == Isolation(1, (0, 9))


def test_a_worker_that_raises_on_all_rows_blames_none_of_them_though_they_are_run_singly() -> None:
    class Broken:
        NEEDS, ADDS = ("query_id",), few_stages.SEEN

        def __call__(self, table: pa.Table) -> pa.Table:
            raise RuntimeError("the accelerator is gone")

    def fallback(table: pa.Table, error: Exception) -> pa.Table:
        return table.append_column("seen", pa.array([0], pa.int32()))

    grow, broken, _ = few_stages.chain(Stage("broken", Broken, {}, pool=Pool(1, 1, 0), fallback=fallback))
    block = Meter(grow, 1)(few_stages.places(1)[0]).slice(0, 2)
    with pytest.raises(RuntimeError, match="the accelerator is gone"):
        Meter(broken, 1)(block, Isolation(3, (0, 2)))
