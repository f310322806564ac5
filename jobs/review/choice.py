"""Which rewrites and queries of a run are worth a look: by reason, and those first that move most of the traffic."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import log2
from typing import NamedTuple

import duckdb

from jobs.measure.list_portions import lists_known
from jobs.measure.measures import DEPTH
from jobs.measure.original import fuse_original
from jobs.runs.folder import RunFolder
from rewriters.guards.guards import OVERRIDE, REPAIRED

NO_HITS, CHANGED = "no_hits", "changed"
REASONS: dict[str, str] = {
    NO_HITS: "no list has a hit for the query",
    CHANGED: "the first documents are others than the original alone finds, or in another order",
    "lost_name": "the rewrite lacks a name of the query",
    "lost_number": "the rewrite lacks a number of the query",
    "lost_phrase": "the rewrite lacks a quoted phrase of the query",
    "not_preserved": "a guard left the strategy's texts out: they lack a name, a number or a phrase of the query",
    "drift": "the rewrite's vector is far from the query's",
    "no_vocabulary": "the rewrite has no term of the vocabulary, or a guard left it out for that",
    "other_script": "the rewrite is in another script than the query",
    "cut": "the token limit cut the rewrite",
}
"""Reason -> what it says; each gives its best row in turn, in this order."""
_FLAGS = ("lost_name", "lost_number", "lost_phrase", "drift", "no_vocabulary", "other_script", "cut")
_PUT_BACK = {"lost_name", "lost_number", "lost_phrase"}  # what a guard has put behind the text is not lost
_LEFT_OUT = ("not_preserved", "no_vocabulary")

Found = dict[str, dict[str, list[tuple[tuple[str, int], int]]]]
"""query_id -> document -> strategy and position of each rewrite that has it, and its best rank in that rewrite's lists."""
Place = tuple[str, str, int]
"""query_id, strategy and position of a rewrite; "" and 0: the query itself."""


class Candidate(NamedTuple):
    """A rewrite, or a query, that is worth a look. They sort by how much of the traffic they move, the most first.

    Attributes:
        moved: The negative of traffic x change.
        unasked: The negative of how often the query was asked.
        place: Which rewrite it is.
        reasons: In the order of `REASONS`.
        query: As it is shown.
        change: Of the query's first documents, from 0 to 1; None: not known.
        original: The first document of the original alone; None: there is none, or it is not known.
        served: The first document of the results; None: there is none.
    """

    moved: float
    unasked: int
    place: Place
    reasons: tuple[str, ...]
    query: str
    change: float | None
    original: str | None
    served: str | None


@dataclass
class BestCandidates:
    """The best candidates of each reason, and how many there are; `most`: of a reason that are kept."""

    most: int
    best: dict[str, list[Candidate]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    every: int = 0
    settled: int = 0
    """Queries whose documents moved most by a rewrite that a person has approved; they are no candidates."""

    def add(self, one: Candidate) -> None:
        """Counts a candidate, and keeps it where it is among the best of a reason."""
        self.every += 1
        for reason in one.reasons:
            self.counts[reason] += 1
            best = self.best.setdefault(reason, [])
            if len(best) < self.most or (best and one < best[-1]):
                insort(best, one)
                del best[self.most :]

    def chosen(self) -> list[Candidate]:
        """Returns `most` candidates, those first that move most: each reason gives its best in turn."""
        found: dict[Place, Candidate] = {}
        turns = zip_longest(*(self.best[reason] for reason in REASONS if reason in self.best))
        for one in (one for turn in turns for one in turn if one is not None):
            if len(found) == self.most:
                break
            found.setdefault(one.place, one)
        return sorted(found.values())


def changed(served: Sequence[str], original: Sequence[str]) -> float:
    """Returns how much of the first documents moved: 0: the same in the same order; 1: all are others.

    It is one less the share of weight that a document keeps, 1 / log2(1 + rank) as in nDCG, the lower of its two.
    """
    weights = [1 / log2(1 + rank) for rank in range(1, 1 + max(len(served), len(original)))]
    before = dict(zip(original, weights, strict=False))
    same = sum(min(weight, before.get(doc_id, 0.0)) for doc_id, weight in zip(served, weights, strict=False))
    return round(1 - same / sum(weights), 6) if weights else 0.0


def collect(connection: duckdb.DuckDBPyConnection, run: RunFolder, found: BestCandidates) -> None:
    """Adds the candidates of a portion (`jobs/review/portions.py`)."""
    depth, known = min(DEPTH, run.config.results), lists_known(run)
    reasons: dict[Place, set[str]] = {}
    for place, flags in _flagged(connection):
        reasons.setdefault(place, set()).update(flags)
    for query_id, component, reason in _left_out(connection):
        reasons.setdefault((query_id, component or "", 0), set()).add(reason)
    served, by = _served(connection, depth, run.config.rewrite.planned)
    original = _original(connection, run, depth) if known else {}
    asked = _asked(connection)
    change: dict[str, float] = {}
    for query_id in asked if known else ():
        change[query_id] = changed(served.get(query_id, ()), original.get(query_id, ()))
        if change[query_id]:
            mover = _mover(served.get(query_id, ()), original.get(query_id, ()), by.get(query_id, {}))
            reasons.setdefault((query_id, *mover), set()).add(CHANGED)
    for place in _approved(connection) & reasons.keys():
        del reasons[place]
        found.settled += 1
    for place, why in reasons.items():
        query, count = asked[place[0]]
        moved = change.get(place[0])
        weight = 1.0 if NO_HITS in why or moved is None else moved
        firsts = (next(iter(of.get(place[0], ())), None) for of in (original, served))
        found.add(Candidate(-count * weight, -count, place, tuple(one for one in REASONS if one in why), query, moved, *firsts))


def _asked(connection: duckdb.DuckDBPyConnection) -> dict[str, tuple[str, int]]:
    rows = connection.execute("SELECT query_id, query, log_count FROM queries").fetchall()
    return {query_id: (query, count) for query_id, query, count in rows}


def _flagged(connection: duckdb.DuckDBPyConnection) -> Iterable[tuple[Place, set[str]]]:
    rows = connection.execute(
        "SELECT query_id, strategy, position, guards FROM rewrites WHERE list_has_any(guards, $flags)", {"flags": list(_FLAGS)}
    ).fetchall()
    for query_id, strategy, position, guards in rows:
        flags = {*guards} & {*_FLAGS} - (_PUT_BACK if REPAIRED in guards else set())
        if flags:
            yield (query_id, strategy, position), flags


def _approved(connection: duckdb.DuckDBPyConnection) -> set[Place]:
    """Returns the rewrites that people wrote (`rewrite.guards.overrides`)."""
    query = "SELECT query_id, strategy, position FROM rewrites WHERE list_contains(guards, $flag)"
    return set(connection.execute(query, {"flag": OVERRIDE}).fetchall())


def _left_out(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str | None, str]]:
    rows: list[tuple[str, str | None, str]] = connection.execute(
        "SELECT DISTINCT query_id, CASE reason WHEN $none THEN NULL ELSE component END, reason FROM errors"
        " WHERE (stage = 'fuse' AND reason = $none) OR (stage = 'rewrite' AND reason IN (SELECT unnest($left_out)))",
        {"none": NO_HITS, "left_out": list(_LEFT_OUT)},
    ).fetchall()
    return rows


def _served(connection: duckdb.DuckDBPyConnection, depth: int, planned: Sequence[str]) -> tuple[dict[str, list[str]], Found]:
    """Returns query_id -> its first documents, and the lists of rewrites that have them."""
    documents: dict[str, list[str]] = {}
    by: Found = {}
    rows = connection.execute(
        "SELECT query_id, doc_id, list_transform(sources, lambda s: [s.strategy, s.position::VARCHAR, s.rank::VARCHAR])"
        f" FROM results WHERE rank <= {depth} ORDER BY query_id, rank"
    ).fetchall()
    places, same = {name: place for place, name in enumerate(planned)}, _as_asked(connection)
    for query_id, doc_id, sources in rows:
        documents.setdefault(query_id, []).append(doc_id)
        best: dict[tuple[str, int], int] = {}
        for name, position, rank in sources:
            if name in places and (query_id, name, int(position)) not in same:
                best[name, int(position)] = min(int(rank), best.get((name, int(position)), int(rank)))
        by.setdefault(query_id, {})[doc_id] = sorted(best.items(), key=lambda one: (places[one[0][0]], one[0][1]))
    return documents, by


def _as_asked(connection: duckdb.DuckDBPyConnection) -> set[Place]:
    """Returns the rewrites that are the query itself, letter by letter but for case: they move nothing."""
    rows = connection.execute(
        "SELECT query_id, strategy, position FROM rewrites JOIN queries USING (query_id) WHERE lower(text) = lower(query)"
    ).fetchall()
    return set(rows)


def _original(connection: duckdb.DuckDBPyConnection, run: RunFolder, depth: int) -> dict[str, list[str]]:
    """Returns query_id -> the first documents of the original alone."""
    rows = connection.sql(
        "SELECT query_id, position, retriever, doc_id, score FROM lists ORDER BY query_id, retriever, rank"
    ).to_arrow_table()
    if not rows.num_rows:
        return {}
    alone = fuse_original(rows, run.config.fuse, run.config.retrieve.collection_of)
    return {query_id: doc_ids[:depth] for query_id, doc_ids in alone.items()}


def _mover(
    served: Sequence[str], original: Sequence[str], by: Mapping[str, Sequence[tuple[tuple[str, int], int]]]
) -> tuple[str, int]:
    """Returns the rewrite that has done most to move documents up; ("", 0): none has any of these.

    For each of these documents it counts the discount of the document's rank, times that of the rank in the rewrite's list.
    """
    before = {doc_id: rank for rank, doc_id in enumerate(original, start=1)}
    weights: dict[tuple[str, int], float] = {}
    for rank, doc_id in enumerate(served, start=1):
        if before.get(doc_id, rank + 1) > rank:
            for one, there in by.get(doc_id, ()):
                weights[one] = weights.get(one, 0.0) + 1 / log2(1 + rank) / log2(1 + there)
    return max(weights, key=lambda one: round(weights[one], 9), default=("", 0))
