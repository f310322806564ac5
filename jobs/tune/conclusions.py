"""What follows from a tuning, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.measure.notes import ends_in_words
from jobs.measure.significance import Gap, gap, verdict
from jobs.terminal.formats import figure, p_words
from jobs.tune.steps import ALONE, EQUAL, Setting, TuningStep
from jobs.tune.tune import Tuning

_VERBS = {"better": "beats", "worse": "is worse than"}


def conclusions(tuning: Tuning) -> list[str]:
    """Returns what rewriting and what tuning are worth, a sentence each; the best of several is tested as that."""
    found = []
    equal, alone = tuning.step(EQUAL), tuning.step(ALONE)
    learnt = [step for step in tuning.steps if step.learnt]
    if equal is not None and alone is not None:
        others = [step for step in tuning.steps if step is not alone]
        found.append(_compared("rewriting", EQUAL, tuning.against(equal, ALONE), "never rewriting"))
        if _best(others) is not equal:
            found.append(_best_compared(tuning, "rewriting", others, alone, "never rewriting"))
    if learnt and equal is not None:
        found.append(_best_compared(tuning, "tuning", learnt, equal, EQUAL))
    return found


def _best(steps: Sequence[TuningStep]) -> TuningStep:
    return max(steps, key=lambda one: one.mean)


def _best_compared(tuning: Tuning, what: str, steps: Sequence[TuningStep], other: TuningStep, words: str) -> str:
    found = gap(_best(steps).values - other.values, tuning.clusters, len(steps))
    several = f", as the best of {len(steps)}" if len(steps) > 1 else ""
    return _compared(what, f"{_best(steps).name}{several}", found, words)


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
    for step in tuning.steps:
        if step.learnt:
            same = sum(setting == step.final for setting in step.of_folds)
            found.append(f"{step.name}: {described(step.final)} ({same} of {tuning.folds} folds chose the same)")
    return found


def described(setting: Setting) -> str:
    """Returns a setting in words."""
    parts = [", ".join(f"{name} {weight:g}" for name, weight in setting.weighting.retrievers)]
    parts.append(", ".join(f"{name} x {ratio:g}" for name, ratio in setting.weighting.strategies))
    parts.append("; ".join(f"{name}: {', '.join(kept) or 'no rewriting'}" for name, kept in setting.policy))
    return "; ".join(part for part in parts if part) or "equal weights"


def tuning_notes(tuning: Tuning) -> list[str]:
    """Returns what the figures are of, a sentence each."""
    clusters = int(tuning.clusters.max()) + 1
    of = "" if clusters == tuning.queries else f" in {clusters:,} clusters"
    notes = [
        f"{tuning.queries:,} judged queries{of}, {tuning.folds} folds; no query's value is by a setting that it had a part in",
        f"p: paired t-test of each row alone; the best of several by Bonferroni; {tuning.settings_tried:,} settings were tried",
    ]
    return notes + list(tuning.notes)


def _compared(what: str, name: str, found: Gap | None, words: str) -> str:
    """Returns whether one step beats another, and by how much."""
    if found is None:
        return f"{what}: there is nothing to compare {name} with"
    if found.interval is None:
        same = "by the same for every query, so there is no test"
        return f"{what} differs from {words} {same}: {name} {figure(found.mean, '+')}"
    verb = _VERBS.get(verdict(found.mean, found.p), "does not beat")
    return f"{what} {verb} {words}: {name} {figure(found.mean, '+')} ({ends_in_words(found.interval)}; p {p_words(found.p)})"
