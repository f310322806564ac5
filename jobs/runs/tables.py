"""Reading of a run's tables in bounded memory: by shards, and only a sample of many."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from cluster.storage.s3_duckdb import bounded_duckdb, no_room, reason
from cluster.storage.sql import text_literal
from jobs.chain.tables import ARM_STORED
from jobs.runs.folder import RunFolder
from jobs.runs.tally import Committed
from jobs.tables import OPTIONAL_QUERIES, STORED

MEMORY = "512MB"
_NO_OPTION = 'SELECT NULL::VARCHAR AS context, NULL::VARCHAR AS query_type, NULL::MAP(VARCHAR, VARCHAR) AS "values" WHERE false'
_SPANS = pa.schema([("shard", pa.int32()), ("filename", pa.string()), ("first", pa.int64()), ("next", pa.int64())])
Item = TypeVar("Item")


@contextmanager
def database(*runs: RunFolder, tables: Iterable[str] = ()) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens DuckDB in 512 MB, which spills to a temporary folder, with views of committed tables of the first run.

    Raises:
        ConfigError: Files of the runs cannot be read.
        LogError: Memory or disk space ran out.
    """
    try:
        with bounded_duckdb(MEMORY, 2, ordered=True) as connection:
            create_views(connection, runs[0], tables)
            yield connection
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        where = " or ".join(run.storage.root for run in runs)
        if isinstance(error, duckdb.OutOfMemoryException):
            problem, remedy = f"{where}: the run's tables could not be read", "give fewer judgements"
            raise no_room(problem, error, MEMORY, remedy) from error
        problem = f"the run's tables cannot be read ({reason(error)}); restore the changed files"
        raise ConfigError("run-damaged", f"{where}: {problem}") from error


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """Returns at most `count` of the items, evenly spread and deterministic."""
    if len(items) <= count:
        return list(items)
    return [items[(2 * number + 1) * len(items) // (2 * count)] for number in range(count)]


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


def queries_table(run: RunFolder, numbers: Iterable[int], columns: Sequence[str]) -> pa.Table:
    """Returns columns of the queries of some shards, in the order of these; a text that the log lacks (`context`) is null."""
    shards = {one.number: one for one in run.plan.shards}
    parts = [pa.schema([*STORED["queries"], *OPTIONAL_QUERIES]).empty_table().select(columns)]
    for key, of_file in groupby((shards[number] for number in numbers), lambda shard: shard.key):
        with run.storage.open(key) as file:
            parquet = pq.ParquetFile(file)
            there = [name for name in columns if name in parquet.schema_arrow.names]
            parts.append(parquet.read_row_groups([shard.row_group for shard in of_file], columns=there))
    return pa.concat_tables(parts, promote_options="default")


def committed_queries(connection: duckdb.DuckDBPyConnection, run: RunFolder, name: str = "committed") -> None:
    """Has a view stand for the queries of the committed shards: shard, query_id, query, log_count."""
    begins: Counter[str] = Counter()  # every row group of a planned file is a shard
    spans = []
    for shard in sorted(run.plan.shards, key=lambda shard: (shard.key, shard.row_group)):
        first = begins[shard.key]
        begins[shard.key] += shard.rows
        if shard.number in run.tally.shards:
            url = run.storage.url(shard.key)
            spans.append({"shard": shard.number, "filename": url, "first": first, "next": begins[shard.key]})
    connection.register(f"{name}_spans", pa.Table.from_pylist(spans, _SPANS))
    paths = ", ".join(text_literal(run.storage.url(key)) for key in sorted(begins))
    connection.execute(
        f"CREATE OR REPLACE VIEW {name} AS SELECT shard, query_id, query, log_count"
        f" FROM read_parquet([{paths}], filename = true, file_row_number = true, hive_partitioning = false)"
        f" JOIN {name}_spans USING (filename) WHERE file_row_number >= first AND file_row_number < next"
    )


def create_views(
    connection: duckdb.DuckDBPyConnection,
    run: RunFolder,
    tables: Iterable[str],
    manifests: Sequence[Committed] | None = None,
    prefix: str = "",
) -> None:
    """Has views, whose names begin with `prefix`, stand for the rows of tables: of some shards, or of all."""
    for table in tables:
        paths = run.tables.get(table, [])
        if manifests is not None:
            paths = [run.storage.url(file.key) for one in manifests for file in one.files.get(table, ())]
        create_view(connection, f"{prefix}{table}", table, paths)


def create_view(connection: duckdb.DuckDBPyConnection, name: str, table: str, paths: Sequence[str]) -> None:
    """Has a view stand for the rows of files of a table, queries/ with all of OPTIONAL_QUERIES; for none without files."""
    if paths:  # a view has no parameters, so that the paths stand in it
        named, optional = ", ".join(map(text_literal, paths)), f" UNION ALL BY NAME {_NO_OPTION}" * (table == "queries")
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS FROM rows_by_name([{named}]){optional}")
    else:
        connection.from_arrow(ARM_STORED[table].empty_table()).create_view(name, replace=True)


def searched_rewrites(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, ids: Sequence[str], arm: str
) -> dict[str, list[dict[str, Any]]]:
    """Returns query_id -> rows of rewrites/, by strategy and position; of an arm those that it searches."""
    rewrites: dict[str, list[dict[str, Any]]] = {}
    given, own = dict[str, Any](ids=ids), ""
    for described in (one for one in run.arms if one["name"] == arm):
        own = " AND arm = $arm AND strategy IN (SELECT unnest($strategies))"
        given |= {"arm": described.get("rewrites_of") or arm, "strategies": list(described.get("strategies", ()))}
    create_views(connection, run, ["rewrites"])
    query = f"FROM rewrites WHERE query_id IN (SELECT unnest($ids)){own} ORDER BY query_id, strategy, position"
    for row in connection.sql(query, params=given).to_arrow_table().to_pylist():
        rewrites.setdefault(row["query_id"], []).append(row)
    return rewrites
