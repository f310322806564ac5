"""The reading worker: one row group of a planned file is one shard."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.run.meter import check_border
from jobs.chain.stages.read import Read
from jobs.tables import OPTIONAL_QUERIES, QUERIES, SHARD, STORED

ROWS = [{"query_id": f"id{n}", "query": f"q {n} 東京", "log_count": n + 1} for n in range(5)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "queries").mkdir()
    table = pa.Table.from_pylist(ROWS, STORED["queries"])
    pq.write_table(table, tmp_path / "queries" / "plan-x.parquet", row_group_size=2)
    return tmp_path


def place(shard: int, row_group: int, key: str = "queries/plan-x.parquet") -> pa.Table:
    return pa.table({"shard": [shard], "key": [key], "row_group": [row_group]}, schema=SHARD)


@pytest.mark.parametrize(("row_group", "rows"), [(0, ROWS[:2]), (1, ROWS[2:4]), (2, ROWS[4:])])
def test_a_shard_is_its_row_group(run: Path, row_group: int, rows: list[dict[str, object]]) -> None:
    table = Read(str(run))(place(17, row_group))
    assert table.schema == QUERIES
    none = {"context": None, "values": None, "costs": [], "errors": []}
    overheads = table.column("overhead").to_pylist()
    assert table.drop_columns(["overhead"]).to_pylist() == [{"shard": 17, **row, **none} for row in rows]
    ((began,), *others) = overheads
    assert (began["stage"], began["quantity"]) == ("read", "elapsed")
    assert time.time() - 60 < began["amount"] <= time.time()
    assert others == [[]] * (len(rows) - 1)


def test_contexts_and_values_are_read_where_the_plan_has_them(tmp_path: Path) -> None:
    (tmp_path / "queries").mkdir()
    more = [
        {"context": None, "values": {"market": "is", "tier": None}},
        {"context": "a\nb", "values": {"market": "de", "tier": ""}},
    ]
    rows = [row | {"query_type": "howto"} | own for row, own in zip(ROWS, more, strict=False)]
    schema = pa.schema([*STORED["queries"], *OPTIONAL_QUERIES])
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "queries" / "plan-x.parquet", store_schema=False)
    table = Read(str(tmp_path))(place(0, 0))
    check_border("read", table.schema, QUERIES)
    found = table.select(["context", "values"]).to_pylist(maps_as_pydicts="strict")
    assert found == more
