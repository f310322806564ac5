"""Joins finished ablations, each of one data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from jobs.measure.join import Joined
    from jobs.runs.folder import RunFolder


@dataclass(frozen=True)
class JoinedAblations:
    """The comparison of the arms of several ablations."""

    folders: Mapping[str, RunFolder]
    """Name of the ablation -> its folder."""
    joined: Sequence[Joined]

    def values(self) -> dict[str, Any]:
        """Returns all as JSON-able values; unknown figures are None."""
        from jobs.terminal.formats import known

        kinds = {
            one.kind: {
                "baseline": one.baseline,
                "measures": list(one.measures),
                "sets": {name: {"counted": len(of.frame.keys)} for name, of in one.sets.items()},
                "rows": [asdict(row) for row in one.rows],
                "notes": list(one.notes),
            }
            for one in self.joined
        }
        found: dict[str, Any] = known(
            {"ablations": {name: folder.storage.root for name, folder in self.folders.items()}, "comparisons": kinds}
        )
        return found

    def page(self) -> RenderableType:
        """Returns the tables."""
        from jobs.pages.join import joined_tables

        return joined_tables(self.joined)


def join_ablations(
    paths: Sequence[str],
    note: Callable[[str], object],
    *,
    measures: Sequence[str] | None = None,
    baseline: str | None = None,
    judged: bool = False,
    dashes: str = "--",
) -> JoinedAblations:
    """Joins ablations, each measured by the judgements and gold answers of its config.

    Args:
        paths: folders of the ablations.
        note: is told which files of their configs are missing here.
        measures: None: those of each config.
        baseline: None: that of each config.
        judged: whether to measure by the grades of the judges alone.
        dashes: stands before the names of arguments in messages.

    Raises:
        ConfigError: a folder holds no finished ablation, two have one name, or they have nothing in common.
    """
    from jobs.measure.join import join
    from jobs.runs.folder import open_run
    from jobs.verbs.evaluate import MeasuredArms, MeasuredBy, measured
    from jobs.verbs.inputs import GroundTruth

    folders: dict[str, RunFolder] = {}
    for folder in map(open_run, paths):
        name, root = folder.config.name, folder.storage.root
        if not folder.is_ablation or not folder.finished:
            what = "is a run" if not folder.is_ablation else f"is not finished ({folder.state})"
            raise ConfigError("argument", f"{root}: {what}; several folders are joined if each holds a finished ablation")
        if name in folders:
            other = folders[name].storage.root
            raise ConfigError("argument", f"{root}: has the name {name}, as {other}; give each ablation a `name` of its own")
        folders[name] = folder
    comparisons = {}
    for name, folder in folders.items():
        truth = GroundTruth(partial(_note, note, name), "qrels", judged=judged, dashes=dashes)
        found = measured(folder, MeasuredBy.of(truth, folder), measures, {"baseline": baseline})
        assert isinstance(found, MeasuredArms)
        comparisons[name] = found.found
    return JoinedAblations(folders, join(comparisons))


def _note(note: Callable[[str], object], name: str, words: str) -> None:
    note(f"{name}: {words}")
