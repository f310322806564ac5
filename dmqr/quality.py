"""The quality of a run, or of an ablation's arms: the same figures as those of `dmqr evaluate`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError
from dmqr.shown import as_html, as_pandas

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from jobs.log.judgements import Judgements, Key
    from jobs.runs.folder import RunFolder
    from jobs.verbs.evaluate import MeasuredArms, MeasuredRun
    from jobs.verbs.join import JoinedAblations


class MeasuredQuality:
    """What was measured."""

    def __init__(self, measured: MeasuredRun | MeasuredArms, notes: Sequence[str]) -> None:
        """Takes what was measured, and what was found missing on the way."""
        self._measured, self._missing = measured, list(notes)

    @cached_property
    def values(self) -> dict[str, Any]:
        """What `dmqr evaluate --json` prints."""
        from jobs.verbs.evaluate import with_state

        return with_state(self._measured.folder, self._measured.values())

    @property
    def table(self) -> pa.Table:
        """A `pyarrow.Table` with a row per measure of the lists; of an ablation per arm and measure.

        Of a run: measure, results, original (the original query alone), difference, and the ends of its 95 % interval, low and
        high; null where they are not known. Of an ablation all figures of the comparison with the baseline.
        """
        import pyarrow as pa

        return pa.Table.from_pylist(list(self._rows()))

    @property
    def pairs(self) -> pa.Table:
        """A `pyarrow.Table` with a row per measure and every two arms of an ablation, where pairs are compared; else empty."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.values.get("pairs", []))

    @property
    def per_query(self) -> pa.Table:
        """A `pyarrow.Table` of each judged key: what `dmqr evaluate --per-query` writes."""
        return self._measured.per_query("per_query")

    @property
    def notes(self) -> list[str]:
        """What the figures include, leave out and assume, a sentence each."""
        return [*self._missing, *self.values.get("notes", ())]

    def write_trec(self, path: str | os.PathLike[str]) -> list[str]:
        """Writes what `dmqr evaluate --trec` does, of a run a file, of an ablation a folder; returns the paths of the files.

        Raises:
            ConfigError: an id has white space, or no list is judged.
        """
        found = self._measured.write_trec(os.fspath(path))
        if not found:
            raise ConfigError("argument", f"write_trec {os.fspath(path)}: no list is judged; give judgements of results")
        return found

    def to_pandas(self) -> pd.DataFrame:
        """Returns `table` as a pandas DataFrame.

        Raises:
            ConfigError: pandas is not installed.
        """
        return as_pandas(self.table)

    def _rows(self) -> Iterator[dict[str, Any]]:
        for arm in self.values.get("arms", ()):
            for measure, figures in arm["measures"].items():
                plain = {name: value for name, value in figures.items() if not isinstance(value, dict | list)}
                yield {"arm": arm["arm"], "measure": measure} | plain
        if "arms" in self.values:
            return
        for measure, figures in self.values.get("measures", {}).items():
            low, high = figures["interval"] or (None, None)
            means = {name: figures[name] for name in ("results", "original", "difference")}
            yield {"measure": measure} | means | {"low": low, "high": high}

    def __repr__(self) -> str:
        """Returns the means of the first measure, or the folder."""
        return f"Quality of {self._measured.folder.storage.root}"

    def _repr_html_(self) -> str:
        """Returns what `dmqr evaluate` prints."""
        return as_html(self._measured.page(), *self._missing)


class JoinedQuality:
    """The arms of several ablations, compared over their data sets."""

    def __init__(self, joined: JoinedAblations, notes: Sequence[str]) -> None:
        """Takes joined ablations, and which files of their configs are missing."""
        self._joined, self._missing = joined, list(notes)

    @cached_property
    def values(self) -> dict[str, Any]:
        """What `dmqr evaluate ABLATION ABLATION --json` prints."""
        return self._joined.values()

    @property
    def table(self) -> pa.Table:
        """A `pyarrow.Table` with a row per kind, measure, arm and set; `set` is null for the mean over sets."""
        import pyarrow as pa

        kinds = self.values["comparisons"].items()
        return pa.Table.from_pylist([{"kind": kind} | row for kind, found in kinds for row in found["rows"]])

    @property
    def notes(self) -> list[str]:
        """What the figures include, leave out and assume, a sentence each."""
        said = [note for found in self.values["comparisons"].values() for note in found["notes"]]
        return [*self._missing, *dict.fromkeys(said)]

    def to_pandas(self) -> pd.DataFrame:
        """Returns `table` as a pandas DataFrame.

        Raises:
            ConfigError: pandas is not installed.
        """
        return as_pandas(self.table)

    def _repr_html_(self) -> str:
        """Returns what `dmqr evaluate` prints."""
        return as_html(self._joined.page(), *self._missing)


def quality_of(
    folder: RunFolder,
    qrels: str | Mapping[str, Mapping[str, int]] | None,
    key: Key | None,
    measures: Sequence[str] | None,
    answers: str | None,
    *,
    judged: bool,
    compared: Mapping[str, Any] | None = None,
) -> MeasuredQuality:
    """Returns the quality of a run or an ablation; arguments and errors are those of `Run.quality`."""
    from jobs.log.judgements import given_qrels
    from jobs.verbs.evaluate import MeasuredBy, measured
    from jobs.verbs.inputs import GroundTruth

    named: str | Judgements | None = None if isinstance(qrels, Mapping) else qrels
    if isinstance(qrels, Mapping):
        named = given_qrels(qrels, "qrels", key or folder.config.evaluate.key)
    notes: list[str] = []
    by = MeasuredBy.of(GroundTruth(notes.append, "qrels", named, key, answers, judged, dashes=""), folder)
    try:
        by.check_any(folder, "qrels")
    except ConfigError as error:
        for words in notes:  # what the config names is not here
            error.add_note(words)
        raise
    return MeasuredQuality(measured(folder, by, measures, compared), notes)
