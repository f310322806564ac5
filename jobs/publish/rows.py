"""Look-up rows: what a search is told of a query that it has seen before, one row per query of a finished run.

DuckDB makes them from the committed shards, some at a time, and they go into one local Parquet file, sorted by key, which all
formats read. A row holds no time and no place, so one run and one choice give the same rows always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from cluster.storage.s3_duckdb import reason
from jobs.counts import LeftOutTexts, counts_of
from jobs.measure.judged_rows import of_original
from jobs.measure.list_portions import weightless
from jobs.publish.choice import RowChoice, as_one_of, strategies_of
from jobs.runs.folder import RunFolder
from jobs.runs.reading import create_view, database, files, portions, queries_table
from jobs.runs.tally import Committed
from jobs.tables import ORIGINAL
from retrievers.fusion import list_weight

LOOK_UP = pa.schema(
    [
        ("key", pa.string()),
        ("query", pa.string()),
        ("context", pa.string()),
        ("bucket", pa.int16()),
        (
            "rewrites",
            pa.list_(
                pa.struct(
                    [
                        ("strategy", pa.string()),
                        ("position", pa.int32()),
                        ("text", pa.string()),
                        ("weight", pa.float64()),
                        ("search_as", pa.string()),
                    ]
                )
            ),
        ),
        ("hits", pa.list_(pa.struct([("doc_id", pa.string()), ("score", pa.float64())]))),
        ("digest", pa.string()),
        ("version", pa.string()),
    ]
)
"""Columns of a look-up row; `context` is null where a query was asked without earlier turns."""
TRAFFIC = pa.field("log_count", pa.int64())
"""Stands behind them in the local file: how often the query was asked."""
COUNTED = ("rows", "rewrites", "hits", "without_rewrites", "without_hits", "traffic", "served_traffic")
"""What is counted: `without_rewrites` and `without_hits` are rows, `traffic` is how often their queries were asked, and
`served_traffic` how often those of rows with rewrites or hits."""
STRATEGY, VALUE = "strategy", "value"
"""Why rewrites are left out: their strategy was not chosen, or they have added too little."""

_PORTION = 200_000  # rows of results/ at a time
_SHARDS = 200  # at a time, where queries have no results
_BATCH = 1 << 14  # rows that are read at a time, and of a row group
_GIVEN = pa.schema(
    [
        ("strategy", pa.string()),
        ("place", pa.int32()),
        ("chosen", pa.bool_()),
        ("weight", pa.float64()),  # the greatest of `fuse.weights` by the retrievers whose lists are fused; null: none is given
        ("own", pa.bool_()),  # whether a list that takes part has the strategy's own weight
        ("as_one", pa.bool_()),  # its texts are searched as one, whose list has the position of the first
    ]
)
_OF_ORIGINAL = f"""
CREATE OR REPLACE VIEW of_original AS SELECT query_id, doc_id
FROM (SELECT query_id, doc_id, unnest(sources) AS one FROM results) WHERE one.strategy = '{ORIGINAL}'
"""
"""What the original found, where all its lists take part in fusion."""
_TEXTS = """
CREATE OR REPLACE TEMP TABLE texts AS
WITH found AS (
  SELECT DISTINCT query_id, doc_id, one.strategy AS strategy, one.position AS position
  FROM (SELECT query_id, doc_id, unnest(sources) AS one FROM results WHERE rank <= $hits)
), added AS (
  SELECT query_id, strategy, if(as_one, 0, position) AS list, count(DISTINCT doc_id) AS added
  FROM found ANTI JOIN of_original USING (query_id, doc_id)
  JOIN given USING (strategy) GROUP BY ALL
)
SELECT rewrites.query_id, rewrites.strategy, rewrites.position, text, search_as, place,
  coalesce(greatest(given.weight, if(own, rewrites.weight, NULL)), rewrites.weight) * position_weight AS weight,
  CASE WHEN NOT coalesce(chosen, $all) THEN $strategy WHEN coalesce(added, 0) < $least THEN $value END AS why
FROM rewrites LEFT JOIN given USING (strategy) LEFT JOIN added ON added.query_id = rewrites.query_id
  AND added.strategy = rewrites.strategy AND added.list = if(as_one, 0, rewrites.position)
"""
_ROWS = """
WITH chosen AS (
  SELECT query_id, list({'strategy': strategy, 'position': position, 'text': text, 'weight': weight, 'search_as': search_as}
    ORDER BY place, strategy, position) AS rewrites FROM texts WHERE why IS NULL GROUP BY query_id
), first AS (
  SELECT query_id, list({'doc_id': doc_id, 'score': score} ORDER BY rank) AS hits FROM results WHERE rank <= $hits
  GROUP BY query_id
), rows AS (
  SELECT query_id AS key, normalised AS query, context,
    {bucket} AS bucket,
    coalesce(rewrites, []) AS rewrites, coalesce(hits, []) AS hits, log_count
  FROM queries LEFT JOIN chosen USING (query_id) LEFT JOIN first USING (query_id)
)
SELECT * EXCLUDE (log_count), left(sha256({body}), 16) AS digest, $version AS version, log_count FROM rows ORDER BY key
"""
_PARTS = "'bucket': bucket, 'rewrites': rewrites, 'hits': hits"
_BODY = (
    f"CASE WHEN context IS NULL THEN to_json({{'key': key, 'query': query, {_PARTS}}})::VARCHAR"
    f" ELSE to_json({{'key': key, 'query': query, 'context': context, {_PARTS}}})::VARCHAR END"
)
_LINES = f"""
SELECT key, left(body, length(body) - 1) || ',"digest":"' || digest || '","version":' || to_json(version) || '}}' AS line
FROM (SELECT *, {_BODY} AS body FROM rows_of($file))
"""


def bucket_of(column: str) -> str:
    """Returns the bucket of a column with query_ids in SQL, with the parameters `salt` and `buckets`."""
    return f"(('0x' || left(sha256($salt || chr(10) || {column}), 16))::UBIGINT % $buckets)::SMALLINT"


class LookUpRows:
    """The rows of a run, sorted by key, in a local file that may be read any number of times."""

    def __init__(self, path: Path, version: str, counts: Counter[str], left_out: Counter[str], choice: RowChoice) -> None:
        """Takes what `written_rows` has written.

        Args:
            path: The file, with the columns of `LOOK_UP` and `TRAFFIC`.
            version: Of all rows.
            counts: What `COUNTED` says.
            left_out: Why -> rewrites that are in no row: `STRATEGY`, `VALUE`, or the guard of the run that left them out.
            choice: What went into them.
        """
        self.path, self.version, self.counts, self.left_out, self.choice = path, version, counts, left_out, choice

    def __len__(self) -> int:
        """Returns the number of rows."""
        return self.counts["rows"]

    def batches(self, rows: int = _BATCH, *, traffic: bool = False) -> Iterator[pa.RecordBatch]:
        """Yields the rows, at most so many at a time; with `traffic` each has `TRAFFIC`, too."""
        columns = [*LOOK_UP.names, *[TRAFFIC.name] * traffic]
        with pq.ParquetFile(self.path) as file:
            yield from file.iter_batches(rows, columns=columns)

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yields key and JSON of each row: its columns in their order, `context` only where there is one."""
        with database() as connection:
            for batch in connection.sql(_LINES, params={"file": str(self.path)}).to_arrow_reader(_BATCH):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def written_rows(run: RunFolder, choice: RowChoice, version: str, path: Path) -> LookUpRows:
    """Writes the rows of a finished run to a local file; returns them.

    Raises:
        ConfigError: The run's tables cannot be read.
    """
    counts, left_out = Counter(dict.fromkeys(COUNTED, 0)), Counter[str]()
    for one, texts in counts_of(run.counts, LeftOutTexts):
        left_out[one.guard] += texts
    head = run.plan.head  # its shards come first; they and the rest are sorted by query_id, each for itself
    tiers = [one for one in run.manifests if one.shard < head], [one for one in run.manifests if one.shard >= head]
    try:
        with database() as connection, pq.ParquetWriter(path, LOOK_UP.append(TRAFFIC), compression="zstd") as file:
            _register(connection, run, choice)
            made = [_made(connection, run, choice, version, tier, left_out) for tier in tiers]
            last = ""
            for table in _merged(made):
                keys = table.column("key")
                if not last < keys[0].as_py() or pc.count_distinct(keys).as_py() != len(keys):
                    raise ConfigError("run-damaged", f"{run.storage.root}: queries/ has a query twice; restore its files")
                last = keys[-1].as_py()
                _count(counts, table)
                file.write_table(table, _BATCH)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        what = f"{run.storage.root}: the run's tables cannot be read ({reason(error)})"
        raise ConfigError("run-damaged", f"{what}; put back what was changed there") from error
    return LookUpRows(path, version, counts, +left_out, choice)


def _register(connection: duckdb.DuckDBPyConnection, run: RunFolder, choice: RowChoice) -> None:
    """Tells DuckDB of the strategies."""
    as_one = as_one_of(run)
    given = [
        {
            "strategy": name,
            "place": place,
            "chosen": choice.strategies is None or name in choice.strategies,
            "as_one": name in as_one,
        }
        | _weights(run, name)
        for place, name in enumerate(strategies_of(run))
    ]
    connection.register("given", pa.Table.from_pylist(given, _GIVEN))


def _weights(run: RunFolder, strategy: str) -> dict[str, Any]:
    """Returns `weight` and `own` of a strategy."""
    fuse = run.config.fuse
    of = [
        list_weight(fuse.weights, strategy, retriever, nan)
        for retriever in run.config.retrieve.route(strategy)
        if fuse.retriever_weights.get(retriever, 1.0) > 0
    ]
    given = [weight for weight in of if not isnan(weight)]
    return {"weight": max(given, default=None if of else 0.0), "own": len(given) < len(of)}


def _made(
    connection: duckdb.DuckDBPyConnection,
    run: RunFolder,
    choice: RowChoice,
    version: str,
    manifests: Sequence[Committed],
    left_out: Counter[str],
) -> Iterator[pa.Table]:
    """Yields the rows of some shards, in their order, some shards at a time; counts what is left out."""
    most = (
        group[at : at + _SHARDS] for group in portions(manifests, "results", _PORTION) for at in range(0, len(group), _SHARDS)
    )
    in_runs = choice.min_added > 0 and bool(weightless(run, [ORIGINAL]))  # the original's lists: results may lack them
    for portion in most:
        columns = ["query_id", "normalised", "log_count", "context"]
        connection.register("queries", queries_table(run, (one.shard for one in portion), columns))
        for table in ("rewrites", "results"):
            create_view(connection, table, table, files(run, table, portion))
        if in_runs:
            create_view(connection, "of_original", "runs", files(run, "runs", portion), f" WHERE {of_original(run)}")
        else:
            connection.execute(_OF_ORIGINAL)
        given = {"hits": choice.hits, "least": choice.min_added, "all": choice.strategies is None}
        connection.execute(_TEXTS, given | {"strategy": STRATEGY, "value": VALUE})
        found = connection.execute("SELECT why, count(*) FROM texts WHERE why IS NOT NULL GROUP BY why").fetchall()
        left_out.update(dict(found))
        of_rows = {"hits": choice.hits, "salt": choice.salt, "buckets": choice.buckets, "version": version}
        rows = connection.sql(
            _ROWS.replace("{body}", _BODY).replace("{bucket}", bucket_of("query_id")), params=of_rows
        ).to_arrow_table()
        yield rows.cast(LOOK_UP.append(TRAFFIC))


def _merged(streams: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Yields the rows of tables that come sorted by key, sorted over all streams."""
    waiting = [(table, stream) for stream in streams if (table := next(stream, None)) is not None]
    while waiting:
        limit = min(table.column("key")[-1].as_py() for table, _ in waiting)
        parts, rest = [], []
        for table, stream in waiting:
            rows = pc.sum(pc.less_equal(table.column("key"), limit)).as_py()
            parts.append(table.slice(0, rows))
            if (more := table.slice(rows) if rows < len(table) else next(stream, None)) is not None:
                rest.append((more, stream))
        waiting = rest
        yield parts[0] if len(parts) == 1 else pa.concat_tables(parts).sort_by("key")


def _count(counts: Counter[str], table: pa.Table) -> None:
    rewrites, hits = (pc.list_value_length(table.column(name)) for name in ("rewrites", "hits"))
    asked = table.column(TRAFFIC.name)
    values = (
        len(table),
        pc.sum(rewrites).as_py(),
        pc.sum(hits).as_py(),
        pc.sum(pc.equal(rewrites, 0)).as_py(),
        pc.sum(pc.equal(hits, 0)).as_py(),
        pc.sum(asked).as_py(),
        pc.sum(asked.filter(pc.greater(pc.add(rewrites, hits), 0))).as_py() or 0,
    )
    counts.update(dict(zip(COUNTED, values, strict=True)))
