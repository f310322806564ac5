"""What was shown and what was clicked: the queries and events of a UBI export, joined and counted by DuckDB.

A query of the export (`query_id`, one search of one client) becomes a query of the job (its text in normal form), as dedup
makes it. The documents that it showed, and where, are `query_response_hit_ids`; where a query has none, its events of the
action `impression` with `position.ordinal`. A click counts once per search and document, as click models have it: more
clicks of the same search on a document are duplicates. A click's place is that of its document in the list, not the event's
ordinal, since the documents that were not clicked have no event, and places must be counted alike for both.

Memory grows with the distinct (query, document) pairs; all else is streamed or spilled to the temporary folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cluster.errors import LogError
from jobs.clicks.export import EventChoice, opened
from jobs.config.config import Config

BATCH_ROWS = 1 << 16
DROPPED = {
    "no_query": "without a query_id",
    "no_document": "without an object_id",
    "unknown_query": "of a query that the log does not have",
    "rejected": "of a query that the job rejects",
    "ambiguous": "of a query_id with several queries",
    "robot": "of a client with too many queries a day",
    "not_shown": "on a document that is not among those shown",
    "duplicate": "repeated",
}
"""Why a click is dropped; in the order in which the reasons are looked for."""
SEARCHES = {
    "rejected": "the job rejects the query",
    "ambiguous": "their query_id has several queries",
    "robot": "the client has too many queries a day",
    "no_list": "nothing tells what they showed",
}
"""Why a search is left out."""


@dataclass(frozen=True)
class Cells:
    """How often each document was shown to a query at each place, and clicked there; sorted by pair and place."""

    pairs: pa.Table
    """query_id, doc_id: the pairs, by number."""
    pair: npt.NDArray[np.int64]
    """(cells,) number of the pair."""
    rank: npt.NDArray[np.int64]
    """(cells,) place, from 1."""
    shown: npt.NDArray[np.float64]
    """(cells,) searches that showed it there."""
    clicked: npt.NDArray[np.float64]
    """(cells,) of them, those that clicked on it."""


@dataclass(frozen=True)
class Interactions:
    """What an export holds, and what of it was used."""

    cells: Cells
    events: int
    other_actions: int
    used: int
    """Clicks that count; events = other_actions + used + the sum of `dropped`."""
    dropped: dict[str, int]
    """A key of DROPPED -> clicks."""
    searches: int
    """Searches (distinct query_ids) of the log that count."""
    left_out: dict[str, int]
    """A key of SEARCHES -> searches that do not."""
    displaced: int
    """Used clicks whose ordinal is not their document's place in the list."""


def read_interactions(config: Config, reading: EventChoice) -> Interactions:
    """Returns what the job's log showed, and what was clicked.

    Raises:
        ConfigError: the log is no UBI.
        LogError: files are missing, cannot be read, or lack what is needed; no click is left.
    """
    with opened(config, reading) as connection:
        first = _first_ordinal(connection)
        connection.execute(_SEEN, {"first": first, "deepest": reading.deepest})
        connection.execute(_PLACED)
        found = dict(connection.execute("SELECT why, sum(n)::BIGINT FROM placed GROUP BY why").fetchall())
        used = _number(connection, "SELECT count(*) FROM placed WHERE why = 'used'")
        found["duplicate"] = found.get("used", 0) - used
        kinds = dict(connection.execute("SELECT kind, sum(n)::BIGINT FROM events GROUP BY kind").fetchall())
        left_out = dict(connection.execute("SELECT why, count(*) FROM searches WHERE why <> 'kept' GROUP BY why").fetchall())
        ((kept, bare),) = connection.execute(_KEPT).fetchall()
        displaced = _number(
            connection, "SELECT count(*) FROM placed WHERE why = 'used' AND ordinal - $first + 1 <> rank", first=first
        )
        dropped = {reason: found[reason] for reason in DROPPED if found.get(reason)}
        if not used:
            why = ", ".join(f"{n:,} {DROPPED[reason]}" for reason, n in dropped.items()) or "no event is of these actions"
            raise LogError("log-clicks", f"no click can be used ({', '.join(reading.actions)}): {why}; see docs/clicks.md")
        cells = _cells(connection)
        return Interactions(
            cells=cells,
            events=sum(kinds.values()),
            other_actions=sum(n for kind, n in kinds.items() if kind != "click"),
            used=used,
            dropped=dropped,
            searches=kept - bare,
            left_out={name: n for name, n in {**left_out, "no_list": bare}.items() if n},
            displaced=displaced,
        )


def clicked(config: Config, reading: EventChoice | None = None) -> dict[str, set[str]]:
    """Returns query_id -> the documents that were clicked after it, of a log with events; of another log nothing.

    A click counts wherever its document was shown, since none of its place is needed here.

    Raises:
        LogError: files are missing, cannot be read, or lack what is needed.
    """
    if config.log.format != "ubi":
        return {}
    found: dict[str, set[str]] = {}
    with opened(config, reading or EventChoice()) as connection:
        rows = connection.sql(
            "SELECT DISTINCT query_id, doc_id FROM events JOIN searches USING (ubi_id)"
            " WHERE kind = 'click' AND doc_id IS NOT NULL AND why = 'kept'"
        )
        for batch in rows.to_arrow_reader(1 << 14):
            for query_id, doc_id in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                found.setdefault(query_id, set()).add(doc_id)
    return found


def _first_ordinal(connection: duckdb.DuckDBPyConnection) -> int:
    """Returns the ordinal of the first place: UBI counts from 1, but some clients from 0, which shows in their events."""
    ((least,),) = connection.execute("SELECT min(ordinal) FROM events WHERE kind <> 'other'").fetchall()
    return 0 if least is not None and least <= 0 else 1


def _number(connection: duckdb.DuckDBPyConnection, sql: str, **values: int) -> int:
    ((number,),) = connection.execute(sql, values).fetchall()
    return int(number)


def _cells(connection: duckdb.DuckDBPyConnection) -> Cells:
    """Returns the cells; the tables of single searches are dropped before they are sorted."""
    connection.execute(_COUNTS)
    for table in ("lists", "seen", "events", "searches"):
        connection.execute(f"DROP TABLE {table}")
    pairs: list[pa.RecordBatch] = []
    columns: list[list[npt.NDArray[Any]]] = [[], [], [], []]
    number, last = -1, None
    for batch in connection.sql(_SORTED).to_arrow_reader(BATCH_ROWS):
        if not len(batch):
            continue
        keys = [batch.column(name).dictionary_encode().indices.to_numpy() for name in ("query_id", "doc_id")]
        new = np.ones(len(batch), bool)
        new[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
        new[0] = (batch.column(0)[0].as_py(), batch.column(1)[0].as_py()) != last
        pair = number + np.cumsum(new)
        number, last = int(pair[-1]), (batch.column(0)[-1].as_py(), batch.column(1)[-1].as_py())
        pairs.append(batch.select(["query_id", "doc_id"]).filter(pa.array(new)))
        for kept, found in zip(columns, (pair, *(column.to_numpy() for column in batch.columns[2:])), strict=True):
            kept.append(found)
    pair, rank, shown, clicks = (np.concatenate(column) for column in columns)
    return Cells(pa.Table.from_batches(pairs), pair, rank.astype(np.int64), shown.astype(np.float64), clicks.astype(np.float64))


# Of searches without a list: what their events of impression say.
_SEEN = """
CREATE TEMP TABLE seen AS
SELECT ubi_id, doc_id, ordinal - $first + 1 AS rank
FROM events SEMI JOIN (FROM searches WHERE why = 'kept') USING (ubi_id) ANTI JOIN lists USING (ubi_id)
WHERE kind = 'impression' AND doc_id IS NOT NULL AND ordinal BETWEEN $first AND $first + $deepest - 1
"""
_PLACED = """
CREATE TEMP TABLE placed AS
WITH clicks AS (FROM events WHERE kind = 'click'),
places AS (
    SELECT ubi_id, doc_id, list_position(hits, doc_id) AS rank FROM lists JOIN clicks USING (ubi_id) WHERE rank > 0
    UNION ALL
    SELECT ubi_id, doc_id, rank FROM seen
)
SELECT query_id, doc_id, rank, ordinal, n,
    CASE WHEN ubi_id IS NULL THEN 'no_query'
         WHEN doc_id IS NULL THEN 'no_document'
         WHEN why IS NULL THEN 'unknown_query'
         WHEN why <> 'kept' THEN why
         WHEN rank IS NULL THEN 'not_shown'
         ELSE 'used' END AS why
FROM clicks LEFT JOIN searches USING (ubi_id) LEFT JOIN places USING (ubi_id, doc_id)
"""
_KEPT = """
SELECT count(*), count(*) FILTER (ubi_id NOT IN (SELECT ubi_id FROM lists UNION SELECT ubi_id FROM seen))
FROM searches WHERE why = 'kept'
"""
_COUNTS = """
CREATE TEMP TABLE counts AS
SELECT query_id, doc_id, rank::SMALLINT AS rank, count(*)::INTEGER AS shown FROM (
    SELECT query_id, unnest(hits) AS doc_id, generate_subscripts(hits, 1) AS rank FROM lists JOIN searches USING (ubi_id)
    UNION ALL
    SELECT query_id, doc_id, rank FROM seen JOIN searches USING (ubi_id)
) WHERE doc_id IS NOT NULL GROUP BY ALL
"""
_SORTED = """
SELECT query_id, doc_id, rank, shown, coalesce(clicked, 0) AS clicked
FROM counts LEFT JOIN (
    SELECT query_id, doc_id, rank::SMALLINT AS rank, count(*) AS clicked FROM placed WHERE why = 'used' GROUP BY ALL
) USING (query_id, doc_id, rank) ORDER BY query_id, doc_id, rank
"""
