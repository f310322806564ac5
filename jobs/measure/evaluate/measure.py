"""Measures of ranked lists, computed by ir_measures and under its names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jobs.log.judgements import Judgements
from jobs.measure.evaluate.intervals import Floats

MEASURES = ("nDCG@10", "R@10", "P@5", "Success@5", "RR@10")  # the default of `evaluate.measures`
DEPTH = 10  # the deepest cutoff of one of them
CHUNK = 2000  # lists measured at a time

GradedList = tuple[Mapping[str, int], Sequence[str]]
"""A list with what it is measured by: doc_id -> grade, and doc_ids, best first."""


class Measured(NamedTuple):
    """Measured values, one row per log_id in the given order and one column per measure."""

    values: Floats
    lengths: npt.NDArray[np.int64]  # documents of each list, as far as they were read
    unjudged: float | None  # share of the documents without a judgement; None: there are no documents

    @property
    def found(self) -> int:
        """Returns the number of log_ids whose query has documents."""
        return int((self.lengths > 0).sum())


def title(name: str) -> str:
    """Returns a measure as it is shown: DMQR-RAG calls Success@5 H@5."""
    return "Success@5 (H@5)" if name == "Success@5" else name


def measure(
    judgements: Judgements,
    log_ids: Mapping[str, Sequence[str]],
    ranked: Iterable[tuple[str, Sequence[str]]],
    names: Sequence[str] = MEASURES,
    depth: int = DEPTH,
) -> Measured:
    """Returns measures of ranked lists.

    Args:
        judgements: grades by log_id.
        log_ids: query_id -> the judged log_ids of this query.
        ranked: query_id and its doc_ids, best first. Queries without an entry have no documents; entries of queries not in
            `log_ids` are ignored.
        names: measures that ir_measures knows.
        depth: the deepest rank that one of them reads.
    """
    begins = dict(zip(log_ids, np.cumsum([0, *map(len, log_ids.values())]).tolist(), strict=False))
    values = np.zeros((sum(map(len, log_ids.values())), len(names)))
    lengths = np.zeros(len(values), np.int64)
    unjudged = 0
    lists = ((query_id, doc_ids[:depth]) for query_id, doc_ids in ranked if query_id in log_ids and doc_ids)
    while chunk := list(islice(lists, CHUNK)):
        rows: list[int] = []
        judged: list[GradedList] = []
        for query_id, doc_ids in chunk:
            for row, log_id in enumerate(log_ids[query_id], begins[query_id]):
                grades = judgements.grades[log_id]
                rows.append(row)
                judged.append((grades, doc_ids))
                lengths[row] = len(doc_ids)
                unjudged += sum(doc_id not in grades for doc_id in doc_ids)
        values[rows] = measured_lists(names, judged)
    return Measured(values, lengths, unjudged / int(lengths.sum()) if lengths.any() else None)


def measured_lists(names: Sequence[str], lists: Sequence[GradedList]) -> Floats:
    """Returns (lists, measures): the value of each list; zero for a list without documents.

    Args:
        names: measures that ir_measures knows (`check_measures` of jobs/job/measure_names.py).
        lists: each with the grades that it is measured by. A grade below zero is measured as zero.
    """
    import ir_measures

    measures = [ir_measures.parse_measure(name) for name in names]
    column = {measure: place for place, measure in enumerate(measures)}
    values = np.zeros((len(lists), len(names)))
    for begin in range(0, len(lists), CHUNK):
        numbers: dict[str, str] = {}  # doc_id -> number: trec_eval cuts a text at NUL
        graded: dict[int, dict[str, int]] = {}  # by identity: the grades of several lists
        qrels, run = {}, {}
        for place, (grades, doc_ids) in enumerate(lists[begin : begin + CHUNK], begin):
            if not doc_ids:
                continue
            if id(grades) not in graded:
                # trec_eval ends the process on a negative grade
                graded[id(grades)] = {
                    numbers.setdefault(doc_id, str(len(numbers))): max(0, grade) for doc_id, grade in grades.items()
                }
            qrels[str(place)] = graded[id(grades)]
            # strictly falling scores, so that no measure reorders ties; above zero, what Compat takes missing documents for
            run[str(place)] = {
                numbers.setdefault(doc_id, str(len(numbers))): float(len(doc_ids) - rank) for rank, doc_id in enumerate(doc_ids)
            }
        for metric in ir_measures.iter_calc(measures, qrels, run) if run else ():
            if metric.query_id in run:  # gdeval, which computes ERR, adds a line of means
                values[int(metric.query_id), column[metric.measure]] = metric.value
    return values
