"""A row that kills its worker is found, and nothing else is blamed: by the tracker alone, and by workers of a Ray that die."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cluster.costs import COSTS
from cluster.isolation import Isolation
from cluster.run.meter import Meter
from cluster.run.pool_sizes import Pool, PoolRequest
from cluster.run.progress import ProgressTracker
from cluster.run.runner_ray import RayRunner, node_alive, tracker_options
from cluster.run.session import Session
from cluster.run.snapshot import BlockTotals
from cluster.run.stage import Stage, link

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
        NEEDS, ADDS = ("query_id",), pa.schema([("ok", pa.bool_())])

        def __call__(self, table: pa.Table) -> pa.Table:
            raise RuntimeError("the accelerator is gone")

    stages = [
        Stage("grow", Grow, {}),
        Stage("broken", Broken, {}, pool=Pool(1, 1, 0), fallback=passed),
        Stage("told", Told, {}),
    ]
    grow, broken, _ = link(stages, PLACE)
    block = Meter(grow, 1)(pa.table({"shard": [0]}, schema=PLACE)).slice(0, 2)
    with pytest.raises(RuntimeError, match="the accelerator is gone"):
        Meter(broken, 1)(block, Isolation(3, (0, 2)))


def passed(table: pa.Table, error: Exception) -> pa.Table:
    return table.append_column("ok", pa.array([False]))


# ---------------------------------------------------------------- workers of a Ray

EACH, POISON = 30, 2 * 30 + 17  # the row of shard 2 that kills
PLACE = pa.schema([("shard", pa.int32())])
OUT = pa.schema([("shard", pa.int32()), ("query_id", pa.string()), ("costs", COSTS)])


class Grow:
    NEEDS, GIVES = ("shard",), OUT

    def __call__(self, table: pa.Table) -> pa.Table:
        shard = table.column("shard")[0].as_py()
        ids = [str(shard * EACH + row) for row in range(EACH)]
        return pa.table([[shard] * EACH, ids, [[]] * EACH], schema=OUT)


class Poisoned:
    NEEDS, ADDS = ("query_id",), pa.schema([("ok", pa.bool_())])

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def __call__(self, table: pa.Table) -> pa.Table:
        if str(POISON) in table.column("query_id").to_pylist():
            (self._folder / f"died-{os.getpid()}").touch()
            os._exit(1)
        return table.append_column(self.ADDS.field(0), pa.array([True] * table.num_rows))


class Told:
    NEEDS, GIVES = ("ok",), pa.schema([("shard", pa.int32()), ("bad", pa.list_(pa.string()))])

    def __call__(self, table: pa.Table) -> pa.Table:
        bad = [one["query_id"] for one in table.to_pylist() if not one["ok"]]
        return pa.table([[table.column("shard")[0].as_py()], [bad]], schema=self.GIVES)


def not_ok(table: pa.Table, error: Exception) -> pa.Table:
    assert "died under this query alone" in str(error)
    return table.append_column(Poisoned.ADDS.field(0), pa.array([False]))


@pytest.fixture(scope="module")
def ray_session() -> Iterator[None]:
    import ray

    session = Session("local", {"poisoned": PoolRequest(workers=1, cpus=1)})
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        yield
    finally:
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        session.close()


@pytest.mark.slow
@pytest.mark.parametrize("fallback", [not_ok, None])
def test_the_row_that_kills_is_left_out_or_named(ray_session: None, tmp_path: Path, fallback: object) -> None:
    pool = Pool(1, 1, 0)
    poisoned = Stage(
        "poisoned", Poisoned, {"folder": str(tmp_path)}, pool=pool, concurrent_blocks=4, fallback=fallback  # type: ignore[arg-type]
    )  # fmt: skip
    runner = RayRunner(link([Stage("grow", Grow, {}), poisoned, Stage("told", Told, {})], PLACE), start=1)
    found: dict[int, list[str]] = {}

    def run() -> None:
        for row in runner.run(pa.table({"shard": [n]}, schema=PLACE) for n in range(4)):
            found[row["shard"]] = row["bad"]
            runner.tracker.mark_committed(row["shard"])

    if fallback is None:
        with pytest.raises(Exception, match=f"workers died .* under query {POISON} of shard 2 alone"):
            run()
    else:
        run()
        assert found == {0: [], 1: [], 2: [str(POISON)], 3: []}
    assert RETRIES + 1 <= len(list(tmp_path.glob("died-*"))) <= RETRIES + 2


@pytest.mark.slow
def test_the_tracker_lives_on_the_drivers_node(ray_session: None) -> None:
    import ray

    node = ray.get_runtime_context().get_node_id()
    where = tracker_options(node)["scheduling_strategy"]
    assert (where.node_id, where.soft) == (node, False)
    assert node_alive(node)
