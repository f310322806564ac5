"""Thirds of a log's traffic: head, torso and tail."""

from __future__ import annotations

import duckdb
import numpy as np

from jobs.runs.folder import RunFolder

THIRDS = ("head", "torso", "tail")


def traffic_thirds(connection: duckdb.DuckDBPyConnection, run: RunFolder) -> dict[int, str]:
    """Returns how often a query is asked -> head, torso or tail; empty where every query was asked equally often.

    They are the thirds of the whole log's traffic, from the most frequent queries on. Queries of one frequency stay together,
    in the third in which the middle of their traffic lies.
    """
    rows = connection.execute(
        "SELECT log_count, sum(log_count)::DOUBLE FROM rows_of(?) GROUP BY log_count ORDER BY log_count DESC",
        [run.tables["queries"]],
    ).fetchall()
    if len(rows) < 2:
        return {}
    traffic = np.array([asked for _, asked in rows])
    middle = (np.cumsum(traffic) - traffic / 2) / max(1.0, traffic.sum())
    return {count: THIRDS[min(2, int(3 * at))] for (count, _), at in zip(rows, middle, strict=True)}
