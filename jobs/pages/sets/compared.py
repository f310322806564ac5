"""The end of an ablation over sets: the comparisons over all sets, and what is written beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from cluster.errors import ConfigError
from jobs.chain.arms.judging import CRITERIA
from jobs.measure.compare.comparison import as_judged
from jobs.measure.compare.difference import Comparison
from jobs.measure.export.set_tables import write_set_rows
from jobs.measure.export.sets_latex import write_sets_latex
from jobs.measure.frame import LISTS
from jobs.measure.notes import HEADINGS
from jobs.measure.sets.over_sets import SetsComparison, compare_over_sets
from jobs.notify.message import Leading
from jobs.pages.closing import PER_QUERY, TABLE, ComparedArms
from jobs.pages.sets.page import sets_report
from jobs.pages.sets.tables import sets_tables, sets_values
from jobs.runs.folder import REPORT
from jobs.runs.sets.folder import SetsFolder, open_sets

NOT_MEASURED = "not measured: no set has judgements"


@dataclass(frozen=True)
class ComparedSets:
    """An ablation over sets with all that is known of its arms."""

    folder: SetsFolder
    comparisons: Mapping[str, SetsComparison] = field(default_factory=dict)
    """Kind of what is measured (`jobs.measure.frame.Frame.kind`) -> over all sets that are so; lists first."""
    sets: Mapping[str, Mapping[str, Comparison]] = field(default_factory=dict)
    """Set -> kind -> its comparison."""
    warnings: tuple[str, ...] = ()
    """What works, and probably not as it is meant, of one that was worked on just now."""

    @property
    def leading(self) -> Leading | None:
        """Returns the first measure of the best arm over all sets, beside its baseline; None where nothing was measured."""
        found = self.comparisons.get(LISTS)
        if found is None or not found.sets:
            return None
        compared = [arm for arm in found.ordered() if not found.is_baseline(arm) and found.contends(arm)]
        best = next((arm for arm in compared if arm not in found.untested), None)
        if best is None:
            return None
        baseline, first = found.base_of(best), found.first
        return Leading(first, best, found.mean(best, None, first), baseline, found.mean(baseline, None, first))

    @property
    def usd(self) -> None:
        """Returns None: what its sets have cost is known by their progress."""

    def values(self) -> dict[str, Any]:
        """Returns all as JSON-able values."""
        of_sets = {
            name: {"folder": folder, "measured": list(self.sets.get(name, ()))} for name, folder in self.folder.folders.items()
        }
        return {
            "run_id": self.folder.record["run_id"],
            "folder": self.folder.storage.root,
            "sets": of_sets,
            "comparisons": {kind: sets_values(one) for kind, one in self.comparisons.items()},
        }

    def page(self) -> RenderableType:
        """Returns the tables."""
        parts: list[RenderableType] = []
        for kind, one in self.comparisons.items():
            parts += [] if kind == LISTS else [Text("\n" * bool(parts) + HEADINGS[kind], style="bold")]
            parts.append(sets_tables(one))
        return Group(*parts or [Text(NOT_MEASURED)])


def compared_sets(path: str, found: Mapping[str, ComparedArms]) -> ComparedSets:
    """Returns the comparison over sets of ablations whose arms are compared; `path` is the folder of all.

    Raises:
        ConfigError: the sets have no measure in common.
    """
    lists = {name: [] if one.comparison is None else [one.comparison] for name, one in found.items()}
    return over_sets(path, {name: [*lists[name], *one.beside] for name, one in found.items()})


def over_sets(path: str, sets: Mapping[str, Iterable[Comparison]]) -> ComparedSets:
    """Returns what is known over sets, of set -> its comparisons; criteria of a judge are shown set by set alone.

    Raises:
        ConfigError: the sets have no measure in common, or `path` holds no ablation over sets.
    """
    folder = open_sets(path)
    if folder is None:
        raise ConfigError("run-missing", f"{path}: no ablation over sets lies there; give the folder that `ablate` prints")
    of_kinds = {
        name: {one.frame.kind: one for one in every if one.frame.kind != CRITERIA} for name, every in _by_judges(sets).items()
    }
    comparisons = {}
    for kind in (kind for kind in HEADINGS if any(kind in one for one in of_kinds.values())):
        without = [name for name, one in of_kinds.items() if kind not in one]
        of_kind = {name: one[kind] for name, one in of_kinds.items() if kind in one}
        comparisons[kind] = compare_over_sets(of_kind, without)
    return ComparedSets(folder, comparisons, of_kinds)


def _by_judges(sets: Mapping[str, Iterable[Comparison]]) -> dict[str, list[Comparison]]:
    """Returns set -> its comparisons; an LLM's of lists are of a kind of their own where people judged those of another set."""
    found = {name: list(every) for name, every in sets.items()}
    measured = [one.frame for every in found.values() for one in every if one.frame.kind == LISTS and one.frame.keys]
    if all(frame.judge is not None for frame in measured):
        return found
    return {name: [as_judged(one) if one.frame.judge is not None else one for one in every] for name, every in found.items()}


def write_set_pages(found: ComparedSets) -> None:
    """Writes table.tex and per_query.parquet into the folder, where something was measured, and at last report.html."""
    storage = found.folder.storage
    measured = {kind: one for kind, one in found.comparisons.items() if one.over}
    if measured:
        write_sets_latex(storage.url(TABLE), *measured.values(), table=found.folder.config.ablate.table)
        write_set_rows(storage.url(PER_QUERY), found.sets)
    storage.put(REPORT, sets_report(found).encode())
