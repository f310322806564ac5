"""The queries of a run with the texts that training rows are made of, some shards at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from jobs.publish.choice import as_one_of
from jobs.publish.rows import LookUpRows, bucket_of
from jobs.publish.training.gains import Gains
from jobs.publish.training.lines import TrainingLines, training_lines
from jobs.runs.folder import RunFolder
from jobs.runs.reading import create_view, database, files, portions, queries_table
from jobs.tables import ORIGINAL
from rewriters.guards.guards import OVERRIDE
from rewriters.normalise import query_id

HELD = pa.schema([("query_id", pa.string()), ("query", pa.string()), ("log_count", pa.int64()), ("context", pa.string())])
"""Columns of the file of held-out queries, a log for a run that is to measure what was trained; behind them those of
`retrieve.filters`."""
_PORTION = 1_000_000  # rows of runs/ at a time, or of results/ where there are none
_FLAGGED = f"len(list_filter(coalesce(guards, []), lambda flag: flag != '{OVERRIDE}')) > 0 OR parsed_as = '{ORIGINAL}'"

_HOLD_OUT = f"""
CREATE OR REPLACE TEMP TABLE queries AS
SELECT *, {bucket_of("words_id")} < $holdout AS held FROM all_queries
"""


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
        words_id: The `query_id` of its text and earlier turns, which queries that differ in filters have in common.
        query: Its text.
        context: Its earlier turns; None: there are none.
        original: The value of the original's own lists; None: it is not measured.
        texts: Its rewrites, as the export has them.
    """

    words_id: str
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
def training_files(
    folder: Path, name: str, run: RunFolder, counts: Counter[str]
) -> Iterator[tuple[pq.ParquetWriter, TrainingLines]]:
    """Yields writers of the held-out queries and of the rows of a format of training rows."""
    with (
        pq.ParquetWriter(folder / f"{name}_held_out.parquet", _held_columns(run), compression="zstd") as held,
        training_lines(folder / f"{name}.jsonl", run, counts) as lines,
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

    Buckets are by text and earlier turns: queries that differ in filters alone are held out together.

    Args:
        run: Finished.
        rows: Its look-up rows.
        gains: By which texts are measured; None: they are not.
        holdout: Number of buckets.
        held: As of `training_files`.
        counts: Gets `held_out`.
    """
    tables = ("rewrites", *(("runs", "scores", "errors") if gains is not None else ()))
    with database() as connection:
        for manifests in portions(run.manifests, "runs" if gains is not None else "rewrites", _PORTION):
            queries = _queries(run, [one.shard for one in manifests])
            connection.register("all_queries", queries)
            connection.execute(_HOLD_OUT, {"salt": rows.choice.salt, "buckets": rows.choice.buckets, "holdout": holdout})
            for table in tables:
                create_view(connection, table, table, files(run, table, manifests))
            left = connection.sql(
                "SELECT * EXCLUDE (words_id, held) FROM queries WHERE held ORDER BY query_id"
            ).to_arrow_table()
            counts["held_out"] += left.num_rows
            held.write_table(left.cast(held.schema))
            yield from _read(connection, run, rows, queries, gains)


def _read(
    connection: duckdb.DuckDBPyConnection,
    run: RunFolder,
    rows: LookUpRows,
    queries: pa.Table,
    gains: Gains | None,
) -> Iterator[TrainingQuery]:
    as_one = as_one_of(run)
    with_original = [name for name, of in as_one.items() if of == "with_original"]
    values = {} if gains is None else gains(connection)
    found = connection.execute(
        f"""
        WITH texts AS (
            SELECT key AS query_id, unnest(rewrites, recursive := true) FROM rows_of($rows)
            WHERE key BETWEEN $least AND $most
        )
        SELECT query_id, words_id, queries.query, queries.context, strategy, position, texts.text, texts.search_as,
          {_FLAGGED} AS flagged,
          list_contains($with_original, strategy)
            OR list_contains($as_one, strategy) AND count(*) OVER (PARTITION BY query_id, strategy) > 1 AS joined
        FROM queries JOIN texts USING (query_id) JOIN rewrites USING (query_id, strategy, position)
        WHERE NOT held ORDER BY query_id, strategy, position
        """,
        _bounds(queries, rows) | {"as_one": [*as_one], "with_original": with_original},
    )
    last, one = "", TrainingQuery("", "", None, None)
    while some := found.fetchmany(1 << 12):
        for of, words_id, query, context, strategy, position, text, search_as, flagged, joined in some:
            if of != last:
                if one.texts:
                    yield one
                last, one = of, TrainingQuery(words_id, query, context, values.get((of, ORIGINAL, 1)))
            value = values.get((of, strategy, position))
            one.texts.append(TrainingText(strategy, position, text, search_as, flagged, joined, value))
    if one.texts:
        yield one


def _held_columns(run: RunFolder) -> pa.Schema:
    filters = dict.fromkeys(run.config.retrieve.filters.values())
    taken = {*HELD.names, "words_id", "held"}
    return pa.schema([*HELD, *((f"filter {name}" if name in taken else name, pa.string()) for name in filters)])


def _queries(run: RunFolder, shards: Sequence[int]) -> pa.Table:
    """Returns the queries of some shards: the columns of the held-out ones, and `words_id`."""
    columns, filters = _held_columns(run), dict.fromkeys(run.config.retrieve.filters.values())
    if not filters:
        table = queries_table(run, shards, HELD.names)
        return table.append_column("words_id", table.column("query_id"))
    table = queries_table(run, shards, [*HELD.names, "values"])
    for name, column in zip(columns.names[len(HELD) :], filters, strict=True):
        table = table.append_column(name, pc.map_lookup(table.column("values"), column, "first"))
    asked = zip(table.column("query").to_pylist(), table.column("context").to_pylist(), strict=True)
    return table.drop_columns(["values"]).append_column("words_id", pa.array([query_id(*one) for one in asked], pa.string()))


def _bounds(queries: pa.Table, rows: LookUpRows) -> dict[str, object]:
    """Returns parameters by which few row groups of the look-up rows are read."""
    ids = queries.column("query_id").to_pylist()
    return {"rows": str(rows.path), "least": min(ids), "most": max(ids)}
