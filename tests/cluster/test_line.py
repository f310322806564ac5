"""A line through real Ray: the books while blocks are under way, after a worker's death, and at the end."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cluster.costs import COSTS, entry
from cluster.desk import Page
from cluster.session import Pool, PoolWish, Session
from cluster.stage import Line, Stage, pulse

PLACE = pa.schema([("shard", pa.int32())])
ROWS = pa.schema([("shard", pa.int32()), ("costs", COSTS)])
SHARDS, EACH = 4, 8


class Grow:
    """A place -> its rows."""

    def __call__(self, table: pa.Table) -> pa.Table:
        columns = [pa.repeat(table.column("shard")[0], EACH), pa.array([[]] * EACH, COSTS)]
        return pa.Table.from_arrays(columns, schema=ROWS)


class Slow:
    """Dies once under its first blocks; then says that a quarter (of shard 0) or half is done and waits for the gate."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def __call__(self, table: pa.Table) -> pa.Table:
        shard = table.column("shard")[0].as_py()
        if not (self._folder / "died").exists():
            (self._folder / "died").touch()
            os._exit(1)
        pulse(0.5 if shard else 0.25)
        elsewhere = threading.Thread(target=pulse, args=(1.0,))  # a thread that has no block
        elsewhere.start()
        elsewhere.join()
        while not (self._folder / "gate").exists():
            time.sleep(0.01)
        spent = [[entry("slow", "s", 1.0, requests=2)] for _ in range(EACH)]
        return table.set_column(1, ROWS.field("costs"), pa.array(spent, COSTS))


class Fold:
    """Rows -> one row."""

    def __call__(self, table: pa.Table) -> pa.Table:
        return table.select(["shard"]).slice(0, 1)


def odd(table: pa.Table) -> dict[str, int]:
    return {"odd": sum(shard % 2 for shard in table.column("shard").to_pylist())}


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    import ray

    session = Session("local", {"slow": PoolWish(workers=1, cpus=1)})
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        yield Line(
            [
                Stage("grow", Grow, {}, PLACE, ROWS),
                Stage("slow", Slow, {"folder": str(tmp_path)}, ROWS, ROWS, Pool(1, 1, 0), blocks=2, counts=odd),
                Stage("fold", Fold, {}, ROWS, PLACE),
            ],
            start=1,
        )
    finally:
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        session.close()


def wait_for(line: Line, true_of: Callable[[dict[str, Page]], bool]) -> dict[str, Page]:
    """The books when that is so, which is to be soon."""
    end = time.monotonic() + 60
    while not (pages := line.books()) or not true_of(pages):
        assert time.monotonic() < end, pages
        time.sleep(0.05)
    return pages


def test_the_books_tell_what_is_under_way_and_add_up_at_the_end(line: Line, tmp_path: Path) -> None:
    found: list[int] = []
    places = [pa.table({"shard": [n]}, schema=PLACE) for n in range(SHARDS)]

    def read() -> None:
        for row in line.run(places):
            found.append(row["shard"])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()

    # three shards are admitted: two are under way on threads of their own, one waits
    pages = wait_for(line, lambda pages: pages["slow"].done >= EACH // 4 + EACH // 2 and pages["slow"].waiting > 0)
    assert (tmp_path / "died").exists()
    assert pages["grow"][:3] == (3 * EACH, 0, 0)
    assert pages["slow"][:3] == (6, 10, EACH)  # the pulse from elsewhere was not heard, the death counted nothing twice
    assert pages["slow"].there == pages["slow"].workers == 1
    assert pages["slow"].spent == {}

    (tmp_path / "gate").touch()
    pages = wait_for(line, lambda pages: pages["fold"].done == 3 * EACH)  # nothing is said to be committed: no fourth
    assert pages["slow"][:3] == (3 * EACH, 0, 0)
    assert pages["slow"].counts == {"odd": EACH}
    assert pages["slow"].spent["slow"]["s@"]["requests"] == 2 * 3 * EACH
    assert pages["slow"].busy > 0
    for shard in range(3):
        line.committed(shard)
    wait_for(line, lambda pages: pages["fold"].done == EACH and len(found) == SHARDS)
    line.committed(3)
    reader.join(30)
    assert sorted(found) == list(range(SHARDS))
    pages = wait_for(line, lambda pages: not pages["fold"].done)
    assert [page[:3] for page in pages.values()] == [(0, 0, 0)] * 3
    assert all(page.counts == {} and page.spent == {} for page in pages.values())
