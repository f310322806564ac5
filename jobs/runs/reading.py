"""Reading of a run's tables in bounded memory: by shards, and only a sample of many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import duckdb
import pyarrow.parquet as pq

from cluster.storage.s3_duckdb import bounded_duckdb
from jobs.runs.folder import RunFolder
from jobs.runs.tally import Committed

MEMORY = "512MB"
Item = TypeVar("Item")


@contextmanager
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens DuckDB in bounded memory; it spills to a temporary folder."""
    with bounded_duckdb(MEMORY, 2, ordered=True) as connection:
        yield connection


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """Returns at most `count` of the items, evenly spread and deterministic."""
    if len(items) <= count:
        return list(items)
    return [items[(2 * number + 1) * len(items) // (2 * count)] for number in range(count)]


def files(run: RunFolder, table: str, manifests: Sequence[Committed]) -> list[str]:
    """Returns the paths or URLs of a table's files of these shards."""
    return [run.storage.url(file.key) for one in manifests for file in one.files.get(table, ())]


def portions(manifests: Sequence[Committed], table: str, rows: int) -> Iterator[list[Committed]]:
    """Yields the shards in order, in groups with about `rows` rows of a table, at least one shard each."""
    portion: list[Committed] = []
    portion_rows = 0
    for manifest in manifests:
        more = sum(file.rows for file in manifest.files.get(table, ()))
        if portion and portion_rows + more > rows:
            yield portion
            portion, portion_rows = [], 0
        portion.append(manifest)
        portion_rows += more
    if portion:
        yield portion


def queries_of(run: RunFolder, number: int) -> list[tuple[str, str, int]]:
    """Returns (query_id, query, log_count) of a shard's queries, sorted by query_id."""
    shard = next(one for one in run.plan.shards if one.number == number)
    with run.storage.open(shard.key) as file:
        table = pq.ParquetFile(file).read_row_group(shard.row_group)
    columns = (table.column(name).to_pylist() for name in ("query_id", "query", "log_count"))
    return list(zip(*columns, strict=True))
