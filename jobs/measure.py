"""The measures of ranked lists: ir_measures' own, under its names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from jobs.bootstrap import Floats
from jobs.judgements import Judgements

MEASURES = ("nDCG@10", "R@10", "P@5", "Success@5", "RR@10")
DEPTH = 10  # no measure looks further
CHUNK = 2000  # queries measured at a time


class Measured(NamedTuple):
    """`values` has a row per log_id, in the order of those asked for, and a column per measure."""

    values: Floats
    found: int  # log_ids whose query has documents
    unjudged: float | None  # share of the documents without a judgement; None: there are no documents


def measure(
    judgements: Judgements, asked: Mapping[str, Sequence[str]], ranked: Iterable[tuple[str, Sequence[str]]]
) -> Measured:
    """MEASURES of ranked lists.

    Args:
        asked: query_id -> the judged log_ids of this query.
        ranked: query_id and its doc_ids, best first; a query that is not there, or not asked for, has no documents.
    """
    import ir_measures

    measures = [ir_measures.parse_measure(name) for name in MEASURES]
    column = {measure: place for place, measure in enumerate(measures)}
    begins = dict(zip(asked, np.cumsum([0, *map(len, asked.values())]).tolist(), strict=False))
    values = np.zeros((sum(map(len, asked.values())), len(MEASURES)))
    found = shown = unjudged = 0
    lists = ((query_id, doc_ids[:DEPTH]) for query_id, doc_ids in ranked if query_id in asked and doc_ids)
    while chunk := list(islice(lists, CHUNK)):
        names: dict[str, str] = {}  # numbers for doc_ids: trec_eval ends a text at NUL
        qrels, run = {}, {}
        for query_id, doc_ids in chunk:
            # scores that keep the given order, whatever a measure does about ties
            scores = {names.setdefault(doc_id, str(len(names))): -float(place) for place, doc_id in enumerate(doc_ids)}
            for row, log_id in enumerate(asked[query_id], begins[query_id]):
                grades = judgements.grades[log_id]
                # a grade below 0 ends the process in trec_eval
                qrels[str(row)] = {names.setdefault(doc_id, str(len(names))): max(0, grades[doc_id]) for doc_id in grades}
                run[str(row)] = scores
                shown += len(doc_ids)
                unjudged += sum(doc_id not in grades for doc_id in doc_ids)
        found += len(run)
        for metric in ir_measures.iter_calc(measures, qrels, run):
            values[int(metric.query_id), column[metric.measure]] = metric.value
    return Measured(values, found, unjudged / shown if shown else None)
