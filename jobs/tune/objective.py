"""What `tune` maximises: one measure of every judged query, under any weights, computed from the gathered lists.

Queries do not affect each other, so a setting is computed once for all of them, and folds only take their part of the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import ConfigError
from jobs.chain.answer import fused, ranked
from jobs.chain.cuts import cut_from
from jobs.config.config import Config
from jobs.job.measure_checks import check_grades, check_measures, deeper, deepest_rank
from jobs.job.rewriting import read_rewriting
from jobs.log.judgements import Judgements
from jobs.measure.measures import ListMeasures
from jobs.measure.significance import Floats
from jobs.tune.judged_lists import GatheredBlock, GatheredQueries
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
            ConfigError: It cannot be computed, or the run's prompts cannot be read.
        """
        (self.name,) = check_measures(config.evaluate.measures[:1])
        check_grades([self.name], judgements)
        self.gathered = gathered
        self._config = config
        self._cutoff = deepest_rank([self.name])
        self._least = min(config.results, cut_from(config, read_rewriting(config).cuts))
        self._places = np.repeat(np.arange(len(gathered.keys)), [len(keys) for keys in gathered.keys])
        self._measures = ListMeasures([self.name], [judgements.grades[key] for keys in gathered.keys for key in keys])
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

    def _computed(self, weighting: Weighting) -> Floats:
        settings = fuse_settings(self._config.fuse, weighting, self.gathered.own_weights)
        if not self.gathered.reranked:
            settings = settings.model_copy(update={"keep": min(settings.keep, self._cutoff)})
        lists: list[list[str]] = []
        for block in self.gathered.blocks:
            candidates = fused(block.hits, settings, block.similarity, collections=self._config.retrieve.collection_of)
            offsets, doc_ids = self._results(block, candidates)
            self._check_reached(np.diff(offsets))
            lists += [doc_ids[begin:end] for begin, end in pairwise(offsets.tolist())]
        values = self._measures(lists[place] for place in self._places)[:, 0]
        of_queries: Floats = np.bincount(self._places, values) / np.bincount(self._places)
        return of_queries

    def _check_reached(self, lengths: np.ndarray) -> None:
        """Refuses lists that were cut above the depth of the measure: weights would be tuned to the cut."""
        cut = lengths[(lengths >= self._least) & (lengths < self._cutoff)]
        if len(cut):
            what = f"evaluate.measures: {self.name}: reads {self._cutoff:,} documents, and lists end at {cut.min():,}"
            raise ConfigError("config-value", f"{what}; {deeper(self._config, [self.name], cut.min(), is_run=True)}")

    def _results(self, block: GatheredBlock, found: Fused) -> tuple[np.ndarray, list[str]]:
        """Returns the results of a block, flat: offsets and doc_ids, best first."""
        if block.scores is None or not self.gathered.reranked:
            return found.offsets, found.doc_ids.to_pylist()
        hits, rerank = block.hits, self._config.rerank
        query = np.repeat(np.arange(hits.queries), np.diff(found.offsets))
        document = pc.index_in(found.doc_ids, hits.doc_ids).to_numpy(zero_copy_only=False)
        at = np.searchsorted(hits.pair_query * len(hits.doc_ids) + hits.pair_document, query * len(hits.doc_ids) + document)
        scores, lengths = block.scores[at], np.diff(found.offsets)
        pairs = np.minimum(lengths, self._config.fuse.keep)
        best = ranked(lengths, found.doc_ids, found.scores, scores, pairs, rerank.combine)
        kept = best.places[ranks(lengths) <= min(rerank.keep, self._cutoff)]
        lengths = np.minimum(lengths, min(rerank.keep, self._cutoff))
        return offsets_of(lengths), found.doc_ids.take(pa.array(kept)).to_pylist()


def equal_weights(config: Config, gathered: GatheredQueries) -> Weighting:
    """Returns no weights, with the config's redundancy, or overlap where there are no cosines."""
    redundancy = config.used_redundancy
    return Weighting((), (), "overlap" if redundancy == "cosine" and gathered.no_cosine is not None else redundancy)
