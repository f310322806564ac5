"""What was measured of a run, with its judged queries: their grades, and the gain of each over the original alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich.console import RenderableType

from jobs.log.judgements import Judgements
from jobs.measure.answers import GoldAnswers
from jobs.measure.evaluate import AnswerQuality, Evaluation, evaluated_table, evaluated_values, evaluation, measured_answers
from jobs.measure.frame import Frame, measure
from jobs.runs.folder import RunFolder


@dataclass(frozen=True)
class MeasuredRun:
    """The quality of a run's results and answers, as far as they were measured."""

    lists: Evaluation | None = None
    answers: Sequence[AnswerQuality] = ()
    judgements: Judgements | None = None
    frame: Frame | None = None
    """The judged keys of the lists."""

    @property
    def known(self) -> Evaluation | None:
        """Returns the quality of the results, if at least one query counts."""
        return None if self.lists is None or self.lists.warning is not None else self.lists

    @property
    def frames(self) -> list[Frame]:
        """Returns the measured keys of the lists, then those of the answers."""
        return [*([] if self.frame is None else [self.frame]), *(one.frame for one in self.answers)]

    @property
    def warnings(self) -> list[str]:
        """Returns why something was not measured."""
        warnings = [None if self.lists is None else self.lists.warning, *(one.warning for one in self.answers)]
        return [warning for warning in warnings if warning is not None]

    def page(self) -> RenderableType:
        """Returns the tables of what was measured, one below the other."""
        return evaluated_table(self.lists, self.answers)

    def values(self) -> dict[str, Any]:
        """Returns the values of the lists, and those of the answers; JSON-able."""
        return evaluated_values(self.lists, self.answers)

    @property
    def leading(self) -> str:
        """Returns the first measure of the lists; empty where they were not measured."""
        return "" if self.frame is None else self.frame.measures[0]

    @property
    def least(self) -> int:
        """Returns the lowest grade of a relevant document."""
        return 1 if self.judgements is None else self.judgements.least

    @cached_property
    def grades(self) -> dict[str, dict[str, int]]:
        """Returns query_id -> doc_id -> grade, the highest of the query's judgements."""
        grades: dict[str, dict[str, int]] = {}
        if self.frame is not None and self.judgements is not None:
            for key, query_id in zip(self.frame.keys, self.frame.query_ids, strict=True):
                if query_id is not None:
                    own = grades.setdefault(query_id, {})
                    for doc_id, grade in self.judgements.grades[key].items():
                        own[doc_id] = max(grade, own.get(doc_id, grade))
        return grades

    @cached_property
    def by_query(self) -> dict[str, tuple[float, float | None]]:
        """Returns query_id -> the leading measure of its results and of the original alone (None: not measured)."""
        if self.frame is None:
            return {}
        first = self.frame.by_query[:, 0].tolist()
        alone = first[1] if len(first) > 1 else [None] * self.frame.distinct
        return dict(zip(self.grades, zip(first[0], alone, strict=True), strict=False))  # rejected rows stand behind the queries

    @property
    def gains(self) -> list[tuple[str, float]]:
        """Returns (query_id, gain over the original alone), the greatest gain first; empty where it was not measured."""
        gains = [(name, round(results - alone, 9)) for name, (results, alone) in self.by_query.items() if alone is not None]
        return sorted(gains, key=lambda one: (-one[1], one[0]))


UNMEASURED = MeasuredRun()


def measured_run(
    run: RunFolder, judgements: Judgements | None, gold: GoldAnswers | None, measures: Sequence[str] | None = None
) -> MeasuredRun:
    """Measures a run by its config's measures or these.

    Raises:
        ConfigError: a measure cannot be computed, or files of the run cannot be read.
    """
    frame = None if judgements is None else measure(run, judgements, measures)
    lists = None if judgements is None or frame is None else evaluation(run, judgements, frame)
    return MeasuredRun(lists, measured_answers(run, gold), judgements, frame)
