"""The queries of two runs whose rewrites or first documents differ, with how often they were asked; by DuckDB, in portions.

Two logs are cut into shards at other ids, so a portion is a range of query_ids, with the files of the shards of each run that
have some of them: comparing takes memory that does not grow with the log.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from jobs.measure.judged_rows import asked_queries, text_names
from jobs.measure.measures import DEPTH
from jobs.runs.folder import RunFolder
from jobs.runs.tables import committed_queries, create_views, database

QUERIES = 1 << 15  # of a portion; 1,000,000 queries at once did not fit into 256 MB
TABLES = ("rewrites", "results")
LAST = "\U0010ffff"


def portions(connection: duckdb.DuckDBPyConnection, a: RunFolder, b: RunFolder) -> Iterator[None]:
    """Goes through the queries of two runs; at each step the connection has views of a portion of their committed rows.

    They are `a_queries`, `b_queries` (as `committed_queries`), and of each run `rewrites` and `results`, which may hold
    rows of other queries, too.
    """
    for name, run in (("a", a), ("b", b)):
        committed_queries(connection, run, f"{name}_committed")
    count = max(1, -(-max(run.counts["queries"] for run in (a, b)) // QUERIES))
    cuts = ["", *(f"{number * 16**8 // count:08x}" for number in range(1, count)), LAST]  # ids are hashes, so evenly spread
    for low, high in pairwise(cuts):
        for name, run in (("a", a), ("b", b)):
            portion = f"FROM {name}_committed WHERE query_id >= $low AND query_id < $high"
            connection.execute(f"CREATE OR REPLACE TABLE {name}_queries AS {portion}", {"low": low, "high": high})
            numbers = {number for (number,) in connection.execute(f"SELECT DISTINCT shard FROM {name}_queries").fetchall()}
            # the portion's other rows are dropped where the rows are joined to its queries
            create_views(connection, run, TABLES, [one for one in run.manifests if one.shard in numbers], f"{name}_")
        yield


_TEXTS = """
CREATE OR REPLACE TABLE texts AS
SELECT query_id, strategy, count(x.text) > 0 AS of_a, count(y.text) > 0 AS of_b,
    NOT bool_and(x.text IS NOT DISTINCT FROM y.text) AS moved
FROM (SELECT query_id, strategy, position, text FROM a_rewrites SEMI JOIN shared USING (query_id)) AS x
FULL JOIN (SELECT query_id, strategy, position, text FROM b_rewrites SEMI JOIN shared USING (query_id)) AS y
    USING (query_id, strategy, position)
GROUP BY query_id, strategy
"""
_DOCUMENTS = """
CREATE OR REPLACE TABLE documents AS
SELECT query_id, count(x.rank) AS of_a, count(y.rank) AS of_b, count(x.rank + y.rank) AS kept,
    NOT bool_and(x.rank IS NOT DISTINCT FROM y.rank) AS moved,
    max(doc_id) FILTER (x.rank = 1) AS first_a, max(doc_id) FILTER (y.rank = 1) AS first_b
FROM (SELECT query_id, doc_id, rank FROM a_results SEMI JOIN shared USING (query_id) WHERE rank <= {depth}) AS x
FULL JOIN (SELECT query_id, doc_id, rank FROM b_results SEMI JOIN shared USING (query_id) WHERE rank <= {depth}) AS y
    USING (query_id, doc_id)
GROUP BY query_id
"""
_MOVED = """
CREATE OR REPLACE TABLE moved AS
SELECT query_id, log_count, coalesce(rewritten, false) AS rewritten, coalesce(moved, false) AS moved,
    coalesce(kept / greatest(of_a, of_b), 1) AS overlap, first_a, first_b
FROM shared LEFT JOIN documents USING (query_id)
LEFT JOIN (SELECT query_id, bool_or(moved AND list_contains($both, strategy)) AS rewritten FROM texts GROUP BY query_id)
    USING (query_id)
"""
_SHARES = {  # field of `Moves` -> table and condition of its queries
    "only_a": "a_queries ANTI JOIN b_queries USING (query_id)",
    "only_b": "b_queries ANTI JOIN a_queries USING (query_id)",
    "both": "moved",
    "rewrites": "moved WHERE rewritten",
    "documents": "moved WHERE moved",
}
_OVERLAPS = "SELECT coalesce(sum(overlap * log_count), 0), coalesce(sum(log_count), 0), coalesce(sum(overlap), 0) FROM moved"
_BY_STRATEGY = """
SELECT strategy, count(*) FILTER (texts.of_a), sum(log_count) FILTER (texts.of_a),
    count(*) FILTER (texts.of_b), sum(log_count) FILTER (texts.of_b), count(*) FILTER (moved), sum(log_count) FILTER (moved)
FROM texts JOIN shared USING (query_id) GROUP BY strategy
"""


class Share(NamedTuple):
    """A number of queries, and how often they were asked (the sum of their log_count)."""

    queries: int
    asked: int


class StrategyMoves(NamedTuple):
    """Changes of one strategy's texts, over the queries that both runs have."""

    strategy: str
    a: Share
    b: Share
    moved: Share  # with other texts, or with a text in one of them only


class MovedQuery(NamedTuple):
    """One query whose rewrites or first documents differ."""

    query_id: str
    query: str
    asked: int
    moved: bool  # whether the first documents are others, or in another order
    overlap: float
    first: tuple[str | None, str | None]
    rewrites: dict[str, tuple[str | None, str | None]]
    """Strategy, with the position where it has several texts -> its text in A and in B, where they differ."""
    context: str | None = None


class Moves(NamedTuple):
    """The queries of two runs, compared. How often a query was asked is by B's log, of A's own queries by A's."""

    only_a: Share
    only_b: Share
    both: Share
    depth: int
    rewrites: Share  # queries with other texts of a strategy that both runs have
    strategies: list[StrategyMoves]
    documents: Share  # queries whose first documents are others, or in another order
    overlap: float | None  # mean share of the first documents that both have, by traffic; None without a query that both have
    listed: list[MovedQuery]


def moves(a: RunFolder, b: RunFolder, count: int) -> Moves:
    """Compares the committed queries, rewrites and first documents of two runs."""
    depth = min(DEPTH, a.config.results, b.config.results)
    planned = a.config.rewrite.planned, b.config.rewrite.planned
    both = [name for name in planned[0] if name in planned[1]]
    shares = {name: np.zeros(2, np.int64) for name in _SHARES}
    by_strategy = {name: np.zeros(6, np.int64) for name in dict.fromkeys([*planned[0], *planned[1]])}
    overlaps = np.zeros(3)  # by traffic, the traffic itself, and by queries, where nobody asked anything
    listed: list[MovedQuery] = []
    with database(a, b) as connection:
        for _ in portions(connection, a, b):
            connection.execute(
                "CREATE OR REPLACE TABLE shared AS"
                " SELECT query_id, b_queries.log_count FROM a_queries JOIN b_queries USING (query_id)"
            )
            connection.execute(_TEXTS)
            connection.execute(_DOCUMENTS.format(depth=depth))
            connection.execute(_MOVED, {"both": both})
            for name, rows in _SHARES.items():
                shares[name] += connection.execute(f"SELECT count(*), coalesce(sum(log_count), 0) FROM {rows}").fetchone()
            for strategy, *numbers in connection.execute(_BY_STRATEGY).fetchall():
                by_strategy.setdefault(strategy, np.zeros(6, np.int64))[:] += [number or 0 for number in numbers]
            overlaps += connection.execute(_OVERLAPS).fetchone()
            listed += _listed(connection, both, count)
            listed = sorted(listed, key=lambda query: (-query.asked, query.overlap, query.query_id))[:count]
        connection.register("wanted", pa.table({"query_id": pa.array([query.query_id for query in listed], pa.string())}))
        asked = asked_queries(connection, b)
    queries, (by_traffic, traffic, by_queries) = int(shares["both"][0]), overlaps.tolist()
    return Moves(
        **{name: Share(*share.tolist()) for name, share in shares.items()},
        depth=depth,
        strategies=[
            StrategyMoves(name, *(Share(*share) for share in numbers.reshape(3, 2).tolist()))
            for name, numbers in by_strategy.items()
        ],
        overlap=by_traffic / traffic if traffic else by_queries / queries if queries else None,
        listed=[query._replace(context=asked[query.query_id].context) for query in listed],
    )


def _listed(connection: duckdb.DuckDBPyConnection, both: list[str], count: int) -> list[MovedQuery]:
    connection.execute(
        "CREATE OR REPLACE TABLE listed AS FROM moved WHERE moved OR rewritten"
        " ORDER BY log_count DESC, overlap, query_id LIMIT $n",
        {"n": count},
    )
    texts = connection.execute(
        "SELECT query_id, strategy, position, x.text, y.text FROM (FROM a_rewrites SEMI JOIN listed USING (query_id)) AS x"
        " FULL JOIN (FROM b_rewrites SEMI JOIN listed USING (query_id)) AS y USING (query_id, strategy, position)"
        " ORDER BY query_id, position"
    ).fetchall()
    written: dict[str, dict[tuple[str, int], tuple[str | None, str | None]]] = {}
    for query_id, strategy, position, left, right in texts:
        written.setdefault(query_id, {})[strategy, position] = (left, right)
    rows = connection.execute(
        "SELECT query_id, query, listed.log_count, moved, overlap, first_a, first_b FROM listed JOIN b_queries USING (query_id)"
    ).fetchall()
    moved = []
    for query_id, query, asked, is_moved, overlap, *first in rows:
        names, of_query = text_names(written.get(query_id, {})), written.get(query_id, {})
        order = sorted((text for text in of_query if text[0] in both), key=lambda text: (both.index(text[0]), text[1]))
        rewrites = {names[text]: of_query[text] for text in order if of_query[text][0] != of_query[text][1]}
        moved.append(MovedQuery(query_id, query, asked, is_moved, overlap, (first[0], first[1]), rewrites))
    return moved
