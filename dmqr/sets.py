"""An ablation over several data sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dmqr.quality import MeasuredQuality
from dmqr.results import Ablation, InFolder
from dmqr.shown import as_html

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.log.judgements import Key
    from jobs.pages.sets.compared import ComparedSets
    from jobs.runs.sets.folder import SetsFolder


class SetsAblation(InFolder):
    """An ablation over sets: an `Ablation` of each, and their comparison."""

    _folder: SetsFolder

    def __init__(self, folder: SetsFolder, compared: ComparedSets | None = None) -> None:
        """Takes the folder of all; None: arms are compared when that is asked for, and only then it is known what lacks."""
        super().__init__(folder, () if compared is None else compared.warnings)
        self._known = compared

    @property
    def arms(self) -> list[str]:
        """The names of the arms, as the first set has them; the first one is the config itself."""
        return next(iter(self.sets.values())).arms

    @cached_property
    def sets(self) -> Mapping[str, Ablation]:
        """Name -> the ablation of a set.

        Raises:
            ConfigError: one has not begun.
        """
        return {name: Ablation(one) for name, one in self._folder.opened().items()}

    @cached_property
    def values(self) -> dict[str, Any]:
        """What `dmqr ablate --json` prints; one that was opened is measured by the judgements of its config."""
        return self._compared.values()

    @cached_property
    def _compared(self) -> ComparedSets:
        from jobs.verbs.evaluate_sets import measured_sets
        from jobs.verbs.inputs import GroundTruth

        truth = GroundTruth(self.warnings.append, "qrels", dashes="")
        return measured_sets(self._folder, truth).compared if self._known is None else self._known

    def quality(
        self,
        qrels: str | None = None,
        *,
        key: Key | None = None,
        measures: Sequence[str] | None = None,
        judged: bool = False,
        baseline: str | None = None,
        baselines: Mapping[str, str] | None = None,
        pairs: bool | None = None,
    ) -> SetsQuality:
        """Compares the arms as `dmqr evaluate` does.

        Args:
            qrels: judgements: a path with `{set}` for the name of each set, or a sheet over sets; None: those of the config,
                else of its judge.
            key: what they name: log_id, query_id or query; None: as the config says.
            measures: as ir_measures names them, like `["nDCG@10", "R@100"]`; None: those of the config.
            judged: whether to measure by the judge's grades alone.
            baseline: the arm that arms are compared with; None: as the config says.
            baselines: an arm or a family, like `bm25*` -> the arm that they are compared with in its place; likewise.
            pairs: whether to compare every two arms, too; likewise.

        Raises:
            ConfigError: a measure cannot be computed, a file cannot be read, or a set has not begun.
        """
        from jobs.verbs.evaluate_sets import measured_sets
        from jobs.verbs.inputs import GroundTruth

        notes: list[str] = []
        truth = GroundTruth(notes.append, "qrels", qrels, key, judged=judged, dashes="")
        compared = {"baseline": baseline, "baselines": None if baselines is None else dict(baselines), "pairs": pairs}
        return SetsQuality(measured_sets(self._folder, truth, measures, compared), notes)

    def _repr_html_(self) -> str:
        """Returns the tables over sets."""
        return as_html(self._compared.page(), *(f"warning: {words}" for words in self.warnings))


class SetsQuality(MeasuredQuality):
    """What was measured of an ablation over sets.

    `table` has a row per arm, measure and set, with the figures of the comparison with the baseline on it, and one with `set`
    null for the mean over sets with its tests; `kind` is what was measured: lists, answers, ...
    """

    @property
    def notes(self) -> list[str]:
        """What the figures include, leave out and assume, a sentence each."""
        said = [note for one in self.values["comparisons"].values() for note in one["notes"]]
        return [*self._missing, *dict.fromkeys(said)]

    @property
    def pairs(self) -> pa.Table:
        """A `pyarrow.Table` with a row per kind, measure and every two arms over sets, where pairs are compared; else empty."""
        import pyarrow as pa

        comparisons = self.values["comparisons"].items()
        return pa.Table.from_pylist([{"kind": kind} | one for kind, found in comparisons for one in found["pairs"]])

    def _rows(self) -> Iterator[dict[str, Any]]:
        rows = []
        for kind, found in self.values["comparisons"].items():
            for arm in found["arms"]:
                for measure, over in arm["measures"].items():
                    for name, figures in {None: over, **over["sets"]}.items():
                        plain = {key: value for key, value in figures.items() if not isinstance(value, dict | list)}
                        rows.append({"kind": kind, "set": name, "arm": arm["arm"], "measure": measure} | plain)
        columns = dict.fromkeys(key for row in rows for key in row)
        yield from ({key: row.get(key) for key in columns} for row in rows)
