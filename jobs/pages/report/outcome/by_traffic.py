"""Quality by traffic: the judged queries of the head, the torso and the tail of the log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from jobs.measure.clusters import query_clusters
from jobs.measure.judged_rows import asked_queries
from jobs.measure.significance import FEW_QUERIES, paired_test
from jobs.measure.slices import THIRDS, traffic_thirds
from jobs.pages.report.judged_queries import Judged
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database

ALL = "all, by traffic"


@dataclass(frozen=True)
class TrafficRow:
    """The judged queries of a third; means of the leading measure, a query once, in the last row as often as it was asked."""

    name: str
    queries: int
    asked: int
    results: float
    original: float | None
    interval: tuple[float, float] | None
    """95 % interval of the mean difference; None without `original`, with too few queries, or weighted."""

    @property
    def difference(self) -> float | None:
        """Returns results - original alone."""
        return None if self.original is None else self.results - self.original

    @property
    def few(self) -> bool:
        """Returns whether it has so few queries that its means say little."""
        return self.queries < FEW_QUERIES


def by_traffic(run: RunFolder, judged: Judged | None) -> list[TrafficRow]:
    """Returns a row per third of the log's traffic and one of all; empty where every query was asked equally often."""
    if judged is None or not judged.values:
        return []
    with database() as connection:
        third = traffic_thirds(connection, run)
        if not third:
            return []
        connection.register("wanted", pa.table({"query_id": pa.array(sorted(judged.values), pa.string())}))
        found = sorted(asked_queries(connection, run).items())
    every = [(judged.values[query_id], one.log_count, str(one.words)) for query_id, one in found]
    rows = [_row(name, [one for one in every if third[one[1]] == name]) for name in THIRDS]
    return [row for row in rows if row.queries] + [_row(ALL, every, weighted=True)]


def _row(name: str, values: list[tuple[tuple[float, float | None], int, str]], *, weighted: bool = False) -> TrafficRow:
    results = np.array([of[0] for of, *_ in values])
    original = np.array([of[1] for of, *_ in values if of[1] is not None])
    asked = np.array([count for _, count, _ in values], np.int64)
    if not len(values):
        return TrafficRow(name, 0, 0, 0.0, None, None)
    weights = asked if weighted and asked.sum() else np.ones(len(values))
    known = len(original) == len(results)
    interval = None
    if known and not weighted:
        interval = paired_test((results - original)[None], query_clusters([query for *_, query in values])).interval(0)
    mean = float(np.average(results, weights=weights))
    alone = float(np.average(original, weights=weights)) if known else None
    return TrafficRow(name, len(values), int(asked.sum()), mean, alone, interval)
