"""Queries that were forgotten: no row of one counts that was made before.

A row is dated by the begin of the job that made it. So a job that began before a query was forgotten never brings it back, by
whatever it puts later; one that began afterwards makes the row anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

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


def _last_of(marks: Iterable[tuple[str, str, int]]) -> dict[str, int]:
    last: dict[str, int] = {}
    for _, name, at in marks:
        last[name] = max(at, last.get(name, 0))
    return last


def forgotten_queries(storage: Storage) -> dict[str, int]:
    """Returns query_id -> when it was forgotten last, in milliseconds since the epoch."""
    return _last_of(_marks(storage))


def mark_forgotten(storage: Storage, query_ids: Collection[str], at: int) -> None:
    """Notes that queries are forgotten now, `at` in milliseconds since the epoch; it is durable when it returns."""
    for name in sorted(query_ids):
        storage.put(f"{FORGOTTEN}/{name}/{at}", b"")


def remove_earlier_marks(storage: Storage) -> None:
    """Removes all marks of each query but the last, which supersedes them."""
    marks = list(_marks(storage))
    last = _last_of(marks)
    storage.delete(*(key for key, name, at in marks if at < last[name]))


def counting(rows: pa.Table, forgotten: Mapping[str, int], oldest: int = 0) -> pa.Table:
    """Returns the rows that count.

    Args:
        rows: With `query_id` and `made_at`.
        forgotten: What `forgotten_queries` returns.
        oldest: Rows that were made before are too old; milliseconds since the epoch.
    """
    dates = rows.column(MADE).cast(pa.int64())
    if oldest:
        young = pc.greater_equal(dates, oldest)
        rows, dates = rows.filter(young), dates.filter(young)
    if not forgotten or not rows.num_rows:
        return rows
    ids = rows.column("query_id")
    if not pc.any(pc.is_in(ids, pa.array(list(forgotten), pa.string()))).as_py():
        return rows
    since = [forgotten.get(one, -1) for one in ids.to_pylist()]
    return rows.filter(pc.greater(dates, pa.array(since, pa.int64())))


def without_texts(rows: pa.Table, forgotten: Mapping[str, int]) -> pa.Table:
    """Returns the rows that count whose text is none of the forgotten queries.

    The same words after other turns have another query_id.
    """
    texts = rows.column("text").to_pylist()
    known = {text: forgotten.get(query_id(text), -1) for text in set(texts)}
    if max(known.values(), default=-1) < 0:
        return rows
    dates = rows.column(MADE).cast(pa.int64())
    return rows.filter(pc.greater(dates, pa.array([known[text] for text in texts], pa.int64())))
