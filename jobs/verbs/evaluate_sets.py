"""What judgements, gold answers and judges say of the arms of an ablation over sets: on each, and over all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError
from jobs.config.set_configs import of_set
from jobs.config.sets import SET, filled

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import RenderableType

    from jobs.measure.export.unjudged import UnjudgedOfSets
    from jobs.pages.sets.compared import ComparedSets
    from jobs.runs.sets.folder import SetsFolder
    from jobs.verbs.evaluate import MeasuredArms
    from jobs.verbs.inputs import GroundTruth


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

    def unjudged(self, depth: int) -> UnjudgedOfSets:
        """Returns what is not judged among the first results of all arms, of each set whose lists are judged.

        Raises:
            ConfigError: no list is judged, the sets are judged by other keys, or files cannot be read.
        """
        from jobs.measure.export.unjudged import UnjudgedOfSets
        from jobs.verbs.evaluate import unjudged

        of = {name: one for name, one in self.arms.items() if one.lists is not None and one.judgements is not None}
        if not of:
            raise ConfigError("argument", "unjudged: no list is judged, so that nothing is left to judge; name judgements")
        keys = {name: one.judgements.key for name, one in of.items() if one.judgements is not None}
        if len(set(keys.values())) > 1:
            each = ", ".join(f"{name} by {key}" for name, key in keys.items())
            raise ConfigError("argument", f"unjudged: one sheet names one key, and the sets are judged by several ({each})")
        found = {}
        for name, one in of.items():
            with of_set(name):
                found[name] = unjudged(one, depth)
        return UnjudgedOfSets(found, {name: len(one.lists.frame.keys) for name, one in of.items() if one.lists is not None})


def measured_sets(
    folder: SetsFolder,
    truth: GroundTruth,
    measures: Sequence[str] | None = None,
    compared: Mapping[str, Any] | None = None,
) -> MeasuredSets:
    """Compares the arms on each set by what is given, else by what its config names, and over all.

    Args:
        folder: of all.
        truth: what is given; in a path `{set}` is the set's name, and a sheet over sets has the judgements of each.
        measures: to compare by; None: those of the config.
        compared: how arms are compared, as `jobs.verbs.inputs.compared_by` takes it.

    Raises:
        ConfigError: a measure cannot be computed, a file cannot be read or is one for all sets, or a set has not begun.
    """
    from jobs.log.judgements import is_of_sets
    from jobs.pages.sets.compared import over_sets
    from jobs.verbs.evaluate import MeasuredArms, MeasuredBy, measured

    qrels = truth.qrels
    if isinstance(qrels, str) and SET not in qrels and not is_of_sets(qrels, truth.where):
        what = f"{truth.where}: {folder.storage.root} is an ablation over sets, which have judgements of their own each"
        raise ConfigError("argument", f"{what}; name a file for each, like 'data/{SET}/qrels.tsv', or a sheet over sets")
    arms: dict[str, MeasuredArms] = {}
    for name, run in folder.opened().items():
        with of_set(name):
            own = truth._replace(note=partial(_note_of, truth.note, name))
            own = own._replace(qrels=filled(qrels, name)) if isinstance(qrels, str) else own
            found = measured(run, MeasuredBy.of(own, run), measures, compared)
        assert isinstance(found, MeasuredArms)
        arms[name] = found
    return MeasuredSets(over_sets(folder.storage.root, {name: one.found for name, one in arms.items()}), arms)


def _note_of(note: Callable[[str], object], name: str, words: str) -> None:
    """Says of which set it is what a config names and is not here."""
    note(f"set {name}: {words}")
