"""The measures of two runs side by side, over what is judged in both: paired differences, intervals, gains and losses.

Urbano, Lima and Hanjalic, Statistical Significance Testing in Information Retrieval (SIGIR 2019), compare the tests; with
thousands of queries any difference is significant, so the size of the difference and its interval are shown, and no p-value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from jobs.job.measure_names import depths
from jobs.log.judgements import Judgements
from jobs.measure.evaluate.asked_with import asked_with
from jobs.measure.evaluate.intervals import Floats, mean_interval
from jobs.measure.evaluate.looked import Looked, Numbers, looked, uneven
from jobs.measure.evaluate.per_query import PerQuery, database, kept, per_query, sums_by_query
from jobs.runs.folder import RunFolder


class PairedMeasure(NamedTuple):
    """One measure: the means of A and B over the same keys, their difference B - A, and in how many queries it moved."""

    a: float
    b: float
    interval: tuple[float, float] | None
    """95 % interval of the mean difference; None with fewer than two queries."""
    better: int
    """Queries in which B has the higher value."""
    worse: int
    looked: tuple[Looked | None, Looked | None] = (None, None)
    """How deep the measure looked into lists of A, of B that were cut above its depth; None: all are whole down to it."""
    uneven: bool = False
    """Whether lists of A and B end at different depths above that of the measure, one of them cut: then the difference is of
    the cuts, too."""

    @property
    def difference(self) -> float:
        """Returns the mean difference, B - A."""
        return self.b - self.a


class QueryChange(NamedTuple):
    """One query's value of the first measure in A and in B, the mean of its judged log rows where they are several."""

    query_id: str
    query: str
    asked: int
    a: float
    b: float
    context: str | None = None
    """The earlier turns; None: there are none."""
    filters: Mapping[str, str] = {}
    """Column of the log -> the value by which its documents are filtered."""


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
    """Share of the results of A, of B, as deep as the measures read, without a judgement."""
    measures: dict[str, PairedMeasure]
    """Empty if no key is counted."""
    gained: list[QueryChange]
    """The queries with the greatest gains, the greatest first."""
    lost: list[QueryChange]
    """The queries with the greatest losses, the greatest first."""
    first: tuple[int, int] = (0, 0)
    """Results of A, of B, that measures read at most: fewer than they would where the run kept fewer."""

    @property
    def ranked_by(self) -> str:
        """Returns the measure by which queries are said to have gained or lost: the first."""
        return next(iter(self.measures))

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


def quality(a: RunFolder, b: RunFolder, judgements: Judgements, count: int, measures: Sequence[str] | None = None) -> Paired:
    """Measures two runs and pairs their values.

    Args:
        a: one run.
        b: the other; a difference is of B - A.
        judgements: of log rows or queries.
        count: the most queries to list as gained, and as lost.
        measures: names that ir_measures knows; None: those of the config of B.

    Raises:
        ConfigError: a measure cannot be computed, or files of the runs cannot be read.
    """
    names = measures or b.config.evaluate.measures
    of_a, of_b = (per_query(run, judgements, names, alone=False) for run in (a, b))
    query_ids, rows_a, rows_b, others = _pairs(of_a, of_b)
    values_a, values_b = of_a.results[rows_a], of_b.results[rows_b]
    lists_a, lists_b = of_a.lists.lengths[rows_a], of_b.lists.lengths[rows_b]
    found: dict[str, PairedMeasure] = {}
    gained: list[QueryChange] = []
    lost: list[QueryChange] = []
    queries = 0
    if query_ids:
        sums, sizes = sums_by_query(values_b - values_a, query_ids)
        queries = len(sizes)
        intervals = mean_interval(sums, sizes)
        for place, (name, reads) in enumerate(zip(of_a.measures, depths(of_a.measures), strict=True)):
            interval = None if intervals is None else (float(intervals[place][0]), float(intervals[place][1]))
            mean_a, mean_b = (float(values[:, place].mean()) for values in (values_a, values_b))
            moved = np.round(sums[:, place], 12)
            found[name] = PairedMeasure(
                mean_a, mean_b, interval, int((moved > 0).sum()), int((moved < 0).sum()),
                (looked(lists_a, of_a.lists.least, reads), looked(lists_b, of_b.lists.least, reads)),
                uneven(lists_a, of_a.lists.least, lists_b, of_b.lists.least, reads),
            )  # fmt: skip
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
        measures=found,
        gained=gained,
        lost=lost,
        first=(min(of_a.depth, kept(a)), min(of_b.depth, kept(b))),
    )


def _pairs(a: PerQuery, b: PerQuery) -> tuple[list[str | None], Numbers, Numbers, int]:
    """Returns the queries of the keys that both count, the places of these keys in A and in B, and the number of other queries.

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
    rows_a, rows_b = (np.array([pair[place] for pair in pairs], np.int64) for place in (1, 2))
    return [query_id for query_id, _, _ in pairs], rows_a, rows_b, others


def _moved(
    b: RunFolder, query_ids: list[str | None], values_a: Floats, values_b: Floats, count: int
) -> tuple[list[QueryChange], list[QueryChange]]:
    """Returns the queries that gained most and those that lost most; of equal ones those that were asked more often."""
    known = sum(query_id is not None for query_id in query_ids)  # the others stand last
    columns = np.column_stack([values_a[:known, 0], values_b[:known, 0]])
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
    beside = asked_with(b, [one.query_id for of in found for one in of])
    gained, lost = ([one._replace(**beside[one.query_id]._asdict()) for one in of] for of in found)
    return gained, lost
