"""Reading of a run's tables in bounded memory: by shards, and only a sample of many."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.storage.s3_duckdb import bounded_duckdb
from cluster.storage.sql import text_literal
from jobs.runs.folder import RunFolder
from jobs.runs.tally import Committed
from jobs.tables import STORED

MEMORY = "512MB"
_REWRITES = "SELECT query_id, strategy, text FROM rows_by_name($files) WHERE query_id IN (SELECT unnest($ids))"
Item = TypeVar("Item")


def database() -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """Opens DuckDB in bounded memory; it spills to a temporary folder."""
    return bounded_duckdb(MEMORY, 2, ordered=True)


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
    table = queries_table(run, [number], ["query_id", "query", "log_count"])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def queries_table(run: RunFolder, numbers: Iterable[int], columns: Sequence[str]) -> pa.Table:
    """Returns columns of the queries of some shards, in the order of these; a text that the log lacks (`context`) is null."""
    shards, parts = {one.number: one for one in run.plan.shards}, []
    for key, of_file in groupby((shards[number] for number in numbers), lambda shard: shard.key):
        with run.storage.open(key) as file:
            parquet = pq.ParquetFile(file)
            there = [name for name in columns if name in parquet.schema_arrow.names]
            parts.append(parquet.read_row_groups([shard.row_group for shard in of_file], columns=there))
    table = pa.concat_tables(parts)
    for name in columns:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(len(table), pa.string()))
    return table.select(columns)


def create_view(connection: duckdb.DuckDBPyConnection, name: str, table: str, paths: Sequence[str]) -> None:
    """Has a view stand for the rows of files of a table, or for none where there are no files."""
    if paths:  # a view has no parameters, so that the paths stand in it
        named = ", ".join(map(text_literal, paths))
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS FROM rows_by_name([{named}])")
    else:
        connection.from_arrow(STORED[table].empty_table()).create_view(name, replace=True)


def searched_rewrites(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, ids: Sequence[str], arm: str
) -> dict[str, list[dict[str, str]]]:
    """Returns the rewrites of queries, by strategy and position; of an arm those that it searches."""
    rewrites: dict[str, list[dict[str, str]]] = {}
    if "rewrites" in run.tables:
        given, own = dict[str, Any](files=run.tables["rewrites"], ids=ids), ""
        for described in (one for one in run.record.get("ablation", {}).get("arms", ()) if one["name"] == arm):
            own = " AND arm = $arm AND strategy IN (SELECT unnest($strategies))"
            given |= {"arm": described.get("rewrites_of") or arm, "strategies": list(described.get("strategies", ()))}
        query = f"{_REWRITES}{own} ORDER BY query_id, strategy, position"
        for query_id, strategy, text in connection.execute(query, given).fetchall():
            rewrites.setdefault(query_id, []).append({"strategy": strategy, "text": text})
    return rewrites
