"""The queries of a run with the texts that training rows are made of, some shards at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from jobs.publish.choice import as_one_of
from jobs.publish.rows import LookUpRows
from jobs.publish.training.gains import Gains
from jobs.runs.folder import RunFolder
from jobs.runs.reading import create_view, database, files, portions, queries_table
from jobs.tables import ORIGINAL
from rewriters.guards.guards import OVERRIDE

HELD = pa.schema([("query_id", pa.string()), ("query", pa.string()), ("log_count", pa.int64()), ("context", pa.string())])
"""Columns of the file of held-out queries: a log for a run that is to measure what was trained."""
_PORTION = 1_000_000  # rows of runs/ at a time, or of results/ where there are none
_FLAGGED = f"len(list_filter(coalesce(guards, []), lambda flag: flag != '{OVERRIDE}')) > 0 OR parsed_as = '{ORIGINAL}'"


@dataclass(frozen=True)
class TrainingText:
    """A rewrite that a row of the export has.

    Attributes:
        strategy: That wrote it.
        position: From 1.
        text: As it is searched.
        search_as: query or passage.
        flagged: Whether a guard or the reading found a fault in it, or the original stands in for it.
        joined: Whether it was searched as one with other texts, or with the original, so that its lists are not its own.
        value: Of its lists (`gains.py`); None: it is not measured, or its query is not.
    """

    strategy: str
    position: int
    text: str
    search_as: str
    flagged: bool
    joined: bool
    value: float | None


@dataclass(frozen=True)
class TrainingQuery:
    """A query that may be trained on, as the run shows it.

    Attributes:
        query: Its text.
        context: Its earlier turns; None: there are none.
        original: The value of the original's own lists; None: it is not measured.
        texts: Its rewrites, as the export has them.
    """

    query: str
    context: str | None
    original: float | None
    texts: list[TrainingText] = field(default_factory=list)


def check_training(options: Mapping[str, Any]) -> None:
    """Checks the numbers among the options of a format of training rows.

    Raises:
        ConfigError: One is too small.
    """
    for name, least in (("holdout", 0), ("pairs", 1), ("margin", 0)):
        if (value := options.get(name)) is not None and value < least:
            raise ConfigError("argument", f"--{name} {value}: is less than {least}; give {least} or more")


@contextmanager
def training_files(folder: Path, name: str) -> Iterator[tuple[pq.ParquetWriter, TextIO]]:
    """Yields writers of the held-out queries (`HELD`) and of the lines of a format of training rows."""
    with (
        pq.ParquetWriter(folder / f"{name}_held_out.parquet", HELD, compression="zstd") as held,
        (folder / f"{name}.jsonl").open("w", encoding="utf-8", newline="\n") as lines,
    ):
        yield held, lines


def training_queries(
    run: RunFolder,
    rows: LookUpRows,
    gains: Gains | None,
    holdout: int,
    held: pq.ParquetWriter,
    counts: Counter[str],
) -> Iterator[TrainingQuery]:
    """Yields the queries of a run but those of the first `holdout` buckets, which are written to `held`, and counted.

    Args:
        run: Finished.
        rows: Its look-up rows.
        gains: By which texts are measured; None: they are not.
        holdout: Number of buckets.
        held: Takes tables of `HELD`.
        counts: Gets `held_out`.
    """
    tables = ("rewrites", *(("runs", "scores", "errors") if gains is not None else ()))
    with database() as connection:
        for manifests in portions(run.manifests, "runs" if gains is not None else "rewrites", _PORTION):
            queries = queries_table(run, (one.shard for one in manifests), HELD.names)
            connection.register("queries", queries)
            for table in tables:
                create_view(connection, table, table, files(run, table, manifests))
            left = connection.sql(
                "FROM queries SEMI JOIN (SELECT key FROM read_parquet($rows) WHERE bucket < $holdout"
                " AND key BETWEEN $least AND $most) ON key = query_id ORDER BY query_id",
                params=_bounds(queries, rows) | {"holdout": holdout},
            ).to_arrow_table()
            counts["held_out"] += left.num_rows
            held.write_table(left.cast(HELD))
            yield from _read(connection, run, rows, queries, gains, holdout)


def _read(
    connection: duckdb.DuckDBPyConnection,
    run: RunFolder,
    rows: LookUpRows,
    queries: pa.Table,
    gains: Gains | None,
    holdout: int,
) -> Iterator[TrainingQuery]:
    as_one = as_one_of(run)
    with_original = [name for name, of in as_one.items() if of == "with_original"]
    values = {} if gains is None else gains(connection)
    found = connection.execute(
        f"""
        WITH texts AS (
            SELECT key AS query_id, unnest(rewrites, recursive := true) FROM read_parquet($rows)
            WHERE bucket >= $holdout AND key BETWEEN $least AND $most
        )
        SELECT query_id, queries.query, queries.context, strategy, position, texts.text, texts.search_as, {_FLAGGED} AS flagged,
          list_contains($with_original, strategy)
            OR list_contains($as_one, strategy) AND count(*) OVER (PARTITION BY query_id, strategy) > 1 AS joined
        FROM queries JOIN texts USING (query_id) JOIN rewrites USING (query_id, strategy, position)
        ORDER BY query_id, strategy, position
        """,
        _bounds(queries, rows) | {"holdout": holdout, "as_one": [*as_one], "with_original": with_original},
    )
    query_id, one = "", TrainingQuery("", None, None)
    while some := found.fetchmany(1 << 12):
        for of, query, context, strategy, position, text, search_as, flagged, joined in some:
            if of != query_id:
                if one.texts:
                    yield one
                query_id, one = of, TrainingQuery(query, context, values.get((of, ORIGINAL, 1)))
            value = values.get((of, strategy, position))
            one.texts.append(TrainingText(strategy, position, text, search_as, flagged, joined, value))
    if one.texts:
        yield one


def _bounds(queries: pa.Table, rows: LookUpRows) -> dict[str, object]:
    """Returns parameters by which few row groups of the look-up rows are read."""
    ids = queries.column("query_id").to_pylist()
    return {"rows": str(rows.path), "least": min(ids), "most": max(ids)}
