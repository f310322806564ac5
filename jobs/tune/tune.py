"""Tuning: weights per retriever, then per strategy, from the lists of one run, measured on queries that did not choose them.

Folds are of queries, near-duplicates together. Each step is chosen on the other folds and measured on the one that is left
out, so every figure is of queries that had no part in the choice. What is written is the best step, or the simplest that is
within one standard error of it; it is then learnt from all queries.
"""

from collections.abc import Callable, Mapping
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
    as_good_as_the_best,
    chosen_values,
    draw_folds,
    equal_weights,
    learnt_steps,
    strategy_ratios,
)
from retrievers.redundancy import REDUNDANCY
from retrievers.settings import FuseSettings

ALONE, EQUAL, CONFIGURED = "original alone", "equal weights", "the config's weights"
_VERBS = {BETTER: "beats", WORSE: "is worse than"}


@dataclass(frozen=True)
class Tuning:
    """Settings that were tried, and their results."""

    measure: str
    clusters: Numbers
    folds: int
    steps: Mapping[str, TuningStep]
    """By name, the simplest first."""
    chosen: TuningStep
    """The step that is written."""
    best: TuningStep
    """The step with the highest mean."""
    own_weights: Mapping[str, float]
    """Strategy -> the weight that its file gives it; the original 1."""
    settings_tried: int
    notes: tuple[str, ...]
    """Notes on what the figures include, leave out and assume, a sentence each."""
    written: Floats
    """Value of each query by the step that is written where its fold has no part in choosing it."""

    def against(self, step: TuningStep, name: str) -> Gap | None:
        """Returns the difference of a step to another one; None if there is no such step, or it is the same."""
        other = self.steps.get(name)
        return None if other is None or other is step else gap(step.values - other.values, self.clusters)


def tune(
    run: RunFolder, judgements: Judgements, folds: int = 5, seed: int = 0, tell: Callable[[str], None] = lambda _: None
) -> Tuning:
    """Returns the steps of a tuning of a run or an ablation, measured on held-out queries.

    Raises:
        ConfigError: the lists were not kept, nothing or too little is judged, or files cannot be read.
    """
    if folds < 2:
        raise ConfigError("argument", f"--folds {folds}: needs a held-out part; give 2 or more")
    tell("reading lists")
    gathered = gather(run, judgements, open_vectors(run), seed)
    objective = Objective(run.config, gathered, judgements)
    clusters = gathered.clusters
    if (distinct := int(clusters.max()) + 1) < folds:
        problem = f"{distinct} different queries are judged, which is fewer than {folds} folds; lower --folds or judge more"
        raise ConfigError("judgements", f"{judgements.path}: {problem}")
    why = _unlearnt(run, gathered)
    wanted = [name for name in (RETRIEVERS, STRATEGIES) if name not in why]
    fold_of = draw_folds(clusters, folds, seed)
    tell("settings that are fixed")
    steps = _fixed_steps(run, objective)
    steps += learnt_steps(objective, clusters, fold_of, equal_weights(run.config, gathered), wanted, tell)
    values = np.stack([step.values for step in steps])
    clustered = "" if distinct == len(clusters) else f" in {distinct:,} clusters"
    notes = [
        f"{len(clusters):,} judged queries{clustered}, {folds} folds; no query's value is by a setting that it had a part in",
        f"p: paired t-test of each row alone; {objective.settings_tried:,} settings were tried",
        *gathered.notes,
        *(f"no {name}: {words}" for name, words in why.items()),
        *_notes(run, gathered),
    ]
    return Tuning(
        objective.name,
        clusters,
        folds,
        {step.name: step for step in steps},
        steps[as_good_as_the_best(values, clusters)],
        steps[int(np.argmax(values.mean(axis=1)))],
        gathered.own_weights,
        objective.settings_tried,
        tuple(notes),
        chosen_values(values, fold_of, clusters, as_good_as_the_best),
    )


def _fixed_steps(run: RunFolder, objective: Objective) -> list[TuningStep]:
    config, gathered = run.config, objective.gathered
    equal = equal_weights(config, gathered)
    steps: dict[str, FuseSettings] = {}
    if gathered.strategies and not config.joining:
        steps[ALONE] = equal.model_copy(update={"weights": dict.fromkeys(gathered.strategies, 0.0)})
    steps[EQUAL] = equal
    if config.fuse.weights or config.fuse.retriever_weights:
        steps[CONFIGURED] = config.fuse.model_copy(update={"redundancy": equal.redundancy})
    others = [one for one in REDUNDANCY if one != equal.redundancy and (one != "cosine" or gathered.no_cosine is None)]
    steps |= {f"redundancy {one}": equal.model_copy(update={"redundancy": one}) for one in others}
    return [TuningStep(name, objective.values(settings), settings) for name, settings in steps.items()]


def _unlearnt(run: RunFolder, gathered: GatheredQueries) -> dict[str, str]:
    why = {RETRIEVERS: "there is one retriever"} if len(gathered.retrievers) < 2 else {}
    if not gathered.strategies:
        why[STRATEGIES] = "the run has no lists of rewrites"
    elif run.config.joining:
        why[STRATEGIES] = f"{' and '.join(run.config.joining)} searched all texts of a query as one"
    return why


def _notes(run: RunFolder, gathered: GatheredQueries) -> list[str]:
    config, clusters, notes = run.config, gathered.clusters, []
    alike = len(clusters) - (int(clusters.max()) + 1)
    if alike:
        notes.append(f"{alike:,} near-duplicate queries are in the fold of the one that they resemble")
    if config.rerank.kind != "none":
        note = "the results are reranked and ordered, as in the run"
        if not gathered.reranked:
            note = "measured are fused lists, not reranked: other weights have candidates that the run did not score"
        notes.append(note)
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


def conclusions(tuning: Tuning) -> list[str]:
    """Returns the gains of the steps that are chosen without each fold on those that learn nothing, a sentence each."""
    names = [name for name in (ALONE, EQUAL) if name in tuning.steps]
    return [_compared(tuning.written - tuning.steps[name].values, tuning.clusters, name) for name in names]


def _compared(differences: Floats, clusters: Numbers, name: str) -> str:
    lead = gap(differences, clusters)
    if lead.interval is None:
        return f"tuning against {name}: {figure(lead.mean, '+')} for every query, so there is no test"
    verb = _VERBS.get(verdict(lead.mean, lead.p), "does not beat")
    return f"tuning {verb} {name}: {figure(lead.mean, '+')} ({ends_in_words(lead.interval)}; p {p_words(lead.p)})"


def conclusion_written(tuning: Tuning, written: str) -> str:
    """Returns the step that is written, and the reason."""
    chosen, best = tuning.chosen, tuning.best
    why = "the best" if chosen is best else f"the simplest within one standard error of the best, {best.name}"
    mean = figure(float(tuning.written.mean()))
    own = f"its row is too good by being chosen: chosen without each fold, it has a mean of {mean}"
    return f"written to {written}: {chosen.name}, {why}; {own}"


def choices(tuning: Tuning) -> list[str]:
    """Returns the choices of each learnt step from all queries, and the number of folds with the same."""
    texts = []
    for step in (step for step in tuning.steps.values() if step.of_folds):
        parts = [", ".join(f"{name} {weight:g}" for name, weight in step.final.retriever_weights.items())]
        ratios = strategy_ratios(step.final, tuning.own_weights)
        parts.append(", ".join(f"{name} x {ratio:g}" for name, ratio in ratios.items()))
        parts_text, same = "; ".join(filter(None, parts)), sum(setting == step.final for setting in step.of_folds)
        texts.append(f"{step.name}: {parts_text or 'equal weights'} ({same} of {tuning.folds} folds chose the same)")
    return texts
