"""Measures of ranked lists, computed by ir_measures and under its names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from jobs.config.settings import EvaluateSettings
from jobs.measure.arrays import Floats

MEASURES: tuple[str, ...] = tuple(EvaluateSettings().measures)  # by default
DEPTH = 10  # the deepest cutoff of one of them
CHUNK = 2000  # lists measured at a time

GradedList = tuple[Mapping[str, int], Sequence[str]]
"""A list with what it is measured by: doc_id -> grade, and doc_ids, best first."""


def title(name: str) -> str:
    """Returns a measure as it is shown: DMQR-RAG calls Success@5 H@5."""
    return f"{name} (H@5)" if name.startswith("Success") and name.endswith("@5") else name


class ListMeasures:
    """The measures of lists by grades that are given once, as documents are named for trec_eval and for Compat alike."""

    def __init__(self, names: Sequence[str], grades: Iterable[Mapping[str, int]]) -> None:
        """Prepares the measures.

        Args:
            names: measures that ir_measures knows (`check_measures` of jobs/job/measure_checks.py).
            grades: doc_id -> grade, of each list to be measured. A grade below zero is measured as zero.
        """
        import ir_measures

        measures = [ir_measures.parse_measure(name) for name in names]
        self._column = {measure: place for place, measure in enumerate(measures)}
        self._numbers: dict[str, str] = {}  # doc_id -> number: trec_eval cuts a text at NUL
        known: dict[int, dict[str, int]] = {}  # by identity: the grades of several lists
        qrels = {}
        for place, of_list in enumerate(grades):
            if id(of_list) not in known:
                # trec_eval ends the process on a negative grade
                known[id(of_list)] = {self._number(doc_id): max(0, grade) for doc_id, grade in of_list.items()}
            qrels[str(place)] = known[id(of_list)]
        self._lists = len(qrels)
        self._evaluator = ir_measures.evaluator(measures, qrels)

    def __call__(self, lists: Iterable[Sequence[str]]) -> Floats:
        """Returns (lists, measures): the values of the doc_ids of each list, best first; zero for a list without documents."""
        run = {}
        for place, doc_ids in enumerate(lists):
            if doc_ids:
                # strictly falling scores, so that no measure reorders ties; above zero, what Compat takes missing documents for
                numbers = map(self._number, doc_ids)
                run[str(place)] = {number: float(len(doc_ids) - rank) for rank, number in enumerate(numbers)}
        values = np.zeros((self._lists, len(self._column)))
        for metric in self._evaluator.iter_calc(run) if run else ():
            if metric.query_id in run:  # gdeval, which computes ERR, adds a line of means
                values[int(metric.query_id), self._column[metric.measure]] = metric.value
        return values

    def _number(self, doc_id: str) -> str:
        return self._numbers.setdefault(doc_id, str(len(self._numbers)))


def measured_lists(names: Sequence[str], lists: Sequence[GradedList]) -> Floats:
    """Returns (lists, measures): the value of each list; arguments as of `ListMeasures`."""
    chunks = [lists[begin : begin + CHUNK] for begin in range(0, len(lists), CHUNK)]
    found = [ListMeasures(names, [grades for grades, _ in chunk])([doc_ids for _, doc_ids in chunk]) for chunk in chunks]
    return np.concatenate([np.zeros((0, len(names))), *found])
