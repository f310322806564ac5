"""The judged queries of a run: the grades of their documents, and the gain of each over the original alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.log.judgements import Judgements
from jobs.measure.evaluate import Evaluation, evaluation
from jobs.measure.frame import Frame, measure
from jobs.measure.measures import MEASURES
from jobs.runs.folder import RunFolder


@dataclass(frozen=True)
class Judged:
    """The judged and committed queries."""

    grades: Mapping[str, Mapping[str, int]]
    """query_id -> doc_id -> grade, the highest of the query's judgements."""
    values: Mapping[str, tuple[float, float | None]]
    """query_id -> `leading` of its results and of the original alone (None: not measured)."""
    leading: str = MEASURES[0]
    """The measure that samples are ordered by, and that the page begins with: the first of `evaluate.measures`."""
    least: int = 1
    """The lowest grade of a relevant document."""

    def by_gain(self) -> list[tuple[str, float]]:
        """Returns (query_id, gain over the original alone), the greatest gain first; empty where it was not measured."""
        gains = [(name, round(results - alone, 9)) for name, (results, alone) in self.values.items() if alone is not None]
        return sorted(gains, key=lambda one: (-one[1], one[0]))


def measured(
    run: RunFolder, judgements: Judgements | None, measures: Sequence[str] | None = None
) -> tuple[Evaluation | None, Judged | None]:
    """Returns the quality of a run's results and its judged queries, by its config's measures or these; None: unjudged.

    Raises:
        ConfigError: a measure cannot be computed, or files of the run cannot be read.
    """
    if judgements is None:
        return None, None
    frame = measure(run, judgements, measures)
    return evaluation(run, judgements, frame), judged_queries(judgements, frame)


def judged_queries(judgements: Judgements, frame: Frame) -> Judged:
    """Returns the judged queries of a run with what was measured of them."""
    grades: dict[str, dict[str, int]] = {}
    for key, query_id in zip(frame.keys, frame.query_ids, strict=True):
        if query_id is not None:
            mine = grades.setdefault(query_id, {})
            for doc_id, grade in judgements.grades[key].items():
                mine[doc_id] = max(grade, mine.get(doc_id, grade))
    first = frame.by_query[:, 0].tolist()
    values = zip(first[0], first[1] if len(first) > 1 else [None] * frame.distinct, strict=True)
    of_query = dict(zip(grades, values, strict=False))  # rejected rows stand behind the queries
    return Judged(grades, of_query, frame.measures[0], judgements.least)
