"""Tuning: weights per retriever, then per strategy, from the lists of one run, measured on queries that did not choose them.

Folds are of queries, near-duplicates together. Each step is chosen on the other folds and measured on the one that is left
out, so every figure is of queries that had no part in the choice. What is written is the best step, or the simplest that is
within one standard error of it; it is then learnt from all queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.errors import ConfigError
from jobs.log.judgements import Judgements
from jobs.measure.notes import ends_in_words
from jobs.measure.significance import BETTER, FEW_QUERIES, WORSE, Floats, Gap, Numbers, gap, verdict
from jobs.runs.folder import RunFolder
from jobs.tables import ORIGINAL
from jobs.terminal.formats import figure, p_words
from jobs.tune.judged_lists import GatheredQueries, gather, open_vectors
from jobs.tune.search import (
    RETRIEVERS,
    STRATEGIES,
    Objective,
    TuningStep,
    Weighting,
    as_good_as_the_best,
    chosen_values,
    draw_folds,
    equal_weights,
    learnt_steps,
)
from retrievers.redundancy import REDUNDANCY

ALONE, EQUAL, CONFIGURED = "original alone", "equal weights", "the config's weights"
_VERBS = {BETTER: "beats", WORSE: "is worse than"}


@dataclass(frozen=True)
class Tuning:
    """What was tried and what came out."""

    measure: str
    queries: int
    clusters: Numbers
    folds: int
    steps: tuple[TuningStep, ...]
    """The simplest first."""
    chosen: TuningStep
    """The step that is written."""
    best: TuningStep
    """The step with the highest mean."""
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
        run: a run, or an ablation, whose lists were kept.
        judgements: of log rows or queries.
        folds: number of folds.
        seed: of their drawing.
        tell: called with what is being done, in words.

    Raises:
        ConfigError: the lists were not kept, nothing or too little is judged, or files cannot be read.
    """
    if folds < 2:
        raise ConfigError("argument", f"--folds {folds}: one part must be left out; give 2 or more")
    tell("reading lists")
    gathered = gather(run, judgements, *open_vectors(run), seed)
    objective = Objective(run.config, gathered, judgements)
    clusters = gathered.clusters
    if (distinct := int(clusters.max()) + 1) < folds:
        words = f"{distinct} different queries are judged, which is fewer than {folds} folds; lower --folds or judge more"
        raise ConfigError("judgements", f"{judgements.path}: {words}")
    why = _unlearnt(run, gathered)
    wanted = [name for name in (RETRIEVERS, STRATEGIES) if name not in why]
    fold_of = draw_folds(clusters, folds, seed)
    tell("settings that are fixed")
    steps = _fixed_steps(run, objective)
    steps += learnt_steps(objective, clusters, fold_of, equal_weights(run.config, gathered), wanted, tell)
    values = np.stack([step.values for step in steps])
    notes = (*gathered.notes, *(f"no {name}: {words}" for name, words in why.items()), *_notes(run, gathered, clusters))
    return Tuning(
        objective.name,
        len(gathered.query_ids),
        clusters,
        folds,
        tuple(steps),
        steps[as_good_as_the_best(values, clusters)],
        steps[int(np.argmax(values.mean(axis=1)))],
        gathered.own_weights,
        objective.settings_tried,
        notes,
        chosen_values(values, fold_of, clusters, as_good_as_the_best),
    )


def _fixed_steps(run: RunFolder, objective: Objective) -> list[TuningStep]:
    """Returns the steps in which nothing is learnt, the simplest first."""
    config, gathered = run.config, objective.gathered
    equal = equal_weights(config, gathered)
    steps: dict[str, Weighting] = {}
    if gathered.strategies and not config.joining:
        steps[ALONE] = equal.without(gathered.strategies)
    steps[EQUAL] = equal
    if config.fuse.weights or config.fuse.retriever_weights:
        steps[CONFIGURED] = _configured(run, objective, equal)
    others = [one for one in REDUNDANCY if one != equal.redundancy and (one != "cosine" or gathered.no_cosine is None)]
    steps |= {f"redundancy {one}": equal._replace(redundancy=one) for one in others}
    return [TuningStep(name, objective.values(weighting), weighting) for name, weighting in steps.items()]


def _configured(run: RunFolder, objective: Objective, equal: Weighting) -> Weighting:
    """Returns the config's own weights; those of a strategy and retriever together are no ratio, and count as they are."""
    own = objective.gathered.own_weights
    of_own = {name: weight for name, weight in run.config.fuse.weights.items() if own.get(name, 1.0)}
    ratios = {name: weight / own.get(name, 1.0) for name, weight in of_own.items()}
    given = tuple((name, weight) for name, weight in run.config.fuse.weights.items() if name not in of_own)
    weights = dict.fromkeys(run.config.retrieve.retrievers, 1.0) | run.config.fuse.retriever_weights
    return equal.with_strategies(ratios).with_retrievers(weights)._replace(given=given)


def _unlearnt(run: RunFolder, gathered: GatheredQueries) -> dict[str, str]:
    """Returns the learnt steps that this run does not allow, and why."""
    why = {RETRIEVERS: "there is one retriever"} if len(gathered.retrievers) < 2 else {}
    if not gathered.strategies:
        why[STRATEGIES] = "the run has no lists of rewrites"
    elif run.config.joining:
        why[STRATEGIES] = f"{' and '.join(run.config.joining)} searched all texts of a query as one"
    return why


def _notes(run: RunFolder, gathered: GatheredQueries, clusters: Numbers) -> list[str]:
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
        joined = f"texts that {' and '.join(config.joining)} searches as one are joined by the config's weights in every step"
        notes.append(f"{joined}: measured are its lists")
    if len(clusters) < FEW_QUERIES:
        notes.append(f"{len(clusters)} queries are few: the intervals are rather too narrow, and hardly anything can be learnt")
    return notes


# ---------------------------------------------------------------- what follows from it, in sentences


def conclusions(tuning: Tuning) -> list[str]:
    """Returns what rewriting and what tuning are worth, a sentence each; the best of several is tested as that."""
    found = []
    equal, alone = tuning.step(EQUAL), tuning.step(ALONE)
    learnt = [step for step in tuning.steps if step.learnt]
    if equal is not None and alone is not None:
        others = [step for step in tuning.steps if step is not alone]
        found.append(_compared("rewriting", EQUAL, gap(equal.values - alone.values, tuning.clusters), "never rewriting"))
        if max(others, key=lambda one: one.mean) is not equal:
            found.append(_best_compared(tuning, "rewriting", others, alone, "never rewriting"))
    if learnt and equal is not None:
        found.append(_best_compared(tuning, "tuning", learnt, equal, EQUAL))
    return found


def _best_compared(tuning: Tuning, what: str, steps: Sequence[TuningStep], other: TuningStep, words: str) -> str:
    best = max(steps, key=lambda one: one.mean)
    several = f", as the best of {len(steps)}" if len(steps) > 1 else ""
    found = gap(best.values - other.values, tuning.clusters, len(steps))
    return _compared(what, f"{best.name}{several}", found, words)


def _compared(what: str, name: str, found: Gap, words: str) -> str:
    """Returns whether one step beats another, and by how much."""
    if found.interval is None:
        same = "by the same for every query, so there is no test"
        return f"{what} differs from {words} {same}: {name} {figure(found.mean, '+')}"
    verb = _VERBS.get(verdict(found.mean, found.p), "does not beat")
    return f"{what} {verb} {words}: {name} {figure(found.mean, '+')} ({ends_in_words(found.interval)}; p {p_words(found.p)})"


def conclusion_written(tuning: Tuning, written: str) -> str:
    """Returns which step is written, and why it."""
    chosen, best = tuning.chosen, tuning.best
    why = "the best" if chosen is best else f"the simplest within one standard error of the best, {best.name}"
    mean = figure(float(tuning.written.mean()))
    own = f"its row is too good by being chosen: chosen without each fold, it has a mean of {mean}"
    return f"written to {written}: {chosen.name}, {why}; {own}"


def choices(tuning: Tuning) -> list[str]:
    """Returns what each learnt step has chosen from all queries, and in how many folds it was the same."""
    found = []
    for step in (step for step in tuning.steps if step.learnt):
        parts = [", ".join(f"{name} {weight:g}" for name, weight in step.final.retrievers)]
        parts.append(", ".join(f"{name} x {ratio:g}" for name, ratio in step.final.strategies))
        words, same = "; ".join(filter(None, parts)), sum(setting == step.final for setting in step.of_folds)
        found.append(f"{step.name}: {words or 'equal weights'} ({same} of {tuning.folds} folds chose the same)")
    return found


def tuning_notes(tuning: Tuning) -> list[str]:
    """Returns what the figures are of, a sentence each."""
    clusters = int(tuning.clusters.max()) + 1
    of = "" if clusters == tuning.queries else f" in {clusters:,} clusters"
    notes = [
        f"{tuning.queries:,} judged queries{of}, {tuning.folds} folds; no query's value is by a setting that it had a part in",
        f"p: paired t-test of each row alone; the best of several by Bonferroni; {tuning.settings_tried:,} settings were tried",
    ]
    return notes + list(tuning.notes)
