"""What judgements, gold answers and a judge say of a run, or of the arms of an ablation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError
from jobs.verbs.inputs import GroundTruth, check_matched, compared_by, gold_of, judged_or_named, measured_by

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import RenderableType

    from jobs.log.judgements import Judgements
    from jobs.measure.answers.frame import GoldAnswers
    from jobs.measure.answers.quality import AnswerQuality
    from jobs.measure.compare.comparison import Comparison
    from jobs.measure.evaluate.evaluate import Evaluation
    from jobs.measure.frame import Frame
    from jobs.runs.folder import RunFolder


@dataclass(frozen=True)
class MeasuredBy:
    """What a run is measured by; None: nothing of that sort."""

    judgements: Judgements | None
    gold: GoldAnswers | None
    gold_given: bool = False
    """Whether the gold answers were given, and so have to be of the run's log."""

    @classmethod
    def of(cls, truth: GroundTruth, folder: RunFolder) -> MeasuredBy:
        """Returns what is given, else what the run's config names.

        Raises:
            ConfigError: it cannot be read.
        """
        return cls(judged_or_named(truth, folder), gold_of(truth, folder), bool(truth.answers))

    @classmethod
    def of_config(cls, folder: RunFolder, note: Callable[[str], object]) -> MeasuredBy:
        """Returns what the run's config names; `note` is told what of that is not here.

        Raises:
            ConfigError: it cannot be read.
        """
        return cls.of(GroundTruth(note, "qrels", dashes=""), folder)

    def check_any(self, folder: RunFolder, where: str) -> None:
        """Checks that there is something to measure by; the argument `where` names judgements.

        Raises:
            ConfigError: there is nothing.
        """
        from jobs.measure.judged.answers import judges_answers

        if self.judgements is None and self.gold is None and not judges_answers(folder):
            raise ConfigError("argument", f"{folder.storage.root}: has no judgements of its own; name a file: {where}")


@dataclass(frozen=True)
class MeasuredRun:
    """The quality of a run's results and answers."""

    folder: RunFolder
    frame: Frame | None
    """Of its lists; None: they are not judged."""
    lists: Evaluation | None
    answers: Sequence[AnswerQuality]

    @property
    def frames(self) -> list[Frame]:
        """Returns the frames of lists and answers."""
        return [*([] if self.frame is None else [self.frame]), *(one.frame for one in self.answers)]

    def values(self) -> dict[str, Any]:
        """Returns all as JSON-able values."""
        from jobs.measure.evaluate.whole import evaluated_values

        return evaluated_values(self.lists, self.answers)

    def page(self) -> RenderableType:
        """Returns the tables."""
        from jobs.measure.evaluate.whole import evaluated_table

        return evaluated_table(self.lists, self.answers)

    def per_query(self, where: str) -> pa.Table:
        """Returns a row per judged key; `where` begins the message of an error."""
        from jobs.measure.export.tables import wide_table

        return wide_table(self.folder, self.frames, where)

    def write_trec(self, path: str) -> list[str]:
        """Writes the results as a TREC run file and returns its path, in a list; nothing where no list is judged."""
        from jobs.measure.export.trec import write_run

        if self.frame is None:
            return []
        write_run(path, self.folder, self.frame)
        return [path]


@dataclass(frozen=True)
class MeasuredArms:
    """The comparison of an ablation's arms by their results and answers."""

    folder: RunFolder
    lists: Comparison | None
    answers: Comparison | None
    judged: Sequence[Comparison]

    @property
    def found(self) -> list[Comparison]:
        """Returns the comparisons, that of the lists first."""
        return [one for one in (self.lists, self.answers, *self.judged) if one is not None]

    @property
    def frames(self) -> list[Frame]:
        """Returns the frames of the comparisons."""
        return [one.frame for one in self.found]

    def values(self) -> dict[str, Any]:
        """Returns all as JSON-able values."""
        from jobs.pages.comparison import compared_values

        return compared_values(self.lists, self.answers, self.judged)

    def page(self) -> RenderableType:
        """Returns the tables."""
        from jobs.pages.comparison import comparison_tables

        return comparison_tables(self.lists, self.answers, self.judged)

    def per_query(self, where: str) -> pa.Table:
        """Returns a row per arm, measure and judged key; `where` is not needed."""
        from jobs.measure.export.tables import long_table

        return long_table(*self.frames)

    def write_trec(self, path: str) -> list[str]:
        """Writes the results of each arm as a TREC run file into a folder; returns the paths, none if no list is judged."""
        from jobs.measure.export.trec import write_trec

        return [] if self.lists is None else list(write_trec(path, self.folder, self.lists.frame).values())


def measured(
    folder: RunFolder, by: MeasuredBy, measures: Sequence[str] | None = None, compared: Mapping[str, Any] | None = None
) -> MeasuredRun | MeasuredArms:
    """Measures a run, or compares the arms of an ablation, by these measures; None: those of its config.

    `compared`: how arms are compared, as `compared_by` takes it.

    Raises:
        ConfigError: nothing that is given is of its log, a measure cannot be computed, or a file cannot be read.
    """
    if folder.is_ablation:
        return _measured_arms(folder, by, measures, compared or {})
    for name in (name for name, value in (compared or {}).items() if value is not None):
        raise ConfigError("argument", f"{name}: {folder.storage.root} is a run, which has no arms; leave it out")
    return measured_run(folder, by, measures)


def measured_run(folder: RunFolder, by: MeasuredBy, measures: Sequence[str] | None = None) -> MeasuredRun:
    """Measures a run; errors are those of `measured`."""
    from jobs.measure.answers.quality import measured_answers
    from jobs.measure.evaluate.evaluate import evaluation
    from jobs.measure.frame import measure

    frame = None if by.judgements is None else measure(folder, by.judgements, measures)
    lists = None if by.judgements is None or frame is None else evaluation(folder, by.judgements, frame)
    answers = measured_answers(folder, by.gold)
    if by.judgements is not None and lists is not None:
        check_matched(by.judgements, lists.warning, lists.not_committed, lists.left_out)
    if by.gold is not None and answers and by.gold_given:
        check_matched(by.gold.judged, answers[0].warning, answers[0].frame.not_committed)
    return MeasuredRun(folder, frame, lists, answers)


def _measured_arms(folder: RunFolder, by: MeasuredBy, measures: Sequence[str] | None, given: Mapping[str, Any]) -> MeasuredArms:
    from jobs.measure.answers.comparison import compare_answers, compare_judged
    from jobs.measure.compare.comparison import compare

    settings = measured_by(compared_by(folder.config.evaluate, given), by.judgements, measures)
    lists = None if by.judgements is None else compare(folder, by.judgements, settings)
    answers = compare_answers(folder, by.gold, settings)
    judged = compare_judged(folder, settings, lists=by.judgements is not None and by.judgements.judge is None)
    if by.judgements is not None and lists is not None:
        check_matched(by.judgements, lists.warning, lists.frame.not_committed, lists.frame.left_out)
    if by.gold is not None and answers is not None and by.gold_given:
        check_matched(by.gold.judged, answers.warning, answers.frame.not_committed)
    return MeasuredArms(folder, lists, answers, judged)


def with_state(folder: RunFolder, values: dict[str, Any]) -> dict[str, Any]:
    """Returns values of a run behind its folder and its state."""
    return {"run": folder.storage.root, "state": folder.state} | values
