"""Three stages of a few lines, for the tests of the runners: make rows, work slowly, fold the rows; and a worker of tables."""

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
ROWS = pa.schema([("shard", pa.int32()), ("costs", COSTS)])
EACH = 8


class Grow:
    """A place -> its rows."""

    NEEDS, GIVES = ("shard",), ROWS

    def __call__(self, table: pa.Table) -> pa.Table:
        columns = [pa.repeat(table.column("shard")[0], EACH), pa.array([[]] * EACH, COSTS)]
        return pa.Table.from_arrays(columns, schema=ROWS)


class Slow:
    """Reserves $4; dies as often as the folder says; reports that a quarter (of shard 0) or half is done; waits for `gate`."""

    NEEDS, ADDS = ("costs",), pa.schema([("seen", pa.int32())])

    def __init__(self, folder: str, deaths: int = 1) -> None:
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


class Fold:
    """Rows -> one row."""

    NEEDS, GIVES = ("seen",), PLACE

    def __call__(self, table: pa.Table) -> pa.Table:
        return table.select(["shard"]).slice(0, 1)


def odd(_: pa.Table, table: pa.Table) -> dict[str, int]:
    return {"odd": sum(shard % 2 for shard in table.column("shard").to_pylist())}


def stages(folder: Path, pool: Pool, deaths: int = 0, blocks: int = 1, retries: int = 3) -> list[Stage]:
    """The three, linked; the slow one has the pool."""
    slow = {"folder": str(folder), "deaths": deaths}
    return link(
        [
            Stage("grow", Grow, {}),
            Stage("slow", Slow, slow, pool=pool, concurrent_blocks=blocks, counts=odd, retries=retries),
            Stage("fold", Fold, {}),
        ],
        PLACE,
    )


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
