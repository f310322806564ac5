"""Random samples of a planned job's queries.

A query's id is a hash, so that a seeded stretch of the ids is a random sample, the same for a run and for an ablation over the
same log, whatever the size of their shards, and in whichever tier the queries are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.run.shards import File, Shard
from cluster.storage import Storage

_COLUMNS = ("query_id", "query", "context", "values")  # the last two only where the config asks for them
_ID_BITS = 128
_BEHIND = "g"  # behind all ids, which are hex digits


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


class _Group(NamedTuple):
    least: str
    greatest: str
    shard: Shard


def read_sample(queries: PlannedQueries, size: int, seed: int) -> pa.Table:
    """Returns the columns of a sample: the queries of the first ids from a drawn one on, and behind the last id the first."""
    drawn = f"{random.Random(seed).getrandbits(_ID_BITS):032x}"
    groups = sorted(_groups(queries))
    found = _first(queries.storage, groups, size, drawn, _BEHIND)
    return pa.concat_tables([found, _first(queries.storage, groups, size - found.num_rows, "", drawn)])


def _groups(queries: PlannedQueries) -> Iterator[_Group]:
    by_file: dict[str, list[Shard]] = {}
    for shard in queries.shards:
        by_file.setdefault(shard.key, []).append(shard)
    for key, shards in by_file.items():
        with queries.storage.open(key) as file:
            parquet = pq.ParquetFile(file)
            place = parquet.schema_arrow.names.index("query_id")
            for shard in shards:
                ends = parquet.metadata.row_group(shard.row_group).column(place).statistics
                yield _Group(ends.min, ends.max, shard)


def _first(storage: Storage, groups: Sequence[_Group], size: int, low: str, high: str) -> pa.Table:
    """Returns the rows with the first ids of those from `low` on and before `high`; groups are in order of their least ids."""
    found = _read(storage, groups[0].shard).slice(0, 0)
    for group in groups:
        enough = found.num_rows >= size
        if enough and (not size or group.least > found.column("query_id")[size - 1].as_py()):
            break
        if group.greatest >= low and group.least < high:
            rows = _read(storage, group.shard)
            ids = rows.column("query_id")
            rows = rows.filter(pc.and_(pc.greater_equal(ids, low), pc.less(ids, high)))
            found = pa.concat_tables([found, rows]).sort_by("query_id").slice(0, size)
    return found


def _read(storage: Storage, shard: Shard) -> pa.Table:
    with storage.open(shard.key) as file:
        parquet = pq.ParquetFile(file)
        names = [name for name in _COLUMNS if name in parquet.schema_arrow.names]
        return parquet.read_row_group(shard.row_group, columns=names)
