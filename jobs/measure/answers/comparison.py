"""The comparison of an ablation's arms by their answers, against gold answers and as a judge grades them.

The tests, slices and notes are those of lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.chain.arms.judging import CRITERIA
from jobs.config.settings import EvaluateSettings
from jobs.measure.answers.frame import GoldAnswers, answer_frame, answering
from jobs.measure.compare.comparison import baselines_of, compare_frame, compare_judged_lists
from jobs.measure.compare.difference import Comparison
from jobs.measure.frame import Frame, arms_of
from jobs.measure.judged.answers import judged_answer_frames
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import and_more
from rewriters.steps.settings import HIGHEST_GRADES


def compare_answers(run: RunFolder, gold: GoldAnswers | None, settings: EvaluateSettings) -> Comparison | None:
    """Returns the comparison of the arms that answer, by F1 and exact match; None without gold answers, or if none answers.

    The baseline is that of the lists; where it does not answer, the first arm that does, which is said.

    Raises:
        ConfigError: files of the ablation cannot be read.
    """
    if gold is None or not answering(run):
        return None
    return _compared(run, answer_frame(run, gold), settings)


def compare_judged(run: RunFolder, settings: EvaluateSettings, *, lists: bool = False) -> list[Comparison]:
    """Returns the comparisons of the arms that answer by what a judge says of their answers: one for each kind of judgement.

    With `lists`, which people have judged then, that of the lists by the judge stands before them.

    The smallest difference that matters is that of the settings on a scale from 0 to 1. Baseline and errors are those of
    `compare_answers`.
    """
    by_judge = compare_judged_lists(run, settings) if lists else None
    found = [] if by_judge is None else [by_judge]
    for frame in judged_answer_frames(run):
        highest = HIGHEST_GRADES[frame.kind] if frame.kind == CRITERIA else 1
        of_scale = settings.model_copy(update={"min_effect": settings.min_effect * highest})
        found.append(_compared(run, frame, of_scale))
    return found


def _compared(run: RunFolder, frame: Frame, settings: EvaluateSettings) -> Comparison:
    arms, wanted = frame.arms, baselines_of(run, settings)
    lacking = sorted({wanted[arm] for arm in arms} - set(arms))
    # the first that answers, of those that are compared with the same one
    instead = {base: next(arm for arm in arms if wanted[arm] == base) for base in lacking}
    baselines = {arm: instead.get(wanted[arm], wanted[arm]) for arm in arms}
    return compare_frame(run, frame, settings, baselines, _notes(run, arms, instead))


def _notes(run: RunFolder, arms: Sequence[str], instead: Mapping[str, str]) -> list[str]:
    without = [arm["name"] for arm in arms_of(run) if arm["name"] not in arms]
    notes = [f"no LLM answers for {and_more(without)}: not measured here"] if without else []
    return notes + [f"compared with {arm}, since {wanted} has no answers" for wanted, arm in instead.items()]
