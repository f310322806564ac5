"""How the report reads a run's tables: by shards, some of them where there are many, in bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import duckdb
import pyarrow.parquet as pq

from cluster.s3_duckdb import attach
from cluster.shards import Manifest
from jobs.run_folder import RunFolder

MEMORY = "512MB"
Item = TypeVar("Item")


@contextmanager
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB in bounded memory; what does not fit goes to a temporary folder."""
    with (
        tempfile.TemporaryDirectory(prefix="dmqr-report-") as folder,
        duckdb.connect(config={"memory_limit": MEMORY, "threads": "2", "temp_directory": folder}) as connection,
    ):
        attach(connection)
        yield connection


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most `most` of the items, evenly spread, always the same ones."""
    if len(items) <= most:
        return list(items)
    return [items[(2 * number + 1) * len(items) // (2 * most)] for number in range(most)]


def files(run: RunFolder, table: str, manifests: Sequence[Manifest]) -> list[str]:
    """Where the rows of a table lie that these shards have."""
    return [run.storage.url(one.files[table].key) for one in manifests if table in one.files]


def portions(manifests: Sequence[Manifest], table: str, rows: int) -> Iterator[list[Manifest]]:
    """The shards in their order, in groups of about so many rows of a table: a shard at least."""
    portion: list[Manifest] = []
    held = 0
    for manifest in manifests:
        more = manifest.files[table].rows if table in manifest.files else 0
        if portion and held + more > rows:
            yield portion
            portion, held = [], 0
        portion.append(manifest)
        held += more
    if portion:
        yield portion


def queries_of(run: RunFolder, number: int) -> list[tuple[str, str, int]]:
    """The (query_id, query, log_count) of a shard, by query_id."""
    shard = next(one for one in run.plan.shards if one.number == number)
    with run.storage.open(shard.key) as file:
        table = pq.ParquetFile(file).read_row_group(shard.row_group)
    columns = (table.column(name).to_pylist() for name in ("query_id", "query", "log_count"))
    return list(zip(*columns, strict=True))
