"""A plain run in portions of its shards, as views of DuckDB: what is reviewed takes memory that does not grow with the log.

All rows of a query are in one shard, so what is found out about a query is exact portion by portion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from cluster.run.shards import Shard
from cluster.storage.sql import text_literal
from jobs.measure.judged_rows import of_original
from jobs.runs.folder import RunFolder
from jobs.runs.reading import files, portions
from jobs.tables import STORED

PORTION = 1_000_000  # rows of runs/, or of results/ where lists were not kept: some 3,000 queries of the default depth
TABLES = ("results", "rewrites", "errors", "scores")
_OF_QUERY = ["query_id", "query", "log_count"]


def check_plain(run: RunFolder) -> None:
    """Checks that a run has one list of results for each query.

    Raises:
        ConfigError: It is an ablation.
    """
    if run.is_ablation:
        what = f"{run.storage.root}: is an ablation, whose arms are compared in its report"
        raise ConfigError("argument", f"{what}; give a run of the config that is to be used")


def lists_known(run: RunFolder) -> bool:
    """Returns whether all lists of the original alone are stored."""
    return run.config.retrieve.keep_runs and not run.config.joining


def why_unknown(run: RunFolder) -> str:
    """Returns why the lists of the original alone are not known."""
    if run.config.joining:
        names = ", ".join(run.config.joining)
        return f"{names} searched the texts of a query as one (together), so there is no list of the original alone"
    return "the run kept no lists (retrieve.keep_runs)"


def review_portions(connection: duckdb.DuckDBPyConnection, run: RunFolder) -> Iterator[int]:
    """Goes through the committed shards; yields how many are done with this portion.

    At each step the connection has views of the rows of some of them.

    Views are `queries` (query_id, query, log_count), those of `TABLES`, and `lists`: the hits of the original's own lists that
    take part in fusion, empty where they are not known.
    """
    shards = {shard.number: shard for shard in run.plan.shards}
    known = lists_known(run)
    reader = _QueryReader(run)
    done = 0
    for manifests in portions(run.manifests, "runs" if known else "results", PORTION):
        connection.register("queries", reader([shards[one.shard] for one in manifests]))
        for table in TABLES:
            _view(connection, table, f"read_parquet({{}}) AS {table}", files(run, table, manifests), STORED[table])
        source = f"(FROM read_parquet({{}}) WHERE {of_original(run)})"
        _view(connection, "lists", source, files(run, "runs", manifests) if known else [], STORED["runs"])
        done += len(manifests)
        yield done


def _view(connection: duckdb.DuckDBPyConnection, name: str, source: str, paths: Sequence[str], schema: pa.Schema) -> None:
    if paths:  # a view has no parameters, so that the paths stand in it
        named = ", ".join(map(text_literal, paths))
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS FROM {source.format(f'[{named}]')}")
    else:
        connection.from_arrow(schema.empty_table()).create_view(name, replace=True)


class _QueryReader:
    """Reads the queries of shards; the file of the last one stays open, since a plan has one file for many shards."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._open: tuple[str, pq.ParquetFile] | None = None

    def __call__(self, shards: Sequence[Shard]) -> pa.Table:
        tables = []
        for shard in shards:
            if self._open is None or self._open[0] != shard.key:
                self._open = shard.key, pq.ParquetFile(self._run.storage.open(shard.key))
            tables.append(self._open[1].read_row_group(shard.row_group, columns=_OF_QUERY))
        return pa.concat_tables(tables)
