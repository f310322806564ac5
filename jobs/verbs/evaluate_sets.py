"""What judgements, gold answers and judges say of the arms of an ablation over sets: on each, and over all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import RenderableType

    from jobs.pages.sets.compared import ComparedSets
    from jobs.runs.sets.folder import SetsFolder
    from jobs.verbs.evaluate import MeasuredArms


@dataclass(frozen=True)
class MeasuredSets:
    """The comparison of the arms of an ablation over sets."""

    compared: ComparedSets
    arms: Mapping[str, MeasuredArms]
    """Set -> its arms compared."""

    @property
    def folder(self) -> SetsFolder:
        """Returns the folder of all."""
        return self.compared.folder

    def values(self) -> dict[str, Any]:
        """Returns all as JSON-able values."""
        return self.compared.values()

    def page(self) -> RenderableType:
        """Returns the tables."""
        return self.compared.page()

    def per_query(self, where: str) -> pa.Table:
        """Returns a row per set, arm, measure and judged key; `where` is not needed."""
        from jobs.measure.export.set_tables import set_rows

        return set_rows(self.compared.sets)

    def write_trec(self, path: str, *, header: bool = True) -> list[str]:
        """Writes the results of each arm as a TREC run file, in a folder for each set; returns the paths of the files."""
        return [file for name, one in self.arms.items() for file in one.write_trec(f"{path}/{name}", header=header)]

    def write_latex(self, path: str) -> None:
        """Writes the tables for LaTeX, as the config's `ablate.table` has them.

        Raises:
            ConfigError: nothing is measured, or an arm or a measure that it names does not exist.
        """
        from jobs.measure.export.sets_latex import write_sets_latex

        measured = [one for one in self.compared.comparisons.values() if one.over]
        if not measured:
            raise ConfigError("judgements", f"{self.folder.storage.root}: nothing is measured; name judgements in the config")
        write_sets_latex(path, *measured, table=self.folder.config.ablate.table)


def measured_sets(
    folder: SetsFolder, note: Callable[[str], object], measures: Sequence[str] | None = None, *, judged: bool = False
) -> MeasuredSets:
    """Compares the arms on each set by what its config names, and over all.

    Args:
        folder: of all.
        note: is told what a config names and is not here.
        measures: to compare by; None: those of the config.
        judged: whether to measure by the judge's grades alone.

    Raises:
        ConfigError: a measure cannot be computed, a file cannot be read, or a set has not begun.
    """
    from jobs.config.set_configs import of_set
    from jobs.pages.sets.compared import over_sets
    from jobs.verbs.evaluate import MeasuredArms, MeasuredBy, measured
    from jobs.verbs.inputs import GroundTruth

    arms: dict[str, MeasuredArms] = {}
    for name, run in folder.opened().items():
        with of_set(name):
            truth = GroundTruth(partial(_note_of, note, name), "qrels", judged=judged, dashes="")
            found = measured(run, MeasuredBy.of(truth, run), measures)
        assert isinstance(found, MeasuredArms)
        arms[name] = found
    return MeasuredSets(over_sets(folder.storage.root, {name: one.found for name, one in arms.items()}), arms)


def _note_of(note: Callable[[str], object], name: str, words: str) -> None:
    """Says of which set it is what a config names and is not here."""
    note(f"set {name}: {words}")
