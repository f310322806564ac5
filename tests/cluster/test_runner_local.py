"""The stages in threads of one process: rows as of one shard after the other, whatever is slow or fails; and its ends."""

import gc
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from cluster.costs import COSTS, entry
from cluster.run.meter import Meter
from cluster.run.pool_sizes import Pool
from cluster.run.runner_local import THREAD, LocalRunner
from cluster.run.stage import BlockHalted, Stage, heartbeat, link
from tests.support.waits import until

PLACE = pa.schema([("shard", pa.int32())])
ROWS = pa.schema(
    [("shard", pa.int32()), ("row", pa.int32()), ("value", pa.int64()), ("costs", COSTS), ("errors", pa.list_(pa.string()))]
)
GIVEN = pa.schema([("shard", pa.int32()), ("rows", pa.string())])
POOL = Pool(1, 1, 0)
EACH = 5


class World:
    """Events of a run, by a seed: delays, rows on which a worker raises, a block on which all of it does."""

    def __init__(self, seed: int, broken: tuple[str, int] | None = None, delay: float = 0.004, faults: bool = True) -> None:
        self.seed, self.broken, self.delay, self.faults = seed, broken, delay, faults
        self.under_way: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.closed: list[str] = []
        self.built: list[str] = []
        self.lock = threading.Lock()

    def happens(self, stage: str, table: pa.Table) -> None:
        shard = table["shard"][0].as_py()
        with self.lock:
            self.under_way[stage] += 1
            self.most[stage] = max(self.most[stage], self.under_way[stage])
        try:
            time.sleep(random.Random(f"{self.seed} {stage} {shard}").random() * self.delay)
            heartbeat(0.5)
            if self.broken == (stage, shard):
                raise MemoryError(f"{stage} {shard}")
            unfit = random.Random(f"{self.seed} {stage} {shard} fails").randrange(4 * EACH)  # a row, in one block of four
            if self.faults and stage.startswith("map") and unfit in table["row"].to_pylist():
                raise ValueError(f"{stage} {unfit}")
        finally:
            with self.lock:
                self.under_way[stage] -= 1


class Grow:
    NEEDS, GIVES = ("shard",), ROWS

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        world.built.append(name)

    def __call__(self, table: pa.Table) -> pa.Table:
        self.world.happens(self.name, table)
        shard = table["shard"][0].as_py()
        rows = [{"shard": shard, "row": n, "value": shard * 100 + n, "costs": [], "errors": []} for n in range(EACH)]
        return pa.Table.from_pylist(rows, ROWS)

    def close(self) -> None:
        self.world.closed.append(self.name)


class Map(Grow):
    NEEDS: ClassVar[tuple[str, ...]] = ("value", "costs")
    ADDS = pa.schema([])
    GIVES = None

    def __call__(self, table: pa.Table) -> pa.Table:
        self.world.happens(self.name, table)
        rows = table.to_pylist()
        for row in rows:
            row["value"] = row["value"] * 31 + len(self.name)
            row["costs"].append(entry(self.name, "m", requests=1))
        return pa.Table.from_pylist(rows, table.schema)


class Halting(Map):
    def __call__(self, table: pa.Table) -> pa.Table:
        if table["shard"][0].as_py() >= 2:
            raise BlockHalted
        return super().__call__(table)


class Give(Grow):
    NEEDS, GIVES = ("value", "errors"), GIVEN

    def __call__(self, table: pa.Table) -> pa.Table:
        self.world.happens(self.name, table)
        rows = [
            (row["row"], row["value"], row["errors"], sum(one["requests"] for one in row["costs"])) for row in table.to_pylist()
        ]
        return pa.table({"shard": [table["shard"][0].as_py()], "rows": [repr(rows)]}, schema=GIVEN)


def without(row: pa.Table, error: Exception) -> pa.Table:
    values = row.to_pylist()
    values[0]["errors"].append(str(error))
    return pa.Table.from_pylist(values, row.schema)


def chain(world: World, *middle: tuple[type[Map], Pool | None, int]) -> list[Stage]:
    """The stages grow, map0, ..., give; of each in the middle, what works, its pool and its blocks at a time."""
    found = [Stage("grow", Grow, {"world": world, "name": "grow"})]
    for number, (of, pool, blocks) in enumerate(middle):
        own = {"world": world, "name": f"map{number}"}
        found.append(Stage(f"map{number}", of, own, pool=pool, concurrent_blocks=blocks, fallback=without))
    return link([*found, Stage("give", Give, {"world": world, "name": "give"})], PLACE)


def stages(world: World, first: type[Map] = Map) -> list[Stage]:
    """A chain of a shape that the seed says."""
    chance, middle = random.Random(world.seed), []
    for number in range(chance.randint(1, 4)):
        pool = chance.choice([None, POOL, POOL])
        middle.append((Map if number else first, pool, chance.choice([1, 1, 2, 3]) if pool else 1))
    return chain(world, *middle)


def places(shards: int) -> list[pa.Table]:
    return [pa.table({"shard": [n]}, schema=PLACE) for n in range(shards)]


def one_after_the_other(world: World, shards: int) -> list[dict[str, Any]]:
    """The same by a loop: each shard through all stages, then the next."""
    meters = [Meter(stage, 1) for stage in stages(world)]
    found = []
    for place in places(shards):
        found += reduce(lambda table, meter: meter(table), meters, place).to_pylist()
    return found


def committing(runner: LocalRunner, shards: int) -> Iterator[dict[str, Any]]:
    """The rows of a run whose driver takes each as committed."""
    for row in runner.run(places(shards)):
        yield row
        runner.tracker.mark_committed(row["shard"])


def working() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == THREAD]


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_those_of_one_shard_after_the_other_whatever_is_slow_or_fails(seed: int) -> None:
    world, shards = World(seed), 3 * (seed % 4)
    runner = LocalRunner(stages(world), start=1, shards=shards)
    found = list(committing(runner, shards))
    assert sorted(found, key=lambda row: row["shard"]) == one_after_the_other(World(seed, delay=0.0), shards)
    assert sorted(world.closed) == sorted(world.built) == sorted(stage.name for stage in stages(world) if shards)
    assert all(world.most[stage.name] <= stage.concurrent_blocks for stage in stages(world))
    if all(stage.concurrent_blocks == 1 for stage in stages(world)):
        assert [row["shard"] for row in found] == list(range(shards))
    assert not working()
    assert runner.tracker.in_flight() == 0


def test_stages_work_side_by_side() -> None:
    """Each of three stages waits until all are at work, which one thread could not reach."""
    together = threading.Barrier(3, timeout=60)

    class Meets(Map):
        def __call__(self, table: pa.Table) -> pa.Table:
            if table["shard"][0].as_py() + int(self.name[-1]) == 2:
                together.wait()
            return super().__call__(table)

    world = World(0, delay=0.0, faults=False)
    runner = LocalRunner(chain(world, *[(Meets, POOL, 1)] * 3), start=1)
    assert [row["shard"] for row in committing(runner, 3)] == [0, 1, 2]


@pytest.mark.parametrize("seed", range(6))
def test_an_exception_ends_the_run_and_what_has_come_before_is_right(seed: int) -> None:
    broken = random.Random(seed).choice(["grow", "give"]), 4
    world = World(seed, broken)
    found: list[dict[str, Any]] = []
    with pytest.raises(MemoryError, match=f"^{broken[0]} 4$"):
        found.extend(committing(LocalRunner(stages(world), start=1), 12))
    right = one_after_the_other(World(seed, delay=0.0), 12)
    assert all(row == right[row["shard"]] and row["shard"] != 4 for row in found)
    assert sorted(world.closed) == sorted(world.built)
    assert not working()


def test_a_failed_run_does_not_wait_for_a_long_call_that_sends_heartbeats() -> None:
    class Long(Map):
        def __call__(self, table: pa.Table) -> pa.Table:
            end = time.monotonic() + 300
            while table["shard"][0].as_py() and time.monotonic() < end:
                heartbeat()
                time.sleep(0.01)
            return super().__call__(table)

    world = World(1, ("give", 0), delay=0.0, faults=False)
    began = time.monotonic()
    with pytest.raises(MemoryError):
        list(committing(LocalRunner(chain(world, (Long, POOL, 1)), start=1), 4))
    assert time.monotonic() - began < 150
    assert not working()
    assert sorted(world.closed) == ["give", "grow", "map0"]


def test_a_worker_that_cannot_be_built_ends_the_run() -> None:
    class Unfit(Map):
        def __init__(self, world: World, name: str) -> None:
            raise LookupError("no such model")

    world = World(3, delay=0.0)
    with pytest.raises(LookupError, match="no such model"):
        list(committing(LocalRunner(stages(world, Unfit), start=1), 4))
    assert world.closed == world.built == ["grow"]
    assert not working()


def test_a_block_that_is_given_up_closes_the_gate_and_those_before_come() -> None:
    world = World(5, delay=0.0)
    runner = LocalRunner(stages(world, Halting), start=1)
    assert {row["shard"] for row in committing(runner, 30)} == {0, 1}
    assert runner.tracker.closed()
    assert runner.tracker.progress().halted >= 1
    assert not working()


def test_a_caller_that_takes_no_more_leaves_no_thread() -> None:
    frozen, world = gc.get_freeze_count(), World(2, delay=0.0)
    rows = committing(LocalRunner(stages(world), start=1), 40)
    next(rows)
    rows.close()
    del rows
    until(lambda: not working())
    assert sorted(world.closed) == sorted(world.built)
    assert gc.get_freeze_count() == frozen  # a process may go on after a run, and its garbage is to be found


def test_a_run_that_is_dropped_begins_nothing_more() -> None:
    world = World(4, delay=0.02, faults=False)
    runner = LocalRunner(stages(world), start=1)
    found: list[int] = []

    def take() -> None:
        for row in committing(runner, 200):
            found.append(row["shard"])

    thread = threading.Thread(target=take)
    thread.start()
    until(lambda: len(found) >= 2)
    runner.drop()
    thread.join(60)
    assert 2 <= len(found) < 200
    assert not thread.is_alive()
    assert not working()
    assert sorted(world.closed) == sorted(world.built)
    runner.drop()  # after its end


def test_after_a_failure_no_worker_is_built_and_one_that_is_late_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.run.runner_local._DROPPED_SECONDS", 0.01)
    go_on = threading.Event()

    class Slow(Map):
        def __init__(self, world: World, name: str) -> None:
            go_on.wait(60)
            super().__init__(world, name)

    world = World(8, ("grow", 0), delay=0.0, faults=False)
    with pytest.raises(MemoryError):
        list(committing(LocalRunner(chain(world, *[(Slow, POOL, 1)] * 2), start=1), 2))
    go_on.set()
    until(lambda: not working())
    assert world.built == ["grow", "map0"]
    assert world.closed == ["map0"]


@pytest.mark.parametrize("broken", [None, ("give", 1)])
def test_what_closing_raises_fails_a_run_that_has_not_and_is_a_note_of_the_failure_of_another(
    broken: tuple[str, int] | None,
) -> None:
    class Unclosable(Map):
        def close(self) -> None:
            raise RuntimeError("it does not answer")

    world = World(6, broken, delay=0.0, faults=False)
    with pytest.raises(MemoryError if broken else RuntimeError) as raised:
        list(committing(LocalRunner(stages(world, Unclosable), start=1), 6))
    assert "give" in world.closed
    if broken:
        assert raised.value.__notes__ == ["a worker cannot be closed, either: it does not answer"]
