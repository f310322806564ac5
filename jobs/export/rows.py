"""Look-up rows: one per query of a finished run, with its rewrites and its first documents.

DuckDB makes them from the committed shards, some at a time. A row holds no time and no place, so one run gives the same rows.
"""

from collections import Counter
from math import isnan, nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.runs.folder import RunFolder
from jobs.runs.tables import create_views, database, portions, queries_table
from jobs.tables import HIT, ITERATE, REWRITE
from retrievers.fusion import list_weight

_REWRITE = pa.struct([REWRITE.field(name) for name in ("strategy", "position", "text", "weight", "search_as")])
LOOK_UP = pa.schema(
    [(name, pa.string()) for name in ("query_id", "query", "context")]
    + [("rewrites", pa.list_(_REWRITE)), ("hits", pa.list_(HIT))]
)
"""Columns of a look-up row; `context` is null where a query was asked without earlier turns."""
COUNTED = ("rows", "rewrites", "hits", "traffic", "served_traffic")
"""Counts of an export: `traffic` is how often its queries were asked, `served_traffic` those with rewrites or hits."""

_PORTION = 200_000  # rows of results/ at a time
_BATCH = 1 << 14  # rows of a row group
_GIVEN = pa.schema(
    [
        ("strategy", pa.string()),
        ("place", pa.int32()),
        ("weight", pa.float64()),  # the greatest of `fuse.weights` by the retrievers whose lists are fused; null: none is given
        ("own", pa.bool_()),  # whether a list that takes part has the strategy's own weight
    ]
)
_ROWS = """
WITH searched AS (
  SELECT query_id, place, strategy, position, text, search_as, position_weight
    * coalesce(greatest(given.weight, if(own, rewrites.weight, NULL)), rewrites.weight) AS weight
  FROM rewrites LEFT JOIN given USING (strategy)
), texts AS (
  SELECT query_id, list({'strategy': strategy, 'position': position, 'text': text, 'weight': weight, 'search_as': search_as}
    ORDER BY place, strategy, position) AS rewrites FROM searched GROUP BY query_id
), first AS (
  SELECT query_id, list({'doc_id': doc_id, 'score': score} ORDER BY rank) AS hits FROM results WHERE rank <= $hits
  GROUP BY query_id
)
SELECT query_id, normalised AS query, context, coalesce(rewrites, []) AS rewrites, coalesce(hits, []) AS hits, log_count
FROM queries LEFT JOIN texts USING (query_id) LEFT JOIN first USING (query_id) ORDER BY query_id
"""


def write_rows(run: RunFolder, hits: int, path: Path) -> dict[str, int]:
    """Writes the rows of a finished run, with the first `hits` documents each, to a local file; returns `COUNTED`."""
    counts = Counter(dict.fromkeys(COUNTED, 0))
    with database(run) as connection, pq.ParquetWriter(path, LOOK_UP, compression="zstd") as file:
        connection.register("given", pa.Table.from_pylist(_strategies(run), _GIVEN))
        for portion in portions(run.manifests, "results", _PORTION):
            columns = ["query_id", "normalised", "log_count", "context"]
            connection.register("queries", queries_table(run, (one.shard for one in portion), columns))
            create_views(connection, run, ["rewrites", "results"], portion)
            table = connection.sql(_ROWS, params={"hits": hits}).to_arrow_table()
            counts.update(_counted(table))
            file.write_table(table.select(LOOK_UP.names).cast(LOOK_UP), _BATCH)
    return dict(counts)


def _strategies(run: RunFolder) -> list[dict[str, Any]]:
    """Returns a row of `_GIVEN` per strategy whose texts rewrites/ may have, in the order of the config."""
    fuse, strategies = run.config.fuse, []
    for order, name in enumerate([*run.config.rewrite.planned, *[ITERATE] * (run.config.iterate is not None)]):
        weights = [
            list_weight(fuse.weights, name, retriever, nan)
            for retriever in run.config.retrieve.route(name)
            if fuse.retriever_weights.get(retriever, 1.0) > 0
        ]
        given = [weight for weight in weights if not isnan(weight)]
        weight = max(given, default=None if weights else 0.0)
        strategies.append({"strategy": name, "place": order, "weight": weight, "own": len(given) < len(weights)})
    return strategies


def _counted(table: pa.Table) -> dict[str, int]:
    rewrites, hits = (pc.list_value_length(table.column(name)) for name in ("rewrites", "hits"))
    asked = table.column("log_count")
    served = asked.filter(pc.greater(pc.add(rewrites, hits), 0))
    sums = (pc.sum(one).as_py() or 0 for one in (rewrites, hits, asked, served))
    return dict(zip(COUNTED, (len(table), *sums), strict=True))
