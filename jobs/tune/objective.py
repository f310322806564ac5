"""What `tune` maximises: one measure of every judged query, under any weights, computed from the gathered lists.

Queries do not affect each other, so a setting is computed once for all of them, and folds only take their part of the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import ConfigError
from jobs.chain.answer import fused, ranked
from jobs.config.config import Config
from jobs.log.judgements import Judgements
from jobs.measure.evaluate.intervals import Floats
from jobs.tune.gathered import GatheredBlock, GatheredQueries
from retrievers.fusion import Fused
from retrievers.ranking import offsets_of, ranks
from retrievers.settings import FuseSettings


class Weighting(NamedTuple):
    """Weights of lists; what is not named weighs 1.

    Attributes:
        strategies: (Strategy, what its own weight is multiplied by), sorted; also `original`.
        retrievers: (Retriever, its weight), sorted.
        redundancy: Of fusion.
        given: (Strategy whose own weight is 0, its weight): what is multiplied stays 0.
    """

    strategies: tuple[tuple[str, float], ...]
    retrievers: tuple[tuple[str, float], ...]
    redundancy: str
    given: tuple[tuple[str, float], ...] = ()

    def with_strategies(self, ratios: Mapping[str, float]) -> Weighting:
        """Returns these weights with others for the strategies."""
        return self._replace(strategies=tuple(sorted((name, ratio) for name, ratio in ratios.items() if ratio != 1)))

    def with_retrievers(self, weights: Mapping[str, float]) -> Weighting:
        """Returns these weights with others for the retrievers."""
        alike = len(set(weights.values())) == 1
        return self._replace(retrievers=() if alike else tuple(sorted(weights.items())))

    def without(self, strategies: Iterable[str]) -> Weighting:
        """Returns these weights with 0 for some strategies."""
        return self.with_strategies(dict(self.strategies) | dict.fromkeys(strategies, 0.0))


def fuse_settings(base: FuseSettings, weighting: Weighting, own_weights: Mapping[str, float]) -> FuseSettings:
    """Returns the config's `fuse` with these weights in place of its own.

    Args:
        base: The config's `fuse`.
        weighting: The weights.
        own_weights: Strategy -> the weight that its file gives it.
    """
    weights = {name: ratio * own_weights.get(name, 1.0) for name, ratio in weighting.strategies} | dict(weighting.given)
    changed = {"weights": weights, "retriever_weights": dict(weighting.retrievers), "redundancy": weighting.redundancy}
    return base.model_copy(update=changed)


class Objective:
    """The values of one measure, by weights; each setting is computed once."""

    def __init__(self, config: Config, gathered: GatheredQueries, judgements: Judgements) -> None:
        """Prepares the measure.

        Args:
            config: Of the run; the measure is its first of `evaluate.measures`.
            gathered: The judged queries.
            judgements: Of their keys.

        Raises:
            ConfigError: ir_measures does not know the measure.
        """
        import ir_measures

        self.name = config.evaluate.measures[0]
        try:
            measure = ir_measures.parse_measure(self.name)
        except (NameError, ValueError, SyntaxError) as error:
            raise ConfigError(
                "config-value", f"evaluate.measures: {self.name!r} is no measure of ir_measures; write it like nDCG@10"
            ) from error
        self.gathered = gathered
        self._config = config
        self._cutoff = measure.params.get("cutoff") or config.fuse.keep
        self._numbers: dict[str, str] = {}  # doc_id -> number: trec_eval cuts a text at NUL
        self._places = np.repeat(np.arange(len(gathered.keys)), [len(keys) for keys in gathered.keys])
        keys = [key for of_query in gathered.keys for key in of_query]
        qrels = {str(row): self._grades(judgements.grades[key]) for row, key in enumerate(keys)}
        ends = np.cumsum([len(of_query) for of_query in gathered.keys]).tolist()
        self._rows = [range(end - len(of_query), end) for of_query, end in zip(gathered.keys, ends, strict=True)]
        self._evaluator: Any = ir_measures.evaluator([measure], qrels)
        self._known: dict[Weighting, Floats] = {}

    @property
    def settings_tried(self) -> int:
        """Returns the number of settings computed so far."""
        return len(self._known)

    def values(self, weighting: Weighting) -> Floats:
        """Returns the measure of each query, shape (queries,); a query without any result has 0."""
        if weighting not in self._known:
            self._known[weighting] = self._computed(weighting)
        return self._known[weighting]

    def original_alone(self, weighting: Weighting) -> Weighting:
        """Returns the weights that leave every rewrite out, retrievers alike."""
        return weighting._replace(retrievers=()).without(self.gathered.strategies)

    def _grades(self, grades: Mapping[str, int]) -> dict[str, int]:
        # trec_eval ends the process on a negative grade
        return {self._number(doc_id): max(0, grade) for doc_id, grade in grades.items()}

    def _number(self, doc_id: str) -> str:
        return self._numbers.setdefault(doc_id, str(len(self._numbers)))

    def _computed(self, weighting: Weighting) -> Floats:
        settings = fuse_settings(self._config.fuse, weighting, self.gathered.own_weights)
        if not self.gathered.reranked:
            settings = settings.model_copy(update={"keep": min(settings.keep, self._cutoff)})
        run: dict[str, dict[str, float]] = {}
        row = 0
        for block in self.gathered.blocks:
            offsets, doc_ids = self._results(block, fused(block.hits, settings, block.similarity))
            for begin, end in pairwise(offsets.tolist()):
                found = {self._number(doc_id): -float(place) for place, doc_id in enumerate(doc_ids[begin:end])}
                run.update({str(key): found for key in self._rows[row]} if found else {})
                row += 1
        values = np.zeros(len(self._places))
        for metric in self._evaluator.iter_calc(run):
            values[int(metric.query_id)] = metric.value
        counts = np.bincount(self._places, minlength=row)
        of_queries: Floats = np.bincount(self._places, values, minlength=row) / counts
        return of_queries

    def _results(self, block: GatheredBlock, found: Fused) -> tuple[np.ndarray, list[str]]:
        """Returns the results of a block, flat: offsets and doc_ids, best first."""
        if block.scores is None or not self.gathered.reranked:
            return found.offsets, found.doc_ids.to_pylist()
        hits, rerank = block.hits, self._config.rerank
        query = np.repeat(np.arange(hits.queries), np.diff(found.offsets))
        document = pc.index_in(found.doc_ids, hits.doc_ids).to_numpy(zero_copy_only=False)
        pairs = np.searchsorted(hits.pair_query * len(hits.doc_ids) + hits.pair_document, query * len(hits.doc_ids) + document)
        scores, lengths = block.scores[pairs], np.diff(found.offsets)
        has_scores = np.ones(len(lengths), dtype=bool)
        best = ranked(lengths, found.doc_ids, found.scores, scores, has_scores, rerank.combine, self._config.fuse.keep)
        kept = best.places[ranks(lengths) <= min(rerank.keep, self._cutoff)]
        lengths = np.minimum(lengths, min(rerank.keep, self._cutoff))
        return offsets_of(lengths), found.doc_ids.take(pa.array(kept)).to_pylist()


def equal_weights(config: Config, gathered: GatheredQueries) -> Weighting:
    """Returns no weights, with the config's redundancy, or overlap where there are no cosines."""
    redundancy = config.used_redundancy
    return Weighting((), (), "overlap" if redundancy == "cosine" and gathered.no_cosine is not None else redundancy)
