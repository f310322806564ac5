"""Fusion of one query's lists by plain loops over dicts: what `retrievers.fusion` must equal, to the last bit.

And the way from one query's lists, as values, to the arrays of `retrievers.fusion` and back.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from retrievers import fusion, redundancy
from retrievers.lists import Lists, by_document
from retrievers.settings import FuseSettings


class RunList(NamedTuple):
    """One ranked list, best hit first."""

    strategy: str
    position: int
    retriever: str
    doc_ids: Sequence[str]
    scores: Sequence[float]
    weight: float = 1.0
    position_weight: float = 1.0


class Similarity(NamedTuple):
    """(strategy, position) of each searched text, and their cosines, shape (n, n)."""

    texts: Sequence[tuple[str, int]]
    cosines: np.ndarray


class Source(NamedTuple):
    """A list that holds a candidate, its rank there and its score."""

    strategy: str
    position: int
    retriever: str
    rank: int
    score: float


class Candidate(NamedTuple):
    """A document after fusion."""

    doc_id: str
    score: float
    sources: tuple[Source, ...]


class Fused(NamedTuple):
    """The candidates, whether the original stood in, and the redundancy that was used."""

    candidates: list[Candidate]
    stood_in: bool
    redundancy: str


Query = tuple[list[RunList], Similarity | None]


# ---------------------------------------------------------------- through the product


def fuse_all(queries: Sequence[Query], **settings: Any) -> list[Fused]:
    """The lists of each query, by `retrievers.fusion`, all in one block."""
    squares = [np.empty(0) if similarity is None else similarity.cosines.ravel() for _, similarity in queries]
    given = redundancy.Similarity(np.cumsum([0, *map(len, squares)]), np.concatenate(squares))
    hits = by_document(as_lists(queries), len(queries))
    fused = fusion.fuse(hits, FuseSettings(**settings), given if len(given.cosines) else None)
    return as_values([run for each, _ in queries for run in each], fused, settings.get("redundancy", "cosine"))


def as_lists(queries: Sequence[Query]) -> Lists:
    """The lists of all queries, as arrays."""
    runs = [run for each, _ in queries for run in each]
    texts = []
    for each, similarity in queries:
        known = [] if similarity is None else list(similarity.texts)
        texts += [
            -1 if run.strategy == "together" else known.index(run[:2]) if run[:2] in known else len(known) for run in each
        ]
    return Lists(
        np.repeat(np.arange(len(queries)), [len(each) for each, _ in queries]),
        pa.array([run.strategy for run in runs], pa.string()),
        np.array([run.position for run in runs], dtype=np.int32),
        pa.array([run.retriever for run in runs], pa.string()),
        np.array(texts, dtype=np.int64),
        np.array([run.weight for run in runs], dtype=np.float64),
        np.array([run.position_weight for run in runs], dtype=np.float64),
        np.cumsum([0, *(len(run.doc_ids) for run in runs)]),
        pa.array([doc_id for run in runs for doc_id in run.doc_ids], pa.string()),
        np.array([score for run in runs for score in run.scores], dtype=np.float64),
    )


def as_values(runs: Sequence[RunList], fused: fusion.Fused, wanted: str) -> list[Fused]:
    """The candidates of each query, from arrays."""
    columns = (fused.source_list.tolist(), fused.source_rank.tolist(), fused.source_score.tolist())
    sources = [Source(*runs[place][:3], rank, score) for place, rank, score in zip(*columns, strict=True)]
    own = [tuple(sources[a:b]) for a, b in pairwise(fused.source_offsets.tolist())]
    candidates = [Candidate(*one) for one in zip(fused.doc_ids.to_pylist(), fused.scores.tolist(), own, strict=True)]
    return [
        Fused(candidates[a:b], stood_in, "overlap" if overlap else wanted)
        for (a, b), stood_in, overlap in zip(
            pairwise(fused.offsets.tolist()), fused.stood_in.tolist(), fused.overlap.tolist(), strict=True
        )
    ]


# ---------------------------------------------------------------- by plain loops


class _List(NamedTuple):
    """A list: distinct documents, cut, with finite scores, and its weight."""

    run: RunList
    weight: float
    doc_ids: list[str]
    scores: list[float]
    retriever_weight: float


def plain(
    runs: Sequence[RunList],
    *,
    method: str = "minmax",
    k: float = 60,
    depth: int = 30,
    keep: int = 50,
    weights: Mapping[str, float] | None = None,
    retriever_weights: Mapping[str, float] | None = None,
    redundancy: str = "cosine",
    divide: str = "none",
    similarity: Similarity | None = None,
) -> Fused:
    """The lists of one query."""
    if redundancy == "cosine" and similarity is None:
        redundancy = "overlap"
    runs = sorted(runs, key=lambda run: run[:3])
    of_retrievers = retriever_weights or {}
    lists = [_cut(run, weights or {}, depth, of_retrievers.get(run.retriever, 1.0)) for run in runs]
    lists = [each for each in lists if each.doc_ids]
    beside = [(weights or {}).get(f"original+{each.run.strategy}") for each in lists if each.weight > 0]
    if known := [weight for weight in beside if weight is not None]:
        lists = [each._replace(weight=min(known)) if each.run.strategy == "original" else each for each in lists]
    taking_part = [each for each in lists if each.weight > 0 and each.retriever_weight > 0]
    stood_in = False
    if not taking_part:
        originals = [each._replace(weight=1.0) for each in lists if each.run.strategy == "original"]
        taking_part = [each for each in originals if each.retriever_weight > 0]
        taking_part = taking_part or [each._replace(retriever_weight=1.0) for each in originals]
        stood_in = bool(taking_part)
    shares = [_share(each, taking_part, lists, redundancy, similarity) for each in taking_part]
    taking_part = [each._replace(weight=each.weight * share) for each, share in zip(taking_part, shares, strict=True)]
    scores = {"rrf": _rrf, "minmax": _minmax, "weighted": _within_retrievers, "best": _within_retrievers}[method](
        taking_part, k, method
    )
    high = max(scores.values(), default=0.0)
    if divide == "max" and method in ("weighted", "best") and high > 0:
        scores = {doc_id: score / high for doc_id, score in scores.items()}
    best = sorted((-round(score, 12), doc_id) for doc_id, score in scores.items())[: max(0, keep)]
    sources: dict[str, list[Source]] = {doc_id: [] for _, doc_id in best}
    for each in taking_part:
        for rank, (doc_id, score) in enumerate(zip(each.doc_ids, each.scores, strict=True), start=1):
            if doc_id in sources:
                sources[doc_id].append(Source(*each.run[:3], rank, score))
    candidates = [Candidate(doc_id, -score or 0.0, tuple(sources[doc_id])) for score, doc_id in best]
    return Fused(candidates, stood_in, redundancy)


def _cut(run: RunList, weights: Mapping[str, float], depth: int, retriever_weight: float) -> _List:
    weight = weights.get(f"{run.strategy}/{run.retriever}", weights.get(run.strategy, run.weight)) * run.position_weight
    first: dict[str, float] = {}
    for doc_id, score in zip(run.doc_ids, run.scores, strict=True):
        if len(first) < depth:
            first.setdefault(doc_id, score)
    lowest = min(filter(math.isfinite, first.values()), default=0.0)
    scores = [score if math.isfinite(score) else lowest for score in first.values()]
    return _List(run, weight, list(first), scores, retriever_weight)


def _share(each: _List, taking_part: list[_List], there: list[_List], redundancy: str, similarity: Similarity | None) -> float:
    if redundancy == "none" or each.run.strategy == "together":
        return 1.0
    same = [other for other in taking_part if other.run.retriever == each.run.retriever and other.run.strategy != "together"]
    if not any(other.run.strategy == "original" for other in same):
        same += [o for o in there if o.run.strategy == "original" and o.run.retriever == each.run.retriever]
    alike = 0.0
    for other in same:
        if redundancy == "overlap":
            mine, theirs = set(each.doc_ids[:10]), set(other.doc_ids[:10])
            alike += len(mine & theirs) / len(mine | theirs)
        elif other is each:
            alike += 1.0
        else:
            assert similarity is not None
            row, column = (similarity.texts.index(one.run[:2]) for one in (each, other))
            alike += float(np.maximum(np.float64(similarity.cosines[row, column]), 0.0) ** 4)
    return 1.0 / (round(alike, 6) if redundancy == "cosine" else alike)


def _rrf(lists: Sequence[_List], k: float, method: str) -> dict[str, float]:
    scores: dict[str, float] = {}
    for each in lists:
        for rank, doc_id in enumerate(each.doc_ids, start=1):
            scores[doc_id] = scores.get(doc_id, 0.0) + each.weight * each.retriever_weight / (k + rank)
    return scores


def _minmax(lists: Sequence[_List], k: float, method: str) -> dict[str, float]:
    scores: dict[str, float] = {}
    for each in lists:
        low, high = min(each.scores), max(each.scores)
        for doc_id, score in zip(each.doc_ids, each.scores, strict=True):
            part = (score - low) / (high - low) if high > low else 1.0
            scores[doc_id] = scores.get(doc_id, 0.0) + each.weight * each.retriever_weight * part
    return scores


def _within_retrievers(lists: Sequence[_List], k: float, method: str) -> dict[str, float]:
    found: dict[str, dict[str, float]] = {}
    for each in lists:
        scores = found.setdefault(each.run.retriever, {})
        for doc_id, score in zip(each.doc_ids, each.scores, strict=True):
            value = each.weight * score
            if method == "weighted":
                scores[doc_id] = scores.get(doc_id, 0.0) + value
            else:
                scores[doc_id] = max(scores.get(doc_id, -math.inf), value)
    if len(found) == 1:
        return next(iter(found.values()))
    joined: dict[str, float] = {}
    for retriever, scores in sorted(found.items()):
        share = next(each.retriever_weight for each in lists if each.run.retriever == retriever)
        ranked = sorted((-round(score, 12), doc_id) for doc_id, score in scores.items())
        for rank, (_, doc_id) in enumerate(ranked, start=1):
            joined[doc_id] = joined.get(doc_id, 0.0) + share / (k + rank)
    return joined
