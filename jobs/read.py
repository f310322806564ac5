"""The first stage: a shard's place in the plan -> its queries."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.storage import open_storage
from jobs.tables import QUERIES


class Read:
    """A worker: SHARD (one row) -> QUERIES."""

    def __init__(self, run: str) -> None:
        self._storage = open_storage(run)

    def __call__(self, table: pa.Table) -> pa.Table:
        (place,) = table.to_pylist()
        with self._storage.open(place["key"]) as file:
            queries = pq.ParquetFile(file).read_row_group(place["row_group"])
        rows = queries.num_rows
        columns = {name: queries.column(name) for name in queries.column_names}
        columns["shard"] = pa.repeat(pa.scalar(place["shard"], pa.int32()), rows)
        for name in ("costs", "errors"):
            columns[name] = pa.array([[]] * rows, QUERIES.field(name).type)
        return pa.table(columns).select(QUERIES.names).cast(QUERIES)
