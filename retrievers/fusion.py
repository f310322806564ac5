"""Fusing the ranked lists of one query into one list of candidates: pure functions.

Each rewrite's list from each retriever is one list. Methods:

- ``rrf``: sum of weight / (k + rank); Cormack, Clarke and Buettcher 2009.
- ``minmax``: sum of weight x (score - min) / (max - min), minimum and maximum over the part of the list that takes
  part; a document that a list lacks gets 0 from it (CombSUM; Fox and Shaw 1994).
- ``weighted``: sum of weight x score; ``best``: the highest weight x score. Scores of two retrievers have no common
  scale, so both fuse within each retriever, and the retrievers' lists are joined by rrf.

A list's weight is its strategy's, or what ``weights`` says instead, times its position's, times the redundancy weight:

- ``overlap``: 1 / sum of Jaccard overlaps (top 10 documents) with the lists of the same retriever, itself included;
- ``cosine``: 1 / sum of max(0, cosine)^4 between the vectors of the texts searched with, over the same lists.

so that lists which look alike share one vote. Both sums run over the lists that take part (weight above 0, some hit)
and the original's, whatever its weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from retrievers.retriever import FIRST_RANK, RetrieverError, unknown

METHODS = ("rrf", "minmax", "weighted", "best")
REDUNDANCY = ("none", "overlap", "cosine")
ORIGINAL = "original"
_OVERLAP_DEPTH = 10
_COSINE_POWER = 4
_DECIMALS = 12  # of fused scores: sums that are equal on paper then tie, and doc_id decides, not the last bit


class RunList(NamedTuple):
    """One ranked list, best hit first. A document that is there twice counts once, at its best rank.

    ``weight`` is the strategy's own, which `fuse`'s ``weights`` may replace; ``position_weight`` always multiplies.
    A score that is not finite counts as the list's lowest.
    """

    strategy: str
    position: int
    retriever: str
    doc_ids: Sequence[str]
    scores: Sequence[float]
    weight: float = 1.0
    position_weight: float = 1.0


class Similarity(NamedTuple):
    """How alike the searched texts of a query are.

    ``texts``: (strategy, position) of each; ``cosines``: shape (n, n), of the vectors searched with.
    """

    texts: Sequence[tuple[str, int]]
    cosines: np.ndarray


class Source(NamedTuple):
    """Where a candidate was found: a list, its rank there (from 1; a repeated document takes no rank) and its score."""

    strategy: str
    position: int
    retriever: str
    rank: int
    score: float


class Candidate(NamedTuple):
    """A document after fusion. ``sources`` are sorted by strategy, position, retriever: every list that took part and
    holds the document in the part that took part."""

    doc_id: str
    score: float
    sources: tuple[Source, ...]


class Fused(NamedTuple):
    """``candidates``, best first, equal scores by doc_id.

    ``stood_in``: no other list had a hit and a weight above 0, so the original's were fused against its weight of 0.
    ``redundancy``: what was used; ``cosine`` without similarity is ``overlap``.
    """

    candidates: list[Candidate]
    stood_in: bool
    redundancy: str


class _List(NamedTuple):
    """A list that takes part: distinct documents, cut, with finite scores."""

    run: RunList
    weight: float
    doc_ids: list[str]
    scores: list[float]


def check_fusion(method: str, redundancy: str, weights: Mapping[str, float]) -> None:
    """Refuse what `fuse` could not do, before any work is done.

    Raises:
        RetrieverError: unknown method or redundancy; a weight that is negative or not a number.
    """
    if method not in METHODS:
        raise RetrieverError(f"fuse.method: {unknown('method', method, METHODS)}")
    if redundancy not in REDUNDANCY:
        raise RetrieverError(f"fuse.redundancy: {unknown('redundancy', redundancy, REDUNDANCY)}")
    for name, weight in weights.items():
        if not (isinstance(weight, int | float) and 0 <= weight < math.inf):
            raise RetrieverError(f"fuse.weights.{name}: {weight!r} is not a weight; give a number of 0 or more")


def fuse(
    runs: Sequence[RunList],
    *,
    method: str = "minmax",
    k: float = 60,
    depth: int = 30,
    keep: int = 50,
    weights: Mapping[str, float] | None = None,
    redundancy: str = "cosine",
    similarity: Similarity | None = None,
) -> Fused:
    """Fuse the lists of one query. The order of ``runs`` does not matter.

    Args:
        runs: at most one per (strategy, position, retriever).
        method, k: the formula; ``k`` of rrf.
        depth: how many documents of each list take part.
        keep: how many candidates are handed on.
        weights: strategy or strategy/retriever (which wins) -> the weight that replaces a strategy's own. A list of
            weight 0 is left out; only where nothing else is left do the original's lists stand in.
        redundancy: none | overlap | cosine.
        similarity: of the texts searched with; None: there is no dense retriever.

    Raises:
        RetrieverError: as `check_fusion`.
        ValueError: two runs for one (strategy, position, retriever); a run whose text is not in `similarity`.
    """
    weights = weights or {}
    check_fusion(method, redundancy, weights)
    if redundancy == "cosine" and similarity is None:
        redundancy = "overlap"
    # one order, whatever the caller's: sums of floats then do not depend on it
    runs = sorted(runs, key=lambda run: run[:3])
    for before, after in pairwise(runs):
        if before[:3] == after[:3]:
            raise ValueError(f"two lists for {before.strategy} {before.position} from {before.retriever}")
    lists = [_cut(run, _weight(run, weights), depth) for run in runs]
    lists = [each for each in lists if each.doc_ids]
    taking_part = [each for each in lists if each.weight > 0]
    stood_in = False
    if not taking_part:
        taking_part = [each._replace(weight=1.0) for each in lists if each.run.strategy == ORIGINAL]
        stood_in = bool(taking_part)
    shares = _redundancy_weights(taking_part, lists, redundancy, similarity)
    taking_part = [each._replace(weight=each.weight * share) for each, share in zip(taking_part, shares, strict=True)]
    scores = _METHODS[method](taking_part, k)
    best = sorted(((-round(score, _DECIMALS), doc_id) for doc_id, score in scores.items()))[: max(0, keep)]
    sources = _sources(taking_part, {doc_id for _, doc_id in best})
    candidates = [Candidate(doc_id, -score or 0.0, tuple(sources[doc_id])) for score, doc_id in best]
    return Fused(candidates, stood_in, redundancy)


def list_weight(weights: Mapping[str, float], strategy: str, retriever: str, own: float) -> float:
    """What a list counts: the number that ``weights`` give strategy/retriever or strategy, else the strategy's own."""
    return weights.get(f"{strategy}/{retriever}", weights.get(strategy, own))


def _weight(run: RunList, weights: Mapping[str, float]) -> float:
    return list_weight(weights, run.strategy, run.retriever, run.weight) * run.position_weight


def _cut(run: RunList, weight: float, depth: int) -> _List:
    first: dict[str, float] = {}
    for doc_id, score in zip(run.doc_ids, run.scores, strict=True):
        if len(first) >= depth:
            break
        first.setdefault(doc_id, score)
    scores = list(first.values())
    if not all(map(math.isfinite, scores)):
        lowest = min(filter(math.isfinite, scores), default=0.0)
        scores = [score if math.isfinite(score) else lowest for score in scores]
    return _List(run, weight, list(first), scores)


def _redundancy_weights(
    lists: Sequence[_List], there: Sequence[_List], redundancy: str, similarity: Similarity | None
) -> list[float]:
    """1 / (how much each list is repeated by those of its retriever); 1 for a list that is like no other."""
    if redundancy == "none":
        return [1.0] * len(lists)
    shares = []
    for each in lists:
        same = [other for other in lists if other.run.retriever == each.run.retriever]
        if not any(other.run.strategy == ORIGINAL for other in same):
            same += [o for o in there if o.run.strategy == ORIGINAL and o.run.retriever == each.run.retriever]
        if redundancy == "cosine":
            assert similarity is not None
            shares.append(1.0 / _cosine_likeness(each.run, [other.run for other in same], similarity))
        else:
            shares.append(1.0 / _overlap_likeness(each, same))
    return shares


def _overlap_likeness(each: _List, others: Sequence[_List]) -> float:
    top = frozenset(each.doc_ids[:_OVERLAP_DEPTH])
    tops = (frozenset(other.doc_ids[:_OVERLAP_DEPTH]) for other in others)
    return sum(len(top & other) / len(top | other) for other in tops)


def _cosine_likeness(run: RunList, others: Sequence[RunList], similarity: Similarity) -> float:
    try:
        row = similarity.texts.index((run.strategy, run.position))
        columns = [similarity.texts.index((other.strategy, other.position)) for other in others]
    except ValueError as e:
        raise ValueError(f"a list without its text in similarity ({e}), there are: {list(similarity.texts)}") from None
    cosines = np.maximum(similarity.cosines[row, columns].astype(np.float64), 0.0)
    # itself counts 1 exactly; rounded: equal texts then share their vote exactly, whatever batch encoded them
    cosines[[column == row for column in columns]] = 1.0
    return round(float((cosines**_COSINE_POWER).sum()), 6)


def _rrf(lists: Sequence[_List], k: float) -> dict[str, float]:
    scores: dict[str, float] = {}
    for each in lists:
        for rank, doc_id in enumerate(each.doc_ids, FIRST_RANK):
            scores[doc_id] = scores.get(doc_id, 0.0) + each.weight / (k + rank)
    return scores


def _minmax(lists: Sequence[_List], k: float) -> dict[str, float]:
    scores: dict[str, float] = {}
    for each in lists:
        low, high = min(each.scores), max(each.scores)
        span = high - low
        for doc_id, score in zip(each.doc_ids, each.scores, strict=True):
            # all scores equal, or one hit: each is the list's best, and the best of any list counts 1
            part = (score - low) / span if span > 0 else 1.0
            scores[doc_id] = scores.get(doc_id, 0.0) + each.weight * part
    return scores


def _weighted(lists: Sequence[_List], k: float) -> dict[str, float]:
    per_retriever: dict[str, dict[str, float]] = {}
    for each in lists:
        scores = per_retriever.setdefault(each.run.retriever, {})
        for doc_id, score in zip(each.doc_ids, each.scores, strict=True):
            scores[doc_id] = scores.get(doc_id, 0.0) + each.weight * score
    return _join(per_retriever, k)


def _best(lists: Sequence[_List], k: float) -> dict[str, float]:
    per_retriever: dict[str, dict[str, float]] = {}
    for each in lists:
        scores = per_retriever.setdefault(each.run.retriever, {})
        for doc_id, score in zip(each.doc_ids, each.scores, strict=True):
            scores[doc_id] = max(scores.get(doc_id, -math.inf), each.weight * score)
    return _join(per_retriever, k)


def _join(per_retriever: Mapping[str, Mapping[str, float]], k: float) -> dict[str, float]:
    """One retriever's scores as they are; those of several by the ranks they give (rrf)."""
    if len(per_retriever) == 1:
        return dict(next(iter(per_retriever.values())))
    joined: dict[str, float] = {}
    for _, scores in sorted(per_retriever.items()):
        ranked = sorted((-round(score, _DECIMALS), doc_id) for doc_id, score in scores.items())
        for rank, (_, doc_id) in enumerate(ranked, FIRST_RANK):
            joined[doc_id] = joined.get(doc_id, 0.0) + 1.0 / (k + rank)
    return joined


_METHODS = {"rrf": _rrf, "minmax": _minmax, "weighted": _weighted, "best": _best}


def _sources(lists: Sequence[_List], wanted: set[str]) -> dict[str, list[Source]]:
    found: dict[str, list[Source]] = {doc_id: [] for doc_id in wanted}
    for each in lists:
        strategy, position, retriever = each.run[:3]
        for rank, (doc_id, score) in enumerate(zip(each.doc_ids, each.scores, strict=True), FIRST_RANK):
            if doc_id in found:
                found[doc_id].append(Source(strategy, position, retriever, rank, score))
    return found
