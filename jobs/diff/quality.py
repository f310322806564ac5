"""The measures of two runs side by side, over what is judged in both: paired differences, intervals, gains and losses.

Urbano, Lima and Hanjalic, Statistical Significance Testing in Information Retrieval (SIGIR 2019), compare the tests; with
thousands of queries any difference is significant, so the size of the difference and its interval are shown, and no p-value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from jobs.evaluate.contexts import contexts_of
from jobs.evaluate.intervals import Floats, mean_interval
from jobs.evaluate.judgements import Judgements
from jobs.evaluate.measure import MEASURES
from jobs.evaluate.per_query import PerQuery, database, per_query, sums_by_query
from jobs.run.folder import RunFolder

RANKED_BY = MEASURES[0]  # the measure by which queries are said to have gained or lost


class PairedMeasure(NamedTuple):
    """One measure: the means of A and B over the same keys, their difference B - A, and in how many queries it moved."""

    a: float
    b: float
    interval: tuple[float, float] | None
    """95 % interval of the mean difference; None with fewer than two queries."""
    better: int
    """Queries in which B has the higher value."""
    worse: int

    @property
    def difference(self) -> float:
        """Returns the mean difference, B - A."""
        return self.b - self.a


class QueryChange(NamedTuple):
    """One query's value of `RANKED_BY` in A and in B, the mean of its judged log rows where they are several."""

    query_id: str
    query: str
    asked: int
    a: float
    b: float
    context: str | None = None
    """The earlier turns; None: there are none."""


class Paired(NamedTuple):
    """What judgements say of two runs."""

    key: str
    judged: int
    """Number of judged keys."""
    counted: int
    """Number of judged keys that both runs count."""
    queries: int
    """Number of distinct queries of the counted keys."""
    missing: tuple[int, int]
    """Judged keys that are not in the log of A, of B."""
    not_committed: tuple[int, int]
    """Judged keys whose query is not committed in A, in B."""
    others: int
    """Judged log_ids that are another query in B than in A; left out."""
    unjudged: tuple[float | None, float | None]
    """Share of the first ten results of A, of B, without a judgement."""
    measures: dict[str, PairedMeasure]
    """Empty if no key is counted."""
    gained: list[QueryChange]
    """The queries with the greatest gains, the greatest first."""
    lost: list[QueryChange]
    """The queries with the greatest losses, the greatest first."""

    @property
    def warning(self) -> str | None:
        """Returns why nothing was compared, in one line; None if something was."""
        if self.counted:
            return None
        why = f"{self.missing[0]:,} are not in the log of A, {self.missing[1]:,} not in that of B"
        if any(self.not_committed):
            why += f"; {self.not_committed[0]:,} are not committed in A, {self.not_committed[1]:,} not in B"
        if self.others:
            why += f"; {self.others:,} log_ids are other queries in B than in A"
        more = "; judgements of queries (evaluate.key, --key) hold for every log" if self.key == "log_id" else ""
        return f"nothing is measured: of {self.judged:,} judged {self.key}s none counts in both runs: {why}{more}"


def quality(a: RunFolder, b: RunFolder, judgements: Judgements, count: int) -> Paired:
    """Measures two runs and pairs their values.

    Args:
        a: one run.
        b: the other; a difference is of B - A.
        judgements: of log rows or queries.
        count: the most queries to list as gained, and as lost.

    Raises:
        ConfigError: files of the runs cannot be read.
    """
    of_a, of_b = (per_query(run, judgements, alone=False) for run in (a, b))
    query_ids, values_a, values_b, others = _pairs(of_a, of_b)
    measures: dict[str, PairedMeasure] = {}
    gained: list[QueryChange] = []
    lost: list[QueryChange] = []
    queries = 0
    if query_ids:
        sums, sizes = sums_by_query(values_b - values_a, query_ids)
        queries = len(sizes)
        intervals = mean_interval(sums, sizes)
        for place, name in enumerate(MEASURES):
            interval = None if intervals is None else (float(intervals[place][0]), float(intervals[place][1]))
            mean_a, mean_b = (float(values[:, place].mean()) for values in (values_a, values_b))
            moved = np.round(sums[:, place], 12)
            measures[name] = PairedMeasure(mean_a, mean_b, interval, int((moved > 0).sum()), int((moved < 0).sum()))
        gained, lost = _moved(b, query_ids, values_a, values_b, count)
    return Paired(
        key=judgements.key,
        judged=len(judgements.grades),
        counted=len(query_ids),
        queries=queries,
        missing=(of_a.missing, of_b.missing),
        not_committed=(of_a.not_committed, of_b.not_committed),
        others=others,
        unjudged=(of_a.unjudged, of_b.unjudged),
        measures=measures,
        gained=gained,
        lost=lost,
    )


def _pairs(a: PerQuery, b: PerQuery) -> tuple[list[str | None], Floats, Floats, int]:
    """Returns the queries of the keys that both count, (keys, measures) of A and B, and the number of other queries.

    A log row that only one run rejected is of the other's query, and zero where it was rejected. Rows are in order of their
    queries, those that both rejected last.
    """
    place_b = {key: place for place, key in enumerate(b.keys)}
    pairs, others = [], 0
    for place, (key, query_id) in enumerate(zip(a.keys, a.query_ids, strict=True)):
        other = place_b.get(key)
        if other is None:
            continue
        if None not in (query_id, b.query_ids[other]) and query_id != b.query_ids[other]:
            others += 1
            continue
        pairs.append((query_id or b.query_ids[other], place, other))
    pairs.sort(key=lambda pair: (pair[0] is None, pair[0] or ""))
    rows_a, rows_b = np.array([pair[1] for pair in pairs], int), np.array([pair[2] for pair in pairs], int)
    return [query_id for query_id, _, _ in pairs], a.results[rows_a], b.results[rows_b], others


def _moved(
    b: RunFolder, query_ids: list[str | None], values_a: Floats, values_b: Floats, count: int
) -> tuple[list[QueryChange], list[QueryChange]]:
    """Returns the queries that gained most and those that lost most; of equal ones those that were asked more often."""
    known = sum(query_id is not None for query_id in query_ids)  # the others stand last
    place = MEASURES.index(RANKED_BY)
    columns = np.column_stack([values_a[:known, place], values_b[:known, place]])
    sums, sizes = sums_by_query(columns, query_ids[:known])
    means = sums / sizes[:, None]
    ids = pa.array(dict.fromkeys(query_ids[:known]), pa.string())
    found = []
    with database(b) as connection:
        connection.register("measured", pa.table({"query_id": ids, "a": means[:, 0], "b": means[:, 1]}))
        for better, sign in ((">", "DESC"), ("<", "ASC")):
            rows = connection.execute(
                "SELECT query_id, query, log_count, a, b FROM measured JOIN read_parquet(?) USING (query_id)"
                f" WHERE round(b - a, 12) {better} 0 ORDER BY round(b - a, 12) {sign}, log_count DESC, query_id LIMIT ?",
                [b.tables["queries"], count],
            ).fetchall()
            found.append([QueryChange(*row) for row in rows])
    contexts = contexts_of(b, [one.query_id for of in found for one in of])
    gained, lost = ([one._replace(context=contexts.get(one.query_id)) for one in of] for of in found)
    return gained, lost
