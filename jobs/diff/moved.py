"""The queries of two runs whose rewrites or first documents differ, with how often they were asked; all of it by DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from jobs.evaluate.measure import DEPTH
from jobs.evaluate.per_query import database, kept
from jobs.run.folder import RunFolder
from jobs.tables import STORED

_COMMITTED = """
CREATE TABLE {name} AS SELECT query_id, log_count
FROM read_parquet($files, filename = true, file_row_number = true) AS queries
LEFT JOIN pending ON queries.filename = pending.filename AND file_row_number >= first AND file_row_number < next
WHERE pending.filename IS NULL
"""
_TEXTS = """
CREATE TABLE texts AS
SELECT query_id, strategy, count(x.text) > 0 AS of_a, count(y.text) > 0 AS of_b,
    NOT bool_and(x.text IS NOT DISTINCT FROM y.text) AS moved
FROM (SELECT query_id, strategy, position, text FROM a_rewrites SEMI JOIN shared USING (query_id)) AS x
FULL JOIN (SELECT query_id, strategy, position, text FROM b_rewrites SEMI JOIN shared USING (query_id)) AS y
    USING (query_id, strategy, position)
GROUP BY query_id, strategy
"""
_DOCUMENTS = """
CREATE TABLE documents AS
SELECT query_id, count(x.rank) AS of_a, count(y.rank) AS of_b, count(x.rank + y.rank) AS kept,
    NOT bool_and(x.rank IS NOT DISTINCT FROM y.rank) AS moved,
    max(doc_id) FILTER (x.rank = 1) AS first_a, max(doc_id) FILTER (y.rank = 1) AS first_b
FROM (SELECT query_id, doc_id, rank FROM a_results SEMI JOIN shared USING (query_id) WHERE rank <= {depth}) AS x
FULL JOIN (SELECT query_id, doc_id, rank FROM b_results SEMI JOIN shared USING (query_id) WHERE rank <= {depth}) AS y
    USING (query_id, doc_id)
GROUP BY query_id
"""
_MOVED = """
CREATE TABLE moved AS
SELECT query_id, log_count, coalesce(strategies, []) AS strategies, coalesce(moved, false) AS moved,
    coalesce(kept / greatest(of_a, of_b), 1) AS overlap, first_a, first_b
FROM shared LEFT JOIN documents USING (query_id) LEFT JOIN (
    SELECT query_id, list(strategy ORDER BY strategy) AS strategies
    FROM texts WHERE moved AND list_contains($both, strategy) GROUP BY query_id
) USING (query_id)
"""


class Share(NamedTuple):
    """A number of queries, and how often they were asked (the sum of their log_count)."""

    queries: int
    asked: int


class StrategyMoves(NamedTuple):
    """What became of one strategy's texts, over the queries that both runs have."""

    strategy: str
    a: Share
    """With a text in A."""
    b: Share
    """With a text in B."""
    moved: Share
    """With other texts, or with a text in one of them only."""


class MovedQuery(NamedTuple):
    """One query whose rewrites or first documents differ."""

    query_id: str
    query: str
    asked: int
    moved: bool
    """Whether the first documents are others, or in another order."""
    overlap: float
    """Share of the first documents that are in both lists."""
    first: tuple[str | None, str | None]
    """The first document of A and of B."""
    rewrites: dict[str, tuple[str | None, str | None]]
    """Strategy -> its text in A and in B, where they differ; of several texts the first that differs."""


class Moves(NamedTuple):
    """The queries of two runs, compared. How often a query was asked is by B's log, of A's own queries by A's."""

    only_a: Share
    only_b: Share
    both: Share
    depth: int
    """The number of first documents that are compared."""
    rewrites: Share
    """Queries with other texts of a strategy that both runs have."""
    strategies: list[StrategyMoves]
    documents: Share
    """Queries whose first documents are others, or in another order."""
    others: Share
    """Queries with other documents among them."""
    first: Share
    """Queries with another first document."""
    overlap: float | None
    """Mean share of the first documents that both have, by traffic; None without a query that both have."""
    listed: list[MovedQuery]
    """The queries that were asked most often, of those whose rewrites or first documents differ."""


def moves(a: RunFolder, b: RunFolder, count: int) -> Moves:
    """Compares the committed queries, rewrites and first documents of two runs.

    Args:
        a: one run.
        b: the other.
        count: the most queries to list.

    Raises:
        ConfigError: files of the runs cannot be read.
    """
    depth = min(DEPTH, kept(a), kept(b))
    both = [name for name in a.config.rewrite.planned if name in b.config.rewrite.planned]
    with _compared(a, b, depth, both) as connection:

        def share(condition: str, table: str = "moved") -> Share:
            row = connection.execute(f"SELECT count(*), coalesce(sum(log_count), 0) FROM {table} WHERE {condition}").fetchone()
            assert row is not None
            return Share(int(row[0]), int(row[1]))

        overlap = connection.execute(
            "SELECT coalesce(sum(overlap * log_count) / nullif(sum(log_count), 0), avg(overlap)) FROM moved"
        ).fetchone()
        assert overlap is not None
        return Moves(
            only_a=share("query_id NOT IN (SELECT query_id FROM b)", "a"),
            only_b=share("query_id NOT IN (SELECT query_id FROM a)", "b"),
            both=share("true"),
            depth=depth,
            rewrites=share("len(strategies) > 0"),
            strategies=_by_strategy(connection, dict.fromkeys([*a.config.rewrite.planned, *b.config.rewrite.planned])),
            documents=share("moved"),
            others=share("overlap < 1"),
            first=share("first_a IS DISTINCT FROM first_b"),
            overlap=overlap[0],
            listed=_listed(connection, b, both, count),
        )


@contextmanager
def _compared(a: RunFolder, b: RunFolder, depth: int, both: list[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens a database with the tables `a`, `b` (committed queries), `shared`, `texts`, `documents` and `moved`."""
    with database(a, b) as connection:
        for name, run in (("a", a), ("b", b)):
            pending = pa.schema([("filename", pa.string()), ("first", pa.int64()), ("next", pa.int64())])
            connection.register("pending", pa.Table.from_pylist(run.pending, pending))
            connection.execute(_COMMITTED.format(name=name), {"files": run.tables["queries"]})
            for table in ("rewrites", "results"):
                _view(connection, f"{name}_{table}", table, run)
        connection.execute("CREATE TABLE shared AS SELECT query_id, b.log_count FROM a JOIN b USING (query_id)")
        connection.execute(_TEXTS)
        connection.execute(_DOCUMENTS.format(depth=depth))
        connection.execute(_MOVED, {"both": both})
        yield connection


def _view(connection: duckdb.DuckDBPyConnection, name: str, table: str, run: RunFolder) -> None:
    """Creates a view of the table's committed files."""
    if table in run.tables:
        connection.read_parquet(run.tables[table]).create_view(name)
    else:  # no committed shard has a row of it
        connection.register(name, STORED[table].empty_table())


def _by_strategy(connection: duckdb.DuckDBPyConnection, strategies: Sequence[str] | dict[str, None]) -> list[StrategyMoves]:
    columns = [
        f"{what} FILTER ({condition})" for condition in ("of_a", "of_b", "moved") for what in ("count(*)", "sum(log_count)")
    ]
    rows = connection.execute(
        f"SELECT strategy, {', '.join(columns)} FROM texts JOIN shared USING (query_id) GROUP BY strategy"
    ).fetchall()
    found = {name: [int(value or 0) for value in values] for name, *values in rows}
    none = [0] * len(columns)
    return [StrategyMoves(name, *map(Share, *[iter(found.get(name, none))] * 2)) for name in strategies]


def _listed(connection: duckdb.DuckDBPyConnection, b: RunFolder, both: list[str], count: int) -> list[MovedQuery]:
    connection.execute(
        "CREATE TABLE listed AS FROM moved WHERE moved OR len(strategies) > 0"
        " ORDER BY log_count DESC, overlap, query_id LIMIT $n",
        {"n": count},
    )
    rewrites: dict[str, dict[str, tuple[str | None, str | None]]] = {}
    texts = connection.execute(
        "SELECT query_id, strategy, x.text, y.text FROM (FROM a_rewrites SEMI JOIN listed USING (query_id)) AS x"
        " FULL JOIN (FROM b_rewrites SEMI JOIN listed USING (query_id)) AS y USING (query_id, strategy, position)"
        " WHERE x.text IS DISTINCT FROM y.text ORDER BY query_id, position"
    ).fetchall()
    for query_id, strategy, left, right in texts:
        if strategy in both:
            rewrites.setdefault(query_id, {}).setdefault(strategy, (left, right))
    rows = connection.execute(
        "SELECT query_id, query, listed.log_count, moved, overlap, first_a, first_b"
        " FROM listed JOIN read_parquet(?) AS queries USING (query_id) ORDER BY listed.log_count DESC, overlap, query_id",
        [b.tables["queries"]],
    ).fetchall()
    return [
        MovedQuery(query_id, query, asked, moved, overlap, (first_a, first_b), _in_order(rewrites.get(query_id, {}), both))
        for query_id, query, asked, moved, overlap, first_a, first_b in rows
    ]


def _in_order(values: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}
