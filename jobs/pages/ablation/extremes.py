"""The queries that an arm helped and harmed most, with what it searched for, and its first documents beside the baseline's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from jobs.log.judgements import Judgements
from jobs.measure.compare.standing import Standing
from jobs.measure.query_context import NOTHING, AskedWith, asked_with
from jobs.measure.significance import TIE
from jobs.runs.documents import texts_of
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database
from jobs.try_one.trial import text_names

_REWRITES = """
SELECT query_id, strategy, position, text FROM rows_of($files)
WHERE query_id IN (SELECT unnest($ids)) AND arm = $arm
"""
_RESULTS = """
SELECT query_id, arm, rank, doc_id FROM rows_of($files)
WHERE query_id IN (SELECT unnest($ids)) AND arm IN (SELECT unnest($arms)) ORDER BY query_id, arm, rank
"""
SHOWN = 5  # documents of an arm and query


class Document(NamedTuple):
    """A document of one of the two arms; `other`: its rank in the other arm, None if it is not among the results there.

    `least` is the lowest grade of a relevant document.
    """

    rank: int
    doc_id: str
    text: str | None
    grade: int | None
    other: int | None
    least: int = 1


@dataclass
class ExtremeQuery:
    """A key whose value moved. `values`: measure -> baseline's and arm's, of several seeds the means over them."""

    query_id: str
    query: str | None
    log_count: int
    gain: float
    values: dict[str, tuple[float, float]]
    asked_with: AskedWith = NOTHING
    """Its earlier turns and filters; empty where texts are left out."""
    rewrites: list[tuple[str, str]] = field(default_factory=list)
    """Strategy, with the position where it has several, and text of each."""
    before: list[Document] = field(default_factory=list)
    """The first documents of the baseline; those of the arm are `after`."""
    after: list[Document] = field(default_factory=list)
    missed: list[tuple[str, int]] = field(default_factory=list)
    """Relevant documents that neither has, with their grades, the highest first."""
    of_seeds: dict[str, list[float]] = field(default_factory=dict)
    """Baseline or arm -> its value by the first measure with each of its seeds, where there are several; texts and documents
    are those of the first."""


@dataclass(frozen=True)
class Extremes:
    """The queries, the greatest gain first."""

    arm: str
    queries: list[ExtremeQuery]
    gained: int
    lost: int
    without: str | None
    """Why the texts of documents are not known, if they are not."""


def extremes(run: RunFolder, found: Standing, arm: str, count: int, judgements: Judgements | None, *, texts: bool) -> Extremes:
    """Returns the queries with the greatest gains and losses of an arm over its baseline, half of each and `count` at most.

    Documents have their grades by the `judgements`. Without `texts` there is no query, no rewrite and no document's text.
    """
    frame = found.comparison.frame
    baseline = found.comparison.base_of(arm)
    after, before = (frame.values[frame.arms.index(name)] for name in (arm, baseline))
    gains = after[0] - before[0]
    order = [int(key) for key in np.argsort(-gains, kind="stable")]
    gained = [key for key in order if gains[key] > TIE]
    lost = [key for key in order if gains[key] < -TIE]
    half = count // 2
    best = gained[: max(half, count - len(lost))]
    worst = lost[max(0, len(lost) - (count - len(best))) :]
    chosen = [*best, *worst]
    queries = [
        ExtremeQuery(
            frame.query_ids[key] or "rejected log row",
            frame.queries[key] if texts else None,
            int(frame.counts[key]),
            float(gains[key]),
            {name: (float(before[n, key]), float(after[n, key])) for n, name in enumerate(frame.measures)},
            of_seeds={name: frame.seeds[name].values[:, 0, key].tolist() for name in (baseline, arm) if name in frame.seeds},
        )
        for key in chosen
    ]
    if texts and queries:
        beside = asked_with(run, [one.query_id for one in queries])
        for one in queries:
            one.asked_with = beside[one.query_id]
        _fill_rewrites(run, arm, queries)
    grades, least = ({}, 1) if judgements is None else (judgements.grades, judgements.least)
    of_keys = [grades.get(frame.keys[key], {}) for key in chosen]
    without = _fill_documents(run, (baseline, arm), queries, of_keys, least, texts=texts)
    return Extremes(arm, queries, len(gained), len(lost), without)


def _fill_documents(
    run: RunFolder,
    arms: tuple[str, str],
    queries: list[ExtremeQuery],
    grades: Sequence[Mapping[str, int]],
    least: int,
    *,
    texts: bool,
) -> str | None:
    """Fills the first documents of the baseline and the arm; returns why their texts are not known, if they are not."""
    files = run.tables.get("results")
    if not files or not queries:
        return None
    with database() as connection:
        ids = sorted({one.query_id for one in queries})
        rows = connection.execute(_RESULTS, {"files": files, "ids": ids, "arms": list(arms)}).fetchall()
    ranks: dict[tuple[str, str], dict[str, int]] = {}
    for query_id, arm, rank, doc_id in rows:
        ranks.setdefault((query_id, arm), {})[doc_id] = rank
    first = {doc_id for of in ranks.values() for doc_id, rank in of.items() if rank <= SHOWN}
    found, without = texts_of(run, sorted(first), addresses=True) if texts else ({}, None)
    for one, judged in zip(queries, grades, strict=True):
        before, after = (ranks.get((one.query_id, arm), {}) for arm in arms)
        for into, own, other in ((one.before, before, after), (one.after, after, before)):
            into += [
                Document(rank, doc_id, found.get(doc_id), judged.get(doc_id), other.get(doc_id), least)
                for doc_id, rank in own.items()
                if rank <= SHOWN
            ]
        missed = [(doc_id, grade) for doc_id, grade in judged.items() if grade >= least and doc_id not in before | after]
        one.missed = sorted(missed, key=lambda document: (-document[1], document[0]))
    return without


def _fill_rewrites(run: RunFolder, arm: str, queries: list[ExtremeQuery]) -> None:
    """Fills the rewrites that an arm searched; they are stored under the first arm that has them."""
    files = run.tables.get("rewrites")
    if not files:
        return
    described: dict[str, Any] = next((one for one in run.record["ablation"]["arms"] if one["name"] == arm), {})
    order = {name: place for place, name in enumerate(described.get("strategies", ()))}
    with database() as connection:
        given = {"files": files, "ids": sorted({one.query_id for one in queries}), "arm": described.get("rewrites_of", arm)}
        rows = connection.execute(_REWRITES, given).fetchall()
    by_query: dict[str, list[tuple[int, str, int, str]]] = {}
    for query_id, strategy, position, text in rows:
        if strategy in order:
            by_query.setdefault(query_id, []).append((order[strategy], strategy, position, text))
    for one in queries:
        texts = sorted(by_query.get(one.query_id, []))
        names = text_names((strategy, position) for _, strategy, position, _ in texts)
        one.rewrites += [(names[strategy, position], text) for _, strategy, position, text in texts]
