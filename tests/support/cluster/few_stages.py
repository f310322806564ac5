"""Stages of a few lines, for the tests of the runners: make rows, work slowly or die, fold the rows."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster.costs import COSTS, entry
from cluster.run.pool_sizes import Pool
from cluster.run.stage import Stage, heartbeat, link, reserver

PLACE = pa.schema([("shard", pa.int32())])
ROWS = pa.schema([("shard", pa.int32()), ("costs", COSTS), ("query_id", pa.string())])
SEEN = pa.schema([("seen", pa.int32())])
EACH = 8
POISON = "2-5"  # the query that kills


class Grow:
    """A place -> its rows."""

    NEEDS, GIVES = ("shard",), ROWS

    def __call__(self, table: pa.Table) -> pa.Table:
        shard = table.column("shard")[0].as_py()
        return pa.table([[shard] * EACH, [[]] * EACH, [f"{shard}-{row}" for row in range(EACH)]], schema=ROWS)


class Slow:
    """Reserves $4; dies as often as the folder says; reports that a quarter (of shard 0) or half is done; waits for `gate`."""

    NEEDS, ADDS = ("costs",), SEEN

    def __init__(self, folder: str, deaths: int) -> None:
        self._folder, self._deaths = Path(folder), deaths
        (self._folder / f"worker-{os.getpid()}").write_text(str(reserver()(0.0, 4.0)))

    def __call__(self, table: pa.Table) -> pa.Table:
        shard = table.column("shard")[0].as_py()
        if len(list(self._folder.glob("died-*"))) < self._deaths:
            (self._folder / f"died-{time.time_ns()}").touch()
            os._exit(1)
        heartbeat(0.5 if shard else 0.25)
        elsewhere = threading.Thread(target=heartbeat, args=(1.0,))  # a thread that has no block
        elsewhere.start()
        elsewhere.join()
        while not (self._folder / "gate").exists():
            time.sleep(0.01)
        spent = [[entry("slow", "s", 1.0, requests=2)] for _ in range(EACH)]
        table = table.set_column(1, ROWS.field("costs"), pa.array(spent, COSTS))
        return table.append_column(self.ADDS.field(0), table.column("shard"))

    def close(self) -> None:
        (self._folder / "closed").touch()


class Poisoned:
    """Dies under one query."""

    NEEDS, ADDS = ("query_id",), SEEN

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def __call__(self, table: pa.Table) -> pa.Table:
        if POISON in table.column("query_id").to_pylist():
            (self._folder / f"died-{os.getpid()}").touch()
            os._exit(1)
        return table.append_column(SEEN.field(0), table.column("shard"))


class Doubled:
    """A table's number -> twice that, but for one that it refuses."""

    def __init__(self, refused: int) -> None:
        self._refused = refused

    def __call__(self, table: pa.Table) -> int:
        n = int(table["n"][0].as_py())
        if n == self._refused:
            raise ValueError(f"no {n}")
        return 2 * n


def left_out(table: pa.Table, error: Exception) -> pa.Table:
    """The fallback of queries under which a worker died."""
    assert "died under this query alone" in str(error)
    return table.append_column(SEEN.field(0), pa.nulls(table.num_rows, pa.int32()))


class Fold:
    """Rows -> one row, with the queries that were left out."""

    NEEDS, GIVES = ("seen",), pa.schema([("shard", pa.int32()), ("left_out", pa.list_(pa.string()))])

    def __call__(self, table: pa.Table) -> pa.Table:
        without = [row["query_id"] for row in table.to_pylist() if row["seen"] is None]
        return pa.table([[table.column("shard")[0].as_py()], [without]], schema=self.GIVES)


def stages(folder: Path, pool: Pool | None, deaths: int = 0, retries: int = 3, first: Pool | None = None) -> list[Stage]:
    """The three, linked; the slow one has the pool, or the first one."""
    return chain(Stage("slow", Slow, {"folder": str(folder), "deaths": deaths}, pool=pool, retries=retries), first)


def chain(middle: Stage, first: Pool | None = None) -> list[Stage]:
    return link([Stage("grow", Grow, {}, pool=first), middle, Stage("fold", Fold, {})], PLACE)


def places(shards: int) -> list[pa.Table]:
    return [pa.table({"shard": [n]}, schema=PLACE) for n in range(shards)]


def begin(runner: Any, shards: int, *, committing: bool = False) -> tuple[threading.Thread, list[int]]:
    """Runs in a thread; returns it with the shards that have come, each of which is committed at once if so."""
    found: list[int] = []

    def read() -> None:
        for row in runner.run(places(shards)):
            found.append(row["shard"])
            if committing:
                runner.tracker.mark_committed(row["shard"])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    return reader, found
