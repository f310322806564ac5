"""Random samples of a planned job's queries.

A query's id is a hash, so that a seeded stretch of the ids is a random sample, the same for a run and for an ablation over the
same log, whatever the size of their shards, and in whichever tier the queries are.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from cluster.run.shards import File, Shard
from cluster.storage import Storage
from cluster.storage.s3_duckdb import bounded_duckdb

_ID_BITS = 128
_SAMPLE = """
SELECT COLUMNS(lambda name: name IN ('query_id', 'query', 'context', 'values')) FROM rows_of($files)
WHERE (query_id >= $low AND query_id < $high) OR query_id < $again
ORDER BY query_id < $low, query_id LIMIT $size
"""


class PlannedQueries(NamedTuple):
    """The distinct queries of a planned job.

    Attributes:
        storage: Where their files are.
        shards: The row groups, each in order of the queries' ids.
        tables: All tables that are made of the log, by name.
    """

    storage: Storage
    shards: Sequence[Shard]
    tables: Mapping[str, Sequence[File]] = MappingProxyType({})


def read_sample(queries: PlannedQueries, size: int, seed: int) -> pa.Table:
    """Returns the columns of a sample: the queries of the first ids from a drawn one on, and behind the last id the first."""
    drawn = random.Random(seed).getrandbits(_ID_BITS)
    # Ids are spread evenly: a stretch with twice as many as are wanted is all that DuckDB fetches.
    end = drawn + ((2 * size + 100) << _ID_BITS) // sum(shard.rows for shard in queries.shards)
    bounds = {"low": f"{drawn:032x}", "high": f"{end:032x}" if end >> _ID_BITS == 0 else "g"}
    again = f"{min(drawn, end - (1 << _ID_BITS)):032x}" if end >> _ID_BITS else ""
    files = [queries.storage.url(key) for key in dict.fromkeys(shard.key for shard in queries.shards)]
    with bounded_duckdb("256MB", 1) as connection:
        params = bounds | {"again": again, "files": files, "size": size}
        return connection.sql(_SAMPLE, params=params).to_arrow_table()
