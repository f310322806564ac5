"""Chooses weights from some queries: the measure under any weights, small grids, and no change without a gain.

Queries do not affect each other, so a setting is computed once for all of them, and folds only take their part of the values.
A change is made only where it gains more than two standard errors on these queries (`as_good_as_the_best`, options ordered by
their distance from what is there): learnt weights shrink to equal ones. For two retrievers there is one number, the share of
the first in a convex combination, which needs few examples (Bruch, Gai and Ingber, An Analysis of Fusion Functions for Hybrid
Retrieval, 2023, arXiv 2210.11934).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from cluster.errors import ConfigError
from jobs.config.config import Config
from jobs.job.measure_checks import check_grades, check_measures, deeper, deepest_rank
from jobs.log.judgements import Judgements
from jobs.measure.measures import ListMeasures
from jobs.measure.significance import TIE, Floats, Numbers, paired_test
from jobs.tune.judged_lists import GatheredBlock, GatheredQueries
from retrievers.fusion import Fused, fuse
from retrievers.lists import ORIGINAL
from retrievers.order import ranked
from retrievers.ranking import offsets_of, ranks
from retrievers.settings import FuseSettings

RATIOS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
SHARES = tuple(round(0.1 * tenth, 1) for tenth in range(11))
SURE = 2.0  # standard errors that a change must gain; with 1, lists of equal worth (tests/jobs/tune) got weights
ROUNDS = 3  # over all coordinates; a round without a change is the last
RETRIEVERS, STRATEGIES = "retriever weights", "strategy weights"


def equal_weights(config: Config, gathered: GatheredQueries) -> FuseSettings:
    """Returns the config's `fuse` without weights, with overlap as its redundancy where there are no cosines."""
    redundancy = config.used_redundancy
    redundancy = "overlap" if redundancy == "cosine" and gathered.no_cosine is not None else redundancy
    return config.fuse.model_copy(update={"weights": {}, "retriever_weights": {}, "redundancy": redundancy})


def strategy_ratios(settings: FuseSettings, own_weights: Mapping[str, float]) -> dict[str, float]:
    """Returns strategy -> its weight as a multiple of its own; without those whose own weight is 0."""
    own = {name: own_weights.get(name, 1.0) for name in settings.weights}
    return {name: weight / own[name] for name, weight in settings.weights.items() if own[name]}


class Objective:
    """The values of one measure, by weights; each setting is computed once."""

    def __init__(self, config: Config, gathered: GatheredQueries, judgements: Judgements) -> None:
        """Prepares the first measure of the config's `evaluate.measures`.

        Raises:
            ConfigError: it cannot be computed.
        """
        (self.name,) = check_measures(config.evaluate.measures[:1])
        check_grades([self.name], judgements)
        self.gathered = gathered
        self._config = config
        self._cutoff = deepest_rank([self.name])
        self._places = np.repeat(np.arange(len(gathered.keys)), [len(keys) for keys in gathered.keys])
        self._measures = ListMeasures([self.name], [judgements.grades[key] for keys in gathered.keys for key in keys])
        self._known: dict[str, Floats] = {}  # by settings, as JSON

    @property
    def settings_tried(self) -> int:
        """Returns the number of settings computed so far."""
        return len(self._known)

    def values(self, settings: FuseSettings) -> Floats:
        """Returns the measure of each query, shape (queries,); a query without any result has 0."""
        key = settings.model_dump_json()
        if key not in self._known:
            self._known[key] = self._computed(settings)
        return self._known[key]

    def _computed(self, settings: FuseSettings) -> Floats:
        if not self.gathered.reranked:
            settings = settings.model_copy(update={"keep": min(settings.keep, self._cutoff)})
        lists: list[list[str]] = []
        for block in self.gathered.blocks:
            offsets, doc_ids = self._results(block, fuse(block.hits, settings, block.similarity))
            lengths = np.diff(offsets)
            cut = lengths[(lengths >= self.gathered.whole_below) & (lengths < self._cutoff)]
            if len(cut):  # weights would be tuned to the cut
                what = f"evaluate.measures: {self.name}: reads {self._cutoff:,} documents, and lists end at {cut.min():,}"
                raise ConfigError("config-value", f"{what}; {deeper(self._config, [self.name], cut.min(), is_run=True)}")
            lists += [doc_ids[begin:end] for begin, end in pairwise(offsets.tolist())]
        values = self._measures(lists[place] for place in self._places)[:, 0]
        of_queries: Floats = np.bincount(self._places, values) / np.bincount(self._places)
        return of_queries

    def _results(self, block: GatheredBlock, fused: Fused) -> tuple[np.ndarray, list[str]]:
        """Returns the results of a block, flat: offsets and doc_ids, best first."""
        if block.scores is None:
            return fused.offsets, fused.doc_ids.to_pylist()
        rerank, lengths = self._config.rerank, np.diff(fused.offsets)
        pairs, most = np.minimum(lengths, self._config.fuse.keep), min(rerank.keep, self._cutoff)
        best = ranked(lengths, fused.doc_ids, fused.scores, block.scores[fused.pairs], pairs, rerank.combine)
        kept = best.places[ranks(lengths) <= most]
        return offsets_of(np.minimum(lengths, most)), fused.doc_ids.take(pa.array(kept)).to_pylist()


@dataclass(frozen=True)
class TuningStep:
    """One step with its values; those of learnt steps use the weights that the other folds chose."""

    name: str
    values: Floats
    """(queries,)."""
    final: FuseSettings
    """The settings that are written: learnt from all queries, or fixed."""
    of_folds: tuple[FuseSettings, ...] = ()
    """Settings learnt without each fold; empty where nothing is learnt."""

    @property
    def mean(self) -> float:
        """Returns the mean of the values."""
        return float(self.values.mean())


def draw_folds(clusters: Numbers, count: int, seed: int) -> Numbers:
    """Returns the fold of each query, (queries,): whole clusters, drawn at random, the folds about equally large.

    The largest clusters are placed first, each into the smallest fold; there are at least `count` of them.
    """
    sizes = np.bincount(clusters)
    drawn = np.random.default_rng(seed).permutation(len(sizes))
    held = np.zeros(count, dtype=np.int64)
    fold_of = np.empty(len(sizes), dtype=np.int64)
    for cluster in drawn[np.argsort(-sizes[drawn], kind="stable")]:
        fold_of[cluster] = np.argmin(held)
        held[fold_of[cluster]] += sizes[cluster]
    folds: Numbers = fold_of[clusters]
    return folds


def chosen_values(values: Floats, folds: Numbers, clusters: Numbers, choose: Callable[[Floats, Numbers], int]) -> Floats:
    """Returns the value of each query by the step that is chosen without its fold, (queries,).

    The mean of the step that was best on all queries is too high, by 2/3 of a standard error where no step has a true effect.
    `values` (steps, queries) are each of a query that had no part in what the step has learnt.
    """
    chosen = np.empty(len(folds))
    for fold in np.unique(folds):
        inside = folds == fold
        chosen[inside] = values[choose(values[:, ~inside], clusters[~inside])][inside]
    return chosen


def as_good_as_the_best(values: Floats, clusters: Numbers, errors: float = 1.0) -> int:
    """Returns the first option that is within a standard error of the best: the simplest, where the simplest come first.

    The one-standard-error rule of Breiman, Friedman, Olshen and Stone, Classification and Regression Trees, 1984; the error is
    that of the difference to the best, since all options are measured on the same queries. `values` are (options, queries).
    """
    lost = paired_test(values[int(np.argmax(values.mean(axis=1)))] - values, clusters)
    # Where a single query differs, the difference is one error, whatever rounding makes of it: that is not within.
    return int(np.argmax((lost.mean < errors * lost.error * (1 - TIE)) | (lost.mean <= TIE)))


def learnt_steps(
    objective: Objective,
    clusters: Numbers,
    folds: Numbers,
    start: FuseSettings,
    wanted: Sequence[str],
    tell: Callable[[str], None],
) -> list[TuningStep]:
    """Returns the learnt steps that are wanted; each goes on from what the one before it has learnt from the same queries."""
    count = int(folds.max()) + 1
    parts = [np.flatnonzero(folds != fold) for fold in range(count)] + [np.arange(len(folds))]
    settings, steps = [start] * len(parts), []
    for name in wanted:
        for number, rows in enumerate(parts):
            source = "all queries" if number == count else f"fold {number + 1} of {count}"
            tell(f"{name}: {source}, {objective.settings_tried:,} settings tried")
            settings[number] = _learn(name, objective, rows, clusters, settings[number])
        values = np.empty(len(folds))
        for fold, setting in enumerate(settings[:-1]):
            held_out = folds == fold
            values[held_out] = objective.values(setting)[held_out]
        steps.append(TuningStep(name, values, settings[-1], tuple(settings[:-1])))
    return steps


def _learn(name: str, objective: Objective, rows: Numbers, clusters: Numbers, start: FuseSettings) -> FuseSettings:
    """Returns `start` with the weights of a step that some queries choose; `clusters`: of all queries.

    Ratios are changed one after the other, from 1 on, as long as there is a gain; two retrievers have shares instead.
    """
    gathered = objective.gathered
    names = gathered.retrievers if name == RETRIEVERS else [ORIGINAL, *gathered.strategies]

    def settings(ratios: Mapping[str, float]) -> FuseSettings:
        if name == RETRIEVERS:
            return start.model_copy(update={"retriever_weights": ratios if len(set(ratios.values())) > 1 else {}})
        weights = {key: ratio * gathered.own_weights.get(key, 1.0) for key, ratio in sorted(ratios.items()) if ratio != 1}
        return start.model_copy(update={"weights": weights})

    def best(options: Sequence[dict[str, float]]) -> dict[str, float]:
        values = np.stack([objective.values(settings(option))[rows] for option in options])
        return options[as_good_as_the_best(values, clusters[rows], SURE)]

    if name == RETRIEVERS and len(names) == 2:
        shares = sorted(SHARES, key=lambda share: abs(share - 0.5))
        return settings(best([dict(zip(names, (share, round(1 - share, 1)), strict=True)) for share in shares]))
    current = dict.fromkeys(names, 1.0)
    for _ in range(ROUNDS):
        before = current
        for changed in names:
            index = RATIOS.index(current[changed])
            nearest = sorted(RATIOS, key=lambda ratio: abs(RATIOS.index(ratio) - index))
            options = [current | {changed: ratio} for ratio in nearest]
            current = best([option for option in options if any(option.values())])
        if current == before:
            break
    return settings(current)
