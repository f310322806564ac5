"""A plain run in portions of its shards, as views of DuckDB: what is reviewed takes memory that does not grow with the log.

All rows of a query are in one shard, so what is found out about a query is exact portion by portion.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from cluster.errors import ConfigError
from jobs.measure.judged_rows import of_original
from jobs.measure.list_portions import lists_known
from jobs.runs.folder import RunFolder
from jobs.runs.reading import create_view, files, portions, queries_table

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
    known, done = lists_known(run), 0
    for manifests in portions(run.manifests, "runs" if known else "results", PORTION):
        connection.register("queries", queries_table(run, (one.shard for one in manifests), _OF_QUERY))
        for table in TABLES:
            create_view(connection, table, table, files(run, table, manifests))
        lists = files(run, "runs", manifests) if known else []
        create_view(connection, "lists", "runs", lists, f" WHERE {of_original(run)}")
        done += len(manifests)
        yield done
