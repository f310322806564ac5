"""Queries that were forgotten: no row of one counts that was made before.

A row is dated by the begin of the job that made it. So a job that began before a query was forgotten never brings it back, by
whatever it puts later; one that began afterwards makes the row anew.
"""

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from cluster.storage import Storage
from jobs.chain.store.layout import FORGOTTEN, MADE
from rewriters.normalise import query_id


def _marks(storage: Storage) -> Iterator[tuple[str, str, int]]:
    """Yields the key of each mark, its query_id, and when it was made, in milliseconds since the epoch."""
    for entry in storage.list(FORGOTTEN):
        name, _, at = entry.key.removeprefix(f"{FORGOTTEN}/").partition("/")
        if at.isdecimal():
            yield entry.key, name, int(at)


def forgotten_queries(storage: Storage) -> dict[str, int]:
    """Returns query_id -> when it was forgotten last, in milliseconds since the epoch."""
    last: dict[str, int] = {}
    for _, name, at in _marks(storage):
        last[name] = max(at, last.get(name, 0))
    return last


def mark_forgotten(storage: Storage, query_ids: Collection[str], at: int) -> None:
    """Notes that queries are forgotten now, `at` in milliseconds since the epoch; it is durable when it returns."""
    for name in sorted(query_ids):
        storage.put(f"{FORGOTTEN}/{name}/{at}", b"")


def remove_earlier_marks(storage: Storage) -> None:
    """Removes all marks of each query but the last, which supersedes them."""
    last = forgotten_queries(storage)
    storage.delete(*(key for key, name, at in _marks(storage) if at < last.get(name, 0)))


def counting(rows: pa.Table, forgotten: Mapping[str, int], oldest: int = 0, *, texts: bool = False) -> pa.Table:
    """Returns the rows that count.

    Args:
        rows: With `query_id` and `made_at`.
        forgotten: What `forgotten_queries` returns.
        oldest: Rows that were made before are too old; milliseconds since the epoch.
        texts: Whether the column `text` is that of a query: the same words after other turns have another query_id.
    """
    if oldest:
        rows = rows.filter(pc.greater_equal(rows.column(MADE).cast(pa.int64()), oldest))
    if not forgotten:
        return rows
    since = [forgotten.get(name, -1) for name in rows.column("query_id").to_pylist()]
    if texts:
        of_rows = rows.column("text").to_pylist()
        known = {text: forgotten.get(query_id(text), -1) for text in set(of_rows)}
        since = [max(at, known[text]) for at, text in zip(since, of_rows, strict=True)]
    if max(since, default=-1) < 0:
        return rows
    return rows.filter(pc.greater(rows.column(MADE).cast(pa.int64()), pa.array(since, pa.int64())))
