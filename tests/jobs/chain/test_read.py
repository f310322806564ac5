"""The reading worker: one row group of a planned file is one shard."""

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.chain.stages.read import Read
from jobs.chain.worker import WorkerJob
from jobs.tables import QUERIES, SHARD, STORED
from tests.support.jobs.workers import job

ROWS = [{"query_id": f"id{n}", "query": f"q {n} 東京", "log_count": n + 1} for n in range(5)]


def planned(folder: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> Read:
    """The worker of a run whose plan has shards of two queries."""
    (folder / "queries").mkdir()
    table = pa.Table.from_pylist(rows, schema)
    pq.write_table(table, folder / "queries" / "plan-x.parquet", row_group_size=2, store_schema=False)
    return Read(WorkerJob(job(), str(folder)))


def shard(row_group: int) -> pa.Table:
    return pa.table({"shard": [17], "key": ["queries/plan-x.parquet"], "row_group": [row_group]}, schema=SHARD)


@pytest.mark.parametrize(("row_group", "rows"), [(0, ROWS[:2]), (2, ROWS[4:])])
def test_a_shard_is_its_row_group(tmp_path: Path, row_group: int, rows: list[dict[str, object]]) -> None:
    table = planned(tmp_path, ROWS, STORED["queries"])(shard(row_group))
    assert table.schema == QUERIES
    none = {"context": None, "values": None, "costs": [], "errors": []}
    ((began,), *others) = table.column("overhead").to_pylist()
    assert table.drop_columns(["overhead"]).to_pylist() == [{"shard": 17, **row, **none} for row in rows]
    assert (began["stage"], began["quantity"]) == ("read", "elapsed")
    assert time.time() - 60 < began["amount"] <= time.time()
    assert others == [[]] * (len(rows) - 1)
