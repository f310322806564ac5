"""How many pairs of a query are scored: candidates in fused order, until a rule says that more are not needed.

The rule goes by the query's own candidates and scores alone: what a store has, other arms need, or an earlier start has scored
changes nothing, so that two runs of a config score the same pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from retrievers.order import BLEND_K
from retrievers.ranking import DECIMALS, offsets_of, rounded
from retrievers.rerankers.settings import RerankerSettings

BUDGET_VERSION = 1  # raised when the same scores would stop elsewhere; part of the fingerprint of a run with a budget
_TIE = 4 * 10.0**-DECIMALS  # scores that differ by less may be equal after rounding, and a tie proves nothing


@dataclass(frozen=True)
class PairBudget:
    """How many pairs of a query are scored.

    Attributes:
        pairs: At most.
        keep: Results of the query. Where no rule stops earlier, it and `combine` are left at their defaults.
        combine: The config's `rerank.combine`.
        settled: Stop where so many pairs in a row have brought nothing into the first `keep`; None: this stops nothing.
        proven: Stop where the first `keep` and their order are proven (`_proven`).
        step: Pairs between two looks at the scores.
    """

    pairs: int
    keep: int = 0
    combine: str = ""
    settled: int | None = None
    proven: bool = False
    step: int = 1

    @cached_property
    def looks(self) -> tuple[int, ...]:
        """Returns after how many pairs the scores are looked at, ascending; the last is the most of a query."""
        if self.settled is None and not self.proven:
            return (self.pairs,)
        first = self.keep if self.proven or self.settled is None else self.keep + self.settled
        return *range(min(first, self.pairs), self.pairs, self.step), self.pairs

    @property
    def stops(self) -> bool:
        """Returns whether a query may have fewer pairs than `pairs` and its candidates allow."""
        return len(self.looks) > 1


def budget_of(rerank: RerankerSettings, candidates: int) -> PairBudget | None:
    """Returns how many pairs a config scores, None without a reranker; `candidates` of a query are handed on, at most."""
    if rerank.kind == "none":
        return None
    asked = rerank.budget
    if asked is None:
        return PairBudget(candidates)
    pairs = min(candidates, asked.pairs or candidates)
    if asked.settled is None and not asked.proven:
        return PairBudget(pairs)
    return PairBudget(pairs, min(rerank.keep, candidates), rerank.combine, asked.settled, asked.proven, asked.step)


class WantedPairs:
    """The pairs of many queries that are to be scored by one budget: it grows look by look.

    Attributes:
        wanted: The first candidates of each query, so many, are to be scored, shape (queries,).
    """

    def __init__(self, lengths: np.ndarray, documents: np.ndarray, budget: PairBudget) -> None:
        """Wants what is scored before the first look.

        Args:
            lengths: Candidates of each query, shape (queries,).
            documents: Of the candidates in fused order, flat: numbers in the order of doc_ids, by which equal scores are
                sorted.
            budget: Of all queries.
        """
        self._budget, self._documents, self._sizes = budget, documents, np.minimum(lengths, budget.pairs)
        self._starts = offsets_of(lengths)[:-1]
        self._looks: Iterator[int] = iter(budget.looks)
        self._look = next(self._looks)
        self.wanted: np.ndarray = np.minimum(self._sizes, self._look)
        self._open = np.flatnonzero(self._sizes > self._look)

    def grow(self, scores: np.ndarray) -> bool:
        """Wants more of the queries that need it; returns whether any does. The scores are those of all `wanted`, flat.

        A query with a score that is none (NaN) is scored to the end: nothing is known of it.
        """
        if not len(self._open):
            return False
        at = self._starts[self._open, None] + np.arange(self._look)
        known = scores[at]
        stops = _stops(self._documents[at], known, self._sizes[self._open], self._budget) & ~np.isnan(known).any(axis=1)
        rows = self._open[~stops]
        self._look = next(self._looks, self._look)
        self.wanted[rows] = np.minimum(self._sizes[rows], self._look)
        self._open = rows[self._sizes[rows] > self._look]
        return bool(len(rows))


def scored_pairs(lengths: np.ndarray, documents: np.ndarray, scores: np.ndarray, budget: PairBudget) -> np.ndarray:
    """Returns how many first candidates of each query were scored by a budget, shape (queries,); arguments as of `WantedPairs`.

    The scores, flat, may be those of more candidates, which other arms needed.
    """
    pairs = WantedPairs(lengths, documents, budget)
    while pairs.grow(scores):
        pass
    return pairs.wanted


def _stops(documents: np.ndarray, scores: np.ndarray, sizes: np.ndarray, budget: PairBudget) -> np.ndarray:
    """Returns whether no more pairs of a query are needed, shape (queries,).

    `documents` and `scores` are those of its scored candidates in fused order, shape (queries, scored); `sizes` are all that
    may be scored.
    """
    scored = scores.shape[1]
    by_reranker = np.lexsort((documents, -scores), axis=-1)
    rank = np.empty_like(by_reranker)
    np.put_along_axis(rank, by_reranker, np.arange(1, scored + 1)[None, :], axis=1)
    place = by_reranker
    if budget.combine == "blend":
        blended = 1 / (BLEND_K + rank) + 1 / (BLEND_K + np.arange(1, scored + 1))
        place = np.lexsort((documents, -rounded(blended.ravel()).reshape(blended.shape)), axis=-1)
    stops = np.zeros(len(scores), dtype=bool)
    if budget.settled is not None:
        stops |= place[:, : budget.keep].max(axis=1) < scored - budget.settled
    if budget.proven:
        stops |= _proven(np.take_along_axis(rank, place, axis=1), place + 1, sizes - scored, budget.keep)
    return stops


def _proven(rank: np.ndarray, fused_rank: np.ndarray, more: np.ndarray, keep: int) -> np.ndarray:
    """Returns whether the first `keep` of a blend stay what they are, in their order, whatever the other pairs score.

    A blend is b(r, f) = 1/(K + r) + 1/(K + f), by ranks: r that by the reranker, f that by fusion. So the scale of a reranker's
    scores does not matter, and no bound of them is assumed. Let m candidates be scored and u not; the latter have the fused
    ranks m + 1 to m + u. Of a scored candidate with rank r among the scored, the rank among all is r + k, where k of the u are
    before it: 0 <= k <= u, and of two scored candidates the better has the smaller k or an equal one. Hence

    - a candidate that is not scored has at most b(1, m + 1), a scored one at least b(r + u, f): the first `keep` stay before
      all that are not scored if the least of the latter is greater;
    - A with rank a stays before B with rank b > a if it does so for k = u of both: with equal k the difference
      1/(K + a + k) - 1/(K + b + k) falls as k grows, and any greater k of B makes it greater;
    - A with rank a > b stays before B if b(a + u, A's f) > b(b, B's f), since u of the others may stand between the two.

    Each is also necessary but for ties: some scores of the others make it so. Being greater means here: by more than rounding
    can close.

    Args:
        rank: By the reranker among the scored, of the scored in the order of their blend, shape (queries, scored).
        fused_rank: Theirs by fusion, likewise.
        more: How many are not scored, shape (queries,).
        keep: Results.
    """
    scored, more = rank.shape[1], more[:, None]
    by_fusion = 1 / (BLEND_K + fused_rank)
    best, worst = 1 / (BLEND_K + rank), 1 / (BLEND_K + rank + more)
    first = slice(0, keep)
    unscored = 1 / (BLEND_K + 1) + 1 / (BLEND_K + scored + 1)
    proven: np.ndarray = ((worst + by_fusion)[:, first] > unscored + _TIE).all(axis=1)
    open_rows = np.flatnonzero(proven)
    rank, by_fusion, best, worst = rank[open_rows], by_fusion[open_rows], best[open_rows], worst[open_rows]
    better = rank[:, first, None] < rank[:, None, :]
    other = np.where(better, worst[:, None, :], best[:, None, :]) + by_fusion[:, None, :]
    least = (worst + by_fusion)[:, first, None] - other
    behind = np.arange(scored)[None, :] > np.arange(min(keep, scored))[:, None]
    proven[open_rows] = ((least > _TIE) | ~behind).all(axis=(1, 2))
    return proven
