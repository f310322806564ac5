"""The quality of a run, or of the arms of one or several ablations, and the ground truth that it is measured by."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError, nearest
from dmqr.results import Folder, Result

if TYPE_CHECKING:
    import pyarrow as pa

    from dmqr.face import Face
    from jobs.config.settings import EvaluateSettings
    from jobs.log.judgements import Judgements, Key
    from jobs.measure.answers import GoldAnswers
    from jobs.measure.exports import WrittenAnswers
    from jobs.measure.frame import Frame
    from jobs.measure.join import Joined
    from jobs.pages.comparison import Comparisons, MeasuredRun
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
        settings: EvaluateSettings | None = None,
    ) -> None:
        """Takes what a caller gives, and `note`, which is told of missing files; `judged`: by the run's judge alone.

        `settings` are by default those of the run's config.
        """
        self.folder, self._settings = folder, settings or folder.config.evaluate
        self._qrels, self._key, self._answers, self._judged, self._note = qrels, key, answers, judged, note
        self.given = bool(qrels or key)

    @cached_property
    def named(self) -> Judgements | None:
        """Judgements that are given, else those of the config if they are here."""
        from jobs.log.judgements import given_qrels, is_here, read_qrels

        given, key = self._qrels, self._key or self._settings.key
        if isinstance(given, Mapping):
            return given_qrels(given, key)
        path = os.fspath(given) if given else self._settings.qrels
        if given is None and path is not None and not is_here(path):
            self._note(f"judgements {path} are missing; nothing is measured (name a file with qrels)")
            return None
        return None if path is None else read_qrels(path, "qrels" if given else "evaluate.qrels", key)

    @cached_property
    def judgements(self) -> Judgements | None:
        """Judgements that are given, else those of the config, else those of the run's judge."""
        from jobs.measure.judge import judged_relevance

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
            self._note(f"gold answers {named} are missing; answers are not measured (name a file with answers)")
            return None
        return gold_answers(self._settings, given, self._key)

    def measured(self, measures: Sequence[str] | None = None, *, must_match: bool = True) -> MeasuredRun:
        """Measures the run by these measures; None: those of its config.

        `must_match`: judgements of its config have to be of its log, too.
        """
        from jobs.pages.comparison import measured_run

        measured = measured_run(self.folder, self.judgements, self.gold, measures)
        self.check_frames(measured.frames, must_match=must_match)
        return measured

    def compared(self, settings: EvaluateSettings) -> Comparisons:
        """Compares the arms of an ablation."""
        from jobs.measure.comparison import comparisons
        from jobs.pages.comparison import Comparisons

        compared = Comparisons(comparisons(self.folder, self.judgements, settings, self.gold))
        self.check_frames(compared.frames)
        return compared

    def settings(self, measures: Sequence[str] | None = None, baseline: str | None = None) -> EvaluateSettings:
        """Returns the way to measure: by these measures, else those of the judgements; arms by this baseline."""
        settings, judgements = self._settings, self.judgements
        if measures is None:
            measures = settings.measures if judgements is None else judgements.measures(settings.measures)
        settings = settings.model_copy(update={"measures": list(measures)})
        if baseline is None:
            return settings
        if not self.folder.is_ablation:
            raise ConfigError("argument", f"baseline: {self.folder.storage.root} is a run, which has no arms; leave it out")
        arms = {name for arm in self.folder.arms for name in (arm["name"], *(arm.get("also") or ()))}
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
    """Checks that a file is of the log, by judged keys that are not committed, and that measures read no deeper than lists.

    `warning`: why nothing is measured; None if something is.
    """
    if left_out and warning is not None:
        raise ConfigError("config-value", f"evaluate.measures: {warning}")
    if warning is not None and not not_committed:
        raise ConfigError("judgements", f"{path}: {warning}; give other judgements, or another key")


class MeasuredQuality(Result):
    """The measures of a run, or the comparison of an ablation's arms."""

    files: Sequence[WrittenAnswers] = ()
    """Files of answers that were written."""

    def __init__(self, folder: RunFolder, measured: MeasuredRun | Comparisons, missing: Sequence[str] = ()) -> None:
        super().__init__(title=f"{folder.storage.root} ({folder.state})", notes=missing)
        self._folder, self._measured = folder, measured

    @cached_property
    def values(self) -> dict[str, Any]:
        files = {"files": [file._asdict() for file in self.files]} if self.files else {}
        return {"run": self._folder.storage.root, "state": self._folder.state} | self._measured.values() | files

    def page(self) -> Any:
        return self._measured.page()

    @property
    def table(self) -> pa.Table:
        """A `pyarrow.Table` with a row per measure of the lists; of an ablation per arm and measure.

        Of a run: measure, results, original (the original query alone), difference, and the ends of its 95 % interval, low and
        high; null where they are not known. Of an ablation all figures of the comparison with the baseline.
        """
        import pyarrow as pa

        rows: list[dict[str, Any]] = []
        for arm in self.values.get("arms", ()) if self._folder.is_ablation else ():
            for measure, figures in arm["measures"].items():
                plain = {name: value for name, value in figures.items() if not isinstance(value, dict | list)}
                rows.append({"arm": arm["arm"], "measure": measure} | plain)
        for measure, figures in () if self._folder.is_ablation else self.values.get("measures", {}).items():
            low, high = figures["interval"] or (None, None)
            means = {name: figures[name] for name in ("results", "original", "difference")}
            rows.append({"measure": measure} | means | {"low": low, "high": high})
        return pa.Table.from_pylist(rows)

    @property
    def per_query(self) -> pa.Table:
        """A `pyarrow.Table` of each judged key, of an ablation with a row per arm and measure (`dmqr evaluate --per-query`)."""
        import pyarrow as pa

        schema, tables = self._per_query()
        return pa.concat_tables([schema.empty_table(), *tables])

    def _per_query(self) -> tuple[pa.Schema, Iterable[pa.Table]]:
        from jobs.measure.exports import LONG, long_tables, wide_table

        if self._folder.is_ablation:
            return LONG, long_tables(*self._measured.frames)  # one arm at a time is in memory
        wide = wide_table(self._folder, self._measured.frames)
        return wide.schema, [wide]

    @property
    def notes(self) -> list[str]:
        return [*self.remarks, *self.values.get("notes", ())]

    def write_per_query(self, path: str) -> None:
        from jobs.measure.exports import write_tables

        write_tables(path, *self._per_query())

    def write_trec(self, path: str | os.PathLike[str]) -> list[str]:
        """Writes the results as a TREC run file, of an ablation a folder of one per arm; returns the paths of the files.

        Raises:
            ConfigError: an id has white space, or no list is judged.
        """
        from jobs.measure.exports import write_trec

        if self._measured.lists is None:
            raise ConfigError("argument", "trec: no query is judged, so there are no results to write; give qrels")
        return list(write_trec(os.fspath(path), self._folder, self._measured.lists.frame).values())


class JoinedQuality(Result):
    """The arms of several ablations, compared over their data sets."""

    def __init__(self, folders: Mapping[str, RunFolder], joined: Sequence[Joined], missing: Sequence[str]) -> None:
        """Takes name of the ablation -> its folder, the comparisons, and notes on files that were missing."""
        super().__init__(notes=missing)
        self._folders, self._joined = folders, joined

    @cached_property
    def values(self) -> dict[str, Any]:
        """Returns the values of `dmqr evaluate ABLATION ABLATION --json`; unknown figures are None."""
        from jobs.terminal.formats import known

        kinds = {
            joined.kind: {
                "baseline": joined.baseline,
                "measures": list(joined.measures),
                "sets": {name: {"counted": len(comparison.frame.keys)} for name, comparison in joined.sets.items()},
                "rows": [asdict(row) for row in joined.rows],
                "notes": list(joined.notes),
            }
            for joined in self._joined
        }
        ablations = {name: folder.storage.root for name, folder in self._folders.items()}
        return dict(known({"ablations": ablations, "comparisons": kinds}))

    def page(self) -> Any:
        from jobs.pages.comparison import joined_tables

        return joined_tables(self._joined)

    @property
    def table(self) -> pa.Table:
        """A `pyarrow.Table` with a row per kind, measure, arm and set; `set` is null for the mean over sets."""
        import pyarrow as pa

        kinds = self.values["comparisons"].items()
        return pa.Table.from_pylist([{"kind": kind} | row for kind, values in kinds for row in values["rows"]])

    @property
    def notes(self) -> list[str]:
        return list(dict.fromkeys([*self.remarks, *(note for joined in self._joined for note in joined.notes)]))


def joined(
    paths: Sequence[str], face: Face, measures: Sequence[str] | None, baseline: str | None, judged: bool
) -> JoinedQuality:
    """Joins finished ablations, each measured by the judgements and gold answers of its config.

    Raises:
        ConfigError: a folder holds no finished ablation, two have one name, or they have nothing in common.
    """
    from jobs.measure.join import join
    from jobs.runs.folder import open_run

    folders: dict[str, RunFolder] = {}
    comparisons = {}
    for folder in map(open_run, paths):
        name, root = folder.config.name, folder.storage.root
        if not folder.is_ablation or not folder.finished:
            what = "is a run" if not folder.is_ablation else f"is not finished ({folder.state})"
            raise ConfigError("argument", f"{root}: {what}; several folders are joined if each holds a finished ablation")
        if name in folders:
            other = folders[name].storage.root
            raise ConfigError("argument", f"{root}: has the name {name}, as {other}; give each ablation a `name` of its own")
        folders[name] = folder
    for name, folder in folders.items():
        truth = Truth(folder, judged=judged, note=lambda line, name=name: face.note(f"{name}: {line}"))  # type: ignore[misc]
        comparisons[name] = truth.compared(truth.settings(measures, baseline)).every
    return JoinedQuality(folders, join(comparisons), face.notes)
