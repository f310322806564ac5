"""The quality of a run, of an ablation's arms, or of the arms of several ablations: what `dmqr evaluate` measures."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError
from dmqr.results import Result
from dmqr.truth import Truth

if TYPE_CHECKING:
    import pyarrow as pa

    from dmqr.face import Face
    from jobs.measure.exports import WrittenAnswers
    from jobs.measure.join import Joined
    from jobs.pages.comparison import Comparisons
    from jobs.pages.measured import MeasuredRun
    from jobs.runs.folder import RunFolder


class MeasuredQuality(Result):
    """The measures of a run, or the comparison of an ablation's arms."""

    files: Sequence[WrittenAnswers] = ()
    """Files of answers that were written."""

    def __init__(self, folder: RunFolder, measured: MeasuredRun | Comparisons, missing: Sequence[str] = ()) -> None:
        """Takes the run, its measures, and notes on files that were missing."""
        super().__init__(title=f"{folder.storage.root} ({folder.state})", notes=missing)
        self._folder, self._measured = folder, measured

    @cached_property
    def values(self) -> dict[str, Any]:
        """Returns what `dmqr evaluate --json` prints."""
        files = {"files": [file._asdict() for file in self.files]} if self.files else {}
        return {"run": self._folder.storage.root, "state": self._folder.state} | self._measured.values() | files

    def page(self) -> Any:
        """Returns the tables."""
        return self._measured.page()

    @property
    def table(self) -> pa.Table:
        """A `pyarrow.Table` with a row per measure of the lists; of an ablation per arm and measure.

        Of a run: measure, results, original (the original query alone), difference, and the ends of its 95 % interval, low and
        high; null where they are not known. Of an ablation all figures of the comparison with the baseline.
        """
        import pyarrow as pa

        return pa.Table.from_pylist(list(self._rows()))

    def _rows(self) -> Iterator[dict[str, Any]]:
        if not self._folder.is_ablation:
            for measure, figures in self.values.get("measures", {}).items():
                low, high = figures["interval"] or (None, None)
                means = {name: figures[name] for name in ("results", "original", "difference")}
                yield {"measure": measure} | means | {"low": low, "high": high}
            return
        for arm in self.values["arms"]:
            for measure, figures in arm["measures"].items():
                plain = {name: value for name, value in figures.items() if not isinstance(value, dict | list)}
                yield {"arm": arm["arm"], "measure": measure} | plain

    @property
    def per_query(self) -> pa.Table:
        """A `pyarrow.Table` of each judged key, of an ablation with a row per arm and measure (`dmqr evaluate --per-query`)."""
        from jobs.measure.exports import long_table, wide_table

        frames = self._measured.frames
        return long_table(*frames) if self._folder.is_ablation else wide_table(self._folder, frames)

    @property
    def notes(self) -> list[str]:
        """Returns what the figures include, leave out and assume, a sentence each."""
        return [*self.remarks, *self.values.get("notes", ())]

    def write_per_query(self, path: str) -> None:
        """Writes `per_query` as Parquet or CSV."""
        from jobs.measure.exports import LONG, long_tables, write_tables

        if self._folder.is_ablation:
            write_tables(path, LONG, long_tables(*self._measured.frames))  # one arm at a time is in memory
        else:
            write_tables(path, self.per_query.schema, [self.per_query])

    def write_trec(self, path: str | os.PathLike[str]) -> list[str]:
        """Writes the results as a TREC run file, of an ablation a folder of one per arm; returns the paths of the files.

        Raises:
            ConfigError: an id has white space, or no list is judged.
        """
        from jobs.measure.exports import write_run, write_trec

        if self._measured.lists is None:
            raise ConfigError("argument", "trec: writes the results of what is judged, and nothing is; give judgements: qrels")
        name, frame = os.fspath(path), self._measured.lists.frame
        if self._folder.is_ablation:
            return list(write_trec(name, self._folder, frame).values())
        write_run(name, self._folder, frame)
        return [name]


class JoinedQuality(Result):
    """The arms of several ablations, compared over their data sets."""

    def __init__(self, folders: Mapping[str, RunFolder], joined: Sequence[Joined], missing: Sequence[str]) -> None:
        """Takes name of the ablation -> its folder, the comparisons, and notes on files that were missing."""
        super().__init__(notes=missing)
        self._folders, self._joined = folders, joined

    @cached_property
    def values(self) -> dict[str, Any]:
        """Returns what `dmqr evaluate ABLATION ABLATION --json` prints; unknown figures are None."""
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
        """Returns the tables."""
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
        """Returns what the figures include, leave out and assume, a sentence each."""
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
        comparisons[name] = truth.compared(truth.settings(measures, baseline)).found
    return JoinedQuality(folders, join(comparisons), face.notes)
