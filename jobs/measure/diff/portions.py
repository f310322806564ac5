"""Two runs in portions of their queries, so that comparing them takes memory that does not grow with the log.

A shard holds a range of query_ids, of its tier, and the statistics of its row group in `queries/` tell which. Two logs are cut
into shards at other ids, so a portion is a range of ids, with the files of the shards of each run that have some of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import duckdb
import pyarrow as pa

from cluster.run.shards import Shard
from jobs.runs.folder import RunFolder
from jobs.runs.reading import create_view, files, queries_table

QUERIES = 1 << 15  # of a portion; 1,000,000 queries at once did not fit into 256 MB
TABLES = ("rewrites", "results", "selections")
_QUERIES = pa.schema([("query_id", pa.string()), ("query", pa.string()), ("log_count", pa.int64())])
LAST = "\U0010ffff"


class _Range(NamedTuple):
    """The query_ids of a shard, the least and the greatest."""

    shard: Shard
    least: str
    greatest: str


def portions(connection: duckdb.DuckDBPyConnection, a: RunFolder, b: RunFolder) -> Iterator[None]:
    """Goes through the queries of two runs; at each step the connection has views of a portion of their committed rows.

    They are `a_queries`, `b_queries` (query_id, query, log_count), and of each run `rewrites`, `results` and `selections`
    (query_id, strategies: the planned ones where the run does not select); the last three may hold rows of other queries, too.
    """
    sides = [("a", a, _ranges(connection, a)), ("b", b, _ranges(connection, b))]
    cuts = _cuts(max((ranges for _, _, ranges in sides), key=lambda ranges: sum(one.shard.rows for one in ranges)))
    for low, high in zip(cuts, [*cuts[1:], LAST], strict=True):
        for name, run, ranges in sides:
            _views(connection, name, run, [one.shard for one in ranges if one.greatest >= low and one.least < high], low, high)
        yield


def _ranges(connection: duckdb.DuckDBPyConnection, run: RunFolder) -> list[_Range]:
    """Returns the ranges of the committed shards, in order."""
    done = {manifest.shard for manifest in run.manifests}
    shards = {(run.storage.url(shard.key), shard.row_group): shard for shard in run.plan.shards if shard.number in done}
    if not shards:
        return []
    rows = connection.execute(
        "SELECT file_name, row_group_id, stats_min_value, stats_max_value FROM parquet_metadata(?)"
        " WHERE path_in_schema = 'query_id'",
        [sorted({file for file, _ in shards})],
    ).fetchall()
    found = [_Range(shards[file, group], least, greatest) for file, group, least, greatest in rows if (file, group) in shards]
    return sorted(found, key=lambda one: one.least)


def _cuts(ranges: list[_Range]) -> list[str]:
    """Returns the least ids of the portions, the first of which has all that is less, too."""
    cuts, rows = [""], 0
    for one in ranges:
        if rows and rows + one.shard.rows > QUERIES:
            cuts.append(one.least)
            rows = 0
        rows += one.shard.rows
    return cuts


def _views(connection: duckdb.DuckDBPyConnection, name: str, run: RunFolder, shards: list[Shard], low: str, high: str) -> None:
    numbers = {shard.number for shard in shards}
    queries = queries_table(run, sorted(numbers), _QUERIES.names) if numbers else _QUERIES.empty_table()
    connection.register("queries", queries)
    portion = "SELECT * FROM queries WHERE query_id >= $low AND query_id < $high"
    connection.execute(f"CREATE OR REPLACE TABLE {name}_queries AS {portion}", {"low": low, "high": high})
    manifests = [manifest for manifest in run.manifests if manifest.shard in numbers]
    for table in TABLES:
        # the portion's other rows are dropped where the rows are joined to its queries
        create_view(connection, f"{name}_{table}", table, files(run, table, manifests))
    if not run.config.rewrite.selects:
        planned = pa.table({"strategies": pa.array([run.config.rewrite.planned], pa.list_(pa.string()))})
        connection.register(f"{name}_planned", planned)
        connection.execute(
            f"CREATE OR REPLACE VIEW {name}_selections AS SELECT query_id, strategies FROM {name}_queries, {name}_planned"
        )
