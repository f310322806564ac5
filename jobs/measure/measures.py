"""Measures of ranked lists, computed by ir_measures and under its names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from jobs.config.settings import EvaluateSettings
from jobs.measure.arrays import Floats

MEASURES: tuple[str, ...] = tuple(EvaluateSettings().measures)  # by default
DEPTH = 10  # the deepest cutoff of one of them
CHUNK = 2000  # lists measured at a time
_POOLED = ("Bpref", "infAP")  # measures that tell documents of the pool that are not judged from those of no relevance

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
            grades: doc_id -> grade, of each list to be measured. One below zero is pooled and not judged for Bpref and infAP,
                as trec_eval has it, else zero: gdeval, which computes ERR, fails on it.
        """
        import ir_measures

        measures = [ir_measures.parse_measure(name) for name in names]
        self._column = {measure: place for place, measure in enumerate(measures)}
        self._numbers: dict[str, str] = {}  # doc_id -> number: trec_eval cuts a text at NUL
        known: dict[tuple[int, int], dict[str, int]] = {}  # by identity: the grades of several lists
        every = list(grades)

        def qrels_from(least: int) -> dict[str, dict[str, int]]:
            for one in every:
                if (id(one), least) not in known:
                    known[id(one), least] = {self._number(doc_id): max(least, grade) for doc_id, grade in one.items()}
            return {str(place): known[id(one), least] for place, one in enumerate(every)}

        by_least = {least: [one for one in measures if (one.NAME in _POOLED) == (least < 0)] for least in (0, -1)}
        self._lists = len(every)
        self._evaluators = [ir_measures.evaluator(some, qrels_from(least)) for least, some in by_least.items() if some]

    def __call__(self, lists: Iterable[Sequence[str]]) -> Floats:
        """Returns (lists, measures): the values of the doc_ids of each list, best first; zero for a list without documents."""
        run = {}
        for place, doc_ids in enumerate(lists):
            if doc_ids:
                # strictly falling scores, so that no measure reorders ties; above zero, what Compat takes missing documents for
                numbers = map(self._number, doc_ids)
                run[str(place)] = {number: float(len(doc_ids) - rank) for rank, number in enumerate(numbers)}
        values = np.zeros((self._lists, len(self._column)))
        for metric in (metric for one in self._evaluators for metric in one.iter_calc(run)) if run else ():
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
