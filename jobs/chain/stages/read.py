"""The first stage: reads the queries of a shard."""

import time

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.storage import open_storage
from jobs.chain.worker import WorkerJob
from jobs.tables import ELAPSED, QUERIES, SHARD

_COLUMNS = ("query_id", "query", "log_count", "context", "values")  # the last two only where the config asks for them


class Read:
    """A worker of the reading stage."""

    NEEDS = tuple(SHARD.names)
    GIVES = QUERIES

    def __init__(self, job: WorkerJob) -> None:
        self._storage = open_storage(job.run)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the QUERIES of one row of SHARD."""
        (shard,) = table.to_pylist()
        with self._storage.open(shard["key"]) as file:
            parquet = pq.ParquetFile(file)
            there = [name for name in _COLUMNS if name in parquet.schema_arrow.names]
            queries = parquet.read_row_group(shard["row_group"], columns=there)
        rows = queries.num_rows
        columns = {name: queries.column(name) for name in queries.column_names}
        columns |= {name: pa.nulls(rows, QUERIES.field(name).type) for name in _COLUMNS if name not in there}
        columns["shard"] = pa.repeat(pa.scalar(shard["shard"], pa.int32()), rows)
        began = {"stage": "read", "quantity": ELAPSED, "amount": time.time()}
        for name, first in (("costs", []), ("errors", []), ("overhead", [began])):
            columns[name] = pa.array([first, *[[]] * (rows - 1)], QUERIES.field(name).type)
        return pa.table(columns).select(QUERIES.names).cast(QUERIES)
