"""Which queries of a night no earlier night had, counted by key from `queries/`.

A night of 10 million queries has as many ids. Of all nights together a part is looked at at a time, a range of ids that holds
about `PORTION` rows, so that memory does not grow with their number: ids are hashes, and so evenly spread. In `queries/` they
are sorted, so that of each range few row groups are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from cluster.run.shards import Plan
from cluster.storage import Storage
from jobs.runs.reading import database

PORTION = 2_000_000
"""Rows of all nights that are looked at together."""
_PLACES = pa.schema([("filename", pa.string()), ("night", pa.int32())])
_DIGITS = "0123456789abcdef"
_FIRST = """
WITH asked AS (
    SELECT query_id, log_count, night
    FROM read_parquet($files, filename = true, hive_partitioning = false) AS queries
    JOIN places ON queries.filename = places.filename
    WHERE query_id >= $low AND query_id < $high
), firsts AS (
    SELECT query_id, min(night) AS night, arg_min(log_count, night) AS asked FROM asked GROUP BY query_id
)
SELECT night, count(*), sum(asked) FROM firsts GROUP BY night
"""


class NewQueries(NamedTuple):
    """What no earlier night had."""

    queries: int
    """Distinct queries."""
    asked: int
    """How often the log has them."""


def new_queries(nights: Sequence[tuple[Storage, Plan]]) -> list[NewQueries]:
    """Returns, for each night, the queries that none before it had, committed or not; all of the first.

    Args:
        nights: Folder and plan of each, the oldest first.
    """
    places = [
        {"filename": storage.url(file.key), "night": number}
        for number, (storage, plan) in enumerate(nights)
        for file in plan.tables["queries"]
    ]
    rows = sum(file.rows for _, plan in nights for file in plan.tables["queries"])
    found = [NewQueries(0, 0)] * len(nights)
    if not rows:
        return found
    with database() as connection:
        connection.register("places", pa.Table.from_pylist(places, _PLACES))
        for low, high in _ranges(rows):
            values = {"files": [one["filename"] for one in places], "low": low, "high": high}
            for number, queries, asked in connection.execute(_FIRST, values).fetchall():
                found[number] = NewQueries(found[number].queries + queries, found[number].asked + int(asked))
    return found


def _ranges(rows: int) -> Iterator[tuple[str, str]]:
    """Yields ranges of ids, from the first to before the second, that hold about `PORTION` of so many rows each."""
    starts = [""]
    while rows > PORTION * len(starts):
        starts = [start + digit for start in starts for digit in _DIGITS]
    yield from zip(["", *starts[1:]], [*starts[1:], "g"], strict=True)
