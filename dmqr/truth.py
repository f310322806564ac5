"""Ground truth of a run: judgements and gold answers, as a caller gives them, or as the run's config names them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import ConfigError, nearest

if TYPE_CHECKING:
    from cluster.prices import Prices
    from dmqr.results import Folder
    from jobs.config.settings import EvaluateSettings
    from jobs.log.judgements import Judgements, Key
    from jobs.measure.answers import GoldAnswers
    from jobs.measure.frame import Frame
    from jobs.pages.comparison import Comparisons
    from jobs.pages.measured import MeasuredRun
    from jobs.runs.folder import RunFolder

Grades = Mapping[str, Mapping[str, int]]


class Truth:
    """The judgements and gold answers of a run.

    A file that the run's config names and that is missing here is noted; whatever a caller gives has to be of the run's log.
    """

    def __init__(
        self,
        folder: RunFolder,
        qrels: Folder | Grades | None = None,
        key: Key | None = None,
        answers: str | None = None,
        judged: bool = False,
        note: Callable[[str], object] = lambda line: None,
    ) -> None:
        """Takes what a caller gives, and `note`, which is told of missing files; `judged`: by the run's judge alone."""
        self.folder, self._settings = folder, folder.config.evaluate
        self._qrels, self._key, self._answers, self._judged, self._note = qrels, key, answers, judged, note
        self.given = bool(qrels or key)

    @cached_property
    def named(self) -> Judgements | None:
        """Judgements that are given, else those of the config if they are here."""
        from jobs.log.judgements import given_qrels, is_here, read_qrels

        given, key = self._qrels, self._key or self._settings.key
        if isinstance(given, Mapping):
            return given_qrels(given, "qrels", key)
        path = os.fspath(given) if given else self._settings.qrels
        if given is None and path is not None and not is_here(path):
            self._note(f"judgements {path} are not here; nothing is measured (give others: qrels)")
            return None
        return None if path is None else read_qrels(path, "qrels" if given else "evaluate.qrels", key)

    @cached_property
    def judgements(self) -> Judgements | None:
        """Judgements that are given, else those of the config, else those of the run's judge."""
        from jobs.measure.judged import judged_relevance

        if self._judged and self._qrels is not None:
            raise ConfigError("argument", "judged: measures by the run's judge, and qrels names a file; leave one out")
        named = None if self._judged else self.named
        return judged_relevance(self.folder) if named is None else named

    @cached_property
    def gold(self) -> GoldAnswers | None:
        """Gold answers that are given, else those of the config if they are here; None if no LLM answers."""
        from cluster.storage import remote
        from jobs.measure.answers import answering, gold_answers

        given, named = self._answers, self._settings.answers
        if not answering(self.folder):
            if given is not None:
                what = f"answers {given}: no LLM answers in {self.folder.storage.root}, whose config has no `answer`"
                raise ConfigError("argument", f"{what}; leave it out")
            return None
        if given is None and named is not None and not (remote(named) or Path(named).exists()):
            self._note(f"gold answers {named} are not here; answers are not measured (give others: answers)")
            return None
        return gold_answers(self._settings, given, self._key)

    def measured(self, measures: Sequence[str] | None = None, *, must_match: bool = True) -> MeasuredRun:
        """Measures the run by these measures; None: those of its config.

        `must_match`: judgements of its config have to be of its log, too.
        """
        from jobs.pages.measured import measured_run

        measured = measured_run(self.folder, self.judgements, self.gold, measures)
        self.check_frames(measured.frames, must_match=must_match)
        return measured

    def compared(self, settings: EvaluateSettings) -> Comparisons:
        """Compares the arms of an ablation."""
        from jobs.pages.comparison import comparisons

        compared = comparisons(self.folder, self.judgements, settings, self.gold)
        self.check_frames(compared.frames)
        return compared

    def settings(self, measures: Sequence[str] | None = None, baseline: str | None = None) -> EvaluateSettings:
        """Returns how to measure: by these measures, else those of the judgements; arms by this baseline."""
        settings = measured_by(self._settings, self.judgements, measures)
        if baseline is None:
            return settings
        if not self.folder.is_ablation:
            raise ConfigError("argument", f"baseline: {self.folder.storage.root} is a run, which has no arms; leave it out")
        arms = {name for arm in self.folder.record["ablation"]["arms"] for name in (arm["name"], *(arm.get("also") or ()))}
        if baseline not in arms:
            raise ConfigError("argument", f"baseline {baseline}: {baseline!r} is no arm{nearest(baseline, arms)}")
        return settings.model_copy(update={"baseline": baseline})

    def check_frames(self, frames: Sequence[Frame], *, must_match: bool = True) -> None:
        """Checks that judgements and gold answers that are given are of the log; `must_match`: those of the config, too."""
        from jobs.measure.frame import LISTS

        for frame in frames:
            if frame.kind == LISTS and (must_match or self.given) and self.judgements is not None:
                check_matched(self.judgements.path, frame.warning, frame.not_committed, frame.left_out)
            elif frame.gold and self._answers and self.gold is not None:
                check_matched(self.gold.path, frame.warning, frame.not_committed)


def check_matched(path: str, warning: str | None, not_committed: int, left_out: Sequence[str] = ()) -> None:
    """Checks that a file is of the log, and that no measure reads deeper than the lists reach.

    Args:
        path: of judgements or gold answers.
        warning: why nothing is measured; None if something is.
        not_committed: number of judged keys of the log whose query is not committed.
        left_out: which measures are left out.
    """
    if left_out and warning is not None:
        raise ConfigError("config-value", f"evaluate.measures: {warning}")
    if warning is not None and not not_committed:
        raise ConfigError("judgements", f"{path}: {warning}; give other judgements, or another key")


def measured_by(
    settings: EvaluateSettings, judgements: Judgements | None, measures: Sequence[str] | None = None
) -> EvaluateSettings:
    """Returns the settings with these measures, or where none are given those that the judgements are for."""
    if measures is None:
        measures = settings.measures if judgements is None else judgements.measures(settings.measures)
    return settings.model_copy(update={"measures": list(measures)})


def prices_of_run(folder: RunFolder, path: str | None = None) -> Prices | None:
    """Returns the prices of a file, by default of that beside the config of the run; None if there are none."""
    from jobs.measure.run_list import prices_of

    return prices_of(path, None)(folder.record)
