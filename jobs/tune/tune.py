"""Tuning: weights per retriever, then per strategy, then a selection by type of query, from one gathered run.

Folds are of queries, near-duplicates together. Each step is chosen on the other folds and measured on the one that is left
out, so every figure is of queries that had no part in the choice. What is written is the best step, or the simplest that is
within one standard error of it; it is then learnt from all queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cluster.errors import ConfigError, RewriterError
from jobs.job.rewriting import read_text
from jobs.log.judgements import Judgements
from jobs.measure.significance import FEW_QUERIES, Floats, Gap, gap
from jobs.runs.folder import RunFolder
from jobs.tables import ORIGINAL
from jobs.tune.folds import chosen_values, draw_folds
from jobs.tune.judged_lists import GatheredQueries, gather
from jobs.tune.objective import Objective, Weighting, equal_weights
from jobs.tune.search import Rows, as_good_as_the_best
from jobs.tune.steps import (
    ALONE,
    CONFIGURED,
    EQUAL,
    LEARNT,
    RETRIEVERS,
    SELECTION,
    STRATEGIES,
    JudgedSample,
    TuningStep,
    fixed,
    learnt_steps,
)
from jobs.tune.vectors import open_vectors
from retrievers.redundancy import REDUNDANCY
from rewriters.classifier import Rules, load_rules
from rewriters.settings import SelectClassified

OUR_RULES = "english"


@dataclass(frozen=True)
class Tuning:
    """What was tried and what came out."""

    measure: str
    queries: int
    clusters: Rows
    folds: int
    steps: tuple[TuningStep, ...]
    """The simplest first."""
    chosen: TuningStep
    """The step that is written."""
    best: TuningStep
    """The step with the highest mean."""
    rules: Rules | None
    """By which queries have types; None: there was no selection."""
    own_weights: Mapping[str, float]
    """Strategy -> the weight that its file gives it; the original 1."""
    settings_tried: int
    notes: tuple[str, ...]
    """What the figures include, leave out and assume, a sentence each."""
    written: Floats
    """Value of each query by the step that is written where its fold has no part in choosing it."""

    def step(self, name: str) -> TuningStep | None:
        """Returns the step of this name, if there is one."""
        return next((one for one in self.steps if one.name == name), None)

    def against(self, one: TuningStep, name: str) -> Gap | None:
        """Returns the difference of a step to another one; None if there is no such step, or it is the same."""
        other = self.step(name)
        return None if other is None or other is one else gap(one.values - other.values, self.clusters)


def tune(
    run: RunFolder, judgements: Judgements, folds: int = 5, seed: int = 0, tell: Callable[[str], None] = lambda _: None
) -> Tuning:
    """Returns the steps of a tuning, measured on held-out queries.

    Args:
        run: A run, or an ablation, whose lists were kept.
        judgements: Of log rows or queries.
        folds: Number of folds.
        seed: Of their drawing.
        tell: Called with what is being done, in words.

    Raises:
        ConfigError: The lists were not kept, nothing or too little is judged, or files cannot be read.
    """
    if folds < 2:
        raise ConfigError("argument", f"--folds {folds}: one part must be left out; give 2 or more")
    tell("reading lists")
    gathered = gather(run, judgements, *open_vectors(run), seed)
    return tune_lists(run, Objective(run.config, gathered, judgements), judgements.path, folds, seed, tell)


def tune_lists(
    run: RunFolder, objective: Objective, judged_by: str, folds: int, seed: int, tell: Callable[[str], None] = lambda _: None
) -> Tuning:
    """Returns what `tune` does, of lists that were gathered; another drawing of the folds takes up what is computed.

    Args:
        run: Where the lists are from.
        objective: Of the lists.
        judged_by: The path of the judgements, for messages.
        folds: Number of folds.
        seed: Of their drawing.
        tell: Called with what is being done, in words.

    Raises:
        ConfigError: Too little is judged.
    """
    gathered = objective.gathered
    clusters = gathered.clusters
    if (distinct := int(clusters.max()) + 1) < folds:
        words = f"{distinct} different queries are judged, which is fewer than {folds} folds; lower --folds or judge more"
        raise ConfigError("judgements", f"{judged_by}: {words}")
    rules, types, untyped = _types(run, gathered)
    wanted, missing = _wanted(run, gathered, untyped)
    sample = JudgedSample(clusters, draw_folds(clusters, folds, seed), types)
    tell("settings that are fixed")
    steps = _fixed_steps(run, objective)
    steps += learnt_steps(objective, sample, equal_weights(run.config, gathered), wanted, tell)
    values = np.stack([step.values for step in steps])
    return Tuning(
        objective.name,
        len(gathered.query_ids),
        clusters,
        folds,
        tuple(steps),
        steps[as_good_as_the_best(values, clusters)],
        steps[int(np.argmax(values.mean(axis=1)))],
        rules if SELECTION in wanted else None,
        gathered.own_weights,
        objective.settings_tried,
        (*gathered.notes, *missing, *_notes(run, gathered, clusters)),
        chosen_values(values, sample.folds, clusters, as_good_as_the_best),
    )


def _fixed_steps(run: RunFolder, objective: Objective) -> list[TuningStep]:
    """Returns the steps in which nothing is learnt, the simplest first."""
    config, gathered = run.config, objective.gathered
    equal = equal_weights(config, gathered)
    steps = []
    if gathered.strategies and not config.joining:
        steps.append(fixed(objective, ALONE, equal._replace(retrievers=()).without(gathered.strategies)))
    steps.append(fixed(objective, EQUAL, equal))
    if config.fuse.weights or config.fuse.retriever_weights:
        steps.append(fixed(objective, CONFIGURED, _configured(run, objective, equal)))
    others = [one for one in REDUNDANCY if one != equal.redundancy and (one != "cosine" or gathered.no_cosine is None)]
    return steps + [fixed(objective, f"redundancy {one}", equal._replace(redundancy=one)) for one in others]


def _configured(run: RunFolder, objective: Objective, equal: Weighting) -> Weighting:
    """Returns the config's own weights; those of a strategy and retriever together are no ratio, and count as they are."""
    own = objective.gathered.own_weights
    of_own = {name: weight for name, weight in run.config.fuse.weights.items() if own.get(name, 1.0)}
    ratios = {name: weight / own.get(name, 1.0) for name, weight in of_own.items()}
    given = tuple((name, weight) for name, weight in run.config.fuse.weights.items() if name not in of_own)
    weights = dict.fromkeys(run.config.retrieve.retrievers, 1.0) | run.config.fuse.retriever_weights
    return equal.with_strategies(ratios).with_retrievers(weights)._replace(given=given)


def _types(run: RunFolder, gathered: GatheredQueries) -> tuple[Rules, list[str] | None, str | None]:
    """Returns the rules, the type of each query, and why there are none."""
    select = run.config.rewrite.select
    source = select.rules if isinstance(select, SelectClassified) else OUR_RULES
    try:
        rules = load_rules(source, read_text)
    except RewriterError as error:
        return load_rules(OUR_RULES), None, f"rewrite.select.rules cannot be read ({error})"
    stored = set(gathered.types)
    if None not in stored and stored <= set(rules.strategies):
        return rules, [str(one) for one in gathered.types], None
    return rules, rules.types(gathered.queries), None


def _wanted(run: RunFolder, gathered: GatheredQueries, untyped: str | None) -> tuple[list[str], list[str]]:
    """Returns the learnt steps that this run allows, and why it does not allow the others."""
    config = run.config
    why: dict[str, str | None] = dict.fromkeys(LEARNT)
    if len(gathered.retrievers) < 2:
        why[RETRIEVERS] = "there is one retriever"
    if not gathered.strategies:
        why[STRATEGIES] = why[SELECTION] = "the run has no lists of rewrites"
    elif config.joining:
        why[STRATEGIES] = why[SELECTION] = f"{' and '.join(config.joining)} searched all texts of a query as one"
    elif config.rewrite.selects:
        why[SELECTION] = "the run selected strategies itself, so that it lacks lists of the others"
    elif untyped is not None:
        why[SELECTION] = untyped
    wanted = [name for name in LEARNT if why[name] is None]
    return wanted, [f"no {name}: {words}" for name, words in why.items() if words is not None]


def _notes(run: RunFolder, gathered: GatheredQueries, clusters: Rows) -> list[str]:
    """Returns what the figures assume."""
    config, notes = run.config, []
    alike = len(clusters) - (int(clusters.max()) + 1)
    if alike:
        notes.append(f"{alike:,} near-duplicate queries are in the fold of the one that they resemble")
    if config.rerank.kind != "none":
        words = "the results are reranked and ordered, as in the run"
        if not gathered.reranked:
            words = "measured are fused lists, not reranked: other weights have candidates that the run did not score"
        notes.append(words)
    if config.fuse.redundancy == "cosine" and gathered.no_cosine is not None:
        notes.append(f"redundancy is by overlap, not cosine: {gathered.no_cosine}")
    elif gathered.no_cosine is not None:
        notes.append(f"no redundancy cosine: {gathered.no_cosine}")
    if uneven := [f"{name} {weight:g}" for name, weight in gathered.own_weights.items() if weight != 1]:
        notes.append(f"equal weights are each strategy's own: {', '.join(uneven)}, the others 1")
    if config.fuse.duplicates == "drop":
        notes.append("documents with equal texts are not dropped here")
    if config.joining and any(name != ORIGINAL for name in config.fuse.weights):
        joining = " and ".join(config.joining)
        notes.append(
            f"texts that {joining} searches as one are joined by the config's weights in every step: measured are its lists"
        )
    if len(clusters) < FEW_QUERIES:
        notes.append(f"{len(clusters)} queries are few: the intervals are rather too narrow, and hardly anything can be learnt")
    return notes
