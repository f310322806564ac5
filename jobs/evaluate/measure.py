"""Measures of ranked lists, computed by ir_measures and under its names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from jobs.evaluate.intervals import Floats
from jobs.evaluate.judgements import Judgements

MEASURES = ("nDCG@10", "R@10", "P@5", "Success@5", "RR@10")
SHOWN = {name: name for name in MEASURES} | {"Success@5": "Success@5 (H@5)"}  # display names; DMQR-RAG calls it H@5
DEPTH = 10  # the deepest cutoff of a measure
CHUNK = 2000  # queries measured at a time


class Measured(NamedTuple):
    """Measured values, one row per log_id in the given order and one column per measure."""

    values: Floats
    found: int  # log_ids whose query has documents
    unjudged: float | None  # share of the documents without a judgement; None: there are no documents


def measure(
    judgements: Judgements, log_ids: Mapping[str, Sequence[str]], ranked: Iterable[tuple[str, Sequence[str]]]
) -> Measured:
    """Returns the MEASURES of ranked lists.

    Args:
        judgements: grades by log_id.
        log_ids: query_id -> the judged log_ids of this query.
        ranked: query_id and its doc_ids, best first. Queries without an entry have no documents; entries of queries not in
            `log_ids` are ignored.
    """
    import ir_measures

    measures = [ir_measures.parse_measure(name) for name in MEASURES]
    column = {measure: place for place, measure in enumerate(measures)}
    begins = dict(zip(log_ids, np.cumsum([0, *map(len, log_ids.values())]).tolist(), strict=False))
    values = np.zeros((sum(map(len, log_ids.values())), len(MEASURES)))
    found = shown = unjudged = 0
    lists = ((query_id, doc_ids[:DEPTH]) for query_id, doc_ids in ranked if query_id in log_ids and doc_ids)
    while chunk := list(islice(lists, CHUNK)):
        names: dict[str, str] = {}  # doc_id -> number: trec_eval cuts a text at NUL
        qrels, run = {}, {}
        for query_id, doc_ids in chunk:
            # strictly falling scores, so that no measure reorders ties
            scores = {names.setdefault(doc_id, str(len(names))): -float(place) for place, doc_id in enumerate(doc_ids)}
            for row, log_id in enumerate(log_ids[query_id], begins[query_id]):
                grades = judgements.grades[log_id]
                # trec_eval ends the process on a negative grade
                qrels[str(row)] = {names.setdefault(doc_id, str(len(names))): max(0, grades[doc_id]) for doc_id in grades}
                run[str(row)] = scores
                shown += len(doc_ids)
                unjudged += sum(doc_id not in grades for doc_id in doc_ids)
        found += len(run)
        for metric in ir_measures.iter_calc(measures, qrels, run):
            values[int(metric.query_id), column[metric.measure]] = metric.value
    return Measured(values, found, unjudged / shown if shown else None)


def deepest_rank(measures: Sequence[str]) -> int:
    """Returns the deepest rank that a measure reads; 1,000 for one without a cutoff, such as AP."""
    import ir_measures

    return max(int(ir_measures.parse_measure(name).params.get("cutoff", 1000)) for name in measures)
