"""A UBI export as tables of DuckDB: the searches and what they showed, and the events.

A search of the export (its `query_id`: one search of one client) becomes a query of the job by its text, as dedup makes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from cluster.errors import ConfigError, LogError
from cluster.run.spread import THREADS
from cluster.storage.s3_duckdb import bounded_duckdb, no_room, reason
from jobs.clicks.fields import rows_of
from jobs.config.config import Config
from jobs.log.check import LogColumns, check_log
from jobs.log.files import LogFile, event_files, log_files
from jobs.log.rejections import group_rows, hex_ids
from jobs.log.rows import read_rows

MEMORY = "1GB"
ACTIONS = ("click", "click_through", "item_click")
IMPRESSION = "impression"
_ATTRIBUTES = "event_attributes"
# Names of UBI 1.3 first, then those that its earlier versions and the first plugins of OpenSearch wrote.
_QUERY = {"ubi_id": ["query_id"], "client": ["client_id"], "time": ["timestamp"]}
_HITS = {"hits": ["query_response_hit_ids", "query_response_object_ids", "query_response_objects_ids"]}
_EVENT = {
    "action": ["action_name"],
    "ubi_id": ["query_id"],
    "doc_id": [f"{_ATTRIBUTES}.object.object_id"],
    "ordinal": [f"{_ATTRIBUTES}.position.ordinal.index", f"{_ATTRIBUTES}.position.ordinal"],
}


class EventChoice(NamedTuple):
    """Which events count."""

    actions: tuple[str, ...] = ACTIONS  # names of clicks, in any case
    most_queries: int = 100  # of a client a day; who has more is a robot. 0: nobody is
    deepest: int = 50  # place of a list that counts


@contextmanager
def opened(config: Config, reading: EventChoice) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens DuckDB with `searches` (ubi_id, query_id, why), `lists` (ubi_id, hits) and `events` (kind, ids, ordinal, n)."""
    if config.log.format != "ubi":
        raise ConfigError("config-value", "log.format: clicks are read from logs of format ubi; set it, or name such a log")
    queries, events = log_files(config.log), event_files(config.log)
    try:
        with bounded_duckdb(MEMORY, THREADS) as connection:
            _load_searches(connection, config, queries, reading)
            of_event = rows_of(events, _EVENT, {}, needed=("action", "ubi_id", "doc_id"))
            actions = [action.lower() for action in reading.actions]
            connection.execute(_EVENTS.format(rows=of_event), {"actions": actions, "impression": IMPRESSION})
            yield connection
    except (duckdb.IOException, duckdb.InvalidInputException, duckdb.OutOfMemoryException) as error:
        why = reason(error)
        if isinstance(error, duckdb.OutOfMemoryException) or "No space left" in why:
            remedy = "name fewer files (log.path)"
            raise no_room("clicks could not be counted", error, MEMORY, remedy) from error
        raise LogError("log-unreadable", f"the export cannot be read: {why}; correct the file, or export it again") from error


def _load_searches(
    connection: duckdb.DuckDBPyConnection, config: Config, files: Sequence[LogFile], reading: EventChoice
) -> None:
    log = config.log
    columns = LogColumns(
        log.query_column, "query_id", None, log.max_chars, log.context_column, log.max_context_chars,
        filters=tuple(sorted(config.retrieve.filters.items())),
    )  # fmt: skip
    connection.execute("CREATE TEMP TABLE asked (ubi_id VARCHAR, query_id VARCHAR)")
    for rows in read_rows(check_log(files, columns), columns):
        groups = group_rows(rows, columns.max_chars, columns.filters)
        rejected = np.isin(groups.codes, list(groups.rejections))
        last = np.zeros((1, groups.digests.shape[1]), np.uint8)  # of null texts
        ids = hex_ids(np.concatenate([groups.digests, last])).take(pa.array(groups.codes, mask=rejected))
        connection.register("piece", pa.table({"ubi_id": rows.column("log_id"), "query_id": ids}))
        connection.execute("INSERT INTO asked SELECT ubi_id, query_id FROM piece")
        connection.unregister("piece")
    rows = rows_of(files, _QUERY, _HITS, needed=("ubi_id",))
    connection.execute(_RESPONSES.format(rows=rows), {"deepest": reading.deepest})
    connection.execute(_ROBOTS, {"most": reading.most_queries or 1 << 62})
    connection.execute(_SEARCHES)
    connection.execute(_LISTS, {"deepest": reading.deepest})
    for table in ("asked", "responses", "robots"):
        connection.execute(f"DROP TABLE {table}")


_RESPONSES = """
CREATE TEMP TABLE responses AS
SELECT ubi_id, client, coalesce(TRY_CAST(time AS TIMESTAMP), epoch_ms(TRY_CAST(time AS BIGINT))) AS time,
    nullif(hits[:$deepest], []) AS hits
FROM ({rows})
"""
_ROBOTS = """
CREATE TEMP TABLE robots AS
SELECT DISTINCT client
FROM (
    SELECT client, time::DATE AS day, count(DISTINCT ubi_id) AS n FROM responses WHERE client <> '' GROUP BY client, day
) WHERE n > $most
"""
# min and max in place of count(DISTINCT), whose state grows
_SEARCHES = """
CREATE TEMP TABLE searches AS
SELECT ubi_id, min(query_id) AS query_id, count(*) AS answers,
    CASE WHEN count(query_id) = 0 THEN 'rejected'
         WHEN min(query_id) <> max(query_id) THEN 'ambiguous'
         WHEN ubi_id IN (SELECT ubi_id FROM responses SEMI JOIN robots USING (client)) THEN 'robot'
         ELSE 'kept' END AS why
FROM asked GROUP BY ubi_id
"""
# Several answers to a search are its pages, in order of time; the same list again is a page loaded again. A document that
# stands in a list twice counts where it stands first.
_LISTS = """
CREATE TEMP TABLE lists AS
SELECT ubi_id, (CASE WHEN len(list_distinct(hits)) = len(hits) THEN hits
                    ELSE list_filter(hits, lambda one, place: list_position(hits, one) = place) END)[:$deepest] AS hits
FROM (
    SELECT ubi_id, hits FROM responses SEMI JOIN (FROM searches WHERE answers = 1 AND why = 'kept') USING (ubi_id)
    WHERE hits IS NOT NULL
    UNION ALL
    SELECT ubi_id, flatten(list(hits ORDER BY first, hits)) FROM (
        SELECT ubi_id, hits, min(time) AS first
        FROM responses SEMI JOIN (FROM searches WHERE answers > 1 AND why = 'kept') USING (ubi_id)
        WHERE hits IS NOT NULL GROUP BY ubi_id, hits
    ) GROUP BY ubi_id
)
"""
_EVENTS = """
CREATE TEMP TABLE events AS
SELECT kind, ubi_id, doc_id, min(ordinal) AS ordinal, count(*) AS n FROM (
    SELECT CASE WHEN list_contains($actions, lower(action)) THEN 'click' WHEN lower(action) = $impression THEN 'impression'
                ELSE 'other' END AS kind,
        CASE WHEN kind <> 'other' THEN nullif(ubi_id, '') END AS ubi_id,
        CASE WHEN kind <> 'other' THEN nullif(doc_id, '') END AS doc_id,
        CASE WHEN kind <> 'other' THEN TRY_CAST(ordinal AS BIGINT) END AS ordinal
    FROM ({rows})
) GROUP BY kind, ubi_id, doc_id
"""
