"""The comparison of an ablation's arms by their answers: the tests, slices and notes are those of lists."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.config.settings import EvaluateSettings
from jobs.measure.answers.frame import GoldAnswers, answer_frame, answering
from jobs.measure.compare.comparison import baseline_of, compare_frame
from jobs.measure.compare.difference import Comparison
from jobs.measure.frame import arms_of
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import and_more


def compare_answers(run: RunFolder, gold: GoldAnswers | None, settings: EvaluateSettings) -> Comparison | None:
    """Returns the comparison of the arms that answer, by F1 and exact match; None without gold answers, or if none answers.

    The baseline is that of the lists; where it does not answer, the first arm that does, which is said.

    Raises:
        ConfigError: files of the ablation cannot be read.
    """
    arms = answering(run)
    if gold is None or not arms:
        return None
    wanted = baseline_of(run, settings)
    baseline = wanted if wanted in arms else arms[0]
    return compare_frame(run, answer_frame(run, gold), settings, baseline, _notes(run, arms, wanted, baseline))


def _notes(run: RunFolder, arms: Sequence[str], wanted: str, baseline: str) -> list[str]:
    without = [arm["name"] for arm in arms_of(run) if arm["name"] not in arms]
    notes = [f"no LLM answers for {and_more(without)}: not measured here"] if without else []
    return notes + ([f"compared with {baseline}, since {wanted} has no answers"] if baseline != wanted else [])
